package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// countSink is a stateful sink whose state is how many messages are acknowledged.
type countSink struct {
	*faultSink
	mu                   sync.Mutex
	acked, marked, total int64
	fresh                bool // the session has published nothing
	restored             []sink.Continuation
	refuse               error
}

func (s *countSink) KeepsState() bool { return true }

func (s *countSink) Restore(_ context.Context, state []byte, how sink.Continuation) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = append(s.restored, how)
	if s.refuse != nil {
		return false, s.refuse
	}
	s.acked, s.fresh = 0, true
	if len(state) == 8 && how == sink.Same {
		s.acked = int64(binary.BigEndian.Uint64(state))
		return false, nil
	}
	return true, nil
}

func (s *countSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	s.mu.Lock()
	if s.fresh {
		s.fresh, s.marked = false, s.total
	}
	s.mu.Unlock()
	n, err := s.faultSink.Publish(ctx, msgs)
	s.mu.Lock()
	s.total += int64(n)
	s.mu.Unlock()
	return n, err
}

func (s *countSink) Reset(ctx context.Context) error {
	err := s.faultSink.Reset(ctx)
	s.mu.Lock()
	s.fresh = true
	s.mu.Unlock()
	return err
}

func (s *countSink) Mark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *countSink) Acknowledge(mark int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark > s.marked {
		s.acked += mark - s.marked
		s.marked = mark
	}
}

func (s *countSink) AppendState(dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return binary.BigEndian.AppendUint64(dst, uint64(s.acked))
}

// judge is a store that holds each record saved against the history: I2.
type judge struct {
	store
	t     testing.TB
	h     *history
	saves int
}

func (j *judge) Save(ctx context.Context, id meta.Identity, r *meta.Record) error {
	st, err := ParseState(r.Cursor.State)
	if err != nil {
		j.t.Error(err)
	}
	if st != nil {
		want := uint64(0)
		for _, w := range j.h.want {
			if w.ordinal <= r.Cursor.Last() {
				want++
			}
		}
		if len(st.Sink) != 8 || binary.BigEndian.Uint64(st.Sink) != want {
			j.t.Errorf("I2: the cursor at %d is saved with state %x, want %d messages", r.Cursor.Last(), st.Sink, want)
		}
		j.saves++
	}
	return j.store.Save(ctx, id, r)
}

