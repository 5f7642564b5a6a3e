// Package zkdial makes connections to ZooKeeper that tell what the client library does not.
package zkdial

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// Dialer dials ZooKeeper's servers for the client library. It learns the session timeout that the server grants, which the client does not tell, and
// makes a server that has fallen silent show earlier than the client would, so that another one can be asked while the lease lasts.
type Dialer struct {
	TLS     *tls.Config   // nil: plain TCP
	Timeout time.Duration // of the session, as it is asked for
	granted atomic.Int64  // in nanoseconds; 0: no session yet
}

// Granted returns the session timeout that a server has granted last; 0 before the first session. It is safe for concurrent use.
func (d *Dialer) Granted() time.Duration { return time.Duration(d.granted.Load()) }

// Hold is for how long what the session holds is provably held after ZooKeeper was heard last: two thirds of the session timeout, be it the
// one that is asked for or a shorter one that is granted. It is safe for concurrent use.
func (d *Dialer) Hold() time.Duration { return d.session() * 2 / 3 }

func (d *Dialer) session() time.Duration {
	if g := d.Granted(); g > 0 {
		return min(d.Timeout, g)
	}
	return d.Timeout
}

// Dial is for zk.WithDialer.
func (d *Dialer) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	timeout = min(timeout, silence(d.Timeout))
	var c net.Conn
	var err error
	if d.TLS != nil {
		c, err = tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, d.TLS)
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
	d    *Dialer
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
	if latest := time.Now().Add(silence(c.d.session())); t.After(latest) {
		return latest
	}
	return t
}
