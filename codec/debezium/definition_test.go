package debezium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

// TestDefinitionsAgainstDebezium compares with what Debezium 3.6.1 published for the same statements: the same keys in the same order with the same values, but
// for what a definition does not know, which is null, and messages of several tables, of which Debezium writes one each.
func TestDefinitionsAgainstDebezium(t *testing.T) {
	lines := codectest.PeerLines(t, "testdata/ddl.jsonl")
	type message struct {
		DDL          string
		TableChanges []json.RawMessage
	}
	var want []message
	var statements []string
	for _, l := range lines {
		var m message
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatal(err)
		}
		want = append(want, m)
		statements = append(statements, m.DDL)
	}
	unknown := map[string]int{}
	for _, schemas := range []bool{false, true} {
		c := newCodec(t, Options{Name: "peer", Schemas: schemas, Definitions: true})
		for i, e := range codectest.Statements(t, "edge", statements...) {
			out, err := c.AppendDDL(nil, e)
			if err != nil {
				t.Fatal(err)
			}
			if schemas {
				if out, err = payload(out); err != nil {
					t.Fatalf("%s: %v", statements[i], err)
				}
			}
			var got message
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.TableChanges) != 1 || len(want[i].TableChanges) != 1 {
				t.Fatalf("%s: %d tables, Debezium %d", statements[i], len(got.TableChanges), len(want[i].TableChanges))
			}
			alike(t, statements[i], "", got.TableChanges[0], want[i].TableChanges[0], unknown)
		}
	}
	// Twice each, with schemas and without.
	if n := len(unknown); n != 3 || unknown["defaultValueExpression"] != 2*3 {
		t.Errorf("unknown: %v", unknown)
	}
}

// alike compares two JSON values, with the order of keys.
func alike(t *testing.T, statement, path string, got, want json.RawMessage, unknown map[string]int) {
	t.Helper()
	switch {
	case want[0] == '{' && got[0] == '{':
		g, _ := codectest.Keys(got)
		w, _ := codectest.Keys(want)
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("%s: %s has %v, Debezium %v", statement, path, g, w)
		}
		var gm, wm map[string]json.RawMessage
		if json.Unmarshal(got, &gm) != nil || json.Unmarshal(want, &wm) != nil {
			t.Fatal("no objects")
		}
		for _, k := range w {
			alike(t, statement, k, gm[k], wm[k], unknown)
		}
	case want[0] == '[' && got[0] == '[':
		var gl, wl []json.RawMessage
		if json.Unmarshal(got, &gl) != nil || json.Unmarshal(want, &wl) != nil || len(gl) != len(wl) {
			t.Fatalf("%s: %s is %s, Debezium %s", statement, path, got, want)
		}
		for i := range wl {
			alike(t, statement, path, gl[i], wl[i], unknown)
		}
	case string(got) == "null" && (path == "autoIncremented" || path == "generated" || path == "defaultValueExpression") && string(want) != "null":
		unknown[path]++
	case string(got) != string(want):
		t.Errorf("%s: %s is %s, Debezium %s", statement, path, got, want)
	}
}

// TestDefinitions: what is known is told of each table; what is not known, not wanted, or too much, is null.
func TestDefinitions(t *testing.T) {
	events := codectest.Statements(t, "shop", "CREATE TABLE t (a INT)", "ALTER TABLE t ADD b INT, RENAME u", "CREATE TABLE v LIKE u", "RENAME TABLE u TO w, v TO u", "ALTER TABLE w FROBNICATE", "DROP TABLE u, w")
	c := newCodec(t, Options{Name: "peer", Definitions: true})
	type change struct {
		Type, ID string
		Table    *struct{ Columns []struct{ Name string } }
	}
	tell := func(out []byte) string {
		var m struct{ TableChanges []change }
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, ch := range m.TableChanges {
			s := ch.Type + " " + strings.Trim(strings.TrimPrefix(ch.ID, `"shop".`), `"`)
			if ch.Table != nil {
				for _, col := range ch.Table.Columns {
					s += " " + col.Name
				}
			}
			all = append(all, s)
		}
		return strings.Join(all, ", ")
	}
	for i, want := range []string{"CREATE t a", "ALTER t, ALTER u a b", "CREATE v a b", "ALTER w a b, ALTER u a b", "ALTER w", "DROP u, DROP w"} {
		out, err := c.AppendDDL(nil, events[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := tell(out); got != want {
			t.Errorf("%s: %s, want %s", events[i].Raw, got, want)
		}
		plain, err := newCodec(t, plainOptions).AppendDDL(nil, events[i])
		stub, err2 := c.AppendDDLStub(nil, events[i], 2000)
		if err != nil || err2 != nil || bytes.Contains(plain, []byte("columns")) || bytes.Contains(stub, []byte("columns")) {
			t.Errorf("%s\n%s", plain, stub)
		}
	}
	// I9: a message that no topic takes would stop the sink.
	wide := &event.Definition{}
	for i := range 600 {
		wide.Columns = append(wide.Columns, event.DefinedColumn{Name: fmt.Sprint("c", i), Type: "int", SQLType: "int"})
	}
	var list []string
	var defined []event.Defined
	for i := range 20 {
		list = append(list, fmt.Sprintf("a%d TO b%d", i, i))
		defined = append(defined, event.Defined{Schema: "shop", Name: fmt.Sprint("b", i), After: wide})
	}
	e := codectest.DDL("shop", "RENAME TABLE "+strings.Join(list, ", "))
	e.Stmt.Defined = defined
	out, err := c.AppendDDL(nil, e)
	if n := bytes.Count(out, []byte(`"columns":`)); err != nil || len(out) > codec.MaxDefinitions+8<<10 || n == 0 || n == 20 {
		t.Errorf("%d bytes, %d tables, %v", len(out), n, err)
	}
}

// TestTypes: types as MariaDB and older servers show them, with display widths, and what has no type of its own.
func TestTypes(t *testing.T) {
	for _, x := range []struct {
		typ, sql, name string
		length, scale  int
		jdbc           int
	}{
		{"int", "int(11)", "INT", -1, -1, 4},
		{"bigint", "bigint(20) unsigned zerofill", "BIGINT UNSIGNED ZEROFILL", -1, -1, -5},
		{"tinyint", "tinyint(4)", "TINYINT", -1, -1, 5},
		{"tinyint", "tinyint(1)", "TINYINT", 1, -1, 5},
		{"year", "year(4)", "YEAR", -1, -1, 4},
		{"float", "float(7,3)", "FLOAT", 7, 3, 6},
		{"double", "double unsigned", "DOUBLE UNSIGNED", -1, -1, 8},
		{"text", "text", "TEXT", -1, -1, 12},
		{"longblob", "longblob", "LONGBLOB", -1, -1, 2004},
		{"enum", "enum('a(1)','b')", "ENUM", 1, -1, 1},
		{"set", "set('a','b','c')", "SET", 5, -1, 1},
		{"uuid", "uuid", "UUID", -1, -1, 1111},
	} {
		c := &event.DefinedColumn{Type: x.typ, SQLType: x.sql}
		if x.typ == "set" {
			c.Members = []string{"a", "b", "c"}
		}
		if name, length, scale := typeOf(c); name != x.name || length != x.length || scale != x.scale || jdbcType(x.typ) != x.jdbc {
			t.Errorf("%s: %s %d %d, jdbc %d", x.sql, name, length, scale, jdbcType(x.typ))
		}
	}
}
