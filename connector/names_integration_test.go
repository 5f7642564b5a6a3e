//go:build integration

package connector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// drawer keeps a schema history in memory.
type drawer struct {
	mu      sync.Mutex
	data    []byte
	saves   int
	cursors []event.Position
}

func (d *drawer) Load(context.Context) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.data, nil
}

func (d *drawer) Save(_ context.Context, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = data
	d.saves++
	return nil
}

func (d *drawer) Cursors(context.Context) ([]event.Position, error) { return d.cursors, nil }

// namelessKinds are servers whose log has no column names: by default, by their age, and without GTIDs.
var namelessKinds = []struct {
	name, kind string
	options    []string
}{
	{"mysql", "mysql", nil},
	{"mysql without GTIDs", "mysql", []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}},
	{"mariadb", "mariadb", nil},
	{"mariadb114", "mariadb114", nil},
	{"mariadb102", "mariadb102", nil},
	{"mysql56", "mysql56", nil},
	{"mysql56 without GTIDs", "mysql56", []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}},
}

// nameless returns such a server and the name of a database of the test there.
func nameless(t *testing.T, kind string, options []string) (*testenv.Server, string) {
	t.Helper()
	if options == nil && (kind == "mariadb102" || kind == "mysql56") {
		s := testenv.MySQL(t, kind)
		return s, s.Database()
	}
	s := testenv.NewMySQL(t, kind, options...)
	if s.RowMetadata() {
		s.Exec("SET GLOBAL binlog_row_metadata=" + map[bool]string{true: "NO_LOG", false: "MINIMAL"}[s.MariaDB()])
	}
	s.Exec("CREATE DATABASE shop")
	return s, "shop"
}

// rowLines writes each row of the tables by its names.
func rowLines(t *testing.T, es []*event.Event) (lines []string) {
	t.Helper()
	var sc event.Scanner
	for _, e := range es {
		if e.Kind != event.Rows {
			continue
		}
		sc.Reset(e)
		for sc.Next() {
			var b strings.Builder
			fmt.Fprintf(&b, "%s %s:", e.Op.String()[:1], e.Table.Name)
			for _, v := range sc.Row().Values() {
				text := []byte("NULL")
				if !v.IsNull() {
					var err error
					if text, err = v.AppendText(nil); err != nil {
						t.Errorf("%s.%s: %v", e.Table.Name, v.Column().Name, err)
					}
				}
				fmt.Fprintf(&b, " %s=%s", v.Column().Name, text)
			}
			lines = append(lines, b.String())
		}
	}
	return lines
}

