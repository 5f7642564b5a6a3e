package connector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
)

// slots hands out the identities of concurrent readers.
type slots struct {
	mu   sync.Mutex
	used []bool
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, u := range s.used {
		if !u {
			s.used[i] = true
			return i
		}
	}
	s.used = append(s.used, true)
	return len(s.used) - 1
}

func (s *slots) give(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[i] = false
}

// reader is the state of one Read.
type reader struct {
	c    *Connector
	id   identity
	main bool // the reader that Status shows
	put  func(context.Context, []*event.Event) error

	beside func(func(context.Context)) // of the main reader: runs what must not delay it, until it ends

	batch []*event.Event
	size  int

	// What put has taken.
	last    event.Position // last transaction end
	ordinal int64          // its number
	done    int64          // last number taken
	open    *event.Txn     // transaction of which a part was taken

	replay    bool // the stream shows the open transaction again
	hideGTIDs bool
	decided   bool          // hideGTIDs is
	passed    bool          // what the source shows before the place of last is done
	twice     event.GTIDSet // MariaDB: what may not be shown again, as it cannot be told by its place

	progress  bool // events have come since the last attempt
	stalled   bool // put was slow and nothing was read since: a cut is no fault of the link
	evictions []time.Time
	cut       bool // the source has ended the last stream without a word
	damaged   int  // attempts in a row that ended in bytes that make no sense
	ahead     int  // attempts in a row that found the source behind us

	history *schema.History // the destination's, or with names from the log only one of its own
	full    bool            // the log has the names: binlog_row_metadata=FULL

	passing unreadRows // rows that are passed over

	kept time.Time // when the schema history was last saved, or noted how far it reaches

	caseless bool       // the source's names are
	chunks   insertions // of snapshots; without a log there are none
}

// keepEvery is how often it is saved up to where the log has been searched for statements, so that a crash leaves little to be
// searched again.
const keepEvery = time.Minute

// putError carries an error of put through the machine.
type putError struct{ err error }

func (e *putError) Error() string { return e.err.Error() }
func (e *putError) Unwrap() error { return e.err }

// keepError carries an error of what is kept beside the cursors (schema history, chunks of snapshots), which is no fault of the source: without it rows are not handed on.
type keepError struct{ err error }

func (e *keepError) Error() string { return e.err.Error() }
func (e *keepError) Unwrap() error { return e.err }

// Read hands on every event behind the transaction end from.Position, numbered from from.Ordinal+1. It
// calls put with one or more events at a time, in order, from its own goroutine; the slice is Read's
// again after put returns. It returns the error of put, the context's, or one that needs
// the operator (*[StopError]); everything else it retries for ever, with Status telling why. Several Reads may run
// at once, each with an identity of its own; of one of them Status tells, which reads tables for snapshots, too.
func (c *Connector) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	main := c.shown.CompareAndSwap(false, true) // a look at the log's end may hold the first slot meanwhile
	for wait := time.Now(); !main && ctx.Err() == nil && time.Since(wait) < takeOver; main = c.shown.CompareAndSwap(false, true) {
		_ = retry.Sleep(ctx, 5*time.Millisecond)
	}
	if main {
		defer c.shown.Store(false)
	}
	return c.read(ctx, from, put, main)
}

// takeOver is how long a Read waits for another one to end before it is content not to be the one that Status shows.
const takeOver = 2 * time.Second

// ReadBeside is Read for whoever catches up beside another Read. Status does not tell of it.
func (c *Connector) ReadBeside(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	return c.read(ctx, from, put, false)
}

func (c *Connector) read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error, main bool) error {
	slot := c.slots.take()
	defer c.slots.give(slot)
	r := &reader{
		c: c, id: c.identity(slot), main: main, put: put, ordinal: from.Ordinal, done: from.Ordinal,
		last: from.Position,
	}
	r.last.GTIDs = from.Position.GTIDs.Clone()
	r.passing = unreadRows{log: c.log, told: map[string]*toldOf{}}
	defer r.passing.rest()
	if r.history = c.opt.History; c.opt.SchemaFrom == schema.FromLog {
		r.history = schema.NewHistory(nil)
	}
	r.kept = time.Now()
	if log := c.opt.Snapshots; log != nil {
		r.chunks.log = log.Begin(from.Ordinal)
		defer r.chunks.log.Close()
	}
	err := r.run(ctx)
	r.keep(ctx)
	if r.main {
		c.state.update(func(s *Status) {
			s.Connected = false
			if ctx.Err() == nil {
				s.Err = err
			}
		})
	}
	return err
}

