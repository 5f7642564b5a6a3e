package event

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// valueOf returns a value of a compiled column c, its bytes given in hex.
func valueOf(t testing.TB, c Column, raw string) Value {
	t.Helper()
	table := compiled(t, c)
	b, err := hex.DecodeString(strings.ReplaceAll(raw, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return Value{raw: b, col: &table.Columns[0], state: statePresent}
}

func dec(p, s uint16) Column { return Column{Type: TypeNewDecimal, Meta: p<<8 | s} }

func char(set string) Column { return Column{Type: TypeVarchar, Meta: 255, Charset: set} }

func TestValueText(t *testing.T) {
	for _, c := range []struct {
		column    Column
		raw, want string
	}{
		{Column{Type: TypeTiny}, "80", "-128"},
		{Column{Type: TypeTiny, Unsigned: true}, "ff", "255"},
		{Column{Type: TypeShort}, "ffff", "-1"},
		{Column{Type: TypeShort, Unsigned: true}, "409c", "40000"},
		{Column{Type: TypeInt24}, "000080", "-8388608"},
		{Column{Type: TypeInt24}, "ffff7f", "8388607"},
		{Column{Type: TypeInt24, Unsigned: true}, "ffffff", "16777215"},
		{Column{Type: TypeLong}, "00000080", "-2147483648"},
		{Column{Type: TypeLong, Unsigned: true}, "ffffffff", "4294967295"},
		{Column{Type: TypeLongLong}, "0000000000000080", "-9223372036854775808"},
		{Column{Type: TypeLongLong, Unsigned: true}, "ffffffffffffffff", "18446744073709551615"},

		{Column{Type: TypeFloat}, "cdcc8c3f", "1.1"},
		{Column{Type: TypeFloat}, "9e c9 7f 7f", "3.4e38"},
		{Column{Type: TypeFloat}, "00000080", "-0"},
		{Column{Type: TypeFloat}, "01000000", "1e-45"},
		{Column{Type: TypeFloat}, "0000804b", "16777216"},
		{Column{Type: TypeDouble}, "000000000000f83f", "1.5"},
		{Column{Type: TypeDouble}, "7dc39425ad49b254", "1e100"},

		// The manual's example: 1234567890.1234 as DECIMAL(14,4), and its negative.
		{dec(14, 4), "81 0dfb38d2 04d2", "1234567890.1234"},
		{dec(14, 4), "7e f204c72d fb2d", "-1234567890.1234"},
		{dec(10, 2), "80000000 00", "0.00"},
		{dec(1, 1), "89", "0.9"},
		{dec(1, 0), "76", "-9"},
		{dec(9, 9), "80000001", "0.000000001"},
		{dec(65, 30), "85f5e0ff3b9ac9ff3b9ac9ff3b9ac9ff 3b9ac9ff3b9ac9ff3b9ac9ff03e7", strings.Repeat("9", 35) + "." + strings.Repeat("9", 30)},
		{dec(65, 30), "7a0a1f00c4653600c4653600c4653600 c4653600c4653600c4653600fc18", "-" + strings.Repeat("9", 35) + "." + strings.Repeat("9", 30)},

		{Column{Type: TypeBit, Meta: 1}, "01", "1"},
		{Column{Type: TypeBit, Meta: 17}, "01ffff", "131071"},
		{Column{Type: TypeBit, Meta: 64}, "ffffffffffffffff", "18446744073709551615"},
		{Column{Type: TypeYear}, "00", "0000"},
		{Column{Type: TypeYear}, "01", "1901"},
		{Column{Type: TypeYear}, "ff", "2155"},

		{Column{Type: TypeDate}, "000000", "0000-00-00"},
		{Column{Type: TypeDate}, "9f1f4e", "9999-12-31"},
		{Column{Type: TypeDate}, "00a00f", "2000-00-00"},
		{Column{Type: TypeTime2, Meta: 3}, "7efdfb f63c", "-16:08:04.250"},
		{Column{Type: TypeTime2, Meta: 2}, "7fffff ff", "-00:00:00.01"},
		{Column{Type: TypeTime2, Meta: 2}, "800000 00", "00:00:00.00"},
		{Column{Type: TypeTime2, Meta: 1}, "7fffff 00", "-00:00:01.0"},
		{Column{Type: TypeTime2, Meta: 1}, "7fffff a6", "-00:00:00.9"},
		{Column{Type: TypeTime2}, "4b9105", "-838:59:59"},
		{Column{Type: TypeTime2}, "b46efb", "838:59:59"},
		{Column{Type: TypeTime2, Meta: 6}, "7fffff ffffff", "-00:00:00.000001"},
		{Column{Type: TypeDatetime2}, "8000000000", "0000-00-00 00:00:00"},
		{Column{Type: TypeDatetime2, Meta: 3}, "99b4cc5308 1ea0", "2024-11-06 05:12:08.784"},
		{Column{Type: TypeDatetime2, Meta: 6}, "99b280a2cc 00000d", "2024-02-00 10:11:12.000013"},
		{Column{Type: TypeTimestamp2}, "00000000", "0000-00-00 00:00:00"},
		{Column{Type: TypeTimestamp2, Meta: 2}, "00000000 63", "1970-01-01 00:00:00.99"},
		{Column{Type: TypeTimestamp2, Meta: 1}, "7fffffff 5a", "2038-01-19 03:14:07.9"},
		{Column{Type: TypeTimestamp2}, "ffffffff", "2106-02-07 06:28:15"},
		{Column{Type: TypeTime, SQLType: "time"}, "c01dfe", "-12:34:56"},
		{Column{Type: TypeTime, SQLType: "time"}, "40e201", "12:34:56"},
		{Column{Type: TypeDatetime, SQLType: "datetime"}, "f67cac8b68120000", "2024-02-29 23:59:58"},
		{Column{Type: TypeTimestamp, SQLType: "timestamp"}, "40102b67", "2024-11-06 06:44:16"},

		{char("utf8mb4"), "61e4b8ad f09f9880", "a中😀"},
		{char("utf8mb4"), "61ff62", "a\ufffdb"},
		{char("ascii"), "61e962", "a\ufffdb"},
		{char("ascii"), "61c3a9e4b8ad7f", "a\ufffd\ufffd\ufffd\ufffd\ufffd\x7f"}, // no UTF-8
		{char("latin1"), "80e9 81 8d 8f 90 9d", "€é\u0081\u008d\u008f\u0090\u009d"},
		{char("gbk"), "d6d0 ff 61", "中\ufffda"},
		{char("big5"), "a4a4", "中"},
		{char("sjis"), "82a0 b1 8160", "あｱ〜"},
		{char("cp932"), "8160 f040", "～\ue000"},
		{char("ujis"), "b0a1 8eb1 8fb0a1", "亜ｱ丂"},
		{char("euckr"), "b0a1", "가"},
		{char("gb18030"), "8139ee39 d6d0 9439fc36 81", "㐀中😀\ufffd"},
		{char("gb18030"), "8135f437 a8bc 8431a437", "\ue7c7ḿ\ufffd"},
		{char("ucs2"), "006120ac", "a€"},
		{char("utf16"), "d83dde00 d83d 0061 00", "😀\ufffda\ufffd"},
		{char("utf16le"), "3dd800de6100", "😀a"},
		{char("utf32"), "0001f60000110000 00", "😀\ufffd\ufffd"},
		{char("swe7"), "5b5c7b", "ÄÖä"},
		{char("koi8r"), "d1", "я"},
		{char("binary"), "00ff80", "\x00\xff\x80"},
		{Column{Type: TypeString, Meta: 4, Charset: "binary"}, "0102", "\x01\x02\x00\x00"},
		{Column{Type: TypeString, Meta: 4, Charset: "", Collation: 63}, "", "\x00\x00\x00\x00"},
		{Column{Type: TypeBlob, Meta: 2, Charset: "latin1"}, "e9", "é"},
		{Column{Type: TypeBlob, Meta: 2, Charset: "binary"}, "e9", "\xe9"},
		{Column{Type: TypeGeometry, Meta: 4}, "00000000", "\x00\x00\x00\x00"},
		{Column{Type: TypeVector, Meta: 4}, "0000803f 00002040 0000c07f", "[1,2.5,null]"},

		{Column{Type: TypeEnum, Meta: 1, Members: []string{"a,b", "é"}}, "00", ""},
		{Column{Type: TypeEnum, Meta: 1, Members: []string{"a,b", "é"}}, "02", "é"},
		{Column{Type: TypeEnum, Meta: 2, Members: make300()}, "2c01", "m300"},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"x", "y", "z"}}, "05", "x,z"},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"x", "y", "z"}}, "00", ""},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"", "y", "z"}}, "07", "y,z"},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"x", "", "z"}}, "07", "x,,z"},
		{Column{Type: TypeSet, Meta: 8, Members: make300()[:64]}, "0100000000000080", "m1,m64"},

		{Column{Type: TypeString, Meta: 16, Charset: "binary", Logical: LogicalUUID}, "00112233445566778899aabbccddee", "00112233-4455-6677-8899-aabbccddee00"},
		{Column{Type: TypeString, Meta: 4, Charset: "binary", Logical: LogicalINET4}, "0a", "10.0.0.0"},
		{Column{Type: TypeVarchar, Meta: 12, Charset: "binary", Logical: LogicalVector}, "0000c03f 00008ec1 00000000", "[1.5,-17.75,0]"},
		{Column{Type: TypeString, Meta: 16, Charset: "binary", Logical: LogicalINET6}, "", "::"},
		{Column{Type: TypeString, Meta: 16, Charset: "binary", Logical: LogicalINET6}, "00000000000000000000ffff01020304", "::ffff:1.2.3.4"},
		{Column{Type: TypeString, Meta: 16, Charset: "binary", Logical: LogicalINET6}, "fe80000000000000000000000000 0001", "fe80::1"},
		{Column{Type: TypeVarcharCompressed, Meta: 255, Charset: "latin1"}, "", ""},
		{Column{Type: TypeVarcharCompressed, Meta: 255, Charset: "latin1"}, "00 e9", "é"},
	} {
		v := valueOf(t, c.column, c.raw)
		got, err := v.AppendText([]byte("x"))
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%s % x: got %q (%v), want %q", v.col.SQLType, v.raw, got, err, c.want)
		}
	}
}

