package canaltcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalfilter"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canalview"
)

// errReadEnded is why a connection's context ends when its client has gone.
var errReadEnded = errors.New("client has closed the connection")

// packet is a request as it was read.
type packet struct {
	typ  int
	body []byte
}

// conn is one client's connection. It belongs to the goroutine that handles requests.
type conn struct {
	s    *Server
	n    net.Conn
	log  *slog.Logger
	used map[server.Identity]bool // attached
	idle time.Duration
	out  []byte              // for short answers
	room *semaphore.Weighted // for the bodies of requests that wait
}

// most requests that wait to be carried out, and bytes of their bodies; one more may have been read.
const (
	maxWaiting      = 64
	maxWaitingBytes = maxRequest
)

// read hands on requests until the connection ends, and so notices while a get waits that nobody waits for its
// answer. It reads on past what a client has sent behind the get before it gave up: a rollback, as a rule.
func (c *conn) read(ctx context.Context, packets chan<- packet, cancel context.CancelCauseFunc) {
	for limit := maxLogin; ; limit = maxRequest {
		typ, body, err := canalwire.ReadPacket(c.n, limit)
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", errReadEnded, err)
			} else {
				err = errReadEnded
			}
			cancel(err)
			return
		}
		if c.room.Acquire(ctx, weight(body)) != nil {
			return
		}
		select {
		case packets <- packet{typ, body}:
		case <-ctx.Done():
			return
		}
	}
}

func weight(body []byte) int64 { return min(int64(len(body)), maxWaitingBytes) }

// next waits for a request, no longer than d. Those that were read before ctx has ended come first: acks may be among them.
func (c *conn) next(ctx context.Context, packets <-chan packet, d time.Duration) (p packet, err error) {
	_ = c.n.SetReadDeadline(time.Now().Add(d))
	select {
	case p = <-packets:
	case <-ctx.Done():
		select {
		case p = <-packets:
		default:
			return packet{}, ctx.Err()
		}
	}
	c.room.Release(weight(p.body))
	// While it is carried out, silence is what the protocol demands.
	_ = c.n.SetReadDeadline(time.Time{})
	return p, nil
}

// handle greets the client, lets it log in and carries out its requests, one after the other.
func (c *conn) handle(ctx context.Context, packets <-chan packet) error {
	seed := newSeed()
	if err := c.write(appendHandshake(c.out[:0], seed), nil); err != nil {
		return err
	}
	p, err := c.next(ctx, packets, loginTimeout)
	if err != nil {
		return err
	}
	if err := c.login(ctx, p, seed); err != nil {
		return err
	}
	c.s.strangers.welcome(c.n)
	for {
		p, err := c.next(ctx, packets, c.idle)
		if err != nil {
			return err
		}
		c.s.requests.Add(1)
		if err := c.request(ctx, p); err != nil {
			return err
		}
	}
}

// login answers a login; an error closes the connection.
func (c *conn) login(ctx context.Context, p packet, seed []byte) error {
	refuse := func(why string) error {
		c.s.refused.Add(1)
		_ = c.write(appendAck(c.out[:0], codeFailed, why), nil)
		return fmt.Errorf("login refused: %s", why)
	}
	if p.typ != canalwire.Authentication {
		return refuse("log in first")
	}
	l, err := parseLogin(p.body)
	if err != nil {
		return err
	}
	if o := &c.s.o; o.User != "" {
		known := subtle.ConstantTimeCompare([]byte(l.user), []byte(o.User)) == 1
		ok := canalwire.CheckScramble(c.s.hash, seed, l.password)
		if o.AllowClearText {
			ok = canalwire.CheckClear(c.s.hash, l.password) || ok
		}
		if !known || !ok {
			// Nobody is told which of the two was wrong.
			return refuse("user or password is wrong" + hintClearText(o.AllowClearText, l.password))
		}
	}
	if ms := max(l.readTimeout, l.writeTimeout); ms > 0 {
		c.idle = time.Duration(ms) * time.Millisecond
	}
	if l.destination != "" && l.client != "" {
		id, err := identity(l.destination, l.client)
		if err == nil {
			err = c.subscribe(ctx, id, l.filter)
		}
		if err != nil {
			return refuse(err.Error())
		}
	}
	return c.write(appendAck(c.out[:0], 0, ""), nil)
}

