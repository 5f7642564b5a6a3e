package server

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/store"
)

// core is the state of one destination: the main ring and the subscriptions. It
// is a state machine: no lock, no goroutine, no clock, no I/O, no waiting.
type core struct {
	name      string
	maxEvents int
	maxBytes  int64
	placed    bool  // cursors are of the server that answers, see DestinationOptions.Prepare
	main      *feed // nil until reading begins
	subs      map[string]*sub
}

// feed is a ring and the end of the stream read into it.
type feed struct {
	owner  *sub // whose own ring it is; nil for the main ring
	placed bool // as core's
	ring   *store.Ring
	subs   []*sub        // who is on the ring, or ahead of it
	start  event.Cursor  // transaction end before the first event ever put
	tail   event.Cursor  // last transaction end put
	open   *event.Txn    // transaction of which a Begin, and no End, is put behind tail
	again  bool          // a new Read began at tail: skip what is put already
	pin    *store.Reader // in a main ring: held for a catch-up reader that is close
	pinBy  *feed         // which one
	err    error         // why its reader stopped

	events, rows, bytes int64 // put, for metrics

	// Fields of the destination that runs it, see destination.go.
	run feedRun
}

// sub is one connected subscription.
type sub struct {
	id      Identity
	filter  string
	matcher Matcher
	weigher Weigher              // of matcher; nil: it has none
	cursor  event.Cursor         // acknowledged
	skips   []meta.Skip          // saved with the cursor; whoever makes the source obeys them
	lazy    LazyState            // where cursor.State comes from; nil: cursor.State is it
	cut     int64                // ordinals up to this one are done already and not handed out
	cutAt   int64                // the cursor's ordinal when it was loaded
	cutOf   event.GTID           // of the transaction that is cut behind it, if known
	entire  bool                 // transactions acknowledged in part are handed out from their start
	began   map[event.GTID]int64 // ordinal before each transaction of cursor.Done.Parts that has come
	feed    *feed                // nil until reading begins
	rd      *store.Reader        // nil while ahead of its feed
	ahead   bool                 // the feed has not come to the cursor yet
	batches []batch              // outstanding, oldest first; each begins where the one before ends
	nextID  int64                // id of the next batch
	floor   int64                // ids up to this one are reserved
	gen     int64                // changes whenever rd or matcher do, but for acknowledgements

	lastTable *event.Table // verdicts by table
	lastTaken bool
	taken     map[*event.Table]bool

	rows     int64 // acknowledged, for metrics
	detached int64

	run subRun
}

// batch is a range of ring indexes that is handed out.
type batch struct {
	id       int64
	from, to int64
	at       time.Time
}

func newSub(id Identity) *sub {
	s := &sub{id: id, nextID: 1}
	s.run.saving = make(chan struct{}, 1)
	s.run.saving <- struct{}{}
	return s
}

func newCore(name string, maxEvents int, maxBytes int64) *core {
	return &core{name: name, maxEvents: maxEvents, maxBytes: maxBytes, subs: make(map[string]*sub)}
}

// newFeed returns an empty feed that begins behind the transaction end of c.
func (c *core) newFeed(owner *sub, from event.Cursor) *feed {
	start := &event.Event{
		Kind: event.End, Ordinal: from.Ordinal, File: from.Position.File, Next: from.Position.Offset,
		Txn: &event.Txn{ServerUUID: from.Position.ServerUUID},
	}
	return &feed{owner: owner, placed: c.placed, ring: store.New(c.maxEvents, c.maxBytes, start), start: transactionEnd(from), tail: transactionEnd(from)}
}

// transactionEnd returns a copy of the cursor without progress and state.
func transactionEnd(c event.Cursor) event.Cursor {
	c.Position.GTIDs = c.Position.GTIDs.Clone()
	c.Progress, c.Open, c.Done, c.State = 0, event.GTID{}, nil, nil
	return c
}

// oldest returns the cursor with the lowest ordinal of the connected subscriptions.
func (c *core) oldest() (cur event.Cursor, ok bool) {
	for _, s := range c.subs {
		if !s.run.connected {
			continue
		}
		if !ok || s.cursor.Ordinal < cur.Ordinal {
			cur, ok = s.cursor, true
		}
	}
	return cur, ok
}

// begin makes the main feed at the oldest cursor and attaches every
// subscription that has no feed.
func (c *core) begin() error {
	cur, ok := c.oldest()
	if !ok {
		return nil
	}
	c.main = c.newFeed(nil, cur)
	return c.attachAll()
}

