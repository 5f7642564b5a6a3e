package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// Run tests the store that open returns. Each call of open opens the same, at first empty, store
// anew after the one before was closed; keeps says whether records survive that.
func Run(t *testing.T, keeps bool, open func(t *testing.T) (s meta.Store, closeIt func())) {
	ctx := context.Background()
	s, closeIt := open(t)
	defer func() { closeIt() }()
	id := func(d, c string) meta.Identity { return meta.Identity{Destination: d, Client: c} }

	t.Run("nothing saved", func(t *testing.T) {
		if r, err := s.Load(ctx, id("shop", "1001")); !errors.Is(err, meta.ErrNotFound) {
			t.Fatalf("Load: %v, %v; want ErrNotFound", r, err)
		}
		if ids, err := s.List(ctx, ""); err != nil || len(ids) != 0 {
			t.Fatalf("List: %v, %v", ids, err)
		}
	})

	if docs, ok := s.(meta.Documents); ok {
		t.Run("documents", func(t *testing.T) { documents(t, s, docs) })
	}

	t.Run("bad names", func(t *testing.T) {
		for _, bad := range []meta.Identity{
			{}, id("shop", ""), id("", "1001"), id("shop", "a/b"), id("shop", "a b"), id("a\x00b", "1"), id("a\nb", "1"),
			id("\xff", "1"), id(strings.Repeat("x", 101), "1"), id("shop", strings.Repeat("x", 101)), id("shop", "é"),
		} {
			if err := s.Save(ctx, bad, &meta.Record{}); err == nil {
				t.Errorf("%q saved", bad)
			}
			if _, err := s.Load(ctx, bad); err == nil || errors.Is(err, meta.ErrNotFound) {
				t.Errorf("%q loaded: %v", bad, err)
			}
		}
	})

	rng := rand.New(rand.NewPCG(1, 2))
	want := map[meta.Identity]*meta.Record{}
	ids := []meta.Identity{
		id("shop", "1001"), id("shop", "sink-orders"), id("shop", "sink-orders.2"), id("shop2", "1001"), id("..", ".."), id(".", "."),
		id("a/b", "x"), id("a%2Fb", "x"), id("a@b", "c"), id("a", "b"), id("Größe 東京", "1"), id(strings.Repeat("d", 100), strings.Repeat("c", 100)),
	}
	hold(t, s, ids)
	t.Run("save and load", func(t *testing.T) {
		for round := range 3 {
			for _, i := range ids {
				r := randomRecord(rng)
				if err := s.Save(ctx, i, r); err != nil {
					t.Fatalf("round %d: %s: %v", round, i, err)
				}
				want[i] = r.Clone()
				if r.Cursor.State != nil { // a store keeps nothing of what it was given
					clear(r.Cursor.State)
				}
				r.Cursor.Position.GTIDs.Add(event.GTID{Domain: 9, Server: 9, Seq: 99})
			}
			check(t, s, want)
		}
	})

	t.Run("list", func(t *testing.T) {
		for _, d := range []string{"", "shop", "shop2", "a", "none"} {
			got, err := s.List(ctx, d)
			if err != nil {
				t.Fatal(err)
			}
			var exp []meta.Identity
			for i := range want {
				if d == "" || i.Destination == d {
					exp = append(exp, i)
				}
			}
			meta.SortIdentities(exp)
			if !slices.Equal(got, exp) {
				t.Errorf("List(%q) = %v, want %v", d, got, exp)
			}
		}
	})

	t.Run("what is loaded belongs to the caller", func(t *testing.T) {
		r, err := s.Load(ctx, ids[0])
		if err != nil {
			t.Fatal(err)
		}
		r.Cursor.Position.GTIDs.Add(event.GTID{Domain: 7, Server: 7, Seq: 77})
		clear(r.Cursor.State)
		check(t, s, want)
	})

	t.Run("large state", func(t *testing.T) {
		r := randomRecord(rng)
		r.Cursor.State = bytes.Repeat([]byte{0, 1, 0xfe, '"'}, 1<<18)
		if err := s.Save(ctx, ids[0], r); err != nil {
			t.Fatal(err)
		}
		want[ids[0]] = r
		check(t, s, want)
	})

	t.Run("different subscriptions at once", func(t *testing.T) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for n, i := range ids {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(3, uint64(n)))
				for range 5 {
					r := randomRecord(rng)
					if err := s.Save(ctx, i, r); err != nil {
						t.Errorf("%s: %v", i, err)
						return
					}
					if _, err := s.List(ctx, ""); err != nil {
						t.Error(err)
					}
					mu.Lock()
					want[i] = r
					mu.Unlock()
				}
			}()
		}
		wg.Wait()
		check(t, s, want)
	})

	if keeps {
		t.Run("opened again", func(t *testing.T) {
			closeIt()
			s, closeIt = open(t)
			check(t, s, want)
			hold(t, s, ids)
		})
	}

	t.Run("delete", func(t *testing.T) {
		if err := s.Delete(ctx, id("shop", "none")); err != nil {
			t.Fatalf("Delete of nothing: %v", err)
		}
		for _, i := range ids[:5] {
			if err := s.Delete(ctx, i); err != nil {
				t.Fatal(err)
			}
			delete(want, i)
			if _, err := s.Load(ctx, i); !errors.Is(err, meta.ErrNotFound) {
				t.Errorf("%s: %v after Delete", i, err)
			}
		}
		check(t, s, want)
	})
}

