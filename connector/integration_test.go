//go:build integration

package connector

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

var kinds = []string{"mysql", "mariadb", "mariadb11"}

func newConnector(t *testing.T, s *testenv.Server, start string, tables ...string) *Connector {
	t.Helper()
	return newConnectorWith(t, s, func(o *Options) { o.Start = start }, tables...)
}

func newConnectorWith(t *testing.T, s *testenv.Server, change func(*Options), tables ...string) *Connector {
	t.Helper()
	f, err := tablefilter.New(tables)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Destination: testenv.Name(t), Addresses: []string{s.Addr}, User: s.ReplUser, Password: s.ReplPassword, Tables: f,
		Heartbeat: time.Second, PollPeriod: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	change(&o)
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, c *Connector) event.Cursor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cur, err := c.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return cur
}

// executor returns a function that runs statements on a connection.
func executor(t *testing.T, sql *client.Conn) func(statements ...string) {
	return func(statements ...string) {
		t.Helper()
		for _, q := range statements {
			if _, err := sql.Execute(q); err != nil {
				t.Fatalf("%.1500s: %v", q, err)
			}
		}
	}
}

// account makes a user with the password "x" that is called after the database, with rights on everything, and returns its name. The user goes with the test.
func account(t *testing.T, s *testenv.Server, db string, rights ...string) string {
	t.Helper()
	user := "u" + db[max(0, len(db)-10):]
	s.Exec("CREATE USER " + user + "@'127.0.0.1' IDENTIFIED BY 'x'")
	t.Cleanup(func() { s.Exec("DROP USER " + user + "@'127.0.0.1'") })
	if len(rights) > 0 {
		s.Exec("GRANT " + strings.Join(rights, ", ") + " ON *.* TO " + user + "@'127.0.0.1'")
	}
	return user
}

var errEnough = errors.New("enough")

// readUntil reads until enough says so, and returns all events up to there.
func readUntil(t *testing.T, c *Connector, from event.Cursor, enough func(*event.Event) bool) []*event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all []*event.Event
	err := c.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
		for _, e := range es {
			all = append(all, e)
			if enough(e) {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("Read ended after %d events: %v", len(all), err)
	}
	return all
}

// readError reads until Read gives up.
func readError(t *testing.T, c *Connector, from event.Cursor) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := c.Read(ctx, from, func(context.Context, []*event.Event) error { return nil })
	var stop *StopError
	if !errors.As(err, &stop) {
		t.Fatalf("Read ended with %v, which is no StopError", err)
	}
	if stop.Remedy == "" || stop.Destination == "" {
		t.Errorf("the error lacks a remedy or its destination: %v", err)
	}
	return err
}

// marker returns a predicate that finds the End behind a CREATE TABLE of that name.
func marker(name string) func(*event.Event) bool {
	seen := false
	return func(e *event.Event) bool {
		seen = seen || e.Kind == event.DDL && bytes.Contains(e.Raw, []byte(name))
		return seen && e.Kind == event.End
	}
}