// attachAll attaches every subscription that has no feed. It returns the first error.
func (c *core) attachAll() (err error) {
	for _, s := range sortedSubs(c.subs) {
		if s.run.connected && s.feed == nil {
			if e := c.attach(s); e != nil && err == nil {
				err = e
			}
		}
	}
	return err
}

// attach gives a connected subscription its place: on the main ring, ahead of it, or on a
// ring of its own. It makes or replaces the main feed when nobody else needs it.
func (c *core) attach(s *sub) error {
	s.gen++
	m := c.main
	cur := &s.cursor
	switch {
	case m == nil:
		return c.begin()
	case cur.Ordinal > m.tail.Ordinal:
		if m.ring.Last() >= cur.Ordinal {
			return misplaced(s, m, "the stream has no transaction end there")
		}
		s.feed, s.ahead = m, true
		m.subs = append(m.subs, s)
		return nil
	}
	if i, ok := m.ring.After(cur.Ordinal); ok {
		if why := m.agrees(i, cur); why != "" {
			return misplaced(s, m, why)
		}
		s.feed, s.rd = m, m.ring.Attach(i)
		m.subs = append(m.subs, s)
		return nil
	}
	if len(m.subs) == 0 { // nobody is on the main ring: it may as well begin here
		c.main = c.newFeed(nil, s.cursor)
		return c.attach(s)
	}
	f := c.newFeed(s, s.cursor)
	s.feed, s.rd = f, f.ring.Attach(f.ring.Next())
	f.subs = []*sub{s}
	return nil
}

// release takes a subscription off its feed and forgets its batches.
func (c *core) release(s *sub) {
	f := s.feed
	if f == nil {
		return
	}
	if s.rd != nil {
		f.ring.Detach(s.rd)
	}
	if f.owner == s && c.main != nil && c.main.pinBy == f {
		c.unpin()
	}
	f.subs = slices.DeleteFunc(f.subs, func(x *sub) bool { return x == s })
	s.feed, s.rd, s.ahead, s.batches = nil, nil, false, nil
	s.gen++
}

// accept puts events into the feed as far as there is room and returns how
// many are dealt with. An error stops the feed's reader.
func (f *feed) accept(events []*event.Event) (int, error) {
	if err := f.elsewhere(events); err != nil {
		return 0, err
	}
	skipped := 0
	for f.again && len(events) > 0 {
		done, cut, err := f.skip(events[0])
		if err != nil {
			return skipped, err
		}
		if cut != nil {
			events = slices.Clone(events)
			events[0] = cut
		}
		if !done {
			f.again = false
			break
		}
		events = events[1:]
		skipped++
	}
	if err := f.framed(events); err != nil {
		return skipped, err
	}
	from := f.ring.Next()
	n, err := f.ring.Put(events)
	if perr := f.passed(from); perr != nil {
		return skipped + n, perr
	}
	if err != nil {
		err = fmt.Errorf("after %s:%d: %w; the stream does not count as before: report this as a fault", f.tail.Position.File, f.tail.Position.Offset, err)
	}
	return skipped + n, err
}

// elsewhere returns an error where the events are another server's than those before: there others may lie between, or the same in another
// order, and the cursors have numbers of a log that goes on otherwise. If it were gone on from there and the process killed before a cursor with
// that server's place is saved, nothing would tell that the first server, should it answer again, is not the one whose numbers were given last (I5).
// Without GTIDs the main reader goes on behind its first transaction, as nothing could be put to a place of the other server.
func (f *feed) elsewhere(events []*event.Event) error {
	if !f.placed {
		return nil
	}
	begins := f.owner != nil || f.tail.Ordinal == f.start.Ordinal && f.open == nil
	at := f.tail.Position.ServerUUID
	for _, e := range events {
		if e.Kind != event.Begin || e.Txn == nil {
			continue
		}
		if at != "" && e.Txn.ServerUUID != at && (begins || !e.Txn.GTID.IsZero()) {
			return fmt.Errorf("behind %s:%d: %w: %s, not %s", f.tail.Position.File, f.tail.Position.Offset, event.ErrAnotherServer, e.Txn.ServerUUID, at)
		}
		at = e.Txn.ServerUUID
	}
	return nil
}

