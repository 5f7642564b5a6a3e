//go:build integration

package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// excerpts reads tables of a server in chunks.
type excerpts struct {
	t  *testing.T
	s  *testenv.Server
	k  *tableReader
	db string
}

func newExcerpts(t *testing.T, s *testenv.Server, change func(*Options)) *excerpts {
	t.Helper()
	db := s.Database()
	c := newConnectorWith(t, s, change, db+".*")
	x := &excerpts{t: t, s: s, k: &tableReader{c: c, settle: 50 * time.Millisecond}, db: db} // nobody writes to the tables
	t.Cleanup(x.k.close)
	return x
}

func (x *excerpts) query(table string) chunkQuery {
	return chunkQuery{
		table: ddl.Name{Schema: x.db, Table: table}, rows: 7, bytes: 1 << 20, whole: 1 << 20, limit: time.Minute, where: func(bool) string { return "" },
	}
}

// read reads a chunk behind the end of the log.
func (x *excerpts) read(q chunkQuery) (*chunkRead, error) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute)
	defer cancel()
	place, err := x.k.c.End(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	got, err := x.k.read(ctx, place, q)
	if err == nil && !got.gone {
		if !got.high.Reached(&event.Position{File: place.File, Offset: place.Offset, ServerUUID: place.ServerUUID}) {
			x.t.Errorf("the log ended at %v, and at %v when the rows had been read", place, got.high)
		}
		if age := time.Since(time.UnixMicro(got.time)); age > time.Hour || age < -time.Hour {
			x.t.Errorf("read at %v", time.UnixMicro(got.time))
		}
	}
	return got, err
}

// text returns the rows of a chunk as text.
func (x *excerpts) text(got *chunkRead) (all []string) {
	x.t.Helper()
	images := make([]byte, (len(got.table.Columns)+7)/8)
	for i := range images {
		images[i] = 0xff
	}
	var s event.Scanner
	for _, raw := range got.rows {
		s.Reset(&event.Event{Kind: event.Rows, Op: event.Insert, Rows: 1, Table: got.table, Images: event.Images{After: images}, Raw: raw})
		for s.Next() {
			var row []string
			for _, v := range s.Row().After {
				var b []byte
				if !v.IsNull() {
					var err error
					if b, err = v.AppendText(nil); err != nil {
						x.t.Fatal(err)
					}
				}
				row = append(row, string(b))
			}
			all = append(all, strings.Join(row, "|"))
		}
		if s.Err() != nil {
			x.t.Fatal(s.Err())
		}
	}
	return all
}

// walk reads a table to its end.
func (x *excerpts) walk(q chunkQuery) (all []string, chunks int) {
	x.t.Helper()
	for {
		got, err := x.read(q)
		if err != nil {
			x.t.Fatalf("%s: %v", q.table, err)
		}
		if got.gone || got.begun {
			x.t.Fatalf("%s: gone %t, begun %t", q.table, got.gone, got.begun)
		}
		if len(got.rows) > q.rows && got.keyed {
			x.t.Errorf("%s: %d rows at once", q.table, len(got.rows))
		}
		all = append(all, x.text(got)...)
		if chunks++; chunks > 200 {
			x.t.Fatalf("%s does not end", q.table)
		}
		if got.end {
			return all, chunks
		}
		q.key, q.last, q.most = got.key, got.last, got.most
	}
}

