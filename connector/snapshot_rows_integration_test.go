//go:build integration

package connector

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/debezium"
	"github.com/binlogmq/binlogmq/codec/maxwell"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/internal/testenv/sqlvalues"
)

// A loggedRow is a row of the stream.
type loggedRow struct {
	event  *event.Event // for it alone
	values []event.Value
}

// rowSuite holds what is read from tables against what the log has of them, on one server.
type rowSuite struct {
	t      *testing.T
	db     string
	c      *Connector
	s      *session
	sv     *server
	cat    *catalog
	opt    schema.Options
	codecs map[string]codec.Codec
	errors int
}

func newRowSuite(t *testing.T, s *testenv.Server, change func(*Options)) *rowSuite {
	db := s.Database()
	u := &rowSuite{t: t, db: db, c: newConnectorWith(t, s, change, db+".*")}
	var err error
	if u.s, err = u.c.dial(t.Context(), s.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.s.close)
	if u.sv, err = u.s.server(t.Context()); err != nil {
		t.Fatal(err)
	}
	charsets, err := u.s.charsets(t.Context(), u.sv)
	if err != nil {
		t.Fatal(err)
	}
	u.cat = &catalog{ctx: t.Context(), c: u.c, addr: s.Addr, sv: u.sv}
	t.Cleanup(u.cat.close)
	u.opt = schema.Options{MariaDB: u.sv.mariaDB, Version: u.sv.version, Caseless: u.sv.caseless(), AllVersions: u.c.opt.AllVersions, Charsets: charsets}
	u.query(snapshot.Session)
	u.codecs = map[string]codec.Codec{}
	add := func(name string, c codec.Codec, err error) {
		if err != nil {
			t.Fatal(err)
		}
		u.codecs[name] = c
	}
	canal, err := canaljson.New(canaljson.Options{})
	add("canal-json", canal, err)
	readable, err := canaljson.New(canaljson.Options{Binary: "base64", Enum: "label"})
	add("canal-json readable", readable, err)
	pb, err := canalpb.New(canalpb.Options{}, canal)
	add("canal-protobuf", pb, err)
	dbz, err := debezium.New(debezium.Options{Name: "rows"})
	add("debezium", dbz, err)
	mx, err := maxwell.New(maxwell.Defaults())
	add("maxwell", mx, err)
	return u
}

func (u *rowSuite) errorf(format string, args ...any) {
	u.t.Helper()
	if u.errors++; u.errors <= 20 {
		u.t.Errorf(format, args...)
	}
}

func (u *rowSuite) query(q string) result {
	u.t.Helper()
	r, err := u.s.query(u.t.Context(), q)
	if err != nil {
		u.t.Fatalf("%v\n%.600s", err, q)
	}
	return r
}

// stream returns the inserted rows of each table up to the statement that creates the table "mark".
func (u *rowSuite) stream(from event.Cursor) (tables map[string]*event.Table, rows map[string][]loggedRow) {
	tables, rows = map[string]*event.Table{}, map[string][]loggedRow{}
	for _, e := range readUntil(u.t, u.c, from, func(e *event.Event) bool { return e.Kind == event.DDL && strings.Contains(string(e.Raw), "mark") }) {
		if e.Kind != event.Rows {
			continue
		}
		tables[e.Table.Name] = e.Table
		var s event.Scanner
		for s.Reset(e); s.Next(); {
			r := s.Row()
			one := *e
			one.Ordinal, one.Index, one.Last, one.Rows = r.Ordinal, r.Index, r.Last, 1
			rows[e.Table.Name] = append(rows[e.Table.Name], loggedRow{&one, slices.Clone(r.After)})
		}
		if s.Err() != nil {
			u.t.Fatal(s.Err())
		}
	}
	return tables, rows
}

