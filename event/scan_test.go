package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// compiled returns a compiled table shop.t of the columns.
func compiled(t testing.TB, columns ...Column) *Table {
	t.Helper()
	table := &Table{Schema: "shop", Name: "t", Columns: columns}
	for i := range table.Columns {
		if table.Columns[i].Name == "" {
			table.Columns[i].Name = fmt.Sprintf("c%d", i+1)
		}
	}
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	return table
}

// ones is the bitmap of n columns that are all present.
func ones(n int) []byte {
	b := bytes.Repeat([]byte{0xff}, (n+7)/8)
	if n%8 != 0 {
		b[len(b)-1] = 1<<(n%8) - 1
	}
	return b
}

// orderTable is the table of the benchmarks; orderRow an image of 249 bytes.
func orderTable(t testing.TB) *Table {
	text := func(name string, bytes uint16) Column {
		return Column{Name: name, Type: TypeVarchar, Meta: bytes, Charset: "utf8mb4"}
	}
	return compiled(t,
		Column{Name: "id", Type: TypeLongLong, Unsigned: true},
		Column{Name: "customer", Type: TypeLong, Unsigned: true},
		Column{Name: "state", Type: TypeTiny},
		text("email", 800), text("city", 160), text("street", 400),
		Column{Name: "total", Type: TypeNewDecimal, Meta: 12<<8 | 2},
		Column{Name: "tax", Type: TypeNewDecimal, Meta: 10<<8 | 4},
		Column{Name: "created", Type: TypeDatetime2, Meta: 3},
		Column{Name: "changed", Type: TypeTimestamp2},
		Column{Name: "doc", Type: TypeJSON, Meta: 4},
		Column{Name: "note", Type: TypeBlob, Meta: 2, Charset: "utf8mb4"},
	)
}

func orderRow(i uint64) []byte {
	b := []byte{0, 0xf0} // servers set the bits beyond the last column
	b = binary.LittleEndian.AppendUint64(b, 1_000_000+i)
	b = binary.LittleEndian.AppendUint32(b, uint32(i*7919))
	b = append(b, byte(i))
	str := func(size int, s string) {
		var l [4]byte
		binary.LittleEndian.PutUint32(l[:], uint32(len(s)))
		b = append(append(b, l[:size]...), s...)
	}
	str(2, fmt.Sprintf("customer%06d@example.com", i%1000000))
	str(1, "Frankfurt am Main")
	str(2, "Mainzer Landstrasse 123, 4th floor")
	b = append(b, 0x80, 0, 0, 0x30, 0x39, 67)                            // 12345.67
	b = append(b, 0x80, 0, 0x7b, 0x10, 0xe1)                             // 123.4321
	b = append(b, 0x99, 0xb4, 0xcc, 0x53, 0x08, 0x1e, 0xa0)              // 2024-11-06 05:12:08.784
	b = append(b, 0x67, 0x2b, 0x10, 0x40)                                // 2024-11-06 06:44:16
	doc := []byte{jsonSmallObject, 3, 0, 0, 0, 25, 0, 1, 0, 26, 0, 3, 0, // keys a, qty, tag
		29, 0, 3, 0, jsonInt16, 5, 0, jsonString, 32, 0, jsonString, 40, 0}
	doc = append(doc, "aqtytag\x07express\x04gift"...)
	binary.LittleEndian.PutUint16(doc[3:], uint16(len(doc)-1))
	str(4, string(doc))
	str(2, strings.Repeat("leave it at the door ", 4))
	return b
}

func orderEvent(t testing.TB, rows int) *Event {
	table := orderTable(t)
	e := &Event{Kind: Rows, Op: Insert, Table: table, Rows: uint32(rows), Images: Images{After: ones(len(table.Columns))}, Ordinal: 100, Index: 7, Last: true}
	for i := range rows {
		e.Raw = append(e.Raw, orderRow(uint64(i))...)
	}
	return e
}

