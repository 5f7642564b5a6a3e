package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// transactor groups the messages of a session into Kafka transactions and commits them, each
// with a record that says how far it goes. Its goroutine alone talks to the coordinator; whatever goes wrong there
// ends the session, and with it the use of its producer epoch: a transaction is never aborted to go on in the same epoch,
// since a late request of it could end up in the next one.
//
// A source transaction enters the open Kafka transaction once it is whole, or begins one of its own that waits for its end.
// So a commit never cuts one, unless it is too large or too slow.
type transactor struct {
	ses    *session
	co     *coordinator
	wake   chan struct{} // to its goroutine
	begun  chan struct{} // closed when the session has a producer id and knows the cursor
	closed sync.Once     // of co

	// The rest is guarded by the session's mu.
	resume mark // up to there everything is committed by sessions before this one
	last   mark // of the youngest message accepted
	cursor *lane

	open    bool      // a Kafka transaction takes messages
	closing bool      // nothing more goes into it
	whole   bool      // what is in it ends with a source transaction
	started time.Time // when its first message entered
	left    int       // messages in it that the brokers have not acknowledged
	bytes   int64     // payload in it
	entered mark      // the last message in it
	acked   []entry   // acknowledged: done with the commit
	members []*lane   // lanes in it
	joining []*lane   // those of them whose partition is not asked for yet

	waiting []waiting // for the next one, in order
	bound   int       // waiting[:bound] ends with a source transaction

	next      time.Time // no commit before, unless something presses
	armed     time.Time // when the goroutine looks by itself; zero: never
	pressed   bool      // the owner waits for room
	telling   bool      // what is committed is being done, which makes room
	flushing  bool      // somebody waits for all to be done
	finishing bool      // the owner stops
	spreading bool      // a commit has cut the source transaction under way
}

type waiting struct {
	l *lane
	e entry
}

// transactionCounts are counters of a sink.
type transactionCounts struct{ commits, spread, hanging atomic.Int64 }

func newTransactor(ses *session) *transactor {
	return &transactor{ses: ses, co: newCoordinator(ses.s), wake: make(chan struct{}, 1), begun: make(chan struct{}), whole: true}
}

