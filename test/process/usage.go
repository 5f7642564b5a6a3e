package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that the program has used so far, user and system.
func (c *Child) CPU() time.Duration {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID()))
	if err != nil {
		c.t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const ticks = 100 // USER_HZ on Linux
	var sum int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			c.t.Fatalf("/proc/%d/stat: %v", c.PID(), err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}

// Memory returns the program's resident memory in bytes, now and at its highest.
func (c *Child) Memory() (now, peak int64) {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID()))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "VmHWM" && name != "VmRSS" {
			continue
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			c.t.Fatalf("/proc/%d/status: %v", c.PID(), err)
		}
		if name == "VmRSS" {
			now = kib << 10
		} else {
			peak = kib << 10
		}
	}
	return now, peak
}