// transcript writes events so that equal streams give equal text.
func transcript(t *testing.T, es []*event.Event) []string {
	t.Helper()
	var out []string
	var s event.Scanner
	for _, e := range es {
		line := fmt.Sprintf("%s %d %d %s:%d-%d %s %v %s", e.Kind, e.Ordinal, e.Index, e.File, e.Start, e.Next, e.Txn.GTID, e.Last, e.Raw)
		if e.Kind == event.Rows {
			line += " " + e.Table.Name
			s.Reset(e)
			for s.Next() {
				for _, v := range s.Row().Values() {
					if v.IsNull() || v.IsAbsent() {
						line += " -"
						continue
					}
					b, err := v.AppendText(nil)
					if err != nil {
						t.Fatal(err)
					}
					line += " " + string(b[:min(len(b), 40)])
				}
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
		}
		out = append(out, line)
	}
	return out
}

// numbered checks I5: ordinals from first on without a gap, whole transactions.
func numbered(t *testing.T, es []*event.Event, first int64) {
	t.Helper()
	next, open := first, false
	for _, e := range es {
		switch e.Kind {
		case event.Begin:
			if open {
				t.Fatal("Begin in a transaction")
			}
			open = true
			continue
		case event.End:
			open = false
		}
		if e.Ordinal != next {
			t.Fatalf("%s has ordinal %d, want %d", e.Kind, e.Ordinal, next)
		}
		next++
		if e.Kind == event.Rows {
			next += int64(e.Rows) - 1
		}
	}
}

func rowsOf(es []*event.Event, table string) (ids []string) {
	var s event.Scanner
	for _, e := range es {
		if e.Kind != event.Rows || e.Table.Name != table {
			continue
		}
		s.Reset(e)
		for s.Next() {
			b, _ := s.Row().Values()[0].AppendText(nil)
			ids = append(ids, e.Op.String()[:1]+string(b))
		}
	}
	return ids
}

// workload fills the binlog with all kinds of transactions. It ends with CREATE TABLE shop.done.
func workload(s *testenv.Server) {
	all := []string{
		"CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, b VARCHAR(100), c TINYINT(1))", "CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE=MyISAM",
		"CREATE DATABASE other", "CREATE TABLE other.x (id INT PRIMARY KEY)",
		"INSERT INTO shop.a VALUES (1,'x',1),(2,NULL,2)", "INSERT INTO shop.m VALUES (1),(2)", "INSERT INTO other.x VALUES (1)",
		"BEGIN", "INSERT INTO shop.a VALUES (3,'y',0)", "INSERT INTO other.x VALUES (2)", "UPDATE shop.a SET b='z'", "DELETE FROM shop.a WHERE id=1", "COMMIT",
		"BEGIN", "INSERT INTO shop.a VALUES (9,'gone',0)", "ROLLBACK", "CREATE TABLE shop.s SELECT id FROM shop.a",
		"XA START 'x'", "INSERT INTO shop.a VALUES (4,'xa',0)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE", "FLUSH BINARY LOGS",
		"ALTER TABLE shop.a ADD d DATETIME(3)", "INSERT INTO shop.a VALUES (5,'d',1,'2026-01-02 03:04:05.678')",
		"BEGIN", "INSERT INTO shop.a (id) SELECT 1000 + a.id*100 + b.id*10 + c.id FROM shop.a a, shop.a b, shop.a c", "DELETE FROM shop.a WHERE id > 1000", "COMMIT",
	}
	switch {
	case s.MariaDB():
		all = append(all, "SET SESSION gtid_domain_id=5", "INSERT INTO shop.a (id) VALUES (20)", "INSERT INTO shop.a (id) VALUES (21)", "SET SESSION gtid_domain_id=0",
			"INSERT INTO shop.a (id) VALUES (22)", "SET SESSION server_id=77", "INSERT INTO shop.a (id) VALUES (23)", "SET SESSION server_id=@@global.server_id",
			"SET GLOBAL log_bin_compress=1", "SET GLOBAL log_bin_compress_min_len=10", "UPDATE shop.a SET b=REPEAT('q', 90)", "SET GLOBAL log_bin_compress=0",
			"CREATE SEQUENCE shop.q", "SELECT NEXTVAL(shop.q)")
	case s.Query("SELECT @@gtid_mode")[0][0] == "ON":
		all = append(all, "SET gtid_next='AUTOMATIC:blue'", "INSERT INTO shop.a (id) VALUES (20)", "SET gtid_next='AUTOMATIC:red'", "INSERT INTO shop.a (id) VALUES (21)", "SET gtid_next='AUTOMATIC'",
			"INSERT INTO shop.a (id) VALUES (22)")
		fallthrough
	default:
		all = append(all, "SET SESSION binlog_transaction_compression=ON", "UPDATE shop.a SET b=REPEAT('q', 90)", "DELETE FROM shop.a WHERE id=22", "SET SESSION binlog_transaction_compression=OFF")
	}
	for _, q := range append(all, "CREATE TABLE shop.done (id INT)") {
		s.Exec(q)
	}
}

// TestReplay reads everything, then again from every transaction end: every number and every byte is the same (I5).
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		options    []string
	}{{"mysql", "mysql", nil}, {"mysql without GTIDs", "mysql", []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}, {"mariadb", "mariadb", nil}, {"mariadb11", "mariadb11", nil}} {
		t.Run(c.name, func(t *testing.T) {
			s := testenv.NewMySQL(t, c.kind, c.options...)
			con := newConnector(t, s, "latest", "shop.*")
			from := start(t, con)
			workload(s)
			all := readUntil(t, con, from, marker("shop.done"))
			numbered(t, all, 1)
			want := transcript(t, all)
			pos := from
			pos.Position.GTIDs = from.Position.GTIDs.Clone()
			ends := 0
			for i, e := range all {
				if e.Kind != event.End || i == len(all)-1 {
					continue
				}
				ends++
				pos.Ordinal = e.Ordinal
				pos.Position.File, pos.Position.Offset = e.File, e.Next
				pos.Position.GTIDs.Add(e.Txn.GTID)
				if ends%4 != 0 { // some are enough
					continue
				}
				got := transcript(t, readUntil(t, con, pos, marker("shop.done")))
				if len(got) != len(want)-i-1 {
					t.Fatalf("from %s:%d: %d events, want %d", e.File, e.Next, len(got), len(want)-i-1)
				}
				for j := range got {
					if got[j] != want[i+1+j] {
						t.Fatalf("from %s:%d, event %d:\n got %s\nwant %s", e.File, e.Next, j, got[j], want[i+1+j])
					}
				}
				// The same place by name. An offset tells less than a set, but the stream is the same.
				if ends%8 == 0 {
					byName := start(t, newConnector(t, s, fmt.Sprintf("%s:%d", e.File, e.Next), "shop.*"))
					if !byName.Position.GTIDs.Equal(pos.Position.GTIDs) {
						t.Errorf("%s:%d has GTIDs %s, counted %s", e.File, e.Next, byName.Position.GTIDs, pos.Position.GTIDs)
					}
					inside := newConnector(t, s, fmt.Sprintf("%s:%d", e.File, e.Start+1), "shop.*")
					if _, err := inside.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "inside a transaction") {
						t.Errorf("an offset inside a transaction: %v", err)
					}
				}
			}
			if ends < 10 {
				t.Errorf("only %d transactions", ends)
			}
			// The start of a file has a set, too, and is the end of the file before.
			for _, l := range s.Query("SHOW BINARY LOGS") {
				before := from.Position.GTIDs.Clone()
				for _, e := range all {
					if e.Kind == event.End && event.FileNumber(e.File) < event.FileNumber(l[0]) {
						before.Add(e.Txn.GTID)
					}
				}
				at := start(t, newConnector(t, s, l[0]+":4", "shop.*")).Position.GTIDs
				if event.FileNumber(l[0]) > event.FileNumber(from.Position.File) && !at.Equal(before) && at.ConnectState() != before.ConnectState() {
					t.Errorf("%s:4 has GTIDs %s, counted %s", l[0], at, before)
				}
			}
			// earliest holds everything of latest.
			first := start(t, newConnector(t, s, "earliest", "shop.*"))
			early := readUntil(t, con, first, marker("shop.done"))
			if a, b := len(rowsOf(early, "a")), len(rowsOf(all, "a")); a != b || a == 0 {
				t.Errorf("%d rows from the beginning, %d from the start", a, b)
			}
		})
	}
}

