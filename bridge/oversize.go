package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/topicname"
	"github.com/binlogmq/binlogmq/sink"
)

// Oversize says what becomes of a message that is larger than its topic's limit.
type Oversize uint8

// The choices. With the last three the limit that decides is the one that the topic had when it was first
// used in the epoch, unless Options.MaxMessageBytes is set: I5: a replay decides the same, whatever the broker allows by then.
const (
	StopOversize       Oversize = iota // stop before it. Without MaxMessageBytes the broker decides, which may compress it below its limit
	StubOversize                       // the largest columns are replaced by their lengths and digests
	SplitOversize                      // its value is cut into several messages
	DeadLetterOversize                 // a stub, and the whole message to DeadLetterTopic, there cut as SplitOversize does
)

var oversizeNames = []string{"stop", "stub", "split", "dead_letter"}

// String returns the choice as it is written in a configuration.
func (o Oversize) String() string { return name(oversizeNames, int(o)) }

// ParseOversize is the inverse of String; "" is StopOversize.
func ParseOversize(s string) (Oversize, error) {
	i, err := parseName("oversize", oversizeNames, s)
	return Oversize(i), err
}

// Headers of what becomes of a message that is too large. They travel whatever Options.Headers say.
const (
	partHeader = "part" // "i/n", from 1: the value is the i-th of n pieces
	stubHeader = "stub" // {"bytes":N,"sha256":"HEX"} of the value that the stub stands for
)

const (
	// maxSub is the highest sub-index of a change's messages: what a Pulsar sequence id has room for.
	maxSub = 1<<10 - 1

	partRoom = len(partHeader) + len("1023/1023") + 16 // which Framed adds for a header
	stubRoom = len(stubHeader) + codec.SumLen + 16
)

var errOversize = errors.New("the message is larger than the limit")

// completeOversize checks the options that are about large messages.
func (o *Options) completeOversize(c *compiled, fault func(string, ...any)) {
	if o.Oversize > DeadLetterOversize {
		fault("oversize: unknown choice %d", o.Oversize)
	}
	if o.MaxMessageBytes < 0 {
		fault("max message bytes: must not be negative")
	}
	if _, ok := o.Sink.(sink.Limiter); !ok && o.Sink != nil && o.Oversize != StopOversize && o.MaxMessageBytes == 0 {
		fault("oversize: %s needs max message bytes: the sink has no limit of its own", o.Oversize)
	}
	if _, ok := o.Codec.(codec.Stubber); !ok && o.Codec != nil && (o.Oversize == StubOversize || o.Oversize == DeadLetterOversize) {
		fault("oversize: the codec writes no stubs; use stop or split")
	}
	switch {
	case o.Oversize != DeadLetterOversize && o.DeadLetterTopic != "":
		fault("dead letter topic: is used with oversize: %s only", DeadLetterOversize)
	case o.Oversize == DeadLetterOversize && (o.DeadLetterTopic == o.Topic || o.DeadLetterTopic == o.DDLTopic):
		fault("dead letter topic: must be another than topic and ddl_topic")
	case o.Oversize == DeadLetterOversize:
		r, err := newRouter(o.DeadLetterTopic, o.Destination, o.Names, topicname.OfTable)
		if err != nil {
			fault("dead letter topic: %w", err)
		}
		c.dead = r
	}
}

// planner returns a planner for a session.
func (b *Bridge) planner() *planner {
	p := &planner{o: &b.o, c: b.c, plans: map[*event.Table]*plan{}, pins: map[string]target{}, pin: b.pin, count: b.partitions, find: b.find}
	if l, ok := b.o.Sink.(sink.Limiter); ok && b.o.Oversize != StopOversize {
		p.limit = func(ctx context.Context, topic string) (int, error) { return b.pinLimit(ctx, l, topic) }
	}
	return p
}

// pinLimit returns the topic's limit: the one in the state or, noted there now, the one that the topic has.
func (b *Bridge) pinLimit(ctx context.Context, l sink.Limiter, topic string) (int, error) {
	now, err := l.MessageLimit(ctx, topic)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	was, ok := b.saved.Limits[topic]
	if !ok && now > 0 {
		if b.saved.Limits == nil {
			b.saved.Limits = map[string]int{}
		}
		b.saved.Limits[topic] = now
		b.version++
	}
	b.mu.Unlock()
	switch {
	case ok:
		if now > 0 && now != was {
			b.o.Logger.Warn("the topic's limit on the size of messages is another than when this sink began with it; the old one goes on to decide which messages are too large (oversize)",
				"topic", topic, "limit", was, "limit_now", now)
		}
		return was, nil
	case now <= 0:
		return 0, &StopError{Err: fmt.Errorf("the limit on the size of messages of topic %s cannot be read, and oversize: %s decides by it", topic, b.o.Oversize),
			Remedy: "allow the sink to describe the topic (Kafka: DESCRIBE_CONFIGS on it), or set max_message_bytes"}
	}
	return now, nil
}

