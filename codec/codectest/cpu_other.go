//go:build !unix

package codectest

import "time"

func cpuTime() time.Duration { return 0 }
