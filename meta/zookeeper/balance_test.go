//go:build integration

package zookeeper

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/meta"
)

// process is a process that shares destinations: it holds each while it has the lease, and gives it up when it is asked to.
type process struct {
	*Store
	t      *testing.T
	cancel context.CancelFunc
	ended  []chan struct{}
	held   chan string // destinations, as they are taken
}

func begin(t *testing.T, o Options) *process {
	t.Helper()
	o.Servers, o.SessionTimeout, o.RebalanceDelay = testenv.ZooKeeper(t).Servers, longer, 300*time.Millisecond
	o.Logger = slog.New(slog.NewTextHandler(testLog{t}, nil)).With("node", o.Node)
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Store: s, t: t, cancel: cancel, held: make(chan string, 1000)}
	for _, d := range o.Destinations {
		ended := make(chan struct{})
		p.ended = append(p.ended, ended)
		go func() {
			defer close(ended)
			for {
				l, err := s.Acquire(ctx, d)
				if err != nil {
					return
				}
				s.Show(d)
				p.held <- d
				select {
				case <-l.Asked():
				case <-l.Lost():
				case <-ctx.Done():
				}
				release(t, l)
			}
		}()
	}
	t.Cleanup(p.stop)
	return p
}

// stop ends the process in good order.
func (p *process) stop() {
	p.cancel()
	for _, e := range p.ended {
		<-e
	}
	if err := p.Close(); err != nil {
		p.t.Error(err)
	}
}

// has names the destinations that the process owns.
func (p *process) has() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for d, l := range p.leases {
		if l.Err() == nil {
			names = append(names, d)
		}
	}
	slices.Sort(names)
	return names
}

// TestShared: destinations spread over the processes that there are, by weight; each has one owner at any time (I8).
func TestShared(t *testing.T) {
	at, all := root(t), []string{"d1", "d2", "d3", "d4", "d5", "d6"}
	o := func(node string, weight int) Options {
		return Options{Root: at, Node: node, Destinations: all, Weight: weight}
	}
	count := func(what string, want map[*process]int) {
		t.Helper()
		await(t, what, func() bool {
			for p, n := range want {
				if len(p.has()) != n {
					return false
				}
			}
			return true
		})
	}
	a := begin(t, o("a", 1))
	count("the first process", map[*process]int{a: 6})
	b := begin(t, o("b", 1))
	count("an even share", map[*process]int{a: 3, b: 3})
	c := begin(t, o("c", 4))
	count("a share by weight", map[*process]int{a: 1, b: 1, c: 4})
	idle := begin(t, o("idle", 0))
	c.Decline(c.has()[0])
	await(t, "a process that declines", func() bool { return len(c.has()) == 4 && len(a.has())+len(b.has()) == 2 })
	c.stop()
	count("a process that has left", map[*process]int{a: 3, b: 3, idle: 0})
	a.stop()
	b.stop()
	count("the last", map[*process]int{idle: 6})
}

