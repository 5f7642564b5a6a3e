package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
)

// Access is the access mode of a producer (ProducerAccessMode).
type Access int

// The modes that are of use here.
const (
	Shared               Access = 0
	Exclusive            Access = 1
	exclusiveWithFencing Access = 3
)

const (
	batchMessages  = 1000
	batchBytes     = 128 << 10
	firstBatch     = 4 << 10 // before a receipt has shown that larger ones pass
	smallInFlight  = 4       // batches on their way before one waits to be full
	turnBytes      = 64 << 10
	turnMessages   = 1000
	firstProbeWait = 10 * time.Millisecond
	maxProbeWait   = time.Second
)

// ProducerOptions configure a Producer.
type ProducerOptions struct {
	Topic string // full name, of one partition where the topic has partitions
	Name  string // the name by which the broker remembers ids

	Access Access

	// Owner is asked before each attempt to open the producer, and again before it fences another one out: its error says why
	// this process must not send now (I8). It must not block for long. nil: nobody is asked.
	Owner func() error

	// Takeover is asked before an Exclusive producer fences out one of the same name: a ghost of our own, or a
	// process that must not be there any more. Only the owner of the stream may say yes (I8): the broker does not
	// tell the two apart. nil: never.
	Takeover func() bool

	// Deduplicates says that the broker's deduplication is on for the topic. Then a broker that
	// remembers less than it has confirmed is an error.
	Deduplicates bool

	// Batching packs several messages into an entry. Messages must come from an Encoder with Batching.
	Batching    bool
	Compression string // none, lz4, zlib, zstd, snappy; of the payload, a batch as a whole
}

// Receiver learns what became of messages: in the order of sending, from one goroutine at a time,
// but for a failure, which may come from any. It must not block nor close the producer.
type Receiver interface {
	// Receipt reports that the broker has persisted the message (err == nil), now or before (duplicate). With an
	// error the producer has failed for good: id is the message it failed at, -1 if none; no receipt follows.
	Receipt(id int64, duplicate bool, err error)
}

type state int

const (
	opening state = iota
	open
	failed
	closed
)

// Producer sends to one topic. Send and Close are called by one goroutine at a
// time.
//
// Its queue holds all messages that are not confirmed, by id. At its head are
// those that the broker has pushed already, by what it said when the producer was opened (skipped); then
// those on the wire; then those that wait. The lost link or refused entry makes all but the failed ones wait again.
type Producer struct {
	c           *Client
	o           ProducerOptions
	r           Receiver
	nameField   []byte // encoded, of MessageMetadata
	compression int
	ctx         context.Context // of opening it again
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu      sync.Mutex
	state   state
	conn    *conn // nil unless open
	id      uint64
	epoch   uint64
	known   bool  // epoch is
	last    int64 // last_sequence_id at the last opening
	queue   fifo[Message]
	entries fifo[entry] // on the wire
	skipped int         // at the head of queue
	sent    int         // skipped and on the wire
	probe   int64       // id of the message sent once more to learn whether it is persisted; -1: none
	border  bool        // batching: no receipt yet since the last opening
	alone   bool        // the entry on the wire is larger than any before, or the border's
	ready   bool        // in the connection's list

	confirmed int64 // highest id with a receipt; -1
	largest   int   // entry that a receipt has shown to pass, uncompressed bytes
	batchCap  int   // of an entry of several messages
	checksums int   // errors of checksum in a row
	fruitless int   // openings since the last receipt
	refused   int64 // id of an entry that the broker has not stored, though what followed it may be; -1: none

	probeWait  time.Duration
	probeTimer *time.Timer
}

// entry is a SEND on the wire.
type entry struct {
	first, last int64
	n, size     int
}

