package bridge

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/sink"
)

// sourceEnd makes the source's log end where h does.
func (h *history) sourceEnd(o *Options) {
	end := event.Position{File: "log.1", Offset: h.offset, ServerUUID: "u"}
	for _, e := range h.events {
		end.GTIDs.Add(e.Txn.GTID)
	}
	o.SourceEnd = func(context.Context) (event.Position, error) { return end, nil }
}

// TestUnfinishedChangeIsRefusedI5: where whoever reads relies on the numbers, a changed configuration after a kill is refused, for what is
// stored would be stored again under new numbers, also after a later run that has stopped in order before it came to the end of
// what the killed one may have sent; after a stop in order behind that it begins a new epoch.
func TestUnfinishedChangeIsRefusedI5(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(3, 3)), 400)
	disk := &meta.Memory{}
	s := newFaultSink(1, 0)
	exact := func(o *Options) { o.Exact = true; h.sourceEnd(o) }
	changed := func(o *Options) { exact(o); o.KeyChange = UpdateKeyChange }
	from := 0
	run := func() (*rig, *store) {
		from = s.now()
		s.set(func() { s.limit, s.halt = 50, from+30 }) // or a slow test would find that everything is sent
		m := &store{Memory: disk}
		return start(t, h, m, s, 0, exact), m
	}
	refused := func(after string) {
		t.Helper()
		r := start(t, h, disk, s, 0, changed)
		err := <-r.result
		r.result <- err
		_ = r.stop()
		if !errors.Is(err, ErrUnfinished) {
			t.Fatalf("after %s: error %v, want %v", after, err, ErrUnfinished)
		}
	}
	r, m := run()
	until(t, func() bool { return s.now() >= from+30 }, func() string { return "progress" })
	r.kill(m)
	if err := s.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	refused("a kill")
	r, _ = run()
	if err := r.stopAfter(s, from, 30); err != nil {
		t.Fatal(err)
	}
	refused("a stop that is not behind all that may be stored")
	r = start(t, h, disk, s, 0, exact)
	r.wait(h.want[len(h.want)-1].ordinal)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = start(t, h, disk, s, 0, changed)
	until(t, func() bool { return r.bridge.Status().Epoch == 2 }, func() string { return "epoch 2 after a stop in order" })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// lateLimit is a broker that refuses a large message when what came behind it to other topics is stored already.
type lateLimit struct {
	*faultSink
	large int // bytes; 0: it refuses none
}

func (s *lateLimit) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	for i := range msgs {
		if s.large == 0 || msgs[i].Framed() <= s.large {
			continue
		}
		for _, part := range [][]sink.Message{msgs[:i], msgs[i+1:]} {
			if n, err := s.faultSink.Publish(ctx, part); err != nil {
				return n, err
			}
		}
		if err := s.Flush(ctx); err != nil {
			return i, err
		}
		err := sink.TooLarge(&msgs[i], errors.New("the broker takes no such message"))
		s.set(func() { s.failed = err; s.done(&msgs[i], err) })
		return len(msgs), nil
	}
	return s.faultSink.Publish(ctx, msgs)
}

// TestRefusedLateI5: a change that is refused when later ones are stored ends the sink before it, but that is no stop behind all that is
// stored: another configuration would send the later ones again under new numbers.
func TestRefusedLateI5(t *testing.T) {
	h := &history{offset: 4}
	a, b := testTable(t, "a", true), testTable(t, "b", true)
	h.begin()
	h.rows(a, change{nil, &testRow{1, "x", 1}}, change{nil, &testRow{2, strings.Repeat("z", 200), 1}})
	h.rows(b, change{nil, &testRow{3, "x", 1}}, change{nil, &testRow{4, "x", 1}})
	h.end()
	s := &lateLimit{newFaultSink(1, 0), 390}
	m := &meta.Memory{}
	run := func(change func(*Options)) *rig {
		return start(t, h, m, s.faultSink, 0, func(o *Options) {
			o.Sink, o.Exact = s, true
			h.sourceEnd(o)
			if change != nil {
				change(o)
			}
		})
	}
	ends := func(r *rig) error {
		err := <-r.result
		r.result <- nil
		if serr := r.stop(); serr != nil {
			t.Error(serr)
		}
		return err
	}
	var large *sink.TooLargeError
	if err := ends(run(nil)); !errors.As(err, &large) {
		t.Fatalf("%v, want a refusal", err)
	}
	if st, c := savedState(t, m); st.Clean || c.Progress != 1 {
		t.Errorf("after the refusal: clean %v, progress %d", st.Clean, c.Progress)
	}
	s.large = 0
	if err := ends(run(oversize(SplitOversize, 350))); !errors.Is(err, ErrUnfinished) {
		t.Errorf("another configuration: %v, want %v", err, ErrUnfinished)
	}
	r := run(nil)
	r.wait(h.ord)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
