package kafka

import (
	"log/slog"
	"testing"
)

// TestOneBatchAloneI4: until the broker has acknowledged a batch, in a new session, after an error and after a lane has been
// synchronised, nothing follows the batch that is on its way. A broker that knows nothing of a producer takes any sequence, so that a second
// batch would be stored though the first was lost.
func TestOneBatchAloneI4(t *testing.T) {
	for _, sequenced := range []bool{false, true} {
		ses := &session{s: &Sink{o: Options{RequestsInFlight: 5}}}
		b := &broker{ses: ses}
		b.pipe = &pipe{b: b}
		l := &lane{ses: ses, broker: b, t: &topic{name: "t"}}
		synchronised := func() {
			if sequenced {
				l.seq = &sequence{on: b.pipe}
			}
		}
		synchronised()
		for range 8 {
			l.queue.push(entry{})
		}
		alone := func(when string) {
			t.Helper()
			if !l.sendable() {
				t.Fatalf("sequenced %t: %s nothing is sent", sequenced, when)
			}
			l.inflight = 1
			if l.sendable() {
				t.Errorf("sequenced %t: %s a second batch follows the first", sequenced, when)
			}
		}
		alone("at first")
		l.answered(false)
		l.inflight = 1
		if !l.sendable() {
			t.Errorf("sequenced %t: one by one although the broker has acknowledged", sequenced)
		}
		l.inflight = 2
		l.answered(true)
		if l.sendable() {
			t.Errorf("sequenced %t: a batch follows while one behind the failed one is on its way", sequenced)
		}
		l.answered(false)
		synchronised()
		alone("after an error")
		if !sequenced {
			continue
		}
		l.answered(false)
		l.seq = &sequence{c: &counter{}, running: true} // as on a new connection, which is no error
		ses.s.book, ses.s.o.Logger = &book{}, slog.New(slog.DiscardHandler)
		if _, err := ses.apply(b.pipe, l, search{}, verdict{outcome: found}); err != nil {
			t.Fatal(err)
		}
		alone("once it is synchronised")
	}
}
