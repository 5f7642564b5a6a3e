package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/sink"
)

// The broker's sequence id is Sequence<<subIndexBits | SubIndex.
const (
	subIndexBits = 10
	maxSubIndex  = 1<<subIndexBits - 1
	maxSequence  = 1<<(63-subIndexBits) - 1
	metadataRoom = 64 // magic, checksum, lengths, times, codec; the producer's name comes on top
)

// ErrTooLarge is in the chain of the error of a message that is larger than the
// limit; its text names topic, key, size and limit.
var ErrTooLarge = errors.New("the message is larger than the topic allows")

// Sink publishes to one Pulsar cluster. It implements sink.Stateful.
type Sink struct {
	opt     Options
	connect func() (backend, error)
	admin   *admin // nil without AdminURL
	gate    gate

	retries    atomic.Int64
	duplicates atomic.Int64

	mu       sync.Mutex
	current  *session // never nil
	closed   bool
	topics   map[string]*topicInfo // partition counts, pinned
	checked  map[string]bool       // namespaces whose deduplication is known: true on, false off and accepted
	troubles map[any]error         // what is not healthy now, by lane, session or topic

	book     *book
	restored bool  // guarded by mu
	accepted int64 // messages; the publisher's own

	checking sync.Mutex // one self-test at a time

	unseen sync.Once // says that we may not read
	opened sync.Map  // topic partitions that were ours once; by our own producer

	entries []entry // the publisher's own: made by the slab
}

type topicInfo struct {
	name       topicName
	partitions int32 // 0: a topic without
}

// New returns a sink. It connects on first use; faults in the options are reported all at once.
func New(o Options) (*Sink, error) {
	o, err := o.normalize()
	if err != nil {
		return nil, err
	}
	s := &Sink{opt: o}
	s.connect = func() (backend, error) {
		if o.Producer == ProducerWire {
			return newWireBackend(s)
		}
		return newClient(s)
	}
	if o.AdminURL != "" {
		s.admin = newAdmin(&o)
	}
	return s, s.start()
}

func (s *Sink) start() error {
	s.gate = gate{maxMsgs: s.opt.MaxInFlightMessages, maxBytes: s.opt.MaxInFlightBytes}
	s.topics, s.checked = map[string]*topicInfo{}, map[string]bool{}
	s.book = newBook()
	s.troubles = map[any]error{}
	var err error
	s.current, err = s.newSession(nil)
	return err
}

func (s *Sink) session() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return s.current, nil
}

// Partitions implements sink.Sink. A topic without partitions counts as one.
func (s *Sink) Partitions(ctx context.Context, topic string) (int32, error) {
	defer s.trouble(topic, nil)
	for wait := (backoff{}); ; {
		n, err := s.session()
		if err != nil {
			return 0, err
		}
		info, err := s.resolve(ctx, n.back, topic)
		if err == nil {
			return max(info.partitions, 1), nil
		}
		var final *refusal
		if errors.As(err, &final) || ctx.Err() != nil {
			return 0, err
		}
		s.trouble(topic, explain(err, "topic "+topic, s.opt.producerName(), n.back.complaint(), 0))
		s.retries.Add(1)
		if !wait.sleep(ctx) {
			return 0, fmt.Errorf("pulsar: topic %s: %w (last error: %w)", topic, ctx.Err(), err)
		}
	}
}

