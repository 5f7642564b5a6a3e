//go:build integration

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// node is one of the processes that share a destination, with a link of its own to ZooKeeper.
type node struct {
	*process.Child
	name string
	link *toxiproxy.Proxy
}

// nodes starts processes that share the run's destination. A session lasts 4 s.
func (r *run) nodes(names ...string) []*node {
	r.t.Helper()
	z := testenv.ZooKeeper(r.t)
	root := "/binlogmq-test/" + testenv.Name(r.t)
	// Replicas of one source, of this test and of others beside it: each has an id of its own.
	first := 1_000_000_000 + rand.Int64N(1_000_000_000)
	var all []*node
	for i, name := range names {
		link := startLink(r.t, name, "127.0.0.1:0", z.Servers[0])
		config := directory.ReplaceAllString(r.config, "")
		config = strings.Replace(config, "file: {  }", fmt.Sprintf("zookeeper: { servers: [%q], session_timeout: 4s, root: %q, node: %s }", link.Listen, root, name), 1)
		config = strings.Replace(config, "source: { ", fmt.Sprintf("source: { server_id: %d, ", first+int64(i)), 1)
		if !strings.Contains(config, "zookeeper:") {
			r.t.Fatalf("no place for ZooKeeper in the configuration:\n%s", config)
		}
		n := &node{process.Start(r.t, config), name, link}
		n.AwaitReady()
		all = append(all, n)
	}
	return all
}

// startLink makes a link that can be harmed.
func startLink(t *testing.T, name, from, to string) *toxiproxy.Proxy {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), name, from, to)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// deaf lets requests on a link vanish, and nobody is told.
func deaf(t *testing.T, link *toxiproxy.Proxy) (mend func()) {
	t.Helper()
	if _, err := link.Toxics.AddToxicJson(strings.NewReader(`{"name":"hole","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := link.Toxics.RemoveToxic(context.Background(), "hole"); err != nil {
			t.Fatal(err)
		}
	}
}

func owns(r *admin.Report) bool { return r.Destinations[0].Owner }

// owner waits until one of the nodes owns the destination, and returns it and the others.
func owner(t *testing.T, all []*node) (*node, []*node) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		for i, n := range all {
			if r, ok := n.Report(); ok && owns(&r) {
				others := append(append([]*node{}, all[:i]...), all[i+1:]...)
				return n, others
			}
		}
		if time.Now().After(end) {
			t.Fatal("nobody owns the destination")
		}
	}
}

// ownerAndStandby waits until one of two nodes owns the destination, in an epoch behind the given one, and the other stands by. A busy machine may
// cost an owner its session at any time.
func ownerAndStandby(t *testing.T, all []*node, behind int64) (own, other *node, epoch int64) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		own, others := owner(t, all)
		o, ok := own.Report()
		s, also := others[0].Report()
		if ok && also && owns(&o) && o.Destinations[0].Epoch > behind && s.Destinations[0].State == admin.Standby {
			return own, others[0], o.Destinations[0].Epoch
		}
		if time.Now().After(end) {
			t.Fatalf("no owner in an epoch behind %d beside one that stands by: %+v and %+v", behind, o.Destinations, s.Destinations)
		}
	}
}

func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	v, err := parse(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// TestTwoNodesI8 proves I8 with the whole program, twice: the owner is frozen past its lease, or cut off from ZooKeeper alone, the other
// node takes over, and the old owner comes back beside it while rows are written. An ordinary consumer finds every change once, in order.
//
// BINLOGMQ_LEASE_ROUNDS and BINLOGMQ_LEASE_PAUSE make it longer.
func TestTwoNodesI8(t *testing.T) {
	t.Parallel()
	rounds := setting(t, "BINLOGMQ_LEASE_ROUNDS", 2, strconv.Atoi)
	pause := setting(t, "BINLOGMQ_LEASE_PAUSE", 7*time.Second, time.ParseDuration)
	for _, kind := range []string{"kafka", "pulsar-wire"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, testenv.MySQL(t, "mysql"), targets(t, kind))
			ws := r.writers(500)
			all := r.nodes("a", "b")
			// A destination begins at the log's end, which its first owner must have seen before anything is written.
			first, _ := owner(t, all)
			first.Await("the source", patience, func(rep *admin.Report) bool { return rep.Destinations[0].Connected })
			stop := r.writeOn(ws, pause/150) // a long form writes no more than a short one can read back
			epoch := int64(0)
			for round := range rounds {
				old, next, now := ownerAndStandby(t, all, epoch)
				epoch = now
				came := time.Now().Add(pause)
				frozen := round%2 == 0
				mend := func() { old.Signal(syscall.SIGCONT) }
				if frozen {
					old.Signal(syscall.SIGSTOP)
				} else {
					mend = deaf(t, old.link)
				}
				next.Await("the next owner", patience, owns)
				if !frozen {
					// It has stopped by itself, says so, and waits.
					old.Await("the old owner to stop", patience, func(rep *admin.Report) bool {
						d := rep.Destinations[0]
						return !d.Owner && d.State == admin.Standby && !d.Meta && !d.Healthy() && !rep.Ready()
					})
				}
				time.Sleep(time.Until(came))
				mend()
				old.Await("the old owner to stand by", patience, func(rep *admin.Report) bool {
					d := rep.Destinations[0]
					return (d.State == admin.Standby || d.Owner) && d.Meta && rep.Ready() && rep.Healthy()
				})
				if !strings.Contains(old.Log(), "the lease is lost") {
					t.Errorf("round %d: the old owner does not say why it stopped", round)
				}
			}
			stop()
			last, others := owner(t, all)
			r.settle(last.Child)
			// A clean stop gives the destination back at once: no session has to expire for it.
			last.Stop()
			others[0].Await("the destination", patience, owns)
			r.write(ws, 3, nil)
			r.settle(others[0].Child)
			others[0].Stop()
			r.verify(r.target, ws, false)
			t.Logf("seed %d: %d rounds with pauses of %v", *seed, rounds, pause)
		})
	}
}
