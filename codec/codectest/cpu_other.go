//go:build !unix

package codectest

import "time"

// CPUTime is not known here: Benchmark reports no figure of it.
func CPUTime() time.Duration { return 0 }