// TestDumpKilled kills the dump thread in the middle of a transaction of
// 20,000 rows: nothing is lost, nothing comes twice (D2).
func TestDumpKilled(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind)
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY, b VARCHAR(3000))")
			con := newConnector(t, s, "latest", "shop.*")
			from := start(t, con)
			s.Exec("SET SESSION " + map[bool]string{true: "max_recursive_iterations", false: "cte_max_recursion_depth"}[s.MariaDB()] + "=30000")
			s.Exec("INSERT INTO shop.t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 20000) SELECT i, REPEAT('x', 2000) FROM n")
			s.Exec("INSERT INTO shop.t VALUES (0, '')")
			s.Exec("CREATE TABLE shop.done (id INT)")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var all []*event.Event
			kills, next, end := 0, 3000, marker("shop.done")
			err := con.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
				for _, e := range es {
					all = append(all, e)
					if end(e) {
						return errEnough
					}
				}
				if e := es[len(es)-1]; e.Kind == event.Rows && int(e.Index) > next && kills < 3 {
					next += 4000
					kills += s.KillDumps()
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
			if kills < 2 || con.Status().Reconnects < 2 {
				t.Errorf("%d kills, %d reconnects", kills, con.Status().Reconnects)
			}
			numbered(t, all, 1)
			ids := rowsOf(all, "t")
			if len(ids) != 20001 {
				t.Fatalf("%d rows", len(ids))
			}
			for i, id := range ids[:20000] {
				if id != fmt.Sprintf("i%d", i+1) {
					t.Fatalf("row %d is %s", i, id)
				}
			}
		})
	}
}

// TestLargeRows reads packets of 16 MiB and more.
func TestLargeRows(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".t (id INT PRIMARY KEY, b LONGBLOB)")
			con := newConnector(t, s, "latest", db+".*")
			from := start(t, con)
			sizes := []int{1, 16<<20 - 100, 16 << 20, 40 << 20, 7}
			for i, n := range sizes {
				s.Exec(fmt.Sprintf("INSERT INTO %s.t VALUES (%d, REPEAT('%c', %d))", db, i, 'a'+i, n))
			}
			s.Exec("CREATE TABLE " + db + ".finished (id INT)")
			all := readUntil(t, con, from, marker(db+".finished"))
			var sc event.Scanner
			i := 0
			for _, e := range all {
				if e.Kind != event.Rows {
					continue
				}
				sc.Reset(e)
				for sc.Next() {
					b := sc.Row().After[1].Raw()
					if len(b) != sizes[i] || bytes.Count(b, []byte{byte('a' + i)}) != len(b) {
						t.Errorf("row %d has %d bytes", i, len(b))
					}
					i++
				}
			}
			if i != len(sizes) {
				t.Errorf("%d rows", i)
			}
			small := newConnectorWith(t, s, func(o *Options) { o.MaxEvent = 20 << 20 }, db+".*")
			if err := readError(t, small, from); !strings.Contains(err.Error(), "larger than the limit of 20971520") {
				t.Error(err)
			}
		})
	}
}

func TestStartAtTimeAndGTID(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind)
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
			s.Exec("INSERT INTO shop.t VALUES (1)")
			s.Exec("FLUSH BINARY LOGS")
			s.Exec("INSERT INTO shop.t VALUES (2)")
			middle := start(t, newConnector(t, s, "latest"))
			time.Sleep(1100 * time.Millisecond) // MariaDB logs whole seconds
			at := s.Query("SELECT UNIX_TIMESTAMP()")[0][0]
			s.Exec("INSERT INTO shop.t VALUES (3)")
			s.Exec("FLUSH BINARY LOGS")
			s.Exec("INSERT INTO shop.t VALUES (4)")
			s.Exec("CREATE TABLE shop.done (id INT)")
			var unix int64
			_, _ = fmt.Sscan(at, &unix)
			for name, text := range map[string]string{"time": time.Unix(unix, 0).UTC().Format(time.RFC3339), "gtid": "gtid:" + middle.Position.GTIDs.String()} {
				con := newConnector(t, s, text, "shop.*")
				from := start(t, con)
				if ids := rowsOf(readUntil(t, con, from, marker("shop.done")), "t"); strings.Join(ids, " ") != "i3 i4" {
					t.Errorf("%s %s: %v", name, text, ids)
				}
			}
			if cur := start(t, newConnector(t, s, "2001-01-01T00:00:00Z", "shop.*")); cur.Position.Offset != 4 {
				t.Errorf("a time before the binlog: %+v", cur.Position)
			}
			for last := start(t, newConnector(t, s, "latest")); ; {
				cur := start(t, newConnector(t, s, "2099-01-01T00:00:00Z", "shop.*"))
				if cur.Position.Offset == last.Position.Offset && cur.Position.File == last.Position.File {
					break
				}
				before := last
				last = start(t, newConnector(t, s, "latest"))
				if last.Position.Offset == before.Position.Offset && last.Position.File == before.Position.File { // or MariaDB has logged a checkpoint
					t.Fatalf("a time in the future: %+v", cur.Position)
				}
			}
		})
	}
}

