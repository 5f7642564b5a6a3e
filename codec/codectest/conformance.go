package codectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// A Message is a row message as a consumer of the format reads it.
type Message struct {
	Schema, Table, Op string
	Data, Old         map[string]json.RawMessage
}

// A Format is what the suite has to know about a codec.
type Format struct {
	// New makes a codec; each call an independent one with the same options.
	New func() codec.Codec

	// Read is an independent reader of the codec's row messages.
	Read func(value []byte) (Message, error)

	// ReadSnapshot reads messages of snapshots' rows, whose Op is insert.
	ReadSnapshot func(value []byte) (Message, error)

	// Text turns a value of a message back into the column's text (bytes for byte strings).
	Text func(col *event.Column, value json.RawMessage) (string, error)

	// Lossy lists the classes whose values the format does not carry in full. The suite
	// does not read them back.
	Lossy []event.Class

	// Lost tells of single values that the format does not carry, such as zero dates; nil: there are none.
	Lost func(col *event.Column, text string) bool

	// Needs tells of columns without which a row cannot be written, where the log does not hold them; nil: there are none.
	Needs func(col *event.Column) bool

	// Overhead is about how long a message is beside the row's content.
	Overhead int

	// Binary says that messages are no JSON. Keys are, all the same.
	Binary bool

	// TableKey says that the key of a table without key columns is the same for all its rows.
	TableKey bool
}

// Run holds a codec to what is demanded of all of them: valid JSON in UTF-8 on
// one line, values that read back, absent never null, `old` with the changed
// columns alone, complete and stable keys, stubs, the same bytes every time (I5),
// errors instead of guesses (I3), no allocation.
func Run(t *testing.T, f Format) {
	t.Run("values", f.values)
	t.Run("partial images", f.partial)
	t.Run("keys", f.keys)
	t.Run("snapshots", f.snapshots)
	t.Run("ddl", f.ddl)
	t.Run("stubs", f.stubs)
	t.Run("errors", f.errors)
	t.Run("concurrent", f.concurrent)
}

