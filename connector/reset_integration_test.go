//go:build integration

package connector

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// I6: what was learned of a log does not answer for the one that the server has begun anew, where other statements lie at the same places.
func TestNamelessLogBegunAnew(t *testing.T) {
	for _, k := range namelessKinds {
		if k.name != "mysql" && k.name != "mysql without GTIDs" && k.name != "mariadb" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			s, db := nameless(t, k.kind, k.options)
			sql := s.Connect(db)
			defer func() { _ = sql.Close() }()
			exec := executor(t, sql)
			reset := "RESET BINARY LOGS AND GTIDS"
			if s.MariaDB() {
				reset = "RESET MASTER"
			}
			box := &drawer{}
			open := func() *Connector {
				return newConnectorWith(t, s, func(o *Options) { o.History = schema.NewHistory(box) }, db+".*")
			}
			exec("CREATE TABLE t (a INT, b INT)", reset)
			before := start(t, open())
			exec("ALTER TABLE t CHANGE a p INT, CHANGE b q INT", "INSERT INTO t VALUES (1, 2)", "INSERT INTO t VALUES (1, 2)", "INSERT INTO t VALUES (1, 2)", "CREATE TABLE m1 (x INT)")
			if got := rowLines(t, readUntil(t, open(), before, marker("m1"))); got[0] != "i t: p=1 q=2" {
				t.Fatalf("%v", got)
			}
			exec(reset)
			after := start(t, open())
			if after.Position.File != before.Position.File || after.Position.Offset != before.Position.Offset {
				t.Fatalf("the log begins at another place: %v, %v", before.Position, after.Position)
			}
			exec("ALTER TABLE t CHANGE p r INT, CHANGE q s INT", "INSERT INTO t VALUES (3, 4)", "CREATE TABLE m2 (x INT)")
			if got := strings.Join(rowLines(t, readUntil(t, open(), after, marker("m2"))), "; "); got != "i t: r=3 s=4" {
				t.Errorf("in the new log: %s", got)
			}
			// What has been learned of the new log is used.
			saves := box.saves
			if got := strings.Join(rowLines(t, readUntil(t, open(), after, marker("m2"))), "; "); got != "i t: r=3 s=4" || box.saves != saves {
				t.Errorf("again: %s, saved %d times more", got, box.saves-saves)
			}
		})
	}
}

// With names from the log only no history is kept; what the log does not tell is looked up.
func TestSchemaLogKeepsNoHistory(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			box := &drawer{}
			c := newConnectorWith(t, s, func(o *Options) { o.History, o.SchemaFrom = schema.NewHistory(box), schema.FromLog }, db+".*")
			from := start(t, c)
			for _, q := range []string{"CREATE TABLE " + db + ".t (id INT PRIMARY KEY, done TINYINT(1))", "INSERT INTO " + db + ".t VALUES (1, 1)", "CREATE TABLE " + db + ".ended (x INT)"} {
				s.Exec(q)
			}
			for range 2 {
				es := readUntil(t, c, from, marker("ended"))
				if got := strings.Join(rowLines(t, es), "; "); got != "i t: id=1 done=1" {
					t.Error(got)
				}
				for _, e := range es {
					if e.Kind == event.Rows && e.Table.Columns[1].Logical != event.LogicalBool {
						t.Error("nobody has looked the table up")
					}
				}
			}
			if box.saves != 0 {
				t.Errorf("a history is saved %d times", box.saves)
			}
		})
	}
}
