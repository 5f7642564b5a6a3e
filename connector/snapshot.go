package connector

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// Sizes of chunks, and limits of the statements that read them.
const (
	defaultChunkBytes = 512 << 10
	defaultChunkRows  = 8192
	defaultMaxPending = 256 << 20
	keylessLimit      = 64 << 20 // bytes of memory that the rows of a table without a key take
	firstRows         = 256      // of a table, as nobody knows how large they are

	// A SELECT keeps those waiting who want to alter its table, and behind them everybody else.
	minStatement = 5 * time.Second
	maxStatement = 5 * time.Minute // where less does not suffice even for few rows
)

// Waits of the driver.
const (
	snapshotIdle    = 200 * time.Millisecond // between two looks at what is ordered
	snapshotBlocked = time.Minute            // until what needs the operator is tried again
	releaseEvery    = time.Second
	saveEvery       = time.Second // of progress without rows
	stuckAfter      = time.Minute // how long nobody may get on while chunks wait for subscriptions
)

// chunkWindow is the driver's side of a window.
type chunkWindow interface {
	open(ctx context.Context, n ddl.Name) (event.Position, error)
	insert(ctx context.Context, c *candidate) (dropped int64, err error)
	close()
}

// rowSource is what rows are read from: a tableReader.
type rowSource interface {
	tables(ctx context.Context, match func(caseless bool) *tablefilter.Filter) ([]ddl.Name, error)
	unseen(ctx context.Context, match func(caseless bool) *tablefilter.Filter) (grants []string, err error)
	read(ctx context.Context, place event.Position, q chunkQuery) (*chunkRead, error)
	end(ctx context.Context, place event.Position) (event.Position, error) // of the log of the server that place names
	close()
}

// snapshotDriver carries out the requests of a snapshot log, one chunk after the other.
type snapshotDriver struct {
	c   *Connector
	log *snapshot.Log
	win chunkWindow
	src rowSource
	opt SnapshotOptions

	released time.Time // when chunks were last released
	saved    time.Time // when progress was last saved
	full     bool      // chunks wait for subscriptions, and until they are few nothing is read
	stuck    stuck     // since when they do
	patience time.Duration

	run   *snapshotRun // of the request that is carried out
	table *tableRun    // of the table that is read
	next  time.Time    // when rows may be read again

	failures  int // in a row
	disturbed int // in a row
}

// snapshotRun is what is known of the request that is carried out.
type snapshotRun struct {
	id     string
	begun  time.Time
	filter *tablefilter.Filter
	list   []ddl.Name        // tables to be read
	all    []ddl.Name        // that were listed last; nil: none were
	done   map[ddl.Name]bool // read to their end
	fold   bool              // names that differ in case only are one
	gone   map[ddl.Name]int  // how often each was listed and not there
	ahead  snapshot.Progress // not saved: tables without rows were passed. It counts while what is saved has its Step
	total  int               // tables listed
	told   bool              // what of the order meets no table
	unseen []string          // what grants the account what it may not read
}

// tableRun is what is known of the table that is read.
type tableRun struct {
	name    ddl.Name
	begun   time.Time
	rows    int           // at most of the next chunk
	whole   bool          // it has no key
	limit   time.Duration // of its statement
	read    int64         // rows handed on
	dropped int64         // rows that the stream has shown
}

func orNumber[T int | int64](n *T, def T) {
	if *n <= 0 {
		*n = def
	}
}

// keyless returns how many bytes of memory the rows of a table without a key may take: no more than one row may (I9).
func (c *Connector) keyless() int {
	if most := c.opt.MaxEvent; most > 0 {
		return min(most, keylessLimit)
	}
	return keylessLimit
}

// runSnapshots carries out the requests of the snapshot log until ctx ends. One goroutine at a time may run it.
func (c *Connector) runSnapshots(ctx context.Context) {
	d := newSnapshotDriver(c, c.window, &tableReader{c: c, settle: snapshotSettle})
	defer d.src.close()
	d.drive(ctx)
}

