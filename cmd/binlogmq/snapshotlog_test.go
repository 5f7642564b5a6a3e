package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

// chunkOf makes a chunk with one row.
func chunkOf(t *testing.T, request string, ordinal int64, raw []byte) *snapshot.Chunk {
	t.Helper()
	table := &event.Table{Schema: "shop", Name: "items", Key: []int{0}, Columns: []event.Column{{Name: "id", Type: event.TypeLong}}}
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	return &snapshot.Chunk{Ordinal: ordinal, End: ordinal + 2, Counts: "c", Snapshot: &event.Snapshot{ID: request}, Table: table,
		Before: snapshot.Progress{Request: request}, After: snapshot.Progress{Request: request, Last: []string{fmt.Sprint(ordinal)}}, Parts: []snapshot.Part{{Rows: 1, Raw: raw}}}
}

// testSnapshotsIn: snapshots outlive the process in a store, however large a chunk is, and leave nothing behind (I5, I7).
func testSnapshotsIn(t *testing.T, open func() metaStore, other func() metaStore) {
	ctx := context.Background()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	large := make([]byte, 1500<<10) // three pieces, which cannot be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	id := clientOf("shop", "out")
	s := open()
	if err := newSnapshots(s, "shop").Order(ctx, snapshot.Request{ID: "one"}); err != nil && !errors.Is(err, meta.ErrFenced) { // I8
		t.Fatal(err)
	}
	lease, err := s.Acquire(ctx, "shop")
	ok(err)
	l := newSnapshots(s, "shop")
	ok(l.Order(ctx, snapshot.Request{ID: "one"}))
	ok(s.Save(ctx, id, &meta.Record{Cursor: event.Cursor{Ordinal: 3, Progress: 9}}))
	ok(l.Append(ctx, chunkOf(t, "one", 10, []byte("row"))))
	ok(l.Append(ctx, chunkOf(t, "one", 20, large)))
	ok(lease.Release(ctx))
	ok(s.Close())

	s = open()
	defer func() { ok(s.Close()) }()
	lease, err = s.Acquire(ctx, "shop")
	ok(err)
	defer func() { ok(lease.Release(ctx)) }()
	k := &snapshotKeeper{s, "shop"}
	if all, err := k.Cursors(ctx); err != nil || len(all) != 1 || all["sink-out"] != 3 {
		t.Fatal(all, err)
	}
	look := func(l *snapshot.Log) {
		t.Helper()
		for ordinal, want := range map[int64][]byte{10: []byte("row"), 20: large, 3: nil, 12: nil} {
			c, err := l.At(ctx, ordinal, "c")
			ok(err)
			if got := []byte(nil); c != nil {
				if got = c.Parts[0].Raw; !bytes.Equal(got, want) {
					t.Errorf("%d: another chunk", ordinal)
				}
			} else if want != nil {
				t.Errorf("%d: no chunk", ordinal)
			}
		}
	}
	l = newSnapshots(s, "shop")
	look(l)

	docs, err := snapshot.Export(ctx, k)
	ok(err)
	names := make([]string, len(docs))
	for i := range docs {
		names[i] = docs[i].Name
	}
	if want := []string{"snapshot", "snapshot-1", "snapshot-1-0", "snapshot-2", "snapshot-2-0", "snapshot-2-1", "snapshot-2-2"}; !slices.Equal(names, want) {
		t.Fatal(names)
	}
	o := other()
	defer func() { ok(o.Close()) }()
	ok(newSnapshots(o, "shop").Import(ctx, docs, 3))
	ok(o.Save(ctx, id, &meta.Record{Cursor: event.Cursor{Ordinal: 3}}))
	look(newSnapshots(o, "shop"))

	above, err := l.Rewind(ctx)
	ok(err)
	ok(s.Save(ctx, id, &meta.Record{Cursor: event.Cursor{Ordinal: above}}))
	l = newSnapshots(s, "shop") // a process died here
	if c, err := l.At(ctx, above, "c"); c != nil || err != nil {
		t.Fatal(c, err)
	}
	if _, p, there := l.Current(); !there || p.Last != nil {
		t.Fatal(p)
	}
	ok(l.Release(ctx))
	for _, name := range names[1:] {
		if _, err := s.LoadDocument(ctx, "shop", name); !errors.Is(err, meta.ErrNotFound) {
			t.Error(name, err)
		}
	}
}