// TestLeftOver: a lease that was lost and could not be given back, by a process whose session lives on, is nobody's: another
// process takes the destination if that one should not have it.
func TestLeftOver(t *testing.T) {
	at := root(t)
	o := Options{Servers: testenv.ZooKeeper(t).Servers, SessionTimeout: longer, Root: at, Node: "a", Destinations: []string{"d1", "d2"}, Weight: 1, RebalanceDelay: time.Hour}
	a, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var first *lease
	for _, d := range o.Destinations {
		l, err := a.Acquire(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		if d == "d1" {
			first = l.(*lease)
		}
	}
	first.lose(errors.New("test: ZooKeeper was away"))
	a.mu.Lock()
	delete(a.leases, "d1")
	a.mu.Unlock()
	o.Node = "b"
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l, err := b.Acquire(ctx, "d1")
	if err != nil {
		t.Fatal(err)
	}
	if l.Epoch() <= first.Epoch() {
		t.Errorf("epoch %d after %d", l.Epoch(), first.Epoch())
	}
	first.wg.Wait()
}

// zkClient is Canal's side, or an operator's.
func zkClient(t *testing.T) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(testenv.ZooKeeper(t).Servers, longer, zk.WithLogInfo(false), zk.WithLogger(clientLog{slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func content(t *testing.T, c *zk.Conn, at string) string {
	t.Helper()
	data, _, err := c.Get(at)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestCanalsNodes: Canal's clients find who serves a destination, an operator releases it by the running node, and what a Canal has
// left is neither overwritten unseen nor while it runs.
func TestCanalsNodes(t *testing.T) {
	at, canal := root(t), root(t)+"-canal"
	names := []string{"shop"}
	c := zkClient(t)
	o := func(node, address string) Options {
		return Options{Root: at, Node: node, Weight: 1, Destinations: names, Canal: &Canal{Root: canal, Address: address, Sources: map[string]string{"shop": "db:3306"}}}
	}
	running := canalzk.Running(canal, "shop")
	says := func(address string) func() bool {
		return func() bool { return content(t, c, running) == `{"active":true,"address":"`+address+`"}` }
	}

	// A Canal has served a client and is about to end.
	old := zkClient(t)
	cursor, filter := canalzk.Cursor(canal, "shop", 1001), canalzk.Filter(canal, "shop", 1001)
	const was = `{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,"sourceAddress":{"address":"db","port":3306}},` +
		`"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000023","position":43893,"serverId":1,"timestamp":1536312619000}}`
	for i := 1; i <= len(cursor); i++ {
		if i < len(cursor) && cursor[i] != '/' {
			continue
		}
		if _, err := c.Create(cursor[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			t.Fatal(err)
		}
	}
	if _, err := c.Set(cursor, []byte(was), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Create(running, []byte(`{"active":true,"address":"canal:11111","cid":1}`), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}

	a := begin(t, o("a", "10.0.0.1:11111"))
	await(t, "the first owner", func() bool { return len(a.has()) == 1 })
	client := meta.Identity{Destination: "shop", Client: "1001"}
	// The client cannot begin anew as if there had been no Canal (I3), where the program serves Canal's clients. Others can.
	if _, err := a.Load(t.Context(), client); err == nil || errors.Is(err, meta.ErrNotFound) || !strings.Contains(err.Error(), "import-canal") {
		t.Errorf("a client of which Canal has left a cursor: %v", err)
	}
	if _, err := a.Load(t.Context(), meta.Identity{Destination: "shop", Client: "1002"}); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("another client: %v", err)
	}
	all, by, err := a.CanalClients(t.Context(), canal, "shop")
	if err != nil || by != `"canal:11111"` || len(all) != 1 || all[0].ID != 1001 || all[0].Cursor.File != "mysql-bin.000023" || all[0].Cursor.Offset != 43893 || all[0].Cursor.ServerID != 1 {
		t.Errorf("what Canal has left: %+v, served at %s (%v)", all, by, err)
	}
	r := record(7, 0)
	r.Filter = `shop\.item`
	save := func(id meta.Identity) {
		t.Helper()
		await(t, "a save", func() bool { // a busy machine may have lost the lease for a moment
			err := a.Save(t.Context(), id, r)
			if err != nil && !errors.Is(err, meta.ErrFenced) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	save(client)
	await(t, "the list of servers", func() bool {
		_, s, err := c.Exists(canalzk.DestinationCluster(canal, "shop") + "/10.0.0.1:11111")
		_, s2, err2 := c.Exists(canalzk.Cluster(canal) + "/10.0.0.1:11111")
		return err == nil && err2 == nil && s.EphemeralOwner != 0 && s2.EphemeralOwner == s.EphemeralOwner
	})
	if got := content(t, c, running); !strings.Contains(got, "canal:11111") {
		t.Errorf("the running node of a Canal that runs: %s", got)
	}
	if got := content(t, c, cursor); got != was {
		t.Errorf("the cursor of a Canal that runs: %s", got)
	}
	old.Close()
	await(t, "the running node", says("10.0.0.1:11111"))
	await(t, "the cursor", func() bool {
		got, err := canalzk.ParseCursor([]byte(content(t, c, cursor)))
		return err == nil && got.File == r.Cursor.Position.File && got.Offset == int64(r.Cursor.Position.Offset) && content(t, c, filter) == r.Filter
	})
	if got := content(t, c, at+"/destinations/shop/canal/1001"); !strings.Contains(got, "mysql-bin.000023") {
		t.Errorf("what Canal left: %s", got)
	}

	// The next owner finds its place free. Sinks have no nodes there.
	b := begin(t, o("b", "10.0.0.2:11111"))
	save(shop)
	set := func(text string) {
		t.Helper()
		if _, err := c.Set(running, []byte(text), -1); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the second server's place on the list", func() bool {
		there, _, err := c.Exists(canalzk.DestinationCluster(canal, "shop") + "/10.0.0.2:11111")
		return err == nil && there
	})
	set("nonsense") // is passed over
	r = record(8, 0)
	r.Cursor.Position.Offset = 4711
	save(client) // shows, however soon the destination is released
	set(`{"active":false,"address":"10.0.0.1:11111"}`)
	await(t, "the second owner", func() bool { return len(b.has()) == 1 && len(a.has()) == 0 })
	await(t, "its running node", says("10.0.0.2:11111"))
	if got, err := canalzk.ParseCursor([]byte(content(t, c, cursor))); err != nil || got.Offset != 4711 {
		t.Errorf("the last cursor of the first owner: %+v, %v", got, err)
	}
	// It may be released back, and a server that dies leaves nothing.
	set(`{"active":false,"address":"10.0.0.2:11111"}`)
	await(t, "the first owner again", func() bool { return len(a.has()) == 1 && says("10.0.0.1:11111")() })
	if err := c.Delete(running, -1); err != nil { // comes back
		t.Fatal(err)
	}
	await(t, "a running node that was deleted", says("10.0.0.1:11111"))

	// With nobody to take it, a released destination comes back.
	b.stop()
	set(`{"active":false,"address":"10.0.0.1:11111"}`)
	await(t, "the release", func() bool { return len(a.has()) == 0 })
	await(t, "the only owner again", func() bool { return len(a.has()) == 1 && says("10.0.0.1:11111")() })

	if _, err := a.Load(t.Context(), client); err != nil { // its nodes are ours by now
		t.Error(err)
	}
	if err := a.Delete(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load(t.Context(), client); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("a client that has unsubscribed: %v", err)
	}
	await(t, "the end of the client", func() bool {
		there, _, err := c.Exists(canalzk.Client(canal, "shop", 1001))
		return err == nil && !there
	})
	children, _, err := c.Children(canalzk.Destination(canal, "shop"))
	slices.Sort(children)
	if err != nil || !slices.Equal(children, []string{"cluster", "running"}) {
		t.Errorf("%v, %v", children, err)
	}
}