// skip says whether e, read again behind tail, is put already; or all but its
// last rows, which it then returns as an event of their own.
func (f *feed) skip(e *event.Event) (done bool, rest *event.Event, err error) {
	last := f.ring.Last()
	switch e.Kind {
	case event.Begin:
		if f.open == nil {
			return false, nil, nil
		}
		o := f.open
		if e.Txn.GTID != o.GTID || e.Txn.ServerUUID == o.ServerUUID && (e.Txn.File != o.File || e.Txn.Start != o.Start) {
			err := fmt.Errorf("the transaction behind %s:%d is another one than before (%s, was %s), and part of it has been handed out; "+
				"if the server lost transactions, set the cursors with binlogmq cursor set", f.tail.Position.File, f.tail.Position.Offset, txnName(e.Txn), txnName(o))
			if e.Txn.ServerUUID != o.ServerUUID {
				err = fmt.Errorf("%w: %w", event.ErrAnotherServer, err)
			}
			return false, nil, err
		}
		return true, nil, nil
	case event.Rows, event.DDL:
		switch {
		case store.LastOrdinal(e) <= last:
			return true, nil, nil
		case e.Kind == event.Rows && e.Ordinal+int64(e.Skip) <= last:
			return false, cutRows(e, last), nil
		}
	case event.End:
		if e.Ordinal <= last {
			return false, nil, fmt.Errorf("transaction %s ends after fewer changes than before; if the server lost transactions, set the cursors with binlogmq cursor set", txnName(e.Txn))
		}
	}
	return false, nil, nil
}

// framed checks that transactions have a Begin and an End, from the events' state of tail on.
func (f *feed) framed(events []*event.Event) error {
	open := f.open != nil
	for _, e := range events {
		if e.Txn == nil {
			return fmt.Errorf("%s event at %s:%d without transaction: report this as a fault", e.Kind, e.File, e.Start)
		}
		if (e.Kind == event.Begin) == open {
			return fmt.Errorf("%s event at %s:%d where a transaction is open: %t: report this as a fault", e.Kind, e.File, e.Start, open)
		}
		open = e.Kind != event.End
	}
	return nil
}

// passed brings tail up to the end of the ring, from index i on, and lets subscriptions
// that were ahead of it on board.
func (f *feed) passed(i int64) (err error) {
	ahead := 0
	for _, s := range f.subs {
		if s.ahead {
			ahead++
		}
	}
	r := f.ring
	for next := r.Next(); i < next; i++ {
		e := r.Event(i)
		f.events++
		f.bytes += int64(e.Size)
		switch e.Kind {
		case event.Begin:
			f.open = e.Txn
		case event.Rows:
			if e.Table != nil {
				f.rows += int64(e.Rows - e.Skip)
			}
		case event.End:
			f.open = nil
			moveTo(&f.tail, e)
		}
		if ahead == 0 {
			continue
		}
		for _, s := range f.subs {
			if !s.ahead || r.Ordinal(i) < s.cursor.Ordinal {
				continue
			}
			// A reader that passes a saved cursor must arrive at its number. One that does not
			// agree stays ahead, so that reading on fails again.
			why := ""
			if e.Kind != event.End || e.Ordinal != s.cursor.Ordinal {
				why = "the stream has no transaction end there"
			} else if !samePosition(&f.tail.Position, &s.cursor.Position) {
				why = "the stream has that number at " + place(e)
			}
			if why != "" {
				if err == nil {
					err = misplaced(s, f, why)
				}
				continue
			}
			s.ahead, s.rd = false, r.Attach(i+1)
			s.gen++
			ahead--
		}
	}
	f.relieve()
	return err
}

// relieve empties a ring that everybody on it is still ahead of.
func (f *feed) relieve() bool {
	return f.ring.Readers() == 0 && slices.ContainsFunc(f.subs, func(s *sub) bool { return s.ahead }) && f.ring.Drop(f.ring.Next())
}

// moveTo moves a cursor to the transaction end e.
func moveTo(c *event.Cursor, e *event.Event) {
	p := &c.Position
	p.File, p.Offset, p.ServerUUID = e.File, e.Next, e.Txn.ServerUUID
	p.GTIDs.Add(e.Txn.GTID)
	// I5: a cursor of a version that did not note it is one, too, once it has moved in a stream in which the heads of files take numbers. It is not
	// where it has GTIDs, nor is one without any where the source's GTIDs are read: there these heads take none.
	p.ByFile = p.ByFile || e.Txn.ByFile && p.GTIDs.IsEmpty()
	c.Ordinal, c.Progress, c.Open = e.Ordinal, 0, event.GTID{}
	if d := c.Done; d != nil && d.Passed(e.Txn.GTID, p.GTIDs) {
		c.Done = nil
	}
}

