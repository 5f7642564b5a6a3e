package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

func openFiles(t *testing.T, dir string) *file.Store {
	t.Helper()
	s, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSnapshotCommands: an order goes into the store while nobody runs, and to the one who runs else.
func TestSnapshotCommands(t *testing.T) {
	path, dir := settings(t)
	expect := func(code int, words string, args ...string) (out string) {
		t.Helper()
		got, out, errs := call(t, "", append([]string{"snapshot", args[0], "-c", path}, args[1:]...)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("%v: exit code %d, %s%s; want %q", args, got, out, errs, words)
		}
		return out
	}
	expect(0, "shop: no snapshot is ordered\naudit: no snapshot is ordered\n", "status")
	out := expect(0, "is ordered; it is carried out when binlogmq runs", "start", "--destination", "shop", "--tables", "shop.a, shop.b*", "--sinks", "other", "--where", "shop.a=x = 'a=b'")
	id := strings.Fields(out)[1]
	expect(0, "is ordered", "start", "--destination", "shop")
	out = expect(0, "shop: as saved: 2 ordered\n  "+id+"  ordered ", "status", "--destination", "shop")
	for _, words := range []string{"(ordered), for other\n    tables shop.a, shop.b*\n    where  shop.a: x = 'a=b'\n", "(ordered), for all\n"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in %s", words, out)
		}
	}
	expect(1, `no snapshot "nope" is ordered`, "cancel", "--destination", "shop", "--id", "nope")
	expect(0, "snapshot "+id+" is cancelled", "cancel", "--destination", "shop", "--id", id)
	expect(0, "shop: as saved: 1 ordered", "status")
	expect(0, "all snapshots of destination shop are cancelled", "cancel", "--destination", "shop")
	expect(0, "shop: as saved: no snapshot is ordered\n", "status")
	expect(1, "destination shop: no snapshot is ordered", "cancel", "--destination", "shop")

	store := openFiles(t, dir)
	expect(1, "no address of the running process is known: set admin.listen, or give --admin URL (cursor directory", "start", "--destination", "shop")
	expect(1, "give the address of the process that runs it with --admin URL", "start", "--destination", "shop", "--admin", "127.0.0.1:1")

	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	d := &destination{cfg: &cfg.Destinations[0], snapshots: newSnapshots(store, "shop")}
	p.seats = []*seat{{cfg: &cfg.Destinations[0], d: d, owned: true}, {cfg: &cfg.Destinations[1]}}
	s, err := admin.Listen("127.0.0.1:0", func() admin.Report {
		return admin.Report{Destinations: []admin.Destination{{Name: "shop", Snapshot: reportSnapshot(d.snapshots.Status(), connector.Snapshot{State: connector.SnapshotFailing, Err: errors.New("no SELECT")})}, {Name: "audit"}}}
	}, p, p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	out = expect(0, "is ordered; the running process carries it out", "start", "--destination", "shop", "--sinks", "out", "--admin", s.Addr())
	id = strings.Fields(out)[1]
	if q := d.snapshots.Status().Queue; len(q) != 1 || q[0].ID != id || !slices.Equal(q[0].Clients, []string{"sink-out"}) || q[0].Reason != snapshot.ReasonOrdered {
		t.Errorf("ordered: %+v", q)
	}
	out = expect(0, "shop: failing, 0 of 0 tables done, 0 rows", "status", "--destination", "shop", "--admin", "http://"+s.Addr()+"/")
	if !strings.Contains(out, "  "+id+"  ordered ") || !strings.Contains(out, "error    no SELECT") {
		t.Error(out)
	}
	expect(1, "another one owns it, or may", "status", "--admin", s.Addr())
	expect(1, "ask the one that owns it", "start", "--destination", "audit", "--admin", s.Addr())
	expect(1, `snapshot "nope": not known`, "cancel", "--destination", "shop", "--id", "nope", "--admin", s.Addr())
	expect(0, "are cancelled", "cancel", "--destination", "shop", "--admin", s.Addr())
	if q := d.snapshots.Status().Queue; len(q) != 0 {
		t.Errorf("cancelled: %+v", q)
	}
	expect(1, "no snapshot is ordered", "cancel", "--destination", "shop", "--admin", s.Addr())
	for name, o := range map[string]admin.SnapshotOrder{
		"sink": {Sinks: []string{"nope"}}, "pattern": {Tables: []string{"a"}}, "condition": {Where: map[string]string{"a.b": ")"}}, "id": {ID: "x"},
	} {
		if _, err := p.StartSnapshot(t.Context(), "shop", o); !errors.Is(err, admin.ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.StartSnapshot(t.Context(), "nope", admin.SnapshotOrder{}); !errors.Is(err, admin.ErrUnknown) {
		t.Error(err)
	}
}

// TestOrdersThatMeanNothing: what is not for any table, whichever there are, is refused with what to do.
func TestOrdersThatMeanNothing(t *testing.T) {
	d := &config.Destination{Name: "shop", Tables: []string{"shop.*", "!shop.secret*", "Log.day_?"}, Snapshot: config.Snapshot{Tables: []string{"shop.order*"}, Where: map[string]string{"shop.item": "id > 1"}}}
	for name, c := range map[string]struct {
		o    admin.SnapshotOrder
		want string // "": it is taken
	}{
		"as configured":         {admin.SnapshotOrder{}, ""},
		"some":                  {admin.SnapshotOrder{Tables: []string{"*.item", "!shop.x", "log.DAY_1"}}, ""},
		"elsewhere":             {admin.SnapshotOrder{Tables: []string{"shop.a", "other.*"}}, "other.* is not in the destination's tables, shop.*, !shop.secret*, Log.day_?: add it there and restart first"},
		"expression":            {admin.SnapshotOrder{Tables: []string{`shop\..*`}}, "is no regular expression"},
		"left out":              {admin.SnapshotOrder{Tables: []string{"shop.secret_1"}}, "shop.secret_1 is not in"},
		"condition":             {admin.SnapshotOrder{Where: map[string]string{"shop.orders": "id > 5"}}, ""},
		"case":                  {admin.SnapshotOrder{Where: map[string]string{"SHOP.orders": "id > 5"}}, ""},
		"condition, not read":   {admin.SnapshotOrder{Where: map[string]string{"shop.item": "id > 5"}}, "condition for shop.item is for a table that the snapshot does not read, as its tables are shop.order*"},
		"condition, of another": {admin.SnapshotOrder{Tables: []string{"*.*"}, Where: map[string]string{"other.a": "id > 5"}}, "condition for other.a is for a table that is not in the destination's"},
	} {
		_, err := requestOf(d, &c.o)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, admin.ErrOrder) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, not %q", name, err, c.want)
		}
	}
}

func TestAdminURL(t *testing.T) {
	for _, c := range []struct{ listen, flag, want string }{
		{"", "", ""}, {"127.0.0.1:0", "", ""}, {"127.0.0.1:8088", "", "http://127.0.0.1:8088"}, {":8088", "", "http://localhost:8088"}, {"[::]:8088", "", "http://localhost:8088"},
		{"127.0.0.1:8088", "db:1", "http://db:1"}, {"", "https://db/x/", "https://db/x"},
	} {
		if got := adminURL(&config.Config{Admin: config.Admin{Listen: c.listen}}, c.flag); got != c.want {
			t.Errorf("%q, %q: %q, not %q", c.listen, c.flag, got, c.want)
		}
	}
}

// TestFirstOrderI7: whoever has no cursor gets a snapshot, once, wherever it is killed; nobody else does.
func TestFirstOrderI7(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	cfg := &config.Destination{Name: "shop", Start: config.StartSnapshot, Sinks: []config.Sink{{Name: "a"}, {Name: "b"}}}
	store := openFiles(t, dir)
	p := &program{cfg: &config.Config{}, store: store, log: slog.New(slog.DiscardHandler)}
	queue := func() (all []string) {
		t.Helper()
		// A process that begins knows what is saved, and no more.
		d := &destination{cfg: cfg, snapshots: newSnapshots(store, "shop")}
		if err := p.orderFirst(ctx, d); err != nil {
			t.Fatal(err)
		}
		if err := d.snapshots.Load(ctx); err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, q := range d.snapshots.Status().Queue {
			if ids[q.ID] || q.Reason != snapshot.ReasonStart {
				t.Errorf("%+v", q)
			}
			ids[q.ID] = true
			all = append(all, strings.Join(q.Clients, "+"))
		}
		return all
	}
	cursor := func(client string) {
		t.Helper()
		if err := store.Save(ctx, meta.Identity{Destination: "shop", Client: client}, &meta.Record{Cursor: event.Cursor{Ordinal: 7}}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(when string, want ...string) {
		t.Helper()
		if got := queue(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", when, got, want)
		}
	}
	log := newSnapshots(store, "shop")
	is("first", "")
	is("killed before any cursor is saved", "")
	cursor("sink-a")
	is("killed between the first cursors", "")
	cursor("sink-b")
	is("begun", "")
	if err := log.Cancel(ctx, ""); err != nil { // or finished
		t.Fatal(err)
	}
	is("done")
	cfg.Sinks = append(cfg.Sinks, config.Sink{Name: "c"})
	is("another sink", "sink-c")
	is("killed", "sink-c")
	log = newSnapshots(store, "shop")
	if err := log.Load(ctx); err != nil {
		t.Fatal(err)
	}
	now := log.Status()
	if err := log.Advance(ctx, snapshot.Progress{Step: now.Progress.Step + 1, Request: now.Queue[0].ID, Done: 1, Upto: &snapshot.Table{Schema: "shop", Name: "t"}}); err != nil {
		t.Fatal(err)
	}
	was := now.Queue[0].ID
	is("its cursor was removed while it was read", "sink-c")
	if log = newSnapshots(store, "shop"); log.Load(ctx) != nil || log.Status().Queue[0].ID == was {
		t.Error("what is read for a cursor that is gone counts for the new one")
	}
	cursor("sink-c")
	is("begun", "sink-c")
	cfg.Start = "latest"
	cfg.Sinks = append(cfg.Sinks, config.Sink{Name: "d"})
	is("not configured", "sink-c")
}

// TestLostOrderI7: whoever has lost something gets a snapshot, which is ordered before the cursors are moved, once.
func TestLostOrderI7(t *testing.T) {
	ctx := t.Context()
	first, end := gtids(t, sidA+":1-10"), gtids(t, sidA+":1-20")
	for name, c := range map[string]struct {
		why   error
		at    map[string]string // where cursors stand
		order []string          // for whom; nil: none is ordered
		place string            // where all go on
	}{
		"nobody has lost":     {event.ErrPurged, map[string]string{"sink-a": sidA + ":1-12", "sink-b": sidA + ":1-10"}, nil, sidA + ":1-10"},
		"one has lost":        {event.ErrPurged, map[string]string{"sink-a": sidA + ":1-12", "sink-b": sidA + ":1-5"}, []string{"sink-b"}, sidA + ":1-10"},
		"all have lost":       {event.ErrPurged, map[string]string{"sink-a": sidA + ":1-7", "sink-b": sidA + ":1-5"}, []string{}, sidA + ":1-20"},
		"a client has lost":   {event.ErrPurged, map[string]string{"sink-a": sidA + ":1-12", "1001": sidA + ":1-5"}, []string{"1001"}, sidA + ":1-10"},
		"another history":     {event.ErrNoPosition, map[string]string{"sink-a": sidB + ":1-7"}, []string{}, sidA + ":1-20"},
		"without GTIDs":       {event.ErrPurged, map[string]string{"sink-a": "", "sink-b": ""}, []string{}, sidA + ":1-20"},
		"a part of it is not": {event.ErrNoPosition, map[string]string{"sink-a": sidA + ":1-25"}, []string{}, sidA + ":1-20"},
	} {
		t.Run(name, func(t *testing.T) {
			store := openFiles(t, t.TempDir())
			cfg := &config.Destination{Name: "shop", OnLostPosition: config.LostSnapshot}
			p := &program{cfg: &config.Config{}, store: store, log: slog.New(slog.DiscardHandler)}
			for client, at := range c.at {
				r := &meta.Record{Cursor: event.Cursor{Ordinal: 7, Position: event.Position{File: "b.1", Offset: 4, ServerUUID: "A", GTIDs: gtids(t, at)}}}
				if err := store.Save(ctx, meta.Identity{Destination: "shop", Client: client}, r); err != nil {
					t.Fatal(err)
				}
			}
			relocate := func() (*destination, error) {
				t.Helper()
				d := &destination{cfg: cfg, snapshots: newSnapshots(store, "shop")}
				var all []*standing
				for client := range c.at {
					id := meta.Identity{Destination: "shop", Client: client}
					r, err := store.Load(ctx, id)
					if err != nil {
						t.Fatal(err)
					}
					v := &standing{id: id, record: r}
					v.count()
					all = append(all, v)
				}
				return d, p.relocateTo(ctx, d, event.Position{GTIDs: first, ServerUUID: "B"}, event.Position{File: "b.9", Offset: 99, GTIDs: end, ServerUUID: "B"}, all, c.why)
			}
			p.store = &unsaved{store}
			if _, err := relocate(); err == nil {
				t.Fatal("killed, and without an error")
			}
			p.store = store
			d, err := relocate()
			if err != nil {
				t.Fatal(err)
			}
			q := d.snapshots.Status().Queue
			if c.order == nil {
				if len(q) != 0 {
					t.Errorf("ordered: %+v", q)
				}
			} else if len(q) != 1 || q[0].Reason != snapshot.ReasonLost || !slices.Equal(q[0].Clients, c.order) && len(q[0].Clients)+len(c.order) > 0 {
				t.Errorf("ordered: %+v, not for %q", q, c.order)
			}
			for client := range c.at {
				r, err := store.Load(ctx, meta.Identity{Destination: "shop", Client: client})
				if err != nil {
					t.Fatal(err)
				}
				if at := r.Cursor.Position; !at.GTIDs.Equal(gtids(t, c.place)) {
					t.Errorf("%s goes on at %s, not %s", client, at.GTIDs, c.place)
				}
			}
		})
	}
}

// unsaved is a store of a process that is killed before any cursor is saved.
type unsaved struct{ *file.Store }

var errKilled = errors.New("killed")

func (s *unsaved) Save(_ context.Context, _ meta.Identity, _ *meta.Record) error { return errKilled }
