//go:build integration

package corner

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/codec/debezium"
	"github.com/binlogmq/binlogmq/codec/maxwell"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/internal/testenv/sqlvalues"
)

// A valueFormat is a codec with options, as TestValues holds it against servers. A new codec joins with one more of them.
type valueFormat struct {
	name string
	new  func() (codec.Codec, error)
	read func(value []byte) (codectest.Message, error)
	text func(col *event.Column, value json.RawMessage) (string, error) // as of codectest.Format
	key  func(key []byte) (map[string]json.RawMessage, error)           // the columns of a message key, by name

	// zone is that of TIMESTAMP, as the servers write it; empty: UTC.
	zone string

	// shown is the SQL expression of what the format makes of a column where it documents more than an encoding of what SELECT shows;
	// empty: as all others. Nil: never.
	shown func(kind string, col *event.Column, declared string) string

	// lost tells of what the format has no place for: it becomes null, or zero where the column is NOT NULL. Nil: nothing.
	lost func(col *event.Column, text string) bool

	// same compares such a column's text, or one whose text is not the server's to the letter; nil: they are equal.
	same func(col *event.Column, got, want string) bool
}

// object reads a JSON object.
func object(b []byte) (m map[string]json.RawMessage, err error) {
	err = json.Unmarshal(b, &m)
	return m, err
}

var valueFormats = []valueFormat{
	{
		name: "canal-json",
		new:  func() (codec.Codec, error) { return canaljson.New(canaljson.Options{}) },
		read: codectest.ReadCanalJSON, text: codectest.CanalText(false, false), key: object,
	},
	{
		name: "canal-json readable",
		new: func() (codec.Codec, error) {
			return canaljson.New(canaljson.Options{Binary: "base64", Enum: "label", Location: time.FixedZone("", -9000)})
		},
		read: codectest.ReadCanalJSON, text: codectest.CanalText(true, true), key: object, zone: "-02:30",
	},
	{
		name: "canal-protobuf",
		new: func() (codec.Codec, error) {
			keys, err := canaljson.New(canaljson.Options{})
			if err != nil {
				return nil, err
			}
			return canalpb.New(canalpb.Options{}, keys)
		},
		read: codectest.ReadCanalProtobuf, text: codectest.CanalText(false, false), key: object,
	},
	{
		name: "debezium",
		new:  func() (codec.Codec, error) { return debezium.New(debezium.Options{Name: "values"}) },
		read: readDebezium, text: codectest.DebeziumModes{}.Text, key: object, lost: codectest.DebeziumLost,
	},
	{
		name: "maxwell",
		new:  func() (codec.Codec, error) { return maxwell.New(maxwell.Defaults()) },
		read: codectest.ReadMaxwell, text: codectest.MaxwellText,
		key: func(b []byte) (map[string]json.RawMessage, error) {
			m, err := object(b)
			out := map[string]json.RawMessage{}
			for name, v := range m {
				if col, ok := strings.CutPrefix(name, "pk."); ok {
					out[col] = v
				}
			}
			return out, err
		},
		// WKT without SRID, coordinates as they are stored.
		shown: func(kind string, col *event.Column, declared string) string {
			switch declared, _, _ := strings.Cut(declared, " "); declared {
			case "geometry", "point":
				if kind == "mysql" {
					return "HEX(ST_AsText(ST_SRID(`" + col.Name + "`,0)))"
				}
				return "HEX(ST_AsText(`" + col.Name + "`))"
			}
			return ""
		},
		same: func(col *event.Column, got, want string) bool {
			switch {
			case col.Class == event.ClassGeometry:
				return wkt(got) == wkt(want)
			case col.Logical == event.LogicalJSON: // nested: what stands between the values is not kept
				var a, b bytes.Buffer
				return json.Compact(&a, []byte(got)) == nil && json.Compact(&b, []byte(want)) == nil && a.String() == b.String()
			}
			return false
		},
	},
}

// readDebezium takes an envelope apart.
func readDebezium(value []byte) (codectest.Message, error) {
	var m struct {
		Before, After map[string]json.RawMessage
		Source        struct{ DB, Table string }
		Op            string
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return codectest.Message{}, err
	}
	const unavailable = `"__debezium_unavailable_value"`
	for _, image := range []map[string]json.RawMessage{m.Before, m.After} {
		maps.DeleteFunc(image, func(_ string, v json.RawMessage) bool {
			var b []byte
			return string(v) == unavailable || json.Unmarshal(v, &b) == nil && string(b) == unavailable[1:len(unavailable)-1]
		})
	}
	out := codectest.Message{Schema: m.Source.DB, Table: m.Source.Table, Data: m.After, Op: map[string]string{"c": "insert", "u": "update", "d": "delete"}[m.Op]}
	if m.Op == "d" {
		out.Data = m.Before
	}
	if m.Op == "u" {
		out.Old = map[string]json.RawMessage{}
		for name, v := range m.Before {
			if w, ok := m.After[name]; ok && !bytes.Equal(v, w) {
				out.Old[name] = v
			}
		}
	}
	return out, nil
}

