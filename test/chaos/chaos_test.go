//go:build integration

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/consume"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// What a run is asked for; "make chaos" sets them.
const (
	seedVariable   = "BINLOGMQ_CHAOS_SEED"     // repeats a schedule; 0: from the clock
	killsVariable  = "BINLOGMQ_CHAOS_KILLS"    // SIGKILLs
	forVariable    = "BINLOGMQ_CHAOS_DURATION" // ends the run earlier, such as 30m
	sinksVariable  = "BINLOGMQ_CHAOS_SINKS"    // some of kinds, with commas
	pausesVariable = "BINLOGMQ_CHAOS_PAUSES"   // zombies that sleep for two minutes
	metaVariable   = "BINLOGMQ_CHAOS_META"     // file: successors get a copy of the cursors; or zookeeper: they get the lease
	serverVariable = "BINLOGMQ_CHAOS_SERVER"   // kind of the database, as testenv names it; empty: the seed decides
	namesVariable  = "BINLOGMQ_CHAOS_NAMES"    // 0: its log has no column names, so that rows are read with the schema history; 1: it has; empty: none in the short form, else the seed decides
	raceVariable   = "BINLOGMQ_CHAOS_RACE"     // 0: the program without the race detector
	logsVariable   = "BINLOGMQ_CHAOS_LOGS"     // folder for what the program prints
)

// session is how long ZooKeeper waits for an owner that says nothing.
const session = 3 * time.Second

// kinds are the sinks that may take part.
var kinds = []string{"sequenced", "transactional", "at_least_once", "wire", "batched", "client"}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// run is one pass of chaos.
type run struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand // of what the schedule does not decide
	db     *testenv.Server
	kafka  *testenv.KafkaCluster
	pulsar *testenv.PulsarBroker
	links  *links
	schema string
	prefix string
	sinks  []string
	binary string
	logs   string
	config string
	leases bool
	h      *history

	children int
	repair   func() // mends what the last fault did to a server
	down     bool   // a broker may not be asked to lead
	kafkaAt  []string
	pulsarAt string

	did map[string]int
}

// TestChaos proves I1 to I8 with the whole program between real servers: at any instant it is killed, frozen and woken beside a
// successor, its links are cut, torn, slow, half-open, its database and brokers killed, frozen and restarted, leaders moved and dump threads
// killed. Then independent consumers find every committed change once, in order, and none that was rolled back.
func TestChaos(t *testing.T) {
	r := &run{t: t, h: newHistory(), repair: func() {}, did: map[string]int{}}
	r.seed = uint64(number(t, seedVariable, 0))
	if r.seed == 0 {
		r.seed = uint64(time.Now().UnixNano() / 1000)
	}
	r.rng = rand.New(rand.NewPCG(r.seed, 1))
	r.sinks = []string{"sequenced", "at_least_once", "wire", "batched"}
	if s := os.Getenv(sinksVariable); s != "" {
		r.sinks = strings.Split(s, ",")
	}
	has := map[string]bool{}
	for _, k := range r.sinks {
		if !slices.Contains(kinds, k) {
			t.Fatalf("%s: unknown sink %q; there are %s", sinksVariable, k, strings.Join(kinds, ","))
		}
		has[k] = true
		has[map[string]string{"wire": "pulsar", "batched": "pulsar", "client": "pulsar"}[k]] = true
		has[map[string]string{"sequenced": "kafka", "transactional": "kafka", "at_least_once": "kafka"}[k]] = true
		if k == "batched" {
			has["wire"] = true
		}
	}
	kills, pauses := number(t, killsVariable, 8), number(t, pausesVariable, 0)
	limit := time.Duration(0)
	if s := os.Getenv(forVariable); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", forVariable, err)
		}
	}
	store := os.Getenv(metaVariable)
	r.leases = store == "zookeeper"
	if !r.leases && store != "" && store != "file" {
		t.Fatalf("%s: %q is neither file nor zookeeper", metaVariable, store)
	}
	kind := cmp.Or(os.Getenv(serverVariable), []string{"mysql", "mariadb"}[r.seed%2])
	names := os.Getenv(namesVariable)
	if names == "" {
		names = "0"
		if os.Getenv(killsVariable) != "" && r.seed/8%2 == 0 {
			names = "1"
		}
	}
	again := fmt.Sprintf("make chaos SEED=%d KILLS=%d PAUSES=%d SINKS=%s META=%s SERVER=%s NAMES=%s", r.seed, kills, pauses, strings.Join(r.sinks, ","), store, kind, names)
	t.Logf("to repeat: %s", again)
	r.build()
	r.serve(has, kind, names == "1")
	steps := plan(rand.New(rand.NewPCG(r.seed, 2)), kills, len(r.links.all), pauses, has)
	for i := range steps {
		if r.leases { // what is dead or frozen has an heir only then
			steps[i].wait += session
			steps[i].sleep += 2 * session
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the program printed is in %s; to repeat: %s", r.logs, again)
		}
	})
	r.live(steps, limit)
	if !t.Failed() && os.Getenv(logsVariable) == "" {
		_ = os.RemoveAll(r.logs)
	}
}

