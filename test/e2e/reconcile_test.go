//go:build integration

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// both makes a run with a sink on Kafka and one on Pulsar, whose source is read from where its log ends now.
func both(t *testing.T, db *testenv.Server) (r *run, kafka *sequencedTarget, pulsar *pulsarTarget) {
	t.Helper()
	kafka = &sequencedTarget{&kafkaTarget{testenv.Kafka(t), testenv.Name(t), "canal-json"}, ", topics: { partitions: 3 }"}
	pulsar = &pulsarTarget{testenv.Pulsar(t), testenv.Name(t), "maxwell", "producer: wire, batching: true,"}
	r = newRun(t, db, kafka)
	r.config += fmt.Sprintf("      - name: other\n        codec: %s\n        %s\n", pulsar.codec(), pulsar.sink())
	file, offset := r.end()
	r.config = strings.Replace(r.config, "    ring:", fmt.Sprintf("    start: %q\n    ring:", fmt.Sprintf("%s:%d", file, offset)), 1)
	return r, kafka, pulsar
}

var startLine = regexp.MustCompile(`start: "([^"]+)"`)

// binlogmq runs a command of the program.
func (r *run) binlogmq(args ...string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(r.config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, process.Binary(r.t), append(args, "-c", file)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("binlogmq %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// logged waits until the program has logged a text so often.
func logged(p *process.Child, text string, times int) {
	p.Await(text, 2*time.Minute, func(*admin.Report) bool { return strings.Count(p.Log(), text) >= times })
}

// TestLostCursor proves I7: the cursors are gone, the topics are not: the source is read from its start again, and
// what the topics hold is not sent again, also when the program is killed while it compares.
func TestLostCursor(t *testing.T) {
	t.Parallel()
	r, kafka, pulsar := both(t, testenv.MySQL(t, "mysql"))
	ws := r.writers(500)
	p := process.Start(t, r.config)
	p.AwaitReady()
	r.write(ws, 80, nil)
	p.Await("progress", time.Minute, func(rep *admin.Report) bool {
		return rep.Destinations[0].Sinks[0].Rows > 0 && rep.Destinations[0].Sinks[1].Rows > 0
	})
	p.Kill()
	if err := os.RemoveAll(directory.FindStringSubmatch(r.config)[1]); err != nil {
		t.Fatal(err)
	}
	p = process.Start(t, r.config)
	logged(p, "what the topic holds is read", 1)
	time.Sleep(300 * time.Millisecond)
	p.Kill()
	p = process.Start(t, r.config)
	r.write(ws, 30, nil)
	r.settle(p)
	logged(p, "what the topics held is compared whole", 2)
	p.Stop()
	r.history(ws, kafka)
	r.history(ws, pulsar)
}

// TestCursorMovedBack proves I7: moved to an earlier place with --reconcile, the program sends nothing twice. A topic that
// was deleted and created anew goes on at the cursor.
func TestCursorMovedBack(t *testing.T) {
	t.Parallel()
	r, kafka, pulsar := both(t, testenv.MySQL(t, "mysql"))
	ws := r.writers(500)
	p := process.Start(t, r.config)
	p.AwaitReady()
	r.write(ws, 60, nil)
	r.settle(p)
	p.Stop()
	out := r.binlogmq("cursor", "set", "--at", startLine.FindStringSubmatch(r.config)[1], "--reconcile", "--yes")
	if !strings.Contains(out, "reads what the topics hold") {
		t.Errorf("the command does not say what it costs: %s", out)
	}
	p = process.Start(t, r.config)
	r.write(ws, 30, nil)
	r.settle(p)
	p.Stop()
	r.history(ws, kafka)
	r.history(ws, pulsar)

	// Created anew, Kafka's topics hold less than was acknowledged.
	before := int64(0)
	for _, w := range ws {
		before += w.Changes
	}
	var topics []string
	for _, table := range workload.Tables {
		topics = append(topics, kafka.prefix+"."+table.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := kafka.cluster.Admin().DeleteTopics(ctx, topics...); err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		for ctx.Err() == nil {
			if d, err := kafka.cluster.Admin().ListTopics(ctx, topic); err == nil && !d.Has(topic) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		kafka.cluster.CreateTopic(topic, 3)
	}
	r.binlogmq("cursor", "new-life", "--sink", "out", "--reconcile", "--yes")
	p = process.Start(t, r.config)
	r.write(ws, 20, nil)
	r.settle(p)
	p.Stop()
	changes := map[string]int{}
	for _, table := range workload.Tables {
		for _, m := range kafka.read(t, table.Name) {
			changes[m.Headers["gtid"]+" "+m.Headers["row"]]++
		}
	}
	after := int64(0)
	for _, w := range ws {
		after += w.Changes
	}
	if int64(len(changes)) != after-before {
		t.Errorf("the new topics hold %d changes, %d were made since", len(changes), after-before)
	}
	r.history(ws, pulsar)
}

// TestAnotherOrder proves I5 and I7: killed, the program goes on from a server that committed the same transactions in another
// order. Each change is there once.
func TestAnotherOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 6))
	one, two := testenv.NewMySQL(t, "mysql"), testenv.NewMySQL(t, "mysql")
	r, kafka, pulsar := both(t, one)
	// Cursors stay where they begin: all that is sent lies behind them.
	r.config = strings.Replace(r.config, "save_interval: 200ms", "save_interval: 1h", 1)
	const uuid = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	want := map[string]bool{}
	sessions := map[*testenv.Server]*client.Conn{one: one.Connect(""), two: two.Connect("")}
	commit := func(db *testenv.Server, seq int, statements ...string) {
		t.Helper()
		c := sessions[db]
		for _, q := range append([]string{fmt.Sprintf("SET GTID_NEXT = '%s:%d'", uuid, seq)}, statements...) {
			if _, err := c.Execute(q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		if _, err := c.Execute("SET GTID_NEXT = AUTOMATIC"); err != nil {
			t.Fatal(err)
		}
	}
	table := r.schema + ".moves"
	rows := func(seq int) []string {
		q := []string{"BEGIN"}
		for row := range 1 + seq%3 {
			q = append(q, fmt.Sprintf("INSERT INTO %s VALUES (1, %d, 1)", table, seq*10+row))
			want[fmt.Sprintf("%s:%d %d", uuid, seq, row)] = true
		}
		return append(q, "COMMIT")
	}
	// The tables of the first server are there; the second one gets what is needed.
	commit(two, 1, "CREATE DATABASE "+r.schema)
	commit(two, 2, "CREATE TABLE "+table+" (v SMALLINT, id INT PRIMARY KEY, ver BIGINT NOT NULL)")
	commit(one, 1, "CREATE DATABASE "+r.schema+"_unused")
	commit(one, 2, "CREATE DATABASE "+r.schema+"_unused_too")
	two.Exec("SET GLOBAL gtid_purged = '+" + one.Query("SELECT REPLACE(GTID_SUBTRACT(@@gtid_executed, '" + uuid + ":1-2'), '\n', '')")[0][0] + "'")

	p := process.Start(t, r.config)
	p.AwaitReady()
	const first, last = 3, 150
	for seq := first; seq <= last; seq++ {
		commit(one, seq, rows(seq)...)
	}
	p.Await("most of it", time.Minute, func(rep *admin.Report) bool {
		return rep.Destinations[0].Sinks[0].Rows > 100 && rep.Destinations[0].Sinks[1].Rows > 100
	})
	p.Kill()
	for _, i := range rng.Perm(last - first + 1) {
		commit(two, first+i, rows(first+i)...)
	}
	r.config = strings.Replace(r.config, one.Addr, two.Addr, 1)
	r.db = two
	p = process.Start(t, r.config)
	logged(p, "another server answers than the one that was read before", 2)
	time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	p.Kill() // while it compares, perhaps
	p = process.Start(t, r.config)
	for seq := last + 1; seq <= last+20; seq++ {
		commit(two, seq, rows(seq)...)
	}
	r.settle(p)
	p.Stop()
	for name, to := range map[string]target{"kafka": kafka, "pulsar": pulsar} {
		got := map[string]int{}
		for _, m := range to.read(t, "moves") {
			got[m.Headers["gtid"]+" "+m.Headers["row"]]++
		}
		for id, n := range got {
			if n > 1 || !want[id] {
				t.Errorf("%s: change %s is there %d times", name, id, n)
			}
		}
		for id := range want {
			if got[id] == 0 {
				t.Errorf("%s: change %s is missing", name, id)
			}
		}
	}
}