func newSnapshotDriver(c *Connector, win chunkWindow, src rowSource) *snapshotDriver {
	d := &snapshotDriver{c: c, log: c.opt.Snapshots, win: win, src: src, opt: c.opt.Snapshot, patience: stuckAfter}
	orNumber(&d.opt.ChunkBytes, defaultChunkBytes)
	orNumber(&d.opt.ChunkRows, defaultChunkRows)
	if n := d.opt.RowsPerSecond; n > 0 {
		d.opt.ChunkRows = min(d.opt.ChunkRows, n)
	}
	orNumber(&d.opt.MaxPending, defaultMaxPending)
	return d
}

// drive goes on until ctx ends.
func (d *snapshotDriver) drive(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := d.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = d.judge(err)
		}
		if wait > 0 {
			d.sleep(ctx, wait)
		}
	}
}

// sleep waits, but not on when another request is to be carried out.
func (d *snapshotDriver) sleep(ctx context.Context, wait time.Duration) {
	id := ""
	if d.run != nil {
		id = d.run.id
	}
	for until := time.Now().Add(wait); ctx.Err() == nil; {
		left := time.Until(until)
		if left <= 0 || retry.Sleep(ctx, min(left, time.Second)) != nil {
			return
		}
		if d.current() != id {
			return
		}
	}
}

// current returns the id of the request that is to be carried out, also while the log is busy with what went wrong; "": none.
func (d *snapshotDriver) current() string {
	if q := d.log.Status().Queue; len(q) > 0 {
		return q[0].ID
	}
	return ""
}

// turn carries out what is to be done next, a chunk at most, and returns how long to wait then.
func (d *snapshotDriver) turn(ctx context.Context) (time.Duration, error) {
	if err := d.log.Load(ctx); err != nil {
		return 0, err
	}
	if err := d.release(ctx); err != nil {
		return 0, err
	}
	id := d.current()
	if d.run != nil && id != d.run.id {
		d.c.log.Info("a snapshot is not carried out any longer", "snapshot", d.run.id)
		d.idle()
	}
	req, prog, ok := d.log.Current()
	if !ok && id == "" {
		d.idle()
	}
	if !ok || req.ID != id {
		return snapshotIdle, nil
	}
	if d.run == nil {
		if err := d.begin(&req, &prog); err != nil {
			return 0, err
		}
	}
	if a := &d.run.ahead; a.Request == req.ID && a.Step == prog.Step {
		prog = *a
	}
	switch of := d.captured(); {
	case prog.Of == "" && !prog.Begun():
		prog.Of = of
	case prog.Of != of:
		d.c.log.Warn("a snapshot begins anew, as other tables are captured now, or the log does not tell which ones have got other rows", "snapshot", req.ID)
		d.run = nil
		return 0, d.log.Advance(ctx, snapshot.Progress{Request: req.ID, Of: of, Noted: prog.Noted, Rows: prog.Rows})
	}
	// A request that is cancelled ends what is under way.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go d.watch(ctx, req.ID, cancel, over)
	wait, err := d.step(ctx, &req, prog)
	switch {
	case errors.Is(context.Cause(ctx), errRequestOver), errors.Is(err, snapshot.ErrEnded):
		return 0, nil
	case errors.Is(err, errNoStream):
		return snapshotIdle, nil // the reader tells why
	}
	if err == nil && wait == 0 {
		d.failures, d.disturbed = 0, 0
	}
	return wait, err
}

// captured is a short name of what is captured.
func (d *snapshotDriver) captured() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.c.counts()))
	return strconv.FormatUint(h.Sum64(), 36)
}

// errRequestOver ends what is done for a request that is not the current one any more.
var errRequestOver = errors.New("the request is not to be carried out any more")

// errNoStream says that it is not known yet from which server the stream is read.
var errNoStream = errors.New("the stream of the source is not read yet")

// watch cancels a context when another request than id is the current one.
func (d *snapshotDriver) watch(ctx context.Context, id string, cancel context.CancelCauseFunc, over <-chan struct{}) {
	t := time.NewTicker(snapshotIdle)
	defer t.Stop()
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if d.current() != id {
			cancel(errRequestOver)
			return
		}
	}
}