// resolve returns what is known of a topic, which is pinned from then on (I5).
func (s *Sink) resolve(ctx context.Context, back backend, topic string) (*topicInfo, error) {
	s.mu.Lock()
	info := s.topics[topic]
	s.mu.Unlock()
	if info != nil {
		return info, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, err := parseTopic(topic)
	if err != nil {
		return nil, &refusal{err.Error()}
	}
	count, err := back.partitions(ctx, name.full)
	if err == nil && count == 0 || err != nil && isMissing(err) {
		count, err = s.create(ctx, back, name, err)
	}
	if err != nil {
		return nil, err
	}
	if want := s.opt.Topics.Partitions; want > 1 && int32(count) != want {
		s.opt.Logger.Warn("pulsar: the topic exists with another number of partitions than configured; its own is used", "topic", topic, "partitions", count, "configured", want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if info := s.topics[topic]; info != nil {
		return info, nil
	}
	info = &topicInfo{name: name, partitions: int32(count)}
	s.topics[topic] = info
	return info, nil
}

// Publish implements sink.Sink. A message that can never be sent ends the
// session for more, and names itself in the error; what was accepted before it goes on.
func (s *Sink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	n, err := s.session()
	if err != nil {
		return 0, err
	}
	for i := range msgs {
		if err := ctx.Err(); err != nil {
			return i, err
		}
		if err := s.accept(ctx, n, &msgs[i]); err != nil {
			return i, err
		}
		s.accepted++
	}
	return len(msgs), nil
}

func (s *Sink) accept(ctx context.Context, n *session, m *sink.Message) error {
	select {
	case <-n.ended:
		return n.refuse(errEnded)
	default:
	}
	l, err := n.lane(m.Topic, m.Partition)
	if err != nil {
		return err
	}
	id := m.Sequence<<subIndexBits | int64(m.SubIndex)
	wire := wireSize(m, id)
	err = l.check(m, id, wire)
	if err != nil {
		return n.refuse(err)
	}
	size := int64(m.Size())
	if err := s.gate.enter(ctx, n.ended, size); err != nil {
		if err == errEnded {
			return n.refuse(err)
		}
		return err
	}
	if len(s.entries) == 0 {
		s.entries = make([]entry, 64)
	}
	e := &s.entries[0]
	s.entries = s.entries[1:]
	e.id, e.m, e.size, e.wire = id, m, size, wire
	n.back.prepare(e)
	if err := l.push(e); err != nil {
		s.gate.leave(size)
		return err
	}
	return nil
}

// check returns why m must not be sent. Whatever can be refused is refused
// here, before an id is used (I3).
func (l *lane) check(m *sink.Message, id int64, wire int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("pulsar: topic %s, key %q, sequence %d: "+format, append([]any{m.Topic, keyHint(m), m.Sequence}, args...)...)
	}
	l.mu.Lock()
	policy := l.policy
	l.mu.Unlock()
	opt := &l.s.sink.opt
	size := m.Size()
	switch {
	case size > opt.MaxMessageBytes:
		return tooLarge(id, bad("%w: %d bytes, the limit is %d; raise the broker's maxMessageSize and the sink's max_message_bytes, or exclude the table", ErrTooLarge, size, opt.MaxMessageBytes))
	case policy > 0 && wire+metadataRoom+len(opt.producerName()) > policy:
		return tooLarge(id, bad("%w: %d bytes, the topic's own maxMessageSize is %d with metadata; raise it: pulsar-admin topicPolicies set-max-message-size", ErrTooLarge, size, policy))
	case m.Sequence < 0 || m.Sequence > maxSequence:
		return bad("the sequence is not between 0 and %d", int64(maxSequence))
	case m.SubIndex > maxSubIndex:
		return bad("one change yields more than %d messages", maxSubIndex+1)
	case id <= l.lastID:
		// I4: the broker would drop it as a duplicate.
		return bad("the sequence does not rise: the one before is %d", l.lastID>>subIndexBits)
	case !utf8.Valid(m.Key):
		return bad("the key is not UTF-8, which Pulsar's keys are; choose a codec with keys of text")
	}
	for i := range m.Headers {
		if h := &m.Headers[i]; !utf8.Valid(h.Value) || !utf8.ValidString(h.Name) {
			return bad("header %q is not UTF-8, which Pulsar's properties are", h.Name)
		}
	}
	return nil
}

func (s *Sink) done(e *entry, err error) {
	m := e.m
	e.m = nil
	m.Done(err)
	s.gate.leave(e.size) // after Done: an empty gate means that no completion is under way
}

// Flush implements sink.Sink.
func (s *Sink) Flush(ctx context.Context) error { return s.gate.wait(ctx) }

// Reset implements sink.Sink. It waits up to two seconds for receipts that
// are on their way, then reports the rest with ErrReset. The new session
// opens its lanes when the old one has let go of them.
func (s *Sink) Reset(ctx context.Context) error {
	n, err := s.session()
	if err != nil {
		return err
	}
	n.end(ctx)
	next, err := s.newSession(n.gone)
	if err != nil {
		return err
	}
	s.retries.Add(1)
	s.mu.Lock()
	s.current = next
	s.mu.Unlock()
	return nil
}

// Close implements sink.Sink. If ctx ends before the producers are closed they are
// closed in the background; another Close waits for them again.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	n := s.current
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		n.end(ctx)
	}
	select {
	case <-n.gone:
		if s.admin != nil {
			s.admin.close()
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pulsar: closing the producers: %w", ctx.Err())
	}
}

// Status implements sink.Sink.
func (s *Sink) Status() sink.Status {
	st := sink.Status{Retries: s.retries.Load()}
	st.InFlight, st.Bytes = s.gate.held()
	s.mu.Lock()
	n := s.current
	for _, err := range s.troubles {
		if st.Err == nil || err.Error() < st.Err.Error() { // always the same one
			st.Err = err
		}
	}
	closed := s.closed
	s.mu.Unlock()
	n.mu.Lock()
	if n.err != nil {
		st.Err = n.err
	}
	n.mu.Unlock()
	if closed {
		st.Err = errClosed
	}
	return st
}

// Duplicates returns how many messages the broker recognised as stored before.
func (s *Sink) Duplicates() int64 { return s.duplicates.Load() }

// trouble notes why something is not healthy now; nil: it is again.
func (s *Sink) trouble(what any, err error) {
	s.mu.Lock()
	before := s.troubles[what]
	if err == nil {
		delete(s.troubles, what)
	} else {
		s.troubles[what] = err
	}
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.opt.Logger.Warn("pulsar: not healthy", "error", err)
	case err == nil && before != nil:
		s.opt.Logger.Info("pulsar: healthy again", "was", before)
	}
}

// forget drops what is of no interest any more, without a word.
func (s *Sink) forget(what any) {
	s.mu.Lock()
	delete(s.troubles, what)
	s.mu.Unlock()
}
