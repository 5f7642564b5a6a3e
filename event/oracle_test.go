//go:build integration

package event

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
)

// An oracleColumn is a column of the table of every type, with literals of
// edge values and a generator of random ones.
type oracleColumn struct {
	name, decl string
	edges      []string
	random     func(r *rand.Rand) string
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

func quoteSQL(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
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

func intColumns() (out []oracleColumn) {
	for _, x := range []struct {
		name string
		bits uint
	}{{"tinyint", 8}, {"smallint", 16}, {"mediumint", 24}, {"int", 32}, {"bigint", 64}} {
		low, high, top := -(int64(1) << (x.bits - 1)), int64(1)<<(x.bits-1)-1, uint64(math.MaxUint64)>>(64-x.bits)
		out = append(out,
			oracleColumn{x.name[:1] + strconv.Itoa(int(x.bits)), x.name, []string{"0", "-1", fmt.Sprint(low), fmt.Sprint(high)},
				func(r *rand.Rand) string { return fmt.Sprint(int64(r.Uint64()) >> (64 - x.bits)) }},
			oracleColumn{"u" + strconv.Itoa(int(x.bits)), x.name + " unsigned", []string{"0", "1", fmt.Sprint(top), fmt.Sprint(top/2 + 1)},
				func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> (64 - x.bits)) }})
	}
	return out
}

func decimalColumns() (out []oracleColumn) {
	digits := func(r *rand.Rand, n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(byte('0' + r.IntN(10)*r.IntN(2)))
		}
		return b.String()
	}
	for _, d := range [][2]int{{1, 0}, {1, 1}, {9, 9}, {10, 0}, {12, 2}, {18, 9}, {20, 19}, {30, 30}, {65, 0}, {65, 30}, {38, 17}} {
		p, s := d[0], d[1]
		nines := strings.Repeat("9", p-s) + "." + strings.Repeat("9", s)
		out = append(out, oracleColumn{fmt.Sprintf("d%d_%d", p, s), fmt.Sprintf("decimal(%d,%d)", p, s),
			[]string{"0", "-0.0", nines, "-" + nines, "0." + strings.Repeat("0", max(s-1, 0)) + "1"},
			func(r *rand.Rand) string {
				return pick(r, "", "-") + "0" + digits(r, r.IntN(p-s+1)) + "." + digits(r, s)
			}})
	}
	return out
}

func temporalColumns() (out []oracleColumn) {
	frac := func(r *rand.Rand, fsp int) string {
		if fsp == 0 {
			return ""
		}
		return fmt.Sprintf(".%0*d", fsp, r.IntN(int(pow10[fsp]))*r.IntN(2))
	}
	for fsp := range 7 {
		suffix, nines := "", ""
		if fsp > 0 {
			suffix, nines = fmt.Sprintf("(%d)", fsp), "."+strings.Repeat("9", fsp)
		}
		one := ""
		if fsp > 0 {
			one = "." + strings.Repeat("0", fsp-1) + "1"
		}
		out = append(out,
			oracleColumn{fmt.Sprintf("time%d", fsp), "time" + suffix,
				[]string{"'00:00:00'", "'-838:59:59'", "'838:59:59'", "'-838:59:58" + nines + "'", "'838:59:58" + nines + "'", "'-00:00:00" + one + "'", "'-00:00:01'", "'100:00:00'"},
				func(r *rand.Rand) string {
					return fmt.Sprintf("'%s%02d:%02d:%02d%s'", pick(r, "", "-"), r.IntN(838), r.IntN(60), r.IntN(60), frac(r, fsp))
				}},
			oracleColumn{fmt.Sprintf("datetime%d", fsp), "datetime" + suffix,
				[]string{"'0000-00-00 00:00:00'", "'9999-12-31 23:59:59" + nines + "'", "'2024-02-00 10:11:12" + one + "'", "'0000-01-01 00:00:00'", "'1969-12-31 23:59:59'"},
				func(r *rand.Rand) string {
					return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d%s'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), frac(r, fsp))
				}},
			oracleColumn{fmt.Sprintf("timestamp%d", fsp), "timestamp" + suffix,
				[]string{"'0000-00-00 00:00:00'", "'2038-01-19 03:14:07" + nines + "'", "'1970-01-01 00:00:01'", "'2000-02-29 23:59:59" + one + "'"},
				func(r *rand.Rand) string {
					return "'" + time.Unix(1+r.Int64N(math.MaxInt32), 0).UTC().Format("2006-01-02 15:04:05") + frac(r, fsp) + "'"
				}})
	}
	return out
}

