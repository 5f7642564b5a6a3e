package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

const uuid2 = "4e11fa47-71ca-11e1-9e33-c80aa9429562"

// TestDoneI7: what a cursor says is done of transactions behind its position is not handed out, everything else is once, however
// often it is rolled back, and whatever of it was saved when the process was killed. It is forgotten when it is passed.
func TestDoneI7(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { doneIsPassedOver(t, seed) })
	}
}

func doneIsPassedOver(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	h := newHistory(true)
	h.logOnly = true // a chunk has no place in the numbers of another server
	h.write(rng, 30)
	start := h.cursor(0)
	start.Done = &event.Done{}
	want := map[int64]bool{}
	parts := map[event.GTID]int64{}
	for _, e := range h.events {
		g := e.Txn.GTID
		if e.Kind == event.Begin {
			switch rng.IntN(3) {
			case 0:
				start.Done.GTIDs.Add(g)
			case 1:
				parts[g] = 1 + rng.Int64N(5)
			}
		}
	}
	before := int64(0)
	for _, e := range h.events {
		g := e.Txn.GTID
		switch e.Kind {
		case event.Rows, event.DDL:
			for o := e.Ordinal; o < e.Ordinal+max(int64(e.Rows), 1); o++ {
				want[o] = !start.Done.GTIDs.Contains(g) && o > before+parts[g]
			}
		case event.End:
			if n := min(parts[g], e.Ordinal-before-1); n > 0 {
				start.Done.Parts = append(start.Done.Parts, event.Part{GTID: g, Ordinals: n})
			}
			before = e.Ordinal
		}
	}
	store := new(meta.Memory)
	if err := store.Save(ctx, id("a"), &meta.Record{Cursor: start}); err != nil {
		t.Fatal(err)
	}
	got := map[int64]int{}
	for {
		saved := &killable{Memory: store}
		s := New(Options{Meta: saved})
		if err := s.AddDestination("shop", h, DestinationOptions{RingEvents: 16}); err != nil {
			t.Fatal(err)
		}
		a := s.Client(id("a"))
		if err := errors.Join(a.Subscribe(ctx, ""), s.Start(ctx, "shop")); err != nil {
			t.Fatal(err)
		}
		acked := map[int64]bool{}
		for range 1 + rng.IntN(12) {
			b, err := a.GetWithoutAck(ctx, Size{Events: 1 + rng.IntN(6)}, NoWait)
			if err != nil {
				t.Fatal(err)
			}
			if b.ID == NoBatch {
				synctest.Wait()
				continue
			}
			if rng.IntN(4) == 0 {
				if err := a.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				continue
			}
			for _, e := range b.Events {
				if e.Kind != event.Rows && e.Kind != event.DDL {
					continue
				}
				for o := e.Ordinal + int64(e.Skip); o < e.Ordinal+max(int64(e.Rows), 1); o++ {
					acked[o] = true
				}
			}
			if err := a.Ack(ctx, b.ID, nil); err != nil { // saves before it returns
				t.Fatal(err)
			}
			for o := range acked {
				got[o]++
			}
			clear(acked)
		}
		cur, err := a.Cursor(ctx)
		if err != nil {
			t.Fatal(err)
		}
		saved.kill() // nothing more reaches the store
		if err := s.Stop(ctx); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Fatal(err)
		}
		if cur.Last() == h.total() {
			if cur.Done != nil || cur.Progress != 0 || !cur.Open.IsZero() {
				t.Errorf("seed %d: at the end the cursor still knows %+v", seed, cur)
			}
			break
		}
		if (cur.Progress > 0) != !cur.Open.IsZero() {
			t.Errorf("seed %d: progress %d in %v", seed, cur.Progress, cur.Open)
		}
	}
	for o, w := range want {
		if n := got[o]; n > 1 || (n == 1) != w {
			t.Errorf("seed %d: ordinal %d was handed out and acknowledged %d times, wanted %t", seed, o, n, w)
		}
	}
}

// killable is a store that ceases to save.
type killable struct {
	*meta.Memory
	dead bool
}

func (k *killable) kill() { k.dead = true }

func (k *killable) Save(ctx context.Context, id Identity, r *meta.Record) error {
	if k.dead {
		return errors.New("killed")
	}
	return k.Memory.Save(ctx, id, r)
}

