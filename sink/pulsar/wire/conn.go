package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const writeBytes = 64 << 10 // a write begins at the latest when so much is gathered

// address is a broker and the way to it: they differ behind a proxy.
type address struct {
	broker string // HOST:PORT of the broker
	dial   string // HOST:PORT to connect to
}

// conn is a connection to one broker. Its methods may be called from any goroutine.
type conn struct {
	client     *Client
	addr       address
	nc         net.Conn
	maxMessage int           // maxMessageSize of the broker
	done       chan struct{} // closed when both goroutines have ended

	// received counts commands, for the keep-alive. The reader's own.
	received uint64

	mu        sync.Mutex
	wake      sync.Cond // the writer waits
	commands  []byte    // framed, to be written first
	ready     []*Producer
	requests  map[uint64]chan answer
	producers map[uint64]*Producer
	err       error // why it is dead; nil: alive
	dead      atomic.Bool
}

// answer is what a request is told. Strings and numbers are copies.
type answer struct {
	typ                   int
	err                   error
	partitions            int64
	lookup                lookupAnswer
	lastSequenceID, epoch int64
	hasEpoch, ready       bool
}

type lookupAnswer struct {
	redirect, authoritative, proxied bool
	url, tlsURL                      string
}

// dial makes a connection of producers; the caller has no other one to addr.
func (c *Client) dial(ctx context.Context, addr address) (*conn, error) {
	n, br, err := c.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { n.fail(n.read(br)) })
	wg.Go(func() { n.fail(n.write()) })
	c.wg.Go(func() {
		wg.Wait()
		close(n.done)
	})
	return n, nil
}

// connect connects and shakes hands.
func (c *Client) connect(ctx context.Context, addr address) (*conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ConnectTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr.dial)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to broker %s: %w", addr.dial, err)
	}
	nc := raw
	// The deadline must hold for what knows no context too.
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.o.TLS != nil {
		conf := c.o.TLS
		if conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName, _, _ = net.SplitHostPort(addr.dial)
		}
		t := tls.Client(nc, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, nil, fmt.Errorf("TLS with broker %s: %w", addr.dial, err)
		}
		nc = t
	}
	n := &conn{client: c, addr: addr, nc: nc, maxMessage: defaultMaxMessage, done: make(chan struct{}),
		requests: map[uint64]chan answer{}, producers: map[uint64]*Producer{}}
	n.wake.L = &n.mu
	br := bufio.NewReaderSize(nc, maxFrame)
	if err := n.handshake(br); err != nil {
		nc.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		var told *Error
		if errors.As(err, &told) {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("broker %s: %w", addr.dial, err)
	}
	if !stop() {
		nc.Close()
		return nil, nil, fmt.Errorf("broker %s: %w", addr.dial, ctx.Err())
	}
	return n, br, nil
}

func (c *Client) authMethod() string {
	switch {
	case c.o.Token != "":
		return "token"
	case c.o.TLS != nil && (len(c.o.TLS.Certificates) > 0 || c.o.TLS.GetClientCertificate != nil):
		return "tls"
	}
	return "none"
}

func (n *conn) handshake(br *bufio.Reader) error {
	o := &n.client.o
	b := appendText(nil, 1, clientVersion)
	b = appendText(b, 3, o.Token)
	b = appendNum(b, 4, protocolVersion)
	b = appendText(b, 5, n.client.authMethod())
	if n.addr.broker != n.addr.dial {
		b = appendText(b, 6, n.addr.broker)
	}
	b = appendData(b, 10, appendNum(nil, 1, 1)) // supports_auth_refresh
	if _, err := n.nc.Write(appendCommand(nil, cmdConnect, b)); err != nil {
		return err
	}
	var f fields
	for {
		cmd, size, err := readFrame(br)
		if err != nil {
			return err
		}
		typ, body, err := parseCommand(cmd)
		if err == nil {
			err = f.parse(body)
		}
		if err != nil {
			return err
		}
		switch typ {
		case cmdConnected:
			if m := f.int(3, 0); m > 0 && m < 1<<31 {
				n.maxMessage = int(m)
			}
			_, err = br.Discard(size)
			return err
		case cmdError:
			return &Error{Code: int(f.uint(2)), Op: "connecting", Broker: n.addr.dial, Message: f.text(3)}
		case cmdAuthChallenge:
			if _, err := n.nc.Write(appendCommand(nil, cmdAuthResponse, n.authResponse())); err != nil {
				return err
			}
		default:
			return fmt.Errorf("command %d while connecting", typ)
		}
		if _, err := br.Discard(size); err != nil {
			return err
		}
	}
}

