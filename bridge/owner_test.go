package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// ownedSink fails the test when messages come after the lease is lost, but for one call that had asked just before.
type ownedSink struct {
	*faultSink
	t    *testing.T
	lost *atomic.Bool
	late *atomic.Int64
}

func (s ownedSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	if s.lost.Load() && s.late.Add(1) > 1 {
		s.t.Error("messages are sent after the lease was lost")
	}
	return s.faultSink.Publish(ctx, msgs)
}

func (s ownedSink) Flush(ctx context.Context) error {
	if s.lost.Load() {
		s.t.Error("what is on its way is waited for after the lease was lost")
	}
	return s.faultSink.Flush(ctx)
}

type ownedClient struct {
	Client
	t    *testing.T
	lost *atomic.Bool
	late *atomic.Int64
}

func (c ownedClient) Ack(ctx context.Context, id int64, state []byte) error {
	if c.lost.Load() && c.late.Add(1) > 1 {
		c.t.Error("a batch is acknowledged after the lease was lost")
	}
	return c.Client.Ack(ctx, id, state)
}

// TestOwnerI8: once the owner's hook has said that the lease is lost nothing is sent and nothing acknowledged,
// wherever that happens, and Run ends; the next owner goes on and nothing is missing.
func TestOwnerI8(t *testing.T) {
	for _, at := range []int64{1, 2, 3, 5, 8, 13, 30} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			h := randomHistory(t, rand.New(rand.NewPCG(uint64(at), 3)), 40)
			m := &meta.Memory{}
			s := newFaultSink(uint64(at), 0)
			var lost atomic.Bool
			var asked, sent, acked atomic.Int64
			r := start(t, h, m, s, 0, func(o *Options) {
				o.Sink = ownedSink{s, t, &lost, &sent}
				o.Client = ownedClient{o.Client, t, &lost, &acked}
				o.Workers = -1 // one goroutine asks at a time, but for acknowledgements
				o.Owner = func() error {
					if asked.Add(1) < at {
						return nil
					}
					lost.Store(true)
					return fmt.Errorf("the lease is over: %w", meta.ErrFenced)
				}
			})
			var stop *StopError
			if err := <-r.result; !errors.As(err, &stop) || !errors.Is(err, server.ErrFenced) {
				t.Fatalf("Run: %v", err)
			}
			r.result <- nil
			_ = r.stop() // the lost one's own end
			r = start(t, h, m, s, 0, nil)
			r.wait(h.ord)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			checkLog(t, h, s, 3)
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