func make300() (l []string) {
	for i := range 300 {
		l = append(l, fmt.Sprint("m", i+1))
	}
	return l
}

func TestTimestampInZone(t *testing.T) {
	shanghai := time.FixedZone("+08:00", 8*3600)
	for _, c := range []struct {
		loc       *time.Location
		raw, want string
	}{
		{shanghai, "672b1040 0c44", "2024-11-06 14:44:16.314"},
		{time.FixedZone("", -5*3600), "672b1040 0000", "2024-11-06 01:44:16.000"},
		{shanghai, "00000000 0000", "0000-00-00 00:00:00.000"}, // zero is no instant
		{time.FixedZone("", -12*3600), "00000001 0000", "1969-12-31 12:00:01.000"},
		{time.FixedZone("", 14*3600), "ffffffff 0000", "2106-02-07 20:28:15.000"},
	} {
		v := valueOf(t, Column{Type: TypeTimestamp2, Meta: 3}, c.raw)
		if got, err := v.AppendTextIn(nil, c.loc); err != nil || string(got) != c.want {
			t.Errorf("%s in %s: %s (%v), want %s", c.raw, c.loc, got, err, c.want)
		}
	}
	// DATETIME is never shifted.
	v := valueOf(t, Column{Type: TypeDatetime2}, "99b4cc5308")
	if got, _ := v.AppendTextIn(nil, shanghai); string(got) != "2024-11-06 05:12:08" {
		t.Errorf("DATETIME was shifted to %s", got)
	}
}