// scan is a look at what a get would hand out.
type scan struct {
	gen    int64
	next   int64 // index behind what is looked at
	rows   int
	bytes  int64
	events []*event.Event
	full   bool
	err    error // why nothing more can be handed out
}

// look goes on looking until the batch is full or the ring ends.
func (s *sub) look(sc *scan, size Size) {
	if s.rd == nil {
		*sc = scan{gen: s.gen}
		return
	}
	if sc.gen != s.gen || sc.next < s.rd.Taken() {
		*sc = scan{gen: s.gen, next: s.rd.Taken()}
	}
	r := s.feed.ring
	if sc.events == nil {
		n := int(r.Next() - sc.next)
		if size.Events > 0 {
			n = min(n, size.Events)
		}
		if size.Rows > 0 {
			n = min(n, 3*size.Rows)
		}
		if n > 0 {
			sc.events = make([]*event.Event, 0, min(n, 4096))
		}
	}
	for next := r.Next(); sc.next < next && !sc.full; sc.next++ {
		e := r.Event(sc.next)
		cut, err := s.done(e, sc.next)
		if err != nil {
			sc.err = err
			return
		}
		switch e.Kind {
		case event.Begin, event.End:
			if cut == math.MaxInt64 || !e.Txn.Snapshot.For(s.id.Client) {
				continue
			}
		case event.Rows:
			if !e.Txn.Snapshot.For(s.id.Client) {
				continue
			}
			if e.Ordinal+int64(e.Skip) <= cut {
				if store.LastOrdinal(e) <= cut {
					continue
				}
				e = cutRows(e, cut)
			}
			if !s.wants(e.Table) {
				continue
			}
			sc.rows += int(e.Rows - e.Skip)
		case event.DDL:
			if e.Ordinal <= cut {
				continue
			}
			if !s.wantsStatement(e) {
				continue
			}
		}
		sc.bytes += int64(s.weight(e))
		sc.events = append(sc.events, e)
		sc.full = size.Events > 0 && len(sc.events) >= size.Events || size.Rows > 0 && sc.rows >= size.Rows || size.Bytes > 0 && sc.bytes >= size.Bytes
	}
}

// done returns up to which ordinal the changes of e's transaction, at ring index i, are acknowledged already; math.MaxInt64: all.
func (s *sub) done(e *event.Event, i int64) (cut int64, err error) {
	g := e.Txn.GTID
	if e.Kind == event.Begin && s.cut > s.cutAt && !s.cutOf.IsZero() && g != s.cutOf && s.feed.ring.Ordinal(i) == s.cutAt {
		err := fmt.Errorf("cursor of %s stands inside transaction %s, behind which the source shows %s instead: "+
			"the source lost the transaction, of which a part is published: compare its tables, then set the cursors with binlogmq cursor set", s.id, s.cutOf, txnName(e.Txn))
		if at := s.cursor.Position.ServerUUID; at != e.Txn.ServerUUID && at != "" {
			err = fmt.Errorf("%w: %w", event.ErrAnotherServer, err)
		}
		return 0, err
	}
	d := s.cursor.Done
	if d == nil || g.IsZero() {
		return s.cut, nil
	}
	if d.GTIDs.Contains(g) {
		return math.MaxInt64, nil
	}
	cut = s.cut
	if s.entire {
		return cut, nil
	}
	for _, p := range d.Parts {
		if p.GTID != g {
			continue
		}
		if e.Kind == event.Begin {
			if s.began == nil {
				s.began = map[event.GTID]int64{}
			}
			s.began[g] = s.feed.ring.Ordinal(i)
		}
		cut = max(cut, s.began[g]+p.Ordinals)
	}
	return cut, nil
}

// cutRows returns e with the rows up to the given ordinal marked as done. Events are
// shared, so only the header is copied.
func cutRows(e *event.Event, ordinal int64) *event.Event {
	c := *e
	c.Skip = uint32(ordinal - e.Ordinal + 1)
	return &c
}

// maxVerdicts bounds the verdicts remembered; a table definition has one each.
const maxVerdicts = 4096

