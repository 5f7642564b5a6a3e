package sink

import "context"

// Settler is a sink that knows from the broker itself how far it has come, where the messages do not tell.
type Settler interface {
	Sink

	// KeepsRecord says whether the sink, as it is configured, does so; if not, Settled is not called.
	KeepsRecord() bool

	// Settled returns nil if nothing is stored beyond what the state, which the sink has given its owner before, says is acknowledged,
	// and nothing of former sessions can be stored any more. It changes nothing, and is called before Restore.
	// It retries until ctx ends; an error that is permanent says what is stored.
	Settled(ctx context.Context, state []byte) error
}
