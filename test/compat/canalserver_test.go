//go:build integration

package compat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// canalServer is a whole Canal, as it lies in Maven.
var canalServer = []string{"com.alibaba.otter:canal.server:1.1.7", "com.alibaba.otter:canal.instance.manager:1.1.7"}

// startCanal starts a Canal that reads db from the position on and serves the destination; it returns its address and what ends it. keep says
// where it keeps the cursors of its clients.
func startCanal(t *testing.T, db *testenv.Server, destination, file, offset, filter string, keep ...string) (at string, stop func()) {
	t.Helper()
	address := process.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	host, dbPort, _ := net.SplitHostPort(db.Addr)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := testenv.Java(t, ctx, canalServer, filepath.Join("java", "CanalServer.java"), append([]string{port, destination, host, dbPort, db.ReplUser, db.ReplPassword, file, offset, filter}, keep...)...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = in.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("Canal's server: %v\n%.4000s", err, &errs)
		}
		cancel()
	})
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "serving\n" {
		t.Fatalf("Canal's server says %q, %v\n%.4000s", line, err, &errs)
	}
	return address, stop
}

// canalEntries returns what Canal's client is told about each entry, up to a row of the table last.
func canalEntries(t *testing.T, address, destination, filter, last string) (entries []map[string]string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(address)
	lines := java(t, canalClient("1.1.8"), "CanalEntries", nil, host, port, destination, filter, last)
	entry := map[string]string{}
	for _, line := range lines {
		if len(line) == 0 {
			entries = append(entries, entry)
			if entry["header.tableName"] == last {
				return entries // what else the batch holds depends on when it was asked for
			}
			entry = map[string]string{}
			continue
		}
		name, value, _ := strings.Cut(string(line), "\t")
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		entry[name] = string(b)
	}
	return entries
}

// canalTables are tables whose definition stays: Canal asks for it when the first row comes.
var canalTables = []string{
	"ints (id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, su SMALLINT UNSIGNED, m MEDIUMINT, mu MEDIUMINT UNSIGNED, iu INT UNSIGNED, b BIGINT, bu BIGINT UNSIGNED, z INT(7) UNSIGNED ZEROFILL, ok BOOL, bits BIT(9), y YEAR)",
	"numbers (id INT PRIMARY KEY, d DECIMAL(20,4), e DECIMAL(65,30), n DECIMAL(10), f FLOAT, g DOUBLE, h FLOAT(7,2))",
	"times (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), t6 TIME(6), dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL)",
	"texts (id INT PRIMARY KEY, c CHAR(10), v VARCHAR(40), l VARCHAR(40) CHARACTER SET latin1, g VARCHAR(40) CHARACTER SET gbk, x TEXT, lt LONGTEXT, e ENUM('a','b','c'), st SET('x','y','z'), j JSON)",
	"bytes (id INT PRIMARY KEY, b BINARY(4), v VARBINARY(20), bl BLOB, tb TINYBLOB, p POINT)",
	"keys_ (a INT, b VARCHAR(10), c INT, PRIMARY KEY (b, a))",
	"nokey (a INT, b VARCHAR(10))",
	"wide (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, a TINYINT(1) UNSIGNED, b BIT(64), c SMALLINT(4) ZEROFILL, d DECIMAL(5,0) UNSIGNED, e DOUBLE UNSIGNED, f FLOAT(7,3) UNSIGNED, g NUMERIC(65,0), h REAL, PRIMARY KEY (id))",
	"gen (id INT PRIMARY KEY, a INT, b INT GENERATED ALWAYS AS (a+1) STORED, c INT GENERATED ALWAYS AS (a*2) VIRTUAL, d VARCHAR(10) DEFAULT 'x' COMMENT 'it''s, (a) comment')",
	"blobs (id INT PRIMARY KEY, tt TINYTEXT, mt MEDIUMTEXT, tb TINYBLOB, mb MEDIUMBLOB, lb LONGBLOB, nc NCHAR(5), nv NVARCHAR(5), cb CHAR(4) CHARACTER SET binary, u2 VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, asc_ VARCHAR(10) CHARACTER SET ascii)",
	"geo (id INT PRIMARY KEY, g GEOMETRY, l LINESTRING, po POLYGON, mp MULTIPOINT)",
	"par (id INT PRIMARY KEY, c INT) ENGINE=InnoDB",
	"chi (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES par (id) ON DELETE CASCADE)",
	"uniq (id INT, u INT NOT NULL, UNIQUE KEY (u))",
	"logd (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(20))",
	"ens (id INT PRIMARY KEY, e ENUM('a','b,c','d''e','') , s SET('p','q','r','s','t','u','v','w','x'), js JSON, y4 YEAR, d6 DATETIME(6), t2 TIME(2), ts2 TIMESTAMP(2) NULL)",
}

