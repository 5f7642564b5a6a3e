package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/sink"
)

// Sink publishes to one Kafka cluster. It implements sink.Sink; see there for
// which methods may run at once.
type Sink struct {
	o       Options
	dial    *dialer
	admin   *control // for Partitions and Check
	retries atomic.Int64

	// Sequenced delivery only.
	book  *book         // nil with other kinds
	alive chan struct{} // closed when Restore has given the book a life, or the tally a generation
	runs  []run         // of the Publish under way

	tally  *tally // transactional delivery; nil with other kinds
	counts transactionCounts

	mu       sync.Mutex
	topics   map[string]*topic
	ses      *session
	closed   bool
	restored bool
	away     error // why Restore waits; nil: it does not
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. It reports every fault of o at once, connects to nothing
// yet, and retries for ever in the background when no broker can be reached.
func New(o Options) (*Sink, error) {
	o, mech, err := o.normalize()
	if err != nil {
		return nil, err
	}
	d := &dialer{clientID: o.ClientID, tls: o.TLS, mech: mech, timeout: min(o.RequestTimeout, 10*time.Second)}
	s := &Sink{
		o:      o,
		dial:   d,
		admin:  newControl(d, o.Brokers, o.RequestTimeout),
		topics: map[string]*topic{},
	}
	if o.Delivery == Sequenced {
		s.book, s.alive = &book{}, make(chan struct{})
	}
	if o.Delivery == Transactional {
		s.tally, s.alive = newTally(), make(chan struct{})
	}
	s.ses = newSession(s)
	return s, nil
}

// clientTimeout is how long we wait for an answer to a Produce request.
func (s *Sink) clientTimeout() time.Duration { return s.o.RequestTimeout + s.o.RequestTimeout/2 }

// minProduceVersion is the lowest version of the Produce API that knows the compression.
func (s *Sink) minProduceVersion() int16 {
	if s.o.Compression == "zstd" {
		return zstdProduceVersion
	}
	return minProduceVersion
}

func (s *Sink) session() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return s.ses, nil
}

// Publish implements sink.Sink. Messages of a topic that Partitions was not
// asked for make it ask, which may take long while the broker is away. A
// partition that the topic does not have ends the session.
func (s *Sink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	ses, err := s.session()
	if err != nil {
		return 0, err
	}
	if s.book != nil {
		return s.publishNumbered(ctx, ses, msgs)
	}
	if s.tally != nil {
		return s.publishGrouped(ctx, ses, msgs)
	}
	return s.publish(ctx, ses, msgs, nil)
}

// publish is Publish within a session. number, if not nil, is told of each message that is accepted, with the
// session's mu held; it takes the message over by returning true.
func (s *Sink) publish(ctx context.Context, ses *session, msgs []sink.Message, number func(*lane, *sink.Message) (bool, error)) (int, error) {
	var t *topicLanes
	ses.mu.Lock()
	for i := range msgs {
		m := &msgs[i]
		size := m.Size()
		if i&255 == 255 { // let the senders in
			ses.mu.Unlock()
			ses.mu.Lock()
		}
		for ses.err == nil && !ses.fits(size) {
			if ses.txn != nil {
				ses.txn.press()
			}
			ses.mu.Unlock()
			select {
			case <-ses.space:
			case <-ses.ctx.Done():
			case <-ctx.Done():
				return i, context.Cause(ctx)
			}
			ses.mu.Lock()
		}
		if t == nil || t.t.name != m.Topic {
			if t = ses.topics[m.Topic]; t == nil {
				ses.mu.Unlock()
				known, err := s.topic(ctx, m.Topic)
				if err != nil {
					if ctx.Err() != nil {
						return i, err
					}
					ses.fail(err)
					return i, err
				}
				ses.mu.Lock()
				t = ses.addTopic(known)
			}
		}
		l, err := ses.lane(t, m.Partition)
		taken := false
		if err == nil && size > maxPayload {
			err = sink.TooLarge(m, topicError(m.Topic, fmt.Errorf("key of %d bytes: %w: %d bytes, more than any Kafka broker takes", len(m.Key), ErrRecordTooLarge, size)))
		}
		if err == nil && number != nil && ses.err == nil {
			taken, err = number(l, m)
		}
		if err != nil {
			ses.mu.Unlock()
			ses.fail(err)
			ses.mu.Lock()
		}
		if ses.err != nil {
			err := ses.err
			ses.mu.Unlock()
			return i, err
		}
		if taken {
			continue
		}
		if l.stored.covers(m) {
			ses.mu.Unlock()
			m.Done(nil)
			ses.mu.Lock()
			continue
		}
		ses.msgs.Add(1)
		ses.bytes.Add(int64(size))
		if ses.txn != nil {
			ses.txn.accept(l, newEntry(m, size), m.More)
			continue
		}
		l.queue.push(newEntry(m, size))
		if !l.listed {
			l.poke()
		}
	}
	ses.mu.Unlock()
	return len(msgs), nil
}

// fits says whether a message of size bytes may be accepted now. (I9)
func (ses *session) fits(size int) bool {
	n := ses.msgs.Load()
	return n == 0 || n < ses.s.o.MaxInFlightMessages && ses.bytes.Load()+int64(size) <= ses.s.o.MaxInFlightBytes
}

// Flush implements sink.Sink. With transactional delivery it commits what was published, even in
// the midst of a source transaction.
func (s *Sink) Flush(ctx context.Context) error {
	if t := s.transactor(); t != nil {
		t.ses.mu.Lock()
		t.flushing = true
		t.settle()
		t.ses.mu.Unlock()
	}
	return s.awaitIdle(ctx)
}

// awaitIdle waits until all that was accepted is done.
func (s *Sink) awaitIdle(ctx context.Context) error {
	ses, err := s.session()
	if err != nil {
		return err
	}
	for {
		ses.mu.Lock()
		if ses.msgs.Load() == 0 {
			ses.mu.Unlock()
			return nil
		}
		if ses.idle == nil {
			ses.idle = make(chan struct{})
		}
		idle := ses.idle
		ses.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reset implements sink.Sink: the next session has a fresh producer id. When ctx
// ends first, the old session is over but may still report; call Reset again.
func (s *Sink) Reset(ctx context.Context) error {
	ses, err := s.session()
	if err != nil {
		return err
	}
	if err := ses.end(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.ses = newSession(s)
	s.mu.Unlock()
	return nil
}

// Close implements sink.Sink.
func (s *Sink) Close(ctx context.Context) error {
	ses, err := s.session()
	if err != nil {
		return nil // closed before
	}
	if err := ses.end(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.admin.close()
	return nil
}

// Status implements sink.Sink.
func (s *Sink) Status() sink.Status {
	ses, err := s.session()
	if err != nil {
		return sink.Status{Err: err}
	}
	st := sink.Status{
		InFlight: ses.msgs.Load(),
		Bytes:    ses.bytes.Load(),
		Retries:  s.retries.Load(),
		Commits:  s.counts.commits.Load(),
		Spread:   s.counts.spread.Load(),
		Hanging:  s.counts.hanging.Load(),
	}
	ses.mu.Lock()
	if ses.err != nil || ses.troubled > 0 {
		st.Err = ses.lastErr
	}
	ses.mu.Unlock()
	s.mu.Lock()
	if st.Err == nil {
		st.Err = s.away
	}
	s.mu.Unlock()
	return st
}