// reader reads the table's definition.
func (u *rowSuite) reader(n ddl.Name) *snapshot.Reader {
	u.t.Helper()
	all, err := u.cat.read(u.s, func(schema string) bool { return schema == n.Schema }, &n)
	if err != nil {
		u.t.Fatal(err)
	}
	key, err := u.cat.unique(u.s, n)
	if err != nil {
		u.t.Fatal(err)
	}
	t, err := snapshot.Definition(n, all[n], u.opt, schema.Logged{Metadata: u.sv.vars["binlog_row_metadata"], Unique: key})
	if err != nil {
		u.t.Fatal(err)
	}
	r, err := snapshot.NewReader(t, all[n])
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

// each selects rows.
func (u *rowSuite) each(r *snapshot.Reader, more string, f func([]mysql.FieldValue)) int {
	u.t.Helper()
	n := 0
	q := "SELECT " + strings.Join(r.Select(), ",") + " FROM " + r.From() + more
	err := u.s.conn.ExecuteSelectStreaming(q, new(mysql.Result), func(row []mysql.FieldValue) error {
		n++
		f(row)
		return nil
	}, nil)
	if err != nil {
		u.t.Fatalf("%v\n%.3000s", err, q)
	}
	return n
}

// same holds a definition against the table of the stream.
func (u *rowSuite) same(got, want *event.Table) {
	u.t.Helper()
	if got.Schema != want.Schema || got.Name != want.Name || got.Caseless != want.Caseless || got.RowEnd != want.RowEnd || !slices.Equal(got.Key, want.Key) ||
		len(got.Columns) != len(want.Columns) {
		u.errorf("table %s.%s: key %v, end %d, %d columns; the stream has %s.%s: key %v, end %d, %d columns", got.Schema, got.Name, got.Key, got.RowEnd, len(got.Columns),
			want.Schema, want.Name, want.Key, want.RowEnd, len(want.Columns))
		return
	}
	if !snapshot.SameKey(got, want) {
		u.errorf("table %s: the keys are not the same", got.Name)
	}
	for i := range got.Columns {
		a, b := describeColumn(&got.Columns[i]), describeColumn(inNewFormat(&want.Columns[i]))
		if a != b {
			u.errorf("table %s:\n defined  %.600s\n streamed %.600s", got.Name, a, b)
		}
	}
}

// inNewFormat returns the column as it would be if its table were made anew: nothing tells of an old format but the log.
func inNewFormat(c *event.Column) *event.Column {
	now := *c
	switch c.Type {
	case event.TypeTime:
		now.Type = event.TypeTime2
	case event.TypeDatetime:
		now.Type = event.TypeDatetime2
	case event.TypeTimestamp:
		now.Type = event.TypeTimestamp2
	default:
		return c
	}
	if _, digits, found := strings.Cut(c.SQLType, "("); found {
		now.Meta = uint16(digits[0] - '0')
	}
	return &now
}

func describeColumn(c *event.Column) string {
	return fmt.Sprintf("%s type %d meta %d unsigned %t null %t invisible %t hidden %t charset %s sql %q logical %d virtual %d class %d members %q", c.Name, c.Type, c.Meta, c.Unsigned,
		c.Nullable, c.Invisible, c.Hidden, c.Charset, c.SQLType, c.Logical, c.Virtual, c.Class, c.Members)
}

// compare holds the rows that a table shows, in the order in which they were inserted, against those of the stream.
func (u *rowSuite) compare(r *snapshot.Reader, order string, want []loggedRow) {
	u.t.Helper()
	t := r.Table()
	all := bytes.Repeat([]byte{0xff}, (len(t.Columns)+7)/8)
	i := 0
	n := u.each(r, " ORDER BY "+order, func(row []mysql.FieldValue) {
		if i++; i > len(want) {
			return
		}
		logged := &want[i-1]
		raw, err := r.Append(nil, row)
		if err != nil {
			u.errorf("row %d: %v", i, err)
			return
		}
		e := *logged.event
		e.Table, e.Images, e.Raw, e.Skip = t, event.Images{After: all}, raw, 0
		got := &event.Row{Event: &e, Table: t, Op: event.Insert, Ordinal: e.Ordinal, Index: e.Index, Last: e.Last}
		var s event.Scanner
		if s.Reset(&e); !s.Next() {
			u.errorf("table %s, row %d: %v", t.Name, i, s.Err())
			return
		}
		got.After = s.Row().After
		wanted := *got
		wanted.Event, wanted.Table, wanted.After = logged.event, logged.event.Table, logged.values
		for j := range got.After {
			c := &t.Columns[j]
			a, b := &got.After[j], &logged.values[j]
			inForm := c.Class == event.ClassJSON || c.Type != b.Column().Type || c.Type == event.TypeVarcharCompressed || c.Type == event.TypeBlobCompressed
			if a.IsNull() != b.IsNull() || a.IsAbsent() != b.IsAbsent() || !inForm && !bytes.Equal(a.Raw(), b.Raw()) {
				u.errorf("table %s, row %d: %s (%s) is %t %.80x, the log has %t %.80x", t.Name, i, c.Name, c.SQLType, a.IsNull(), a.Raw(), b.IsNull(), b.Raw())
			}
		}
		x, ok1 := snapshot.AppendIdentity(nil, t, got.After)
		y, ok2 := snapshot.AppendIdentity(nil, wanted.Table, logged.values)
		if !bytes.Equal(x, y) || ok1 != ok2 || !ok1 && len(t.Key) > 0 {
			u.errorf("table %s, row %d: identity %x %t, of the log %x %t", t.Name, i, x, ok1, y, ok2)
		}
		for name, c := range u.codecs {
			a, err1 := c.AppendRow(nil, got)
			b, err2 := c.AppendRow(nil, &wanted)
			if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
				at := 0
				for at < min(len(a), len(b)) && a[at] == b[at] {
					at++
				}
				u.errorf("%s: table %s, row %d (%v, %v) differs from byte %d on:\n table  %.300q\n stream %.300q", name, t.Name, i, err1, err2, at, a[max(0, at-60):], b[max(0, at-60):])
			}
			if st, ok := c.(codec.Stubber); ok && len(a) > 6000 {
				a, err1 = st.AppendStub(nil, got, nil, 5000)
				b, err2 = st.AppendStub(nil, &wanted, nil, 5000)
				if (err1 == nil) != (err2 == nil) || !bytes.Equal(a, b) {
					u.errorf("%s: table %s, row %d (%v, %v): stub %.300q, of the stream %.300q", name, t.Name, i, err1, err2, a, b)
				}
			}
			if len(t.Key) == 0 {
				continue
			}
			a, err1 = c.AppendKey(nil, got, t.Key)
			b, err2 = c.AppendKey(nil, &wanted, wanted.Table.Key)
			if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
				u.errorf("%s: table %s, row %d: key %.300q (%v), of the stream %.300q (%v)", name, t.Name, i, a, err1, b, err2)
			}
		}
	})
	if n != len(want) {
		u.errorf("table %s shows %d rows, the log has %d", t.Name, n, len(want))
	}
}

