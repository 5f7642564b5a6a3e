//go:build integration

package operations

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// user makes an account with these privileges.
func user(db *testenv.Server, grants ...string) string {
	name := "u" + fmt.Sprint(time.Now().UnixNano())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		db.Exec(fmt.Sprintf("CREATE USER '%s'@'%s' IDENTIFIED BY '%s'", name, host, secret))
		for _, g := range grants {
			db.Exec(fmt.Sprintf("GRANT %s ON *.* TO '%s'@'%s'", g, name, host))
		}
	}
	return name
}

func end(t *testing.T, db *testenv.Server) (file string, offset int) {
	t.Helper()
	q := "SHOW MASTER STATUS"
	if !db.MariaDB() {
		q = "SHOW BINARY LOG STATUS"
	}
	r := db.Query(q)[0]
	n, err := strconv.Atoi(r[1])
	if err != nil {
		t.Fatal(err)
	}
	return r[0], n
}

// settled waits until all that the source has logged by now is done, and all is well.
func settled(t *testing.T, db *testenv.Server, p *process.Child) {
	t.Helper()
	file, offset := end(t, db)
	p.AwaitAcknowledged(file, int64(offset), patience)
	green(t, p)
}

// TestSourceRefused proves that a source that cannot be read ends the program
// with one message that says how to mend it.
func TestSourceRefused(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql")
	t.Run("wrong password", func(t *testing.T) {
		s := newSetup(t, db)
		s.password = secret
		s.refused(t, db.Addr, "refuses the login of user repl", "check user, password and host")
	})
	t.Run("no privileges", func(t *testing.T) {
		s := newSetup(t, db)
		s.user, s.password = user(db), secret
		s.refused(t, db.Addr, "lacks a privilege", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '"+s.user+"'@'127.0.0.1'; GRANT SELECT ON *.* TO '"+s.user+"'@'127.0.0.1'")
	})
	t.Run("no REPLICATION SLAVE", func(t *testing.T) {
		s := newSetup(t, db)
		s.user, s.password = user(db, "REPLICATION CLIENT", "SELECT"), secret
		s.refused(t, db.Addr, "may not read the binlog", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '"+s.user+"'@'127.0.0.1'; GRANT SELECT ON *.* TO '"+s.user+"'@'127.0.0.1'")
	})
	t.Run("binlog_format", func(t *testing.T) {
		db.Exec("SET GLOBAL binlog_format=STATEMENT")
		defer db.Exec("SET GLOBAL binlog_format=ROW")
		newSetup(t, db).refused(t, "binlog_format is STATEMENT", "SET PERSIST binlog_format=ROW")
	})
	t.Run("start at no file", func(t *testing.T) {
		s := newSetup(t, db)
		s.start = "nonsense.000999:4"
		s.refused(t, "no place nonsense.000999:4", "SHOW BINARY LOGS")
	})
	t.Run("start inside a transaction", func(t *testing.T) {
		s := newSetup(t, db)
		table := s.table(t, db)
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		file, offset := end(t, db)
		s.start = fmt.Sprintf("%s:%d", file, offset-40)
		s.refused(t, s.start, "inside a transaction", strconv.Itoa(offset))
	})
	t.Run("start at unknown GTIDs", func(t *testing.T) {
		s := newSetup(t, db)
		s.start = "gtid:11111111-2222-3333-4444-555555555555:1-7"
		s.refused(t, "11111111-2222-3333-4444-555555555555:1-7", "@@gtid_executed")
	})
	t.Run("start at GTIDs of the other kind", func(t *testing.T) {
		s := newSetup(t, db)
		s.start = "gtid:0-1-7"
		s.refused(t, "0-1-7", "other kind of server", "@@gtid_executed")
	})
}

// TestNoBinlog: the server logs nothing.
func TestNoBinlog(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql", "--skip-log-bin")
	newSetup(t, db).refused(t, "binary log is off", "set log_bin")
}

// stopsAt runs the program over statements after which it cannot go on. What lies before them is
// published, the cursor stays before the fault, and mend lets the next start go on.
func stopsAt(t *testing.T, db *testenv.Server, change func(s *setup), statements func(table string) []string, wants []string, mend func(s *setup, table string)) {
	s := newSetup(t, db)
	table := s.table(t, db)
	if change != nil {
		change(s)
	}
	p := process.Start(t, s.text())
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 'before')")
	p.Await("the row before", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Rows > 0 })
	c := db.Connect("")
	for _, q := range statements(table) {
		if _, err := c.Execute(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	code := p.Wait(patience)
	s.refusal(t, code, p.Log(), wants...)
	if n := len(s.rows(t, "t")); n != 1 {
		t.Errorf("%d rows are published, not the 1 before the fault", n)
	}
	// I3: it stops there again, and passes nothing over.
	if r := s.refused(t, wants...); r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	mend(s, table)
	p = process.Start(t, s.text())
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (100, 'after')")
	settled(t, db, p)
	p.Stop()
	got := s.rows(t, "t")
	if last := string(got[len(got)-1].Value); !strings.Contains(last, "after") {
		t.Errorf("last row: %s", last)
	}
	risingSequences(t, got)
}

func risingSequences(t *testing.T, rows []row) {
	t.Helper()
	last := int64(-1)
	for _, r := range rows {
		n, err := strconv.ParseInt(r.Headers["seq"], 10, 64)
		if err != nil || n <= last {
			t.Errorf("sequence %s after %d", r.Headers["seq"], last)
		}
		last = n
	}
}

// TestLogThatCannotBeRead proves I3 at what a log may hold.
func TestLogThatCannotBeRead(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql")
	t.Run("statement format", func(t *testing.T) {
		stopsAt(t, db, nil, func(table string) []string {
			return []string{"SET SESSION binlog_format=STATEMENT", "INSERT INTO " + table + " VALUES (2, 'statement')"}
		}, []string{"statement-format DML", "binlogmq cursor set"}, func(s *setup, _ string) { moveTo(t, s, "latest") })
	})
	t.Run("row metadata", func(t *testing.T) {
		defer db.Exec("SET GLOBAL binlog_row_metadata=FULL")
		stopsAt(t, db, func(s *setup) { s.more = "schema: log" }, func(table string) []string {
			return []string{"SET GLOBAL binlog_row_metadata=MINIMAL", "INSERT INTO " + table + " VALUES (2, 'minimal')"}
		}, []string{"no column names", "SET PERSIST binlog_row_metadata=FULL"}, func(s *setup, _ string) {
			s.more = ""
		})
	})
	t.Run("no privilege on information_schema", func(t *testing.T) {
		defer db.Exec("SET GLOBAL binlog_row_metadata=FULL")
		var name string
		stopsAt(t, db, func(s *setup) {
			name = user(db, "REPLICATION SLAVE", "REPLICATION CLIENT")
			s.user, s.password = name, secret
		}, func(table string) []string {
			return []string{"SET GLOBAL binlog_row_metadata=MINIMAL", "INSERT INTO " + table + " VALUES (2, 'minimal')"}
		}, []string{"no definition of the table is known", "grant SELECT"}, func(*setup, string) {
			for _, host := range []string{"localhost", "127.0.0.1"} {
				db.Exec(fmt.Sprintf("GRANT SELECT ON *.* TO '%s'@'%s'", name, host))
			}
		})
	})
}

// TestPositionGone proves that a position that the source no longer has, or never had, is not passed over.
func TestPositionGone(t *testing.T) {
	t.Parallel() // waits most of the time
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			positionGone(t, testenv.NewMySQL(t, kind))
		})
	}
}