// charColumns holds a column of each character set whose characters the
// session can write as UTF-8.
func charColumns(kind string) (out []oracleColumn) {
	text := map[string]string{
		"utf8mb4": "a€中😀\u00e9\x00\x7f", "utf8mb3": "a€中é", "latin1": "aé€ÿ“”", "latin2": "ąŁž", "latin5": "ğİş", "latin7": "ąēģ",
		"gbk": "中文囧", "gb2312": "中文", "big5": "中文許", "sjis": "日本ア語", "cp932": "日本①髙", "ujis": "日本語〆", "eucjpms": "日本①髙",
		"euckr": "한국어", "greek": "αβγ", "hebrew": "אבג", "cp1250": "čřž", "cp1251": "яЖ", "cp1256": "عرب", "cp1257": "ąē", "cp850": "éÿ",
		"cp852": "čř", "cp866": "яЖ", "koi8r": "яЖ", "koi8u": "їЄ", "ucs2": "a中é", "utf16": "a😀中", "utf16le": "a😀中", "utf32": "a😀中",
		"tis620": "กขค", "macroman": "éÄ", "macce": "čř", "keybcs2": "čř", "dec8": "éÄ", "hp8": "éÄ", "swe7": "ÄÖåaz", "armscii8": "աբգ", "geostd8": "აბგ", "ascii": "az",
	}
	if kind == "mysql" {
		text["gb18030"] = "中文😀鿃"
	}
	for cs, letters := range text {
		runes := []rune(letters)
		out = append(out, oracleColumn{"c_" + cs, "varchar(20) character set " + cs, []string{"''", quoteSQL(letters)},
			func(r *rand.Rand) string {
				s := make([]rune, r.IntN(20))
				for i := range s {
					s[i] = runes[r.IntN(len(runes))]
				}
				return quoteSQL(string(s))
			}})
	}
	return out
}

