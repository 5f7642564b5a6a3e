package store

import (
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// TestAckStaysWithinWhatWasHandedOut proves I2: a reader can neither take back an acknowledgement nor
// acknowledge what it was not given.
func TestAckStaysWithinWhatWasHandedOut(t *testing.T) {
	panics := func(f func()) (caught bool) {
		defer func() { caught = recover() != nil }()
		f()
		return false
	}
	m := &maker{}
	r := New(8, 1<<20, start(0))
	if n, err := r.Put([]*event.Event{m.begin(), m.rows(2, 10), m.end()}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	keep, rd := r.Attach(0), r.Attach(0)
	r.Take(rd, 2)
	if !panics(func() { r.Ack(rd, 3) }) {
		t.Error("an event that was not handed out is acknowledged")
	}
	r.Ack(rd, 2)
	if !panics(func() { r.Ack(rd, 1) }) {
		t.Error("an acknowledgement is taken back")
	}
	if !panics(func() { r.Take(rd, 1) }) {
		t.Error("what is acknowledged is handed out again")
	}
	r.Detach(keep)
}