// wants says whether the subscription's filter takes the table.
func (s *sub) wants(t *event.Table) bool {
	if t == nil {
		return false // row changes that the source passes over by order: only their numbers count
	}
	if s.matcher == nil {
		return true
	}
	if t == s.lastTable {
		return s.lastTaken
	}
	v, ok := s.taken[t]
	if !ok {
		if s.taken == nil || len(s.taken) >= maxVerdicts {
			s.taken = make(map[*event.Table]bool)
		}
		switch m := s.matcher.(type) {
		case TableMatcher:
			v = m.MatchTable(t)
		case *tablefilter.Filter:
			v = m.For(t.Caseless).Match(t.Schema, t.Name)
		default:
			v = m.Match(t.Schema, t.Name)
		}
		s.taken[t] = v
	}
	s.lastTable, s.lastTaken = t, v
	return v
}

// wantsStatement says whether the subscription's filter takes the DDL.
func (s *sub) wantsStatement(e *event.Event) bool {
	m, ok := s.matcher.(StatementMatcher)
	return !ok || m.MatchStatement(e)
}

// weight is what the event counts of a batch's bytes.
func (s *sub) weight(e *event.Event) int {
	if s.weigher != nil {
		return s.weigher.Weight(e)
	}
	return e.Size
}

// setFilter replaces the filter for what is not handed out yet.
func (s *sub) setFilter(text string, m Matcher) {
	s.filter, s.matcher = text, m
	s.weigher, _ = m.(Weigher)
	s.lastTable, s.taken = nil, nil
	s.gen++
}

// swallow deals with a look that found nothing but hidden events: they are
// acknowledged with the last outstanding batch, or at once when there is none. It returns
// whether the ring freed something, and whether the cursor moved.
func (s *sub) swallow(sc *scan) (freed, moved bool, err error) {
	if s.rd == nil || len(sc.events) > 0 || sc.next <= s.rd.Taken() {
		return false, false, nil
	}
	s.feed.ring.Take(s.rd, sc.next)
	if n := len(s.batches); n > 0 {
		s.batches[n-1].to = sc.next
		return false, false, nil
	}
	freed, err = s.move(sc.next)
	return freed, true, err
}

// take hands out what the look found, as a batch.
func (s *sub) take(sc *scan, now time.Time) (*Batch, error) {
	if s.nextID > s.floor {
		return nil, ErrBatchIDs
	}
	b := batch{id: s.nextID, from: s.rd.Taken(), to: sc.next, at: now}
	s.nextID++
	s.feed.ring.Take(s.rd, b.to)
	s.gen++
	s.batches = append(s.batches, b)
	return &Batch{ID: b.id, Events: sc.events}, nil
}

// ack acknowledges the oldest outstanding batch, and takes the state with it.
func (s *sub) ack(id int64, state []byte, lazy LazyState) (freed bool, err error) {
	if err := s.checkID("ack", id, true); err != nil {
		return false, err
	}
	b := s.batches[0]
	if len(s.batches) == 1 {
		s.batches = s.batches[:0]
	} else {
		s.batches = s.batches[1:]
	}
	freed, err = s.move(b.to)
	switch {
	case err != nil:
	case lazy != nil:
		lazy.Acknowledged(id)
		s.lazy = lazy
	case state != nil:
		s.cursor.State, s.lazy = append(s.cursor.State[:0], state...), nil
	}
	return freed, err
}

var errBackward = errors.New("the cursor would move backward: report this as a fault")

// move acknowledges everything below ring index to.
func (s *sub) move(to int64) (freed bool, err error) {
	r, c := s.feed.ring, &s.cursor
	for i := s.rd.Acked(); i < to; i++ {
		switch e := r.Event(i); e.Kind {
		case event.Rows:
			if e.Table != nil {
				s.rows += int64(e.Rows - e.Skip)
			}
		case event.End:
			if e.Ordinal <= c.Last() { // I2
				return false, fmt.Errorf("%s: transaction end %d behind cursor %d+%d: %w", s.id, e.Ordinal, c.Ordinal, c.Progress, errBackward)
			}
			moveTo(c, e)
		}
	}
	// A transaction that is handed out again in whole does not take back its progress (I2).
	if to > s.rd.Acked() {
		if c.Progress = max(c.Progress, r.Ordinal(to-1)-c.Ordinal); c.Progress > 0 {
			c.Open = r.Event(to - 1).Txn.GTID
		}
	}
	return r.Ack(s.rd, to), nil
}

