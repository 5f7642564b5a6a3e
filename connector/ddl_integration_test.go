//go:build integration

package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// statementsOfDDL are run one after the other, as far as the server takes them: what they make of the tables is what that server says. $ stands
// for the database. Behind "?" stand those that need not be followed.
const statementsOfDDL = "CREATE TABLE a (id INT PRIMARY KEY)\n" + `
CREATE TABLE types (i1 TINYINT, i2 TINYINT UNSIGNED, i3 TINYINT(1), i4 BOOL, i5 SMALLINT, i6 MEDIUMINT UNSIGNED, i7 INT(5), i8 INTEGER UNSIGNED ZEROFILL, i9 BIGINT(7) UNSIGNED, j1 INT1, j2 INT2, j3 INT3, j4 INT4, j8 INT8, jm MIDDLEINT, z INT(3) ZEROFILL, tu TINYINT(1) UNSIGNED, ts INT SIGNED)
CREATE TABLE reals (a FLOAT, b FLOAT(7,3), c FLOAT(20), d FLOAT(30), e DOUBLE, f DOUBLE PRECISION, g REAL, h DOUBLE(10,2) UNSIGNED, k DECIMAL, l DEC(5), m NUMERIC(9,4) UNSIGNED, n FIXED(6,2), o FLOAT4, p FLOAT8, q DECIMAL(8,2) ZEROFILL)
CREATE TABLE times (a DATE, b TIME, c TIME(3), d DATETIME, e DATETIME(6), f TIMESTAMP NULL, g TIMESTAMP(2) NULL DEFAULT CURRENT_TIMESTAMP(2) ON UPDATE CURRENT_TIMESTAMP(2), h YEAR, i TIMESTAMP, j TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00', k DATETIME DEFAULT NOW() ON UPDATE NOW() COMMENT 'x')
CREATE TABLE years (a YEAR(2), b YEAR(4))
CREATE TABLE years3 (a YEAR(3))
CREATE TABLE texts (a CHAR, b CHAR(20) CHARACTER SET latin1, c VARCHAR(20), d VARCHAR(30) CHARSET gbk, e TINYTEXT, f TEXT, g MEDIUMTEXT CHARACTER SET utf8, h LONGTEXT, i TEXT(10), j TEXT(20000), k BINARY, l BINARY(16), m VARBINARY(30), n TINYBLOB, o BLOB, p BLOB(70000), q MEDIUMBLOB, r LONGBLOB, s CHARACTER VARYING(10), t NATIONAL CHAR(5), u NVARCHAR(6), v NCHAR(7), w LONG, x LONG VARBINARY, y VARCHAR(9) COLLATE utf8mb4_bin, z CHAR(4) BINARY, aa VARCHAR(5) CHARACTER SET binary, ab TEXT CHARACTER SET binary, ac VARCHAR(7) CHARACTER SET ucs2, ad CHAR(3) ASCII)
CREATE TABLE spaced (a ENUM('a ','b') CHARACTER SET binary, b SET('x ','y') CHARACTER SET binary, c ENUM('a ','b  ') CHARACTER SET utf8 COLLATE utf8_bin, d SET(' a ') CHARACTER SET latin1)
CREATE TABLE empty (a TEXT(0), b BLOB(0), c CHAR(0), d VARCHAR(0), e BINARY(0), f VARBINARY(0))
CREATE TABLE sets (e ENUM('a','it''s','b,c','','(x)'), f SET('p','q') CHARACTER SET latin1, g ENUM("d", 'back\\slash', 'trail  '), h ENUM('ä','ß') CHARACTER SET utf8, i ENUM('x') COLLATE latin1_bin DEFAULT 'x' COMMENT 'it''s, ), (')
CREATE TABLE odd (b BIT, c BIT(9), g GEOMETRY, p POINT, gc GEOMETRYCOLLECTION, s SERIAL)
CREATE TABLE js (id INT, j JSON, k JSON DEFAULT NULL)
CREATE TABLE js2 (a LONGTEXT CHECK (json_valid(a)), ` + "`b``c` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`b``c`))" + `, c TEXT CHECK (json_valid(c)), d LONGTEXT CHECK (json_valid(a)), e JSON NOT NULL)
ALTER TABLE js2 MODIFY a LONGTEXT, MODIFY d LONGTEXT CHECK (json_valid(d)), MODIFY e JSON
CREATE TABLE js3 AS SELECT * FROM js2
CREATE TABLE mem (id INT PRIMARY KEY, a INT, b INT, KEY (a), UNIQUE (b)) ENGINE=MEMORY
CREATE TABLE byhash (id INT PRIMARY KEY, a INT, KEY (a) USING HASH)
CREATE TABLE vec (v VECTOR(3), w INT)
CREATE TABLE net (u UUID, a INET4, b INET6 NOT NULL)
CREATE TABLE comp (a VARCHAR(20) COMPRESSED, b TEXT COMPRESSED, c INT)
CREATE TABLE charsetted (a VARCHAR(10), b TEXT, c ENUM('x')) DEFAULT CHARSET=latin1 ENGINE=InnoDB
CREATE TABLE collated (a VARCHAR(10), c CHAR(3) CHARACTER SET utf8mb4) COLLATE latin1_german1_ci COMMENT='CHARSET=utf8mb4'
CREATE TABLE bin (a VARCHAR(10), b TEXT, c CHAR(4), d ENUM('x')) CHARACTER SET binary
CREATE TABLE gen (a INT, b INT AS (a*2) VIRTUAL, c INT GENERATED ALWAYS AS (a + (1)) STORED NOT NULL, d VARCHAR(20) AS (CONCAT('x', a, ',')) PERSISTENT, e INT AS (a) INVISIBLE)
CREATE TABLE gen2 (a INT, b INT AS (a*2) VIRTUAL, d VARCHAR(20) AS (CONCAT('x', a, ',')) STORED COMMENT 'y')
CREATE TABLE keys1 (a INT, b VARCHAR(10) NOT NULL, c INT, PRIMARY KEY (b(4), a), UNIQUE KEY u (c), KEY k (a, b), CONSTRAINT f CHECK (a > 1))
CREATE TABLE keys2 (a INT UNIQUE KEY, b INT KEY, c INT REFERENCES a (id) ON DELETE CASCADE, CONSTRAINT fk FOREIGN KEY (c) REFERENCES a (id) ON UPDATE SET NULL, INDEX (c) USING BTREE)
CREATE TABLE keys3 (a INT NULL, b INT, CONSTRAINT pk PRIMARY KEY USING BTREE (a DESC, b))
CREATE TABLE defaults (a INT DEFAULT -5, b VARCHAR(10) DEFAULT 'a,b)' NOT NULL, c DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, d INT DEFAULT (1 + (2)), e INT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'x', f BIT(3) DEFAULT b'101', g VARCHAR(3) DEFAULT x'41', h DOUBLE DEFAULT 1.5e-3 NULL)
CREATE TABLE defaults2 (a INT DEFAULT -5, b VARCHAR(10) DEFAULT 'a,b)' NOT NULL, c DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, e INT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'x', f BIT(3) DEFAULT b'101', g VARCHAR(3) DEFAULT x'41')
CREATE TABLE vis (a INT PRIMARY KEY, b INT INVISIBLE, c INT /*!80023 INVISIBLE */, d INT /*M!100303 INVISIBLE */)
CREATE TABLE parts (a INT NOT NULL, b DATE NOT NULL, PRIMARY KEY (a, b)) ENGINE=InnoDB PARTITION BY RANGE (YEAR(b)) (PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN MAXVALUE COMMENT 'CHARSET=latin1')
CREATE TABLE nonreserved (` + "`sum`" + ` INT, buckets INT, url INT, online INT, auto INT, manual INT, parallel INT, period INT, comment VARCHAR(3) COMMENT 'c', ` + "`key` INT, `PRIMARY` INT, `a``b` INT, `x.y` INT" + `)
CREATE TABLE vector (online TINYINT, v INT)
CREATE TABLE IF NOT EXISTS a (other INT)
CREATE TABLE a2 LIKE texts
CREATE TABLE a3 (LIKE keys1)
CREATE TABLE IF NOT EXISTS a4 LIKE sets
CREATE TABLE $.a5 (x INT) /* it's ; a comment */ -- and another
/* app */ CREATE /*!50000 TABLE */ commented (id INT /* PRIMARY KEY */, # x INT
 b INT) -- done
CREATE TABLE late (id INT, /*!99999 gone INT, */ c INT)
CREATE TABLE ctas AS SELECT * FROM texts
CREATE TABLE ctas2 (extra INT) SELECT id, 'x' AS y FROM a
CREATE TABLE func (a INT, b VARCHAR(20), KEY f ((a + 1), a), KEY ((UPPER(b))))
ALTER TABLE func ADD c INT
ALTER TABLE func DROP INDEX f, ADD d INT FIRST
CREATE INDEX g ON func ((a * 2))
ALTER TABLE func RENAME INDEX g TO h, RENAME COLUMN d TO dd
CREATE TABLE vers (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING
CREATE TABLE vers2 (id INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING
ALTER TABLE vers ADD COLUMN w INT
CREATE TABLE vers3 (id INT PRIMARY KEY, v INT WITH SYSTEM VERSIONING, n INT)
ALTER TABLE vers3 ADD w INT
CREATE TABLE vers4 (id INT PRIMARY KEY, v INT WITHOUT SYSTEM VERSIONING)
? CREATE OR REPLACE TABLE vers5 LIKE vers3
CREATE TABLE pt (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))
ALTER TABLE pt CONVERT PARTITION p1 TO TABLE pt1
ALTER TABLE pt1 ADD w INT
ALTER TABLE pt1 DROP w
ALTER TABLE pt CONVERT TABLE pt1 TO PARTITION p1 VALUES LESS THAN (20)
CREATE SEQUENCE sq START WITH 5
CREATE TABLE big (t LONGTEXT, u INT, UNIQUE (u))
? CREATE TABLE hashed (t LONGTEXT, UNIQUE (t) USING HASH)
CREATE TABLE m (id INT PRIMARY KEY, a INT, b VARCHAR(10), c TEXT, d TIMESTAMP NULL) DEFAULT CHARSET utf8mb4
ALTER TABLE m ADD COLUMN e INT NOT NULL DEFAULT 5 AFTER a
ALTER TABLE m ADD f INT FIRST, ADD g INT AFTER f, ADD COLUMN (h INT, i VARCHAR(5) DEFAULT 'x,y'), ADD INDEX (h), ADD UNIQUE u (g)
ALTER TABLE m MODIFY b VARCHAR(40) NOT NULL FIRST, CHANGE a aa BIGINT UNSIGNED COMMENT 'it''s', DROP COLUMN c
ALTER TABLE m MODIFY b VARCHAR(40) NOT NULL CONSTRAINT n CHECK (b <> ''), ALGORITHM=COPY
ALTER TABLE m ALGORITHM=INPLACE, LOCK=NONE, ADD COLUMN j INT
ALTER TABLE m ADD COLUMN k INT, ALGORITHM=INSTANT, ADD COLUMN l BIGINT, ALGORITHM=INSTANT
ALTER TABLE m DROP l RESTRICT, ROW_FORMAT=DEFAULT
ALTER TABLE m DROP k CASCADE, STATS_SAMPLE_PAGES=DEFAULT
ALTER TABLE m MODIFY COLUMN m.h SMALLINT, ADD COLUMN $.m.q INT
ALTER TABLE m ADD COLUMN q2 INT AFTER aa, CHANGE aa a INT, CHANGE e e1 INT AFTER q2
ALTER TABLE m CHANGE f g INT, CHANGE g f VARCHAR(3)
ALTER TABLE m RENAME COLUMN f TO g, RENAME COLUMN g TO f
ALTER TABLE m RENAME COLUMN f TO ff, ADD COLUMN after_f INT AFTER ff
ALTER TABLE m CHANGE id pk INT, ADD COLUMN id INT
ALTER TABLE m MODIFY pk BIGINT NULL
ALTER TABLE m MODIFY pk BIGINT
ALTER TABLE m DROP PRIMARY KEY, ADD PRIMARY KEY (pk, g)
ALTER TABLE m DROP INDEX ` + "`PRIMARY`" + `
CREATE UNIQUE INDEX uu USING BTREE ON m (pk) COMMENT 'CHARSET'
DROP INDEX uu ON m
ALTER TABLE m ADD CONSTRAINT PRIMARY KEY (pk)
ALTER TABLE m ALTER COLUMN j SET DEFAULT 5, ALTER h DROP DEFAULT, COMMENT = 'a, b', ENGINE=InnoDB
ALTER TABLE m ALTER COLUMN j SET INVISIBLE
ALTER TABLE m ALTER COLUMN j SET VISIBLE
ALTER TABLE m DEFAULT CHARACTER SET latin1
ALTER TABLE m ADD lat VARCHAR(5), ADD lat2 CHAR(2) CHARACTER SET utf8
ALTER TABLE m ADD neu VARCHAR(5), CHARACTER SET = utf8mb4
ALTER TABLE m CONVERT TO CHARACTER SET latin1
ALTER TABLE m CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
ALTER TABLE charsetted CONVERT TO CHARACTER SET utf8mb4
CREATE TABLE widths (a TINYTEXT, b TEXT, c MEDIUMTEXT, d LONGTEXT, e TEXT CHARACTER SET utf8, f TINYTEXT CHARACTER SET utf8mb4, g TEXT CHARACTER SET gbk, h TEXT CHARACTER SET ucs2, i TINYBLOB) CHARACTER SET latin1
ALTER TABLE widths CONVERT TO CHARACTER SET utf8
ALTER TABLE widths CONVERT TO CHARACTER SET ascii
ALTER TABLE widths CONVERT TO CHARACTER SET utf8mb4
ALTER TABLE widths CONVERT TO CHARACTER SET ucs2
ALTER TABLE widths CONVERT TO CHARACTER SET latin1
CREATE TABLE widths2 (a VARCHAR(10), b TEXT, c ENUM('x') CHARACTER SET latin1) CHARACTER SET latin1
ALTER TABLE widths2 CONVERT TO CHARACTER SET utf8, ADD z VARCHAR(3) CHARACTER SET ucs2, ADD y VARCHAR(3), MODIFY a VARCHAR(20), ADD tt TEXT, ADD x CHAR(3) COLLATE latin1_bin, ADD e ENUM('b','ß') CHARACTER SET latin1, ADD bb VARCHAR(4) CHARACTER SET binary, ADD i INT FIRST
? ALTER TABLE widths2 ADD z2 VARCHAR(3), CONVERT TO CHARACTER SET utf8mb4, CHANGE b b2 TEXT
SET @mode = @@sql_mode, SESSION sql_mode = 'ORACLE'
CREATE TABLE o1 (a VARCHAR2(10), b NUMBER(10,2), c RAW(5), d CLOB, e DATE, n NUMBER, o NUMBER(5), p BLOB, v VARCHAR(5), t TIME(2), ts TIMESTAMP, y YEAR, i INTEGER, x TEXT, dt DATETIME(3), f FLOAT, r REAL, dp DOUBLE PRECISION, m DECIMAL(5,1), ch CHAR(3), bb BOOLEAN, en ENUM('a'), l LONG, u NUMBER(5,1) UNSIGNED, "q ""z" INT)
ALTER TABLE o1 ADD q BLOB(10), MODIFY b VARCHAR2(5) CHARACTER SET latin1 NOT NULL, CHANGE e e2 DATE FIRST
SET SESSION sql_mode = @mode
CREATE TABLE moves (a INT, b INT, c INT, d INT, e INT)
ALTER TABLE moves ADD x INT AFTER a, MODIFY a INT AFTER e
ALTER TABLE moves MODIFY b BIGINT AFTER e, ADD y INT AFTER b, MODIFY e INT FIRST, ADD z INT AFTER e
ALTER TABLE moves CHANGE c cc INT AFTER d, ADD w INT AFTER cc, MODIFY d INT AFTER a
ALTER TABLE moves MODIFY x INT AFTER y, MODIFY y INT AFTER x
ALTER TABLE moves MODIFY x INT FIRST, MODIFY y INT FIRST, ADD v INT AFTER x, ADD u INT FIRST
ALTER TABLE moves CHANGE a aa INT AFTER z, MODIFY z INT AFTER w, ADD t INT AFTER z
ALTER TABLE moves DROP b, ADD b INT AFTER aa, MODIFY aa INT FIRST
ALTER TABLE moves ADD s INT AFTER dd, CHANGE d dd INT FIRST, CHANGE u uu INT AFTER s
CREATE TABLE gipk (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY, a INT, b INT)
? ALTER TABLE gipk ADD c BIGINT UNSIGNED NOT NULL FIRST, MODIFY b INT FIRST, ADD d INT AFTER my_row_id
ALTER TABLE gipk ALTER my_row_id SET VISIBLE, ADD e INT FIRST
ALTER TABLE gipk ADD f INT FIRST
CREATE TABLE nogipk (my_row_id BIGINT NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY, a INT)
ALTER TABLE nogipk ADD f INT FIRST
CREATE TABLE labels (e ENUM('a','b'), f SET('x')) CHARACTER SET latin1
ALTER TABLE labels CONVERT TO CHARACTER SET utf8mb4
? ALTER TABLE labels CONVERT TO CHARACTER SET ucs2
CREATE TABLE labels8 (e ENUM('é','b'), f SET('ü')) CHARACTER SET utf8
ALTER TABLE labels8 CONVERT TO CHARACTER SET utf8mb4
? ALTER TABLE labels8 CONVERT TO CHARACTER SET latin1
CREATE TABLE labels1 (e ENUM('é','b'), f SET('ü'), g TEXT) CHARACTER SET latin1
ALTER TABLE labels1 CONVERT TO CHARACTER SET latin1
CREATE TABLE js4 (j JSON, a VARCHAR(5)) CHARACTER SET utf8mb4
ALTER TABLE js4 CONVERT TO CHARACTER SET latin1
ALTER TABLE js4 CONVERT TO CHARACTER SET utf8mb4
CREATE TABLE js5 (j LONGTEXT CHARACTER SET latin1 CHECK (json_valid(j)), a VARCHAR(5)) CHARACTER SET utf8mb4
ALTER TABLE js5 CONVERT TO CHARACTER SET latin1
ALTER TABLE js5 CONVERT TO CHARACTER SET utf8mb4
CREATE TABLE js6 (j LONGTEXT CHECK (json_valid(j)), k JSON, l LONGTEXT CHARACTER SET ascii CHECK (json_valid(l))) CHARACTER SET latin1
ALTER TABLE js6 CONVERT TO CHARACTER SET utf8
CREATE TABLE js7 (a JSON, b LONGTEXT, c LONGTEXT CHECK (json_valid(a)))
ALTER TABLE js7 RENAME COLUMN a TO ` + "`group`" + `, RENAME COLUMN b TO a
CREATE TABLE collations (a INT COLLATE latin1_bin, b DATE COLLATE utf8_bin)
? CREATE TABLE collations2 (a BLOB COLLATE latin1_bin, b VARBINARY(5) COLLATE latin1_bin)
CREATE TABLE collations3 (a CHAR(3)) CHARSET=latin2 COLLATE=DEFAULT
? CREATE TABLE labels2 (a ENUM('ł','b') CHARACTER SET latin1)
CREATE TABLE uniq (id INT PRIMARY KEY, e VARCHAR(255), f VARCHAR(500) UNIQUE, g TEXT, UNIQUE KEY (e), UNIQUE KEY ee (e, f), UNIQUE (g(100))) CHARACTER SET utf8mb4
ALTER TABLE uniq ADD h VARCHAR(300), ADD UNIQUE hh (h)
CREATE UNIQUE INDEX h2 ON uniq (h, id)
? CREATE TABLE uniq2 (UNIQUE (a), a TEXT)
? CREATE TABLE uniq3 (a VARCHAR(255) UNIQUE) ENGINE=MyISAM CHARACTER SET utf8mb4
? CREATE TABLE uniq4 (a VARCHAR(769) UNIQUE) CHARACTER SET utf8mb4
? ALTER TABLE uniq ENGINE=MyISAM
CREATE TABLE failing (a INT, b INT)
CREATE OR REPLACE TABLE failing (b INT, a INT, KEY k (a), KEY k (a))
? CREATE TABLE IF NOT EXISTS failing (c INT, d INT)
SET @mode = @@sql_mode, SESSION sql_mode = 'MAXDB'
CREATE TABLE maxdb (a TIMESTAMP, b INT)
SET SESSION sql_mode = @mode
SET NAMES utf8mb4
CREATE TABLE ` + "`t😀` (`😀` INT, b INT)" + `
SET NAMES utf8
CREATE TABLE mygipk (my_row_id BIGINT UNSIGNED NOT NULL INVISIBLE PRIMARY KEY, a BIGINT UNSIGNED NOT NULL)
? ALTER TABLE mygipk ADD f BIGINT UNSIGNED NOT NULL FIRST
CREATE TABLE mygipk2 (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY, a BIGINT UNSIGNED NOT NULL) ENGINE=MyISAM
? ALTER TABLE mygipk2 ADD f BIGINT UNSIGNED NOT NULL FIRST
SET NAMES latin1
CREATE TABLE sent (` + "`é` INT, e ENUM('ä','b')" + `) CHARACTER SET utf8mb4
CREATE TABLE ctas3 AS SELECT 1 AS ` + "`é`" + `
CREATE TABLE ctas4 (` + "`ü` ENUM('ä')) AS SELECT 1 AS `é`" + `
CREATE TEMPORARY TABLE tmp1 (` + "`é` INT" + `)
? CREATE TABLE liked LIKE tmp1
DROP TABLE ` + "`ctas3`, `liked`" + `
CREATE TABLE ` + "`dröp`" + ` (a INT)
DROP TABLE ` + "`dröp`" + `
CREATE TABLE ` + "`drüp`" + ` (a INT)
RENAME TABLE ` + "`drüp` TO `dräp`" + `
DROP TABLE tmp1
CREATE TABLE shadow (a INT, b INT)
SET SESSION binlog_format=STATEMENT
CREATE TABLE liked0 LIKE shadow
CREATE TEMPORARY TABLE shadow (b INT, a INT)
? CREATE TABLE liked1 LIKE shadow
? CREATE OR REPLACE TABLE liked3 LIKE shadow
CREATE TABLE liked2 LIKE keys3
DROP TEMPORARY TABLE shadow
SET SESSION binlog_format=ROW
SET character_set_client = 47
CREATE TABLE sent2 (` + "`é` INT, e ENUM('ä','b')" + `) CHARACTER SET utf8mb4
ALTER TABLE sent2 ADD ` + "`ö` INT, CHANGE `é` `ä`" + ` INT
SET NAMES utf8
ALTER TABLE texts CONVERT TO CHARACTER SET latin1
ALTER TABLE m ADD COLUMN IF NOT EXISTS j INT, ADD COLUMN IF NOT EXISTS ine INT, DROP COLUMN IF EXISTS nope, MODIFY COLUMN IF EXISTS nope INT
ALTER TABLE IF EXISTS m ADD COLUMN ifx INT
ALTER TABLE m WAIT 5 ADD COLUMN waited INT
ALTER ONLINE TABLE m ADD COLUMN onl INT
ALTER IGNORE TABLE m ADD COLUMN ign INT
ALTER TABLE m ADD FULLTEXT ft (b), ADD SPATIAL INDEX (nope)
ALTER TABLE m ADD KEY kk (b(3) ASC), DROP KEY kk, DISABLE KEYS
ALTER TABLE m ORDER BY pk, g DESC
ALTER TABLE m ADD CHECK (pk > 0), FORCE
ALTER TABLE m ENCRYPTION='N'
ALTER TABLE .m ADD dotted INT
ALTER TABLE parts ADD COLUMN c INT
ALTER TABLE parts REORGANIZE PARTITION p0, p1 INTO (PARTITION q0 VALUES LESS THAN (1990), PARTITION q1 VALUES LESS THAN MAXVALUE)
ALTER TABLE parts DROP PARTITION q0
ALTER TABLE parts TRUNCATE PARTITION q1
ALTER TABLE parts REMOVE PARTITIONING
ALTER TABLE parts PARTITION BY HASH(a) PARTITIONS 4
ALTER TABLE parts ADD COLUMN d INT, COMMENT 'x' PARTITION BY KEY (a) PARTITIONS 2
ALTER TABLE parts ADD COLUMN e INT FIRST REMOVE PARTITIONING
ALTER TABLE parts DROP e, ADD f INT PARTITION BY KEY (a)
ALTER TABLE parts ADD COLUMN IF NOT EXISTS (a INT, g INT)
ALTER TABLE keys2 DROP FOREIGN KEY fk, DROP COLUMN b, ADD CONSTRAINT PRIMARY KEY (a)
ALTER TABLE keys3 DROP PRIMARY KEY
ALTER TABLE types MODIFY i1 TINYINT(1), MODIFY i3 BOOL NOT NULL, MODIFY i7 INT UNSIGNED
ALTER TABLE sets MODIFY e ENUM('a','b') NOT NULL DEFAULT 'a'
ALTER TABLE sets MODIFY e ENUM('a','b') NOT NULL DEFAULT 'a', MODIFY f SET('q','p','r')
ALTER TABLE times MODIFY i TIMESTAMP NOT NULL, MODIFY b TIME(6)
RENAME TABLE a TO b0
RENAME TABLE b0 TO tmp, keys1 TO b0, tmp TO keys1
RENAME TABLES a2 TO a2x
ALTER TABLE a3 RENAME TO a3x
ALTER TABLE a3x RENAME a3y, ADD COLUMN with_rename INT
ALTER TABLE $.a4 RENAME AS $.a4x
DROP TABLE IF EXISTS nothing, a5
DROP TABLE a2x
TRUNCATE TABLE m
CREATE OR REPLACE TABLE m2 (x INT)
CREATE OR REPLACE TABLE m2 (y VARCHAR(3))
CREATE TABLE ` + "`special\"[``]$' ` (`count(``c1``)` INT)" + `
CREATE TABLE 表 (` + "`列`" + ` INT, ä VARCHAR(3))
SET STATEMENT max_statement_time=100 FOR ALTER TABLE m2 ADD COLUMN stm INT
CREATE VIEW v AS SELECT * FROM m
DROP VIEW v
CREATE TRIGGER tr BEFORE INSERT ON m FOR EACH ROW SET NEW.g = 1
DROP TRIGGER tr
CREATE PROCEDURE pr() BEGIN ALTER TABLE m ADD x INT; END
DROP PROCEDURE pr
ANALYZE TABLE m
ALTER DATABASE $ CHARACTER SET latin1
CREATE TABLE after_db (a VARCHAR(10))
ALTER DATABASE COLLATE utf8_general_ci
CREATE TABLE after_db2 (a VARCHAR(10), b CHAR(3) CHARACTER SET DEFAULT)
ALTER SCHEMA $ /*!40100 DEFAULT CHARACTER SET utf8mb4 */
CREATE TABLE after_db3 (a VARCHAR(10)) DEFAULT CHARSET=DEFAULT
CREATE TEMPORARY TABLE after_db3 (b INT)
DROP TEMPORARY TABLE after_db3
CREATE TABLE oldtimes (a INT, b INT, c VARCHAR(3), PRIMARY KEY (a))
ALTER TABLE oldtimes DROP COLUMN a, DROP PRIMARY KEY, ADD PRIMARY KEY (b)
ALTER TABLE oldtimes CHANGE COLUMN b c2 INT, CHANGE COLUMN c b VARCHAR(3) FIRST
ALTER TABLE oldtimes RENAME COLUMN b TO bb
ALTER TABLE oldtimes DROP COLUMN c2
`