// idle forgets what was carried out.
func (d *snapshotDriver) idle() {
	if d.run != nil {
		d.src.close()
	}
	d.run, d.table, d.failures, d.disturbed = nil, nil, 0, 0
	d.show(func(s *Snapshot) {
		*s = Snapshot{State: s.State, Since: s.Since, Warning: s.Warning}
		s.to(SnapshotNone)
	})
}

// to changes the state.
func (s *Snapshot) to(state SnapshotState) {
	if s.State != state || s.Since.IsZero() {
		s.State, s.Since = state, time.Now()
	}
}

// show tells Status.
func (d *snapshotDriver) show(f func(*Snapshot)) {
	chunks, bytes := d.log.Pending()
	d.c.state.update(func(st *Status) {
		f(&st.Snapshot)
		st.Snapshot.PendingChunks, st.Snapshot.PendingBytes = chunks, bytes
	})
}

// release has chunks deleted that everybody has passed.
func (d *snapshotDriver) release(ctx context.Context) error {
	if time.Since(d.released) < releaseEvery {
		return nil
	}
	d.released = time.Now()
	return d.log.Release(ctx)
}

// begin takes up a request.
func (d *snapshotDriver) begin(req *snapshot.Request, prog *snapshot.Progress) error {
	f, err := tablefilter.New(req.Tables)
	if err != nil {
		return d.c.stop("snapshot "+req.ID+": "+err.Error(), "cancel it with: "+cancelCommand+" --id "+req.ID+", and order it again", nil)
	}
	d.run, d.table = &snapshotRun{id: req.ID, begun: time.Now(), filter: f, done: map[ddl.Name]bool{}, gone: map[ddl.Name]int{}}, nil
	word := "a snapshot begins"
	if prog.Begun() {
		word = "a snapshot goes on"
	}
	d.c.log.Info(word, "snapshot", req.ID, "reason", req.Reason, "tables", req.Tables, "clients", req.Clients)
	d.show(func(s *Snapshot) {
		*s = Snapshot{State: s.State, Since: s.Since, Request: req.ID, Reason: req.Reason}
		s.to(SnapshotReading)
	})
	return nil
}

// step reads a chunk, or finishes the request.
func (d *snapshotDriver) step(ctx context.Context, req *snapshot.Request, prog snapshot.Progress) (time.Duration, error) {
	if d.crowded() {
		d.waits(req)
		return snapshotIdle, nil
	}
	d.stuck = stuck{}
	if wait := time.Until(d.next); wait > 0 {
		return min(wait, time.Second), nil
	}
	name, err := d.choose(ctx, req, &prog)
	if err != nil {
		return 0, err
	}
	if name == nil {
		return 0, d.finish(ctx, req, &prog)
	}
	if d.table == nil || d.table.name != *name {
		d.table = &tableRun{name: *name, begun: time.Now(), rows: min(firstRows, d.opt.ChunkRows), limit: minStatement}
		d.c.log.Info("reading a table for a snapshot", "snapshot", req.ID, "table", name.String(), "again", prog.Table != nil)
	}
	d.show(func(s *Snapshot) {
		s.Table, s.Done, s.Rows = name.String(), int(prog.Done), prog.Rows
		s.Tables = max(d.run.total, s.Done+1)
		if s.Err == nil {
			s.to(SnapshotReading)
		}
	})
	return 0, d.chunk(ctx, req, prog)
}

// crowded tells whether to wait for subscriptions: from when the limit is reached until there is some room.
func (d *snapshotDriver) crowded() bool {
	chunks, bytes := d.log.Pending()
	d.full = chunks > 0 && (bytes >= d.opt.MaxPending || d.full && bytes > d.opt.MaxPending-d.opt.MaxPending/8)
	return d.full
}

// stuck is since when no chunk was released.
type stuck struct {
	since  time.Time
	chunks int
	bytes  int64
	told   bool
}