// I1, I2: chunks of few rows are together each row of the table once, whatever its key's type.
func (u *rowSuite) walk(r *snapshot.Reader, condition string) {
	u.t.Helper()
	t := r.Table()
	literals := func(row []mysql.FieldValue) []string {
		u.t.Helper()
		l, err := r.Literals(row)
		if err != nil {
			u.t.Fatal(err)
		}
		return l
	}
	images := map[string]int{}
	all := u.each(r, " WHERE "+condition, func(row []mysql.FieldValue) {
		raw, err := r.Append(nil, row)
		if err != nil {
			u.t.Fatal(err)
		}
		images[string(raw)]++
	})
	if all == 0 {
		u.t.Fatalf("table %s: no rows", t.Name)
	}
	var last, most []string
	u.each(r, " WHERE "+condition+" ORDER BY "+r.Order(true)+" LIMIT 1", func(row []mysql.FieldValue) { most = literals(row) })
	seen := 0
	for {
		n := u.each(r, " WHERE "+condition+" AND "+r.Where(last, most)+" ORDER BY "+r.Order(false)+" LIMIT 3", func(row []mysql.FieldValue) {
			last = literals(row)
			raw, err := r.Append(nil, row)
			if err != nil {
				u.t.Fatal(err)
			}
			images[string(raw)]--
		})
		if seen += n; n < 3 || seen > all {
			break
		}
	}
	left := slices.ContainsFunc(slices.Collect(maps.Values(images)), func(n int) bool { return n != 0 })
	if seen != all || left {
		names, _ := r.Key()
		u.errorf("table %s by %v (%s): %d rows by chunks, %d are there, others than those: %t", t.Name, names, t.Columns[t.Key[0]].SQLType, seen, all, left)
	}
}

