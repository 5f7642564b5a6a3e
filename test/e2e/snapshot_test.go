//go:build integration

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// TestSnapshots proves I1, I2, I4, I5 and I7 of rows that were there before anything was read, wherever the program is killed: each comes once, at a
// place of the stream where it is right, in the first sinks, in one that is added, when somebody asks and after a lost position.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := &snapshots{rng: rand.New(rand.NewPCG(*seed, 2))}
			s.kafka = &kafkaTarget{testenv.Kafka(t), testenv.Name(t), "canal-json"}
			s.lines = &fileTarget{filepath.Join(t.TempDir(), "lines.jsonl"), "maxwell"}
			s.run = newRun(t, testenv.NewMySQL(t, kind), s.kafka) // others need the log that is purged here
			s.config += fmt.Sprintf("      - name: lines\n        codec: %s\n        %s\n", s.lines.codec(), s.lines.sink())
			s.config = strings.Replace(s.config, "    ring:", "    start: snapshot\n    on_lost_position: snapshot\n    snapshot: { chunk_bytes: 16KiB }\n    ring:", 1)
			s.ws = s.writers(300)
			s.write(s.ws, 150, nil)
			had := s.rows()
			t.Logf("%d rows are there", had)

			s.first(had)
			s.added()
			s.ordered()
			s.lost()
		})
	}
}

// snapshots is a run with a Kafka topic for each table and a file.
type snapshots struct {
	*run
	rng   *rand.Rand
	kafka *kafkaTarget
	lines *fileTarget
	ws    []*workload.Writer
}

func (s *snapshots) changes() (n int64) {
	for _, w := range s.ws {
		n += w.Changes
	}
	return n
}

