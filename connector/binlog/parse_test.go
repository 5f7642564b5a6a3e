package binlog

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

func TestClassify(t *testing.T) {
	for text, want := range map[string]statement{
		"":                                       stmtEmpty,
		"# Dummy event":                          stmtEmpty,
		"/* nothing */ -- at all":                stmtEmpty,
		"BEGIN":                                  stmtBegin,
		"begin /* x */":                          stmtBegin,
		"START TRANSACTION":                      stmtBegin,
		"START SLAVE":                            stmtDDL,
		"COMMIT":                                 stmtCommit,
		"commit work":                            stmtCommit,
		"ROLLBACK":                               stmtRollback,
		"ROLLBACK WORK":                          stmtRollback,
		"ROLLBACK WORK TO SAVEPOINT `x`":         stmtRollbackTo,
		"ROLLBACK TO x":                          stmtRollbackTo,
		"SAVEPOINT `a b`":                        stmtSavepoint,
		"RELEASE SAVEPOINT x":                    stmtRelease,
		"XA START X'61',X'',1":                   stmtXAStart,
		"xa begin 'a'":                           stmtXAStart,
		"XA END 'a'":                             stmtXAEnd,
		"XA PREPARE 'a'":                         stmtXAPrepare,
		"XA COMMIT 'a' ONE PHASE":                stmtXACommit,
		"XA ROLLBACK 'a'":                        stmtXARollback,
		"XA RECOVER":                             stmtDDL,
		"INSERT INTO t VALUES (1)":               stmtDML,
		"  insert t values (1)":                  stmtDML,
		"/* c */UPDATE t SET a=1":                stmtDML,
		"DELETE FROM `a`.`b`":                    stmtDML,
		"REPLACE t VALUES (1)":                   stmtDML,
		"LOAD DATA INFILE 'x' INTO t":            stmtDML,
		"WITH x AS (SELECT 1) DELETE t":          stmtDML,
		"(SELECT f())":                           stmtDML,
		"SELECT `db`.`f`(1)":                     stmtDML,
		"CALL p()":                               stmtDML,
		"/*!40000 INSERT */ INTO t":              stmtDML,
		"/*M!100000 DELETE FROM t */":            stmtDML,
		"SET STATEMENT a=1 FOR INSERT t":         stmtDML,
		"SET STATEMENT a=1 FOR DROP x":           stmtDDL,
		"SET STATEMENT a=1":                      stmtDDL,
		"SET PASSWORD FOR x = 'y'":               stmtAccount,
		"SET DEFAULT ROLE x TO y":                stmtAccount,
		"GRANT ALL ON *.* TO x":                  stmtAccount,
		"REVOKE ALL ON *.* FROM x":               stmtAccount,
		"CREATE USER x":                          stmtAccount,
		"CREATE OR REPLACE USER x":               stmtAccount,
		"create user if not exists x":            stmtAccount,
		"ALTER USER x IDENTIFIED BY 'y'":         stmtAccount,
		"/*!50000 ALTER */ USER x":               stmtAccount,
		"DROP USER x":                            stmtAccount,
		"RENAME USER x TO y":                     stmtAccount,
		"CREATE SERVER s OPTIONS (x 'y')":        stmtAccount,
		"CREATE ROLE r":                          stmtAccount,
		"CREATE TABLE t (a INT)":                 stmtDDL,
		"CREATE TABLE user (a INT)":              stmtDDL,
		"CREATE TABLE t (a INT) SELECT 1":        stmtDML,
		"CREATE TABLE t AS (SELECT 1)":           stmtDML,
		"CREATE TABLE t AS TABLE s":              stmtDML,
		"CREATE TABLE t (a INT) TABLE s LIMIT 1": stmtDML,
		"CREATE TABLE t VALUES ROW(1), ROW(2)":   stmtDML,
		"CREATE TABLE t (VALUES (1),(2))":        stmtDML,
		"CREATE TABLE shop.table (a INT)":        stmtDDL,
		"CREATE TABLE `shop`.select (a INT)":     stmtDDL,
		"CREATE TABLE 1st.values (a INT)":        stmtDDL,
		"CREATE TABLE t (a INT REFERENCES shop.table (id), b INT REFERENCES .select (id))": stmtDDL,
		"CREATE TABLE shop.table (a INT) SELECT 1":                                         stmtDML,
		"CREATE TABLE shop.values VALUES (1)":                                              stmtDML,
		"CREATE TABLE t (a INT) AUTO_INCREMENT=1.SELECT 2 AS a":                            stmtDML,
		"CREATE TABLE t (a INT, `values` INT, `table` INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (5), PARTITION q VALUES LESS THAN MAXVALUE)": stmtDDL,
		"CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))":                                                                           stmtDDL,
		"ANALYZE NO_WRITE_TO_BINLOG TABLE t":                             stmtDDL,
		"ANALYZE UPDATE t SET a=1":                                       stmtDML,
		"ANALYZE FORMAT=JSON DELETE FROM t":                              stmtDML,
		"CREATE TABLE t (`select` INT)":                                  stmtDDL,
		"CREATE TABLE t (a INT COMMENT 'SELECT')":                        stmtDDL,
		"CREATE TABLE t (a INT COMMENT 'it''s \\' SELECT')":              stmtDDL,
		"CREATE TABLE t (a INT /* SELECT */)":                            stmtDDL,
		"CREATE TEMPORARY TABLE t SELECT 1":                              stmtDDL,
		"CREATE OR REPLACE TABLE t SELECT 1":                             stmtDML,
		"CREATE TABLE t (a INT) START TRANSACTION":                       stmtCreateStart,
		"CREATE TABLE t (a INT) COMMENT 'START TRANSACTION'":             stmtDDL,
		"CREATE VIEW v AS SELECT 1":                                      stmtDDL,
		"CREATE DEFINER=x PROCEDURE p() INSERT INTO t SELECT":            stmtDDL,
		"CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW DELETE FROM y": stmtDDL,
		"ALTER TABLE t ADD a INT":                                        stmtDDL,
		"TRUNCATE t":                                                     stmtDDL,
		"ANALYZE TABLE t":                                                stmtDDL,
		"CREATE TABLE t (a INT\x00":                                      stmtDDL,
		"'":                                                              stmtDDL,
		"/*":                                                             stmtEmpty,
		"/*!":                                                            stmtEmpty,
	} {
		if got, _ := classify([]byte(text), 0); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{"SAVEPOINT `a b`": "A B", "ROLLBACK TO SAVEPOINT x": "X", `RELEASE SAVEPOINT "x"`: "X"} {
		if _, got := classify([]byte(text), 0); got != want {
			t.Errorf("%q names %q", text, got)
		}
	}
}

func TestParseGTID(t *testing.T) {
	g := event.GTID{SID: uuidA, Seq: 77}
	body := gtidBody(g)
	e, err := ParseGTID(TypeGTID, body)
	if err != nil || e.GTID != g || e.Commit != 1700000000123456 || e.Original != e.Commit {
		t.Errorf("%+v, %v", e, err)
	}
	// Another server committed it first.
	body[25+1+16+6] |= 0x80
	body = append(body, 1, 2, 3, 0, 0, 0, 0)
	if e, err = ParseGTID(TypeGTID, body); err != nil || e.Commit != 1700000000123456 || e.Original != 0x030201 {
		t.Errorf("%+v, %v", e, err)
	}
	// MySQL 5.6 and 5.7.
	if e, err = ParseGTID(TypeGTID, body[:25]); err != nil || e.GTID != g || e.Commit != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = ParseGTID(TypeGTID, body[:42]); err != nil || e.GTID != g || e.Commit != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = ParseGTID(TypeAnonymousGTID, make([]byte, 42)); err != nil || !e.GTID.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
	for _, b := range [][]byte{{}, body[:24], make([]byte, 42)} {
		if e, err = ParseGTID(TypeGTID, b); err == nil {
			t.Errorf("%x: %+v", b, e)
		}
	}
}

// Body of an event that MySQL 9.7 wrote for a transaction with the tag "blue".
func TestParseGTIDTagged(t *testing.T) {
	found := 0
	recorded(t, "mysql", func(r *Raw) {
		if r.Type != TypeGTIDTagged {
			return
		}
		found++
		e, err := ParseGTIDTagged(r.Body())
		if err != nil || e.GTID.Tag != "blue" || e.GTID.Seq != 1 || e.Commit/1e12 != 1796 || e.Original != e.Commit {
			t.Errorf("%+v, %v", e, err)
		}
		for i := range r.Body() {
			if e, err := ParseGTIDTagged(r.Body()[:i]); err == nil && e.Commit != 0 && e.Commit/1e12 != 1796 {
				t.Errorf("cut to %d bytes: %+v", i, e)
			}
		}
	})
	if found == 0 {
		t.Error("none recorded")
	}
}

func recorded(t testing.TB, kind string, f func(*Raw)) {
	t.Helper()
	in, err := os.ReadFile(filepath.Join("testdata", "record", kind+".stream"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewStream(bytes.NewReader(in))
	for {
		r, err := s.Next()
		if err != nil {
			return
		}
		f(&r)
	}
}

func TestParseHeartbeat(t *testing.T) {
	file, at, wide, err := ParseHeartbeat(&Header{LogPos: 77}, []byte("binlog.000001"))
	if file != "binlog.000001" || at != 77 || wide || err != nil {
		t.Error(file, at, wide, err)
	}
	b := append(binary.LittleEndian.AppendUint64(nil, 5<<32), "binlog.000001"...)
	file, at, wide, err = ParseHeartbeat(&Header{Flags: 1}, b)
	if file != "binlog.000001" || at != 5<<32 || !wide || err != nil {
		t.Error(file, at, wide, err)
	}
	for _, b := range []string{"", "\x00", "\x01\x02a", "\x01\x01a\x02\x09\xfe\x00", "\x02\x01\x04\x00", "\x01\x05a"} {
		if file, at, err := ParseHeartbeatV2([]byte(b)); err == nil {
			t.Errorf("%q: %s:%d", b, file, at)
		}
	}
}

func TestParseRotate(t *testing.T) {
	for in, want := range map[string]bool{
		"binlog.000001": true, "a.b.0000012": true, "binlog": false, "": false, "binlog.": false, "binlog.000001\x01\x02\x03\x04": false, "binlog.00x": false,
	} {
		file, at, err := ParseRotate(rotateBody(in, 4))
		if (err == nil) != want || err == nil && (file != in || at != 4) {
			t.Errorf("%q: %q, %d, %v", in, file, at, err)
		}
	}
	if _, _, err := ParseRotate(rotateBody("binlog.000001", 3)); err == nil {
		t.Error("offset 3 accepted")
	}
}

func TestQueryStatusVars(t *testing.T) {
	vars := []byte{0, 1, 2, 3, 4, 1, 1, 2, 3, 4, 5, 6, 7, 8, 6, 3, 's', 't', 'd', 4, 28, 0, 8, 0, 8, 0, 12, 1, 'x', 0, 13, 0x40, 0xe2, 0x01, 200, 1}
	q, err := ParseQuery(TypeQuery, queryBody("shop", "BEGIN", vars...))
	if err != nil || q.Charset != 28 || q.Micros != 123456 || string(q.Schema) != "shop" || string(q.Statement) != "BEGIN" || q.ThreadID != 7 {
		t.Errorf("%+v, %v", q, err)
	}
	// MariaDB's own, as 11.8 writes them.
	vars = []byte{6, 3, 's', 't', 'd', 131, 2, 33, 0, 0, 8, 45, 0, 0, 9, 4, 28, 0, 8, 0, 0, 9, 129, 1, 2, 3, 4, 5, 6, 7, 8, 130, 2, 130, 4, 1, 2, 3, 4, 5, 6, 7, 8, 128, 0x40, 0xe2, 0x01}
	q, err = ParseQuery(TypeQuery, queryBody("shop", "BEGIN", vars...))
	if err != nil || q.Charset != 28 || q.ServerCollation != 2304 || q.Micros != 123456 {
		t.Errorf("%+v, %v", q, err)
	}
}

// Statements arrive in the client's character set and leave in UTF-8.
func TestStatementCharset(t *testing.T) {
	b := newBuilder()
	var got []string
	m := NewMachine(Options{Destination: "shop", Tables: oneColumn{}, Match: func(string, string) bool { return true }, Emit: func(e *event.Event) error {
		if e.Kind == event.DDL {
			got = append(got, string(e.Raw))
		}
		return nil
	}, Charsets: map[uint32]string{47: "latin1", 88: "sjis", 46: "utf8mb4", 63: "binary"}})
	defer m.Close()
	for _, c := range []struct {
		id   byte
		text string
	}{{28, "CREATE TABLE `\xd6\xd0`"}, {8, "DROP TABLE `\xe9`"}, {45, "DROP TABLE `中`"}, {28, "DROP TABLE a"},
		{47, "DROP TABLE `\xe9`"}, {88, "CREATE TABLE u (a INT COMMENT '\x95\x5c', b INT COMMENT 'please SELECT me')"}, {46, "DROP TABLE `中`"}, {63, "DROP TABLE `中`"},
		{8, "CREATE TABLE `é` (\n  `ü` int\n) START TRANSACTION"}, {8, "COMMIT"}, // by the server
		{8, "BEGIN"}, {8, "CREATE TABLE `é` (\n  `ü` int\n)"}, {8, "COMMIT"},
		{8, "CREATE TABLE `é` (\n  `ü` int COMMENT 'x'\n)"}, {8, "CREATE TABLE IF NOT EXISTS `d`.`\xe9` (\n  `\xfc` int\n)"}, {8, "CREATE TABLE IF NOT EXISTS `d`.`é` (\n  `a` int\n)"},
		{8, "CREATE TABLE `\xe9` (`\xc3` int)"},
	} {
		e := b.event(TypeQuery, 0, queryBody("shop", c.text, 131, 1, 33, 0, 0, 8, 4, c.id, 0, 0, 0, 0, 0))
		h, _ := ParseHeader(e)
		if err := m.Feed(&Raw{Header: h, Data: e[:len(e)-4]}); err != nil {
			t.Fatal(err)
		}
	}
	if s := strings.Join(got, "|"); s != "CREATE TABLE `中`|DROP TABLE `é`|DROP TABLE `中`|DROP TABLE a|"+
		"DROP TABLE `é`|CREATE TABLE u (a INT COMMENT '表', b INT COMMENT 'please SELECT me')|DROP TABLE `中`|DROP TABLE `中`|"+
		"CREATE TABLE `é` (\n  `ü` int\n) START TRANSACTION|CREATE TABLE `é` (\n  `ü` int\n)|"+
		"CREATE TABLE `\uFFFD` (\n  `\uFFFD` int COMMENT 'x'\n)|CREATE TABLE IF NOT EXISTS `d`.`é` (\n  `ü` int\n)|CREATE TABLE IF NOT EXISTS `d`.`\uFFFD` (\n  `a` int\n)|CREATE TABLE `é` (`Ã` int)" {
		t.Error(s)
	}
}

// Of a DROP TABLE that the server has written itself its version decides.
func TestGeneratedStatementCharset(t *testing.T) {
	const utf8, latin1 = "DROP TABLE `é` /* generated by server */", "DROP TABLE `\xe9` /* generated by server */"
	for _, c := range []struct {
		srv        ddl.Server
		text, want string
	}{
		{ddl.Server{Version: 50651}, utf8, utf8},
		{ddl.Server{Version: 80036}, utf8, "DROP TABLE `\uFFFD` /* generated by server */"},
		{ddl.Server{Version: 80036}, latin1, utf8},
		{ddl.Server{Version: 90704}, utf8, "DROP TABLE `Ã©` /* generated by server */"},
		{ddl.Server{MariaDB: true, Version: 100244}, utf8, "DROP TABLE `Ã©` /* generated by server */"},
	} {
		m := NewMachine(Options{Server: c.srv})
		if got := string(m.utf8(&Query{Charset: 8}, []byte(c.text))); got != c.want {
			t.Errorf("%+v: %s, want %s", c.srv, got, c.want)
		}
		m.Close()
	}
}

func TestKnowsChecksum(t *testing.T) {
	for v, want := range map[string]bool{"5.5.62": false, "5.6.0-m4": false, "5.6.1": true, "5.7.44-log": true, "8.0.1": true, "9.7.4-2": true,
		"10.2.44-MariaDB": true, "5.3.1-MariaDB": true, "5.2.1-MariaDB": false, "": false, "x": false, "11.8.9-MariaDB-4 from Debian": true} {
		if knowsChecksum(v) != want {
			t.Errorf("%q: %v", v, !want)
		}
	}
}

// small fields are copied together, large ones alone, and nothing shares memory by mistake.
func TestAlloc(t *testing.T) {
	var a alloc
	var all [][]byte
	for i := range 1000 {
		all = append(all, a.copy(bytes.Repeat([]byte{byte(i)}, i*37%(blockShare+100))))
	}
	for i, b := range all {
		if len(b) != i*37%(blockShare+100) || bytes.Count(b, []byte{byte(i)}) != len(b) || cap(b) > len(b) && len(b) <= blockShare {
			t.Fatalf("piece %d is damaged", i)
		}
	}
}

func seedEvents(f *testing.F) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11"} {
		seen := map[EventType]int{}
		recorded(f, kind, func(r *Raw) {
			if seen[r.Type]++; seen[r.Type] <= 4 && len(r.Data) < 2000 {
				f.Add(byte(r.Type), bytes.Clone(r.Body()))
			}
		})
	}
}

// FuzzParsers gives every parser every body.
func FuzzParsers(f *testing.F) {
	seedEvents(f)
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		et := EventType(typ)
		_, _ = ParseHeader(body)
		_, _ = ParseFormatDescription(body)
		_, _, _ = ParseRotate(body)
		_, _ = ParseGTID(et, body)
		_, _ = ParseGTIDTagged(body)
		_, _ = ParseMariaGTID(body)
		_, _ = ParseMariaGTIDList(body)
		_, _ = ParseXID(body)
		_, _ = ParseXAPrepare(body)
		_, _, _, _ = ParseHeartbeat(&Header{Flags: uint16(typ)}, body)
		_, _, _ = ParseHeartbeatV2(body)
		_, _ = ParseIncident(body)
		if q, err := ParseQuery(et, body); err == nil {
			_, _ = classify(q.Statement, q.SQLMode)
			_ = verb(q.Statement)
		}
		if m, err := ParseTableMap(body); err == nil {
			_, _ = m.Columns()
		}
		if h, err := ParseRowsHead(et, body); err == nil {
			_, _, _, _ = h.Images(sizeLimit{})
		}
		if p, err := ParsePayload(body); err == nil {
			var r payloadReader
			defer r.close()
			if r.reset(&p) == nil {
				for n := 0; n < 1000; n++ {
					if _, err := r.next(sizeLimit{}); err != nil {
						break
					}
				}
			}
		}
	})
}

