package codectest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// An Edge is one value of a column: its bytes in the row image, and the text
// of its content as [event.Value.AppendText] defines it (bytes for byte strings).
type Edge struct {
	Raw  []byte
	Text string
}

// A Case is a column and the values that a codec has to carry.
type Case struct {
	Column event.Column
	Edges  []Edge
}

func f32(f float64) []byte { return Le(int64(math.Float32bits(float32(f))), 4) }
func f64(f float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)) }

func packed(y, mo, d, h, mi, s int64) []byte {
	return Be(0x8000000000+((y*13+mo)<<22|d<<17|h<<12|mi<<6|s), 5)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Point is SRID 0 and the WKB of POINT(1 2).
var Point = join(make([]byte, 4), []byte{1, 1, 0, 0, 0}, f64(1), f64(2))

// Awkward is text that JSON has to escape, and some that it does not.
const Awkward = "quote \" back \\ slash / tab \t nl \n cr \r nul \x00 esc \x1b del \x7f <&> é 漢字 😀 \u2028"

// jsonDoc is {"a": TEXT} in MySQL's binary form; TEXT shorter than 128 bytes.
func jsonDoc(text string) []byte {
	b := []byte{0x00, 1, 0, 0, 0, 11, 0, 1, 0, 0x0c, 12, 0, 'a', byte(len(text))}
	b = append(b, text...)
	copy(b[3:], Le(int64(len(b)-1), 2))
	return b
}

func members(n int) (m []string) {
	for i := range n {
		m = append(m, fmt.Sprintf("m%d", i+1))
	}
	return m
}

// Cases returns every class of column with its edge values.
func Cases() []Case {
	integer := func(name string, typ byte, size int, unsigned bool, values ...uint64) Case {
		c := Case{Column: event.Column{Name: name, Type: typ, Unsigned: unsigned}}
		for _, v := range values {
			text := fmt.Sprint(v)
			if !unsigned {
				text = fmt.Sprint(int64(v))
			}
			c.Edges = append(c.Edges, Edge{Le(int64(v), size), text})
		}
		return c
	}
	neg := func(n int64) uint64 { return uint64(n) }
	text := func(name string, typ byte, meta uint16, charset string) Case {
		return Case{Column: event.Column{Name: name, Type: typ, Meta: meta, Charset: charset}}
	}
	same := func(c Case, values ...string) Case {
		for _, v := range values {
			c.Edges = append(c.Edges, Edge{[]byte(v), v})
		}
		return c
	}
	with := func(c Case, edges ...Edge) Case {
		c.Edges = append(c.Edges, edges...)
		return c
	}
	simple := func(name string, typ byte, meta uint16, edges ...Edge) Case {
		return Case{event.Column{Name: name, Type: typ, Meta: meta}, edges}
	}
	all := func() []byte {
		b := make([]byte, 256)
		for i := range b {
			b[i] = byte(i)
		}
		return b
	}()
	enum := simple("e", TypeEnum, 1, Edge{[]byte{0}, ""}, Edge{[]byte{1}, "a"}, Edge{[]byte{2}, "b,c"}, Edge{[]byte{3}, `d'"e`}, Edge{[]byte{4}, "ü"})
	enum.Column.Members = []string{"a", "b,c", `d'"e`, "ü"}
	enum2 := simple("e2", TypeEnum, 2, Edge{[]byte{1, 0}, "m1"}, Edge{[]byte{0x2c, 1}, "m300"})
	enum2.Column.Members = members(300)
	set := simple("s", TypeSet, 1, Edge{[]byte{0}, ""}, Edge{[]byte{1}, `x"`}, Edge{[]byte{5}, `x",z`}, Edge{[]byte{7}, `x",y,z`})
	set.Column.Members = []string{`x"`, "y", "z"}
	set64 := simple("s64", TypeSet, 8, Edge{Le(1, 8), "m1"}, Edge{Le(math.MinInt64, 8), "m64"}, Edge{Le(-1, 8), strings.Join(members(64), ",")})
	set64.Column.Members = members(64)
	logical := func(name string, size uint16, l event.Logical, edges ...Edge) Case {
		return Case{event.Column{Name: name, Type: TypeString, Meta: size, Charset: "binary", Logical: l}, edges}
	}
	mariaJSON := text("mj", TypeBlob, 4, "utf8mb4")
	mariaJSON.Column.Logical = event.LogicalJSON
	boolean := integer("b1", TypeTiny, 1, false, 0, 1, 2, neg(-1))
	boolean.Column.Logical = event.LogicalBool

	return []Case{
		integer("ti", TypeTiny, 1, false, 0, 127, neg(-128)),
		integer("tiu", TypeTiny, 1, true, 0, 128, 200, 255),
		integer("si", TypeShort, 2, false, 0, 32767, neg(-32768)),
		integer("siu", TypeShort, 2, true, 0, 65535),
		integer("mi", TypeInt24, 3, false, 0, 8388607, neg(-8388608)),
		integer("miu", TypeInt24, 3, true, 0, 8388608, 16777215),
		integer("i", TypeLong, 4, false, 0, 2147483647, neg(-2147483648)),
		integer("iu", TypeLong, 4, true, 0, 2147483648, 4294967295),
		integer("bi", TypeLongLong, 8, false, 0, 9007199254740993, math.MaxInt64, neg(math.MinInt64)),
		integer("biu", TypeLongLong, 8, true, 0, 9223372036854775808, 9323372036854775807, math.MaxUint64),
		boolean,
		simple("f", TypeFloat, 4, Edge{f32(0), "0"}, Edge{f32(-1.5), "-1.5"}, Edge{f32(0.1), "0.1"}, Edge{f32(1), "1"},
			Edge{f32(3.4e38), "3.4e38"}, Edge{f32(1e-45), "1e-45"}, Edge{f32(345.678894), "345.6789"}, Edge{f32(16777216), "16777216"}),
		simple("d", TypeDouble, 8, Edge{f64(0), "0"}, Edge{f64(math.Copysign(0, -1)), "-0"}, Edge{f64(1e10), "10000000000"}, Edge{f64(1e21), "1e21"},
			Edge{f64(5e-324), "5e-324"}, Edge{f64(math.MaxFloat64), "1.7976931348623157e308"}, Edge{f64(0.1), "0.1"}, Edge{f64(1e-7), "0.0000001"}),
		simple("dc", TypeDecimal, 12<<8|2, Edge{[]byte{0x80, 0, 0, 0, 0, 0}, "0.00"}, Edge{[]byte{0x80, 0, 0, 0, 1, 10}, "1.10"},
			Edge{[]byte{0x7f, 0xff, 0xff, 0xff, 0xfe, 0xf5}, "-1.10"}),
		simple("dc0", TypeDecimal, 10<<8, Edge{[]byte{0x80, 0, 0, 0, 0}, "0"}, Edge{[]byte{0x7f, 0xff, 0xff, 0xff, 0xfe}, "-1"}),
		simple("dcs", TypeDecimal, 30<<8|30, Edge{join([]byte{0x80}, make([]byte, 12), []byte{1}), "0.000000000000000000000000000001"}),
		simple("bit1", TypeBit, 1, Edge{[]byte{0}, "0"}, Edge{[]byte{1}, "1"}),
		simple("bit9", TypeBit, 9, Edge{[]byte{1, 1}, "257"}, Edge{[]byte{1, 0xff}, "511"}),
		simple("bit33", TypeBit, 33, Edge{Be(1<<32, 5), "4294967296"}, Edge{Be(1<<33-1, 5), "8589934591"}),
		simple("bit64", TypeBit, 64, Edge{Be(1<<40, 8), "1099511627776"}, Edge{Be(math.MinInt64, 8), "9223372036854775808"}, Edge{Be(-1, 8), "18446744073709551615"}),
		simple("y", TypeYear, 0, Edge{[]byte{0}, "0000"}, Edge{[]byte{1}, "1901"}, Edge{[]byte{255}, "2155"}),
		simple("da", TypeDate, 0, Edge{Le(0, 3), "0000-00-00"}, Edge{Le(2024<<9, 3), "2024-00-00"}, Edge{Le(2024<<9|2<<5|29, 3), "2024-02-29"},
			Edge{Le(18<<9|4<<5|1, 3), "0018-04-01"}, Edge{Le(9999<<9|12<<5|31, 3), "9999-12-31"}),
		simple("t", TypeTime2, 0, Edge{Be(0x800000, 3), "00:00:00"}, Edge{Be(0x800000+(838<<12|59<<6|59), 3), "838:59:59"},
			Edge{Be(0x800000-(838<<12|59<<6|59), 3), "-838:59:59"}, Edge{Be(0x800000+24<<12, 3), "24:00:00"}),
		simple("t6", TypeTime2, 6, Edge{Be(0x800000000000-1, 6), "-00:00:00.000001"}, Edge{Be(0x800000000000, 6), "00:00:00.000000"},
			Edge{Be(0x800000000000-(12<<36|500000), 6), "-12:00:00.500000"}),
		simple("t2", TypeTime2, 2, Edge{Be(0x80000000-1, 4), "-00:00:00.01"}),
		simple("dt", TypeDatetime2, 0, Edge{packed(0, 0, 0, 0, 0, 0), "0000-00-00 00:00:00"}, Edge{packed(2024, 1, 0, 10, 0, 0), "2024-01-00 10:00:00"},
			Edge{packed(9999, 12, 31, 23, 59, 59), "9999-12-31 23:59:59"}),
		simple("dt3", TypeDatetime2, 3, Edge{join(packed(1969, 12, 31, 23, 59, 59), Be(9990, 2)), "1969-12-31 23:59:59.999"},
			Edge{join(packed(0, 0, 0, 0, 0, 0), Be(0, 2)), "0000-00-00 00:00:00.000"}),
		simple("ts", TypeTimestamp2, 0, Edge{Be(0, 4), "0000-00-00 00:00:00"}, Edge{Be(1, 4), "1970-01-01 00:00:01"}, Edge{Be(math.MaxInt32, 4), "2038-01-19 03:14:07"}),
		simple("ts6", TypeTimestamp2, 6, Edge{join(Be(1719792000, 4), Be(500000, 3)), "2024-07-01 00:00:00.500000"},
			Edge{join(Be(0, 4), Be(0, 3)), "0000-00-00 00:00:00.000000"}, Edge{join(Be(0, 4), Be(990000, 3)), "1970-01-01 00:00:00.990000"}),
		with(same(text("c", TypeString, 40, "utf8mb4"), "", "pad", "   sp", Awkward[:30]), Edge{[]byte("a\xffb"), "a\ufffdb"}),
		same(text("v", TypeVarchar, 800, "utf8mb4"), "", "plain", Awkward, strings.Repeat("x", 600)),
		with(text("l", TypeVarchar, 200, "latin1"), Edge{[]byte("caf\xe9 \x80 \"q\""), "café € \"q\""}, Edge{nil, ""}, Edge{[]byte("\x81"), "\u0081"}),
		with(text("g", TypeVarchar, 200, "gbk"), Edge{[]byte{0xd6, 0xd0, 0xce, 0xc4}, "中文"}),
		with(text("u2", TypeVarchar, 200, "ucs2"), Edge{[]byte{0x6f, 0x22, 0, '"'}, "漢\""}),
		same(text("tt", TypeBlob, 1, "utf8mb4"), "", "t", Awkward),
		same(text("lt", TypeBlob, 4, "utf8mb3"), "", strings.Repeat("漢字", 500)),
		with(text("ml", TypeBlob, 3, "latin1"), Edge{[]byte("m\xfcsli\n"), "müsli\n"}),
		with(text("bn", TypeString, 8, "binary"), Edge{nil, "\x00\x00\x00\x00\x00\x00\x00\x00"}, Edge{[]byte{1, 2}, "\x01\x02\x00\x00\x00\x00\x00\x00"}, Edge{[]byte("12345678"), "12345678"}),
		same(text("vb", TypeVarchar, 300, "binary"), "", "abc", "\x00\xff\x10", string(all), "trailing\x00\x00"),
		same(text("bl", TypeBlob, 2, "binary"), "", "blob", "\x00\xff\xfeA", string(all)),
		enum, enum2, set, set64,
		simple("j", TypeJSON, 4, Edge{jsonDoc("v"), `{"a": "v"}`}, Edge{nil, "null"}, Edge{[]byte{4, 1}, "true"}, Edge{[]byte{0x0c, 3, 's', 't', 'r'}, `"str"`},
			Edge{jsonDoc("\"\\\n\x01é😀"), `{"a": "\"\\\n\u0001é😀"}`}, Edge{[]byte{2, 0, 0, 4, 0}, "[]"}, Edge{join([]byte{0x0b}, f64(1)), "1.0"}, Edge{join([]byte{0x0a}, Le(-1, 8)), "18446744073709551615"}),
		same(mariaJSON, `{"b":1,"a":[1, 2.5]}`, `"str"`, "null", "[\n1]", "no json", `{"k":"é\n"}`),
		simple("geo", TypeGeometry, 4, Edge{Point, string(Point)}, Edge{nil, ""}),
		simple("vec", TypeVector, 4, Edge{join(f32(1), f32(2.5), f32(-3)), "[1,2.5,-3]"}, Edge{nil, "[]"}),
		logical("uu", 16, event.LogicalUUID, Edge{[]byte{0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x55, 0x44}, "123e4567-e89b-12d3-a456-426655440000"}),
		logical("i4", 4, event.LogicalINET4, Edge{[]byte{10, 0, 0, 1}, "10.0.0.1"}, Edge{[]byte{10}, "10.0.0.0"}),
		logical("i6", 16, event.LogicalINET6, Edge{join([]byte{0x20, 1, 0x0d, 0xb8}, make([]byte, 11), []byte{1}), "2001:db8::1"}),
		with(text("pk", TypePackedBlob, 2, "utf8mb4"), Edge{[]byte("\x00pack \"me\""), "pack \"me\""}, Edge{nil, ""}),
		with(text("pb", TypePackedBlob, 2, "binary"), Edge{[]byte("\x00\xff\x00"), "\xff\x00"}),
	}
}

// Table returns a compiled table of one column per case, behind its key: id
// BIGINT and k VARCHAR(20), in the order k, id.
func Table(t testing.TB, cases ...Case) *event.Table {
	tab := &event.Table{Schema: "edge", Name: "ta\"ble", Key: []int{1, 0}, Columns: []event.Column{
		{Name: "id", Type: TypeLongLong}, {Name: "K", Type: TypeVarchar, Meta: 80, Charset: "utf8mb4"},
	}}
	for _, c := range cases {
		col := c.Column
		col.Nullable = true
		tab.Columns = append(tab.Columns, col)
	}
	return Compile(t, tab)
}
