package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// packTable returns a table of one column.
func packTable(t testing.TB, typ byte, meta uint16) *Table {
	table := &Table{Columns: []Column{{Name: "c", Type: typ, Meta: meta}}}
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestPackDecimal(t *testing.T) {
	for _, c := range []struct {
		precision, scale int
		text, want       string // want: "" for an error, "=" for the text
	}{
		{1, 0, "0", "="}, {1, 0, "-9", "="}, {1, 0, "10", ""}, {1, 1, "0.9", "="}, {1, 1, "-0.1", "="}, {1, 1, "0.95", ""}, {5, 0, "00042", "42"}, {5, 2, "-000.00", "0.00"},
		{5, 2, "7", "7.00"}, {10, 0, "-9999999999", "="}, {9, 9, "0.999999999", "="}, {12, 2, "1234567890.12", "="}, {20, 19, "9.0000000000000000001", "="},
		{65, 0, strings.Repeat("9", 65), "="}, {65, 30, "-" + strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), "="}, {65, 30, "0." + strings.Repeat("0", 29) + "1", "="},
		{38, 17, "100000000000000000000.00000000000000001", "="}, {5, 2, "", ""}, {5, 2, "-", ""}, {5, 2, ".", ""}, {5, 2, "1e1", ""}, {5, 2, "+1", ""}, {5, 2, "1.2.3", ""}, {5, 2, " 1", ""},
		{0, 0, "1", ""}, {66, 0, "1", ""}, {5, 6, "0", ""}, {5, -1, "0", ""},
	} {
		b, err := PackDecimal([]byte("x"), []byte(c.text), c.precision, c.scale)
		if c.want == "" {
			if err == nil || string(b) != "x" {
				t.Errorf("DECIMAL(%d,%d) of %q: %x, no error", c.precision, c.scale, c.text, b)
			}
			continue
		}
		want := c.want
		if want == "=" {
			want = c.text
		}
		if err != nil {
			t.Errorf("DECIMAL(%d,%d) of %q: %v", c.precision, c.scale, c.text, err)
			continue
		}
		got, err := appendDecimal(nil, b[1:], c.precision, c.scale)
		if err != nil || string(got) != want || b[0] != 'x' {
			t.Errorf("DECIMAL(%d,%d) of %q is %q (%v)", c.precision, c.scale, c.text, got, err)
		}
	}
}