// canalCorners are statements whose entries are compared. OTHER is another schema.
var canalCorners = []string{
	"SET NAMES utf8mb4", "SET time_zone='+00:00', sql_mode=''",
	"INSERT INTO ints VALUES (1,-128,255,-32768,65535,-8388608,16777215,4294967295,-9223372036854775808,18446744073709551615,42,1,b'111111111',2155)," +
		"(2,127,127,32767,32767,8388607,8388607,2147483647,9223372036854775807,9223372036854775807,0,0,0,1901)," +
		"(3,0,128,0,32768,0,8388608,2147483648,0,9223372036854775808,1,NULL,b'1',0),(4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
	"UPDATE ints SET tu=200, t=5, ok=NULL WHERE id<=2",
	"INSERT INTO numbers VALUES (1,5184.00,0.1,12,345.678894,1e300,1.5),(2,-9999999999999999.9999,99999999999999999999999999999999999.999999999999999999999999999999,-1234567890,1e10,0.1,99999.99),(3,0,0,0,0,-0.0,0),(4,NULL,NULL,NULL,NULL,NULL,NULL)," +
		"(5,0.0001,1.000000000000000000000000000100,9999999999,1.17549435e-38,2.2250738585072014e-308,-0.01),(6,1.5,-1.5,7,16777216,123456789012345678,3)",
	"UPDATE numbers SET d=d+1, f=f WHERE id IN (1,3)",
	"INSERT INTO times VALUES (1,'2024-02-29','12:34:56','-00:00:00.100','838:59:58.999999','2024-02-29 12:34:56','2024-02-29 12:34:56.789','9999-12-31 23:59:59.999999','2024-02-29 12:34:56','2038-01-19 03:14:07.999999')," +
		"(2,'0000-00-00','-838:59:59','00:00:00','-00:00:00.000001','0000-00-00 00:00:00','1000-01-01 00:00:00','2024-01-01 00:00:00.000001','1970-01-01 00:00:01','0000-00-00 00:00:00')," +
		"(3,'2024-00-10','00:00:00','100:00:00','00:00:00.5','2024-01-00 01:02:03','2024-01-01 00:00:00.1','2024-01-01 00:00:00',NULL,NULL),(4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
	"INSERT INTO texts VALUES (1,'a ','ä漢😀','äé','漢字',REPEAT('x',300),'\"q\" \\\\ \n\t','b','x,z','{\"a\": [1, 2.50, \"é\"]}'),(2,'','','','','','','a','',NULL),(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
	"UPDATE texts SET v=CONCAT(v,'!'), x=x, e='c', st='y' WHERE id=1",
	"INSERT INTO bytes VALUES (1,X'01020000',X'00FF80',X'00010203FF',X'',ST_GeomFromText('POINT(1 2)')),(2,X'00',X'00',NULL,X'7F',NULL),(3,NULL,NULL,NULL,NULL,NULL)",
	"INSERT INTO keys_ VALUES (1,'a',1),(2,'b',2)",
	"UPDATE keys_ SET b='c' WHERE a=1",
	"UPDATE keys_ SET c=c+1",
	"INSERT INTO nokey VALUES (1,'x'),(1,'x'),(NULL,NULL)",
	"UPDATE nokey SET b='y'",
	"DELETE FROM nokey WHERE a=1",
	"DELETE FROM keys_",
	"BEGIN", "INSERT INTO keys_ VALUES (9,'z',1)", "UPDATE ints SET t=t WHERE id=1", "UPDATE keys_ SET c=5", "DELETE FROM keys_", "COMMIT",
	"BEGIN", "INSERT INTO keys_ VALUES (10,'z',1)", "ROLLBACK",
	"CREATE TABLE made (id INT PRIMARY KEY, v INT) COMMENT 'x'",
	"ALTER TABLE made ADD COLUMN w VARCHAR(10) DEFAULT 'a,b', ADD INDEX i (v)",
	"CREATE INDEX i2 ON made (v)",
	"DROP INDEX i2 ON made",
	"CREATE TABLE copy LIKE made",
	"RENAME TABLE copy TO copied",
	"TRUNCATE TABLE copied",
	"DROP TABLE copied",
	"DROP TABLE IF EXISTS copied",
	"CREATE TABLE a1 (id INT)", "CREATE TABLE a2 (id INT)",
	"ALTER TABLE a1 ADD INDEX i (id), ADD c INT", "ALTER TABLE a1 ADD UNIQUE u (c)", "ALTER TABLE a1 ADD CONSTRAINT u2 UNIQUE (c, id)", "ALTER TABLE a1 DROP INDEX u2, DROP KEY u",
	"ALTER TABLE a1 DROP KEY i", "ALTER TABLE a1 ADD PRIMARY KEY (id)", "ALTER TABLE a1 DROP PRIMARY KEY",
	"RENAME TABLE a1 TO a3, a2 TO a1, a3 TO a2", "DROP TABLE a1, a2",
	"CREATE DATABASE OTHER", "CREATE TABLE OTHER.t (id INT PRIMARY KEY)", "INSERT INTO OTHER.t VALUES (1)", "DROP DATABASE OTHER",
	"CREATE OR REPLACE VIEW vw AS SELECT 1 AS one", "DROP VIEW vw",
	"INSERT INTO wide VALUES (1,1,b'1',42,12345,1.5,1234.567,99999999999999999999999999999999999999999999999999999999999999999,3.25),(18446744073709551000,255,b'1111111111111111111111111111111111111111111111111111111111111111',-3,0,0,0,-1,-2.5),(3,0,b'0',9999,99999,1e15,0.001,0,1e-5)",
	"REPLACE INTO wide (id,a) VALUES (1,200)",
	"INSERT INTO wide (id,a) VALUES (1,3) ON DUPLICATE KEY UPDATE a=a+1",
	"INSERT INTO gen (id,a) VALUES (1,5),(2,NULL)", "UPDATE gen SET a=6 WHERE id=1",
	"INSERT INTO blobs VALUES (1,'tt','mt',X'00',X'FF00',X'0102','nc','nv',X'41000000','ü','a'),(2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),(3,'',REPEAT('ü',40000),REPEAT(X'80',200),REPEAT(X'81',70000),'','','','','','')",
	"UPDATE blobs SET lb=REPEAT(X'c3',3000), cb=X'41' WHERE id=2",
	"INSERT INTO geo VALUES (1,ST_GeomFromText('POINT(0 0)'),ST_GeomFromText('LINESTRING(0 0,1 1)'),ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))'),ST_GeomFromText('MULTIPOINT(1 1,2 2)')),(2,NULL,NULL,NULL,NULL)",
	"INSERT INTO par VALUES (1,1),(2,2)", "INSERT INTO chi VALUES (1,1),(2,1),(3,2)", "DELETE FROM par WHERE id=1", "UPDATE par p JOIN chi c ON c.p=p.id SET p.c=9, c.id=30", "DELETE p, c FROM par p JOIN chi c ON c.p=p.id",
	"INSERT INTO uniq VALUES (NULL,1),(2,2)", "UPDATE uniq SET u=3 WHERE u=1",
	"CREATE TRIGGER trg AFTER INSERT ON par FOR EACH ROW INSERT INTO logd (t) VALUES (NEW.id)", "INSERT INTO par VALUES (7,7)", "DROP TRIGGER trg",
	"INSERT INTO ens VALUES (1,'b,c','p,x','[]',2024,'2024-01-01 00:00:00.100000','-12:00:00.10','2024-01-01 00:00:00.50'),(2,'','','{\"k\": null, \"n\": 1e20, \"s\": \"\\\\u0001\\\\n\", \"b\": true}',0,NULL,NULL,NULL),(3,NULL,NULL,'\"x\"',NULL,NULL,NULL,NULL)",
	"UPDATE ens SET js='{\"a\": -0.5, \"d\": 12345678901234567890, \"arr\": [[], {}, [1]]}' WHERE id=1",
	"BEGIN", "INSERT INTO keys_ VALUES (20,'s',1)", "SAVEPOINT a", "INSERT INTO keys_ VALUES (21,'s',1)", "ROLLBACK TO a", "INSERT INTO keys_ VALUES (22,'s',1)", "RELEASE SAVEPOINT a", "COMMIT",
	"/* c */ ALTER TABLE made /* x */ ADD COLUMN z1 INT -- tail",
	"ALTER TABLE made MODIFY w VARCHAR(20)",
	"ALTER TABLE made RENAME COLUMN z1 TO z2", "ALTER TABLE made RENAME INDEX i TO i9", "ALTER TABLE made CONVERT TO CHARACTER SET utf8mb4",
	"CREATE TABLE pt (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
	"ALTER TABLE pt TRUNCATE PARTITION p0", "ALTER TABLE pt DROP PARTITION p0", "DROP TABLE IF EXISTS pt CASCADE",
	"CREATE TABLE IF NOT EXISTS made (id INT)", "CREATE UNIQUE INDEX ux ON made (w, v DESC)", "DROP INDEX `ux` ON `made`",
	"ALTER TABLE made RENAME AS made2", "ALTER TABLE made2 RENAME made", "RENAME TABLE made TO made3", "TRUNCATE made3", "DROP TABLE `made3` /* generated */",
}

