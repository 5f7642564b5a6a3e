//go:build integration

package connector

import (
	"errors"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestSnapshotBeforeGrantsI3: what start: snapshot orders waits for the account to be granted what it is for, however it is granted.
func TestSnapshotBeforeGrantsI3(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			user := account(t, s, db)
			s.Exec("CREATE TABLE `" + db + "`.a (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE `" + db + "`.b (id INT PRIMARY KEY)")
			log := snapshot.NewLog(nil)
			con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password, o.Snapshots = user, "x", log }, db+".*")
			admin, err := con.dial(t.Context(), s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			sv, err := admin.server(t.Context())
			admin.close()
			if err != nil {
				t.Fatal(err)
			}
			con.state.update(func(st *Status) { st.ServerUUID = sv.uuid })
			d := newSnapshotDriver(con, newFakeTables(t), &tableReader{c: con})
			defer d.src.close()
			if err := log.Order(t.Context(), snapshot.Request{ID: "1", Reason: snapshot.ReasonStart}); err != nil {
				t.Fatal(err)
			}
			grant := "GRANT SELECT ON `" + db + "`.* TO '" + user + "'@'127.0.0.1'"
			for range 2 {
				_, err = d.turn(t.Context())
				var stop *StopError
				if !errors.As(err, &stop) || !strings.Contains(stop.Remedy, grant) {
					t.Fatalf("nothing may be seen: %v", err)
				}
				d.judge(err)
			}
			chosen := func() string {
				t.Helper()
				req, prog, _ := log.Current()
				n, err := d.choose(t.Context(), &req, &prog)
				if err != nil || n == nil {
					t.Fatal(n, err)
				}
				return n.String()
			}
			s.Exec("GRANT SELECT ON `" + db + "`.b TO " + user + "@'127.0.0.1'")
			if got := chosen(); got != db+".b" {
				t.Errorf("%s is read", got)
			}
			if w := con.Status().Snapshot.Warning; !strings.Contains(w, grant) {
				t.Errorf("what is not seen is not told: %q", w)
			}
			s.Exec("GRANT SELECT ON *.* TO " + user + "@'127.0.0.1'")
			d.fail("refused", errors.New("refused"), nil, snapshotBlocked) // which any other table may be
			d.run.list, d.run.told = nil, false
			if got := chosen(); got != db+".a" {
				t.Errorf("%s is read", got)
			}
			if w := con.Status().Snapshot.Warning; w != "" {
				t.Errorf("all is seen: %q", w)
			}
		})
	}
}