// authResponse answers a challenge, which the broker sends when it wants the
// credentials again.
func (n *conn) authResponse() []byte {
	data := appendText(appendText(nil, 1, n.client.authMethod()), 2, n.client.o.Token)
	return appendNum(appendData(appendText(nil, 1, clientVersion), 2, data), 3, protocolVersion)
}

// fail ends the connection. Its producers and requests are told once.
func (n *conn) fail(err error) {
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return
	}
	if err == nil {
		err = ErrClosed
	}
	n.err = fmt.Errorf("connection to broker %s: %w", n.addr.broker, err)
	err = n.err
	n.dead.Store(true)
	producers, requests := n.producers, n.requests
	n.producers, n.requests, n.ready = nil, nil, nil
	n.wake.Broadcast()
	n.mu.Unlock()
	n.nc.Close()
	for _, ch := range requests {
		ch <- answer{err: err}
	}
	for _, p := range producers {
		p.lost(n, err)
	}
}

// send queues a framed command.
func (n *conn) send(typ int, body []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commands = appendCommand(n.commands, typ, body)
	n.wake.Signal()
}

// enqueue tells the writer that p has something to send. p.mu is held.
func (n *conn) enqueue(p *Producer) {
	n.mu.Lock()
	if n.err == nil {
		n.ready = append(n.ready, p)
		if len(n.ready) == 1 {
			n.wake.Signal()
		}
	}
	n.mu.Unlock()
}

// request sends a command and waits for its answer.
func (n *conn) request(ctx context.Context, op, topic string, typ int, id uint64, body []byte) (answer, error) {
	ch := make(chan answer, 1)
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return answer{}, n.err
	}
	n.requests[id] = ch
	n.commands = appendCommand(n.commands, typ, body)
	n.wake.Signal()
	n.mu.Unlock()
	select {
	case a := <-ch:
		var e *Error
		if errors.As(a.err, &e) {
			e.Op, e.Topic, e.Broker = op, topic, n.addr.broker
		}
		return a, a.err
	case <-ctx.Done():
		n.mu.Lock()
		delete(n.requests, id)
		n.mu.Unlock()
		return answer{}, fmt.Errorf("%s %s: no answer from broker %s: %w", op, topic, n.addr.broker, ctx.Err())
	}
}

func (n *conn) answered(id uint64, a answer) {
	n.mu.Lock()
	ch := n.requests[id]
	delete(n.requests, id)
	n.mu.Unlock()
	if ch != nil {
		ch <- a // has room
	}
}

func (n *conn) register(id uint64, p *Producer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.producers[id] = p
	}
	return n.err
}

func (n *conn) unregister(id uint64) {
	n.mu.Lock()
	delete(n.producers, id)
	n.mu.Unlock()
}

func (n *conn) producer(id uint64) *Producer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.producers[id]
}

// write is the writer's goroutine: it lets the producers that are ready write
// into one buffer, in turns, and sends it.
func (n *conn) write() error {
	var w composer
	var plan plan
	var turn []*Producer
	for {
		n.mu.Lock()
		for len(n.commands) == 0 && len(n.ready) == 0 && n.err == nil {
			n.wake.Wait()
		}
		if n.err != nil {
			n.mu.Unlock()
			return n.err
		}
		w.buf = append(w.buf[:0], n.commands...)
		n.commands = n.commands[:0]
		turn, n.ready = n.ready, turn[:0]
		n.mu.Unlock()
		for _, p := range turn {
			if len(w.buf) >= writeBytes {
				if _, err := n.nc.Write(w.buf); err != nil {
					return err
				}
				w.buf = w.buf[:0]
			}
			p.fill(n, &w, &plan)
		}
		clear(turn)
		plan.clear()
		if len(w.buf) > 0 {
			if _, err := n.nc.Write(w.buf); err != nil {
				return err
			}
		}
		if cap(w.buf) > keepBuffer {
			w.buf = nil
		}
	}
}

