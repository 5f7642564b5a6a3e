package maxwell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func newCodec(t testing.TB, o Options) *Codec {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everything is the options with all output switched on.
func everything() Options {
	o := Defaults()
	o.BinlogPosition, o.GTIDPosition, o.ServerID, o.ThreadID = true, true, true, true
	o.PrimaryKeys, o.PrimaryKeyColumns = true, true
	o.KeyFormat = "array"
	return o
}

// read takes a message of codectest's rows apart.
func read(value []byte) (codectest.Message, error) {
	m, err := codectest.ReadMaxwell(value)
	if err == nil && !bytes.Contains(value, []byte(`"ts":1700000000,"xid":23,"xoffset":2,`)) {
		err = fmt.Errorf("ts, xid or xoffset")
	}
	return m, err
}

// textOf undoes the encodings, of what the test rows hold also those that lose something.
func textOf(col *event.Column, v json.RawMessage) (string, error) {
	s, err := codectest.MaxwellText(col, v)
	switch {
	case s == "POINT (1 2)":
		s = string(codectest.Point)
	case col.Logical == event.LogicalJSON && s == "str":
		s = `"str"`
	case col.Logical == event.LogicalJSON:
		s = strings.Replace(s, "[ 1]", "[\n1]", 1)
	}
	return s, err
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{"defaults": Defaults(), "everything": everything()} {
		t.Run(name, func(t *testing.T) {
			f := codectest.Format{New: func() codec.Codec { return newCodec(t, o) }, Read: read, ReadSnapshot: codectest.ReadMaxwell, Text: textOf}
			if o.PrimaryKeys {
				f.Read = func(value []byte) (codectest.Message, error) {
					m, err := read(value)
					if err == nil && !bytes.Contains(value, []byte(`,"position":"binlog.000007:4551","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","server_id":1,"thread_id":44,"primary_key":[`)) {
						err = fmt.Errorf("something is missing")
					}
					return m, err
				}
			}
			codectest.Run(t, f)
		})
	}
}

func TestGolden(t *testing.T) {
	codectest.Golden(t, "testdata/default.golden", newCodec(t, Defaults()))
	codectest.Golden(t, "testdata/everything.golden", newCodec(t, everything()))
	codectest.GoldenStubs(t, "testdata/stub.golden", newCodec(t, Defaults()))
}

func FuzzRow(f *testing.F) { codectest.Fuzz(f, newCodec(f, Defaults()), nil) }

func TestOptions(t *testing.T) {
	if _, err := New(Options{KeyFormat: "map"}); err == nil {
		t.Error("no error")
	}
	tab := codectest.Shop(t)
	r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.Null, codectest.Null, codectest.Absent})
	for _, x := range []struct {
		o    Options
		last bool
		want string
	}{
		{Defaults(), false, `"xid":23,"xoffset":2,"data":{"id":7,"name":null,"qty":null}}`},
		{Defaults(), true, `"xid":23,"commit":true,"data":{"id":7,"name":null,"qty":null}}`},
		{Options{Nulls: true, CommitInfo: true}, false, `"xid":23,"data":{"id":7,"name":null,"qty":null}}`},
		{Options{XOffset: true}, true, `"data":{"id":7}}`},
	} {
		r.Last = x.last
		out, err := newCodec(t, x.o).AppendRow(nil, r)
		want := `{"database":"shop","table":"item","type":"insert","ts":1700000000,` + x.want
		if err != nil || string(out) != want {
			t.Errorf("%+v\n got %s, %v\nwant %s", x.o, out, err, want)
		}
	}
}

func TestZeroDates(t *testing.T) {
	o := Defaults()
	o.NullZeroDates = true
	c := newCodec(t, o)
	for _, cs := range codectest.Cases() {
		tab := codectest.Table(t, cs)
		switch tab.Columns[2].Class {
		case event.ClassDate, event.ClassDatetime, event.ClassTimestamp, event.ClassTime:
		default:
			continue
		}
		for _, e := range cs.Edges {
			r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(1, 8)), codectest.V(nil), codectest.V(e.Raw)})
			out, err := c.AppendRow(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			want := `"` + e.Text + `"`
			if strings.HasPrefix(e.Text, "0000-00-00") {
				want = "null"
			}
			if !bytes.HasSuffix(out, []byte(want+"}}")) {
				t.Errorf("%s %s: %s", tab.Columns[2].SQLType, e.Text, out)
			}
		}
	}
}

