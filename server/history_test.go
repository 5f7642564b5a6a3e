package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/store"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { leak.Main(m) }

const uuid1 = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

// history is what a database has written: a Source that hands out the same events, made
// anew, to each reader.
type history struct {
	gtid   bool
	server string

	mu      sync.Mutex
	events  []*event.Event
	after   map[int64]int            // index of the event behind a transaction end
	ends    map[int64]event.Position // where transaction ends lie
	last    int64
	offset  uint64
	txns    int
	grown   chan struct{}
	logOnly bool  // no rows of snapshots
	fail    error // makes every Read end
	starts  int
	reads   int
	live    int // Reads that run now
	most    int
}

var tables = []*event.Table{{Schema: "shop", Name: "a"}, {Schema: "shop", Name: "b"}, {Schema: "shop", Name: "c"}}

func newHistory(gtid bool) *history {
	h := &history{gtid: gtid, server: uuid1, after: map[int64]int{0: 0}, ends: map[int64]event.Position{}, offset: 4, grown: make(chan struct{})}
	h.ends[0] = event.Position{File: "binlog.000001", Offset: 4, ServerUUID: h.server}
	return h
}

func (h *history) sid() (sid [16]byte) { return [16]byte{0x3e, 0x11} }

func (h *history) add(e *event.Event, size int) *event.Event {
	e.File, e.Start = "binlog.000001", h.offset
	h.offset += uint64(size)
	e.Next, e.Size = h.offset, size
	h.events = append(h.events, e)
	return e
}

// begin, rows, ddl and end write one event each.
func (h *history) begin() {
	h.txns++
	t := &event.Txn{File: "binlog.000001", Start: h.offset, ServerUUID: h.server, Time: int64(h.txns) * 1e6}
	if h.gtid {
		t.GTID = event.GTID{SID: h.sid(), Seq: uint64(h.txns)}
	}
	h.add(&event.Event{Kind: event.Begin, Txn: t}, 50)
}

func (h *history) txn() *event.Txn { return h.events[len(h.events)-1].Txn }

func (h *history) rows(table, n, size int) {
	h.add(&event.Event{Kind: event.Rows, Op: event.Insert, Txn: h.txn(), Table: tables[table], Rows: uint32(n), Ordinal: h.last + 1}, size)
	h.last += int64(n)
}

func (h *history) ddl() {
	h.last++
	h.add(&event.Event{Kind: event.DDL, Txn: h.txn(), Ordinal: h.last, Schema: "shop"}, 60)
}

func (h *history) end() {
	h.last++
	e := h.add(&event.Event{Kind: event.End, Txn: h.txn(), Ordinal: h.last}, 30)
	h.after[h.last] = len(h.events)
	p := event.Position{File: e.File, Offset: e.Next, ServerUUID: h.server}
	if h.gtid {
		p.GTIDs, _ = event.ParseGTIDSet(fmt.Sprintf("3e110000-0000-0000-0000-000000000000:1-%d", h.txns))
	}
	h.ends[h.last] = p
}

// chunk puts rows of a snapshot behind the last transaction end.
func (h *history) chunk(table, n, size int, clients ...string) {
	at := h.offset
	t := &event.Txn{File: "binlog.000001", Start: at, ServerUUID: h.server, Snapshot: &event.Snapshot{ID: "first", Chunk: 1, Clients: clients}}
	put := func(e *event.Event, size int) {
		e.Txn = t
		h.add(e, size)
		h.offset, e.Start, e.Next = at, at, at
	}
	put(&event.Event{Kind: event.Begin}, 50)
	put(&event.Event{Kind: event.Rows, Op: event.Insert, Table: tables[table], Rows: uint32(n), Ordinal: h.last + 1}, size)
	p := h.ends[h.last]
	h.last += int64(n) + 1
	put(&event.Event{Kind: event.End, Ordinal: h.last}, 30)
	h.after[h.last], h.ends[h.last] = len(h.events), p
}