// TestInsideAnotherTransactionI3: progress in one transaction is not taken off another one that stands in its place.
func TestInsideAnotherTransactionI3(t *testing.T) {
	for _, server := range []string{uuid1, uuid2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{})
			var told []error
			r.must(r.s.RemoveDestination(ctx, "shop"))
			r.must(r.s.AddDestination("shop", r.h, DestinationOptions{Failed: func(err error) { told = append(told, err) }}))
			at := r.h.ends[0]
			at.ServerUUID = server
			r.h.ends[0] = at
			c := r.h.cursor(0)
			c.Progress, c.Open = 1, event.GTID{SID: [16]byte{7}, Seq: 3}
			r.must(r.m.Save(ctx, id("a"), &meta.Record{Cursor: c}))
			a := r.subscribe("a", "")
			r.start()
			r.h.do(func() { r.h.begin(); r.h.rows(0, 3, 10); r.h.end() })
			_, err := a.GetWithoutAck(ctx, Size{}, WaitAny)
			var stopped *DestinationError
			if !errors.As(err, &stopped) || stopped.Client != "a" || !strings.Contains(err.Error(), "07000000-0000-0000-0000-000000000000:3") || len(told) != 1 {
				t.Errorf("%v, told %v", err, told)
			}
			if other := server != uuid1; errors.Is(err, event.ErrAnotherServer) != other {
				t.Errorf("another server %t: %v", other, err)
			}
		})
	}
}

// TestAnotherServerI5: every reader ends where another server answers than the one whose numbers it has, and hands nothing of it on.
func TestAnotherServerI5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.must(r.s.RemoveDestination(ctx, "shop"))
		prepared, fails := 0, true
		var told []error
		r.must(r.s.AddDestination("shop", r.h, DestinationOptions{
			Prepare: func(context.Context) error {
				if fails {
					return errors.New("not yet")
				}
				prepared++
				return nil
			},
			Failed: func(err error) { told = append(told, err) },
		}))
		a := r.s.Client(id("a"))
		if err := a.Subscribe(ctx, ""); err == nil || err.Error() != "not yet" {
			t.Error(err)
		}
		fails = false
		r.must(a.Subscribe(ctx, ""))
		r.must(r.s.Prepare(ctx, "shop"))
		r.start()
		r.oneRow(2)
		at := r.h.cursor(2)
		r.must(r.m.Save(ctx, id("b"), &meta.Record{Cursor: at}))
		w := r.follower(0)
		r.follow(a, w)
		// One that comes back from before begins a reader of its own, which finds nothing but another server.
		r.h.do(func() {
			for _, e := range r.h.events {
				e.Txn = &event.Txn{GTID: e.Txn.GTID, File: e.Txn.File, Start: e.Txn.Start, ServerUUID: uuid2}
			}
		})
		b := r.subscribe("b", "")
		_, err := b.GetWithoutAck(ctx, Size{}, WaitAny)
		if !errors.Is(err, event.ErrAnotherServer) || len(told) != 1 || !errors.Is(told[0], event.ErrAnotherServer) {
			t.Errorf("%v, told %v", err, told)
		}
		r.must(b.Disconnect(ctx))
		// The link is cut, and another server answers behind the next transaction. Whatever of it were sent, a process that is killed before
		// it saves a cursor could begin again with the first server and give its numbers to other transactions.
		r.h.do(func() { r.h.server = uuid2 })
		r.oneRow(2)
		_, err = a.GetWithoutAck(ctx, Size{}, WaitAny)
		if !errors.Is(err, event.ErrAnotherServer) || len(told) != 2 || !errors.Is(told[1], event.ErrAnotherServer) || prepared != 1 {
			t.Errorf("%v, told %v, prepared %d times", err, told, prepared)
		}
		// A ring that begins does likewise.
		c := newCore("shop", 10, 1<<20)
		c.placed = true
		f := c.newFeed(nil, at)
		if _, err := f.accept(fresh(r.h.events)); !errors.Is(err, event.ErrAnotherServer) {
			t.Error(err)
		}
		// Likewise one in the middle of a transaction, and one whose batch holds both.
		f = c.newFeed(nil, event.Cursor{})
		h := newHistory(true)
		h.begin()
		h.rows(0, 1, 10)
		if _, err := f.accept(fresh(h.events)); err != nil {
			t.Fatal(err)
		}
		f.again = true
		inside := fresh(h.events)
		inside[0].Txn = &event.Txn{GTID: inside[0].Txn.GTID, File: inside[0].Txn.File, Start: inside[0].Txn.Start, ServerUUID: uuid2}
		f.tail.Position.ServerUUID = uuid1
		if _, err := f.accept(inside); !errors.Is(err, event.ErrAnotherServer) {
			t.Error(err)
		}
		h.end()
		h.server = uuid2
		h.begin()
		h.end()
		f = c.newFeed(nil, event.Cursor{})
		if n, err := f.accept(fresh(h.events)); !errors.Is(err, event.ErrAnotherServer) || n != 0 {
			t.Error(n, err)
		}
		// Without GTIDs there is no place to put cursors to.
		h = newHistory(false)
		h.begin()
		h.end()
		h.server = uuid2
		h.begin()
		h.end()
		f = c.newFeed(nil, event.Cursor{})
		if _, err := f.accept(fresh(h.events[:2])); err != nil {
			t.Error(err)
		}
		if _, err := f.accept(fresh(h.events[2:])); err != nil {
			t.Error(err)
		}
		c.placed = false // nobody has put the cursors to a place of this server
		f = c.newFeed(nil, r.h.cursor(0))
		if n, err := f.accept(fresh(r.h.events)); err != nil || n == 0 {
			t.Error(n, err)
		}
		if err := fmt.Errorf("x: %w", misplaced(&sub{id: id("b"), cursor: at}, c.newFeed(nil, event.Cursor{Position: event.Position{ServerUUID: uuid2}}), "why")); !errors.Is(err, event.ErrAnotherServer) {
			t.Error(err)
		}
	})
}

