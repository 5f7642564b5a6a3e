package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/sink"
)

// slab is what is published at once: messages with one buffer behind their keys, values
// and header values. It owns its messages, and is used again when all of them are done, not before.
type slab struct {
	msgs    []sink.Message
	hdrs    []sink.Header
	buf     []byte
	rows    int64 // row changes
	payload int64 // bytes of all messages
	size    int64 // bytes of memory, as the window counts them
	small   bool  // taken from smallSlabs
	ended   bool  // the transaction of the messages before its first one has ended; for a sink.Transactional

	chunk  *chunk
	left   atomic.Int64 // messages not done
	failed atomic.Bool
}

// Slabs are kept in two sizes, so that a single row does not hold the memory of a thousand.
var (
	smallSlabs = sync.Pool{New: func() any { return new(slab) }}
	largeSlabs = sync.Pool{New: func() any { return new(slab) }}
)

const (
	smallRaw  = 2 << 10  // chunks up to this size get a small slab
	smallSlab = 32 << 10 // memory of a small slab at most
)

// memory is what the slab occupies.
func (s *slab) memory() int64 {
	return int64(cap(s.buf)) + int64(cap(s.msgs))*int64(unsafe.Sizeof(sink.Message{})) + int64(cap(s.hdrs))*int64(unsafe.Sizeof(sink.Header{}))
}

// MessageDone takes the fate of one message. It neither blocks nor calls the sink.
func (s *slab) MessageDone(m *sink.Message, err error) {
	if err != nil {
		s.failed.Store(true)
		s.chunk.session.messageFailed(m, err)
	}
	s.drop(1)
}

// drop takes n messages off: done, or never accepted by the sink.
func (s *slab) drop(n int64) {
	switch left := s.left.Add(-n); {
	case left == 0:
		s.chunk.slabDone(s)
	case left < 0:
		bug(fmt.Errorf("%w: more messages done than the slab has", errLedger))
	}
}

func (s *slab) recycle() {
	clear(s.msgs)
	clear(s.hdrs)
	s.msgs, s.hdrs, s.buf = s.msgs[:0], s.hdrs[:0], s.buf[:0]
	s.chunk, s.rows, s.payload, s.size, s.ended = nil, 0, 0, 0, false
	s.failed.Store(false)
	switch m := s.memory(); {
	case s.small && m <= smallSlab:
		smallSlabs.Put(s)
	case m <= 8*slabBytes: // one huge row must not be kept for ever
		largeSlabs.Put(s)
	}
}

// part is one event of a chunk.
type part struct {
	e   *event.Event
	p   *plan // nil for transaction ends, and for DDL but the emptying of a table that is a message among its rows
	ddl bool  // DDL: the statement is published
}

// chunk is one task of encoding: some events of one batch, in order. An event
// is never cut, but what it yields is handed over slab by slab.
type chunk struct {
	session *session
	ticket  int64 // of its batch in the ledger
	parts   []part
	raw     int64
	err     error // why encoding ended; set before the nil in out
	ended   bool  // as in slab, behind the last one; set before the nil in out

	claimed atomic.Bool  // somebody encodes it
	out     chan *slab   // what a worker has encoded; nil = end. A chunk without out only carries err
	left    atomic.Int64 // slabs not done, plus one until the last is published
	failed  atomic.Bool
}

// claim reports whether the caller is the one to encode c.
func (c *chunk) claim() bool { return !c.claimed.Swap(true) }

// slabDone: all messages of s are done.
func (c *chunk) slabDone(s *slab) {
	se, size := c.session, s.size
	if s.failed.Load() {
		c.failed.Store(true)
	} else {
		se.b.stats.messages.Add(int64(len(s.msgs)))
		se.b.stats.bytes.Add(s.payload)
	}
	s.recycle()
	se.encoded.Add(-size)
	c.drop() // before outstanding: who sees 0 there finds the ledger up to date
	if se.outstanding.Add(-1) == 0 {
		signal(se.idle)
	}
	signal(se.room)
}

// drop lets go of one slab, or of the publisher's hold.
func (c *chunk) drop() {
	switch left := c.left.Add(-1); {
	case left == 0:
		se, ticket, ok := c.session, c.ticket, !c.failed.Load()
		clear(c.parts)
		c.parts, c.err, c.ended = c.parts[:0], nil, false
		c.failed.Store(false)
		se.chunks.Put(c)
		se.chunkDone(ticket, ok)
	case left < 0:
		bug(fmt.Errorf("%w: more slabs done than the chunk has", errLedger))
	}
}

