package zookeeper

import (
	"time"

	"golang.org/x/sys/unix"
)

var born = time.Now()

// elapsed is the time since an arbitrary moment, by a clock that goes on while the machine is suspended.
func elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(born) // a kernel without that clock
	}
	return time.Duration(ts.Nano())
}
