package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// window joins whoever reads chunks of tables with the main reader of the stream, which puts them between two transactions. It
// is safe for concurrent use by one of each.
//
// I4: a row of a chunk is what the row is at its place in the stream. While a chunk is read the reader notes the keys that the stream
// touches. What the chunk shows of such a row may be older or newer than the stream at that place, and is dropped: the stream has shown the row itself. Of
// all others it shows what they were when noting began, and are when it ends.
type window struct {
	asked   atomic.Bool   // the reader has something to do here: it looks between transactions, and at once while it waits for the source
	altered atomic.Uint64 // statements that the reader has come by which may have altered tables

	mu    sync.Mutex
	wake  func()     // has the reader look; nil: none runs
	ask   *windowAsk // what the reader shall do; nil: nothing
	noted *noting    // what the reader notes; nil: nothing
	table ddl.Name   // of which a chunk is read, until it is saved how far that is; none: no chunk is
	again string     // the request by which table is noted to be read again, since that chunk was begun; "": none
}

// windowAsk is a wish of the driver.
type windowAsk struct {
	table     ddl.Name   // to be noted, if candidate is nil
	candidate *candidate // to be inserted
	done      chan windowAnswer
}

type windowAnswer struct {
	place   event.Position
	dropped int64
	err     error
}

// candidate is what was read of a chunk.
type candidate struct {
	high  event.Position // where the log ended after it was read: File, Offset and ServerUUID
	table *event.Table
	rows  [][]byte // row images of an insert, with all columns of table.Shown
	keyed bool     // the table has a key; else any row change of it disturbs

	// chunk has Snapshot, ServerID, Time, Before and After; After.Rows does not count its rows yet. The window fills in the rest.
	chunk *snapshot.Chunk
}

// errDisturbed says that a chunk must be read again: the stream does not tell which of its rows are old.
var errDisturbed = errors.New("the chunk must be read again")

// maxNoted bounds the keys that are noted for one chunk, in bytes (I9).
const maxNoted = 16 << 20

// maxPart is from how many bytes of row images on a chunk's next event begins.
const maxPart = 64 << 10

// noting is what the reader notes while a chunk is read. The reader's goroutine uses it.
type noting struct {
	table     ddl.Name
	caseless  bool
	keys      map[string]bool     // keys that were touched; true: what the stream has shown of the row lacks columns
	only      map[string]struct{} // keys that matter; nil: all
	size      int
	touched   bool // a row change of the table came
	keyless   bool // and the table has no key
	logged    *event.Table
	disturbed string
	scan      event.Scanner
	merged    []event.Value
	buf       []byte
}

// open has the main reader note the keys of all row changes of a table, as the source writes its name. It returns once it does, with the place up to which all
// has been read. It waits until the reader has come to where the source's log ended when it began.
func (w *window) open(ctx context.Context, n ddl.Name) (event.Position, error) {
	a := w.request(ctx, &windowAsk{table: n})
	return a.place, a.err
}

// insert hands over what was read since open. It returns when it is saved, and stands in the stream; dropped tells how many of its rows the stream has
// shown itself. Where all were, nothing is saved and nothing stands in the stream.
func (w *window) insert(ctx context.Context, c *candidate) (dropped int64, err error) {
	a := w.request(ctx, &windowAsk{candidate: c})
	return a.dropped, a.err
}

// close has the reader note nothing any more.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted, w.table, w.again = nil, ddl.Name{}, ""
}

// reads tells of which table a chunk is read, and by which request it is noted already that the table is to be read again.
func (w *window) reads() (table ddl.Name, again string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table, w.again
}

// rereads says that it is saved that the table of which a chunk is read is to be read again. Until the next chunk is begun that holds: the table's
// first chunk, with which it is not to be any more, is one of those (I3).
func (w *window) rereads(table ddl.Name, request string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.table == table {
		w.again = request
	}
}

func (w *window) request(ctx context.Context, a *windowAsk) windowAnswer {
	a.done = make(chan windowAnswer, 1)
	w.mu.Lock()
	if w.ask != nil {
		w.mu.Unlock()
		return windowAnswer{err: errors.New("two chunks at once: report this as a fault")}
	}
	w.ask = a
	w.asked.Store(true)
	if w.wake != nil {
		w.wake()
	}
	w.mu.Unlock()
	select {
	case answer := <-a.done:
		return answer
	case <-ctx.Done():
	}
	w.mu.Lock()
	if w.ask == a {
		w.answer(windowAnswer{})
	}
	w.mu.Unlock()
	return windowAnswer{err: ctx.Err()}
}

