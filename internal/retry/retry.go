// Package retry has what all need who try again: pauses that end with a context, and chance in their length.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. It returns the cause of the context's end if that comes before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter returns a pause between half of d and d, so that those who failed at once do not all come back at once. Chance
// decides when something is sent, never what (I5).
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
