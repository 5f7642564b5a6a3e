package binlog

import (
	"fmt"
	"testing"
)

func TestWritten(t *testing.T) {
	for text, want := range map[string]string{
		"INSERT INTO t VALUES (1)":                                         "[{ t}]",
		"insert low_priority ignore a.`b c` (x) SELECT y FROM z":           "[{a b c}]",
		"REPLACE DELAYED `a``b`.t SET x=1":                                 "[{a`b t}]",
		"/* c */ INSERT/*!40000 INTO */ Shop . T VALUES ('FROM')":          "[{Shop T}]",
		"UPDATE a.t SET x=(SELECT 1 FROM b)":                               "[{a t}]",
		"UPDATE IGNORE a AS x, b.c y JOIN d ON x.i=y.i SET x.v=1":          "[{ a} {b c} { d}]",
		"UPDATE (a JOIN b USING (i)) SET v=1":                              "[{ a} { b} { i}]",
		"UPDATE (a JOIN b ON a.i=b.i) SET v=1":                             "[{ a} { b}]",
		"UPDATE a JOIN b ON a.set=b.select JOIN c SET c.v=1":               "[{ a} { b} { c}]",
		"DELETE a FROM a JOIN b ON a.limit=b.i JOIN c WHERE 1":             "[{ a} { a} { b} { c}]",
		"UPDATE a JOIN b ON a.i=1.JOIN c SET c.v=1":                        "[{ a} { b} { c}]",
		"UPDATE a JOIN (SELECT 1) d SET v=1":                               "false",
		"DELETE FROM a.t WHERE x IN (SELECT y FROM z)":                     "[{a t}]",
		"DELETE QUICK a, b.* FROM a JOIN b WHERE 1":                        "[{ a} { b} { a} { b}]",
		"DELETE FROM a.* USING a JOIN s.c":                                 "[{ a} { a} {s c}]",
		"DELETE FROM t ORDER BY x, y LIMIT 1":                              "[{ t}]",
		"LOAD DATA LOCAL INFILE 'INTO TABLE x' REPLACE INTO TABLE a.t (b)": "[{a t}]",
		"LOAD DATA INFILE 'x'":                                             "false",
		"SET STATEMENT max_statement_time=5 FOR INSERT INTO t VALUES (1)":  "[{ t}]",
		"CREATE OR REPLACE TABLE a.t SELECT 1":                             "[{a t}]",
		"CREATE TABLE IF NOT EXISTS t AS SELECT 1":                         "[{ t}]",
		"CREATE TABLE a.t TABLE s":                                         "[{a t}]",
		"ANALYZE UPDATE a.t SET x=1":                                       "[{a t}]",
		"ANALYZE FORMAT=JSON INSERT INTO t VALUES (1)":                     "[{ t}]",
		"WITH x AS (SELECT 1) DELETE FROM t":                               "false",
		"CALL p()":                                                         "false",
		"SELECT f()":                                                       "false",
		"DO f()":                                                           "false",
		"INSERT INTO":                                                      "false",
		"INSERT INTO 'x'":                                                  "false",
		"UPDATE":                                                           "false",
		"DELETE a.":                                                        "false",
		"UPDATE a.b.c SET x=1":                                             "false",
	} {
		tables, ok := written([]byte(text), 0)
		got := fmt.Sprint(tables)
		if !ok {
			got = "false"
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// Names in brackets, as MariaDB takes them in one sql_mode.
func TestBrackets(t *testing.T) {
	tables, ok := written([]byte("INSERT INTO [a b].[c]]d] VALUES ('[x]')"), modeMSSQL)
	if got := fmt.Sprint(tables, ok); got != "[{a b c]d}] true" {
		t.Error(got)
	}
	if _, name := classify([]byte("SAVEPOINT [a]"), modeMSSQL); name != "A" {
		t.Error(name)
	}
}

// How a backslash and a double quote are read depends on the session's sql_mode.
func TestSQLMode(t *testing.T) {
	for _, c := range []struct {
		text string
		mode uint64
		want statement
	}{
		{`CREATE TABLE t (a INT COMMENT 'x\') COMMENT='y SELECT z'`, modeNoBackslashEscapes, stmtDDL},
		{`CREATE TABLE t (a INT COMMENT 'x\' SELECT y')`, 0, stmtDDL},
		{`CREATE TABLE t (a INT COMMENT 'x\') SELECT 'y'`, modeNoBackslashEscapes, stmtDML},
		{"CREATE TABLE \"a\\\" (b INT) COMMENT=' SELECT '", modeAnsiQuotes, stmtDDL},
		{"CREATE TABLE t (b INT DEFAULT \"\\\"\") COMMENT=' SELECT '", 0, stmtDDL},
		{"CREATE TABLE [a] ([select] INT, [x]]y SELECT] INT)", modeMSSQL, stmtDDL},
		{"CREATE TABLE [a] SELECT 1 AS [x]", modeMSSQL, stmtDML},
		{`SET STATEMENT sql_mode='\' FOR INSERT INTO t VALUES (' FOR DROP')`, modeNoBackslashEscapes, stmtDML},
	} {
		if got, _ := classify([]byte(c.text), c.mode); got != c.want {
			t.Errorf("%s in mode %x is %v, want %v", c.text, c.mode, got, c.want)
		}
	}
}
