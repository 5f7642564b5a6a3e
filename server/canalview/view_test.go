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

// FuzzWithoutEmpty: nothing but pairs of a Begin and the End behind it is left out, and never everything.
func FuzzWithoutEmpty(f *testing.F) {
	f.Add([]byte{0, 3, 0, 1, 3, 0, 3})
	f.Fuzz(func(t *testing.T, kinds []byte) {
		var events []*event.Event
		for _, k := range kinds {
			events = append(events, &event.Event{Kind: event.Begin + event.Kind(k%4)})
		}
		got := WithoutEmpty(events)
		at := 0
		for i := 0; i < len(events); i++ {
			if at < len(got) && got[at] == events[i] {
				at++
				continue
			}
			if i+1 == len(events) || events[i].Kind != event.Begin || events[i+1].Kind != event.End {
				t.Fatalf("event %d of %v is missing", i, kinds)
			}
			i++
		}
		if at != len(got) || len(got) == 0 && len(events) > 0 {
			t.Fatalf("%d of %d events are left of %v", len(got), len(events), kinds)
		}
	})
}