// rollback forgets the outstanding batches from the given one on; their events are handed out again.
func (s *sub) rollback(id int64) error {
	if err := s.checkID("rollback", id, false); err != nil {
		return err
	}
	i := s.find(id)
	s.feed.ring.Take(s.rd, s.batches[i].from)
	s.batches = s.batches[:i]
	s.gen++
	return nil
}

// rollbackAll forgets all outstanding batches.
func (s *sub) rollbackAll() {
	s.gen++
	if s.rd != nil {
		s.feed.ring.Take(s.rd, s.rd.Acked())
	}
	s.batches = nil
}

func (s *sub) find(id int64) int {
	// Ids of outstanding batches rise, with gaps after a rollback.
	i, ok := slices.BinarySearchFunc(s.batches, id, func(b batch, id int64) int {
		switch {
		case b.id < id:
			return -1
		case b.id > id:
			return 1
		}
		return 0
	})
	if !ok {
		return -1
	}
	return i
}

// checkID returns a *BatchError unless id is outstanding, and the oldest one if
// that is asked for.
func (s *sub) checkID(op string, id int64, first bool) error {
	i := s.find(id)
	if i == 0 || i > 0 && !first {
		return nil
	}
	e := &BatchError{Identity: s.id, Op: op, ID: id, Oldest: NoBatch, Err: ErrBatchOrder}
	if i < 0 {
		e.Err = ErrUnknownBatch
	}
	if len(s.batches) > 0 {
		e.Oldest = s.batches[0].id
	}
	return e
}

// detach moves a subscription from the main ring onto a ring of its own that
// holds what it has not acknowledged, so that the main ring waits for it no longer.
func (c *core) detach(s *sub) {
	m := c.main
	f := &feed{owner: s, placed: c.placed, subs: []*sub{s}, start: transactionEnd(m.start), tail: transactionEnd(m.tail), open: m.open}
	ring, rd := m.ring.Fork(s.rd)
	m.ring.Detach(s.rd)
	m.subs = slices.DeleteFunc(m.subs, func(x *sub) bool { return x == s })
	f.ring = ring
	s.feed, s.rd = f, rd
	s.gen++
	s.detached++
}

// laggards returns the subscriptions that hold the feed's ring up while another
// one has acknowledged everything: those furthest behind.
func (f *feed) laggards() []*sub {
	var behind []*sub
	idle := false
	for _, s := range f.subs {
		switch {
		case s.ahead:
			idle = true // it waits for the stream to come
		case s.rd.Acked() == f.ring.Next():
			idle = true
		case s.rd.Acked() == f.ring.Low():
			behind = append(behind, s)
		}
	}
	if !idle {
		return nil
	}
	return behind
}

// join moves a subscription from its own ring to the main ring if the two meet
// at a transaction end.
func (c *core) join(f *feed) (bool, error) {
	m := c.main
	if m == nil || f.open != nil || f.ring.Last() != f.tail.Ordinal {
		return false, nil
	}
	i, ok := m.ring.After(f.tail.Ordinal)
	if !ok {
		return false, nil
	}
	if why := m.agrees(i, &f.tail); why == unproven {
		return false, nil // the next transaction end may tell
	} else if why != "" {
		err := fmt.Errorf("ordinal %d is the transaction end at %s:%d for the catch-up reader, but %s for the main reader: the two do not read the same history of the source",
			f.tail.Ordinal, f.tail.Position.File, f.tail.Position.Offset, why)
		if m.tail.Position.ServerUUID != f.tail.Position.ServerUUID {
			err = fmt.Errorf("%w: %w", event.ErrAnotherServer, err)
		}
		return false, err
	}
	s := f.owner
	old := s.rd
	rd := m.ring.Join(f.ring, old)
	if rd == nil {
		return false, nil
	}
	shift := rd.Acked() - old.Acked()
	for i := range s.batches {
		s.batches[i].from += shift
		s.batches[i].to += shift
	}
	if m.pinBy == f {
		c.unpin()
	}
	m.subs = append(m.subs, s)
	f.subs = nil
	s.feed, s.rd = m, rd
	s.gen++
	return true, nil
}

