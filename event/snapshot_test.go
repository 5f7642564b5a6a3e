package event

import "testing"

func TestSnapshotText(t *testing.T) {
	for _, s := range []Snapshot{{ID: "s", Chunk: 1}, {ID: "a/2", Chunk: 1 << 62}, {ID: " ", Chunk: 10}} {
		got, err := ParseSnapshot(s.String())
		if err != nil || got.ID != s.ID || got.Chunk != s.Chunk {
			t.Errorf("%q: %+v, %v", s.String(), got, err)
		}
	}
	for _, text := range []string{"", "/", "/1", "a", "a/", "a/0", "a/-1", "a/+1", "a/01", "a/1x", "a/ 1", "a/9223372036854775808"} {
		if s, err := ParseSnapshot(text); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add("start-1/7")
	f.Add("a//3")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSnapshot(text); err == nil && (s.String() != text || s.ID == "" || s.Chunk < 1) {
			t.Fatalf("%q: %+v", text, s)
		}
	})
}

func TestSnapshotFor(t *testing.T) {
	var none *Snapshot
	all, some := &Snapshot{ID: "s", Chunk: 1}, &Snapshot{ID: "s", Chunk: 1, Clients: []string{"a", "b"}}
	if !none.For("a") || !all.For("a") || !some.For("b") || some.For("c") {
		t.Error("wrong clients")
	}
	e := Event{}
	if e.Snapshot() != nil {
		t.Error("an event without transaction is of a snapshot")
	}
	if e.Txn = new(Txn); e.Snapshot() != nil {
		t.Error("an event of the log is of a snapshot")
	}
	if e.Txn.Snapshot = all; e.Snapshot() != all {
		t.Error("an event of a snapshot is not")
	}
}
