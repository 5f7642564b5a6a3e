package schema

import (
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// I5: whatever is found out, dropped, forgotten, or made anew later, the same rows are passed over.
func TestPassedOverStays(t *testing.T) {
	k := &box{}
	h := begun(k, 100, 100)
	src := &present{}
	look := func(h *History, at uint64) *View {
		src.at = place(at)
		return h.View(place(at), ViewOptions{Source: src, Server: srv})
	}
	passed := func(at uint64) bool {
		t.Helper()
		ok, err := look(h, at).passed(shopT, []byte("map"))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	check := func(what string, want ...uint64) {
		t.Helper()
		var got []uint64
		for at := uint64(100); at <= 900; at += 100 {
			if passed(at) {
				got = append(got, at)
			}
		}
		if len(got) != len(want) || len(got) > 0 && (got[0] != want[0] || got[len(got)-1] != want[len(want)-1]) {
			t.Errorf("%s: passed over at %d, not %d", what, got, want)
		}
	}
	save := func(read uint64) {
		t.Helper()
		if err := h.Save(t.Context(), place(read)); err != nil {
			t.Fatal(err)
		}
		h = NewHistory(k)
		if err := h.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A version from 200 that is forgotten: it is at 400 that its rows cannot be read, not before.
	if err := look(h, 100).Changed(said(200, "ALTER TABLE t ADD c INT")); err != nil {
		t.Fatal(err)
	}
	h.Forget(shopT)
	if ok, err := look(h, 400).passOver(shopT, []byte("map")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	save(400)
	check("decided", 400, 500, 600, 700, 800, 900)
	// Another definition is found at the same place, and one behind it.
	for _, at := range []uint64{400, 500} {
		here := place(at)
		look(h, at).remember(shopT, integer("a"), ddl.Known, &here)
	}
	check("readable", 400, 500, 600, 700, 800, 900)
	if s, d := look(h, 500).def(shopT); s != ddl.Known || len(d.Columns) != 1 {
		t.Error("other rows are not read by it")
	}
	// Compaction.
	k.cursors = []event.Position{place(500)}
	h.added = compactAfter
	save(500)
	check("compacted", 400, 500, 600, 700, 800, 900)
	// A statement within whose transaction rows follow ends it there.
	v := look(h, 600)
	if err := v.Changed(said(650, "ALTER TABLE t ADD d INT")); err != nil {
		t.Fatal(err)
	}
	if ok, _ := v.passed(shopT, []byte("map")); ok {
		t.Error("rows in the transaction of the statement are passed over")
	}
	check("ended", 400, 500, 600)
	save(700)
	// Made anew, as the statements are gone, or forgotten.
	h.begin(srv, place(300), place(900), map[ddl.Name]*ddl.Table{{Schema: "shop"}: {}, shopT: integer("a", "b")})
	check("anew", 400, 500, 600)
	if err := look(h, 300).Changed(said(350, "ALTER TABLE t ADD e INT")); err != nil {
		t.Fatal(err)
	}
	check("anew and read", 400, 500, 600)
	h.Forget(shopT)
	check("forgotten", 400, 500, 600)
	save(700)
	other := NewHistory(&box{})
	if any, err := other.Adopt(k.data); !any || err != nil {
		t.Fatal(any, err)
	}
	h = other
	check("on another machine", 400, 500, 600)
	h = begun(k, 100, 100)
	for range 2 {
		if any, err := h.Adopt(k.data); !any || err != nil {
			t.Fatal(any, err)
		}
	}
	check("where there is a history", 400, 500, 600)
	if len(h.decisions[shopT]) != 1 {
		t.Error("it is taken over twice")
	}
	// Without GTIDs nobody can tell on another server.
	src.at = place(500)
	src.at.ServerUUID = "another"
	if _, err := h.View(src.at, ViewOptions{Source: src, Server: srv}).passed(shopT, []byte("map")); err == nil {
		t.Error("the places of two servers are compared")
	}
	// Once no cursor needs it, it is dropped.
	k.cursors = []event.Position{place(650)}
	h.added = compactAfter
	save(700)
	if any, _ := h.PassesOver(shopT); any {
		t.Error("it is kept for ever")
	}
}

// I5: who comes later to rows that lie before those that another reader could read does not decide for these.
func TestPassedOverBehind(t *testing.T) {
	h := begun(&box{}, 100, 100)
	src := &present{at: place(500)}
	view := func() *View { return h.View(src.at, ViewOptions{Source: src, Server: srv}) }
	h.Forget(shopT)
	v := view()
	here := place(500)
	v.remember(shopT, integer("a"), ddl.Known, &here)
	src.at = place(200)
	if ok, err := view().passOver(shopT, []byte("map")); ok || err != nil {
		t.Error(ok, err)
	}
	u := ddl.Name{Schema: "shop", Table: "u"}
	src.at = place(300)
	if err := view().Changed(said(400, "CREATE TABLE u (a INT)")); err != nil {
		t.Fatal(err)
	}
	src.at = place(200)
	if ok, err := view().passOver(u, []byte("map")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for at, want := range map[uint64]bool{150: false, 200: true, 300: true, 400: false} {
		src.at = place(at)
		if ok, err := view().passed(u, []byte("map")); ok != want || err != nil {
			t.Errorf("at %d: %v, %v", at, ok, err)
		}
	}
}