// difference is one between the entries of Canal and ours that docs/compatibility.md explains.
type difference struct {
	name    string
	where   *regexp.Regexp // attributes
	allowed func(e pair, attribute, theirs, ours string) bool
}

// pair is one entry as both show it.
type pair struct{ theirs, ours map[string]string }

// declared is the type of the column that an attribute is of.
func (e pair) declared(attribute string) string {
	return e.ours[attribute[:strings.LastIndexByte(attribute, '.')]+".mysqlType"]
}

func (e pair) isNull(attribute string) bool {
	return e.ours[attribute[:strings.LastIndexByte(attribute, '.')]+".isNull"] == "true"
}

var gtidText = regexp.MustCompile(`^[0-9a-f-]{30,}:\d+$|^\d+-\d+-\d+$`)

func equalNumbers(a, b string) bool {
	x, ok := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok && ok2 && x.Cmp(y) == 0
}

var canalDifferences = []difference{
	{"table ids", regexp.MustCompile(`^change\.tableId$`), func(_ pair, _, _, ours string) bool { return ours == "0" }},
	{"the transaction's GTID", regexp.MustCompile(`^header\.(gtid|props\.curtGtid)$`), func(_ pair, _, theirs, ours string) bool { return theirs == "" && gtidText.MatchString(ours) }},
	{"what a statement is about", regexp.MustCompile(`^header\.props\.tables$`), func(e pair, _, theirs, ours string) bool {
		return e.ours["change.isDdl"] == "true" && theirs == "" && strings.HasPrefix(ours, `[{"action":`)
	}},
	{"unsigned types", regexp.MustCompile(`\.sqlType$`), func(e pair, at, _, _ string) bool { return strings.Contains(e.declared(at), "unsigned") }},
	{"the type of a SET that is NULL", regexp.MustCompile(`\.sqlType$`), func(e pair, at, _, _ string) bool { return strings.HasPrefix(e.declared(at), "set(") && e.isNull(at) }},
	{"where a transaction begins", regexp.MustCompile(`^header\.(logfileOffset|eventLength)$`), func(e pair, at, theirs, ours string) bool {
		if e.ours["type"] != "TRANSACTIONBEGIN" {
			return false
		}
		a, _ := strconv.Atoi(theirs)
		b, _ := strconv.Atoi(ours)
		return at == "header.eventLength" && b == 0 || at == "header.logfileOffset" && b < a && a-b < 300
	}},
	{"a unique key in the place of the primary key", regexp.MustCompile(`\.isKey$`), func(e pair, _, theirs, ours string) bool {
		return e.ours["header.tableName"] == "uniq" && theirs == "false" && ours == "true"
	}},
	{"the type of a JSON document that is NULL", regexp.MustCompile(`\.sqlType$`), func(e pair, at, _, _ string) bool { return e.declared(at) == "json" && e.isNull(at) }},
	{"zero bytes at the end of BINARY", regexp.MustCompile(`\.value$`), func(e pair, at, theirs, ours string) bool {
		return strings.HasPrefix(e.declared(at), "binary(") && strings.TrimRight(ours, "\x00") == theirs
	}},
	{"zeros at the end of DECIMAL", regexp.MustCompile(`\.value$`), func(e pair, at, theirs, ours string) bool {
		return strings.HasPrefix(e.declared(at), "decimal(") && equalNumbers(theirs, ours)
	}},
	{"how FLOAT and DOUBLE are written", regexp.MustCompile(`\.value$`), func(e pair, at, theirs, ours string) bool {
		bits := 64
		if strings.HasPrefix(e.declared(at), "float") {
			bits = 32
		} else if !strings.HasPrefix(e.declared(at), "double") {
			return false
		}
		a, err := strconv.ParseFloat(theirs, bits)
		b, err2 := strconv.ParseFloat(ours, bits)
		return err == nil && err2 == nil && a == b
	}},
	{"how numbers in JSON documents are written", regexp.MustCompile(`\.value$`), func(e pair, at, theirs, ours string) bool {
		return e.declared(at) == "json" && strings.ReplaceAll(theirs, "1.0E20", "1e20") == ours
	}},
	{"character sets other than Unicode", regexp.MustCompile(`^row\d+\.\w+\.(b|l|g)\.value$`), func(e pair, at, theirs, ours string) bool {
		return strings.HasPrefix(e.declared(at), "varchar(") && strings.ContainsRune(theirs, utf8.RuneError) && !strings.ContainsRune(ours, utf8.RuneError)
	}},
}