// hintClearText says what may be wrong with a password that is no scramble.
func hintClearText(allowed bool, password []byte) string {
	if allowed || len(bytes.TrimLeft(password, "0123456789abcdefABCDEF")) == 0 {
		return ""
	}
	return " (it was sent in clear text, which is off: canal.allow_clear_text)"
}

// request carries out one request; an error closes the connection.
func (c *conn) request(ctx context.Context, p packet) error {
	switch p.typ {
	case canalwire.Subscription, canalwire.Unsubscription, canalwire.Get, canalwire.ClientAck, canalwire.ClientRollback:
	default:
		return c.fail(ctx, codeFailed, fmt.Errorf("packet type %d is not supported", p.typ))
	}
	if ctx.Err() != nil && (p.typ == canalwire.Subscription || p.typ == canalwire.Get) {
		return nil // nobody waits for the answer
	}
	r, err := parseRequest(p.typ, p.body)
	if err != nil {
		return err
	}
	silent := p.typ == canalwire.ClientAck || p.typ == canalwire.ClientRollback
	id, err := identity(r.destination, r.client)
	if err != nil {
		if silent {
			return err
		}
		return c.fail(ctx, codeIncomplete, err)
	}
	switch p.typ {
	case canalwire.Subscription:
		if err := c.subscribe(ctx, id, r.filter); err != nil {
			return c.fail(ctx, codeFailed, err)
		}
		return c.ack(ctx, 0, "")
	case canalwire.Unsubscription:
		if err := c.unsubscribe(ctx, id); err != nil {
			return c.fail(ctx, codeFailed, err)
		}
		if c.used[id] {
			c.letGo(id)
		}
		return c.ack(ctx, 0, "")
	case canalwire.Get:
		return c.get(ctx, id, r)
	}
	if r.batch == server.NoBatch {
		return nil // what was got was empty
	}
	if p.typ == canalwire.ClientAck {
		if err := c.resume(ctx, id); err != nil {
			return err
		}
		err := c.s.o.Upstream.Ack(ctx, id, r.batch, nil)
		if e := (*server.SaveError)(nil); errors.As(err, &e) && ctx.Err() != nil {
			return nil // it is acknowledged; what the client has sent behind it counts, too
		}
		return err
	}
	// Clients roll back before they subscribe; there is nothing to roll back then.
	if err := c.resume(ctx, id); err != nil {
		c.log.Debug("canal: rollback ignored", "destination", id.Destination, "error", err)
		return nil
	}
	if r.batch == 0 {
		return c.s.o.Upstream.Rollback(ctx, id)
	}
	return c.s.o.Upstream.RollbackTo(ctx, id, r.batch)
}

// fail answers a request that was refused; the connection stays.
func (c *conn) fail(ctx context.Context, code int32, err error) error {
	c.log.Warn("canal: request refused", "error", err)
	return c.ack(ctx, code, err.Error())
}

// ack answers a request. What a client that has gone has sent behind it counts all the same.
func (c *conn) ack(ctx context.Context, code int32, why string) error {
	if err := c.write(appendAck(c.out[:0], code, why), nil); ctx.Err() == nil {
		return err
	}
	return nil
}

// identity is whom a request is about.
func identity(destination, client string) (server.Identity, error) {
	if destination == "" || client == "" {
		return server.Identity{}, errors.New("destination or client id is missing")
	}
	n, err := strconv.ParseInt(client, 10, 16)
	if err != nil {
		return server.Identity{}, fmt.Errorf("client id %q is not a number from -32768 to 32767", client)
	}
	// "+7" and "007" are client 7: the number counts, and two cursors of one client would write one node of ZooKeeper.
	return server.Identity{Destination: destination, Client: strconv.FormatInt(n, 10)}, nil
}

