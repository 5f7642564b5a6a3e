package codec_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/codec/debezium"
	"github.com/binlogmq/binlogmq/codec/maxwell"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestDocs holds the examples of docs/formats.md to what the codecs write.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	full := maxwell.Defaults()
	full.BinlogPosition, full.GTIDPosition, full.ServerID, full.ThreadID = true, true, true, true
	full.PrimaryKeys, full.PrimaryKeyColumns = true, true
	array := maxwell.Defaults()
	array.KeyFormat = "array"
	cj, err1 := canaljson.New(canaljson.Options{})
	defining := maxwell.Defaults()
	defining.Definitions = true
	mw, err2 := maxwell.New(defining)
	mwFull, err3 := maxwell.New(full)
	mwArray, err4 := maxwell.New(array)
	dbz, err5 := debezium.New(debezium.Options{Name: "shopdb", Definitions: true})
	dbzFull, err6 := debezium.New(debezium.Options{Name: "shopdb", Schemas: true})
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tab := codectest.Shop(t)
	cells := func(qty int64) []codectest.Cell {
		return []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(qty, 4)), codectest.Null}
	}
	update, remove := codectest.Row(t, tab, cells(5), cells(6)), codectest.Row(t, tab, cells(5), nil)
	x := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.V([]byte("x")), codectest.Null, codectest.Null})
	remove.Last = true
	ddl := codectest.Statements(t, "shop", "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))", "ALTER TABLE item ADD c INT")[1]
	snapshot := codectest.SnapshotRow(t, tab, cells(5))
	large := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(6, 4)), codectest.V([]byte(strings.Repeat("x", 60000)))})
	for name, f := range map[string]func() ([]byte, error){
		"canal-json update": func() ([]byte, error) { return cj.AppendRow(nil, update) },
		"canal-json key":    func() ([]byte, error) { return cj.AppendKey(nil, update, tab.Key) },
		"canal-json no key": func() ([]byte, error) { return cj.AppendKey(nil, update, nil) },
		"canal-json ddl":    func() ([]byte, error) { return cj.AppendDDL(nil, ddl) },
		"canal-json stub":   func() ([]byte, error) { return cj.AppendStub(nil, large, nil, 10000) },
		"maxwell stub":      func() ([]byte, error) { return mw.AppendStub(nil, large, nil, 10000) },
		"maxwell update":    func() ([]byte, error) { return mw.AppendRow(nil, update) },
		"maxwell delete":    func() ([]byte, error) { return mwFull.AppendRow(nil, remove) },
		"maxwell key":       func() ([]byte, error) { return mw.AppendKey(nil, x, []int{0, 1}) },
		"maxwell array key": func() ([]byte, error) { return mwArray.AppendKey(nil, x, []int{0, 1}) },
		"maxwell ddl":       func() ([]byte, error) { return mw.AppendDDL(nil, ddl) },
		"debezium update":   func() ([]byte, error) { return dbz.AppendRow(nil, update) },
		"debezium key":      func() ([]byte, error) { return dbz.AppendKey(nil, update, tab.Key) },
		"debezium full key": func() ([]byte, error) { return dbzFull.AppendKey(nil, update, tab.Key) },
		"debezium ddl":      func() ([]byte, error) { return dbz.AppendDDL(nil, ddl) },
		"debezium ddl key":  func() ([]byte, error) { return dbz.AppendDDLKey(nil, ddl), nil },
		"debezium truncate": func() ([]byte, error) { return dbz.AppendTruncate(nil, ddl, "shop", "item"), nil },
		"canal-json read":   func() ([]byte, error) { return cj.AppendRow(nil, snapshot) },
		"maxwell read":      func() ([]byte, error) { return mw.AppendRow(nil, snapshot) },
		"debezium read":     func() ([]byte, error) { return dbz.AppendRow(nil, snapshot) },
		"debezium stub":     func() ([]byte, error) { return dbz.AppendStub(nil, large, nil, 10000) },
	} {
		out, err := f()
		if err != nil || !strings.Contains(string(doc), string(out)) {
			t.Errorf("%s: docs/formats.md does not show %s (%v)", name, out, err)
		}
	}
	_, section, _ := strings.Cut(string(doc), "\n## DDL\n")
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| `(\\[.*\\])` \\|$").FindAllStringSubmatch(section, -1)
	if len(rows) < 10 {
		t.Errorf("docs/formats.md shows the tables of %d statements", len(rows))
	}
	for _, row := range rows {
		if got := string(codec.AppendTables(nil, codectest.DDL("shop", row[1]).Stmt)); got != row[2] {
			t.Errorf("%s: tables %s, docs/formats.md says %s", row[1], got, row[2])
		}
	}
}

// TestKeyValue: the identifying image, completed where it is partial.
func TestKeyValue(t *testing.T) {
	tab := codectest.Shop(t)
	id := codectest.V(codectest.Le(7, 4))
	r := codectest.Row(t, tab, []codectest.Cell{id, codectest.Absent, codectest.Null, codectest.Absent},
		[]codectest.Cell{codectest.Absent, codectest.Absent, codectest.V(codectest.Le(6, 4)), codectest.Absent})
	if v, err := codec.KeyValue(r, 0); err != nil || v != &r.Before[0] {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := codec.KeyValue(r, 2); err != nil || v != &r.After[2] {
		t.Errorf("%v, %v", v, err)
	}
	for _, k := range []int{1, 3, 4, -1} {
		if v, err := codec.KeyValue(r, k); err == nil {
			t.Errorf("column %d: %v", k, v)
		}
	}
}