// deadLetters returns where the whole of a table's large messages go.
func (p *planner) deadLetters(ctx context.Context, pl *plan) (*target, error) {
	t := pl.table
	topic, err := p.c.dead.topic(t.Schema, t.Name)
	if err == nil && (topic == pl.to.topic || topic == p.c.ddlTopic) {
		err = fmt.Errorf("topic %s would hold the table's messages and its dead letters", topic)
	}
	if err != nil {
		return nil, &StopError{Table: string(pl.name), Err: fmt.Errorf("dead letters: %w", err), Remedy: "change the sink's dead_letter_topic, or exclude the table from the sink"}
	}
	// Its own limit, not Options.MaxMessageBytes: such a topic may well take more than others.
	to, err := p.resolve(ctx, topic, 0)
	to.home = partition(pl.name, to.partitions)
	return &to, err
}

// outgoing is the value of a message for which there is no room in its topic, and what else makes the message.
type outgoing struct {
	e     *event.Event
	r     *event.Row // nil for DDL
	p     *plan      // nil for DDL
	to    *target
	op    []byte
	key   []byte
	link  sink.Header // of a half of a split update: the other half's key; of the emptying of a table: op; without name there is none
	from  int         // the value is buf[from:to]
	until int
	sub   uint16
}

func (o *outgoing) place() (seq, row int64) {
	if o.r == nil {
		return o.e.Ordinal, -1
	}
	return o.r.Ordinal, o.r.Index
}

// put appends a message with a value that is part of the buffer, or nil, and one header more.
func (x *encoder) put(o *outgoing, to *target, value []byte, sub uint16, extra sink.Header) *sink.Message {
	part := to.home
	switch {
	case o.p == nil && to.partitions <= 0:
		part = -1
	case o.p == nil:
		part = 0
	case len(o.p.key) > 0:
		// I4, I5: the key's bytes and the pinned count alone decide, as ordinary producers would.
		part = partition(o.key, to.partitions)
	}
	ordinal, row := o.place()
	seq := ordinal + x.session.offset
	s := x.s
	start := len(s.hdrs)
	x.headers(o.e, o.p, o.op, seq, row, sub)
	if o.link.Name != "" {
		s.hdrs = append(s.hdrs, o.link)
	}
	if extra.Name != "" {
		s.hdrs = append(s.hdrs, extra)
	}
	s.msgs = append(s.msgs, sink.Message{
		Topic: to.topic, Partition: part, SubIndex: sub, Sequence: seq, Time: o.e.Txn.Time / 1000,
		Key: o.key, Value: value, Headers: s.hdrs[start:len(s.hdrs):len(s.hdrs)], Owner: s,
		More: o.r != nil && x.b.transactional != nil, // until its transaction's end is met
	})
	m := &s.msgs[len(s.msgs)-1]
	s.payload += int64(m.Size())
	return m
}

// keep takes the message put last away again if the topic holds it.
func (x *encoder) keep(o *outgoing, to *target, sub uint16) {
	if to.present == nil {
		return
	}
	row := int64(0)
	switch {
	case o.r != nil:
		row = o.r.Index + 1
	case o.p != nil:
		row, sub = emptiedRow, 0
	}
	if to.present.has(idOf(o.e.Txn), row, sub) {
		x.take()
		x.b.stats.present.Add(1)
	}
}

// take removes the message put last.
func (x *encoder) take() {
	s := x.s
	m := &s.msgs[len(s.msgs)-1]
	s.payload -= int64(m.Size())
	s.hdrs = s.hdrs[:len(s.hdrs)-len(m.Headers)]
	*m = sink.Message{}
	s.msgs = s.msgs[:len(s.msgs)-1]
}

// send appends the message of o, or what Options.Oversize makes of it. It returns the next
// sub-index. I5: how many messages that are is a function of the row, the schema and the fingerprint, which holds the limit.
func (x *encoder) send(o *outgoing) (next uint16, err error) {
	var value []byte // nil: tombstone
	if o.until > o.from {
		value = x.s.buf[o.from:o.until:o.until]
	}
	m := x.put(o, o.to, value, o.sub, sink.Header{})
	size := m.Framed()
	if o.to.limit <= 0 || size <= o.to.limit {
		x.keep(o, o.to, o.sub)
		return o.sub + 1, nil
	}
	x.take()
	if x.b.o.Oversize == StopOversize || o.p != nil && o.r == nil { // the emptying of a table is as small as it gets
		return 0, x.tooLarge(o, size, "", "raise max_message_bytes if the topic takes more, or set oversize: stub, split or dead_letter, or exclude the table")
	}
	x.b.o.Logger.Warn("a message is larger than its topic's limit", "oversize", x.b.o.Oversize.String(), "table", o.table(), "key", keyText(o.key),
		"size", size, "limit", o.to.limit, "topic", o.to.topic, "position", where(o.e))
	if x.b.o.Oversize == SplitOversize {
		x.b.stats.splits.Add(1)
		return x.split(o, o.to, o.sub)
	}
	sum := codec.AppendSum(make([]byte, 0, codec.SumLen), value)
	if err := x.stub(o, size, sum); err != nil {
		return 0, err
	}
	next = o.sub + 1
	if o.p == nil || o.p.dead == nil {
		x.b.stats.stubs.Add(1)
		return next, nil // a DDL statement has no dead letter: nothing but its text is missing
	}
	x.b.stats.deadLetters.Add(1)
	return x.split(o, o.p.dead, next)
}

