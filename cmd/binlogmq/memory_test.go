package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/config"
)

func boundedConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(`
destinations:
  - name: a
    source: { address: "h:1", user: u, max_event: 100MiB }
    sinks: [{ name: s, file: { path: x } }]
`), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// I9: check warns where the machine, or its control group, has less than the bound.
func TestCheckComparesMemory(t *testing.T) {
	cfg := boundedConfig(t)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		warn  int
	}{
		"enough":      {map[string]string{"proc/meminfo": "MemTotal:       16000000 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, "bounded at 960 MiB", 0},
		"machine":     {map[string]string{"proc/meminfo": "MemFree: 1 kB\nMemTotal:       512000 kB\n"}, "the machine has 500 MiB only", 1},
		"cgroup v2":   {map[string]string{"proc/meminfo": "MemTotal:       16000000 kB\n", "sys/fs/cgroup/memory.max": "268435456\n"}, "set memory: 192MiB", 1},
		"cgroup v1":   {map[string]string{"proc/meminfo": "MemTotal:       16000000 kB\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, "the control group has 256 MiB only", 1},
		"no meminfo":  {nil, "cannot be read", 1},
		"bad meminfo": {map[string]string{"proc/meminfo": "MemTotal: x kB\n"}, "cannot be read", 1},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		k := &checker{out: &out}
		k.memory(cfg, root)
		if !strings.Contains(out.String(), c.want) || k.warnings != c.warn || k.errors != 0 {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// I9: the collector's limit follows the largest row of late, up to the bound, and down again.
func TestGovernorFollowsTheLargestRow(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	limit := func() int64 { return debug.SetMemoryLimit(-1) }
	before := limit()
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	cfg := boundedConfig(t)
	g := newGovernor(cfg)
	low := limit()
	f := g.large(cfg.Destinations[0].RowFactor())
	f(50 << 20)
	if got := limit(); got != low+8*50<<20 {
		t.Errorf("limit %d MiB above %d MiB with a row of 50 MiB", got>>20, low>>20)
	}
	f(20 << 20)
	g.large(12)(10 << 20) // another destination, with two sinks
	if got := limit(); got != low+(8*50+12*10)<<20 {
		t.Errorf("limit %d MiB above %d MiB with rows of 50 and 10 MiB", got>>20, low>>20)
	}
	f(1000 << 20)
	if m := cfg.MemoryBound(); limit() != m.Total()-outsideHeap {
		t.Errorf("limit %d MiB, the bound is %v", limit()>>20, m)
	}
	g.forgotten()
	if got := limit(); got != low {
		t.Errorf("limit %d MiB after all is forgotten, was %d", got>>20, low>>20)
	}
	g.stop()
	f(50 << 20)
	if got := limit(); got < 1<<60 {
		t.Errorf("limit %d MiB after the end", got>>20)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	if newGovernor(cfg).large(8) != nil {
		t.Error("the governor overrides GOMEMLIMIT")
	}
}
