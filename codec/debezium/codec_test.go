package debezium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

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

var (
	plainOptions  = Options{Name: "peer"}
	schemaOptions = Options{Name: "peer", Schemas: true}
	otherOptions  = Options{Name: "peer", Decimal: "string", Time: "connect", BigintUnsigned: "precise", Binary: "hex"}
	thirdOptions  = Options{Name: "peer", Schemas: true, Decimal: "double", Time: "microseconds", Binary: "base64-url-safe"}
)

type envelope struct {
	Before, After map[string]json.RawMessage
	Source        struct {
		Version, Connector, Name, Snapshot, DB, Table, GTID, File string
		Sequence, Query                                           *string
		MS                                                        int64  `json:"ts_ms"`
		US                                                        int64  `json:"ts_us"`
		NS                                                        int64  `json:"ts_ns"`
		ServerID                                                  uint32 `json:"server_id"`
		Pos, Row, Thread                                          int64
	}
	Transaction *string
	Op          string
	MS          int64 `json:"ts_ms"`
	US          int64 `json:"ts_us"`
	NS          int64 `json:"ts_ns"`
}

// strict decodes JSON and refuses what v does not know.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// payload returns what stands beside the schema, which must describe it.
func payload(value []byte) ([]byte, error) {
	var m struct{ Schema, Payload json.RawMessage }
	if err := strict(value, &m); err != nil {
		return nil, err
	}
	s, err := readSchema(m.Schema)
	if err != nil {
		return nil, err
	}
	return m.Payload, s.check(m.Payload, "")
}

// read takes a message apart as strictly as it can; snapshot says that it is of a snapshot's row, which is an insert.
func read(o Options, snapshot bool) func(value []byte) (codectest.Message, error) {
	return func(value []byte) (codectest.Message, error) {
		var out codectest.Message
		var err error
		if o.Schemas {
			if value, err = payload(value); err != nil {
				return out, err
			}
		}
		var m envelope
		if err := strict(value, &m); err != nil {
			return out, err
		}
		s := &m.Source
		out.Schema, out.Table, out.Data = s.DB, s.Table, m.After
		if snapshot {
			if m.Op != "r" || s.Snapshot != "incremental" || s.GTID != "" || s.Pos != 4000 || s.Thread != 0 {
				return out, fmt.Errorf("op %s, source %+v", m.Op, s)
			}
			// All else is as of an insert.
			m.Op, s.Snapshot, s.GTID, s.Pos, s.Thread = "c", "false", codectest.Txn.GTID.String(), 4551, 44
		}
		switch m.Op {
		case "c":
			out.Op = "insert"
		case "u":
			out.Op = "update"
		case "d":
			out.Op, out.Data = "delete", m.Before
		}
		switch {
		case (m.Op == "c") != (m.Before == nil) || (m.Op == "d") != (m.After == nil) || m.Transaction != nil:
			return out, fmt.Errorf("images of %s", m.Op)
		case s.Version != Version || s.Connector != "mysql" || s.Name != "peer" || s.Snapshot != "false" || s.Sequence != nil || s.Query != nil:
			return out, fmt.Errorf("source %+v", s)
		case s.US != 1700000000123456 || s.MS != s.US/1000 || s.NS != s.US*1000 || m.MS != s.MS || m.US != s.US || m.NS != s.NS:
			return out, fmt.Errorf("times of %+v", m)
		case s.ServerID != 1 || s.GTID != "3e11fa47-71ca-11e1-9e33-c80aa9429562:23" || s.File != "binlog.000007" || s.Pos != 4551 || s.Row != 0 || s.Thread != 44:
			return out, fmt.Errorf("source %+v", s)
		}
		for _, image := range []map[string]json.RawMessage{m.Before, m.After} {
			for name, v := range image {
				if known(o, v) {
					delete(image, name)
				}
			}
		}
		if m.Op == "u" {
			out.Old = map[string]json.RawMessage{}
			for name, v := range m.Before {
				if w, ok := m.After[name]; ok && !bytes.Equal(v, w) && !digestOf(o, v, w) && !digestOf(o, w, v) {
					out.Old[name] = v
				}
			}
		}
		return out, nil
	}
}