var wktSpace = regexp.MustCompile(`\s*([(),])\s*`)

// wkt leaves out of WKT what servers write as they like: spaces, and the parentheses of the points of a MULTIPOINT.
func wkt(s string) string {
	s = wktSpace.ReplaceAllString(s, "$1")
	if list, ok := strings.CutPrefix(s, "MULTIPOINT"); ok {
		s = "MULTIPOINT" + strings.NewReplacer("(", "", ")", "").Replace(list)
	}
	return s
}

// A step is one statement that changes all rows of all tables.
type step struct {
	name, image string
	op          event.Op
	shots       map[string]*shot
}

// A shot is what a server shows of a table: by zone and format, row, and column.
type shot struct{ before, after view }

type view map[string]map[string]map[string]string

// valueSuite runs on one server.
type valueSuite struct {
	t      *testing.T
	s      *testenv.Server
	db     string
	source *client.Conn
	tables []*sqlvalues.Table
	steps  []*step
	now    map[string]view // what the server shows of each table
}

const absent = "NULL"

func (v *valueSuite) exec(q string) {
	v.t.Helper()
	if _, err := v.source.Execute(q); err != nil {
		v.t.Fatalf("%v\n%.1500s", err, q)
	}
}

// create makes the tables, and a copy of each that is not captured, from which values come.
func (v *valueSuite) create() {
	v.s.Exec("CREATE DATABASE " + v.db + "_src CHARACTER SET utf8mb4")
	v.t.Cleanup(func() { v.s.Exec("DROP DATABASE " + v.db + "_src") })
	for _, t := range v.tables {
		for _, db := range []string{v.db, v.db + "_src"} {
			v.exec(t.Create(db))
		}
		v.exec(t.Insert(v.db + "_src"))
	}
}

// look asks the server what the table holds.
func (v *valueSuite) look(t *sqlvalues.Table) view {
	out := view{}
	zones := map[string][]string{"": {"+00:00"}}
	for _, f := range valueFormats {
		if f.zone != "" {
			zones[f.name] = []string{f.zone}
		}
	}
	for name, zone := range zones {
		var list, as []string
		for _, c := range t.All() {
			stamp := strings.HasPrefix(c.Decl, "timestamp")
			if name == "" || stamp || c.Name == "id" {
				list, as = append(list, sqlvalues.Shown(v.s.Kind, c.Name, c.Decl)), append(as, name+"\x00"+c.Name)
			}
			for _, f := range valueFormats {
				if name == "" && f.shown != nil {
					if e := f.shown(v.s.Kind, &event.Column{Name: c.Name}, c.Decl); e != "" {
						list, as = append(list, e), append(as, f.name+"\x00"+c.Name)
					}
				}
			}
		}
		if len(list) == 1 {
			continue
		}
		v.exec("SET time_zone='" + zone[0] + "'")
		r, err := v.source.Execute(fmt.Sprintf("SELECT %s FROM %s.%s ORDER BY id", strings.Join(list, ","), v.db, t.Name))
		if err != nil {
			v.t.Fatalf("%v: SELECT %s", err, strings.Join(list, ","))
		}
		for i := range r.RowNumber() {
			id := ""
			for j, to := range as {
				text := absent
				if null, err := r.IsNull(i, j); err != nil || !null {
					s, err := r.GetString(i, j)
					if err != nil {
						v.t.Fatal(err)
					}
					b, err := hex.DecodeString(s)
					if err != nil {
						v.t.Fatal(err)
					}
					text = "=" + string(b)
				}
				if j == 0 {
					id = text[1:]
				}
				variant, col, _ := strings.Cut(to, "\x00")
				if out[variant] == nil {
					out[variant] = map[string]map[string]string{}
				}
				if out[variant][id] == nil {
					out[variant][id] = map[string]string{}
				}
				out[variant][id][col] = text
			}
		}
		r.Close()
	}
	v.exec("SET time_zone='+00:00'")
	return out
}

