//go:build integration

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/internal/zkdial"
	"github.com/binlogmq/binlogmq/test/process"
)

// member is one of the processes that share the destinations, with links of its own to ZooKeeper and to Kafka.
type member struct {
	*process.Child
	name       string
	config     string
	zoo, kafka *toxiproxy.Proxy
}

// clusterNodes is how many processes there are, when none is away.
const clusterNodes = 3

// clusterRun is a cluster that publishes the same tables twice, as two destinations.
type clusterRun struct {
	*run
	zoo       *testenv.ZooKeeperEnsemble
	zooClient *zk.Conn
	names     []string // of the destinations
	targets   []*kafkaTarget
	members   []*member
	rng       *rand.Rand
	tookOver  map[string][]time.Duration
}

func newClusterRun(t *testing.T) *clusterRun {
	t.Helper()
	c := &clusterRun{rng: rand.New(rand.NewPCG(*seed, 77)), tookOver: map[string][]time.Duration{}}
	// A listener for each process, so that each can be cut off alone.
	listeners, advertised, protocols := "listeners=CLIENT://127.0.0.1:@PORT@,CONTROLLER://127.0.0.1:@CONTROLLER@", "advertised.listeners=CLIENT://127.0.0.1:@PORT@", "listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	var front, behind [clusterNodes]string
	for i := range clusterNodes {
		front[i], behind[i] = process.FreeAddress(t), process.FreeAddress(t)
		listeners += fmt.Sprintf(",LINK%d://%s", i, behind[i])
		advertised += fmt.Sprintf(",LINK%d://%s", i, front[i])
		protocols += fmt.Sprintf(",LINK%d:PLAINTEXT", i)
	}
	kafka := testenv.NewKafka(t, 1, listeners, advertised, protocols)
	prefix := testenv.Name(t)
	c.run = newRun(t, testenv.MySQL(t, "mysql"), &kafkaTarget{kafka, prefix, "canal-json"})
	c.zoo = testenv.NewZooKeeper(t, 1)
	var err error
	dialer := zkdial.Dialer{Timeout: 4 * time.Second} // without it the client waits for half a minute for a server that was killed as it connected
	if c.zooClient, _, err = zk.Connect(c.zoo.Servers, dialer.Timeout, zk.WithDialer(dialer.Dial), zk.WithLogInfo(false), zk.WithLogger(quietLog{})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.zooClient.Close)
	for i := range 2 {
		c.names = append(c.names, fmt.Sprintf("%s_%d", c.schema, i))
		c.targets = append(c.targets, &kafkaTarget{kafka, fmt.Sprintf("%s.%d", prefix, i), "canal-json"})
	}
	first := 1_000_000_000 + rand.Int64N(1_000_000_000)
	for i := range clusterNodes {
		m := &member{name: string(rune('a' + i))}
		m.zoo = startLink(t, "zookeeper of "+m.name, "127.0.0.1:0", c.zoo.Servers[0])
		m.kafka = startLink(t, "kafka of "+m.name, front[i], behind[i])
		m.config = fmt.Sprintf(`
deployment: test
meta: { zookeeper: { servers: [%q], session_timeout: 4s, root: /binlogmq, node: %s, rebalance_delay: 1s }, save_interval: 200ms }
canal: { listen: %q }
destinations:
`, m.zoo.Listen, m.name, process.FreeAddress(t))
		for d, name := range c.names {
			m.config += fmt.Sprintf(`
  - name: %s
    source: { address: %q, user: %s, password: %s, server_id: %d }
    tables: ["%s.*"]
    ring: { bytes: 1MiB }
    sinks:
      - name: out
        kafka: { brokers: [%q], topics: { partitions: 3 }, request_timeout: 5s }
        topic: "%s.{table}"
`, name, c.db.Addr, c.db.ReplUser, c.db.ReplPassword, first+int64(i*2+d), c.schema, front[i], c.targets[d].prefix)
		}
		m.Child = process.Start(t, m.config)
		c.members = append(c.members, m)
	}
	return c
}

type quietLog struct{}

func (quietLog) Printf(string, ...any) {}

// destination finds a destination's report.
func destination(r *admin.Report, name string) *admin.Destination {
	for i := range r.Destinations {
		if r.Destinations[i].Name == name {
			return &r.Destinations[i]
		}
	}
	return &admin.Destination{}
}

// state is who owns a destination, and how far that has come.
type state struct {
	*member
	epoch, rows int64
}

// await waits until a process owns the destination and f, if given, is content with it.
func (c *clusterRun) await(name string, f func(state) bool) state {
	c.t.Helper()
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for _, m := range c.members {
			if m.Child == nil {
				continue
			}
			r, ok := m.Report()
			d := destination(&r, name)
			if !ok || !d.Owner || !d.Connected || len(d.Sinks) == 0 {
				continue
			}
			if s := (state{m, d.Epoch, d.Sinks[0].Rows}); f == nil || f(s) {
				return s
			}
		}
		if time.Now().After(end) {
			c.t.Fatalf("seed %d: nobody owns and publishes %s", *seed, name)
		}
	}
}