func modes(o Options) codectest.DebeziumModes {
	return codectest.DebeziumModes{Decimal: o.Decimal, Time: o.Time, Binary: o.Binary}
}

// known reports whether v is the placeholder for a value that no image holds.
func known(o Options, v json.RawMessage) bool {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return false
	}
	b, err := modes(o).Bytes(s)
	return s == unavailable || err == nil && b == unavailable
}

// digestOf reports whether v is what a stub has in the place of w.
func digestOf(o Options, v, w json.RawMessage) bool {
	var s, whole string
	if json.Unmarshal(v, &s) != nil || json.Unmarshal(w, &whole) != nil {
		return false
	}
	if s == string(codec.Digest([]byte(whole))) {
		return true
	}
	b, err := modes(o).Bytes(s)
	content, err2 := modes(o).Bytes(whole)
	return err == nil && err2 == nil && b == string(codec.Digest([]byte(content)))
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{"plain": plainOptions, "schemas": schemaOptions, "other": otherOptions, "third": thirdOptions} {
		t.Run(name, func(t *testing.T) {
			f := codectest.Format{
				New: func() codec.Codec { return newCodec(t, o) }, Read: read(o, false), ReadSnapshot: read(o, true), Text: modes(o).Text, Lost: codectest.DebeziumLost, TableKey: true,
			}
			if o.Schemas {
				f.Overhead = 5500
				f.Needs = func(col *event.Column) bool { return newCodec(t, o).absent(col) == nil }
			}
			if o.Time == "connect" {
				f.Lossy = []event.Class{event.ClassTime} // of one day, with milliseconds
			}
			codectest.Run(t, f)
		})
	}
}

func TestGolden(t *testing.T) {
	for _, x := range []struct {
		name string
		o    Options
	}{{"plain", plainOptions}, {"other", otherOptions}} {
		codectest.Golden(t, "testdata/"+x.name+".golden", newCodec(t, x.o))
		codectest.GoldenStubs(t, "testdata/"+x.name+"_stub.golden", newCodec(t, x.o))
	}
}

func FuzzRow(f *testing.F) { codectest.Fuzz(f, newCodec(f, plainOptions), nil) }

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"topic.prefix":                           {},
		"decimal.handling.mode":                  {Name: "n", Decimal: "exact"},
		"time.precision.mode":                    {Name: "n", Time: "adaptive"},
		"bigint.unsigned.handling.mode":          {Name: "n", BigintUnsigned: "short"},
		"binary.handling.mode":                   {Name: "n", Binary: "latin1"},
		"event.converting.failure.handling.mode": {Name: "n", Failure: "skip"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// column1 returns the JSON of a value in a table of that column alone, beside the key.
func column1(t *testing.T, o Options, col event.Column, raw []byte) (string, error) {
	t.Helper()
	o.Name = "peer"
	tab := codectest.Compile(t, &event.Table{Schema: "s", Name: "t", Columns: []event.Column{col}})
	out, err := newCodec(t, o).AppendRow(nil, codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(raw)}))
	if err != nil {
		return "", err
	}
	_, rest, _ := bytes.Cut(out, []byte(`"after":{"`+col.Name+`":`))
	value, _, _ := bytes.Cut(rest, []byte(`},"source"`))
	return string(value), nil
}