// do runs a statement on each table that takes part, with a look before and after, and marks in the log where it ends.
func (v *valueSuite) do(image, name string, op event.Op, statement func(*sqlvalues.Table) string) {
	st := &step{name: name, image: image, op: op, shots: map[string]*shot{}}
	v.exec("SET SESSION binlog_row_image=" + image)
	for _, t := range v.tables {
		if image != "FULL" && !slices.Contains(t.Images, image) {
			continue
		}
		q := statement(t)
		if q == "" {
			continue
		}
		v.exec(q)
		now := v.look(t)
		st.shots[t.Name] = &shot{v.now[t.Name], now}
		v.now[t.Name] = now
	}
	v.exec(fmt.Sprintf("CREATE TABLE %s.mark%d (id int)", v.db, len(v.steps)))
	v.steps = append(v.steps, st)
}

// write changes the tables in every way, with every row image.
func (v *valueSuite) write() {
	images := []string{"FULL"}
	for _, t := range v.tables {
		for _, image := range t.Images {
			if !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	for _, image := range images {
		v.do(image, "insert", event.Insert, func(t *sqlvalues.Table) string {
			cols, some := strings.Join(t.Written(), ","), ""
			if image != "FULL" { // the values have been seen
				some = " WHERE id<=5"
			}
			return fmt.Sprintf("INSERT INTO %s.%s (%s) SELECT %s FROM %[1]s_src.%[2]s%[5]s", v.db, t.Name, cols, cols, some)
		})
		v.do(image, "update of one column", event.Update, func(t *sqlvalues.Table) string {
			if len(t.Images) == 0 {
				return ""
			}
			return fmt.Sprintf("UPDATE %s.%s SET touched=1", v.db, t.Name)
		})
		if image == "FULL" && v.s.Kind == "mysql" {
			v.exec("SET SESSION binlog_row_value_options=PARTIAL_JSON")
			v.do(image, "update in part", event.Update, func(t *sqlvalues.Table) string {
				if !slices.ContainsFunc(t.Columns, func(c sqlvalues.Column) bool { return c.Decl == "json" }) {
					return ""
				}
				return fmt.Sprintf(`UPDATE %s.%s SET js=JSON_SET(JSON_REMOVE(js,'$.a'),'$[0]',CAST('{"x":1.50,"y":[]}' AS JSON),'$.n',CAST(1.10 AS DECIMAL(5,2)),'$.big','é')`, v.db, t.Name)
			})
			v.exec("SET SESSION binlog_row_value_options=''")
		}
		// Each row takes the values of the next one.
		v.do(image, "update", event.Update, func(t *sqlvalues.Table) string {
			var set []string
			for _, name := range t.Written()[2:] {
				set = append(set, "a."+name+"=b."+name)
			}
			return fmt.Sprintf("UPDATE %s.%s a JOIN %[1]s_src.%[2]s b ON b.id=a.id%%%d+1 SET %s", v.db, t.Name, t.Rows, strings.Join(set, ","))
		})
		v.do(image, "delete", event.Delete, func(t *sqlvalues.Table) string {
			return fmt.Sprintf("DELETE FROM %s.%s", v.db, t.Name)
		})
	}
}

var errRead = errors.New("all is read")

// read hands every row change to check.
func (v *valueSuite) read(c *connector.Connector, from event.Cursor, check func(*step, *event.Row)) {
	ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Minute)
	defer cancel()
	at := 0
	var sc event.Scanner
	err := c.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
		for _, e := range es {
			switch {
			case e.Kind == event.Rows && at < len(v.steps):
				sc.Reset(e)
				for sc.Next() {
					check(v.steps[at], sc.Row())
				}
				if err := sc.Err(); err != nil {
					return err
				}
			case e.Kind == event.DDL && bytes.Contains(e.Raw, fmt.Appendf(nil, "mark%d ", at)):
				if at++; at == len(v.steps) {
					return errRead
				}
			}
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		v.t.Fatalf("reading ended at %q: %v", v.steps[min(at, len(v.steps)-1)].name, err)
	}
}

// I3, I4, I5: what every format says of every type's edge values is what each server itself shows, or the format's documented encoding of
// it, in every image of every operation and in keys; what an image leaves out is left out and never NULL.
func TestValues(t *testing.T) {
	for _, kind := range testenv.Kinds {
		if only := os.Getenv("BINLOGMQ_TEST_VALUES"); only != "" && only != kind {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			v := &valueSuite{t: t, s: s, db: s.Database(), now: map[string]view{}}
			v.source = s.Connect("")
			for _, q := range sqlvalues.Session(kind) {
				v.exec(q)
			}
			sets := sqlvalues.Charsets(s.Query(sqlvalues.CharsetsQuery))
			if len(sets) < 36 {
				t.Fatalf("only %d character sets", len(sets))
			}
			v.tables = sqlvalues.Tables(kind, sets)
			v.create()
			filter, err := tablefilter.New([]string{v.db + ".*"})
			if err != nil {
				t.Fatal(err)
			}
			o := connector.Options{
				Destination: testenv.Name(t), Addresses: []string{s.Addr}, User: s.ReplUser, Password: s.ReplPassword, Tables: filter,
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			}
			c, err := connector.New(o)
			if err != nil {
				t.Fatal(err)
			}
			from, err := c.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v.write()
			checks := make([]*valueCheck, len(valueFormats))
			for i := range valueFormats {
				f := &valueFormats[i]
				c, err := f.new()
				if err != nil {
					t.Fatal(err)
				}
				checks[i] = &valueCheck{valueFormat: f, t: t, kind: kind, codec: c, seen: map[string]int{}}
			}
			tables := map[string]*sqlvalues.Table{}
			for _, tab := range v.tables {
				tables[tab.Name] = tab
			}
			rows := 0
			v.read(c, from, func(st *step, r *event.Row) {
				if rows++; tables[r.Table.Name] == nil || st.shots[r.Table.Name] == nil {
					t.Fatalf("%s: a row of %s", st.name, r.Table.Name)
				}
				for _, check := range checks {
					check.row(st, tables[r.Table.Name], r)
				}
			})
			for _, st := range v.steps {
				for name, sh := range st.shots {
					changed := 0
					for id := range maps.Keys(sh.before[""]) {
						if !maps.Equal(sh.before[""][id], sh.after[""][id]) {
							changed++
						}
					}
					if st.op == event.Insert {
						changed = len(sh.after[""])
					}
					for _, check := range checks {
						if got := check.seen[st.image+st.name+name]; got != changed {
							t.Errorf("%s %s of %s: %d rows, want %d", st.image, st.name, name, got, changed)
						}
					}
				}
			}
			t.Logf("%d row changes of %d tables in %d formats", rows, len(v.tables), len(checks))
		})
	}
}