// TestI3ValuesThatCannotBeShown proves that a value without a right text is an
// error that names the column, and leaves dst alone.
func TestI3ValuesThatCannotBeShown(t *testing.T) {
	for _, c := range []struct {
		column    Column
		raw, want string
	}{
		{Column{Type: TypeEnum, Meta: 1, Members: []string{"a"}}, "02", "index 2, but the column has 1 labels"},
		{Column{Type: TypeEnum, Meta: 1}, "01", "binlog_row_metadata=FULL"},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"a", "b"}}, "05", "mask 0x5, but the column has 2 labels"},
		{dec(9, 0), "bfffffff", "malformed DECIMAL"},
		{dec(2, 2), "e4", "malformed DECIMAL"},
		{Column{Type: TypeDate}, "ffffff", "malformed date"},
		{Column{Type: TypeTime2, Meta: 2}, "800000 64", "malformed date"},
		{Column{Type: TypeDatetime2}, "0000000000", "malformed date"},
		{Column{Type: TypeDatetime2}, "ffffffffff", "malformed date"},
		{Column{Type: TypeTimestamp2, Meta: 6}, "00000001 ffffff", "malformed date"},
		{Column{Type: TypeTime, SQLType: "time(6)"}, "ffffffffffff", "malformed date"},
		{Column{Type: TypeDatetime, SQLType: "datetime"}, "ffffffffffffffff", "malformed date"},
		{Column{Type: TypeDatetime, SQLType: "datetime(6)"}, "ffffffffffffffff", "malformed date"},
		{Column{Type: TypeString, Meta: 1, Charset: "binary"}, "0102", "2 bytes in a column of 1"},
		{Column{Type: TypeString, Meta: 4, Charset: "binary", Logical: LogicalINET4}, "0102030405", "5 bytes in a column of 4"},
		{Column{Type: TypeVector, Meta: 4}, "000000", "a vector of 3 bytes"},
		{Column{Type: TypeJSON, Meta: 4}, "ff", "malformed binary JSON"},
		{Column{Type: TypeVarcharCompressed, Meta: 9, Charset: "binary"}, "10", "unknown header"},
		{Column{Type: TypeVarcharCompressed, Meta: 9, Charset: "latin1"}, "81", "unknown header"},
		{Column{Type: TypeVarcharCompressed, Meta: 9, Charset: "binary"}, "84ffffffff00", "claims to hold"},
		{Column{Type: TypeVarcharCompressed, Meta: 9, Charset: "binary"}, "810500", "compressed value"},
	} {
		c.column.Name = "price"
		v := valueOf(t, c.column, c.raw)
		got, err := v.AppendText([]byte("x"))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "price") || string(got) != "x" {
			t.Errorf("%s %s: %q, %v, want %q", v.col.SQLType, c.raw, got, err, c.want)
		}
	}
	for _, state := range []valueState{stateNull, stateAbsent} {
		v := valueOf(t, Column{Type: TypeLong}, "")
		v.state, v.raw = state, nil
		if _, err := v.AppendText(nil); err == nil {
			t.Error("text of no value")
		}
		if _, err := v.Int64(); err == nil {
			t.Error("number of no value")
		}
	}
	if _, err := new(Value).AppendText(nil); err == nil {
		t.Error("text of the zero Value")
	}
}