// TestBackPressure: a put that blocks for longer than the read timeout is no lost link.
func TestBackPressure(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	s.Exec("CREATE TABLE " + db + ".t (id INT AUTO_INCREMENT PRIMARY KEY, b TEXT)")
	con := newConnectorWith(t, s, func(o *Options) { o.Heartbeat = 3 * time.Second }, db+".*")
	from := start(t, con)
	for range 50 {
		s.Exec("INSERT INTO " + db + ".t (b) VALUES (REPEAT('x', 60000)),(REPEAT('x', 60000)),(REPEAT('x', 60000)),(REPEAT('x', 60000))")
	}
	s.Exec("CREATE TABLE " + db + ".finished (id INT)")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all []*event.Event
	slow := true
	end := marker(db + ".finished")
	err := con.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
		if slow {
			slow = false
			time.Sleep(3*con.opt.Heartbeat + time.Second)
		}
		for _, e := range es {
			all = append(all, e)
			if end(e) {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if st := con.Status(); st.Reconnects != 0 || len(rowsOf(all, "t")) != 200 {
		t.Errorf("%d reconnects, %d rows", st.Reconnects, len(rowsOf(all, "t")))
	}
}

// TestServerRestart: the source dies and comes back; reading goes on, and Status says what is.
func TestServerRestart(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
			con := newConnector(t, s, "latest", "shop.*")
			from := start(t, con)
			s.Exec("INSERT INTO shop.t VALUES (1)")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			got := make(chan *event.Event, 1000)
			done := make(chan error, 1)
			go func() {
				done <- con.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
					for _, e := range es {
						got <- e
					}
					return nil
				})
			}()
			<-got
			wait(t, func() bool {
				st := con.Status()
				return st.Connected && st.SourceFile != "" && !st.Behind && st.Lag == 0 && st.Rows == 1
			})
			s.Kill()
			wait(t, func() bool { st := con.Status(); return !st.Connected && st.Err != nil })
			s.Restart()
			s.Exec("INSERT INTO shop.t VALUES (2)")
			wait(t, func() bool { st := con.Status(); return st.Connected && st.Rows == 2 && !st.Behind })
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if st := con.Status(); st.Reconnects == 0 || st.Connected {
				t.Errorf("%+v", st)
			}
		})
	}
}

func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// TestStops: each of these ends Read with one message that says what, where and what to do.
func TestStops(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind)
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY, b INT)")
			stops := func(want string, change func(*Options), statements ...string) {
				t.Helper()
				con := newConnectorWith(t, s, change, "shop.*")
				from := start(t, con)
				for _, q := range statements {
					s.Exec(q)
				}
				if err := readError(t, con, from); !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
			plain := func(*Options) {}
			if kind == "mysql" {
				s.Exec("SET SESSION sql_log_bin=1")
			}
			stops("statement-format DML (INSERT)", plain, "SET SESSION binlog_format=STATEMENT", "INSERT INTO shop.t VALUES (1,1)", "SET SESSION binlog_format=ROW")
			strict := func(o *Options) { o.SchemaFrom = schema.FromLog }
			stops("binlog_row_metadata=FULL", strict, "SET GLOBAL binlog_row_metadata=MINIMAL", "INSERT INTO shop.t VALUES (3,1)")
			s.Exec("SET GLOBAL binlog_row_metadata=FULL")
			// The log moves on and is purged.
			con := newConnector(t, s, "latest", "shop.*")
			from := start(t, con)
			s.Exec("INSERT INTO shop.t VALUES (4,1)")
			s.Exec("FLUSH BINARY LOGS")
			s.Exec("INSERT INTO shop.t VALUES (5,1)")
			s.Exec("FLUSH BINARY LOGS")
			file := s.Query(map[bool]string{true: "SHOW MASTER STATUS", false: "SHOW BINARY LOG STATUS"}[s.MariaDB()])[0][0]
			if kind == "mariadb11" {
				s.Exec("SET GLOBAL slave_connections_needed_for_purge=0")
			}
			// Dump threads of the readers above hold files until they notice that nobody listens.
			wait(t, func() bool {
				s.Exec("PURGE BINARY LOGS TO '" + file + "'")
				return s.Query("SHOW BINARY LOGS")[0][0] == file
			})
			gone := readError(t, con, from)
			if !strings.Contains(gone.Error(), "purged") {
				t.Error(gone)
			}
			// A look at the position alone says the same, and nothing of one that is there.
			if known, err := con.CheckPosition(t.Context(), from.Position); !known || err == nil || err.Error() != gone.Error() {
				t.Errorf("%t, %v\nwant %v", known, err, gone)
			}
			held := start(t, newConnector(t, s, "latest", "shop.*"))
			if known, err := con.CheckPosition(t.Context(), held.Position); !known || err != nil {
				t.Errorf("%v: %t, %v", held.Position, known, err)
			}
			// Login and privileges.
			s.Exec("CREATE USER nobody@'127.0.0.1' IDENTIFIED BY 'x'")
			for _, c := range []struct{ user, password, want string }{{"nobody", "wrong", "refuses the login"}, {"nobody", "x", "GRANT REPLICATION SLAVE"}} {
				con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password = c.user, c.password }, "shop.*")
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				_, err := con.Start(ctx)
				cancel()
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "'x'") {
					t.Errorf("%s/%s: %v", c.user, c.password, err)
				}
				found := con.Check(t.Context())
				bad := 0
				for _, f := range found {
					t.Log(f.Severity, f.What, "|", f.Remedy)
					if f.Severity == Error {
						bad++
					}
				}
				if bad == 0 {
					t.Error("Check finds nothing")
				}
			}
			for _, f := range newConnector(t, s, "latest").Check(t.Context()) {
				t.Log(f.Severity, f.What, "|", f.Remedy)
				if f.Severity == Error {
					t.Errorf("%s: %s", f.What, f.Remedy)
				}
			}
		})
	}
}