// TestInvalid: values that a field's type has no room for become null, zero in a column that is never NULL, or an
// error that says what to do. Expected values as Debezium published them, but for 2024-02-31, at which it stops.
func TestInvalid(t *testing.T) {
	date := event.Column{Name: "c", Type: codectest.TypeDate}
	datetime := event.Column{Name: "c", Type: codectest.TypeDatetime2, Meta: 6}
	timestamp := event.Column{Name: "c", Type: codectest.TypeTimestamp2}
	clock := event.Column{Name: "c", Type: codectest.TypeTime2}
	packed := func(y, m, d int64) []byte {
		return append(codectest.Be(0x8000000000+((y*13+m)<<22|d<<17), 5), 0, 0, 0)
	}
	for _, x := range []struct {
		col  event.Column
		o    Options
		raw  []byte
		zero string
	}{
		{date, Options{}, codectest.Le(0, 3), "0"},
		{date, Options{}, codectest.Le(2024<<9|2<<5|31, 3), "0"},
		{date, Options{}, codectest.Le(2023<<9|2<<5|29, 3), "0"},
		{date, Options{Time: "connect"}, codectest.Le(2024<<9|2<<5, 3), "0"},
		{datetime, Options{}, packed(0, 0, 0), "0"},
		{datetime, Options{}, packed(2024, 4, 31), "0"},
		{timestamp, Options{}, codectest.Be(0, 4), `"1970-01-01T00:00:00Z"`},
		{clock, Options{Time: "connect"}, codectest.Be(0x800000-1, 3), "0"},
		{clock, Options{Time: "connect"}, codectest.Be(0x800000+(24<<12|1), 3), "0"},
	} {
		for _, nullable := range []bool{true, false} {
			col, o, want := x.col, x.o, x.zero
			if col.Nullable = nullable; nullable {
				want = "null"
			}
			if got, err := column1(t, o, col, x.raw); err != nil || got != want {
				t.Errorf("type %d, %x, nullable %v: %s, %v; want %s", col.Type, x.raw, nullable, got, err, want)
			}
			o.Failure = "fail"
			if got, err := column1(t, o, col, x.raw); err == nil || !strings.Contains(err.Error(), `column "c"`) || !strings.Contains(err.Error(), "event.converting.failure.handling.mode") {
				t.Errorf("type %d, %x: %s, %v; want an error", col.Type, x.raw, got, err)
			}
		}
	}
}

// TestDates: the days of the server's calendar, against Go's.
func TestDates(t *testing.T) {
	n := 0
	for at := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 10000; at = at.AddDate(0, 0, 1) {
		if at.Year() == 401 { // all repeats after 400 years
			at = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		got, ok := daysOf([]byte(at.Format("2006-01-02")))
		if want := at.Unix() / 86400; !ok || got != want {
			t.Fatalf("%s: %d, %v; want %d", at, got, ok, want)
		}
		n++
	}
	if n != 146097+366+365 {
		t.Errorf("%d days", n)
	}
}

// TestUnscaled: numbers of every length, as Java's BigInteger.toByteArray writes them.
func TestUnscaled(t *testing.T) {
	tab := codectest.Compile(t, &event.Table{Schema: "s", Name: "t", Columns: []event.Column{{Name: "c", Type: codectest.TypeDecimal, Meta: 65 << 8}}})
	check := func(n *big.Int) {
		t.Helper()
		r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Decimal(n.String(), 65, 0))})
		got, err := appendUnscaled(nil, &r.After[0])
		if err != nil {
			t.Fatal(err)
		}
		// Two's complement in the fewest bytes that keep the sign.
		size := 1
		for ; ; size++ {
			if m := new(big.Int).Lsh(big.NewInt(1), uint(8*size-1)); n.Cmp(m) < 0 && n.Cmp(new(big.Int).Neg(m)) >= 0 {
				break
			}
		}
		two := n
		if n.Sign() < 0 {
			two = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
		}
		want, _ := json.Marshal(two.FillBytes(make([]byte, size)))
		if string(got) != string(want) {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
	check(big.NewInt(0))
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(65), nil)
	for _, base := range []int64{2, 10} {
		for n := big.NewInt(1); n.Cmp(limit) < 0; n.Mul(n, big.NewInt(base)) {
			for d := int64(-1); d <= 1; d++ {
				m := new(big.Int).Add(n, big.NewInt(d))
				check(m)
				check(m.Neg(m))
			}
		}
	}
	check(new(big.Int).Sub(limit, big.NewInt(1)))
}

// TestEmptyLabel: the labels of a SET have a comma between them, whichever they are.
func TestEmptyLabel(t *testing.T) {
	for labels, texts := range map[string][8]string{
		",x,y": {"", "", "x", ",x", "y", ",y", "x,y", ",x,y"},
		"x,,y": {"", "x", "", "x,", "y", "x,y", ",y", "x,,y"},
		"x,y,": {"", "x", "y", "x,y", "", "x,", "y,", "x,y,"},
	} {
		col := event.Column{Name: "c", Type: codectest.TypeSet, Meta: 1, Members: strings.Split(labels, ",")}
		for mask, want := range texts {
			if got, err := column1(t, Options{}, col, []byte{byte(mask)}); err != nil || got != `"`+want+`"` {
				t.Errorf("%q, mask %d: %s, %v; want %q", labels, mask, got, err, want)
			}
		}
	}
}

