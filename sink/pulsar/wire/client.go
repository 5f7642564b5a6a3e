package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/internal/retry"
)

const maxRedirects = 20

// Options configure a Client. The zero value of a duration means its default.
type Options struct {
	URL   string      // pulsar://host:6650 or pulsar+ssl://host:6651; several hosts separated by commas
	Token string      // JSON web token; "": none
	TLS   *tls.Config // for pulsar+ssl; nil: the system's roots. With a client certificate and no token it also authenticates.

	ConnectTimeout   time.Duration // for a connection with its handshakes; 10 s
	OperationTimeout time.Duration // for a request; 10 s
	KeepAlive        time.Duration // silence after which the broker is asked; it is dead after as much again; 20 s

	Logger *slog.Logger // slog.Default()
}

// Client is a producing client of one cluster. Its methods may be called from any goroutine.
type Client struct {
	o      Options
	hosts  []string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // connections

	ids  atomic.Uint64 // of requests and producers
	host atomic.Uint32 // index of the service host used now

	mu     sync.Mutex
	closed bool
	pool   map[address]*slot

	heard struct { // the last trouble, for errors that would say nothing
		sync.Mutex
		text string
		at   time.Time
	}
}

// slot is the place of one connection; sem is held while it is made.
type slot struct {
	sem chan struct{}
	n   *conn
}

// New returns a client. It connects on first use.
func New(o Options) (*Client, error) {
	scheme, hosts, _ := strings.Cut(o.URL, "://")
	switch scheme {
	case "pulsar":
		o.TLS = nil
	case "pulsar+ssl":
		if o.TLS == nil {
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	default:
		return nil, fmt.Errorf("url %q must begin with pulsar:// or pulsar+ssl://", o.URL)
	}
	port := "6650"
	if o.TLS != nil {
		port = "6651"
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.OperationTimeout, 10*time.Second)
	def(&o.KeepAlive, 20*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Client{o: o, pool: map[address]*slot{}}
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		h, err := hostPort(host, port)
		if err != nil {
			return nil, err
		}
		c.hosts = append(c.hosts, h)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func hostPort(s, port string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" || strings.ContainsAny(s, "/@ ") {
		return "", fmt.Errorf("%q is not HOST:PORT", s)
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return s, nil
	}
	return net.JoinHostPort(strings.Trim(s, "[]"), port), nil
}

// Close ends all connections and waits for their goroutines. Close the producers first.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	pool := c.pool
	c.pool = nil
	c.mu.Unlock()
	c.cancel()
	for _, s := range pool {
		s.sem <- struct{}{} // a dial under way ends with c.ctx
		if s.n != nil {
			s.n.fail(ErrClosed)
		}
	}
	c.wg.Wait()
}

// Complaint returns the last trouble heard of within a minute, or "".
func (c *Client) Complaint() string {
	c.heard.Lock()
	defer c.heard.Unlock()
	if time.Since(c.heard.at) > time.Minute {
		return ""
	}
	return c.heard.text
}

func (c *Client) complain(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed) {
		return
	}
	c.heard.Lock()
	c.heard.text, c.heard.at = err.Error(), time.Now()
	c.heard.Unlock()
	c.o.Logger.Debug("pulsar wire: " + err.Error())
}

// bound returns a context that ends with the client too.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, c.o.OperationTimeout)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// conn returns the connection to a broker, made if need be.
func (c *Client) conn(ctx context.Context, addr address) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	s := c.pool[addr]
	if s == nil {
		s = &slot{sem: make(chan struct{}, 1)}
		c.pool[addr] = s
	}
	c.mu.Unlock()
	select {
	case s.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to broker %s: %w", addr.dial, ctx.Err())
	}
	defer func() { <-s.sem }()
	if err := c.ctx.Err(); err != nil {
		return nil, ErrClosed
	}
	if s.n != nil && !s.n.dead.Load() {
		return s.n, nil
	}
	n, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s.n = n
	return n, nil
}

// service returns a connection to one of the hosts of the URL. A host that is
// away is left for the next one.
func (c *Client) service(ctx context.Context) (*conn, error) {
	var errs []error
	for range c.hosts {
		i := c.host.Load()
		host := c.hosts[int(i)%len(c.hosts)]
		n, err := c.conn(ctx, address{host, host})
		if err == nil {
			return n, nil
		}
		errs = append(errs, err)
		c.host.CompareAndSwap(i, i+1)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// Partitions returns how many partitions a topic has: 0 for one without, or one that does
// not exist and may come into being by its use.
func (c *Client) Partitions(ctx context.Context, topic string) (int, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	n, err := c.service(ctx)
	if err != nil {
		return 0, err
	}
	id := c.ids.Add(1)
	a, err := n.request(ctx, "asking for the partitions of", topic, cmdPartitionedMetadata, id, appendNum(appendText(nil, 1, topic), 2, id))
	if err != nil {
		return 0, err
	}
	if a.typ != cmdPartitionedAnswer || a.partitions < 0 || a.partitions > 1<<20 {
		return 0, &Error{Code: codeOfOurOwn, Op: "asking for the partitions of", Topic: topic, Broker: n.addr.broker, Message: "an answer without sense"}
	}
	return int(a.partitions), nil
}

// lookup returns a connection to the broker that serves a topic.
func (c *Client) lookup(ctx context.Context, topic string) (*conn, error) {
	const op = "looking up"
	n, err := c.service(ctx)
	if err != nil {
		return nil, err
	}
	service := n.addr.dial
	authoritative := false
	for range maxRedirects {
		id := c.ids.Add(1)
		b := appendNum(appendText(nil, 1, topic), 2, id)
		if authoritative {
			b = appendNum(b, 3, 1)
		}
		a, err := n.request(ctx, op, topic, cmdLookup, id, b)
		if err != nil {
			return nil, err
		}
		url := a.lookup.url
		if c.o.TLS != nil {
			url = a.lookup.tlsURL
		}
		_, host, _ := strings.Cut(url, "://")
		host, err = hostPort(strings.TrimSuffix(host, "/"), "6650")
		if a.typ != cmdLookupAnswer || err != nil {
			return nil, &Error{Code: codeOfOurOwn, Op: op, Topic: topic, Broker: n.addr.broker,
				Message: fmt.Sprintf("the broker names no address for this kind of connection (%q): does it listen with, or without, TLS as the URL asks?", url)}
		}
		addr := address{broker: host, dial: host}
		if a.lookup.proxied {
			addr.dial = service
		}
		if n, err = c.conn(ctx, addr); err != nil {
			return nil, err
		}
		if !a.lookup.redirect {
			return n, nil
		}
		authoritative = a.lookup.authoritative
		c.o.Logger.Debug("pulsar wire: a lookup is redirected", "topic", topic, "broker", host)
	}
	return nil, &Error{Code: codeOfOurOwn, Op: op, Topic: topic, Broker: n.addr.broker, Message: "redirected too often"}
}

// backoff waits longer each time, with jitter.
type backoff struct{ last time.Duration }

func (b *backoff) next() { b.last = min(max(2*b.last, 50*time.Millisecond), 5*time.Second) }

// wait returns false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.next()
	return retry.Sleep(ctx, retry.Jitter(b.last)) == nil
}