// commit writes a random transaction.
func (h *history) commit(rng *rand.Rand) {
	for !h.logOnly && rng.IntN(6) == 0 {
		h.chunk(rng.IntN(3), 1+rng.IntN(20), 40+rng.IntN(1000))
	}
	h.begin()
	n := rng.IntN(4)
	if rng.IntN(20) == 0 {
		n = 30
	}
	for range n {
		if rng.IntN(8) == 0 {
			h.ddl()
		} else {
			h.rows(rng.IntN(3), 1+rng.IntN(4), 40+rng.IntN(100))
		}
	}
	h.end()
}

// write writes n random transactions and wakes the readers.
func (h *history) write(rng *rand.Rand, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range n {
		h.commit(rng)
	}
	h.wake()
}

func (h *history) do(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.wake()
}

func (h *history) wake() {
	close(h.grown)
	h.grown = make(chan struct{})
}

// count reads one of the counts.
func (h *history) count(n *int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *n
}

func (h *history) total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *history) cursor(ordinal int64) event.Cursor {
	return transactionEnd(event.Cursor{Position: h.ends[ordinal], Ordinal: ordinal})
}

// fresh returns copies of the events that share no memory with other readers',
// as a second reader of the same binlog makes them.
func fresh(events []*event.Event) []*event.Event {
	out := make([]*event.Event, len(events))
	var old, txn *event.Txn
	for i, e := range events {
		if e.Txn != old {
			old = e.Txn
			c := *e.Txn
			txn = &c
		}
		c := *e
		c.Txn = txn
		out[i] = &c
	}
	return out
}

func (h *history) Start(context.Context) (event.Cursor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts++
	return h.cursor(0), nil
}

func (h *history) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	h.mu.Lock()
	h.reads++
	h.live++
	h.most = max(h.most, h.live)
	rng := rand.New(rand.NewPCG(uint64(h.reads), 9))
	next, ok := h.after[from.Ordinal]
	p := h.ends[from.Ordinal]
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.live--
		h.mu.Unlock()
	}()
	if !ok || !samePosition(&p, &from.Position) {
		return fmt.Errorf("no transaction end %d at %s:%d", from.Ordinal, from.Position.File, from.Position.Offset)
	}
	if from.Progress != 0 {
		return errors.New("asked to read from within a transaction")
	}
	var txn, old *event.Txn // events of a transaction share one, also from put to put
	for {
		h.mu.Lock()
		n := min(1+rng.IntN(6), len(h.events)-next)
		part := h.events[next : next+n]
		grown, fail := h.grown, h.fail
		h.mu.Unlock()
		if fail != nil {
			return fail
		}
		if n == 0 {
			select {
			case <-grown:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		part = fresh(part)
		for i, e := range part {
			orig := h.at(next + i).Txn
			if orig != old {
				old, txn = orig, e.Txn
			}
			e.Txn = txn
		}
		if err := put(ctx, part); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		next += n
	}
}

func (h *history) at(i int) *event.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[i]
}

// item is one thing that a subscription may be handed: a begin, one row, a DDL or an end.
type item struct {
	kind    event.Kind
	ordinal int64 // 0 for a begin
	txn     uint64
	table   *event.Table
}

func itemsOf(e *event.Event) []item {
	if e.Kind != event.Rows {
		return []item{{e.Kind, e.Ordinal, e.Txn.Start, nil}}
	}
	var out []item
	for o := e.Ordinal + int64(e.Skip); o <= store.LastOrdinal(e); o++ {
		out = append(out, item{e.Kind, o, e.Txn.Start, e.Table})
	}
	return out
}

// follower checks what one subscription is handed against the history: every visible item, once, in order.
type follower struct {
	h       *history
	wants   func(*event.Table) bool
	cut     int64 // rows up to this one are not handed out again
	acked   int   // index of the event that follows what is acknowledged
	skip    int   // visible items of it and of what follows that are acknowledged
	done    item  // the last one acknowledged
	batches []followed
	lastID  int64
}

