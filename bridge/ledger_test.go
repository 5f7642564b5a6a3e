package bridge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/sink"
)

// TestLedgerScripts runs scripts of steps and compares the transcripts (I1).
func TestLedgerScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/ledger/*.script")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := transcript(t, string(script))
			golden := strings.TrimSuffix(path, ".script") + ".golden"
			if updating() {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("transcript differs from %s:\n%s", golden, got)
			}
		})
	}
}

func transcript(t *testing.T, script string) string {
	var l ledger
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			fmt.Fprintln(&out, line)
			continue
		}
		var cmd, how string
		var a, b, c int64
		fmt.Sscan(line, &cmd, &a)
		var err error
		note := ""
		switch cmd {
		case "begin":
			fmt.Sscan(line, &cmd, &a, &b, &c)
			note = fmt.Sprintf("ticket %d", l.begin(a, b, c))
		case "add":
			err = l.add(a)
		case "seal":
			err = l.seal(a)
		case "done":
			fmt.Sscan(line, &cmd, &a, &how)
			err = l.done(a, how == "ok")
		case "acked":
			err = l.acked(a)
		default:
			t.Fatalf("unknown step %q", line)
		}
		if err != nil {
			if !errors.Is(err, errLedger) {
				t.Fatalf("%q: error of another kind: %v", line, err)
			}
			note = strings.TrimPrefix(err.Error(), errLedger.Error()+": ")
		}
		ready := "-"
		if batch, last, ok := l.ready(); ok {
			ready = fmt.Sprintf("batch %d to ordinal %d", batch, last)
		}
		fmt.Fprintf(&out, "%-16s | %-44s | pending %d, bytes %d, ready %s\n", line, note, l.pending(), l.bytes, ready)
	}
	return out.String()
}

// modelBatch is the naive model: it remembers every message.
type modelBatch struct {
	id     int64
	open   map[[2]int]bool // messages not done, by (slab, index)
	failed bool
}

// TestRandomCompletionsI1 completes the messages of many batches in random order through all
// layers, some with errors, and compares what may be acknowledged with a naive model after every one.
func TestRandomCompletionsI1(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := testBridge(t, nil)
		s := newSession(b)
		type pending struct {
			m     *sink.Message
			model *modelBatch
			key   [2]int
		}
		var model []*modelBatch
		var live []pending
		acked := int64(0)
		check := func() {
			t.Helper()
			want, ok := int64(0), false
			if len(model) > 0 && len(model[0].open) == 0 && !model[0].failed {
				want, ok = model[0].id, true
			}
			got, _, gotOK := s.ledger.ready()
			if got != want || gotOK != ok {
				t.Fatalf("seed %d: ready = %d, %t; want %d, %t", seed, got, gotOK, want, ok)
			}
		}
		for id := int64(1); id <= 30 || len(live) > 0; {
			switch r := rng.IntN(10); {
			case id <= 30 && (r < 2 || len(live) == 0):
				mb := &modelBatch{id: id, open: map[[2]int]bool{}}
				ticket := s.ledger.begin(id, 1, id)
				id++
				n := 0
				for range rng.IntN(3) {
					c := s.chunk(ticket)
					for range 1 + rng.IntN(3) {
						sl := smallSlabs.Get().(*slab)
						k := 1 + rng.IntN(4)
						for i := range k {
							sl.msgs = append(sl.msgs, sink.Message{Sequence: int64(i), Owner: sl})
						}
						sl.chunk = c
						sl.left.Store(int64(k))
						c.left.Add(1)
						s.outstanding.Add(1)
						for i := range k {
							key := [2]int{n, i}
							mb.open[key] = true
							live = append(live, pending{&sl.msgs[i], mb, key})
						}
						n++
					}
					c.drop()
				}
				if err := s.ledger.seal(ticket); err != nil {
					t.Fatal(err)
				}
				model = append(model, mb)
			default:
				i := rng.IntN(len(live))
				p := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				var err error
				if rng.IntN(300) == 0 {
					err = errors.New("broker said no")
					p.model.failed = true
				}
				delete(p.model.open, p.key)
				p.m.Done(err)
			}
			check()
			for len(model) > 0 && len(model[0].open) == 0 && !model[0].failed && rng.IntN(2) == 0 {
				if model[0].id != acked+1 {
					t.Fatalf("seed %d: batch %d acknowledged after %d", seed, model[0].id, acked)
				}
				acked = model[0].id
				if err := s.ledger.acked(acked); err != nil {
					t.Fatal(err)
				}
				model = model[1:]
				check()
			}
		}
		if n := s.outstanding.Load(); n != 0 {
			t.Fatalf("seed %d: %d slabs outstanding at the end", seed, n)
		}
	}
}

// TestSecondCompletionPanics: each completion happens exactly once.
func TestSecondCompletionPanics(t *testing.T) {
	panics := func(name string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	b := testBridge(t, nil)
	s := newSession(b)
	c := s.chunk(s.ledger.begin(1, 1, 1))
	sl := &slab{chunk: c, msgs: make([]sink.Message, 2)}
	for i := range sl.msgs {
		sl.msgs[i].Owner = sl
	}
	sl.left.Store(2)
	c.left.Add(1)
	s.outstanding.Add(1)
	sl.msgs[0].Done(nil)
	panics("message", func() { sl.msgs[0].Done(nil) })
	other := &slab{chunk: c}
	panics("slab", func() { other.drop(1) })
	c.drop()
	sl.msgs[1].Done(nil)
	panics("chunk", func() { s.chunkDone(0, true) })
}