// waits tells for whom a snapshot waits, and that it is an error when nobody has moved for long.
func (d *snapshotDriver) waits(req *snapshot.Request) {
	chunks, bytes := d.log.Pending()
	if w := &d.stuck; w.since.IsZero() || w.chunks != chunks || w.bytes != bytes {
		d.stuck = stuck{since: time.Now(), chunks: chunks, bytes: bytes}
	}
	var err error
	if time.Since(d.stuck.since) > d.patience {
		who := d.log.Status().Waits
		err = d.c.stop(fmt.Sprintf("a snapshot waits: %d bytes of its rows are kept, and %q, which has passed the fewest of them, does not get on", bytes, who),
			"see why it stands still, or bring it back; if it is not configured any more or never comes back, stop, run: binlogmq cursor forget --of "+who+", and start", nil)
		if !d.stuck.told {
			d.stuck.told = true
			d.c.log.Warn("a snapshot cannot go on until a subscription does; the stream goes on", "snapshot", req.ID, "client", who, "error", err)
		}
	}
	d.show(func(s *Snapshot) {
		s.Err = err
		s.to(SnapshotWaiting)
	})
}

// choose returns the table to be read; nil: all are.
func (d *snapshotDriver) choose(ctx context.Context, req *snapshot.Request, prog *snapshot.Progress) (*ddl.Name, error) {
	if prog.Table != nil {
		return &ddl.Name{Schema: prog.Table.Schema, Table: prog.Table.Name}, nil
	}
	r := d.run
	for fresh := false; ; fresh = true {
		if len(r.list) > 0 {
			return &r.list[0], nil
		}
		if fresh && len(prog.Again) > 0 {
			n := r.listed(prog.Again[0])
			return &n, nil
		}
		if fresh {
			return nil, nil
		}
		// Once more at the end: tables may have got names that are wanted.
		if d.c.Status().ServerUUID == "" {
			return nil, errNoStream
		}
		all, err := d.src.tables(ctx, func(c bool) *tablefilter.Filter {
			r.fold = c
			return r.filter.For(c)
		})
		if err != nil {
			return nil, err
		}
		r.total = len(all)
		if !r.told {
			if err := d.sight(ctx, req, prog, all); err != nil {
				return nil, err
			}
			r.told = true
			d.unmet(req, all, r.fold, strings.Join(r.unseen, "; "))
		}
		for _, n := range all {
			if r.gone[n] > 1 {
				return nil, d.c.stop("the columns of table "+n.String()+" cannot be seen", "run on the source: "+strings.Join(d.c.selectGrants(), "; "), nil)
			}
		}
		if r.all == nil && prog.Upto != nil { // by an earlier process
			for _, n := range all {
				r.done[n] = !prog.Upto.Before(snapshot.Table{Schema: n.Schema, Name: n.Table})
			}
		}
		r.all = append([]ddl.Name{}, all...)
		r.list = slices.DeleteFunc(all, func(n ddl.Name) bool { return r.done[n] })
	}
}

// same tells whether a table is called so.
func (r *snapshotRun) same(n ddl.Name, t snapshot.Table) bool {
	return n == ddl.Name{Schema: t.Schema, Table: t.Name} || r.fold && strings.EqualFold(n.Schema, t.Schema) && strings.EqualFold(n.Table, t.Name)
}

// listed returns the name of a table as the source spells it.
func (r *snapshotRun) listed(t snapshot.Table) ddl.Name {
	if i := slices.IndexFunc(r.all, func(n ddl.Name) bool { return r.same(n, t) }); i >= 0 {
		return r.all[i]
	}
	return ddl.Name{Schema: t.Schema, Table: t.Name}
}

// pass goes on behind a table, which is read, or is not there.
func (r *snapshotRun) pass(p *snapshot.Progress, n ddl.Name) {
	p.Again = slices.DeleteFunc(slices.Clone(p.Again), func(t snapshot.Table) bool { return r.same(n, t) })
	p.Table, p.Key, p.Last, p.Most = nil, nil, nil, nil
}

// leave takes a table off the list.
func (r *snapshotRun) leave(n ddl.Name) {
	r.list = slices.DeleteFunc(r.list, func(l ddl.Name) bool { return l == n })
}

