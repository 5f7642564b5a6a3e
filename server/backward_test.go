package server

import (
	"errors"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// TestTheCursorDoesNotMoveBack proves I2: a stream that counts lower than the cursor ends in an error, not in a lower cursor.
func TestTheCursorDoesNotMoveBack(t *testing.T) {
	c := newCore("d", 16, 1<<20)
	f := c.newFeed(nil, event.Cursor{Ordinal: 10})
	txn := &event.Txn{}
	events := []*event.Event{{Kind: event.Begin, Txn: txn}, {Kind: event.Rows, Ordinal: 11, Rows: 2, Txn: txn}, {Kind: event.End, Ordinal: 13, Txn: txn}}
	if n, err := f.ring.Put(events); n != len(events) || err != nil {
		t.Fatal(n, err)
	}
	s := newSub(Identity{Destination: "d", Client: "1001"})
	s.feed, s.rd = f, f.ring.Attach(0)
	f.ring.Take(s.rd, f.ring.Next())
	s.cursor = event.Cursor{Ordinal: 20} // ahead of what the ring holds
	if _, err := s.move(f.ring.Next()); !errors.Is(err, errBackward) {
		t.Errorf("error %v, want %v", err, errBackward)
	}
	if s.cursor.Ordinal != 20 {
		t.Errorf("the cursor moved to %d", s.cursor.Ordinal)
	}
}