// near holds the main ring where it ends now for a catch-up reader that is
// close, so that they meet. The main ring lets go as soon as it is full.
func (c *core) near(f *feed) {
	m := c.main
	if m == nil || m.pin != nil || m.ring.Used() > 0.5 {
		return
	}
	if lag := m.ring.Last() - f.ring.Last(); lag > 0 && lag <= int64(c.maxEvents)/2 {
		m.pin, m.pinBy = m.ring.Attach(m.ring.Next()), f
	}
}

// unpin lets go of what near held.
func (c *core) unpin() {
	m := c.main
	if m.pin != nil {
		pin := m.pin
		m.pin, m.pinBy = nil, nil
		m.ring.Detach(pin)
	}
}

const unproven = "the position was made on another server, and without GTIDs nothing proves that both are the same place"

// agrees says why the cursor's transaction end is not what lies before ring index i; ""
// when it is.
func (f *feed) agrees(i int64, c *event.Cursor) string {
	if c.Ordinal == f.start.Ordinal {
		if !samePosition(&f.start.Position, &c.Position) {
			return fmt.Sprintf("the stream has that number at %s:%d", f.start.Position.File, f.start.Position.Offset)
		}
		return ""
	}
	e, p := f.ring.EndBefore(i), &c.Position
	switch {
	case e == nil:
		return "the stream has no transaction end there"
	case e.Txn.ServerUUID != p.ServerUUID && e.Txn.GTID.IsZero() && (e.Txn.Snapshot == nil || p.GTIDs.IsEmpty()):
		return unproven
	case e.Txn.ServerUUID == p.ServerUUID && (e.File != p.File || e.Next != p.Offset), !p.GTIDs.Contains(e.Txn.GTID),
		e.Txn.ServerUUID != p.ServerUUID && !f.leads(i, p):
		return "the stream has that number at " + place(e)
	}
	return ""
}

// leads says whether exactly the transactions from ring index i on lead from a position to the feed's end: then the
// position is what lies before that index, on whichever server it was made.
func (f *feed) leads(i int64, p *event.Position) bool {
	done := event.Position{GTIDs: p.GTIDs.Clone(), ServerUUID: p.ServerUUID, File: f.tail.Position.File, Offset: f.tail.Position.Offset}
	for next := f.ring.Next(); i < next; i++ {
		if e := f.ring.Event(i); e.Kind == event.End && e.Txn.Snapshot == nil {
			if done.GTIDs.Contains(e.Txn.GTID) {
				return false
			}
			done.GTIDs.Add(e.Txn.GTID)
		}
	}
	return samePosition(&done, &f.tail.Position)
}

// samePosition says whether two positions are provably the same place. File and
// offset mean something on one server only; GTIDs everywhere.
func samePosition(a, b *event.Position) bool {
	same := a.GTIDs.Equal(b.GTIDs)
	if a.GTIDs.IsMariaDB() && b.GTIDs.IsMariaDB() {
		same = a.GTIDs.ConnectState() == b.GTIDs.ConnectState()
	}
	if a.ServerUUID == b.ServerUUID {
		return same && a.File == b.File && a.Offset == b.Offset
	}
	return same && !a.GTIDs.IsEmpty()
}

// misplaced is the error of a cursor that does not agree with the stream.
func misplaced(s *sub, f *feed, why string) error {
	p := &s.cursor.Position
	err := fmt.Errorf("cursor of %s says that ordinal %d is the transaction end at %s:%d (GTIDs %q), but %s; "+
		"the cursor was made on another history of the source: set it with binlogmq cursor set",
		s.id, s.cursor.Ordinal, p.File, p.Offset, clip(p.GTIDs.String()), why)
	if at := f.tail.Position.ServerUUID; at != "" && p.ServerUUID != "" && p.ServerUUID != at {
		err = fmt.Errorf("%w: %w", event.ErrAnotherServer, err)
	}
	return err
}

func place(e *event.Event) string {
	if g := e.Txn.GTID; !g.IsZero() {
		return fmt.Sprintf("%s:%d (GTID %s)", e.File, e.Next, g)
	}
	return fmt.Sprintf("%s:%d", e.File, e.Next)
}

func txnName(t *event.Txn) string {
	if !t.GTID.IsZero() {
		return t.GTID.String()
	}
	return fmt.Sprintf("%s:%d", t.File, t.Start)
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

func sortedSubs(m map[string]*sub) []*sub {
	out := make([]*sub, 0, len(m))
	for _, s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *sub) int {
		if a.id.Client < b.id.Client {
			return -1
		}
		return 1
	})
	return out
}