// sight looks whether the account may read all that the order takes in: what it may not see is missing in the list without an error.
func (d *snapshotDriver) sight(ctx context.Context, req *snapshot.Request, prog *snapshot.Progress, all []ddl.Name) error {
	grants, err := d.src.unseen(ctx, d.run.filter.For)
	if err != nil {
		return err
	}
	d.run.unseen = grants
	if len(all) == 0 && req.Reason != snapshot.ReasonOrdered && !prog.Begun() {
		// Nobody looks whether an order of the program has found what it was for (I3).
		what, remedy := "a snapshot finds no table", "look whether tables and snapshot.tables name those that there are"
		if len(grants) > 0 {
			what += ", and user " + d.c.opt.User + " may not read all that it is for"
			remedy = "run on the source: " + strings.Join(grants, "; ")
		}
		return d.c.stop(what, remedy+"; it begins as soon as there is one. Where there is nothing to be read, cancel it with: "+cancelCommand+" --id "+req.ID, nil)
	}
	warning := ""
	if len(grants) > 0 {
		warning = "user " + d.c.opt.User + " may not read all that snapshot " + req.ID + " is for, and what it may not see is left out: run on the source: " + strings.Join(grants, "; ") + "; then order what is missing with: binlogmq snapshot start"
		d.c.log.Warn("a snapshot leaves out what the account may not see", "snapshot", req.ID, "warning", warning)
	}
	d.show(func(s *Snapshot) { s.Warning = warning })
	return nil
}

// unmet tells what of the order meets none of the tables.
func (d *snapshotDriver) unmet(req *snapshot.Request, all []ddl.Name, caseless bool, grants string) {
	if len(all) == 0 {
		d.c.log.Warn("a snapshot finds no table: if there are some, the account may not see them", "snapshot", req.ID, "tables", req.Tables, "remedy", grants)
	}
	for _, table := range slices.Sorted(maps.Keys(req.Where)) {
		if !slices.ContainsFunc(all, func(n ddl.Name) bool { return condition(map[string]string{table: "x"}, n, caseless) != "" }) {
			d.c.log.Warn("a snapshot has a condition for a table that it does not read: look whether the name is right, and whether the account may see the table", "snapshot", req.ID, "table", table, "remedy", grants)
		}
	}
}

// caughtUp waits until the reader has passed what the log has by now, and tells whether no table must be read again for it.
func (d *snapshotDriver) caughtUp(ctx context.Context, prog *snapshot.Progress) (bool, error) {
	defer d.win.close()
	place, err := d.win.open(ctx, ddl.Name{})
	if err != nil {
		return false, err
	}
	high, err := d.src.end(ctx, place)
	if err != nil {
		return false, err
	}
	if _, err := d.win.insert(ctx, &candidate{high: high, table: &event.Table{}, chunk: &snapshot.Chunk{}}); err != nil {
		return false, err
	}
	_, now, ok := d.log.Current()
	return ok && now.Request == prog.Request && now.Noted == prog.Noted, nil
}

// finish ends a request.
func (d *snapshotDriver) finish(ctx context.Context, req *snapshot.Request, prog *snapshot.Progress) error {
	// Tables that were there a moment ago may have got their names from others.
	if ok, err := d.caughtUp(ctx, prog); err != nil || !ok {
		return err
	}
	if d.run.ahead.Request == req.ID && d.run.ahead.Step == prog.Step {
		if err := d.log.Advance(ctx, *prog); err != nil { // for what is told of it afterwards
			return err
		}
	}
	if err := d.log.Finish(ctx, req.ID); err != nil {
		return err
	}
	if len(d.run.unseen) > 0 {
		d.c.log.Warn("a snapshot has left out what the account may not see", "snapshot", req.ID, "tables", prog.Done, "remedy", strings.Join(d.run.unseen, "; "))
	}
	d.c.log.Info("a snapshot is read; its end is in the stream", "snapshot", req.ID, "tables", prog.Done, "rows", prog.Rows, "took", time.Since(d.run.begun).Round(time.Millisecond))
	d.idle()
	return nil
}