// TestIdentityClash: two processes with one identity, and a server id that somebody else has.
func TestIdentityClash(t *testing.T) {
	for _, kind := range testenv.Kinds { // each says it in its own words
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			same, tables := testenv.Name(t), s.Database()+".*" // what others do on the server is nothing to it
			a := newConnectorWith(t, s, func(o *Options) { o.Destination = same }, tables)
			b := newConnectorWith(t, s, func(o *Options) { o.Destination = same }, tables)
			from := start(t, a)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			errs := make(chan error, 2)
			for _, c := range []*Connector{a, b} {
				go func() {
					errs <- c.Read(ctx, from, func(context.Context, []*event.Event) error { return nil })
				}()
			}
			if err := <-errs; err == nil || !strings.Contains(err.Error(), "another replica uses our server id") {
				t.Errorf("the first that stops: %v", err)
			}
			cancel()
			<-errs
			own := newConnectorWith(t, s, func(o *Options) {
				var n uint32
				_, _ = fmt.Sscan(s.Query("SELECT @@server_id")[0][0], &n)
				o.ServerID = n
			}, tables)
			if err := readError(t, own, from); !strings.Contains(err.Error(), "source's own") {
				t.Error(err)
			}
		})
	}
}

// TestLogins: with each way to log in and to be sure of the server, also while the server has not the password at hand and asks for the whole
// of it: the first login behind FLUSH PRIVILEGES, and those that follow.
func TestLogins(t *testing.T) {
	s := testenv.NewMySQL(t, "mysql")
	for _, plugin := range []string{"caching_sha2_password", "sha256_password"} {
		s.Exec("CREATE USER " + plugin + " IDENTIFIED WITH " + plugin + " BY 'secret'")
		s.Exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO " + plugin)
	}
	s.Exec("CREATE USER nopassword IDENTIFIED WITH caching_sha2_password BY ''")
	s.Exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO nopassword")
	pem, err := os.ReadFile(s.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	logins := 0
	for name, cfg := range map[string]*tls.Config{
		"plain": nil,
		"tls":   {InsecureSkipVerify: true},
		"verified": {RootCAs: pool, InsecureSkipVerify: true, VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool}) // its name is not the host's
			return err
		}},
	} {
		for user, password := range map[string]string{"caching_sha2_password": "secret", "sha256_password": "secret", "nopassword": ""} {
			s.Exec("FLUSH PRIVILEGES")
			for range 3 {
				con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password, o.TLS = user, password, cfg })
				from := start(t, con)
				logins++
				database := fmt.Sprint("done_", logins)
				s.Exec("CREATE DATABASE " + database)
				if n := len(readUntil(t, con, from, marker(database))); n != 3 {
					t.Errorf("%s, %s: %d events", user, name, n)
				}
			}
		}
	}
	// An account, and then a server, that takes encrypted connections only.
	s.Exec("CREATE USER encrypted IDENTIFIED BY 'secret' REQUIRE SSL")
	s.Exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO encrypted")
	for _, c := range []struct{ user, want string }{{"encrypted", "refuses the login of user encrypted"}, {"caching_sha2_password", "the source takes encrypted connections only"}} {
		for _, cfg := range []*tls.Config{nil, {InsecureSkipVerify: true}} {
			con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password, o.TLS = c.user, "secret", cfg })
			_, err := con.Start(t.Context())
			if cfg == nil && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "source.tls")) || cfg != nil && err != nil {
				t.Errorf("%s, encrypted %v: %v", c.user, cfg != nil, err)
			}
		}
		s.Exec("SET GLOBAL require_secure_transport=ON")
	}
	s.Exec("SET GLOBAL require_secure_transport=OFF")
	wrong := newConnectorWith(t, s, func(o *Options) {
		o.User, o.Password, o.TLS = "caching_sha2_password", "secret", &tls.Config{RootCAs: x509.NewCertPool()}
	})
	if f := wrong.Check(t.Context()); len(f) != 1 || f[0].Severity != Error || !strings.Contains(f[0].What, "certificate") {
		t.Errorf("a certificate of an unknown issuer: %v", f)
	}
}

// TestReadersLeaveNothing: however often reading begins and ends, no connection stays at the source, and nothing of ours runs on.
func TestReadersLeaveNothing(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			user := account(t, s, db, "REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT") // whose connections are counted
			con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password = user, "x" }, db+".*")
			from := start(t, con)
			s.Exec("CREATE TABLE " + db + ".t (id INT PRIMARY KEY)")
			goroutines := 0
			for i := range 20 {
				s.Exec(fmt.Sprintf("INSERT INTO %s.t VALUES (%d)", db, i))
				readUntil(t, con, from, func(e *event.Event) bool { return e.Kind == event.Rows })
				if i == 2 {
					goroutines = runtime.NumGoroutine()
				}
			}
			wait(t, func() bool { return runtime.NumGoroutine() <= goroutines })
			wait(t, func() bool { // a dump thread notices at its next event or heartbeat
				return s.Query("SELECT COUNT(*) FROM information_schema.processlist WHERE user=?", user)[0][0] == "0"
			})
		})
	}
}

