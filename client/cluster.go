package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/internal/canalfilter"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/internal/zkdial"
)

// Defaults of ClusterOptions: those of Canal's own cluster client, but for the session.
const (
	DefaultRetries        = 3
	DefaultRetryInterval  = 5 * time.Second
	DefaultSessionTimeout = 30 * time.Second
)

// takeoverDelay is how long a client waits when another process with its id has gone, as all of Canal's do: that one may come back.
const takeoverDelay = 5 * time.Second

// ErrRolledBack says that a batch came over a connection that is lost. It is not acknowledged: what it held comes again, under new ids.
var ErrRolledBack = errors.New("client: the batch was rolled back with its connection")

// ClusterOptions say how the one server that serves the destination is found. Address is not used.
type ClusterOptions struct {
	TCPOptions

	Addresses []string // host:port of the servers, which are tried in turn
	ZooKeeper []string // or host:port of the ZooKeeper servers in which the servers, or Canal's, are looked up

	Root           string        // of Canal's nodes; "": /otter/canal
	SessionTimeout time.Duration // of ZooKeeper; 0: DefaultSessionTimeout

	Retries       int           // how often a call is tried on new connections; 0: DefaultRetries; below zero: until its context ends
	RetryInterval time.Duration // between two tries; 0: DefaultRetryInterval
}

// Cluster is a [Connector] to whichever of several servers serves the destination. A call that fails because its connection is lost, or
// because the destination has moved, is made again on a new one, which subscribes again and rolls back what was unacknowledged.
//
// With ZooKeeper one process at a time works as the client: Connect waits while another one does. From Connect to Disconnect
// a session, with its goroutines, is held.
type Cluster struct {
	o      ClusterOptions
	tcp    *TCP    // nil: not connected
	filter *string // of the last Subscribe
	next   int     // of Addresses
	seat   *seat   // nil without ZooKeeper
	begun  bool    // Connect has been called
}

var _ Connector = (*Cluster)(nil)

// NewCluster returns a connector that is not connected yet.
func NewCluster(o ClusterOptions) (*Cluster, error) {
	if (len(o.Addresses) == 0) == (len(o.ZooKeeper) == 0) {
		return nil, errors.New("client: either the servers' addresses or those of ZooKeeper are needed")
	}
	o.Root = cmp.Or(o.Root, canalzk.Root)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, DefaultSessionTimeout)
	o.Retries = cmp.Or(o.Retries, DefaultRetries)
	o.RetryInterval = cmp.Or(o.RetryInterval, DefaultRetryInterval)
	o.ClientID = cmp.Or(o.ClientID, DefaultClientID)
	o.Address = "-"
	if _, err := NewTCP(o.TCPOptions); err != nil {
		return nil, err
	}
	for _, server := range o.ZooKeeper {
		if host, path, chroot := strings.Cut(server, "/"); chroot { // as Java's ZooKeeper client has it
			return nil, fmt.Errorf("client: %q is no address of a ZooKeeper server: give %q, and what lies below /%s in Root", server, host, path)
		}
	}
	if strings.Contains(o.Destination, "/") {
		return nil, fmt.Errorf("client: destination %q", o.Destination)
	}
	return &Cluster{o: o}, nil
}

// Connect implements [Connector]. With ZooKeeper it waits until no other process works as the client.
func (c *Cluster) Connect(ctx context.Context) error {
	c.drop()
	c.begun = true
	err := c.do(ctx, func(*TCP) error { return nil })
	if err != nil {
		c.leave()
	}
	return err
}

// leave ends what Connect has begun.
func (c *Cluster) leave() {
	c.drop()
	c.begun = false
	if c.seat != nil {
		c.seat.close()
		c.seat = nil
	}
}

func (c *Cluster) drop() {
	if c.tcp != nil {
		c.tcp.drop()
		c.tcp = nil
	}
}

