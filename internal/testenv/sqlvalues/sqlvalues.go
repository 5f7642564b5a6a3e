// Package sqlvalues lists the column types of MySQL and MariaDB with literals of their edge values, for tests that
// hold what the log says against what the server shows.
package sqlvalues

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Column is a declared column and literals of its values.
type Column struct {
	Name, Decl string
	Edges      []string
	Random     func(r *rand.Rand) string // a literal; nil: Edges are all
	Generated  bool                      // the server computes it: no INSERT or UPDATE may name it
	Key        bool                      // may be part of a primary key of several columns
}

// Pick returns one of the strings.
func Pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// Quote returns a string literal.
func Quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// Session is what a session that writes the literals runs first. It takes values that a type cannot hold as
// the server bends them.
func Session(kind string) []string {
	out := []string{"SET NAMES utf8mb4", "SET time_zone='+00:00'", "SET sql_mode='ALLOW_INVALID_DATES'", "SET SESSION group_concat_max_len=10000000"}
	if kind == "mysql" {
		out = append(out, "SET SESSION cte_max_recursion_depth=100000")
	}
	return out
}

func hexLiteral(r *rand.Rand, max int) string {
	b := make([]byte, r.IntN(max+1))
	for i := range b {
		b[i] = byte(r.Uint32())
		if r.IntN(4) == 0 {
			b[i] = 0
		}
	}
	return "x'" + hex.EncodeToString(b) + "'"
}

func integers() (out []Column) {
	for _, x := range []struct {
		name string
		bits uint
	}{{"tinyint", 8}, {"smallint", 16}, {"mediumint", 24}, {"int", 32}, {"bigint", 64}} {
		low, high, top := -(int64(1) << (x.bits - 1)), int64(1)<<(x.bits-1)-1, uint64(math.MaxUint64)>>(64-x.bits)
		bits := strconv.Itoa(int(x.bits))
		out = append(out,
			Column{Name: x.name[:1] + bits, Decl: x.name, Edges: []string{"0", "-1", fmt.Sprint(low), fmt.Sprint(high)},
				Random: func(r *rand.Rand) string { return fmt.Sprint(int64(r.Uint64()) >> (64 - x.bits)) }, Key: true},
			// A YEAR between numbers counts among them where the log tells their signs.
			Column{Name: "y" + bits, Decl: "year", Edges: []string{"0", "1901", "2155", "2025"},
				Random: func(r *rand.Rand) string { return fmt.Sprint(1901 + r.IntN(255)) }, Key: true},
			Column{Name: "u" + bits, Decl: x.name + " unsigned", Edges: []string{"0", "1", fmt.Sprint(top), fmt.Sprint(top/2 + 1)},
				Random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> (64 - x.bits)) }, Key: true})
	}
	return append(out,
		Column{Name: "bool", Decl: "tinyint(1)", Edges: []string{"0", "1", "2", "-1"}, Random: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(3)) }},
		Column{Name: "zf", Decl: "int(8) unsigned zerofill", Edges: []string{"0", "42", "4294967295"}, Random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint32()) }})
}

func decimals() (out []Column) {
	digits := func(r *rand.Rand, n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(byte('0' + r.IntN(10)*r.IntN(2)))
		}
		return b.String()
	}
	for _, d := range [][2]int{{1, 0}, {1, 1}, {5, 0}, {9, 9}, {10, 0}, {12, 2}, {18, 6}, {18, 9}, {20, 19}, {30, 30}, {65, 0}, {65, 30}, {38, 17}} {
		p, s := d[0], d[1]
		nines := strings.Repeat("9", p-s) + "." + strings.Repeat("9", s)
		out = append(out, Column{Name: fmt.Sprintf("d%d_%d", p, s), Decl: fmt.Sprintf("decimal(%d,%d)", p, s),
			Edges: []string{"0", "-0.0", nines, "-" + nines, "0." + strings.Repeat("0", max(s-1, 0)) + "1", "-0." + strings.Repeat("0", max(s-1, 0)) + "1", "1.10"},
			Random: func(r *rand.Rand) string {
				return Pick(r, "", "-") + "0" + digits(r, r.IntN(p-s+1)) + "." + digits(r, s)
			}, Key: true})
	}
	return append(out, Column{Name: "du", Decl: "decimal(12,4) unsigned", Edges: []string{"0", "99999999.9999", "0.5"},
		Random: func(r *rand.Rand) string { return "0" + digits(r, 8) + "." + digits(r, 4) }})
}

