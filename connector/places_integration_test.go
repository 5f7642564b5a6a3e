//go:build integration

package connector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// behind is the cursor of who stands at the last transaction end of some events.
func behind(from event.Cursor, all []*event.Event) event.Cursor {
	from.Position.GTIDs = from.Position.GTIDs.Clone()
	for _, e := range all {
		if e.Kind == event.End {
			from.Ordinal = e.Ordinal
			from.Position.File, from.Position.Offset, from.Position.ServerUUID = e.File, e.Next, e.Txn.ServerUUID
			from.Position.GTIDs.Add(e.Txn.GTID)
		}
	}
	return from
}

// replayed reads again from every transaction end of what was read, from the given one on.
func replayed(t *testing.T, s *testenv.Server, from event.Cursor, all []*event.Event, first int, done string) {
	t.Helper()
	want := transcript(t, all)
	for i := first; i < len(all)-1; i++ {
		if all[i].Kind != event.End {
			continue
		}
		cur := behind(from, all[:i+1])
		got := transcript(t, readUntil(t, newConnector(t, s, "latest", "shop.*"), cur, marker(done)))
		if !slices.Equal(got, want[i+1:]) {
			t.Fatalf("from %s:%d, %s:\n got %s\nwant %s", cur.Position.File, cur.Position.Offset, cur.Position.GTIDs, strings.Join(got, "\n     "), strings.Join(want[i+1:], "\n     "))
		}
	}
}

// TestDisorderOfMariaDB proves I3 and I5 where MariaDB's numbers do not rise, and where its log holds what has none: an incident that
// was passed, and a log begun anew with files of higher numbers.
func TestDisorderOfMariaDB(t *testing.T) {
	s := testenv.NewMySQL(t, "mariadb11", "--gtid-strict-mode=OFF", "--max-binlog-stmt-cache-size=4096", "--binlog-stmt-cache-size=4096", "--slave-connections-needed-for-purge=0")
	for _, q := range []string{"CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)", "CREATE TABLE shop.m (id INT PRIMARY KEY, b LONGTEXT) ENGINE=MyISAM"} {
		s.Exec(q)
	}
	before := start(t, newConnector(t, s, "latest"))
	if _, err := s.Connect("shop").Execute("INSERT INTO m VALUES (1, REPEAT('x', 50000)), (2, REPEAT('y', 50000))"); err == nil {
		t.Fatal("the server logs more than its cache holds")
	}
	if err := readError(t, newConnector(t, s, "latest", "shop.*"), before); !strings.Contains(err.Error(), "the source reports an incident") {
		t.Error(err)
	}
	// Behind it nothing has a number yet.
	from := start(t, newConnector(t, s, "latest"))
	for _, q := range []string{
		"INSERT INTO shop.a VALUES (1)", "FLUSH BINARY LOGS", "SET SESSION gtid_seq_no=1000", "INSERT INTO shop.a VALUES (2)", "SET SESSION gtid_seq_no=500", "INSERT INTO shop.a VALUES (3)",
		"SET SESSION gtid_seq_no=1000", "INSERT INTO shop.a VALUES (4)", "INSERT INTO shop.a VALUES (5)", "CREATE TABLE shop.done (id INT)",
	} {
		s.Exec(q)
	}
	all := readUntil(t, newConnector(t, s, "latest", "shop.*"), from, marker("shop.done"))
	numbered(t, all, 1)
	if ids := strings.Join(rowsOf(all, "a"), " "); ids != "i1 i2 i3 i4 i5" {
		t.Fatalf("rows %s", ids)
	}
	replayed(t, s, from, all, 0, "shop.done")
	// Where the place is not known, as on another server, they are not read twice.
	cur := behind(from, all[:slices.IndexFunc(all, func(e *event.Event) bool { return e.Kind == event.End && e.Txn.GTID.Seq == 500 })+1])
	cur.Position.File, cur.Position.Offset = "", 0
	if err := readError(t, newConnector(t, s, "latest", "shop.*"), cur); !strings.Contains(err.Error(), "its numbers do not rise") {
		t.Error(err)
	}

	// A log that was begun anew is no purged one, whatever it has grown to.
	cur = behind(from, all)
	s.Exec("RESET MASTER TO 1000000")
	for i := range 3 {
		if err := readError(t, newConnector(t, s, "latest", "shop.*"), cur); !strings.Contains(err.Error(), "is another one than the one that was read") || !errors.Is(err, event.ErrNoPosition) {
			t.Error(err)
		}
		s.Exec(fmt.Sprintf("SET SESSION gtid_seq_no=%d", 999+i))
		s.Exec(fmt.Sprintf("INSERT INTO shop.a VALUES (%d)", 10+i))
	}
}