// TestRemovedWhilePreparing: a destination whose clients wait for a source that is away can be removed, and added again; who waited is told.
func TestRemovedWhilePreparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.must(r.s.RemoveDestination(ctx, "shop"))
		away := DestinationOptions{Prepare: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		r.must(r.s.AddDestination("shop", r.h, away))
		told := make(chan error, 2)
		for _, client := range []string{"a", "b"} { // one in Prepare, the other one behind it
			go func() { told <- r.s.Client(id(client)).Subscribe(ctx, "") }()
		}
		synctest.Wait()
		r.must(r.s.RemoveDestination(ctx, "shop"))
		for range 2 {
			if err := <-told; !errors.Is(err, ErrStopped) {
				t.Error(err)
			}
		}
		r.must(r.s.AddDestination("shop", r.h, away))
		go func() { told <- r.s.Start(ctx, "shop") }()
		synctest.Wait()
		r.must(r.s.Stop(ctx))
		if err := <-told; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

// TestFirstOfThisServer: a new subscription does not begin at a cursor that was left behind on another server.
func TestFirstOfThisServer(t *testing.T) {
	at := func(server string, ordinal int64) event.Cursor {
		return event.Cursor{Ordinal: ordinal, Position: event.Position{ServerUUID: server}}
	}
	for name, c := range map[string]struct {
		all    []event.Cursor
		placed bool
		want   int64
	}{
		"one":               {[]event.Cursor{at("A", 7)}, true, 7},
		"the oldest":        {[]event.Cursor{at("A", 7), at("A", 5), at("A", 9)}, true, 5},
		"left behind":       {[]event.Cursor{at("A", 3), at("B", 7), at("B", 9)}, true, 7},
		"nobody sees to it": {[]event.Cursor{at("A", 3), at("B", 7)}, false, 3},
		"not known whose":   {[]event.Cursor{at("", 3), at("B", 7)}, true, 3},
	} {
		if got := oldestOf(c.all, c.placed); got.Ordinal != c.want {
			t.Errorf("%s: %d", name, got.Ordinal)
		}
	}
}

// TestSubscribeUntilSaved: a store that is away for a while when a subscription begins costs it nothing but time, if it says so; one that another
// process owns is not waited for (I8).
func TestSubscribeUntilSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.s.Client(id("a"))
		r.m.refuse(errors.New("away"))
		if err := a.Subscribe(ctx, ""); err == nil || !strings.Contains(err.Error(), "away") {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := a.Subscribe(short, "", UntilSaved()); err == nil || short.Err() == nil {
			t.Error(err)
		}
		told := make(chan error)
		go func() { told <- a.Subscribe(ctx, "", UntilSaved()) }()
		time.Sleep(time.Minute)
		r.m.refuse(nil)
		r.must(<-told)
		r.start()
		r.oneRow(2)
		r.follow(a, r.follower(0))
		r.m.refuse(meta.ErrFenced)
		if err := r.s.Client(id("b")).Subscribe(ctx, "", UntilSaved()); !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
		r.m.refuse(nil)
	})
}
