//go:build integration

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

var seed = flag.Uint64("seed", 0, "seed of the workload; 0 takes one from the clock")

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("workload seed %d\n", *seed)
	// A link of Toxiproxy's may stay behind where a fault has ended it in the middle of a chunk.
	const proxy = "github.com/Shopify/toxiproxy/v2"
	leak.Main(m, goleak.IgnoreAnyFunction(proxy+".(*ToxicLink).read"), goleak.IgnoreAnyFunction(proxy+".(*ToxicLink).write"),
		goleak.IgnoreAnyFunction(proxy+"/toxics.(*ToxicStub).Run"))
}

var databases = []string{"mysql", "mariadb", "mariadb11"}

const writers = 2

// patience bounds every wait for something that must come; nobody times it, so a busy host may take its time.
const patience = 5 * time.Minute

// run is one pass of a workload through the program into one target.
type run struct {
	t      *testing.T
	db     *testenv.Server
	schema string
	target target
	config string
}

// large is how many rows the largest transactions change: more rows events than the ring of newRun holds.
const large = 6000

// newRun makes the tables and a configuration whose ring is smaller than the
// largest transaction.
func newRun(t *testing.T, db *testenv.Server, target target) *run {
	t.Helper()
	r := &run{t: t, db: db, schema: db.Database(), target: target}
	c := db.Connect("")
	if err := workload.Create(c, r.schema); err != nil {
		t.Fatal(err)
	}
	r.config = fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q }, save_interval: 200ms }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    ring: { bytes: 1MiB, events: 24 }
    sinks:
      - name: out
        codec: %s
        %s