// encode calls AppendRow in every way that must make no difference.
func (f Format) encode(t *testing.T, c codec.Codec, r *event.Row) []byte {
	t.Helper()
	out, err := c.AppendRow(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	f.valid(t, out)
	// I5: the same row gives the same bytes, from any codec, at any time, into any slice.
	prefix := []byte("prefix")
	again, err := f.New().AppendRow(prefix[:len(prefix):len(prefix)], r)
	if err != nil || string(again) != "prefix"+string(out) {
		t.Fatalf("I5: another codec wrote\n%s (%v), not\n%s", again, err, out)
	}
	buf := make([]byte, 0, 3*len(out)+64)
	if again, _ = c.AppendRow(buf, r); !bytes.Equal(again, out) {
		t.Fatalf("I5: the second time\n%s, not\n%s", again, out)
	}
	return out
}

// valid checks what every message must be that is not binary.
func (f Format) valid(t *testing.T, out []byte) {
	t.Helper()
	if !f.Binary {
		valid(t, out)
	}
}

// valid checks what every JSON text must be.
func valid(t *testing.T, out []byte) {
	t.Helper()
	switch {
	case !json.Valid(out):
		t.Fatalf("not JSON: %s", out)
	case !utf8.Valid(out):
		t.Fatalf("not UTF-8: %q", out)
	case bytes.ContainsAny(out, "\n\r"):
		t.Fatalf("more than one line: %q", out)
	}
}

func (f Format) read(t *testing.T, r *event.Row, out []byte) Message {
	t.Helper()
	m, err := f.Read(out)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if m.Schema != r.Table.Schema || m.Table != r.Table.Name || m.Op != r.Op.String() {
		t.Fatalf("%s of %s.%s reads as %s of %s.%s", r.Op, r.Table.Schema, r.Table.Name, m.Op, m.Schema, m.Table)
	}
	return m
}

func (f Format) lost(col *event.Column, text string) bool {
	return slices.Contains(f.Lossy, col.Class) || f.Lost != nil && f.Lost(col, text)
}

// is checks one column of a message: edge nil stands for NULL.
func (f Format) is(t *testing.T, in map[string]json.RawMessage, col *event.Column, edge *Edge) {
	t.Helper()
	v, ok := in[col.Name]
	switch {
	case edge != nil && f.lost(col, edge.Text):
	case !ok:
		t.Errorf("%s: missing", col.Name)
	case edge == nil:
		if string(v) != "null" {
			t.Errorf("%s: NULL became %s", col.Name, v)
		}
	default:
		if got, err := f.Text(col, v); err != nil || got != edge.Text {
			t.Errorf("%s (%s): %s reads back as %q (%v), want %q", col.Name, col.SQLType, v, got, err, edge.Text)
		}
	}
}

func (f Format) values(t *testing.T) {
	c := f.New()
	for _, cs := range Cases() {
		t.Run(cs.Column.Name, func(t *testing.T) {
			tab := Table(t, cs)
			col := &tab.Columns[2]
			row := func(v Cell) []Cell { return []Cell{V(Le(7, 8)), V([]byte("k")), v} }
			for i := range cs.Edges {
				e := &cs.Edges[i]
				next := &cs.Edges[(i+1)%len(cs.Edges)]
				insert := Row(t, tab, nil, row(V(e.Raw)))
				f.is(t, f.read(t, insert, f.encode(t, c, insert)).Data, col, e)

				remove := Row(t, tab, row(V(e.Raw)), nil)
				f.is(t, f.read(t, remove, f.encode(t, c, remove)).Data, col, e)

				update := Row(t, tab, row(V(e.Raw)), row(V(next.Raw)))
				m := f.read(t, update, f.encode(t, c, update))
				f.is(t, m.Data, col, next)
				if len(cs.Edges) > 1 {
					f.is(t, m.Old, col, e)
				}
				if _, ok := m.Old["id"]; ok {
					t.Errorf("old holds id, which did not change")
				}

				null := Row(t, tab, row(V(e.Raw)), row(Null))
				m = f.read(t, null, f.encode(t, c, null))
				f.is(t, m.Data, col, nil)
				f.is(t, m.Old, col, e)

				value := Row(t, tab, row(Null), row(V(e.Raw)))
				m = f.read(t, value, f.encode(t, c, value))
				f.is(t, m.Data, col, e)
				if !f.lost(col, e.Text) { // which may look like NULL
					f.is(t, m.Old, col, nil)
				}

				if allocates(col) {
					continue
				}
				buf := make([]byte, 0, 1<<16)
				if n := testing.AllocsPerRun(20, func() {
					if _, err := c.AppendRow(buf, update); err != nil {
						t.Error(err)
					}
				}); n != 0 {
					t.Errorf("%s %q: %v allocations a row", col.SQLType, e.Text, n)
				}
			}
		})
	}
}

// allocates lists what cannot be written without allocating: packed values,
// and MariaDB's JSON, which may turn out to be none.
func allocates(c *event.Column) bool {
	return c.Type == TypePackedBlob || c.Logical == event.LogicalJSON
}

// lacks reports whether neither cells nor fallback have a column that the format needs.
func (f Format) lacks(tab *event.Table, cells, fallback []Cell) bool {
	for i, c := range cells {
		if f.Needs != nil && c.Absent && (fallback == nil || fallback[i].Absent) && f.Needs(&tab.Columns[i]) {
			return true
		}
	}
	return false
}

func columns(m map[string]json.RawMessage) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ",")
}

