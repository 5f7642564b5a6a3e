package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/sink"
)

// sequence is what sequenced delivery keeps of a lane in a session. Its fields, but for c's, are
// guarded by the session's mu.
//
// In a life a message's number in its partition is its sequence, so that a Produce is a
// compare-and-set: whatever the broker has already, it refuses or recognises. What must be
// known is only where to go on. It is read off the log when a lane begins, on each new
// connection or leader, and after any error: the lane is unknown then, and sends nothing.
type sequence struct {
	c      *counter
	stored int64 // messages below this number are in the log for certain
	lag    int64 // message n >= stored lies at offset n+lag or above
	shared bool  // others write to the partition

	on      *pipe     // the connection that the lane is synchronised for; nil: none
	listed  bool      // in broker.unknown
	running bool      // being searched
	since   time.Time // of the first disagreement without progress since; zero: none
	check   check
}

// check is what the log says of the last message that is stored and will be replayed.
type check struct {
	number int64 // of the message
	seq    int64
	sub    uint16
	ok     bool
}

// synchronised says whether the lane may send over its broker's connection.
func (l *lane) synchronised() bool { return l.seq.on != nil && l.seq.on == l.broker.pipe }

// unknown says whether the lane waits for nothing but to be synchronised. It is not sendable.
func (l *lane) unknown() bool {
	return l.broker != nil && l.waiting == nil && l.inflight == 0 && !l.seq.running && !l.synchronised() && (len(l.retry) > 0 || l.queue.len() > 0)
}

// hasUnknown drops stale entries and says whether a lane is to be synchronised. Caller holds mu.
func (b *broker) hasUnknown() bool {
	for i, l := range b.unknown {
		if l.broker == b && l.seq.listed && l.unknown() {
			b.unknown = b.unknown[i:]
			return true
		}
		if l.broker == b {
			l.seq.listed = false
		}
	}
	b.unknown = nil
	return false
}

// searchAtOnce is how many partitions are asked for in one request.
const searchAtOnce = 500

// takeUnknown takes lanes to be synchronised. Caller holds mu.
func (b *broker) takeUnknown() []*lane {
	var lanes []*lane
	for len(lanes) < searchAtOnce && b.hasUnknown() {
		l := b.unknown[0]
		b.unknown = b.unknown[1:]
		l.seq.listed, l.seq.running = false, true
		lanes = append(lanes, l)
	}
	return lanes
}

// disagrees says whether code means that the broker expects another sequence.
func disagrees(code int16) bool { return code == codeOutOfOrder || code == codeUnknownProducer }

// judge looks at an answer as sequenced delivery does, before the lane takes it in. An error
// ends the session. Caller holds mu.
func (l *lane) judge(bt *batch, a *producePartition) error {
	q, id := l.seq, partitionID{l.t.name, l.partition}
	switch {
	case a.code == codeNoError || a.code == codeDuplicate:
		next := bt.first + int64(len(bt.entries))
		if a.offset >= 0 {
			lag := a.offset - bt.first
			if lag < q.lag {
				return refusal(id, verdict{outcome: behind, why: fmt.Sprintf("message number %d was stored at offset %d, where at least %d was expected", bt.first, a.offset, bt.first+q.lag)})
			}
			q.shared = q.shared || lag > q.lag
			l.ses.s.book.stored(q.c, bt.first, lag, q.shared)
			q.lag = lag
		}
		q.stored = max(q.stored, next)
		q.since = time.Time{}
	case a.code == codeInvalidEpoch || a.code == codeFenced:
		return refusal(id, verdict{outcome: superseded, why: (&Error{Code: a.code}).Error()})
	case disagrees(a.code) && !l.draining:
		return l.stuck(fmt.Errorf("%w: %w", ErrDisagree, &Error{a.code, string(a.message)}))
	}
	return nil
}

// stuck notes that a lane makes no progress, and returns an error once that has
// lasted too long. Caller holds mu.
func (l *lane) stuck(cause error) error {
	if l.seq.since.IsZero() {
		l.seq.since = time.Now()
	}
	if time.Since(l.seq.since) < l.ses.s.o.disagreeAfter {
		return nil
	}
	return &DeliveryError{Topic: l.t.name, Partition: l.partition, Err: cause, Remedy: newLifeRemedy}
}

