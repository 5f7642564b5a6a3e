//go:build !unix

package codectest

import "time"

func CPUTime() time.Duration { return 0 }
