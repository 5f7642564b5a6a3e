package config

import (
	"fmt"
	"strings"
	"testing"
)

const memorySource = `
memory: %s
destinations:
  - name: a
    source: { address: "h:1", user: u%s }
    sinks: [{ name: s, file: { path: x } }%s]
`

// I9: what `memory` says bounds what the other settings make.
func TestMemoryIsDividedUp(t *testing.T) {
	for _, c := range []struct {
		memory, event, sinks string
		want                 int64 // source.max_event
		fault                string
	}{
		{"4GiB", "", "", 256 << 20, ""},
		{"1184MiB", "", "", 128 << 20, ""},
		{"1184MiB", ", max_event: 16MiB", "", 16 << 20, ""},
		{"1184MiB", ", max_event: 256MiB", "", 0, "memory: 1184 MiB is not enough"},
		{"128MiB", "", "", 0, "memory: 128 MiB is not enough"},
		{"1280MiB", "", ", { name: t, file: { path: y } }", 85 << 20, ""},
	} {
		cfg, err := Parse(fmt.Appendf(nil, memorySource, c.memory, c.event, c.sinks), env(nil))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if got := int64(cfg.Destinations[0].Source.MaxEvent); got>>20 != c.want>>20 {
			t.Errorf("%+v: max_event %d MiB", c, got>>20)
		}
		if m := cfg.MemoryBound(); m.Total() > int64(cfg.Memory) {
			t.Errorf("%+v: %v", c, m)
		}
	}
}

// I9: without `memory` the bound is at least eight times the largest row.
func TestMemoryBoundWithoutNumber(t *testing.T) {
	cfg, err := Parse([]byte(strings.Replace(fmt.Sprintf(memorySource, "1GiB", "", ""), "memory: 1GiB", "", 1)), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if m := cfg.MemoryBound(); m.Rows != 8*256<<20 || m.Rings != 32<<20 || m.Windows != 32<<20 || m.Total() <= m.Rows {
		t.Errorf("%v", m)
	}
}