// TestFirstStartBehindPurged: a first start, without a position, on a server that has executed transactions which its log does not hold, as one
// that was restored from a dump; the set has gaps.
func TestFirstStartBehindPurged(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		const purged = "11111111-1111-4111-8111-111111111111:1-5:8-10:15,22222222-2222-4222-8222-222222222222:1-3:tag:2-4:6"
		s := testenv.NewMySQL(t, "mysql")
		s.Exec("RESET BINARY LOGS AND GTIDS")
		s.Exec("SET GLOBAL gtid_purged='" + purged + "'")
		s.Exec("CREATE DATABASE shop")
		s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
		s.Exec("INSERT INTO shop.t VALUES (1)")
		s.Exec("FLUSH BINARY LOGS")
		behindPurged(t, s, purged, "i1 i2 i3")
		// Files are purged, too.
		s.Exec("PURGE BINARY LOGS TO '" + s.Query("SHOW BINARY LOG STATUS")[0][0] + "'")
		behindPurged(t, s, purged, "i2 i3")
	})
	for _, kind := range kinds[1:] {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind)
			s.Exec("RESET MASTER")
			s.Exec("SET GLOBAL gtid_slave_pos='0-77-500,3-78-9'")
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
			s.Exec("INSERT INTO shop.t VALUES (1)")
			s.Exec("FLUSH BINARY LOGS")
			behindPurged(t, s, "", "i1 i2 i3")
			if kind == "mariadb11" {
				s.Exec("SET GLOBAL slave_connections_needed_for_purge=0")
			}
			file := s.Query("SHOW MASTER STATUS")[0][0]
			wait(t, func() bool { // readers above hold files until the server notices that they are gone
				s.Exec("PURGE BINARY LOGS TO '" + file + "'")
				return s.Query("SHOW BINARY LOGS")[0][0] == file
			})
			behindPurged(t, s, "", "i2 i3")
		})
	}
}

// behindPurged reads the rows of shop.t from each documented place to begin, and once more from where that stands.
func behindPurged(t *testing.T, s *testenv.Server, purged, earliest string) {
	t.Helper()
	late := newConnector(t, s, "latest", "shop.*")
	latest := start(t, late)
	s.Exec("DELETE FROM shop.t WHERE id > 1")
	for _, q := range []string{"INSERT INTO shop.t VALUES (2)", "INSERT INTO shop.t VALUES (3)", "CREATE TABLE shop.done (id INT)"} {
		s.Exec(q)
	}
	defer s.Exec("DROP TABLE shop.done")
	for name, want := range map[string]string{"earliest": earliest, "latest": "i2 i3"} {
		con, from := late, latest
		if name == "earliest" {
			con = newConnector(t, s, name, "shop.*")
			from = start(t, con)
		}
		set, err := event.ParseGTIDSet(purged)
		if err != nil {
			t.Fatal(err)
		}
		if lost := set.Subtract(from.Position.GTIDs); !lost.IsEmpty() {
			t.Errorf("%s: %s lacks %s", name, from.Position.GTIDs, lost)
		}
		all := readUntil(t, con, from, marker("shop.done"))
		var ids []string
		for _, id := range rowsOf(all, "t") {
			if id[0] == 'i' {
				ids = append(ids, id)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: rows %s, want %s", name, got, want)
		}
	}
}

// TestSeveralReads: several readers of one connector do not evict each other.
func TestSeveralReads(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			con := newConnectorWith(t, s, func(o *Options) { o.Heartbeat = 10 * time.Second })
			from := start(t, con)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			seen := make(chan struct{}, 3)
			done := make(chan error, 3)
			name := s.Database() + "_marker"
			for range 3 {
				go func() {
					end := marker(name)
					done <- con.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
						for _, e := range es {
							if end(e) {
								seen <- struct{}{}
							}
						}
						return nil
					})
				}()
			}
			time.Sleep(2 * time.Second)
			s.Exec("CREATE DATABASE " + name)
			s.Exec("DROP DATABASE " + name)
			for range 3 {
				select {
				case <-seen:
				case <-ctx.Done():
					t.Fatal("a reader is stuck")
				}
			}
			if n := con.Status().Reconnects; n != 0 {
				t.Errorf("%d reconnects", n)
			}
			cancel()
			for range 3 {
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
}

// TestChecksumNone: binlogs without checksums, and files that change from one to the other.
func TestChecksumNone(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind, "--binlog-checksum=NONE")
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
			con := newConnector(t, s, "latest", "shop.*")
			from := start(t, con)
			insert := func(i int) { s.Exec(fmt.Sprintf("INSERT INTO shop.t VALUES (%d)", i)) }
			insert(1)
			s.Exec("FLUSH BINARY LOGS")
			insert(2)
			s.Exec("SET GLOBAL binlog_checksum=CRC32")
			insert(3)
			s.Exec("FLUSH BINARY LOGS")
			s.Exec("SET GLOBAL binlog_checksum=NONE")
			insert(4)
			s.Exec("CREATE TABLE shop.done (id INT)")
			all := readUntil(t, con, from, marker("shop.done"))
			numbered(t, all, 1)
			if ids := strings.Join(rowsOf(all, "t"), " "); ids != "i1 i2 i3 i4" {
				t.Error(ids)
			}
			last := all[len(all)-1]
			end := start(t, newConnector(t, s, "latest")).Position
			// MariaDB notes some time after a new file that it needs the old ones no longer: header, length and name.
			checkpoint := uint64(19 + 4 + len(last.File))
			if end.File != last.File || end.Offset != last.Next && (kind == "mysql" || end.Offset != last.Next+checkpoint) {
				t.Errorf("the last event ends at %s:%d, the binlog at %s:%d", last.File, last.Next, end.File, end.Offset)
			}
			// From inside such a file, too.
			early := readUntil(t, con, start(t, newConnector(t, s, "earliest", "shop.*")), marker("shop.done"))
			if ids := strings.Join(rowsOf(early, "t"), " "); ids != "i1 i2 i3 i4" {
				t.Error(ids)
			}
		})
	}
}

