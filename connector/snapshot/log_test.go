package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// box is a Keeper in memory that dies: from its nth write on nothing is saved any more, and the nth may be saved all the same.
type box struct {
	mu      sync.Mutex
	docs    map[string][]byte
	cursors map[string]int64
	left    int  // writes before it dies; below 0: it lives
	saved   bool // the write that it dies of is saved
	writes  int
	damaged string // a document that the store cannot read
}

var errDead = errors.New("the store is dead")

func newBox() *box { return &box{docs: map[string][]byte{}, cursors: map[string]int64{}, left: -1} }

func (b *box) Destination() string { return "shop" }

func (b *box) Load(_ context.Context, name string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if name == b.damaged {
		return nil, Damaged("shop", name, errors.New("checksum"))
	}
	return b.docs[name], nil
}

// write tells whether a write is done, and its error.
func (b *box) write() (bool, error) {
	b.writes++
	if b.left < 0 {
		return true, nil
	}
	if b.left == 0 {
		return false, errDead
	}
	if b.left--; b.left == 0 {
		return b.saved, errDead
	}
	return true, nil
}

func (b *box) Save(_ context.Context, name string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, err := b.write()
	if done {
		if b.docs[name] = slices.Clone(data); data == nil {
			delete(b.docs, name)
		}
	}
	return err
}

func (b *box) Cursors(context.Context) (map[string]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.cursors), nil
}

// put saves a cursor.
func (b *box) put(client string, ordinal int64) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, err := b.write()
	if done {
		b.cursors[client] = ordinal
	}
	return done, err
}

func (b *box) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.docs))
}

func items(t testing.TB) *event.Table {
	t.Helper()
	table := &event.Table{Schema: "shop", Name: "items", Key: []int{0}, Columns: []event.Column{
		{Name: "id", Type: event.TypeLong}, {Name: "name", Type: event.TypeVarchar, Meta: 400, Nullable: true, Collation: 45, Charset: "utf8mb4", SQLType: "varchar(100)"},
		{Name: "kind", Type: event.TypeEnum, Meta: 1, Members: []string{"a", "ü"}},
	}}
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	return table
}

// chunkAt makes a chunk of rows, whose images are made of text, in parts of at most two.
func chunkAt(table *event.Table, request string, ordinal int64, rows ...string) *Chunk {
	c := &Chunk{Ordinal: ordinal, End: ordinal + int64(len(rows)) + 1, Counts: "c", Snapshot: &event.Snapshot{ID: request, Clients: []string{"a", "b"}}, ServerID: 7, Time: 1e15,
		Before: Progress{Request: request}, After: Progress{Request: request, Table: &Table{"shop", "items"}, Last: rows[len(rows)-1:]}, Table: table}
	for part := range slices.Chunk(rows, 2) {
		c.Parts = append(c.Parts, Part{Rows: len(part), Raw: []byte(strings.Join(part, ""))})
	}
	return c
}

