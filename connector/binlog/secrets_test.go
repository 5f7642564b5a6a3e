package binlog

import (
	"bytes"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// published is the text with which a machine publishes a statement, "" if it has none.
func published(t testing.TB, sql string, mode uint64, maria bool) string {
	t.Helper()
	q := &Query{Statement: []byte(sql), Schema: []byte("d"), SQLMode: mode}
	if s, _ := classify(q.Statement, mode); s == stmtAccount || s.control() {
		return ""
	}
	m := NewMachine(Options{Server: ddl.Server{MariaDB: maria, Version: 120000}})
	text, about := m.describe(q)
	if (text == nil) != (about == nil) {
		t.Errorf("%s: text %q, about %v", sql, text, about)
	}
	return string(text)
}

// secrets are statements in which GEHEIM must not be published, and what is published instead; "" for nothing.
var secrets = map[string]string{
	// Accounts, rights, other servers, replication, in every form that a server takes.
	"CREATE USER u IDENTIFIED BY 'GEHEIM'":                                              "",
	"CREATE USER u IDENTIFIED WITH caching_sha2_password AS 'GEHEIM'":                   "",
	"CREATE USER u IDENTIFIED VIA ed25519 USING PASSWORD('GEHEIM')":                     "",
	"\t\n create\n  uSeR\fu identified\vby 'GEHEIM'":                                    "",
	"/* app */ -- x\n# y\n/*!50000 ALTER */ /*M!100000 USER*/ u IDENTIFIED BY 'GEHEIM'": "",
	"/*!99999 ALTER USER u IDENTIFIED BY 'GEHEIM' */":                                   "",
	"ALTER/**/USER/**/IF/**/EXISTS/**/u IDENTIFIED BY 'GEHEIM' RETAIN CURRENT PASSWORD": "",
	"ALTER USER u ADD 2 FACTOR IDENTIFIED BY 'GEHEIM'":                                  "",
	"CREATE OR REPLACE USER u IDENTIFIED BY PASSWORD '*GEHEIM'":                         "",
	"CREATE /*M!100100 OR REPLACE */ USER u IDENTIFIED BY 'GEHEIM'":                     "",
	"SET PASSWORD FOR u = PASSWORD('GEHEIM')":                                           "",
	"SET PASSWORD = 'GEHEIM'":                                                           "",
	"set\npassword for u='GEHEIM'":                                                      "",
	"SET STATEMENT max_statement_time=1 FOR SET PASSWORD = 'GEHEIM'":                    "",
	"SET STATEMENT sql_mode='FOR' FOR ALTER USER u IDENTIFIED BY 'GEHEIM'":              "",
	"GRANT ALL ON *.* TO u IDENTIFIED BY 'GEHEIM' WITH GRANT OPTION":                    "",
	"GRANT SELECT ON d.t TO u IDENTIFIED BY PASSWORD '*GEHEIM'":                         "",
	"CREATE ROLE GEHEIM":            "",
	"DROP USER GEHEIM":              "",
	"RENAME USER a TO GEHEIM":       "",
	"REVOKE ALL ON *.* FROM GEHEIM": "",
	"SET DEFAULT ROLE GEHEIM FOR u": "",
	"CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'GEHEIM')":  "",
	"CREATE OR REPLACE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD 'GEHEIM')": "",
	"ALTER SERVER s OPTIONS (PASSWORD 'GEHEIM')":                                        "",
	"DROP SERVER IF EXISTS GEHEIM":                                                      "",
	"CHANGE MASTER TO MASTER_PASSWORD='GEHEIM'":                                         "",
	"CHANGE MASTER 'x' TO MASTER_USER='u', master_password = 'GEHEIM'":                  "",
	"CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD='GEHEIM'":                             "",
	"START SLAVE USER='u' PASSWORD='GEHEIM'":                                            "",
	"START GROUP_REPLICATION USER='u', PASSWORD='GEHEIM'":                               "",
	"CLONE INSTANCE FROM 'u'@'h':3306 IDENTIFIED BY 'GEHEIM'":                           "",
	"INSTALL COMPONENT 'file://x' SET GLOBAL x.secret = 'GEHEIM'":                       "",
	"INSERT INTO mysql.user SET authentication_string=PASSWORD('GEHEIM')":               "",
	"UPDATE mysql.user SET Password=PASSWORD('GEHEIM') WHERE User='u'":                  "",
	"what nobody has ever called it IDENTIFIED BY 'GEHEIM'":                             "",
	"CREATE TABLE `never closed PASSWORD 'GEHEIM'":                                      "",

	// Bodies.
	"CREATE PROCEDURE p() BEGIN CREATE USER a IDENTIFIED BY 'GEHEIM'; ALTER USER b IDENTIFIED BY 'x'; END":                       "",
	"CREATE DEFINER=`root`@`%` PROCEDURE `p`()\nBEGIN\n  SET PASSWORD FOR u = 'GEHEIM';\nEND":                                    "",
	"CREATE PROCEDURE p() BEGIN SET @s = CONCAT('ALTER USER u IDENTIF', 'IED BY ''GEHEIM'''); PREPARE s FROM @s; EXECUTE s; END": "",
	"CREATE PROCEDURE p() EXECUTE IMMEDIATE 'ALTER USER u IDENTIF' 'IED BY ''GEHEIM'''":                                          "",
	"CREATE FUNCTION f() RETURNS TEXT RETURN AES_DECRYPT(x, 'GEHEIM')":                                                           "",
	"CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SET PASSWORD FOR u = 'GEHEIM'":                                                    "",
	"ALTER EVENT e DO ALTER USER u IDENTIFIED BY 'GEHEIM'":                                                                       "",
	"CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = AES_ENCRYPT(NEW.a, 'GEHEIM')":                                  "",
	"CREATE OR REPLACE PACKAGE BODY k AS PROCEDURE p AS BEGIN SET PASSWORD = 'GEHEIM'; END; END":                                 "",
	"CREATE PROCEDURE p() CALL mysql.rds_set_external_master('h', 3306, 'u', 'GEHEIM')":                                          "",
	"CREATE PROCEDURE p() CALL mysql.az_replication_change_master('h', 'u', 'GEHEIM')":                                           "",
	"CREATE PROCEDURE p() /* passwd GEHEIM */ SELECT 1":                                                                          "",
	"CREATE PROCEDURE p() CREATE TABLE f (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:GEHEIM@h/d/t'":                           "",

	// Tables on other servers.
	"CREATE TABLE t (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:GEHEIM@h:3306/d/t'":                                                         "CREATE TABLE t (a INT) ENGINE=FEDERATED CONNECTION='***'",
	"CREATE TABLE t (a INT) ENGINE=FEDERATED connection 'mysql://u:' 'GEHEIM@h/d/t' COMMENT='c'":                                               "CREATE TABLE t (a INT) ENGINE=FEDERATED connection '***' '***' COMMENT='c'",
	"ALTER TABLE t CONNECTION=\"mysql://u:GEHEIM@h/d/t\", ADD b INT":                                                                           `ALTER TABLE t CONNECTION="***", ADD b INT`,
	"ALTER TABLE t /*!50000 CONNECTION = */ 'mysql://u:GEHE''IM GEHEIM@h/d/t'":                                                                 "ALTER TABLE t /*!50000 CONNECTION = */ '***'",
	`CREATE TABLE t (a INT) CONNECTION='mysql://u:a\'GEHEIM@h/d/t' COMMENT 'x'`:                                                                "CREATE TABLE t (a INT) CONNECTION='***' COMMENT 'x'",
	`CREATE TABLE t (a INT) ENGINE=SPIDER COMMENT='wrapper "mysql", user "u", password "GEHEIM"'`:                                              "CREATE TABLE t (a INT) ENGINE=SPIDER COMMENT='***'",
	`CREATE TABLE t (a INT) ENGINE=SPIDER PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (9) COMMENT = 'srv "s", password ''GEHEIM''')`: "CREATE TABLE t (a INT) ENGINE=SPIDER PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (9) COMMENT = '***')",
	"CREATE TABLE t (a INT) ENGINE=CONNECT TABLE_TYPE=ODBC OPTION_LIST='user=u,password=GEHEIM'":                                               "CREATE TABLE t (a INT) ENGINE=CONNECT TABLE_TYPE=ODBC OPTION_LIST='***'",
	"CREATE TABLE t (a INT) ENGINE=CONNECT `Password`='GEHEIM'":                                                                                "CREATE TABLE t (a INT) ENGINE=CONNECT `Password`='***'",
	"CREATE TABLE t (a INT) PASSWORD = 'GEHEIM'":                                                                                               "CREATE TABLE t (a INT) PASSWORD = '***'",
	"CREATE TABLE t (a VARCHAR(99) DEFAULT 'http://u:GEHEIM@h/')":                                                                              "CREATE TABLE t (a VARCHAR(99) DEFAULT '***')",

	`CREATE TABLE t (a INT ENGINE_ATTRIBUTE='{"x":"GEHEIM"}') SECONDARY_ENGINE_ATTRIBUTE = '{"par":"GEHEIM"}'`: `CREATE TABLE t (a INT ENGINE_ATTRIBUTE='***') SECONDARY_ENGINE_ATTRIBUTE = '***'`,

	// Keys in expressions, and comments.
	"CREATE VIEW v AS SELECT KDF(a, 'GEHEIM', 'hkdf'), b FROM t":                         "CREATE VIEW v AS SELECT KDF(a, '***', '***'), b FROM t",
	"CREATE VIEW v AS SELECT ASYMMETRIC_DECRYPT('RSA', c, 'GEHEIM') FROM t":              "CREATE VIEW v AS SELECT ASYMMETRIC_DECRYPT('***', c, '***') FROM t",
	"CREATE VIEW v AS SELECT my_pbkdf2('GEHEIM'), my_sign(a, 'GEHEIM') FROM t":           "CREATE VIEW v AS SELECT my_pbkdf2('***'), my_sign(a, '***') FROM t",
	"CREATE VIEW v AS SELECT AES_DECRYPT(CAST(a AS CHAR(9)), SHA2(0GEHEIM, 256)) FROM t": "CREATE VIEW v AS SELECT AES_DECRYPT(CAST(a AS CHAR(9)), SHA2('***', '***')) FROM t",
	"CREATE VIEW v AS SELECT AES_DECRYPT(a, CHAR(0GEHEIM)) FROM t":                       "CREATE VIEW v AS SELECT AES_DECRYPT(a, CHAR('***')) FROM t",
	"CREATE TABLE t AS SELECT 1 FROM a JOIN b ON AES_DECRYPT(x, 'GEHEIM') = y":           "CREATE TABLE t AS SELECT 1 FROM a JOIN b ON AES_DECRYPT(x, '***') = y",
	"CREATE INDEX encrypted ON password ((AES_DECRYPT(a, 'GEHEIM')), b(9))":              "CREATE INDEX encrypted ON password ((AES_DECRYPT(a, '***')), b(9))",
	"CREATE TABLE t (a INT COMMENT 'pass=GEHEIM', b INT COMMENT 'db_pass: GEHEIM')":      "CREATE TABLE t (a INT COMMENT '***', b INT COMMENT '***')",
	"DROP PROCEDURE reset_password /* pwd GEHEIM */":                                     "DROP PROCEDURE reset_password /* *** */",
	"SET STATEMENT sql_mode='' FOR CREATE TABLE t (a INT) CONNECTION=\"GEHEIM\"":         "SET STATEMENT sql_mode='' FOR CREATE TABLE t (a INT) CONNECTION=\"***\"",
	"CREATE VIEW v AS SELECT '-----BEGIN RSA PRIVATE KEY-----\nGEHEIM' AS k":             "CREATE VIEW v AS SELECT '***' AS k",
	"CREATE VIEW v AS SELECT ASYMMETRIC_SIGN('RSA', a, 'GEHEIM', 'SHA256') FROM t":       "CREATE VIEW v AS SELECT ASYMMETRIC_SIGN('***', a, '***', '***') FROM t",
	"CREATE TABLE t (a BLOB, b BLOB AS (AES_DECRYPT(a, CONCAT('GEHEIM', 'x'))) VIRTUAL)": "CREATE TABLE t (a BLOB, b BLOB AS (AES_DECRYPT(a, CONCAT('***', '***'))) VIRTUAL)",
	"CREATE VIEW v AS SELECT aes_decrypt(c, x'GEHEIM', 'y'), 'z' FROM t":                 "CREATE VIEW v AS SELECT aes_decrypt(c, x'***', '***'), 'z' FROM t",
	"CREATE VIEW v AS SELECT AES_DECRYPT(c, 0xGEHEIM) FROM t":                            "CREATE VIEW v AS SELECT AES_DECRYPT(c, '***') FROM t",
	"CREATE VIEW v AS SELECT 1 FROM u WHERE password = 'GEHEIM'":                         "CREATE VIEW v AS SELECT 1 FROM u WHERE password = '***'",
	"/* ALTER USER u IDENTIFIED BY 'GEHEIM' */ DROP TABLE t":                             "/* *** */ DROP TABLE t",
	"DROP TABLE t -- password GEHEIM\n, u # pwd GEHEIM":                                  "DROP TABLE t -- ***\n, u -- ***",
	"/*!50000 DROP */ /* passwd: GEHEIM */ TABLE t":                                      "/*!50000 DROP */ /* *** */ TABLE t",
}

// TestSecrets: no secret is published, whatever kind of statement holds it.
func TestSecrets(t *testing.T) {
	for sql, want := range secrets {
		for _, mode := range []uint64{0, modeAnsiQuotes} {
			if mode == modeAnsiQuotes && strings.Contains(sql, `"mysql://`) {
				continue // an identifier then, which is no option's value
			}
			for _, maria := range []bool{false, true} {
				got := published(t, sql, mode, maria)
				if strings.Contains(got, "GEHEIM") || mode == 0 && maria && got != want {
					t.Errorf("%s\npublished as %s\nwant         %s", sql, got, want)
				}
			}
		}
	}
	if got := published(t, `ALTER TABLE t CONNECTION='mysql://u:GEHEIM\', ADD b INT`, modeNoBackslashEscapes, false); got != "ALTER TABLE t CONNECTION='***', ADD b INT" {
		t.Errorf("NO_BACKSLASH_ESCAPES: %s", got)
	}
	for sql, want := range map[string]string{ // names in brackets
		"CREATE TABLE [t] ([a] INT) ENGINE=CONNECT [OPTION_LIST]='user=x,host=GEHEIM'":   "CREATE TABLE [t] ([a] INT) ENGINE=CONNECT [OPTION_LIST]='***'",
		"ALTER TABLE [t] [Password] = 'GEHEIM', [connection]'GEHEIM'":                    "ALTER TABLE [t] [Password] = '***', [connection]'***'",
		"CREATE VIEW [v] AS SELECT [AES_DECRYPT](CAST([a] AS CHAR(9)), 'GEHEIM') FROM t": "CREATE VIEW [v] AS SELECT [AES_DECRYPT](CAST([a] AS CHAR(9)), '***') FROM t",
	} {
		for _, mode := range []uint64{modeMSSQL, modeMSSQL | modeAnsiQuotes} {
			if got := published(t, sql, mode, true); got != want {
				t.Errorf("%s, mode %x\npublished as %s", sql, mode, got)
			}
		}
	}
}

// TestNoSecrets: what only looks like one stays as it is.
func TestNoSecrets(t *testing.T) {
	for _, sql := range []string{
		"CREATE TABLE users (id INT, password VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'user password', secret ENUM('a','b'))",
		"CREATE TABLE t (a INT COMMENT 'http://example.com/a:b')", "ALTER TABLE t ADD pwd INT, ADD connection_id INT", "ALTER TABLE t ENCRYPTION='Y'",
		"CREATE TABLE t (a INT) ENCRYPTED=YES ENCRYPTION_KEY_ID=3", "CREATE PROCEDURE p() BEGIN DROP TABLE a; END", "DROP TABLE passwords, user",
		"CREATE TABLE t (encoded INT) COMMENT='x'", "ANALYZE TABLE t", "CREATE TRIGGER h BEFORE INSERT ON t FOR EACH ROW SET NEW.a = CONNECTION_ID()", "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 'x'",
		"CREATE TABLE t (a INT COMMENT 'caf\xe9')", "CREATE TABLE t (a INT COMMENT 'bypass: none, passenger=1')",
		"CREATE TABLE password (a ENUM('x','y'))", "CREATE TABLE IF NOT EXISTS `password` (a ENUM('x','y'))", "CREATE TABLE d.decode (a CHAR(9) DEFAULT 'x')", "CREATE TABLE .encrypt (a CHAR(9))",
		"ALTER TABLE t ADD INDEX crypt (a(10)), ADD UNIQUE KEY `password` (b(3))", "CREATE INDEX i ON encrypt (a(10))", "CREATE INDEX i ON d.encrypt (a(10))",
		"CREATE TABLE t (a INT, FOREIGN KEY f_crypt (a) REFERENCES password (id), b ENUM('x'))", "CREATE VIEW encrypted (a, b) AS SELECT 'x', 2",
		`CREATE VIEW v AS SELECT "password" AS "p", password AS 'q' FROM t`,
		"DROP PROCEDURE reset_password", "DROP FUNCTION IF EXISTS encode_id", "DROP TRIGGER users_password_bu", "DROP EVENT purge_secrets",
	} {
		if got := published(t, sql, 0, true); got != sql {
			t.Errorf("%s\npublished as %s", sql, got)
		}
	}
	for _, sql := range []string{ // with ANSI_QUOTES
		`CREATE TABLE "password" ("id" INT, "secret" "x")`, `CREATE TABLE d."password" ("id" CHAR(9) DEFAULT 'x')`, `ALTER TABLE t CHANGE secret "pw" INT`, `CREATE VIEW v AS SELECT "password" AS "p" FROM t`,
		`ALTER TABLE t ADD INDEX "crypt" (a(10))`,
	} {
		if got := published(t, sql, modeAnsiQuotes, true); got != sql {
			t.Errorf("ANSI_QUOTES: %s\npublished as %s", sql, got)
		}
	}
}

// FuzzRedact: a secret behind an option does not show, and what is around the statement's strings stays.
func FuzzRedact(f *testing.F) {
	for sql := range secrets {
		f.Add([]byte(sql), uint64(0))
	}
	f.Fuzz(func(t *testing.T, sql []byte, mode uint64) {
		keep := bytes.Clone(sql)
		about := ddl.Describe(&ddl.Statement{Text: string(sql), Schema: "d", SQLMode: mode}, ddl.Server{Version: 90700})
		out := redact(sql, mode, about)
		if !bytes.Equal(sql, keep) {
			t.Fatal("input changed")
		}
		if out == nil {
			return
		}
		again := ddl.Describe(&ddl.Statement{Text: string(out), Schema: "d", SQLMode: mode}, ddl.Server{Version: 90700})
		if about.Whole && (len(again.Changes) != len(about.Changes) || about.First() != again.First()) {
			t.Errorf("%q is about %+v, and as %q about %+v", sql, about.Changes, out, again.Changes)
		}
		if twice := redact(out, mode, again); again.Whole && !bytes.Equal(out, twice) {
			t.Errorf("%q becomes %q, and that %q", sql, out, twice)
		}
	})
}

// TestWithheldI5: a statement that is withheld takes its number as any other does.
func TestWithheldI5(t *testing.T) {
	m := NewMachine(Options{Match: func(string, string) bool { return false }, Emit: func(*event.Event) error { return nil }})
	for i, sql := range []string{"DROP TABLE t", "CREATE USER u IDENTIFIED BY 'GEHEIM'", "CREATE PROCEDURE p() SET PASSWORD = 'GEHEIM'"} {
		var e *event.Event
		m.opt.Emit = func(x *event.Event) error { e = x; return nil }
		q := &Query{Statement: []byte(sql), Schema: []byte("d")}
		s, _ := classify(q.Statement, 0)
		m.txn, m.begun, m.shown = &event.Txn{}, true, true
		if err := m.ddl(&Raw{}, q, s, 4, 5); err != nil {
			t.Fatal(err)
		}
		if e == nil || e.Ordinal != int64(i+1) || (len(e.Raw) == 0) != (i > 0) || (e.Stmt == nil) != (i > 0) || e.Size < len(e.Raw) {
			t.Errorf("%s: event %+v", sql, e)
		}
	}
}

// TestVersionI5: comments are executed as the server that wrote the log has executed them.
func TestVersionI5(t *testing.T) {
	const sql = "DROP TABLE a /*!80400 , b */"
	for version, want := range map[string]int{"8.0.36-log": 1, "8.4.0": 2, "9.7.4-2": 2, "": 2, "10.11.6-MariaDB-log": 2} {
		m := NewMachine(Options{})
		m.wroteBy(append([]byte{4, 0}, append([]byte(version), make([]byte, 60-len(version))...)...))
		m.wroteBy([]byte("short"))
		if _, about := m.describe(&Query{Statement: []byte(sql), Schema: []byte("d")}); len(about.Changes) != want {
			t.Errorf("%q: %d tables, want %d", version, len(about.Changes), want)
		}
	}
}
