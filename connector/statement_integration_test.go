//go:build integration

package connector

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestStatementFormat proves I3 for sessions that log statements: those of tables that are not captured do not stop
// the stream, on each server kind; where they reach captured tables they do.
func TestStatementFormat(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind, "--local-infile=1")
			for _, q := range []string{
				"CREATE DATABASE shop", "CREATE DATABASE other", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE shop.tmp (id INT PRIMARY KEY, v INT)",
				"CREATE TABLE other.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other.m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "CREATE TABLE other.fires (id INT)",
				"CREATE TRIGGER other.f AFTER INSERT ON other.fires FOR EACH ROW INSERT INTO shop.t VALUES (NEW.id, 0)",
			} {
				s.Exec(q)
			}
			con := newConnector(t, s, "latest", "shop.*", "!shop.tmp*")
			from := start(t, con)
			for _, q := range []string{
				"SET SESSION binlog_format=STATEMENT", "SET SESSION sql_mode='NO_BACKSLASH_ESCAPES'",
				"INSERT INTO other.t VALUES (1,1),(2,2)", "BEGIN", "UPDATE other.t SET v=v+1", "DELETE FROM other.t WHERE id=2", "COMMIT",
				"INSERT INTO other.m VALUES (1,1)", "USE shop", "REPLACE INTO `tmp` SELECT * FROM t", "CREATE TABLE tmp2 SELECT * FROM other.t",
				"CREATE TABLE done0 (id INT COMMENT 'x\\') COMMENT='SELECT'",
				"SET SESSION binlog_format=ROW", "INSERT INTO t VALUES (1,1)", "CREATE TABLE done (id INT)",
			} {
				s.Exec(q)
			}
			all := readUntil(t, con, from, marker("TABLE done "))
			numbered(t, all, 1)
			if ids := strings.Join(rowsOf(all, "t"), " "); ids != "i1" {
				t.Errorf("rows %s", ids)
			}
			for _, e := range all {
				if e.Kind == event.DDL && strings.Contains(string(e.Raw), "INTO") {
					t.Errorf("a statement of a table that is not captured is handed on: %s", e.Raw)
				}
			}
			for _, q := range []string{"INSERT INTO t VALUES (2,2)", "UPDATE other.t o, t SET o.v=t.v"} {
				from = start(t, con)
				s.Exec("SET SESSION binlog_format=STATEMENT")
				s.Exec(q)
				s.Exec("SET SESSION binlog_format=ROW")
				if err := readError(t, con, from); !strings.Contains(err.Error(), "statement-format DML") {
					t.Error(err)
				}
			}
			// A temporary table that hides a captured one from its session is not that one.
			from = start(t, con)
			for _, format := range []string{"STATEMENT", "MIXED", "ROW"} {
				for _, q := range []string{
					"SET SESSION binlog_format=" + format, "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t ADD c INT, ADD INDEX (c)", "CREATE INDEX i ON t (id, c)", "TRUNCATE t", "TRUNCATE done",
					"DROP TABLE t", "TRUNCATE t", "SET SESSION binlog_format=ROW",
				} {
					s.Exec(q)
				}
			}
			s.Exec("CREATE TABLE hidden (id INT)")
			var about []string
			for _, e := range readUntil(t, con, from, marker("TABLE hidden")) {
				if first := e.Stmt.First(); e.Kind == event.DDL && first.Object == event.ObjectTable {
					about = append(about, string(first.Action)+" "+first.Name)
				}
			}
			if got := strings.Join(about, ", "); got != strings.Repeat("truncate done, truncate t, ", 3)+"create hidden" {
				t.Errorf("statements about tables: %s", got)
			}
			// Who chooses so has them counted, and what follows.
			s.Exec("CREATE TABLE copied (a INT NOT NULL, b INT NOT NULL)")
			s.Exec("SET GLOBAL binlog_row_metadata=" + map[bool]string{true: "NO_LOG", false: "MINIMAL"}[s.MariaDB()])
			passing := newConnectorWith(t, s, func(o *Options) { o.Start, o.PassDML = "latest", true }, "shop.*", "!shop.tmp*")
			from = start(t, passing)
			s.Exec("CREATE TABLE follows (id INT)")
			readUntil(t, passing, from, marker("TABLE follows")) // definitions are known from here on
			for _, q := range []string{
				"SET SESSION binlog_format=STATEMENT", "INSERT INTO t VALUES (4,4)", "BEGIN", "UPDATE t SET v=5 WHERE id=4", "INSERT INTO other.t VALUES (7,7)", "DELETE FROM t WHERE id=4", "COMMIT",
				"CREATE OR REPLACE TABLE copied SELECT 2 AS b, 1 AS a",
				"SET SESSION binlog_format=ROW", "INSERT INTO t VALUES (6,6)", "INSERT INTO copied (a,b) VALUES (1,2)", "CREATE TABLE passed (id INT)",
			} {
				if create, ok := strings.CutPrefix(q, "CREATE OR REPLACE "); ok && !s.MariaDB() {
					s.Exec("DROP TABLE copied")
					q = "CREATE " + create
				}
				s.Exec(q)
			}
			for range 2 { // the numbers are the same again
				all = readUntil(t, passing, from, marker("TABLE passed"))
				numbered(t, all, from.Ordinal+1)
				if ids := strings.Join(rowsOf(all, "t"), " "); ids != "i6" {
					t.Errorf("rows %s", ids)
				}
				columns := ""
				for _, e := range all {
					if e.Kind == event.Rows && e.Table.Name == "copied" {
						columns += e.Table.Columns[0].Name + e.Table.Columns[1].Name
					}
				}
				if columns != "ba" { // I6: not those of the table that it was before
					t.Errorf("the columns of a table made by a statement that was passed over: %q", columns)
				}
			}
			s.Exec("SET GLOBAL binlog_row_metadata=FULL")
			if n := passing.Status().PassedDML; n != 2*4 {
				t.Errorf("%d statements counted", n)
			}
			if !s.MariaDB() { // which does not list the databases that a statement writes to
				from = start(t, con)
				s.Exec("SET SESSION binlog_format=STATEMENT")
				s.Exec("INSERT INTO other.fires VALUES (9)")
				s.Exec("SET SESSION binlog_format=ROW")
				if err := readError(t, con, from); !strings.Contains(err.Error(), "statement-format DML") {
					t.Error(err)
				}
			}
		})
	}
}