// awayStatements happen while nobody reads; before each group of rows stands what changed. Rows are inserted by $ and a list of values, and a line
// that begins with > says how the row before must read.
const awayStatements = `
INSERT INTO t VALUES (1, 'a', 10)
> i t: id=1 name=a n=10
ALTER TABLE t ADD COLUMN extra VARCHAR(10) CHARACTER SET latin1 DEFAULT 'é' AFTER id
INSERT INTO t VALUES (2, 'ü', 'b', 20)
> i t: id=2 extra=ü name=b n=20
ALTER TABLE t DROP COLUMN n
INSERT INTO t VALUES (3, 'x', 'c')
> i t: id=3 extra=x name=c
ALTER TABLE t MODIFY name VARCHAR(10) CHARACTER SET utf8 FIRST
INSERT INTO t VALUES ('d', 4, 'x')
> i t: name=d id=4 extra=x
ALTER TABLE t CHANGE name title VARCHAR(10) CHARACTER SET utf8
INSERT INTO t VALUES ('e', 5, 'x')
> i t: title=e id=5 extra=x
ALTER TABLE t CHANGE title extra VARCHAR(10) CHARACTER SET utf8, CHANGE extra title VARCHAR(10) CHARACTER SET latin1
INSERT INTO t VALUES ('f', 6, 'ß')
> i t: extra=f id=6 title=ß
ALTER TABLE t DROP COLUMN title, ADD COLUMN other VARCHAR(10) CHARACTER SET latin1
INSERT INTO t VALUES ('g', 7, 'y')
> i t: extra=g id=7 other=y
RENAME TABLE t TO t9
INSERT INTO t9 VALUES ('h', 8, 'y')
> i t9: extra=h id=8 other=y
CREATE TABLE _t9_gho LIKE t9
ALTER TABLE _t9_gho ADD COLUMN ghost INT UNSIGNED
INSERT INTO _t9_gho VALUES ('h', 8, 'y', 4294967295)
> i _t9_gho: extra=h id=8 other=y ghost=4294967295
RENAME TABLE t9 TO _t9_del, _t9_gho TO t9
INSERT INTO t9 VALUES ('i', 9, 'y', 1)
> i t9: extra=i id=9 other=y ghost=1
INSERT INTO _t9_del VALUES ('i', 9, 'z')
> i _t9_del: extra=i id=9 other=z
DROP TABLE _t9_del
CREATE TABLE copy AS SELECT id, ghost FROM t9 WHERE id = 9
> i copy: id=9 ghost=1
TRUNCATE TABLE t9
INSERT INTO t9 VALUES ('j', 10, 'y', 2)
> i t9: extra=j id=10 other=y ghost=2
DROP TABLE t9
CREATE TABLE t9 (k ENUM('a','b') PRIMARY KEY, s SET('p','q'), v VARBINARY(10))
INSERT INTO t9 VALUES ('b', 'p,q', 'bin')
> i t9: k=b s=p,q v=bin
ALTER TABLE quiet RENAME loud
INSERT INTO loud VALUES (1, 2)
> i loud: a=1 b=2
ALTER TABLE loud CHANGE a b INT, CHANGE b a INT
INSERT INTO loud VALUES (3, 4)
> i loud: b=3 a=4
DROP TABLE t9, loud
CREATE TABLE loud (z INT)
INSERT INTO loud VALUES (5)
> i loud: z=5
CREATE TABLE indexed (id INT PRIMARY KEY, v INT NOT NULL /*!80013 , KEY x ((v * 2)) */)
INSERT INTO indexed VALUES (1, 2)
> i indexed: id=1 v=2
UPDATE loud LEFT JOIN indexed ON id = z - 4 SET v = 3
> u indexed: id=1 v=3
DROP TABLE indexed
CREATE TABLE wide (id INT PRIMARY KEY, a TINYTEXT, b TEXT, c VARCHAR(3), d MEDIUMTEXT) CHARACTER SET latin1
INSERT INTO wide VALUES (1, 'ä', 'ö', 'ü', 'ß')
> i wide: id=1 a=ä b=ö c=ü d=ß
ALTER TABLE wide CONVERT TO CHARACTER SET utf8
INSERT INTO wide VALUES (2, '中', '中', '中', '中')
> i wide: id=2 a=中 b=中 c=中 d=中
DELETE FROM wide WHERE id = 2
> d wide: id=2 a=中 b=中 c=中 d=中
CREATE TABLE parted (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id)
ALTER TABLE parted ADD w INT FIRST REMOVE PARTITIONING
INSERT INTO parted VALUES (1, 2, 3)
> i parted: w=1 id=2 v=3
ALTER TABLE parted DROP v, ADD x INT PARTITION BY KEY (id) PARTITIONS 2
INSERT INTO parted VALUES (4, 5, 6)
> i parted: w=4 id=5 x=6
DROP TABLE parted
ALTER TABLE wide CONVERT TO CHARACTER SET latin1, ADD z CHAR(2) CHARACTER SET ucs2
INSERT INTO wide VALUES (3, 'ä', 'ö', 'ü', 'ß', 'é')
> i wide: id=3 a=ä b=ö c=ü d=ß z=é
ALTER TABLE wide DROP z
ALTER TABLE wide ADD x INT AFTER a, MODIFY a TINYTEXT AFTER c, ADD y INT AFTER a
INSERT INTO wide VALUES (4, 4, 'b', 'c', 'a', 5, 'd')
> i wide: id=4 x=4 b=b c=c a=a y=5 d=d
DROP TABLE wide
`

