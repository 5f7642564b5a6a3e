//go:build integration

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// origin is the UUID of the transactions that both servers of a pair have, and local that of those that begin on one of them.
const (
	origin = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	local  = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
)

// txn is a transaction that may be committed on several servers under one GTID, as replication would do it.
type txn struct {
	stream int // 0, 1: of the origin; 2: local. MariaDB's domain less 1
	seq    int
	rows   int
	large  int      // index of a row of 20 KiB; -1: none
	bulk   bool     // all rows by one statement
	also   []string // further statements
}

// pair is two servers with the same table and logs of their own.
type pair struct {
	t        *testing.T
	r        *run
	targets  []target
	sessions map[*testenv.Server]*client.Conn
	next     [3]int
	want     map[string]bool // "GTID row"
}

const onlyOut = "      - name: other\n"

// newPair makes the servers and a run on the first one with a sink on Kafka and one on Pulsar, or with the one sink that is given.
func newPair(t *testing.T, kind string, only ...func(prefix string) target) (p *pair, one, two *testenv.Server) {
	t.Helper()
	one, two = testenv.NewMySQL(t, kind), testenv.NewMySQL(t, kind)
	p = &pair{t: t, sessions: map[*testenv.Server]*client.Conn{}, want: map[string]bool{}}
	name := testenv.Name(t)
	for _, db := range []*testenv.Server{one, two} {
		c := db.Connect("")
		p.sessions[db] = c
		for _, q := range []string{"SET sql_log_bin=0", "CREATE DATABASE " + name, "CREATE TABLE " + name + ".moves (id BIGINT PRIMARY KEY, pad MEDIUMTEXT)", "SET sql_log_bin=1"} {
			p.exec(c, q)
		}
		if db.MariaDB() {
			p.exec(c, "RESET MASTER")
			p.exec(c, "SET GLOBAL gtid_slave_pos=''")
		} else {
			p.exec(c, "RESET BINARY LOGS AND GTIDS")
		}
	}
	for _, f := range only {
		p.targets = append(p.targets, f(name))
	}
	if len(only) == 0 {
		p.targets = []target{
			&sequencedTarget{&kafkaTarget{testenv.Kafka(t), name, "canal-json"}, ", topics: { partitions: 3 }"},
			&pulsarTarget{testenv.Pulsar(t), name, "maxwell", "producer: wire, batching: true,"},
		}
	}
	p.r = &run{t: t, db: one, schema: name, target: p.targets[0]}
	p.r.config = fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q }, save_interval: 1h }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    ring: { bytes: 1MiB, events: 24 }
    sinks:
      - name: out
        codec: %s
        max_message_bytes: 16KiB
        %s