// comparable leaves out entries that only one of the two has, by the rules of docs/compatibility.md, and statements of others
// than this test in databases of their own, some of which Canal passes on as it cannot read them.
func comparable(entries []map[string]string, schema string, begins bool) (out []map[string]string) {
	open := false // a row change has come since the last end
	for _, e := range entries {
		foreign := e["change.isDdl"] == "true" && !strings.HasPrefix(e["change.ddlSchemaName"], schema)
		switch {
		case e["type"] == "TRANSACTIONBEGIN":
			open = false
			if !begins {
				continue
			}
		case e["type"] == "TRANSACTIONEND":
			if !open {
				if n := len(out); n > 0 && out[n-1]["type"] == "TRANSACTIONBEGIN" {
					out = out[:n-1]
				}
				continue
			}
			open = false
		case e["change.eventType"] == "QUERY" && (e["change.isDdl"] == "false" || strings.Contains(e["change.sql"], "VIEW") || strings.Contains(e["change.sql"], "TRIGGER")):
			continue // the text of a statement whose rows follow; a view, a trigger
		case foreign:
			continue
		case e["change.isDdl"] == "true":
			if n := len(out); n > 0 && out[n-1]["type"] == "TRANSACTIONBEGIN" {
				out = out[:n-1]
			}
		default:
			open = true
		}
		out = append(out, e)
	}
	return out
}