// Temporals lists the types of dates and times with all numbers of fraction digits.
func Temporals(kind string) (out []Column) {
	frac := func(r *rand.Rand, fsp int) string {
		if fsp == 0 {
			return ""
		}
		return fmt.Sprintf(".%0*d", fsp, r.IntN(int(math.Pow10(fsp)))*r.IntN(2))
	}
	for fsp := range 7 {
		suffix, nines, one := "", "", ""
		if fsp > 0 {
			suffix, nines = fmt.Sprintf("(%d)", fsp), "."+strings.Repeat("9", fsp)
			one = "." + strings.Repeat("0", fsp-1) + "1"
		}
		stamps := []string{"'0000-00-00 00:00:00'", "'2038-01-19 03:14:07" + nines + "'", "'1970-01-01 00:00:01'", "'2000-02-29 23:59:59" + one + "'",
			"'2024-07-01 12:00:00'", "'2024-12-31 23:59:59" + nines + "'"}
		if kind == "mariadb11" {
			stamps = append(stamps, "'2106-02-07 06:28:15"+nines+"'", "'2038-01-19 03:14:08'")
		}
		out = append(out,
			Column{Name: fmt.Sprintf("time%d", fsp), Decl: "time" + suffix,
				Edges: []string{"'00:00:00'", "'-838:59:59'", "'838:59:59'", "'-838:59:58" + nines + "'", "'838:59:58" + nines + "'", "'-00:00:00" + one + "'", "'-00:00:01'", "'100:00:00'",
					"'24:00:00'", "'-12:34:56" + nines + "'", "'-00:00:01" + one + "'", "'-16:08:04" + nines + "'"},
				Random: func(r *rand.Rand) string {
					return fmt.Sprintf("'%s%02d:%02d:%02d%s'", Pick(r, "", "-"), r.IntN(838), r.IntN(60), r.IntN(60), frac(r, fsp))
				}, Key: true},
			Column{Name: fmt.Sprintf("datetime%d", fsp), Decl: "datetime" + suffix,
				Edges: []string{"'0000-00-00 00:00:00'", "'9999-12-31 23:59:59" + nines + "'", "'2024-02-00 10:11:12" + one + "'", "'2000-00-00 00:00:00'", "'0000-01-01 00:00:00'",
					"'1969-12-31 23:59:59'", "'0001-01-01 00:00:00" + one + "'", "'2023-02-31 01:02:03'"},
				Random: func(r *rand.Rand) string {
					return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d%s'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), frac(r, fsp))
				}, Key: true},
			Column{Name: fmt.Sprintf("timestamp%d", fsp), Decl: "timestamp" + suffix, Edges: stamps,
				Random: func(r *rand.Rand) string {
					return "'" + time.Unix(1+r.Int64N(math.MaxInt32), 0).UTC().Format("2006-01-02 15:04:05") + frac(r, fsp) + "'"
				}, Key: true})
	}
	return append(out,
		Column{Name: "da", Decl: "date", Edges: []string{"'0000-00-00'", "'9999-12-31'", "'2000-00-00'", "'2024-02-00'", "'0000-01-01'", "'0018-04-01'", "'0001-01-01'", "'2023-02-31'", "'1582-10-10'"},
			Random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%04d-%02d-%02d'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28))
			}, Key: true})
}

// Letters holds characters of each character set that go beyond ASCII. A set that is not here has "az".
var Letters = map[string]string{
	"utf8mb4": "a€中😀\u00e9\x00\x7f", "utf8mb3": "a€中é", "utf8": "a€中é", "latin1": "aé€ÿ“”", "latin2": "ąŁž", "latin5": "ğİş", "latin7": "ąēģ",
	"gbk": "中文囧", "gb2312": "中文", "gb18030": "中文😀鿃", "big5": "中文許", "sjis": "日本ア語ｱ", "cp932": "日本①髙", "ujis": "日本語〆ｱ", "eucjpms": "日本①髙",
	"euckr": "한국어", "greek": "αβγ", "hebrew": "אבג", "cp1250": "čřž", "cp1251": "яЖ", "cp1256": "عرب", "cp1257": "ąē", "cp850": "éÿ",
	"cp852": "čř", "cp866": "яЖ", "koi8r": "яЖ", "koi8u": "їЄ", "ucs2": "a中é", "utf16": "a😀中", "utf16le": "a😀中", "utf32": "a😀中",
	"tis620": "กขค", "macroman": "éÄ", "macce": "čř", "keybcs2": "čř", "dec8": "éÄ", "hp8": "éÄ", "swe7": "ÄÖåaz", "armscii8": "աբգ", "geostd8": "აბგ", "ascii": "az",
}

// A Charset is a line of information_schema.CHARACTER_SETS.
type Charset struct {
	Name string

	MaxLen int // bytes of the longest character
}

