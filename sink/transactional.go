package sink

import "context"

// Transactional is a sink that makes the messages of a source transaction visible to
// consumers all at once. Message.More tells it where one ends.
//
// EndTransaction and Finish are called by the goroutine that publishes, Yield by any.
type Transactional interface {
	Sink

	// KeepsTransactions says whether the sink, as it is configured, does so; if not,
	// the other methods are not called.
	KeepsTransactions() bool

	// EndTransaction says that the source transaction of the message published last has ended,
	// although that message had More set: what followed it yields no message.
	EndTransaction()

	// Yield says that the owner can hold no more and has published all that it holds: the sink
	// must confirm what it has, even if that cuts a source transaction.
	Yield()

	// Finish is Flush for an owner that stops: it confirms the source transactions that have ended. The
	// messages of one that has not are done with ErrReset, and the session is over.
	Finish(ctx context.Context) error
}