// synchronise searches the log for the broker's unknown lanes, over connections of its own, until ctx ends.
func (p *pipe) synchronise(ctx context.Context) {
	b, ses := p.b, p.b.ses
	for ctx.Err() == nil {
		ses.mu.Lock()
		lanes := b.takeUnknown()
		ses.mu.Unlock()
		if len(lanes) > 0 {
			err := ses.s.o.Owner() // I8: who lost the stream has nothing to go on with
			if err == nil {
				err = p.searchFor(ctx, lanes)
			}
			if err != nil {
				ses.fail(err)
				return
			}
			continue
		}
		select {
		case <-b.search:
		case <-ctx.Done():
		}
	}
}

// searchFor synchronises lanes. An error ends the session; other troubles are repeated.
func (p *pipe) searchFor(ctx context.Context, lanes []*lane) (fatal error) {
	ses := p.b.ses
	left := lanes
	var err error
	defer func() {
		ses.mu.Lock()
		defer ses.mu.Unlock()
		for _, l := range left {
			l.searched(err, ctx)
		}
	}()
	var c *conn
	if c, err = ses.s.dial.dial(ctx, p.conn.addr); err != nil {
		return nil
	}
	defer c.Close()
	killpoint.Hit("kafka.search")
	ids := make([]partitionID, len(lanes))
	for i, l := range lanes {
		ids[i] = partitionID{l.t.name, l.partition}
	}
	ends, codes := make([]int64, len(lanes)), make([]int16, len(lanes))
	timeout := ses.s.clientTimeout()
	short, cancel := context.WithTimeout(ctx, timeout)
	err = c.endOffsets(short, latestOffset, ids, func(i int, offset int64, code int16) { ends[i], codes[i] = offset, code })
	cancel()
	if err != nil {
		return nil
	}
	for i, l := range lanes {
		// The lane sends nothing meanwhile: what is read here does not change.
		ses.mu.Lock()
		q := search{producerID: ses.producerID, epoch: ses.epoch, count: l.seq.stored, offset: l.seq.stored + l.seq.lag, shared: l.seq.shared, end: ends[i]}
		ses.mu.Unlock()
		var v verdict
		var laneErr error
		if ses.s.o.without == searching {
			v = verdict{count: q.count}
		} else if codes[i] != codeNoError {
			laneErr = &Error{Code: codes[i]}
		} else {
			v, laneErr = q.run(&partitionLog{ctx: ctx, c: c, timeout: timeout, topic: l.t.name, partition: l.partition})
		}
		if laneErr != nil {
			var code *Error
			if errors.As(laneErr, &code) || errors.Is(laneErr, errLogMoves) {
				ses.mu.Lock()
				l.searched(topicError(l.t.name, fmt.Errorf("looking for what partition %d holds: %w", l.partition, laneErr)), ctx)
				ses.mu.Unlock()
				left = lanes[i+1:]
				continue
			}
			err = laneErr
			return nil
		}
		killpoint.Hit("kafka.searched")
		skipped, err := ses.apply(p, l, q, v)
		left = lanes[i+1:]
		ses.done(skipped, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// searched ends a search that came to nothing: it is repeated. Caller holds mu.
func (l *lane) searched(err error, ctx context.Context) {
	l.seq.running = false
	if err != nil && ctx.Err() == nil && l.ses.err == nil {
		l.attempts++
		l.trouble(err)
		l.ses.retries.Add(1)
		l.ses.logRetry("synchronising a lane", l.attempts, err)
		l.ses.lookUp(l.t.name)
		l.pause(backoff(l.attempts))
	}
	l.poke()
}

// apply takes a search's verdict. It returns messages that are stored already, and an error that ends the session.
func (ses *session) apply(p *pipe, l *lane, q search, v verdict) (skipped []entry, fatal error) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	s := l.seq
	if ses.err != nil || l.broker != p.b || p.b.pipe != p || p.err != nil {
		s.running = false
		l.poke()
		return nil, nil
	}
	id := partitionID{l.t.name, l.partition}
	switch v.outcome {
	case behind:
		err := refusal(id, v)
		if fatal := l.stuck(err); fatal != nil {
			return nil, err
		}
		l.searched(err, ses.ctx)
		return nil, nil
	case found:
	default:
		return nil, refusal(id, v)
	}
	s.running = false
	if v.count > s.stored {
		s.since = time.Time{}
		s.check = check{number: v.count - 1}
		if v.tail != nil {
			var err error
			if s.check.seq, s.check.sub, s.check.ok, err = lastMark(v.tail); err != nil {
				return nil, refusal(id, verdict{outcome: unknowable, why: "the last batch stored cannot be read: " + err.Error()})
			}
		}
		ses.s.o.Logger.Debug("kafka: messages are stored already", "topic", id.topic, "partition", id.partition, "messages", v.count-s.stored, "number", v.count)
	}
	// Everything below the high watermark was looked at: what is not ours yet comes behind.
	s.stored, s.lag, s.shared = v.count, q.end-v.count, v.shared
	ses.s.book.stored(s.c, s.stored, s.lag, s.shared)
	if ses.s.o.without == fixedNumbering {
		l.number = s.stored
	}
	if fatal := l.verify(); fatal != nil {
		return nil, fatal
	}
	skipped = l.skip()
	s.on, l.proven = p, false
	if len(l.retry) == 0 && l.err != nil {
		l.trouble(nil)
	}
	l.poke()
	return skipped, nil
}

// skip takes the messages off the lane that are stored already. They are done (I7). Caller holds mu.
func (l *lane) skip() (skipped []entry) {
	to := l.seq.stored
	kept := l.retry[:0]
	for _, b := range l.retry {
		k := int(min(max(to-b.first, 0), int64(len(b.entries))))
		skipped = append(skipped, b.entries[:k]...)
		if k == len(b.entries) {
			l.ses.recycle(b)
			continue
		}
		if k > 0 {
			n := copy(b.entries, b.entries[k:])
			clear(b.entries[n:])
			b.entries = b.entries[:n]
			b.first += int64(k)
		}
		kept = append(kept, b)
	}
	clear(l.retry[len(kept):])
	l.retry = kept
	if k := int(min(max(to-l.number, 0), int64(l.queue.len()))); k > 0 {
		skipped = l.queue.take(skipped, k)
		l.number += int64(k)
	}
	return skipped
}

// verify holds the message that the log tells of against the lane's, if that is there already. Caller holds mu.
func (l *lane) verify() error {
	c := &l.seq.check
	if !c.ok {
		return nil
	}
	for _, b := range l.retry {
		if i := c.number - b.first; i >= 0 && i < int64(len(b.entries)) {
			return l.verifyOne(b.entries[i].m)
		}
	}
	if i := c.number - l.number; i >= 0 && i < int64(l.queue.len()) {
		return l.verifyOne(l.queue.buf[l.queue.head+int(i)].m)
	}
	return nil
}

func (l *lane) verifyOne(m *sink.Message) error {
	c := &l.seq.check
	c.ok = false
	if m.Sequence == c.seq && m.SubIndex == c.sub {
		return nil
	}
	return &DeliveryError{Topic: l.t.name, Partition: l.partition, Remedy: "the source's log or the program is not what it was; " + newLifeRemedy,
		Err: fmt.Errorf("%w: message number %d is stored with seq %d.%d, and comes now with %d.%d", ErrNotReplayed, c.number, c.seq, c.sub, m.Sequence, m.SubIndex)}
}

// publishNumbered is publish with the book kept: what the log has already is done at once.
func (s *Sink) publishNumbered(ctx context.Context, ses *session, msgs []sink.Message) (int, error) {
	if !ses.opened {
		ses.opened = true
		s.book.restart()
	}
	s.runs = s.runs[:0]
	var skipped []*sink.Message
	n, err := s.publish(ctx, ses, msgs, func(l *lane, m *sink.Message) (bool, error) {
		q := l.seq
		number := l.number + int64(l.queue.len())
		stored := number < q.stored
		if stored && q.check.ok && q.check.number == number {
			if err := l.verifyOne(m); err != nil {
				return false, err
			}
		}
		if k := len(s.runs); k > 0 && s.runs[k-1].c == q.c {
			s.runs[k-1].n++
		} else {
			s.runs = append(s.runs, run{q.c, 1})
		}
		if stored { // the queue is empty then
			l.number++
			skipped = append(skipped, m)
		}
		return stored, nil
	})
	s.book.publish(s.runs)
	for _, m := range skipped {
		m.Done(nil)
	}
	return n, err
}