func check(t *testing.T, s meta.Store, want map[meta.Identity]*meta.Record) {
	t.Helper()
	for i, w := range want {
		got, err := s.Load(context.Background(), i)
		if err != nil {
			t.Errorf("%s: %v", i, err)
			continue
		}
		if d := diff(got, w); d != "" {
			t.Errorf("%s: %s", i, d)
		}
	}
}

func diff(a, b *meta.Record) string {
	x, y := &a.Cursor, &b.Cursor
	switch {
	case x.Position.File != y.Position.File || x.Position.Offset != y.Position.Offset || x.Position.ServerUUID != y.Position.ServerUUID:
		return fmt.Sprintf("position %+v, want %+v", x.Position, y.Position)
	case x.Position.GTIDs.String() != y.Position.GTIDs.String():
		return fmt.Sprintf("GTIDs %s, want %s", x.Position.GTIDs, y.Position.GTIDs)
	case x.Ordinal != y.Ordinal || x.Progress != y.Progress:
		return fmt.Sprintf("ordinal %d+%d, want %d+%d", x.Ordinal, x.Progress, y.Ordinal, y.Progress)
	case x.Open != y.Open || !reflect.DeepEqual(x.Done, y.Done):
		return fmt.Sprintf("inside %v, done %+v, want %v, %+v", x.Open, x.Done, y.Open, y.Done)
	case !bytes.Equal(x.State, y.State):
		return fmt.Sprintf("state of %d bytes differs from the one of %d bytes", len(x.State), len(y.State))
	case a.Filter != b.Filter || a.BatchFloor != b.BatchFloor:
		return fmt.Sprintf("filter %q, floor %d; want %q, %d", a.Filter, a.BatchFloor, b.Filter, b.BatchFloor)
	case !slices.Equal(a.Skips, b.Skips):
		return fmt.Sprintf("skips %v, want %v", a.Skips, b.Skips)
	case !a.SavedAt.Equal(b.SavedAt):
		return fmt.Sprintf("saved at %s, want %s", a.SavedAt, b.SavedAt)
	}
	return ""
}