// opened opens a directory of cursors.
func opened(t *testing.T, dir string) metaStore {
	t.Helper()
	s, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSnapshotsInFilesI5I7(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	testSnapshotsIn(t, func() metaStore { return opened(t, dir) }, func() metaStore { return opened(t, other) })
	if left, err := filepath.Glob(filepath.Join(dir, "*snapshot-*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestSnapshotsDamaged: a document that the store cannot read stops reading, and the error names document, destination and remedy (I3).
func TestSnapshotsDamaged(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := opened(t, dir)
	defer func() { _ = s.Close() }()
	l := newSnapshots(s, "shop")
	if err := errors.Join(l.Order(ctx, snapshot.Request{ID: "one"}), s.Save(ctx, clientOf("shop", "out"), &meta.Record{}), l.Append(ctx, chunkOf(t, "one", 10, []byte("row")))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"snapshot", "snapshot-1", "snapshot-1-0"} {
		path := filepath.Join(dir, "shop@"+name+".document.json")
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, was[:len(was)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = newSnapshots(s, "shop").At(ctx, 10, "c")
		var stop *connector.StopError
		if !errors.As(err, &stop) || !errors.Is(err, snapshot.ErrDamaged) || stop.Destination != "shop" {
			t.Fatal(name, err)
		}
		for _, want := range []string{"destination shop", `"` + name + `"`, path, "restore it from a backup", "binlogmq cursor set"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := newSnapshots(&narrow{s}, "shop").Order(ctx, snapshot.Request{ID: "two"})
	if err == nil || !strings.Contains(err.Error(), "destination shop: the state of its snapshots cannot be saved") || !strings.Contains(err.Error(), "order snapshots of fewer tables") {
		t.Error(err)
	}
}

// TestCursorBeforeDeletedRowsI5: a cursor that somebody has brought back does not go on to other numbers.
func TestCursorBeforeDeletedRowsI5(t *testing.T) {
	ctx := context.Background()
	store := &meta.Memory{}
	id := clientOf("shop", "out")
	d := &destination{cfg: &config.Destination{Name: "shop"}, snapshots: newSnapshots(store, "shop")}
	all := []*standing{{id: id, record: &meta.Record{Cursor: event.Cursor{Ordinal: 5}}}}
	if err := errors.Join(store.Save(ctx, id, all[0].record), d.snapshots.Order(ctx, snapshot.Request{ID: "one"}), d.snapshots.Append(ctx, chunkOf(t, "one", 10, []byte("row")))); err != nil {
		t.Fatal(err)
	}
	if err := d.lacking(ctx, all); err != nil {
		t.Error(err)
	}
	data, err := store.LoadDocument(ctx, "shop", "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"from":1,"first":1`), []byte(`"from":2,"first":2,"passed":12`), 1)
	if err := store.SaveDocument(ctx, "shop", "snapshot", data); err != nil {
		t.Fatal(err)
	}
	d.snapshots = newSnapshots(store, "shop")
	if err := d.lacking(ctx, all); err == nil || !strings.Contains(err.Error(), "destination shop: the cursor of shop/sink-out stands before rows of a snapshot that are deleted") {
		t.Error(err)
	}
	all[0].record.Cursor.Ordinal = 12
	if err := d.lacking(ctx, all); err != nil {
		t.Error(err)
	}
}

// TestMoveInsideChunkI5: where another server answers, a cursor inside a chunk counts as before it; the chunk is dropped and read again, above all numbers that
// were used, even if the process dies before all cursors are moved.
func TestMoveInsideChunkI5(t *testing.T) {
	ctx := context.Background()
	for _, saves := range []int{0, 1, 2} {
		store := &dying{left: 99}
		snapshots := newSnapshots(&store.saved, "shop")
		d := &destination{cfg: &config.Destination{Name: "shop", Sinks: []config.Sink{{Name: "out"}}}, snapshots: snapshots}
		p := silent(store)
		at := event.Position{File: "a.1", Offset: 4, ServerUUID: "A", GTIDs: gtids(t, sidA+":1-5")}
		inside, before := meta.Identity{Destination: "shop", Client: "1001"}, meta.Identity{Destination: "shop", Client: "1002"}
		err := errors.Join(
			store.Save(ctx, inside, &meta.Record{Cursor: event.Cursor{Position: at, Ordinal: 10, Progress: 1}}),
			store.Save(ctx, before, &meta.Record{Cursor: event.Cursor{Position: at, Ordinal: 10}}),
			snapshots.Order(ctx, snapshot.Request{ID: "one"}),
			snapshots.Append(ctx, chunkOf(t, "one", 10, []byte("row"))),
		)
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.standings(ctx, d)
		if err != nil || len(all) != 2 || len(all[0].parts) != 0 || !all[0].chunk || all[1].chunk {
			t.Fatalf("%+v, %v", all, err)
		}
		place := event.Position{GTIDs: gtids(t, sidA+":1-5"), ServerUUID: "B"}
		store.left = saves
		err = p.put(ctx, d, all, place)
		if (saves < 2) != (err != nil) {
			t.Fatal(saves, err)
		}
		store.left = 99
		d.snapshots = newSnapshots(&store.saved, "shop") // the next process
		c, err := d.snapshots.At(ctx, 10, "c")
		if (saves == 0) != (c != nil) || err != nil {
			t.Fatal(saves, c, err)
		}
		if all, err = p.standings(ctx, d); err != nil {
			t.Fatal(err)
		}
		if err := p.put(ctx, d, all, place); err != nil {
			t.Fatal(err)
		}
		for _, id := range []meta.Identity{inside, before} {
			r, err := store.Load(ctx, id)
			if err != nil || r.Cursor.Ordinal <= 12 || r.Cursor.Progress != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if _, progress, there := d.snapshots.Current(); !there || progress.Last != nil || d.snapshots.Last() != 0 {
			t.Fatal(progress)
		}
	}
}
