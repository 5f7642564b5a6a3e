//go:build integration

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/meta"
)

// zkConn is a connection of the test's own.
func zkConn(t *testing.T, servers []string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(noLog{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// enlist puts a server on the list of those that may serve the destination.
func enlist(t *testing.T, conn *zk.Conn, root, address string) {
	t.Helper()
	list := canalzk.DestinationCluster(root, "shop")
	for i := 1; i <= len(list); i++ {
		if i == len(list) || list[i] == '/' {
			if _, err := conn.Create(list[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Fatal(err)
			}
		}
	}
	if _, err := conn.Create(list+"/"+address, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

// TestContractByZooKeeper: a client that looks its server up keeps the contract, too.
func TestContractByZooKeeper(t *testing.T) {
	t.Parallel()
	servers := testenv.ZooKeeper(t).Servers
	conn := zkConn(t, servers)
	contract(t, kind{"by ZooKeeper", func(n *node) Connector {
		root := fmt.Sprintf("/binlogmq-test-contract-%d", time.Now().UnixNano())
		enlist(n.t, conn, root, n.address)
		o := ClusterOptions{TCPOptions: address(n), ZooKeeper: servers, Root: root, SessionTimeout: 10 * time.Second, RetryInterval: time.Millisecond}
		return opened[*Cluster](n.t)(NewCluster(o))
	}, true})
}

// TestOneWorksAsTheClient: of the processes with one client id one works, found by Canal's nodes; another takes its place 5 s after it
// has gone, or at an operator's order.
func TestOneWorksAsTheClient(t *testing.T) {
	t.Parallel()
	n := newNode(t, &meta.Memory{}, &source{table: codectest.Shop(t), n: 3})
	n.serve()
	servers := testenv.ZooKeeper(t).Servers
	conn := zkConn(t, servers)
	root := fmt.Sprintf("/binlogmq-test-client-%d", time.Now().UnixNano())
	running := canalzk.ClientRunning(root, "shop", DefaultClientID)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	open := func() *Cluster {
		t.Helper()
		c, err := NewCluster(ClusterOptions{
			TCPOptions: TCPOptions{Destination: "shop"}, ZooKeeper: servers, Root: root, SessionTimeout: 10 * time.Second, Retries: -1, RetryInterval: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
		return c
	}
	read := func(c *Cluster) {
		t.Helper()
		var got []string
		for len(got) < 3 {
			m, err := c.GetWithoutAck(ctx, 100, Wait(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids(t, m)...)
		}
		if strings.Join(got, " ") != "1 2 3" {
			t.Errorf("rows %v", got)
		}
	}
	a, b := open(), open()
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	err := a.Connect(short)
	stop()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("connected without a server: %v", err)
	}
	// The server is on the list, and later runs.
	enlist(t, conn, root, n.address)
	if err := errors.Join(a.Connect(ctx), a.Subscribe(ctx, "")); err != nil {
		t.Fatal(err)
	}
	read(a)
	data, stat, err := conn.Get(running)
	r, perr := canalzk.ParseRunning(data)
	if err != nil || perr != nil || !r.Active || r.ClientID == nil || *r.ClientID != DefaultClientID || !strings.Contains(r.Address, "127.0.0.1:") || stat.EphemeralOwner == 0 {
		t.Fatalf("the client's running node: %s, %v", data, err)
	}
	if _, err := conn.Create(canalzk.Running(root, "shop"), canalzk.RunningData{Active: true, Address: n.address}.Encode(), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}

	// The second waits, and comes 5 s after the first has gone.
	connected := make(chan error, 1)
	go func() { connected <- b.Connect(ctx) }()
	select {
	case err := <-connected:
		t.Fatalf("two work as one client (%v)", err)
	case <-time.After(300 * time.Millisecond):
	}
	left := time.Now()
	if err := a.Disconnect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(left); took < takeoverDelay {
		t.Errorf("took over after %v", took)
	}
	if err := b.Subscribe(ctx, ""); err != nil {
		t.Fatal(err)
	}
	read(b) // again: nothing is acknowledged

	// An operator's order: the next call waits until it is this process's turn again, here since nobody else wants it.
	if _, err := conn.Set(running, []byte(`{"active":false,"address":"x","clientId":1001}`), -1); err != nil {
		t.Fatal(err)
	}
	for b.seat.mine == 0 || len(b.seat.changed) == 0 { // the watch
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			t.Fatal("no watch")
		}
	}
	read(b)
	// A node that somebody deletes is made anew at once.
	if err := conn.Delete(running, -1); err != nil {
		t.Fatal(err)
	}
	for len(b.seat.changed) == 0 {
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			t.Fatal("no watch")
		}
	}
	read(b)
	if there, _, err := conn.Exists(running); err != nil || !there {
		t.Errorf("the running node is gone (%v)", err)
	}
}

// TestMissedWatch: a watch that ZooKeeper's client has set too late after a reconnect, so that it never tells, neither keeps a client
// waiting for ever nor lets it work beside another.
func TestMissedWatch(t *testing.T) {
	t.Parallel()
	servers := testenv.ZooKeeper(t).Servers
	o := ClusterOptions{
		TCPOptions: TCPOptions{Destination: "shop", ClientID: DefaultClientID}, ZooKeeper: servers,
		Root: fmt.Sprintf("/binlogmq-test-watch-%d", time.Now().UnixNano()), SessionTimeout: 10 * time.Second,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	open := func() *seat {
		s, err := newSeat(&o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		return s
	}
	a, b := open(), open()
	if err := a.take(ctx); err != nil {
		t.Fatal(err)
	}
	n, err := b.look(ctx)
	if err != nil || !n.there {
		t.Fatalf("%v, %v", n.there, err)
	}
	n.changed = nil
	if err := a.conn.Delete(a.at, -1); err != nil {
		t.Fatal(err)
	}
	if err := b.await(ctx, n); err != nil {
		t.Fatal(err)
	}
	if err := b.create(ctx); err != nil {
		t.Fatal(err)
	}
	a.changed, a.linked = nil, a.links.Load()-1
	if held, err := a.held(ctx); held || err != nil {
		t.Fatalf("held although another has it: %v, %v", held, err)
	}
	b.mine = b.conn.SessionID()
	b.linked = b.links.Load() - 1
	if held, err := b.held(ctx); !held || err != nil {
		t.Fatalf("not held any more: %v, %v", held, err)
	}
	if b.linked != b.links.Load() || b.changed == nil {
		t.Error("no watch was set anew")
	}
}
