package client

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// NoBatch is the ID of a message without entries.
const NoBatch int64 = -1

// maxSize is the most that a get can ask for (CanalProtocol.proto, Get.fetch_size).
const maxSize = math.MaxInt32

// Message is a batch: acknowledged or rolled back as a whole.
type Message struct {
	ID      int64    // NoBatch when there is nothing
	Entries [][]byte // each as [ParseEntry] reads it
}

// Wait says how long a get waits for a full batch.
type Wait time.Duration

// How a get may wait, beside a duration above zero.
const (
	NoWait   Wait = -1 // takes what is there
	WaitFull Wait = 0  // waits until the batch is full
)

// Errors that callers may want to tell apart; what is returned wraps them.
var (
	// ErrRefused says that the server has refused the request: the same one will be refused again.
	ErrRefused = errors.New("client: refused by the server")
	// ErrNotConnected says that Connect has not been called, or that the connection is lost: connect again.
	ErrNotConnected = errors.New("client: not connected")
)

// Connector is one subscription of one client. Its methods are called by one goroutine at a time.
// A context that ends while a call waits breaks the connection: the answer may still be on its way.
type Connector interface {
	// Connect connects, rolls back what an earlier connection left unacknowledged, and subscribes again with the filter
	// of the last Subscribe, if there was one.
	Connect(ctx context.Context) error

	// Disconnect rolls back what is unacknowledged and lets go; the cursor stays. Disconnecting twice is no error.
	Disconnect(ctx context.Context) error

	// Subscribe creates the subscription, or replaces its filter for what is not handed out yet: comma-separated
	// regular expressions that match the whole of schema.table; "" for every table.
	Subscribe(ctx context.Context, filter string) error

	// Unsubscribe forgets the subscription and its cursor.
	Unsubscribe(ctx context.Context) error

	// GetWithoutAck returns the next batch. size counts what the server counts, KiB of entries unless it was told to count
	// events; 0 leaves it to the server. Several batches may be unacknowledged.
	GetWithoutAck(ctx context.Context, size int, wait Wait) (*Message, error)

	// Get is GetWithoutAck and Ack in one.
	Get(ctx context.Context, size int, wait Wait) (*Message, error)

	// Ack acknowledges a batch, which must be the oldest that is unacknowledged. Of NoBatch there is nothing to acknowledge, and it is no error.
	Ack(ctx context.Context, id int64) error

	// Rollback forgets all unacknowledged batches; they are handed out again under new ids.
	Rollback(ctx context.Context) error

	// RollbackTo forgets the batch and all later ones; earlier ones stay unacknowledged. Of NoBatch there is nothing to roll back.
	RollbackTo(ctx context.Context, id int64) error

	// List returns the ids of the batches that this connector has got and not acknowledged, oldest first.
	List(ctx context.Context) ([]int64, error)
}

// outstanding are the ids of batches that are not acknowledged. They rise.
type outstanding []int64

func (o *outstanding) add(m *Message) {
	if m.ID != NoBatch {
		*o = append(*o, m.ID)
	}
}

func (o *outstanding) acknowledged(id int64) {
	*o = slices.DeleteFunc(*o, func(x int64) bool { return x == id })
}

func (o *outstanding) rolledBack(from int64) {
	*o = slices.DeleteFunc(*o, func(x int64) bool { return x >= from })
}

// getAndAck is Get by means of the other calls.
func getAndAck(ctx context.Context, c Connector, size int, wait Wait) (*Message, error) {
	m, err := c.GetWithoutAck(ctx, size, wait)
	if err != nil || m.ID == NoBatch {
		return m, err
	}
	return m, c.Ack(ctx, m.ID)
}