func rowText(t testing.TB, values []Value) string {
	t.Helper()
	var out []string
	for _, v := range values {
		switch {
		case v.IsAbsent():
			out = append(out, "-")
		case v.IsNull():
			out = append(out, "NULL")
		default:
			b, err := v.AppendText(nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
	}
	return strings.Join(out, "|")
}

func TestScannerWalksRows(t *testing.T) {
	e := orderEvent(t, 3)
	n, err := CountRows(e.Table, e.Op, e.Images, e.Raw)
	if err != nil || n != 3 {
		t.Fatalf("CountRows: %d, %v", n, err)
	}
	var s Scanner
	for skip := range uint32(4) {
		e.Skip = skip
		s.Reset(e)
		for i := skip; i < 3; i++ {
			if !s.Next() {
				t.Fatalf("skip %d: row %d: %v", skip, i, s.Err())
			}
			r := s.Row()
			want := fmt.Sprintf("%d|%d|%d|customer%06d@example.com|Frankfurt am Main|Mainzer Landstrasse 123, 4th floor|12345.67|123.4321|"+
				"2024-11-06 05:12:08.784|2024-11-06 06:44:16|"+`{"a": 5, "qty": "express", "tag": "gift"}`+"|%s", 1000000+i, i*7919, i, i, strings.Repeat("leave it at the door ", 4))
			if got := rowText(t, r.After); got != want {
				t.Errorf("skip %d:\n got %s\nwant %s", skip, got, want)
			}
			// I5: the numbers do not depend on where reading starts.
			if r.Before != nil || r.Op != Insert || r.Table != e.Table || r.Event != e || r.Ordinal != 100+int64(i) || r.Index != 7+int64(i) || r.Last != (i == 2) {
				t.Errorf("skip %d: row %d: %+v", skip, i, r)
			}
		}
		if s.Next() || s.Err() != nil {
			t.Errorf("skip %d: more rows, or %v", skip, s.Err())
		}
	}
}

func TestScannerTellsAbsentFromNull(t *testing.T) {
	table := compiled(t, Column{Type: TypeTiny}, Column{Type: TypeTiny}, Column{Type: TypeVarchar, Meta: 10, Charset: "latin1"})
	e := &Event{Kind: Rows, Op: Update, Table: table, Rows: 2,
		// MINIMAL images; the bits beyond the columns mean nothing.
		Images: Images{Before: []byte{0b11111101}, After: []byte{0b11111110}},
		Raw: []byte{
			0b00, 7, 2, 'a', 0xe9, // before: 7, -, aé
			0b01, 1, 'z', // after: -, NULL, z
			0b10, 8, // before: 8, -, NULL
			0b00, 9, 0, // after: -, 9, ''
		}}
	var s Scanner
	s.Reset(e)
	var got []string
	for s.Next() {
		got = append(got, rowText(t, s.Row().Before)+" > "+rowText(t, s.Row().After))
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	want := []string{"7|-|aé > -|NULL|z", "8|-|NULL > -|9|"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n, err := CountRows(table, Update, e.Images, e.Raw); n != 2 || err != nil {
		t.Errorf("CountRows: %d, %v", n, err)
	}
	// The same Scanner, the same table, other images: nothing of the last row is left.
	s.Reset(&Event{Kind: Rows, Op: Delete, Table: table, Rows: 1, Images: Images{Before: []byte{7}}, Raw: []byte{0, 1, 2, 1, 'x'}})
	if !s.Next() || rowText(t, s.Row().Before) != "1|2|x" || s.Row().After != nil || &s.Row().Values()[0] != &s.Row().Before[0] {
		t.Errorf("delete: %+v, %v", s.Row(), s.Err())
	}
}

// TestI3VirtualColumns proves that what MariaDB does not say of a VIRTUAL column is absent, not what it was before, and not NULL.
func TestI3VirtualColumns(t *testing.T) {
	for _, c := range []struct {
		virtual Virtual
		op      Op
		images  Images
		raw     []byte
		want    string
	}{
		// The after image lacks it: plain columns did not change, of the virtual one nobody knows.
		{VirtualNone, Update, Images{Before: []byte{3}, After: []byte{1}}, []byte{0, 1, 2, 0, 3}, "1|2 > 3|-"},
		{VirtualLogged, Update, Images{Before: []byte{3}, After: []byte{1}}, []byte{0, 1, 2, 0, 3, 0, 4, 5, 0, 6}, "1|- > 3|- 4|- > 6|-"},
		{VirtualLogged, Update, Images{Before: []byte{3}, After: []byte{3}}, []byte{0, 1, 2, 2, 3}, "1|2 > 3|NULL"},
		{VirtualLogged, Delete, Images{Before: []byte{3}}, []byte{0, 1, 2}, "1|2"},
		{VirtualNull, Insert, Images{After: []byte{3}}, []byte{2, 1, 0, 2, 3}, "1|- 2|3"},
		{VirtualNull, Update, Images{Before: []byte{3}, After: []byte{3}}, []byte{0, 1, 2, 2, 3}, "1|- > 3|-"},
		{VirtualNull, Delete, Images{Before: []byte{3}}, []byte{2, 1}, "1|-"},
	} {
		table := compiled(t, Column{Type: TypeTiny}, Column{Type: TypeTiny, Virtual: c.virtual})
		rows := uint32(1 + strings.Count(c.want, " "))
		if c.op == Update {
			rows = uint32(strings.Count(c.want, ">"))
		}
		var s Scanner
		s.Reset(&Event{Kind: Rows, Op: c.op, Table: table, Rows: rows, Images: c.images, Raw: c.raw})
		var got []string
		for s.Next() {
			for i, values := range [][]Value{s.Row().Before, s.Row().After} {
				if c.op == Update && i == 1 {
					got = append(got, ">")
				}
				if values != nil {
					got = append(got, rowText(t, values))
				}
			}
		}
		if s.Err() != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%d %s: got %q, %v; want %q", c.virtual, c.op, got, s.Err(), c.want)
		}
	}
}

// TestI3ScannerRefusesWhatItCannotRead proves that no event is read in part.
func TestI3ScannerRefusesWhatItCannotRead(t *testing.T) {
	table := compiled(t, Column{Name: "id", Type: TypeLong}, Column{Name: "name", Type: TypeVarchar, Meta: 300, Charset: "utf8mb4"})
	all := Images{After: []byte{3}}
	row := []byte{0, 1, 0, 0, 0, 2, 0, 'a', 'b'}
	for _, c := range []struct {
		name  string
		event Event
		want  string
	}{
		{"short bitmap", Event{Op: Insert, Rows: 1, Images: Images{After: []byte{}}, Raw: row}, "column bitmap of the after image has 0 bytes"},
		{"no image", Event{Op: Insert, Rows: 1, Images: Images{}, Raw: row}, "wrong column bitmaps"},
		{"image too many", Event{Op: Delete, Rows: 1, Images: Images{Before: []byte{3}, After: []byte{3}}, Raw: row}, "wrong column bitmaps"},
		{"no operation", Event{Rows: 1, Images: all, Raw: row}, "wrong column bitmaps"},
		{"partial insert", Event{Op: Insert, Rows: 1, Images: all, Raw: row, Partial: true}, "partial values in insert rows"},
		{"cut in a number", Event{Op: Insert, Rows: 1, Images: all, Raw: row[:3]}, `row change 1 of the insert event at b.1:4: column "id" (type code 3): the row image ends early`},
		{"cut in a length", Event{Op: Insert, Rows: 1, Images: all, Raw: row[:6]}, `column "name"`},
		{"cut in a text", Event{Op: Insert, Rows: 1, Images: all, Raw: row[:8]}, `column "name"`},
		{"fewer rows", Event{Op: Insert, Rows: 2, Images: all, Raw: row}, "row change 2 of the insert event"},
		{"more rows", Event{Op: Insert, Rows: 1, Images: all, Raw: append(row[:len(row):len(row)], row...)}, "9 bytes follow the last of 1 row changes"},
		{"fewer rows than to skip", Event{Op: Insert, Rows: 2, Skip: 2, Images: all, Raw: row}, "row change 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := c.event
			e.Kind, e.Table, e.File, e.Start = Rows, table, "b.1", 4
			var s Scanner
			s.Reset(&e)
			for s.Next() {
			}
			if s.Err() == nil || !strings.Contains(s.Err().Error(), c.want) || !strings.Contains(s.Err().Error(), "shop.t") {
				t.Errorf("got %v, want %q", s.Err(), c.want)
			}
			if s.Next() {
				t.Error("Next goes on after an error")
			}
		})
	}
	var s Scanner
	if s.Next() || s.Err() != nil {
		t.Error("the zero Scanner has rows")
	}
	if s.Reset(&Event{Kind: DDL}); s.Next() || s.Err() == nil {
		t.Error("rows of a DDL event")
	}
	if s.Reset(&Event{Kind: Rows, Op: Insert, Table: &Table{Columns: make([]Column, 1)}, Images: all}); s.Next() || s.Err() == nil {
		t.Error("rows of a table that is not compiled")
	}
}

func TestCountRowsAgreesWithScanner(t *testing.T) {
	table := compiled(t,
		Column{Type: TypeVarchar, Meta: 3, Charset: "binary"}, Column{Type: TypeBlob, Meta: 1, Charset: "binary"}, Column{Type: TypeBlob, Meta: 3, Charset: "binary"},
		Column{Type: TypeBlob, Meta: 4, Charset: "binary"}, Column{Type: TypeLong}, Column{Type: TypeInt24}, Column{Type: TypeVarchar, Meta: 256, Charset: "binary"}, Column{Type: TypeTiny}, Column{Type: TypeTiny})
	full := []byte{0, 0, 1, 'a', 2, 'b', 'c', 1, 0, 0, 'd', 1, 0, 0, 0, 'e', 1, 2, 3, 4, 1, 2, 3, 1, 0, 'f', 1, 2}
	nulls := []byte{0xff, 0xff}
	raw := append(append(append([]byte{}, full...), nulls...), full...)
	im := Images{After: ones(9)}
	if n, err := CountRows(table, Insert, im, raw); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for cut := 1; cut < len(full); cut++ {
		if n, err := CountRows(table, Insert, im, full[:cut]); err == nil {
			t.Errorf("cut at %d: %d rows", cut, n)
		}
	}
	// A length of 4 GiB does not wrap.
	huge := append([]byte{}, full...)
	binary.LittleEndian.PutUint32(huge[11:], math.MaxUint32)
	if _, err := CountRows(table, Insert, im, huge); err == nil {
		t.Error("a value of 4 GiB fits")
	}
}

func BenchmarkScan(b *testing.B) {
	e := orderEvent(b, 32)
	b.SetBytes(int64(len(e.Raw) / 32))
	b.ReportAllocs()
	var s Scanner
	for i := 0; i < b.N; i += 32 {
		s.Reset(e)
		for s.Next() {
		}
	}
	if s.Err() != nil {
		b.Fatal(s.Err())
	}
}

// BenchmarkScanText is scanning and AppendText of all values, a row.
func BenchmarkScanText(b *testing.B) {
	e := orderEvent(b, 32)
	b.SetBytes(int64(len(e.Raw) / 32))
	b.ReportAllocs()
	var s Scanner
	var dst []byte
	for i := 0; i < b.N; i += 32 {
		s.Reset(e)
		for s.Next() {
			dst = dst[:0]
			for _, v := range s.Row().After {
				var err error
				if dst, err = v.AppendText(dst); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if s.Err() != nil {
		b.Fatal(s.Err())
	}
}

func BenchmarkCountRows(b *testing.B) {
	e := orderEvent(b, 32)
	b.SetBytes(int64(len(e.Raw) / 32))
	b.ReportAllocs()
	for i := 0; i < b.N; i += 32 {
		if n, err := CountRows(e.Table, e.Op, e.Images, e.Raw); n != 32 || err != nil {
			b.Fatal(n, err)
		}
	}
}