// subscribe subscribes with the filter's text.
func (c *conn) subscribe(ctx context.Context, id server.Identity, filter string) error {
	f, err := canalfilter.New(filter)
	if err != nil {
		return fmt.Errorf("filter of client %s: %w", id, err)
	}
	var tables canalview.Tables = f
	if f.Empty() && c.s.o.Unfiltered != nil {
		if t := c.s.o.Unfiltered(id.Destination); t != nil {
			tables = t
		}
	}
	return c.use(ctx, id, filter, canalview.Subscription{Tables: tables, Entries: c.s.o.Encoder})
}

// use subscribes, and notes that this connection does.
func (c *conn) use(ctx context.Context, id server.Identity, filter string, m server.Matcher) error {
	first := !c.used[id]
	if first {
		// Before Subscribe, lest another connection that ends meanwhile disconnect what we got.
		c.s.attach(id)
		c.used[id] = true
	}
	err := c.s.o.Upstream.Subscribe(ctx, id, filter, server.WithMatcher(m), server.WithWholeTransaction())
	if err != nil && first {
		c.letGo(id)
	}
	return err
}

// letGo ends the connection's use of a subscription.
func (c *conn) letGo(id server.Identity) {
	delete(c.used, id)
	if err := c.s.detach(id); err != nil {
		c.log.Warn("canal: subscription left", "destination", id.Destination, "client", id.Client, "error", err)
	}
}

// resume takes up a subscription that an earlier connection left.
func (c *conn) resume(ctx context.Context, id server.Identity) error {
	if c.used[id] {
		return nil
	}
	info, err := c.s.o.Upstream.Subscription(ctx, id)
	if err != nil {
		return fmt.Errorf("client %w", err)
	}
	return c.subscribe(ctx, id, info.Filter)
}

func (c *conn) unsubscribe(ctx context.Context, id server.Identity) error {
	err := c.s.o.Upstream.Unsubscribe(ctx, id)
	if errors.Is(err, server.ErrNotSubscribed) {
		return nil
	}
	return err
}

// get answers a get.
func (c *conn) get(ctx context.Context, id server.Identity, r request) error {
	if err := c.resume(ctx, id); err != nil {
		return c.fail(ctx, codeFailed, err)
	}
	b, err := c.s.o.Upstream.GetWithoutAck(ctx, id, c.s.size(r.size), wait(r.timeout, r.unit))
	if err == nil {
		acknowledged, err := c.answer(ctx, id, b, r.autoAck)
		if err != nil && !acknowledged && b.ID != server.NoBatch {
			// Nobody has it, and the client may have come back already over another connection, which would get what follows it first.
			if rerr := c.s.o.Upstream.RollbackTo(context.WithoutCancel(ctx), id, b.ID); rerr != nil {
				c.log.Debug("canal: a batch that could not be sent was rolled back already", "destination", id.Destination, "error", rerr)
			}
		}
		if errors.Is(err, server.ErrBatchOrder) {
			return c.fail(ctx, codeFailed, fmt.Errorf("%s: %w", id, server.ErrOutstanding))
		}
		if ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil // nobody waits for the answer, but something may have been sent behind the get
	}
	// Also where somebody else has ended the subscription, or the destination was lost and is back: the client has done nothing wrong,
	// and subscribes again with its next connection.
	return err
}