// I6, I5, I7: a backlog with many definitions of tables, of which none is left as it was, reads with the names of each place; and the same to the byte when
// the reader is stopped anywhere and goes on from its last transaction end with what it has saved.
func TestNamelessBacklog(t *testing.T) {
	for _, k := range namelessKinds {
		t.Run(k.name, func(t *testing.T) {
			s, db := nameless(t, k.kind, k.options)
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			exec := executor(t, sql)
			exec("SET NAMES utf8")
			exec("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(10) CHARACTER SET utf8, n INT)")
			exec("CREATE TABLE quiet (a INT, b INT)")
			box := &drawer{}
			open := func() *Connector {
				return newConnectorWith(t, s, func(o *Options) { o.History = schema.NewHistory(box) }, db+".*")
			}
			con := open()
			from := start(t, con)
			exec("CREATE TABLE begun (id INT)")
			all := readUntil(t, con, from, marker("begun"))
			at := from
			at.Position.GTIDs = from.Position.GTIDs.Clone()
			stand(&at, all)
			var want []string
			lines := strings.Split(awayStatements, "\n")
			for i, line := range lines {
				if row, ok := strings.CutPrefix(line, "> "); ok {
					want = append(want, row)
				} else if strings.HasPrefix(line, "CREATE TABLE copy AS") && k.kind == "mysql56" && k.options == nil {
					lines[i+1] = "" // forbidden there
				} else if line != "" {
					exec(line)
				}
			}
			exec("CREATE TABLE ended (id INT)")
			saved := box.data
			whole := readUntil(t, open(), at, marker("ended"))
			if got := rowLines(t, whole); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			reference := strings.Join(transcript(t, whole), "\n")
			// Again from the same place, with everything known.
			if again := strings.Join(transcript(t, readUntil(t, open(), at, marker("ended"))), "\n"); again != reference {
				t.Error("a replay differs")
			}
			// Stopped after each few events, with what was saved by then.
			box.data = saved
			cur := at
			cur.Position.GTIDs = at.Position.GTIDs.Clone()
			var pieces []*event.Event
			for n := 1; ; n++ {
				part, done := readSome(t, open(), cur, n%7+1, marker("ended"))
				stand(&cur, part)
				pieces = append(pieces, complete(part)...)
				if done {
					break
				}
				if n > 500 {
					t.Fatal("no end")
				}
			}
			if got := strings.Join(transcript(t, pieces), "\n"); got != reference {
				t.Errorf("read in pieces:\n%s\nin one:\n%s", got, reference)
			}
		})
	}
}