// keep saves the schema history at the end.
func (r *reader) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := r.save(ctx); err != nil {
		r.c.log.Info("the schema history is not saved up to its end; the next start looks through more of the log", "error", err)
	}
}

// save saves the schema history. One that is too large is needed only where the log does not have the names, or rows are passed over (I5).
func (r *reader) save(ctx context.Context) error {
	err := r.history.Save(ctx, event.Position{})
	if passes, _ := r.history.PassesOver(ddl.Name{}); r.full && !passes && errors.Is(err, schema.ErrTooLarge) {
		r.c.log.Warn("the schema history is not saved any more: after a restart definitions are looked up anew, where the log does not tell all; to have it saved narrow the destination's tables down to fewer databases",
			"error", err)
		r.history.Detach()
		return nil
	}
	return err
}

// Waits between attempts.
const (
	minBackOff = 200 * time.Millisecond
	maxBackOff = 15 * time.Second
)

func (r *reader) run(ctx context.Context) error {
	if r.main {
		pctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { r.c.poll(pctx) })
		if r.c.window != nil {
			wg.Go(func() { r.c.runSnapshots(pctx) })
		}
		r.beside = func(f func(context.Context)) { wg.Go(func() { f(pctx) }) }
		defer wg.Wait()
		defer cancel()
	}
	wait := minBackOff
	for {
		r.progress = false
		err := r.attempt(ctx)
		var pe *putError
		if errors.As(err, &pe) {
			return pe.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var stop *StopError
		if err = r.judge(err); errors.As(err, &stop) {
			return err
		}
		if r.progress {
			wait = minBackOff
		}
		pause := wait/2 + rand.N(wait)
		if r.stalled && r.progress {
			// The server gave up waiting for us while the ring was full: nothing is wrong.
			r.c.log.Info("the source cut the stream under back-pressure; reconnecting", "error", err)
			pause = 0
		} else {
			r.c.log.Warn(interruption(err), "error", err, "in", pause.Round(time.Millisecond))
		}
		r.stalled = false
		if r.main {
			r.c.state.update(func(s *Status) {
				s.Connected, s.Err = false, err
				s.Reconnects++
			})
		}
		wait = min(2*wait, maxBackOff)
		if retry.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// interruption says what an attempt ended of.
func interruption(err error) string {
	var kept *keepError
	if errors.As(err, &kept) {
		return "what is kept beside the cursors cannot be saved or read, and rows are not published without it; trying again"
	}
	return "lost the source; reconnecting"
}

// judge counts what may happen a few times, and leaves the rest to the Connector's judge.
func (r *reader) judge(err error) error {
	r.cut = errors.Is(err, binlog.ErrStreamEnd)
	switch {
	case evicted(err), errors.Is(err, errReplaced):
		now := time.Now()
		r.evictions = append(r.evictions, now)
		for now.Sub(r.evictions[0]) > 10*time.Minute {
			r.evictions = r.evictions[1:]
		}
		if len(r.evictions) >= 3 {
			if errors.Is(err, errReplaced) {
				err = nil // what is said below
			}
			return r.c.stop(fmt.Sprintf("another replica uses our server id %d or UUID %s: the source has cut our stream %d times", r.id.serverID, r.id.uuid, len(r.evictions)),
				"stop the other process, or give one of them its own source.server_id", err)
		}
	case errors.Is(err, binlog.ErrMalformed):
		// Damaged on the way: once more may help. Damaged in the file: it will not.
		if r.damaged++; r.damaged >= 3 {
			return r.c.stop("the binlog cannot be read", "if the file is damaged on the source, read from another replica, or repair the rows concerned and move the cursor behind it with: binlogmq cursor set", err)
		}
		return err
	default:
		if r.progress {
			r.damaged = 0
		}
	}
	return r.c.judge(err)
}

// attempt connects and reads until something goes wrong.
func (r *reader) attempt(ctx context.Context) error {
	c := r.c
	r.batch, r.size = r.batch[:0], 0
	if log := c.opt.Snapshots; log != nil {
		if err := log.Load(ctx); err != nil {
			return &keepError{c.stopOf(err)}
		}
		if log.Lacks(r.ordinal) { // a program asks before it reads, too, and names the cursor; chunks may have been deleted since, and others use this package
			return r.missed(fmt.Errorf("%w: rows behind ordinal %d, which all had passed, are deleted", snapshot.ErrMissed, r.ordinal))
		}
	}
	s, sv, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := r.checkServer(ctx, s, sv); err != nil {
		return err
	}
	listed, err := c.checkIdentity(ctx, s, sv, r.id)
	if err != nil {
		return err
	}
	// Where the source does not say that another replica is why it has cut our stream, that one's connection tells.
	if r.cut && listed && !sv.mariaDB && ddl.ParseVersion(sv.version) < 50700 {
		if err := r.judge(errReplaced); !errors.Is(err, errReplaced) {
			return err
		}
	}
	charsets, err := s.charsets(ctx, sv)
	if err != nil {
		return err
	}
	if r.main {
		c.sight.Do(func() { r.beside(func(ctx context.Context) { c.tellSight(ctx, s.addr, sv) }) })
	}
	cat := &catalog{ctx: ctx, c: c, addr: s.addr, sv: sv}
	defer cat.close()
	r.full = sv.vars["binlog_row_metadata"] == "FULL"
	look := &names{ctx: ctx, r: r, cat: cat, sv: sv, addr: s.addr, charsets: charsets}
	view, err := look.view()
	if err != nil {
		return err
	}
	again := &prepared{ctx: ctx, c: c, addr: s.addr, sv: sv, id: c.identity(rereadSlot + r.id.slot)}
	from := r.last
	from.GTIDs = r.last.GTIDs.Clone()
	r.twice = event.GTIDSet{}
	if sv.mariaDB && !r.passed {
		r.twice = from.GTIDs
	}
	behind := from.Offset
	if from.GTIDs.IsEmpty() && from.Offset > math.MaxUint32 {
		from.Offset = 4 // the dump command has 32 bits
	}
	former := event.Position{ServerUUID: sv.uuid}
	if r.main && c.window != nil {
		if former.File, former.Offset, _, err = s.binlogStatus(ctx, sv); err != nil {
			return err
		}
	}
	if err := c.dump(ctx, s, sv, r.id, from); err != nil {
		return err
	}
	killpoint.Hit("connector.dump")
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	guard := c.guard(ctx, s, &c.state.bytes)
	stream := c.framed(guard)

	if from.Offset != behind {
		if err := c.skipTo(stream, from.File, behind); err != nil {
			return err
		}
		from.Offset = behind
	}
	tables := c.tables(sv)
	var ended func() error
	if c.opt.Snapshots != nil {
		ended = func() error { return r.ended(ctx) }
	}
	build := schema.New(schema.Options{
		MariaDB: sv.mariaDB, Version: sv.version, Caseless: sv.caseless(), From: c.opt.SchemaFrom, AllVersions: c.opt.AllVersions, Charsets: charsets, View: view,
	})
	m := binlog.NewMachine(binlog.Options{
		Destination: c.opt.Destination, ServerUUID: sv.uuid, Server: sv.ddl(), Match: tables.Match, Charsets: charsets, Tables: build, Unread: r.unread(build),
		Emit: func(e *event.Event) error { return r.emit(ctx, e) }, Ended: ended, HideGTIDs: r.hideGTIDs, Position: from, Behind: r.passed, Ordinal: r.ordinal,
		Skip: func(g event.GTID) int64 { return c.opt.Skips[g] }, Skipped: r.skipped,
		MatchSchema: tables.MatchSchema, Spared: (&sparing{c: c}).tell,
		Passed: r.passedDML(), Reread: again.read, MaxEvent: c.opt.MaxEvent, OnLarge: c.onLarge, HeldXA: c.opt.HeldXA,
	})
	defer m.Close()
	r.replay = r.open != nil
	if c.opt.Snapshots != nil {
		defer r.join(ctx, sv, m, guard, former)()
	}
	if r.main {
		c.state.update(func(st *Status) {
			st.Connected, st.Err, st.Address, st.Version, st.ServerUUID = true, nil, s.addr, sv.version, sv.uuid
		})
	}
	c.log.Info("reading the source", "address", s.addr, "version", sv.version, "server_uuid", sv.uuid, "gtids", r.last.GTIDs.String(),
		"file", r.last.File, "offset", r.last.Offset, "ordinal", r.ordinal, "server_id", r.id.serverID)
	if c.opt.Snapshots != nil {
		err = r.ended(ctx) // at the place where it begins
	}
	if err == nil {
		err = r.follow(ctx, stream, m)
	}
	var pe *putError
	if errors.As(err, &pe) {
		return err
	}
	// What lies before the fault is good.
	err = r.finish(ctx, err)
	r.history.Advance(r.last)
	return err
}

// finish hands on what lies before the fault that ended an attempt, unless that was the fault.
func (r *reader) finish(ctx context.Context, fault error) error {
	var kept *keepError
	if errors.As(fault, &kept) {
		return fault
	}
	return errors.Join(r.flush(ctx), fault)
}

// follow reads until an error.
func (r *reader) follow(ctx context.Context, stream *binlog.Stream, m *binlog.Machine) error {
	var raw binlog.Raw
	for {
		if !stream.Ready() {
			// Nothing waits for a timer: what is read is handed on before we wait for more.
			if err := r.flush(ctx); err != nil {
				return err
			}
			if r.main {
				r.show(m)
			}
			r.passing.due()
		}
		var err error
		if raw, err = next(stream); err != nil {
			return r.located(m, err)
		}
		r.stalled = false
		if err := m.Feed(&raw); err != nil {
			return r.located(m, err)
		}
	}
}

// located makes a stop of an event that is too large.
func (r *reader) located(m *binlog.Machine, err error) error {
	var large *binlog.TooLargeError
	if !errors.As(err, &large) {
		return err
	}
	stop := r.c.stop("the log holds more than may be kept in memory", largeRemedy, err)
	stop.File, stop.Offset = m.Position()
	return stop
}

// show tells Status how far the stream is read, in whole transactions.
func (r *reader) show(m *binlog.Machine) {
	if m.Open() {
		return
	}
	file, offset := m.Position()
	r.c.state.update(func(s *Status) { s.File, s.Offset = file, offset })
}

// emit takes an event from the machine.
func (r *reader) emit(ctx context.Context, e *event.Event) error {
	if e.Kind == event.Begin && e.Txn.Snapshot == nil {
		if r.chunks.log != nil {
			r.chunks.log.Beyond()
		}
		if err := r.once(e.Txn); err != nil {
			return err
		}
	}
	if r.replay {
		skip, err := r.again(e)
		if err != nil || skip {
			return err
		}
	}
	if r.chunks.window != nil {
		var err error
		switch {
		case e.Kind == event.DDL:
			err = r.brought(ctx, e)
		case e.Kind == event.Rows && e.Table != nil:
			err = r.moved(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	if r.chunks.noted != nil {
		r.chunks.note(e)
	}
	r.batch = append(r.batch, e)
	if r.size += e.Size; len(r.batch) >= maxBatchEvents || r.size >= maxBatchBytes {
		return r.flush(ctx)
	}
	return nil
}

// once makes sure that a transaction is not one that is done. MariaDB's numbers may be given twice, or not rise, with gtid_strict_mode off; it then
// shows what follows a number in its log, whether it was read or not.
func (r *reader) once(t *event.Txn) error {
	if r.twice.IsEmpty() || t.GTID.IsZero() || !r.twice.Contains(t.GTID) {
		return nil
	}
	s := r.c.stop("the source shows transaction "+t.GTID.String()+" behind "+r.last.GTIDs.ConnectState()+", which says that it is done: its numbers do not rise",
		"compare the tables that it changed, then move the cursor behind it, to where a transaction with a higher number ends, with: binlogmq cursor set; "+
			"SET GLOBAL gtid_strict_mode=ON keeps the source from writing such numbers", nil)
	s.File, s.Offset, s.GTID = t.File, t.Start, t.GTID
	return s
}

// skipped tells of a transaction that was passed over.
func (r *reader) skipped(g event.GTID, ordinals int64) {
	r.c.log.Warn("a transaction is passed over, as was ordered with binlogmq cursor skip", "gtid", g.String(), "ordinals", ordinals)
	if r.main {
		r.c.state.update(func(s *Status) { s.Skipped++ })
	}
}

// passedDML returns what hears of statement-format DML that is passed over; nil where that ends reading.
func (r *reader) passedDML() func(*binlog.Passed) {
	if !r.c.opt.PassDML {
		return nil
	}
	return func(p *binlog.Passed) {
		r.c.log.Warn("statement-format DML is passed over, as statement_format says: the rows that it changed are not in the log and are not published",
			"statement", p.Verb, "default_schema", p.Schema, "file", p.File, "offset", p.Start, "gtid", p.GTID.String())
		if r.main {
			r.c.state.update(func(s *Status) { s.PassedDML++ })
		}
	}
}

// again compares what the stream shows again with what was put, and tells
// whether to skip it. Same server, GTID and count, or nothing goes on: rows that were
// published cannot be called back.
func (r *reader) again(e *event.Event) (skip bool, err error) {
	const remedy = "the source lost a transaction whose first row changes have been published, or another server took its place: " +
		"compare its tables with their consumers, then set a new position with: binlogmq cursor set"
	lost := func(what string) *StopError {
		s := r.c.stop("after reconnecting, "+what, remedy, nil)
		s.File, s.Offset, s.GTID = e.File, e.Start, e.Txn.GTID
		return s
	}
	if e.Kind == event.Begin {
		o, t := r.open, e.Txn
		if t.ServerUUID != o.ServerUUID {
			return false, &classified{lost("another server answers in the middle of transaction " + txnName(o)), event.ErrAnotherServer}
		}
		if t.GTID != o.GTID || t.GTID.IsZero() && (t.File != o.File || t.Start != o.Start) {
			return false, lost("transaction " + txnName(o) + " is gone; the source shows " + txnName(t) + " instead")
		}
		return true, nil
	}
	last := e.Ordinal
	if e.Kind == event.Rows {
		last += int64(e.Rows) - 1
	}
	switch {
	case e.Ordinal > r.done:
		r.replay = false
		return false, nil
	case last > r.done || e.Kind == event.End:
		return false, lost("transaction " + txnName(r.open) + " has other row changes than before")
	}
	return true, nil
}

func txnName(t *event.Txn) string {
	if !t.GTID.IsZero() {
		return t.GTID.String()
	}
	return fmt.Sprintf("at %s:%d", t.File, t.Start)
}

// flush hands the batch on.
func (r *reader) flush(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	if r.history.Unsaved() {
		// I6, I7: what rows were decoded with, and the statements before them, outlive them.
		if err := r.save(ctx); err != nil {
			return &keepError{r.c.stopOf(err)}
		}
		r.kept = time.Now()
	}
	begin := time.Now()
	if err := r.put(ctx, r.batch); err != nil {
		return &putError{err}
	}
	r.progress = true
	r.stalled = time.Since(begin) > time.Second
	killpoint.Hit("connector.put")
	rows := int64(0)
	var end *event.Event
	for _, e := range r.batch {
		switch e.Kind {
		case event.Begin:
			r.open = e.Txn
		case event.End:
			r.done, r.ordinal, r.open = e.Ordinal, e.Ordinal, nil
			r.last.GTIDs.Add(e.Txn.GTID)
			end = e
		case event.Rows:
			rows += int64(e.Rows)
			r.done = e.Ordinal + int64(e.Rows) - 1
		default:
			r.done = e.Ordinal
		}
	}
	if end != nil {
		r.last.File, r.last.Offset, r.last.ServerUUID = end.File, end.Next, end.Txn.ServerUUID
		if r.main {
			r.c.state.update(func(s *Status) { s.LastCommit = time.UnixMicro(end.Txn.Time) })
		}
	}
	if end != nil && begin.Sub(r.kept) > keepEvery {
		r.history.Advance(r.last) // saved with the next batch
		r.history.Passed(r.last)
		r.kept = begin
	}
	r.c.state.events.Add(int64(len(r.batch)))
	r.c.state.rows.Add(rows)
	clear(r.batch)
	r.batch, r.size = r.batch[:0], 0
	return nil
}

// connect connects to the first address that answers.
func (c *Connector) connect(ctx context.Context) (*session, *server, error) {
	var errs []error
	for _, addr := range c.opt.Addresses {
		s, err := c.dial(ctx, addr)
		if err == nil {
			var sv *server
			if sv, err = s.server(ctx); err == nil {
				c.learnAccount(ctx, s)
				if err = c.checkLogging(sv); err == nil {
					return s, sv, nil
				}
			}
			s.close()
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, nil, errs[0]
	}
	// If one server is merely down, waiting may help.
	for _, err := range errs {
		var stop *StopError
		if !errors.As(c.judge(err), &stop) {
			return nil, nil, errors.New(joined(errs))
		}
	}
	return nil, nil, errors.Join(errs...)
}

func joined(errs []error) string {
	var s []string
	for _, e := range errs {
		s = append(s, e.Error())
	}
	return strings.Join(s, "; ")
}

// checkLogging refuses a server whose log cannot be read.
func (c *Connector) checkLogging(sv *server) error {
	if sv.vars["log_bin"] == "OFF" {
		return c.stop("the source's binary log is off", "set log_bin in its option file and restart it", nil)
	}
	if f := sv.vars["binlog_format"]; f != "" && f != "ROW" {
		return c.stop("the source logs statements: binlog_format is "+f, "run on the source: "+setGlobal(sv, "binlog_format", "ROW")+", and let its clients reconnect", nil)
	}
	return nil
}

// setGlobal is the statement that sets a variable for good.
func setGlobal(sv *server, name, value string) string {
	if sv.mariaDB {
		return "SET GLOBAL " + name + "=" + value + "; and put " + name + "=" + value + " under [mariadb] in its option file"
	}
	if strings.HasPrefix(sv.version, "5.") {
		return "SET GLOBAL " + name + "=" + value + "; and put " + name + "=" + value + " under [mysqld] in its option file"
	}
	return "SET PERSIST " + name + "=" + value
}
