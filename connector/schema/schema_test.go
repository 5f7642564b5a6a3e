package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// tableMap writes a TABLE_MAP of shop.t. Optional fields are given as code and value.
func tableMap(t testing.TB, types, meta, nullable string, optional ...string) *binlog.TableMap {
	t.Helper()
	b := "\x01\x00\x00\x00\x00\x00\x01\x00\x04shop\x00\x01t\x00" + string(rune(len(types))) + types + string(rune(len(meta))) + meta + nullable
	for i := 0; i < len(optional); i += 2 {
		b += optional[i] + string(rune(len(optional[i+1]))) + optional[i+1]
	}
	m, err := binlog.ParseTableMap([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func names(n ...string) string {
	s := ""
	for _, x := range n {
		s += string(rune(len(x))) + x
	}
	return s
}

var charsets = map[uint32]string{8: "latin1", 28: "gbk", 45: "utf8mb4", 63: "binary"}

// present is a Source that stands at one place; tables shows what information_schema does, and asked counts the questions.
type present struct {
	at     event.Position
	now    event.Position // where the log ends
	tables map[ddl.Name]*ddl.Table
	log    []*binlog.Statement // between at and now
	err    error
	asked  map[string]int
	scans  int
}

func (p *present) Here() (event.Position, error) { return p.at, nil }

func (p *present) Describe(n ddl.Name) (*ddl.Table, event.Position, error) {
	if p.asked == nil {
		p.asked = map[string]int{}
	}
	p.asked[n.Table]++
	if p.err != nil {
		return nil, p.now, p.err
	}
	if t := p.tables[n]; t != nil {
		return t, p.now, nil
	}
	return nil, p.now, ErrNoTable
}

func (p *present) Scan(from, to event.Position, tell func(*binlog.Statement)) error {
	p.scans++
	for _, st := range p.log {
		end := event.Position{File: st.File, Offset: st.Next, ServerUUID: st.ServerUUID}
		if !from.Reached(&end) && to.Reached(&end) {
			tell(st)
		}
	}
	return nil
}

var shopT = ddl.Name{Schema: "shop", Table: "t"}

// place is a transaction end.
func place(offset uint64) event.Position {
	return event.Position{File: "binlog.000001", Offset: offset, ServerUUID: "s"}
}

// said is a statement that ends at an offset.
func said(offset uint64, text string) *binlog.Statement {
	return &binlog.Statement{Text: []byte(text), Schema: []byte("shop"), ServerUUID: "s", File: "binlog.000001", Start: offset - 10, Next: offset}
}

// knowing returns a view of a history that begins, at offset 100, with these columns of shop.t.
func knowing(p *present, mariaDB bool, cols []ddl.Column) *View {
	h := NewHistory(nil)
	base := map[ddl.Name]*ddl.Table{{Schema: "shop"}: {Charset: "utf8mb4"}}
	if cols != nil {
		base[shopT] = &ddl.Table{Charset: "utf8mb4", Columns: cols}
	}
	srv := ddl.Server{MariaDB: mariaDB, Version: 80036}
	h.begin(srv, place(100), place(100), base)
	p.at, p.now = place(100), place(100)
	return h.View(place(100), ViewOptions{Source: p, Server: srv})
}

func describe(t *event.Table) string {
	var s []string
	for i := range t.Columns {
		c := &t.Columns[i]
		x := c.Name + " " + c.SQLType
		if c.Charset != "" {
			x += " " + c.Charset
		}
		if !c.Nullable {
			x += " not null"
		}
		if c.Invisible {
			x += " invisible"
		}
		if c.Logical != 0 {
			x += " (" + c.Logical.String() + ")"
		}
		s = append(s, x)
	}
	return strings.Join(s, ", ") + fmt.Sprint(" key ", t.Key)
}

func TestFullMetadataTable(t *testing.T) {
	for name, c := range map[string]struct {
		mariaDB bool
		m       *binlog.TableMap
		want    string
	}{
		"signedness, charsets, key, visibility": {
			m: tableMap(t, "\x03\x0f\x01\x0f\xfc", "\x50\x00\x24\x00\x02", "\x1e",
				"\x01", "\x80", "\x02", "\x2d\x01\x08", "\x04", names("a", "b", "c", "d", "e"), "\x08", "\x00\x03", "\x0c", "\xe8"),
			want: "a int unsigned not null, b varchar(20) utf8mb4, c tinyint, d varchar(36) latin1 invisible, e text utf8mb4 key [0 3]",
		},
		"column charsets, prefix key": {
			m:    tableMap(t, "\x0f\xfc", "\x05\x00\x02", "\x00", "\x03", "\x3f\x1c", "\x04", names("a", "b"), "\x09", "\x01\x05\x00\x00"),
			want: "a varbinary(5) binary not null, b text gbk not null key [1 0]",
		},
		"enum and set": {
			m: tableMap(t, "\xfe\xfe\xfe", "\xf7\x01\xf8\x01\xfe\x03", "\x07", "\x02", "\x08", "\x04", names("e", "s", "c"), "\x06", "\x02\x01x\x01\xff", "\x05", "\x02\x01a\x02\xd6\xd0",
				"\x0a", "\x08\x01\x1c"),
			want: "e enum('x','ÿ') latin1, s set('a','中') gbk, c char(3) latin1 key []",
		},
		"vector counts among the character columns": {
			m:    tableMap(t, "\xf2\x0f\x0f", "\x04\x24\x00\x24\x00", "\x07", "\x03", "\x3f\x08\x2d", "\x04", names("v", "a", "b")),
			want: "v vector, a varchar(36) latin1, b varchar(9) utf8mb4 key []",
		},
		"geometry does on MariaDB": {
			mariaDB: true,
			m:       tableMap(t, "\xff\x0f", "\x04\x24\x00", "\x03", "\x03", "\x3f\x08", "\x04", names("g", "a")),
			want:    "g geometry, a varchar(36) latin1 key []",
		},
		"a hidden hash": {
			mariaDB: true,
			m:       tableMap(t, "\x03\x08", "", "\x00", "\x01", "\x40", "\x04", names("a", "DB_ROW_HASH_1")),
			want:    "a int not null, DB_ROW_HASH_1 bigint unsigned not null invisible key []",
		},
		"unknown optional field": {
			m:    tableMap(t, "\x03", "", "\x00", "\x01", "\x00", "\x04", names("a"), "\x63", "xyz"),
			want: "a int not null key []",
		},
	} {
		b := New(Options{MariaDB: c.mariaDB, Version: "9.7.4", Charsets: charsets})
		table, err := b.Table(c.m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := describe(table); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if again, _ := b.Table(c.m); again != table {
			t.Errorf("%s: built twice", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		opt  Options
		m    *binlog.TableMap
		want string
		stop bool
	}{
		"no names on MySQL":       {Options{Version: "8.0.36"}, tableMap(t, "\x03", "", "\x00"), "SET PERSIST binlog_row_metadata=FULL", true},
		"no names on MySQL 5.7":   {Options{Version: "5.7.44-log"}, tableMap(t, "\x03", "", "\x00"), "before 8.0.1", true},
		"no names on MariaDB":     {Options{MariaDB: true, Version: "10.11.1-MariaDB"}, tableMap(t, "\x03", "", "\x00"), "SET GLOBAL binlog_row_metadata=FULL", true},
		"no names on old MariaDB": {Options{MariaDB: true, Version: "10.4.1-MariaDB"}, tableMap(t, "\x03", "", "\x00"), "before 10.5", true},
		"unknown type":            {Options{}, tableMap(t, "\x03\x63", "", "\x00", "\x04", names("a", "b")), `column 2 "b" cannot be decoded`, true},
		"unknown collation":       {Options{}, tableMap(t, "\x0f", "\x05\x00", "\x00", "\x03", "\x09", "\x04", names("a")), "collation 9", true},
		"too few charsets":        {Options{}, tableMap(t, "\x0f\x0f", "\x05\x00\x05\x00", "\x00", "\x03", "\x08", "\x04", names("a", "b")), "too few charsets", false},
		"too few signs":           {Options{}, tableMap(t, "\x03", "", "\x00", "\x01", "", "\x04", names("a")), "too few signedness", false},
		"too few members":         {Options{}, tableMap(t, "\xfe", "\xf7\x01", "\x00", "\x06", "", "\x04", names("a")), "too few ENUM", false},
		"metadata left over":      {Options{}, tableMap(t, "\x03", "\x01", "\x00", "\x04", names("a")), "too many", false},
		"names of other columns":  {Options{}, tableMap(t, "\x03", "", "\x00", "\x04", names("a", "b")), "optional field 4", false},
		"charset missing":         {Options{}, tableMap(t, "\x0f", "\x05\x00", "\x00", "\x04", names("a")), "cannot be decoded", true},
	} {
		c.opt.Charsets = charsets
		_, err := New(c.opt).Table(c.m)
		var stop *binlog.StopError
		if err == nil || errors.As(err, &stop) != c.stop || errors.Is(err, binlog.ErrMalformed) == c.stop {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestEnrichment(t *testing.T) {
	m := tableMap(t, "\x01\x01\xfc\xfe\xfe\x0f", "\x04\xfe\x10\xfe\x04\x14\x00", "\x3f", "\x01", "\x40", "\x02", "\x2d\x01\x3f\x02\x3f\x03\x08", "\x04", names("b", "c", "j", "u", "i", "v"))
	cols := []ddl.Column{ // another order: matched by name
		{Name: "v", DataType: "varchar", SQLType: "varchar(20) /*M!100301 COMPRESSED*/", Octets: 20, Charset: "latin1", Nullable: true},
		{Name: "b", DataType: "tinyint", SQLType: "tinyint(1)", Nullable: true},
		{Name: "c", DataType: "int", SQLType: "int", Nullable: true}, // altered since: not used
		{Name: "j", DataType: "longtext", SQLType: "longtext", Nullable: true, JSON: true},
		{Name: "u", DataType: "uuid", SQLType: "uuid", Nullable: true},
		{Name: "i", DataType: "inet4", SQLType: "inet4", Nullable: true},
	}
	src := &present{tables: map[ddl.Name]*ddl.Table{shopT: {Columns: cols[1:2]}}}
	b := New(Options{MariaDB: true, Charsets: charsets, View: knowing(src, true, cols)})
	table, err := b.Table(m)
	if err != nil {
		t.Fatal(err)
	}
	want := "b tinyint(1) (boolean), c tinyint unsigned, j longtext utf8mb4 (json), u uuid binary (uuid), i inet4 binary (inet4), v varchar(20) latin1 key []"
	if got := describe(table); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// The history answers, also after a statement that it can follow.
	_ = b.Changed(said(200, "DROP VIEW v"))
	_ = b.Changed(said(300, "alter table shop.t modify b int"))
	if table, err = b.Table(m); err != nil || table.Columns[0].Logical != 0 || table.Columns[3].Logical != event.LogicalUUID || src.asked["t"] != 0 {
		t.Errorf("%v, %v, asked %d times", table, err, src.asked["t"])
	}
	// One that it cannot follow: asked once.
	_ = b.Changed(said(400, "alter table shop.t transmogrify"))
	_ = b.Changed(said(500, "alter table shop.t modify b nonsense"))
	for range 2 {
		if table, err = b.Table(m); err != nil || table.Columns[0].Logical != event.LogicalBool || src.asked["t"] != 1 {
			t.Errorf("%v, %v, asked %d times", table, err, src.asked["t"])
		}
	}
	// The table is gone: the log alone describes it. Nobody knows: an error that is no stop.
	b = New(Options{MariaDB: true, Charsets: charsets, View: knowing(&present{err: fmt.Errorf("x: %w", ErrNoTable)}, true, nil)})
	if table, err = b.Table(m); err != nil || table.Columns[0].Logical != 0 || table.Columns[0].SQLType != "tinyint" {
		t.Errorf("%v, %v", table, err)
	}
	b = New(Options{MariaDB: true, Charsets: charsets, View: knowing(&present{err: errors.New("connection refused")}, true, nil)})
	var stop *binlog.StopError
	if _, err = b.Table(m); err == nil || errors.As(err, &stop) {
		t.Errorf("%v", err)
	}
}

// MySQL before it left them out of its log, and MariaDB, name their own columns in it.
func TestHiddenByName(t *testing.T) {
	for _, c := range []struct {
		mariaDB bool
		name    string
		want    bool
	}{{false, "!hidden!f!0!0", true}, {true, "!hidden!f!0!0", false}, {true, "DB_ROW_HASH_1", true}, {false, "DB_ROW_HASH_1", false}, {false, "hidden", false}} {
		m := tableMap(t, "\x03\x08", "", "\x02", "\x04", names("id", c.name), "\x08", "\x00")
		table, err := New(Options{MariaDB: c.mariaDB, Version: "8.0.20", Charsets: charsets}).Table(m)
		if err != nil || table.Columns[1].Hidden != c.want {
			t.Errorf("%v: %v, %v", c, table, err)
		}
	}
}

// I6: in an outer join servers log every column as nullable; what is known of them holds, and they are the same columns.
func TestOuterJoins(t *testing.T) {
	full := []string{"\x02", "\x3f", "\x04", names("id", "u", "n"), "\x08", "\x00"}
	known := []ddl.Column{
		{Name: "id", DataType: "int", SQLType: "int", Key: 1},
		{Name: "u", DataType: "uuid", SQLType: "uuid"},
		{Name: "n", DataType: "int", SQLType: "int", Nullable: true},
	}
	for _, c := range []struct {
		nullable string
		full     bool
		cols     []ddl.Column
		want     string
	}{
		{"\x04", true, known, "id int not null, u uuid binary not null (uuid), n int key [0]"},
		{"\x07", true, known, "id int not null, u uuid binary not null (uuid), n int key [0]"},
		{"\x07", true, nil, "id int not null, u binary(16) binary, n int key [0]"},
		{"\x07", false, known, "id int not null, u uuid binary not null (uuid), n int key [0]"},
		{"\x06", false, known, "stop"},
		{"\x00", false, known, "stop"},
	} {
		optional := full
		if !c.full {
			optional = nil
		}
		m := tableMap(t, "\x03\xfe\x03", "\xfe\x10", c.nullable, optional...)
		src := &present{}
		if c.cols == nil {
			src.err = fmt.Errorf("x: %w", ErrNoTable)
		}
		table, err := New(Options{MariaDB: true, Version: "10.11.6-MariaDB", Charsets: charsets, View: knowing(src, true, c.cols)}).Table(m)
		got := "stop"
		if err == nil {
			got = describe(table)
		}
		if got != c.want {
			t.Errorf("%x, names %v:\n got %s\nwant %s (%v)", c.nullable, c.full, got, c.want, err)
		}
	}
}

// I6: what was read later than the rows were written does not say which of their columns are NOT NULL.
func TestOuterJoinsBehind(t *testing.T) {
	m := tableMap(t, "\x03\x03", "", "\x03", "\x04", names("id", "n"), "\x08", "\x00")
	cols := []ddl.Column{{Name: "id", DataType: "int", SQLType: "int", Key: 1}, {Name: "n", DataType: "int", SQLType: "int"}}
	for at, want := range map[uint64]string{50: "id int not null, n int key [0]", 100: "id int not null, n int not null key [0]"} {
		h := NewHistory(nil)
		server := ddl.Server{MariaDB: true, Version: 101106}
		h.begin(server, place(at), place(100), map[ddl.Name]*ddl.Table{{Schema: "shop"}: {}, shopT: {Columns: cols}})
		v := h.View(place(at), ViewOptions{Source: &present{at: place(at), now: place(100)}, Server: server})
		table, err := New(Options{MariaDB: true, Version: "10.11.6-MariaDB", Charsets: charsets, View: v}).Table(m)
		if err != nil || describe(table) != want {
			t.Errorf("at %d: %v, %v, want %s", at, table, err, want)
		}
	}
}

// I6: the names of a definition are taken if every column agrees, else not one.
func TestAdopt(t *testing.T) {
	m := tableMap(t, "\x08\x0f\xfe\xf6", "\x14\x00\xf7\x01\x0a\x02", "\x0e")
	good := []ddl.Column{
		{Name: "id", DataType: "bigint", SQLType: "bigint unsigned", Key: 2},
		{Name: "v", DataType: "varchar", SQLType: "varchar(20)", Octets: 20, Charset: "latin1", Nullable: true},
		{Name: "e", DataType: "enum", SQLType: "enum('a','it''s')", Members: []string{"a", "it's"}, Charset: "latin1", Nullable: true, Key: 1},
		{Name: "d", DataType: "decimal", SQLType: "decimal(10,2)", Precision: 10, Scale: 2, Nullable: true, Invisible: true},
	}
	build := func(cols []ddl.Column, err error) (*event.Table, error) {
		return New(Options{Version: "8.0.36", Charsets: charsets, View: knowing(&present{err: err}, false, cols)}).Table(m)
	}
	table, err := build(good, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "id bigint unsigned not null, v varchar(20) latin1, e enum('a','it''s') latin1, d decimal(10,2) invisible key [2 0]"
	if got := describe(table); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Of hidden columns the log has what the version of the server that wrote it has.
	hidden := []ddl.Column{{Name: "!hidden!x!0!0", Hidden: "x", Invisible: true, AsLogged: true}, {Name: "!hidden!y!0!0", Hidden: "y", Invisible: true, AsLogged: true}}
	for _, c := range []struct {
		maria   bool
		version int
		want    [3]bool // whether the log may have none, one, and both
	}{{false, 80036, [3]bool{false, false, true}}, {false, 80400, [3]bool{true, false, true}}, {false, 90704, [3]bool{true, false, false}}, {true, 101106, [3]bool{true, true, true}}} {
		for n, may := range c.want {
			m := tableMap(t, "\x03\x03\x03", "", "\x07")
			m.Version = c.version
			cols := append(append([]ddl.Column(nil), integer("a", "b", "c").Columns[:3-n]...), hidden...)
			table, err := New(Options{MariaDB: c.maria, Version: "10.11.6", Charsets: charsets, View: knowing(&present{}, c.maria, cols)}).Table(m)
			if (err == nil) != may || may && table.Columns[2].Hidden != (n > 0) {
				t.Errorf("%d of 2, %d: %v, %v", n, c.version, table, err)
			}
		}
	}
	for name, change := range map[string]func(c []ddl.Column) []ddl.Column{
		"fewer":      func(c []ddl.Column) []ddl.Column { return c[:3] },
		"type":       func(c []ddl.Column) []ddl.Column { c[0].DataType = "int"; return c },
		"length":     func(c []ddl.Column) []ddl.Column { c[1].Octets = 30; return c },
		"nullable":   func(c []ddl.Column) []ddl.Column { c[1].Nullable = false; return c },
		"precision":  func(c []ddl.Column) []ddl.Column { c[3].Precision = 11; return c },
		"scale":      func(c []ddl.Column) []ddl.Column { c[3].Scale = 3; return c },
		"set":        func(c []ddl.Column) []ddl.Column { c[2].DataType = "set"; return c },
		"labels":     func(c []ddl.Column) []ddl.Column { c[2].Members = nil; return c },
		"order":      func(c []ddl.Column) []ddl.Column { c[0], c[3] = c[3], c[0]; return c },
		"not at all": func([]ddl.Column) []ddl.Column { return nil },
	} {
		_, err := build(change(append([]ddl.Column(nil), good...)), nil)
		var stop *binlog.StopError
		want := "binlog_row_metadata=FULL"
		if name == "labels" {
			want = "exclude the table"
		}
		if !errors.As(err, &stop) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var stop *binlog.StopError
	if _, err := build(nil, ErrNoTable); !errors.As(err, &stop) || !strings.Contains(err.Error(), "GRANT SELECT") && !strings.Contains(err.Error(), "grant SELECT") {
		t.Errorf("%v", err)
	}
}

func TestSequence(t *testing.T) {
	m := tableMap(t, "\x08\x08\x08\x08\x08\x08\x01\x08", "", "\x00", "\x01", "\x00", "\x04", names(sequenceColumns...))
	if table, err := New(Options{MariaDB: true}).Table(m); table != nil || err != nil {
		t.Errorf("a sequence is captured: %v, %v", table, err)
	}
	if table, err := New(Options{}).Table(m); table == nil || err != nil {
		t.Errorf("a table of MySQL is not captured: %v", err)
	}
}

func TestParseMembers(t *testing.T) {
	for in, want := range map[string]string{"enum('a')": "[a]", "set('a','b,c','it''s','')": "[a b,c it's ]", "enum('中')": "[中]", `set('back\\slash','\n\0x')`: "[back\\slash \n\x00x]",
		"enum('?',x'3fff','x')": "[? ?\xff x]"} {
		if got, ok := ParseMembers(in); !ok || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "enum", "enum(", "enum()", "enum('a", "enum('a'", "enum('a',)", "enum('a' 'b')", "enum(x)", "enum(x'3')"} {
		if got, ok := ParseMembers(in); ok {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for v, want := range map[string]bool{"10.5.0": true, "10.11.18-MariaDB": true, "11": true, "10.4.99": false, "9.9.9": false, "": false, "10": false, "x": false} {
		if atLeast(v, 10, 5) != want {
			t.Errorf("%q: %v", v, !want)
		}
	}
}

func FuzzParseMembers(f *testing.F) {
	f.Add("enum('a','it''s')")
	f.Fuzz(func(t *testing.T, s string) { _, _ = ParseMembers(s) })
}

// FuzzTable builds tables of any TABLE_MAP.
func FuzzTable(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x01\x00\x04shop\x00\x01t\x00\x02\x03\x0f\x02\x50\x00\x03\x01\x01\x80\x02\x01\x2d\x04\x04\x01a\x01b\x08\x01\x00"), true)
	f.Fuzz(func(t *testing.T, b []byte, mariaDB bool) {
		m, err := binlog.ParseTableMap(b)
		if err != nil {
			return
		}
		for _, from := range []string{FromLog, FromHistory} {
			view := knowing(&present{}, mariaDB, []ddl.Column{{Name: "a", DataType: "int", SQLType: "int", Nullable: true}})
			if table, err := New(Options{MariaDB: mariaDB, From: from, Charsets: charsets, View: view}).Table(&m); err == nil && table != nil {
				_, _ = event.CountRows(table, event.Insert, event.Images{After: make([]byte, (len(table.Columns)+7)/8)}, b)
			}
		}
	})
}

// I9: however many tables the log names, what is remembered of them is bounded by its size, and tables in use stay.
func TestTablesRememberedI9(t *testing.T) {
	cat := &present{}
	b := New(Options{Charsets: charsets, View: knowing(cat, false, nil)})
	b.limit = 20_000
	m := tableMap(t, "\x03", "", "\x00", "\x01", "\x00", "\x04", names("a"))
	table := func(name string) {
		m.Table, m.Definition = []byte(name), []byte("definition of "+name)
		if _, err := b.Table(m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 {
		table(fmt.Sprint("t", i))
		if i%10 == 0 {
			table("often")
		}
		held := 0
		for _, known := range []map[string]*entry{b.known, b.before} {
			for _, e := range known {
				held += e.weight
			}
		}
		if held > 2*b.limit {
			t.Fatalf("%d bytes are held after %d tables, the bound is %d", held, i, 2*b.limit)
		}
	}
	if cat.asked["often"] != 1 || cat.asked["t0"] != 1 {
		t.Errorf("asked %d times about the table in use, %d about another", cat.asked["often"], cat.asked["t0"])
	}
	_ = b.Changed(said(200, "ALTER TABLE often ADD b INT"))
	table("often")
	if cat.asked["often"] != 2 {
		t.Error("an altered table is not asked about again")
	}
}