func TestPackTemporal(t *testing.T) {
	for _, c := range []struct {
		typ  byte
		meta uint16
		text string
		bad  bool
	}{
		{typ: TypeDate, text: "0000-00-00"}, {typ: TypeDate, text: "9999-12-31"}, {typ: TypeDate, text: "2023-02-31"}, {typ: TypeDate, text: "2024-02-00"}, {typ: TypeNewDate, text: "2024-02-01"},
		{typ: TypeDate, text: "2024-2-01", bad: true}, {typ: TypeDate, text: "2024-16-01", bad: true}, {typ: TypeDate, text: "2024-01-32", bad: true}, {typ: TypeDate, text: "2024-01-01 ", bad: true}, {typ: TypeDate, bad: true},
		{typ: TypeTime2, text: "00:00:00"}, {typ: TypeTime2, text: "-838:59:59"}, {typ: TypeTime2, text: "838:59:59"}, {typ: TypeTime2, text: "-00:00:01"}, {typ: TypeTime2, meta: 1, text: "-00:00:00.1"},
		{typ: TypeTime2, meta: 2, text: "-16:08:04.99"}, {typ: TypeTime2, meta: 3, text: "100:00:00.001"}, {typ: TypeTime2, meta: 6, text: "-00:00:00.000001"}, {typ: TypeTime2, meta: 5, text: "-838:59:58.99999"},
		{typ: TypeTime2, text: "839:00:00", bad: true}, {typ: TypeTime2, text: "00:60:00", bad: true}, {typ: TypeTime2, meta: 3, text: "00:00:00", bad: true}, {typ: TypeTime2, meta: 3, text: "00:00:00.1", bad: true}, {typ: TypeTime2, text: "00:00:00.1", bad: true},
		{typ: TypeTime2, text: "--1:00:00", bad: true},
		{typ: TypeDatetime2, text: "0000-00-00 00:00:00"}, {typ: TypeDatetime2, meta: 6, text: "9999-12-31 23:59:59.999999"}, {typ: TypeDatetime2, meta: 5, text: "2024-02-00 10:11:12.00001"}, {typ: TypeDatetime2, meta: 1, text: "2000-00-00 00:00:00.9"},
		{typ: TypeDatetime2, text: "2000-13-00 00:00:00", bad: true}, {typ: TypeDatetime2, text: "2000-01-01 24:00:00", bad: true}, {typ: TypeDatetime2, text: "2000-01-01T00:00:00", bad: true}, {typ: TypeDatetime2, text: "2000-01-01 100:00:00", bad: true},
		{typ: TypeTimestamp2, text: "0000-00-00 00:00:00"}, {typ: TypeTimestamp2, meta: 3, text: "0000-00-00 00:00:00.000"}, {typ: TypeTimestamp2, text: "1970-01-01 00:00:01"}, {typ: TypeTimestamp2, meta: 6, text: "2106-02-07 06:28:15.999999"},
		{typ: TypeTimestamp2, meta: 2, text: "1970-01-01 00:00:00.01"}, {typ: TypeTimestamp2, text: "2000-02-29 23:59:59"},
		{typ: TypeTimestamp2, text: "1970-01-01 00:00:00", bad: true}, {typ: TypeTimestamp2, text: "2106-02-07 06:28:16", bad: true}, {typ: TypeTimestamp2, text: "1969-12-31 23:59:59", bad: true}, {typ: TypeTimestamp2, text: "2001-02-29 00:00:00", bad: true},
		{typ: TypeTimestamp2, text: "2001-00-01 00:00:00", bad: true},
	} {
		table := packTable(t, c.typ, c.meta)
		b, err := PackTemporal([]byte("x"), &table.Columns[0], []byte(c.text))
		if c.bad {
			if err == nil || string(b) != "x" {
				t.Errorf("type %d(%d), %q: %x, no error", c.typ, c.meta, c.text, b)
			}
			continue
		}
		if err != nil {
			t.Errorf("type %d(%d), %q: %v", c.typ, c.meta, c.text, err)
			continue
		}
		v := Value{raw: b[1:], col: &table.Columns[0], state: statePresent}
		if got, err := v.AppendText(nil); err != nil || string(got) != c.text || len(b) != 1+int(table.Columns[0].width) {
			t.Errorf("type %d(%d), %q is %q in %d bytes (%v)", c.typ, c.meta, c.text, got, len(b)-1, err)
		}
	}
	for _, typ := range []byte{TypeDatetime, TypeTime, TypeTimestamp, TypeLong} {
		if b, err := PackTemporal(nil, &Column{Type: typ}, []byte("2024-01-01 00:00:00")); err == nil {
			t.Errorf("type %d: %x, no error", typ, b)
		}
	}
}

// FuzzPack: what is packed reads back as what it was made of, and packs again to the same bytes; nothing panics.
func FuzzPack(f *testing.F) {
	for _, s := range []string{"-00:00:00.000001", "2024-02-31 23:59:59.5", "0000-00-00", "-0.10", "123456789012345678.123456789"} {
		f.Add([]byte(s), byte(20), byte(6))
	}
	types := []byte{TypeDate, TypeTime2, TypeDatetime2, TypeTimestamp2}
	f.Fuzz(func(t *testing.T, text []byte, precision, scale byte) {
		if b, err := PackDecimal(nil, text, int(precision), int(scale)); err == nil {
			s, err := appendDecimal(nil, b, int(precision), int(scale))
			if err != nil {
				t.Fatalf("DECIMAL(%d,%d) of %q is %x: %v", precision, scale, text, b, err)
			}
			if again, err := PackDecimal(nil, s, int(precision), int(scale)); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("DECIMAL(%d,%d): %q is %x, %q is %x (%v)", precision, scale, text, b, s, again, err)
			}
		}
		for _, typ := range types {
			meta := uint16(scale % 7)
			if typ == TypeDate {
				meta = 0
			}
			table := packTable(t, typ, meta)
			c := &table.Columns[0]
			b, err := PackTemporal(nil, c, text)
			if err != nil {
				continue
			}
			v := Value{raw: b, col: c, state: statePresent}
			s, err := v.AppendText(nil)
			if want := string(text); err != nil || string(s) != want && !(typ == TypeTime2 && sameTime(string(s), want)) {
				t.Fatalf("%s: %q reads as %q (%v)", fmt.Sprint(c.SQLType), text, s, err)
			}
		}
	})
}

// sameTime compares without what a TIME can have too much: a sign of zero, and zeros in front.
func sameTime(a, b string) bool {
	norm := func(s string) string {
		negative := strings.HasPrefix(s, "-") && strings.Trim(s, "-0:.") != ""
		s = strings.TrimLeft(strings.TrimPrefix(s, "-"), "0")
		return fmt.Sprint(negative, s)
	}
	return norm(a) == norm(b)
}
