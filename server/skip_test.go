package server

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// TestSkipsI2: what the operator wrote into a record to be skipped is saved on with each move, and a new subscription takes it
// over with its first cursor; row changes without a table only count.
func TestSkipsI2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		skips := []meta.Skip{{GTID: "3e110000-0000-0000-0000-000000000000:2", Ordinals: 6}}
		r.must(r.m.Save(ctx, id("a"), &meta.Record{Cursor: r.h.cursor(0), Skips: skips}))
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(1)
		r.h.do(func() {
			r.h.begin()
			r.h.rows(0, 5, 100)
			r.h.events[len(r.h.events)-1].Table = nil
			r.h.end()
		})
		r.oneRow(1)
		var got []*event.Event
		for {
			b := r.get(a, Size{}, NoWait)
			if b.ID == NoBatch {
				synctest.Wait()
				if b = r.get(a, Size{}, NoWait); b.ID == NoBatch {
					break
				}
			}
			got = append(got, b.Events...)
			r.must(a.Ack(ctx, b.ID, nil))
		}
		var ordinals []int64
		for _, e := range got {
			if e.Kind == event.Rows && e.Table == nil {
				t.Error("a row change without a table was handed out")
			}
			ordinals = append(ordinals, e.Ordinal)
		}
		if want := []int64{0, 1, 2, 0, 8, 0, 9, 10}; !slices.Equal(ordinals, want) {
			t.Errorf("ordinals %v, want %v", ordinals, want)
		}
		if c, err := a.Cursor(ctx); err != nil || c.Ordinal != 10 {
			t.Errorf("cursor %v, %v", c, err)
		}
		n := r.subscribe("new", "")
		time.Sleep(time.Minute)
		for _, c := range []*Client{a, n} {
			rec, err := r.m.Load(ctx, c.Identity())
			r.must(err)
			if !slices.Equal(rec.Skips, skips) {
				t.Errorf("%s: skips %v", c.Identity(), rec.Skips)
			}
		}
		r.must(n.Disconnect(ctx))
		n = r.subscribe("new", "")
		r.must(n.Disconnect(ctx))
		if rec, err := r.m.Load(ctx, n.Identity()); err != nil || !slices.Equal(rec.Skips, skips) {
			t.Errorf("after a disconnection: %v, %v", rec, err)
		}
	})
}
