//go:build integration

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// TestSnapshotFailover proves I3, I4 and I5: the source dies while a chunk of a table is read, and the snapshot goes on with the next address of the group, which has the
// transactions in another order. Consumers have the table in the end, and each change once.
func TestSnapshotFailover(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const rows, first = 900, 500000000
			rng := rand.New(rand.NewPCG(*seed, 11))
			cluster := testenv.Kafka(t)
			p, one, two := newPair(t, kind, func(prefix string) target {
				return &sequencedTarget{&kafkaTarget{cluster, prefix, "canal-json"}, ", topics: { partitions: 3 }"}
			}, func(string) target { return &fileTarget{filepath.Join(t.TempDir(), "moves.jsonl"), "maxwell"} })
			p.group(one, two)
			p.r.config = strings.Replace(p.r.config, "    ring:", "    start: snapshot\n    snapshot: { chunk_bytes: 16KiB, rows_per_second: 300 }\n    ring:", 1)
			moves := p.r.schema + ".moves"
			var values []string
			for i := range rows {
				values = append(values, fmt.Sprintf("(%d, REPEAT('r', 100))", first+10*i))
			}
			for _, c := range p.sessions {
				p.exec(c, "SET sql_log_bin=0")
				p.exec(c, "INSERT INTO "+moves+" VALUES "+strings.Join(values, ","))
				p.exec(c, "SET sql_log_bin=1")
			}
			begin := p.make(0, 1)
			p.commit(one, begin...)
			p.commit(two, begin...)

			// Each changes rows of its own, so that their order does not matter: one row, one that goes, and one that gets another key.
			left := rng.Perm(rows)
			change := func(n int) (all []*txn) {
				for range n {
					x := p.makeOrigin(rng, 1)[0]
					x.rows = 0
					x.also = []string{
						fmt.Sprintf("UPDATE %s SET pad='changed by %s' WHERE id=%d", moves, x.gtid(true), first+10*left[0]),
						fmt.Sprintf("DELETE FROM %s WHERE id=%d", moves, first+10*left[1]),
						fmt.Sprintf("UPDATE %s SET id=%d WHERE id=%d", moves, first+10*(rows-left[2])+1, first+10*left[2]),
					}
					left = left[3:]
					all = append(all, x)
				}
				return all
			}
			c := process.Start(t, p.r.config)
			c.Await("rows of the snapshot", patience, func(r *admin.Report) bool {
				s := r.Destinations[0].Snapshot
				return s != nil && (s.Rows > 0 || s.Finished != "")
			})
			both := change(30)
			p.commit(one, both...)
			p.commit(two, mixed(rng, one.MariaDB(), both)...)
			p.r.settle(c)
			hold := one.Connect("")
			if _, err := hold.Execute("LOCK TABLES " + moves + " WRITE"); err != nil {
				t.Fatal(err)
			}
			c.Await("a chunk that is being read", patience, func(r *admin.Report) bool {
				return r.Destinations[0].Snapshot.Finished != "" || len(one.Query("SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table%' AND info LIKE 'SELECT %moves%'")) > 0
			})
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			one.Kill()
			p.r.db = two
			p.commit(two, change(30)...)
			logged(c, movedText, 1)
			c.Await("the end of the snapshot", 10*time.Minute, func(r *admin.Report) bool {
				s := r.Destinations[0].Snapshot
				return s != nil && len(s.Queue) == 0 && s.Finished != ""
			})
			p.commit(two, change(5)...)
			p.r.settle(c)
			c.Stop()

			want := map[string]string{}
			for _, row := range two.Query("SELECT id, pad FROM " + moves) {
				want[row[0]] = row[1]
			}
			for _, to := range p.targets {
				have, once, snapshots := map[string]string{}, map[string]int{}, 0
				for _, m := range to.read(t, "moves") {
					if change := m.Headers["gtid"]; change == "" {
						snapshots++
					} else {
						once[change+" "+m.Headers["row"]+" "+string(m.Key)]++
					}
					got, err := workload.Parse(to.codec(), m.Value)
					if err != nil {
						t.Fatal(err)
					}
					switch id := *got.Data["id"]; got.Op {
					case "delete":
						delete(have, id)
					default:
						have[id] = *got.Data["pad"]
					}
				}
				if !maps.Equal(have, want) {
					t.Errorf("%s: the messages give %d rows, the table has %d", to.codec(), len(have), len(want))
					for id := range want {
						if have[id] != want[id] {
							t.Errorf("row %s: %.40q, want %.40q", id, have[id], want[id])
						}
					}
				}
				for change, n := range once {
					if n > 1 && to.codec() == "canal-json" {
						t.Errorf("%s: change %s is there %d times", to.codec(), change, n)
					}
				}
				t.Logf("%s: %d rows of snapshots", to.codec(), snapshots)
			}
		})
	}
}
