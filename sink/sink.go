package sink

import (
	"context"
	"errors"
	"sync/atomic"
)

// Header is a name and a value that travel beside a message: a Kafka record
// header or a Pulsar property. Value is text in UTF-8.
type Header struct {
	Name  string
	Value []byte
}

// Message is what a sink sends. Key, Value and Headers must stay unchanged until the
// message is done; the sink keeps no reference to them afterwards.
type Message struct {
	Topic     string
	Partition int32  // -1 where the sink has no partitions
	SubIndex  uint16 // numbers the messages that one change yields
	Sequence  int64  // number of the change in this sink: rises along each lane, same after a replay
	Time      int64  // commit time of the change in milliseconds since 1970 UTC
	Key       []byte // nil: none
	Value     []byte // nil: tombstone
	Headers   []Header
	Owner     Owner // told once when the message is done; must not be nil
	More      bool  // messages of the same source transaction may follow; only a Transactional sink looks at it

	done atomic.Bool
}

// Owner learns what became of its messages. MessageDone is called from the
// sink's goroutines, once a message; it must not block nor call the sink.
type Owner interface {
	// MessageDone reports that the broker has persisted m (err == nil), or that
	// the sink gave up on it. After an error nobody knows whether it was stored.
	MessageDone(m *Message, err error)
}

// OnSecondCompletion is called when a message is reported done twice, which is
// a bug. Tests replace it with a panic. Set it before any sink runs.
var OnSecondCompletion = func(m *Message) {}

// Done reports m's fate to its owner. Only the sink that accepted m calls it.
func (m *Message) Done(err error) {
	if m.done.Swap(true) {
		OnSecondCompletion(m)
		return
	}
	m.Owner.MessageDone(m, err)
}

// Size is the number of payload bytes of m: key, value and headers.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	return n
}

// ErrReset is what messages are done with that were on their way when the sink
// was reset or closed.
var ErrReset = errors.New("sink: reset while the message was on its way")

// Status is what health checks and metrics show of a sink.
type Status struct {
	Err      error // why the sink is not healthy now (it goes on retrying); nil when healthy
	InFlight int64 // messages accepted and not done
	Bytes    int64 // their payload bytes
	Retries  int64 // sends repeated since start

	// Of a Transactional sink.
	Commits int64 // transactions committed since start
	Spread  int64 // source transactions that took several of them, and so were not visible at once
	Hanging int64 // partitions whose consumers (read_committed) are held up by a transaction that nobody ends
}

// Sink publishes messages to one broker system.
//
// Publish, Reset and Close are called by one goroutine at a time; Partitions
// and Status may be called from any.
type Sink interface {
	// Partitions returns the number of partitions of topic: the one that key
	// hashing uses. It creates the topic if configured to, and retries while the
	// broker is away, until ctx ends. The number of a topic never changes while
	// the sink lives.
	Partitions(ctx context.Context, topic string) (int32, error)

	// Publish accepts the messages, in order, and returns without waiting for the broker; it blocks
	// while the sink's bound on messages or bytes in flight is reached. Every accepted
	// message is done exactly once. An outage of the broker is retried inside, for
	// ever; Done with an error means that the sink cannot go on in this session: from then on
	// it accepts nothing and fails what it holds until Reset. The error returned is
	// nil unless ctx ended or the session has failed; then accepted tells how many
	// of msgs were accepted (they are, or will be, done).
	Publish(ctx context.Context, msgs []Message) (accepted int, err error)

	// Flush returns when every accepted message is done, or ctx ends.
	Flush(ctx context.Context) error

	// Reset ends the session: everything on its way is done (with ErrReset unless its fate is known), then a new
	// session begins. After it returns no completion of the old session follows.
	Reset(ctx context.Context) error

	// Close ends the session as Reset does and frees everything. The sink cannot be used again.
	Close(ctx context.Context) error

	// Status returns a snapshot.
	Status() Status
}