// answer ends what is asked. mu is held.
func (w *window) answer(a windowAnswer) {
	w.ask.done <- a
	w.ask = nil
	w.asked.Store(false)
}

// attach has wake called when something is asked.
func (w *window) attach(wake func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake = wake
}

// detach says that the reader is gone, and with it what it has noted.
func (w *window) detach() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake, w.noted = nil, nil
	if w.ask != nil && w.ask.candidate != nil {
		w.answer(windowAnswer{err: fmt.Errorf("%w: the link to the source was lost", errDisturbed)})
	}
}

// wants tells whether what is noted is asked for still.
func (w *window) wants(n *noting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noted == n
}

func newNoting(n ddl.Name, caseless bool) *noting {
	return &noting{table: n, caseless: caseless, keys: map[string]bool{}}
}

// spoilt returns an error that is errDisturbed if nobody knows which of the chunk's rows are old.
func (n *noting) spoilt(c *candidate) error {
	switch {
	case n.disturbed != "":
		return fmt.Errorf("%w: %s", errDisturbed, n.disturbed)
	case n.touched && (!c.keyed || n.keyless):
		return fmt.Errorf("%w: rows of the table, which has no key, changed meanwhile", errDisturbed)
	case n.logged != nil && !snapshot.SameKey(n.logged, c.table.Shown()):
		return fmt.Errorf("%w: the log tells rows of the table apart by another key than the table's definition", errDisturbed)
	}
	return nil
}

// note notes what an event touches.
func (n *noting) note(e *event.Event) {
	if n.disturbed != "" {
		return
	}
	switch {
	case e.Kind == event.DDL && e.Stmt != nil && e.Stmt.Concerns(n.is, n.schema):
		n.disturbed = "a statement may have changed the table"
	case e.Kind == event.Rows && e.Table == nil:
		if e.Stmt.Concerns(n.is, n.schema) {
			n.disturbed = "row changes were passed over"
		}
	case e.Kind == event.Rows && e.Txn.Snapshot == nil && n.is(e.Table.Schema, e.Table.Name):
		n.touched = true
		n.rows(e)
	}
}

func (n *noting) is(schema, table string) bool { return sameTable(n.caseless, n.table, schema, table) }

func sameTable(caseless bool, n ddl.Name, schema, table string) bool {
	if caseless {
		return strings.EqualFold(schema, n.Schema) && strings.EqualFold(table, n.Table)
	}
	return schema == n.Schema && table == n.Table
}

func (n *noting) schema(schema string) bool {
	return schema == n.table.Schema || n.caseless && strings.EqualFold(schema, n.table.Schema)
}

// rows notes the keys of row changes.
func (n *noting) rows(e *event.Event) {
	if len(e.Table.Key) == 0 {
		n.keyless = true
		return // touched says enough
	}
	if n.logged != nil && n.logged != e.Table && !snapshot.SameKey(n.logged, e.Table) {
		n.disturbed = "the table has another key now"
		return
	}
	n.logged = e.Table
	n.scan.Reset(e)
	for n.scan.Next() {
		row := n.scan.Row()
		if row.Before != nil && !n.key(e.Table, row.Before, row.After != nil && lacks(row)) {
			return
		}
		if row.After == nil {
			continue
		}
		n.merged = merged(n.merged, row)
		if !n.key(e.Table, n.merged, lacks(row)) {
			return
		}
	}
	if n.scan.Err() != nil {
		n.disturbed = "row changes of the table cannot be read"
	}
}

// lacks tells whether a row change does not show all that its row is afterwards, as with binlog_row_image=MINIMAL.
func lacks(row *event.Row) bool {
	for i := range row.After {
		if row.After[i].IsAbsent() && (row.Before == nil || row.Before[i].IsAbsent()) && row.Table.Columns[i].Virtual == event.VirtualNone {
			return true
		}
	}
	return false
}

// key notes the key of an image; false: enough is noted.
func (n *noting) key(t *event.Table, image []event.Value, partial bool) bool {
	id, ok := snapshot.AppendIdentity(n.buf[:0], t, image)
	if !ok {
		n.disturbed = "a row change does not tell its key"
		return false
	}
	n.buf = id
	if n.only != nil {
		if _, matters := n.only[string(id)]; !matters {
			return true
		}
	}
	if _, known := n.keys[string(id)]; !known {
		n.size += len(id) + 64
	}
	if n.size > maxNoted {
		n.disturbed = "too many rows of the table change"
		return false
	}
	n.keys[string(id)] = partial
	return true
}