// read is the reader's goroutine. It also keeps the connection alive: a broker
// that says nothing is asked, and is dead when it does not answer.
func (n *conn) read(br *bufio.Reader) error {
	var r reader
	seen, asked := n.received, false
	n.nc.SetReadDeadline(time.Now().Add(n.client.o.KeepAlive))
	for {
		cmd, size, err := readFrame(br)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			switch {
			case n.received != seen:
				asked = false
			case asked:
				return errSilent
			default:
				asked = true
				n.send(cmdPing, nil)
			}
			seen = n.received
			n.nc.SetReadDeadline(time.Now().Add(n.client.o.KeepAlive))
			continue
		}
		n.received++
		if err := r.handle(n, cmd); err != nil {
			return err
		}
		if _, err := br.Discard(size); err != nil {
			return err
		}
	}
}

// reader parses commands. One goroutine at a time.
type reader struct {
	f, id fields
	done  []int64 // ids
}

// handle deals with one command from the broker. An error ends the connection.
func (r *reader) handle(n *conn, cmd []byte) error {
	typ, body, err := parseCommand(cmd)
	if err != nil {
		return err
	}
	f := &r.f
	if err := f.parse(body); err != nil {
		return fmt.Errorf("command %d: %w", typ, err)
	}
	switch typ {
	case cmdSendReceipt:
		if err := r.id.parse(f.bytes(3)); err != nil {
			return fmt.Errorf("receipt: %w", err)
		}
		// A duplicate has the position -1:-1.
		duplicate := r.id.int(1, -1) < 0 || r.id.int(2, -1) < 0
		if p := n.producer(f.uint(1)); p != nil {
			p.receipt(n, r, f.uint(1), f.int(2, -1), duplicate)
		}
	case cmdSendError:
		if p := n.producer(f.uint(1)); p != nil {
			p.sendError(n, f.uint(1), f.int(2, -1), &Error{Code: int(f.uint(3)), Op: "sending to", Topic: p.o.Topic, Broker: n.addr.broker, Message: f.text(4)})
		}
	case cmdCloseProducer:
		if p := n.producer(f.uint(1)); p != nil {
			p.closedByBroker(n, f.uint(1))
		}
	case cmdPing:
		n.send(cmdPong, nil)
	case cmdAuthChallenge:
		n.send(cmdAuthResponse, n.authResponse())
	case cmdSuccess:
		n.answered(f.uint(1), answer{typ: typ})
	case cmdError:
		e := &Error{Code: int(f.uint(2)), Op: "request", Broker: n.addr.broker, Message: f.text(3)}
		if f.uint(1) == ^uint64(0) {
			return e // about the connection
		}
		n.answered(f.uint(1), answer{err: e})
	case cmdProducerSuccess:
		n.answered(f.uint(1), answer{typ: typ, lastSequenceID: f.int(3, -1), epoch: f.int(5, 0), hasEpoch: f.nums&(1<<5) != 0, ready: f.int(6, 1) != 0})
	case cmdPartitionedAnswer:
		a := answer{typ: typ, partitions: f.int(1, 0)}
		if f.uint(3) != 0 || f.nums&(1<<4) != 0 {
			a.err = &Error{Code: int(f.uint(4)), Broker: n.addr.broker, Message: f.text(5)}
		}
		n.answered(f.uint(2), a)
	case cmdLookupAnswer:
		a := answer{typ: typ, lookup: lookupAnswer{redirect: f.uint(3) == 0, authoritative: f.uint(5) != 0, proxied: f.uint(8) != 0, url: f.text(1), tlsURL: f.text(2)}}
		if f.uint(3) > 1 {
			a.err = &Error{Code: int(f.uint(6)), Broker: n.addr.broker, Message: f.text(7)}
		}
		n.answered(f.uint(4), a)
	}
	return nil // others are none of a producer's business
}