// D6: what is made of each statement as logged is what the server itself shows after it.
func TestStatementsFollowed(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			c := newConnector(t, s, "latest", db+".*")
			ctx := t.Context()
			ses, sv, err := c.connect(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer ses.close()
			charsets, err := ses.charsets(ctx, sv)
			if err != nil {
				t.Fatal(err)
			}
			cat := &catalog{ctx: ctx, c: c, addr: s.Addr, sv: sv}
			defer cat.close()
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			if _, err := sql.Execute("SET NAMES utf8"); err != nil {
				t.Fatal(err)
			}
			from := start(t, c)
			// What the server shows after each statement, and the statements as logged.
			type step struct {
				said    string
				present map[ddl.Name]*ddl.Table
				loose   bool
			}
			var steps []step
			scope := func(n string) bool { return n == db }
			base, err := cat.read(ses, scope, nil)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(statementsOfDDL, "# x INT\n", "# x INT\x00")
			for _, line := range strings.Split(text, "\n") {
				line, loose := strings.CutPrefix(strings.ReplaceAll(line, "\x00", "\n"), "? ")
				if line == "" {
					continue
				}
				line = strings.ReplaceAll(line, "$.", db+".")
				line = strings.ReplaceAll(line, " $ ", " "+db+" ")
				if _, err := sql.Execute(line); err != nil {
					t.Logf("refused: %s: %v", line, err)
					continue
				}
				if _, err := sql.Execute(fmt.Sprintf("CREATE VIEW mark%d AS SELECT 1", len(steps))); err != nil {
					t.Fatal(err)
				}
				now, err := cat.read(ses, scope, nil)
				if err != nil {
					t.Fatal(err)
				}
				steps = append(steps, step{line, now, loose})
			}
			if len(steps) < 80 {
				t.Fatalf("the server took only %d statements", len(steps))
			}
			end, err := c.End(ctx)
			if err != nil {
				t.Fatal(err)
			}
			known := followed{db: db, m: base}
			n, loose := 0, map[ddl.Name]bool{}
			look := &names{ctx: ctx, r: &reader{c: c, id: c.identity(7)}, cat: cat, sv: sv, addr: s.Addr, charsets: charsets}
			srv := sv.ddl()
			err = look.Scan(from.Position, end, func(logged *binlog.Statement) {
				st := schema.StatementOf(logged, charsets)
				if n == len(steps) || st.Schema != db {
					return
				}
				changes := ddl.Apply(st, srv, known)
				for _, x := range changes {
					switch x.State {
					case ddl.Known:
						known.m[x.Name] = x.Table
					case ddl.Unknown:
						known.m[x.Name] = nil
					default:
						delete(known.m, x.Name)
					}
				}
				if !strings.Contains(st.Text, fmt.Sprintf("mark%d", n)) {
					return
				}
				for _, name := range slices.SortedFunc(maps.Keys(merge(known.m, steps[n].present)), func(a, b ddl.Name) int { return strings.Compare(a.Table, b.Table) }) {
					want, there := steps[n].present[name]
					got, have := known.m[name]
					switch {
					case have && got == nil && there && (steps[n].loose || loose[name]):
						loose[name] = true
						known.m[name] = want
					case there != have, got == nil:
						t.Errorf("%s\n%s: is it there: got %v, want %v; followed: %v", steps[n].said, name, have, there, got != nil)
						known.m[name] = want
						if !there {
							delete(known.m, name)
						}
					default:
						if a, b := shown(got), shown(want); a != b {
							t.Errorf("%s\n%s:\n got %s\nwant %s", steps[n].said, name, a, b)
							known.m[name] = want
						}
					}
				}
				n++
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(steps) {
				t.Errorf("%d of %d steps seen", n, len(steps))
			}
		})
	}
}

