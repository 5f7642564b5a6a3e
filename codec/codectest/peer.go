package codectest

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// Decimal returns the row image of a DECIMAL(precision, scale) with this text,
// which has all digits of the scale. It is MySQL's decimal2bin.
func Decimal(text string, precision, scale int) []byte {
	digits := strings.TrimPrefix(text, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	whole = strings.Repeat("0", precision-scale-len(whole)+len(whole)-len(strings.TrimLeft(whole, "0"))) + strings.TrimLeft(whole, "0")
	var b []byte
	group := func(s string) {
		n := int64(0)
		for _, c := range s {
			n = n*10 + int64(c-'0')
		}
		b = append(b, Be(n, []int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}[len(s)])...)
	}
	for first := len(whole) % 9; len(whole) > 0; first = 9 {
		if first == 0 {
			first = 9
		}
		group(whole[:first])
		whole = whole[first:]
	}
	for len(fraction) > 0 {
		n := min(9, len(fraction))
		group(fraction[:n])
		fraction = fraction[n:]
	}
	b[0] ^= 0x80
	if text[0] == '-' {
		for i := range b {
			b[i] ^= 0xff
		}
	}
	return b
}

// PeerLines returns the lines of a file, each a message that an original published.
func PeerLines(t testing.TB, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}

// A PeerRow is a row change whose message is known from the format's original.
type PeerRow struct {
	Name          string // table and the row's first column
	Table         *event.Table
	Before, After []Cell
}

