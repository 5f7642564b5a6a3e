//go:build !linux

package zookeeper

import "time"

var born = time.Now()

// elapsed is the time since the program began.
func elapsed() time.Duration { return time.Since(born) }
