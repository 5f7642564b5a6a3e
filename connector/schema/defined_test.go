package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// told is what a statement tells of tables' definitions: "t: a b -> a b c".
func told(st *binlog.Statement) string {
	columns := func(d *event.Definition) string {
		if d == nil {
			return "?"
		}
		var names []string
		for i := range d.Columns {
			names = append(names, d.Columns[i].Name)
		}
		return strings.Join(names, " ")
	}
	var out []string
	for _, d := range st.Defined {
		out = append(out, fmt.Sprintf("%s: %s -> %s", d.Name, columns(d.Before), columns(d.After)))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// read has a reader come to statements from an offset on, and returns what they tell.
func read(t *testing.T, h *History, from uint64, story []*binlog.Statement) (out []string, v *View) {
	t.Helper()
	src := &present{at: place(from)}
	v = h.View(place(from), ViewOptions{Source: src, Server: srv})
	for _, st := range story {
		if st.Next <= from {
			continue
		}
		c := *st
		if err := v.Changed(&c); err != nil {
			t.Fatal(err)
		}
		src.at = place(st.Next)
		out = append(out, told(&c))
	}
	return out, v
}

// TestDefinedI5: a statement tells the same of the tables that it changes whenever it is read: by whom, from where, after what was unknown has been found
// out, after the history was saved and loaded, and when versions were dropped.
func TestDefinedI5(t *testing.T) {
	story := append(slices.Clone(story), said(700, "ALTER TABLE w ADD d INT"), said(800, "CREATE TABLE t2 LIKE t"), said(900, "RENAME TABLE t TO t3, t2 TO t"), said(1000, "ALTER TABLE t ADD e INT, RENAME t4"))
	want := []string{
		"t: a b -> a b c", "t: a b c -> ?; w: ? -> a b c", "t: ? -> z", "w: a b c -> ?", "", "w: ? -> ?", "t2: ? -> z", "t2: z -> ?; t3: ? -> z; t: z -> z", "t4: ? -> z e; t: z -> ?",
	}
	k := &box{cursors: []event.Position{place(450), place(1100)}}
	h := begun(k, 100, 100)
	got, v := read(t, h, 100, story)
	if !slices.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
	w := ddl.Name{Schema: "shop", Table: "w"}
	check := func(what string, h *History) {
		t.Helper()
		for from := h.at.Offset; from < 1100; from += 100 { // what lies before may be dropped
			got, _ := read(t, h, from, story)
			if tail := want[len(want)-len(got):]; !slices.Equal(got, tail) {
				t.Errorf("%s, from %d: %q\nwant %q", what, from, got, tail)
			}
		}
	}
	check("read again", h)
	here := place(1000)
	v.remember(w, integer("found", "out"), ddl.Known, &here)
	if s, _ := v.def(w); s != ddl.Known {
		t.Fatal("w is not known")
	}
	check("found out", h)
	if err := h.Save(t.Context(), place(1100)); err != nil {
		t.Fatal(err)
	}
	again := NewHistory(k)
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.lists, h.lists) {
		t.Error("what is loaded is not what was saved")
	}
	check("loaded", again)
	again.added = compactAfter
	if err := again.Save(t.Context(), place(1200)); err != nil {
		t.Fatal(err)
	}
	if again.at.Offset != 450 {
		t.Fatalf("versions up to %d are dropped", again.at.Offset)
	}
	check("compacted", again)
}

// TestDefinedBehindI6: what nobody knew when a statement was first read it never tells.
func TestDefinedBehindI6(t *testing.T) {
	story := []*binlog.Statement{said(200, "ALTER TABLE t ADD c INT"), said(300, "ALTER TABLE u ADD y INT"), said(1200, "ALTER TABLE t ADD d INT")}
	h := begun(&box{}, 100, 1000) // what base says holds at 1000
	h.base[shopT] = integer("a", "b", "c")
	want := []string{"t: ? -> ?", "u: ? -> ?", "t: ? -> a b c d"}
	src := &present{at: place(100), now: place(1000), log: story[:2]}
	v := h.View(place(100), ViewOptions{Source: src, Server: srv})
	if err := v.lookAhead(place(100)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, st := range story {
		c := *st
		if err := v.Changed(&c); err != nil {
			t.Fatal(err)
		}
		src.at = place(st.Next)
		got = append(got, told(&c))
	}
	if s, _ := v.def(ddl.Name{Schema: "shop", Table: "u"}); s != ddl.Known {
		t.Error("u is not known behind its only statement")
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if got, _ = read(t, h, 100, story); !slices.Equal(got, want) {
		t.Errorf("I5: read again %q, want %q", got, want)
	}
	if got, _ = read(t, begun(nil, 100, 100), 100, story); strings.Join(got, "") != "" {
		t.Errorf("I5: a history that is not kept tells %q", got)
	}
	h.Forget(shopT)
	if got, _ = read(t, h, 100, story); !slices.Equal(got, []string{"t: ? -> ?", "u: ? -> ?", "t: ? -> ?"}) {
		t.Errorf("forgotten: %q", got)
	}
}

// TestDefinedBoundI9: statements about many tables do not make messages of all their definitions, and one that only drops tells nothing.
func TestDefinedBoundI9(t *testing.T) {
	h := begun(&box{}, 100, 100)
	var names []string
	for i := range 2 * maxDefined / 200 {
		n := ddl.Name{Schema: "shop", Table: fmt.Sprintf("t%d", i)}
		h.base[n] = integer(make([]string, 200)...)
		names = append(names, n.Table)
	}
	few, _ := read(t, h, 100, []*binlog.Statement{said(200, "RENAME TABLE t0 TO n0, t1 TO n1")})
	if strings.Count(few[0], "->") != 4 {
		t.Errorf("few: %q", few)
	}
	many, v := read(t, h, 200, []*binlog.Statement{said(300, "RENAME TABLE "+strings.Join(names[2:], " TO x, ")+" TO y"), said(400, "DROP DATABASE shop")})
	if many[0] != "" || many[1] != "" {
		t.Errorf("many: %d and %d bytes", len(many[0]), len(many[1]))
	}
	if s, _ := v.def(ddl.Name{Schema: "shop", Table: "y"}); s != ddl.Absent {
		t.Error("the database is still there")
	}
	h.Detach()
	if loose, _ := read(t, h, 100, []*binlog.Statement{said(200, "RENAME TABLE t0 TO n0, t1 TO n1")}); loose[0] != "" {
		t.Errorf("I5: a history that is not kept any more tells %q", loose)
	}
}

// TestDefinition: columns that statements do not know are left out, and MariaDB's JSON is JSON.
func TestDefinition(t *testing.T) {
	d := definition(&ddl.Table{Charset: "latin1", Columns: []ddl.Column{
		{Name: "b", DataType: "varchar", SQLType: "varchar(20)", Charset: "utf8mb4", Key: 2},
		{Name: "a", DataType: "int", SQLType: "int unsigned", Key: 1},
		{Name: "j", DataType: "longtext", SQLType: "longtext", Charset: "utf8mb4", JSON: true, Nullable: true},
		{Name: "e", DataType: "enum", SQLType: "enum('x','it''s')", Charset: "utf8mb4", Members: []string{"x", "it's"}, AsLogged: true},
		{Name: "u", DataType: "enum", SQLType: "enum('\xff')", Charset: "utf8mb4"}, // labels that cannot be read are not told
		{Name: "!hidden!i!0!0", Hidden: "i"},
	}})
	want := &event.Definition{Charset: "latin1", Columns: []event.DefinedColumn{
		{Name: "b", Type: "varchar", SQLType: "varchar(20)", Charset: "utf8mb4", Key: 2},
		{Name: "a", Type: "int", SQLType: "int unsigned", Key: 1},
		{Name: "j", Type: "json", SQLType: "json", Nullable: true},
		{Name: "e", Type: "enum", SQLType: "enum('x','it''s')", Charset: "utf8mb4", Members: []string{"x", "it's"}, Unsure: true},
		{Name: "u", Type: "enum", SQLType: "enum('\xff')", Charset: "utf8mb4"},
	}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v", d)
	}
	if got := d.PrimaryKey(); !slices.Equal(got, []string{"a", "b"}) || !d.Columns[1].Unsigned() || d.Columns[0].Unsigned() {
		t.Errorf("key %v", got)
	}
}
