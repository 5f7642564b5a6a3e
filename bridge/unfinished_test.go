package bridge

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/binlogmq/binlogmq/meta"
)

// TestUnfinishedChangeIsRefusedI5: where whoever reads relies on the numbers, a changed configuration after a kill is refused, for what is
// stored would be stored again under new numbers; after a stop in order it begins a new epoch.
func TestUnfinishedChangeIsRefusedI5(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(3, 3)), 200)
	disk := &meta.Memory{}
	s := newFaultSink(1, 0)
	exact := func(o *Options) { o.Exact = true }
	changed := func(o *Options) { o.Exact, o.KeyChange = true, UpdateKeyChange }
	run := func(change func(*Options)) (*rig, *store) {
		s.set(func() { s.limit = 50 })
		m := &store{Memory: disk}
		from := s.now()
		r := start(t, h, m, s, 0, change)
		until(t, func() bool { return s.now() >= from+30 }, func() string { return "progress" })
		return r, m
	}
	r, m := run(exact)
	r.kill(m)
	if err := s.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	r = start(t, h, disk, s, 0, changed)
	err := <-r.result
	r.result <- err
	_ = r.stop()
	if !errors.Is(err, ErrUnfinished) {
		t.Fatalf("after a kill: error %v, want %v", err, ErrUnfinished)
	}
	r, _ = run(exact)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r, _ = run(changed)
	if st := r.bridge.Status(); st.Epoch != 2 {
		t.Errorf("after a stop in order: epoch %d, want 2", st.Epoch)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