// TestAddresses: the first server of the group that answers is read.
func TestAddresses(t *testing.T) {
	s := testenv.MySQL(t, "mariadb11")
	con := newConnectorWith(t, s, func(o *Options) { o.Addresses = []string{"127.0.0.1:1", s.Addr} })
	from := start(t, con)
	db := s.Database()
	readUntil(t, con, from, marker(db))
	if st := con.Status(); st.Address != s.Addr || st.ServerUUID == "" || st.Version == "" {
		t.Errorf("%+v", st)
	}
}

// TestPatternsThatMeetNothing: patterns that are about no table are told by check, and by a reader where they leave nothing to read. Not where the account sees none.
func TestPatternsThatMeetNothing(t *testing.T) {
	for _, kind := range testenv.Kinds {
		if kind == "mysql56" {
			continue // now and then it dies of SHOW SLAVE HOSTS, which the many checks here ask soon after its start
		}
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".orders (id INT PRIMARY KEY)")
			versioned := kind != "mariadb102" && s.MariaDB()
			if versioned {
				s.Exec("CREATE TABLE " + db + ".history (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
			}
			s.Exec("CREATE VIEW " + db + ".view_1 AS SELECT 1")
			blind := account(t, s, db, "REPLICATION SLAVE", "REPLICATION CLIENT")
			for _, c := range []struct {
				patterns []string
				blind    bool
				unmet    string // told by check
				nothing  bool   // told by a reader
			}{
				{[]string{db + ".*", "!" + db + ".tmp_*"}, false, "", false},
				{[]string{db + ".orders", db + ".order_*"}, false, db + ".order_*", false},
				{[]string{db + ".order_*", db + "0.*"}, false, db + ".order_* " + db + "0.*", true},
				{[]string{db + ".*", "!" + db + `\.order.*`}, false, "!" + db + `\.order.*`, false},
				{[]string{db + ".*", "!*.*"}, false, "", true},
				{[]string{db + ".view_*"}, false, db + ".view_*", true},
				{[]string{db + ".*"}, true, "", false},
				{[]string{db + ".history"}, false, map[bool]string{false: db + ".history"}[versioned], !versioned},
			} {
				var log bytes.Buffer
				con := newConnectorWith(t, s, func(o *Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					if c.blind {
						o.User, o.Password = blind, "x"
					}
				}, c.patterns...)
				var unmet []string
				for _, f := range con.Check(t.Context()) {
					if p, ok := strings.CutPrefix(f.What, "tables: "); ok && f.Severity == Warning && f.Remedy != "" {
						unmet = append(unmet, strings.TrimSuffix(p, " is about no table that is there"))
					}
				}
				if got := strings.Join(unmet, " "); got != c.unmet {
					t.Errorf("%q: check tells of %q, want %q", c.patterns, got, c.unmet)
				}
				look, sv, err := con.connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				look.close()
				con.tellSight(t.Context(), s.Addr, sv)
				if got := strings.Contains(log.String(), "no table that is there is captured"); got != c.nothing {
					t.Errorf("%q: the log tells of it: %v\n%s", c.patterns, got, &log)
				}
				// Of types that the log does not tell such an account knows nothing.
				if got := strings.Contains(log.String(), "GRANT SELECT ON `"+db+"`.* TO '"+blind+"'@'127.0.0.1'"); got != (c.blind && s.MariaDB() && s.RowMetadata()) {
					t.Errorf("%q: the log tells what is unseen: %v\n%s", c.patterns, got, &log)
				}
			}
		})
	}
}

// alternating listens for several servers, of which each connection reaches the next one, until the test ends.
func alternating(t *testing.T, servers ...string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for i := 0; ; i++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", servers[i%len(servers)])
			if err != nil {
				_ = in.Close()
				continue
			}
			end := func() { _, _ = in.Close(), out.Close() }
			context.AfterFunc(ctx, end)
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					end()
				})
			}
		}
	})
	return l.Addr().String()
}

