package pulsar

import (
	"context"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

// backend is a connection to a cluster. Its methods may be called from any
// goroutine; those with a context return when it ends, at the latest.
type backend interface {
	// partitions returns how many partitions a topic has: 0 for one without, or
	// one that does not exist yet.
	partitions(ctx context.Context, topic string) (int, error)

	// prepare turns e.m into what open's producers send. e keeps no reference to
	// the buffers of e.m afterwards.
	prepare(e *entry)

	// open creates the one producer of a topic partition under our name, Exclusive. last is the highest id that the
	// broker remembers of the name; -1: none.
	open(ctx context.Context, topic string, r receiver) (p producer, last int64, err error)

	// tail returns the highest id of our name that a topic partition holds; -1: none.
	tail(ctx context.Context, topic string) (int64, error)

	// scan visits the entries of a topic partition from a place to its end, see wire.Client.Scan.
	scan(ctx context.Context, topic string, from wire.From, visit func(*wire.Stored) error) error

	// deduplicates sends one id twice to a helper topic and tells whether the broker
	// recognised it.
	deduplicates(ctx context.Context, topic string) (bool, error)

	// complaint returns the broker's or the client's last words of trouble, for errors
	// that would otherwise say nothing; "" if there are none.
	complaint() string

	// close frees everything. It may take long and is called once, after all
	// producers are closed.
	close()
}

// producer sends the entries of one lane.
type producer interface {
	// send hands e to the broker; it does not wait for it. It is called by one
	// goroutine at a time, and may call the receiver before it returns.
	send(e *entry)

	// expect says that the broker has confirmed an id. One that remembers less when the link to it is
	// made anew has forgotten: that is an error. It is called before the first send.
	expect(id int64)

	// close lets the broker release the name. It may take long.
	close()
}

// receiver is told what became of an entry: in order of sending, from one goroutine at a
// time, but for errors, which may come from any.
type receiver interface {
	receipt(id int64, duplicate bool, err error)
}

// entry is an accepted message on its way.
type entry struct {
	id   int64 // the broker's sequence id
	m    *sink.Message
	size int64  // payload bytes, as counted by the gate
	wire int    // bytes of the entry that grow with the message; see wireSize
	key  string // beginning of the key, for errors

	message *pulsarclient.ProducerMessage // filled by the client's prepare
	encoded wire.Message                  // filled by our own producer's prepare
}

// wireSize returns the size of a message's metadata and payload as the broker
// sees them without compression, less what is the same for all messages of a
// producer (PulsarApi.proto, MessageMetadata). Of two messages of a lane the
// one with the larger wireSize is the larger on the wire.
func wireSize(m *sink.Message, id int64) int {
	n := len(m.Value) + varint(len(m.Value)) + varint(int(id))
	if m.Value == nil {
		n += 3 // null_value
	}
	if len(m.Key) > 0 {
		n += field(len(m.Key))
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		n += field(field(len(h.Name)) + field(len(h.Value)))
	}
	return n
}

// field is the size of a length-delimited protobuf field with a small number.
func field(n int) int { return 1 + varint(n) + n }

func varint(n int) int {
	size := 1
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}