// answer sends a batch, which the client acknowledges, or this does, once nothing can be wrong with it but the connection. An error
// may say that it was not acknowledged because an earlier one is not. acknowledged: the batch is not outstanding any more.
func (c *conn) answer(ctx context.Context, id server.Identity, b *server.Batch, acknowledge bool) (acknowledged bool, err error) {
	events := canalview.WithoutEmpty(b.Events)
	weight := int64(0)
	for _, e := range events {
		weight += int64(c.s.o.Encoder.EntrySize(e))
	}
	weight = min(weight+weight/2, c.s.most) // buffers grow in steps, and some texts beyond what was expected
	if err := c.s.memory.Acquire(ctx, weight); err != nil {
		return false, err
	}
	defer c.s.memory.Release(weight)
	head, tail, err := c.s.encode(beginMessages(c.s.buffers.get(), b.ID), events)
	defer func() {
		c.s.buffers.put(head)
		c.s.buffers.put(tail)
	}()
	if err == nil {
		err = endMessages(head, len(tail))
	}
	if err != nil {
		return false, fmt.Errorf("destination %s: client %s: batch %d: %w", id.Destination, id.Client, b.ID, err)
	}
	if acknowledge && b.ID != server.NoBatch {
		if err := c.s.o.Upstream.Ack(ctx, id, b.ID, nil); err != nil {
			return false, err
		}
		acknowledged = true
	}
	return acknowledged, c.write(head, tail)
}

// encode appends the entries of events to head, of many of them the second half to tail, at the same time.
func (s *Server) encode(head []byte, events []*event.Event) (_, tail []byte, _ error) {
	size := 0
	for _, e := range events {
		size += e.Size
	}
	half, n := 0, 0
	for ; half < len(events) && n <= size/2; half++ {
		n += events[half].Size
	}
	if size < worthTwo || half == len(events) {
		head, err := s.appendEntries(head, events)
		return head, nil, err
	}
	var wg sync.WaitGroup
	var second error
	wg.Go(func() { tail, second = s.appendEntries(s.buffers.get(), events[half:]) })
	head, first := s.appendEntries(head, events[:half])
	wg.Wait()
	return head, tail, cmp.Or(first, second)
}

// worthTwo is how many bytes of events are worth a second goroutine.
const worthTwo = 128 << 10

func (s *Server) appendEntries(buf []byte, events []*event.Event) ([]byte, error) {
	for _, e := range events {
		out, from := canalwire.OpenLength(append(buf, messagesEntry), lengthSize)
		out, err := s.o.Encoder.AppendEntry(out, e)
		if err != nil {
			return buf, err
		}
		canalwire.CloseLength(out, from, lengthSize)
		buf = out
	}
	return buf, nil
}

// size is what a get's size means. Canal's clients send 1000 when they are told nothing.
func (s *Server) size(n int32) server.Size {
	if n <= 0 {
		n = 1000
	}
	if s.o.MemoryUnit < 0 {
		return server.Size{Events: int(n), Bytes: MaxBatchBytes}
	}
	return server.Size{Bytes: min(int64(n)*s.o.MemoryUnit, MaxBatchBytes)}
}

// units are what a get's timeout may be counted in: java.util.concurrent.TimeUnit.
var units = [...]time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}

// wait is what a get's timeout means: below zero what is there, zero until the batch is full.
func wait(timeout int64, unit int32) server.Wait {
	switch {
	case timeout < 0:
		return server.NoWait
	case timeout == 0:
		return server.WaitFull
	}
	u := time.Millisecond
	if unit >= 0 && int(unit) < len(units) {
		u = units[unit]
	}
	const longest = 365 * 24 * time.Hour
	if timeout > int64(longest/u) {
		return server.WaitAtMost(longest)
	}
	return server.WaitAtMost(time.Duration(timeout) * u)
}

// write sends a packet, whose end may stand apart, in one piece: some clients take what one read gives for a packet. A client that
// does not read is given up.
func (c *conn) write(p, end []byte) error {
	size := len(p) + len(end)
	_ = c.n.SetWriteDeadline(time.Now().Add(c.s.o.patience + time.Duration(size>>18)*time.Second))
	pieces := net.Buffers{p, end}
	if len(end) == 0 {
		pieces = pieces[:1]
	}
	n, err := pieces.WriteTo(c.n)
	c.s.bytes.Add(n)
	return err
}

// leave lets go of the connection's subscriptions.
func (c *conn) leave() {
	for id := range c.used {
		c.letGo(id)
	}
}
