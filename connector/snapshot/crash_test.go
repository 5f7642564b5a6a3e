package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// world is a source, the readers of its stream, and a driver that reads one table for a snapshot. Each of its transactions takes one ordinal.
type world struct {
	t     *testing.T
	k     *box
	l     *Log
	rng   *rand.Rand
	seed  uint64
	death int
	table *event.Table

	head    int // transactions that the source has
	places  map[string]place
	seen    map[int64]string // I5: what each ordinal is, whoever reads it, in whatever life
	shown   map[int]bool     // rows that the stream has shown, as the driver was told
	moved   bool
	begun   bool // a move
	moving  bool // cursors are to be moved, whatever the process that began it came to
	former  int  // up to where an earlier process may have read
	main    place
	readers map[string]*reading
}

// place is where somebody stands: behind a transaction end.
type place struct {
	ordinal int64
	txn     int
}

// reading is a subscription; got lasts as its cursor does.
type reading struct {
	place
	got  []string
	kept int // of got, with the cursor
}

const (
	crashRows    = 17
	crashRequest = "one"
)

// step reads what comes next; nil: nothing is there yet.
func (w *world) step(at place) (place, []string, error) {
	c, err := w.l.At(context.Background(), at.ordinal, "c")
	if err != nil {
		return at, nil, err
	}
	if c != nil {
		var rows []string
		o := c.Ordinal
		for _, p := range c.Parts {
			for i := range p.Rows {
				o++
				row := fmt.Sprintf("row %d", p.Raw[i])
				w.note(o, row)
				rows = append(rows, row)
			}
		}
		w.note(c.End, "end of rows")
		return place{c.End, at.txn}, rows, nil
	}
	if at.txn == w.head {
		return at, nil, nil
	}
	w.note(at.ordinal+1, fmt.Sprint("transaction ", at.txn+1))
	return place{at.ordinal + 1, at.txn + 1}, []string{fmt.Sprint("transaction ", at.txn+1)}, nil
}

func (w *world) note(o int64, what string) {
	w.t.Helper()
	if was, ok := w.seen[o]; ok && was != what {
		w.t.Fatalf("seed %d, death %d: I5: ordinal %d is %q, and was %q", w.seed, w.death, o, what, was)
	}
	w.seen[o] = what
}

// start is a new process.
func (w *world) start() {
	w.l = fresh(w.k)
	w.former = w.head
	w.main = place{-1, 0}
	for name, r := range w.readers {
		r.place = w.places[name]
		r.got = r.got[:r.kept]
		if w.main.ordinal < 0 || r.ordinal < w.main.ordinal {
			w.main = r.place
		}
	}
}

// save saves the cursor of a subscription.
func (w *world) save(name string) error {
	r := w.readers[name]
	done, err := w.k.put(name, r.ordinal)
	if done {
		w.places[name] = r.place
		r.kept = len(r.got)
	}
	return err
}

// move puts all cursors to one place, as a failover does.
func (w *world) move() error {
	w.begun = true // nobody reads, nor saves another cursor, before that is settled
	above, err := w.l.Rewind(context.Background())
	if err != nil {
		return err
	}
	w.moving, w.moved = true, true
	to := place{above, w.head}
	for _, r := range w.readers {
		to.ordinal, to.txn = max(to.ordinal, r.ordinal), min(to.txn, r.txn)
	}
	for _, name := range []string{"a", "b"} {
		w.readers[name].place = to
		if err := w.save(name); err != nil {
			return err
		}
	}
	if err := w.l.Rewound(context.Background()); err != nil {
		return err
	}
	w.moving, w.begun = false, false
	w.main = to
	clear(w.seen) // of other places
	w.former = w.head
	return nil
}