// TestSnapshotChunks reads tables whose keys, names and engines are of all kinds: every row comes once.
func TestSnapshotChunks(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(*Options) {})
			odd := "odd ``-\\ tøst 表"
			descending := ""
			if kind == "mysql" || kind == "mariadb11" || kind == "mariadb114" {
				descending = " DESC"
			}
			const big5 = "CONCAT(ELT(1+n%4, _big5 X'C6F9', _big5 X'C6A6', _big5 X'C6A63F', _big5 X'C6F93F'), n%9), n"
			tables := map[string][2]string{ // definition, values of row n
				"number":   {"(id INT PRIMARY KEY, v VARCHAR(20))", "n*3-100, CONCAT('v', n)"},
				"unsigned": {"(id BIGINT UNSIGNED PRIMARY KEY, v INT)", "18446744073709551615-n, n"},
				"text":     {"(id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)", "CONCAT(IF(n%2, 'ä', 'B'), CHAR(65+n%26), IF(n%3, _utf8mb4 X'F09F9880', ' '), n), n"},
				"latin":    {"(id VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY, v INT)", "CONCAT(_latin1 X'DF', IF(n%2, 'ss', 'S'), n, ''''), n"},
				// By this collation servers sort otherwise than they compare.
				"part":    {"(id VARCHAR(20) CHARACTER SET big5, n INT, pad VARCHAR(9) DEFAULT '' NOT NULL, PRIMARY KEY (pad(3), id, n))", big5 + ", ''"},
				"turned":  {"(id VARCHAR(20) CHARACTER SET big5, n INT, PRIMARY KEY (id, n" + descending + "))", big5},
				"hash":    {"(id VARCHAR(20) CHARACTER SET big5, n INT, PRIMARY KEY (id, n)) ENGINE=MEMORY", big5},
				"isam":    {"(id VARCHAR(20) CHARACTER SET big5, n INT, pad CHAR(99), PRIMARY KEY (id, n)) ENGINE=MyISAM", big5 + ", 'x'"},
				"bytes":   {"(id VARBINARY(20) PRIMARY KEY, v INT)", "CONCAT(UNHEX('00'), CHAR(n), '\\'', n), n"},
				"several": {"(a INT, b VARCHAR(10) CHARACTER SET utf8mb4, c DATETIME(3), v INT, PRIMARY KEY (a" + descending + ", b, c" + descending + "))", "n%4, CONCAT('k', n%3), TIMESTAMP'2026-01-01 00:00:00.5' + INTERVAL n DAY, n"},
				// So does the key of these, and its numbers, bytes and times are compared as what they are (I3).
				"labels":   {"(e ENUM('3','b','1','x'), s SET('9','2'), n INT, PRIMARY KEY (e, s, n" + descending + "))", "1+n%4, 1+n%3, n"},
				"prefixed": {"(e ENUM('3','b','1','x') CHARACTER SET big5, s VARCHAR(20) CHARACTER SET big5, n INT, PRIMARY KEY (e, s(10), n))", "1+n%4, " + big5[:len(big5)-3] + ", n"},
				"mixed":    {"(b BIT(12), y YEAR, t TIME(2), d DECIMAL(9,3), v VARBINARY(9), w BINARY(4), p VARCHAR(20), PRIMARY KEY (b, y, t, d, v, w, p(3)))", "n&1, 2000+(n&2), SEC_TO_TIME(n&4), (n&8)/1000-1, IF(n&16, '', '\\0'), IF(n&32, 'a\\0b', 'a'), 'x'"},
				"enum":     {"(id ENUM('z','b','a''','x'), n INT, PRIMARY KEY (id, n))", "1+n%4, n"},
				"decimals": {"(id DECIMAL(20,5) PRIMARY KEY, v FLOAT)", "n*1.00001-20, n/3"},
				"double":   {"(id DOUBLE PRIMARY KEY)", "n/7"},
				"days":     {"(id DATE, t TIME(2), y YEAR, PRIMARY KEY (id, t, y))", "DATE'2020-02-28' + INTERVAL n%5 DAY, SEC_TO_TIME(n), 2000+n%3"},
				"stamps":   {"(id TIMESTAMP(6) DEFAULT '2020-01-01 00:00:00' PRIMARY KEY)", "TIMESTAMP'2026-03-29 00:30:00.000001' + INTERVAL n HOUR"},
				"bits":     {"(id BIT(12) PRIMARY KEY)", "n*11"},
				"myisam":   {"(id INT PRIMARY KEY) ENGINE=MyISAM", "n"},
				"memory":   {"(id INT PRIMARY KEY) ENGINE=MEMORY", "n"},
				"parts":    {"(id INT, n INT, PRIMARY KEY (id, n)) PARTITION BY HASH (n) PARTITIONS 3", "n, n*2"},
				"keyless":  {"(id INT, v INT)", "n%5, 1"},
				"nullable": {"(id INT NULL UNIQUE, v INT)", "n, 1"},
				"unique":   {"(v INT NULL UNIQUE, id INT NOT NULL UNIQUE)", "NULL, n"},
				"empty":    {"(id INT PRIMARY KEY)", ""},
				"Upper":    {"(id INT PRIMARY KEY)", "n"},
				odd:        {"(`" + odd + "` INT PRIMARY KEY, `select` INT)", "n, n"},
			}
			if kind == "mysql" {
				tables["lob"] = [2]string{"(id INT PRIMARY KEY, j JSON, g GEOMETRY)", "n, JSON_OBJECT('a', n), ST_GeomFromText('POINT(1 2)')"}
			}
			if s.MariaDB() && kind != "mariadb102" {
				tables["versioned"] = [2]string{"(id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "n, n"}
				tables["ids"] = [2]string{"(u UUID, i INET6, p VARCHAR(20), PRIMARY KEY (u, i, p(3)))", "CONCAT('6ccd780c-baba-1026-9564-5b8c65602', LPAD(HEX(n%7*70), 3, '0')), CONCAT('::', HEX(n)), 'x'"}
				tables["uuid"] = [2]string{"(id UUID PRIMARY KEY)", "CONCAT('6ccd780c-baba-1026-9564-5b8c656024', LPAD(HEX(n), 2, '0'))"}
				s.Exec("CREATE SEQUENCE " + x.db + ".seq")
			}
			s.Exec("USE " + x.db)
			s.Exec("SET NAMES utf8mb4")
			s.Exec("SET sql_mode=''")
			s.Exec("CREATE VIEW seen AS SELECT 1")
			var names, numbers []string
			for n := 1; n <= 40; n++ {
				numbers = append(numbers, fmt.Sprintf("SELECT %d AS n", n))
			}
			for name, d := range tables {
				names = append(names, strings.ReplaceAll(name, "``", "`"))
				s.Exec("CREATE TABLE `" + name + "` " + d[0])
				if d[1] == "" {
					continue
				}
				s.Exec("INSERT INTO `" + name + "` SELECT " + d[1] + " FROM (" + strings.Join(numbers, " UNION ALL ") + ") q")
			}
			slices.Sort(names)
			if err := x.k.c.status(); err != nil {
				t.Fatal(err)
			}
			listed, err := x.k.tables(t.Context(), func(caseless bool) *tablefilter.Filter {
				f, err := tablefilter.New([]string{x.db + ".*", "!*.Upper"})
				if err != nil {
					t.Fatal(err)
				}
				return f.For(caseless)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range listed {
				got = append(got, n.Table)
			}
			if want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "Upper" }); !slices.Equal(got, want) {
				t.Errorf("tables %q, want %q", got, want)
			}
			for _, name := range names {
				all, chunks := x.walk(x.query(name))
				want, atOnce := 40, 6
				switch name {
				case "empty":
					want, atOnce = 0, 1
				case "keyless", "nullable":
					atOnce = 1
				case "unique": // only binlog_row_metadata=FULL takes it for the key
					if atOnce = chunks; chunks != 1 && chunks != 6 {
						atOnce = 6
					}
				}
				distinct := slices.Compact(slices.Sorted(slices.Values(all)))
				if name == "keyless" && len(distinct) == 5 {
					distinct = all
				}
				if len(all) != want || len(distinct) != want || chunks != atOnce {
					t.Errorf("%s: %d rows, %d of them distinct, in %d chunks: %q", name, len(all), len(distinct), chunks, all)
				}
			}

			// A condition.
			q := x.query("number")
			q.where = func(bool) string { return "id > 0 AND v <> 'v40' OR v = 'v1' # and more" }
			if all, chunks := x.walk(q); len(all) != 7 || chunks != 6 { // n 1, 34 to 39
				t.Errorf("with a condition %d rows in %d chunks: %q", len(all), chunks, all)
			}
			for _, bad := range []string{"nosuch = 1", "id = = 1", "id = (SELECT 1 UNION SELECT 2)"} {
				q.where = func(bool) string { return bad }
				var stop *StopError
				if _, err := x.read(q); !errors.As(err, &stop) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), x.db+".number") {
					t.Errorf("condition %q: %v", bad, err)
				}
			}
			q = x.query("keyless")
			q.where = func(bool) string { return "id = 3" }
			if all, _ := x.walk(q); len(all) != 8 {
				t.Errorf("with a condition %d rows", len(all))
			}

			// Limits (I9).
			q = x.query("text")
			q.bytes, q.rows = 40, 40
			if _, chunks := x.walk(q); chunks < 5 {
				t.Errorf("%d chunks of about 40 bytes", chunks)
			}
			q = x.query("keyless")
			q.whole = 1000
			var stop *StopError
			if _, err := x.read(q); !errors.As(err, &stop) || !strings.Contains(err.Error(), "keyless") || !strings.Contains(err.Error(), "primary key") {
				t.Errorf("a table without key that is too large: %v", err)
			}

			s.Exec("CREATE TABLE tiny (b BIT)") // images of two bytes
			s.Exec("INSERT INTO tiny SELECT NULL FROM keyless a, keyless b")
			q = x.query("tiny")
			q.whole = 20 * 1600
			if _, err := x.read(q); !errors.As(err, &stop) || !strings.Contains(err.Error(), "tiny") {
				t.Errorf("a table without key whose many rows take much memory: %v", err)
			}
			q.whole = 80 * 1600
			if all, _ := x.walk(q); len(all) != 1600 {
				t.Errorf("%d tiny rows", len(all))
			}

			// I3: an end that cannot be is no end.
			if first, err := x.read(x.query("number")); err != nil {
				t.Error(err)
			} else {
				for _, where := range []string{"", "v <> 'v40'"} {
					q = x.query("number")
					q.where = func(bool) string { return where }
					q.key, q.last, q.most = first.key, []string{"21"}, first.most
					if _, err := x.read(q); !errors.As(err, &stop) || !strings.Contains(err.Error(), "the key 20") {
						t.Errorf("the last row is not found: %v", err)
					}
				}
			}

			// What happens between two chunks.
			first, err := x.read(x.query("several"))
			if err != nil {
				t.Fatal(err)
			}
			q = x.query("several")
			q.key, q.last, q.most = first.key, first.last, first.most
			s.Exec("ALTER TABLE several ADD w INT DEFAULT 5 FIRST")
			if next, err := x.read(q); err != nil || next.begun || len(next.rows) != 7 || len(next.table.Columns) != 5 {
				t.Errorf("after a column was added: %+v, %v", next, err)
			}
			s.Exec("ALTER TABLE several MODIFY b VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
			if next, err := x.read(q); err != nil || !next.begun || len(next.rows) != 7 {
				t.Errorf("after the key's collation was changed: %+v, %v", next, err)
			}
			s.Exec("TRUNCATE TABLE several")
			if next, err := x.read(q); err != nil || len(next.rows) != 0 || !next.end {
				t.Errorf("after all rows were deleted: %+v, %v", next, err)
			}
			s.Exec("DROP TABLE several")
			if next, err := x.read(q); err != nil || !next.gone {
				t.Errorf("after the table was dropped: %+v, %v", next, err)
			}
			s.Exec("CREATE VIEW several AS SELECT 1 AS a")
			if next, err := x.read(q); err != nil || !next.gone {
				t.Errorf("after a view took its place: %+v, %v", next, err)
			}
		})
	}
}

