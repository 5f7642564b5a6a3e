package sink

import "context"

// Continuation says what a sink's owner knows of the messages that it will publish after a restart.
type Continuation uint8

const (
	// Same: the messages after the state are those that followed it before, in the same order.
	Same Continuation = iota
	// Changed: the owner's configuration changed, so they may be others.
	Changed
	// Moved: the user moved the cursor. What was sent after it and what will be have nothing in common, and the user knows.
	Moved
)

// Stateful is a sink that numbers its messages so that its broker knows a repetition
// even after a restart. What it must know for that belongs to the cursor: the owner
// keeps it, and saves it together with the position (I2).
//
// Restore, Mark and Publish are called by one goroutine at a time; Acknowledge and AppendState by another.
type Stateful interface {
	Sink

	// KeepsState says whether the sink, as it is configured, is stateful at all; if not, the
	// other methods are not called.
	KeepsState() bool

	// Restore gives the sink the state that was saved with the cursor; empty: none. It is called
	// before the first Publish, and may be called again right after a Reset. It waits
	// while the broker is away, until ctx ends. fresh says that the state is a new one, which must be saved
	// before anything is published. The sink refuses, with an error that is permanent, what it
	// cannot continue without a doubt.
	Restore(ctx context.Context, state []byte, c Continuation) (fresh bool, err error)

	// Partitions may add the topic to the state; then it, too, must be saved
	// before anything is published there.

	// Mark returns a number for everything published so far: each message accepted adds one. Marks rise over all sessions.
	Mark() int64

	// Acknowledge says that the cursor has moved behind everything up to the mark. A Publish
	// after Reset goes on behind the last mark acknowledged.
	Acknowledge(mark int64)

	// AppendState appends the state that belongs to the last mark acknowledged.
	AppendState(dst []byte) []byte
}

// Forgetful is a Stateful sink whose state tells what its broker has confirmed, and nothing of what was sent beyond: then its
// owner takes care of a changed configuration as it does for sinks without state.
type Forgetful interface {
	Stateful
	Forgetful()
}

// Noting is a Stateful sink whose state also tells what must not be forgotten although nothing is acknowledged, such as a message that
// the broker may have refused. Its owner saves the state when a session has failed and Notes has changed.
type Noting interface {
	Stateful
	Notes() int64 // counts these; any goroutine may call it
}