// drive reads the next rows of the table, or ends what is ordered.
func (w *world) drive() error {
	ctx := context.Background()
	r, p, ok := w.l.Current()
	if !ok {
		return nil
	}
	if w.main.txn < w.former || w.main.txn < w.head {
		return nil
	}
	if c, err := w.l.At(ctx, w.main.ordinal, "c"); c != nil || err != nil {
		return err
	}
	last := 0
	if len(p.Last) > 0 {
		last, _ = strconv.Atoi(p.Last[0])
	}
	if last == crashRows {
		return w.l.Finish(ctx, r.ID)
	}
	n := min(1+w.rng.IntN(4), crashRows-last)
	after := p
	after.Last = []string{strconv.Itoa(last + n)}
	if w.rng.IntN(4) == 0 { // the stream has shown them all
		for i := range n {
			w.shown[last+i+1] = true
		}
		return w.l.Advance(ctx, after)
	}
	c := &Chunk{Ordinal: w.main.ordinal, End: w.main.ordinal + int64(n) + 1, Counts: "c", Snapshot: &event.Snapshot{ID: r.ID}, Before: p, After: after, Table: w.table}
	for i := range n {
		c.Parts = append(c.Parts, Part{Rows: 1, Raw: []byte{byte(last + i + 1)}})
	}
	err := w.l.Append(ctx, c)
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

func (w *world) act() (err error) {
	ctx := context.Background()
	name := []string{"a", "b"}[w.rng.IntN(2)]
	r := w.readers[name]
	switch n := w.rng.IntN(100); {
	case n < 15:
		w.head++
	case n < 35:
		w.main, _, err = w.step(w.main)
	case n < 55:
		err = w.drive()
	case n < 75 && r.ordinal < w.main.ordinal: // nobody is before the main reader
		var got []string
		r.place, got, err = w.step(r.place)
		r.got = append(r.got, got...)
	case n < 85:
		err = w.save(name)
	case n < 96:
		err = w.l.Release(ctx)
	case n < 97:
		err = w.l.Order(ctx, Request{ID: crashRequest})
	case n < 99:
		w.start() // in order or not: nothing is kept that is not saved
		_, err = w.l.At(ctx, w.main.ordinal, "c")
	default:
		err = w.move()
	}
	return err
}

// TestCrashI5I7: whichever write a process dies of, and whether that is saved or not, each ordinal stays what it was, every subscription gets every row of the
// table and every transaction once (more often only after its cursor was moved), and nothing is left in the store at the end.
func TestCrashI5I7(t *testing.T) {
	ctx := context.Background()
	table := items(t)
	died := 0
	for seed := range uint64(4) {
		for n := 0; ; n++ {
			w := &world{t: t, seed: seed, death: n, k: newBox(), rng: rand.New(rand.NewPCG(seed, 0)), table: table, seen: map[int64]string{}, shown: map[int]bool{},
				places: map[string]place{"a": {}, "b": {}}, readers: map[string]*reading{"a": {}, "b": {}}}
			w.k.cursors["a"], w.k.cursors["b"] = 0, 0
			w.start()
			must(t, w.l.Order(ctx, Request{ID: crashRequest}))
			w.k.left, w.k.saved = n/2+1, n%2 == 1
			dead := false
			for i := 0; i < 250; i++ {
				err := w.act()
				if err == nil {
					continue
				}
				if !errors.Is(err, errDead) {
					t.Fatalf("seed %d, death %d: %v", seed, n, err)
				}
				dead = true
				w.k.left = -1
				if w.moving || w.rng.IntN(2) == 0 { // else the store is back before the process has ended
					w.start()
				}
				if w.begun && !w.moving {
					_, err := w.l.At(ctx, w.main.ordinal, "c")
					must(t, err)
					w.begun = false
				}
				for w.moving {
					must(t, w.again())
				}
			}
			if !dead {
				break
			}
			died++
			w.k.left = -1
			w.finish(seed, n)
		}
	}
	if died < 200 {
		t.Error("too few deaths: ", died)
	}
}

// again is what the next process does about a move that was cut short: all the same if a cursor was moved, or nothing.
func (w *world) again() error {
	some := slices.ContainsFunc([]string{"a", "b"}, func(n string) bool { return w.places[n].ordinal >= w.aboveOf() })
	if !some && w.rng.IntN(2) == 0 {
		w.moving, w.begun = false, false
		_, err := w.l.At(context.Background(), w.main.ordinal, "c")
		return err
	}
	return w.move()
}

// aboveOf returns from where on cursors of a move that was cut short are.
func (w *world) aboveOf() int64 {
	var s state
	if data := w.k.docs[logDocument]; data == nil || decodeState(data, &s) != nil || s.Moving == nil {
		return 0
	}
	return s.Moving.Above
}

// finish lets everything come to its end.
func (w *world) finish(seed uint64, n int) {
	t, ctx := w.t, context.Background()
	t.Helper()
	w.start()
	for i := 0; ; i++ {
		if i > 1000 {
			t.Fatalf("seed %d, death %d: it does not come to its end", seed, n)
		}
		var err error
		w.main, _, err = w.step(w.main)
		must(t, err)
		must(t, w.drive())
		busy := false
		for name, r := range w.readers {
			for r.ordinal < w.main.ordinal {
				var got []string
				r.place, got, err = w.step(r.place)
				must(t, err)
				r.got = append(r.got, got...)
				busy = true
			}
			must(t, w.save(name))
		}
		must(t, w.l.Release(ctx))
		if _, _, ok := w.l.Current(); !ok && !busy && w.main.txn == w.head {
			break
		}
	}
	must(t, w.l.Release(ctx))
	must(t, w.l.Release(ctx))
	w.start()
	if _, err := w.l.At(ctx, w.main.ordinal, "c"); err != nil {
		t.Fatal(err)
	}
	if got := w.k.names(); !slices.Equal(got, []string{logDocument}) {
		t.Fatalf("seed %d, death %d: left are %v", seed, n, got)
	}
	for name, r := range w.readers {
		count := map[string]int{}
		for _, g := range r.got {
			count[g]++
		}
		for i := 1; i <= crashRows; i++ {
			if c := count[fmt.Sprintf("row %d", i)]; c == 0 && !w.shown[i] || c > 1 && !w.moved {
				t.Fatalf("seed %d, death %d: %s got row %d %d times (moved %t)", seed, n, name, i, c, w.moved)
			}
		}
		for i := 1; i <= w.head; i++ {
			if c := count[fmt.Sprint("transaction ", i)]; c == 0 || c > 1 && !w.moved {
				t.Fatalf("seed %d, death %d: %s got transaction %d %d times (moved %t)", seed, n, name, i, c, w.moved)
			}
		}
	}
}