// keyed returns a reader of the same table as if it had another key.
func keyed(t *testing.T, r *snapshot.Reader, def func(*event.Table) (*snapshot.Reader, error), key ...int) *snapshot.Reader {
	t.Helper()
	own := *r.Table()
	own.Key = key
	if err := own.Compile(); err != nil {
		t.Fatal(err)
	}
	out, err := def(&own)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// I3, I4: rows that are read from tables are those that the log has of them, byte for byte, for every type's edge values and in every format, and
// tables are described as the stream describes them; and whatever type a key has, chunks are together the whole table.
func TestRowsAsLogged(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) { rowsAsLogged(t, testenv.MySQL(t, kind), func(*Options) {}) })
	}
	t.Run("names from the log", func(t *testing.T) {
		rowsAsLogged(t, testenv.MySQL(t, "mysql"), func(o *Options) { o.SchemaFrom = schema.FromLog })
	})
	t.Run("all versions", func(t *testing.T) {
		rowsAsLogged(t, testenv.MySQL(t, "mariadb11"), func(o *Options) { o.AllVersions = true })
	})
	// Whatever servers have for sessions of others; a COMMIT would end those of MariaDB.
	const own = "--init-connect=SET SESSION sql_select_limit=1, autocommit=0, sql_big_selects=0, max_join_size=1, completion_type=2, time_zone='+05:00', sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'"
	// Without names in the log, other things of tables are known.
	t.Run("mysql MINIMAL", func(t *testing.T) {
		rowsAsLogged(t, testenv.NewMySQL(t, "mysql", "--binlog-row-metadata=MINIMAL", "--show-gipk-in-create-table-and-information-schema=OFF", own), func(*Options) {})
	})
	t.Run("mariadb114 NO_LOG", func(t *testing.T) {
		rowsAsLogged(t, testenv.NewMySQL(t, "mariadb114", "--binlog-row-metadata=NO_LOG", "--mysql56-temporal-format=OFF", own), func(*Options) {})
	})
}

