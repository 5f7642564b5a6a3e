package zookeeper

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts gives the client its servers by name, so that names are looked up at each dial. It implements zk.HostProvider.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since the last connection
}

func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	retryStart = h.tried >= len(h.servers)
	if retryStart {
		h.tried = 0
	}
	h.tried++
	return server, retryStart
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// dialer dials servers. It learns the session timeout that the server grants, which the client does not tell, and
// makes a server that has fallen silent show earlier than the client would, so that another one can be asked while the lease lasts.
type dialer struct {
	tls     *tls.Config
	silence time.Duration // a server that says nothing for so long is given up
	granted *atomic.Int64 // session timeout in nanoseconds
}

func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	timeout = min(timeout, d.silence)
	var c net.Conn
	var err error
	if d.tls != nil {
		c, err = tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, d.tls)
	} else {
		c, err = net.DialTimeout(network, address, timeout)
	}
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, d: d}, nil
}

// silence is how long a server may say nothing: more than a third of the session timeout, at which the client pings, and
// so much less than two thirds, for which a lease lasts, that another server can be asked meanwhile.
func silence(sessionTimeout time.Duration) time.Duration { return sessionTimeout * 5 / 12 }

// conn is one connection. The client reads it from one goroutine.
type conn struct {
	net.Conn
	d    *dialer
	head []byte // of the server's first packet
}

// helloSize is how many bytes of the server's first packet, a ConnectResponse, matter: length, protocol version, session
// timeout in milliseconds, session id.
const helloSize = 4 + 4 + 4 + 8

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if missing := helloSize - len(c.head); missing > 0 && n > 0 {
		c.head = append(c.head, p[:min(missing, n)]...)
		if len(c.head) == helloSize && binary.BigEndian.Uint64(c.head[12:]) != 0 { // session id 0: expired
			c.d.granted.Store(int64(time.Duration(binary.BigEndian.Uint32(c.head[8:])) * time.Millisecond))
		}
	}
	return n, err
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.earlier(t)) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.earlier(t)) }

func (c *conn) earlier(t time.Time) time.Time {
	wait := c.d.silence
	if g := time.Duration(c.d.granted.Load()); g > 0 {
		wait = min(wait, silence(g))
	}
	if latest := time.Now().Add(wait); t.After(latest) {
		return latest
	}
	return t
}

// clientLog passes the client's messages on. They name servers and session ids, no secret.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client: " + fmt.Sprintf(format, args...))
}

// call runs a request of the client, which knows no context. When ctx ends first the request may still be carried out.
func call[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	done := make(chan result, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return zero, errClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.calls.Done()
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// multi carries out all operations or none. failed is the index of the operation that was refused, -1 when none was.
func (s *Store) multi(ctx context.Context, ops ...any) (failed int, err error) {
	rs, err := call(ctx, s, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
	if err == nil {
		return -1, nil
	}
	for i := range rs {
		if rs[i].Error != nil {
			return i, rs[i].Error // those before it would have been carried out, those behind it were not tried
		}
	}
	return -1, err
}