func TestValueNumbers(t *testing.T) {
	const none = "error"
	for _, c := range []struct {
		column        Column
		raw, i64, u64 string
	}{
		{Column{Type: TypeInt24}, "ffffff", "-1", none},
		{Column{Type: TypeTiny}, "07", "7", "7"},
		{Column{Type: TypeLongLong, Unsigned: true}, "ffffffffffffffff", none, "18446744073709551615"},
		{Column{Type: TypeBit, Meta: 64}, "8000000000000000", none, "9223372036854775808"},
		{Column{Type: TypeYear}, "7c", "2024", "2024"},
		{Column{Type: TypeYear}, "00", "0", "0"},
		{Column{Type: TypeEnum, Meta: 2}, "2c01", "300", "300"},
		{Column{Type: TypeSet, Meta: 3}, "000080", "8388608", "8388608"},
		{dec(10, 0), "8000000001", none, none},
	} {
		v := valueOf(t, c.column, c.raw)
		i, err := v.Int64()
		if got := fmt.Sprint(i); err == nil && got != c.i64 || err != nil && c.i64 != none {
			t.Errorf("%s %s: Int64 %s, %v", v.col.SQLType, c.raw, got, err)
		}
		u, err := v.Uint64()
		if got := fmt.Sprint(u); err == nil && got != c.u64 || err != nil && c.u64 != none {
			t.Errorf("%s %s: Uint64 %s, %v", v.col.SQLType, c.raw, got, err)
		}
	}
}