// A valueCheck holds one format against one server.
type valueCheck struct {
	*valueFormat
	t        *testing.T
	kind     string
	codec    codec.Codec
	seen     map[string]int // rows by step and table
	failures int
	buf      []byte
}

func (c *valueCheck) errorf(format string, args ...any) {
	c.t.Helper()
	if c.failures++; c.failures <= 40 {
		c.t.Errorf(c.name+": "+format, args...)
	}
}

// want is what the server shows of a column in the format's way.
func (c *valueCheck) want(v view, id, col string) (text string, ok bool) {
	if text, ok = v[c.name][id][col]; !ok {
		text, ok = v[""][id][col]
	}
	return text, ok
}

func (c *valueCheck) row(st *step, tab *sqlvalues.Table, r *event.Row) {
	c.t.Helper()
	sh := st.shots[tab.Name]
	id, err := r.Values()[0].AppendText(nil)
	if r.Values()[0].IsAbsent() {
		id, err = r.Before[0].AppendText(nil)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	where := fmt.Sprintf("%s %s of %s, row %s", st.image, st.name, tab.Name, id)
	c.seen[st.image+st.name+tab.Name]++
	if c.buf, err = c.codec.AppendRow(c.buf[:0], r); err != nil {
		c.errorf("%s: %v", where, err)
		return
	}
	m, err := c.read(c.buf)
	if err != nil {
		c.errorf("%s: %v in %.300q", where, err, c.buf)
		return
	}
	if m.Schema != r.Table.Schema || m.Table != tab.Name || m.Op != st.op.String() {
		c.errorf("%s: says %s of %s.%s", where, m.Op, m.Schema, m.Table)
	}
	now := sh.after
	if st.op == event.Delete {
		now = sh.before
	}
	full := st.image == "FULL" || st.image == "FULL_NODUP"
	for i, col := range tab.All() {
		name := r.Table.Columns[i].Name
		if name != col.Name {
			c.errorf("%s: column %d is %s, not %s", where, i, name, col.Name)
			return
		}
		was, _ := c.want(sh.before, string(id), name)
		is, ok := c.want(now, string(id), name)
		if !ok {
			c.t.Fatalf("%s: the server shows no %s", where, name)
		}
		changed := st.op == event.Update && was != is
		got, there := m.Data[name]
		old, thereOld := m.Old[name]
		hidden := c.hidden(&col, st)
		needed := full || name == "id" || st.op == event.Insert || changed
		switch {
		case there:
			c.compare(where, &r.Table.Columns[i], col.Decl, got, is)
		case needed && !hidden && (full || !col.Generated):
			c.errorf("%s: %s is not in data", where, name)
		}
		switch {
		case thereOld:
			c.compare(where+", old", &r.Table.Columns[i], col.Decl, old, was)
			if !changed {
				c.errorf("%s: %s did not change, but is in old", where, name)
			}
		case changed && full && !hidden && !c.gone(&r.Table.Columns[i], was) && !c.gone(&r.Table.Columns[i], is):
			c.errorf("%s: %s changed, but is not in old", where, name)
		}
	}
	for name := range maps.Keys(m.Data) {
		if !slices.ContainsFunc(r.Table.Columns, func(col event.Column) bool { return col.Name == name }) {
			c.errorf("%s: there is no column %s", where, name)
		}
	}
	if !slices.Equal(r.Table.Key, keyOf(tab)) {
		c.errorf("%s: the key is %v", where, r.Table.Key)
	}
	c.key(where, tab, r, now, string(id), r.Table.Key)
	if st.image == "FULL" && st.name == "insert" && !tab.Keyed && len(id) == 1 && id[0] <= '4' {
		for i := range r.Table.Columns {
			if !r.After[i].IsAbsent() {
				c.key(where, tab, r, now, string(id), []int{i})
			}
		}
	}
}

// hidden tells whether the server's log does not say what a column that it computes holds: MariaDB 10.2 logs NULL for VIRTUAL ones,
// 11.8 leaves them all out of updates and deletes, and with FULL_NODUP VIRTUAL ones are missing though they changed.
func (c *valueCheck) hidden(col *sqlvalues.Column, st *step) bool {
	if !col.Generated {
		return false
	}
	virtual := strings.HasSuffix(col.Decl, "VIRTUAL")
	return c.kind == "mariadb11" && st.op != event.Insert || virtual && (c.kind == "mariadb102" || st.image == "FULL_NODUP")
}

func keyOf(tab *sqlvalues.Table) []int {
	key := []int{0}
	if tab.Keyed {
		for i := range tab.Columns {
			key = append(key, i+2)
		}
	}
	return key
}

// I4: the key is complete whatever the image leaves out.
func (c *valueCheck) key(where string, tab *sqlvalues.Table, r *event.Row, now view, id string, key []int) {
	c.t.Helper()
	b, err := c.codec.AppendKey(nil, r, key)
	if err != nil {
		c.errorf("%s: key: %v", where, err)
		return
	}
	m, err := c.valueFormat.key(b)
	if err != nil || len(m) != len(key) {
		c.errorf("%s: key %.300q: %v", where, b, err)
		return
	}
	for _, k := range key {
		col := &r.Table.Columns[k]
		want, _ := c.want(now, id, col.Name)
		v, ok := m[col.Name]
		if !ok {
			c.errorf("%s: key without %s: %s", where, col.Name, b)
			continue
		}
		c.compare(where+", key", col, tab.All()[k].Decl, v, want)
	}
}

// gone tells whether the format has no place for what the server shows.
func (c *valueCheck) gone(col *event.Column, want string) bool {
	return c.lost != nil && want != absent && c.lost(col, want[1:])
}

// compare holds a value of a message against what the server shows.
func (c *valueCheck) compare(where string, col *event.Column, declared string, got json.RawMessage, want string) {
	c.t.Helper()
	if string(got) == "null" && c.gone(col, want) {
		return
	}
	if want == absent || string(got) == "null" {
		// The document null of MySQL's JSON looks like SQL NULL where JSON is nested.
		if (want == absent) != (string(got) == "null") && !(col.Class == event.ClassJSON && want == "=null") {
			c.errorf("%s: %s (%s) is %.100s, the server shows %.100q", where, col.Name, declared, got, want)
		}
		return
	}
	text, err := c.text(col, got)
	if c.gone(col, want) && !col.Nullable && strings.HasPrefix(text, "1970-01-01") {
		return
	}
	if want = want[1:]; err == nil && (sqlvalues.Same(declared, text, want) || c.same != nil && c.same(col, text, want)) {
		return
	}
	c.errorf("%s: %s (%s): %.100s is %.300q (%v), the server shows %.300q", where, col.Name, declared, got, text, err, want)
}