func (f Format) partial(t *testing.T) {
	c := f.New()
	tab := Shop(t)
	id, name, qty := V(Le(7, 4)), V([]byte("pen")), V(Le(5, 4))
	for _, x := range []struct {
		name          string
		before, after []Cell
		data, old     string
	}{
		{"full", []Cell{id, name, qty, Null}, []Cell{id, name, V(Le(6, 4)), Null}, "id,name,note,qty", "qty"},
		{"nothing changed", []Cell{id, name, qty, Null}, []Cell{id, name, qty, Null}, "id,name,note,qty", ""},
		{"minimal update", []Cell{id, Absent, Absent, Absent}, []Cell{Absent, Absent, V(Le(6, 4)), Absent}, "id,qty", ""},
		{"minimal update to NULL", []Cell{id, Absent, Absent, Absent}, []Cell{Absent, Null, Absent, Absent}, "id,name", ""},
		{"minimal update of the key", []Cell{id, Absent, Absent, Absent}, []Cell{V(Le(8, 4)), Absent, Absent, Absent}, "id", "id"},
		{"minimal delete", []Cell{id, Absent, Absent, Absent}, nil, "id", ""},
		{"minimal insert", nil, []Cell{id, Absent, qty, Absent}, "id,qty", ""},
		{"noblob update", []Cell{id, name, qty, Absent}, []Cell{id, name, V(Le(6, 4)), Absent}, "id,name,qty", "qty"},
		{"full_nodup update", []Cell{id, name, qty, Null}, []Cell{Absent, Absent, V(Le(6, 4)), Absent}, "id,name,note,qty", "qty"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := Row(t, tab, x.before, x.after)
			if f.lacks(tab, x.before, nil) || f.lacks(tab, x.after, x.before) {
				if out, err := c.AppendRow(nil, r); err == nil || !strings.Contains(err.Error(), "binlog_row_image=FULL") {
					t.Errorf("I3: %s, %v", out, err)
				}
				return
			}
			m := f.read(t, r, f.encode(t, c, r))
			if got := columns(m.Data); got != x.data {
				t.Errorf("data holds %s, want %s", got, x.data)
			}
			if got := columns(m.Old); got != x.old {
				t.Errorf("old holds %s, want %s", got, x.old)
			}
		})
	}
}