// Characters lists columns of each character set: VARCHAR, CHAR and TEXT, with all bytes where a character is one byte, and
// ENUM and SET whose labels are written in it.
func Characters(kind string, sets []Charset) (out []Column) {
	for _, cs := range sets {
		letters := Letters[cs.Name]
		if letters == "" {
			letters = "az"
		}
		runes := []rune(letters)
		text := func(r *rand.Rand) string {
			s := make([]rune, r.IntN(20))
			for i := range s {
				s[i] = runes[r.IntN(len(runes))]
			}
			return Quote(string(s))
		}
		edges := []string{"''", Quote(letters), Quote(" " + letters + "  ")}
		if cs.MaxLen == 1 {
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			edges = append(edges, "_"+cs.Name+" x'"+hex.EncodeToString(all)+"'", "_"+cs.Name+" x'c3a9e4b8ad'") // which would be UTF-8
		}
		labels := fmt.Sprintf("(%s,'b',%s) character set %s", Quote(string(runes[len(runes)-1])), Quote(string(runes[0])+"b"), cs.Name)
		out = append(out,
			Column{Name: "v_" + cs.Name, Decl: "varchar(300) character set " + cs.Name, Edges: edges, Random: text},
			Column{Name: "c_" + cs.Name, Decl: "char(20) character set " + cs.Name, Edges: edges[:3], Random: text, Key: cs.MaxLen < 4},
			Column{Name: "t_" + cs.Name, Decl: "text character set " + cs.Name, Edges: edges, Random: text})
		if old := kind == "mysql56" || kind == "mariadb102"; old && (strings.HasPrefix(cs.Name, "utf16") || cs.Name == "ucs2" || cs.Name == "utf32") {
			continue // these servers spoil the labels themselves
		}
		out = append(out,
			Column{Name: "e_" + cs.Name, Decl: "enum" + labels, Edges: []string{"1", "2", "3", "'no label'"}, Random: func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(3)) }},
			Column{Name: "s_" + cs.Name, Decl: "set" + labels, Edges: []string{"0", "5", "7", "2"}, Random: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(8)) }})
	}
	return out
}

// Bits lists BIT columns of these widths.
func Bits(widths ...int) (out []Column) {
	for _, n := range widths {
		top := uint64(math.MaxUint64) >> (64 - n)
		out = append(out, Column{Name: fmt.Sprintf("b%d", n), Decl: fmt.Sprintf("bit(%d)", n), Edges: []string{"0", fmt.Sprint(top), fmt.Sprint(top/2 + 1), "1"},
			Random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() & top) }, Key: n < 64})
	}
	return out
}

func members(n int) string {
	var l []string
	for i := range n {
		l = append(l, fmt.Sprintf("'m%d'", i+1))
	}
	return strings.Join(l, ",")
}

func sets(sizes ...int) (out []Column) {
	for _, n := range sizes {
		top := uint64(math.MaxUint64) >> (64 - n)
		out = append(out, Column{Name: fmt.Sprintf("s%d", n), Decl: "set(" + members(n) + ")", Edges: []string{"''", fmt.Sprint(top), fmt.Sprint(top/2 + 1), "1", "'no label'"},
			Random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() & top) }, Key: n < 30})
	}
	return out
}

