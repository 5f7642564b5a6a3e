package sink

import "context"

// Limiter is a sink whose topics bound the size of a message.
type Limiter interface {
	Sink

	// MessageLimit returns the largest Message.Framed that the topic takes now, uncompressed and alone; 0: it cannot be
	// known. Like Partitions it may be called from any goroutine and retries until ctx ends.
	MessageLimit(ctx context.Context, topic string) (int, error)
}

// What brokers store beside the payload of a message that is alone in its batch or entry: Kafka 61 bytes of batch and 20 of
// lengths and deltas, and 6 for each header; Pulsar 23, and 11 for each property.
const (
	frameBytes       = 96
	frameHeaderBytes = 16
)

// Framed is a bound on the bytes that m occupies in a topic when it is alone and not compressed. It is a
// pure function of the message, and so is what is decided by it.
func (m *Message) Framed() int { return m.Size() + frameBytes + len(m.Headers)*frameHeaderBytes }

// TooLargeError is what a message is done with, or Publish returns, when the broker takes
// nothing of its size: no retry mends that.
type TooLargeError struct {
	Sequence int64 // of the message
	SubIndex uint16
	Err      error // names topic, key, size, limit and remedy
}

// TooLarge makes a TooLargeError for m.
func TooLarge(m *Message, err error) error {
	return &TooLargeError{Sequence: m.Sequence, SubIndex: m.SubIndex, Err: err}
}

func (e *TooLargeError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TooLargeError) Unwrap() error { return e.Err }