// TestSinkStateI2: whatever fails, and whenever the process is killed, the sink's state is saved with the cursor that it belongs to.
func TestSinkStateI2(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 9))
		h := randomHistory(t, rng, 150)
		mem := new(meta.Memory)
		broker := newFaultSink(seed, 40)
		for life := 0; ; life++ {
			j := &judge{store: store{Memory: mem}, t: t, h: h}
			s := &countSink{faultSink: broker}
			save := []time.Duration{0, time.Millisecond, time.Hour}[rng.IntN(3)]
			r := startStateful(t, h, j, s, save)
			if life < 6 {
				time.Sleep(time.Duration(rng.IntN(6000)) * time.Microsecond)
				r.kill(&j.store)
				if err := broker.Reset(context.Background()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			r.wait(h.want[len(h.want)-1].ordinal)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			break
		}
		checkLog(t, h, broker, 3)
		if err := broker.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func startStateful(t testing.TB, h *history, m meta.Store, s *countSink, save time.Duration) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, result: make(chan error, 1)}
	r.server = server.New(server.Options{Meta: m, SaveInterval: save, DestinationOptions: server.DestinationOptions{RingEvents: 64}})
	if err := r.server.AddDestination("d", h, server.DestinationOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Subscribe(ctx, testID, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	r.bridge = testBridge(t, func(o *Options) {
		o.Client, o.Sink = r.server.Client(testID), s
		o.BatchEvents, o.WindowBatches, o.DrainTimeout = 7, 8, patience
	})
	run, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	go func() { r.result <- r.bridge.Run(run) }()
	return r
}

type finalFault struct{ error }

func (finalFault) Permanent() bool { return true }

// TestRestoreTellsWhatFollows: the sink learns whether what follows its state is what followed before, and may refuse it.
func TestRestoreTellsWhatFollows(t *testing.T) {
	for _, c := range []struct {
		fingerprint string
		want        sink.Continuation
		refuse      error
	}{{"same", sink.Same, nil}, {"other", sink.Changed, nil}, {MovedFingerprint, sink.Moved, nil}, {"other", sink.Changed, finalFault{errors.New("not drained")}}} {
		h := randomHistory(t, rand.New(rand.NewPCG(1, 1)), 5)
		mem := new(meta.Memory)
		broker := newFaultSink(1, 0)
		s := &countSink{faultSink: broker, refuse: c.refuse}
		fp := c.fingerprint
		if fp == "same" {
			fp = testBridge(t, nil).fingerprint
		}
		st := &State{Version: 1, Epoch: 4, Offset: 5 << 32, Fingerprint: fp, Partitions: map[string]int32{"x": 9}, Sink: make([]byte, 8)}
		text, err := st.Encode()
		if err != nil {
			t.Fatal(err)
		}
		first, err := h.Start(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		first.State = text
		if err := mem.Save(context.Background(), testID, &meta.Record{Cursor: first}); err != nil {
			t.Fatal(err)
		}
		r := startStateful(t, h, mem, s, 0)
		if c.refuse != nil {
			var stop *StopError
			if err := <-r.result; !errors.As(err, &stop) || !errors.Is(err, c.refuse) {
				t.Errorf("refused: %v", err)
			}
			r.result <- nil
		} else {
			r.wait(h.want[len(h.want)-1].ordinal)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(s.restored) != fmt.Sprint([]sink.Continuation{c.want}) {
			t.Errorf("%s: restored %v, want %v", c.fingerprint, s.restored, c.want)
		}
		rec, err := mem.Load(context.Background(), testID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseState(rec.Cursor.State)
		if err != nil {
			t.Fatal(err)
		}
		_, kept := got.Partitions["x"]
		epoch := int64(5)
		if c.want == sink.Same || c.refuse != nil {
			epoch = 4
		}
		if got.Epoch != epoch || kept != (epoch == 4) {
			t.Errorf("%s: saved %+v", c.fingerprint, got)
		}
		if err := broker.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// notingSink refuses what it is given, and has to remember that.
type notingSink struct {
	*countSink
	refused atomic.Int64
}

func (s *notingSink) Notes() int64 { return s.refused.Load() }

func (s *notingSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	n, err := s.countSink.Publish(ctx, msgs)
	if err == nil {
		s.refused.Add(1)
		s.set(func() { s.abort(errors.New("refused")) })
	}
	return n, err
}

func (s *notingSink) AppendState(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(s.refused.Load()))
}

// TestNotesI3: what a sink must remember of a failed session is saved before it tries again, though nothing is acknowledged: after a
// kill it would take the broker's word for what it has refused.
func TestNotesI3(t *testing.T) {
	h := &history{offset: 4}
	a := testTable(t, "a", true)
	h.begin()
	h.rows(a, change{nil, &testRow{1, "x", 1}}, change{nil, &testRow{2, "y", 1}})
	h.end()
	fs := newFaultSink(1, 0)
	fs.set(func() { fs.stalled = true })
	s := &notingSink{countSink: &countSink{faultSink: fs}}
	m := &meta.Memory{}
	r := startRig(t, h, m, func(o *Options) { o.Sink = s; o.BackoffMin, o.BackoffMax = time.Millisecond, time.Millisecond })
	var st *State
	until(t, func() bool {
		if s.refused.Load() < 5 {
			return false
		}
		st, _ = savedState(t, m)
		return len(st.Sink) == 8 && binary.BigEndian.Uint64(st.Sink) >= 4
	}, func() string { return fmt.Sprintf("saved: %v", st.Sink) })
	r.cancel()
	r.result <- <-r.result // nil where no session ran just then
	_ = r.stop()
	if st, _ = savedState(t, m); st.Clean {
		t.Error("a clean stop though what was sent was refused")
	}
	if err := fs.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