// The rounds' faults: what is done to the owner of a destination.
const (
	kill       = "SIGKILL"
	freeze     = "SIGSTOP past the session"
	cutZoo     = "cut off from ZooKeeper alone"
	cutBroker  = "cut off from the broker alone"
	restartZoo = "ZooKeeper restarts"
	release    = "released by an operator"
	leave      = "SIGTERM, away for a round"
)

var clusterFaults = []string{kill, freeze, cutZoo, cutBroker, restartZoo, release, leave}

// round does one thing to the owner of a destination, and returns when the destination is published again.
func (c *clusterRun) round(fault, name string) {
	c.t.Helper()
	old := c.await(name, nil)
	began := time.Now()
	moves := true // another process takes it
	after := func() {}
	switch fault {
	case kill:
		old.Kill()
		old.Child = nil
		after = func() { old.Child = process.Start(c.t, old.config) }
	case leave:
		old.Stop()
		old.Child = nil
	case freeze:
		old.Signal(syscall.SIGSTOP)
		pid := old.PID()
		old.Child, after = nil, func(child *process.Child) func() {
			return func() {
				// Its lease is long over.
				time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
					c.t.Fatal(err)
				}
				old.Child = child
			}
		}(old.Child)
	case cutZoo:
		after = deaf(c.t, old.zoo)
	case cutBroker:
		mend := deaf(c.t, old.kafka)
		time.Sleep(time.Second + time.Duration(c.rng.IntN(2000))*time.Millisecond)
		old, moves = c.await(name, nil), false
		mend()
	case restartZoo:
		moves = false
		c.zoo.Kill(1)
		time.Sleep(time.Duration(c.rng.IntN(5000)) * time.Millisecond)
		c.zoo.Start()
	case release:
		at := canalzk.Running(canalzk.Root, name)
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			data, _, err := c.zooClient.Get(at)
			if err == nil {
				_, err = c.zooClient.Set(at, []byte(strings.Replace(string(data), `"active":true`, `"active":false`, 1)), -1)
			}
			if err == nil {
				break
			}
			if time.Now().After(end) { // after the round before, ZooKeeper or the node may be away for a moment
				c.t.Fatalf("seed %d: %s: %v", *seed, at, err)
			}
		}
	}
	c.await(name, func(s state) bool {
		if s.member == old.member && moves {
			return false
		}
		return s.epoch != old.epoch && s.rows > 0 || s.rows > old.rows
	})
	took := time.Since(began)
	c.tookOver[fault] = append(c.tookOver[fault], took)
	after()
	if fault != leave {
		for _, m := range c.members { // whoever was away comes back
			if m.Child == nil {
				m.Child = process.Start(c.t, m.config)
			}
		}
	}
	c.t.Logf("%s of %s (%s): published after %v", fault, name, old.name, took.Round(time.Millisecond))
}

// consumer is one of Canal's clients, which follows its destination.
type consumer struct {
	t      *testing.T
	c      *client.Cluster
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex
	seen     map[place]bool // row changes that have come
	last     place
	repeated int64
	batches  int64 // rolled back with their connection
	err      error
}

// place is where a row change stands in the log: that of its event, and the row's index in it.
type place struct {
	file   string
	offset int64
	row    int
}

func (p place) compare(q place) int {
	return cmp.Or(strings.Compare(p.file, q.file), cmp.Compare(p.offset, q.offset), cmp.Compare(p.row, q.row))
}

