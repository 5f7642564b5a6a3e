//go:build integration

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/consume"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// A step is a statement with what is to be published of it; rows of the next generation follow it. $ stands for the captured
// database, % for one that is not captured, and what is in a list is in the header tables, with the actions and kinds of codec.AppendTables.
type step struct {
	sql     string
	maria   string // on MariaDB, if not the same
	tables  string // "create table $.item; rename table $.a -> $.b": empty: the statement is withheld
	canal   string // type and table
	maxwell string // type, database and table, and the columns of old and def
	outside bool   // it is about no captured table: ddl: all only
}

const secret = "GEHEIM-0815"

var steps = []step{
	{sql: "ALTER TABLE item ADD c INT, ADD INDEX (gen)", tables: "alter table $.item", canal: "ALTER $.item", maxwell: "table-alter $.item: id gen -> id gen c"},
	{sql: "CREATE TABLE copy LIKE item", tables: "create table $.copy like $.item", canal: "CREATE $.copy", maxwell: "table-create $.copy: ? -> id gen c"},
	{sql: "CREATE TABLE %.x (id INT)", tables: "create table %.x", canal: "CREATE %.x", maxwell: "table-create %.x", outside: true},
	{sql: "CREATE TABLE hushed (id INT)", tables: "create table $.hushed", canal: "CREATE $.hushed", maxwell: "table-create $.hushed: ? -> id", outside: true},
	{sql: "RENAME TABLE item TO t, copy TO item, t TO copy", tables: "rename table $.item -> $.t; rename table $.copy -> $.item; rename table $.t -> $.copy",
		canal: "RENAME $.t", maxwell: "table-alter $.item: id gen c -> id gen c"},
	{sql: "RENAME TABLE %.x TO came", tables: "rename table %.x -> $.came", canal: "RENAME $.came", maxwell: "table-alter %.x"},
	{sql: "ALTER TABLE came ADD k INT, RENAME TO %.x", tables: "alter table $.came; rename table $.came -> %.x", canal: "ALTER $.came", maxwell: "table-alter $.came"},
	{sql: "DROP TABLE %.x, copy", tables: "drop table %.x; drop table $.copy", canal: "ERASE %.x", maxwell: "table-drop %.x"},
	{sql: "TRUNCATE TABLE item", tables: "truncate table $.item", canal: "TRUNCATE $.item", maxwell: "table-truncate $.item"},
	{sql: "CREATE INDEX i ON item (c)", tables: "alter table $.item", canal: "CINDEX $.item", maxwell: "table-alter $.item: id gen c -> id gen c"},
	{sql: "ALTER TABLE item DROP INDEX i", tables: "alter table $.item", canal: "DINDEX $.item", maxwell: "table-alter $.item: id gen c -> id gen c"},
	{sql: "CREATE VIEW v AS SELECT 1 AS a", tables: "create view $.v", canal: "QUERY $.", maxwell: "statement $."},
	{sql: "ALTER DATABASE `$` CHARACTER SET utf8mb4", tables: "alter database $", canal: "QUERY $.", maxwell: "database-alter $."},
	{sql: "CREATE TABLE far (id INT) CONNECTION='mysql://u:" + secret + "@h/d/t' COMMENT='user \"u\", password \"" + secret + "\"'", tables: "create table $.far",
		canal: "CREATE $.far", maxwell: "table-create $.far: ? -> id"},
	{sql: "ALTER TABLE far /* password " + secret + " */ ADD e VARBINARY(99) AS (AES_ENCRYPT(id, '" + secret + "'))", tables: "alter table $.far", canal: "ALTER $.far", maxwell: "table-alter $.far: id -> id e"},
	{sql: "CREATE USER `u#` IDENTIFIED BY '" + secret + "'"},
	{sql: "/* app */\n  aLtEr\tuser /*!50000 `u#` */ IDENTIFIED BY '" + secret + "-2'"},
	{sql: "GRANT SELECT ON `$`.* TO `u#`"},
	{sql: "SET PASSWORD FOR `u#` = '*" + secret + "'", maria: "SET PASSWORD FOR `u#` = PASSWORD('" + secret + "')"},
	{sql: "CREATE SERVER `s#` FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h', USER 'u', PASSWORD '" + secret + "')"},
	{sql: "CREATE PROCEDURE p() BEGIN CREATE USER `w#` IDENTIFIED BY '" + secret + "'; SET PASSWORD FOR `w#` = '" + secret + "'; END"},
	{sql: "CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DISABLE DO ALTER USER `u#` IDENTIFIED BY '" + secret + "'"},
	{sql: "DROP EVENT e", tables: "drop event $.e", canal: "QUERY $.", maxwell: "statement $."},
	{sql: "DROP SERVER `s#`"},
	{sql: "DROP USER `u#`"},
	{sql: "DROP DATABASE `%`", tables: "drop database %", canal: "QUERY %.", maxwell: "database-drop %.", outside: true},
}

// in replaces $ and %, and # by what is short enough for a user.
func in(s, schema string) string {
	return strings.NewReplacer("$", schema, "%", schema+"_other", "#", schema[len(schema)-8:]).Replace(s)
}