// limit forgets the keys that do not concern the candidate, and notes none of them from now on.
func (n *noting) limit(c *candidate) error {
	if n.only != nil || !c.keyed || n.disturbed != "" {
		return nil
	}
	only := make(map[string]struct{}, len(c.rows))
	err := n.each(c, func(_ []byte, id []byte) { only[string(id)] = struct{}{} })
	if err != nil {
		return err
	}
	n.only = only
	for id := range n.keys {
		if _, matters := only[id]; !matters {
			delete(n.keys, id)
			n.size -= len(id) + 64
		}
	}
	return nil
}

// each calls f with the rows of the candidate and their keys, which last until it returns.
func (n *noting) each(c *candidate, f func(raw, id []byte)) error {
	table := c.table.Shown()
	all := table.AllColumns()
	for _, raw := range c.rows {
		n.scan.Reset(&event.Event{Kind: event.Rows, Op: event.Insert, Rows: 1, Table: table, Images: event.Images{After: all}, Raw: raw})
		if !n.scan.Next() {
			return fmt.Errorf("table %s: a row that was read makes no sense: %w", n.table, n.scan.Err())
		}
		id, ok := snapshot.AppendIdentity(n.buf[:0], table, n.scan.Row().After)
		if !ok {
			return fmt.Errorf("table %s: a row that was read has no key: report this as a fault", n.table)
		}
		n.buf = id
		f(raw, id)
	}
	return nil
}

// insertions is the part of a reader that puts chunks into the stream.
type insertions struct {
	log    *snapshot.Reading // nil: there are none
	window *window           // of the main reader; nil: any other
	m      *binlog.Machine
	server string         // UUID of the server that is read
	former event.Position // where its log ended when reading began: what earlier runs can have read lies before it
	counts string
	noted  *noting
	scan   keyScan
}

// join prepares an attempt for chunks. leave must be called at its end. former is where the server's log ended before.
func (r *reader) join(ctx context.Context, sv *server, m *binlog.Machine, g *readGuard, former event.Position) (leave func()) {
	c := r.c
	r.caseless = sv.caseless()
	r.chunks = insertions{log: r.chunks.log, m: m, server: sv.uuid, counts: c.counts()}
	if !r.main || c.window == nil {
		return func() {}
	}
	i := &r.chunks
	i.window, i.former = c.window, former
	g.idle = func() error {
		if !i.window.asked.Load() {
			return nil
		}
		if err := r.serve(ctx); err != nil {
			return err
		}
		return r.flush(ctx)
	}
	i.window.attach(g.wake)
	return i.window.detach
}

// counts names the numbering that ordinals belong to.
func (c *Connector) counts() string {
	return fmt.Sprintf("%t %q", c.opt.AllVersions, c.opt.Tables.Patterns())
}

// note notes what an event touches, while a chunk is read.
func (i *insertions) note(e *event.Event) {
	if !i.window.wants(i.noted) {
		i.noted = nil
		return
	}
	i.noted.note(e)
}

// brought remembers which tables a snapshot must read again, as a statement has brought rows under their names that the stream has not shown as theirs (I3). It does
// so before the statement is handed on, as whoever begins behind it does not see it.
func (r *reader) brought(ctx context.Context, e *event.Event) error {
	r.chunks.window.altered.Add(1)
	for {
		req, ok, err := r.c.opt.Snapshots.Ordered(ctx)
		if err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		if !ok {
			return nil
		}
		wanted, err := tablefilter.New(req.Tables)
		if err != nil {
			return nil // whoever carries it out says so
		}
		wanted = wanted.For(r.caseless)
		captured := r.c.opt.Tables.For(r.caseless)
		var tables []snapshot.Table
		all := !e.Stmt.Brought(func(schema, name string) {
			if captured.Match(schema, name) && wanted.Match(schema, name) {
				tables = append(tables, snapshot.Table{Schema: schema, Name: name})
			}
		}) && mayMove(e.Raw)
		if len(tables) == 0 && !all {
			return nil
		}
		err = r.c.opt.Snapshots.Again(ctx, req.ID, tables, all)
		if errors.Is(err, snapshot.ErrEnded) {
			continue
		}
		if err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		r.c.log.Info("tables have got rows from elsewhere, and are read again for the snapshot", "snapshot", req.ID, "tables", tables, "all", all)
		return nil
	}
}