// build makes the program with its kill points.
func (r *run) build() {
	r.t.Helper()
	r.binary = filepath.Join(r.t.TempDir(), "binlogmq")
	args := []string{"-tags", "chaos"}
	if os.Getenv(raceVariable) != "0" {
		args = append(args, "-race")
	}
	if err := process.Build(r.binary, args...); err != nil {
		r.t.Fatal(err)
	}
	r.logs = os.Getenv(logsVariable)
	var err error
	if r.logs == "" {
		r.logs, err = os.MkdirTemp("", "binlogmq-chaos-")
	} else {
		err = os.MkdirAll(r.logs, 0o755)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// serve starts the servers, with a link before each, and writes the configuration.
func (r *run) serve(has map[string]bool, kind string, names bool) {
	t := r.t
	t.Helper()
	r.links = newLinks(t)
	var options []string
	switch kind {
	case "mysql56", "mariadb102": // never have them
	case "mysql":
		if !names {
			options = []string{"--binlog-row-metadata=MINIMAL"}
		}
	default:
		if !names {
			options = []string{"--binlog-row-metadata=NO_LOG"}
		}
	}
	r.db = testenv.NewMySQL(t, kind, options...)
	r.schema = r.db.Database()
	r.prefix = testenv.Name(t)
	database := r.links.add("the database", "127.0.0.1:0", r.db.Addr)
	if has["kafka"] {
		behind := ports(t, 3, 1100+os.Getpid()%700)
		front := ports(t, 3, behind)
		r.kafka = testenv.NewKafka(t, 3,
			fmt.Sprintf("listeners=CLIENT://127.0.0.1:@PORT@,CONTROLLER://127.0.0.1:@CONTROLLER@,LINK://127.0.0.1:%d@ID@", behind),
			fmt.Sprintf("advertised.listeners=CLIENT://127.0.0.1:@PORT@,LINK://127.0.0.1:%d@ID@", front),
			"listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,LINK:PLAINTEXT")
		for i := 1; i <= 3; i++ {
			r.kafkaAt = append(r.kafkaAt, r.links.add(fmt.Sprintf("broker %d", i), fmt.Sprintf("127.0.0.1:%d%d", front, i), fmt.Sprintf("127.0.0.1:%d%d", behind, i)))
		}
	}
	if has["pulsar"] {
		front := fmt.Sprintf("127.0.0.1:%d1", ports(t, 1, 1100+(os.Getpid()+350)%700))
		r.pulsar = testenv.NewPulsar(t, "advertisedListeners=link:pulsar://"+front)
		r.pulsarAt = "pulsar://" + r.links.add("Pulsar", front, strings.TrimPrefix(r.pulsar.URL, "pulsar://"))
	}
	store := fmt.Sprintf("file: { directory: %q }", filepath.Join(t.TempDir(), "meta"))
	if r.leases {
		store = fmt.Sprintf("zookeeper: { servers: [%q], session_timeout: %v, root: /%s }", r.links.add("ZooKeeper", "127.0.0.1:0", testenv.ZooKeeper(t).Servers[0]), session, r.prefix)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
deployment: chaos
meta: { %s, save_interval: 200ms }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s, server_id: %d }
    tables: ["%s.*"]
    start: earliest
    ring: { bytes: 1MiB, events: 512 }
    sinks:
`, store, r.schema, database, r.db.ReplUser, r.db.ReplPassword, 1_000_000_000+r.rng.IntN(1_000_000_000), r.schema)
	for i, k := range r.sinks {
		fmt.Fprintf(&b, "      - name: %s\n        codec: %s\n        topic: %q\n        %s\n", k, r.codec(i), r.topic(k, "{table}"), r.sink(k))
	}
	r.config = b.String()
}

func (r *run) codec(i int) string {
	return []string{"canal-json", "maxwell"}[(r.seed/2+uint64(i))%2]
}

func (r *run) topic(kind, table string) string {
	name := r.prefix + "." + kind + "." + table
	switch kind {
	case "wire", "batched", "client":
		return "persistent://public/default/" + name
	}
	return name
}

func (r *run) sink(kind string) string {
	compression := []string{"none", "lz4", "zstd"}[r.rng.IntN(3)]
	switch kind {
	case "wire":
		return fmt.Sprintf("pulsar: { producer: wire, url: %q, admin_url: %q, topics: { partitions: 2 } }", r.pulsarAt, r.pulsar.AdminURL)
	case "batched":
		return fmt.Sprintf("pulsar: { producer: wire, batching: true, compression: %s, url: %q, admin_url: %q, topics: { partitions: 2 } }", compression, r.pulsarAt, r.pulsar.AdminURL)
	case "client":
		return fmt.Sprintf("pulsar: { producer: client, url: %q, admin_url: %q, topics: { partitions: 2 } }", r.pulsarAt, r.pulsar.AdminURL)
	}
	return fmt.Sprintf("kafka: { delivery: %s, compression: %s, brokers: [\"%s\"], topics: { partitions: 3, replication_factor: 3, configs: { min.insync.replicas: \"2\" } } }",
		kind, compression, strings.Join(r.kafkaAt, `","`))
}

// start runs the program, told what the step wants of it.
func (r *run) start(s step) *process.Child {
	r.t.Helper()
	o := process.Options{Binary: r.binary, LogFile: filepath.Join(r.logs, fmt.Sprintf("child-%04d.log", r.children))}
	r.children++
	switch s.deed {
	case "mark":
		o.Env = []string{fmt.Sprintf("BINLOGMQ_KILLPOINT=kill:%s:%d", s.mark, s.hit)}
	case "mark-zombie":
		o.Env = []string{fmt.Sprintf("BINLOGMQ_KILLPOINT=stop:%s:%d", s.mark, s.hit)}
	}
	return process.StartWith(r.t, r.config, o)
}

// live runs the schedule beside the writers, and verifies what came of it.
func (r *run) live(steps []step, limit time.Duration) {
	t := r.t
	begin := time.Now()
	connect := func() (*client.Conn, error) { return client.Connect(r.db.Addr, r.db.User, r.db.Password, "") }
	var ws []*writer
	for i, kind := range []string{"transfers", "transfers", "counters", "shapes"} {
		ws = append(ws, newWriter(kind, i, connect, r.schema, r.seed, 3000, r.h))
	}
	if err := create(r.db.Connect(""), r.schema); err != nil {
		t.Fatal(err)
	}
	p := r.start(steps[0])
	ctx, stopWriting := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { // also where the test ends early
		r.mendAll()
		stopWriting()
		wg.Wait()
	}()
	for _, w := range ws {
		wg.Go(func() {
			defer w.close()
			if err := w.run(ctx, 20*time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(2 * time.Second) // topics are made
	for i, s := range steps {
		if t.Failed() || limit > 0 && time.Since(begin) > limit {
			t.Logf("ended before step %d of %d", i+1, len(steps))
			break
		}
		r.mendAll()
		r.fault(s)
		next := step{}
		if i+1 < len(steps) {
			next = steps[i+1]
		}
		p = r.deed(p, s, next)
		r.note("%s", s)
	}
	r.mendAll()
	stopWriting()
	wg.Wait()
	p.Kill() // it may have been ousted
	r.did["SIGKILLs"]++
	p = r.start(step{})
	r.settle(p)
	if !t.Failed() {
		p.Stop()
	}
	r.verify()
	transactions, unknown := 0, 0
	for _, w := range ws {
		transactions += w.transactions
		unknown += w.unknown
		t.Logf("writer of %s: %d transactions, %d rolled back, %d savepoints, %d DDL statements, %d with an end unknown for a while",
			w.kind, w.transactions, w.rollbacks, w.savepoints, w.statements, w.unknown)
	}
	var what []string
	for _, k := range sortedKeys(r.did) {
		what = append(what, fmt.Sprintf("%s %d", k, r.did[k]))
	}
	t.Logf("seed %d, %s, %v: %s", r.seed, r.db.Kind, time.Since(begin).Round(time.Second), strings.Join(what, ", "))
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// note writes into the run's own log.
func (r *run) note(format string, args ...any) {
	f, err := os.OpenFile(filepath.Join(r.logs, "steps.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s child %d: %s\n", time.Now().UTC().Format("15:04:05.000"), r.children-1, fmt.Sprintf(format, args...))
}

func (r *run) mendAll() {
	r.repair()
	r.repair, r.down = func() {}, false
	r.links.repair()
}

// fault does something to a server or a link.
func (r *run) fault(s step) {
	r.t.Helper()
	if s.fault != "" {
		r.note("fault %s (%d, %d)", s.fault, s.target, s.size)
		r.did[s.fault]++
	}
	switch s.fault {
	case "":
	case "kill dumps":
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // the program may just start
			if n := r.db.KillDumps(); n > 0 {
				r.did["dump threads killed"] += n
				break
			}
		}
	case "restart database":
		r.db.Restart()
	case "kill database":
		r.db.Kill()
		r.db.Restart()
	case "freeze database":
		r.db.Pause()
		r.repair = r.db.Resume
	case "kill broker":
		r.kafka.Kill(s.target)
		r.repair = func() { r.kafka.Restart(s.target) }
	case "restart broker":
		r.kafka.Stop(s.target)
		r.repair = func() { r.kafka.Restart(s.target) }
	case "freeze broker":
		r.kafka.Pause(s.target)
		r.repair = func() { r.kafka.Resume(s.target) }
	case "move leader":
		for _, k := range r.sinks {
			if k == "sequenced" || k == "transactional" || k == "at_least_once" {
				r.kafka.MoveLeader(r.topic(k, tables[s.table].Name), int32(s.part), s.target)
			}
		}
	case "kill pulsar":
		r.pulsar.Kill()
		r.repair = r.pulsar.Restart
	case "restart pulsar":
		r.pulsar.Stop()
		r.repair = r.pulsar.Restart
	case "freeze pulsar":
		r.pulsar.Pause()
		r.repair = r.pulsar.Resume
	default:
		r.links.harm(s.fault, s.target, s.size)
	}
}

// patience is how long a mark may take to be reached.
const patience = 8*time.Second + session

// deed does something to the program and returns its successor.
func (r *run) deed(p *process.Child, s, next step) *process.Child {
	t := r.t
	t.Helper()
	switch s.deed {
	case "mark":
		select {
		case <-p.Ended():
			if !strings.Contains(p.Log(), "killpoint "+s.mark) && !r.ousted(p) {
				t.Errorf("the program ended by itself: %.3000s", tail(p))
			}
			r.did["SIGKILLs at a mark"]++
		case <-time.After(patience):
			r.did["SIGKILLs"]++ // it was not reached
			p.Kill()
		}
	case "zombie", "mark-zombie":
		frozen := false
		for deadline := time.Now().Add(patience); s.deed == "mark-zombie" && !frozen && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			frozen = stopped(p.PID())
		}
		if !frozen {
			time.Sleep(s.wait)
			r.alive(p)
			p.Signal(syscall.SIGSTOP)
		} else {
			r.did["zombies at a mark"]++
		}
		zombie := p
		r.moved()
		p = r.start(next)
		time.Sleep(s.sleep)
		zombie.Signal(syscall.SIGCONT)
		time.Sleep(s.both) // both send
		if strings.Contains(zombie.Log(), "in use by") {
			t.Error("the zombie found the directory locked")
		}
		select {
		case <-zombie.Ended():
			r.did["zombies that ended by themselves"]++
		default:
			zombie.Kill()
		}
		r.did["zombies"]++
		r.did["SIGKILLs"]++
		return p
	case "stop":
		time.Sleep(s.wait)
		r.alive(p)
		p.Signal(syscall.SIGTERM)
		select { // with a server away it may not get rid of what it has
		case <-p.Ended():
		case <-time.After(patience):
			p.Kill()
			r.did["SIGKILLs"]++
		}
		r.did["SIGTERMs"]++
	default:
		time.Sleep(s.wait)
		if r.alive(p) {
			p.Kill()
			r.did["SIGKILLs"]++
		}
	}
	return r.start(next)
}

// alive fails the test if the program has ended by itself, unless a woken zombie has ousted it.
func (r *run) alive(p *process.Child) bool {
	r.t.Helper()
	select {
	case <-p.Ended():
		if !r.ousted(p) {
			r.t.Fatalf("the program ended by itself: %s", tail(p))
		}
		return false
	default:
		return true
	}
}

// ousted tells, and counts, that a woken zombie has taken over what the program did.
func (r *run) ousted(p *process.Child) bool {
	if !p.Ousted() {
		return false
	}
	r.did["ousted by a zombie"]++
	return true
}

func tail(p *process.Child) string {
	s := p.Log()
	return s[max(0, len(s)-3000):]
}

// stopped tells whether a process is frozen.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "T")
}

var (
	directory = regexp.MustCompile(`directory: "([^"]+)"`)
	serverID  = regexp.MustCompile(`server_id: (\d+)`)
)