// status has the connector know its source, as its main reader would.
func (c *Connector) status() error {
	s, sv, err := c.connect(context.Background())
	if err == nil {
		c.state.update(func(st *Status) { st.Address, st.ServerUUID = s.addr, sv.uuid })
		s.close()
	}
	return err
}

// TestSnapshotStatementsAreDisturbed: what is locked, slow or killed is given up, and read by the next attempt.
func TestSnapshotStatementsAreDisturbed(t *testing.T) {
	t.Parallel()
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(o *Options) { o.MaxEvent = 1 << 20 })
			s.Exec("USE " + x.db)
			s.Exec("CREATE TABLE a (id INT PRIMARY KEY, v LONGBLOB)")
			s.Exec("INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, 'z')")
			whole := func() {
				t.Helper()
				if got, err := x.read(x.query("a")); err != nil || len(got.rows) != 3 {
					t.Errorf("afterwards: %+v, %v", got, err)
				}
			}
			other := s.Connect(x.db)
			do := func(c *client.Conn, sql string) {
				t.Helper()
				if _, err := c.Execute(sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}

			// Somebody holds the table: the SELECT does not wait for long, as all would wait behind it.
			do(other, "LOCK TABLES a WRITE")
			begin := time.Now()
			if _, err := x.read(x.query("a")); err == nil || !passing(err) {
				t.Errorf("of a locked table: %v", err)
			} else if took := time.Since(begin); took > 5*time.Minute { // by itself it would wait for a day
				t.Errorf("a locked table was waited for %v", took)
			}
			do(other, "UNLOCK TABLES")
			whole()

			// It takes too long: the server ends it, or we do.
			q := x.query("a")
			q.limit = time.Second
			q.where = func(bool) string { return "SLEEP(200) = 0" }
			begin = time.Now()
			if _, err := x.read(q); !errors.Is(err, errSlow) {
				t.Errorf("of a slow statement: %v", err)
			} else if took := time.Since(begin); took > 150*time.Second {
				t.Errorf("a slow statement took %v", took)
			}
			whole()

			// It is killed; or its connection is.
			for _, what := range []string{"QUERY ", ""} {
				var wg sync.WaitGroup
				wg.Go(func() {
					q := x.query("a")
					q.where = func(bool) string { return "SLEEP(300) = 0 AND 'killed' <> ''" }
					if got, err := x.read(q); err == nil && len(got.rows) == 3 {
						t.Errorf("a statement was not killed: %+v", got)
					}
				})
				killed := false
				for until := time.Now().Add(3 * time.Minute); !killed && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
					r, err := other.Execute("SELECT id FROM information_schema.processlist WHERE user='" + s.ReplUser + "' AND db IS NULL AND info LIKE '%" + x.db + "%SLEEP(300) = 0 AND ''killed''%'")
					if err != nil {
						t.Fatal(err)
					}
					for i := range r.RowNumber() {
						id, _ := r.GetString(i, 0)
						_, err := other.Execute("KILL " + what + id)
						killed = killed || err == nil
					}
				}
				wg.Wait()
				if !killed {
					t.Errorf("nothing was there to be killed")
				}
				whole()
			}

			// A row that is larger than the log may have them.
			s.Exec("INSERT INTO a VALUES (4, REPEAT('q', 1100000))")
			var stop *StopError
			if _, err := x.read(x.query("a")); !errors.As(err, &stop) || !strings.Contains(err.Error(), "max_event") || !strings.Contains(err.Error(), "key 4") {
				t.Errorf("of a large row: %v", err)
			}
			s.Exec("UPDATE a SET v=REPEAT('q', 9000000) WHERE id=4")
			if _, err := x.read(x.query("a")); !errors.As(err, &stop) || !strings.Contains(err.Error(), "max_event") {
				t.Errorf("of a huge row: %v", err)
			}
			s.Exec("DELETE FROM a WHERE id=4")
			whole()

			// Another server than the stream's, which is one of a group.
			if _, err := x.k.read(t.Context(), event.Position{ServerUUID: "another", File: "x.000001", Offset: 4}, x.query("a")); err == nil || !strings.Contains(err.Error(), "another") {
				t.Errorf("of another server: %v", err)
			}
			whole()
		})
	}
}