// moved has a table read again, while it is read, of which rows get other keys and the log does not tell all their columns: such a row may have gone from
// what is still to be read to where all is read, and nobody would show it as a whole (I3). It does so before the change is handed on.
func (r *reader) moved(ctx context.Context, e *event.Event) error {
	snapshots := r.c.opt.Snapshots
	if e.Op != event.Update || e.Txn.Snapshot != nil || len(e.Table.Key) == 0 || e.Table.Present(e.Images.After) == len(e.Table.Columns) || e.Ordinal <= snapshots.Last() {
		return nil // what lies before a chunk was seen before that was saved
	}
	for {
		req, ok, err := snapshots.Ordered(ctx)
		if err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		if !ok {
			return nil
		}
		name, noted := r.chunks.window.reads()
		if noted == req.ID {
			return nil
		}
		if name == (ddl.Name{}) {
			if p := snapshots.Status().Progress; p != nil && p.Request == req.ID && p.Table != nil {
				name = ddl.Name{Schema: p.Table.Schema, Table: p.Table.Name}
			}
		}
		if !sameTable(r.caseless, name, e.Table.Schema, e.Table.Name) || !r.chunks.scan.moves(e) {
			return nil
		}
		err = snapshots.Again(ctx, req.ID, []snapshot.Table{{Schema: name.Schema, Name: name.Table}}, false)
		if errors.Is(err, snapshot.ErrEnded) {
			continue
		}
		if err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		r.chunks.window.rereads(name, req.ID)
		r.c.log.Warn("a table is read again for the snapshot, as rows of it got other keys and the log does not tell all their columns: SET GLOBAL binlog_row_image=FULL on the source while tables are read", "snapshot", req.ID, "table", name.String())
		return nil
	}
}

// keyScan looks at keys of row changes.
type keyScan struct {
	event.Scanner
	before, after []byte
	merged        []event.Value
}

// moves tells whether an update gives a row another key, and does not show the row as a whole; also where that cannot be told.
func (s *keyScan) moves(e *event.Event) bool {
	for s.Reset(e); s.Next(); {
		row := s.Row()
		if !lacks(row) {
			continue
		}
		s.merged = merged(s.merged, row)
		var whole [2]bool
		s.before, whole[0] = snapshot.AppendIdentity(s.before[:0], e.Table, row.Before)
		s.after, whole[1] = snapshot.AppendIdentity(s.after[:0], e.Table, s.merged)
		if !whole[0] || !whole[1] || !bytes.Equal(s.before, s.after) {
			return true
		}
	}
	return s.Err() != nil
}

// merged returns the after image of a row change with what it lacks of the key, which is unchanged.
func merged(dst []event.Value, row *event.Row) []event.Value {
	dst = append(dst[:0], row.After...)
	if row.Before == nil {
		return dst
	}
	for _, k := range row.Table.Key {
		if row.After[k].IsAbsent() {
			dst[k] = row.Before[k]
		}
	}
	return dst
}

// mayMove tells whether a statement that is not understood may bring rows into tables.
func mayMove(text []byte) bool {
	upper := bytes.ToUpper(text)
	return slices.ContainsFunc([]string{"RENAME", "EXCHANGE", "IMPORT", "CONVERT"}, func(w string) bool { return bytes.Contains(upper, []byte(w)) })
}

// ended is called between transactions: it puts what belongs there into the stream.
func (r *reader) ended(ctx context.Context) error {
	i := &r.chunks
	for {
		chunk, err := i.log.At(ctx, i.m.Ordinal(), i.counts)
		if errors.Is(err, snapshot.ErrMissed) {
			return r.missed(err)
		}
		if err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		if chunk == nil {
			break
		}
		if err := i.m.Insert(insertion(chunk)); err != nil {
			return err
		}
	}
	if i.window == nil || !i.window.asked.Load() {
		return nil
	}
	return r.serve(ctx)
}

// missed is the stop of a stream that does not count as it did when a chunk got its place (I5).
func (r *reader) missed(err error) error {
	stop := r.c.stop("rows of a snapshot have lost their place in the stream",
		"the source lost transactions, or cursors or snapshots were restored from a backup without the other: compare the tables with their consumers, set a new position with: binlogmq cursor set, and order the snapshot again with: binlogmq snapshot start", err)
	stop.File, stop.Offset = r.last.File, r.last.Offset
	if m := r.chunks.m; m != nil {
		stop.File, stop.Offset = m.Position()
	}
	return stop
}