// bug reports what cannot happen. Tests make it panic.
var bug = func(err error) { bugs.Add(1) }

// bugs counts what cannot happen, for Status.
var bugs atomic.Int64

// errAborted ends encoding when the session is over.
var errAborted = errors.New("bridge: session over")

// encoder turns chunks into slabs. One goroutine uses it. It reads no clock and keeps
// nothing from one chunk to the next that could show in a message (I5).
type encoder struct {
	b       *Bridge
	session *session
	sc      event.Scanner

	s     *slab
	yield func(*slab) bool // takes a full slab, whatever it returns; false = stop
	raw   int64            // size of the chunk

	old, new event.Row     // halves of a split update
	merged   []event.Value // after image completed from the before image

	// Texts that several messages of one slab share.
	txn    *event.Txn
	gtid   []byte // or the name of a chunk of a snapshot
	commit []byte
	at     *event.Event
	pos    []byte
	seq    []byte
	row    []byte
	about  *event.Event
	tables []byte
}

// largeRaw is from where on an encoder lets go of a chunk's memory rather than have its next one overwrite what points there.
const largeRaw = 1 << 20

// let forgets what points into the events and slabs of the last chunk. (I9)
func (x *encoder) let() {
	x.sc, x.old, x.new, x.merged = event.Scanner{}, event.Row{}, event.Row{}, nil
	x.txn, x.at, x.gtid, x.commit, x.pos, x.seq, x.row, x.about, x.tables = nil, nil, nil, nil, nil, nil, nil, nil, nil
}

// encode writes all messages of c and gives them to yield, slab by slab.
func (x *encoder) encode(c *chunk, yield func(*slab) bool) error {
	x.yield, x.raw = yield, c.raw
	x.fresh()
	defer func() {
		if x.s != nil {
			x.s.recycle()
			x.s = nil
		}
		x.yield = nil
		if x.raw > largeRaw {
			x.let()
		}
	}()
	var stop error
	for i := range c.parts {
		p := &c.parts[i]
		switch p.e.Kind {
		case event.DDL:
			stop = held(x.statement(p), p.e.Ordinal)
		case event.End:
			x.end()
		default:
			stop = x.rows(p.e, p.p)
		}
		if stop != nil {
			break
		}
	}
	c.ended = x.s != nil && len(x.s.msgs) == 0 && x.s.ended
	// I3: what comes before a row that cannot be sent is sent, or it would be lost to
	// whoever moves the cursor behind that row.
	if x.s != nil && len(x.s.msgs) > 0 {
		if err := x.flush(false); err != nil {
			return err
		}
	}
	return stop
}

// end marks the end of a source transaction.
func (x *encoder) end() {
	if n := len(x.s.msgs); n > 0 {
		x.s.msgs[n-1].More = false
	} else {
		x.s.ended = true
	}
}

// fresh takes a new slab.
func (x *encoder) fresh() {
	if x.raw <= smallRaw {
		x.s = smallSlabs.Get().(*slab)
		x.s.small = true
	} else {
		x.s = largeSlabs.Get().(*slab)
		x.s.small = false
	}
	x.txn, x.at, x.about = nil, nil, nil
}

// flush hands the slab over.
func (x *encoder) flush(more bool) error {
	s := x.s
	x.s = nil
	s.size = s.memory()
	x.session.encoded.Add(s.size) // I9: what is encoded counts as well
	if !x.yield(s) {
		return errAborted
	}
	if more {
		x.fresh()
	}
	return nil
}

func (x *encoder) rows(e *event.Event, p *plan) error {
	x.sc.Reset(e)
	next := e.Ordinal + int64(e.Skip)
	for x.sc.Next() {
		// Only between row changes: the messages of one change stay together.
		switch full := len(x.s.buf) >= slabBytes || len(x.s.msgs) >= slabMessages; {
		case full && len(x.s.msgs) == 0: // all of it is in the topics already
			x.s.buf, x.s.hdrs = x.s.buf[:0], x.s.hdrs[:0]
			x.txn, x.at, x.about = nil, nil, nil
		case full:
			if err := x.flush(true); err != nil {
				return err
			}
		}
		n, payload := len(x.s.msgs), x.s.payload
		if err := x.change(x.sc.Row(), p); err != nil {
			x.s.msgs, x.s.payload = x.s.msgs[:n], payload // no half of a change
			return held(err, next)
		}
		next++
		x.s.rows++
	}
	if err := x.sc.Err(); err != nil {
		return held(stopAt(e, err, "the row image cannot be read with the table's definition; report it with the binlog event"), next)
	}
	return nil
}