// I4: SELECTs wait until they show what the stream has shown, which it does before the tables do.
func TestSnapshotWaitsForWhatTheLogShows(t *testing.T) {
	t.Parallel()
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(*Options) {})
			s.Exec("USE " + x.db)
			s.Exec("CREATE TABLE a (id INT PRIMARY KEY)")
			other := s.Connect(x.db)
			for end := time.Now().Add(5 * time.Minute); !x.waits(other); {
				if time.Now().After(end) {
					t.Fatal("it never waited")
				}
				s.Exec("TRUNCATE TABLE a") // somebody else has written to the log of the shared server meanwhile
			}
		})
	}
}

// waits tells whether a chunk was waited for until the log came to a place that lay before it, which is checked. On MariaDB others may bring it there, too.
func (x *excerpts) waits(other *client.Conn) bool {
	x.t.Helper()
	place, err := x.k.c.End(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	commit := []string{"INSERT INTO a VALUES (1)"}
	if x.s.MariaDB() {
		place.Offset++ // inside of what comes next
	} else {
		g := event.GTID{SID: [16]byte(append([]byte(x.db), make([]byte, 16)...)[len(x.db)-8:]), Seq: 1}
		place.GTIDs.Add(g)
		commit = []string{"SET gtid_next='" + g.String() + "'", commit[0], "SET gtid_next='AUTOMATIC'"}
	}
	type answer struct {
		got *chunkRead
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, err := x.k.read(x.t.Context(), place, x.query("a"))
		answers <- answer{got, err}
	}()
	select {
	case a := <-answers:
		if end, err := x.k.c.End(x.t.Context()); err == nil && x.s.MariaDB() && (end.File != place.File || end.Offset > place.Offset) {
			return false
		}
		x.t.Fatalf("it did not wait: %+v, %v", a.got, a.err)
	case <-time.After(300 * time.Millisecond):
	}
	for _, sql := range commit {
		if _, err := other.Execute(sql); err != nil {
			x.t.Fatal(err)
		}
	}
	a := <-answers
	if a.err != nil || len(a.got.rows) != 1 {
		if x.s.MariaDB() && a.err == nil && (a.got.high.File != place.File || a.got.high.Offset > place.Offset) {
			return false
		}
		x.t.Errorf("%+v, %v", a.got, a.err)
	}
	return true
}

// I4: where nothing tells what SELECTs show they wait for a while: on MySQL 5.6, whose gtid_executed has what is not committed yet, and on MariaDB
// behind XA COMMITs, which lie in the log before they are carried out.
func TestSnapshotSettles(t *testing.T) {
	for _, kind := range []string{"mysql56", "mariadb11", "mariadb102"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(*Options) {})
			x.k.settle = snapshotSettle
			s.Exec("USE " + x.db)
			s.Exec("CREATE TABLE a (id INT PRIMARY KEY)")
			if _, err := x.read(x.query("a")); err != nil { // the link is there
				t.Fatal(err)
			}
			if s.MariaDB() {
				for _, sql := range []string{"XA START '%s'", "INSERT INTO a VALUES (1)", "XA END '%s'", "XA PREPARE '%s'", "XA COMMIT '%s'"} {
					s.Exec(strings.ReplaceAll(sql, "%s", x.db))
				}
			} else {
				s.Exec("INSERT INTO a VALUES (1)")
			}
			begin := time.Now()
			got, err := x.read(x.query("a"))
			if err != nil || len(got.rows) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			if took := time.Since(begin); took < snapshotSettle {
				t.Errorf("it waited %v", took)
			}
			f, err := tablefilter.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			told := strings.Contains(fmt.Sprint(x.k.c.CheckSnapshots(t.Context(), f)), "gtid_executed does not tell")
			if told == s.MariaDB() {
				t.Errorf("check tells of it: %t", told)
			}
		})
	}
}

