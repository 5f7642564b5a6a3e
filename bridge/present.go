package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/sink"
)

// Where it cannot be proven that a replay gives every message the number that it had, the topics themselves are read: which
// changes are there, by GTID (or chunk of a snapshot) and row. Those are not sent again. The rest goes out in a new epoch, under
// numbers never used. That lasts until the source's log is passed up to where it ended when it began: nothing
// that was stored before can be of a later transaction.

// Reconcile says in a State that the sink compares what it replays with what the topics hold.
type Reconcile struct {
	State []byte `json:"state,omitempty"` // of the sink before: where reading begins, unless Since is set
	After int64  `json:"after,omitempty"` // sequences up to it are before the cursor
	Since int64  `json:"since,omitempty"` // milliseconds since 1970: messages stored before are not looked at
	End   *End   `json:"end,omitempty"`   // where it ends; nil: not begun yet
	Auto  bool   `json:"auto,omitempty"`  // nobody asked for it: messages that cannot be compared are not of ours
}

// End is an event.Position as it is kept in a State.
type End struct {
	File       string        `json:"file,omitempty"`
	Offset     uint64        `json:"offset,omitempty"`
	GTIDs      event.GTIDSet `json:"gtids"`
	ServerUUID string        `json:"server_uuid,omitempty"`
}

func (e *End) position() *event.Position {
	return &event.Position{File: e.File, Offset: e.Offset, GTIDs: e.GTIDs, ServerUUID: e.ServerUUID}
}

func endOf(p event.Position) *End { return &End{p.File, p.Offset, p.GTIDs, p.ServerUUID} }

// Reconcile makes the state one of a sink that begins a new epoch at its cursor and sends nothing that its topics hold. since is when what
// is to be found was stored at the earliest; zero: it lies behind what the sink's state says is acknowledged, and
// if there is no such state anywhere.
func (s *State) Reconcile(since time.Time) {
	r := &Reconcile{State: s.Sink}
	if s.Reconciling != nil && s.Reconciling.Since == 0 {
		r.State = s.Reconciling.State // what was found behind it is not sent yet, perhaps
	}
	if !since.IsZero() {
		r.State, r.Since = nil, max(1, since.UnixMilli())
	}
	s.Moved()
	s.Reconciling = r
}

// Elsewhere makes the state one of a sink whose cursor was put to another place of the log, since another server answers, which may hold
// the transactions behind the cursor in another order (I5). last is the ordinal that was acknowledged last; exact and reads say whether the
// sink's broker tells repetitions by their numbers, and whether its topics can be read back. What the cursor says is done is not handed out again;
// what was sent beyond is looked for in the topics, or goes out again in a new epoch, and a sink that can neither do is asked whether there is any.
func (s *State) Elsewhere(last int64, exact, reads bool) {
	r := s.Reconciling
	switch {
	case s.Clean, s.Fingerprint == MovedFingerprint && r == nil:
		return // nothing is stored beyond the cursor, or nothing is sent yet
	case exact && !reads:
		s.Fingerprint, s.Recipe = elsewhereFingerprint, nil
		return
	case exact && r == nil:
		r = &Reconcile{State: s.Sink, After: last + s.Offset, Auto: true}
	case r != nil:
		r.End = nil // that was another server's
	}
	s.Moved()
	s.Reconciling = r
}

// maxPresent bounds the bytes of what is known of topics (I9), maxSnapshots what is known of rows of snapshots beside it.
const (
	maxPresent   = 64 << 20
	maxSnapshots = 16 << 20
)

// Bytes of what a transaction, a sub-index and a span take, about.
const (
	txnBytes  = 200
	subBytes  = 40
	spanBytes = 16
)

// present is what one topic holds of the transactions behind the cursor. It is built by one goroutine and then
// only read.
type present struct {
	txns atomic.Pointer[map[txnID]*txnRows] // nil: all is sent
}

// txnID names a transaction: by its GTID, or as a chunk of a snapshot.
type txnID struct {
	gtid     event.GTID
	snapshot string
	chunk    int64
}

func idOf(t *event.Txn) txnID {
	if s := t.Snapshot; s != nil {
		return txnID{snapshot: s.ID, chunk: s.Chunk}
	}
	return txnID{gtid: t.GTID}
}

// txnRows is what a topic holds of one transaction.
type txnRows struct{ subs []subRows }

// subRows are the rows, by number in the transaction plus one, of which the message with a sub-index is there; 0 stands
// for the transaction's statement, emptiedRow for the emptying of a table.
type subRows struct {
	sub   uint16
	spans []rowSpan
}

// rowSpan is a run of rows from first to last.
type rowSpan struct{ first, last int64 }

// has tells whether the message of a change is there. A nil present holds nothing.
func (p *present) has(id txnID, row int64, sub uint16) bool {
	if p == nil {
		return false
	}
	txns := p.txns.Load()
	if txns == nil {
		return false
	}
	t := (*txns)[id]
	if t == nil {
		return false
	}
	for i := range t.subs {
		if t.subs[i].sub == sub {
			j := t.subs[i].behind(row)
			return j > 0 && row <= t.subs[i].spans[j-1].last
		}
	}
	return false
}

