package canalpb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func newCodec(t testing.TB, o Options) *Codec {
	t.Helper()
	keys, err := canaljson.New(canaljson.Options{Enum: o.Enum, Location: o.Location})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(o, keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// entry takes a packet of codectest's rows apart, down to the header and the content of its only entry, whose GTID it must have.
func entry(value []byte, gtid string) (header, store codectest.Fields, err error) {
	if header, store, err = codectest.ReadCanalEntry(value); err != nil {
		return nil, nil, err
	}
	messages, err := codectest.ParsePath(value, 5)
	if err != nil {
		return nil, nil, err
	}
	if id := messages.Text(1); id != "812" && id != "813" {
		return nil, nil, fmt.Errorf("batch id %s", id)
	}
	for number, want := range map[protowire.Number]string{2: "binlog.000007", 6: "1700000000000", 7: "2",
		13: gtid} {
		if got := header.Text(number); got != want {
			return nil, nil, fmt.Errorf("header field %d is %q, want %q", number, got, want)
		}
	}
	return header, store, nil
}

func read(value []byte) (codectest.Message, error) {
	if _, _, err := entry(value, "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"); err != nil {
		return codectest.Message{}, err
	}
	return codectest.ReadCanalProtobuf(value)
}

// readSnapshot reads a snapshot's row: it has a place in the log and the chunk's name, and no GTID.
func readSnapshot(value []byte) (codectest.Message, error) {
	header, _, err := entry(value, "")
	if err != nil {
		return codectest.Message{}, err
	}
	props, err := properties(header)
	if err != nil || header.Text(3) != "4000" || header.Text(4) != "1" || header.Text(10) != "" || !maps.Equal(props, map[string]string{"rowsCount": "1", "snapshot": "evening/4"}) {
		return codectest.Message{}, fmt.Errorf("header %v, properties %v (%v)", header, props, err)
	}
	return codectest.ReadCanalProtobuf(value)
}

// properties returns those of an entry's header.
func properties(header codectest.Fields) (map[string]string, error) {
	props := map[string]string{}
	for _, b := range header[12] {
		pair, err := codectest.ParseFields(b)
		if err != nil {
			return nil, err
		}
		props[pair.Text(1)] = pair.Text(2)
	}
	return props, nil
}

func TestConformance(t *testing.T) {
	for _, o := range []Options{{}, {Enum: "label"}} {
		t.Run(o.Enum, func(t *testing.T) {
			codectest.Run(t, codectest.Format{
				New:          func() codec.Codec { return newCodec(t, o) },
				Read:         read,
				ReadSnapshot: readSnapshot,
				Text:         codectest.CanalText(false, o.Enum == "label"),
				Binary:       true,
				TableKey:     true,
			})
		})
	}
}

// TestStatements: a statement's entry is of Canal's type and names its first table; the property tables lists all of them.
func TestStatements(t *testing.T) {
	c := newCodec(t, Options{})
	for _, x := range []struct {
		sql, schema, table string
		kind               canalwire.EventType
	}{
		{"CREATE TABLE a (id INT)", "shop", "a", canalwire.Create},
		{"ALTER TABLE x.a ADD c INT, ADD INDEX (c)", "x", "a", canalwire.Alter},
		{"ALTER TABLE a ADD INDEX (c), ADD c INT", "shop", "a", canalwire.CIndex},
		{"ALTER TABLE a RENAME x.b", "x", "b", canalwire.Rename},
		{"DROP TABLE a, x.b", "shop", "a", canalwire.Erase},
		{"RENAME TABLE a TO t, x.b TO a", "shop", "t", canalwire.Rename},
		{"TRUNCATE a", "shop", "a", canalwire.Truncate},
		{"DROP INDEX i ON a", "shop", "a", canalwire.DIndex},
		{"DROP DATABASE x", "x", "", canalwire.Query},
		{"CREATE VIEW x.v AS SELECT 1", "x", "", canalwire.Query},
		{"what nobody has ever called it", "shop", "", canalwire.Query},
	} {
		e := codectest.DDL("shop", x.sql)
		entry, err := c.AppendEntry(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		message, err := c.AppendDDL(nil, e)
		if err != nil || !bytes.HasSuffix(message, entry) {
			t.Errorf("%s: the message %x does not hold the entry %x (%v)", x.sql, message, entry, err)
		}
		header, err := codectest.ParsePath(entry, 1)
		if err != nil {
			t.Fatal(err)
		}
		change, err := codectest.ParsePath(entry, 3)
		if err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprint(int(x.kind))
		if header.Text(8) != x.schema || header.Text(9) != x.table || header.Text(11) != kind {
			t.Errorf("%s: header %q %q %s", x.sql, header.Text(8), header.Text(9), header.Text(11))
		}
		if change.Text(2) != kind || change.Text(10) != "1" || change.Text(11) != x.sql || change.Text(14) != "shop" || len(change[12]) != 0 {
			t.Errorf("%s: change %v", x.sql, change)
		}
		props := map[string]string{}
		for _, p := range header[12] {
			pair, err := codectest.ParseFields(p)
			if err != nil {
				t.Fatal(err)
			}
			props[pair.Text(1)] = pair.Text(2)
		}
		if want := string(codec.AppendTables(nil, e.Stmt)); props["tables"] != want || len(props) != 2 {
			t.Errorf("%s: properties %v, want tables %s", x.sql, props, want)
		}
	}
}

// TestEntries: an event's entry holds all its row changes but those that are skipped.
func TestEntries(t *testing.T) {
	c := newCodec(t, Options{})
	tab := codectest.Shop(t)
	cells := func(id int64) []codectest.Cell {
		return []codectest.Cell{codectest.V(codectest.Le(id, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(1, 4)), codectest.Null}
	}
	e := codectest.Event(tab, nil, cells(1))
	for i := int64(2); i <= 300; i++ {
		e.Raw = append(e.Raw, codectest.Event(tab, nil, cells(i)).Raw...)
		e.Rows++
	}
	for _, skip := range []uint32{0, 1, 299} {
		e.Skip = skip
		out, err := c.AppendEntry([]byte("x"), e)
		if err != nil {
			t.Fatal(err)
		}
		m, err := codectest.ParsePath(out[1:], 3)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(m[12]); got != int(e.Rows-skip) {
			t.Errorf("%d rows without %d give %d", e.Rows, skip, got)
		}
		header, err := codectest.ParsePath(out[1:], 1)
		if err != nil {
			t.Fatal(err)
		}
		if pair, err := codectest.ParseFields(header[12][0]); err != nil || pair.Text(1) != "rowsCount" || pair.Text(2) != fmt.Sprint(e.Rows-skip) {
			t.Errorf("property %v (%v)", pair, err)
		}
	}
	e.Raw = e.Raw[:len(e.Raw)-1]
	if out, err := c.AppendEntry(nil, e); err == nil || out != nil {
		t.Errorf("I3: a damaged row gave %d bytes, %v", len(out), err)
	}
	if out, err := c.AppendEntry(nil, &event.Event{Kind: 99}); err == nil || out != nil {
		t.Errorf("an unknown kind gave %d bytes, %v", len(out), err)
	}

	begin, err := c.AppendEntry(nil, &event.Event{Kind: event.Begin, Txn: codectest.Txn, File: "f", Start: 4})
	if err != nil {
		t.Fatal(err)
	}
	m, err := codectest.ParsePath(begin, 3)
	if err != nil || m.Text(4) != "44" {
		t.Errorf("the transaction begins with %v (%v), want thread 44", m, err)
	}
	end, err := c.AppendEntry(nil, &event.Event{Kind: event.End, Txn: codectest.Txn, XID: 977, File: "f", Start: 5 << 32, Next: 5<<32 + 31})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = codectest.ParsePath(end, 3); err != nil || m.Text(2) != "977" {
		t.Errorf("the transaction ends with %v (%v), want XID 977", m, err)
	}
	if m, err = codectest.ParsePath(end, 1); err != nil || m.Text(3) != fmt.Sprint(5<<32) || m.Text(10) != "31" {
		t.Errorf("the end's header is %v (%v)", m, err)
	}
}

// TestSnapshotEntries: over Canal's TCP protocol a chunk is a transaction that is named, with the rows of each event in one entry.
func TestSnapshotEntries(t *testing.T) {
	c := newCodec(t, Options{})
	tab := codectest.Shop(t)
	e := codectest.SnapshotEvent(tab, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.Null, codectest.Null, codectest.Null})
	e.Raw, e.Rows = append(e.Raw, e.Raw...), 2
	border := func(kind event.Kind) *event.Event {
		return &event.Event{Kind: kind, Txn: codectest.Snapshot, ServerID: 1, Time: codectest.Snapshot.Time, File: codectest.Snapshot.File, Start: codectest.Snapshot.Start, Next: codectest.Snapshot.Start}
	}
	for _, x := range []struct {
		e           *event.Event
		kind, event string
		props       map[string]string
		id          string
	}{
		{border(event.Begin), "1", "", map[string]string{"snapshot": "evening/4"}, ""},
		{e, "2", "1", map[string]string{"snapshot": "evening/4", "rowsCount": "2"}, "1"}, // field 2 of rows is the type of event
		{border(event.End), "3", "", map[string]string{"snapshot": "evening/4"}, "evening/4"},
	} {
		out, err := c.AppendEntry(nil, x.e)
		if err != nil {
			t.Fatal(err)
		}
		if size := c.EntrySize(x.e); size < len(out)*3/4 || size > 2*len(out)+100 {
			t.Errorf("%s: %d bytes are %d", x.e.Kind, size, len(out))
		}
		entry, err := codectest.ParseFields(out)
		if err != nil {
			t.Fatal(err)
		}
		header, err := codectest.ParseFields(entry[1][0])
		if err != nil {
			t.Fatal(err)
		}
		props, err := properties(header)
		if err != nil || !maps.Equal(props, x.props) || header.Text(13) != "" || header.Text(2) != "binlog.000007" || header.Text(3) != "4000" || header.Text(11) != x.event {
			t.Errorf("%s: header %v, properties %v (%v)", x.e.Kind, header, props, err)
		}
		store, err := codectest.ParseFields(entry[3][0])
		if err != nil || entry.Text(2) != x.kind || store.Text(2) != x.id {
			t.Errorf("%s: %v, %v (%v)", x.e.Kind, entry, store, err)
		}
	}
}

// TestEntrySize: an entry's size is known beforehand, about, whatever its rows are like.
func TestEntrySize(t *testing.T) {
	c := newCodec(t, Options{})
	narrow := &event.Table{Schema: "shop", Name: "flags"}
	blob := &event.Table{Schema: "shop", Name: "files", Columns: []event.Column{{Name: "b", Type: 252, Meta: 4, Collation: 63, Charset: "binary", SQLType: "longblob"}}}
	var flags []codectest.Cell
	for i := range 200 {
		narrow.Columns = append(narrow.Columns, event.Column{Name: fmt.Sprintf("is_something_%d", i), Type: event.TypeTiny, SQLType: "tinyint(1)"})
		flags = append(flags, codectest.V(codectest.Le(1, 1)))
	}
	random := make([]byte, 10_000)
	for i := range random {
		random[i] = byte(i * 7)
	}
	rows := func(e *event.Event, n uint32) *event.Event {
		raw := e.Raw
		for ; e.Rows < n; e.Rows++ {
			e.Raw = append(e.Raw, raw...)
		}
		return e
	}
	lone := &event.Table{Schema: "shop", Name: "ids", Columns: []event.Column{{Name: "identification_of_the_customer", Type: event.TypeLong, SQLType: "int"}}}
	codectest.Compile(t, narrow)
	codectest.Compile(t, blob)
	codectest.Compile(t, lone)
	part := rows(codectest.Event(narrow, flags, flags), 10)
	part.Skip = 7
	shop := []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(1, 4)), codectest.Null}
	for name, e := range map[string]*event.Event{
		"many columns":   rows(codectest.Event(narrow, nil, flags), 30),
		"one column":     rows(codectest.Event(lone, []codectest.Cell{codectest.V(codectest.Le(7, 4))}, []codectest.Cell{codectest.V(codectest.Le(8, 4))}), 100),
		"two images":     rows(codectest.Event(narrow, flags, flags), 30),
		"most rows done": part,
		"few columns":    rows(codectest.Event(codectest.Shop(t), nil, shop), 500),
		"one row":        codectest.Event(codectest.Shop(t), shop, nil),
		"bytes":          codectest.Event(blob, nil, []codectest.Cell{codectest.V(random)}),
		"usual columns":  codectest.Bench(t),
		"a statement":    codectest.DDL("shop", "ALTER TABLE a ADD c INT COMMENT '"+strings.Repeat("x", 1000)+"'"),
		"a begin":        {Kind: event.Begin, Txn: codectest.Txn, File: "binlog.000001"},
		"an end":         {Kind: event.End, Txn: codectest.Txn, File: "binlog.000001", XID: 977},
	} {
		out, err := c.AppendEntry(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		if size := c.EntrySize(e); size < len(out)*3/4 || size > 2*len(out)+100 {
			t.Errorf("%s: %d bytes are %d", name, size, len(out))
		}
	}
}

// TestLengths: contents that are longer than their length was thought to need are told right.
func TestLengths(t *testing.T) {
	for _, n := range []int{0, 1, 100, 127, 128, 129, 16383, 16384, 16385, 3 << 20} {
		for size := 1; size <= 5; size++ {
			body := bytes.Repeat([]byte("x"), n)
			dst, from := canalwire.OpenLength([]byte("pre"), size)
			dst = closeLength(append(dst, body...), from, size)
			got, m := protowire.ConsumeBytes(dst[3:])
			if m != len(dst)-3 || !bytes.Equal(got, body) {
				t.Errorf("%d bytes behind a length of %d: read %d of %d", n, size, len(got), m)
			}
		}
	}
}

// TestGrown: a text that grows more than expected is written whole.
func TestGrown(t *testing.T) {
	c := newCodec(t, Options{})
	for _, n := range []int{10, 1000, 5000, 100000} {
		raw := bytes.Repeat([]byte{0xff}, n)
		tab := codectest.Compile(t, &event.Table{Schema: "s", Name: "t", Columns: []event.Column{{Name: "b", Type: 252, Meta: 4, Collation: 63, Charset: "binary"}}})
		r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(raw)})
		out, err := c.AppendRow(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := read(out)
		if err != nil {
			t.Fatal(err)
		}
		var s string
		if err := json.Unmarshal(m.Data["b"], &s); err != nil || s != strings.Repeat("ÿ", n) {
			t.Errorf("%d bytes read back as %d (%v)", n, len(s), err)
		}
	}
}

func FuzzRow(f *testing.F) {
	codectest.Fuzz(f, newCodec(f, Options{}), func(t *testing.T, out []byte) {
		if _, err := read(out); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkRow scans and encodes the 12-column table, insert events of 32 rows.
func BenchmarkRow(b *testing.B) {
	codectest.Benchmark(b, codectest.Bench(b), newCodec(b, Options{}).AppendRow)
}

// BenchmarkEntry encodes the same events, each as one entry.
func BenchmarkEntry(b *testing.B) {
	c, e := newCodec(b, Options{}), codectest.Bench(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = c.AppendEntry(buf[:0], e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(e.Rows), "ns/row")
}