`, filepath.Join(t.TempDir(), "meta"), r.schema, db.Addr, db.ReplUser, db.ReplPassword, r.schema, target.codec(), target.sink())
	return r
}

// writers makes the sessions that write.
func (r *run) writers(large int) []*workload.Writer {
	r.t.Helper()
	var ws []*workload.Writer
	for i := range writers {
		w := workload.NewWriter(r.db.Connect(""), r.schema, i, writers, *seed)
		w.Large = large
		ws = append(ws, w)
	}
	return ws
}

// write lets each writer commit so many transactions; during runs meanwhile, on the test's goroutine.
func (r *run) write(ws []*workload.Writer, transactions int, during func()) {
	r.t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, w := range ws {
		wg.Go(func() {
			if err := w.Run(context.Background(), transactions); err != nil {
				r.t.Error(err)
			}
		})
	}
	if during != nil {
		during()
	}
}

// settle waits until every committed change is acknowledged by every sink.
func (r *run) settle(p *process.Child) {
	r.t.Helper()
	file, offset := r.end()
	p.AwaitAcknowledged(file, offset, 10*time.Minute)
}

// end returns where the source's log ends.
func (r *run) end() (file string, offset int64) { return r.db.LogEnd() }

// verify reads everything back.
func (r *run) verify(from target, ws []*workload.Writer, replays bool) *workload.Checker {
	r.t.Helper()
	check := &workload.Checker{Codec: from.codec(), Schema: r.schema, Replays: replays}
	for _, table := range workload.Tables {
		for _, m := range from.read(r.t, table.Name) {
			if err := check.Add(m); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := check.Compare(r.db.Connect("")); err != nil {
		r.t.Error(err)
	}
	committed := int64(0)
	for _, w := range ws {
		committed += w.Changes
	}
	if got := check.Sequences(); got != committed {
		r.t.Errorf("%d row changes committed, %d arrived", committed, got)
	}
	r.t.Logf("%d row changes committed, %d messages, %d repeated", committed, check.Messages, check.Repeated)
	return check
}

// kinds returns the targets of a database's tests: some for one database only.
func kinds(db string) []string {
	if db == databases[0] {
		return []string{"kafka", "kafka-at-least-once", "pulsar", "pulsar-wire", "pulsar-batched", "file"}
	}
	return []string{"kafka", "pulsar", "file"}
}

func targets(t *testing.T, name string) target {
	prefix := testenv.Name(t)
	switch name {
	case "kafka":
		return &kafkaTarget{testenv.Kafka(t), prefix, "canal-json"}
	case "kafka-at-least-once":
		return &atLeastOnceTarget{&kafkaTarget{testenv.Kafka(t), prefix, "canal-json"}}
	case "pulsar":
		return &pulsarTarget{testenv.Pulsar(t), prefix, "maxwell", ""}
	case "pulsar-wire":
		return &pulsarTarget{testenv.Pulsar(t), prefix, "maxwell", "producer: wire,"}
	case "pulsar-batched":
		return &pulsarTarget{testenv.Pulsar(t), prefix, "canal-json", "producer: wire, batching: true, compression: zstd,"}
	}
	return &fileTarget{filepath.Join(t.TempDir(), "out.jsonl"), "canal-json"}
}

// perDatabase runs f for each database beside the others: much of it is waiting.
func perDatabase(t *testing.T, f func(t *testing.T, db string)) {
	t.Parallel()
	for _, db := range databases {
		t.Run(db, func(t *testing.T) {
			t.Parallel()
			f(t, db)
		})
	}
}

// TestEveryChangeOnceInOrder proves I1, I3, I4 and I5 end to end: the tables
// rebuilt from the topics equal the source's.
func TestEveryChangeOnceInOrder(t *testing.T) {
	perDatabase(t, func(t *testing.T, db string) {
		for _, to := range kinds(db) {
			t.Run(to, func(t *testing.T) {
				r := newRun(t, testenv.MySQL(t, db), targets(t, to))
				p := process.Start(t, r.config)
				p.AwaitReady()
				ws := r.writers(large)
				r.write(ws, 60, nil)
				r.settle(p)
				p.Stop()
				if c := r.verify(r.target, ws, false); c.Repeated != 0 {
					t.Errorf("%d messages arrived twice", c.Repeated)
				}
			})
		}
	})
}

// TestStopAndRestart proves I2, I5 and I7: stopped in order or killed in the middle of the work, over and over,
// the program loses nothing, and what it repeats has the numbers it had.
func TestStopAndRestart(t *testing.T) {
	perDatabase(t, func(t *testing.T, db string) {
		for _, to := range kinds(db) {
			t.Run(to, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(*seed, 1))
				r := newRun(t, testenv.MySQL(t, db), targets(t, to))
				p := process.Start(t, r.config)
				p.AwaitReady()
				kills := 0
				ws := r.writers(large)
				r.write(ws, 150, func() {
					for i := range 6 {
						time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
						if i%3 == 0 {
							p.Stop()
						} else {
							p.Kill()
							kills++
						}
						p = process.Start(t, r.config)
						if rng.IntN(3) > 0 {
							p.AwaitReady()
						}
					}
				})
				r.settle(p)
				p.Stop()
				c := r.verify(r.target, ws, true)
				// The broker recognises what Pulsar and Kafka's sequenced delivery send twice.
				if (strings.HasPrefix(to, "pulsar") || to == "kafka") && c.Repeated != 0 {
					t.Errorf("%d messages arrived twice after %d kills", c.Repeated, kills)
				}
			})
		}
	})
}

// TestOneDeadSinkDoesNotStopTheOther proves that sinks are independent, and that
// the one that was away catches up (I3).
func TestOneDeadSinkDoesNotStopTheOther(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	broker := testenv.NewKafka(t, 1)
	dead := &kafkaTarget{broker, testenv.Name(t), "maxwell"}
	live := &fileTarget{filepath.Join(t.TempDir(), "out.jsonl"), "canal-json"}
	r := newRun(t, db, dead)
	r.config += fmt.Sprintf("      - name: lines\n        codec: canal-json\n        %s\n", live.sink())
	p := process.Start(t, r.config)
	p.AwaitReady()
	ws := r.writers(large)
	r.write(ws, 20, nil)
	r.settle(p)

	broker.Kill(1)
	r.write(ws, 70, nil)
	p.Await("the live sink, and a dead one that shows", 10*time.Minute, func(rep *admin.Report) bool {
		d := rep.Destinations[0]
		return d.Sinks[1].Behind == 0 && d.LagKnown && d.LagBytes == 0 && d.Sinks[0].Behind > 0 && !d.Sinks[0].Healthy() && d.Sinks[1].Healthy() && !rep.Healthy()
	})

	broker.Restart(1)
	r.settle(p)
	p.Await("green health after the broker is back", patience, (*admin.Report).Healthy)
	p.Stop()
	r.verify(dead, ws, true)
	r.verify(live, ws, false)
}