func merge(a, b map[ddl.Name]*ddl.Table) map[ddl.Name]bool {
	m := map[ddl.Name]bool{}
	for n := range a {
		m[n] = true
	}
	for n := range b {
		m[n] = true
	}
	return m
}

// followed is what has been made of the statements so far.
type followed struct {
	db string
	m  map[ddl.Name]*ddl.Table
}

func (f followed) Lookup(n ddl.Name) (ddl.State, *ddl.Table) {
	t, ok := f.m[n]
	switch {
	case !ok:
		return ddl.Absent, nil
	case t == nil:
		return ddl.Unknown, nil
	}
	return ddl.Known, t
}

func (f followed) Names(schema string) (out []ddl.Name) {
	for n := range f.m {
		if n.Table != "" && (schema == "" || n.Schema == schema) {
			out = append(out, n)
		}
	}
	return out
}

// shown writes what decoding depends on.
func shown(t *ddl.Table) string {
	var b strings.Builder
	alias := func(s string) string {
		if s == "utf8mb3" {
			return "utf8"
		}
		return s
	}
	fmt.Fprintf(&b, "%s (", alias(t.Charset))
	for _, c := range t.Columns {
		text, _, _ := strings.Cut(c.SQLType, " /*")
		if c.Members != nil {
			text = fmt.Sprintf("%q", c.Members)
		}
		if c.Charset == "binary" {
			c.Charset = "" // some servers show it
		}
		fmt.Fprintf(&b, "%s %s [%s] %s", c.Name, c.DataType, text, alias(c.Charset))
		if c.Octets > 0 {
			fmt.Fprintf(&b, " octets=%d", c.Octets)
		}
		if c.Precision > 0 {
			fmt.Fprintf(&b, " (%d,%d)", c.Precision, c.Scale)
		}
		if c.Fraction > 0 {
			fmt.Fprintf(&b, " fraction=%d", c.Fraction)
		}
		if c.Hidden != "" {
			b.WriteString(" hidden")
		} else if !c.Nullable && c.DataType != "timestamp" {
			b.WriteString(" NOT NULL")
		}
		if c.Invisible {
			b.WriteString(" invisible")
		}
		if c.JSON {
			b.WriteString(" json")
		}
		if c.Key > 0 {
			fmt.Fprintf(&b, " key=%d", c.Key)
		}
		b.WriteString(", ")
	}
	return b.String() + ")"
}
