package sink

import (
	"context"
	"time"
)

// From says where reading back begins. The zero value is the first message that a partition holds.
type From struct {
	State []byte    // of a Stateful sink: behind what it says is acknowledged
	After int64     // messages with a Sequence up to it need not be told; 0: all are told
	Since time.Time // messages stored before need not be told
}

// Stored is a message as a topic holds it.
type Stored struct {
	Place   string   // in the partition: an offset or an id, for errors
	Headers []Header // valid during the visit only
}

// Reader is a sink that can read back what its topics hold: what other processes, or this sink in another life, have stored.
type Reader interface {
	Sink

	// KeepsReadable says whether the sink, as it is configured, can read back; if not, ReadBack is not called.
	KeepsReadable() bool

	// ReadBack tells each message of a partition, up to the one that is the last when it begins, in order; those that the
	// sink has sent under the state that it was restored with may be left out. It retries until ctx ends, telling messages again
	// then. An error of visit ends it. An error that is permanent says that reading is not possible.
	ReadBack(ctx context.Context, topic string, partition int32, from From, visit func(*Stored) error) error
}
