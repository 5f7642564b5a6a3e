//go:build integration

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/consume"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// transactionalTarget is Kafka with delivery: transactional, read by a consumer that reads committed only.
type transactionalTarget struct {
	*kafkaTarget
	options string // more keys of kafka:, each with a comma before it
}

func (k *transactionalTarget) sink() string {
	return fmt.Sprintf("kafka: { brokers: [%s], delivery: transactional%s }\n        topic: \"%s.{table}\"", quoted(k.cluster.Bootstrap), k.options, k.prefix)
}

func (k *transactionalTarget) read(t testing.TB, table string) []workload.Message {
	t.Helper()
	var msgs []workload.Message
	consume.Kafka(t, k.cluster.Bootstrap, k.prefix+"."+table, true, func(m workload.Message) { msgs = append(msgs, m) })
	return msgs
}

const safely = `, topics: { partitions: 3, replication_factor: 3, configs: { min.insync.replicas: "2" } }`

// TestTransactionalKillLoop proves the same as TestSequencedKillLoop, for a consumer that reads committed only.
func TestTransactionalKillLoop(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewKafka(t, 3)
	to := &transactionalTarget{&kafkaTarget{cluster, testenv.Name(t), "canal-json"}, ", compression: lz4" + safely}
	killLoop(t, cluster, to, to.prefix, kills(t, 8))
}

// TestSourceTransactionsStayWhole proves that a consumer that reads committed only never sees a part of a source
// transaction, wherever the program is killed: after each kill the transaction that it left is aborted, and what is visible then
// holds each transaction as it is in the end, or nothing of it.
func TestSourceTransactionsStayWhole(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 4))
	cluster := testenv.NewKafka(t, 1)
	to := &transactionalTarget{&kafkaTarget{cluster, testenv.Name(t), "canal-json"}, ", topics: { partitions: 3, replication_factor: 1 }"}
	r := newRun(t, testenv.MySQL(t, "mysql"), to)
	r.config = strings.Replace(r.config, "ring: { bytes: 1MiB, events: 24 }", "ring: { bytes: 16MiB }", 1)
	ws := r.writers(300)
	p := process.Start(t, r.config)
	p.AwaitReady()
	stop := r.writeOn(ws, 5*time.Millisecond)
	var seen []map[string]int
	progress := func() {
		p.Await("some rows", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages > 200 })
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	for range kills(t, 8) / 2 {
		progress()
		p.Kill()
		fence(t, cluster, "test/"+r.schema+"/out")
		seen = append(seen, r.rows(to))
		p = process.Start(t, r.config)
	}
	progress()
	p.Stop() // in the midst of things, too
	seen = append(seen, r.rows(to))
	p = process.Start(t, r.config)
	stop()
	r.settle(p)
	p.Await("its metrics", patience, func(rep *admin.Report) bool {
		if n := rep.Destinations[0].Sinks[0].Spread; n > 0 {
			t.Errorf("%d transactions were spread although they are small", n)
		}
		return true
	})
	p.Stop()
	r.verify(to, ws, false)
	end := r.rows(to)
	several := 0
	for _, n := range end {
		if n > 1 {
			several++
		}
	}
	for i, s := range seen {
		for gtid, n := range s {
			if n != end[gtid] {
				t.Errorf("after kill %d %d of %d rows of transaction %s are visible", i+1, n, end[gtid], gtid)
			}
		}
	}
	if several == 0 || len(seen[0]) == 0 || len(seen[len(seen)-1]) == len(end) {
		t.Errorf("the test shows nothing: %d transactions of several rows, %d and %d visible of %d", several, len(seen[0]), len(seen[len(seen)-1]), len(end))
	}
	t.Logf("seed %d: %d transactions, %d of them with several rows, looked at after %d ends of the program", *seed, len(end), several, len(seen))
}

// rows counts the messages of each source transaction that are visible.
func (r *run) rows(from target) map[string]int {
	r.t.Helper()
	n := map[string]int{}
	for _, table := range workload.Tables {
		for _, m := range from.read(r.t, table.Name) {
			n[m.Headers["gtid"]]++
		}
	}
	return n
}

// fence does what a successor does first: it takes the transactional id over, which aborts what was open.
func fence(t *testing.T, cluster *testenv.KafkaCluster, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.Bootstrap...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	for {
		res, err := req.RequestWith(ctx, c)
		if err == nil {
			err = kerr.ErrorForCode(res.ErrorCode)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The markers of a commit may still be on their way.
	admin := kadm.NewClient(c)
	for ctx.Err() == nil {
		ends, err := admin.ListEndOffsets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stable, err := admin.ListCommittedOffsets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		open := false
		ends.Each(func(o kadm.ListedOffset) {
			s, ok := stable.Lookup(o.Topic, o.Partition)
			open = open || ok && s.Offset < o.Offset
		})
		if !open {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("a transaction stays open")
}