// insertion is a chunk as a Machine takes it.
func insertion(c *snapshot.Chunk) *binlog.Insertion {
	return &binlog.Insertion{Snapshot: c.Snapshot, ServerID: c.ServerID, Time: c.Time, Table: c.Table, Parts: c.Parts}
}

// serve does what the window is asked for, if it can be done where the reader stands.
func (r *reader) serve(ctx context.Context) error {
	i, w := &r.chunks, r.chunks.window
	if i.m.Open() || r.replay {
		return nil
	}
	file, offset := i.m.Position()
	here := event.Position{File: file, Offset: offset, ServerUUID: i.server}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ask == nil:
		return nil
	case w.ask.candidate == nil:
		if !here.Reached(&i.former) {
			return nil
		}
		here.GTIDs = r.last.GTIDs.Clone()
		for _, e := range r.batch {
			if e.Kind == event.End {
				here.GTIDs.Add(e.Txn.GTID)
			}
		}
		i.noted = newNoting(w.ask.table, r.caseless)
		w.noted, w.table, w.again = i.noted, w.ask.table, ""
		w.answer(windowAnswer{place: here})
		return nil
	}
	c := w.ask.candidate
	switch {
	case w.noted == nil || w.noted != i.noted:
		w.answer(windowAnswer{err: fmt.Errorf("%w: nothing was noted", errDisturbed)})
		return nil
	case c.high.ServerUUID != i.server:
		w.answer(windowAnswer{err: fmt.Errorf("%w: it was read from another server than the stream", errDisturbed)})
		return nil
	}
	n := i.noted
	err := n.spoilt(c)
	if err == nil {
		err = n.limit(c)
	}
	if err != nil {
		w.answer(windowAnswer{err: err})
		return nil
	}
	if !here.Reached(&c.high) || !i.log.Free(i.m.Ordinal()) {
		return nil // further on
	}
	dropped, err := n.untouched(c)
	if err != nil || len(c.chunk.Parts) == 0 {
		i.noted, w.noted = nil, nil
		w.answer(windowAnswer{dropped: dropped, err: err})
		return nil
	}
	chunk := c.chunk
	chunk.Ordinal, chunk.Counts = i.m.Ordinal(), i.counts
	chunk.End = chunk.Ordinal + chunk.Rows() + 1
	chunk.After.Rows = chunk.Before.Rows + chunk.Rows()
	// I7: it is there again whenever the stream is read again from before it.
	killpoint.Hit("snapshot.append")
	err = i.log.Append(ctx, chunk)
	if errors.Is(err, snapshot.ErrPassed) {
		return nil // further on
	}
	i.noted, w.noted = nil, nil
	if errors.Is(err, snapshot.ErrEnded) {
		w.answer(windowAnswer{err: err})
		return nil
	}
	if err != nil {
		// It may be saved all the same: nothing is handed on before that is known.
		w.answer(windowAnswer{err: fmt.Errorf("%w: %w", errDisturbed, err)})
		return &keepError{r.c.stopOf(err)}
	}
	killpoint.Hit("snapshot.appended")
	if err := i.m.Insert(insertion(chunk)); err != nil {
		w.answer(windowAnswer{err: err})
		return err
	}
	w.answer(windowAnswer{dropped: dropped})
	return nil
}

// untouched makes the parts of the chunk of what the stream has not touched.
func (n *noting) untouched(c *candidate) (dropped int64, err error) {
	var part snapshot.Part
	add := func() {
		if part.Rows > 0 {
			c.chunk.Parts = append(c.chunk.Parts, part)
			part = snapshot.Part{}
		}
	}
	c.chunk.Table, c.chunk.Parts = c.table, nil
	partly := false
	take := func(raw, id []byte) {
		if partial, touched := n.keys[string(id)]; touched {
			dropped++
			partly = partly || partial
			return
		}
		if part.Rows > 0 && len(part.Raw)+len(raw) > maxPart {
			add()
		}
		part.Rows++
		part.Raw = append(slices.Grow(part.Raw, len(raw)), raw...)
	}
	if c.keyed && len(n.keys) > 0 {
		if err := n.each(c, take); err != nil {
			return 0, err
		}
	} else {
		for _, raw := range c.rows {
			take(raw, nil)
		}
	}
	if partly {
		return 0, fmt.Errorf("%w: of some of its rows the stream has shown a part meanwhile, as binlog_row_image is not FULL", errDisturbed)
	}
	add()
	return dropped, nil
}
