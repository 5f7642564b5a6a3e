package bridge

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// groupSink confirms the messages of a source transaction when it has ended, or when it must.
type groupSink struct {
	nullSink
	mu       sync.Mutex
	held     []*sink.Message
	groups   [][]int64 // ordinals confirmed together
	yielded  map[int64]bool
	finished int
}

func (s *groupSink) KeepsTransactions() bool { return true }

func (s *groupSink) release(err error) (ordinals []int64) {
	for _, m := range s.held {
		ordinals = append(ordinals, m.Sequence)
		m.Done(err)
	}
	s.held = nil
	return ordinals
}

func (s *groupSink) Publish(_ context.Context, msgs []sink.Message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(msgs)
	for i := range n {
		more := msgs[i].More // behind the last one the slab may be used again
		if s.held = append(s.held, &msgs[i]); !more {
			s.groups = append(s.groups, s.release(nil))
		}
	}
	return n, nil
}

func (s *groupSink) EndTransaction() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 {
		s.groups = append(s.groups, s.release(nil))
	}
}

func (s *groupSink) Yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 {
		for _, o := range s.release(nil) {
			s.yielded[o] = true
		}
	}
}

func (s *groupSink) Finish(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished++
	s.release(sink.ErrReset)
	return nil
}

func (s *groupSink) Reset(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(sink.ErrReset)
	return nil
}

// A sink that keeps source transactions learns where each ends; only one that does not fit into ring or window is cut.
func TestSourceTransactionsAreToldApart(t *testing.T) {
	for seed := range uint64(10) {
		h := randomHistory(t, rand.New(rand.NewPCG(seed, 11)), 120)
		transaction, events := map[int64]int{}, map[int]int{} // of an ordinal; of a transaction
		begin := 0
		for i, end := range h.ends {
			for _, e := range h.events[begin:end] {
				for o := e.Ordinal; e.Kind == event.Rows && o < e.Ordinal+int64(e.Rows); o++ {
					transaction[o] = i
				}
			}
			events[i], begin = end-begin, end
		}
		s := &groupSink{nullSink: nullSink{3}, yielded: map[int64]bool{}}
		ctx := context.Background()
		r := &rig{t: t, result: make(chan error, 1)}
		r.server = server.New(server.Options{Meta: new(meta.Memory), SaveInterval: time.Hour})
		// The ring stalls some, the window others.
		if err := r.server.AddDestination("d", h, server.DestinationOptions{RingEvents: 40 + 30*int(seed%2)}); err != nil {
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
		r.wait(h.want[len(h.want)-1].ordinal)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		left, small := map[int]int64{}, 0
		for o, i := range transaction {
			left[i]++
			if s.yielded[o] && events[i] < 24 {
				small++
			}
		}
		if small > 0 {
			t.Errorf("seed %d: %d row changes of small transactions were cut off", seed, small)
		}
		if len(s.yielded) == 0 {
			t.Errorf("seed %d: no transaction was too large", seed)
		}
		for _, g := range s.groups {
			seen := map[int64]bool{}
			for _, o := range g {
				seen[o] = true
				if transaction[o] != transaction[g[0]] {
					t.Fatalf("seed %d: ordinals %d and %d of different transactions are confirmed together", seed, g[0], o)
				}
			}
			if i := transaction[g[0]]; int64(len(seen)) != left[i] && events[i] < 24 {
				if _, row := transaction[g[0]]; row {
					t.Fatalf("seed %d: %d of %d row changes of transaction %d are confirmed together", seed, len(seen), left[i], i)
				}
			}
		}
		if s.finished != 1 {
			t.Errorf("seed %d: finished %d times", seed, s.finished)
		}
	}
}
