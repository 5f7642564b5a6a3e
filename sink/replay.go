package sink

import "context"

// Recounter is a sink that can look again at how many partitions topics have. Sink.Partitions
// tells the number that is used, which stays the same.
type Recounter interface {
	Sink

	// Recount asks the broker; topics that do not exist are left out, and not created. Like Partitions it
	// may be called from any goroutine and retries until ctx ends.
	Recount(ctx context.Context, topics []string) (map[string]int32, error)
}

// Replayer is a sink that can tell when a replay has passed everything that was sent before a crash.
type Replayer interface {
	Sink

	// Replayed looks at what is stored, after the owner has begun with a state, and returns a function that tells whether all of
	// it is acknowledged. It retries until ctx ends. nil: the sink cannot tell.
	Replayed(ctx context.Context) (passed func() bool, err error)
}
