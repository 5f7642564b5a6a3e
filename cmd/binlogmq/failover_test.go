package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
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
		return fmt.Errorf("killed: %w", meta.ErrFenced)
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
		p := silent(store)
		d := &destination{cfg: &config.Destination{Name: "shop"}, snapshots: snapshot.NewLog(nil)}
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
			err := p.put(ctx, d, all, event.Position{GTIDs: common(all), ServerUUID: server})
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
	set := func(text string) event.GTIDSet { return gtids(t, text) }
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

func gtids(t *testing.T, text string) event.GTIDSet {
	t.Helper()
	g, err := event.ParseGTIDSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const sidA, sidB = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"

// silent returns a program that has nothing but a store.
func silent(s metaStore) *program {
	return &program{cfg: &config.Config{Meta: config.Meta{ZooKeeper: &config.MetaZooKeeper{}}}, store: s, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// TestReachable: a client that has not read what the new server has purged stands in nobody's way; a sink does, as its stop must be seen.
func TestReachable(t *testing.T) {
	for name, c := range map[string]struct {
		first, at string
		sink, out bool
	}{
		"all is there":               {"", sidA + ":1-5", false, false},
		"purged and read":            {sidA + ":1-5", sidA + ":1-5", false, false},
		"purged":                     {sidA + ":1-5", sidA + ":1-4", false, true},
		"purged of another":          {sidA + ":1-5," + sidB + ":1", sidA + ":1-9", false, true},
		"purged, a sink":             {sidA + ":1-5", sidA + ":1-4", true, false},
		"purged, by place":           {sidA + ":1-5", "", false, true},
		"MariaDB":                    {"0-1-5", "0-1-5", false, false},
		"MariaDB, another server":    {"0-1-5", "0-2-7", false, false}, // numbers rise along a domain
		"MariaDB, purged":            {"0-2-7", "0-1-5", false, true},
		"MariaDB, a domain not read": {"0-1-5,1-1-3", "0-1-5", false, false},
	} {
		v := &standing{id: meta.Identity{Destination: "shop", Client: "1001"}, record: &meta.Record{Cursor: event.Cursor{Position: event.Position{ServerUUID: "A", GTIDs: gtids(t, c.at)}}}}
		if c.sink {
			v.part = &sinkPart{}
		}
		all := []*standing{v}
		if got := silent(nil).reachable(all, event.Position{ServerUUID: "B", GTIDs: gtids(t, c.first)}); (len(got) == 0) != c.out || len(all) != 1 || all[0] != v {
			t.Errorf("%s: left out: %t", name, len(got) == 0)
		}
	}
}

// TestRelocateTo: where nothing is common, and nothing purged, the cursors go to a place of the log and not to an empty one; what the
// new server lacks is not remembered as done.
func TestRelocateTo(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		at, first, end, want, done string
		policy                     string
	}{
		"nothing common": {sidA + ":1-5", "", sidB + ":1-9", "", "", config.LostEarliest},
		"the end":        {sidA + ":1-5", "", sidB + ":1-9", sidB + ":1-9", "", config.LostLatest},
		"some common":    {sidA + ":1-5," + sidB + ":1-3", "", sidA + ":1-4," + sidB + ":1-2", sidA + ":1-4," + sidB + ":1-2", "", config.LostEarliest},
	} {
		store := &dying{left: 9}
		id := meta.Identity{Destination: "shop", Client: "1001"}
		if err := store.Save(ctx, id, &meta.Record{Cursor: event.Cursor{Ordinal: 7, Position: event.Position{File: "a.1", Offset: 4, ServerUUID: "A", GTIDs: gtids(t, c.at)}}}); err != nil {
			t.Fatal(err)
		}
		d := &destination{cfg: &config.Destination{Name: "shop", OnLostPosition: c.policy}, snapshots: snapshot.NewLog(nil)}
		p := silent(store)
		all, err := p.standings(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		first := event.Position{File: "b.1", Offset: 4, ServerUUID: "B", GTIDs: gtids(t, c.first)}
		end := event.Position{File: "b.9", Offset: 9, ServerUUID: "B", GTIDs: gtids(t, c.end)}
		if err := p.relocateTo(ctx, d, first, end, all, event.ErrNoPosition); err != nil {
			t.Fatal(err)
		}
		r, err := store.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		at := &r.Cursor.Position
		if at.GTIDs.String() != c.want || at.ServerUUID != "B" || at.GTIDs.IsEmpty() && at.File == "" || r.Cursor.Ordinal != 7 || r.Cursor.Done != nil {
			t.Errorf("%s: %+v", name, r.Cursor)
		}
	}
}

// TestStandings: a client's part of a transaction without name is forgotten, since it gets the whole again; a sink whose state cannot be read
// stops nobody else until cursors must be moved.
func TestStandings(t *testing.T) {
	ctx := context.Background()
	srv := server.New(server.Options{})
	defer func() { _ = srv.Stop(ctx) }()
	store := &dying{left: 9}
	client, out := meta.Identity{Destination: "shop", Client: "1001"}, clientOf("shop", "out")
	c := event.Cursor{Ordinal: 7, Progress: 3, Position: event.Position{ServerUUID: "A", GTIDs: gtids(t, sidA+":1-5")}}
	save := func(id meta.Identity, c event.Cursor) {
		if err := store.Save(ctx, id, &meta.Record{Cursor: c}); err != nil {
			t.Fatal(err)
		}
	}
	save(client, c)
	cfg, err := config.Parse([]byte(`destinations: [{name: shop, source: {address: "h:1", user: u}, tables: ["a.*"], sinks: [{name: out, file: {path: "`+t.TempDir()+`/out"}}]}]`), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	d := &destination{cfg: &cfg.Destinations[0], snapshots: newSnapshots(&store.saved, "shop")}
	p := silent(store)
	part := &sinkPart{cfg: &d.cfg.Sinks[0], client: srv.Client(out)}
	if part.sink, err = newSink("test", "shop", part.cfg, nil, p.log); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = part.sink.Close(ctx) }()
	o, err := bridgeOptions(d.cfg, part.cfg, part.client, part.sink, 0, p.log)
	if err != nil {
		t.Fatal(err)
	}
	if part.bridge, err = bridge.New(o); err != nil {
		t.Fatal(err)
	}
	d.sinks = []*sinkPart{part}
	gather := func() ([]*standing, error) {
		all, err := p.standings(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.gather(ctx, d, event.Position{ServerUUID: "B"}, all)
		return all, err
	}
	if all, err := p.standings(ctx, d); err != nil || len(all) != 1 || len(all[0].parts) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	c.State = []byte("{")
	save(out, c)
	all, err := gather()
	if err == nil || !strings.Contains(err.Error(), "shop/sink-out") || len(all) != 2 || !elsewhere(all, "B") {
		t.Errorf("%d, %v", len(all), err)
	}
	if err := p.relocateTo(ctx, d, event.Position{}, event.Position{}, all, event.ErrPurged); err == nil || !strings.Contains(err.Error(), "shop/sink-out") {
		t.Error(err)
	}
	// Numbers inside a transaction are of the tables that were captured then.
	state := &bridge.State{Version: 2, Epoch: 1, Fingerprint: "f", Clean: true, Recipe: []byte(`{"v":1,"rule":"2","codec":"c","destination":"shop","tables":["b.*"],"topic":"t","key":"none","key_change":"x"}`)}
	text, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c.State, c.Open = text, event.GTID{SID: [16]byte{1}, Seq: 6}
	save(out, c)
	if _, err := gather(); err == nil || !strings.Contains(err.Error(), "counts otherwise") {
		t.Error(err)
	}
	v, err := p.load(ctx, d.sinks[0])
	if err != nil || !v.inside() {
		t.Errorf("%+v, %v", v, err)
	}
	v.cursor.Progress = 0
	if v.inside() {
		t.Error("inside of nothing")
	}
	v.cursor.Done = &event.Done{Parts: []event.Part{{GTID: c.Open, Ordinals: 2}}}
	if !v.inside() {
		t.Error("a part is done further on")
	}
	// A chunk of a snapshot is read again; a transaction without name is none.
	c.State, c.Open = nil, event.GTID{}
	save(out, c)
	parts := func() (n int) {
		all, err := p.standings(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			n += len(v.parts)
		}
		return n
	}
	if n := parts(); n != 1 {
		t.Errorf("%d parts", n)
	}
	if _, err := gather(); err == nil || !strings.Contains(err.Error(), "does not say in which") {
		t.Error(err)
	}
	if err := errors.Join(d.snapshots.Order(ctx, snapshot.Request{ID: "one"}), d.snapshots.Append(ctx, chunkOf(t, "one", 7, []byte("row")))); err != nil {
		t.Fatal(err)
	}
	if n := parts(); n != 0 {
		t.Errorf("%d parts", n)
	}
	if _, err := d.snapshots.Rewind(ctx); err != nil { // a move is cut short: the other cursor is moved
		t.Fatal(err)
	}
	save(client, event.Cursor{Ordinal: 1000})
	d.snapshots = newSnapshots(&store.saved, "shop")
	if n := parts(); n != 0 || d.snapshots.Last() != 0 {
		t.Errorf("%d parts", n)
	}
}

// refusing is a store that refuses so often.
type refusing struct {
	dying
	refuse int
}

func (s *refusing) Save(ctx context.Context, id meta.Identity, r *meta.Record) error {
	if s.refuse--; s.refuse >= 0 {
		return errors.New("away")
	}
	return s.dying.Save(ctx, id, r)
}

// leased is a lease that can be lost.
type leased struct {
	meta.Lease
	lost chan struct{}
}

func (l *leased) Lost() <-chan struct{} { return l.lost }
func (l *leased) Err() error            { return meta.ErrFenced }

// TestPersist: a store that is away for a while costs nothing but time, and I8: nothing is waited for when the lease is over.
func TestPersist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := meta.Identity{Destination: "shop", Client: "1001"}
		store := &refusing{dying{left: 1}, 5}
		d := &destination{lease: &leased{lost: make(chan struct{})}}
		if err := silent(store).persist(t.Context(), d, id, &meta.Record{}); err != nil || store.left != 0 {
			t.Error(err, store.left)
		}
		store = &refusing{dying{left: 1}, 1 << 30}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		if err := silent(store).persist(ctx, d, id, &meta.Record{}); err == nil || err.Error() != "away" {
			t.Error(err)
		}
		close(d.lease.(*leased).lost)
		if err := silent(store).persist(t.Context(), d, id, &meta.Record{}); !errors.Is(err, meta.ErrFenced) {
			t.Error(err)
		}
		store.refuse, store.left = 0, 0
		if err := silent(store).persist(t.Context(), d, id, &meta.Record{}); !errors.Is(err, meta.ErrFenced) {
			t.Error(err)
		}
	})
}
