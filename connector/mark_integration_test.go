//go:build integration

package connector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestLocate: who has dealt with all before an event goes on behind its transaction if that is a commit, at its transaction's start else; and what is
// not the very event is an error. Its set of GTIDs is the one of a start at that place.
func TestLocate(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.NewMySQL(t, kind) // whose log is short, and goes on to no other file
			db := s.Database()
			c := newConnector(t, s, "latest", db+".*")
			from, err := c.End(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conn := s.Connect(db)
			for _, q := range []string{
				"CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE m (id INT) ENGINE=MyISAM",
				"BEGIN", "INSERT INTO t VALUES (1,1),(2,2)", "UPDATE t SET v=3", "COMMIT",
				"INSERT INTO m VALUES (1)", "ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t VALUES (3,3,3)", "DROP TABLE m",
			} {
				if _, err := conn.Execute(q); err != nil {
					t.Fatal(err)
				}
			}
			end, err := c.End(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			marks := marksOf(t, c, from, end)
			start, commits := uint64(0), 0
			for _, row := range s.Query(fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d", from.File, from.Offset)) {
				at, _ := strconv.ParseUint(row[1], 10, 64)
				next, _ := strconv.ParseUint(row[4], 10, 64)
				if at >= end.Offset {
					break
				}
				m, ok := marks[at]
				if !ok {
					t.Fatalf("no event at %d", at)
				}
				if strings.HasSuffix(strings.ToLower(row[2]), "gtid") {
					start = at
				}
				want := start
				if row[2] == "Xid" || row[2] == "Query" && row[5] == "COMMIT" {
					want = next
					commits++
				}
				got, err := c.Locate(t.Context(), m)
				if err != nil || got.File != m.File || got.Offset != want || got.ServerUUID != from.ServerUUID {
					t.Fatalf("%s at %d (%s): %+v, want %d (%v)", row[2], at, row[5], got, want, err)
				}
				if row[2] == "Xid" || want == at { // as a start there has it
					like := resolved(t, s, db, fmt.Sprintf("%s:%d", m.File, want))
					if !got.GTIDs.Equal(like.GTIDs) {
						t.Errorf("%s at %d: GTIDs %s, want %s", row[2], at, got.GTIDs, like.GTIDs)
					}
				}
				if row[2] != "Xid" {
					continue
				}
				for what, other := range map[string]Mark{
					"another time":   {m.File, m.Offset, m.Time - 1, m.ServerID},
					"another server": {m.File, m.Offset, m.Time, m.ServerID + 1},
					"no event's":     {m.File, m.Offset + 1, m.Time, m.ServerID},
				} {
					var stop *StopError
					if got, err := c.Locate(t.Context(), other); !errors.As(err, &stop) {
						t.Errorf("%s of %d: %+v, %v", what, at, got, err)
					}
				}
			}
			if commits < 3 {
				t.Errorf("%d commits", commits)
			}
			for what, m := range map[string]Mark{"another file": {"nothing.000001", 4, 1, 1}, "behind the end": {end.File, end.Offset + 1<<32, 1, 1}, "before the beginning": {end.File, 0, 1, 1}} {
				var stop *StopError
				if got, err := c.Locate(t.Context(), m); !errors.As(err, &stop) {
					t.Errorf("%s: %+v, %v", what, got, err)
				}
			}
		})
	}
}

// resolved resolves a start at a place.
func resolved(t *testing.T, s *testenv.Server, db, at string) event.Position {
	t.Helper()
	return start(t, newConnector(t, s, at, db+".*")).Position
}

// marksOf reads the events between two places of one file.
func marksOf(t *testing.T, c *Connector, from, to event.Position) map[uint64]Mark {
	t.Helper()
	s, sv, err := c.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	slot := c.slots.take()
	defer c.slots.give(slot)
	k, err := c.scan(t.Context(), s.addr, sv, c.identity(slot), from.File)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	marks := map[uint64]Mark{}
	for {
		_, at := k.m.Position()
		if at >= to.Offset {
			return marks
		}
		raw, err := k.feed()
		if err != nil {
			t.Fatal(err)
		}
		if at >= from.Offset {
			marks[at] = Mark{from.File, at, raw.Time, raw.ServerID}
		}
	}
}
