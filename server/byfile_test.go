package server

import (
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// TestCursorLearnsThatItIsByFileI5: a cursor without GTIDs in a stream that is counted by file and offset says so from its next transaction end on, also
// if it was saved by a version that did not note it, and for good; no other one does.
func TestCursorLearnsThatItIsByFileI5(t *testing.T) {
	set, err := event.ParseGTIDSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what         string
		gtids        event.GTIDSet
		was, by, now bool
	}{
		{"saved before it was noted", event.GTIDSet{}, false, true, true},
		{"noted", event.GTIDSet{}, true, true, true},
		{"noted stays", event.GTIDSet{}, true, false, true},
		{"a log without GTIDs where they are read", event.GTIDSet{}, false, false, false},
		{"with GTIDs", set, false, true, false},
	} {
		cur := event.Cursor{Position: event.Position{File: "binlog.000001", Offset: 4, GTIDs: c.gtids.Clone(), ByFile: c.was}}
		moveTo(&cur, &event.Event{Kind: event.End, Ordinal: 1, File: "binlog.000002", Next: 126, Txn: &event.Txn{ByFile: c.by}})
		if cur.Position.ByFile != c.now || cur.Position.File != "binlog.000002" {
			t.Errorf("%s: %+v", c.what, cur.Position)
		}
	}
}