func TestGeometry(t *testing.T) {
	pt := event.Column{Name: "c", Type: codectest.TypeGeometry, Meta: 4, SQLType: "point"}
	wgs := append([]byte{0xe6, 0x10, 0, 0}, codectest.Point[4:]...)
	for _, x := range []struct {
		col  event.Column
		raw  []byte
		want string
	}{
		{pt, codectest.Point, `{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null}`},
		{pt, wgs, `{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":4326}`},
		{event.Column{Name: "c", Type: codectest.TypeGeometry, Meta: 4}, wgs, `{"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":4326}`},
		{event.Column{Name: "c", Type: codectest.TypeGeometry, Meta: 4}, nil, `{"wkb":"","srid":null}`},
	} {
		if got, err := column1(t, Options{}, x.col, x.raw); err != nil || got != x.want {
			t.Errorf("%x: %s, %v; want %s", x.raw, got, err, x.want)
		}
	}
	for _, raw := range [][]byte{nil, {1, 2, 3, 4}, codectest.Point[:24], append(slices.Clone(codectest.Point[:9]), bytes.Repeat([]byte{0xff}, 16)...)} {
		if got, err := column1(t, Options{}, pt, raw); err == nil {
			t.Errorf("%x: %s", raw, got)
		}
	}
}

func TestKey(t *testing.T) {
	tab := codectest.Compile(t, &event.Table{Schema: "shop", Name: "t", Key: []int{1, 0}, Columns: []event.Column{
		{Name: "Name", Type: codectest.TypeVarchar, Meta: 80, Charset: "utf8mb4"}, {Name: "ID", Type: codectest.TypeLong}}})
	r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V([]byte("x\"y")), codectest.V(codectest.Le(7, 4))})
	plain, schemas := newCodec(t, plainOptions), newCodec(t, schemaOptions)
	for _, x := range []struct {
		c    *Codec
		key  []int
		want string
	}{
		{plain, []int{1}, `{"ID":7}`},
		{plain, tab.Key, `{"ID":7,"Name":"x\"y"}`},
		{plain, nil, ""},
		{schemas, nil, ""},
		{schemas, tab.Key, `{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"ID"},{"type":"string","optional":false,"field":"Name"}],"optional":false,"name":"peer.shop.t.Key"},"payload":{"ID":7,"Name":"x\"y"}}`},
	} {
		got, err := x.c.AppendKey(nil, r, x.key)
		if err != nil || string(got) != x.want {
			t.Errorf("key %v: %s, %v; want %s", x.key, got, err, x.want)
		}
	}
}

// TestConnector: which of Debezium's connectors a row comes from shows in its transaction alone.
func TestConnector(t *testing.T) {
	for _, x := range []struct {
		txn  *event.Txn
		want string
	}{
		{nil, "mysql"},
		{codectest.Txn, "mysql"},
		{&event.Txn{ServerUUID: codectest.Txn.ServerUUID}, "mysql"},
		{&event.Txn{GTID: event.GTID{Server: 1, Seq: 7}, ServerUUID: "1"}, "mariadb"},
		{&event.Txn{ServerUUID: "1"}, "mariadb"},
	} {
		tab := codectest.Shop(t)
		e := codectest.Event(tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.Null, codectest.Null, codectest.Null})
		e.Txn = x.txn
		out, err := newCodec(t, schemaOptions).AppendRow(nil, codectest.Scan(t, e))
		if err != nil || !json.Valid(out) {
			t.Fatalf("%s, %v", out, err)
		}
		if !bytes.Contains(out, []byte(`"name":"io.debezium.connector.`+x.want+`.Source"`)) || !bytes.Contains(out, []byte(`"connector":"`+x.want+`"`)) {
			t.Errorf("%+v: %s, want %s", x.txn, out, x.want)
		}
	}
}

