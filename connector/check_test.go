package connector

import (
	"strings"
	"testing"
)

// I9: check tells of rows that clients can write and the destination does not accept.
func TestCheckComparesSizes(t *testing.T) {
	for _, c := range []struct {
		packet string
		limit  int
		warn   bool
	}{
		{"67108864", 256 << 20, false}, {"67108864", 64 << 20, false}, {"67108864", 63 << 20, true}, {"1073741824", 0, false}, {"", 1 << 20, false},
	} {
		k := &checker{c: &Connector{opt: Options{MaxEvent: c.limit}}, sv: &server{vars: map[string]string{"max_allowed_packet": c.packet}}}
		k.sizes()
		if warned := len(k.found) == 1 && k.found[0].Severity == Warning && strings.Contains(k.found[0].Remedy, "source.max_event to 64MiB"); warned != c.warn || !c.warn && len(k.found) > 0 {
			t.Errorf("packet %q, limit %d: %+v", c.packet, c.limit, k.found)
		}
	}
}