// writing is a connection that tells what is written to it before it is.
type writing struct {
	net.Conn
	before func([]byte)
}

func (w *writing) Write(p []byte) (int, error) {
	w.before(p)
	return w.Conn.Write(p)
}

// Rows that come between the look for the end of a chunk and its rows push none of them out (I3).
func TestSnapshotWithConditionWhileRowsCome(t *testing.T) {
	for _, kind := range []string{"mysql", "mysql56"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(*Options) {})
			s.Exec("USE " + x.db)
			s.Exec("CREATE TABLE a (id INT PRIMARY KEY)")
			for id := 10; id <= 100; id += 10 {
				s.Exec(fmt.Sprintf("INSERT INTO a VALUES (%d)", id))
			}
			other := s.Connect(x.db)
			if _, err := x.read(x.query("a")); err != nil { // the link is there
				t.Fatal(err)
			}
			for _, most := range []int{4, 20} { // the end of the table is in sight, or not
				q := x.query("a")
				q.rows = most
				var all []string
				for n := 0; ; n++ {
					if n == 50 {
						t.Fatal("it does not end")
					}
					b := x.k.link.budget
					link := b.Conn
					b.Conn = &writing{link, func(p []byte) {
						if n > 0 || !strings.Contains(string(p), "(id > 0") {
							return
						}
						for id := 1; id <= 30; id++ {
							if id%10 > 0 {
								if _, err := other.Execute(fmt.Sprintf("INSERT INTO a VALUES (%d)", id)); err != nil {
									t.Error(err)
								}
							}
						}
					}}
					q.where = func(bool) string { return "id > 0" }
					got, err := x.read(q)
					b.Conn = link
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, x.text(got)...)
					if got.end {
						break
					}
					q.key, q.last, q.most = got.key, got.last, got.most
				}
				for id := 10; id <= 100; id += 10 {
					if !slices.Contains(all, fmt.Sprint(id)) {
						t.Errorf("in chunks of %d rows %d did not come: %q", most, id, all)
					}
				}
				s.Exec("DELETE FROM a WHERE id MOD 10 > 0")
			}
		})
	}
}