// Columns lists the types of a server of a kind of testenv, but for [Characters].
func Columns(kind string) []Column {
	out := append(integers(), decimals()...)
	out = append(out, Temporals(kind)...)
	ascii := func(max int) func(r *rand.Rand) string {
		return func(r *rand.Rand) string { return Quote(strings.Repeat(Pick(r, "x", "y", "é"), r.IntN(max+1))) }
	}
	bytes := func(max int) func(r *rand.Rand) string {
		return func(r *rand.Rand) string { return hexLiteral(r, max) }
	}
	out = append(out,
		Column{Name: "f", Decl: "float", Edges: []string{"0", "1.5", "3.4e38", "-1.17e-38", "0.1", "16777216", "1e15", "1e16", "1e-15", "1e-45", "345.678894", "1e10", "-3.4028234e38", "16777217", "0.30000001"},
			Random: func(r *rand.Rand) string {
				return fmt.Sprintf("%.9e", (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(70)-35)))
			}, Key: true},
		Column{Name: "fu", Decl: "float unsigned", Edges: []string{"0", "1.1"}, Random: func(r *rand.Rand) string { return fmt.Sprintf("%.9e", r.Float64()) }},
		Column{Name: "fm", Decl: "float(7,4)", Edges: []string{"0", "1.5", "-999.9999"}, Random: func(r *rand.Rand) string { return fmt.Sprintf("%.4f", r.Float64()*999) }},
		Column{Name: "db", Decl: "double", Edges: []string{"0", "1.5", "1.7976931348623157e308", "2.2250738585072014e-308", "1e15", "123456789012345", "1e-15", "1e-16", "0.1", "-1.2345678901234567e-14", "4.9e-324", "1e100", "1e-300", "1e21", "9007199254740993"},
			Random: func(r *rand.Rand) string {
				return fmt.Sprintf("%.17e", (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(600)-300)))
			}, Key: true},
		Column{Name: "dm", Decl: "double(12,3)", Edges: []string{"0", "1.5", "-999999999.999"}, Random: func(r *rand.Rand) string { return fmt.Sprintf("%.3f", r.Float64()*1e9) }},
		Column{Name: "ch", Decl: "char(10)", Edges: []string{"''", "'a'", "'äöü'", "'  sp  '"}, Random: ascii(10), Key: true},
		Column{Name: "ch63", Decl: "char(63)", Edges: []string{"''", "repeat('😀',63)"}, Random: ascii(63)},
		Column{Name: "ch64", Decl: "char(64)", Edges: []string{"''", "repeat('😀',64)"}, Random: ascii(64)},
		Column{Name: "chl", Decl: "char(255) character set utf8mb4", Edges: []string{"''", "repeat('😀',255)"}, Random: ascii(255)},
		Column{Name: "chm", Decl: "char(200) character set utf8mb4", Edges: []string{"''", "repeat('é',200)"}, Random: ascii(200)},
		Column{Name: "v0", Decl: "varchar(0)", Edges: []string{"''"}, Random: ascii(0)},
		Column{Name: "v63", Decl: "varchar(63)", Edges: []string{"''", "repeat('😀',63)", "'sp  '"}, Random: ascii(63)},
		Column{Name: "v64", Decl: "varchar(64)", Edges: []string{"''", "repeat('😀',64)"}, Random: ascii(64)},
		Column{Name: "v255", Decl: "varchar(255) character set latin1", Edges: []string{"''", "repeat('é',255)"}, Random: ascii(255)},
		Column{Name: "v256", Decl: "varchar(256) character set latin1", Edges: []string{"''", "repeat('é',256)"}, Random: ascii(256)},
		Column{Name: "vbin", Decl: "varchar(20) collate utf8mb4_bin", Edges: []string{"''", "'é😀 '"}, Random: ascii(20)},
		Column{Name: "bi", Decl: "binary(16)", Edges: []string{"''", "x'00112233445566778899aabbccddee00'", "x'ff'", "x'00112233445566778899aabbccdd0000'", "x'000000ff'"}, Random: bytes(16), Key: true},
		Column{Name: "bi255", Decl: "binary(255)", Edges: []string{"''", "repeat(x'41',255)"}, Random: bytes(255)},
		Column{Name: "vb", Decl: "varbinary(300)", Edges: []string{"''", "x'0100'", "x'00ff80'", "x'e68891'", "repeat(x'00',300)"}, Random: bytes(300)},
		Column{Name: "vb9", Decl: "varbinary(9)", Edges: []string{"''", "x'0100'", "x'00'", "x'20'"}, Random: bytes(9), Key: true},
		Column{Name: "tt", Decl: "tinytext", Edges: []string{"''", "repeat('é',127)"}, Random: ascii(100)},
		Column{Name: "tx", Decl: "text character set latin1", Edges: []string{"''", "repeat('é',60000)"}, Random: ascii(300)},
		Column{Name: "mt", Decl: "mediumtext", Edges: []string{"''", "repeat('x',70000)", Quote("quote \" back \\ slash / tab \t nl \n cr \r nul \x00 esc \x1b del \x7f <&> \u2028 \u2029 \ufeff")}, Random: ascii(300)},
		Column{Name: "lt", Decl: "longtext", Edges: []string{"''", "'null'", "'NULL'"}, Random: ascii(300)},
		Column{Name: "tb", Decl: "tinyblob", Edges: []string{"''", "repeat(x'ff',255)"}, Random: bytes(255)},
		Column{Name: "bl", Decl: "blob", Edges: []string{"''", "x'e68891'", "x'00ff80'"}, Random: bytes(300)},
		Column{Name: "mb", Decl: "mediumblob", Edges: []string{"''", "repeat(x'8000',40000)"}, Random: bytes(300)},
		Column{Name: "lb", Decl: "longblob", Edges: []string{"''", "x'00ff80'"}, Random: bytes(300)},
		Column{Name: "en", Decl: `enum('a,b','it''s','','0','1','back\\slash','"') character set latin1`, Edges: []string{"'a,b'", "'it''s'", "'0'", "'nothing'", "1", "''", "6", "7"}, Random: func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(7)) }, Key: true},
		Column{Name: "eg", Decl: `enum('中','é') character set utf8mb4`, Edges: []string{"1", "2"}, Random: func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(2)) }},
		Column{Name: "e255", Decl: "enum(" + members(255) + ")", Edges: []string{"1", "255"}, Random: func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(255)) }},
		Column{Name: "el", Decl: "enum(" + members(300) + ")", Edges: []string{"1", "255", "256", "300", "'nothing'"}, Random: func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(300)) }, Key: true},
		Column{Name: "s0", Decl: `set('','x','y')`, Edges: []string{"0", "1", "7", "6", "3"}, Random: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(8)) }},
		Column{Name: "se", Decl: `set('x','it''s','"z')`, Edges: []string{"''", "7", "5"}, Random: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(8)) }},
	)
	out = append(out, sets(1, 8, 9, 17, 25, 33, 64)...)
	geometries := []string{"'POINT(1 2)'", "'LINESTRING(0 0,1 1.5)'", "'POLYGON((0 0,0 3,3 3,3 0,0 0),(1 1,1 2,2 2,2 1,1 1))'", "'MULTIPOINT(1 1,2 2)'",
		"'MULTILINESTRING((0 0,1 1),(2 2,3 3))'", "'MULTIPOLYGON(((0 0,0 3,3 3,3 0,0 0)))'", "'GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))'"}
	for i, g := range geometries {
		geometries[i] = "ST_GeomFromText(" + g + ")"
	}
	out = append(out,
		Column{Name: "ge", Decl: "geometry", Edges: append(geometries, "ST_GeomFromText('POINT(10 20)',4326)", "ST_GeomFromText('POINT(0 0)',3857)"), Random: func(r *rand.Rand) string {
			return fmt.Sprintf("ST_GeomFromText('LINESTRING(%d 1,2 %d)',4326)", r.IntN(80), r.IntN(80))
		}},
		Column{Name: "pt", Decl: "point", Edges: []string{"ST_GeomFromText('POINT(-1 0)')"}})
	out = append(out, Bits(1, 8, 9, 17, 33, 64)...)
	switch kind {
	case "mysql56", "mariadb102":
	case "mysql":
		out = append(out,
			Column{Name: "js", Decl: "json", Edges: JSON, Random: RandomJSON},
			Column{Name: "ve", Decl: "vector(4)", Edges: []string{"TO_VECTOR('[1,2.5,-3e10,0.1]')", "TO_VECTOR('[0]')", "TO_VECTOR('[1.05,-17.8,32]')"}, Random: func(r *rand.Rand) string {
				return fmt.Sprintf("TO_VECTOR('[%v,%v]')", r.Float32(), r.Float32()*1e20)
			}},
			// Behind a VECTOR, which counts among the columns with a character set.
			Column{Name: "afterve", Decl: "varchar(20) character set latin1", Edges: []string{"'é€'"}, Random: ascii(20)},
			Column{Name: "psrid", Decl: "point srid 4326", Edges: []string{"ST_GeomFromText('POINT(10 20)',4326)"}})
	default:
		out = append(out,
			Column{Name: "js", Decl: "json", Edges: []string{`'{"a": 1}'`, "'[]'", `'{"b": 1,  "a": [1.0, 1e2]}'`}, Random: func(r *rand.Rand) string { return fmt.Sprintf(`'{"k":%d}'`, r.IntN(1000)) }},
			Column{Name: "uu", Decl: "uuid", Edges: []string{"'00112233-4455-1677-8899-aabbccddee00'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'6ccd780c-baba-1026-9564-5b8c656024db'", "'00112233-4455-4677-8899-aabbccdd0000'"},
				Random: func(r *rand.Rand) string { return "UUID()" }, Key: true},
			Column{Name: "i4", Decl: "inet4", Edges: []string{"'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'", "'10.1.0.0'"}, Random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%d.%d.%d.%d'", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
			}, Key: true},
			Column{Name: "i6", Decl: "inet6", Edges: []string{"'::'", "'::1'", "'1::'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'1:0:2:3:4:5:6:7'", "'1:0:0:2:0:0:0:3'", "'1:0:0:2:3:0:0:4'", "'fe80::1:0:0:0'", "'0:1:2:3:4:5:6:7'", "'::ffff:0:1'", "'::2:0:0'", "'0:0:0:0:1:ffff:0:0'", "'::0.0.0.1'", "'::0.1.0.0'"},
				Random: func(r *rand.Rand) string {
					var w []string
					for range 8 {
						w = append(w, strconv.FormatUint(uint64(r.IntN(65536)*r.IntN(2)), 16))
					}
					return "'" + strings.Join(w, ":") + "'"
				}, Key: true},
			Column{Name: "cv", Decl: "varchar(1000) compressed character set latin1", Edges: []string{"''", "'é'", "repeat('é',1000)"}, Random: ascii(1000)},
			Column{Name: "cvb", Decl: "varbinary(200) compressed", Edges: []string{"''", "x'00'", "repeat(x'00',200)"}, Random: bytes(200)},
			Column{Name: "ct", Decl: "text compressed", Edges: []string{"''", "'é'", "repeat('é',30000)"}, Random: ascii(1000)},
			Column{Name: "cm", Decl: "mediumblob compressed", Edges: []string{"''", "repeat(x'00',100000)"}, Random: bytes(1000)},
			// Behind COMPRESSED columns, which count among those with a character set.
			Column{Name: "aftercm", Decl: "varchar(20) character set latin1", Edges: []string{"'é€'"}, Random: ascii(20)})
		if kind == "mariadb11" {
			out = append(out, Column{Name: "ve", Decl: "vector(3)", Edges: []string{"VEC_FromText('[1.5,-17.75,0]')"},
				Random: func(r *rand.Rand) string { return fmt.Sprintf("VEC_FromText('[%v,0,1]')", r.Float32()) }})
		}
	}
	return out
}

