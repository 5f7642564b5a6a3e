package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// DefaultClientID is the client id of Canal's own Java client.
const DefaultClientID = 1001

// TCPOptions say how a server is reached. The zero value of each field but Address and Destination gives its default.
type TCPOptions struct {
	Address     string // host:port
	Destination string
	ClientID    int16 // 0: DefaultClientID
	User        string
	Password    string
	TLS         *tls.Config   // nil: plain TCP
	Timeout     time.Duration // of each answer beyond what a get waits for; 0: one minute
	MaxPacket   int           // bytes of an answer that are accepted; 0: 1 GiB
}

// TCP is a [Connector] to one server.
type TCP struct {
	o      TCPOptions
	client string
	n      net.Conn
	filter *string // of the last Subscribe
	open   outstanding
	last   int // bytes of the last packet read
}

var _ Connector = (*TCP)(nil)

// NewTCP returns a connector that is not connected yet.
func NewTCP(o TCPOptions) (*TCP, error) {
	if o.Address == "" || o.Destination == "" {
		return nil, errors.New("client: address or destination missing")
	}
	if o.ClientID == 0 {
		o.ClientID = DefaultClientID
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.MaxPacket == 0 {
		o.MaxPacket = 1 << 30
	}
	return &TCP{o: o, client: strconv.Itoa(int(o.ClientID))}, nil
}

// Connect implements [Connector].
func (c *TCP) Connect(ctx context.Context) error {
	c.drop()
	d := net.Dialer{Timeout: c.o.Timeout}
	n, err := d.DialContext(ctx, "tcp", c.o.Address)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.o.TLS != nil {
		config := c.o.TLS
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName, _, _ = net.SplitHostPort(c.o.Address)
		}
		n = tls.Client(n, config)
	}
	c.n, c.last = n, 0
	if err := c.greet(ctx); err != nil {
		c.drop()
		return err
	}
	if c.filter != nil {
		if err := c.Subscribe(ctx, *c.filter); err != nil {
			return err
		}
	}
	return c.Rollback(ctx)
}

// greet reads the handshake and logs in.
func (c *TCP) greet(ctx context.Context) error {
	typ, body, err := c.call(ctx, 0, 0, nil)
	if err != nil {
		return err
	}
	if typ != canalwire.Handshake {
		return fmt.Errorf("client: %s greets with a packet of type %d: not Canal's protocol", c.o.Address, typ)
	}
	var seed []byte
	if err := canalwire.Fields(body, func(f canalwire.Field) error {
		if f.Number == 2 {
			seed = f.Bytes
		}
		return nil
	}); err != nil {
		return err
	}
	var login []byte
	login = appendString(login, 1, c.o.User)
	login = appendString(login, 2, canalwire.Scramble(c.o.Password, seed))
	return c.simple(ctx, canalwire.Authentication, login)
}

func appendString(dst []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

func appendNumber(dst []byte, num protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(n))
}

// identity begins the body of a request.
func (c *TCP) identity() []byte {
	return appendString(appendString(nil, 1, c.o.Destination), 2, c.client)
}

// send writes a packet.
func (c *TCP) send(ctx context.Context, typ int, body []byte) error {
	if c.n == nil {
		return ErrNotConnected
	}
	if err := ctx.Err(); err != nil { // nothing is on its way: the connection is as good as before
		return err
	}
	_ = c.n.SetWriteDeadline(time.Now().Add(c.o.Timeout))
	_, err := c.n.Write(canalwire.AppendPacket(nil, typ, false, body))
	return c.lost(ctx, err)
}

// lost drops the connection if err says that it failed.
func (c *TCP) lost(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	c.drop()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %s: %w", ErrNotConnected, c.o.Address, err)
}

func (c *TCP) drop() {
	if c.n != nil {
		_ = c.n.Close()
		c.n = nil
	}
	c.open = nil
}

// call sends a request, unless typ is 0, and returns the answer, for which it waits by wait longer than for others;
// below zero: for ever.
func (c *TCP) call(ctx context.Context, typ int, wait time.Duration, body []byte) (int, []byte, error) {
	if c.n == nil {
		return 0, nil, ErrNotConnected
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	n := c.n
	stop := context.AfterFunc(ctx, func() { _ = n.Close() })
	defer stop()
	if typ != 0 {
		if err := c.send(ctx, typ, body); err != nil {
			return 0, nil, err
		}
	}
	deadline := time.Time{}
	if wait >= 0 {
		deadline = time.Now().Add(min(wait, math.MaxInt64-c.o.Timeout) + c.o.Timeout)
	}
	_ = n.SetReadDeadline(deadline)
	kind, content, err := canalwire.ReadPacketAfter(n, c.o.MaxPacket, c.last)
	if err != nil {
		return 0, nil, c.lost(ctx, err)
	}
	c.last = len(content)
	return kind, content, nil
}

// refused reads an ack packet; it is nil for one that says yes.
func refused(body []byte) error {
	var code int32
	var message string
	if err := canalwire.Fields(body, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			code = int32(f.Varint)
		case 2:
			message = string(f.Bytes)
		}
		return nil
	}); err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%w: code %d: %s", ErrRefused, code, message)
	}
	return nil
}