// I6: what a first start in the past reads of tables that were made, altered and dropped since has the names of each place: nothing but the character set
// of their database is not in the log.
func TestNamelessPast(t *testing.T) {
	for _, kind := range []string{"mysql56", "mariadb102"} {
		t.Run(kind, func(t *testing.T) {
			s, db := nameless(t, kind, nil)
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			from := start(t, newConnector(t, s, "latest", db+".*"))
			for _, q := range []string{
				"SET NAMES utf8", "CREATE TABLE p (id INT PRIMARY KEY, name VARCHAR(10), note TEXT)", "INSERT INTO p VALUES (1, 'a', 'b')", "ALTER TABLE p MODIFY note TEXT AFTER id, ADD more CHAR(3) FIRST",
				"INSERT INTO p VALUES ('c', 2, 'd', 'e')", "ALTER TABLE p CHANGE name note TEXT, CHANGE note name VARCHAR(20)", "INSERT INTO p VALUES ('f', 3, 'g', 'h')", "CREATE TABLE q LIKE p",
				"RENAME TABLE p TO r, q TO p", "INSERT INTO p VALUES ('i', 4, 'j', 'k')", "DROP TABLE p, r", "CREATE TABLE ended (id INT)",
			} {
				if _, err := sql.Execute(q); err != nil {
					t.Fatalf("%s: %v", q, err)
				}
			}
			con := newConnectorWith(t, s, func(o *Options) { o.History = schema.NewHistory(&drawer{}) }, db+".*")
			want := "i p: id=1 name=a note=b\ni p: more=c id=2 note=d name=e\ni p: more=f id=3 name=g note=h\ni p: more=i id=4 name=j note=k"
			if got := strings.Join(rowLines(t, readUntil(t, con, from, marker("ended"))), "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// stand moves a cursor to the last transaction end.
func stand(c *event.Cursor, es []*event.Event) {
	for _, e := range es {
		if e.Kind == event.End {
			c.Ordinal = e.Ordinal
			c.Position.File, c.Position.Offset, c.Position.ServerUUID = e.File, e.Next, e.Txn.ServerUUID
			c.Position.GTIDs.Add(e.Txn.GTID)
		}
	}
}

// complete drops the events of a transaction that has not ended.
func complete(es []*event.Event) []*event.Event {
	for i := len(es) - 1; i >= 0; i-- {
		if es[i].Kind == event.End {
			return es[:i+1]
		}
	}
	return nil
}

// readSome reads at least n transactions' worth of events, or up to enough, and stops as a crash would.
func readSome(t *testing.T, c *Connector, from event.Cursor, n int, enough func(*event.Event) bool) (all []*event.Event, done bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := c.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
		for _, e := range es {
			all = append(all, e)
			done = done || enough(e)
			if e.Kind == event.End {
				n--
			}
			if done || n == 0 {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("Read: %v", err)
	}
	return all, done
}

// I6: where names cannot be proven the destination stops, and says what to do.
func TestNamelessStops(t *testing.T) {
	for _, k := range namelessKinds {
		if k.options != nil || k.kind == "mariadb114" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			s, db := nameless(t, k.kind, k.options)
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			exec := executor(t, sql)
			exec("CREATE TABLE kept (a INT, b INT)", "CREATE TABLE altered (a INT, b INT)")
			logger := slog.New(slog.NewTextHandler(t.Output(), nil))
			with := func(h *schema.History, tables ...string) *Connector {
				f, err := tablefilter.New(tables)
				if err != nil {
					t.Fatal(err)
				}
				return newConnectorWith(t, s, func(o *Options) { o.History, o.Tables, o.Logger = h, f, logger })
			}
			h := schema.NewHistory(&drawer{})
			from := start(t, with(h, db+".*"))
			// Nobody has looked at the tables before they are altered.
			exec("INSERT INTO kept VALUES (1, 2)", "INSERT INTO altered VALUES (1, 2)", "ALTER TABLE altered CHANGE a b INT, CHANGE b a INT", "INSERT INTO altered VALUES (3, 4)", "CREATE TABLE m1 (x INT)")
			if err := readError(t, with(h, db+".*"), from); !strings.Contains(err.Error(), "altered") || !strings.Contains(err.Error(), "was altered again after these rows") {
				t.Error(err)
			}
			got := rowLines(t, readUntil(t, with(h, db+".kept", db+".m1"), from, marker("m1")))
			if strings.Join(got, "; ") != "i kept: a=1 b=2" {
				t.Errorf("a table that nobody altered: %v", got)
			}
			// A temporary table hides the one that a statement seems to copy.
			exec("SET SESSION binlog_format=STATEMENT", "CREATE TEMPORARY TABLE kept (b INT, a INT)", "CREATE TABLE copied LIKE kept", "DROP TEMPORARY TABLE kept", "SET SESSION binlog_format=ROW")
			from = start(t, with(h, db+".*"))
			exec("INSERT INTO copied VALUES (1, 2)", "CREATE TABLE m0 (x INT)")
			got = rowLines(t, readUntil(t, with(h, db+".*"), from, marker("m0")))
			if strings.Join(got, "; ") != "i copied: b=1 a=2" {
				t.Errorf("a copy of a temporary table: %v", got)
			}
			exec("DROP TABLE copied")
			// What the log does not show.
			from = start(t, with(h, db+".*"))
			exec("CREATE TABLE m2 (x INT)")
			readUntil(t, with(h, db+".*"), from, marker("m2"))
			from = start(t, with(h, db+".*"))
			exec("SET sql_log_bin=0", "ALTER TABLE kept ADD c INT", "SET sql_log_bin=1", "INSERT INTO kept VALUES (1, 2, 3)", "CREATE TABLE m3 (x INT)")
			if err := readError(t, with(h, db+".*"), from); !strings.Contains(err.Error(), "the log shows 3 columns, the known definition 2") || !strings.Contains(err.Error(), "schema forget") {
				t.Error(err)
			}
			if !h.Forget(ddl.Name{Schema: db, Table: "kept"}) {
				t.Error("the table is not known")
			}
			if got := rowLines(t, readUntil(t, with(h, db+".*"), from, marker("m3"))); strings.Join(got, "; ") != "i kept: a=1 b=2 c=3" {
				t.Errorf("after looking it up again: %v", got)
			}
			// A statement that cannot be followed stops no other table, and not its own while nothing is newer.
			from = start(t, with(h, db+".*"))
			exec("CREATE TABLE odd (a TEXT CHARACTER SET latin1, b INT)", "ALTER TABLE odd CONVERT TO CHARACTER SET utf8, ADD c ENUM(x'78')", "INSERT INTO odd VALUES ('x', 1, 'x')", "INSERT INTO kept VALUES (4, 5, 6)", "CREATE TABLE m4 (x INT)")
			if got := rowLines(t, readUntil(t, with(h, db+".*"), from, marker("m4"))); strings.Join(got, "; ") != "i odd: a=x b=1 c=x; i kept: a=4 b=5 c=6" {
				t.Errorf("after a statement that cannot be followed: %v", got)
			}
			from = start(t, with(h, db+".*"))
			exec("CREATE TABLE odd2 (a TEXT CHARACTER SET latin1, b INT)", "ALTER TABLE odd2 CONVERT TO CHARACTER SET utf8, ADD c ENUM(x'78')", "INSERT INTO odd2 VALUES ('x', 1, 'x')", "DROP TABLE odd2", "CREATE TABLE m5 (x INT)")
			if err := readError(t, with(h, db+".*"), from); !strings.Contains(err.Error(), "odd2") || !strings.Contains(err.Error(), "no definition of the table is known") {
				t.Error(err)
			}
		})
	}
}

// Every type is named, signed and labelled by what is known where the log does not tell.
func TestNamelessTypes(t *testing.T) {
	for _, kind := range []string{"mariadb102", "mysql56"} {
		t.Run(kind, func(t *testing.T) {
			s, db := nameless(t, kind, nil)
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			define := "CREATE TABLE t (id BIGINT UNSIGNED, a TINYINT(1), b VARCHAR(20) CHARACTER SET latin1, c TEXT CHARACTER SET utf8, d DECIMAL(12,3), e ENUM('x','ÿ') CHARACTER SET latin1," +
				" f SET('p','q'), g DATETIME(3), h TIMESTAMP NULL, i BINARY(2), j VARBINARY(9), k LONGBLOB, l BIT(9), m YEAR, n MEDIUMINT, o DOUBLE, p FLOAT, q TIME(2), r DATE, s CHAR(200) CHARACTER SET utf8, w SMALLINT, PRIMARY KEY (n, id))"
			insert := "INSERT INTO t VALUES (18446744073709551615,1,'é','ß',1.5,'ÿ','p,q','2026-01-02 03:04:05.678','2026-01-02 03:04:05','ab','cd','ef',5,2026,-5,1.5,2.5,'-01:02:03.04','2026-01-02','ß',-3)"
			want := "i t: id=18446744073709551615 a=1 b=é c=ß d=1.500 e=ÿ f=p,q g=2026-01-02 03:04:05.678 h=2026-01-02 03:04:05 i=ab j=cd k=ef l=5 m=2026 n=-5 o=1.5 p=2.5 q=-01:02:03.04 r=2026-01-02 s=ß w=-3"
			exec := executor(t, sql)
			exec("SET NAMES utf8")
			exec("SET time_zone='+00:00'")
			exec(define)
			con := newConnector(t, s, "latest", db+".*")
			from := start(t, con)
			exec("CREATE TABLE begun (id INT)")
			readUntil(t, con, from, marker("begun"))
			exec(insert)
			exec("DROP TABLE t")
			exec(define)
			exec(insert)
			exec("CREATE TABLE done (id INT)")
			// Once looked up, once followed.
			var lines []string
			for _, e := range readUntil(t, con, from, marker("done")) {
				if e.Kind == event.Rows {
					lines = append(lines, rowLines(t, []*event.Event{e})...)
					if fmt.Sprint(e.Table.Key) != "[14 0]" {
						t.Errorf("key %v", e.Table.Key)
					}
				}
			}
			if strings.Join(lines, "\n") != want+"\n"+want {
				t.Errorf("got\n%s\nwant twice\n%s", strings.Join(lines, "\n"), want)
			}
		})
	}
}
