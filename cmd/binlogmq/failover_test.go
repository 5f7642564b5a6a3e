package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// dying is a store that saves so often and no more.
type dying struct {
	metaStore
	saved meta.Memory
	left  int
}

func (s *dying) Load(ctx context.Context, id meta.Identity) (*meta.Record, error) {
	return s.saved.Load(ctx, id)
}
func (s *dying) List(ctx context.Context, d string) ([]meta.Identity, error) {
	return s.saved.List(ctx, d)
}

func (s *dying) Save(ctx context.Context, id meta.Identity, r *meta.Record) error {
	if s.left--; s.left < 0 {
		return errors.New("killed")
	}
	return s.saved.Save(ctx, id, r)
}

// TestOnePlaceI7: wherever it is killed, and on whichever server it begins again, all cursors come to one place that none of them has
// passed over, and each has acknowledged what it had before, no less and no more (I2).
func TestOnePlaceI7(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		gtid := func(n int) event.GTID {
			if seed%2 == 0 {
				return event.GTID{SID: [16]byte{1}, Seq: uint64(n)}
			}
			return event.GTID{Domain: 1, Server: 1 + uint32(n/7%2), Seq: uint64(n)}
		}
		store := &dying{}
		p := &program{store: store, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		d := &destination{cfg: &config.Destination{Name: "shop"}}
		had := map[string]*standing{}
		highest := int64(0)
		for i := range 1 + rng.IntN(4) {
			id := meta.Identity{Destination: "shop", Client: string(rune('1' + i))}
			at := 1 + rng.IntN(40)
			c := event.Cursor{Position: event.Position{File: "b.1", Offset: uint64(at), ServerUUID: "A"}, Ordinal: int64(2 * at)}
			for n := range at {
				c.Position.GTIDs.Add(gtid(n + 1))
			}
			if rng.IntN(2) == 0 {
				c.Progress, c.Open = 1+rng.Int64N(5), gtid(at+1)
			}
			store.left = 1
			if err := store.Save(ctx, id, &meta.Record{Cursor: c}); err != nil {
				t.Fatal(err)
			}
			highest = max(highest, c.Last())
		}
		load := func() []*standing {
			all, err := p.standings(ctx, d)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for _, v := range load() {
			had[v.id.Client] = v
		}
		for round := 0; ; round++ {
			server := []string{"B", "A"}[rng.IntN(2)]
			all := load()
			store.left = rng.IntN(len(all) + 2)
			if round == 6 {
				store.left = len(all)
			}
			err := p.put(ctx, all, event.Position{GTIDs: common(all), ServerUUID: server})
			all = load()
			for _, v := range all {
				was := had[v.id.Client]
				for n := range 60 {
					if g := gtid(n + 1); v.acked.Contains(g) != was.acked.Contains(g) {
						t.Fatalf("seed %d: %s: %v acknowledged: %t, before %t", seed, v.id, g, v.acked.Contains(g), was.acked.Contains(g))
					}
				}
				if !slices.Equal(v.parts, was.parts) {
					t.Fatalf("seed %d: %s stands in %v, before %v", seed, v.id, v.parts, was.parts)
				}
				if v.record.Cursor.Last() < was.record.Cursor.Last() || v.record.Cursor.Last() > highest {
					t.Fatalf("seed %d: %s: ordinal %d, before %d", seed, v.id, v.record.Cursor.Last(), was.record.Cursor.Last())
				}
			}
			if err != nil {
				continue
			}
			for _, v := range all {
				c, first := &v.record.Cursor, &all[0].record.Cursor
				if c.Ordinal != highest || !c.Position.GTIDs.Equal(first.Position.GTIDs) || c.Position.ServerUUID != server || c.Progress != 0 {
					t.Fatalf("seed %d: %s stands at %+v, another one at %+v", seed, v.id, c, first)
				}
				if !v.acked.ContainsSet(c.Position.GTIDs) {
					t.Fatalf("seed %d: %s has not done %v", seed, v.id, c.Position.GTIDs)
				}
			}
			break
		}
	}
}

// TestElsewhere: which cursors mean the same on another server.
func TestElsewhere(t *testing.T) {
	set := func(text string) event.GTIDSet {
		g, err := event.ParseGTIDSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	at := func(server, gtids string, ordinal, progress int64) *standing {
		c := event.Cursor{Position: event.Position{ServerUUID: server, GTIDs: set(gtids)}, Ordinal: ordinal, Progress: progress}
		return &standing{record: &meta.Record{Cursor: c}}
	}
	for name, c := range map[string]struct {
		all  []*standing
		want bool
	}{
		"none":                      {nil, false},
		"this server's":             {[]*standing{at("B", "0-1-7", 7, 3), at("B", "0-1-5", 5, 0)}, false},
		"not known whose":           {[]*standing{at("", "0-1-7", 7, 3)}, false},
		"one place":                 {[]*standing{at("A", "0-1-7", 7, 0), at("A", "0-1-7", 7, 0)}, true},
		"one, inside a transaction": {[]*standing{at("A", "0-1-7", 7, 1)}, true},
		"two places":                {[]*standing{at("B", "0-1-7", 7, 0), at("A", "0-1-6", 6, 0)}, true},
		"one number, two places":    {[]*standing{at("A", "0-1-7", 7, 0), at("A", "0-1-6", 7, 0)}, true},
		"without GTIDs":             {[]*standing{at("A", "", 7, 0), at("A", "0-1-6", 6, 0)}, false},
	} {
		if got := elsewhere(c.all, "B"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
