package connector

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
)

// stock is a table of two columns.
func stock(t *testing.T, key ...int) *event.Table {
	t.Helper()
	tab := &event.Table{Schema: "shop", Name: "stock", Key: key, Columns: []event.Column{{Name: "id", Type: event.TypeLong}, {Name: "n", Type: event.TypeLong, Nullable: true}}}
	if err := tab.Compile(); err != nil {
		t.Fatal(err)
	}
	return tab
}

// image is a row image of the columns of these values.
func image(values ...uint32) []byte {
	b := []byte{0}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func rowEvent(tab *event.Table, op event.Op, im event.Images, images ...[]byte) *event.Event {
	n := len(images)
	if op == event.Update {
		n /= 2
	}
	var raw []byte
	for _, i := range images {
		raw = append(raw, i...)
	}
	return &event.Event{Kind: event.Rows, Op: op, Rows: uint32(n), Table: tab, Images: im, Raw: raw, Txn: &event.Txn{}}
}

// TestWindow: of the rows of a chunk those are dropped that the stream touched while it was read, and all must be read again where that
// is not known (I4).
func TestWindow(t *testing.T) {
	keyed, keyless := stock(t, 0), stock(t)
	all, id, num := []byte{3}, []byte{1}, []byte{2}
	statement := func(c ...event.Change) *event.Event {
		return &event.Event{Kind: event.DDL, Stmt: &event.Statement{Changes: c, Whole: true}, Txn: &event.Txn{}}
	}
	unread := func(table string) *event.Event {
		e := statement(event.Change{Action: event.ActionAlter, Object: event.ObjectTable, Schema: "shop", Name: table})
		e.Kind = event.Rows
		return e
	}
	chunkOf := func(e *event.Event) *event.Event {
		e.Txn = &event.Txn{Snapshot: &event.Snapshot{ID: "earlier", Chunk: 1}}
		return e
	}
	elsewhere := stock(t, 0)
	elsewhere.Name = "other"
	capitals := stock(t, 0)
	capitals.Schema, capitals.Name = "Shop", "STOCK"
	const partly = "of some of its rows the stream has shown a part meanwhile, as binlog_row_image is not FULL"
	tests := []struct {
		name     string
		events   []*event.Event
		keyless  bool
		caseless bool
		left     string // ids of 1, 2, 3 that are left
		again    string // why it must be read again
	}{
		{name: "nothing", left: "1 2 3"},
		{name: "insert", events: []*event.Event{rowEvent(keyed, event.Insert, event.Images{After: all}, image(2, 9))}, left: "1 3"},
		{name: "delete", events: []*event.Event{rowEvent(keyed, event.Delete, event.Images{Before: all}, image(1, 0), image(3, 0))}, left: "2"},
		{name: "update that moves a key", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: all, After: all}, image(9, 0), image(1, 0))}, left: "2 3"},
		{name: "minimal images", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: id, After: num}, image(2), image(7))}, left: "1 3"},
		{name: "minimal images of another row", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: id, After: num}, image(9), image(7))}, left: "1 2 3"},
		{name: "minimal images, then a whole one", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: id, After: id}, image(9), image(2)),
			rowEvent(keyed, event.Update, event.Images{Before: all, After: all}, image(2, 7), image(2, 8))}, left: "1 3"},
		{name: "minimal images, then deleted", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: id, After: id}, image(9), image(2)), rowEvent(keyed, event.Delete, event.Images{Before: id}, image(2))}, left: "1 3"},
		{name: "whole before image, after image without what is unchanged", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: all, After: num}, image(2, 6), image(7))}, left: "1 3"},
		{name: "insert without a column", events: []*event.Event{rowEvent(keyed, event.Insert, event.Images{After: id}, image(2))}, again: partly},
		{name: "minimal images that move a key", events: []*event.Event{rowEvent(keyed, event.Update, event.Images{Before: id, After: id}, image(2), image(3))}, again: partly},
		{name: "another table", events: []*event.Event{rowEvent(elsewhere, event.Insert, event.Images{After: all}, image(2, 9))}, left: "1 2 3"},
		{name: "rows of a chunk", events: []*event.Event{chunkOf(rowEvent(keyed, event.Insert, event.Images{After: all}, image(2, 9)))}, left: "1 2 3"},
		{name: "capitals are another table", events: []*event.Event{rowEvent(capitals, event.Insert, event.Images{After: all}, image(2, 9))}, left: "1 2 3"},
		{name: "capitals", caseless: true, events: []*event.Event{rowEvent(capitals, event.Insert, event.Images{After: all}, image(2, 9))}, left: "1 3"},
		{name: "altered", events: []*event.Event{statement(event.Change{Action: event.ActionAlter, Object: event.ObjectTable, Schema: "shop", Name: "stock"})}, again: "a statement may have changed the table"},
		{name: "renamed away", events: []*event.Event{statement(event.Change{Action: event.ActionRename, Object: event.ObjectTable, Schema: "shop", Name: "x", Old: event.Name{Schema: "shop", Name: "stock"}})},
			again: "a statement may have changed the table"},
		{name: "database dropped", events: []*event.Event{statement(event.Change{Action: event.ActionDrop, Object: event.ObjectDatabase, Schema: "shop"})}, again: "a statement may have changed the table"},
		{name: "another one altered", events: []*event.Event{statement(event.Change{Action: event.ActionAlter, Object: event.ObjectTable, Schema: "shop", Name: "other"})}, left: "1 2 3"},
		{name: "a statement that nobody understands", events: []*event.Event{{Kind: event.DDL, Stmt: &event.Statement{}, Txn: &event.Txn{}}}, again: "a statement may have changed the table"},
		{name: "a transaction was passed over", events: []*event.Event{{Kind: event.Rows, Txn: &event.Txn{}}}, again: "row changes were passed over"},
		{name: "rows that cannot be read", events: []*event.Event{unread("stock")}, again: "row changes were passed over"},
		{name: "rows of another table that cannot be read", events: []*event.Event{unread("other")}, left: "1 2 3"},
		{name: "no key", keyless: true, left: "1 2 3"},
		{name: "no key and touched", keyless: true, events: []*event.Event{rowEvent(keyless, event.Insert, event.Images{After: all}, image(7, 9))}, again: "rows of the table, which has no key, changed meanwhile"},
		{name: "the log knows no key", events: []*event.Event{rowEvent(keyless, event.Insert, event.Images{After: all}, image(7, 9))}, again: "rows of the table, which has no key, changed meanwhile"},
		{name: "damaged", events: []*event.Event{rowEvent(keyed, event.Insert, event.Images{After: all}, []byte{0, 1})}, again: "row changes of the table cannot be read"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNoting(ddl.Name{Schema: "shop", Table: "stock"}, test.caseless)
			for _, e := range test.events {
				n.note(e)
			}
			c := &candidate{table: keyed, keyed: true, chunk: &snapshot.Chunk{}, rows: [][]byte{image(1, 1), image(2, 2), image(3, 3)}}
			if test.keyless {
				c.table, c.keyed = keyless, false
			}
			var dropped int64
			err := n.spoilt(c)
			if err == nil {
				dropped, err = n.untouched(c)
			}
			if err != nil || test.again != "" {
				if !errors.Is(err, errDisturbed) || test.again == "" || !strings.HasSuffix(err.Error(), test.again) {
					t.Fatalf("got %v, want %q", err, test.again)
				}
				return
			}
			var want []byte
			ids := strings.Fields(test.left)
			for _, id := range ids {
				v := uint32(id[0] - '0')
				want = append(want, image(v, v)...)
			}
			var got []byte
			for _, p := range c.chunk.Parts {
				got = append(got, p.Raw...)
			}
			if string(got) != string(want) || dropped != int64(3-len(ids)) || c.chunk.Rows() != int64(len(ids)) {
				t.Errorf("left %x, %d dropped, %d rows; want %x", got, dropped, c.chunk.Rows(), want)
			}
		})
	}
}