func rowsAsLogged(t *testing.T, s *testenv.Server, change func(*Options)) {
	u := newRowSuite(t, s, change)
	source := s.Connect("")
	exec := executor(t, source)
	for _, q := range sqlvalues.Session(s.Kind) {
		exec(q)
	}
	tables := sqlvalues.Tables(s.Kind, sqlvalues.Charsets(s.Query(sqlvalues.CharsetsQuery)))
	for _, tab := range tables {
		exec(tab.Create(u.db))
	}
	from := start(t, u.c)
	for _, tab := range tables {
		exec(tab.Insert(u.db))
	}
	extra := moreTables(t, source, u.db)
	exec("CREATE TABLE " + u.db + ".mark (id int)")
	streamed, rows := u.stream(from)
	for _, tab := range tables {
		r := u.reader(ddl.Name{Schema: u.db, Table: tab.Name})
		if streamed[tab.Name] == nil || len(rows[tab.Name]) != tab.Rows {
			t.Fatalf("%d rows of %s in the log", len(rows[tab.Name]), tab.Name)
		}
		u.same(r.Table(), streamed[tab.Name])
		u.compare(r, "id", rows[tab.Name])
		if _, ok := r.Key(); ok {
			u.walk(r, "TRUE")
		}
		def, err := u.cat.read(u.s, func(schema string) bool { return schema == u.db }, &ddl.Name{Schema: u.db, Table: tab.Name})
		if err != nil {
			t.Fatal(err)
		}
		again := func(own *event.Table) (*snapshot.Reader, error) {
			return snapshot.NewReader(own, def[ddl.Name{Schema: u.db, Table: tab.Name}])
		}
		for i, c := range tab.All() {
			if c.Generated || i < 2 || r.Table().Columns[i].Class == event.ClassJSON || r.Table().Columns[i].Class == event.ClassGeometry || r.Table().Columns[i].Class == event.ClassVector {
				continue
			}
			by := keyed(t, r, again, i, 0)
			if _, ok := by.Key(); ok {
				u.walk(by, snapshot.Quote(c.Name)+" IS NOT NULL")
			} else if streamed[tab.Name].Columns[i].Type != event.TypeTime { // of the old format
				u.errorf("table %s cannot be read by %s", tab.Name, c.Name)
			}
		}
	}
	for _, name := range extra {
		r := u.reader(ddl.Name{Schema: u.db, Table: name})
		if streamed[name] == nil {
			t.Fatalf("no rows of %s in the log", name)
		}
		u.same(r.Table(), streamed[name])
		u.compare(r, "1", rows[name])
		if _, ok := r.Key(); ok {
			u.walk(r, "TRUE")
		}
		if slices.ContainsFunc(r.Table().Columns, func(c event.Column) bool {
			return c.Name == "row_end" || c.Name == "e" && c.Class == event.ClassTimestamp
		}) {
			// I3: what has been is shown where the stream shows it.
			exec("UPDATE " + u.db + "." + name + " SET a=a+100 WHERE a=1")
			exec("DELETE FROM " + u.db + "." + name + " WHERE a=2")
			want := 7
			if r.Table().RowEnd == 0 {
				want = 9
			}
			if n := u.each(r, "", func([]mysql.FieldValue) {}); n != want {
				u.errorf("table %s shows %d rows, want %d", name, n, want)
			}
		}
	}
	t.Logf("%d tables", len(streamed))
}