func positionGone(t *testing.T, db *testenv.Server) {
	saved := func(t *testing.T) (*setup, string) {
		s := newSetup(t, db)
		table := s.table(t, db)
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'before')")
		p.Await("the row", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Rows > 0 })
		p.Stop()
		return s, table
	}
	goesOn := func(t *testing.T, s *setup, table string) {
		moveTo(t, s, "latest")
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (100, 'after')")
		p.Await("the row", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Rows > 0 })
		p.Stop()
		risingSequences(t, s.rows(t, "t"))
		if n := len(s.rows(t, "t")); n != 2 {
			t.Errorf("%d rows", n)
		}
	}
	t.Run("purged", func(t *testing.T) {
		s, table := saved(t)
		db.Exec("INSERT INTO " + table + " VALUES (2, 'lost')")
		db.Exec("FLUSH BINARY LOGS")
		file, _ := end(t, db)
		purge(t, db, file)
		r := command(t, patience, "", "check", "-c", s.file(t))
		if r.code != 1 {
			t.Errorf("check ends with %d", r.code)
		}
		holds(t, "check", r.out, "ERROR", "purged", "binlog_expire_logs_seconds", "binlogmq cursor set")
		s.refused(t, "purged", "binlog_expire_logs_seconds", "binlogmq cursor set")
		goesOn(t, s, table)
	})
	// What on_lost_position says is done: what the source still has is published once, or nothing but what is new.
	policy := func(t *testing.T, s *setup, table string, want ...string) {
		t.Helper()
		p := process.Start(t, s.text())
		p.Await("going on", patience, func(r *admin.Report) bool {
			return strings.Contains(p.Log(), "the position is lost") && r.Destinations[0].Connected
		})
		db.Exec("INSERT INTO " + table + " VALUES (100, 'after')")
		file, offset := end(t, db)
		p.AwaitAcknowledged(file, int64(offset), patience)
		p.Stop()
		neat(t, p.Log())
		rows := s.rows(t, "t")
		risingSequences(t, rows)
		var got []string
		for _, r := range rows {
			got = append(got, string(r.Value))
		}
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %v:\n%s", len(got), want, strings.Join(got, "\n"))
		}
		for i, w := range want {
			holds(t, "a row", got[i], w)
		}
	}
	for _, to := range []string{"earliest", "latest"} {
		t.Run("purged, "+to, func(t *testing.T) {
			s, table := saved(t)
			s.more = "on_lost_position: " + to
			db.Exec("INSERT INTO " + table + " VALUES (2, 'lost')")
			db.Exec("FLUSH BINARY LOGS")
			file, _ := end(t, db)
			db.Exec("INSERT INTO " + table + " VALUES (3, 'kept')")
			purge(t, db, file)
			if to == "earliest" {
				policy(t, s, table, "before", "kept", "after")
			} else {
				policy(t, s, table, "before", "after")
			}
		})
	}
	t.Run("rotated while down", func(t *testing.T) {
		s, table := saved(t)
		for i := range 3 {
			db.Exec("FLUSH BINARY LOGS")
			db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'rotated')", table, 2+i))
		}
		p := process.Start(t, s.text())
		file, offset := end(t, db)
		p.AwaitAcknowledged(file, int64(offset), patience)
		p.Stop()
		risingSequences(t, s.rows(t, "t"))
		if n := len(s.rows(t, "t")); n != 4 {
			t.Errorf("%d rows", n)
		}
	})
	// Only tables are written to that are not captured: cursors follow the log all the same, and what is purged behind them is not missed.
	t.Run("traffic elsewhere", func(t *testing.T) {
		s, table := saved(t)
		elsewhere := db.Database()
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("CREATE TABLE " + elsewhere + ".t (id INT PRIMARY KEY AUTO_INCREMENT, v CHAR(200))")
		for range 3 {
			db.Exec("INSERT INTO " + elsewhere + ".t (v) VALUES ('a'),('b'),('c')")
			db.Exec("FLUSH BINARY LOGS")
		}
		db.Exec("ALTER TABLE " + elsewhere + ".t ADD w INT")
		var file string
		for {
			var offset int
			file, offset = end(t, db)
			p.AwaitAcknowledged(file, int64(offset), patience)
			p.Await("a saved cursor", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].CursorAge == 0 })
			r := command(t, patience, "", "cursor", "show", "-c", s.file(t))
			if strings.Contains(r.out, file+":"+strconv.Itoa(offset)) {
				break
			}
			// MariaDB logs the checkpoint that follows a new file when it has the time for it.
			if f, o := end(t, db); f == file && o == offset {
				t.Fatalf("the cursor is not at %s:%d:\n%s", file, offset, r.out)
			}
		}
		p.Kill()
		db.Exec("FLUSH BINARY LOGS")
		file, _ = end(t, db)
		purge(t, db, file)
		p = process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (2, 'quiet')")
		settled(t, db, p)
		p.Stop()
		if n := len(s.rows(t, "t")); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
	// Numbers and file names are there again, and belong to other transactions.
	anew := func(t *testing.T) (*setup, string) {
		begin := "RESET BINARY LOGS AND GTIDS"
		if db.MariaDB() {
			begin = "RESET MASTER"
		}
		db.Exec(begin)
		s, table := saved(t)
		db.Exec(begin)
		for i := range 30 {
			db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'another history')", table, 200+i))
		}
		return s, table
	}
	t.Run("reset, same numbers", func(t *testing.T) {
		s, table := anew(t)
		s.refused(t, "another one than the one that was read", "binlogmq cursor set")
		goesOn(t, s, table)
	})
	t.Run("reset, earliest", func(t *testing.T) {
		s, table := anew(t)
		s.more = "on_lost_position: earliest"
		want := []string{"before"}
		for range 30 {
			want = append(want, "another history")
		}
		policy(t, s, table, append(want, "after")...)
	})
	t.Run("reset", func(t *testing.T) {
		s, table := saved(t)
		if db.MariaDB() {
			db.Exec("RESET MASTER")
			db.Exec("INSERT INTO " + table + " VALUES (2, 'another history')")
			s.refused(t, "binlogmq cursor set")
		} else {
			db.Exec("RESET BINARY LOGS AND GTIDS")
			r := command(t, patience, "", "run", "-c", s.file(t))
			if n := len(loud(r.errs)); r.code != 1 || n > 10 { // a replica just promoted would be given some seconds
				t.Errorf("exit code %d, %d loud lines", r.code, n)
			}
			neat(t, r.errs)
			holds(t, "the log", r.errs, "lacks transactions that have been published", "binlogmq cursor set")
		}
		goesOn(t, s, table)
	})
}