func TestValueEqual(t *testing.T) {
	c := Column{Type: TypeVarchar, Meta: 10, Charset: "binary"}
	a, b := valueOf(t, c, "00"), valueOf(t, c, "01")
	null, absent, empty := a, a, valueOf(t, c, "")
	null.state, null.raw = stateNull, nil
	absent.state, absent.raw = stateAbsent, nil
	all := []Value{a, b, null, absent, empty}
	for i, x := range all {
		for j, y := range all {
			if x.Equal(y) != (i == j) {
				t.Errorf("%d equals %d: %t", i, j, i != j)
			}
		}
	}
}

// TestCompressedColumns covers both zlib forms, and that equal content is
// equal however it was packed.
func TestCompressedColumns(t *testing.T) {
	text := strings.Repeat("the same again ", 20)
	pack := func(head byte, level int) string {
		var b bytes.Buffer
		b.Write([]byte{head, 1, 0x2c})
		if head&8 == 0 {
			w, _ := zlib.NewWriterLevel(&b, level)
			w.Write([]byte(text))
			w.Close()
		} else {
			w, _ := flate.NewWriter(&b, level)
			w.Write([]byte(text))
			w.Close()
		}
		return hex.EncodeToString(b.Bytes())
	}
	c := Column{Type: TypeBlobCompressed, Meta: 2, Charset: "latin1"}
	best, stored, bare := valueOf(t, c, pack(0x82, 9)), valueOf(t, c, pack(0x82, 0)), valueOf(t, c, pack(0x8a, 6))
	for _, v := range []Value{best, stored, bare} {
		if got, err := v.AppendText(nil); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
		if !v.Equal(best) || v.Equal(valueOf(t, c, "0061")) {
			t.Error("equality depends on the packing")
		}
	}
	broken := valueOf(t, c, pack(0x82, 9))
	broken.raw[len(broken.raw)-1]++
	if _, err := broken.AppendText(nil); err == nil {
		t.Error("a wrong checksum is not seen")
	}
}

func TestFloatText(t *testing.T) {
	// As SELECT shows a DOUBLE.
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0"}, {math.Copysign(0, -1), "-0"}, {1, "1"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {1e14, "100000000000000"}, {1e15, "1e15"}, {1e22, "1e22"},
		{123456789012345, "123456789012345"}, {1234567890123456, "1.234567890123456e15"}, {123456789012345678, "1.2345678901234568e17"},
		{1e-15, "0.000000000000001"}, {1e-16, "1e-16"}, {1.5e-14, "0.000000000000015"}, {1.2345678901234567e-14, "0.000000000000012345678901234567"},
		{1.7976931348623157e308, "1.7976931348623157e308"}, {2.2250738585072014e-308, "2.2250738585072014e-308"}, {4.9e-324, "5e-324"}, {12.25, "12.25"}, {1234567890.5, "1234567890.5"},
	} {
		if got := string(appendFloat(nil, c.f, 64)); got != c.want {
			t.Errorf("%g: %s, want %s", c.f, got, c.want)
		}
	}
}