func oracleColumns(kind string) []oracleColumn {
	out := append(intColumns(), decimalColumns()...)
	out = append(out, temporalColumns()...)
	out = append(out, charColumns(kind)...)
	ascii := func(max int) func(r *rand.Rand) string {
		return func(r *rand.Rand) string { return quoteSQL(strings.Repeat(pick(r, "x", "y", "é"), r.IntN(max+1))) }
	}
	bytes := func(max int) func(r *rand.Rand) string {
		return func(r *rand.Rand) string { return hexLiteral(r, max) }
	}
	members := func(n int) string {
		var l []string
		for i := range n {
			l = append(l, fmt.Sprintf("'m%d'", i+1))
		}
		return strings.Join(l, ",")
	}
	out = append(out,
		oracleColumn{"f", "float", []string{"0", "1.5", "3.4e38", "-1.17e-38", "0.1", "16777216", "1e15", "1e16", "1e-15", "1e-45"},
			func(r *rand.Rand) string {
				return fmt.Sprintf("%.9e", (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(70)-35)))
			}},
		oracleColumn{"fu", "float unsigned", []string{"0", "1.1"}, func(r *rand.Rand) string { return fmt.Sprintf("%.9e", r.Float64()) }},
		oracleColumn{"db", "double", []string{"0", "1.5", "1.7976931348623157e308", "2.2250738585072014e-308", "1e15", "123456789012345", "1e-15", "1e-16", "0.1", "-1.2345678901234567e-14", "4.9e-324", "1e100"},
			func(r *rand.Rand) string {
				return fmt.Sprintf("%.17e", (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(600)-300)))
			}},
		oracleColumn{"y", "year", []string{"0", "1901", "2155"}, func(r *rand.Rand) string { return fmt.Sprint(1901 + r.IntN(255)) }},
		oracleColumn{"da", "date", []string{"'0000-00-00'", "'9999-12-31'", "'2000-00-00'", "'2024-02-00'", "'0000-01-01'", "'0018-04-01'"},
			func(r *rand.Rand) string {
				return fmt.Sprintf("'%04d-%02d-%02d'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28))
			}},
		oracleColumn{"ch", "char(10)", []string{"''", "'a'", "'äöü'"}, ascii(10)},
		oracleColumn{"chl", "char(255) character set utf8mb4", []string{"''", "repeat('😀',255)"}, ascii(255)},
		oracleColumn{"chm", "char(200) character set utf8mb4", []string{"''", "repeat('é',200)"}, ascii(200)},
		oracleColumn{"v255", "varchar(255) character set latin1", []string{"''", "repeat('é',255)"}, ascii(255)},
		oracleColumn{"v256", "varchar(256) character set latin1", []string{"''", "repeat('é',256)"}, ascii(256)},
		oracleColumn{"bi", "binary(16)", []string{"''", "x'00112233445566778899aabbccddee00'", "x'ff'"}, bytes(16)},
		oracleColumn{"bi255", "binary(255)", []string{"''", "repeat(x'41',255)"}, bytes(255)},
		oracleColumn{"vb", "varbinary(300)", []string{"''", "x'0100'"}, bytes(300)},
		oracleColumn{"tt", "tinytext", []string{"''"}, ascii(100)},
		oracleColumn{"tx", "text character set latin1", []string{"''", "repeat('é',60000)"}, ascii(300)},
		oracleColumn{"mt", "mediumtext", []string{"''", "repeat('x',70000)"}, ascii(300)},
		oracleColumn{"lt", "longtext", []string{"''"}, ascii(300)},
		oracleColumn{"tb", "tinyblob", []string{"''"}, bytes(255)},
		oracleColumn{"bl", "blob", []string{"''"}, bytes(300)},
		oracleColumn{"mb", "mediumblob", []string{"''"}, bytes(300)},
		oracleColumn{"lb", "longblob", []string{"''", "x'00ff80'"}, bytes(300)},
		oracleColumn{"en", `enum('a,b','it''s','','0','1') character set latin1`, []string{"'a,b'", "'it''s'", "'0'", "'nothing'", "1"}, func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(5)) }},
		oracleColumn{"eg", `enum('中','é') character set utf8mb4`, []string{"1", "2"}, func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(2)) }},
		oracleColumn{"el", "enum(" + members(300) + ")", []string{"1", "255", "256", "300"}, func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(300)) }},
		oracleColumn{"se", "set('x','y','z')", []string{"''", "7"}, func(r *rand.Rand) string { return fmt.Sprint(r.IntN(8)) }},
		oracleColumn{"s64", "set(" + members(64) + ")", []string{"''", "18446744073709551615", "9223372036854775808"}, func(r *rand.Rand) string { return fmt.Sprint(r.Uint64()) }},
		oracleColumn{"ge", "geometry", []string{"ST_GeomFromText('POINT(1 1)')"}, func(r *rand.Rand) string {
			return fmt.Sprintf("ST_GeomFromText('LINESTRING(%d 1,2 %d)',4326)", r.IntN(80), r.IntN(80))
		}},
	)
	for _, n := range []int{1, 8, 9, 17, 33, 64} {
		top := uint64(math.MaxUint64) >> (64 - n)
		out = append(out, oracleColumn{fmt.Sprintf("b%d", n), fmt.Sprintf("bit(%d)", n), []string{"0", fmt.Sprint(top), fmt.Sprint(top/2 + 1)},
			func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() & top) }})
	}
	switch kind {
	case "mysql56", "mariadb102":
	case "mysql":
		out = append(out,
			oracleColumn{"js", "json", jsonEdges, randomJSON},
			oracleColumn{"ve", "vector(4)", []string{"TO_VECTOR('[1,2.5,-3e10,0.1]')", "TO_VECTOR('[0]')"}, func(r *rand.Rand) string {
				return fmt.Sprintf("TO_VECTOR('[%v,%v]')", r.Float32(), r.Float32()*1e20)
			}})
	default:
		out = append(out,
			oracleColumn{"js", "json", []string{`'{"a": 1}'`, "'[]'"}, func(r *rand.Rand) string { return fmt.Sprintf(`'{"k":%d}'`, r.IntN(1000)) }},
			oracleColumn{"uu", "uuid", []string{"'00112233-4455-1677-8899-aabbccddee00'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"},
				func(r *rand.Rand) string { return "UUID()" }},
			oracleColumn{"i4", "inet4", []string{"'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'", "'10.1.0.0'"}, func(r *rand.Rand) string {
				return fmt.Sprintf("'%d.%d.%d.%d'", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
			}},
			oracleColumn{"i6", "inet6", []string{"'::'", "'::1'", "'1::'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'1:0:2:3:4:5:6:7'", "'1:0:0:2:0:0:0:3'", "'1:0:0:2:3:0:0:4'", "'fe80::1:0:0:0'", "'0:1:2:3:4:5:6:7'", "'::ffff:0:1'", "'::2:0:0'", "'0:0:0:0:1:ffff:0:0'", "'::0.0.0.1'", "'::0.1.0.0'"},
				func(r *rand.Rand) string {
					var w []string
					for range 8 {
						w = append(w, strconv.FormatUint(uint64(r.IntN(65536)*r.IntN(2)), 16))
					}
					return "'" + strings.Join(w, ":") + "'"
				}},
			oracleColumn{"cv", "varchar(1000) compressed character set latin1", []string{"''", "'é'", "repeat('é',1000)"}, ascii(1000)},
			oracleColumn{"cvb", "varbinary(200) compressed", []string{"''", "x'00'", "repeat(x'00',200)"}, bytes(200)},
			oracleColumn{"ct", "text compressed", []string{"''", "'é'", "repeat('é',30000)"}, ascii(1000)},
			oracleColumn{"cm", "mediumblob compressed", []string{"''", "repeat(x'00',100000)"}, bytes(1000)},
		)
	}
	return out
}