// await waits until the session may accept messages.
func (t *transactor) await(ctx context.Context) error {
	select {
	case <-t.begun:
		return nil
	default:
	}
	select {
	case <-t.begun:
		return nil
	case <-t.ses.ctx.Done():
		return context.Cause(t.ses.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// accept takes a message over. Caller holds mu.
func (t *transactor) accept(l *lane, e entry, more bool) {
	if len(t.waiting) == 0 && !t.closing && (!more || !t.open || !t.whole) {
		t.enter(l, e)
		t.complete(!more)
	} else {
		t.waiting = append(t.waiting, waiting{l, e})
		if !more {
			t.bound = len(t.waiting)
		}
		if !t.closing && (!more || !t.open || !t.whole) {
			t.admit(len(t.waiting))
		}
	}
	if t.open && !t.closing && t.bytes >= t.ses.s.o.MaxTransactionBytes {
		t.close()
	}
}

// complete notes whether what is in the open transaction ends with a source transaction. Caller holds mu.
func (t *transactor) complete(whole bool) {
	t.whole = whole
	if whole {
		t.spreading = false
	}
}

// enter puts a message into the open Kafka transaction, or opens one. Caller holds mu.
func (t *transactor) enter(l *lane, e entry) {
	if !t.open {
		t.open, t.started = true, time.Now()
		t.join(t.cursor)
	}
	t.join(l)
	t.left++
	t.bytes += int64(e.payload)
	t.entered = mark{e.m.Sequence, e.m.SubIndex, true}
	l.queue.push(e)
	if !l.listed {
		l.poke()
	}
}

// join makes a lane part of the transaction; it sends once the coordinator knows. Caller holds mu.
func (t *transactor) join(l *lane) {
	if !l.member {
		l.member = true
		t.members = append(t.members, l)
		t.joining = append(t.joining, l)
		notify(t.wake)
	}
}

// admit moves the first n that wait into the open Kafka transaction. Caller holds mu.
func (t *transactor) admit(n int) {
	for _, w := range t.waiting[:n] {
		t.enter(w.l, w.e)
	}
	t.complete(t.bound == n)
	rest := copy(t.waiting, t.waiting[n:])
	clear(t.waiting[rest:])
	t.waiting = t.waiting[:rest]
	t.bound = max(0, t.bound-n)
	if rest == 0 && cap(t.waiting) > 1<<14 {
		t.waiting = nil
	}
}

// end notes that the source transaction of the last message has ended. Caller holds mu.
func (t *transactor) end() {
	switch {
	case len(t.waiting) > 0:
		t.bound = len(t.waiting)
		if !t.closing {
			t.admit(len(t.waiting))
		}
	case t.open && !t.closing:
		t.complete(true)
	default:
		t.spreading = false
	}
	t.settle()
}

// settle opens a transaction if some message waits, and closes it if it is time. Caller holds mu.
func (t *transactor) settle() {
	if t.closing || !t.ses.started || t.ses.err != nil {
		return
	}
	if !t.open {
		if len(t.waiting) == 0 {
			t.pressed, t.flushing = false, false
			return
		}
		n := t.bound
		if n == 0 {
			if t.finishing {
				return
			}
			n = len(t.waiting)
		}
		t.admit(n)
	}
	now := time.Now()
	full := t.bytes >= t.ses.s.o.MaxTransactionBytes || t.pressed || t.flushing
	if t.whole && (full || t.finishing || !now.Before(t.next)) || !t.whole && (full || now.Sub(t.started) >= t.ses.s.o.TransactionTimeout/2) {
		t.close()
		return
	}
	if due := t.due(); t.armed.IsZero() || due.Before(t.armed) {
		t.armed = due
		notify(t.wake)
	}
}

// incomplete says whether only messages of a source transaction are left that has not ended. Caller holds mu.
func (t *transactor) incomplete() bool {
	return !t.closing && (t.open && !t.whole || !t.open && t.bound == 0 && len(t.waiting) > 0)
}

// due returns when settle has something to do though nothing happens; zero: never. Caller holds mu.
func (t *transactor) due() time.Time {
	switch {
	case !t.open || t.closing:
		return time.Time{}
	case t.whole:
		return t.next
	}
	return t.started.Add(t.ses.s.o.TransactionTimeout / 2)
}

// close lets nothing more into the open transaction, and sends the cursor record behind it. Caller holds mu.
func (t *transactor) close() {
	t.closing, t.pressed = true, false
	t.next = time.Now().Add(t.ses.s.o.CommitInterval)
	if !t.whole && !t.spreading {
		t.spreading = true
		t.ses.s.counts.spread.Add(1)
		t.ses.s.o.Logger.Debug("kafka: a source transaction is too large or too slow for one Kafka transaction, so consumers see its parts one after the other",
			"up_to_sequence", t.entered.sequence)
	}
	t.record(t.entered)
}

// claim commits a record that says who owns the sink now, before anything else.
func (t *transactor) claim() {
	t.open, t.closing, t.started = true, true, time.Now()
	t.join(t.cursor)
	t.record(t.resume)
}

// record sends the cursor record. It has no owner: nobody counts it. Caller holds mu.
func (t *transactor) record(m mark) {
	t.left++
	t.cursor.queue.push(newEntry(t.ses.s.tally.record(t.ses.s.cursorTopic(), m), 0))
	if !t.cursor.listed {
		t.cursor.poke()
	}
	notify(t.wake)
}

// acknowledged takes a batch that the broker has stored: the commit makes it done.
func (ses *session) acknowledged(bt *batch) {
	t := ses.txn
	if t == nil {
		ses.done(bt.entries, nil)
		return
	}
	ses.mu.Lock()
	ended := ses.err
	if ended == nil {
		t.acked = append(t.acked, bt.entries...)
		if t.left -= len(bt.entries); t.left == 0 {
			notify(t.wake)
		}
	}
	ses.mu.Unlock()
	if ended != nil {
		ses.done(bt.entries, ended)
	}
}

// drain appends what is not done and in no lane to dst. Caller holds mu.
func (t *transactor) drain(dst []entry) []entry {
	dst = append(dst, t.acked...)
	for _, w := range t.waiting {
		dst = append(dst, w.e)
	}
	t.acked, t.waiting, t.bound = nil, nil, 0
	return dst
}

// run keeps the transactions going until the session ends.
func (t *transactor) run() {
	ses := t.ses
	defer ses.wg.Done()
	select {
	case <-t.begun:
	case <-ses.ctx.Done():
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ses.mu.Lock()
		t.settle()
		lanes := t.joining
		t.joining = nil
		commit := t.closing && t.left == 0
		due := t.due()
		t.armed = due
		giveUp := t.finishing && t.incomplete()
		ended := ses.err != nil
		ses.mu.Unlock()
		var err error
		switch {
		case ended:
			t.abort()
			return
		case giveUp:
			err = sink.ErrReset
		case len(lanes) > 0:
			err = t.add(lanes)
		case commit:
			err = t.commit()
		default:
			if !due.IsZero() {
				timer.Reset(max(0, time.Until(due)))
			}
			select {
			case <-t.wake:
			case <-timer.C:
			case <-ses.ctx.Done():
			}
			timer.Stop()
		}
		if err != nil && ses.ctx.Err() == nil {
			ses.fail(err)
		}
	}
}

// add makes the partitions of lanes part of the transaction at the coordinator.
func (t *transactor) add(lanes []*lane) error {
	ses := t.ses
	err := t.persist("adding partitions to the transaction", func() error {
		return t.co.add(ses.ctx, ses.producerID, ses.epoch, lanes)
	})
	if err != nil {
		return err
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	for _, l := range lanes {
		l.added = true
		l.poke()
	}
	return nil
}

// commit ends the transaction, whose messages are all acknowledged. A commit of which nobody knows whether it
// took place is repeated: guessing is never needed (I7).
func (t *transactor) commit() error {
	ses := t.ses
	killpoint.Hit("kafka.commit")
	err := t.persist("committing", func() error { return t.co.end(ses.ctx, ses.producerID, ses.epoch, true) })
	if err != nil {
		return err
	}
	killpoint.Hit("kafka.committed")
	ses.s.counts.commits.Add(1)
	ses.mu.Lock()
	m := t.entered
	if !m.set { // a claim
		m = t.resume
	}
	ses.s.tally.committed(m)
	if ses.err != nil { // they are done already, as of unknown fate; the record decides
		t.members = nil
		ses.mu.Unlock()
		return nil
	}
	done := t.acked
	t.acked = nil
	for _, l := range t.members {
		l.member, l.added = false, false
		l.first = -1
	}
	t.members = t.members[:0]
	t.open, t.closing, t.bytes = false, false, 0
	t.pressed = false
	t.telling = true
	t.settle()
	ses.mu.Unlock()
	ses.done(done, nil) // I1: after the commit
	ses.mu.Lock()
	t.telling = false
	ses.mu.Unlock()
	notify(ses.space) // whoever has asked for room meanwhile asks again
	return nil
}

// persist repeats a request while a repetition makes sense.
func (t *transactor) persist(what string, f func() error) error {
	ses := t.ses
	troubled := false
	trouble := func(err error) {
		ses.mu.Lock()
		ses.setTrouble(troubled, err)
		ses.mu.Unlock()
		troubled = err != nil
	}
	for n := 1; ; n++ {
		err := f()
		if ses.ctx.Err() != nil {
			return context.Cause(ses.ctx)
		}
		again, short := repeatable(err)
		if err == nil || !again {
			if troubled {
				trouble(nil)
			}
			return err
		}
		d := backoff(n)
		if short && n <= 50 {
			d = time.Millisecond // the markers of the last commit are being written: nothing to speak of
		} else {
			ses.retries.Add(1)
			if short {
				d = backoff(n - 50)
			}
			trouble(fmt.Errorf("kafka: %s: %w", what, err))
			ses.logRetry(what, n, err)
		}
		if retry.Sleep(ses.ctx, d) != nil {
			return context.Cause(ses.ctx)
		}
	}
}

// abort ends what is open when the session is over, so that consumers are not held up until it times out. It does so only when
// nothing is on its way that could come after the end.
func (t *transactor) abort() {
	ses := t.ses
	ses.mu.Lock()
	open := len(t.members) > 0 && !fenced(ses.err)
	for _, l := range t.members {
		open = open && l.inflight == 0
	}
	pid, epoch := ses.producerID, ses.epoch
	ses.mu.Unlock()
	if !open {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(time.Second, ses.s.o.RequestTimeout))
	defer cancel()
	if err := t.co.end(ctx, pid, epoch, false); err != nil {
		ses.s.o.Logger.Debug("kafka: aborting the last transaction", "error", err) // the next start does
	}
}

var _ sink.Transactional = (*Sink)(nil)

// KeepsTransactions implements sink.Transactional.
func (s *Sink) KeepsTransactions() bool { return s.tally != nil }

func (s *Sink) transactor() *transactor {
	ses, err := s.session()
	if err != nil {
		return nil
	}
	return ses.txn
}

// EndTransaction implements sink.Transactional.
func (s *Sink) EndTransaction() {
	if t := s.transactor(); t != nil {
		t.ses.mu.Lock()
		defer t.ses.mu.Unlock()
		t.end()
	}
}

// Yield implements sink.Transactional.
func (s *Sink) Yield() {
	if t := s.transactor(); t != nil {
		t.ses.mu.Lock()
		defer t.ses.mu.Unlock()
		t.press()
	}
}

// press asks for room. Caller holds mu.
func (t *transactor) press() {
	if !t.closing && !t.telling {
		t.pressed = true
		t.settle()
	}
}

// Finish implements sink.Transactional.
func (s *Sink) Finish(ctx context.Context) error {
	if t := s.transactor(); t != nil {
		t.ses.mu.Lock()
		t.finishing = true
		t.ses.mu.Unlock()
		notify(t.wake)
	}
	return s.awaitIdle(ctx)
}

// publishGrouped is Publish for transactional delivery.
func (s *Sink) publishGrouped(ctx context.Context, ses *session, msgs []sink.Message) (int, error) {
	t := ses.txn
	if err := t.await(ctx); err != nil {
		return 0, err
	}
	n, err := s.publish(ctx, ses, msgs, func(_ *lane, m *sink.Message) (bool, error) {
		t.last = mark{m.Sequence, m.SubIndex, true}
		s.tally.accept(t.last)
		return false, nil
	})
	ses.mu.Lock()
	t.settle()
	ses.mu.Unlock()
	return n, err
}
