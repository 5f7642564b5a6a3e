package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
)

// kind is one of the connectors.
type kind struct {
	name string
	open func(n *node) Connector
	// over: over a connection, which ends with a call that is cut short or is wrong. Without, there is nothing that could.
	over bool
}

func address(n *node) TCPOptions { return TCPOptions{Address: n.address, Destination: "shop"} }

func opened[C Connector](t *testing.T) func(C, error) Connector {
	return func(c C, err error) Connector {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// TestContract: each kind of connector keeps the contract of Connector.
func TestContract(t *testing.T) {
	for _, k := range []kind{
		{"embedded", func(n *node) Connector {
			return NewEmbedded(n.s, server.Identity{Destination: "shop", Client: "1001"}, encoder(n.t))
		}, false},
		{"tcp", func(n *node) Connector { return opened[*TCP](n.t)(NewTCP(address(n))) }, true},
		{"cluster", func(n *node) Connector {
			return opened[*Cluster](n.t)(NewCluster(ClusterOptions{TCPOptions: address(n), Addresses: []string{n.address}, RetryInterval: time.Millisecond}))
		}, true},
	} {
		t.Run(k.name, func(t *testing.T) { contract(t, k) })
	}
}

// contract runs the suite for one kind. Each part has a server and a log of its own, of 12 transactions, every second one of the table other.
func contract(t *testing.T, k kind) {
	for _, part := range []struct {
		name string
		run  func(*suite)
	}{
		{"not connected", (*suite).notConnected},
		{"batches", (*suite).batches},
		{"filters", (*suite).filters},
		{"reconnect", (*suite).reconnect},
		{"waiting", (*suite).waiting},
		{"wrong ids", (*suite).wrongIDs},
		{"forgotten", (*suite).forgotten},
	} {
		t.Run(part.name, func(t *testing.T) {
			src := &source{table: codectest.Shop(t), n: 12}
			other := *codectest.Shop(t)
			other.Name = "other"
			src.other = codectest.Compile(t, &other)
			n := newNode(t, &meta.Memory{}, src)
			n.serve()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			t.Cleanup(cancel)
			s := &suite{t: t, ctx: ctx, k: k, c: k.open(n), n: n}
			t.Cleanup(func() { _ = s.c.Disconnect(context.Background()) })
			part.run(s)
		})
	}
}

type suite struct {
	t   *testing.T
	ctx context.Context
	k   kind
	c   Connector
	n   *node
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) connect(filter string) {
	s.t.Helper()
	s.must(s.c.Connect(s.ctx))
	s.must(s.c.Subscribe(s.ctx, filter))
}

// read waits until the server has read the whole log. Until then a batch may end where the reading stands, and hold no row.
func (s *suite) read() {
	s.t.Helper()
	for ; ; time.Sleep(time.Millisecond) {
		if st := s.n.s.Status(); len(st) == 1 && st[0].Put == 2*s.n.src.n {
			return
		}
		s.must(s.ctx.Err())
	}
}

// get returns a batch with rows. Batches have one KiB: a transaction or two.
func (s *suite) get(size int) (id int64, rows []string) {
	s.t.Helper()
	s.read()
	for {
		m, err := s.c.GetWithoutAck(s.ctx, size, Wait(20*time.Millisecond))
		s.must(err)
		if rows = ids(s.t, m); len(rows) > 0 {
			return m.ID, rows
		}
		if m.ID != NoBatch {
			s.must(s.c.Ack(s.ctx, m.ID))
		}
	}
}

// rest gets without an ack until the row is there.
func (s *suite) rest(until string) (rows []string) {
	s.t.Helper()
	for !slices.Contains(rows, until) {
		_, more := s.get(1000)
		rows = append(rows, more...)
	}
	return rows
}

func (s *suite) same(what string, got []string, want string) {
	s.t.Helper()
	if text := strings.Join(got, " "); text != want {
		s.t.Errorf("%s: rows %q, want %q", what, text, want)
	}
}

func (s *suite) lists(want ...int64) {
	s.t.Helper()
	got, err := s.c.List(s.ctx)
	if err != nil || !slices.Equal(got, want) {
		s.t.Errorf("unacknowledged %v, want %v (%v)", got, want, err)
	}
}

const (
	allRows  = "1 2 3 4 5 6 7 8 9 10 11 12"
	itemRows = "1 3 5 7 9 11"
)

func (s *suite) notConnected() {
	for name, err := range map[string]error{
		"subscribe": s.c.Subscribe(s.ctx, ""), "unsubscribe": s.c.Unsubscribe(s.ctx), "ack": s.c.Ack(s.ctx, 1), "rollback": s.c.Rollback(s.ctx), "rollback to": s.c.RollbackTo(s.ctx, 1),
	} {
		if !errors.Is(err, ErrNotConnected) {
			s.t.Errorf("%s before connect: %v", name, err)
		}
	}
	if _, err := s.c.Get(s.ctx, 1, NoWait); !errors.Is(err, ErrNotConnected) {
		s.t.Errorf("get: %v", err)
	}
	if _, err := s.c.List(s.ctx); !errors.Is(err, ErrNotConnected) {
		s.t.Errorf("list: %v", err)
	}
	s.must(s.c.Disconnect(s.ctx))
	s.connect("")
	s.must(s.c.Disconnect(s.ctx))
	s.must(s.c.Disconnect(s.ctx))
	if _, err := s.c.GetWithoutAck(s.ctx, 1, NoWait); !errors.Is(err, ErrNotConnected) {
		s.t.Errorf("after disconnect: %v", err)
	}
}

func (s *suite) batches() {
	s.connect("")
	s.lists()
	one, ones := s.get(1)
	two, twos := s.get(1)
	three, _ := s.get(1)
	if one >= two || two >= three || one < 1 {
		s.t.Errorf("ids %d, %d, %d", one, two, three)
	}
	s.lists(one, two, three)
	s.must(s.c.RollbackTo(s.ctx, two))
	s.lists(one)
	four, again := s.get(1)
	if four <= three || again[0] != twos[0] {
		s.t.Errorf("batch %d (%v) after rolling back to %d (%v)", four, again, two, twos)
	}
	s.must(s.c.Ack(s.ctx, one))
	s.lists(four)
	s.must(s.c.Rollback(s.ctx))
	s.lists()
	s.same("after a rollback", append(ones, s.rest("12")...), allRows) // but for what is acknowledged
	s.must(s.c.Rollback(s.ctx))
	m, err := s.c.Get(s.ctx, 1000, shortly)
	s.must(err)
	got := ids(s.t, m)
	s.lists()
	for len(got)+len(ones) < 12 {
		m, err := s.c.Get(s.ctx, 1000, Wait(20*time.Millisecond))
		s.must(err)
		got = append(got, ids(s.t, m)...)
	}
	s.same("acknowledged at once", append(ones, got...), allRows)
	if m, err := s.c.Get(s.ctx, 1000, NoWait); err != nil || m.ID != NoBatch || len(m.Entries) != 0 {
		s.t.Errorf("behind the end: %+v, %v", m, err)
	}
	s.must(s.c.Ack(s.ctx, NoBatch)) // as who acknowledges whatever came
}

// shortly is a wait that ends.
const shortly = Wait(50 * time.Millisecond)

func (s *suite) filters() {
	s.must(s.c.Connect(s.ctx))
	if err := s.c.Subscribe(s.ctx, "("); !errors.Is(err, ErrRefused) {
		s.t.Errorf("a broken filter: %v", err)
	}
	s.must(s.c.Subscribe(s.ctx, `shop\.nothing,SHOP\.Item`))
	if err := s.c.Subscribe(s.ctx, "["); !errors.Is(err, ErrRefused) {
		s.t.Errorf("a broken filter: %v", err)
	}
	s.same("with a filter", s.rest("11"), itemRows)
	// Another filter, for what is handed out from here on.
	s.must(s.c.Rollback(s.ctx))
	s.must(s.c.Subscribe(s.ctx, `shop\.other`))
	s.same("with another filter", s.rest("12"), "2 4 6 8 10 12")
	// It is sent again with a new connection.
	s.must(s.c.Disconnect(s.ctx))
	s.must(s.c.Connect(s.ctx))
	s.same("after a reconnect", s.rest("12"), "2 4 6 8 10 12")
}

func (s *suite) reconnect() {
	s.connect("")
	id, first := s.get(1)
	s.must(s.c.Ack(s.ctx, id))
	lost, _ := s.get(1)
	s.must(s.c.Disconnect(s.ctx)) // which rolls back
	s.must(s.c.Connect(s.ctx))
	s.lists()
	got := s.rest("12")
	if !slices.Equal(got, strings.Fields(allRows)[len(first):]) && !slices.Equal(got, strings.Fields(allRows)[len(first)-1:]) { // its transaction may be acknowledged in part
		s.t.Errorf("rows %v after %v and a reconnect", got, first)
	}
	// Connecting again is a new connection, too.
	s.must(s.c.Connect(s.ctx))
	s.lists()
	if again := s.rest("12"); !slices.Equal(again, got) {
		s.t.Errorf("rows %v, want %v", again, got)
	}
	_ = lost
}

func (s *suite) waiting() {
	s.connect("")
	s.rest("12")
	if m, err := s.c.GetWithoutAck(s.ctx, 1000, NoWait); err != nil || m.ID != NoBatch {
		s.t.Errorf("%+v, %v", m, err)
	}
	began := time.Now()
	if m, err := s.c.GetWithoutAck(s.ctx, 1000, Wait(80*time.Millisecond)); err != nil || m.ID != NoBatch || time.Since(began) < 80*time.Millisecond {
		s.t.Errorf("%+v, %v after %v", m, err, time.Since(began))
	}
	for name, wait := range map[string]Wait{"full": WaitFull, "long": Wait(time.Hour)} {
		ctx, cancel := context.WithCancel(s.ctx)
		time.AfterFunc(20*time.Millisecond, cancel)
		if m, err := s.c.GetWithoutAck(ctx, 1000, wait); !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: cut short: %+v, %v", name, m, err)
		}
		cancel()
		s.must(s.c.Connect(s.ctx))
		s.get(1)
		for what, err := range map[string]error{"rollback": s.c.Rollback(ctx), "ack": s.c.Ack(ctx, 1), "subscribe": s.c.Subscribe(ctx, "")} {
			if !errors.Is(err, context.Canceled) {
				s.t.Errorf("%s under a context that has ended: %v", what, err)
			}
		}
		s.must(s.c.Rollback(s.ctx))
	}
	s.same("after calls that were cut short", s.rest("12"), allRows)
}

func (s *suite) wrongIDs() {
	wrong := func(what string, call func() error) {
		s.t.Helper()
		err := call()
		if err == nil && s.k.over { // told by the end of the connection
			if _, err = s.c.List(s.ctx); err == nil {
				_, err = s.c.GetWithoutAck(s.ctx, 1, NoWait)
			}
			if _, follows := s.c.(*Cluster); follows {
				return // on a new one
			}
		}
		if err == nil {
			s.t.Errorf("%s is no error", what)
		}
	}
	s.connect("")
	one, _ := s.get(1)
	two, _ := s.get(1)
	wrong("an ack out of order", func() error { return s.c.Ack(s.ctx, two) })
	s.must(s.c.Connect(s.ctx))
	s.same("after an ack out of order", s.rest("12"), allRows)
	wrong("an ack of a batch that was rolled back", func() error { return s.c.Ack(s.ctx, one) })
	s.must(s.c.Connect(s.ctx))
	wrong("a rollback to it", func() error { return s.c.RollbackTo(s.ctx, one) })
	s.must(s.c.Connect(s.ctx))
	s.same("after wrong ids", s.rest("12"), allRows)
	wrong("an ack of a batch that never was", func() error { return s.c.Ack(s.ctx, 1<<40) })
	s.must(s.c.Connect(s.ctx))
	s.same("after a batch that never was", s.rest("12"), allRows)
}

func (s *suite) forgotten() {
	s.connect("")
	for got := []string(nil); len(got) < 12; {
		m, err := s.c.Get(s.ctx, 1000, Wait(20*time.Millisecond))
		s.must(err)
		got = append(got, ids(s.t, m)...)
	}
	s.must(s.c.Unsubscribe(s.ctx))
	s.must(s.c.Unsubscribe(s.ctx))
	s.lists()
	if _, err := s.c.GetWithoutAck(s.ctx, 1, NoWait); err == nil {
		s.t.Error("a get without subscription")
	}
	s.connect("")
	s.same("a new subscription", s.rest("12"), fmt.Sprint(allRows))
}