// split appends the pieces of o's value as messages to a topic: one without the part header where the whole fits.
func (x *encoder) split(o *outgoing, to *target, sub uint16) (next uint16, err error) {
	whole := o.until - o.from
	bare := x.put(o, to, nil, sub, sink.Header{})
	room := to.limit - bare.Framed()
	x.take()
	if to.limit <= 0 || whole <= room {
		x.put(o, to, x.s.buf[o.from:o.until:o.until], sub, sink.Header{})
		x.keep(o, to, sub)
		return sub + 1, nil
	}
	room -= partRoom
	// The number of the sub-index, which the first message may lack.
	room -= len(subHeader) + len("1023") + 16
	n := 0
	if room > 0 {
		n = (whole + room - 1) / room
	}
	if room <= 0 || int(sub)+n-1 > maxSub {
		return 0, x.tooLarge(o, whole, fmt.Sprintf(": key and headers leave %d bytes of a message of topic %s, and a change has at most %d messages", max(room, 0), to.topic, maxSub+1),
			"raise the topic's limit and begin a new epoch, or exclude the table")
	}
	// Room for the texts of all headers, so that the value is moved once at most.
	x.s.buf = slices.Grow(x.s.buf, n*(partRoom+32)+1024)
	for i := range n {
		at := o.from + i*room
		end := min(at+room, o.until)
		start := len(x.s.buf)
		x.s.buf = strconv.AppendInt(x.s.buf, int64(i+1), 10)
		x.s.buf = strconv.AppendInt(append(x.s.buf, '/'), int64(n), 10)
		text := x.s.buf[start:len(x.s.buf):len(x.s.buf)]
		x.put(o, to, x.s.buf[at:end:end], sub+uint16(i), sink.Header{Name: partHeader, Value: text})
		x.keep(o, to, sub+uint16(i))
	}
	return sub + uint16(n), nil
}

// stub appends the message of o without its largest columns. sum is of the value that it stands for.
func (x *encoder) stub(o *outgoing, size int, sum []byte) error {
	bare := x.put(o, o.to, nil, o.sub, sink.Header{Name: stubHeader, Value: sum})
	room := o.to.limit - bare.Framed()
	x.take()
	stubber := x.b.o.Codec.(codec.Stubber) // completeOversize has seen to it
	start := len(x.s.buf)
	var buf []byte
	err := codec.ErrNoStub
	if room > 0 {
		if o.r == nil {
			buf, err = stubber.AppendDDLStub(x.s.buf, o.e, room)
		} else {
			buf, err = stubber.AppendStub(x.s.buf, o.r, o.p.key, room)
		}
	}
	if err != nil {
		return x.tooLarge(o, size, ", and its stub cannot be made: "+err.Error(), "raise the topic's limit and begin a new epoch, or set max_message_bytes, or exclude the table")
	}
	x.s.buf = buf
	x.put(o, o.to, buf[start:len(buf):len(buf)], o.sub, sink.Header{Name: stubHeader, Value: sum})
	x.keep(o, o.to, o.sub)
	return nil
}

func (o *outgoing) table() string {
	if o.p == nil {
		return ""
	}
	return string(o.p.name)
}

// tooLarge makes the error to stop with. I3.
func (x *encoder) tooLarge(o *outgoing, size int, more, remedy string) error {
	return stopAt(o.e, fmt.Errorf("topic %s, key %s: %w: %d bytes, the limit is %d%s", o.to.topic, keyText(o.key), errOversize, size, o.to.limit, more), remedy)
}

// keyText is what an error or a line of the log shows of a key.
func keyText(key []byte) string {
	if len(key) > 64 {
		return strconv.Quote(string(bytes.ToValidUTF8(key[:64], nil))) + "..."
	}
	return strconv.Quote(string(key))
}

// refused is a change of which the broker does not take a message. The next session publishes everything before it, and stops there (I3).
type refused struct {
	ordinal int64
	err     error
}

// refuse notes err if it says that the broker takes a message in no way. offset is the session's.
func (b *Bridge) refuse(err error, offset int64) {
	var large *sink.TooLargeError
	if !errors.As(err, &large) {
		return
	}
	r := &refused{large.Sequence - offset, err}
	if was := b.refused.Load(); was == nil || r.ordinal < was.ordinal {
		b.refused.Store(r)
	}
}

// barred returns the error to stop with before the change with this ordinal, or nil.
func (x *encoder) barred(e *event.Event, ordinal int64) error {
	r := x.b.refused.Load()
	if r == nil || r.ordinal != ordinal {
		return nil
	}
	return stopAt(e, r.err, "see the error; then start the sink again, or set max_message_bytes below the limit with oversize: stub, split or dead_letter, or exclude the table")
}
