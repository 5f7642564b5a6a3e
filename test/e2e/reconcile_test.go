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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, process.Binary(r.t), append(args, "-c", file)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("binlogmq %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// logged waits until the program has logged a text so often.
func logged(p *process.Child, text string, times int) {
	p.Await(text, patience, func(*admin.Report) bool { return strings.Count(p.Log(), text) >= times })
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
	p.Await("progress", patience, func(rep *admin.Report) bool {
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
	const compared = "what the topics held is compared whole"
	early := strings.Count(p.Log(), compared) // where the machine is quick
	p = process.Start(t, r.config)
	r.write(ws, 30, nil)
	r.settle(p)
	logged(p, compared, 2-early)
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// TestAnotherOrder proves I5 and I7: killed with its cursors where they were at the start, each sink's at another place, the program goes
// on from a server that committed the same transactions in another order, and some of its own between them: what the topics hold is found and not
// sent again, also when it is killed while it compares. Each change is there once.
func TestAnotherOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 6))
	p, one, two := newPair(t, "mysql")
	begin := p.make(0, 1)
	p.commit(one, begin...)
	p.commit(two, begin...)
	clear(p.want)
	c := process.Start(t, p.r.config)
	c.AwaitReady()
	first := p.makeOrigin(rng, 20)
	p.commit(one, first...)
	p.r.settle(c)
	c.Stop()
	c = process.Start(t, p.alone())
	c.AwaitReady()
	more := p.makeOrigin(rng, 30)
	p.commit(one, more...)
	p.r.settle(c)
	c.Stop()
	// From here on no cursor is saved: all that is sent lies behind them.
	c = process.Start(t, p.r.config)
	c.AwaitReady()
	last := p.makeOrigin(rng, 100)
	p.commit(one, last...)
	sent(c, 100)
	c.Kill()

	p.commit(two, mixed(rng, false, first, more, last, p.make(2, 20))...)
	p.at(two)
	c = process.Start(t, p.r.config)
	logged(c, movedText, 1)
	time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	c.Kill() // while it compares, perhaps
	c = process.Start(t, p.r.config)
	p.commit(two, p.makeOrigin(rng, 20)...)
	p.r.settle(c)
	c.Stop()
	p.once()
}
