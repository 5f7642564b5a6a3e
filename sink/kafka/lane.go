package kafka

import (
	"slices"
	"time"

	"github.com/binlogmq/binlogmq/sink"
)

// topic is what the sink knows of a topic for as long as it lives. batchBytes is
// guarded by the session's mu.
type topic struct {
	name       string
	partitions int32    // pinned at the first sight of the topic
	limit      int      // max.message.bytes: of a whole batch, compressed; 0: not known
	batchBytes int      // how large batches of several messages are made, before compression
	account    *account // sequenced delivery: its counters
	confirmed  []mark   // at_least_once, by partition: the last message that a broker has acknowledged
}

// mark is the number of a message; the zero value comes before all.
type mark struct {
	sequence int64
	sub      uint16
	set      bool
}

// covers says whether m comes no later than the message that k marks.
func (k mark) covers(m *sink.Message) bool {
	return k.set && (m.Sequence < k.sequence || m.Sequence == k.sequence && m.SubIndex <= k.sub)
}

// lane is the ordered line of messages for one topic partition within a session.
// All fields are guarded by the session's mu.
//
// A message is either in queue, in a batch of retry, or in a batch on its way.
// Everything on its way precedes everything in retry, which precedes queue, but for a
// batch that failed: it waits in retry, in its place, until the ones behind it that
// were on their way have been answered (draining).
type lane struct {
	ses       *session
	t         *topic
	partition int32

	queue    entryQueue
	retry    []*batch // by number
	inflight int      // batches on their way
	number   int64    // of the next message in this lane and session, from 0

	// proven: the broker has acknowledged a batch since the session began or the last
	// error. Before that, one batch alone: a broker without state for a producer
	// takes any sequence, so a lost first batch would let the second one in. (I4)
	proven   bool
	draining bool

	broker   *broker // of the leader; nil while unknown
	listed   bool    // is in broker.ready
	waiting  *time.Timer
	attempts int
	err      error // why retry is not empty

	seq *sequence // sequenced delivery; else nil

	// Transactional delivery: part of the open transaction, and known to be so at the coordinator. first is the offset
	// of the transaction's first batch here, -1 while there is none.
	member, added bool
	first         int64

	// stored: up to there the messages were acknowledged in sessions before this one, of which this one gets what follows the
	// bridge's acknowledgement once more. One message that cannot be sent would else have all around it stored again and again.
	stored mark
}

// batch is a run of messages with consecutive numbers, and once encoded the bytes
// that are sent for it, which never change.
type batch struct {
	l       *lane
	first   int64 // number of the first message
	entries []entry
	raw     []byte // encoded; nil: not yet
	own     bool   // raw is the batch's own memory, not the request's
	at, end int    // where the batch is in the buffer of the request being built

	answered bool // the answer to its request names it
}

// size is the number of bytes the batch takes, or at most takes.
func (b *batch) size() int {
	if b.raw != nil {
		return len(b.raw)
	}
	n := batchHeaderLen
	for i := range b.entries {
		n += b.entries[i].maxLen()
	}
	return n
}

// sequence is the base sequence: message numbers modulo 2^31.
func (b *batch) sequence() int32 { return int32(b.first & 0x7fffffff) }

// entryQueue is a first-in first-out queue in one slice.
type entryQueue struct {
	buf  []entry
	head int
}

func (q *entryQueue) len() int { return len(q.buf) - q.head }

func (q *entryQueue) push(e entry) {
	if q.head > 1024 && q.head > len(q.buf)/2 {
		n := copy(q.buf, q.buf[q.head:])
		clear(q.buf[n:])
		q.buf, q.head = q.buf[:n], 0
	}
	q.buf = append(q.buf, e)
}

// take appends the first n entries to dst and removes them.
func (q *entryQueue) take(dst []entry, n int) []entry {
	part := q.buf[q.head : q.head+n]
	dst = append(dst, part...)
	clear(part)
	q.head += n
	if q.head == len(q.buf) {
		q.buf, q.head = q.buf[:0], 0
		if cap(q.buf) > 1<<16 {
			q.buf = nil
		}
	}
	return dst
}