// TestWindowBounds: what is noted is bounded (I9), and a chunk of many rows becomes events of moderate size.
func TestWindowBounds(t *testing.T) {
	tab := stock(t, 0)
	n := newNoting(ddl.Name{Schema: "shop", Table: "stock"}, false)
	var images [][]byte
	for i := range uint32(1000) {
		images = append(images, image(i, i))
	}
	for i := 0; n.disturbed == ""; i++ {
		if n.size > maxNoted {
			t.Fatalf("%d bytes are noted", n.size)
		}
		for k := range images {
			binary.LittleEndian.PutUint32(images[k][1:], uint32(i*1000+k))
		}
		n.note(rowEvent(tab, event.Insert, event.Images{After: []byte{3}}, images...))
	}
	// Once it is known which rows matter, no others are noted.
	n = newNoting(n.table, false)
	n.note(rowEvent(tab, event.Insert, event.Images{After: []byte{3}}, image(1, 1), image(2, 2)))
	if err := n.limit(&candidate{table: tab, keyed: true, rows: [][]byte{image(2, 0), image(3, 0)}}); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(200) {
		for k := range images {
			binary.LittleEndian.PutUint32(images[k][1:], i*1000+uint32(k))
		}
		n.note(rowEvent(tab, event.Insert, event.Images{After: []byte{3}}, images...))
	}
	if len(n.keys) != 2 || n.disturbed != "" || n.size > 1000 {
		t.Errorf("%d keys of %d bytes are noted, %q", len(n.keys), n.size, n.disturbed)
	}

	n = newNoting(n.table, false)
	c := &candidate{table: tab, keyed: true, chunk: &snapshot.Chunk{}}
	for range 100 {
		c.rows = append(c.rows, images...)
	}
	if _, err := n.untouched(c); err != nil {
		t.Fatal(err)
	}
	if c.chunk.Rows() != 100_000 || len(c.chunk.Parts) < 10 {
		t.Errorf("%d rows in %d parts", c.chunk.Rows(), len(c.chunk.Parts))
	}
	for _, p := range c.chunk.Parts {
		if len(p.Raw) > maxPart {
			t.Errorf("a part of %d bytes", len(p.Raw))
		}
	}
}