type followed struct {
	id    int64
	items int
}

// visible returns the items from the last reconnection on, up to n.
func (w *follower) visible(from, n int) []item {
	var out []item
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	seen := 0
	for i := w.acked; i < len(w.h.events) && len(out) < n; i++ {
		e := w.h.events[i]
		if e.Kind == event.Rows && !w.wants(e.Table) {
			continue
		}
		for _, it := range itemsOf(e) {
			if it.ordinal > 0 && it.ordinal <= w.cut {
				continue
			}
			if seen++; seen > from && len(out) < n {
				out = append(out, it)
			}
		}
	}
	return out
}

func (w *follower) out() int {
	n := w.skip
	for _, b := range w.batches {
		n += b.items
	}
	return n
}

// took checks a batch.
func (w *follower) took(b *Batch) error {
	if b.ID == NoBatch {
		if len(b.Events) > 0 {
			return errors.New("an empty batch has events")
		}
		return nil
	}
	if len(b.Events) == 0 {
		return errors.New("a batch has no events")
	}
	if b.ID <= w.lastID {
		return fmt.Errorf("batch id %d after %d", b.ID, w.lastID)
	}
	w.lastID = b.ID
	var got []item
	for _, e := range b.Events {
		got = append(got, itemsOf(e)...)
	}
	want := w.visible(w.out(), len(got))
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			return fmt.Errorf("batch %d item %d: got %v, want %v", b.ID, i, got[i], want[min(i, len(want)):])
		}
	}
	w.batches = append(w.batches, followed{b.ID, len(got)})
	return nil
}

func (w *follower) ack() {
	w.skip += w.batches[0].items
	w.batches = w.batches[1:]
	w.done = w.visible(w.skip-1, 1)[0]
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	for w.acked < len(w.h.events) { // whole events need not be walked again
		n := w.shown(w.h.events[w.acked])
		if n > w.skip {
			break
		}
		w.skip -= n
		w.acked++
	}
}

// shown returns how many items of the event are visible.
func (w *follower) shown(e *event.Event) (n int) {
	if e.Kind == event.Rows && !w.wants(e.Table) {
		return 0
	}
	for _, it := range itemsOf(e) {
		if it.ordinal == 0 || it.ordinal > w.cut {
			n++
		}
	}
	return n
}

func (w *follower) rollbackTo(id int64) {
	for i, b := range w.batches {
		if b.id == id {
			w.batches = w.batches[:i]
			return
		}
	}
}

// reconnect starts again at a cursor.
func (w *follower) reconnect(c event.Cursor, whole bool) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.acked, w.skip, w.batches, w.cut, w.done = w.h.after[c.Ordinal], 0, nil, c.Last(), item{}
	if whole {
		w.cut = c.Ordinal
	}
}

// agrees checks a cursor against what has been acknowledged and against the history.
func (w *follower) agrees(c event.Cursor) error {
	w.h.mu.Lock()
	p, ok := w.h.ends[c.Ordinal]
	w.h.mu.Unlock()
	if !ok || !samePosition(&p, &c.Position) {
		return fmt.Errorf("cursor %d lies at %s:%d %s, not at %+v", c.Ordinal, c.Position.File, c.Position.Offset, c.Position.GTIDs, p)
	}
	// What is acknowledged is done, and nothing that is not is.
	if w.done.ordinal > c.Last() {
		return fmt.Errorf("cursor ends at %d, %v is acknowledged", c.Last(), w.done)
	}
	for _, it := range w.visible(w.skip, 2) {
		if it.ordinal > 0 && it.ordinal <= c.Last() && w.cut >= c.Last() {
			return fmt.Errorf("cursor ends at %d, %v is not acknowledged", c.Last(), it)
		}
	}
	return nil
}
