package main

import (
	"context"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

// TestNewLife: the cursor stays where it is, asks before it changes anything, and tells the bridge to begin anew.
func TestNewLife(t *testing.T) {
	config, dir := settings(t)
	id := meta.Identity{Destination: "shop", Client: "sink-out"}
	text, err := (&bridge.State{Version: 1, Epoch: 3, Offset: 2 << 32, Fingerprint: "x", Sink: []byte{1, 2}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	at := func(r *meta.Record) meta.Record {
		t.Helper()
		store, err := file.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if r != nil {
			err = store.Save(context.Background(), id, r)
		} else {
			r, err = store.Load(context.Background(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		return *r
	}
	at(&meta.Record{Cursor: event.Cursor{Position: event.Position{File: "binlog.000007", Offset: 4711}, Ordinal: 12, Progress: 3, State: text}})
	args := []string{"cursor", "new-life", "-c", config, "--destination", "shop", "--sink", "out"}
	if code, out, errs := call(t, "no\n", args...); code != 1 || !strings.Contains(out, "binlog.000007:4711") || !strings.Contains(errs, "nothing was changed") {
		t.Errorf("refused: %d\n%s%s", code, out, errs)
	}
	if r := at(nil); string(r.Cursor.State) != string(text) {
		t.Errorf("state %s after a refusal", r.Cursor.State)
	}
	if code, out, errs := call(t, "yes\n", args...); code != 0 {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	r := at(nil)
	st, err := bridge.ParseState(r.Cursor.State)
	if err != nil || st.Fingerprint != bridge.MovedFingerprint || st.Epoch != 3 || string(st.Sink) != "\x01\x02" || r.Cursor.Ordinal != 12 || r.Cursor.Progress != 3 {
		t.Errorf("%+v, %v, cursor %+v", st, err, r.Cursor)
	}
	if code, _, errs := call(t, "", "cursor", "new-life", "-c", config, "--destination", "shop", "--sink", "nobody"); code != 2 || !strings.Contains(errs, `no sink "nobody"; there are out, other`) {
		t.Errorf("unknown sink: %d %s", code, errs)
	}
}