// purge purges all files before this one. MariaDB keeps a file while it has not noticed that a replica has left it.
func purge(t *testing.T, db *testenv.Server, file string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		db.Exec("PURGE BINARY LOGS TO '" + file + "'")
		if db.Query("SHOW BINARY LOGS")[0][0] == file {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not purge its binlog")
		}
	}
}

// moveTo moves the cursor, as the messages advise.
func moveTo(t *testing.T, s *setup, at string) {
	t.Helper()
	r := command(t, patience, "", "cursor", "set", "-c", s.file(t), "--at", at, "--yes")
	if r.code != 0 {
		t.Fatalf("cursor set: %d %s%s", r.code, r.out, r.errs)
	}
}

// TestSourceAway proves that a source that does not answer is retried, that health shows it, and that the log stays
// short meanwhile.
func TestSourceAway(t *testing.T) {
	t.Parallel()
	t.Run("unknown host", func(t *testing.T) {
		s := newSetup(t, nil)
		s.address, s.user, s.password = "no-such-host.invalid:3306", "repl", secret
		p := process.Start(t, s.text())
		red(t, p, patience, "no-such-host.invalid", "check address, port")
		p.Stop()
		neat(t, p.Log())
	})
	t.Run("down and up", func(t *testing.T) {
		db := testenv.NewMySQL(t, "mysql")
		s := newSetup(t, db)
		table := s.table(t, db)
		db.Stop()
		p := process.Start(t, s.text())
		red(t, p, patience, db.Addr, "connection refused", "whether the server runs")
		quiet(t, p, 3*time.Second, 8)
		db.Restart()
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		green(t, p)
		// Once more in the middle.
		db.Stop()
		red(t, p, patience, db.Addr)
		away := since(t, p, false)
		quiet(t, p, 3*time.Second, 8)
		if again := since(t, p, false); !again.Equal(away) {
			t.Errorf("away since %v, then since %v", away, again)
		}
		db.Restart()
		p.AwaitReady()
		if back := since(t, p, true); back.Before(away) {
			t.Errorf("away since %v, back since %v", away, back)
		}
		db.Exec("INSERT INTO " + table + " VALUES (2, 'b')")
		p.Await("the rows", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages == 2 })
		green(t, p)
		p.Stop()
		neat(t, p.Log())
		if n := len(s.rows(t, "t")); n != 2 {
			t.Errorf("%d rows", n)
		}
		// It stands still, and closes nothing: noticed in the clear and encrypted. Before, there was nothing to read for a while.
		for i, config := range []string{s.text(), strings.Replace(s.text(), "password:", "tls: { insecure_skip_verify: true }, password:", 1)} {
			p := process.Start(t, config)
			green(t, p)
			db.Pause()
			red(t, p, patience, db.Addr)
			since(t, p, false)
			p.Await("the log to say so", patience, func(*admin.Report) bool {
				return strings.Contains(p.Log(), db.Addr+" has sent nothing for 3s, not even a heartbeat")
			})
			db.Resume()
			p.AwaitReady()
			db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'c')", table, 3+i))
			settled(t, db, p)
			p.Stop()
			neat(t, p.Log())
			if n := len(s.rows(t, "t")); n != 3+i {
				t.Errorf("%d rows", n)
			}
		}
	})
}

// since returns the time since which the source is connected, or not.
func since(t *testing.T, p *process.Child, connected bool) (at time.Time) {
	t.Helper()
	p.Await("the source's connection", patience, func(r *admin.Report) bool {
		d := &r.Destinations[0]
		var err error
		if at, err = time.Parse(time.RFC3339, d.Since); err != nil {
			t.Fatal(err)
		}
		return d.Connected == connected
	})
	return at
}

// quiet counts what an outage logs. Its beginning may not be over yet.
func quiet(t *testing.T, p *process.Child, d time.Duration, most int) {
	t.Helper()
	for attempts := 5; ; attempts-- {
		before := len(loud(p.Log()))
		time.Sleep(d)
		n := len(loud(p.Log())) - before
		if n <= most {
			return
		}
		if attempts == 1 {
			t.Fatalf("%d loud lines in %v:\n%s", n, d, p.Log())
		}
	}
}
