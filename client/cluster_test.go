package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canaltcp"
)

// source is a log of n transactions of one row each, every second one of the table other if there is one.
type source struct {
	table, other *event.Table
	n            int64
}

func (s *source) Start(context.Context) (event.Cursor, error) {
	return event.Cursor{Position: event.Position{File: "f", Offset: 4}}, nil
}

func (s *source) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	for n := from.Ordinal / 2; n < s.n; n++ {
		txn := *codectest.Txn
		txn.GTID.Seq = uint64(n + 1)
		at := uint64(100 * (n + 1))
		table := s.table
		if s.other != nil && n%2 == 1 {
			table = s.other
		}
		row := codectest.Event(table, nil, []codectest.Cell{codectest.V(codectest.Le(n+1, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(1, 4)), codectest.Null})
		row.Ordinal, row.Txn, row.File, row.Start, row.Next, row.Size, row.Last = 2*n+1, &txn, "f", at+10, at+20, 500, true
		if err := put(ctx, []*event.Event{
			{Kind: event.Begin, Txn: &txn, File: "f", Start: at, Next: at + 10, Size: 100}, row,
			{Kind: event.End, Txn: &txn, File: "f", Start: at + 20, Next: at + 30, Ordinal: 2*n + 2, Index: 1, XID: uint64(n), Size: 100},
		}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// node is a server that may serve the destination shop, over TCP.
type node struct {
	t       *testing.T
	s       *server.Server
	src     *source
	address string
}

func newNode(t *testing.T, m meta.Store, src *source) *node {
	t.Helper()
	s := server.New(server.Options{Meta: m})
	tcp, err := canaltcp.New(canaltcp.Options{Upstream: s, Encoder: encoder(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tcp.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return &node{t: t, s: s, src: src, address: l.Addr().String()}
}

func (n *node) serve() {
	n.t.Helper()
	if err := errors.Join(n.s.AddDestination("shop", n.src, server.DestinationOptions{}), n.s.Start(context.Background(), "shop")); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) leave() {
	n.t.Helper()
	if err := n.s.RemoveDestination(context.Background(), "shop"); err != nil {
		n.t.Fatal(err)
	}
}

// ids are the keys of the rows of a message.
func ids(t *testing.T, m *Message) (out []string) {
	t.Helper()
	for _, raw := range m.Entries {
		e, err := ParseEntry(raw)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != RowData {
			continue
		}
		c, err := ParseRowChange(e.Store)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range c.Rows {
			out = append(out, row.After[0].Value)
		}
	}
	return out
}

// TestClusterFollowsItsDestination: a client goes on wherever its destination goes, with its filter and without a gap; what it
// had not acknowledged comes again, and an acknowledgement of a lost connection's batch is none (I1, I2).
func TestClusterFollowsItsDestination(t *testing.T) {
	m, src := &meta.Memory{}, &source{table: codectest.Shop(t), n: 300}
	a, b := newNode(t, m, src), newNode(t, m, src)
	c, err := NewCluster(ClusterOptions{
		TCPOptions: TCPOptions{Destination: "shop"}, Addresses: []string{b.address, a.address}, Retries: -1, RetryInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if _, err := c.GetWithoutAck(ctx, 0, NoWait); !errors.Is(err, ErrNotConnected) {
		t.Errorf("a get before connect: %v", err)
	}
	a.serve()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Connect(ctx))
	if err := c.Subscribe(ctx, "("); !errors.Is(err, ErrRefused) {
		t.Errorf("a broken filter: %v", err)
	}
	must(c.Subscribe(ctx, `shop\.item`))
	next, moves, moved := 1, 0, false
	for next <= 300 {
		msg, err := c.GetWithoutAck(ctx, 4, Wait(10*time.Millisecond))
		must(err)
		got := ids(t, msg)
		if moved && len(got) > 0 {
			moved = false
			if got[0] == fmt.Sprint(next-1) { // of its transaction the end was not acknowledged
				got = got[1:]
			}
		}
		for i, id := range got {
			if id != fmt.Sprint(next+i) {
				t.Fatalf("rows %v, want %d on", got, next)
			}
		}
		if next > 60*(moves+1) && moves < 3 && len(got) > 0 { // the destination moves with the batch unacknowledged
			moves, moved = moves+1, true
			a.leave()
			b.serve()
			a, b = b, a
			// The first acknowledgement may be written to a connection that has just been closed.
			if _, err := c.GetWithoutAck(ctx, 4, NoWait); err != nil {
				t.Fatal(err)
			}
			if err := c.Ack(ctx, msg.ID); !errors.Is(err, ErrRolledBack) {
				t.Fatalf("an acknowledgement of another connection's batch: %v", err)
			}
			must(c.Rollback(ctx))
			continue
		}
		if msg.ID == NoBatch {
			continue
		}
		must(c.Ack(ctx, msg.ID))
		next += len(got)
	}
	if moves != 3 {
		t.Errorf("%d moves", moves)
	}
	must(c.Disconnect(ctx))
	must(c.Disconnect(ctx))
	// It has a subscription and a cursor: nothing comes again.
	must(c.Connect(ctx))
	if msg, err := c.GetWithoutAck(ctx, 0, Wait(time.Millisecond)); err != nil || len(ids(t, msg)) != 0 {
		t.Errorf("%+v, %v", msg, err)
	}
	must(c.Unsubscribe(ctx))
	must(c.Disconnect(ctx))
}

func TestClusterGivesUp(t *testing.T) {
	const nobody = "127.0.0.1:1"
	c, err := NewCluster(ClusterOptions{TCPOptions: TCPOptions{Destination: "shop"}, Addresses: []string{nobody}, RetryInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), nobody) {
		t.Errorf("nobody listens: %v", err)
	}
	c.o.Retries = -1
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listens, for ever: %v", err)
	}
	if err := c.Disconnect(t.Context()); err != nil {
		t.Error(err)
	}
	for name, o := range map[string]ClusterOptions{
		"no addresses":      {TCPOptions: TCPOptions{Destination: "d"}},
		"both":              {TCPOptions: TCPOptions{Destination: "d"}, Addresses: []string{"a:1"}, ZooKeeper: []string{"b:1"}},
		"no destination":    {Addresses: []string{"a:1"}},
		"a chroot":          {TCPOptions: TCPOptions{Destination: "d"}, ZooKeeper: []string{"a:1", "b:1/canal"}},
		"a destination's /": {TCPOptions: TCPOptions{Destination: "a/b"}, Addresses: []string{"a:1"}},
	} {
		if _, err := NewCluster(o); err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
}
