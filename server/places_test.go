package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

func gtids(t *testing.T, s string) event.GTIDSet {
	t.Helper()
	g, err := event.ParseGTIDSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Whether two places are provably the same, on one server and across a failover.
func TestSamePosition(t *testing.T) {
	const other = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	pos := func(file string, offset uint64, server, set string) event.Position {
		return event.Position{File: file, Offset: offset, ServerUUID: server, GTIDs: gtids(t, set)}
	}
	for _, c := range []struct {
		name string
		a, b event.Position
		want bool
	}{
		{"same", pos("b.1", 9, uuid1, ""), pos("b.1", 9, uuid1, ""), true},
		{"offset", pos("b.1", 9, uuid1, ""), pos("b.1", 8, uuid1, ""), false},
		{"file", pos("b.1", 9, uuid1, ""), pos("b.2", 9, uuid1, ""), false},
		{"same place, other history", pos("b.1", 9, uuid1, uuid1+":1-3"), pos("b.1", 9, uuid1, uuid1+":1-4"), false},
		{"failover, same transactions", pos("b.1", 9, uuid1, uuid1+":1-3"), pos("b.7", 1, other, uuid1+":1-3"), true},
		{"failover, others", pos("b.1", 9, uuid1, uuid1+":1-3"), pos("b.1", 9, other, uuid1+":1-2"), false},
		{"failover without GTIDs", pos("b.1", 9, uuid1, ""), pos("b.1", 9, other, ""), false},
		{"MariaDB failover", pos("b.1", 9, "1", "0-1-7"), pos("b.2", 4, "2", "0-1-7"), true},
		{"MariaDB, older writers forgotten", pos("b.1", 9, "1", "0-2-5,0-1-7"), pos("b.2", 4, "2", "0-1-7"), true},
		{"MariaDB, another writer", pos("b.1", 9, "1", "0-1-7"), pos("b.2", 4, "2", "0-2-7"), false},
	} {
		if got := samePosition(&c.a, &c.b); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A subscription whose cursor was made elsewhere is refused or stops the reader, wherever it meets the ring.
func TestCursorElsewhere(t *testing.T) {
	const other = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	for _, gtid := range []bool{true, false} {
		h := newHistory(gtid)
		for range 5 {
			h.begin()
			h.rows(0, 1, 10)
			h.end()
		}
		p := &player{h: h, c: newCore("shop", 100, 1<<20), next: map[*feed]int{}, subs: map[string]*sub{}}
		if err := p.connect("a", h.cursor(2), false, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.read(p.c.main, 6); err != nil {
			t.Fatal(err)
		}
		elsewhere := func(ordinal int64, change func(*event.Position)) event.Cursor {
			c := h.cursor(ordinal)
			change(&c.Position)
			return c
		}
		for name, c := range map[string]event.Cursor{
			"at the ring's start": elsewhere(2, func(p *event.Position) { p.Offset++ }),
			"on the ring":         elsewhere(4, func(p *event.Position) { p.Offset++ }),
			"file":                elsewhere(4, func(p *event.Position) { p.File = "x" }),
			"no transaction end":  {Ordinal: 5, Position: h.ends[4]},
			"other server, another set": elsewhere(4, func(p *event.Position) {
				p.ServerUUID = other
				p.GTIDs.Add(event.GTID{SID: [16]byte{8}, Seq: 1})
			}),
			"other server, no equality": elsewhere(4, func(p *event.Position) { p.ServerUUID, p.GTIDs = other, event.GTIDSet{} }),
		} {
			err := p.connect("b", c, false, "")
			if err == nil || !strings.Contains(err.Error(), "shop/b") || !strings.Contains(err.Error(), "binlogmq cursor set") {
				t.Errorf("GTIDs %t, %s: %v", gtid, name, err)
			}
			p.c.release(p.subs["b"])
			delete(p.c.subs, "b")
		}
		// After a failover only GTIDs can tell.
		err := p.connect("b", elsewhere(4, func(p *event.Position) { p.ServerUUID = other }), false, "")
		if (err == nil) != gtid {
			t.Errorf("GTIDs %t, after a failover: %v", gtid, err)
		}
	}
}

// What a reader must not do: each is refused with an error that says where.
func TestBadStreams(t *testing.T) {
	build := func(do func(h *history)) []*event.Event {
		h := newHistory(true)
		do(h)
		return h.events
	}
	for name, events := range map[string][]*event.Event{
		"rows outside a transaction": build(func(h *history) { h.begin(); h.end(); h.rows(0, 1, 1) }),
		"end outside a transaction":  build(func(h *history) { h.begin(); h.end(); h.end() }),
		"begin within a transaction": build(func(h *history) { h.begin(); h.begin() }),
		"a gap":                      build(func(h *history) { h.begin(); h.last++; h.rows(0, 1, 1) }),
		"no transaction":             {{Kind: event.Begin}},
	} {
		c := newCore("shop", 100, 1<<20)
		f := c.newFeed(nil, event.Cursor{})
		if _, err := f.accept(events); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	// A reader that begins anew must find the transaction that is half put, as it was.
	first := build(func(h *history) { h.begin(); h.rows(0, 3, 10); h.rows(0, 3, 10); h.end() })
	for name, c := range map[string]struct {
		again []*event.Event
		ok    bool
	}{
		"same":          {fresh(first), true},
		"other GTID":    {build(func(h *history) { h.txns = 7; h.begin(); h.rows(0, 6, 10); h.end() }), false},
		"other place":   {build(func(h *history) { h.offset++; h.begin(); h.rows(0, 6, 10); h.end() }), false},
		"shorter":       {build(func(h *history) { h.begin(); h.rows(0, 1, 10); h.end() }), false},
		"cut otherwise": {build(func(h *history) { h.begin(); h.rows(0, 5, 10); h.rows(0, 1, 10); h.end() }), true},
	} {
		co := newCore("shop", 100, 1<<20)
		f := co.newFeed(nil, event.Cursor{Position: event.Position{ServerUUID: uuid1}})
		if _, err := f.accept(fresh(first)[:2]); err != nil {
			t.Fatal(err)
		}
		f.again = true
		n, err := f.accept(c.again)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && (n != len(c.again) || f.ring.Last() != 7 || f.open != nil) {
			t.Errorf("%s: %d events, last %d", name, n, f.ring.Last())
		}
	}
}

// A catch-up reader that does not find the main reader's history stops, and says so to its subscription alone.
func TestOtherHistory(t *testing.T) {
	h := newHistory(true)
	for range 6 {
		h.begin()
		h.rows(0, 1, 10)
		h.end()
	}
	c := newCore("shop", 100, 1<<20)
	p := &player{h: h, c: c, next: map[*feed]int{}, subs: map[string]*sub{}}
	if err := p.connect("a", h.cursor(6), false, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.read(c.main, 9); err != nil {
		t.Fatal(err)
	}
	if err := p.connect("b", h.cursor(4), false, ""); err != nil {
		t.Fatal(err)
	}
	b := p.subs["b"].feed
	moved := fresh(h.events[6:12])
	for _, e := range moved {
		e.Start, e.Next = e.Start+1, e.Next+1
	}
	if _, err := b.accept(moved); err != nil {
		t.Fatal(err)
	}
	if joined, err := c.join(b); joined || err == nil || !strings.Contains(err.Error(), "same history") {
		t.Errorf("joined %t, %v", joined, err)
	}
}

func TestSaveState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SaveInterval: time.Hour})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(1)
		r.must(a.Ack(ctx, r.get(a, Size{Events: 2}, WaitFull).ID, []byte("before")))
		r.must(a.SaveState(ctx, []byte("epoch 2")))
		rec, err := r.m.Load(ctx, id("a"))
		if err != nil || string(rec.Cursor.State) != "epoch 2" || rec.Cursor.Last() != 1 {
			t.Fatal(rec, err)
		}
		r.m.refuse(syscall.ENOSPC)
		c, cancel := contextFor(nil)
		go func() { time.Sleep(time.Minute); cancel() }()
		var se *SaveError
		if err := a.SaveState(c, []byte("epoch 3")); !errors.As(err, &se) || !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
		if err := r.s.Client(id("b")).SaveState(ctx, nil); !errors.Is(err, ErrNotSubscribed) {
			t.Error(err)
		}
		r.m.refuse(nil)
	})
}

// held is a source whose main reader can be stopped.
type held struct {
	*history
	stopped atomic.Bool
}

func (s *held) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	return s.history.Read(ctx, from, func(ctx context.Context, events []*event.Event) error {
		for s.stopped.Load() && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		return put(ctx, events)
	})
}