func fresh(k Keeper) *Log {
	l := NewLog(k)
	l.grace = 0
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// TestLog: what is saved is there again after a start, byte for byte (I5), until all cursors have passed it.
func TestLog(t *testing.T) {
	ctx := context.Background()
	for name, k := range map[string]Keeper{"a keeper": newBox(), "memory": nil} {
		t.Run(name, func(t *testing.T) {
			b, _ := k.(*box)
			l := fresh(k)
			again := func() {
				t.Helper()
				if b != nil {
					l = fresh(b)
				}
			}
			if _, _, ok := l.Current(); ok || l.Last() != 0 {
				t.Fatal("something is ordered")
			}
			must(t, l.Order(ctx, Request{ID: "one", Tables: []string{"shop.*"}, Where: map[string]string{"shop.items": "id > 5"}, Reason: ReasonOrdered, At: time.Unix(9, 0).UTC()}))
			must(t, l.Order(ctx, Request{ID: "two", Clients: []string{"a"}}))
			must(t, l.Order(ctx, Request{ID: "one", Reason: ReasonLost}))
			again()
			if c, err := l.At(ctx, 10, "c"); c != nil || err != nil {
				t.Fatal(c, err)
			}
			r, p, ok := l.Current()
			if !ok || r.ID != "one" || r.Where["shop.items"] != "id > 5" || p.Request != "one" || p.Table != nil {
				t.Fatal(r, p, ok)
			}
			p.Table, p.Most = &Table{"shop", "items"}, []string{"99"}
			must(t, l.Advance(ctx, p))
			want := chunkAt(items(t), "one", 10, "x", "yy", "z")
			snap := want.Snapshot
			must(t, l.Append(ctx, want))
			if want.Snapshot.Chunk != 1 || snap.Chunk != 0 || want.Snapshot.ID != "one" {
				t.Fatalf("%+v, %+v", want.Snapshot, snap)
			}
			if b != nil {
				b.cursors["a"], b.cursors["b"] = 10, 12
			}
			big := make([]byte, 3*pieceBytes)
			rng := rand.NewChaCha8([32]byte{})
			_, _ = rng.Read(big)
			must(t, l.Append(ctx, chunkAt(items(t), "one", 14, string(big))))
			again()
			for range 2 {
				got, err := l.At(ctx, 10, "c")
				must(t, err)
				if got == nil || got.Table.Memory() != want.Table.Memory() || got.Rows() != 3 {
					t.Fatalf("%+v", got)
				}
				a, _ := json.Marshal(got)
				w, _ := json.Marshal(want)
				ta, _ := json.Marshal(got.Table)
				tw, _ := json.Marshal(want.Table)
				if !bytes.Equal(a, w) || !bytes.Equal(ta, tw) || fmt.Sprint(got.Parts) != fmt.Sprint(want.Parts) {
					t.Fatalf("%s\n%s\n%s\n%s", a, w, ta, tw)
				}
				got, err = l.At(ctx, 14, "c")
				must(t, err)
				if got == nil || !bytes.Equal(got.Parts[0].Raw, big) {
					t.Fatal("another chunk")
				}
				for _, o := range []int64{0, 9, 11, 13, 15, 16, 17} {
					if c, err := l.At(ctx, o, "c"); c != nil || err != nil {
						t.Fatal(o, c, err)
					}
				}
				if c, err := l.At(ctx, 10, "d"); c != nil || err != nil { // in another numbering it has no place
					t.Fatal(c, err)
				}
			}
			if _, p, _ = l.Current(); p.Step != 3 || p.Last[0] != string(big) && b == nil || l.Last() != 16 {
				t.Fatal(p.Step, l.Last())
			}
			if n, size := l.Pending(); n != 2 || size < int64(len(big)) {
				t.Fatal(n, size)
			}
			if err := l.Append(ctx, chunkAt(items(t), "two", 20, "x")); !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
			if err := l.Advance(ctx, Progress{Request: "two"}); !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
			if err := l.Append(ctx, chunkAt(items(t), "one", 15, "x")); err == nil || !strings.Contains(err.Error(), "ends at 16") {
				t.Fatal(err)
			}
			must(t, l.Finish(ctx, "one"))
			must(t, l.Finish(ctx, "one"))
			if r, p, ok := l.Current(); !ok || r.ID != "two" || p.Request != "two" || p.Last != nil || p.Step != 4 {
				t.Fatal(r, p, ok)
			}
			if err := l.Cancel(ctx, "three"); err == nil || !strings.Contains(err.Error(), `no snapshot "three" is ordered; those that are: [two]`) {
				t.Fatal(err)
			}
			must(t, l.Cancel(ctx, ""))
			must(t, l.Cancel(ctx, ""))
			again()
			must(t, l.Order(ctx, Request{ID: "two"}))
			if s := l.Status(); len(s.Queue) != 0 || s.Progress != nil || len(s.Ended) != 2 || s.Ended[0].Cancelled || !s.Ended[1].Cancelled || s.Chunks != 2 {
				t.Fatalf("%+v", s)
			}
			if b == nil {
				return
			}
			if l.Lacks(10) {
				t.Fatal("nothing is deleted")
			}
			must(t, l.Release(ctx))
			if s := l.Status(); s.Chunks != 2 || s.Waits != "a" {
				t.Fatalf("%+v", s)
			}
			b.cursors["a"] = 14
			for range 2 {
				must(t, l.Release(ctx))
				if n, _ := l.Pending(); n != 2 {
					t.Fatal(n) // the other one stands inside
				}
			}
			b.cursors["a"], b.cursors["b"] = 1<<40, 1<<40
			must(t, l.Release(ctx))
			if s := l.Status(); s.Chunks == 0 || s.Waits != "" {
				t.Fatalf("all have passed them: %+v", s)
			}
			b.cursors["a"], b.cursors["b"] = 14, 14
			must(t, l.Release(ctx))
			must(t, l.Release(ctx))
			if n, _ := l.Pending(); n != 1 || !l.Lacks(13) || l.Lacks(14) || l.Status().Waits != "a" {
				t.Fatal(n)
			}
			if c, err := l.At(ctx, 10, "c"); c != nil || err != nil {
				t.Fatal(c, err)
			}
			again()
			c, err := l.At(ctx, 14, "c")
			if err != nil || c.Snapshot.Chunk != 2 {
				t.Fatal(c, err)
			}
			b.cursors["a"], b.cursors["b"] = 16, 99
			must(t, l.Release(ctx))
			must(t, l.Release(ctx))
			again()
			must(t, l.Order(ctx, Request{ID: "four"}))
			must(t, l.Release(ctx))
			if got := b.names(); !slices.Equal(got, []string{"snapshot"}) {
				t.Fatal(got)
			}
			must(t, l.Append(ctx, chunkAt(items(t), "four", 20, "x")))
			if c, err := l.At(ctx, 20, "c"); err != nil || c.Snapshot.Chunk != 3 {
				t.Fatal(c, err)
			}
		})
	}
}

// TestGrace: a chunk is kept for a while after all cursors have passed it, as a subscription may just be beginning where they stood.
func TestGrace(t *testing.T) {
	ctx := context.Background()
	b := newBox()
	l := NewLog(b)
	must(t, l.Order(ctx, Request{ID: "one"}))
	must(t, l.Append(ctx, chunkAt(items(t), "one", 10, "x")))
	b.cursors["a"] = 12
	must(t, l.Release(ctx))
	if n, _ := l.Pending(); n != 1 {
		t.Fatal("deleted at once")
	}
	b.cursors["b"] = 10
	l.passed.at = l.passed.at.Add(-time.Hour)
	must(t, l.Release(ctx))
	if n, _ := l.Pending(); n != 1 {
		t.Fatal("a new cursor is overlooked")
	}
	b.cursors["b"] = 12
	l.passed.at = l.passed.at.Add(-time.Hour)
	must(t, l.Release(ctx)) // looks since when
	l.passed.at = l.passed.at.Add(-time.Hour)
	must(t, l.Release(ctx))
	if n, _ := l.Pending(); n != 0 {
		t.Fatal(n)
	}
}

// TestSweep: many chunks that all have passed at once count no more at once, and their documents go little by little, whatever process runs.
func TestSweep(t *testing.T) {
	ctx := context.Background()
	b := newBox()
	l := fresh(b)
	must(t, l.Order(ctx, Request{ID: "one"}))
	table := items(t)
	for i := range int64(3 * sweepAtOnce) {
		must(t, l.Append(ctx, chunkAt(table, "one", 2*i, "x")))
	}
	b.cursors["a"] = 1 << 20
	left := len(b.names())
	for range 3 {
		must(t, l.Release(ctx))
		if n, size := l.Pending(); n != 0 || size != 0 {
			t.Fatal(n, size)
		}
		if n := len(b.names()); n != left-2*sweepAtOnce {
			t.Fatalf("%d documents of %d are left", n, left)
		}
		left = len(b.names())
		must(t, l.Order(ctx, Request{ID: fmt.Sprint("more", left)})) // saves how far it is
		l = fresh(b)
	}
	must(t, l.Release(ctx))
	if got := b.names(); !slices.Equal(got, []string{"snapshot"}) {
		t.Fatal(got)
	}
}

// TestRewind: where cursors move nothing stays of the place of before, and what was not passed by all is read again.
func TestRewind(t *testing.T) {
	ctx := context.Background()
	table := items(t)
	begin := func(t *testing.T) (*box, *Log) {
		b := newBox()
		l := fresh(b)
		for _, id := range []string{"one", "two", "three"} {
			must(t, l.Order(ctx, Request{ID: id}))
		}
		b.cursors["a"], b.cursors["b"] = 0, 0
		add := func(ordinal int64, request, row string, before ...string) {
			c := chunkAt(table, request, ordinal, row)
			c.Before.Last = before
			must(t, l.Append(ctx, c))
		}
		add(10, "one", "k")
		add(20, "one", "l", "k")
		must(t, l.Finish(ctx, "one"))
		add(30, "two", "m")
		must(t, l.Cancel(ctx, "two"))
		add(40, "three", "n")
		return b, l
	}
	ids := func(l *Log) (ids []string) {
		for _, r := range l.Status().Queue {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		a, b  int64
		queue string
		last  string // of the progress
	}{
		"all passed":         {42, 50, "[three]", "[n]"},
		"one is inside":      {41, 50, "[three]", "[]"},
		"of the cancelled":   {30, 50, "[three]", "[]"},
		"of the finished":    {20, 50, "[one three]", "[k]"},
		"none passed":        {10, 11, "[one three]", "[]"},
		"the cancelled only": {32, 50, "[three]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			b, l := begin(t)
			b.cursors["a"], b.cursors["b"] = c.a, c.b
			_, was, _ := l.Current()
			above, err := l.Rewind(ctx)
			must(t, err)
			if above != max(c.b, 42)+1 {
				t.Fatal(above)
			}
			b.cursors["a"], b.cursors["b"] = above, above+3
			must(t, l.Rewound(ctx))
			for range 2 {
				_, p, _ := l.Current()
				if n, _ := l.Pending(); fmt.Sprint(ids(l)) != c.queue || fmt.Sprint(p.Last) != c.last || p.Step <= was.Step || n != 0 {
					t.Fatal(ids(l), p, n)
				}
				must(t, l.Release(ctx))
				if got := b.names(); !slices.Equal(got, []string{"snapshot"}) {
					t.Fatal(got)
				}
				l = fresh(b)
				must(t, l.Advance(ctx, Progress{Request: l.must(t), Last: p.Last}))
				was.Step = 0
			}
			if l.Lacks(c.a) || l.Lacks(above) {
				t.Error("a place of before counts")
			}
			for ordinal, want := range map[int64]bool{c.a: true, above: false} {
				if got, err := l.Holds(ctx, ordinal); err != nil || got != want {
					t.Error(ordinal, got, err)
				}
			}
			// Cursors that were left in the numbering of before hold nothing back.
			b.cursors["c"] = 1
			must(t, l.Append(ctx, chunkAt(table, l.must(t), above+3, "o")))
			b.cursors["a"], b.cursors["b"] = above+5, above+5
			must(t, l.Release(ctx))
			must(t, l.Release(ctx))
			if n, _ := l.Pending(); n != 0 {
				t.Error("kept")
			}
		})
	}
	t.Run("no cursor was moved", func(t *testing.T) {
		b, l := begin(t)
		b.cursors["a"], b.cursors["b"] = 10, 50
		_, err := l.Rewind(ctx)
		must(t, err)
		l = fresh(b)
		if c, err := l.At(ctx, 20, "c"); err != nil || c == nil {
			t.Fatal(c, err)
		}
		b.cursors["a"] = 1000 // later, in the stream
		l = fresh(b)
		if c, err := l.At(ctx, 20, "c"); err != nil || c == nil {
			t.Fatal(c, err)
		}
	})
	t.Run("one cursor was moved", func(t *testing.T) {
		b, l := begin(t)
		b.cursors["a"], b.cursors["b"] = 10, 50
		above, err := l.Rewind(ctx)
		must(t, err)
		b.cursors["a"] = above // the one that had passed nothing
		l = fresh(b)
		if c, err := l.At(ctx, 10, "c"); err != nil || c != nil {
			t.Fatal(c, err)
		}
		if fmt.Sprint(ids(l)) != "[one three]" {
			t.Fatal(ids(l))
		}
		if above, err := l.Rewind(ctx); err != nil || above != 0 {
			t.Fatal(above, err)
		}
	})
	t.Run("all cursors were deleted", func(t *testing.T) {
		b, _ := begin(t)
		clear(b.cursors)
		l := fresh(b)
		if c, err := l.At(ctx, 10, "c"); err != nil || c != nil {
			t.Fatal(c, err)
		}
		if _, p, _ := l.Current(); fmt.Sprint(ids(l)) != "[three]" || p.Last != nil || len(l.Status().Ended) != 0 {
			t.Fatal(ids(l), p)
		}
	})
	t.Run("all cursors are deleted meanwhile", func(t *testing.T) {
		_, l := begin(t)
		if at, err := l.Floor(ctx); err != nil || at != 42 {
			t.Fatal(at, err)
		}
		if at, err := fresh(newBox()).Floor(ctx); err != nil || at != 0 {
			t.Fatal(at, err)
		}
	})
	t.Run("another numbering", func(t *testing.T) {
		b, l := begin(t)
		b.cursors["a"], b.cursors["b"] = 22, 50
		must(t, l.Recount(ctx, "c"))
		if n, _ := l.Pending(); n != 4 {
			t.Fatal(n)
		}
		c := chunkAt(table, "three", 60, "x")
		c.Counts = "d"
		if err := l.Append(ctx, c); !errors.Is(err, ErrEnded) {
			t.Fatal(err)
		}
		if _, _, ok := l.Current(); ok {
			t.Fatal("it goes on")
		}
		must(t, l.Recount(ctx, "d"))
		if _, p, ok := l.Current(); !ok || p.Last != nil || l.Last() != 0 {
			t.Fatal(p, l.Last())
		}
		must(t, l.Append(ctx, c))
		b.cursors["a"], b.cursors["b"] = 62, 62
		must(t, l.Release(ctx))
		must(t, l.Release(ctx))
		if n, _ := l.Pending(); n != 0 {
			t.Fatal(n)
		}
	})
}

// must returns the id of the current request.
func (l *Log) must(t *testing.T) string {
	t.Helper()
	if _, err := l.open(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, _, ok := l.Current()
	if !ok {
		t.Fatal("nothing is ordered")
	}
	return r.ID
}

// TestDamaged: whatever document is damaged, the error says which, of what destination, and what to do (I3); Reset helps.
// TestAgain: which tables must be read again is not forgotten, and no progress counts that does not know of it (I3).
func TestAgain(t *testing.T) {
	ctx := context.Background()
	b := newBox()
	l := fresh(b)
	must(t, l.Order(ctx, Request{ID: "one"}))
	must(t, l.Order(ctx, Request{ID: "two"}))
	b.cursors["a"] = 0
	table := items(t)
	must(t, l.Append(ctx, chunkAt(table, "one", 10, "k")))
	_, stale, _ := l.Current()
	if err := l.Again(ctx, "two", []Table{{"shop", "x"}}, false); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	must(t, l.Again(ctx, "one", []Table{{"shop", "x"}}, false))
	must(t, l.Again(ctx, "one", []Table{{"shop", "ITEMS"}, {"shop", "x"}}, false))
	if err := l.Advance(ctx, stale); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	if err := l.Append(ctx, chunkAt(table, "one", 20, "l")); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	look := func(l *Log) {
		t.Helper()
		must(t, l.Release(ctx))
		_, p, ok := l.Current()
		if !ok || p.Table != nil || p.Last != nil || fmt.Sprint(p.Again) != "[{shop x} {shop ITEMS}]" || p.Noted != 2 || p.Step <= stale.Step {
			t.Fatalf("%+v", p)
		}
	}
	look(l)
	look(fresh(b))
	// The same where chunks lose their place and are read again.
	above, err := l.Rewind(ctx)
	must(t, err)
	b.cursors["a"] = above
	must(t, l.Rewound(ctx))
	look(l)
	must(t, l.Again(ctx, "one", nil, true))
	if _, p, _ := l.Current(); p.Of != ofNothing || p.Again != nil {
		t.Fatalf("%+v", p)
	}
	// It is bounded.
	must(t, l.Advance(ctx, Progress{Request: "one", Of: "all", Noted: 3}))
	for n := range maxAgain + 1 {
		must(t, l.Again(ctx, "one", []Table{{"shop", fmt.Sprint(n)}}, false))
	}
	if _, p, _ := l.Current(); p.Of != ofNothing || p.Again != nil {
		t.Fatalf("%+v", p)
	}
}

func TestDamaged(t *testing.T) {
	ctx := context.Background()
	begin := func() *box {
		b := newBox()
		l := fresh(b)
		must(t, l.Order(ctx, Request{ID: "one"}))
		must(t, l.Append(ctx, chunkAt(items(t), "one", 10, "x")))
		must(t, l.Append(ctx, chunkAt(items(t), "one", 20, "y")))
		b.cursors["a"] = 5
		return b
	}
	other := begin()
	for _, name := range begin().names() {
		for how, damage := range map[string]func([]byte) []byte{
			"cut":     func(d []byte) []byte { return d[:len(d)/2] },
			"empty":   func([]byte) []byte { return []byte{} },
			"no JSON": func([]byte) []byte { return []byte("\x00") },
			"null":    func([]byte) []byte { return []byte("null") },
			"more":    func(d []byte) []byte { return append(d, "{}"...) },
			"unknown": func(d []byte) []byte { return bytes.Replace(d, []byte(`{"`), []byte(`{"new":1,"`), 1) },
			"format":  func(d []byte) []byte { return bytes.Replace(d, []byte(`"format":1`), []byte(`"format":2`), 1) },
			"first":   func(d []byte) []byte { return bytes.Replace(d, []byte(`"first":1`), []byte(`"first":0`), 1) },
			"ordinal": func(d []byte) []byte { return bytes.Replace(d, []byte(`"ordinal":`), []byte(`"ordinal":-`), 1) },
			"pieces":  func(d []byte) []byte { return bytes.Replace(d, []byte(`"pieces":1`), []byte(`"pieces":2`), 1) },
			"size":    func(d []byte) []byte { return bytes.Replace(d, []byte(`"size":`), []byte(`"size":1`), 1) },
			"no size": func(d []byte) []byte { return bytes.Replace(d, []byte(`"size":`), []byte(`"size":-`), 1) },
			"request": func(d []byte) []byte {
				return bytes.Replace(d, []byte(`"request":"one"`), []byte(`"request":"two"`), 1)
			},
			"queue":     func(d []byte) []byte { return bytes.Replace(d, []byte(`"id":"one"`), []byte(`"id":""`), 1) },
			"bit":       func(d []byte) []byte { d = slices.Clone(d); d[len(d)*2/3] ^= 1; return d },
			"of other":  func([]byte) []byte { return other.docs[headName(1)] },
			"the store": nil,
		} {
			b := begin()
			if damage == nil {
				b.damaged = name
			} else {
				was := b.docs[name]
				if b.docs[name] = damage(slices.Clone(was)); bytes.Equal(was, b.docs[name]) {
					continue
				}
			}
			l := fresh(b)
			err := l.Load(ctx)
			for o := int64(10); err == nil && o <= 20; o += 10 {
				_, err = l.At(ctx, o, "c")
			}
			var stop *binlog.StopError
			if err == nil && strings.HasPrefix(name, headName(1)) && how == "of other" {
				continue // it counts nowhere: another life
			}
			if !errors.Is(err, ErrDamaged) || !errors.As(err, &stop) {
				if how == "bit" && err == nil {
					continue // in a name
				}
				t.Errorf("%s %s: %v", name, how, err)
				continue
			}
			if s := err.Error(); !strings.Contains(s, name[:len("snapshot")]) || !strings.Contains(s, "destination shop") || !strings.Contains(s, "binlogmq cursor set") {
				t.Errorf("%s %s: %v", name, how, err)
			}
			if name != logDocument && !strings.Contains(err.Error(), `"`+name+`"`) && !strings.Contains(err.Error(), `"snapshot-`) {
				t.Errorf("%s %s: %v", name, how, err)
			}
			b.damaged = ""
			must(t, l.Reset(ctx))
			l = fresh(b)
			must(t, l.Order(ctx, Request{ID: "one"}))
			if c, err := l.At(ctx, 10, "c"); c != nil || err != nil {
				t.Fatal(c, err)
			}
			must(t, l.Append(ctx, chunkAt(items(t), "one", 10, "z")))
			if c, err := fresh(b).At(ctx, 10, "c"); err != nil || string(c.Parts[0].Raw) != "z" {
				t.Fatal(c, err)
			}
		}
	}
	b := begin()
	delete(b.docs, pieceName(1, 0))
	if _, err := fresh(b).At(ctx, 10, "c"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `"snapshot-1-0"`) {
		t.Error(err)
	}
}

// FuzzDocuments: damaged documents are errors.
func FuzzDocuments(f *testing.F) {
	ctx := context.Background()
	b := newBox()
	l := fresh(b)
	must(f, l.Order(ctx, Request{ID: "one", Where: map[string]string{"a.b": "c"}}))
	must(f, l.Append(ctx, chunkAt(items(f), "one", 10, "x", "yy", "z")))
	b.cursors["a"] = 5
	_, err := l.Rewind(ctx)
	must(f, err)
	for _, d := range b.docs {
		f.Add(d)
	}
	raw, err := encodeChunk(chunkAt(items(f), "one", 10, "x", "yy", "z"))
	must(f, err)
	z, err := unpacker()
	must(f, err)
	raw, err = z.DecodeAll(raw, nil)
	must(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s := (state{}); decodeState(data, &s) == nil && s.First-s.From > 1000 {
			return // it takes long only
		}
		if c, err := parseChunk(data); err == nil {
			again, err := encodeChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := decodeChunk(again); err != nil || d.Rows() != c.Rows() || d.End != c.End {
				t.Fatal(err)
			}
		}
		for _, name := range []string{logDocument, headName(1), pieceName(1, 0)} {
			k := newBox()
			maps.Copy(k.docs, b.docs)
			k.docs[name] = data
			k.cursors["a"] = 5
			l := fresh(k)
			c, err := l.At(ctx, 10, "c")
			if err != nil && !errors.Is(err, ErrDamaged) || c != nil && c.Table == nil {
				t.Fatal(c, err)
			}
			_ = l.Release(ctx)
			_ = l.Status()
		}
	})
}

// TestRace: readers, the driver, orders and looks at the same time.
func TestRace(t *testing.T) {
	ctx := context.Background()
	b := newBox()
	l := fresh(b)
	must(t, l.Order(ctx, Request{ID: "one"}))
	table := items(t)
	b.cursors["a"] = 0
	const chunks = 60
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range int64(chunks) {
			if err := l.Append(ctx, chunkAt(table, "one", 3*i, fmt.Sprint(i))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2 {
		wg.Go(func() { // readers in front of all cursors
			for i := int64(0); i < chunks; {
				c, err := l.At(ctx, 3*i, "c")
				if err != nil {
					t.Error(err)
					return
				}
				if c == nil && l.Last() < 3*i+2 {
					continue
				}
				if c != nil && string(c.Parts[0].Raw) != fmt.Sprint(i) {
					t.Errorf("chunk %d is %q", i, c.Parts[0].Raw)
				}
				i++
			}
		})
	}
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			_, _ = b.put("a", max(0, l.Last()-5))
			if err := errors.Join(l.Release(ctx), l.Order(ctx, Request{ID: fmt.Sprint("more", i)}), l.Cancel(ctx, fmt.Sprint("more", i))); err != nil {
				t.Error(err)
				return
			}
			_, _, _ = l.Current()
			_ = l.Status()
			_, _ = l.Pending()
		}
	})
	wg.Wait()
}
