//go:build unix

package codectest

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that the process has used: unlike the wall
// clock it does not count what the machine did for others.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