// rows counts the rows of all tables.
func (s *snapshots) rows() (n int64) {
	s.t.Helper()
	for _, table := range workload.Tables {
		more, err := strconv.ParseInt(s.db.Query("SELECT COUNT(*) FROM `" + s.schema + "`." + table.Name)[0][0], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		n += more
	}
	return n
}

// finished waits until nothing is ordered, and everything is acknowledged.
func (s *snapshots) finished(p *process.Child) {
	s.t.Helper()
	p.Await("the end of the snapshot", 10*time.Minute, func(r *admin.Report) bool {
		d := &r.Destinations[0]
		return d.Snapshot != nil && len(d.Snapshot.Queue) == 0 && d.Snapshot.Finished != ""
	})
	s.settle(p)
}

// read adds what a target holds behind a number to a checker of its own, and returns the highest number.
func (s *snapshots) read(from target, behind int64, replays bool) (check *workload.Checker, last int64) {
	s.t.Helper()
	check = &workload.Checker{Codec: from.codec(), Schema: s.schema, Replays: replays, Before: true}
	last = behind
	for _, table := range workload.Tables {
		for _, m := range from.read(s.t, table.Name) {
			seq, err := strconv.ParseInt(m.Headers["seq"], 10, 64)
			if err != nil {
				s.t.Fatalf("%v: %v", m.Headers, err)
			}
			if seq <= behind {
				continue
			}
			last = max(last, seq)
			if err := check.Add(m); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return check, last
}

// whole wants the present tables from what a target holds behind a number.
func (s *snapshots) whole(what string, from target, behind, changes int64, replays bool) (last int64) {
	s.t.Helper()
	check, last := s.read(from, behind, replays)
	if err := check.Compare(s.db.Connect("")); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
	if check.Repeated != 0 && !replays {
		s.t.Errorf("%s: %d messages arrived twice", what, check.Repeated)
	}
	if got := check.Sequences() - check.Snapshots; got != changes {
		s.t.Errorf("%s: %d row changes committed, %d arrived", what, changes, got)
	}
	s.t.Logf("%s: %d rows of snapshots, %d changes, %d messages repeated", what, check.Snapshots, changes, check.Repeated)
	return last
}

// first has the program begin, and kills it again and again while tables are read and written: BINLOGMQ_SNAPSHOT_KILLS times.
func (s *snapshots) first(had int64) {
	s.t.Helper()
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("BINLOGMQ_SNAPSHOT_KILLS")); err == nil {
		kills = n
	}
	slow := strings.Replace(s.config, "chunk_bytes:", "rows_per_second: 600, chunk_bytes:", 1)
	p := process.Start(s.t, slow)
	p.AwaitReady()
	before := s.changes()
	s.write(s.ws, 30*kills, func() {
		for range kills {
			time.Sleep(time.Duration(s.rng.IntN(500)) * time.Millisecond)
			p.Kill()
			p = process.Start(s.t, slow)
			if s.rng.IntN(3) > 0 {
				p.AwaitReady()
			}
		}
	})
	p.Kill()
	p = process.Start(s.t, s.config)
	s.finished(p)
	p.Await("the end of what is kept for it", patience, func(r *admin.Report) bool { return r.Destinations[0].Snapshot.Chunks == 0 })
	p.Stop()
	changes := s.changes() - before
	s.whole("Kafka", s.kafka, 0, changes, false)
	s.whole("file", s.lines, 0, changes, true)
	if check, _ := s.read(s.kafka, 0, false); check.Snapshots < had/4 {
		s.t.Errorf("of %d rows that were there the snapshot shows %d", had, check.Snapshots)
	}
}

// added gives the destination another sink, which gets a snapshot of its own.
func (s *snapshots) added() {
	s.t.Helper()
	had, kafka := s.read(s.kafka, 0, false)
	later := &fileTarget{filepath.Join(s.t.TempDir(), "later.jsonl"), "debezium"}
	s.config += fmt.Sprintf("      - name: later\n        codec: %s\n        tombstones: false\n        %s\n", later.codec(), later.sink())
	p := process.Start(s.t, s.config)
	p.AwaitReady()
	before := s.changes()
	s.write(s.ws, 20, nil)
	p.Kill()
	p = process.Start(s.t, s.config)
	s.finished(p)
	p.Stop()
	s.whole("a sink that is added", later, 0, s.changes()-before, true)
	if now, _ := s.read(s.kafka, 0, false); now.Snapshots != had.Snapshots {
		s.t.Errorf("the others get it too: %d rows of snapshots, %d before (seq %d)", now.Snapshots, had.Snapshots, kafka)
	}
}

// ordered asks the running program for the rows of one table that meet a condition.
func (s *snapshots) ordered() {
	s.t.Helper()
	had, _ := s.read(s.kafka, 0, false)
	p := process.Start(s.t, s.config)
	p.AwaitReady()
	config := filepath.Join(s.t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(s.config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	table := s.schema + ".accounts"
	out, err := exec.Command(process.Binary(s.t), "snapshot", "start", "-c", config, "--tables", table, "--where", table+"=id % 2 = 0 OR note = ')'", "--sinks", "out", "--admin", p.Admin()).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	id := strings.Fields(string(out))[1]
	p.Await("the end of the ordered snapshot", patience, func(r *admin.Report) bool { return r.Destinations[0].Snapshot.Finished == id })
	s.finished(p)
	p.Stop()
	want := s.db.Query("SELECT COUNT(*) FROM " + table + " WHERE id % 2 = 0 OR note = ')'")[0][0]
	if now, _ := s.read(s.kafka, 0, false); fmt.Sprint(now.Snapshots-had.Snapshots) != want {
		s.t.Errorf("ordered are %s rows, %d have come", want, now.Snapshots-had.Snapshots)
	}
}

// lost takes away what comes next.
func (s *snapshots) lost() {
	s.t.Helper()
	_, kafka := s.read(s.kafka, 0, false)
	_, lines := s.read(s.lines, 0, true)
	s.write(s.ws, 20, nil)
	if s.db.Kind == "mariadb11" {
		s.db.Exec("SET GLOBAL slave_connections_needed_for_purge=0")
	}
	s.db.Exec("FLUSH BINARY LOGS")
	file, _ := s.end()
	for s.db.Query("SHOW BINARY LOGS")[0][0] != file { // MariaDB keeps one until it has noted elsewhere that it needs it no more
		s.db.Exec("PURGE BINARY LOGS TO '" + file + "'")
		time.Sleep(10 * time.Millisecond)
	}
	p := process.Start(s.t, s.config)
	p.Await("the order after the lost position", patience, func(r *admin.Report) bool { return r.Destinations[0].Lost > 0 && r.Destinations[0].Connected })
	before := s.changes()
	s.write(s.ws, 20, func() {
		p.Kill()
		p = process.Start(s.t, s.config)
	})
	s.finished(p)
	p.Stop()
	changes := s.changes() - before
	s.whole("Kafka after a lost position", s.kafka, kafka, changes, false)
	s.whole("file after a lost position", s.lines, lines, changes, true)
}
