package codectest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Golden compares what c writes for every class of column and every operation
// with the file: per message a line that says what it is, the key, the value.
func Golden(t *testing.T, file string, c codec.Codec) {
	t.Helper()
	var out bytes.Buffer
	write := func(what string, r *event.Row, key []int) {
		k, err := c.AppendKey(nil, r, key)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		v, err := c.AppendRow(nil, r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		fmt.Fprintf(&out, "# %s\n%s\n%s\n", what, k, v)
	}
	row := func(what string, tab *event.Table, before, after []Cell, key []int) {
		r := Row(t, tab, before, after)
		r.Last = what == "insert"
		write(what, r, key)
	}
	shop := Shop(t)
	id, name, qty := V(Le(7, 4)), V([]byte("pen")), V(Le(5, 4))
	row("insert", shop, nil, []Cell{id, name, qty, Null}, shop.Key)
	row("update", shop, []Cell{id, name, qty, Null}, []Cell{id, name, V(Le(6, 4)), V([]byte("sold"))}, shop.Key)
	row("update of the key", shop, []Cell{id, name, qty, Null}, []Cell{V(Le(8, 4)), name, qty, Null}, shop.Key)
	row("delete", shop, []Cell{id, name, qty, Null}, nil, shop.Key)
	row("minimal update", shop, []Cell{id, Absent, Absent, Absent}, []Cell{Absent, Absent, V(Le(6, 4)), Absent}, shop.Key)
	row("minimal delete", shop, []Cell{id, Absent, Absent, Absent}, nil, shop.Key)
	row("insert without key", shop, nil, []Cell{id, name, qty, Null}, nil)
	write("snapshot", SnapshotRow(t, shop, []Cell{id, name, qty, Null}), shop.Key)
	write("snapshot without key", SnapshotRow(t, shop, []Cell{id, name, qty, Null}), nil)
	for _, cs := range Cases() {
		tab := Table(t, cs)
		for i, e := range cs.Edges {
			row(fmt.Sprintf("%s %d", tab.Columns[2].SQLType, i), tab, nil, []Cell{V(Le(1, 8)), V([]byte("k")), V(e.Raw)}, tab.Key)
		}
	}
	for _, sql := range []string{
		"CREATE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE x.t ADD c INT", "RENAME TABLE t TO u", "RENAME TABLE a TO t, x.b TO a, t TO x.b", "ALTER TABLE t ADD c INT, RENAME TO x.u", "CREATE TABLE t LIKE x.u", "DROP TABLE a, x.b", "TRUNCATE t",
		"CREATE DATABASE y", "CREATE INDEX i ON t (c)", "ALTER TABLE t ADD UNIQUE (c)", "ALTER TABLE t DROP KEY c", "CREATE VIEW v AS SELECT 1",
	} {
		v, err := c.AppendDDL(nil, DDL("shop", sql))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "# ddl\n%s\n", v)
	}
	golden(t, file, out.Bytes())
}

// Keys returns the keys of a JSON object in the order in which they stand.
func Keys(object []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var keys []string
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		keys = append(keys, fmt.Sprint(k))
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