// Forms lists columns that are more than their type: computed by the server, or left out of SELECT *. They refer to a column
// a of type INT and a column s of type VARCHAR(20).
func Forms(kind string) []Column {
	if kind == "mysql56" {
		return nil
	}
	stored := "STORED"
	if kind == "mariadb102" {
		stored = "PERSISTENT"
	}
	out := []Column{
		{Name: "gv", Decl: "bigint AS (a*2) VIRTUAL", Generated: true},
		{Name: "gs", Decl: "varchar(40) AS (concat(s,'/',s)) " + stored, Generated: true},
		{Name: "gd", Decl: "decimal(20,3) AS (a/8) VIRTUAL", Generated: true},
		{Name: "ga", Decl: "int AS (a+1) " + stored, Generated: true},
	}
	if kind == "mysql" || kind != "mariadb102" {
		out = append(out, Column{Name: "inv", Decl: "int INVISIBLE", Edges: []string{"4", "-4"}})
	}
	return slices.Clone(out)
}

// JSON are expressions of MySQL's JSON documents: all that its binary form distinguishes.
var JSON = []string{
	`'{}'`, `'[]'`, `'null'`, `'true'`, `'false'`, `'0'`, `'-1'`, `'""'`, `'"\\u0001\\b\\f\\n\\r\\t\\"\\\\/é😀\\u007f"'`,
	`'{"rate":{"":0}}'`, `'{"todo":{"complete":false,"n":null,"t":true}}'`, `'[1.0,-0.0,1e15,1e100,1e-16,1.5,100000000000000.0]'`,
	`'[32767,32768,-32768,-32769,65535,65536,2147483647,2147483648,-2147483648,-2147483649,4294967295,4294967296,9223372036854775807,-9223372036854775808,18446744073709551615,18446744073709551616]'`,
	`JSON_ARRAY(1.10,-1.10,CAST(0 AS DECIMAL(5,3)),CAST('99999999999999999999999999999999999.123456789012345678901234567890' AS DECIMAL(65,30)))`,
	`JSON_ARRAY(CAST('-838:59:59' AS TIME),CAST('-00:00:00.000001' AS TIME(6)),CAST('100:00:00' AS TIME),CAST('2020-01-02' AS DATE),CAST('2020-01-02 03:04:05.123' AS DATETIME(3)),CAST('0000-00-00' AS DATE))`,
	`JSON_OBJECT('b',CAST(REPEAT('y',120) AS BINARY),'e',CAST(REPEAT('z',57) AS BINARY),'x',b'101','n',x'','g',CAST(REPEAT('z',58) AS BINARY))`,
	`CAST(CAST('2020-01-02 03:04:05' AS DATETIME) AS JSON)`, `CAST(1.5 AS JSON)`, `CAST(x'cafe' AS JSON)`,
	`JSON_OBJECT('big',REPEAT('x',70000),'small',1,'neg',-100000,'lit',true)`,
	`(SELECT CAST(CONCAT('[',GROUP_CONCAT(n),']') AS JSON) FROM (WITH RECURSIVE s(n) AS (SELECT -10 UNION ALL SELECT n+17 FROM s WHERE n<340000) SELECT n FROM s) q)`,
	`CAST(CONCAT(REPEAT('[',90),REPEAT(']',90)) AS JSON)`,
	`'{"b":1,"a":2,"aa":3,"":4,"é":5}'`, `'{"a":"b","c":"d","ab":"0123456789","bc":["x","y"]}'`,
}