func TestDDL(t *testing.T) {
	c, schemas := newCodec(t, plainOptions), newCodec(t, schemaOptions)
	for _, x := range []struct{ sql, db, table, changes string }{
		{"CREATE TABLE nums (id INT)", "shop", `"nums"`, `{"type":"CREATE","id":"\"shop\".\"nums\"","table":null}`},
		{"ALTER TABLE x.pairs ADD w INT", "x", `"pairs"`, `{"type":"ALTER","id":"\"x\".\"pairs\"","table":null}`},
		{"RENAME TABLE docs TO docs2", "shop", `"docs2"`, `{"type":"ALTER","id":"\"shop\".\"docs2\"","table":null}`},
		{"RENAME TABLE a TO b, c TO a", "shop", `"b"`, `{"type":"ALTER","id":"\"shop\".\"b\"","table":null},{"type":"ALTER","id":"\"shop\".\"a\"","table":null}`},
		{"DROP TABLE a, x.b", "shop", `"a"`, `{"type":"DROP","id":"\"shop\".\"a\"","table":null},{"type":"DROP","id":"\"x\".\"b\"","table":null}`},
		{"DROP TABLE `no\"key`", "shop", `"no\"key"`, `{"type":"DROP","id":"\"shop\".\"no\"\"key\"","table":null}`},
		{"TRUNCATE TABLE nokey", "shop", `"nokey"`, ""},
		{"CREATE DATABASE y", "y", `null`, ""},
		{"CREATE VIEW v AS SELECT 1", "shop", `null`, ""},
	} {
		e := codectest.DDL("shop", x.sql)
		out, err := c.AppendDDL(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		sql, _ := json.Marshal(x.sql)
		want := `{"source":{"version":"` + Version + `","connector":"mysql","name":"peer","ts_ms":1700000000123,"snapshot":"false","db":"` + x.db + `","sequence":null,"ts_us":1700000000123456,"ts_ns":1700000000123456000,"table":` + x.table +
			`,"server_id":0,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","file":"binlog.000007","pos":4551,"row":0,"thread":44,"query":null},"ts_ms":1700000000123,"databaseName":"` + x.db + `","schemaName":null,"ddl":` + string(sql) + `,"tableChanges":[` + x.changes + `]}`
		if string(out) != want {
			t.Errorf("%s\n got %s\nwant %s", x.sql, out, want)
		}
		if key := c.AppendDDLKey([]byte("p"), e); string(key) != `p{"databaseName":"`+x.db+`"}` {
			t.Errorf("%s: key %s", x.sql, key)
		}
		full, err := schemas.AppendDDL(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range [][]byte{full, schemas.AppendDDLKey(nil, e)} {
			if _, err := payload(m); err != nil {
				t.Errorf("%s: %v", m, err)
			}
		}
		if inner, _ := payload(full); string(inner) != want {
			t.Errorf("payload %s\nwant %s", inner, want)
		}
	}
}

// TestTruncate: a TRUNCATE among the rows of its table, as Debezium publishes it with skipped.operations: none.
func TestTruncate(t *testing.T) {
	o := plainOptions
	if newCodec(t, o).Truncates() {
		t.Error("Debezium's default skips TRUNCATE")
	}
	o.Skipped = "none"
	c := newCodec(t, o)
	if !c.Truncates() {
		t.Error("skipped.operations: none skips TRUNCATE")
	}
	e := codectest.DDL("shop", "TRUNCATE x.nokey")
	e.ServerID = 1
	out := string(c.AppendTruncate([]byte("p"), e, "x", "nokey"))
	want := `{"before":null,"after":null,"source":{"version":"` + Version + `","connector":"mysql","name":"peer","ts_ms":1700000000123,"snapshot":"false","db":"x","sequence":null,"ts_us":1700000000123456,"ts_ns":1700000000123456000,"table":"nokey",` +
		`"server_id":1,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","file":"binlog.000007","pos":4551,"row":0,"thread":44,"query":null},"transaction":null,"op":"t","ts_ms":1700000000123,"ts_us":1700000000123456,"ts_ns":1700000000123456000}`
	if out != "p"+want {
		t.Errorf("got  %s\nwant p%s", out, want)
	}
	inner, err := payload(newCodec(t, schemaOptions).AppendTruncate(nil, e, "x", "nokey"))
	if err != nil || string(inner) != want {
		t.Errorf("with a schema %s, %v", inner, err)
	}
}