func (c *clusterRun) consume(name string) *consumer {
	c.t.Helper()
	cl, err := client.NewCluster(client.ClusterOptions{
		TCPOptions: client.TCPOptions{Destination: name, Timeout: 10 * time.Second}, ZooKeeper: c.zoo.Servers, SessionTimeout: 10 * time.Second, Retries: -1, RetryInterval: 100 * time.Millisecond,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &consumer{t: c.t, c: cl, cancel: cancel, seen: map[place]bool{}}
	if err := errors.Join(cl.Connect(ctx), cl.Subscribe(ctx, c.schema+`\..*`)); err != nil {
		c.t.Fatal(err)
	}
	s.ended.Go(func() {
		err := s.follow(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil {
			s.err = err
		}
		_ = cl.Disconnect(context.Background())
	})
	c.t.Cleanup(s.stop)
	return s
}

func (s *consumer) stop() {
	s.cancel()
	s.ended.Wait()
}

func (s *consumer) follow(ctx context.Context) error {
	for {
		m, err := s.c.GetWithoutAck(ctx, 64, client.Wait(100*time.Millisecond))
		if err != nil {
			return err
		}
		for _, raw := range m.Entries {
			e, err := client.ParseEntry(raw)
			if err != nil {
				return err
			}
			if e.Type != client.RowData {
				continue
			}
			change, err := client.ParseRowChange(e.Store)
			if err != nil {
				return err
			}
			if err := s.add(e, len(change.Rows)); err != nil {
				return err
			}
		}
		switch err := s.c.Ack(ctx, m.ID); {
		case errors.Is(err, client.ErrRolledBack):
			s.mu.Lock()
			s.batches++
			s.mu.Unlock()
		case err != nil:
			return err
		}
	}
}

// add notes rows: what comes for the first time is behind all that has come.
func (s *consumer) add(e *client.Entry, rows int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range rows {
		p := place{e.Header.File, e.Header.Offset, i}
		if s.seen[p] {
			s.repeated++
			continue
		}
		if p.compare(s.last) <= 0 {
			return fmt.Errorf("row %+v comes for the first time after %+v", p, s.last)
		}
		s.seen[p], s.last = true, p
	}
	return nil
}

// settled says whether everything up to the log's end is acknowledged, by the sink and by the client.
func (c *clusterRun) settled(name, file string, offset int64) bool {
	for _, m := range c.members {
		if m.Child == nil {
			continue
		}
		r, ok := m.Report()
		d := destination(&r, name)
		if !ok || !d.Owner {
			continue
		}
		at, _, _ := strings.Cut(d.Position, " ")
		atFile, atOffset, _ := strings.Cut(at, ":")
		n, err := strconv.ParseInt(atOffset, 10, 64)
		return err == nil && (atFile > file || atFile == file && n >= offset) && len(d.Sinks) == 2 && d.Sinks[0].Behind == 0 && d.Sinks[1].Behind == 0
	}
	return false
}

// TestCluster proves I2, I7 and I8 with whole programs that share two destinations, while something goes wrong with an owner in each round: Kafka's
// topics have every row change once, in order, and two of Canal's clients get every one at least once, in order.
//
// BINLOGMQ_CLUSTER_ROUNDS makes it longer; each fault comes once in as many rounds as there are faults.
func TestCluster(t *testing.T) {
	t.Parallel()
	rounds := setting(t, "BINLOGMQ_CLUSTER_ROUNDS", len(clusterFaults), strconv.Atoi)
	c := newClusterRun(t)
	var consumers []*consumer
	for _, name := range c.names {
		c.await(name, nil)
		consumers = append(consumers, c.consume(name))
	}
	ws := c.writers(300)
	// A long form writes no more than a short one can read back.
	stop := c.writeOn(ws, time.Duration(max(20, min(rounds, 200)))*time.Millisecond)
	for _, name := range c.names { // the topics are made
		c.await(name, func(s state) bool { return s.rows > 0 })
	}
	var order []int
	for i := range rounds {
		if i%len(clusterFaults) == 0 {
			order = c.rng.Perm(len(clusterFaults))
		}
		t.Logf("round %d of %d", i+1, rounds)
		c.round(clusterFaults[order[i%len(clusterFaults)]], c.names[c.rng.IntN(len(c.names))])
		for i, s := range consumers {
			s.mu.Lock()
			err := s.err
			s.mu.Unlock()
			if err != nil {
				t.Fatalf("seed %d: client of %s: %v", *seed, c.names[i], err)
			}
		}
	}
	// All are there again: no process has both destinations for long.
	for end := time.Now().Add(5 * time.Minute); c.await(c.names[0], nil).member == c.await(c.names[1], nil).member; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("seed %d: one process keeps both destinations", *seed)
		}
	}
	stop()
	file, offset := c.end()
	for i, name := range c.names {
		for end := time.Now().Add(5 * time.Minute); !c.settled(name, file, offset); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("seed %d: %s is not acknowledged to the end: client %+v", *seed, name, consumers[i].last)
			}
		}
	}
	committed := int64(0)
	for _, w := range ws {
		committed += w.Changes
	}
	for i, s := range consumers {
		s.stop()
		if s.err != nil || int64(len(s.seen)) != committed {
			t.Errorf("seed %d: client of %s: %d row changes of %d (%v)", *seed, c.names[i], len(s.seen), committed, s.err)
		}
		t.Logf("client of %s: %d row changes, %d repeated, %d batches rolled back with their connection", c.names[i], len(s.seen), s.repeated, s.batches)
	}
	for _, m := range c.members {
		if m.Child != nil {
			m.Stop()
		}
	}
	for _, target := range c.targets {
		c.verify(target, ws, false)
	}
	for _, fault := range clusterFaults {
		if took := c.tookOver[fault]; len(took) > 0 {
			slices.Sort(took)
			t.Logf("%-32s %3d times, published again after %v (median), %v (most)", fault, len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		}
	}
	t.Logf("seed %d: %d rounds", *seed, rounds)
}