// cancelCommand is what remedies name; which snapshot it is for is added where that is known.
const cancelCommand = "binlogmq snapshot cancel"

// condition returns what was ordered for a table; "": nothing.
func condition(where map[string]string, n ddl.Name, caseless bool) string {
	if w, ok := where[n.String()]; ok || !caseless {
		return w
	}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		if strings.EqualFold(name, n.String()) {
			return where[name]
		}
	}
	return ""
}

// chunk reads a chunk and has it inserted into the stream.
func (d *snapshotDriver) chunk(ctx context.Context, req *snapshot.Request, prog snapshot.Progress) error {
	t := d.table
	defer d.win.close()
	place, err := d.win.open(ctx, t.name)
	if err != nil {
		return err
	}
	q := chunkQuery{
		table: t.name, rows: t.rows, bytes: d.opt.ChunkBytes, whole: d.c.keyless(), limit: t.limit,
		where: func(caseless bool) string { return condition(req.Where, t.name, caseless) },
	}
	if prog.Table != nil {
		q.key, q.last, q.most = prog.Key, prog.Last, prog.Most
	}
	begin := time.Now()
	got, err := d.src.read(ctx, place, q)
	if err != nil {
		if errors.Is(err, errSlow) {
			t.slow()
		}
		return err
	}
	took := time.Since(begin)
	d.throttle(max(got.seen, len(got.rows)), begin) // also of what is to be read again
	after := prog
	if got.gone {
		d.table = nil
		d.run.pass(&after, t.name)
		if slices.Contains(d.run.all, t.name) { // it may come back
			d.c.log.Warn("a table is not there any more, and is left out of the snapshot", "snapshot", req.ID, "table", t.name.String())
			d.run.gone[t.name]++
			after.Again = append(after.Again, snapshot.Table{Schema: t.name.Schema, Name: t.name.Table})
		}
		d.run.leave(t.name)
		return d.advance(ctx, after, prog.Table != nil)
	}
	delete(d.run.gone, t.name)
	t.whole = !got.keyed
	if got.begun {
		d.c.log.Warn("a table has got another key, and is read from its beginning again", "snapshot", req.ID, "table", t.name.String())
	}
	after.Table, after.Key, after.Last, after.Most = &snapshot.Table{Schema: t.name.Schema, Name: t.name.Table}, got.key, got.last, got.most
	if got.end {
		after.Done++
		if name := *after.Table; after.Upto == nil || after.Upto.Before(name) {
			after.Upto = &name
		}
		d.run.pass(&after, t.name)
	}
	var dropped int64
	if len(got.rows) > 0 {
		dropped, err = d.win.insert(ctx, &candidate{
			high: got.high, table: got.table, rows: got.rows, keyed: got.keyed,
			chunk: &snapshot.Chunk{Snapshot: &event.Snapshot{ID: req.ID, Clients: req.Clients}, ServerID: got.server, Time: got.time, Before: prog, After: after},
		})
		if err != nil {
			return err
		}
	}
	rows := int64(len(got.rows)) - dropped
	if rows == 0 {
		// Nothing has a place in the stream. A table of which nothing was read yet may as well be looked at again.
		if err := d.advance(ctx, after, prog.Table != nil || !got.end); err != nil {
			return err
		}
	} else {
		d.saved = time.Now()
	}
	t.read += rows
	t.dropped += dropped
	t.size(got, took, &d.opt)
	d.show(func(s *Snapshot) {
		s.Err = nil
		s.Rows = prog.Rows + rows
		s.to(SnapshotReading)
	})
	if got.end {
		d.c.log.Info("a table is read for a snapshot", "snapshot", req.ID, "table", t.name.String(), "rows", t.read, "shown_by_the_stream", t.dropped, "took", time.Since(t.begun).Round(time.Millisecond))
		d.run.done[t.name] = true
		d.run.leave(t.name)
		d.table = nil
		d.show(func(s *Snapshot) { s.Table, s.Done = "", int(after.Done) })
	}
	return nil
}

