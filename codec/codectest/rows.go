package codectest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// A Cell is one column of a row image: the value's bytes without their length prefix.
type Cell struct {
	Raw    []byte
	Null   bool
	Absent bool
}

// V, Null and Absent make cells.
func V(raw []byte) Cell { return Cell{Raw: raw} }

// Null is a column that is NULL, Absent one that the image does not hold.
var (
	Null   = Cell{Null: true}
	Absent = Cell{Absent: true}
)

// prefixSize is the size of the length in front of a column's value, 0 for fixed-size ones.
func prefixSize(c *event.Column) int {
	switch c.Type {
	case TypeString, TypeVarchar, TypePackedChar:
		if c.Meta > 255 {
			return 2
		}
		return 1
	case TypeBlob, TypePackedBlob, TypeGeometry, TypeJSON, TypeVector:
		return int(c.Meta)
	}
	return 0
}

// appendImage appends the row image of the cells; it returns the bitmap of the columns in it.
func appendImage(dst []byte, t *event.Table, cells []Cell) (image, bitmap []byte) {
	bitmap = make([]byte, (len(t.Columns)+7)/8)
	var nulls []byte
	var body []byte
	n := 0
	for i, c := range cells {
		if c.Absent {
			continue
		}
		bitmap[i/8] |= 1 << (i % 8)
		if n%8 == 0 {
			nulls = append(nulls, 0)
		}
		if c.Null {
			nulls[n/8] |= 1 << (n % 8)
		} else {
			var length [8]byte
			binary.LittleEndian.PutUint64(length[:], uint64(len(c.Raw)))
			body = append(body, length[:prefixSize(&t.Columns[i])]...)
			body = append(body, c.Raw...)
		}
		n++
	}
	if rest := len(t.Columns) % 8; rest > 0 {
		bitmap[len(bitmap)-1] |= 0xff << rest // as servers do
	}
	return append(append(dst, nulls...), body...), bitmap
}

// Txn is the transaction in which the rows made here stand.
var Txn = &event.Txn{
	GTID: event.GTID{SID: [16]byte{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}, Seq: 23},
	File: "binlog.000007", Start: 4000, ServerUUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562",
	ServerID: 1, ThreadID: 44, Time: 1700000000123456,
}

// Event returns a rows event of one row change. before is nil for an insert, after for a delete.
// Its ordinal is 812, its index in the transaction 2, and it is not the last.
func Event(t *event.Table, before, after []Cell) *event.Event {
	e := &event.Event{
		Kind: event.Rows, Op: event.Update, ServerID: 1, Rows: 1, Ordinal: 812, Index: 2,
		Time: 1700000000000000, File: "binlog.000007", Start: 4551, Next: 4700, Txn: Txn, Table: t,
	}
	if before != nil {
		e.Raw, e.Images.Before = appendImage(e.Raw, t, before)
	} else {
		e.Op = event.Insert
	}
	if after != nil {
		e.Raw, e.Images.After = appendImage(e.Raw, t, after)
	} else {
		e.Op = event.Delete
	}
	return e
}

// Scan returns the first row of e.
func Scan(t testing.TB, e *event.Event) *event.Row {
	t.Helper()
	var s event.Scanner
	s.Reset(e)
	if !s.Next() {
		t.Fatalf("%s.%s: no row: %v", e.Table.Schema, e.Table.Name, s.Err())
	}
	return s.Row()
}

// Row is Scan of [Event].
func Row(t testing.TB, tab *event.Table, before, after []Cell) *event.Row {
	t.Helper()
	return Scan(t, Event(tab, before, after))
}

// Compile compiles the table and returns it.
func Compile(t testing.TB, tab *event.Table) *event.Table {
	t.Helper()
	if err := tab.Compile(); err != nil {
		t.Fatal(err)
	}
	return tab
}

// Shop is a small table for readable tests: id INT primary key, name
// VARCHAR(20), qty INT UNSIGNED, note TEXT.
func Shop(t testing.TB) *event.Table {
	return Compile(t, &event.Table{
		Schema: "shop", Name: "item", Key: []int{0},
		Columns: []event.Column{
			{Name: "id", Type: TypeLong},
			{Name: "name", Type: TypeVarchar, Meta: 80, Charset: "utf8mb4", Nullable: true},
			{Name: "qty", Type: TypeLong, Unsigned: true, Nullable: true},
			{Name: "note", Type: TypeBlob, Meta: 2, Charset: "utf8mb4", Nullable: true},
		},
	})
}

// Le returns the lowest size bytes of n, least significant first.
func Le(n int64, size int) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	return b[:size:size]
}