// What is read belongs to the server whose log the stream is of, also where another one of its group answers first.
func TestSnapshotIsReadFromTheServerOfTheStream(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	other := testenv.MySQL(t, "mariadb11")
	x := newExcerpts(t, s, func(*Options) {})
	s.Exec("CREATE TABLE " + x.db + ".a (id INT PRIMARY KEY)")
	s.Exec("INSERT INTO " + x.db + ".a VALUES (1)")
	place, err := x.k.c.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := newConnectorWith(t, s, func(o *Options) { o.Addresses = []string{other.Addr, s.Addr} }, x.db+".*")
	k := &tableReader{c: c, settle: snapshotSettle}
	defer k.close()
	got, err := k.read(t.Context(), place, x.query("a"))
	if err != nil || len(got.rows) != 1 || k.link.addr != s.Addr {
		t.Errorf("%+v, %v", got, err)
	}
}

// I4: a chunk stands behind all that was committed when its rows were read.
func TestSnapshotChunkStandsBehindWhatItShows(t *testing.T) {
	t.Parallel()
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			x := newExcerpts(t, s, func(*Options) {})
			s.Exec("USE " + x.db)
			s.Exec("CREATE TABLE a (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE b (id INT PRIMARY KEY AUTO_INCREMENT)")
			s.Exec("INSERT INTO a VALUES (1), (2), (3)")
			type answer struct {
				got *chunkRead
				err error
			}
			for sleep := 1; ; sleep *= 2 {
				if sleep > 30 {
					t.Fatal("the server is too slow")
				}
				place, err := x.k.c.End(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				q := x.query("a")
				q.where = func(bool) string { return fmt.Sprintf("id > 1 OR SLEEP(%d) = 0", sleep) }
				answers := make(chan answer, 1)
				go func() {
					got, err := x.k.read(t.Context(), place, q)
					answers <- answer{got, err}
				}()
				for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
					if s.Query("SELECT COUNT(*) FROM information_schema.processlist WHERE user='" + s.ReplUser + "' AND info LIKE '%" + x.db + "%SLEEP(%'")[0][0] != "0" {
						break
					}
				}
				s.Exec("INSERT INTO b VALUES ()")
				file, offset := s.LogEnd()
				var a answer
				select {
				case <-answers: // before we were ready
					continue
				default:
					a = <-answers
				}
				if a.err != nil || len(a.got.rows) != 3 || !a.got.high.Reached(&event.Position{File: file, Offset: uint64(offset), ServerUUID: place.ServerUUID}) {
					t.Errorf("%+v, %v; want a place not before %s:%d", a.got, a.err, file, offset)
				}
				return
			}
		})
	}
}