var jsonEdges = []string{
	`'{}'`, `'[]'`, `'null'`, `'true'`, `'false'`, `'0'`, `'-1'`, `'""'`, `'"\\u0001\\b\\f\\n\\r\\t\\"\\\\/é😀\\u007f"'`,
	`'{"rate":{"":0}}'`, `'{"todo":{"complete":false}}'`, `'[1.0,-0.0,1e15,1e100,1e-16,1.5,100000000000000.0]'`,
	`'[32767,32768,-32768,-32769,65535,65536,2147483647,2147483648,-2147483648,-2147483649,4294967295,4294967296,9223372036854775807,-9223372036854775808,18446744073709551615,18446744073709551616]'`,
	`JSON_ARRAY(1.10,-1.10,CAST(0 AS DECIMAL(5,3)),CAST('99999999999999999999999999999999999.123456789012345678901234567890' AS DECIMAL(65,30)))`,
	`JSON_ARRAY(CAST('-838:59:59' AS TIME),CAST('-00:00:00.000001' AS TIME(6)),CAST('100:00:00' AS TIME),CAST('2020-01-02' AS DATE),CAST('2020-01-02 03:04:05.123' AS DATETIME(3)),CAST('0000-00-00' AS DATE))`,
	`JSON_OBJECT('b',CAST(REPEAT('y',120) AS BINARY),'e',CAST(REPEAT('z',57) AS BINARY),'x',b'101','n',x'','g',CAST(REPEAT('z',58) AS BINARY))`,
	`CAST(CAST('2020-01-02 03:04:05' AS DATETIME) AS JSON)`, `CAST(1.5 AS JSON)`, `CAST(x'cafe' AS JSON)`,
	`JSON_OBJECT('big',REPEAT('x',70000),'small',1,'neg',-100000,'lit',true)`,
	`(SELECT CAST(CONCAT('[',GROUP_CONCAT(n),']') AS JSON) FROM (WITH RECURSIVE s(n) AS (SELECT -10 UNION ALL SELECT n+17 FROM s WHERE n<340000) SELECT n FROM s) q)`,
	`CAST(CONCAT(REPEAT('[',90),REPEAT(']',90)) AS JSON)`,
	`'{"b":1,"a":2,"aa":3,"":4,"é":5}'`,
}