// Be returns the lowest size bytes of n, most significant first.
func Be(n int64, size int) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	return b[8-size:]
}

// BenchRows is the number of rows in [Bench].
const BenchRows = 32

// Bench returns an insert event of the 12-column table on which rates are
// measured: about 249 bytes a row, 32 rows an event, as a server packs them.
func Bench(t testing.TB) *event.Event {
	varchar := func(name string, n uint16) event.Column {
		return event.Column{Name: name, Type: TypeVarchar, Meta: 4 * n, Charset: "utf8mb4", Nullable: true}
	}
	tab := Compile(t, &event.Table{
		Schema: "bench", Name: "orders", Key: []int{0},
		Columns: []event.Column{
			{Name: "id", Type: TypeLongLong, Unsigned: true},
			{Name: "customer_id", Type: TypeLong, Unsigned: true},
			{Name: "status", Type: TypeTiny},
			varchar("email", 100), varchar("street", 100), varchar("city", 50),
			{Name: "price", Type: TypeDecimal, Meta: 12<<8 | 2},
			{Name: "weight", Type: TypeDecimal, Meta: 20<<8 | 6},
			{Name: "ordered", Type: TypeDatetime2, Meta: 3},
			{Name: "updated", Type: TypeTimestamp2},
			{Name: "attrs", Type: TypeJSON, Meta: 4},
			{Name: "comment", Type: TypeBlob, Meta: 2, Charset: "utf8mb4", Nullable: true},
		},
	})
	e := &event.Event{
		Kind: event.Rows, Op: event.Insert, ServerID: 1, Rows: BenchRows, Ordinal: 1_000_000, Last: true,
		Time: 1700000000000000, File: "binlog.000007", Start: 4551, Next: 12600, Txn: Txn, Table: tab,
	}
	for i := range int64(BenchRows) {
		e.Raw, e.Images.After = appendImage(e.Raw, tab, []Cell{
			V(Le(9_000_000_000+i, 8)), V(Le(70_000+i*13, 4)), V(Le(i%5, 1)),
			V(fmt.Appendf(nil, "customer.%d@example.com", 70_000+i*13)),
			V(fmt.Appendf(nil, "%d Long Meadow Street, Apt %d", 100+i, i)), V([]byte("Springfield")),
			V([]byte{0x80, 0, byte(i), 0x10, 0x20, 49}), // DECIMAL(12,2): 1+4 bytes before the point, 1 after
			V([]byte{0x80, 0, 0, 0, byte(1 + i), 0x03, 0x0d, 0x04, 0x0c, 0x20}),
			V(append(Be(0x8000000000+((2024*13+5)<<22|17<<17|11<<12|(i%60)<<6|33), 5), 0x1e, 0xdc)),
			V(Be(1_716_000_000+i, 4)),
			V(benchJSON(i)),
			V([]byte("Please leave the parcel with the neighbour if nobody opens the door, thank you.")),
		})
	}
	return e
}

// benchJSON is {"color": "midnight blue", "gift": true, "size": n} in MySQL's binary form.
func benchJSON(n int64) []byte {
	keys := []string{"gift", "size", "color"} // by length, then by bytes
	text := "midnight blue"
	head := 4 + 3*4 + 3*3
	b := []byte{0x00}
	b = append(b, 3, 0, 0, 0)
	at := head
	for _, k := range keys {
		b = append(b, Le(int64(at), 2)...)
		b = append(b, Le(int64(len(k)), 2)...)
		at += len(k)
	}
	b = append(append(b, 0x04), 1, 0)
	b = append(append(b, 0x05), Le(n, 2)...)
	b = append(append(b, 0x0c), Le(int64(at), 2)...)
	for _, k := range keys {
		b = append(b, k...)
	}
	b = append(append(b, byte(len(text))), text...)
	copy(b[3:], Le(int64(len(b)-1), 2))
	return b
}

// Type codes of the TABLE_MAP.
const (
	TypeTiny       = 1
	TypeShort      = 2
	TypeLong       = 3
	TypeFloat      = 4
	TypeDouble     = 5
	TypeLongLong   = 8
	TypeInt24      = 9
	TypeDate       = 10
	TypeYear       = 13
	TypeVarchar    = 15
	TypeBit        = 16
	TypeTimestamp2 = 17
	TypeDatetime2  = 18
	TypeTime2      = 19
	TypePackedBlob = 140
	TypePackedChar = 141
	TypeVector     = 242
	TypeJSON       = 245
	TypeDecimal    = 246
	TypeEnum       = 247
	TypeSet        = 248
	TypeBlob       = 252
	TypeString     = 254
	TypeGeometry   = 255
)
