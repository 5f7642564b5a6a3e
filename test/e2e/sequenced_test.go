//go:build integration

package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// sequencedTarget is Kafka with delivery: sequenced.
type sequencedTarget struct {
	*kafkaTarget
	options string // more keys of kafka:, each with a comma before it
}

func (k *sequencedTarget) sink() string {
	return fmt.Sprintf("kafka: { brokers: [%s], delivery: sequenced%s }\n        topic: \"%s.{table}\"", quoted(k.cluster.Bootstrap), k.options, k.prefix)
}

// kills is how many SIGKILLs a loop makes: n unless the environment says otherwise.
func kills(t *testing.T, n int) int {
	if s := os.Getenv("BINLOGMQ_CHAOS_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

var (
	directory = regexp.MustCompile(`directory: "([^"]+)"`)
	serverID  = regexp.MustCompile(`server_id: (\d+)`)
)

// moved returns the configuration with a copy of the cursors, as another node would have them: without the lock.
func (r *run) moved(to string) {
	r.t.Helper()
	from := directory.FindStringSubmatch(r.config)[1]
	if err := os.MkdirAll(to, 0o750); err != nil {
		r.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(from, "*.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o600)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.config = strings.Replace(r.config, from, to, 1)
	// Else the source cuts the one that it knows by the same server id.
	r.config = serverID.ReplaceAllStringFunc(r.config, func(s string) string {
		n, err := strconv.Atoi(serverID.FindStringSubmatch(s)[1])
		if err != nil {
			r.t.Fatal(err)
		}
		return fmt.Sprintf("server_id: %d", n+1)
	})
}

// writeOn lets the writers commit until stop is called, not faster than the program follows on a busy host.
func (r *run) writeOn(ws []*workload.Writer, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := w.Run(context.Background(), 3); err != nil {
					r.t.Error(err)
					return
				}
				time.Sleep(pause)
			}
		})
	}
	stop = func() { cancel(); wg.Wait() }
	r.t.Cleanup(stop) // before their connections are closed, where the test ends early
	return stop
}

// TestSequencedKillLoop proves I4, I5, I7 and I8 with the whole program on three brokers: killed at any instant, frozen and woken
// beside a live successor, with brokers killed, restarted, frozen and leaders moved, an ordinary consumer finds every change once, in order.
//
// BINLOGMQ_CHAOS_KILLS sets the number of SIGKILLs; BINLOGMQ_TEST_BINARY a program without race detector, which a long run wants.
func TestSequencedKillLoop(t *testing.T) {
	t.Parallel()
	n := kills(t, 12)
	cluster := testenv.NewKafka(t, 3)
	to := &sequencedTarget{&kafkaTarget{cluster, testenv.Name(t), "canal-json"}, ", compression: lz4, topics: { partitions: 3, replication_factor: 3, configs: { min.insync.replicas: \"2\" } }"}
	killLoop(t, cluster, to, to.prefix, n)
}

// killLoop kills the program n times while writers write and brokers fail, and then verifies what arrived.
func killLoop(t *testing.T, cluster *testenv.KafkaCluster, to target, prefix string, n int) {
	t.Helper()
	name := fnv.New64()
	name.Write([]byte(t.Name())) // two loops share a database: one server id each
	rng := rand.New(rand.NewPCG(*seed, name.Sum64()))
	r := newRun(t, testenv.MySQL(t, "mysql"), to)
	r.config = strings.Replace(r.config, "source: { ", fmt.Sprintf("source: { server_id: %d, ", 1_000_000_000+rng.IntN(1_000_000_000)), 1)
	if _, ok := to.(*transactionalTarget); ok { // for which a full ring costs a commit
		r.config = strings.Replace(r.config, "ring: { bytes: 1MiB, events: 24 }", "ring: { bytes: 1MiB, events: 400 }", 1)
	}
	ws := r.writers(500)
	p := process.Start(t, r.config)
	p.AwaitReady()
	stop := r.writeOn(ws, 40*time.Millisecond)
	var killed, zombies, fenced, ousted, stops, brokerKills, restarts, pauses, moves int
	upset := 0 // broker that is down or frozen; 0: none
	mend := func() {}
	sleep := func(most int) { time.Sleep(time.Duration(rng.IntN(most)) * time.Millisecond) }
	for killed < n && !t.Failed() {
		// Something happens to a broker now and then; the next round mends it.
		if upset != 0 {
			mend()
			upset = 0
		} else {
			b := 1 + rng.IntN(3)
			switch rng.IntN(14) {
			case 0:
				cluster.Kill(b)
				upset, mend = b, func() { cluster.Restart(b) }
				brokerKills++
			case 1:
				cluster.Stop(b)
				upset, mend = b, func() { cluster.Restart(b) }
				restarts++
			case 2, 3:
				cluster.Pause(b)
				upset, mend = b, func() { cluster.Resume(b) }
				pauses++
			case 4, 5, 6:
				table := workload.Tables[rng.IntN(len(workload.Tables))].Name
				cluster.MoveLeader(prefix+"."+table, int32(rng.IntN(3)), b)
				moves++
			}
		}
		sleep(1500)
		if p.Ousted() {
			ousted++
			p = process.Start(t, r.config)
		}
		switch k := rng.IntN(10); {
		case k == 0:
			p.Signal(syscall.SIGTERM)
			if code := p.Wait(3 * time.Minute); code != 0 && !p.Ousted() {
				t.Errorf("exit code %d after SIGTERM", code)
			}
			stops++
			p = process.Start(t, r.config)
		case k <= 2:
			zombie := p
			zombie.Signal(syscall.SIGSTOP)
			r.moved(filepath.Join(t.TempDir(), fmt.Sprintf("meta-%d", zombies)))
			p = process.Start(t, r.config)
			zombies++
			sleep(2000)
			zombie.Signal(syscall.SIGCONT)
			sleep(2000) // both send
			if log := zombie.Log(); strings.Contains(log, " is in use by ") {
				t.Error("the zombie found the directory locked")
			}
			select {
			case <-zombie.Ended(): // a broker has told it that it has a successor
				fenced++
			default:
				zombie.Kill()
				killed++
			}
		default:
			p.Kill()
			killed++
			p = process.Start(t, r.config)
		}
	}
	if upset != 0 {
		mend()
	}
	stop()
	p.Kill() // it may have been ousted
	p = process.Start(t, r.config)
	r.settle(p)
	p.Stop()
	r.verify(to, ws, false)
	t.Logf("seed %d: %d SIGKILLs, %d zombies woken beside a successor (%d ended by themselves, %d ousted it), %d stops; brokers: %d killed, %d restarted, %d frozen, %d leader moves",
		*seed, killed+1, zombies, fenced, ousted, stops, brokerKills, restarts, pauses, moves)
}