// change writes the messages of one row change.
func (x *encoder) change(r *event.Row, p *plan) error {
	x.seq, x.row = nil, nil
	if err := x.barred(r.Event, r.Ordinal); err != nil {
		return err
	}
	if r.Op != event.Update || len(p.key) == 0 {
		return x.messages(r, p)
	}
	changed, err := x.keyChanged(r, p)
	if err != nil {
		return err
	}
	if !changed || x.b.o.KeyChange == UpdateKeyChange {
		return x.messages(r, p)
	}
	// Columns with other bytes may still make the same key.
	x.old = event.Row{Event: r.Event, Table: r.Table, Op: event.Delete, Before: r.Before, Ordinal: r.Ordinal, Index: r.Index}
	x.new = event.Row{Event: r.Event, Table: r.Table, Op: event.Insert, After: x.complete(r), Ordinal: r.Ordinal, Index: r.Index, Last: r.Last}
	start := len(x.s.buf)
	oldKey, err := x.key(&x.old, p)
	if err != nil {
		return err
	}
	newKey, err := x.key(&x.new, p)
	if err != nil {
		return err
	}
	if bytes.Equal(oldKey, newKey) {
		x.s.buf = append(x.s.buf[:start], newKey...)
		_, err := x.message(r, p, x.s.buf[start:len(x.s.buf):len(x.s.buf)], 0, sink.Header{})
		return err
	}
	for i := range x.new.After {
		if x.new.After[i].IsAbsent() {
			return stopAt(r.Event, fmt.Errorf("the update changes the message key, and the log does not hold column %q", r.Table.Columns[i].Name),
				fullImages+"key_change: update for this sink passes this one, too; or leave its transaction out with: binlogmq cursor skip")
		}
	}
	// I4: the old key's last message and the new key's first, in this order.
	link := sink.Header{Name: x.b.c.newKeyHeader, Value: newKey}
	sub, err := x.message(&x.old, p, oldKey, 0, link)
	if err != nil {
		return err
	}
	if x.b.o.Tombstones {
		if sub, err = x.tombstone(&x.old, p, oldKey, sub, link); err != nil {
			return err
		}
	}
	_, err = x.message(&x.new, p, newKey, sub, sink.Header{Name: x.b.c.oldKeyHeader, Value: oldKey})
	return err
}

// fullImages is what to do so that no more rows are logged in part; every server takes it.
const fullImages = "SET GLOBAL binlog_row_image = FULL on the source, and in its option file, for what is still to be logged; "

// keyChanged says whether an update changes key columns. A column that the after image lacks, as
// row images that are not FULL do, did not change.
func (x *encoder) keyChanged(r *event.Row, p *plan) (bool, error) {
	changed := false
	for _, i := range p.key {
		if r.After[i].IsAbsent() {
			continue
		}
		if r.Before[i].IsAbsent() {
			return false, stopAt(r.Event, fmt.Errorf("the log does not hold key column %q as it was before the update", r.Table.Columns[i].Name),
				fullImages+"key: primary_key for this table passes this one, too; or leave its transaction out with: binlogmq cursor skip")
		}
		changed = changed || !r.After[i].Equal(r.Before[i])
	}
	return changed, nil
}

// complete returns the after image of an update with what it lacks taken from the before image.
func (x *encoder) complete(r *event.Row) []event.Value {
	x.merged = append(x.merged[:0], r.After...)
	for i := range x.merged {
		if x.merged[i].IsAbsent() {
			x.merged[i] = r.Before[i]
		}
	}
	return x.merged
}

// messages writes the message of a row change that needs no split, and its tombstone.
func (x *encoder) messages(r *event.Row, p *plan) error {
	key, err := x.key(r, p)
	if err != nil {
		return err
	}
	sub, err := x.message(r, p, key, 0, sink.Header{})
	if err == nil && x.b.o.Tombstones && r.Op == event.Delete && len(p.key) > 0 {
		_, err = x.tombstone(r, p, key, sub, sink.Header{})
	}
	return err
}