// advance goes on without rows. What costs little to be done again need not be saved at once.
func (d *snapshotDriver) advance(ctx context.Context, after snapshot.Progress, matters bool) error {
	if !matters && time.Since(d.saved) < saveEvery {
		d.run.ahead = after
		return nil
	}
	d.saved = time.Now()
	return d.log.Advance(ctx, after)
}

// throttle puts the next chunk off so that on average no more rows are read in a second than are allowed.
func (d *snapshotDriver) throttle(rows int, begin time.Time) {
	if d.opt.RowsPerSecond > 0 {
		d.next = begin.Add(time.Duration(rows) * time.Second / time.Duration(d.opt.RowsPerSecond))
	}
}

// slow has the next statement do less, or when that is not possible any more, take longer.
func (t *tableRun) slow() {
	if t.rows > 1 {
		t.rows = max(1, t.rows/4)
	}
	if t.rows <= firstRows {
		t.limit = min(2*t.limit, maxStatement)
	}
}

// size says how many rows the next chunk has.
func (t *tableRun) size(got *chunkRead, took time.Duration, o *SnapshotOptions) {
	n := t.rows
	switch {
	case took > minStatement/2:
		n /= 2
	case len(got.rows) == 0:
		n *= 2 // the condition leaves few
	default:
		n = min(2*n, int(int64(len(got.rows))*int64(o.ChunkBytes)/int64(got.bytes))+1)
	}
	t.rows = max(1, min(n, o.ChunkRows))
}

// judge says how long to wait after an error, and tells of it.
func (d *snapshotDriver) judge(err error) time.Duration {
	where := []any{"error", err}
	if d.run != nil {
		where = append(where, "snapshot", d.run.id)
	}
	whole := false
	if d.table != nil {
		where = append(where, "table", d.table.name.String())
		whole = d.table.whole
	}
	if errors.Is(err, errDisturbed) {
		// It happens while the table or the link changes; only when it does not end it is worth a word.
		d.disturbed++
		most := maxBackOff
		if whole {
			most = time.Minute
		}
		wait := backOff(50*time.Millisecond, d.disturbed, most)
		if d.disturbed < 5 {
			d.c.log.Info("a part of a snapshot is read again", append(where, "in", wait)...)
			return wait
		}
		return d.fail("a part of a snapshot must be read again and again", err, where, wait)
	}
	d.failures++
	var stop *StopError
	if judged := d.c.judge(err); errors.As(judged, &stop) {
		if d.run != nil { // those that wait behind it are not to be cancelled with it
			own := *stop
			own.Remedy = strings.Replace(stop.Remedy, cancelCommand+",", cancelCommand+" --id "+d.run.id+",", 1)
			if s, ok := strings.CutSuffix(own.Remedy, cancelCommand); ok {
				own.Remedy = s + cancelCommand + " --id " + d.run.id
			}
			judged = &own
		}
		return d.fail("a snapshot cannot go on; it waits, and the stream goes on", judged, where, snapshotBlocked)
	}
	if serverCode(err) != 0 && !passing(err) && d.failures >= 5 {
		return d.fail("a snapshot cannot go on; it waits, and the stream goes on", err, where, snapshotBlocked)
	}
	wait := backOff(minBackOff, d.failures, maxBackOff)
	if d.failures == 1 { // idle connections are cut
		d.c.log.Info("a part of a snapshot is tried again", append(where, "in", wait)...)
		return wait
	}
	return d.fail("a snapshot does not get on; trying again", err, where, wait)
}

// fail tells of an error that does not pass.
func (d *snapshotDriver) fail(what string, err error, where []any, wait time.Duration) time.Duration {
	d.c.log.Warn(what, append(where, "in", wait)...)
	if wait == snapshotBlocked {
		d.src.close() // some of what may be granted meanwhile holds for new sessions only
	}
	d.show(func(s *Snapshot) {
		s.Err = err
		s.to(SnapshotFailing)
	})
	return wait
}

// backOff returns the wait behind the n-th failure, n from 1.
func backOff(least time.Duration, n int, most time.Duration) time.Duration {
	return min(least<<min(n-1, 20), most)
}