// I3: which tables get rows that the stream has not shown as theirs, and that it is not known of a statement that is not understood.
func TestBrought(t *testing.T) {
	for sql, want := range map[string]string{
		"ALTER TABLE a ADD c INT":                              "",
		"CREATE TABLE a LIKE b":                                "",
		"TRUNCATE TABLE a":                                     "",
		"RENAME TABLE a TO b, c TO a":                          "b a",
		"ALTER TABLE a ADD c INT, RENAME TO b":                 "b",
		"ALTER TABLE a EXCHANGE PARTITION p WITH TABLE b":      "a b",
		"ALTER TABLE a IMPORT TABLESPACE":                      "a",
		"ALTER TABLE a CONVERT TABLE b TO PARTITION p DEFAULT": "a",
		"RENAME whatever a TO b":                               "all",
		"whatever has never been seen":                         "",
	} {
		var names []string
		st := ddl.Describe(&ddl.Statement{Text: sql, Schema: "shop"}, ddl.Server{MariaDB: true, Version: 110800})
		if !st.Brought(func(_, name string) { names = append(names, name) }) && mayMove([]byte(sql)) {
			names = append(names, "all")
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

// I3: that a table is to be read again is saved once for a chunk and a request, not for each row change that demands it, and again for the next ones.
func TestMovedOnce(t *testing.T) {
	ctx := t.Context()
	log := snapshot.NewLog(nil)
	order := func(id string) {
		if err := log.Order(ctx, snapshot.Request{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	order("1")
	warnings := 0
	c := &Connector{opt: Options{Snapshots: log}, log: slog.New(slog.NewTextHandler(lines(func(string) { warnings++ }), nil))}
	w := &window{}
	here := event.Position{File: "binlog.000001", Offset: 4}
	r := &reader{c: c, main: true, chunks: insertions{log: log.Begin(0), window: w, m: binlog.NewMachine(binlog.Options{Position: here}), former: here}}
	begin := func() {
		w.ask = &windowAsk{table: ddl.Name{Schema: "shop", Table: "stock"}, done: make(chan windowAnswer, 1)}
		if err := r.serve(ctx); err != nil || w.ask != nil {
			t.Fatalf("no chunk is begun: %v", err)
		}
	}
	id := []byte{1}
	for i, step := range []struct {
		before func()
		want   int64
	}{
		{begin, 1},
		{func() {}, 1},
		{func() {}, 1},
		{begin, 2}, // without close
		{func() {}, 2},
		{func() { w.close(); begin() }, 3},
		{func() { // another order, of which nobody has said so yet
			if err := log.Cancel(ctx, "1"); err != nil {
				t.Fatal(err)
			}
			order("2")
		}, 4},
		{func() {}, 4},
	} {
		step.before()
		e := rowEvent(stock(t, 0), event.Update, event.Images{Before: id, After: id}, image(1), image(2))
		e.Ordinal = 10
		if err := r.moved(ctx, e); err != nil {
			t.Fatal(err)
		}
		if p := log.Status().Progress; p == nil || int64(warnings) != step.want || len(p.Again) != 1 {
			t.Errorf("step %d: %d warnings, want %d: %+v", i, warnings, step.want, p)
		}
	}
}

// lines takes what a log writes.
type lines func(string)

func (f lines) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}