// simple makes a request that is answered by an ack.
func (c *TCP) simple(ctx context.Context, typ int, body []byte) error {
	kind, answer, err := c.call(ctx, typ, 0, body)
	if err != nil {
		return err
	}
	if kind != canalwire.Ack {
		return c.lost(ctx, fmt.Errorf("answer of type %d to a packet of type %d", kind, typ))
	}
	return refused(answer)
}

// Disconnect implements [Connector]. It returns when the server has closed the connection, which it does when it has carried out
// what was asked for, acks included.
func (c *TCP) Disconnect(ctx context.Context) error {
	if c.n == nil {
		return nil
	}
	defer c.drop()
	if err := c.Rollback(ctx); err != nil {
		return err
	}
	n := c.n
	stop := context.AfterFunc(ctx, func() { _ = n.Close() })
	defer stop()
	_ = n.SetDeadline(time.Now().Add(c.o.Timeout))
	if half, ok := n.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, n) // what is not acknowledged comes again, so an error does not matter
	}
	return nil
}

// Subscribe implements [Connector].
func (c *TCP) Subscribe(ctx context.Context, filter string) error {
	if err := c.simple(ctx, canalwire.Subscription, appendString(c.identity(), 7, filter)); err != nil {
		return err
	}
	c.filter = &filter
	return nil
}

// Unsubscribe implements [Connector].
func (c *TCP) Unsubscribe(ctx context.Context) error {
	if err := c.simple(ctx, canalwire.Unsubscription, c.identity()); err != nil {
		return err
	}
	c.filter, c.open = nil, nil
	return nil
}

// GetWithoutAck implements [Connector].
func (c *TCP) GetWithoutAck(ctx context.Context, size int, wait Wait) (*Message, error) {
	body := appendNumber(c.identity(), 3, int64(max(0, min(size, maxSize))))
	longest := time.Duration(wait)
	switch {
	case wait < 0:
		body, longest = appendNumber(body, 4, -1), 0
	case wait == 0:
		body, longest = appendNumber(body, 4, 0), -1
	default:
		body = appendNumber(body, 4, max(1, time.Duration(wait).Milliseconds()))
	}
	body = appendNumber(body, 5, 2) // milliseconds
	kind, answer, err := c.call(ctx, canalwire.Get, longest, body)
	if err != nil {
		return nil, err
	}
	switch kind {
	case canalwire.Ack:
		if err := refused(answer); err != nil {
			return nil, err
		}
		return nil, c.lost(ctx, errors.New("a get was answered without a batch"))
	case canalwire.Messages:
	default:
		return nil, c.lost(ctx, fmt.Errorf("a get was answered by a packet of type %d", kind))
	}
	m := &Message{}
	if err := canalwire.Fields(answer, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			m.ID = int64(f.Varint)
		case 2:
			m.Entries = append(m.Entries, f.Bytes)
		}
		return nil
	}); err != nil {
		return nil, c.lost(ctx, err)
	}
	c.open.add(m)
	return m, nil
}

// Get implements [Connector].
func (c *TCP) Get(ctx context.Context, size int, wait Wait) (*Message, error) {
	return getAndAck(ctx, c, size, wait)
}

// Ack implements [Connector]. The protocol has no answer to it: a batch that cannot be acknowledged
// shows as a lost connection with the next call.
func (c *TCP) Ack(ctx context.Context, id int64) error {
	err := c.send(ctx, canalwire.ClientAck, appendNumber(c.identity(), 3, id))
	if err == nil {
		c.open.acknowledged(id)
	}
	return err
}

// Rollback implements [Connector]; as to its answer, see Ack.
func (c *TCP) Rollback(ctx context.Context) error {
	err := c.send(ctx, canalwire.ClientRollback, appendNumber(c.identity(), 3, 0))
	if err == nil {
		c.open = nil
	}
	return err
}

// RollbackTo implements [Connector]; as to its answer, see Ack.
func (c *TCP) RollbackTo(ctx context.Context, id int64) error {
	if id == NoBatch {
		return nil
	}
	err := c.send(ctx, canalwire.ClientRollback, appendNumber(c.identity(), 3, id))
	if err == nil {
		c.open.rolledBack(id)
	}
	return err
}

// List implements [Connector].
func (c *TCP) List(context.Context) ([]int64, error) {
	if c.n == nil {
		return nil, ErrNotConnected
	}
	return slices.Clone(c.open), nil
}