func randomJSON(r *rand.Rand) string {
	var value func(depth int) string
	value = func(depth int) string {
		n := r.IntN(9)
		if depth > 3 {
			n = r.IntN(7)
		}
		switch n {
		case 0:
			return pick(r, "null", "true", "false")
		case 1:
			return fmt.Sprint(int64(r.Uint64()) >> r.IntN(64))
		case 2:
			return fmt.Sprint(r.Uint64() >> r.IntN(64))
		case 3:
			return fmt.Sprintf("%.*e", r.IntN(17), (r.Float64()-0.5)*math.Pow(10, float64(r.IntN(60)-30)))
		case 4, 5, 6:
			return strconv.Quote(strings.Repeat(pick(r, "a", "é", "😀", `\`, `"`, "\n", "\t"), r.IntN(300)))
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
	return quoteSQL(value(0))
}

// shown is the expression whose result, in hex, is what AppendText must give.
func shown(c *Column) string {
	name := "`" + c.Name + "`"
	switch c.Class {
	case ClassBit:
		return "HEX(CAST(" + name + "+0 AS CHAR))"
	case ClassBinary, ClassVarbinary, ClassBlob, ClassGeometry:
		return "HEX(" + name + ")"
	case ClassVector:
		return "HEX(VECTOR_TO_STRING(" + name + "))"
	case ClassFloat:
		return "HEX(CAST(" + name + "+0e0 AS CHAR))"
	case ClassChar, ClassText, ClassEnum, ClassSet:
		return "HEX(CONVERT(" + name + " USING utf8mb4))"
	}
	return "HEX(CAST(" + name + " AS CHAR))"
}

// same compares our text with the server's, floats by their value.
func same(c *Column, got, want string) bool {
	switch c.Class {
	case ClassFloat:
		a, err1 := strconv.ParseFloat(got, 32)
		b, err2 := strconv.ParseFloat(want, 64)
		return err1 == nil && err2 == nil && float32(a) == float32(b)
	case ClassDouble:
		// CAST turns to an exponent earlier than SELECT, for want of room.
		a, err1 := strconv.ParseFloat(got, 64)
		b, err2 := strconv.ParseFloat(want, 64)
		return err1 == nil && err2 == nil && a == b
	case ClassVector:
		a, b := strings.Split(strings.Trim(got, "[]"), ","), strings.Split(strings.Trim(want, "[]"), ",")
		if len(a) != len(b) {
			return false
		}
		for i := range a {
			x, err1 := strconv.ParseFloat(a[i], 32)
			y, err2 := strconv.ParseFloat(b[i], 32)
			// The server shows six digits only.
			if err1 != nil || err2 != nil || math.Abs(x-y) > 1e-5*math.Abs(y) {
				return false
			}
		}
		return true
	}
	return got == want
}

func selectShown(t *testing.T, s *testenv.Server, table *Table) [][]string {
	t.Helper()
	var list []string
	for i := range table.Columns {
		list = append(list, shown(&table.Columns[i]))
	}
	rows := s.Query(fmt.Sprintf("SELECT %s FROM `%s`.`%s` ORDER BY id", strings.Join(list, ","), table.Schema, table.Name))
	for _, r := range rows {
		for i := range r {
			if r[i] != "NULL" {
				b, err := hex.DecodeString(r[i])
				if err != nil {
					t.Fatal(err)
				}
				r[i] = string(b)
			}
		}
	}
	return rows
}

func texts(t *testing.T, values []Value) []string {
	t.Helper()
	out := make([]string, len(values))
	for i, v := range values {
		switch {
		case v.IsAbsent():
			out[i] = "absent"
		case v.IsNull():
			out[i] = "NULL"
		default:
			b, err := v.AppendText(nil)
			if err != nil {
				t.Error(err)
			}
			out[i] = string(b)
		}
	}
	return out
}

func compareRow(t *testing.T, table *Table, what string, got, want []string) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] && !same(&table.Columns[i], got[i], want[i]) {
			t.Errorf("%s, column %s (%s): got %.300q, the server shows %.300q", what, table.Columns[i].Name, table.Columns[i].SQLType, got[i], want[i])
		}
	}
}

// collect scans the events into before and after texts, one entry a row change.
func collect(t *testing.T, events []captured) (table *Table, before, after [][]string) {
	t.Helper()
	var s Scanner
	for _, e := range events {
		table = e.Table
		s.Reset(e.Event)
		for s.Next() {
			r := s.Row()
			if r.Before != nil {
				before = append(before, texts(t, r.Before))
			}
			if r.After != nil {
				after = append(after, texts(t, r.After))
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	return table, before, after
}

// TestEveryTypeAsServer proves that every type's edge and random values read
// from the binlog are what SELECT shows, in all images.
func TestEveryTypeAsServer(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11", "mysql56", "mariadb102"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			t.Log(s.Query("SELECT VERSION()"))
			db := s.Database()
			everyType(t, s, db, oracleColumns(kind), 150)
		})
	}
}

// TestOldTemporalsAsServer proves the same for MariaDB's temporal types from
// before mysql56_temporal_format, whose fractions only information_schema knows.
func TestOldTemporalsAsServer(t *testing.T) {
	s := testenv.NewMySQL(t, "mariadb", "--mysql56-temporal-format=OFF")
	everyType(t, s, s.Database(), temporalColumns(), 300)
}

func everyType(t *testing.T, s *testenv.Server, db string, columns []oracleColumn, random int) {
	s.Exec("SET time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES', NAMES utf8mb4, SESSION group_concat_max_len=10000000")
	if s.Kind == "mysql" {
		s.Exec("SET SESSION cte_max_recursion_depth=100000")
	}
	// Tables of 40 columns keep rows within the server's limits.
	for part := 0; len(columns) > 0; part++ {
		n := min(40, len(columns))
		cols := columns[:n]
		columns = columns[n:]
		name := fmt.Sprintf("t%d", part)
		decl := []string{"id int primary key", "touched int null"}
		for _, c := range cols {
			decl = append(decl, fmt.Sprintf("`%s` %s null", c.name, c.decl))
		}
		s.Exec(fmt.Sprintf("CREATE TABLE %s.%s (%s) CHARACTER SET utf8mb4", db, name, strings.Join(decl, ",")))
		r := rand.New(rand.NewPCG(1, uint64(part)))
		events := capture(t, s, db, func() {
			rows := random
			for _, c := range cols {
				rows = max(rows, len(c.edges))
			}
			for i := range rows {
				values := []string{fmt.Sprint(i + 1), "0"}
				for _, c := range cols {
					v := "NULL"
					if i < len(c.edges) {
						v = c.edges[i]
					} else if r.IntN(8) > 0 {
						v = c.random(r)
					}
					values = append(values, v)
				}
				s.Exec(fmt.Sprintf("INSERT INTO %s.%s VALUES (%s)", db, name, strings.Join(values, ",")))
			}
		})
		table, _, inserted := collect(t, events)
		want := selectShown(t, s, table)
		if len(inserted) != len(want) || len(want) == 0 {
			t.Fatalf("%s: %d rows inserted, %d shown", name, len(inserted), len(want))
		}
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s insert %d", name, i+1), inserted[i], want[i])
		}
		compareOracle(t, events)
		for i := range table.Columns {
			checkSQLType(t, &table.Columns[i])
		}
		// Updates and deletes show the same values.
		_, before, after := collect(t, capture(t, s, db, func() {
			s.Exec(fmt.Sprintf("UPDATE %s.%s SET touched=1 ORDER BY id", db, name))
		}))
		want = selectShown(t, s, table)
		if len(after) != len(want) {
			t.Fatalf("%s: %d rows updated, %d shown", name, len(after), len(want))
		}
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s update after %d", name, i+1), after[i], want[i])
			compareRow(t, table, fmt.Sprintf("%s update before %d", name, i+1), before[i], inserted[i])
		}
		_, before, _ = collect(t, capture(t, s, db, func() {
			s.Exec(fmt.Sprintf("DELETE FROM %s.%s ORDER BY id", db, name))
		}))
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s delete %d", name, i+1), before[i], want[i])
		}
	}
}

