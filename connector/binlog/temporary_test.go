package binlog

import (
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// follower notes the statements that it is told of.
type follower struct {
	Tables
	told int
}

func (f *follower) Changed(*Statement) error { f.told++; return nil }

// TestTemporaryI6: what is done to a temporary table is neither told as done to the table of its name, nor noted in its history.
func TestTemporaryI6(t *testing.T) {
	for sql, temporary := range map[string]bool{
		"TRUNCATE t": true, "ALTER TABLE t ADD c INT": true, "ALTER TABLE t ADD c INT, RENAME TO u": true, "CREATE INDEX i ON t (c)": true, "DROP INDEX i ON t": true, "RENAME TABLE t TO u": true,
		"RENAME TABLE t TO u, v TO w": false, "CREATE TABLE u LIKE t": false, "CREATE TABLE u (a INT)": false, "DROP TABLE u": false, "ALTER VIEW v AS SELECT 1": false, "nobody has ever called it": false,
	} {
		for _, flags := range []uint16{0, FlagThread} {
			f := new(follower)
			var e *event.Event
			m := NewMachine(Options{Tables: f, Server: ddl.Server{Version: 90700}, Match: func(string, string) bool { return true }, Emit: func(x *event.Event) error { e = x; return nil }})
			m.txn, m.begun, m.shown = &event.Txn{}, true, true
			q := &Query{Statement: []byte(sql), Schema: []byte("d")}
			if err := m.ddl(&Raw{Header: Header{Flags: flags}}, q, stmtDDL, 4, 5); err != nil {
				t.Fatal(err)
			}
			want := temporary && flags != 0
			if marked := e.Stmt.First().Object == event.ObjectTemporary; marked != want || (f.told == 0) != want || string(e.Raw) != sql {
				t.Errorf("%s, flags %d: %+v, told %d times", sql, flags, e.Stmt, f.told)
			}
		}
	}
}

// TestPassedCreationsI6: whoever follows definitions is told of a table that a statement makes whose rows are passed over.
func TestPassedCreationsI6(t *testing.T) {
	for sql, want := range map[string]int{
		"CREATE OR REPLACE TABLE n SELECT b, a FROM m": 1, "CREATE TABLE n (a INT) AS (VALUES (1))": 1, "SET STATEMENT max_statement_time=5 FOR CREATE TABLE n TABLE m": 1,
		"INSERT INTO n SELECT 1": 0, "SET STATEMENT max_statement_time=5 FOR DELETE FROM n": 0, "SET PASSWORD = 'x'": 0,
	} {
		for _, captured := range []bool{true, false} {
			for _, skipped := range []bool{true, false} {
				f := new(follower)
				m := NewMachine(Options{
					Tables: f, Server: ddl.Server{MariaDB: true, Version: 110800}, Match: func(string, string) bool { return captured }, Passed: func(*Passed) {},
					Emit: func(*event.Event) error { return nil },
				})
				m.txn, m.begun, m.state = &event.Txn{}, true, inside
				if skipped {
					m.skip = 1
				}
				body := append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 'd', 0}, sql...)
				step := m.query
				if skipped {
					step = m.querySkipped
				}
				if err := step(&Raw{Header: Header{Type: TypeQuery, Flags: FlagThread}, Data: append(make([]byte, 19), body...)}, 4, 5); err != nil {
					t.Fatal(err)
				}
				if f.told != want {
					t.Errorf("%s, captured %t, skipped %t: told %d times, want %d", sql, captured, skipped, f.told, want)
				}
			}
		}
	}
}