// TestGTIDsSwitchedOn proves I5: numbers that were given while GTIDs were off stay what they are when they are switched on, and no file's start
// is taken for that of a log without GTIDs. What the source does not send in a mode is told with what to do.
func TestGTIDsSwitchedOn(t *testing.T) {
	s := testenv.NewMySQL(t, "mysql", "--gtid-mode=OFF")
	s.Exec("RESET BINARY LOGS AND GTIDS")
	s.Exec("CREATE DATABASE shop")
	s.Exec("CREATE TABLE shop.a (id INT PRIMARY KEY)")
	con := newConnector(t, s, "latest", "shop.*")
	from := start(t, con)
	if !from.Position.ByFile {
		t.Fatalf("%+v", from.Position)
	}
	s.Exec("INSERT INTO shop.a VALUES (1)")
	end, err := con.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range marksOf(t, con, from.Position, end) {
		if at, err := con.Locate(t.Context(), m); err != nil || !at.ByFile {
			t.Errorf("located %+v: %+v, %v", m, at, err)
		}
	}
	seen, ended := make(chan struct{}), make(chan error, 1)
	var all []*event.Event
	done := marker("shop.done")
	go func() {
		ended <- con.Read(t.Context(), from, func(_ context.Context, es []*event.Event) error {
			for _, e := range es {
				if all = append(all, e); e.Kind == event.Rows && len(rowsOf(all, "a")) == 1 {
					close(seen)
				}
				if done(e) {
					return errEnough
				}
			}
			return nil
		})
	}()
	select {
	case <-seen: // it goes by file and offset
	case err := <-ended:
		t.Fatal(err)
	}
	for i, mode := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"} {
		s.Exec("SET GLOBAL gtid_mode=" + mode)
		if i > 0 {
			s.Exec(fmt.Sprintf("INSERT INTO shop.a VALUES (%d)", 10+i))
		}
	}
	s.Exec("CREATE TABLE shop.done (id INT)")
	if err := <-ended; !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	numbered(t, all, 1)
	for _, e := range all {
		if e.Kind == event.End && !e.Txn.ByFile { // a cursor of a version that did not note it learns it so
			t.Errorf("the end at %s:%d is not by file", e.File, e.Next)
		}
	}
	if ids := strings.Join(rowsOf(all, "a"), " "); ids != "i1 i11 i12" {
		t.Errorf("rows %s", ids)
	}
	replayed(t, s, from, all, slices.IndexFunc(all, func(e *event.Event) bool { return e.Kind == event.End }), "shop.done")
	if err := readError(t, newConnector(t, s, "latest", "shop.*"), from); !strings.Contains(err.Error(), "gtid_mode=ON_PERMISSIVE") {
		t.Error(err)
	}
	by := start(t, newConnector(t, s, "latest", "shop.*"))
	s.Exec("SET GLOBAL gtid_mode=ON_PERMISSIVE")
	if err := readError(t, newConnector(t, s, "latest", "shop.*"), by); !strings.Contains(err.Error(), "the position is a GTID set, but gtid_mode is ON_PERMISSIVE") {
		t.Error(err)
	}
}