// TestImagesAsServer proves for images that leave columns out that what is
// there is right and what is not there is absent, never NULL.
func TestImagesAsServer(t *testing.T) {
	minimal := `insert > 1|a|-|-
insert > 2|-|-|-
insert > 3|c|3|ccc
update 3|-|-|- > -|b|NULL|-
update 1|-|-|- > -|b|-|-
delete 3|-|-|-`
	noblob := `insert > 1|a|NULL|-
insert > 2|NULL|NULL|-
insert > 3|c|3|ccc
update 3|c|3|- > 3|b|NULL|-
update 1|a|NULL|- > 1|b|NULL|-
delete 3|b|NULL|-`
	noDup := `insert > 1|a|NULL|NULL
insert > 2|NULL|NULL|NULL
insert > 3|c|3|ccc
update 3|c|3|ccc > -|b|NULL|-
update 1|a|NULL|NULL > -|b|-|-
delete 3|b|NULL|ccc`
	for _, c := range []struct{ kind, image, want string }{
		{"mysql", "MINIMAL", minimal},
		{"mysql", "NOBLOB", noblob},
		{"mariadb", "MINIMAL", minimal},
		{"mariadb", "NOBLOB", noblob},
		{"mariadb11", "MINIMAL", minimal},
		{"mariadb11", "FULL_NODUP", noDup},
	} {
		t.Run(c.kind+"/"+c.image, func(t *testing.T) {
			s := testenv.MySQL(t, c.kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".t (id int primary key, a varchar(10), b int, c text) CHARACTER SET utf8mb4")
			s.Exec("SET SESSION binlog_row_image=" + c.image)
			defer s.Exec("SET SESSION binlog_row_image=FULL")
			events := capture(t, s, db, func() {
				s.Exec("INSERT INTO " + db + ".t (id,a) VALUES (1,'a')")
				s.Exec("INSERT INTO " + db + ".t (id) VALUES (2)")
				s.Exec("INSERT INTO " + db + ".t VALUES (3,'c',3,'ccc')")
				s.Exec("UPDATE " + db + ".t SET a='b', b=NULL WHERE id=3")
				s.Exec("UPDATE " + db + ".t SET a='b' WHERE id=1")
				s.Exec("DELETE FROM " + db + ".t WHERE id=3")
			})
			var got []string
			var sc Scanner
			for _, e := range events {
				sc.Reset(e.Event)
				for sc.Next() {
					r := sc.Row()
					line := r.Op.String()
					if r.Before != nil {
						line += " " + rowText(t, r.Before)
					}
					if r.After != nil {
						line += " > " + rowText(t, r.After)
					}
					got = append(got, line)
				}
				if sc.Err() != nil {
					t.Fatal(sc.Err())
				}
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

// TestJSONInPlaceAsServer covers documents with gaps, which updates in place
// leave, and the empty document.
func TestJSONInPlaceAsServer(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	s.Exec("SET NAMES utf8mb4, sql_mode=''")
	s.Exec("CREATE TABLE " + db + ".t (id int primary key, j json not null)")
	events := capture(t, s, db, func() {
		s.Exec("INSERT INTO " + db + `.t VALUES (1,'{"a":"a long text to begin with","b":[1,2,3.5],"c":{"d":"x"}}'),(2,JSON_OBJECT('big',REPEAT('x',70000),'n',70000,'s','abc'))`)
		s.Exec("INSERT IGNORE INTO " + db + ".t (id) VALUES (3)")
		s.Exec("INSERT IGNORE INTO " + db + ".t VALUES (4,'1'),(5,NULL)")
	})
	update := func() [][]string {
		events = append(events, capture(t, s, db, func() {
			s.Exec("UPDATE " + db + ".t SET j=JSON_REPLACE(j,'$.a','xy','$.n',1,'$.s','z')")
			s.Exec("UPDATE " + db + ".t SET j=JSON_REMOVE(JSON_REPLACE(j,'$.b[2]',7),'$.c')")
		})...)
		return s.Query("SELECT id, CAST(j AS CHAR) FROM " + db + ".t ORDER BY id")
	}
	want := map[string]string{}
	for _, r := range update() {
		want[r[0]] = r[1]
	}
	got := map[string]string{}
	_, _, after := collect(t, events)
	for _, r := range after {
		got[r[0]] = r[1]
	}
	if len(want) < 4 || !maps.Equal(got, want) {
		t.Errorf("got %.1000q\nwant %.1000q", got, want)
	}
}

// TestPartialJSONAsServer proves that differences give the documents that the
// server has.
func TestPartialJSONAsServer(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	s.Exec("SET NAMES utf8mb4, SESSION binlog_row_value_options=PARTIAL_JSON")
	defer s.Exec("SET SESSION binlog_row_value_options=''")
	s.Exec("CREATE TABLE " + db + ".t (id int primary key, j json, n int, k json, txt varchar(10), l json)")
	r := rand.New(rand.NewPCG(3, 4))
	pad := strings.Repeat("x", 300)
	const rows = 6
	for i := range rows {
		doc := fmt.Sprintf(`{"pad":"%s","a":[1,2,3,{"b":"c","":0}],"o":{"p":{"q":1.5,"r":null}},"odd key \"é.[":%d,"t":[[],{}]}`, pad, i)
		if i == 5 {
			doc = fmt.Sprintf(`{"pad":"%s","a":[1,2,3],"o":{"p":{}},"t":[]}`, strings.Repeat(pad, 300)) // large
		}
		s.Exec(fmt.Sprintf("INSERT INTO %s.t VALUES (%d,%s,0,%s,'',NULL)", db, i, quoteSQL(doc), quoteSQL(doc)))
	}
	path := func() string {
		return quoteSQL("$" + pick(r, ".a", ".a[0]", ".a[3].b", `.a[3].""`, ".o", ".o.p.q", ".o.p.new", `."odd key \"é.["`, ".t[0][0]", ".t[1].x", ".a[last]", ".new", ".nn", `."a b"`, ".a[100]", ".o.p", ".t"))
	}
	value := func() string {
		return pick(r, "1", "-70000", "1.25", "'text é'", "NULL", "true", "CAST('[1,{\"x\":2}]' AS JSON)", "REPEAT('y',200)", "CAST('2020-01-02' AS DATE)", "18446744073709551615", "JSON_OBJECT()", "CAST(x'cafe' AS BINARY)")
	}
	expression := func(column string) string {
		e := column
		for range 1 + r.IntN(3) {
			switch r.IntN(3) {
			case 0:
				e = fmt.Sprintf("JSON_SET(%s,%s,%s)", e, path(), value())
			case 1:
				e = fmt.Sprintf("JSON_REPLACE(%s,%s,%s,%s,%s)", e, path(), value(), path(), value())
			default:
				e = fmt.Sprintf("JSON_REMOVE(%s,%s)", e, path())
			}
		}
		return e
	}
	partial, rowsSeen := 0, 0
	for round := range 70 {
		image := pick(r, "FULL", "FULL", "NOBLOB", "MINIMAL")
		set := pick(r, "j="+expression("j"), "k="+expression("k")+",n=n+1", "j="+expression("j")+",k="+expression("k"), "txt='z"+fmt.Sprint(round)+"'", "k="+expression("k")+",l=j")
		s.Exec("SET SESSION binlog_row_image=" + image)
		before := s.Query("SELECT id, CAST(j AS CHAR), n, CAST(k AS CHAR), txt, CAST(l AS CHAR) FROM " + db + ".t ORDER BY id")
		events := capture(t, s, db, func() { s.Exec("UPDATE " + db + ".t SET " + set) })
		after := s.Query("SELECT id, CAST(j AS CHAR), n, CAST(k AS CHAR), txt, CAST(l AS CHAR) FROM " + db + ".t ORDER BY id")
		var sc Scanner
		for _, e := range events {
			if e.Partial {
				partial++
			}
			sc.Reset(e.Event)
			for sc.Next() {
				rowsSeen++
				row := sc.Row()
				id := texts(t, row.Before)[0]
				for i := range after {
					if after[i][0] != id {
						continue
					}
					for j, got := range texts(t, row.After) {
						if got != after[i][j] && !row.After[j].IsAbsent() {
							t.Errorf("%s %s: column %d of row %s:\n got %.500s\nwant %.500s\n was %.500s", image, set, j+1, id, got, after[i][j], before[i][j])
						}
					}
				}
			}
			if sc.Err() != nil && (image == "FULL" || !strings.Contains(sc.Err().Error(), "binlog_row_image=FULL")) {
				t.Fatalf("%s %s: %v", image, set, sc.Err())
			}
		}
		if t.Failed() {
			break
		}
	}
	s.Exec("SET SESSION binlog_row_image=FULL")
	t.Logf("%d of the events were partial, %d rows read", partial, rowsSeen)
	if partial < 30 || rowsSeen < 100 {
		t.Errorf("only %d events were partial, %d rows read", partial, rowsSeen)
	}
}

// compareOracle compares with go-mysql's decoder where that one is right.
func compareOracle(t *testing.T, events []captured) {
	t.Helper()
	var s Scanner
	compared := 0
	for _, e := range events {
		if e.oracle == nil || len(e.oracle.Rows) != int(e.Rows) {
			continue
		}
		s.Reset(e.Event)
		for i := 0; s.Next(); i++ {
			for j, v := range s.Row().Values() {
				c := v.Column()
				theirs := e.oracle.Rows[i][j]
				if v.IsNull() != (theirs == nil) {
					t.Errorf("%s: null %t, go-mysql %v", c.Name, v.IsNull(), theirs)
				}
				if theirs == nil {
					continue
				}
				switch c.Class {
				case ClassInt, ClassUint, ClassDecimal, ClassDate, ClassDatetime:
				case ClassTimestamp:
					if strings.HasPrefix(fmt.Sprint(theirs), "0000") {
						continue
					}
				default:
					continue
				}
				if c.Class == ClassInt || c.Class == ClassUint {
					// go-mysql knows no signedness without metadata.
					if fmt.Sprint(theirs)[0] == '-' && c.Class == ClassUint {
						continue
					}
				}
				compared++
				if got, err := v.AppendText(nil); err != nil || string(got) != fmt.Sprint(theirs) {
					t.Errorf("%s (%s): %s, go-mysql has %v (%v)", c.Name, c.SQLType, got, theirs, err)
				}
			}
		}
	}
	t.Logf("%d values agree with go-mysql", compared)
}

// checkSQLType compares the derived type with information_schema's.
func checkSQLType(t *testing.T, c *Column) {
	t.Helper()
	want := c.SQLType
	switch c.Class {
	case ClassInt, ClassUint, ClassYear:
		if i, j := strings.IndexByte(want, '('), strings.IndexByte(want, ')'); i > 0 {
			want = want[:i] + want[j+1:] // display width
		}
	case ClassVector:
		want = "vector"
	}
	if i := strings.Index(want, " /*"); i > 0 {
		want = want[:i] // MariaDB's COMPRESSED
	}
	if got := DerivedSQLType(c); got != want {
		t.Errorf("derived type %q, information_schema says %q", got, want)
	}
}
