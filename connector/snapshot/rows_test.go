package snapshot

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
)

// rowReader returns a Reader of a table of these columns.
func rowReader(t testing.TB, mariaDB bool, version string, columns ...ddl.Column) *Reader {
	t.Helper()
	def := &ddl.Table{Columns: columns}
	table, err := Definition(ddl.Name{Schema: "s`1", Table: "t"}, def, schema.Options{MariaDB: mariaDB, Version: version}, schema.Logged{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(table, def)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	typeInt     = ddl.Column{DataType: "int", SQLType: "int"}
	typeUint    = ddl.Column{DataType: "bigint", SQLType: "bigint unsigned"}
	typeTiny    = ddl.Column{DataType: "tinyint", SQLType: "tinyint"}
	typeYear    = ddl.Column{DataType: "year", SQLType: "year(4)"}
	typeYear2   = ddl.Column{DataType: "year", SQLType: "year(2)"}
	typeFloat   = ddl.Column{DataType: "float", SQLType: "float(7,4)"}
	typeDouble  = ddl.Column{DataType: "double", SQLType: "double"}
	typeDecimal = ddl.Column{DataType: "decimal", SQLType: "decimal(5,2)", Precision: 5, Scale: 2}
	typeBit     = ddl.Column{DataType: "bit", SQLType: "bit(64)", Precision: 64}
	typeBit9    = ddl.Column{DataType: "bit", SQLType: "bit(9)", Precision: 9}
	typeTime    = ddl.Column{DataType: "time", SQLType: "time(3)", Fraction: 3}
	typeEnum    = ddl.Column{DataType: "enum", SQLType: "enum('a','b','c')", Charset: "latin1", Members: []string{"a", "b", "c"}}
	typeSet     = ddl.Column{DataType: "set", SQLType: "set(...)", Charset: "latin1", Members: strings.Fields(strings.Repeat("x ", 64))}
	typeChar    = ddl.Column{DataType: "char", SQLType: "char(200)", Charset: "latin1", Octets: 200}
	typeVarchar = ddl.Column{DataType: "varchar", SQLType: "varchar(100)", Charset: "utf8mb4", Octets: 400}
	typeBinary  = ddl.Column{DataType: "binary", SQLType: "binary(4)", Octets: 4}
	typeTinyB   = ddl.Column{DataType: "tinyblob", SQLType: "tinyblob"}
	typeJSON    = ddl.Column{DataType: "json", SQLType: "json"}
	typePoint   = ddl.Column{DataType: "point", SQLType: "point"}
	typePacked  = ddl.Column{DataType: "varchar", SQLType: "varchar(100) /*M!100301 COMPRESSED*/", Charset: "latin1", Octets: 100}
	typePackedT = ddl.Column{DataType: "text", SQLType: "text /*M!100301 COMPRESSED*/", Charset: "latin1"}
	typeUUID    = ddl.Column{DataType: "uuid", SQLType: "uuid"}
	typeINET4   = ddl.Column{DataType: "inet4", SQLType: "inet4"}
	typeINET6   = ddl.Column{DataType: "inet6", SQLType: "inet6"}
	typeVirtual = ddl.Column{DataType: "int", SQLType: "int(11)", Virtual: true, Nullable: true}
)

// column gives a type a name.
func named(name string, c ddl.Column) ddl.Column {
	c.Name = name
	return c
}

func key(n int, c ddl.Column) ddl.Column {
	c.Key = n
	return c
}

func text(s string) mysql.FieldValue {
	return mysql.NewFieldValue(mysql.FieldValueTypeString, 0, []byte(s))
}

func number(n int64) mysql.FieldValue {
	return mysql.NewFieldValue(mysql.FieldValueTypeSigned, uint64(n), nil)
}

func unsigned(n uint64) mysql.FieldValue {
	return mysql.NewFieldValue(mysql.FieldValueTypeUnsigned, n, nil)
}

func real(f float64) mysql.FieldValue {
	return mysql.NewFieldValue(mysql.FieldValueTypeFloat, math.Float64bits(f), nil)
}

var null = mysql.NewFieldValue(mysql.FieldValueTypeNull, 0, nil)

// scanned reads a row image as what follows reads it.
func scanned(t testing.TB, table *event.Table, raw []byte) []event.Value {
	t.Helper()
	e := &event.Event{Kind: event.Rows, Op: event.Insert, Rows: 1, Table: table, Images: event.Images{After: bytes.Repeat([]byte{0xff}, (len(table.Columns)+7)/8)}, Raw: raw}
	var s event.Scanner
	s.Reset(e)
	if !s.Next() {
		t.Fatalf("%x: %v", raw, s.Err())
	}
	values := slices.Clone(s.Row().After)
	if s.Next() || s.Err() != nil {
		t.Fatalf("%x: more than a row, %v", raw, s.Err())
	}
	return values
}

// I3: a value that the server shows is what the row image says, or an error.
func TestAppend(t *testing.T) {
	for _, c := range []struct {
		name  string
		col   ddl.Column
		field mysql.FieldValue
		want  string // text of the value; "" and bad: an error
		bad   bool
	}{
		{name: "int", col: typeInt, field: number(-2147483648), want: "-2147483648"},
		{name: "int too large", col: typeInt, field: number(2147483648), bad: true},
		{name: "int too small", col: typeInt, field: number(-2147483649), bad: true},
		{name: "int without sign", col: typeInt, field: unsigned(1 << 63), bad: true},
		{name: "int as text", col: typeInt, field: text("1"), bad: true},
		{name: "tiny", col: typeTiny, field: number(-128), want: "-128"},
		{name: "tiny too large", col: typeTiny, field: number(128), bad: true},
		{name: "unsigned", col: typeUint, field: unsigned(1<<64 - 1), want: "18446744073709551615"},
		{name: "unsigned below zero", col: typeUint, field: number(-1), bad: true},
		{name: "year", col: typeYear, field: unsigned(2155), want: "2155"},
		{name: "year zero", col: typeYear, field: unsigned(0), want: "0000"},
		{name: "year of two digits", col: typeYear, field: unsigned(70), bad: true},
		{name: "year of two digits as four", col: typeYear2, field: number(2069), want: "2069"},
		{name: "float", col: typeFloat, field: real(float64(float32(0.1))), want: "0.1"},
		{name: "float -0", col: typeFloat, field: real(math.Copysign(0, -1)), want: "-0"},
		{name: "double", col: typeDouble, field: real(0.1), want: "0.1"},
		{name: "double as a number", col: typeDouble, field: number(1), bad: true},
		{name: "decimal", col: typeDecimal, field: text("-999.99"), want: "-999.99"},
		{name: "decimal too large", col: typeDecimal, field: text("1000.00"), bad: true},
		{name: "bit", col: typeBit, field: text("\xff\xff\xff\xff\xff\xff\xff\xfe"), want: "18446744073709551614"},
		{name: "bit(9)", col: typeBit9, field: text("\x01\x00"), want: "256"},
		{name: "bit of another size", col: typeBit9, field: text("\x00"), bad: true},
		{name: "time", col: typeTime, field: text("-00:00:00.001"), want: "-00:00:00.001"},
		{name: "time without fraction", col: typeTime, field: text("00:00:00"), bad: true},
		{name: "enum", col: typeEnum, field: unsigned(3), want: "c"},
		{name: "enum too large", col: typeEnum, field: unsigned(256), bad: true},
		{name: "set", col: typeSet, field: unsigned(1 << 63), want: "x"},
		{name: "char", col: typeChar, field: text("\xe9"), want: "é"},
		{name: "char too long", col: typeChar, field: text(strings.Repeat("x", 256)), bad: true},
		{name: "varchar", col: typeVarchar, field: text(strings.Repeat("é", 150)), want: strings.Repeat("é", 150)},
		{name: "binary", col: typeBinary, field: text("\x01\x00\x00\x00"), want: "\x01\x00\x00\x00"},
		{name: "blob too long", col: typeTinyB, field: text(strings.Repeat("x", 256)), bad: true},
		{name: "JSON", col: typeJSON, field: text(`{"a": 1.50}`), want: `{"a": 1.50}`},
		{name: "point", col: typePoint, field: text("\x00\x00\x00\x00\x01"), want: "\x00\x00\x00\x00\x01"},
		{name: "packed", col: typePacked, field: text("\xe9"), want: "é"},
		{name: "packed, empty", col: typePacked, field: text(""), want: ""},
		{name: "packed text", col: typePackedT, field: text(strings.Repeat("x", 65534)), want: strings.Repeat("x", 65534)},
		{name: "uuid", col: typeUUID, field: text("00112233-4455-1677-8899-aabbccdd0000"), want: "00112233-4455-1677-8899-aabbccdd0000"},
		{name: "no uuid", col: typeUUID, field: text("00112233-4455-1677-8899-aabbccdd00"), bad: true},
		{name: "inet4", col: typeINET4, field: text("10.0.0.0"), want: "10.0.0.0"},
		{name: "inet4 as inet6", col: typeINET4, field: text("::1"), bad: true},
		{name: "inet6", col: typeINET6, field: text("::ffff:1.2.3.4"), want: "::ffff:1.2.3.4"},
		{name: "inet6 as inet4", col: typeINET6, field: text("1.2.3.4"), bad: true},
		{name: "no address", col: typeINET6, field: text("x"), bad: true},
		{name: "address with zone", col: typeINET6, field: text("fe80::1%eth0"), bad: true},
	} {
		mariaDB := slices.Contains([]string{"uuid", "inet4", "inet6"}, c.col.DataType) || strings.Contains(c.col.SQLType, "COMPRESSED")
		r := rowReader(t, mariaDB, "11.8.1", named("a", typeInt), named("c", c.col), named("z", typeInt))
		row := []mysql.FieldValue{number(1), c.field, number(2)}
		raw, err := r.Append([]byte("x"), row)
		if c.bad {
			if err == nil || string(raw) != "x" || !strings.Contains(err.Error(), `"c"`) {
				t.Errorf("%s: %x, %v", c.name, raw, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		v := scanned(t, r.Table(), raw[1:])
		if got, err := v[1].AppendText(nil); err != nil || string(got) != c.want {
			t.Errorf("%s: %.80q (%v), want %.80q", c.name, got, err, c.want)
		}
		if last, err := v[2].Int64(); err != nil || last != 2 {
			t.Errorf("%s: the column behind it is %d (%v)", c.name, last, err)
		}
		row[1] = null
		if raw, err = r.Append(nil, row); err != nil {
			t.Errorf("%s: NULL: %v", c.name, err)
		} else if v := scanned(t, r.Table(), raw); !v[1].IsNull() {
			t.Errorf("%s: NULL is none", c.name)
		}
	}
	if _, err := rowReader(t, false, "8.4.0", named("a", typeInt)).Append(nil, nil); err == nil {
		t.Error("a row without values is taken")
	}
}

// Columns that MariaDB's log has wrongly are shown as absent, as of rows of the log.
func TestVirtual(t *testing.T) {
	for version, absent := range map[string]bool{"10.2.44-MariaDB": true, "10.5.0-MariaDB": false} {
		r := rowReader(t, true, version, named("a", typeInt), named("v", typeVirtual))
		sel := r.Select()
		raw, err := r.Append(nil, []mysql.FieldValue{number(1), map[bool]mysql.FieldValue{true: null, false: number(5)}[absent]})
		if err != nil {
			t.Fatal(err)
		}
		if v := scanned(t, r.Table(), raw); v[1].IsAbsent() != absent || (sel[1] == "NULL") != absent {
			t.Errorf("%s: %s is absent: %t", version, sel[1], v[1].IsAbsent())
		}
	}
}

func TestSelect(t *testing.T) {
	r := rowReader(t, false, "8.4.0", named("a`b", typeInt), named("e", typeEnum), named("f", typeFloat), named("y", typeYear2), ddl.Column{Name: ddl.HiddenName("k", 0), Hidden: "k", AsLogged: true, Invisible: true})
	if got, want := strings.Join(r.Select(), " , "), "`a``b` , (`e`|0) , `f`*1e0 , YEAR(`y`)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := r.From(), "`s``1`.`t`"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, ok := r.Key(); ok {
		t.Error("it has a key")
	}
	if _, err := NewReader(r.Table(), &ddl.Table{}); err == nil {
		t.Error("a definition of another table is taken")
	}
	if _, err := Definition(ddl.Name{Schema: "s", Table: "t"}, &ddl.Table{Columns: []ddl.Column{{Name: "c", DataType: "hologram", SQLType: "hologram"}}}, schema.Options{}, schema.Logged{}); err == nil || !strings.Contains(err.Error(), "hologram") {
		t.Errorf("an unknown type: %v", err)
	}
}

// TestVersioned: of tables WITH SYSTEM VERSIONING the present rows are read, where the stream shows those, and else all.
func TestVersioned(t *testing.T) {
	def := &ddl.Table{Versioned: true, RowTimes: true, Columns: []ddl.Column{named("id", key(1, typeInt))}}
	def.AddRowTimes()
	for all, want := range map[bool]string{false: "`s`.`t`", true: "`s`.`t` FOR SYSTEM_TIME ALL"} {
		table, err := Definition(ddl.Name{Schema: "s", Table: "t"}, def, schema.Options{MariaDB: true, Version: "11.8.1", AllVersions: all}, schema.Logged{Metadata: "FULL"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(table, def)
		if err != nil {
			t.Fatal(err)
		}
		names, _ := r.Key()
		if wantKey := map[bool]string{false: "[id]", true: "[id row_end]"}[all]; r.From() != want || (table.RowEnd > 0) == all || fmt.Sprint(names) != wantKey {
			t.Errorf("all versions %t: from %s, end %d, key %v", all, r.From(), table.RowEnd, names)
		}
	}
}

func TestUnique(t *testing.T) {
	def := &ddl.Table{Columns: []ddl.Column{named("a", typeInt), named("b", typeInt), named("c", typeInt)}}
	for metadata, want := range map[string]string{"FULL": "[2 0]", "MINIMAL": "[]", "": "[]"} {
		table, err := Definition(ddl.Name{Schema: "s", Table: "t"}, def, schema.Options{Version: "8.4.0"}, schema.Logged{Metadata: metadata, Unique: []string{"c", "a"}})
		if err != nil || fmt.Sprint(table.Key) != want {
			t.Errorf("%s: key %v (%v), want %s", metadata, table.Key, err, want)
		}
	}
}

// I2: a table is not read in an order that its server does not keep to.
func TestUnordered(t *testing.T) {
	old := typeTime
	old.SQLType += " /* mariadb-5.3 */"
	for _, c := range []struct {
		col ddl.Column
		ok  bool
	}{{typeTime, true}, {old, false}} {
		if _, ok := rowReader(t, true, "11.4.5-MariaDB", named("t", key(1, c.col))).Key(); ok != c.ok {
			t.Errorf("%s: %t", c.col.SQLType, ok)
		}
	}
}

func TestWhere(t *testing.T) {
	r := rowReader(t, false, "8.4.0", named("s", key(2, typeVarchar)), named("n", key(1, typeInt)), named("x", typeInt))
	if names, ok := r.Key(); !ok || !slices.Equal(names, []string{"n", "s"}) {
		t.Errorf("key %v", names)
	}
	l, err := r.Literals([]mysql.FieldValue{text("é'"), number(-5), null})
	if err != nil || !slices.Equal(l, []string{"-5", "_utf8mb4 X'c3a927'"}) {
		t.Errorf("%v, %v", l, err)
	}
	for _, c := range []struct {
		last, most []string
		want       string
	}{
		{nil, nil, "TRUE"},
		{[]string{"1", "'a'"}, nil, "((`n`>1) OR (`n`=1 AND `s`>'a'))"},
		{nil, []string{"1", "'a'"}, "((`n`<1) OR (`n`=1 AND `s`<='a'))"},
		{[]string{"1", "'a'"}, []string{"2", "'b'"}, "((`n`>1) OR (`n`=1 AND `s`>'a')) AND ((`n`<2) OR (`n`=2 AND `s`<='b'))"},
	} {
		if got := r.Where(c.last, c.most); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got, want := r.Order(false)+" "+r.Order(true), "`n`,`s` `n` DESC,`s` DESC"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if l, err := r.Literals([]mysql.FieldValue{null, number(1), null}); err == nil {
		t.Errorf("a key of NULL: %v", l)
	}
	if l, err := r.Literals(nil); err == nil {
		t.Errorf("no row: %v", l)
	}

	r = rowReader(t, false, "8.4.0", named("s", key(1, typeVarchar)), named("b", key(2, typeBinary)))
	if names := r.ByBytes([]string{"s", "b"}); !slices.Equal(names, []string{"s"}) {
		t.Errorf("by bytes: %v", names)
	}
	if l, err := r.Literals([]mysql.FieldValue{text("é"), text("x")}); err != nil || !slices.Equal(l, []string{"X'c3a9'", "_binary X'78'"}) {
		t.Errorf("%v, %v", l, err)
	}
	if got, want := r.Where([]string{"X'61'", "1"}, nil)+" "+r.Order(false), "((CAST(`s` AS BINARY)>X'61') OR (CAST(`s` AS BINARY)=X'61' AND `b`>1)) CAST(`s` AS BINARY),`b`"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	r = rowReader(t, false, "8.4.0", named("e", key(1, typeEnum)), named("s", key(2, typeSet)))
	if names := r.ByBytes([]string{"e", "s"}); len(names) > 0 { // I3: numbers are no text
		t.Errorf("by bytes: %v", names)
	}
	for _, c := range []struct{ last, want string }{
		{"0", "(((`e`=1 OR `e`=2 OR `e`=3)) OR (`e`=0 AND (`s`|0)>9))"},
		{"3", "((FALSE) OR (`e`=3 AND (`s`|0)>9))"},
	} {
		if got := r.Where([]string{c.last, "9"}, nil); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got, want := r.Where(nil, []string{"1", "9"}), "(((`e`=0)) OR (`e`=1 AND (`s`|0)<=9))"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestLiterals(t *testing.T) {
	for _, c := range []struct {
		col   ddl.Column
		field mysql.FieldValue
		want  string
	}{
		{typeUint, unsigned(1<<64 - 1), "18446744073709551615"},
		{typeFloat, real(float64(float32(0.1))), "1.0000000149011612e-01"},
		{typeDecimal, text("-1.10"), "-1.10"},
		{typeBit, text("\xff\xff\xff\xff\xff\xff\xff\xfe"), "18446744073709551614"},
		{typeTime, text("-00:00:00.001"), "'-00:00:00.001'"},
		{typeSet, unsigned(1 << 63), "9223372036854775808"},
		{typeChar, text(""), "_latin1 X''"},
		{typeBinary, text("\x01\x00\x00\x00"), "_binary X'01000000'"},
	} {
		r := rowReader(t, false, "8.4.0", named("c", key(1, c.col)))
		if got, err := r.Literals([]mysql.FieldValue{c.field}); err != nil || !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: %v (%v), want %s", c.col.SQLType, got, err, c.want)
		}
	}
	r := rowReader(t, true, "11.8.1", named("c", key(1, typeUUID)))
	if got, err := r.Literals([]mysql.FieldValue{text("00112233-4455-1677-8899-aabbccdd0000")}); err != nil || got[0] != "'00112233-4455-1677-8899-aabbccdd0000'" {
		t.Errorf("%v, %v", got, err)
	}
}

// I2: a key has one identity in whatever form it is stored, and no two keys have the same one.
func TestIdentity(t *testing.T) {
	r := rowReader(t, false, "8.4.0", named("a", key(1, typeVarchar)), named("b", key(2, typeVarchar)), named("x", typeInt))
	seen := map[string]string{}
	for _, k := range [][2]string{{"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab", ""}, {"A", "b"}, {"a ", "b"}} {
		raw, err := r.Append(nil, []mysql.FieldValue{text(k[0]), text(k[1]), number(1)})
		if err != nil {
			t.Fatal(err)
		}
		other, err := r.Append(nil, []mysql.FieldValue{text(k[0]), text(k[1]), number(2)})
		if err != nil {
			t.Fatal(err)
		}
		id, ok := AppendIdentity(nil, r.Table(), scanned(t, r.Table(), raw))
		again, ok2 := AppendIdentity([]byte("x"), r.Table(), scanned(t, r.Table(), other))
		if !ok || !ok2 || !bytes.Equal(id, again[1:]) {
			t.Errorf("%q: %x, %x", k, id, again)
		}
		if former, known := seen[string(id)]; known {
			t.Errorf("%q and %s are one", k, former)
		}
		seen[string(id)] = fmt.Sprintf("%q", k)
	}
	keyless := rowReader(t, true, "11.8.1", named("a", typeInt), named("p", typePacked))
	var ids []string
	for _, row := range [][]mysql.FieldValue{{number(1), text("")}, {number(1), null}, {null, text("")}, {number(1), text("x")}} {
		raw, err := keyless.Append(nil, row)
		if err != nil {
			t.Fatal(err)
		}
		id, ok := AppendIdentity(nil, keyless.Table(), scanned(t, keyless.Table(), raw))
		if !ok || slices.Contains(ids, string(id)) {
			t.Errorf("%x is not of one row", id)
		}
		ids = append(ids, string(id))
	}
	if id, ok := AppendIdentity([]byte("x"), r.Table(), nil); ok || string(id) != "x" {
		t.Errorf("no image: %x", id)
	}
	// An image that lacks a column of the key.
	e := &event.Event{Kind: event.Rows, Op: event.Insert, Rows: 1, Table: r.Table(), Images: event.Images{After: []byte{1}}, Raw: []byte{0, 1, 0, 'a'}}
	var s event.Scanner
	if s.Reset(e); !s.Next() {
		t.Fatal(s.Err())
	}
	if id, ok := AppendIdentity([]byte("x"), r.Table(), s.Row().After); ok || string(id) != "x" {
		t.Errorf("half a key: %x", id)
	}
}

func TestSameKey(t *testing.T) {
	table := func(keys ...int) *event.Table {
		return &event.Table{Columns: []event.Column{{Name: "a"}, {Name: "b"}}, Key: keys}
	}
	for _, c := range []struct {
		a, b *event.Table
		want bool
	}{{table(), table(), true}, {table(0, 1), table(0, 1), true}, {table(0, 1), table(1, 0), false}, {table(0), table(), false}} {
		if SameKey(c.a, c.b) != c.want {
			t.Errorf("%v and %v: %t", c.a.Key, c.b.Key, !c.want)
		}
	}
}

// FuzzAppend: whatever a server sends becomes a row image that reads back, or an error; nothing panics.
func FuzzAppend(f *testing.F) {
	f.Add([]byte("2024-01-01"), int64(5), byte(0), byte(0))
	f.Add([]byte("-00:00:00.001"), int64(-1), byte(3), byte(1))
	f.Add([]byte("::1"), int64(1<<62), byte(0), byte(2))
	all := []ddl.Column{typeInt, typeUint, typeTiny, typeYear, typeYear2, typeFloat, typeDouble, typeDecimal, typeBit, typeBit9, typeTime, typeEnum, typeSet, typeChar, typeVarchar, typeBinary, typeTinyB, typeJSON,
		typePoint, typePacked, typePackedT, typeUUID, typeINET4, typeINET6, {DataType: "date", SQLType: "date"}, {DataType: "datetime", SQLType: "datetime"}, {DataType: "timestamp", SQLType: "timestamp(6)", Fraction: 6}}
	for i := range all {
		all[i].Name = fmt.Sprintf("c%d", i)
		all[i].Key = i + 1
	}
	r := rowReader(f, true, "11.8.1", all...)
	f.Fuzz(func(t *testing.T, b []byte, n int64, typ, at byte) {
		row := make([]mysql.FieldValue, len(all))
		for i := range row {
			row[i] = null
		}
		i := int(at) % len(row)
		row[i] = mysql.NewFieldValue(mysql.FieldValueType(typ%5), uint64(n), b)
		_, _ = r.Literals(row)
		raw, err := r.Append(nil, row)
		if err != nil {
			return
		}
		v := scanned(t, r.Table(), raw)
		AppendIdentity(nil, r.Table(), v)
		_, _ = v[i].AppendText(nil)
	})
}

// BenchmarkAppend makes row images of a row as many tables have it.
func BenchmarkAppend(b *testing.B) {
	at := ddl.Column{DataType: "datetime", SQLType: "datetime"}
	r := rowReader(b, false, "8.4.0", named("id", key(1, typeUint)), named("name", typeVarchar), named("price", typeDecimal), named("at", at), named("kind", typeEnum), named("stock", typeInt),
		named("note", typeVarchar), named("doc", typeJSON))
	row := []mysql.FieldValue{unsigned(123456789), text("a name of some length"), text("123.45"), text("2024-07-01 12:34:56"), unsigned(2), number(-5), null, text(`{"a": 1, "b": [1, 2, 3]}`)}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = r.Append(dst[:0], row); err != nil {
			b.Fatal(err)
		}
	}
}
