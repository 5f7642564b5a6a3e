package codectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
)

// Snapshot is a chunk of a snapshot as a transaction: it stands where Txn begins.
var Snapshot = &event.Txn{
	File: Txn.File, Start: Txn.Start, ServerUUID: Txn.ServerUUID, ServerID: Txn.ServerID, Time: Txn.Time,
	Snapshot: &event.Snapshot{ID: "evening", Chunk: 4, Clients: []string{"a client"}},
}

// SnapshotEvent returns the event of a snapshot's row. Its ordinal is 812, its index in the chunk 2, and it is not the last.
func SnapshotEvent(t *event.Table, cells []Cell) *event.Event {
	return InSnapshot(Event(t, nil, cells))
}

// InSnapshot makes a rows event of the log one of a snapshot, and returns it.
func InSnapshot(e *event.Event) *event.Event {
	e.Txn, e.Time, e.Start, e.Next = Snapshot, Snapshot.Time, Snapshot.Start, Snapshot.Start
	return e
}

// SnapshotRow is Scan of SnapshotEvent.
func SnapshotRow(t testing.TB, tab *event.Table, cells []Cell) *event.Row {
	t.Helper()
	return Scan(t, SnapshotEvent(tab, cells))
}

// snapshots: a row of a snapshot is shown as an insert of the log shows it, value for value and under the same key, and never looks like one
// of a transaction.
func (f Format) snapshots(t *testing.T) {
	c := f.New()
	same := func(tab *event.Table, cells []Cell, key []int) {
		t.Helper()
		insert, row := Row(t, tab, nil, cells), SnapshotRow(t, tab, cells)
		want, out := f.read(t, insert, f.encode(t, c, insert)), f.encode(t, c, row)
		got := f.readSnapshot(t, row, out)
		if len(got.Old) > 0 || len(got.Data) != len(want.Data) {
			t.Fatalf("%s: columns %v, old %v, of an insert %v", out, got.Data, got.Old, want.Data)
		}
		for name, v := range want.Data {
			if !bytes.Equal(got.Data[name], v) {
				t.Errorf("%s: %s, of an insert %s", name, got.Data[name], v)
			}
		}
		// I4: consumers find the row again.
		if a, b := f.key(t, c, row, key), f.key(t, c, insert, key); a != b {
			t.Errorf("key %s, of an insert %s", a, b)
		}
		for _, bad := range []string{"a client", string(Txn.GTID.Append(nil))} {
			if bytes.Contains(out, []byte(bad)) {
				t.Errorf("%s: holds %q", out, bad)
			}
		}
		// The end of a chunk is no transaction's.
		row.Last = true
		if last := f.encode(t, c, row); !bytes.Equal(last, out) {
			t.Errorf("the last row of a chunk\n%s\nanother one\n%s", last, out)
		}
	}
	for _, cs := range Cases() {
		tab := Table(t, cs)
		for _, e := range append(cs.Edges, Edge{}) {
			cell := V(e.Raw)
			if e.Raw == nil {
				cell = Null
			}
			same(tab, []Cell{V(Le(7, 8)), V([]byte("k")), cell}, tab.Key)
		}
	}
	shop := Shop(t)
	cells := []Cell{V(Le(7, 4)), V([]byte("pen")), V(Le(5, 4)), Null}
	same(shop, cells, shop.Key)
	same(shop, cells, []int{1, 0})

	// Without key columns each row has its own key, also among those of the transaction that begins at the same place and of other chunks there.
	other := *Snapshot
	other.Snapshot = &event.Snapshot{ID: Snapshot.Snapshot.ID, Chunk: Snapshot.Snapshot.Chunk + 1}
	noGTID := *Txn
	noGTID.GTID = event.GTID{}
	seen := map[string]string{}
	for what, txn := range map[string]*event.Txn{"a chunk": Snapshot, "the next chunk": &other, "a transaction": &noGTID} {
		for index := range int64(2) {
			e := SnapshotEvent(shop, cells)
			e.Txn, e.Index = txn, index
			k := f.key(t, c, Scan(t, e), nil)
			if was, ok := seen[k]; ok != f.TableKey && len(seen) > 0 {
				t.Errorf("without key columns rows of %s and of %s have the key %s", what, was, k)
			}
			seen[k] = what
		}
	}
	row, buf := SnapshotRow(t, shop, cells), make([]byte, 0, 1<<16)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := c.AppendRow(buf, row); err != nil {
			t.Error(err)
		}
		if _, err := c.AppendKey(buf, row, nil); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a row", n)
	}

	text := strings.Repeat("x", 5000)
	row = SnapshotRow(t, large(t), []Cell{V([]byte("k")), Null, V([]byte(text)), Null, Null, Null, V(Le(3, 4))})
	full := f.encode(t, c, row)
	stub, err := c.(codec.Stubber).AppendStub(nil, row, nil, len(full)-1)
	if err != nil {
		t.Fatal(err)
	}
	f.valid(t, stub)
	digest, err := f.Text(&row.Table.Columns[2], f.readSnapshot(t, row, stub).Data["body"])
	if err != nil || digest != string(codec.Digest([]byte(text))) {
		t.Errorf("the stub holds %s (%v)", digest, err)
	}

	// I3: what cannot be written is no message, and the error says where.
	bad := Table(t, Case{Column: event.Column{Name: "dc", Type: TypeDecimal, Meta: 9<<8 | 9}})
	out, err := c.AppendRow(nil, SnapshotRow(t, bad, []Cell{V(Le(1, 8)), V(nil), V([]byte{0xff, 0xff, 0xff, 0xff})}))
	if err == nil || out != nil || !strings.Contains(err.Error(), bad.Name) {
		t.Errorf("got %q, %v; want an error and no message", out, err)
	}
}

func (f Format) readSnapshot(t *testing.T, r *event.Row, out []byte) Message {
	t.Helper()
	m, err := f.ReadSnapshot(out)
	if err == nil && (m.Schema != r.Table.Schema || m.Table != r.Table.Name || m.Op != "insert") {
		err = fmt.Errorf("reads as %s of %s.%s", m.Op, m.Schema, m.Table)
	}
	if err != nil {
		t.Fatalf("row of a snapshot: %v: %s", err, out)
	}
	if m.Data == nil {
		m.Data = map[string]json.RawMessage{}
	}
	return m
}