// moved makes the configuration another node's: with a copy of the cursors where they are files, as the lock is not copied.
func (r *run) moved() {
	r.t.Helper()
	// Else the source cuts the one that it knows by the same server id.
	r.config = serverID.ReplaceAllStringFunc(r.config, func(s string) string {
		n, err := strconv.Atoi(serverID.FindStringSubmatch(s)[1])
		if err != nil {
			r.t.Fatal(err)
		}
		return fmt.Sprintf("server_id: %d", n+1)
	})
	if r.leases {
		return
	}
	from := directory.FindStringSubmatch(r.config)[1]
	to := filepath.Join(r.t.TempDir(), "meta")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		// A save that was under way has renamed its file meanwhile.
		_ = os.RemoveAll(to)
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			r.t.Fatal(err)
		}
	}
	_ = os.Remove(filepath.Join(to, "lock")) // it tells of the other process
	r.config = strings.Replace(r.config, from, to, 1)
}

// settle waits until every committed change is acknowledged by every sink.
func (r *run) settle(p *process.Child) {
	r.t.Helper()
	if r.t.Failed() {
		return
	}
	file, offset := r.db.LogEnd()
	p.AwaitAcknowledged(file, offset, 10*time.Minute)
}

// verify reads every sink's topics back.
func (r *run) verify() {
	r.t.Helper()
	kafka, pulsar := consume.Lanes{}, consume.Lanes{}
	for i, kind := range r.sinks {
		a := newAudit(r.h, r.codec(i), kind == "at_least_once")
		check := &workload.Checker{Codec: r.codec(i), Schema: r.schema, Tables: tables, Replays: kind == "at_least_once"}
		var broken error
		rebuilt := false
		found := kafka
		each := func(m workload.Message) {
			found.Add(m)
			if err := a.Add(m); err != nil {
				r.t.Fatal(err)
			}
			if broken == nil && rebuilt {
				broken = check.Add(m)
			}
		}
		for k, name := range append([]string{tables[0].Name, tables[1].Name, tables[2].Name}, shapes...) {
			rebuilt = k < len(tables) // a truncated table cannot be; and the text of a type may be unknown in a repetition behind its DDL
			switch kind {
			case "wire", "batched", "client":
				found = pulsar
				consume.Pulsar(r.t, r.pulsar.URL, r.topic(kind, name), each)
			default:
				consume.Kafka(r.t, r.kafka.Bootstrap, r.topic(kind, name), kind == "transactional", each)
			}
		}
		a.Finish()
		r.t.Logf("%s: %s", kind, a)
		for _, what := range a.first {
			r.t.Logf("%s: %.600s", kind, what)
		}
		if !a.Clean() {
			r.t.Errorf("%s: what consumers find is not what was committed", kind)
		}
		if broken == nil {
			broken = check.Compare(r.db.Connect(""))
		}
		if broken != nil {
			r.t.Errorf("%s: the tables rebuilt from the topics: %v", kind, broken)
		}
	}
	r.compare("Kafka", kafka, func(topics []string) consume.Lanes { return consume.KafkaByJava(r.t, r.kafka.Bootstrap, topics) })
	r.compare("Pulsar", pulsar, func(topics []string) consume.Lanes { return consume.PulsarByJava(r.t, r.pulsar.URL, topics) })
}

// compare lets the broker's own Java client read what was found as well.
func (r *run) compare(broker string, found consume.Lanes, read func(topics []string) consume.Lanes) {
	r.t.Helper()
	if len(found) == 0 {
		return
	}
	begin := time.Now()
	if err := found.Compare(read(found.Topics())); err != nil {
		r.t.Errorf("%s: the Java client has read something else: %v", broker, err)
		return
	}
	r.t.Logf("%s: its Java client has read the same %d messages of %d partitions, in %v", broker, found.Messages(), len(found), time.Since(begin).Round(time.Second))
}