// RandomJSON returns a literal of a document of MySQL's.
func RandomJSON(r *rand.Rand) string {
	var value func(depth int) string
	value = func(depth int) string {
		n := r.IntN(9)
		if depth > 3 {
			n = r.IntN(7)
		}
		switch n {
		case 0:
			return Pick(r, "null", "true", "false")
		case 1:
			return fmt.Sprint(int64(r.Uint64()) >> r.IntN(64))
		case 2:
			return fmt.Sprint(r.Uint64() >> r.IntN(64))
		case 3:
			return fmt.Sprintf("%.*e", r.IntN(17), (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(60)-30)))
		case 4, 5, 6:
			return strconv.Quote(strings.Repeat(Pick(r, "a", "é", "😀", `\`, `"`, "\n", "\t"), r.IntN(300)))
		}
		var parts []string
		for i := range r.IntN(8) {
			v := value(depth + 1)
			if n == 8 {
				v = fmt.Sprintf(`"k%d%s":%s`, i, strings.Repeat("x", r.IntN(3)), v)
			}
			parts = append(parts, v)
		}
		if n == 8 {
			return "{" + strings.Join(parts, ",") + "}"
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return Quote(value(0))
}

// CharsetsQuery asks a server for what Charsets takes.
const CharsetsQuery = "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME<>'binary' ORDER BY 1"

// Charsets reads the answer to CharsetsQuery.
func Charsets(rows [][]string) (out []Charset) {
	for _, r := range rows {
		n, _ := strconv.Atoi(r[1]) // a number, as the server says
		out = append(out, Charset{Name: r[0], MaxLen: n})
	}
	return out
}

// A Table holds the edge values of its columns, a row each, behind a column id from 1 and a column touched, which is 0.
type Table struct {
	Name    string
	Columns []Column
	Keyed   bool     // they are the primary key, behind id; else id is
	Images  []string // settings of binlog_row_image that are worth a try, besides FULL
	Rows    int
}

// Tables spreads all columns of a server of a kind, with these character sets, over tables.
func Tables(kind string, sets []Charset) (out []*Table) {
	add := func(name string, n int, images []string, keyed bool, cols []Column) {
		for i := 0; len(cols) > 0; i++ {
			n := min(n, len(cols))
			out = append(out, &Table{Name: fmt.Sprintf("%s%d", name, i), Columns: cols[:n:n], Keyed: keyed, Images: images})
			cols = cols[n:]
		}
	}
	images := []string{"MINIMAL", "NOBLOB"}
	if kind == "mariadb11" || kind == "mariadb114" {
		images = []string{"MINIMAL", "FULL_NODUP"}
	}
	plain := Columns(kind)
	characters := Characters(kind, sets)
	var widths []int
	for n := 1; n <= 64; n++ {
		if !slices.Contains([]int{1, 8, 9, 17, 33, 64}, n) {
			widths = append(widths, n)
		}
	}
	var keys []Column
	for _, c := range slices.Concat(plain, characters) {
		if c.Key {
			keys = append(keys, c)
		}
	}
	add("plain", 40, images, false, plain)
	add("chars", 40, nil, false, characters)
	add("bits", 60, nil, false, Bits(widths...))
	add("keys", 8, images, true, keys)
	if forms := Forms(kind); forms != nil {
		forms = append([]Column{{Name: "a", Decl: "int", Edges: []string{"8", "-1"}}, {Name: "s", Decl: "varchar(20)", Edges: []string{"''", "'é'"}}}, forms...)
		add("forms", 40, images, false, forms)
	}
	for _, t := range out {
		for _, c := range t.Columns {
			t.Rows = max(t.Rows, len(c.Edges))
		}
		t.Rows++ // of NULLs
	}
	return out
}

// All are the table's columns, id first.
func (t *Table) All() []Column {
	return append([]Column{{Name: "id", Decl: "int"}, {Name: "touched", Decl: "int"}}, t.Columns...)
}

// Written are the names of the columns that statements may write.
func (t *Table) Written() (names []string) {
	for _, c := range t.All() {
		if !c.Generated {
			names = append(names, "`"+c.Name+"`")
		}
	}
	return names
}

// Create is the statement that makes the table.
func (t *Table) Create(db string) string {
	decl := []string{"id int not null", "touched int null"}
	key := []string{"id"}
	for _, c := range t.Columns {
		null := " null"
		switch {
		case c.Generated:
			null = ""
		case t.Keyed:
			null = " not null"
			if strings.HasPrefix(c.Decl, "timestamp") {
				null += " default '2000-01-01 00:00:00'"
			}
			key = append(key, "`"+c.Name+"`")
		}
		decl = append(decl, "`"+c.Name+"` "+c.Decl+null)
	}
	decl = append(decl, "primary key ("+strings.Join(key, ",")+")")
	return fmt.Sprintf("CREATE TABLE %s.%s (%s) CHARACTER SET utf8mb4", db, t.Name, strings.Join(decl, ","))
}

// Insert is the statement that fills the table.
func (t *Table) Insert(db string) string {
	var rows []string
	for i := range t.Rows {
		row := []string{fmt.Sprint(i + 1), "0"}
		for _, c := range t.Columns {
			switch {
			case c.Generated:
			case i == t.Rows-1 && !t.Keyed:
				row = append(row, "NULL")
			default:
				row = append(row, c.Edges[i%len(c.Edges)])
			}
		}
		rows = append(rows, "("+strings.Join(row, ",")+")")
	}
	return fmt.Sprintf("INSERT INTO %s.%s (%s) VALUES %s", db, t.Name, strings.Join(t.Written(), ","), strings.Join(rows, ","))
}

// typeOf is the type's name in lower case: "varchar" of "VARCHAR(20) COMPRESSED".
func typeOf(decl string) string {
	return strings.ToLower(strings.FieldsFunc(decl, func(r rune) bool { return r == ' ' || r == '(' })[0])
}

// Shown is the SQL expression of what a server of a kind shows of a column, in hex so that nothing on the way touches it: text in
// UTF-8, the bytes of byte strings, BIT and ZEROFILL as numbers, FLOAT as the 64-bit number that it is, since SELECT rounds it.
func Shown(kind, name, decl string) string {
	name = "`" + name + "`"
	switch typeOf(decl) {
	case "bit":
		return "HEX(CAST(" + name + "+0 AS CHAR))"
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point":
		return "HEX(" + name + ")"
	case "vector":
		if kind != "mysql" {
			return "HEX(VEC_ToText(" + name + "))"
		}
		return "HEX(VECTOR_TO_STRING(" + name + "))"
	case "float":
		name += "+0e0" // more digits than a FLOAT needs, in 22 characters
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return "HEX(CONVERT(" + name + " USING utf8mb4))"
	}
	if strings.Contains(decl, "zerofill") {
		name += "+0"
	}
	return "HEX(CAST(" + name + " AS CHAR))"
}

// Same tells whether a text of ours is what the server shows in its own words: numbers of floating point
// are the same number, and ours the shortest that reads back to it; where the bytes are no characters, the server shows
// question marks and we U+FFFD.
func Same(decl, got, want string) bool {
	if got == want {
		return true
	}
	switch typeOf(decl) {
	case "float":
		return sameFloat(got, want, 32)
	case "double":
		return sameFloat(got, want, 64)
	case "vector":
		a, b := strings.Split(strings.Trim(got, "[]"), ","), strings.Split(strings.Trim(want, "[]"), ",")
		return slices.EqualFunc(a, b, func(a, b string) bool {
			x, err1 := strconv.ParseFloat(a, 32)
			y, err2 := strconv.ParseFloat(b, 32)
			// The server shows six digits only.
			return err1 == nil && err2 == nil && math.Abs(x-y) <= 1e-5*math.Abs(y) && shortest(a, 32)
		})
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return slices.EqualFunc([]rune(got), []rune(want), func(a, b rune) bool { return a == b || a == '\ufffd' && b == '?' })
	}
	return false
}

func sameFloat(got, want string, bits int) bool {
	a, err1 := strconv.ParseFloat(got, bits)
	b, err2 := strconv.ParseFloat(want, 64)
	if bits == 32 {
		b = float64(float32(b))
	}
	return err1 == nil && err2 == nil && a == b && shortest(got, bits)
}

// shortest tells whether no decimal of fewer digits reads back to the same number.
func shortest(s string, bits int) bool {
	digits := func(s string) int {
		s, _, _ = strings.Cut(strings.ToLower(s), "e")
		s = strings.TrimLeft(strings.NewReplacer("-", "", "+", "", ".", "").Replace(s), "0")
		return len(strings.TrimRight(s, "0"))
	}
	f, err := strconv.ParseFloat(s, bits)
	return err == nil && digits(s) == digits(strconv.FormatFloat(f, 'e', -1, bits))
}