func (f Format) key(t *testing.T, c codec.Codec, r *event.Row, key []int) string {
	t.Helper()
	out, err := c.AppendKey([]byte("p"), r, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(key) > 0 {
		valid(t, out[1:])
	}
	again, err := f.New().AppendKey(nil, r, key)
	if err != nil || string(out) != "p"+string(again) {
		t.Fatalf("I5: keys %s and %s (%v) of the same row", out, again, err)
	}
	return string(again)
}

func (f Format) keys(t *testing.T) {
	c := f.New()
	tab := Shop(t)
	cells := func(id int64, name string) []Cell {
		return []Cell{V(Le(id, 4)), V([]byte(name)), V(Le(1, 4)), Null}
	}
	insert := f.key(t, c, Row(t, tab, nil, cells(7, "pen")), tab.Key)
	for what, r := range map[string]*event.Row{
		"update":                       Row(t, tab, cells(7, "old"), cells(7, "pen")),
		"delete":                       Row(t, tab, cells(7, "pen"), nil),
		"minimal update":               Row(t, tab, []Cell{V(Le(7, 4)), Absent, Absent, Absent}, []Cell{Absent, V([]byte("x")), Absent, Absent}),
		"minimal delete":               Row(t, tab, []Cell{V(Le(7, 4)), Absent, Absent, Absent}, nil),
		"update that changes the key":  Row(t, tab, cells(6, "pen"), cells(7, "pen")),
		"minimal update that does too": Row(t, tab, []Cell{V(Le(6, 4)), Absent, Absent, Absent}, []Cell{V(Le(7, 4)), Absent, Absent, Absent}),
	} {
		if got := f.key(t, c, r, tab.Key); got != insert {
			t.Errorf("I4: key of the %s is %s, of the insert %s", what, got, insert)
		}
	}
	r := Row(t, tab, nil, cells(7, "pen"))
	if f.key(t, c, Row(t, tab, nil, cells(8, "pen")), tab.Key) == insert {
		t.Error("two keys look the same")
	}
	if a, b := f.key(t, c, r, []int{0, 1}), f.key(t, c, r, []int{1, 0}); a == b || a == insert {
		t.Errorf("keys of other columns or in another order look the same: %s, %s", a, b)
	}
	null := Row(t, tab, nil, []Cell{V(Le(7, 4)), Null, Null, Null})
	empty := Row(t, tab, nil, []Cell{V(Le(7, 4)), V(nil), Null, Null})
	if f.key(t, c, null, []int{1}) == f.key(t, c, empty, []int{1}) {
		t.Error("NULL and '' give the same key")
	}
	// Every class of value works in a key, and different values give different keys.
	for _, cs := range Cases() {
		tab := Table(t, cs)
		seen := map[string]string{}
		for _, e := range cs.Edges {
			k := f.key(t, c, Row(t, tab, nil, []Cell{V(Le(1, 8)), V(nil), V(e.Raw)}), []int{2})
			if other, ok := seen[k]; ok && !f.lost(&tab.Columns[2], e.Text) {
				t.Errorf("%s: %q and %q give the key %s", tab.Columns[2].SQLType, other, e.Text, k)
			}
			seen[k] = e.Text
		}
	}
	// A key column that no image holds, or that does not exist, is an error (I3).
	for _, bad := range [][]int{{2}, {0, 3}, {4}, {-1}} {
		r := Row(t, tab, []Cell{V(Le(7, 4)), Absent, Absent, Absent}, []Cell{Absent, V(nil), Absent, Absent})
		if out, err := c.AppendKey(nil, r, bad); err == nil || out != nil {
			t.Errorf("key %v gave %q, %v; want an error and no key", bad, out, err)
		} else if !strings.Contains(err.Error(), "shop.item") {
			t.Errorf("the error does not name the table: %v", err)
		}
	}
	first, second := Event(tab, nil, cells(7, "a")), Event(tab, nil, cells(7, "a"))
	second.Index++
	a, b := f.key(t, c, Scan(t, first), nil), f.key(t, c, Scan(t, second), nil)
	if (a == b) != f.TableKey {
		t.Errorf("without key columns two rows have the keys %s and %s", a, b)
	}
	buf := make([]byte, 0, 1<<12)
	for _, key := range [][]int{{0}, {1, 0}, nil} {
		if n := testing.AllocsPerRun(20, func() {
			if _, err := c.AppendKey(buf, r, key); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("key %v: %v allocations", key, n)
		}
	}
}

// DDL returns a DDL event of the statement, as MySQL would log it.
func DDL(schema, sql string) *event.Event {
	about := ddl.Describe(&ddl.Statement{Text: sql, Schema: schema}, ddl.Server{Version: 90700})
	return &event.Event{Kind: event.DDL, Schema: schema, Raw: []byte(sql), Stmt: about, Ordinal: 813,
		Time: 1700000000000000, File: "binlog.000007", Start: 4551, Txn: Txn}
}

func (f Format) ddl(t *testing.T) {
	c := f.New()
	for _, sql := range []string{
		"", "CREATE TABLE t (id INT)", "ALTER TABLE t COMMENT '" + Awkward + "'", "DROP TABLE a, b",
		"CREATE TABLE `t\xff` (c INT)", "TRUNCATE t", "RENAME TABLE a TO b, c TO a", "CREATE VIEW v AS SELECT 1", "/* ", "`",
	} {
		e := DDL("sh\"op", sql)
		out, err := c.AppendDDL(nil, e)
		if err != nil {
			t.Fatalf("%q: %v", sql, err)
		}
		f.valid(t, out)
		if again, _ := f.New().AppendDDL([]byte("p"), e); string(again) != "p"+string(out) {
			t.Errorf("I5: %s and %s", out, again)
		}
	}
	withheld := DDL("shop", "DROP TABLE t")
	withheld.Raw, withheld.Stmt = nil, nil
	out, err := c.AppendDDL(nil, withheld)
	if err != nil {
		t.Errorf("a statement that is withheld: %v", err)
	}
	f.valid(t, out)
}

func (f Format) errors(t *testing.T) {
	c := f.New()
	// A DECIMAL whose digits make no number.
	tab := Table(t, Case{Column: event.Column{Name: "dc", Type: TypeDecimal, Meta: 9<<8 | 9}})
	r := Row(t, tab, nil, []Cell{V(Le(1, 8)), V(nil), V([]byte{0xff, 0xff, 0xff, 0xff})})
	// I3: no message rather than a wrong one, and an error that says where.
	out, err := c.AppendRow([]byte("x"), r)
	if err == nil || out != nil {
		t.Fatalf("got %q, %v; want an error and no message", out, err)
	}
	for _, want := range []string{tab.Schema + "." + tab.Name, `"dc"`, "binlog.000007:4551", "812"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	bad := *r
	bad.Op = 9
	if out, err := c.AppendRow(nil, &bad); err == nil || out != nil {
		t.Errorf("unknown operation: %q, %v", out, err)
	}
	bad = *r
	bad.After = bad.After[:1]
	if out, err := c.AppendRow(nil, &bad); err == nil || out != nil {
		t.Errorf("row of another table: %q, %v", out, err)
	}
	bad = *r
	bad.Op = event.Update
	if out, err := c.AppendRow(nil, &bad); err == nil || out != nil {
		t.Errorf("update without a before image: %q, %v", out, err)
	}
}

// names tells whether a message names the table.
func (f Format) names(out []byte, table string) bool {
	m, err := f.Read(out)
	return err == nil && m.Table == table
}

func (f Format) concurrent(t *testing.T) {
	c := f.New()
	done := make(chan string)
	for g := range 4 {
		go func() {
			defer func() { done <- "" }()
			for i := range 50 {
				tab := &event.Table{Schema: "s", Name: fmt.Sprintf("t%d_%d", g, i), Columns: []event.Column{{Name: "a", Type: TypeTiny}}, Key: []int{0}}
				if err := tab.Compile(); err != nil {
					done <- err.Error()
					return
				}
				var s event.Scanner
				s.Reset(Event(tab, nil, []Cell{V([]byte{byte(i)})}))
				s.Next()
				out, err := c.AppendRow(nil, s.Row())
				if err != nil || !f.names(out, tab.Name) {
					done <- fmt.Sprintf("table %s: %s, %v", tab.Name, out, err)
					return
				}
			}
		}()
	}
	for open := 4; open > 0; {
		if msg := <-done; msg == "" {
			open--
		} else {
			t.Error(msg)
		}
	}
}

// Fuzz lets the column of a row hold any bytes: the result is a valid message
// or an error, never a panic. check says what is valid, nil JSON.
func Fuzz(f *testing.F, c codec.Codec, check func(*testing.T, []byte)) {
	if check == nil {
		check = valid
	}
	cases := Cases()
	for i, cs := range cases {
		for _, e := range cs.Edges {
			f.Add(uint8(i), e.Raw)
		}
	}
	tables := map[int]*event.Table{}
	f.Fuzz(func(t *testing.T, n uint8, raw []byte) {
		i := int(n) % len(cases)
		tab := tables[i]
		if tab == nil {
			tab = Table(t, cases[i])
			tables[i] = tab
		}
		e := Event(tab, nil, []Cell{V(Le(1, 8)), V([]byte("k")), V(raw)})
		var s event.Scanner
		for s.Reset(e); s.Next(); {
			r := s.Row()
			if out, err := c.AppendRow(nil, r); err == nil {
				check(t, out)
			}
			if out, err := c.AppendKey(nil, r, []int{2}); err == nil {
				valid(t, out)
			}
		}
	})
}