func TestNormalizeType(t *testing.T) {
	for _, c := range []struct {
		typ  byte
		meta string
		real byte
		m    uint16
		n    int
	}{
		{TypeLong, "", TypeLong, 0, 0},
		{TypeVarchar, "2c01", TypeVarchar, 300, 2},
		{TypeVarString, "0a00", TypeVarchar, 10, 2},
		{TypeString, "fe28", TypeString, 40, 2},
		{TypeString, "cefc", TypeString, 1020, 2}, // CHAR(255) utf8mb4
		{TypeString, "ee00", TypeString, 256, 2},
		{TypeString, "f701", TypeEnum, 1, 2},
		{TypeString, "f702", TypeEnum, 2, 2},
		{TypeString, "f808", TypeSet, 8, 2},
		{TypeNewDecimal, "411e", TypeNewDecimal, 65<<8 | 30, 2},
		{TypeBit, "0108", TypeBit, 65, -1},
		{TypeBit, "0008", TypeBit, 64, 2},
		{TypeBit, "0102", TypeBit, 17, 2},
		{TypeBlob, "04", TypeBlob, 4, 1},
		{TypeLongBlob, "04", TypeBlob, 4, 1},
		{TypeBlobCompressed, "02", TypeBlobCompressed, 2, 1},
		{TypeVarcharCompressed, "6500", TypeVarcharCompressed, 101, 2},
		{TypeJSON, "04", TypeJSON, 4, 1},
		{TypeFloat, "04", TypeFloat, 4, 1},
		{TypeDouble, "08", TypeDouble, 8, 1},
		{TypeTime2, "06", TypeTime2, 6, 1},
		{TypeTime2, "07", 0, 0, -1},
		{TypeDouble, "04", 0, 0, -1},
		{TypeString, "f704", 0, 0, -1},
		{TypeString, "f809", 0, 0, -1},
		{TypeString, "0f01", 0, 0, -1},
		{TypeNewDecimal, "4200", 0, 0, -1},
		{TypeNewDecimal, "0506", 0, 0, -1},
		{TypeBlob, "05", 0, 0, -1},
		{TypeVarchar, "01", 0, 0, -1},
		{200, "", 0, 0, -1},
		{TypeDecimal, "", 0, 0, -1},
	} {
		meta, _ := hex.DecodeString(c.meta)
		real, m, n, err := NormalizeType(c.typ, append(meta, 0xaa)[:len(meta)])
		if c.n < 0 {
			if err == nil {
				t.Errorf("%d %s: no error", c.typ, c.meta)
			}
			continue
		}
		if err != nil || real != c.real || m != c.m || n != c.n {
			t.Errorf("%d %s: %d %d %d %v", c.typ, c.meta, real, m, n, err)
		}
	}
}

// TestI6CompileRefusesToGuess proves that what the log does not tell is an
// error which names table, column and type.
func TestI6CompileRefusesToGuess(t *testing.T) {
	for _, c := range []struct {
		column Column
		want   string
	}{
		{Column{Type: 200}, "unknown column type"},
		{Column{Type: TypeDecimal}, "ALTER TABLE ... FORCE"},
		{Column{Type: TypeVarchar, Meta: 3}, "character set unknown"},
		{Column{Type: TypeVarchar, Meta: 3, Charset: "klingon"}, `"klingon" (collation 0) is not supported`},
		{Column{Type: TypeTime}, "information_schema"},
		{Column{Type: TypeTime, SQLType: "time(7)"}, "fraction digits"},
		{Column{Type: TypeNewDecimal, Meta: 1<<8 | 2}, "DECIMAL(1,2)"},
		{Column{Type: TypeBit}, "BIT(0)"},
		{Column{Type: TypeEnum}, "ENUM"},
		{Column{Type: TypeSet, Meta: 9}, "SET"},
		{Column{Type: TypeBlob, Charset: "binary"}, "length prefix"},
		{Column{Type: TypeTime2, Meta: 7}, "fraction digits"},
		{Column{Type: TypeVarchar, Meta: 16, Charset: "binary", Logical: LogicalUUID}, "uuid"},
		{Column{Type: TypeString, Meta: 12, Charset: "binary", Logical: LogicalVector}, "vector"},
		{Column{Type: TypeVarchar, Meta: 12, Charset: "latin1", Logical: LogicalVector}, "vector"},
		{Column{Type: TypeVarchar, Meta: 10, Charset: "binary", Logical: LogicalVector}, "vector"},
		{Column{Type: TypeString, Meta: 15, Charset: "binary", Logical: LogicalINET6}, "altered"},
	} {
		c.column.Name = "price"
		table := Table{Schema: "shop", Name: "orders", Columns: []Column{{Name: "id", Type: TypeLong}, c.column}}
		err := table.Compile()
		if err == nil {
			t.Errorf("%+v: no error", c.column)
			continue
		}
		for _, want := range []string{c.want, "shop.orders", `column 2 "price"`, fmt.Sprintf("type code %d", c.column.Type)} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: misses %q", err, want)
			}
		}
	}
	table := Table{Columns: []Column{{Type: TypeLong}}, Key: []int{1}}
	if table.Compile() == nil {
		t.Error("a key column beyond the columns")
	}
}