// PeerRows returns the row changes of which the originals' own messages lie in
// the codecs' testdata, line by line in this order. What made them:
//
//	CREATE TABLE nums (id INT PRIMARY KEY, ti TINYINT, tiu TINYINT UNSIGNED, b1 TINYINT(1), si SMALLINT, mi MEDIUMINT UNSIGNED, i INT, iu INT UNSIGNED, bi BIGINT, biu BIGINT UNSIGNED, f FLOAT, d DOUBLE, dc DECIMAL(12,2), dcbig DECIMAL(65,30), dcu DECIMAL(10,4) UNSIGNED, bits BIT(1), bits10 BIT(10), bits64 BIT(64));
//	CREATE TABLE times (id INT PRIMARY KEY, d DATE, t TIME, t6 TIME(6), dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL, y YEAR);
//	CREATE TABLE texts (id INT PRIMARY KEY, u VARCHAR(200) CHARACTER SET utf8mb4, l VARCHAR(200) CHARACTER SET latin1, g VARCHAR(200) CHARACTER SET gbk, tt TINYTEXT, mt MEDIUMTEXT CHARACTER SET latin1, c CHAR(10), vb VARBINARY(20), bn BINARY(8), bl BLOB, e ENUM('a','b,c','d''e','ü'), s SET('x','y','z'), el ENUM('süß','x') CHARACTER SET latin1);
//	CREATE TABLE docs (id INT PRIMARY KEY, j JSON);
//	CREATE TABLE pairs (a INT, b VARCHAR(10), v INT, PRIMARY KEY (a,b));
//	CREATE TABLE nokey (a INT, b VARCHAR(10));
//	CREATE TABLE geo (id INT PRIMARY KEY, g GEOMETRY, p POINT);
func PeerRows(t testing.TB) []PeerRow {
	num := func(name string, typ byte, meta uint16, unsigned bool) event.Column {
		return event.Column{Name: name, Type: typ, Meta: meta, Unsigned: unsigned}
	}
	text := func(name string, typ byte, meta uint16, charset string) event.Column {
		return event.Column{Name: name, Type: typ, Meta: meta, Charset: charset}
	}
	table := func(name string, key []int, columns ...event.Column) *event.Table {
		for i := range columns {
			columns[i].Nullable = !slices.Contains(key, i)
		}
		return Compile(t, &event.Table{Schema: "edge", Name: name, Key: key, Columns: columns})
	}
	id := num("id", TypeLong, 0, false)
	b1 := num("b1", TypeTiny, 0, false)
	b1.Logical = event.LogicalBool
	nums := table("nums", []int{0}, id, num("ti", TypeTiny, 0, false), num("tiu", TypeTiny, 0, true), b1, num("si", TypeShort, 0, false),
		num("mi", TypeInt24, 0, true), num("i", TypeLong, 0, false), num("iu", TypeLong, 0, true), num("bi", TypeLongLong, 0, false),
		num("biu", TypeLongLong, 0, true), num("f", TypeFloat, 4, false), num("d", TypeDouble, 8, false), num("dc", TypeDecimal, 12<<8|2, false),
		num("dcbig", TypeDecimal, 65<<8|30, false), num("dcu", TypeDecimal, 10<<8|4, true), num("bits", TypeBit, 1, false),
		num("bits10", TypeBit, 10, false), num("bits64", TypeBit, 64, false))
	times := table("times", []int{0}, id, num("d", TypeDate, 0, false), num("t", TypeTime2, 0, false), num("t6", TypeTime2, 6, false),
		num("dt", TypeDatetime2, 0, false), num("dt3", TypeDatetime2, 3, false), num("dt6", TypeDatetime2, 6, false),
		num("ts", TypeTimestamp2, 0, false), num("ts6", TypeTimestamp2, 6, false), num("y", TypeYear, 0, false))
	e := num("e", TypeEnum, 1, false)
	e.Members = []string{"a", "b,c", "d'e", "ü"}
	s := num("s", TypeSet, 1, false)
	s.Members = []string{"x", "y", "z"}
	el := num("el", TypeEnum, 1, false)
	el.Members = []string{"süß", "x"}
	texts := table("texts", []int{0}, id, text("u", TypeVarchar, 800, "utf8mb4"), text("l", TypeVarchar, 200, "latin1"), text("g", TypeVarchar, 400, "gbk"),
		text("tt", TypeBlob, 1, "utf8mb4"), text("mt", TypeBlob, 3, "latin1"), text("c", TypeString, 40, "utf8mb4"), text("vb", TypeVarchar, 20, "binary"),
		text("bn", TypeString, 8, "binary"), text("bl", TypeBlob, 2, "binary"), e, s, el)
	docs := table("docs", []int{0}, id, num("j", TypeJSON, 4, false))
	pairs := table("pairs", []int{0, 1}, num("a", TypeLong, 0, false), text("b", TypeVarchar, 40, "utf8mb4"), num("v", TypeLong, 0, false))
	nokey := table("nokey", nil, num("a", TypeLong, 0, false), text("b", TypeVarchar, 40, "utf8mb4"))
	point := num("p", TypeGeometry, 4, false)
	point.SQLType = "point"
	geo := table("geo", []int{0}, id, num("g", TypeGeometry, 4, false), point)

	cells := func(raws ...[]byte) (c []Cell) {
		for _, r := range raws {
			c = append(c, Cell{Raw: r, Null: r == nil})
		}
		return c
	}
	i4 := func(n int64) []byte { return Le(n, 4) }
	str := func(s string) []byte { return append([]byte{}, s...) }
	nulls := func(n int) [][]byte { return make([][]byte, n) }
	dec := func(s string) []byte { return Decimal(s, 12, 2) }
	pair := func(a int64, b string, v int64) []Cell { return cells(i4(a), str(b), i4(v)) }
	line := join(make([]byte, 4), []byte{1, 2, 0, 0, 0, 2, 0, 0, 0}, f64(0), f64(0), f64(1), f64(1))

	return []PeerRow{
		{"nums 1", nums, nil, cells(i4(1), Le(-128, 1), Le(0, 1), Le(1, 1), Le(-32768, 2), Le(0, 3), i4(-2147483648), i4(0), Le(math.MinInt64, 8), Le(0, 8),
			f32(-1.5), f64(-2.25), dec("-1234567890.12"), Decimal("-12345678901234567890123456789012345.123456789012345678901234567890", 65, 30),
			Decimal("0.0000", 10, 4), Be(0, 1), Be(0, 2), Be(0, 8))},
		{"nums 2", nums, nil, cells(i4(2), Le(127, 1), Le(255, 1), Le(0, 1), Le(32767, 2), Le(16777215, 3), i4(2147483647), i4(4294967295), Le(math.MaxInt64, 8), Le(-1, 8),
			f32(3.4e38), f64(math.MaxFloat64), dec("9999999999.99"), Decimal("0.000000000000000000000000000001", 65, 30),
			Decimal("999999.9999", 10, 4), Be(1, 1), Be(682, 2), Be(-1, 8))},
		{"nums 3", nums, nil, cells(i4(3), Le(0, 1), Le(128, 1), Le(2, 1), Le(0, 2), Le(8388608, 3), i4(0), i4(2147483648), Le(0, 8), Le(math.MinInt64, 8),
			f32(0.1), f64(0.1), dec("0.00"), Decimal("0.000000000000000000000000000000", 65, 30),
			Decimal("0.5000", 10, 4), Be(1, 1), Be(1, 2), Be(1, 8))},
		{"nums 5", nums, nil, cells(append(append([][]byte{i4(5)}, nulls(9)...), f32(1e-45), f64(5e-324), dec("-0.01"), nil, nil, nil, nil, nil)...)},
		{"nums 6", nums, nil, cells(append(append([][]byte{i4(6)}, nulls(9)...), f32(16777216), f64(1e21), dec("1.00"), nil, nil, nil, nil, nil)...)},
		{"nums 7", nums, nil, cells(append(append([][]byte{i4(7)}, nulls(9)...), f32(1e10), f64(1e-7), dec("100.00"), nil, nil, nil, nil, nil)...)},
		{"times 1", times, nil, cells(i4(1), Le(2024<<9|2<<5|29, 3), Be(0x800000+(12<<12|34<<6|56), 3), Be(0x800000000000+(12<<12|34<<6|56)<<24+1, 6),
			packed(2024, 2, 29, 12, 34, 56), join(packed(2024, 2, 29, 12, 34, 56), Be(7890, 2)), join(packed(2024, 2, 29, 12, 34, 56), Be(123456, 3)),
			Be(1709210096, 4), join(Be(1709210096, 4), Be(123456, 3)), Le(124, 1))},
		{"times 2", times, nil, cells(i4(2), Le(0, 3), Be(0x800000-(838<<12|59<<6|59), 3), Be(0x800000000000-1, 6),
			packed(0, 0, 0, 0, 0, 0), join(packed(0, 0, 0, 0, 0, 0), Be(0, 2)), join(packed(0, 0, 0, 0, 0, 0), Be(0, 3)),
			Be(0, 4), Be(0, 7), Le(0, 1))},
		{"times 3", times, nil, cells(i4(3), Le(9999<<9|12<<5|31, 3), Be(0x800000+(838<<12|59<<6|59), 3), Be(0x800000000000-((12<<12)<<24+500000), 6),
			packed(9999, 12, 31, 23, 59, 59), join(packed(1000, 1, 1, 0, 0, 0), Be(0, 2)), join(packed(9999, 12, 31, 23, 59, 59), Be(999999, 3)),
			Be(2147483647, 4), join(Be(1, 4), Be(0, 3)), Le(255, 1))},
		{"times 4", times, nil, cells(i4(4), Le(2024<<9, 3), Be(0x800000, 3), Be(0x800000000000+(24<<12)<<24, 6),
			packed(2024, 1, 0, 10, 0, 0), join(packed(1969, 12, 31, 23, 59, 59), Be(9990, 2)), join(packed(1, 1, 1, 0, 0, 0), Be(1, 3)),
			Be(1719792000, 4), join(Be(1719792000, 4), Be(500000, 3)), Le(1, 1))},
		{"texts 2", texts, nil, cells(i4(2), str("ünïcødé 漢字 😀"), str("caf\xe9 \x80"), str("\xd6\xd0\xce\xc4 \xb1\xe0\xc2\xeb"), str("tt"), str("m\xfcsli"), str("   sp"),
			str("\x00\xff\x10"), str("\x01\x02"), str("\x00\xff\xfe\x80A"), Le(4, 1), Le(5, 1), Le(1, 1))},
		{"texts 3", texts, nil, cells(i4(3), str("quote \" back \\ slash / tab \t nl \n nul \x00 del ctl <&> u2028"), str(""), str(""), str(""), str(""), str(""),
			str(""), str(""), str(""), Le(2, 1), Le(0, 1), nil)},
		{"texts 6", texts, nil, cells(i4(6), str("bad enum"), nil, nil, nil, nil, nil, nil, nil, nil, Le(0, 1), Le(0, 1), nil)},
		{"docs 2", docs, nil, cells(i4(2), []byte{2, 0, 0, 4, 0})},
		{"docs 3", docs, nil, cells(i4(3), []byte{0x0c, 3, 's', 't', 'r'})},
		{"docs 4", docs, nil, cells(i4(4), []byte{4, 0})},
		{"docs 5", docs, nil, cells(i4(5), nil)},
		{"pairs insert", pairs, nil, pair(1, "x", 10)},
		{"pairs update", pairs, pair(1, "y", 11), pair(1, "y", 12)},
		{"pairs update b", pairs, pair(2, "x", 20), pair(2, "z", 20)},
		{"pairs update a", pairs, pair(1, "y", 12), pair(3, "y", 12)},
		{"pairs delete", pairs, pair(1, "x", 11), nil},
		{"nokey update", nokey, cells(i4(1), str("p")), cells(i4(1), str("q"))},
		{"nokey delete", nokey, cells(nil, nil), nil},
		{"geo 1", geo, nil, cells(i4(1), line, Point)},
		{"geo 2", geo, nil, cells(i4(2), nil, nil)},
	}
}