// behind returns the index of the first span that begins behind a row.
func (s *subRows) behind(row int64) int {
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i].first > row })
}

// add notes a message and returns how many bytes that took. Rows mostly come in order.
func (t *txnRows) add(row int64, sub uint16) (bytes int) {
	i := 0
	for i < len(t.subs) && t.subs[i].sub != sub {
		i++
	}
	if i == len(t.subs) {
		t.subs = append(t.subs, subRows{sub: sub})
		bytes += subBytes
	}
	s := &t.subs[i]
	j := s.behind(row)
	if j > 0 && row <= s.spans[j-1].last+1 {
		s.spans[j-1].last = max(s.spans[j-1].last, row)
		return bytes
	}
	s.spans = slices.Insert(s.spans, j, rowSpan{row, row})
	return bytes + spanBytes
}

var (
	// ErrNoHeaders is in the chain of the error of a topic of which it cannot be said which changes it holds.
	ErrNoHeaders = errors.New("messages without the headers gtid and row cannot be compared with the source's log")
	// ErrTooMuch is in the chain of the error of topics that hold more than may be kept in memory.
	ErrTooMuch = errors.New("the topics hold more transactions behind the cursor than may be compared")
)

const noReconcileRemedy = "begin anew without comparing: `binlogmq cursor new-life`, which may repeat messages sent after the cursor"

// reconciliation is the bridge's part of a Reconcile that has not ended.
type reconciliation struct {
	Reconcile
	end    *event.Position
	behind event.GTIDSet       // transactions before the cursor, of which nothing need be known
	topics map[string]*present // that have been read
	bytes  int                 // of transactions
	chunks int                 // bytes of chunks of snapshots
	asked  bool                // by the user: then a message that cannot be compared stops the sink
}

// emptiedRow is the row in the mark of a message that says that its table was emptied. Its sub-index is left out: that depends
// on whether the statement itself is published.
const emptiedRow = -1

// mark is what the headers of a message say of its change.
type mark struct {
	id  txnID
	row int64 // plus one; 0: a statement; emptiedRow
	sub uint16
}

// parseMark reads the headers of a stored message. ok is false where they do not tell its change. statements says that
// the topic may hold some. That a table was emptied is told by the header op, which such messages always have.
func parseMark(headers []sink.Header, statements bool) (m mark, ok bool) {
	var err error
	emptied := false
	for _, h := range headers {
		v := string(h.Value)
		switch h.Name {
		case headerNames[headerGTID]:
			if m.id.gtid, err = event.ParseGTID(v); err != nil {
				return mark{}, false
			}
		case snapshotHeader:
			s, err := event.ParseSnapshot(v)
			if err != nil {
				return mark{}, false
			}
			m.id.snapshot, m.id.chunk = s.ID, s.Chunk
		case headerNames[headerRow]:
			if m.row, err = strconv.ParseInt(v, 10, 64); err != nil || m.row < 0 {
				return mark{}, false
			}
			m.row++
		case headerNames[headerOp]:
			emptied = v == string(opTruncate)
		case subHeader:
			n, err := strconv.ParseUint(v, 10, 16)
			if err != nil {
				return mark{}, false
			}
			m.sub = uint16(n)
		}
	}
	if emptied && m.row == 0 {
		m.row, m.sub = emptiedRow, 0
	}
	if m.id.chunk > 0 {
		return m, m.id.gtid.IsZero() && m.row > 0
	}
	return m, !m.id.gtid.IsZero() && (m.row != 0 || statements)
}