// TestSameEntriesAsCanal holds what Canal's client is told of our server to what it is told of a Canal that reads the same log: of each row change,
// statement and end of a transaction every attribute, except where docs/compatibility.md says why not.
func TestSameEntriesAsCanal(t *testing.T) {
	for _, kind := range []string{"mariadb", "mysql"} {
		t.Run(kind, func(t *testing.T) { sameEntries(t, kind) })
	}
}

func sameEntries(t *testing.T, kind string) {
	db := testenv.MySQL(t, kind)
	schema := db.Database()
	if err := workload.Create(db.Connect(""), schema); err != nil {
		t.Fatal(err)
	}
	db.Exec("CREATE TABLE " + schema + ".last (id INT PRIMARY KEY)")
	for _, columns := range canalTables {
		name, rest, _ := strings.Cut(columns, " ")
		db.Exec("CREATE TABLE " + schema + "." + name + " " + rest)
	}
	name, show := testenv.Name(t), "SHOW BINARY LOG STATUS"
	if db.MariaDB() {
		show = "SHOW MASTER STATUS"
	}
	status := db.Query(show)[0]
	address := process.FreeAddress(t)
	child := process.Start(t, fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
canal: { listen: %q }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    start: "%s:%s"
`, filepath.Join(t.TempDir(), "meta"), address, name, db.Addr, db.ReplUser, db.ReplPassword, schema, status[0], status[1]))
	child.AwaitReady()
	child.Await("nothing", patience, func(r *admin.Report) bool {
		if d := r.Destinations[0]; d.State != admin.Waiting || d.Connected || d.Position != "" {
			t.Errorf("read before anybody asks: %+v", d)
		}
		return true
	})
	filter := schema + `\..*`
	theirs, _ := startCanal(t, db, name, status[0], status[1], filter)

	conn := db.Connect(schema)
	for _, q := range canalCorners {
		if _, err := conn.Execute(strings.ReplaceAll(q, "OTHER", schema+"_other")); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	w := workload.NewWriter(db.Connect(""), schema, 0, 1, 23)
	if err := w.Run(context.Background(), 60); err != nil {
		t.Fatal(err)
	}
	db.Exec("INSERT INTO " + schema + ".last VALUES (1)")
	begins := !db.MariaDB() // whose GTID events stand for them, which Canal does not say
	want := comparable(canalEntries(t, theirs, name, filter, "last"), schema, begins)
	got := comparable(canalEntries(t, address, name, filter, "last"), schema, begins)
	child.Stop()

	seen, faults := map[string]int{}, 0
	for i := range min(len(got), len(want)) {
		e := pair{want[i], got[i]}
		for _, at := range slices.Sorted(maps.Keys(e.ours)) {
			if _, ok := e.theirs[at]; !ok {
				e.theirs[at] = ""
			}
		}
		for _, at := range slices.Sorted(maps.Keys(e.theirs)) {
			theirs, ours := e.theirs[at], e.ours[at]
			if theirs == ours {
				continue
			}
			d := slices.IndexFunc(canalDifferences, func(d difference) bool { return d.where.MatchString(at) && d.allowed(e, at, theirs, ours) })
			if d >= 0 {
				seen[canalDifferences[d].name]++
				continue
			}
			if faults++; faults <= 20 {
				t.Errorf("entry %d (%s %s %.200s): %s: Canal %q, we %q", i, e.theirs["type"], e.theirs["header.tableName"], e.theirs["change.sql"], at, theirs, ours)
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, Canal has %d", len(got), len(want))
	}
	for _, d := range canalDifferences {
		if onMySQL := strings.Contains(d.name, "JSON") || strings.Contains(d.name, "begins"); seen[d.name] == 0 && (kind == "mysql" || !onMySQL) {
			t.Errorf("no difference any more: %s", d.name)
		}
	}
	t.Logf("%d entries; differences: %v", len(got), seen)
}