// I3: a table of which the user may read a part only is not taken for one that has no more columns.
func TestRowsOfSomeColumns(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			user := "u" + db[len(db)-8:]
			for _, q := range []string{
				"CREATE TABLE $.part (a INT PRIMARY KEY, b INT, c INT)", "CREATE TABLE $.whole (a INT PRIMARY KEY, b INT)", "CREATE USER " + user + "@'%' IDENTIFIED BY 'x'",
				"GRANT SELECT (a, c) ON $.part TO " + user + "@'%'", "GRANT SELECT ON $.whole TO " + user + "@'%'",
			} {
				s.Exec(strings.ReplaceAll(q, "$", db))
			}
			t.Cleanup(func() { s.Exec("DROP USER " + user + "@'%'") })
			c := newConnectorWith(t, s, func(o *Options) { o.User, o.Password = user, "x" }, db+".*")
			all, err := c.dial(t.Context(), s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer all.close()
			sv, err := all.server(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l, err := c.linkTables(t.Context(), s.Addr, sv.uuid)
			if err != nil {
				t.Fatal(err)
			}
			defer l.ask.close()
			defer l.data.close()
			var stop *StopError
			if _, err := l.define(t.Context(), ddl.Name{Schema: db, Table: "part"}); !errors.As(err, &stop) || !strings.Contains(err.Error(), "'b'") && !strings.Contains(err.Error(), "denied") {
				t.Errorf("a part of a table is read: %v", err)
			}
			r, err := l.define(t.Context(), ddl.Name{Schema: db, Table: "whole"})
			if err != nil || len(r.Table().Columns) != 2 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
}

// I6: what only the table itself tells, while somebody has it locked, is told later, and asked once until a statement alters a table.
func TestTablesThemselvesAreAskedOnce(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(o *Options) { o.Snapshots = snapshot.NewLog(nil) })
			other := s.Connect(x.db)
			do := func(q string) {
				t.Helper()
				if _, err := other.Execute(q); err != nil {
					t.Fatal(err)
				}
			}
			do("SET NAMES utf8mb4")
			do("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('?','😀') CHARACTER SET utf8mb4, j JSON)")
			do("ALTER TABLE t RENAME COLUMN j TO k") // its check keeps the name, so that MariaDB's information_schema does not tell that it is JSON
			if err := x.k.c.status(); err != nil {
				t.Fatal(err)
			}
			l, err := x.k.connect(t.Context(), x.k.c.Status().ServerUUID)
			if err != nil {
				t.Fatal(err)
			}
			n := ddl.Name{Schema: x.db, Table: "t"}
			labels := func() (string, error) {
				k := &catalog{ctx: t.Context(), c: l.c, addr: l.addr, sv: l.sv, known: l.known}
				all, err := k.read(l.ask, func(schema string) bool { return schema == x.db }, &n)
				if err != nil {
					return "", err
				}
				if j := all[n].Columns[2]; s.MariaDB() && !j.JSON || s.MariaDB() && !slices.Equal(l.known.json[n], []string{"k"}) {
					t.Errorf("the column is no JSON: %+v; known: %v", j, l.known.json)
				}
				return strings.Join(all[n].Columns[1].Members, " "), nil
			}
			do("LOCK TABLES t WRITE")
			if r, err := l.define(t.Context(), n); serverCode(err) != mysql.ER_LOCK_WAIT_TIMEOUT {
				t.Errorf("while the table is locked: %v, %v", r, err)
			}
			if got, err := labels(); serverCode(err) != mysql.ER_LOCK_WAIT_TIMEOUT {
				t.Errorf("labels while the table is locked: %q, %v", got, err)
			}
			do("UNLOCK TABLES")
			if _, err := l.define(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			do("LOCK TABLES t WRITE")
			for range 2 {
				if got, err := labels(); err != nil || got != "? 😀" {
					t.Errorf("labels that are known: %q, %v", got, err)
				}
			}
			do("UNLOCK TABLES")
			do("ALTER TABLE t MODIFY e ENUM('?','🚀') CHARACTER SET utf8mb4")
			l.c.window.altered.Add(1)
			if _, err := l.define(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if got, err := labels(); err != nil || got != "? 🚀" {
				t.Errorf("labels of the altered table: %q, %v", got, err)
			}
			r, err := l.ask.query(t.Context(), "SELECT @@SESSION.lock_wait_timeout=@@GLOBAL.lock_wait_timeout")
			if err != nil || r.number(0, 0) != 1 {
				t.Errorf("questions to information_schema do not wait as long as others: %v", err)
			}
		})
	}
}