// FuzzMachine feeds a machine with a sequence of events cut out of the input.
func FuzzMachine(f *testing.F) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11"} {
		var all []byte
		recorded(f, kind, func(r *Raw) {
			if len(all) < 4000 && len(r.Data) < 1000 {
				all = append(all, r.Data...)
			}
		})
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var last int64
		m := NewMachine(Options{Destination: "shop", Tables: oneColumn{}, Match: func(s, _ string) bool { return s == "shop" }, Emit: func(e *event.Event) error {
			if e.Kind == event.Begin {
				return nil
			}
			if e.Ordinal != last+1 {
				t.Fatalf("ordinal %d behind %d", e.Ordinal, last)
			}
			last = e.Ordinal
			if e.Kind == event.Rows {
				last += int64(e.Rows) - 1
			}
			return nil
		}})
		defer m.Close()
		for len(in) >= HeaderSize {
			h, err := ParseHeader(in)
			if err != nil {
				return
			}
			n := int(min(int64(h.Size), int64(len(in))))
			r := Raw{Header: h, Data: in[:n:n]}
			in = in[n:]
			if m.Feed(&r) != nil {
				return
			}
		}
	})
}

func FuzzClassify(f *testing.F) {
	f.Add("CREATE OR REPLACE /*!40000 TABLE */ `a``b` (x INT COMMENT 'it''s') SELECT 1 -- x")
	f.Fuzz(func(t *testing.T, s string) {
		for _, mode := range []uint64{0, modeAnsiQuotes, modeNoBackslashEscapes} {
			_, _ = classify([]byte(s), mode)
			_, _ = written([]byte(s), mode)
		}
	})
}
