package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/sink"
)

// governor keeps the garbage collector's limit at what the rings, the windows and the largest row of late of each
// destination need: left alone, the heap doubles before the collector looks, which with a row of 100 MB is a gigabyte too much.
// It is safe for concurrent use. (I9)
type governor struct {
	fixed int64 // without rows
	bound int64 // never above

	mu      sync.Mutex
	largest []int64 // row of late by destination, in bytes of memory
	forget  *time.Timer
	stopped bool
}

const (
	// Memory of the process that is not the collector's: code, stacks of threads.
	outsideHeap = 32 << 20
	// How long after a large row its memory is given back.
	forgetAfter = 30 * time.Second
)

// newGovernor sets the first limit. It returns nil, which does nothing, where GOMEMLIMIT is set.
func newGovernor(cfg *config.Config) *governor {
	if os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	m := cfg.MemoryBound()
	g := &governor{fixed: m.Total() - m.Rows - outsideHeap, bound: m.Total() - outsideHeap}
	g.forget = time.AfterFunc(math.MaxInt64, g.forgotten)
	g.set()
	return g
}

// set tells the collector.
func (g *governor) set() {
	limit := g.fixed
	for _, n := range g.largest {
		limit += n
	}
	debug.SetMemoryLimit(min(limit, max(g.bound, g.fixed)))
}

// large returns what a destination's reader tells of large events, each of which counts factor times.
func (g *governor) large(factor int64) func(size int) {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	i := len(g.largest)
	g.largest = append(g.largest, 0)
	g.mu.Unlock()
	return func(size int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.stopped {
			return
		}
		if n := factor * int64(size); n > g.largest[i] {
			g.largest[i] = n
			g.set()
		}
		g.forget.Reset(forgetAfter)
	}
}

// forgotten gives the memory of large rows back.
func (g *governor) forgotten() {
	debug.FreeOSMemory()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	// Rows that wait for their broker still live: a limit below them would keep the collector busy for nothing.
	if live := liveHeap(); live > uint64(g.fixed/2) {
		g.forget.Reset(forgetAfter)
		return
	}
	clear(g.largest)
	g.set()
}

// stop ends what the governor does by itself.
func (g *governor) stop() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.forget.Stop()
	debug.SetMemoryLimit(math.MaxInt64)
}

// liveHeap is what the last collection found in use.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}

// memory shows what memory is bounded by, and whether the machine has it.
func (c *checker) memory(cfg *config.Config, root string) {
	c.section("memory")
	m := cfg.MemoryBound()
	c.add(sink.Finding{What: "bounded at " + m.String()})
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		c.add(sink.Finding{What: fmt.Sprintf("destination %s takes rows of up to %d MiB as logged, %d times which is reserved for them", d.Name, d.Source.MaxEvent>>20, d.RowFactor())})
		if int64(d.Source.MaxEvent) < binlog.LargeEvent {
			c.add(sink.Finding{Severity: sink.SeverityWarning, What: fmt.Sprintf("a row, or a transaction that the server compresses, of more than %d MiB stops destination %s", d.Source.MaxEvent>>20, d.Name),
				Remedy: "raise source.max_event, or memory where it is given"})
		}
	}
	have, where, err := machineMemory(root)
	switch {
	case err != nil:
		c.add(sink.Finding{Severity: sink.SeverityWarning, What: "how much memory there is cannot be read: " + err.Error()})
	case m.Total() > have:
		c.add(sink.Finding{Severity: sink.SeverityWarning, What: fmt.Sprintf("%s has %d MiB only", where, have>>20),
			Remedy: fmt.Sprintf("set memory: %dMiB, which lowers source.max_event, the largest row accepted; or lower that one, ring.bytes or window", have*3/4>>20)})
	}
}

// machineMemory returns the memory that the process may use, and who says so. root is the file system's.
func machineMemory(root string) (have int64, where string, err error) {
	f, err := os.Open(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
			if err != nil {
				return 0, "", fmt.Errorf("/proc/meminfo: %w", err)
			}
			have, where = kib<<10, "the machine"
		}
	}
	if have == 0 {
		return 0, "", errors.New("/proc/meminfo has no MemTotal")
	}
	for _, name := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, "", err
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < have { // "max": no limit
			have, where = n, "the control group"
		}
	}
	return have, where, nil
}