// ReadBeside puts all that there is at once, so that no part of it ends where the main reader stands.
func (s *held) ReadBeside(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	var all []*event.Event
	return s.history.Read(ctx, from, func(ctx context.Context, events []*event.Event) error {
		if all = append(all, events...); all[len(all)-1].Ordinal < s.total() {
			return nil
		}
		part := all
		all = nil
		return put(ctx, part)
	})
}

// TestMainReaderMeets: a catch-up reader that was ahead of the main one for a moment is met when that one has come so far, though nothing is written any
// more; else it would read on for ever, and no chunk of a snapshot would find a place.
func TestMainReaderMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, h: newHistory(true), m: &faulty{}}
		r.s = New(Options{Meta: r.m, SaveInterval: time.Second, DestinationOptions: DestinationOptions{RingEvents: 40}})
		t.Cleanup(func() { r.s.Stop(ctx) })
		src := &held{history: r.h}
		r.must(r.s.AddDestination("shop", src, DestinationOptions{}))
		rng := rand.New(rand.NewPCG(1, 1))
		r.h.write(rng, 100)
		first := r.subscribe("first", "")
		r.start()
		fw := r.follower(0)
		r.follow(first, fw)
		src.stopped.Store(true)
		r.h.write(rng, 100)
		r.must(r.m.Memory.Save(ctx, id("late"), &meta.Record{Cursor: r.h.cursor(0)}))
		late := r.subscribe("late", "")
		r.follow(late, r.follower(0))
		if st := r.sub("late"); st.Feed != FeedCatchUp {
			t.Fatalf("late: %+v", st)
		}
		src.stopped.Store(false)
		r.follow(first, fw)
		synctest.Wait()
		if st := r.sub("late"); st.Feed != FeedRing {
			t.Errorf("late: %+v", st)
		}
	})
}