// sendable says whether a batch may leave now.
func (l *lane) sendable() bool {
	if l.broker == nil || l.waiting != nil || l.draining || len(l.retry) == 0 && l.queue.len() == 0 {
		return false
	}
	if l.seq != nil && !l.synchronised() || l.ses.txn != nil && !l.added {
		return false
	}
	return l.inflight == 0 || l.proven && l.inflight < l.ses.s.o.RequestsInFlight
}

// poke lists the lane at its broker if it has something to send.
func (l *lane) poke() {
	if l.listed || !l.ses.started || l.ses.err != nil {
		return
	}
	if !l.sendable() {
		if l.seq != nil && l.unknown() && !l.seq.listed {
			l.seq.listed = true
			l.broker.unknown = append(l.broker.unknown, l)
			l.broker.signal()
			notify(l.broker.search)
		}
		return
	}
	l.listed = true
	l.broker.ready = append(l.broker.ready, l)
	l.broker.signal()
}

// next takes the next batch off the lane, which is sendable.
func (l *lane) next() *batch {
	l.inflight++
	if len(l.retry) > 0 {
		b := l.retry[0]
		l.retry = slices.Delete(l.retry, 0, 1)
		return b
	}
	n, size := 0, batchHeaderLen
	for _, e := range l.queue.buf[l.queue.head:] {
		size += e.maxLen()
		if n > 0 && size > l.t.batchBytes {
			break
		}
		n++
	}
	b := l.ses.newBatch(l)
	b.first = l.number
	b.entries = l.queue.take(b.entries, n)
	l.number += int64(n)
	return b
}

// nextSize is at least what the next batch will take.
func (l *lane) nextSize() int {
	if len(l.retry) > 0 {
		return l.retry[0].size()
	}
	return max(l.t.batchBytes, batchHeaderLen+l.queue.buf[l.queue.head].maxLen())
}

// drain appends the messages that wait in the lane to dst and forgets them.
func (l *lane) drain(dst []entry) []entry {
	for _, b := range l.retry {
		dst = append(dst, b.entries...)
	}
	l.retry = nil
	return l.queue.take(dst, l.queue.len())
}

// putBack puts a batch that was on its way to its place in retry: by number, so
// that a retry never reorders (I4).
func (l *lane) putBack(b *batch) {
	i := len(l.retry)
	for i > 0 && l.retry[i-1].first > b.first {
		i--
	}
	l.retry = slices.Insert(l.retry, i, b)
}

// answered notes that a batch on its way is no longer so. With an error, nothing
// more is sent until all that is on its way has been answered, and then one
// batch alone.
func (l *lane) answered(failed bool) {
	l.inflight--
	if failed {
		l.draining = true
		if l.seq != nil {
			l.seq.on = nil
		}
	}
	if l.draining {
		l.proven = false
		l.draining = l.inflight > 0
		return
	}
	l.proven = true
}

// pause keeps the lane from sending for d.
func (l *lane) pause(d time.Duration) {
	if d <= 0 || l.waiting != nil {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		l.ses.mu.Lock()
		defer l.ses.mu.Unlock()
		if l.waiting == t {
			l.waiting = nil
			l.poke()
		}
	})
	l.waiting = t
}

// lead makes b the lane's broker. It must have nothing on its way.
func (l *lane) lead(b *broker) {
	if l.broker != b {
		l.broker = b
		l.listed = false // the old broker drops its entry when it comes across it
		if l.seq != nil {
			l.seq.listed = false
		}
		if l.waiting != nil {
			l.waiting.Stop()
			l.waiting = nil
		}
	}
	l.poke()
}

// trouble notes an error that is being retried; a nil one clears it.
func (l *lane) trouble(err error) {
	l.ses.setTrouble(l.err != nil, err)
	l.err = err
}
