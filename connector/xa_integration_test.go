//go:build integration

package connector

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// prepareXA prepares a transaction in a session of its own, which then ends.
func prepareXA(t *testing.T, s *testenv.Server, xid string, statements ...string) {
	t.Helper()
	c := s.Connect("")
	for _, q := range slices.Concat([]string{"XA START " + xid}, statements, []string{"XA END " + xid, "XA PREPARE " + xid}) {
		if _, err := c.Execute(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// endXA commits or rolls back, as soon as the server lets another session do so.
func endXA(t *testing.T, s *testenv.Server, q string) {
	t.Helper()
	c := s.Connect("")
	wait(t, func() bool {
		_, err := c.Execute(q)
		if err != nil {
			t.Log(q, err)
			time.Sleep(50 * time.Millisecond)
		}
		return err == nil
	})
}

// TestPreparedXA proves I3, I5 and I7 for XA in two phases: rows come with their commit, also when they were prepared before
// the destination began or before a restart, in another file, or are too large to be kept; rolled back ones never come.
func TestPreparedXA(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		options    []string
	}{{"mysql", "mysql", nil}, {"mysql without GTIDs", "mysql", []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}, {"mariadb", "mariadb", nil}, {"mariadb11", "mariadb11", nil}} {
		t.Run(c.name, func(t *testing.T) {
			s := testenv.NewMySQL(t, c.kind, c.options...)
			s.Exec("CREATE DATABASE shop")
			s.Exec("CREATE DATABASE other")
			s.Exec("CREATE TABLE shop.a (id INT PRIMARY KEY, b LONGTEXT)")
			s.Exec("CREATE TABLE other.x (id INT PRIMARY KEY)")
			prepareXA(t, s, "'before'", "INSERT INTO shop.a VALUES (1,'prepared before the start')", "UPDATE shop.a SET b='twice' WHERE id=1")
			prepareXA(t, s, "'gone'", "INSERT INTO shop.a VALUES (2,'rolled back')")
			s.Exec("FLUSH BINARY LOGS")
			prepareXA(t, s, "'elsewhere'", "INSERT INTO other.x VALUES (1)")
			s.Exec("FLUSH BINARY LOGS")
			con := newConnectorWith(t, s, func(o *Options) { o.Start, o.HeldXA = "latest", 1<<20 }, "shop.*")
			from := start(t, con)
			s.Exec("INSERT INTO shop.a VALUES (10,'plain')")
			prepareXA(t, s, "'it''s',X'00ff',7", "INSERT INTO shop.a VALUES (11,'odd id')", "INSERT INTO other.x VALUES (11)", "DELETE FROM shop.a WHERE id=11")
			prepareXA(t, s, "'large'", "INSERT INTO shop.a VALUES (12,REPEAT('x',600000)),(13,REPEAT('y',600000))", "INSERT INTO shop.a VALUES (14,REPEAT('z',600000))")
			if !s.MariaDB() {
				s.Exec("SET GLOBAL binlog_transaction_compression=ON")
			}
			prepareXA(t, s, "'packed'", "INSERT INTO shop.a VALUES (18,REPEAT('p',700000)),(19,REPEAT('q',700000)),(21,REPEAT('r',700000))")
			if !s.MariaDB() {
				s.Exec("SET GLOBAL binlog_transaction_compression=OFF")
			}
			endXA(t, s, "XA COMMIT 'elsewhere'")
			endXA(t, s, "XA ROLLBACK 'gone'")
			s.Exec("INSERT INTO shop.a VALUES (15,'between')")
			endXA(t, s, "XA COMMIT 'before'")
			// An id that is used again.
			prepareXA(t, s, "'before'", "INSERT INTO shop.a VALUES (16,'rolled back')")
			endXA(t, s, "XA ROLLBACK 'before'")
			prepareXA(t, s, "'before'", "INSERT INTO shop.a VALUES (17,'the same id')")
			s.Exec("FLUSH BINARY LOGS")
			endXA(t, s, "XA COMMIT 'large'")
			endXA(t, s, "XA COMMIT 'before'")
			endXA(t, s, "XA COMMIT 'packed'")
			endXA(t, s, "XA COMMIT 'it''s',X'00ff',7")
			s.Exec("CREATE TABLE shop.done (id INT)")

			all := readUntil(t, con, from, marker("shop.done"))
			numbered(t, all, 1)
			ids := strings.Join(rowsOf(all, "a"), " ")
			if want := "i10 i15 i1 u1 i12 i13 i14 i17 i18 i19 i21 i11 d11"; ids != want {
				t.Errorf("rows %s\nwant %s", ids, want)
			}
			want := transcript(t, all)
			pos := from
			pos.Position.GTIDs = from.Position.GTIDs.Clone()
			for i, e := range all {
				if e.Kind != event.End || i == len(all)-1 {
					continue
				}
				pos.Ordinal = e.Ordinal
				pos.Position.File, pos.Position.Offset = e.File, e.Next
				pos.Position.GTIDs.Add(e.Txn.GTID)
				got := transcript(t, readUntil(t, con, pos, marker("shop.done")))
				if !slices.Equal(got, want[i+1:]) {
					t.Fatalf("from %s:%d:\n got %s\nwant %s", e.File, e.Next, strings.Join(got, "\n     "), strings.Join(want[i+1:], "\n     "))
				}
			}

			// What the log does not hold any more is not passed over.
			prepareXA(t, s, "'purged'", "INSERT INTO shop.a VALUES (20,'lost')")
			con = newConnector(t, s, "latest", "shop.*")
			from = start(t, con)
			s.Exec("FLUSH BINARY LOGS")
			endXA(t, s, "XA COMMIT 'purged'")
			from = start(t, newConnector(t, s, fileBefore(s), "shop.*"))
			if s.Kind == "mariadb11" {
				s.Exec("SET GLOBAL slave_connections_needed_for_purge=0")
			}
			wait(t, func() bool {
				s.Exec("PURGE BINARY LOGS TO '" + from.Position.File + "'")
				return s.Query("SHOW BINARY LOGS")[0][0] == from.Position.File
			})
			if err := readError(t, con, from); !strings.Contains(err.Error(), "XA transaction X'707572676564',X'',1 commits, but") {
				t.Error(err)
			}
		})
	}
}

// fileBefore is the head of the newest binlog file, as a start.
func fileBefore(s *testenv.Server) string {
	logs := s.Query("SHOW BINARY LOGS")
	return logs[len(logs)-1][0] + ":4"
}

// TestIdleRotation proves I3 without GTIDs: a source that only begins new files, and purges the old ones, loses nothing.
func TestIdleRotation(t *testing.T) {
	s := testenv.NewMySQL(t, "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
	s.Exec("CREATE DATABASE shop")
	s.Exec("CREATE TABLE shop.a (id INT PRIMARY KEY)")
	con := newConnector(t, s, "latest", "shop.*")
	cur := start(t, con)
	s.Exec("INSERT INTO shop.a VALUES (1)")
	var all []*event.Event
	for i := range 3 {
		want := s.Query("SHOW BINARY LOG STATUS")[0][0]
		if i > 0 { // a restart of the server and FLUSH, without a transaction
			if i == 1 {
				s.Restart()
			}
			s.Exec("FLUSH BINARY LOGS")
			want = s.Query("SHOW BINARY LOG STATUS")[0][0]
		}
		part := readUntil(t, con, cur, func(e *event.Event) bool { return e.Kind == event.End && e.File == want && (i > 0 || e.Index == 1) })
		all = append(all, part...)
		e := part[len(part)-1]
		cur.Ordinal = e.Ordinal
		cur.Position.File, cur.Position.Offset = e.File, e.Next
		wait(t, func() bool {
			s.Exec("PURGE BINARY LOGS TO '" + want + "'")
			return s.Query("SHOW BINARY LOGS")[0][0] == want
		})
	}
	s.Exec("INSERT INTO shop.a VALUES (2)")
	s.Exec("CREATE TABLE shop.done (id INT)")
	all = append(all, readUntil(t, con, cur, marker("shop.done"))...)
	numbered(t, all, 1)
	if ids := strings.Join(rowsOf(all, "a"), " "); ids != "i1 i2" {
		t.Errorf("rows %s", ids)
	}
}