`, t.TempDir()+"/meta", name, one.Addr, one.ReplUser, one.ReplPassword, name, p.targets[0].codec(), p.targets[0].sink())
	for _, to := range p.targets[1:] {
		p.r.config += fmt.Sprintf("%s        codec: %s\n        %s\n", onlyOut, to.codec(), to.sink())
	}
	return p, one, two
}

func (p *pair) exec(c *client.Conn, statement string) {
	p.t.Helper()
	if _, err := c.Execute(statement); err != nil {
		p.t.Fatalf("%.100s: %v", statement, err)
	}
}

// make makes transactions of the next numbers of a stream.
func (p *pair) make(stream, n int) (all []*txn) {
	for range n {
		p.next[stream]++
		all = append(all, &txn{stream: stream, seq: p.next[stream], rows: 1 + p.next[stream]%3, large: -1})
	}
	return all
}

// makeOrigin makes transactions of the streams that begin on the first server.
func (p *pair) makeOrigin(rng *rand.Rand, n int) (all []*txn) {
	for range n {
		all = append(all, p.make(rng.IntN(2), 1)...)
	}
	return all
}

// server is who wrote it first: on MariaDB two take turns in each domain.
func (x *txn) server() int { return 77 + x.seq/5%2 }

func (x *txn) gtid(mariaDB bool) string {
	switch {
	case mariaDB:
		return fmt.Sprintf("%d-%d-%d", x.stream+1, x.server(), x.seq)
	case x.stream == 2:
		return fmt.Sprintf("%s:%d", local, x.seq)
	}
	return fmt.Sprintf("%s:%d", origin, 2*x.seq+x.stream) // MySQL has one stream, in any order
}

// commit commits transactions on a server, in this order.
func (p *pair) commit(db *testenv.Server, all ...*txn) {
	p.t.Helper()
	c, last := p.sessions[db], ""
	for _, x := range all {
		if db.MariaDB() {
			p.exec(c, fmt.Sprintf("SET gtid_domain_id=%d, server_id=%d", x.stream+1, x.server()))
			p.exec(c, fmt.Sprintf("SET gtid_seq_no=%d", x.seq)) // is looked at with the domain of before
		} else {
			p.exec(c, "SET GTID_NEXT='"+x.gtid(false)+"'")
			last = "SET GTID_NEXT=AUTOMATIC"
		}
		p.exec(c, "BEGIN")
		if x.bulk {
			limit := "cte_max_recursion_depth"
			if db.MariaDB() {
				limit = "max_recursive_iterations"
			}
			p.exec(c, fmt.Sprintf("SET SESSION %s=%d", limit, x.rows))
			p.exec(c, fmt.Sprintf("INSERT INTO %s.moves WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT 100000000+i, REPEAT('x', 100) FROM n", p.r.schema, x.rows-1))
		}
		for row := range x.rows {
			size := 10
			if row == x.large {
				size = 20 << 10
			}
			if !x.bulk {
				p.exec(c, fmt.Sprintf("INSERT INTO %s.moves VALUES (%d, REPEAT('x', %d))", p.r.schema, x.stream*1000000+x.seq*100+row, size))
			}
			p.want[fmt.Sprintf("%s %d", x.gtid(db.MariaDB()), row)] = true
		}
		for _, q := range x.also {
			p.exec(c, q)
		}
		p.exec(c, "COMMIT")
	}
	if last != "" {
		p.exec(c, last)
	}
}

// mixed returns transactions in an order that another server may have: any on MySQL, any that keeps the order within a domain on MariaDB.
func mixed(rng *rand.Rand, mariaDB bool, lists ...[]*txn) (all []*txn) {
	var streams [3][]*txn
	for _, l := range lists {
		for _, x := range l {
			streams[x.stream] = append(streams[x.stream], x)
		}
	}
	if !mariaDB {
		for _, l := range lists {
			all = append(all, l...)
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all
	}
	for len(streams[0])+len(streams[1])+len(streams[2]) > 0 {
		if i := rng.IntN(3); len(streams[i]) > 0 {
			all, streams[i] = append(all, streams[i][0]), streams[i][1:]
		}
	}
	return all
}

// at lets the program read another server from its next start on.
func (p *pair) at(db *testenv.Server) {
	p.r.config = strings.Replace(p.r.config, p.r.db.Addr, db.Addr, 1)
	p.r.db = db
}

// alone returns the configuration with the first sink only.
func (p *pair) alone() string { return p.r.config[:strings.Index(p.r.config, onlyOut)] }

// once checks that each change is in each topic once.
func (p *pair) once() {
	p.t.Helper()
	for i, to := range p.targets {
		name := []string{"first sink", "second sink"}[i]
		got := map[string]int{}
		for _, m := range to.read(p.t, "moves") {
			got[m.Headers["gtid"]+" "+m.Headers["row"]]++
		}
		for id, n := range got {
			if n > 1 || !p.want[id] {
				p.t.Errorf("%s: change %s is there %d times", name, id, n)
			}
		}
		for id := range p.want {
			if got[id] == 0 {
				p.t.Errorf("%s: change %s is missing", name, id)
			}
		}
	}
}

// sent waits until every sink has had so many rows acknowledged since the start.
func sent(c *process.Child, rows int64) {
	c.Await("rows of every sink", patience, func(r *admin.Report) bool {
		return !slices.ContainsFunc(r.Destinations[0].Sinks, func(s admin.Sink) bool { return s.Rows < rows })
	})
}

// saved waits until the cursors tell of all that is acknowledged.
func saved(c *process.Child) {
	c.Await("cursors that are saved", patience, func(r *admin.Report) bool {
		return !slices.ContainsFunc(r.Destinations[0].Sinks, func(s admin.Sink) bool { return s.CursorAge != 0 })
	})
}

// group lets the program read both servers as a failover group, the first one first.
func (p *pair) group(one, two *testenv.Server) {
	for range 8 { // run.settle compares names of files: none of the first server's is as high
		two.Exec("FLUSH BINARY LOGS")
	}
	p.r.config = strings.Replace(p.r.config, fmt.Sprintf("address: %q", one.Addr), fmt.Sprintf("address: [%q, %q]", one.Addr, two.Addr), 1)
	p.r.config = strings.Replace(p.r.config, "save_interval: 1h", "save_interval: 50ms", 1)
}

// back starts a server that was killed again, and commits on it what it has missed.
func (p *pair) back(db *testenv.Server, missed []*txn) {
	db.Restart()
	p.sessions[db] = db.Connect("")
	p.commit(db, missed...)
}

const movedText = "all cursors of the destination begin at one place of its log"

// TestFailoverAndBack proves I5 and I7: from one server to another, which holds the same transactions in another order, and some of its own
// between them, and back, with the sinks' cursors at different places, one of them inside a transaction, and under kills: each
// change is there once. A server that lacks what is published is refused.
func TestFailoverAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(*seed, 7))
			p, one, two := newPair(t, kind)
			maria := one.MariaDB()
			// Some transactions are on both servers before anything is read.
			begin := append(p.make(0, 1), p.make(1, 1)...)
			p.commit(one, begin...)
			p.commit(two, begin...)
			clear(p.want)

			c := process.Start(t, p.r.config)
			c.AwaitReady()
			first := p.makeOrigin(rng, 40)
			p.commit(one, first...)
			p.r.settle(c)
			c.Stop()
			// The second sink stays behind; the first one stops inside a transaction, at a row too large for it.
			more := p.makeOrigin(rng, 20)
			inside := p.make(0, 1)[0]
			inside.rows, inside.large = 8, 4
			after := p.makeOrigin(rng, 20)
			p.commit(one, more...)
			p.commit(one, inside)
			p.commit(one, after...)
			c = process.Start(t, p.alone())
			<-c.Ended()
			if out := p.r.binlogmq("cursor", "show"); !strings.Contains(out, "progress    4 in the next transaction") || !strings.Contains(out, inside.gtid(maria)) {
				t.Fatalf("the sink does not stand inside the transaction:\n%s", out)
			}
			p.r.config = strings.Replace(strings.Replace(p.r.config, "16KiB", "64KiB", 1), "save_interval: 1h", "save_interval: 50ms", 1)

			// The other server.
			locals := p.make(2, 15)
			p.commit(two, mixed(rng, maria, first, more, []*txn{inside}, after, locals)...)
			p.at(two)
			c = process.Start(t, p.r.config)
			logged(c, movedText, 1)
			for range 2 {
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				c.Kill()
				c = process.Start(t, p.r.config)
			}
			late := p.makeOrigin(rng, 1)
			p.commit(two, late...) // or the log may end with what is done already, which the server does not send
			p.r.settle(c)
			saved(c)
			later := append(p.makeOrigin(rng, 30), p.make(2, 10)...)
			p.commit(two, later...)
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			c.Kill()

			// Back on the first one, which lacks what has been published meanwhile, and then has it, in an order of its own.
			p.at(one)
			c = process.Start(t, p.r.config)
			<-c.Ended()
			if !strings.Contains(c.Log(), "lacks transactions that have been published") {
				t.Errorf("gone on without what is published:\n%s", c.Log())
			}
			p.commit(one, mixed(rng, maria, locals, late, later)...)
			c = process.Start(t, p.r.config)
			logged(c, movedText, 1)
			for range 2 {
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				c.Kill()
				c = process.Start(t, p.r.config)
			}
			p.commit(one, p.makeOrigin(rng, 20)...)
			p.r.settle(c)
			c.Stop()
			p.once()
		})
	}
}

// TestFailoverForthAndBack proves I5 and I7: the server dies in the middle of a large transaction that is being read, and the next address of the
// group has other transactions before that one. The running program goes on there by itself; it is killed, and finds the first server again, which has
// everything by then, in an order of its own; that one dies once more, and the program is killed while it changes over. Each change is there once.
func TestFailoverForthAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(*seed, 8))
			p, one, two := newPair(t, kind)
			maria := one.MariaDB()
			p.group(one, two)
			begin := p.make(0, 1)
			p.commit(one, begin...)
			p.commit(two, begin...)
			clear(p.want)
			large := p.make(0, 1)[0]
			large.rows, large.bulk = 30000, true
			before, after := p.make(1, 15), p.makeOrigin(rng, 10)
			locals := p.make(2, 10)
			p.commit(two, mixed(rng, maria, before, locals)...)
			p.commit(two, large)
			p.commit(two, after...)

			c := process.Start(t, p.r.config)
			c.AwaitReady()
			p.commit(one, large)
			sent(c, 500)
			one.Kill()
			p.r.db = two
			later := p.makeOrigin(rng, 5)
			p.commit(two, later...)
			p.r.settle(c)
			begunAnew := strings.Contains(c.Log(), "the destination begins anew")
			more := append(p.makeOrigin(rng, 30), p.make(2, 5)...)
			p.commit(two, more...)
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			c.Kill()

			p.r.db = one
			p.back(one, mixed(rng, maria, before, after, locals, later, more))
			c = process.Start(t, p.r.config)
			logged(c, movedText, 1)
			last := p.makeOrigin(rng, 60)
			p.commit(two, mixed(rng, maria, last)...)
			p.commit(one, last...)
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			one.Kill()
			p.r.db = two
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			c.Kill()
			c = process.Start(t, p.r.config)
			p.commit(two, p.makeOrigin(rng, 5)...)
			p.r.settle(c)
			t.Logf("seed %d; begun anew by itself: %t", *seed, begunAnew)
			c.Stop()
			p.once()
		})
	}
}

// TestFailoverTransactional proves I5 and I7 for transactions of Kafka's: where the cursors say all that is committed, a server that dies and a
// program that is killed while it changes over lose and double nothing. Where they do not, the program refuses to go on with another server, and
// does so once it has finished with the former one.
func TestFailoverTransactional(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 9))
	cluster := testenv.Kafka(t)
	p, one, two := newPair(t, "mysql", func(prefix string) target {
		return &transactionalTarget{&kafkaTarget{cluster, prefix, "canal-json"}, ", topics: { partitions: 3 }"}
	})
	p.group(one, two)
	begin := p.make(0, 1)
	p.commit(one, begin...)
	p.commit(two, begin...)
	clear(p.want)
	first, locals := p.makeOrigin(rng, 30), p.make(2, 10)
	c := process.Start(t, p.r.config)
	c.AwaitReady()
	p.commit(one, first...)
	p.r.settle(c)
	saved(c)
	one.Kill()
	p.commit(two, mixed(rng, false, first, locals)...)
	p.r.db = two
	time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	c.Kill()
	moved := strings.Contains(c.Log(), movedText)
	c = process.Start(t, p.r.config)
	if !moved {
		logged(c, movedText, 1)
	}
	time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	c.Kill()
	p.r.config = strings.Replace(p.r.config, "save_interval: 50ms", "save_interval: 1h", 1)
	c = process.Start(t, p.r.config)
	more := p.makeOrigin(rng, 30)
	p.commit(two, more...)
	p.r.settle(c) // and no cursor says so
	c.Kill()

	p.back(one, mixed(rng, false, locals, more))
	c = process.Start(t, p.r.config)
	<-c.Ended()
	if !strings.Contains(c.Log(), "which may hold what lies behind the cursor in another order") {
		t.Errorf("gone on with another server:\n%s", c.Log())
	}
	one.Kill()
	c = process.Start(t, p.r.config)
	p.r.settle(c)
	c.Stop()
	p.r.db = one
	p.back(one, p.makeOrigin(rng, 10))
	c = process.Start(t, p.r.config)
	logged(c, movedText, 1)
	p.r.settle(c)
	c.Stop()
	p.once()
}
