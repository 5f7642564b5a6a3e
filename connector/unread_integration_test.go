//go:build integration

package connector

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
)

// numbersOf writes the rows events with their numbers, and their names where they show.
func numbersOf(es []*event.Event) string {
	var lines []string
	for _, e := range es {
		if e.Kind == event.Rows {
			name := "-"
			if e.Table != nil {
				name = e.Table.Name
			}
			lines = append(lines, fmt.Sprintf("%s %d*%d", name, e.Ordinal, e.Rows))
		}
	}
	return strings.Join(lines, "; ")
}

// I3, I5, I6: rows of a table that nobody can read take their numbers and show nothing, in every replay, also when it could be read
// by then; those of other tables, and what comes behind the next statement about it, are read.
func TestUnreadTables(t *testing.T) {
	for _, kind := range []string{"mariadb102", "mysql56"} {
		t.Run(kind, func(t *testing.T) {
			s, db := nameless(t, kind, nil)
			sql := s.Connect(db)
			exec := executor(t, sql)
			box := &drawer{}
			connect := func(pass bool) *Connector {
				return newConnectorWith(t, s, func(o *Options) { o.History, o.PassTables = schema.NewHistory(box), pass }, db+".*")
			}
			exec("CREATE TABLE good (a INT)", "CREATE TABLE drifts (a INT, b INT)", "CREATE TABLE odd (a TEXT CHARACTER SET latin1, b INT)")
			from := start(t, connect(true))
			exec("CREATE TABLE m1 (x INT)")
			readUntil(t, connect(true), from, marker("m1"))
			from = start(t, connect(true))
			exec("INSERT INTO drifts VALUES (1, 2)", "SET sql_log_bin=0", "ALTER TABLE drifts ADD c INT", "SET sql_log_bin=1",
				"BEGIN", "INSERT INTO good VALUES (1)", "INSERT INTO drifts VALUES (1, 2, 3), (4, 5, 6)", "INSERT INTO good VALUES (2)", "COMMIT",
				"ALTER TABLE odd CONVERT TO CHARACTER SET utf8, ADD c ENUM(x'78')", "INSERT INTO odd VALUES ('x', 1, 'x')", "RENAME TABLE odd TO kept",
				"UPDATE drifts SET c = 9", "CREATE TABLE m2 (x INT)")
			if err := readError(t, connect(false), from); !strings.Contains(err.Error(), "on_table_error") {
				t.Error(err)
			}
			// First drifts by its known definition. The numbers follow each other, among them those of what others write to the shared server.
			c := connect(true)
			first := readUntil(t, c, from, marker("m2"))
			want := numbersOf(first)
			if got := rowsIn(want); got != "drifts *1; good *1; - *2; good *1; - *1; - *3" {
				t.Errorf("got %s", want)
			}
			numbered(t, first, from.Ordinal+1)
			if st := c.Status(); st.Unread != 6 {
				t.Errorf("%d row changes counted", st.Unread)
			}
			// Meanwhile some of it could be read.
			h := schema.NewHistory(box)
			if err := h.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := readUntil(t, connect(true), from, marker("m2"))
			if got := numbersOf(again); got != want {
				t.Errorf("again: got %s\nwant %s", got, want)
			}
			// I5: also if it is not chosen any more: it has been decided.
			if got := numbersOf(readUntil(t, connect(false), from, marker("m2"))); got != want {
				t.Errorf("without the option: got %s\nwant %s", got, want)
			}
			// Forgotten after a stop in order, it is what comes from there on that is read.
			second := from
			second.Position.GTIDs = from.Position.GTIDs.Clone()
			row := slices.IndexFunc(first, func(e *event.Event) bool { return e.Kind == event.Rows })
			stand(&second, first[:row+slices.IndexFunc(first[row:], func(e *event.Event) bool { return e.Kind == event.End })+1])
			end := second
			end.Position.GTIDs = second.Position.GTIDs.Clone()
			stand(&end, first)
			h.Advance(end.Position)
			if !h.Forget(ddl.Name{Schema: db, Table: "drifts"}) {
				t.Error("the table is not known")
			}
			if err := h.Save(t.Context(), event.Position{}); err != nil {
				t.Fatal(err)
			}
			exec("DELETE FROM drifts WHERE a=4", "CREATE TABLE m3 (x INT)")
			_, want, _ = strings.Cut(want, "; ")
			got := numbersOf(readUntil(t, connect(true), second, marker("m3")))
			if !strings.HasPrefix(got, want+"; ") || rowsIn(got) != rowsIn(want)+"; drifts *1" {
				t.Errorf("forgotten: got %s\nwant %s and the row of drifts", got, want)
			}
		})
	}
}

// I5, I7: rows of a table that could not be read are passed over in each replay, also when the user may read the table by then and nothing is
// to be passed over any more. Behind the next statement about it they are read.
func TestUnreadTableBecomesReadable(t *testing.T) {
	s, db := nameless(t, "mariadb102", nil)
	sql := s.Connect(db)
	exec := executor(t, sql)
	user := db + "u"
	exec("CREATE TABLE good (a INT)", "CREATE TABLE hidden (a INT)", "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+user+"@'%'", "GRANT SELECT ON "+db+".good TO "+user+"@'%'")
	t.Cleanup(func() { exec("DROP USER " + user + "@'%'") })
	box := &drawer{}
	connect := func(pass bool) *Connector {
		return newConnectorWith(t, s, func(o *Options) {
			o.User, o.Password = user, "secret"
			o.History, o.PassTables = schema.NewHistory(box), pass
		}, db+".*")
	}
	from := start(t, connect(true))
	exec("INSERT INTO good VALUES (1)", "INSERT INTO hidden VALUES (1)", "INSERT INTO good VALUES (2)",
		"CREATE TABLE made (a INT, b ENUM(x'78'))", "INSERT INTO made VALUES (1, 'x')", "CREATE TABLE m1 (x INT)")
	read := func(what string, pass bool) string {
		t.Helper()
		c := connect(pass)
		got := numbersOf(readUntil(t, c, from, marker("m1")))
		if st := c.Status(); st.Unread == 0 {
			t.Errorf("%s: nothing is counted", what)
		}
		return got
	}
	want := read("not readable", true) // others write to the server, too: what they do takes numbers
	if got := tablesOf(want); got != "good - good -" {
		t.Errorf("got %s", want)
	}
	exec("GRANT SELECT ON " + db + ".* TO " + user + "@'%'")
	for _, pass := range []bool{true, false, true} {
		if got := read("readable", pass); got != want {
			t.Errorf("readable, passing over %v: got %s\nwant %s", pass, got, want)
		}
	}
	exec("ALTER TABLE hidden ADD b INT", "INSERT INTO hidden VALUES (2, 2)", "CREATE TABLE m2 (x INT)")
	got := numbersOf(readUntil(t, connect(false), from, marker("m2")))
	if !strings.HasPrefix(got, want+"; ") || tablesOf(got) != "good - good - hidden" {
		t.Errorf("altered: got %s\nwant %s and the row of hidden", got, want)
	}
}

// rowsIn leaves the names of what numbersOf returns, and how many rows there are of each.
func rowsIn(numbers string) string { return firstNumber.ReplaceAllString(numbers, " *") }

var firstNumber = regexp.MustCompile(` \d+\*`)

// tablesOf leaves the names of what numbersOf returns.
func tablesOf(numbers string) string {
	var names []string
	for _, s := range strings.Split(numbers, "; ") {
		name, _, _ := strings.Cut(s, " ")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
