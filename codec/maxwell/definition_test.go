package maxwell

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

func withDefinitions(t *testing.T) *Codec {
	o := Defaults()
	o.Definitions = true
	return newCodec(t, o)
}

// TestDefinitionsAgainstMaxwell compares with what Maxwell 1.22 published for the same statements: the same keys in the same order with the same
// values, but for a label with a quote, which Maxwell gives as SQL has it.
func TestDefinitionsAgainstMaxwell(t *testing.T) {
	lines := codectest.PeerLines(t, "testdata/ddl.jsonl")
	type message struct {
		Type, Database, Table, SQL string
		Old, Def                   json.RawMessage
	}
	var want []message
	var statements []string
	for _, l := range lines {
		var m message
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatal(err)
		}
		want = append(want, m)
		statements = append(statements, m.SQL)
	}
	c := withDefinitions(t)
	quotes, olds := 0, 0
	for i, e := range codectest.Statements(t, "edge", statements...) {
		out, err := c.AppendDDL(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		var got message
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		w := want[i]
		if n := bytes.Count(w.Def, []byte(`"d''e"`)); n > 0 {
			quotes += n
			w.Def = bytes.ReplaceAll(w.Def, []byte(`"d''e"`), []byte(`"d'e"`))
		}
		if len(w.Old) > 0 {
			olds++
		}
		if got.Type != w.Type || got.Database != w.Database || got.Table != w.Table || string(got.Old) != string(w.Old) || string(got.Def) != string(w.Def) {
			t.Errorf("%s\n got %s\nwant %s", w.SQL, out, lines[i])
		}
		gotKeys, _ := codectest.Keys(out)
		wantKeys, _ := codectest.Keys(lines[i])
		if !reflect.DeepEqual(gotKeys, wantKeys) {
			t.Errorf("keys %v, Maxwell %v", gotKeys, wantKeys)
		}
	}
	if quotes != 1 || olds != 3 || len(want) != 12 {
		t.Errorf("%d quotes, %d former definitions, %d messages", quotes, olds, len(want))
	}
}

// TestDefinitions: what is known is told, of the table as it was called and as it is called; what is not known, not wanted, or too much, is left out.
func TestDefinitions(t *testing.T) {
	def := func(table, columns string) string {
		return `{"database":"shop","charset":"utf8mb4","table":"` + table + `","columns":[` + columns + `],"primary-key":[]}`
	}
	a, b := `{"type":"int","name":"a","signed":true}`, `{"type":"time","name":"b","column-length":3}`
	events := codectest.Statements(t, "shop",
		"CREATE TABLE t (a INT)", "ALTER TABLE t ADD b TIME(3), RENAME u", "CREATE TABLE v LIKE u", "RENAME TABLE u TO x, v TO u, x TO w", "ALTER TABLE w FROBNICATE", "TRUNCATE u", "CREATE INDEX i ON u (a)", "DROP TABLE u", "CREATE VIEW x AS SELECT 1")
	c := withDefinitions(t)
	for i, want := range []string{
		`"type":"table-create","database":"shop","table":"t","def":` + def("t", a),
		`"type":"table-alter","database":"shop","table":"t","old":` + def("t", a) + `,"def":` + def("u", a+","+b),
		`"type":"table-create","database":"shop","table":"v","def":` + def("v", a+","+b),
		`"type":"table-alter","database":"shop","table":"u","old":` + def("u", a+","+b) + `,"def":` + def("w", a+","+b),
		`"type":"table-alter","database":"shop","table":"w","old":` + def("w", a+","+b),
		`"type":"table-truncate","database":"shop","table":"u"`,
		`"type":"table-alter","database":"shop","table":"u","old":` + def("u", a+","+b) + `,"def":` + def("u", a+","+b),
		`"type":"table-drop","database":"shop","table":"u"`,
		`"type":"statement","database":"shop"`,
	} {
		e := events[i]
		out, err := c.AppendDDL(nil, e)
		if want = "{" + want + `,"ts":1700000000000,"sql":` + quote(e.Raw) + "}"; err != nil || string(out) != want {
			t.Errorf("got %s (%v)\nwant %s", out, err, want)
		}
		plain, err := newCodec(t, Defaults()).AppendDDL(nil, e)
		if err != nil || bytes.Contains(plain, []byte(`"def"`)) || bytes.Contains(plain, []byte(`"old"`)) {
			t.Errorf("not wanted: %s (%v)", plain, err)
		}
		stub, err := c.AppendDDLStub(nil, e, 1000)
		if err != nil || bytes.Contains(stub, []byte(`"def"`)) || bytes.Contains(stub, []byte(`"old"`)) {
			t.Errorf("stub: %s (%v)", stub, err)
		}
	}
	// I9: a message that no topic takes would stop the sink.
	wide := &event.Definition{}
	for i := range 4000 {
		wide.Columns = append(wide.Columns, event.DefinedColumn{Name: fmt.Sprintf("%d_%s", i, strings.Repeat("n", 60)), Type: "int", SQLType: "int"})
	}
	e := codectest.DDL("shop", "CREATE TABLE t (a INT)")
	e.Stmt.Defined = []event.Defined{{Schema: "shop", Name: "t", After: wide}}
	if out, err := c.AppendDDL(nil, e); err != nil || len(out) > codec.MaxDefinitions {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func quote(b []byte) string {
	out, _ := json.Marshal(string(b))
	return string(out)
}