func TestDerivedSQLType(t *testing.T) {
	for _, c := range []struct {
		column Column
		want   string
	}{
		{Column{Type: TypeLong, Unsigned: true}, "int unsigned"},
		{Column{Type: TypeTiny, Logical: LogicalBool}, "tinyint(1)"},
		{dec(12, 2), "decimal(12,2)"},
		{Column{Type: TypeVarchar, Meta: 80, Charset: "utf8mb4"}, "varchar(20)"},
		{Column{Type: TypeVarchar, Meta: 80, Charset: "binary"}, "varbinary(80)"},
		{Column{Type: TypeVarcharCompressed, Meta: 81, Charset: "utf8mb4"}, "varchar(20)"},
		{Column{Type: TypeString, Meta: 1020, Charset: "utf8mb4"}, "char(255)"},
		{Column{Type: TypeString, Meta: 16, Collation: 63}, "binary(16)"},
		{Column{Type: TypeDatetime2, Meta: 3}, "datetime(3)"},
		{Column{Type: TypeTimestamp2}, "timestamp"},
		{Column{Type: TypeBit, Meta: 10}, "bit(10)"},
		{Column{Type: TypeBlob, Meta: 4, Charset: "utf8mb4"}, "longtext"},
		{Column{Type: TypeBlob, Meta: 1, Charset: "binary"}, "tinyblob"},
		{Column{Type: TypeEnum, Meta: 1, Members: []string{"a", "it's", "b\\\n\x00\r"}}, `enum('a','it''s','b\\\n\0\r')`},
		{Column{Type: TypeSet, Meta: 1, Members: []string{"a"}}, "set('a')"},
		{Column{Type: TypeString, Meta: 16, Charset: "binary", Logical: LogicalUUID}, "uuid"},
		{Column{Type: TypeVarchar, Meta: 12, Charset: "binary", Logical: LogicalVector}, "vector(3)"},
		{Column{Type: TypeJSON, Meta: 4}, "json"},
	} {
		table := compiled(t, c.column)
		if got := table.Columns[0].SQLType; got != c.want {
			t.Errorf("%+v: %s, want %s", c.column, got, c.want)
		}
	}
}

// TestTimestampAsTimePackage compares the calendar with the time package's over
// the whole range and in a zone with summer time.
func TestTimestampAsTimePackage(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone database here: ", err)
	}
	for _, loc := range []*time.Location{time.UTC, berlin} {
		for sec := int64(1); sec < math.MaxUint32; sec += 86399*3 + 7 {
			if got, want := string(appendUnix(nil, sec, loc)), time.Unix(sec, 0).In(loc).Format(time.DateTime); got != want {
				t.Fatalf("%d in %s: %s, want %s", sec, loc, got, want)
			}
		}
	}
}
