package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestExport: cursors that are taken elsewhere, or back, come to the numbers that they had (I5), or are refused.
func TestExport(t *testing.T) {
	ctx := context.Background()
	table := items(t)
	begin := func() (*box, *Log) {
		b := newBox()
		l := fresh(b)
		must(t, l.Order(ctx, Request{ID: "one"}))
		b.cursors["a"] = 5
		must(t, l.Append(ctx, chunkAt(table, "one", 10, "x")))
		must(t, l.Append(ctx, chunkAt(table, "one", 20, strings.Repeat("y", 100))))
		return b, l
	}
	export := func(k Keeper) []Document {
		docs, err := Export(ctx, k)
		must(t, err)
		again, err := Export(ctx, k)
		must(t, err)
		if !reflect.DeepEqual(docs, again) {
			t.Fatal("not the same")
		}
		for i := range docs { // as a file has it
			docs[i].Data, err = json.MarshalIndent(docs[i].Data, "", "  ")
			must(t, err)
		}
		return docs
	}
	at := func(l *Log, ordinal int64, want string) {
		t.Helper()
		c, err := l.At(ctx, ordinal, "c")
		must(t, err)
		if got := ""; c != nil {
			if got = string(c.Parts[0].Raw); got != want {
				t.Errorf("%q instead of %q", got, want)
			}
		} else if want != "" {
			t.Errorf("nothing instead of %q", want)
		}
	}
	if docs := export(newBox()); docs != nil {
		t.Error(docs)
	}
	y := strings.Repeat("y", 100)
	b, l := begin()
	docs := export(b)
	for name, to := range map[string]func() *box{
		"an empty store": newBox,
		"a store with what others have left": func() *box {
			o, l := begin()
			must(t, l.Append(ctx, chunkAt(table, "one", 200, "z")))
			clear(o.cursors)
			return o
		},
		"the same store": func() *box { return b },
	} {
		o := to()
		l := fresh(o)
		must(t, l.Import(ctx, docs, 5))
		o.cursors["a"] = 5
		for range 2 {
			at(l, 10, "x")
			at(l, 20, y)
			at(l, 200, "")
			if _, p, ok := l.Current(); !ok || p.Last[0] != y {
				t.Fatal(name, p)
			}
			l = fresh(o)
		}
		for _, n := range o.names() {
			if strings.HasPrefix(n, "snapshot-3") || strings.HasPrefix(n, "snapshot-4") {
				t.Error(name, n)
			}
		}
	}
	// A chunk is gone, or has come.
	b.cursors["a"] = 12
	must(t, l.Release(ctx))
	must(t, l.Release(ctx))
	must(t, fresh(b).Import(ctx, docs, 5)) // which brings it back
	b.cursors["a"] = 5
	l = fresh(b)
	at(l, 10, "x")
	at(l, 20, y)
	must(t, l.Append(ctx, chunkAt(table, "one", 130, "z")))
	if err := l.Import(ctx, docs, 5); err == nil || !strings.Contains(err.Error(), "destination shop: chunks of snapshots were read since behind the place of the cursors, up to ordinal 132") {
		t.Error(err)
	}
	if err := l.Import(ctx, nil, 5); err == nil {
		t.Error("older cursors are taken")
	}
	must(t, l.Import(ctx, nil, 132)) // behind all
	// Cursors of before a move.
	above, err := l.Rewind(ctx)
	must(t, err)
	b.cursors["a"] = above
	must(t, l.Rewound(ctx))
	must(t, l.Import(ctx, nil, 7))
	b.cursors["a"] = 7
	if at, err := l.Floor(ctx); err != nil || at != 0 {
		t.Error(at, err)
	}
	// What is damaged is not taken.
	for i := range docs {
		bad := slices.Clone(docs)
		bad[i].Data = json.RawMessage(`{"format":7}`)
		o := newBox()
		if err := fresh(o).Import(ctx, bad, 5); !errors.Is(err, ErrDamaged) || len(o.names()) != 0 {
			t.Error(docs[i].Name, err, o.names())
		}
	}
	if err := fresh(newBox()).Import(ctx, []Document{{Name: "snapshot"}}, 5); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}
