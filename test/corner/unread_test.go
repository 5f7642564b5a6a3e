//go:build integration

package corner

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// I3: with on_table_error: skip the rows of a table whose definition was lost are told and counted, and all others published.
func TestUnreadTable(t *testing.T) {
	db := testenv.MySQL(t, "mariadb102")
	c := &Case{Name: "unread"}
	c.Statements = map[string][]string{db.Kind: {
		"CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1,1)",
		"SET sql_log_bin=0", "ALTER TABLE t CHANGE a b VARCHAR(10), ADD COLUMN c INT FIRST", "SET sql_log_bin=1",
		"BEGIN", "INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (2,2,'two'),(3,3,'three')", "INSERT INTO u VALUES (2)", "COMMIT",
		"TRUNCATE TABLE u", "DROP TABLE t", "CREATE TABLE t (x INT PRIMARY KEY)", "INSERT INTO t VALUES (7)",
	}}
	db.Exec("DROP DATABASE IF EXISTS " + c.schema())
	t.Cleanup(func() { db.Exec("DROP DATABASE IF EXISTS " + c.schema()) })
	out := filepath.Join(t.TempDir(), "out.jsonl")
	p := process.Start(t, strings.Replace(config(t, db, c.schema()+".*", out), "    ring:", "    on_table_error: skip\n    ring:", 1))
	p.AwaitReady()
	if err := c.run(db); err != nil {
		t.Fatal(err)
	}
	settle(t, db, p)
	p.Await("the rows to be counted", 10*time.Minute, func(r *admin.Report) bool { return r.Destinations[0].Unread == 2 })
	p.Stop()
	if log := p.Log(); !strings.Contains(log, "rows of a table that cannot be read are passed over") || !strings.Contains(log, c.schema()+".t") {
		t.Errorf("it says\n%s", log)
	}
	c.Want = map[string][]string{db.Kind: {"INSERT t(id) id=1 a=1", "INSERT u(id) id=1", "INSERT u(id) id=2", `INSERT t(x) "x"=7`}}
	c.compare(t, db.Kind, published(t, out)[c.schema()])
}