// listed writes a header tables as steps do.
func listed(t *testing.T, header string) string {
	t.Helper()
	var list []map[string]string
	if err := json.Unmarshal([]byte(header), &list); err != nil {
		t.Fatalf("%v: %s", err, header)
	}
	var out []string
	for _, c := range list {
		name := func(prefix string) string {
			return strings.TrimSuffix(c[prefix+"database"]+"."+c[prefix+"name"], ".")
		}
		s := c["action"] + " " + c["kind"] + " "
		if c["old_name"] != "" {
			s += name("old_") + " -> "
		}
		s += name("")
		if c["like_name"] != "" {
			s += " like " + name("like_")
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// TestStatementsInOrder proves I3 and I4 of statements: each is published once, with all that it is about, between the rows before and behind it, whatever topics and
// partitions they lie in: by the numbers over all topics, by the lines of a file, and TRUNCATE within its partition. No secret is published, logged or kept.
func TestStatementsInOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := testenv.MySQL(t, kind)
			schema, prefix, cluster := db.Database(), testenv.Name(t), testenv.Kafka(t)
			c := db.Connect(schema)
			exec := func(sql string) {
				t.Helper()
				if _, err := c.Execute(in(sql, schema)); err != nil {
					t.Fatalf("%s: %v", in(sql, schema), err)
				}
			}
			exec("CREATE DATABASE `%`")
			t.Cleanup(func() {
				for _, sql := range []string{"DROP DATABASE IF EXISTS `%`", "DROP SERVER IF EXISTS `s#`", "DROP USER IF EXISTS `u#`"} {
					db.Exec(in(sql, schema))
				}
			})
			exec("CREATE TABLE item (id INT PRIMARY KEY, gen INT)")
			file, meta := filepath.Join(t.TempDir(), "out.jsonl"), filepath.Join(t.TempDir(), "meta")
			r := &run{t: t, db: db, schema: schema}
			log, at := r.end()
			kafka := fmt.Sprintf("kafka: { brokers: [%s], topics: { partitions: 3 } }", quoted(cluster.Bootstrap))
			p := process.Start(t, fmt.Sprintf(`
log: { level: debug }
meta: { file: { directory: %q }, save_interval: 200ms }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*", "!*.hushed"]
    start: "%s:%d"
    sinks:
      - { name: canal, codec: canal-json, topic: "%s.{table}", ddl_topic: "%s.ddl", %s }
      - { name: debezium, codec: debezium, debezium: { schemas.enable: false, skipped.operations: none }, topic: "%s.dbz.{table}", ddl_topic: "%s.dbz.ddl", %s }
      - { name: file, codec: maxwell, topic: "{table}", ddl_topic: ddl, ddl: all, file: { path: %q, sync: false } }
`, meta, schema, db.Addr, db.ReplUser, db.ReplPassword, schema, log, at, prefix, prefix, kafka, prefix, prefix, kafka, file))
			p.AwaitReady()
			rows := func(gen int) {
				var list []string
				for i := range 7 {
					list = append(list, fmt.Sprintf("(%d, %d)", gen*10+i, gen))
				}
				exec("INSERT INTO item (id, gen) VALUES " + strings.Join(list, ","))
			}
			rows(0)
			for i := range steps {
				sql := steps[i].sql
				if db.MariaDB() && steps[i].maria != "" {
					sql = steps[i].maria
				}
				exec(sql)
				rows(i + 1)
			}
			r.settle(p)
			p.Stop()

			check := &statements{t: t, schema: schema}
			read := func(topic string) (all []workload.Message) {
				consume.Kafka(t, cluster.Bootstrap, prefix+topic, false, func(m workload.Message) { all = append(all, m) })
				return all
			}
			for _, sink := range []string{"", ".dbz"} {
				check.ordered(read(sink+".item"), read(sink+".ddl"), false)
			}
			lines := &fileTarget{file, "maxwell"}
			check.ordered(lines.lines(t, func(topic string) bool { return topic == "item" }), lines.lines(t, func(topic string) bool { return topic == "ddl" }), true)
			all := lines.lines(t, func(topic string) bool { return topic == "item" || topic == "ddl" })
			if !slices.IsSortedFunc(all, func(a, b workload.Message) int { return number(t, a) - number(t, b) }) {
				t.Error("I4: the lines of one file are not in order")
			}
			check.secrets(p.Log(), meta, file, read(".ddl"), read(".dbz.ddl"))
		})
	}
}

// statements checks what is published.
type statements struct {
	t      *testing.T
	schema string
}

