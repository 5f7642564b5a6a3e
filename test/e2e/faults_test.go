//go:build integration

package e2e

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// flakyLink forwards connections to an address and cuts each one after a random number of bytes from there,
// also in the middle of a packet, until it is mended. It returns where it listens.
func flakyLink(t *testing.T, to string) (addr string, cuts *atomic.Int64, mend func()) {
	t.Helper()
	rng := rand.New(rand.NewPCG(*seed, 3))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mended atomic.Bool
	var wg sync.WaitGroup
	cuts = &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.Background())
	forward := func(in net.Conn, most int64) {
		defer in.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
		wg.Go(func() {
			_, _ = io.Copy(out, in)
			out.Close()
		})
		if n, _ := io.CopyN(in, out, most); n == most {
			cuts.Add(1)
		}
	}
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			most := 50_000 + rng.Int64N(1<<20)
			if mended.Load() {
				most = math.MaxInt64
			}
			wg.Go(func() { forward(in, most) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String(), cuts, func() { mended.Store(true) }
}

// TestLinkCutI4I7: the dump threads are killed over and over, in transactions far larger than the ring, the
// program is killed too, and the sink falls behind: what was put before is not put again, and nothing is missing.
func TestLinkCutI4I7(t *testing.T) {
	t.Parallel()
	for _, kind := range append(databases, "file positions") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(*seed, 2))
			var db *testenv.Server
			if kind == "file positions" {
				db = testenv.NewMySQL(t, "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--max-binlog-size=1M")
			} else {
				db = testenv.NewMySQL(t, kind)
			}
			first := &fileTarget{filepath.Join(t.TempDir(), "out.jsonl"), "canal-json"}
			second := &fileTarget{filepath.Join(t.TempDir(), "second.jsonl"), "maxwell"}
			r := newRun(t, db, first)
			r.config = strings.Replace(r.config, "ring: { bytes: 1MiB, events: 24 }", "ring: { bytes: 1MiB, events: 16 }\n    detach_after: 200ms", 1)
			r.config = strings.Replace(r.config, "save_interval: 200ms", "save_interval: 0s", 1)
			r.config += fmt.Sprintf("      - name: second\n        codec: maxwell\n        window: 1MiB\n        %s\n", second.sink())
			link, broken, mend := flakyLink(t, db.Addr)
			r.config = strings.Replace(r.config, db.Addr, link, 1)
			p := process.Start(t, r.config)
			p.AwaitReady()
			ws := r.writers(2 * large)
			cuts, kills := 0, 0
			r.write(ws, 60, func() {
				for i := range 10 {
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
					cuts += db.KillDumps()
					if i%8 == 7 {
						p.Kill()
						kills++
						p = process.Start(t, r.config)
					}
				}
			})
			mend()
			r.settle(p)
			p.Stop()
			t.Logf("%d connections cut, %d dump threads and %d programs killed", broken.Load(), cuts, kills)
			c := r.verify(first, ws, true)
			if kills == 0 && c.Repeated > 0 {
				t.Errorf("%d messages arrived twice", c.Repeated)
			}
			r.verify(second, ws, true)
		})
	}
}

// TestDatabaseCrash: the source is killed while rows of it are on their way, and comes back.
func TestDatabaseCrash(t *testing.T) {
	perDatabase(t, func(t *testing.T, kind string) {
		db := testenv.NewMySQL(t, kind)
		to := &fileTarget{filepath.Join(t.TempDir(), "out.jsonl"), "canal-json"}
		r := newRun(t, db, to)
		p := process.Start(t, r.config)
		p.AwaitReady()
		var all []*workload.Writer
		const crashes = 2
		for i := range crashes + 1 {
			if i > 0 {
				db.Kill() // with what the program has not read yet
				db.Restart()
			}
			var ws []*workload.Writer
			for range writers {
				w := workload.NewWriter(db.Connect(""), r.schema, len(all), writers*(crashes+1), *seed)
				w.Large = large
				all, ws = append(all, w), append(ws, w)
			}
			r.write(ws, 40, nil)
		}
		r.settle(p)
		p.Stop()
		if c := r.verify(to, all, false); c.Repeated != 0 {
			t.Errorf("%d messages arrived twice", c.Repeated)
		}
	})
}

// TestSinksThatComeAndGo: brokers freeze and die in turn for longer than the ring waits, so that each sink again and
// again falls behind, reads for itself and meets the ring.
func TestSinksThatComeAndGo(t *testing.T) {
	t.Parallel()
	db := testenv.NewMySQL(t, "mysql")
	cluster := testenv.NewKafka(t, 1)
	pulsar := testenv.NewPulsar(t)
	a := &kafkaTarget{cluster, testenv.Name(t), "canal-json"}
	b := &pulsarTarget{pulsar, testenv.Name(t), "maxwell", ""}
	r := newRun(t, db, a)
	r.config = strings.Replace(r.config, "events: 24 }", "events: 24 }\n    detach_after: 300ms", 1)
	r.config += fmt.Sprintf("      - name: second\n        codec: %s\n        %s\n", b.codec(), b.sink())
	p := process.Start(t, r.config)
	p.AwaitReady()
	ws := r.writers(large)
	r.write(ws, 150, func() {
		for i := range 4 {
			time.Sleep(300 * time.Millisecond)
			switch i {
			case 0:
				cluster.Pause(1)
				time.Sleep(3 * time.Second)
				cluster.Resume(1)
			case 1:
				pulsar.Pause()
				time.Sleep(3 * time.Second)
				pulsar.Resume()
			case 2:
				cluster.Kill(1)
				time.Sleep(time.Second)
				cluster.Restart(1)
			case 3:
				pulsar.Kill()
				time.Sleep(time.Second)
				pulsar.Restart()
			}
		}
	})
	r.settle(p)
	p.Stop()
	if c := r.verify(a, ws, false); c.Repeated != 0 {
		t.Errorf("Kafka: %d messages arrived twice", c.Repeated)
	}
	if c := r.verify(b, ws, false); c.Repeated != 0 {
		t.Errorf("Pulsar: %d messages arrived twice", c.Repeated)
	}
}