// key writes the message key of a row; nil: it has none.
func (x *encoder) key(r *event.Row, p *plan) ([]byte, error) {
	switch p.rule {
	case TableKey:
		return p.name, nil
	case NoKey:
		return nil, nil
	}
	start := len(x.s.buf)
	buf, err := x.b.o.Codec.AppendKey(x.s.buf, r, p.key)
	if err != nil {
		return nil, stopAt(r.Event, fmt.Errorf("message key: %w", err), "see the error; key columns need binlog_row_image = FULL unless they are the primary key's")
	}
	x.s.buf = buf
	if len(buf) == start {
		return nil, nil
	}
	return buf[start:len(buf):len(buf)], nil
}

// message writes the message of a row, which may be several if it is large, and returns the next sub-index. A link
// without name is none.
func (x *encoder) message(r *event.Row, p *plan, key []byte, sub uint16, link sink.Header) (next uint16, err error) {
	start := len(x.s.buf)
	buf, err := x.b.o.Codec.AppendRow(x.s.buf, r)
	if err != nil {
		return 0, stopAt(r.Event, fmt.Errorf("message value: %w", err), "see the error; choose another codec or exclude the table from the sink")
	}
	x.s.buf = buf
	return x.send(&outgoing{e: r.Event, r: r, p: p, to: &p.to, op: operation(r), key: key, link: link, from: start, until: len(buf), sub: sub})
}

// tombstone writes a message with a key and no value, and returns the next sub-index.
func (x *encoder) tombstone(r *event.Row, p *plan, key []byte, sub uint16, link sink.Header) (next uint16, err error) {
	o := outgoing{e: r.Event, r: r, p: p, to: &p.to, op: operation(r), key: key, link: link, sub: sub}
	if sub > maxSub {
		return 0, x.tooLarge(&o, len(key), fmt.Sprintf(": a change has at most %d messages", maxSub+1), "exclude the table")
	}
	m := x.put(&o, o.to, nil, sub, sink.Header{})
	if size := m.Framed(); o.to.limit > 0 && size > o.to.limit {
		return 0, x.tooLarge(&o, size, ": the key alone is too large", "exclude the table")
	}
	x.keep(&o, o.to, sub)
	return sub + 1, nil
}

func operation(r *event.Row) []byte {
	switch r.Op {
	case event.Insert:
		if r.Event.Snapshot() != nil {
			return opSnapshot
		}
		return opInsert
	case event.Update:
		return opUpdate
	}
	return opDelete
}

// statement writes the messages of a DDL event.
func (x *encoder) statement(part *part) error {
	e, p := part.e, part.p
	x.seq, x.row = nil, nil
	if err := x.barred(e, e.Ordinal); err != nil {
		return err
	}
	n, payload, sub := len(x.s.msgs), x.s.payload, uint16(0)
	var err error
	if part.ddl {
		sub, err = x.ddl(e)
	}
	if err == nil && p != nil {
		start := len(x.s.buf)
		x.s.buf = x.b.o.Codec.(codec.Truncater).AppendTruncate(x.s.buf, e, string(p.schema), string(p.tableName))
		o := outgoing{e: e, p: p, to: &p.to, op: opTruncate, from: start, until: len(x.s.buf), sub: sub}
		if !slices.Contains(x.b.c.headers, headerOp) {
			o.link = sink.Header{Name: headerNames[headerOp], Value: opTruncate} // parseMark knows it by that
		}
		_, err = x.send(&o)
	}
	if err != nil {
		x.s.msgs, x.s.payload = x.s.msgs[:n], payload // no half of a change
	}
	return err
}

// ddl writes the message of a statement, which may be several if it is large, and returns the next sub-index.
func (x *encoder) ddl(e *event.Event) (next uint16, err error) {
	o := outgoing{e: e, to: x.b.ddlTo.Load(), op: opDDL}
	if k, ok := x.b.o.Codec.(codec.DDLKeyer); ok {
		start := len(x.s.buf)
		x.s.buf = k.AppendDDLKey(x.s.buf, e)
		o.key = x.s.buf[start:len(x.s.buf):len(x.s.buf)]
	}
	o.from = len(x.s.buf)
	buf, err := x.b.o.Codec.AppendDDL(x.s.buf, e)
	if err != nil {
		return 0, stopAt(e, fmt.Errorf("message value of a DDL statement: %w", err), "see the error; choose another codec or remove ddl_topic")
	}
	x.s.buf, o.until = buf, len(buf)
	if d, ok := x.b.o.Codec.(codec.Definer); ok && o.to.limit > 0 && e.Stmt != nil && len(e.Stmt.Defined) > 0 && x.framed(&o) > o.to.limit {
		// I5: what was known of tables does not decide how many messages there are.
		o.from = len(x.s.buf)
		x.s.buf = d.AppendBareDDL(x.s.buf, e)
		o.until = len(x.s.buf)
	}
	return x.send(&o)
}