// TestSightBesideStream: what the account sees is looked at beside the stream by a connection that ends with the reader.
func TestSightBesideStream(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	told := make(chan string, 1)
	con := newConnectorWith(t, s, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(writer(func(line string) {
			if strings.Contains(line, "no table that is there is captured") {
				told <- line
			}
		}), nil))
	}, db+".none", "!"+db+".x")
	s.Exec("CREATE TABLE " + db + ".orders (id INT PRIMARY KEY)")
	from := start(t, con)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	ended := make(chan error)
	go func() { ended <- con.Read(ctx, from, func(context.Context, []*event.Event) error { return nil }) }()
	select {
	case line := <-told:
		if !strings.Contains(line, db+".none") {
			t.Error(line)
		}
	case <-ctx.Done():
		t.Error("nothing is told")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// writer is a function that is handed each line of a log.
type writer func(line string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

// TestAnotherServer: a position by file and offset means nothing on another server, nor does a set of
// GTIDs that the server never had.
func TestAnotherServer(t *testing.T) {
	off := []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}
	a, b := testenv.NewMySQL(t, "mysql", off...), testenv.NewMySQL(t, "mysql", off...)
	from := start(t, newConnector(t, a, "latest"))
	if err := readError(t, newConnector(t, b, "latest"), from); !strings.Contains(err.Error(), "where it means nothing") {
		t.Error(err)
	}
	// I1: nor does the log of one tell of that of the other where one address stands for both, as a proxy's does.
	for i := 0; ; i++ {
		if start(t, newConnector(t, b, "latest")).Position.File == from.Position.File {
			break
		}
		if i == 100 {
			t.Fatal("the servers' files have other names")
		}
		s := a
		if event.FileNumber(start(t, newConnector(t, b, "latest")).Position.File) < event.FileNumber(from.Position.File) {
			s = b
		}
		s.Exec("FLUSH BINARY LOGS")
		from = start(t, newConnector(t, a, "latest"))
	}
	for _, s := range []*testenv.Server{a, b} {
		s.Exec("FLUSH BINARY LOGS")
	}
	a.Exec("CREATE DATABASE s")
	b.Exec("CREATE DATABASE " + strings.Repeat("s", 60)) // an event that begins at the same place and is longer
	from = start(t, newConnector(t, a, "latest"))
	inside := from.Position
	inside.ServerUUID = start(t, newConnector(t, b, "latest")).Position.ServerUUID
	if known, err := newConnector(t, b, "latest").CheckPosition(t.Context(), inside); !known || !errors.Is(err, event.ErrNoPosition) {
		t.Fatalf("inside an event of the other server: %v, %v", known, err)
	}
	both := newConnectorWith(t, a, func(o *Options) { o.Addresses = []string{alternating(t, a.Addr, b.Addr)} })
	if known, err := both.CheckPosition(t.Context(), from.Position); !known || err != nil {
		t.Errorf("behind one address: %v, %v", known, err)
	}
	from.Position.Offset += 1 << 20
	if err := readError(t, newConnector(t, a, "latest"), from); !strings.Contains(err.Error(), "beyond the end") {
		t.Error(err)
	}
	set, _ := event.ParseGTIDSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
	if err := readError(t, newConnector(t, a, "latest"), event.Cursor{Position: event.Position{GTIDs: set}}); !strings.Contains(err.Error(), "gtid_mode is OFF") {
		t.Error(err)
	}
	m := testenv.MySQL(t, "mariadb")
	m.Database() // a server that has logged nothing waits for whatever number
	if err := readError(t, newConnector(t, m, "latest"), event.Cursor{Position: event.Position{GTIDs: set}}); !strings.Contains(err.Error(), "other kind of server") {
		t.Error(err)
	}
	gone, _ := event.ParseGTIDSet("0-4711-99999999")
	if err := readError(t, newConnector(t, m, "latest"), event.Cursor{Position: event.Position{GTIDs: gone}}); !strings.Contains(err.Error(), "does not have the position") {
		t.Error(err)
	}
}

// TestLogBegunAnewWithoutGTIDs proves I3 where positions are file and offset: in a log that was begun anew the place where reading has ended is seldom one
// where a transaction ends, and may not be there at all. Wherever it lies, inside an event or between those of a transaction, that is found out before
// anything is read, as a lost position; so are a place behind the end, and files whose numbers have begun anew.
func TestLogBegunAnewWithoutGTIDs(t *testing.T) {
	for _, kind := range []string{"mysql", "mysql56"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
			reset := map[string]string{"mysql": "RESET BINARY LOGS AND GTIDS", "mysql56": "RESET MASTER"}[kind]
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
			s.Exec("CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE=MyISAM")
			for range 3 {
				s.Exec("FLUSH BINARY LOGS")
			}
			con := newConnector(t, s, "latest", "shop.*")
			far := start(t, con).Position
			s.Exec(reset)
			for _, q := range []string{"INSERT INTO shop.t VALUES (1,1)", "BEGIN", "INSERT INTO shop.t VALUES (2,2),(3,3)", "UPDATE shop.t SET v=v+1", "DELETE FROM shop.t WHERE id=2", "COMMIT",
				"INSERT INTO shop.m VALUES (1)", "ALTER TABLE shop.t ADD w INT", "INSERT INTO shop.t VALUES (4,4,4)"} {
				s.Exec(q)
			}
			end := start(t, con).Position
			if end.File == far.File {
				t.Fatalf("the log goes on in %s", far.File)
			}
			gone := func(what string, pos event.Position) {
				t.Helper()
				known, err := con.CheckPosition(t.Context(), pos)
				if !known || !errors.Is(err, event.ErrNoPosition) || !strings.Contains(err.Error(), "reset") || !strings.Contains(err.Error(), "binlogmq cursor set") {
					t.Errorf("%s, %s:%d: %v", what, pos.File, pos.Offset, err)
				}
			}
			gone("a file that comes later", far)
			at := func(offset uint64) event.Position {
				return event.Position{File: end.File, Offset: offset, ServerUUID: end.ServerUUID}
			}
			gone("behind the end", at(end.Offset+1))
			ends := map[string]int{}
			for _, e := range s.Query("SHOW BINLOG EVENTS IN '" + end.File + "'") { // file, place, type, server, end, text
				var offset uint64
				_, _ = fmt.Sscan(e[1], &offset)
				gone("inside "+e[2], at(offset+1))
				switch kind := e[2]; {
				case kind == "Format_desc", kind == "Previous_gtids", kind == "Anonymous_Gtid", kind == "Query" && e[5] != "COMMIT" && s.Kind == "mysql56":
					ends[kind]++
					if known, err := con.CheckPosition(t.Context(), at(offset)); !known || err != nil {
						t.Errorf("before %s %s at %d: %v", kind, e[5], offset, err)
					}
				case kind == "Query" && e[5] != "COMMIT": // behind the event that begins the transaction, as a statement is in a file without it
				default:
					ends["middle"]++
					gone("before "+kind+" "+e[5], at(offset))
				}
			}
			if len(ends) < 3 || ends["middle"] < 10 {
				t.Errorf("places that were tried: %v", ends)
			}
			if err := readError(t, con, event.Cursor{Position: at(end.Offset - 1)}); !errors.Is(err, event.ErrNoPosition) {
				t.Error(err)
			}
			if known, err := con.CheckPosition(t.Context(), end); !known || err != nil {
				t.Errorf("the end: %v", err)
			}
		})
	}
}