// Chunks are ranges of the key's index, whatever types it has, and nothing is sorted for them.
func TestRowsByIndex(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			u := newRowSuite(t, s, func(*Options) {})
			source := s.Connect(u.db)
			for i, x := range []struct{ columns, values string }{
				{"id BIGINT", "n"}, {"id BIGINT UNSIGNED, b INT", "n/10, n"}, {"a VARCHAR(20) CHARACTER SET utf8, b INT", "n/10, n"}, {"a VARCHAR(20) CHARACTER SET latin1", "n"},
				{"a CHAR(20) CHARACTER SET ucs2, b INT, c DATE", "n/100, n, '2020-01-01'"}, {"a BINARY(16)", "n"}, {"a DECIMAL(20,3)", "n"}, {"a DATETIME(3), b INT", "'2020-02-03' + INTERVAL n HOUR, n"},
				{"a TIMESTAMP(6) DEFAULT 0, b INT", "'2020-02-03' + INTERVAL n HOUR, n"}, {"a DATE", "'2020-02-03' + INTERVAL n DAY"}, {"a TIME(2)", "SEC_TO_TIME(n)"}, {"a DOUBLE", "n/8"}, {"a FLOAT", "n/8"},
				{"a BIT(64)", "n"}, {"a ENUM('x','y','z'), b INT", "n%3 + 1, n"}, {"a YEAR, b INT", "1901 + n/10, n"}, {"a UUID", "UUID()"}, {"a INET6", "CONCAT('::', n)"},
			} {
				name := fmt.Sprintf("k%d", i)
				var key, decl []string
				for c := range strings.SplitSeq(x.columns, ", ") {
					n, _, _ := strings.Cut(c, " ")
					key, decl = append(key, n), append(decl, strings.Replace(c+" NOT NULL", "DEFAULT 0 NOT NULL", "NOT NULL DEFAULT 0", 1))
				}
				if _, err := source.Execute("CREATE TABLE " + name + " (" + strings.Join(decl, ", ") + ", pad VARCHAR(200), PRIMARY KEY (" + strings.Join(key, ", ") + "))"); err != nil {
					if strings.Contains(x.columns, "UUID") || strings.Contains(x.columns, "INET") {
						continue // a type that the server does not have
					}
					t.Fatal(err)
				}
				for _, q := range []string{"SET sql_mode=''", "CREATE TABLE IF NOT EXISTS n (n INT PRIMARY KEY)", "INSERT IGNORE INTO n SELECT a.d + 10*b.d + 100*c.d FROM (" + tenRows + ") a, (" + tenRows + ") b, (" + tenRows + ") c",
					"INSERT INTO " + name + " SELECT " + x.values + ", REPEAT('x',200) FROM n", "ANALYZE TABLE " + name} {
					if _, err := source.Execute(q); err != nil {
						t.Fatalf("%s: %v", q, err)
					}
				}
				r := u.reader(ddl.Name{Schema: u.db, Table: name})
				var bounds [2][]string
				for i, at := range []int{300, 900} {
					u.each(r, fmt.Sprintf(" ORDER BY %s LIMIT %d, 1", r.Order(false), at), func(row []mysql.FieldValue) {
						var err error
						if bounds[i], err = r.Literals(row); err != nil {
							t.Fatal(err)
						}
					})
				}
				for what, more := range map[string]string{
					"the last row": " ORDER BY " + r.Order(true) + " LIMIT 1",
					"a chunk":      " WHERE " + r.Where(bounds[0], bounds[1]) + " ORDER BY " + r.Order(false) + " LIMIT 50",
				} {
					q := "EXPLAIN SELECT " + strings.Join(r.Select(), ",") + " FROM " + r.From() + more
					if kind == "mysql" {
						q = strings.Replace(q, "EXPLAIN", "EXPLAIN FORMAT=TRADITIONAL", 1)
					}
					got := u.query(q)
					how, by, extra := got.named(0, "type"), got.named(0, "key"), got.named(0, "Extra")
					if by != "PRIMARY" || strings.Contains(extra, "filesort") || what == "a chunk" && how != "range" {
						t.Errorf("%s, %s: %s by %q: %s\n%s", x.columns, what, how, by, extra, q)
					}
				}
			}
		})
	}
}

const tenRows = "SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9"