// do makes a call, again on a new connection if need be.
func (c *Cluster) do(ctx context.Context, f func(*TCP) error) error {
	if !c.begun {
		return ErrNotConnected
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := c.ready(ctx)
		if err == nil {
			if err = f(c.tcp); err == nil {
				return nil
			}
			if errors.Is(err, ErrRefused) && c.filter == nil || errors.Is(err, ErrRolledBack) {
				return err
			}
		}
		c.drop()
		if try == c.o.Retries || ctx.Err() != nil {
			return err
		}
		c.next++
		if retry.Sleep(ctx, c.o.RetryInterval) != nil {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// ready sees to a connection, and to the right to use it.
func (c *Cluster) ready(ctx context.Context) error {
	if len(c.o.ZooKeeper) > 0 {
		if c.seat == nil {
			s, err := newSeat(&c.o)
			if err != nil {
				return err
			}
			c.seat = s
		}
		if held, err := c.seat.held(ctx); err != nil || !held {
			c.drop()
			if err == nil {
				err = c.seat.take(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	if c.tcp != nil && c.tcp.n != nil {
		return nil
	}
	c.drop()
	o := c.o.TCPOptions
	if c.seat == nil {
		o.Address = c.o.Addresses[c.next%len(c.o.Addresses)]
	} else {
		var err error
		if o.Address, err = c.seat.server(ctx); err != nil {
			return err
		}
	}
	t, err := NewTCP(o)
	if err != nil {
		return err
	}
	t.filter = c.filter
	if err := t.Connect(ctx); err != nil {
		t.drop()
		return err
	}
	c.tcp = t
	if c.seat != nil {
		return c.seat.tell(ctx, t.n.LocalAddr().String())
	}
	return nil
}

// Disconnect implements [Connector].
func (c *Cluster) Disconnect(ctx context.Context) error {
	var err error
	if c.tcp != nil {
		err = c.tcp.Disconnect(ctx)
	}
	c.leave()
	return err
}

// Subscribe implements [Connector].
func (c *Cluster) Subscribe(ctx context.Context, filter string) error {
	if _, err := canalfilter.New(filter); err != nil {
		return fmt.Errorf("%w: filter: %w", ErrRefused, err)
	}
	before := c.filter
	c.filter = &filter
	err := c.do(ctx, func(t *TCP) error { return t.Subscribe(ctx, filter) })
	if err != nil {
		c.filter = before
	}
	return err
}

// Unsubscribe implements [Connector].
func (c *Cluster) Unsubscribe(ctx context.Context) error {
	err := c.do(ctx, func(t *TCP) error { return t.Unsubscribe(ctx) })
	if err == nil {
		c.filter = nil
	}
	return err
}

// GetWithoutAck implements [Connector].
func (c *Cluster) GetWithoutAck(ctx context.Context, size int, wait Wait) (m *Message, err error) {
	err = c.do(ctx, func(t *TCP) (err error) {
		m, err = t.GetWithoutAck(ctx, size, wait)
		return err
	})
	return m, err
}

// Get implements [Connector].
func (c *Cluster) Get(ctx context.Context, size int, wait Wait) (*Message, error) {
	return getAndAck(ctx, c, size, wait)
}

// once makes a call about a batch, which is worth nothing on another connection.
func (c *Cluster) once(ctx context.Context, id int64, f func(*TCP) error) error {
	return c.do(ctx, func(t *TCP) error {
		if !slices.Contains(t.open, id) {
			return fmt.Errorf("%w: %d", ErrRolledBack, id)
		}
		return f(t)
	})
}

// Ack implements [Connector]. It fails with [ErrRolledBack] when the batch's connection is lost.
func (c *Cluster) Ack(ctx context.Context, id int64) error {
	if id == NoBatch {
		return nil
	}
	return c.once(ctx, id, func(t *TCP) error { return t.Ack(ctx, id) })
}

// Rollback implements [Connector].
func (c *Cluster) Rollback(ctx context.Context) error {
	return c.do(ctx, func(t *TCP) error { return t.Rollback(ctx) })
}

// RollbackTo implements [Connector]. It fails with [ErrRolledBack] when the batch's connection is lost.
func (c *Cluster) RollbackTo(ctx context.Context, id int64) error {
	if id == NoBatch {
		return nil
	}
	return c.once(ctx, id, func(t *TCP) error { return t.RollbackTo(ctx, id) })
}

// List implements [Connector].
func (c *Cluster) List(ctx context.Context) ([]int64, error) {
	switch {
	case !c.begun:
		return nil, ErrNotConnected
	case c.tcp == nil || c.tcp.n == nil: // what was is rolled back
		return nil, nil
	}
	return c.tcp.List(ctx)
}

// seat is the right to work as the client, kept in ZooKeeper, and where the server is looked up.
type seat struct {
	o       *ClusterOptions
	conn    *zk.Conn
	dialer  *zkdial.Dialer
	at      string          // the client's running node
	mine    int64           // session that holds it; 0: none
	changed <-chan zk.Event // something has happened to it
	linked  int64           // links when that was asked for
	links   atomic.Int64    // connections to ZooKeeper so far
	away    atomic.Int64    // since when ZooKeeper is, in ns since 1970; 0: it is not
	begun   atomic.Bool     // there has been a session
}

// noLog drops what the ZooKeeper client would print.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

func newSeat(o *ClusterOptions) (*seat, error) {
	s := &seat{o: o, at: canalzk.ClientRunning(o.Root, o.Destination, o.ClientID), dialer: &zkdial.Dialer{Timeout: o.SessionTimeout}}
	s.away.Store(time.Now().UnixNano())
	var err error
	s.conn, _, err = zk.Connect(o.ZooKeeper, o.SessionTimeout, zk.WithDialer(s.dialer.Dial), zk.WithLogger(noLog{}), zk.WithLogInfo(false), zk.WithEventCallback(s.event))
	if err != nil {
		return nil, fmt.Errorf("client: ZooKeeper: %w", err)
	}
	return s, nil
}

func (s *seat) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
	case e.State == zk.StateHasSession:
		s.away.Store(0)
		s.links.Add(1)
		s.begun.Store(true)
	case e.State == zk.StateDisconnected, e.State == zk.StateExpired:
		s.away.CompareAndSwap(0, time.Now().UnixNano())
	}
}

func (s *seat) close() { s.conn.Close() } // which ends the session, and the node with it

// request makes a request of the ZooKeeper client, which knows no context.
func request[T any](ctx context.Context, s *seat, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var zero T
		return zero, fmt.Errorf("%w: ZooKeeper at %s: %w", ErrNotConnected, strings.Join(s.o.ZooKeeper, ","), context.Cause(ctx))
	}
}

func (s *seat) explain(err error) error {
	if err == nil || errors.Is(err, ErrNotConnected) {
		return err
	}
	return fmt.Errorf("%w: ZooKeeper at %s: %w", ErrNotConnected, strings.Join(s.o.ZooKeeper, ","), err)
}

// held says whether this process works as the client. An error says that nobody can tell any more: another one may by now.
func (s *seat) held(ctx context.Context) (bool, error) {
	if s.mine == 0 {
		return false, nil
	}
	if since := s.away.Load(); since != 0 && time.Since(time.Unix(0, since)) > s.dialer.Hold() {
		s.mine = 0
		return false, s.explain(errors.New("away for longer than the session lasts"))
	}
	select {
	case <-s.changed:
		return false, nil // take looks
	default:
	}
	if s.linked == s.links.Load() {
		return true, nil
	}
	// The ZooKeeper client sets its watches anew with each connection, perhaps too late to tell of a change meanwhile.
	n, err := s.look(ctx)
	if err != nil {
		return !errors.Is(err, zk.ErrSessionExpired), nil // the session may last yet; the next call looks again
	}
	if !n.there || n.stat.EphemeralOwner != s.mine {
		return false, nil
	}
	s.sit(n)
	return true, nil
}

// sit notes that the node is this process's.
func (s *seat) sit(n watchedNode) {
	s.mine, s.changed, s.linked = n.stat.EphemeralOwner, n.changed, n.linked
}

type watchedNode struct {
	there   bool
	data    []byte
	stat    *zk.Stat
	changed <-chan zk.Event
	linked  int64 // connections to ZooKeeper when it was read, or fewer
}

func (s *seat) look(ctx context.Context) (watchedNode, error) {
	return request(ctx, s, func() (n watchedNode, err error) {
		n.linked = s.links.Load()
		n.data, n.stat, n.changed, err = s.conn.GetW(s.at)
		if errors.Is(err, zk.ErrNoNode) {
			return watchedNode{}, nil
		}
		n.there = err == nil
		return n, err
	})
}

// take waits until this process may work as the client.
func (s *seat) take(ctx context.Context) error {
	before := s.mine
	s.mine = 0
	wait := time.Duration(0)
	for {
		n, err := s.look(ctx)
		if err != nil {
			return s.explain(err)
		}
		if !n.there {
			if err := retry.Sleep(ctx, wait); err != nil {
				return s.explain(err)
			}
			if err := s.create(ctx); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return s.explain(err)
			}
			wait = takeoverDelay
			continue
		}
		ours := n.stat.EphemeralOwner == s.conn.SessionID()
		r, perr := canalzk.ParseRunning(n.data)
		if ours && perr == nil && !r.Active { // an operator wants another process to have it
			if _, err := request(ctx, s, func() (struct{}, error) { return struct{}{}, s.conn.Delete(s.at, n.stat.Version) }); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return s.explain(err)
			}
			wait = takeoverDelay
			continue
		}
		if ours {
			s.sit(n)
			return nil
		}
		if n.stat.EphemeralOwner == before {
			wait = 0
		} else {
			wait = takeoverDelay
		}
		if s.await(ctx, n) != nil {
			return fmt.Errorf("%w: %q works as client %d of destination %s: %w", ErrNotConnected, r.Address, s.o.ClientID, s.o.Destination, context.Cause(ctx))
		}
	}
}

// await returns when the node may not be as it was read any more, or with ctx's error.
func (s *seat) await(ctx context.Context, n watchedNode) error {
	t := time.NewTicker(s.o.SessionTimeout)
	defer t.Stop()
	for {
		select {
		case <-n.changed:
			return nil
		case <-t.C: // see held; without another watch, for the client keeps each until it fires
			_, err := request(ctx, s, func() (*zk.Stat, error) {
				_, stat, err := s.conn.Get(s.at)
				if err == nil && (stat.Czxid != n.stat.Czxid || stat.Mzxid != n.stat.Mzxid) {
					err = zk.ErrNoNode
				}
				return stat, err
			})
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// data is what the running node says.
func (s *seat) data(address string) []byte {
	return canalzk.RunningData{Active: true, Address: address, ClientID: &s.o.ClientID}.Encode()
}

// create makes the running node, and what is above it.
func (s *seat) create(ctx context.Context) error {
	host, _ := os.Hostname()
	make1 := func(at string, data []byte, flags int32) error {
		_, err := request(ctx, s, func() (string, error) { return s.conn.Create(at, data, flags, zk.WorldACL(zk.PermAll)) })
		return err
	}
	err := make1(s.at, s.data(host), zk.FlagEphemeral)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for i := 1; i < len(s.at); i++ {
		if s.at[i] != '/' {
			continue
		}
		if err := make1(s.at[:i], nil, 0); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return make1(s.at, s.data(host), zk.FlagEphemeral)
}

// tell writes from where this process is connected.
func (s *seat) tell(ctx context.Context, address string) error {
	if _, err := request(ctx, s, func() (*zk.Stat, error) { return s.conn.Set(s.at, s.data(address), -1) }); err != nil {
		return s.explain(err)
	}
	n, err := s.look(ctx)
	if err == nil && (!n.there || n.stat.EphemeralOwner != s.mine) {
		err = errors.New("another process works as the client")
	}
	if err != nil {
		s.mine = 0
		return s.explain(err)
	}
	s.sit(n)
	return nil
}

// server looks up who serves the destination, or might.
func (s *seat) server(ctx context.Context) (string, error) {
	data, err := request(ctx, s, func() ([]byte, error) {
		data, _, err := s.conn.Get(canalzk.Running(s.o.Root, s.o.Destination))
		return data, err
	})
	switch {
	case err == nil:
		if r, err := canalzk.ParseRunning(data); err == nil && r.Address != "" {
			return r.Address, nil
		}
	case !errors.Is(err, zk.ErrNoNode):
		return "", s.explain(err)
	}
	all, err := request(ctx, s, func() ([]string, error) {
		all, _, err := s.conn.Children(canalzk.DestinationCluster(s.o.Root, s.o.Destination))
		return all, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", s.explain(err)
	}
	if len(all) == 0 {
		return "", s.explain(fmt.Errorf("no server of destination %s below %s", s.o.Destination, s.o.Root))
	}
	return all[rand.IntN(len(all))], nil
}