// find reads what a topic holds, once.
func (b *Bridge) find(ctx context.Context, topic string, partitions int32) (*present, error) {
	b.mu.Lock()
	r := b.reconciling
	var known *present
	if r != nil {
		known = r.topics[topic]
	}
	b.mu.Unlock()
	if r == nil || known != nil {
		return known, nil
	}
	reader := b.o.Sink.(sink.Reader) // load has seen to it
	from := sink.From{State: r.State, After: r.After}
	if r.Since > 0 {
		from.Since = time.UnixMilli(r.Since)
	}
	begin, forgotten := time.Now(), false
	txns, chunks := map[txnID]*txnRows{}, map[txnID]*txnRows{}
	found, before, bytes, chunkBytes := 0, r.bytes, 0, 0
	room := (maxSnapshots - r.chunks) / 2 // and as much for the topics to come
	for part := range max(partitions, 1) {
		if partitions == 0 {
			part = -1
		}
		err := reader.ReadBack(ctx, topic, part, from, func(s *sink.Stored) error {
			m, ok := parseMark(s.Headers, topic == b.c.ddlTopic)
			if !ok {
				if !r.asked {
					return nil // not of ours, as far as can be told
				}
				return &StopError{Err: fmt.Errorf("topic %s, partition %d, %s: %w", topic, part, s.Place, ErrNoHeaders), Remedy: noReconcileRemedy}
			}
			all, size := txns, &bytes
			if m.id.chunk > 0 {
				all, size = chunks, &chunkBytes
			} else if r.behind.Contains(m.id.gtid) {
				return nil
			}
			t := all[m.id]
			if t == nil {
				t = new(txnRows)
				all[m.id] = t
				*size += txnBytes + len(m.id.snapshot)
			}
			*size += t.add(m.row, m.sub)
			found++
			if chunkBytes > room {
				// Nothing tells which chunks lie before the cursor. The topic's first ones do, most likely; a row of another
				// one that is forgotten is sent again, and is the same row.
				chunks, chunkBytes, forgotten = map[txnID]*txnRows{}, 0, true
			}
			if before+bytes > maxPresent {
				return &StopError{Err: fmt.Errorf("topic %s: %w: %d MiB", topic, ErrTooMuch, maxPresent>>20),
					Remedy: "read later messages only (binlogmq cursor new-life --reconcile --since TIME), or " + noReconcileRemedy}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read what topic %s holds: %w", topic, err)
		}
	}
	maps.Copy(txns, chunks)
	p := new(present)
	p.txns.Store(&txns)
	b.mu.Lock()
	r.topics[topic] = p
	r.bytes, r.chunks = before+bytes, r.chunks+chunkBytes
	ended := b.reconciling != r
	b.mu.Unlock()
	if ended {
		p.txns.Store(nil)
	}
	if forgotten {
		b.o.Logger.Warn("the topic holds more rows of snapshots than may be compared; some of the first of them may be sent again", "topic", topic)
	}
	b.o.Logger.Info("what the topic holds is read; it is not sent again", "topic", topic, "messages", found, "transactions", len(txns), "took", time.Since(begin).Round(time.Millisecond))
	return p, nil
}

// reconcile prepares the comparison that a state asks for, or that its circumstances ask for. It
// changes st.Reconciling, which must be saved.
func (b *Bridge) reconcile(ctx context.Context, st *State, cursor *event.Cursor) error {
	b.mu.Lock()
	b.reconciling = nil
	b.mu.Unlock()
	b.lost = nil
	reader, able := b.o.Sink.(sink.Reader)
	able = able && reader.KeepsReadable() && b.o.SourceEnd != nil
	asked := st != nil && st.Reconciling != nil
	if !able || cursor.Position.GTIDs.IsEmpty() {
		if asked {
			why := "the source has no GTIDs at the cursor"
			if !able {
				why = "the sink cannot read its topics"
			}
			return &StopError{Err: fmt.Errorf("what the topics hold cannot be compared: %s", why), Remedy: noReconcileRemedy}
		}
		return nil
	}
	if !asked && (!b.o.Exact || st != nil) {
		return nil
	}
	if !asked || st.Reconciling.End == nil {
		end, err := b.o.SourceEnd(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("where the source's log ends: %w", err)
		case asked:
			st.Reconciling.End = endOf(end)
		default:
			// The cursor is lost, or the sink is new: its topics tell which.
			b.lost = &Reconcile{End: endOf(end), Auto: true}
		}
	}
	r := b.lost
	if st != nil {
		r = st.Reconciling
	}
	c := &reconciliation{Reconcile: *r, end: r.End.position(), behind: cursor.Position.GTIDs.Clone(), topics: map[string]*present{}, asked: !r.Auto}
	if cursor.Done != nil {
		c.behind = c.behind.Union(cursor.Done.GTIDs)
	}
	if cursor.Progress == 0 && cursor.Position.Reached(c.end) {
		if st != nil {
			st.Reconciling = nil
		}
		b.lost = nil
		return nil
	}
	b.mu.Lock()
	b.reconciling = c
	b.mu.Unlock()
	return nil
}

// reconcilePeriod is how often it is looked whether a comparison has come to its end.
const reconcilePeriod = 200 * time.Millisecond

// reconciled ends the comparison when the cursor has reached its end. Caller holds the session's ackMu.
func (b *Bridge) reconciled(ctx context.Context) {
	b.mu.Lock()
	r := b.reconciling
	b.mu.Unlock()
	if r == nil {
		return
	}
	cursor, err := b.o.Client.Cursor(ctx)
	if err != nil || !cursor.Position.Reached(r.end) {
		return
	}
	b.mu.Lock()
	b.reconciling, b.saved.Reconciling = nil, nil
	b.version++
	topics := slices.Collect(maps.Values(r.topics))
	b.mu.Unlock()
	for _, p := range topics {
		p.txns.Store(nil)
	}
	if err := b.savePins(ctx); err != nil { // tried again with the next acknowledgement
		b.o.Logger.Warn("the end of the comparison with the topics is not saved yet", "error", err)
	}
	b.o.Logger.Info("what the topics held is compared whole; the sink goes on as usual", "already_there", b.stats.present.Load())
}