// moreTables makes those of the tables that the server takes, each with a few rows, the first column in rising order, and returns their names.
func moreTables(t *testing.T, source *client.Conn, db string) (names []string) {
	manyLabels := ""
	for i := range 61 {
		manyLabels += fmt.Sprintf(",'%d'", i)
	}
	for i, def := range []string{
		"(a INT NOT NULL, b INT, UNIQUE (b), UNIQUE u (a))",
		"(a INT NOT NULL, b INT NOT NULL, c VARCHAR(9) NOT NULL, UNIQUE p (c(3)), UNIQUE u (b, a))",
		"(a INT, b INT, KEY (a))",
		"(a INT PRIMARY KEY, b VARCHAR(20), KEY f ((a + 1), b))",
		"(a INT PRIMARY KEY, b LONGTEXT, UNIQUE (b))",
		"(a INT PRIMARY KEY, b INT INVISIBLE, c INT)",
		"(a INT, b VARCHAR(30) NOT NULL, PRIMARY KEY (b(4), a))",
		"(a INT PRIMARY KEY, b INT) WITH SYSTEM VERSIONING",
		"(a INT, b INT) WITH SYSTEM VERSIONING",
		"(a INT NOT NULL, b INT NOT NULL, UNIQUE (b)) WITH SYSTEM VERSIONING",
		"(a INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
		"(a INT PRIMARY KEY, y YEAR(2), z YEAR)",
		"(a INT, `b``c` INT, `d e` VARCHAR(3) NOT NULL, PRIMARY KEY (`b``c`, `d e`))",
		"(a INT PRIMARY KEY, b INT, c INT AS (a + 1) VIRTUAL, d INT AS (a + 2) STORED NOT NULL, UNIQUE (d))",
		"(a INT PRIMARY KEY, e ENUM('x','y','z','u','v','w','p','q') CHARACTER SET binary, s SET('x','y','z','u') CHARACTER SET binary)",
		"(a INT PRIMARY KEY, e ENUM('x','?','é?','u','😀','w','a😀?','q'), s SET('x','😀','?','u') CHARACTER SET utf16, f ENUM('x','?','z','u','v','w','p','q') CHARACTER SET binary)",
		"(a INT PRIMARY KEY, e ENUM('x','?',x'3fff','u','v','w','p','q') CHARACTER SET binary)",
		"(a INT PRIMARY KEY, s SET('?a','b?'" + manyLabels + ",'😀') /* 64 */)",
		"(a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE z (b), UNIQUE y (a), UNIQUE x (c))",
		"(a INT NOT NULL, b INT NOT NULL, UNIQUE f ((a + 1)), UNIQUE y (b))",
		"(a INT NOT NULL, b LONGTEXT NOT NULL, c INT NOT NULL, UNIQUE (b), UNIQUE (c))",
		"(a INT NOT NULL, b TEXT NOT NULL, c INT NOT NULL, UNIQUE (a, b(20)), UNIQUE (c))",
		"(a INT NOT NULL, b INT AS (a + 1) STORED NOT NULL, c INT AS (a + 2) VIRTUAL NOT NULL, UNIQUE (c), UNIQUE (b))",
		"(id INT, b VARCHAR(5)) /*!80030 COMMENT='without a key: $gipk' */",
	} {
		if v := source.GetServerVersion(); strings.Contains(def, "?") && (strings.HasPrefix(v, "5.6") || strings.Contains(v, "MariaDB") && !strings.Contains(v, "10.2.") && strings.Contains(def, "64")) {
			continue // nothing tells its labels
		}
		own := "OFF"
		if strings.Contains(def, "$gipk") {
			own = "ON"
		}
		_, _ = source.Execute("SET SESSION sql_generate_invisible_primary_key=" + own) // as MySQL has it
		name := fmt.Sprintf("more%d", i)
		if _, err := source.Execute(fmt.Sprintf("CREATE TABLE %s.%s %s CHARACTER SET utf8mb4", db, name, strings.Replace(def, ") WITH", ") CHARACTER SET utf8mb4 WITH", 1))); err != nil {
			if _, err = source.Execute(fmt.Sprintf("CREATE TABLE %s.%s %s", db, name, def)); err != nil {
				t.Logf("%s: %v", def, err)
				continue
			}
		}
		columns, err := source.Execute("SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='" + db + "' AND TABLE_NAME='" + name + "' AND EXTRA NOT LIKE '%GENERATED%' ORDER BY ORDINAL_POSITION")
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for j := range columns.RowNumber() {
			c, err := columns.GetString(j, 0)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, snapshot.Quote(c))
		}
		var rows []string
		for k := range 8 {
			row := make([]string, len(list))
			for j := range row {
				row[j] = fmt.Sprint((k*(j*2+1))%8 + 1)
			}
			rows = append(rows, "("+strings.Join(row, ",")+")")
		}
		if _, err := source.Execute(fmt.Sprintf("INSERT INTO %s.%s (%s) VALUES %s", db, name, strings.Join(list, ","), strings.Join(rows, ","))); err != nil {
			t.Fatalf("%s: %v", def, err)
		}
		names = append(names, name)
	}
	_, _ = source.Execute("SET SESSION sql_generate_invisible_primary_key=OFF")
	return names
}