// Open creates a producer. It tries once; the caller repeats. Later losses of the
// connection are mended by the producer itself, for ever.
func (c *Client) Open(ctx context.Context, o ProducerOptions, r Receiver) (*Producer, error) {
	typ, err := compression(o.Compression)
	if err != nil {
		return nil, err
	}
	p := &Producer{c: c, o: o, r: r, nameField: appendText(nil, 1, o.Name), compression: typ, last: -1, probe: -1, confirmed: -1, refused: -1, batchCap: batchBytes}
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if err := p.attach(ctx); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// LastSequenceID returns the highest id that the broker had pushed for this name when the
// producer was last opened; -1: none, or no deduplication.
func (p *Producer) LastSequenceID() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Expect says that the broker has confirmed an id to this name before: one that remembers less at a later opening has
// forgotten, which ends the producer (see [Forgotten]).
func (p *Producer) Expect(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirmed = max(p.confirmed, id)
}

// attach opens the producer at the broker that serves the topic.
func (p *Producer) attach(ctx context.Context) error {
	if err := p.owner(); err != nil {
		return err
	}
	ctx, cancel := p.c.bound(ctx)
	defer cancel()
	n, err := p.c.lookup(ctx, p.o.Topic)
	if err != nil {
		return err
	}
	id := p.c.ids.Add(1)
	if err := n.register(id, p); err != nil {
		return err
	}
	killpoint.Hit("wire.open")
	a, err := p.create(ctx, n, id, p.o.Access)
	if p.o.Access == Exclusive && p.ownPlace(err) && p.o.Takeover != nil && p.o.Takeover() && p.owner() == nil {
		a, err = p.create(ctx, n, id, exclusiveWithFencing)
	}
	if err == nil && !a.ready {
		err = &Error{Code: codeOfOurOwn, Op: "opening a producer on", Topic: p.o.Topic, Broker: n.addr.broker, Message: "the broker lets the producer wait"}
	}
	if err != nil {
		n.unregister(id)
		if Code(err) < 0 {
			// Nobody knows whether it is open: it must not be in the way of the next.
			n.send(cmdCloseProducer, closeBody(id, p.c.ids.Add(1)))
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.o.Deduplicates && a.lastSequenceID < p.confirmed {
		// I3: never silent.
		n.unregister(id)
		n.send(cmdCloseProducer, closeBody(id, p.c.ids.Add(1)))
		e := Forgot(p.o.Topic, p.o.Name, a.lastSequenceID, p.confirmed)
		e.Broker = n.addr.broker
		return e
	}
	if p.refused >= 0 && a.lastSequenceID >= p.refused {
		// I3: the id is spent, so the message would be called a duplicate.
		n.unregister(id)
		n.send(cmdCloseProducer, closeBody(id, p.c.ids.Add(1)))
		return &Error{Code: codeOfOurOwn, Op: "sending to", Topic: p.o.Topic, Broker: n.addr.broker,
			Message: fmt.Sprintf("the broker has refused the message with id %d and stored later ones (up to %d); %s", p.refused, a.lastSequenceID, spentRemedy)}
	}
	p.refused = -1
	if p.state != opening {
		n.unregister(id)
		n.send(cmdCloseProducer, closeBody(id, p.c.ids.Add(1)))
		return ErrClosed
	}
	if n.producer(id) != p {
		// Dead, or closed by the broker, before it was ours.
		return &Error{Code: codeOfOurOwn, Op: "opening a producer on", Topic: p.o.Topic, Broker: n.addr.broker, Message: "closed at once"}
	}
	p.state, p.conn, p.id, p.last = open, n, id, a.lastSequenceID
	if a.hasEpoch {
		p.epoch, p.known = uint64(a.epoch), true
	}
	p.border = p.o.Batching
	p.wakeWriter()
	return nil
}

func (p *Producer) owner() error {
	if p.o.Owner == nil {
		return nil
	}
	return p.o.Owner()
}

// ownPlace tells that a producer of our own name holds the topic.
func (p *Producer) ownPlace(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeProducerFenced && strings.HasSuffix(strings.TrimSpace(e.Message), heldBy+p.o.Name)
}

func (p *Producer) create(ctx context.Context, n *conn, id uint64, access Access) (answer, error) {
	request := p.c.ids.Add(1)
	b := appendText(nil, 1, p.o.Topic)
	b = appendNum(b, 2, id)
	b = appendNum(b, 3, request)
	b = appendText(b, 4, p.o.Name)
	b = appendNum(b, 9, 1) // the name is ours, not one that the broker gave
	b = appendNum(b, 10, uint64(access))
	// I8: by our epoch the broker knows that another producer was there since, and refuses. Not when fencing:
	// there it would refuse too, but close the other one's producer first.
	if p.known && access == Exclusive {
		b = appendNum(b, 11, p.epoch)
	}
	a, err := n.request(ctx, "opening a producer on", p.o.Topic, cmdProducer, request, b)
	if err == nil && a.typ != cmdProducerSuccess {
		err = &Error{Code: codeOfOurOwn, Op: "opening a producer on", Topic: p.o.Topic, Broker: n.addr.broker, Message: "an answer without sense"}
	}
	return a, err
}

func closeBody(id, request uint64) []byte { return appendNum(appendNum(nil, 1, id), 2, request) }

// Send queues m, whose id must be above that of the message before, and returns. After a failure
// or Close it does nothing.
func (p *Producer) Send(m Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == failed || p.state == closed {
		return
	}
	p.queue.push(m)
	p.wakeWriter()
}

// wakeWriter puts p into its connection's list unless it is there. p.mu is held.
func (p *Producer) wakeWriter() {
	if p.conn != nil && !p.ready && p.queue.len() > 0 {
		p.ready = true
		p.conn.enqueue(p)
	}
}

// plan is what a producer sends in one turn.
type plan struct {
	msgs    []Message
	entries []planned
}

type planned struct{ n int }

func (l *plan) clear() {
	clear(l.msgs)
	l.msgs, l.entries = l.msgs[:0], l.entries[:0]
}

// fill writes what p has to send now. It is called by n's writer only.
func (p *Producer) fill(n *conn, w *composer, l *plan) {
	l.msgs, l.entries = l.msgs[:0], l.entries[:0]
	p.mu.Lock()
	p.ready = false
	if p.conn != n || p.state != open {
		p.mu.Unlock()
		return
	}
	p.plan(l)
	id := p.id
	p.mu.Unlock()
	killpoint.Hit("wire.send")
	// The messages are immutable, so the lock is not needed to write them.
	now := time.Now().UnixMilli()
	at := 0
	for _, e := range l.entries {
		msgs := l.msgs[at : at+e.n]
		at += e.n
		size, err := w.entry(p, id, msgs, now, n.maxMessage)
		if err == nil && size > n.maxMessage {
			err = &Error{Code: CodeNotAllowed, Op: "sending to", Topic: p.o.Topic, Broker: n.addr.broker,
				Message: fmt.Sprintf("an entry of %d bytes; the broker takes %d: %s", size, n.maxMessage, limitRemedy)}
		}
		if err != nil {
			// I3: nothing after it is sent, so its id is not used up.
			p.fail(msgs[0].ID, err)
			return
		}
	}
}

// plan chooses the entries of a turn and counts them as sent. p.mu is held.
func (p *Producer) plan(l *plan) {
	for p.sent == p.skipped && p.sent < p.queue.len() && p.queue.slot(p.sent).ID <= p.last {
		p.skipped++
		p.sent++
	}
	bytes := 0
	for p.sent < p.queue.len() {
		if p.alone && p.entries.len() > 0 {
			break
		}
		p.alone = false
		if bytes >= turnBytes || len(l.msgs) >= turnMessages {
			p.ready = true
			p.conn.enqueue(p) // others first
			return
		}
		n, size := 1, p.queue.slot(p.sent).Size()
		if p.o.Batching {
			if n, size = p.batch(); n == 0 {
				break
			}
		}
		first := p.queue.slot(p.sent).ID
		for i := range n {
			l.msgs = append(l.msgs, p.queue.at(p.sent+i))
		}
		l.entries = append(l.entries, planned{n})
		p.entries.push(entry{first, p.queue.slot(p.sent + n - 1).ID, n, size})
		p.sent += n
		bytes += size
	}
	if p.skipped > 0 && p.entries.len() == 0 && p.probe < 0 && p.probeTimer == nil {
		m := p.queue.at(p.skipped - 1)
		p.probe = m.ID
		l.msgs = append(l.msgs, m)
		l.entries = append(l.entries, planned{1})
	}
}

// batch returns how many messages the next entry takes, and their size; 0 if it has to
// wait. p.mu is held.
func (p *Producer) batch() (n, size int) {
	waiting := p.queue.len() - p.sent
	if p.border {
		// I7: nothing but one message alone proves that no entry of an older
		// connection comes after it.
		if p.entries.len() > 0 {
			return 0, 0
		}
		p.alone = true
		return 1, p.queue.slot(p.sent).Size()
	}
	limit := min(p.batchCap, max(firstBatch, 2*p.largest), p.conn.maxMessage-len(p.nameField)-int(p.queue.slot(p.sent).key)-64)
	full := false
	for n < waiting && n < batchMessages {
		s := p.queue.slot(p.sent + n).Size()
		if n > 0 && size+s > limit {
			full = true
			break
		}
		size += s
		n++
	}
	if p.entries.len() >= smallInFlight && n < batchMessages && !full {
		return 0, 0 // it grows until a receipt comes
	}
	if size > p.largest {
		// I3: a topic's own limit shows only when it refuses; nothing may follow then.
		if p.entries.len() > 0 {
			return 0, 0
		}
		p.alone = true
	}
	return n, size
}

// receipt deals with SEND_RECEIPT. It is called by n's reader only.
func (p *Producer) receipt(n *conn, r *reader, id uint64, seq int64, duplicate bool) {
	r.done = r.done[:0]
	p.mu.Lock()
	if p.conn != n || p.id != id || p.state != open {
		p.mu.Unlock()
		return
	}
	count := 0
	switch {
	case p.probe >= 0 && seq == p.probe:
		p.probe, p.probeWait = -1, 0
		if !duplicate && p.queue.slot(0).ID != seq {
			p.mu.Unlock()
			p.fail(seq, &Error{Code: codeOfOurOwn, Op: "sending to", Topic: p.o.Topic, Broker: n.addr.broker,
				Message: fmt.Sprintf("the broker had pushed the messages up to id %d and has lost them; %s", seq, forgottenRemedy)})
			return
		}
		for count < p.skipped && p.queue.slot(count).ID <= seq {
			count++
		}
		p.skipped -= count
	case p.entries.len() == 0 || p.entries.at(0).first != seq:
		p.mu.Unlock()
		p.restart(n, fmt.Errorf("a receipt for id %d came out of order", seq))
		return
	case duplicate && p.o.Batching:
		// What the broker has of a batch is not known by this: ask it.
		p.mu.Unlock()
		p.restart(n, fmt.Errorf("id %d is on its way from an older connection", seq))
		return
	default:
		e := p.entries.pop()
		count = p.skipped + e.n
		p.largest = max(p.largest, e.size)
		p.skipped, p.border, p.alone, p.checksums = 0, false, false, 0
	}
	for range count {
		r.done = append(r.done, p.queue.pop().ID)
	}
	p.sent -= count
	if count > 0 {
		p.confirmed = r.done[count-1]
		p.fruitless = 0
	}
	last := p.last
	if p.sent < p.queue.len() || p.skipped > 0 && p.entries.len() == 0 {
		p.wakeWriter()
	}
	p.mu.Unlock()
	for _, id := range r.done {
		p.r.Receipt(id, duplicate || id <= last, nil)
	}
}

// sendError deals with SEND_ERROR. It is called by n's reader only.
func (p *Producer) sendError(n *conn, id uint64, seq int64, e *Error) {
	p.mu.Lock()
	if p.conn != n || p.id != id || p.state != open {
		p.mu.Unlock()
		return
	}
	if p.probe >= 0 && seq == p.probe && e.Code == CodePersistence {
		// Pushed and not persisted yet. The receipt of anything sent since tells, or asking again.
		p.probe = -1
		p.probeWait = min(max(2*p.probeWait, firstProbeWait), maxProbeWait)
		p.probeTimer = time.AfterFunc(p.probeWait, p.probeAgain)
		p.mu.Unlock()
		return
	}
	if e.Code == CodeNotAllowed {
		e.Message += "; " + limitRemedy
	}
	if p.entries.len() == 0 || p.entries.at(0).first != seq && p.entries.at(0).last != seq {
		// A batch is refused under its lowest or its highest id (MessagePublishContext.completed).
		p.mu.Unlock()
		p.restart(n, fmt.Errorf("an error for id %d came out of order: %w", seq, e))
		return
	}
	head := p.entries.at(0)
	switch {
	case e.Code == CodeNotAllowed && head.n > 1 && p.entries.len() == 1:
		// Nothing of it is stored and nothing followed: cut it smaller.
		p.entries.pop()
		p.sent -= head.n
		p.alone = false
		p.batchCap = max(head.size/2, 1)
		p.wakeWriter()
		p.mu.Unlock()
		return
	case e.Code == CodeChecksum:
		p.checksums++
	}
	if e.Code != CodePersistence { // which says that this id, or a later one, is on its way into the ledger
		p.refused = head.first
	}
	checksums := p.checksums
	p.mu.Unlock()
	if final(e.Code) || checksums > repeatedChecksumLimit {
		p.fail(head.first, e)
		return
	}
	p.restart(n, e)
}

func (p *Producer) probeAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probeTimer = nil
	p.wakeWriter()
}

// detach forgets the connection; all that is not confirmed waits again. p.mu is held.
func (p *Producer) detach() {
	p.conn, p.ready = nil, false
	p.sent, p.skipped, p.probe, p.alone = 0, 0, -1, false
	p.entries.clear()
	if p.probeTimer != nil {
		p.probeTimer.Stop()
		p.probeTimer = nil
	}
}

// restart opens the producer again although the connection n lives.
func (p *Producer) restart(n *conn, why error) {
	p.mu.Lock()
	if p.conn != n || p.state != open {
		p.mu.Unlock()
		return
	}
	id := p.id
	p.mu.Unlock()
	p.leave(n, id, why, func() {
		// The name has to be free before it is taken again.
		ctx, cancel := p.c.bound(p.ctx)
		defer cancel()
		request := p.c.ids.Add(1)
		n.request(ctx, "closing a producer on", p.o.Topic, cmdCloseProducer, request, closeBody(id, request))
	})
	n.unregister(id)
}

// closedByBroker deals with CLOSE_PRODUCER: the topic moves, or another producer has fenced us out.
func (p *Producer) closedByBroker(n *conn, id uint64) {
	n.unregister(id)
	p.leave(n, id, fmt.Errorf("broker %s has closed the producer", n.addr.broker), nil)
}

// lost is told that the connection has died.
func (p *Producer) lost(n *conn, why error) {
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	p.leave(n, id, why, func() { <-n.done })
}

// leave lets go of n and opens the producer again, after before.
func (p *Producer) leave(n *conn, id uint64, why error, before func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != n || p.id != id {
		return
	}
	p.detach()
	if p.state != open {
		return
	}
	p.state = opening
	p.c.complain(why)
	wait := backoff{}
	for range min(p.fruitless, 10) { // the link comes back, and the next entry is refused again
		wait.next()
	}
	p.fruitless++
	hurry := p.fruitless == 1
	p.wg.Go(func() {
		if before != nil {
			before()
		}
		if hurry || wait.wait(p.ctx) {
			p.reopen()
		}
	})
}

// reopen ends when the producer is open again, has failed or is closed.
func (p *Producer) reopen() {
	for wait := (backoff{}); ; {
		err := p.attach(p.ctx)
		if err == nil || p.ctx.Err() != nil {
			return
		}
		p.c.complain(err)
		if code := Code(err); Spent(err) || Forgotten(err) || code == CodeProducerFenced || code == CodeTopicTerminated {
			p.mu.Lock()
			id := int64(-1)
			switch {
			case Spent(err):
				id = p.refused
			case p.queue.len() > 0:
				id = p.queue.slot(0).ID
			}
			p.mu.Unlock()
			p.fail(id, err)
			return
		}
		if !wait.wait(p.ctx) {
			return
		}
	}
}

// fail ends the producer with an error. It may be called more than once.
func (p *Producer) fail(id int64, err error) {
	p.mu.Lock()
	if p.state == failed || p.state == closed {
		p.mu.Unlock()
		return
	}
	n, pid := p.conn, p.id
	p.state = failed
	p.detach()
	p.queue.clear()
	p.cancel()
	p.mu.Unlock()
	if n != nil {
		n.unregister(pid)
		n.send(cmdCloseProducer, closeBody(pid, p.c.ids.Add(1)))
	}
	p.r.Receipt(id, false, err)
}

// Close lets the broker release the name. Receipts of what is on the wire still come; what waits is
// dropped. It takes at most the operation timeout.
func (p *Producer) Close() {
	p.mu.Lock()
	n, id, was := p.conn, p.id, p.state
	if was == open {
		// Nothing more is sent; the receipts go on.
		for p.queue.len() > p.sent {
			p.queue.popBack()
		}
	} else {
		p.state = closed
	}
	p.mu.Unlock()
	if was == open {
		ctx, cancel := p.c.bound(context.Background())
		request := p.c.ids.Add(1)
		_, err := n.request(ctx, "closing a producer on", p.o.Topic, cmdCloseProducer, request, closeBody(id, request))
		cancel()
		if err != nil {
			p.c.complain(err)
		}
		n.unregister(id)
	}
	p.cancel()
	p.mu.Lock()
	p.state = closed
	p.detach()
	p.queue.clear()
	p.mu.Unlock()
	p.wg.Wait()
}

// fifo is a queue that grows as needed.
type fifo[T any] struct {
	items []T // its length is 0 or a power of two
	head  int
	n     int
}

func (q *fifo[T]) len() int { return q.n }

func (q *fifo[T]) slot(i int) *T { return &q.items[(q.head+i)&(len(q.items)-1)] }

func (q *fifo[T]) at(i int) T { return *q.slot(i) }

func (q *fifo[T]) push(v T) {
	if q.n == len(q.items) {
		grown := make([]T, max(16, 2*len(q.items)))
		for i := range q.n {
			grown[i] = q.at(i)
		}
		q.items, q.head = grown, 0
	}
	*q.slot(q.n) = v
	q.n++
}

func (q *fifo[T]) pop() T {
	var zero T
	at := q.slot(0)
	v := *at
	*at = zero
	q.head = (q.head + 1) & (len(q.items) - 1)
	q.n--
	return v
}

func (q *fifo[T]) popBack() {
	var zero T
	*q.slot(q.n - 1) = zero
	q.n--
}

func (q *fifo[T]) clear() { *q = fifo[T]{} }