func number(t *testing.T, m workload.Message) int {
	n, err := strconv.Atoi(m.Headers["seq"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ordered checks the messages of a sink: rows of generations in order, and between them the statements.
func (s *statements) ordered(rows, ddl []workload.Message, all bool) {
	s.t.Helper()
	type told struct {
		seq, sub int
		what     string
	}
	var got []told
	last := map[int32]int{}
	for _, m := range rows {
		var v struct {
			Op    string
			Data  any
			After *struct{ Gen int }
		}
		if err := json.Unmarshal(m.Value, &v); err != nil {
			s.t.Fatal(err)
		}
		seq := number(s.t, m)
		if seq < last[m.Partition] {
			s.t.Errorf("I4: %s/%d: %d comes after %d", m.Topic, m.Partition, seq, last[m.Partition])
		}
		last[m.Partition] = seq
		switch d := v.Data.(type) {
		case []any: // canal-json
			got = append(got, told{seq, 0, "rows " + d[0].(map[string]any)["gen"].(string)})
		case map[string]any: // maxwell
			got = append(got, told{seq, 0, fmt.Sprint("rows ", d["gen"])})
		default:
			if v.Op == "t" {
				if m.Key != nil || m.Headers["sub"] != "1" || m.Headers["row"] != "" {
					s.t.Errorf("TRUNCATE with key %q, headers %v", m.Key, m.Headers)
				}
				got = append(got, told{seq, 1, "emptied"})
				continue
			}
			got = append(got, told{seq, 0, fmt.Sprint("rows ", v.After.Gen)})
		}
	}
	partitions := len(last)
	if !all && partitions < 2 {
		s.t.Errorf("rows lie in %d partitions: that proves little", partitions)
	}
	for _, m := range ddl {
		about := listed(s.t, m.Headers["tables"])
		if !strings.Contains(about, s.schema) {
			continue // other tests'
		}
		if m.Partition > 0 {
			s.t.Errorf("a statement in partition %d", m.Partition)
		}
		got = append(got, told{number(s.t, m), 0, s.statement(m) + " | " + about})
	}
	slices.SortStableFunc(got, func(a, b told) int { return cmp.Or(a.seq-b.seq, a.sub-b.sub) })
	var want []string
	want = append(want, slices.Repeat([]string{"rows 0"}, 7)...)
	for i, st := range steps {
		if st.tables != "" && (all || !st.outside) {
			form := map[bool]string{true: st.maxwell, false: st.canal}[all]
			if strings.Contains(rows[0].Topic, ".dbz.") {
				form = "debezium"
			}
			want = append(want, in(form+" | "+st.tables, s.schema))
			if form == "debezium" && strings.HasPrefix(st.sql, "TRUNCATE") {
				want = append(want, "emptied")
			}
		}
		want = append(want, slices.Repeat([]string{fmt.Sprint("rows ", i+1)}, 7)...)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].what != want[i] {
			s.t.Errorf("%s: message %d of %d, wanted are %d:\n got %+v\nwant %q", rows[0].Topic, i, len(got), len(want), got[min(i, len(got)-1)], want[min(i, len(want)-1)])
			return
		}
	}
}

// statement writes type and table of a message about a statement.
func (s *statements) statement(m workload.Message) string {
	var v struct {
		Type, Database, Table, SQL string
		Old, Def                   *definition
		DDL, DatabaseName          string
		TableChanges               []struct {
			Type, ID string
			Table    *definition
		}
	}
	if err := json.Unmarshal(m.Value, &v); err != nil {
		s.t.Fatal(err)
	}
	if v.DDL != "" {
		about := m.Headers["tables"]
		for _, c := range v.TableChanges {
			if name := strings.Split(strings.Trim(c.ID, `"`), `"."`); len(name) != 2 || !strings.Contains(about, fmt.Sprintf(`"database":%q,"name":%q`, name[0], name[1])) {
				s.t.Errorf("tableChanges has %s, which is not among %s", c.ID, about)
			}
			if strings.HasSuffix(c.ID, `."item"`) && !strings.HasPrefix(c.Table.String(), "id gen c") {
				s.t.Errorf("%s: columns %v", v.DDL, c.Table)
			}
		}
		if string(m.Key) != fmt.Sprintf(`{"databaseName":%q}`, v.DatabaseName) {
			s.t.Errorf("key %s of database %s", m.Key, v.DatabaseName)
		}
		return "debezium"
	}
	what := v.Type + " " + v.Database + "." + v.Table
	if v.Old != nil || v.Def != nil {
		what += fmt.Sprintf(": %v -> %v", v.Old, v.Def)
	}
	return what
}

// definition is a table in a message about a statement.
type definition struct{ Columns []struct{ Name string } }

func (d *definition) String() string {
	if d == nil {
		return "?"
	}
	var names []string
	for _, c := range d.Columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// secrets checks that none has left the source.
func (s *statements) secrets(log, meta, file string, ddl ...[]workload.Message) {
	s.t.Helper()
	if strings.Contains(log, secret) {
		s.t.Error("a secret is logged")
	}
	look := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(string(b), secret) {
			s.t.Errorf("a secret is in %s", path)
		}
	}
	look(file)
	err := filepath.WalkDir(meta, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			look(path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range slices.Concat(ddl...) {
		if strings.Contains(string(m.Value), secret) || strings.Contains(fmt.Sprint(m.Headers), secret) {
			s.t.Errorf("a secret is published: %s", m.Value)
		}
	}
}
