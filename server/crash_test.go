package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// TestCrashes runs the whole server, again and again, with subscribers that get,
// acknowledge, roll back, stand still, leave and come back, beside a database that writes and readers that fail.
// Each run ends with a stop or a crash, after which the next finds what was saved. I1, I2, I7:
// nothing is lost, nothing is out of order, nothing that was saved comes again.
func TestCrashes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			crashes(t, seed)
		})
	}
}

func crashes(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	h := newHistory(seed%2 == 0)
	m := &faulty{}
	filters := []string{"", "shop.a", "shop.a,shop.b"}
	wants := []func(*event.Table) bool{
		func(*event.Table) bool { return true },
		func(t *event.Table) bool { return t == tables[0] },
		func(t *event.Table) bool { return t != tables[2] },
	}
	names := []string{"a", "b", "c"}
	var mu sync.Mutex
	saved := map[string]int64{}
	m.onto = func(id Identity, r *meta.Record) {
		mu.Lock()
		defer mu.Unlock()
		if r.Cursor.Last() < saved[id.Client] { // I2
			t.Errorf("%s: saved cursor goes back from %d to %d", id, saved[id.Client], r.Cursor.Last())
		}
		saved[id.Client] = r.Cursor.Last()
	}
	lastIDs := map[string]int64{}
	for round := range 6 {
		s := New(Options{
			Meta: m, SaveInterval: time.Duration(rng.IntN(3)) * time.Millisecond,
			DestinationOptions: DestinationOptions{RingEvents: 20 + rng.IntN(60), RingBytes: 1000 + rng.Int64N(5000), DetachAfter: time.Millisecond, CatchUpReaders: 1 + rng.IntN(2)},
		})
		if err := s.AddDestination("shop", h, DestinationOptions{}); err != nil {
			t.Fatal(err)
		}
		follow := make([]*follower, len(names))
		for i, n := range names {
			if err := s.Subscribe(ctx, id(n), filters[i]); err != nil {
				t.Fatal(err)
			}
			c, err := s.Cursor(ctx, id(n))
			if err != nil {
				t.Fatal(err)
			}
			follow[i] = &follower{h: h, wants: wants[i], lastID: lastIDs[n]}
			follow[i].reconnect(c, false)
		}
		if err := s.Start(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg, writer sync.WaitGroup
		writer.Add(1)
		go func() {
			defer writer.Done()
			rng := rand.New(rand.NewPCG(seed, uint64(100+round)))
			for range 40 {
				h.write(rng, 5)
				if rng.IntN(10) == 0 {
					h.do(func() { h.fail = errors.New("the link is lost for good") })
					time.Sleep(time.Millisecond)
					h.do(func() { h.fail = nil })
				}
				if err := s.Restart(ctx, "shop"); err != nil {
					t.Errorf("restart: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		}()
		for i, n := range names {
			wg.Add(1)
			go func() {
				defer wg.Done()
				err := subscriber(s.Client(id(n)), follow[i], filters[i], rand.New(rand.NewPCG(seed, uint64(1000*round+i))), stop)
				if err != nil {
					t.Errorf("round %d: %s: %v", round, n, err)
				}
			}()
		}
		writer.Wait()
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		crash := round%2 == 0 && round < 4
		if round == 5 { // the last one goes on to the end
			deadline := time.Now().Add(5 * time.Minute)
			for done := false; !done && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				_ = s.Restart(ctx, "shop")
				done = true
				for _, n := range names {
					c, err := s.Cursor(ctx, id(n))
					done = done && err == nil && c.Last() == h.total()
				}
			}
		}
		if crash {
			m.refuse(errKilled)
		}
		close(stop)
		wg.Wait()
		if err := s.Stop(ctx); (err != nil) != crash {
			t.Errorf("stop: %v", err)
		}
		m.refuse(nil)
		for i, n := range names {
			lastIDs[n] = follow[i].lastID
		}
	}
	for _, n := range names {
		if saved[n] != h.total() {
			t.Errorf("%s came to %d of %d", n, saved[n], h.total())
		}
	}
	if h.live != 0 {
		t.Errorf("%d readers left", h.live)
	}
}

// errKilled is what a save meets that comes after the crash.
var errKilled = errors.New("killed")

// subscriber behaves as all kinds of clients do, until stop.
func subscriber(c *Client, w *follower, filter string, rng *rand.Rand, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		switch rng.IntN(30) {
		case 0:
			if len(w.batches) > 0 {
				b := w.batches[rng.IntN(len(w.batches))].id
				if err := c.RollbackTo(ctx, b); err != nil {
					return err
				}
				w.rollbackTo(b)
			}
		case 1:
			if err := c.Rollback(ctx); err != nil {
				return err
			}
			w.batches = nil
		case 2:
			time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond)
		case 3:
			if rng.IntN(3) > 0 {
				break
			}
			whole := rng.IntN(3) == 0
			var se *SaveError
			if err := c.Disconnect(ctx); err != nil && !errors.As(err, &se) {
				return err
			}
			cur, err := c.Cursor(ctx)
			if err != nil {
				return err
			}
			var o []SubscribeOption
			if whole {
				o = append(o, WithWholeTransaction())
			}
			if err := c.Subscribe(ctx, filter, o...); err != nil {
				if errors.Is(err, errKilled) {
					<-stop
					return nil
				}
				return err
			}
			w.reconnect(cur, whole)
		}
		size := []Size{{Events: 1 + rng.IntN(20)}, {Rows: 1 + rng.IntN(20)}, {Bytes: 1 + rng.Int64N(1000)}}[rng.IntN(3)]
		wait := []Wait{NoWait, WaitAtMost(time.Millisecond), WaitAtMost(5 * time.Millisecond)}[rng.IntN(3)]
		var de *DestinationError
		b, err := c.GetWithoutAck(ctx, size, wait)
		if errors.As(err, &de) {
			time.Sleep(time.Millisecond)
			b, err = &Batch{ID: NoBatch}, nil
		}
		if errors.Is(err, ErrBatchIDs) && errors.Is(err, errKilled) {
			<-stop
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.took(b); err != nil {
			return err
		}
		for len(w.batches) > rng.IntN(6) {
			cctx, cancel := contextFor(stop)
			err := c.Ack(cctx, w.batches[0].id, []byte("state"))
			cancel()
			var se *SaveError
			if err != nil && !errors.As(err, &se) {
				return err
			}
			w.ack()
		}
		cur, err := c.Cursor(ctx)
		if err != nil {
			return err
		}
		w.h.mu.Lock()
		p, ok := w.h.ends[cur.Ordinal]
		w.h.mu.Unlock()
		if !ok || !samePosition(&p, &cur.Position) {
			return fmt.Errorf("cursor %d lies at %s:%d", cur.Ordinal, cur.Position.File, cur.Position.Offset)
		}
	}
}

// contextFor returns a context that ends with stop.
func contextFor(stop <-chan struct{}) (context.Context, context.CancelFunc) {
	c, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
		case <-c.Done():
		}
		cancel()
	}()
	return c, cancel
}