// framed is how large the whole message of o is.
func (x *encoder) framed(o *outgoing) int {
	size := x.put(o, o.to, x.s.buf[o.from:o.until:o.until], o.sub, sink.Header{}).Framed()
	x.take()
	return size
}

var (
	opInsert   = []byte("insert")
	opUpdate   = []byte("update")
	opDelete   = []byte("delete")
	opSnapshot = []byte("snapshot") // an insert of a row that may have been there before
	opTruncate = []byte("truncate")
	opDDL      = []byte("ddl")
)

// headers writes the headers of one message. p is nil for DDL; row is below 0 for what is no row.
func (x *encoder) headers(e *event.Event, p *plan, op []byte, seq, row int64, sub uint16) []sink.Header {
	s := x.s
	start := len(s.hdrs)
	for _, h := range x.b.c.headers {
		var v []byte
		switch h {
		case headerSeq:
			if x.seq == nil {
				x.seq = x.number(seq)
			}
			v = x.seq
			if sub > 0 {
				s.hdrs = append(s.hdrs, sink.Header{Name: headerNames[h], Value: v})
				s.hdrs = append(s.hdrs, sink.Header{Name: subHeader, Value: x.number(int64(sub))})
				continue
			}
		case headerGTID:
			x.transaction(e.Txn)
			if v = x.gtid; len(v) == 0 {
				continue
			}
			if e.Txn.Snapshot != nil {
				s.hdrs = append(s.hdrs, sink.Header{Name: snapshotHeader, Value: v})
				continue
			}
		case headerRow:
			if row < 0 {
				continue
			}
			if x.row == nil {
				x.row = x.number(row)
			}
			v = x.row
		case headerTables:
			if p != nil {
				continue
			}
			if x.about != e {
				x.about = e
				i := len(s.buf)
				if limit := x.b.ddlTo.Load().limit; limit > 0 {
					// It is in each piece of a message that is cut.
					s.buf = codec.AppendTablesWithin(s.buf, e.Stmt, limit/4)
				} else {
					s.buf = codec.AppendTables(s.buf, e.Stmt)
				}
				x.tables = s.buf[i:len(s.buf):len(s.buf)]
			}
			v = x.tables
		case headerDestination:
			v = x.b.destination
		case headerSchema:
			if p == nil {
				v = []byte(e.Schema)
			} else {
				v = p.schema
			}
		case headerTable:
			if p == nil {
				continue
			}
			v = p.tableName
		case headerOp:
			v = op
		case headerPosition:
			if x.at != e {
				x.at = e
				i := len(s.buf)
				s.buf = append(append(s.buf, e.File...), ':')
				s.buf = strconv.AppendUint(s.buf, e.Start, 10)
				x.pos = s.buf[i:len(s.buf):len(s.buf)]
			}
			v = x.pos
		case headerCommitTime:
			x.transaction(e.Txn)
			v = x.commit
		case headerEpoch:
			v = x.session.epoch
		}
		s.hdrs = append(s.hdrs, sink.Header{Name: headerNames[h], Value: v})
	}
	return s.hdrs[start:len(s.hdrs):len(s.hdrs)]
}

// number writes n as decimal text.
func (x *encoder) number(n int64) []byte {
	i := len(x.s.buf)
	x.s.buf = strconv.AppendInt(x.s.buf, n, 10)
	return x.s.buf[i:len(x.s.buf):len(x.s.buf)]
}

// transaction writes what all messages of a transaction share, once a slab.
func (x *encoder) transaction(t *event.Txn) {
	if x.txn == t {
		return
	}
	x.txn = t
	s := x.s
	i := len(s.buf)
	if t.Snapshot != nil {
		s.buf = t.Snapshot.Append(s.buf)
	} else {
		s.buf = t.GTID.Append(s.buf)
	}
	x.gtid = s.buf[i:len(s.buf):len(s.buf)]
	if x.b.c.commitTime {
		x.commit = x.number(t.Time)
	}
}
