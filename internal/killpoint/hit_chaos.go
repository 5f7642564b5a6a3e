//go:build chaos

package killpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// order is what BINLOGMQ_KILLPOINT asks for: ACTION:NAME:N, where the action is kill (SIGKILL) or stop (SIGSTOP) and N
// counts the hits of that name from 1.
type order struct {
	name   string
	signal syscall.Signal
	left   atomic.Int64
}

var ordered = parse(os.Getenv("BINLOGMQ_KILLPOINT"))

func parse(text string) *order {
	if text == "" {
		return nil
	}
	part := strings.Split(text, ":")
	o := &order{}
	n := int64(0)
	if len(part) == 3 {
		o.name = part[1]
		o.signal = map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[part[0]]
		n, _ = strconv.ParseInt(part[2], 10, 64)
	}
	if o.signal == 0 || n < 1 {
		fmt.Fprintf(os.Stderr, "BINLOGMQ_KILLPOINT=%q: want kill:NAME:N or stop:NAME:N\n", text)
		os.Exit(2)
	}
	o.left.Store(n)
	return o
}

// Hit ends or freezes the process when it was told to do so here.
func Hit(name string) {
	o := ordered
	if o == nil || o.name != name || o.left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "killpoint %s: %v\n", name, o.signal)
	_ = syscall.Kill(os.Getpid(), o.signal)
	if o.signal == syscall.SIGKILL {
		select {} // it may take a moment; nothing follows
	}
}