func TestKey(t *testing.T) {
	tab := codectest.Compile(t, &event.Table{Schema: "shop", Name: "t", Key: []int{1, 0}, Columns: []event.Column{
		{Name: "Name", Type: codectest.TypeVarchar, Meta: 80, Charset: "utf8mb4"}, {Name: "ID", Type: codectest.TypeLong}}})
	r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V([]byte("x\"y")), codectest.V(codectest.Le(7, 4))})
	hash, array := newCodec(t, Defaults()), newCodec(t, everything())
	for _, x := range []struct {
		c    *Codec
		key  []int
		want string
	}{
		{hash, []int{1}, `{"database":"shop","table":"t","pk.id":7}`},
		{hash, tab.Key, `{"database":"shop","table":"t","pk.id":7,"pk.name":"x\"y"}`},
		{array, []int{1}, `["shop","t",[{"id":7}]]`},
		{array, tab.Key, `["shop","t",[{"id":7},{"name":"x\"y"}]]`},
		{hash, nil, `{"database":"shop","table":"t","_uuid":"01ab600d-7b7c-5f2d-8a4e-d116b29af456"}`},
		{array, nil, `["shop","t",[{"_uuid":"01ab600d-7b7c-5f2d-8a4e-d116b29af456"}]]`},
	} {
		got, err := x.c.AppendKey(nil, r, x.key)
		if err != nil || string(got) != x.want {
			t.Errorf("key %v: %s, %v; want %s", x.key, got, err, x.want)
		}
	}
}

// TestUUID: I5, the identity of a row without key. The expected values are
// Python's uuid.uuid5 of the namespace and the name in the comment.
func TestUUID(t *testing.T) {
	tab := codectest.Shop(t)
	e := codectest.Event(tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.Null, codectest.Null, codectest.Null})
	uuid := func(txn *event.Txn, index int64) string {
		e.Txn, e.Index = txn, index
		return string(appendUUID(nil, codectest.Scan(t, e)))
	}
	noGTID := *codectest.Txn
	noGTID.GTID = event.GTID{}
	mariaDB := noGTID
	mariaDB.GTID = event.GTID{Domain: 0, Server: 1, Seq: 7}
	for _, x := range []struct {
		got, want string
	}{
		{uuid(codectest.Txn, 2), "01ab600d-7b7c-5f2d-8a4e-d116b29af456"},      // 3e11fa47-71ca-11e1-9e33-c80aa9429562:23#2
		{uuid(&mariaDB, 0), "414ada25-f541-583e-804f-132441d31f78"},           // 0-1-7#0
		{uuid(codectest.Snapshot, 2), "cc32af68-3822-5f4c-afe4-8e4d35abb095"}, // evening/4#2
		{uuid(&noGTID, 10), "7902171e-b8cf-5616-980d-194a0398f657"},           // 3e11fa47-71ca-11e1-9e33-c80aa9429562/binlog.000007:4000#10
	} {
		if x.got != x.want {
			t.Errorf("got %s, want %s", x.got, x.want)
		}
	}
}

func TestXID(t *testing.T) {
	noGTID := *codectest.Txn
	noGTID.GTID = event.GTID{}
	for want, e := range map[uint64]*event.Event{
		23:   {Txn: codectest.Txn},
		4000: {Txn: &noGTID},
		4551: {Start: 4551},
	} {
		if got := xid(e); got != want {
			t.Errorf("xid %d, want %d", got, want)
		}
	}
}

func TestDDL(t *testing.T) {
	c := newCodec(t, everything())
	for _, x := range []struct{ sql, typ, names string }{
		{"CREATE TABLE nums (id INT)", "table-create", `"database":"shop","table":"nums"`},
		{"ALTER TABLE x.pairs ADD w INT", "table-alter", `"database":"x","table":"pairs"`},
		{"RENAME TABLE docs TO docs2", "table-alter", `"database":"shop","table":"docs"`},
		{"RENAME TABLE a TO b, c TO a", "table-alter", `"database":"shop","table":"a"`},
		{"DROP TABLE x.a, b", "table-drop", `"database":"x","table":"a"`},
		{"DROP TABLE `nokey` /* generated by server */", "table-drop", `"database":"shop","table":"nokey"`},
		{"TRUNCATE TABLE nokey", "table-truncate", `"database":"shop","table":"nokey"`},
		{"CREATE INDEX i ON t (c)", "table-alter", `"database":"shop","table":"t"`},
		{"CREATE DATABASE y", "database-create", `"database":"y"`},
		{"ALTER DATABASE CHARACTER SET latin1", "database-alter", `"database":"shop"`},
		{"DROP DATABASE y", "database-drop", `"database":"y"`},
		{"CREATE VIEW v AS SELECT 1", "statement", `"database":"shop"`},
	} {
		out, err := c.AppendDDL(nil, codectest.DDL("shop", x.sql))
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"type":%q,%s,"ts":1700000000000,"sql":%q,"position":"binlog.000007:4551","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23"}`,
			x.typ, x.names, x.sql)
		if string(out) != want {
			t.Errorf("%s\n got %s\nwant %s", x.sql, out, want)
		}
	}
}
