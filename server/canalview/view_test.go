package canalview

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/event"
)

func TestWithoutEmpty(t *testing.T) {
	kinds := map[rune]event.Kind{'b': event.Begin, 'r': event.Rows, 'd': event.DDL, 'e': event.End}
	for in, want := range map[string]string{
		"": "", "be": "be", "bebe": "be", "bebebe": "be", "bre": "bre", "brebe": "bre", "bebre": "bre", "bebrebebdebe": "brebde",
		"b": "b", "e": "e", "ebe": "e", "beb": "b", "rebeb": "reb", "rrebebr": "rrebr",
	} {
		var events []*event.Event
		for _, k := range in {
			events = append(events, &event.Event{Kind: kinds[k]})
		}
		got := ""
		for _, e := range WithoutEmpty(events) {
			got += e.Kind.String()[:1]
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		if len(events) > 0 && events[0].Kind != kinds[rune(in[0])] {
			t.Errorf("%q: the events given were changed", in)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