func randomRecord(rng *rand.Rand) *meta.Record {
	r := &meta.Record{
		Cursor: event.Cursor{
			Position: event.Position{
				File: fmt.Sprintf("binlog.%06d", rng.IntN(2000000)), Offset: rng.Uint64(),
				ServerUUID: []string{"", "1", "3e11fa47-71ca-11e1-9e33-c80aa9429562"}[rng.IntN(3)], ByFile: rng.IntN(2) == 0,
			},
			Ordinal: rng.Int64N(math.MaxInt64 / 2), Progress: rng.Int64N(math.MaxInt64 / 2),
		},
		Filter:     []string{"", "shop.*,!shop.tmp_*", "a\"b\\c<>&\u2028é.*"}[rng.IntN(3)],
		BatchFloor: rng.Int64(),
		SavedAt:    time.Unix(rng.Int64N(1<<33), rng.Int64N(1e9)).UTC(),
	}
	for range rng.IntN(3) {
		r.Skips = append(r.Skips, meta.Skip{GTID: fmt.Sprintf("0-1-%d", 1+rng.IntN(99)), Ordinals: 1 + rng.Int64N(9)})
	}
	switch rng.IntN(3) {
	case 0:
		for range 1 + rng.IntN(5) {
			g := event.GTID{SID: [16]byte{1, byte(rng.IntN(3))}, Tag: []string{"", "red"}[rng.IntN(2)], Seq: 1 + rng.Uint64N(100)}
			r.Cursor.Position.GTIDs.Add(g)
		}
	case 1:
		for range 1 + rng.IntN(5) {
			r.Cursor.Position.GTIDs.Add(event.GTID{Domain: uint32(rng.IntN(3)), Server: 1 + uint32(rng.IntN(3)), Seq: 1 + rng.Uint64N(100)})
		}
	}
	if rng.IntN(3) == 0 {
		r.Cursor.Open = event.GTID{SID: [16]byte{1}, Tag: "red", Seq: 1 + rng.Uint64N(100)}
		r.Cursor.Done = &event.Done{Parts: []event.Part{{GTID: event.GTID{Domain: 1, Server: 2, Seq: 3}, Ordinals: 1 + rng.Int64N(9)}}}
		r.Cursor.Done.GTIDs.Add(event.GTID{SID: [16]byte{3}, Seq: 1 + rng.Uint64N(100)})
	}
	if rng.IntN(3) > 0 {
		r.Cursor.State = make([]byte, rng.IntN(300))
		for i := range r.Cursor.State {
			r.Cursor.State[i] = byte(rng.Uint32())
		}
	}
	return r
}

// documents saves, replaces and deletes documents; they are no cursors.
func documents(t *testing.T, s meta.Store, docs meta.Documents) {
	ctx := t.Context()
	hold(t, s, []meta.Identity{{Destination: "papers"}, {Destination: "Größe 東京 papers"}})
	large := `{"x":"` + strings.Repeat("a document that does not fit a page ", 10_000) + `"}`
	for _, d := range []string{"papers", "Größe 東京 papers"} {
		if data, err := docs.LoadDocument(ctx, d, "schema"); !errors.Is(err, meta.ErrNotFound) {
			t.Fatalf("%s: %q, %v; want ErrNotFound", d, data, err)
		}
		for _, want := range []string{`{"a":1}`, large, `{"b":"` + d + `"}`} {
			if err := docs.SaveDocument(ctx, d, "schema", []byte(want)); err != nil {
				t.Fatal(err)
			}
			if got, err := docs.LoadDocument(ctx, d, "schema"); err != nil || string(got) != want {
				t.Fatalf("%s: %.100q, %v; want %.100q", d, got, err, want)
			}
		}
		if _, err := docs.LoadDocument(ctx, d, "other"); !errors.Is(err, meta.ErrNotFound) {
			t.Errorf("another document is there: %v", err)
		}
	}
	if ids, err := s.List(ctx, ""); err != nil || len(ids) != 0 {
		t.Errorf("documents are listed as cursors: %v, %v", ids, err)
	}
	for range 2 {
		if err := docs.SaveDocument(ctx, "papers", "schema", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := docs.LoadDocument(ctx, "papers", "schema"); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("a deleted document is there: %v", err)
	}
	for _, bad := range []string{"", "a\x00b"} {
		if err := docs.SaveDocument(ctx, bad, "schema", []byte("{}")); err == nil {
			t.Errorf("a document of %q is saved", bad)
		}
	}
}
