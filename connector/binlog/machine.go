package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// Tables builds tables from TABLE_MAPs. [Machine] calls it once a definition,
// from its own goroutine.
type Tables interface {
	// Table returns the compiled table that t describes. A nil table without an error means
	// that its rows are not captured although its name is, as for MariaDB's sequences. An error that wraps
	// *[StopError] ends the stream; any other one is passed on as it is.
	Table(t *TableMap) (*event.Table, error)

	// Changed tells that a DDL statement has been read, before it is emitted. Its error is treated as that of Table.
	Changed(*Statement) error
}

// Statement is a DDL statement with where it lies. Its slices share the event's memory.
type Statement struct {
	Text       []byte // UTF-8
	Schema     []byte // default database of the session
	SQLMode    uint64 // of the session
	Collation  uint16 // id of the server's default; 0 when the log does not say
	Connection uint16 // id of the collation that its texts were converted to; 0 when the log does not say
	Version    int    // of the server that wrote it as the log tells, else that of Options.Server
	GTID       event.GTID
	ServerUUID string
	File       string
	Start      uint64 // of the event
	Next       uint64 // behind it
	Temporary  bool   // its session has temporary tables, which may be those that it names
	Error      uint16 // number of the error with which it ended when it had done a part of its work; 0: none

	Defined []event.Defined // filled in by Tables.Changed: what became of tables' definitions, as far as that is known, the same in each replay (I5)
}

// Options configures a [Machine].
type Options struct {
	Destination string
	ServerUUID  string                          // of the server that the stream comes from; MariaDB's server id as text
	Server      ddl.Server                      // how its statements are read, until the log tells the version of who wrote it; without a version it is newer than all
	Match       func(schema, table string) bool // which tables are captured
	MatchSchema func(schema string) bool        // whether any table of a schema may be captured; nil: yes
	Spared      func(verb, schema string)       // told of statement-format DML that is passed over, with the session's default schema; may be nil
	Passed      func(*Passed)                   // told of statement-format DML that may concern captured tables, which is passed over then; nil: it ends the stream
	Unread      *UnreadOptions                  // what becomes of rows of captured tables that Tables cannot describe; nil: they end the stream
	Charsets    map[uint32]string               // collation id -> character set, as the server has them; nil: the default collations are known
	Tables      Tables
	Emit        func(*event.Event) error // receives the events in order; an error ends the stream and is returned as it is
	Ended       func() error             // called behind each transaction end that was emitted, where [Machine.Insert] may be called; its errors are as those of Emit. May be nil
	Skip        func(event.GTID) int64   // how many ordinals a transaction takes that is passed over unread; 0: it is read. May be nil
	Skipped     func(event.GTID, int64)  // told of each such transaction; may be nil
	Scan        bool                     // only positions are wanted: what would stop the stream is passed over
	HideGTIDs   bool                     // leave Txn.GTID zero: positions of this destination are file and offset
	MaxEvent    int                      // most bytes of an event, as [Stream.Limit], after unpacking; 0: no limit
	OnLarge     func(size int)           // as [Stream.OnLarge], for events that are unpacked; may be nil
	HeldXA      int                      // most bytes kept of row changes of XA transactions that are open or prepared; those beyond it are read again from the log (I9). 0: 32 MiB
	Reread      Reread                   // nil: an XA transaction whose rows are not at hand stops the stream
	Position    event.Position
	Behind      bool  // what the stream shows of the log before Position's file and offset is done, and passed over
	Ordinal     int64 // of the transaction end at Position
}

// Passed is statement-format DML that was passed over: the rows that it changed are not in the log.
type Passed struct {
	Verb   string
	Schema string // default database of the session
	File   string
	Start  uint64 // of the event
	GTID   event.GTID
}

// StopError says why a stream cannot go on without its operator: what happened,
// where, and what to do.
type StopError struct {
	Destination string
	Schema      string // with Table: the table concerned; may be empty
	Table       string
	File        string
	Offset      uint64 // of the event concerned
	GTID        event.GTID
	What        string
	Remedy      string
	Err         error // cause, may be nil
	OfTable     bool  // it is about one table alone: rows of others can be read
}

// Error says it all in one line.
func (e *StopError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "destination %s: ", e.Destination)
	if e.Table != "" {
		fmt.Fprintf(&s, "table %s.%s: ", e.Schema, e.Table)
	}
	s.WriteString(e.What)
	if e.Err != nil {
		fmt.Fprintf(&s, ": %v", e.Err)
	}
	if e.File != "" {
		fmt.Fprintf(&s, " (at %s:%d", e.File, e.Offset)
		if !e.GTID.IsZero() {
			fmt.Fprintf(&s, ", GTID %s", e.GTID)
		}
		s.WriteByte(')')
	}
	if e.Remedy != "" {
		s.WriteString("; ")
		s.WriteString(e.Remedy)
	}
	return s.String()
}

// Reason says what happened and what to do, without the place.
func (e *StopError) Reason() string {
	s := e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *StopError) Unwrap() error { return e.Err }

// state is where a Machine stands in the stream.
type state uint8

const (
	between    state = iota // no transaction is open
	announced               // MySQL: its GTID event was read, nothing more
	standalone              // MariaDB: its GTID event was read, one statement follows
	inside                  // in a transaction
)

// tableRef is what a table id means until its transaction ends.
type tableRef struct {
	id    uint64
	table *event.Table // nil: not captured
	def   *definition
}

type definition struct {
	schema, name string
	table        *event.Table // nil: not captured
	unread       *StopError   // why its rows are passed over; table is good for counting them only, then
}

// maxDefinitions bounds the bytes of the definitions that are remembered, tables included (I9).
const maxDefinitions = 32 << 20

// Machine turns the events of a stream into transactions: it numbers row
// changes, counts positions and decides where transactions begin and end. Its
// output depends on its input and on Options only. Not for concurrent use.
type Machine struct {
	opt     Options
	alloc   alloc
	payload payloadReader
	defs    map[string]*definition
	defSize int // bytes of defs

	file    string // current binlog file
	pos     uint64 // offset behind the last event
	ordinal int64  // last number given
	base    int64  // last number given before the open transaction
	last    place  // last transaction end

	state   state
	txn     *event.Txn // open transaction; nil between transactions
	begun   bool       // its Begin has been emitted or held
	rows    int64      // row changes of it so far
	alter   byte       // MariaDB: phase flags of a two-phase ALTER
	maria   byte       // MariaDB: flags of the GTID event
	xa      xaState
	held    *event.Event     // rows event that waits for what follows it
	ahead   []*event.Event   // of the open transaction, until its end is seen or they are too many; see emit
	pending int              // bytes of ahead
	shown   bool             // events of the open transaction have been handed on
	saves   map[string]int64 // rows at each savepoint
	skip    int64            // ordinals of the open transaction if it is passed over, see skip.go; else 0
	skipped event.GTID       // its GTID
	tables  []tableRef

	source event.Position // file and offset of the last heartbeat
	behind bool           // all that follows lies behind Options.Position
}

// NewMachine returns a Machine that begins at a transaction end.
func NewMachine(opt Options) *Machine {
	if opt.Server.Version == 0 {
		opt.Server.Version = math.MaxInt
	}
	return &Machine{
		opt: opt, defs: map[string]*definition{}, file: opt.Position.File, pos: opt.Position.Offset,
		behind: !opt.Behind, ordinal: opt.Ordinal, last: place{opt.Position.File, opt.Position.Offset, opt.Position.ServerUUID},
	}
}

// Close frees what the Machine holds beside memory.
func (m *Machine) Close() { m.payload.close() }

// Position returns file and offset behind the last event fed.
func (m *Machine) Position() (file string, offset uint64) { return m.file, m.pos }

// Open reports whether a transaction is open.
func (m *Machine) Open() bool { return m.state != between }

// Feed takes the next event of the stream. Errors are *[StopError] (wrapped or
// not), those of Emit and of Tables, or wrap [ErrMalformed].
func (m *Machine) Feed(r *Raw) error {
	start, err := m.advance(r)
	if err != nil {
		return m.located(err, start)
	}
	if err := m.step(r, start, m.pos); err != nil {
		return m.located(err, start)
	}
	return nil
}

// located adds the place to errors about the data.
func (m *Machine) located(err error, start uint64) error {
	var stop *StopError
	if !errors.Is(err, ErrMalformed) || errors.As(err, &stop) {
		return err
	}
	return fmt.Errorf("destination %s: %s:%d: %w", m.opt.Destination, m.file, start, err)
}

// advance counts the position and returns where the event starts. Offsets are of 64 bits; the event
// tells the low 32 bits of its end, or 0.
func (m *Machine) advance(r *Raw) (start uint64, err error) {
	h := &r.Header
	switch h.Type {
	case TypeRotate:
		return m.pos, nil // sets the position itself
	case TypeHeartbeat, TypeHeartbeatV2:
		return m.pos, nil
	case TypeFormatDescription:
		if h.LogPos == 0 {
			return m.pos, nil // sent again for a start behind it
		}
	}
	if h.Flags&FlagArtificial != 0 {
		return m.pos, nil
	}
	size := uint64(h.Size)
	end := m.pos + size
	if h.LogPos != 0 {
		// The sender may have passed over events, never gone back.
		at := nearest(h.LogPos, end)
		if at < end {
			return m.pos, malformed("%v event of %d bytes ends at offset %d, but the event before it at %d", h.Type, size, at, m.pos)
		}
		end = at
	}
	m.pos = end
	return end - size, nil
}

// nearest returns the offset closest to want that has these low 32 bits.
func nearest(low uint32, want uint64) uint64 {
	v := want&^(1<<32-1) | uint64(low)
	switch {
	case v+1<<31 < want:
		v += 1 << 32
	case v > want+1<<31 && v >= 1<<32:
		v -= 1 << 32
	}
	return v
}

// step handles one event that lies at start in the file.
func (m *Machine) step(r *Raw, start, next uint64) error {
	if m.xa.again {
		return m.stepAgain(r, start, next)
	}
	if !m.behind && m.passed(r.Type, next) {
		return nil
	}
	if m.skip > 0 {
		if own, err := m.stepSkipped(r, start, next); own || err != nil {
			return err
		}
	}
	switch t := r.Type; t {
	case TypeTableMap:
		return m.tableMap(r, start)
	case TypeXID:
		return m.xidEvent(r, start, next)
	case TypeQuery, TypeQueryCompressed, TypeExecuteLoadQuery:
		return m.query(r, start, next)
	case TypeGTID, TypeAnonymousGTID:
		e, err := ParseGTID(t, r.Body())
		if err != nil {
			return err
		}
		return m.mysqlGTID(r, &e, start)
	case TypeGTIDTagged:
		e, err := ParseGTIDTagged(r.Body())
		if err != nil {
			return err
		}
		return m.mysqlGTID(r, &e, start)
	case TypeMariaGTID:
		return m.mariaGTID(r, start)
	case TypePayload:
		return m.payloadEvent(r, start, next)
	case TypeXAPrepare:
		return m.xaPrepare(r, start, next)
	case TypeRotate:
		return m.rotate(r, start)
	case TypeFormatDescription:
		m.wroteBy(r.Body())
		return m.newFile(r, start, next)
	case TypeHeartbeat:
		file, offset, wide, err := ParseHeartbeat(&r.Header, r.Body())
		if err != nil {
			return err
		}
		if !wide && file == m.file {
			offset = nearest(uint32(offset), m.pos)
		}
		m.heartbeat(file, offset)
		return nil
	case TypeHeartbeatV2:
		file, offset, err := ParseHeartbeatV2(r.Body())
		if err != nil {
			return err
		}
		m.heartbeat(file, offset)
		return nil
	case TypeIncident:
		if m.opt.Scan {
			return nil
		}
		_, message := ParseIncident(r.Body())
		return m.stop(start, "the source reports an incident: events are missing from its binlog ("+message+")",
			"compare the tables with their consumers, then move the cursor behind it with: binlogmq cursor set")
	case TypeBeginLoadQuery, TypeAppendBlock, TypeDeleteFile: // the file of a LOAD DATA whose statement comes behind it
		return nil
	case TypeStop, TypeIntvar, TypeRand, TypeUserVar, TypeIgnorable, TypeRowsQuery, TypePreviousGTIDs, TypeTransactionContext, TypeViewChange,
		TypeAnnotateRows, TypeBinlogCheckpoint, TypeMariaGTIDList, TypeStartEncryption:
		return nil
	default:
		if isRows(t) {
			return m.rowsEvent(r, start, next)
		}
		if r.Flags&FlagIgnorable != 0 || m.opt.Scan {
			return nil
		}
		// I3: what is not understood is not passed over.
		return m.stop(start, "event of type "+t.String()+", which this version of binlogmq does not know",
			"upgrade binlogmq, or switch the server feature off that writes it")
	}
}

// passed tells whether an event lies before the place where the stream was to begin. MariaDB looks for a transaction by its number: it shows
// events without a number that stand before it, and transactions behind it whose numbers are lower, though they were read long ago.
func (m *Machine) passed(t EventType, next uint64) bool {
	switch t {
	case TypeRotate, TypeFormatDescription, TypeHeartbeat, TypeHeartbeatV2:
		return false
	}
	at, begin := event.FileNumber(m.file), event.FileNumber(m.opt.Position.File)
	m.behind = at > begin || at == begin && next > m.opt.Position.Offset
	return !m.behind
}

// stop makes the error about the event at start.
func (m *Machine) stop(start uint64, what, remedy string) *StopError {
	e := &StopError{Destination: m.opt.Destination, File: m.file, Offset: start, What: what, Remedy: remedy}
	if m.txn != nil {
		e.GTID = m.txn.GTID
	}
	return e
}

func (m *Machine) stopTable(start uint64, d *definition, what, remedy string, cause error) *StopError {
	e := m.stop(start, what, remedy)
	e.Schema, e.Table, e.Err = d.schema, d.name, cause
	return e
}

func (m *Machine) statementDML(start uint64, verb string) error {
	if m.opt.Scan {
		return nil
	}
	return m.stop(start, "the log holds statement-format DML ("+verb+"), which does not tell the rows that it changed",
		"set binlog_format=ROW for every session (SET GLOBAL binlog_format=ROW; look for sessions and tools that set STATEMENT or MIXED), "+
			"repair the rows concerned, then move the cursor behind the statement with: binlogmq cursor set; statement_format: skip passes over such statements and counts them")
}

// ---- files

func (m *Machine) rotate(r *Raw, start uint64) error {
	file, offset, err := ParseRotate(r.Body())
	if err != nil {
		return err
	}
	if err := m.aborted(start); err != nil {
		return err
	}
	m.file, m.pos = file, offset
	return nil
}

// newFile is called where a file begins: a transaction never spans two. Where positions are file and offset it
// counts as a transaction without content, so that the cursor of an idle source leaves the files that are purged.
func (m *Machine) newFile(r *Raw, start, next uint64) error {
	if err := m.aborted(start); err != nil {
		return err
	}
	if !m.opt.HideGTIDs || m.opt.Scan || start != 4 || next == start { // an event sent again takes no place
		return nil
	}
	m.open(r, announced, start)
	return m.end(r, 0, start, next)
}

// aborted forgets a transaction that the log breaks off, which the server has rolled back.
func (m *Machine) aborted(start uint64) error {
	if m.state == between {
		return nil
	}
	if m.shown {
		return m.stop(start, "the binlog breaks off inside a transaction whose first row changes have been published",
			"the server lost the rest in a crash: compare its tables with their consumers, then move the cursor on with: binlogmq cursor set")
	}
	m.ordinal = m.base
	m.reset()
	return nil
}

func (m *Machine) heartbeat(file string, offset uint64) {
	m.source.File, m.source.Offset = file, offset
	if file == m.file && m.state == between && offset > m.pos {
		m.pos = offset // the sender passed over what we have
	}
}

// Heartbeat returns file and offset of the last heartbeat; an empty file before the first.
func (m *Machine) Heartbeat() (file string, offset uint64) { return m.source.File, m.source.Offset }

// ---- transactions

// open begins a transaction with the event at start.
func (m *Machine) open(r *Raw, s state, start uint64) *event.Txn {
	m.state, m.base = s, m.ordinal
	t := m.alloc.txn()
	*t = event.Txn{File: m.file, Start: start, ServerUUID: m.opt.ServerUUID, ServerID: r.ServerID, Time: int64(r.Time) * 1e6, ByFile: m.opt.HideGTIDs}
	m.txn = t
	return t
}

func (m *Machine) reset() {
	m.state, m.txn, m.begun, m.rows, m.skip = between, nil, false, 0, 0
	m.alter, m.maria, m.held = 0, 0, nil
	m.drop()
	m.shown = false
	m.xa.close()
	if len(m.saves) > 0 {
		clear(m.saves)
	}
	clear(m.tables)
	m.tables = m.tables[:0]
}

func (m *Machine) mysqlGTID(r *Raw, e *GTIDEvent, start uint64) error {
	if err := m.aborted(start); err != nil {
		return err
	}
	t := m.open(r, announced, start)
	m.skipOrder(e.GTID)
	if !m.opt.HideGTIDs {
		t.GTID = e.GTID
	}
	if e.Original != 0 {
		t.Time = e.Original
	}
	return nil
}

func (m *Machine) mariaGTID(r *Raw, start uint64) error {
	e, err := ParseMariaGTID(r.Body())
	if err != nil {
		return err
	}
	if err := m.aborted(start); err != nil {
		return err
	}
	s := inside // no BEGIN follows
	if e.Flags&mariaStandalone != 0 {
		s = standalone
	}
	t := m.open(r, s, start)
	g := event.GTID{Domain: e.Domain, Server: r.ServerID, Seq: e.Seq}
	m.skipOrder(g)
	if !m.opt.HideGTIDs {
		t.GTID = g
	}
	t.ThreadID = e.ThreadID
	m.maria, m.alter, m.xa.open = e.Flags, e.Extra, e.Flags&mariaPreparedXA != 0
	return nil
}

// begin emits the Begin once the transaction shows something.
func (m *Machine) begin(r *Raw) error {
	if m.begun {
		return nil
	}
	m.begun = true
	t := m.txn
	e := m.alloc.event(0)
	*e = event.Event{
		Kind: event.Begin, ServerID: t.ServerID, Time: int64(r.Time) * 1e6, File: m.file, Start: t.Start, Next: t.Start,
		Txn: t, Size: sizeofEvent + sizeofTxn,
	}
	return m.emit(e)
}

// release emits the held rows event.
func (m *Machine) release(last bool) error {
	e := m.held
	if e == nil {
		return nil
	}
	m.held = nil
	e.Last = last
	return m.emit(e)
}

// lookAhead is how many bytes of events of a transaction wait for its end: it fits into a processor's cache.
const lookAhead = 1 << 20

// emit hands on an event once the transaction's end is seen: what is rolled back all the same, or is broken off, has never been there. Of a transaction that
// is larger than lookAhead the rest is handed on as it comes.
func (m *Machine) emit(e *event.Event) error {
	switch {
	case m.xa.open:
		m.hold(e)
		return nil
	case m.shown:
		return m.opt.Emit(e)
	}
	m.ahead = append(m.ahead, e)
	if m.pending += e.Size; m.pending > lookAhead {
		return m.show()
	}
	return nil
}

// show hands on what waits for the end of the transaction.
func (m *Machine) show() error {
	m.shown = true
	for _, e := range m.ahead {
		if err := m.opt.Emit(e); err != nil {
			return err
		}
	}
	m.drop()
	return nil
}

// drop forgets what waits for the end of the transaction.
func (m *Machine) drop() {
	clear(m.ahead)
	m.ahead, m.pending = m.ahead[:0], 0
}

// published tells whether consumers have the first rows of a transaction that stops.
func (m *Machine) published() string {
	if m.shown {
		return "its first row changes have been published"
	}
	return "nothing of it has been published"
}

// end closes the transaction.
func (m *Machine) end(r *Raw, xid, start, next uint64) error {
	if m.xa.open {
		if err := m.onePhase(r, start, next); err != nil {
			return err
		}
	}
	if err := m.begin(r); err != nil {
		return err
	}
	if err := m.release(true); err != nil {
		return err
	}
	if err := m.show(); err != nil {
		return err
	}
	m.ordinal++
	e := m.alloc.event(0)
	*e = event.Event{
		Kind: event.End, ServerID: r.ServerID, Ordinal: m.ordinal, Index: m.rows, Time: int64(r.Time) * 1e6,
		File: m.file, Start: start, Next: next, Txn: m.txn, XID: xid, Size: sizeofEvent,
	}
	m.reset()
	m.last = place{e.File, e.Next, e.Txn.ServerUUID}
	if err := m.opt.Emit(e); err != nil || m.opt.Ended == nil {
		return err
	}
	return m.opt.Ended()
}

func (m *Machine) xidEvent(r *Raw, start, next uint64) error {
	x, err := ParseXID(r.Body())
	if err != nil {
		return err
	}
	if m.state != inside {
		return malformed("XID event outside a transaction")
	}
	return m.end(r, x, start, next)
}

func (m *Machine) query(r *Raw, start, next uint64) error {
	q, err := ParseQuery(r.Type, r.Body())
	if err != nil {
		return err
	}
	s, name := classify(m.utf8(&q, q.Statement), q.SQLMode) // some sets have bytes of ASCII within characters
	if m.state == between && s != stmtEmpty {
		m.open(r, announced, start) // MySQL 5.6 and older without GTIDs
	}
	if m.txn != nil && !m.begun && m.txn.ThreadID == 0 {
		m.txn.ThreadID = q.ThreadID
	}
	if m.state == standalone && s != stmtEmpty {
		return m.standaloneQuery(r, &q, s, start, next)
	}
	switch s {
	case stmtEmpty:
		return nil
	case stmtBegin:
		if m.state != announced {
			return malformed("BEGIN inside a transaction")
		}
		m.state = inside
		return nil
	case stmtXAStart:
		m.state, m.xa.open = inside, true
		m.xa.id, _ = xaID(q.Statement)
		return nil
	case stmtXAEnd:
		return nil
	case stmtXAPrepare, stmtXACommit, stmtXARollback:
		return m.xaEnd(r, &q, s, start, next)
	case stmtCommit:
		if m.state != inside && m.state != announced {
			return malformed("COMMIT outside a transaction")
		}
		return m.end(r, 0, start, next)
	case stmtRollback:
		if m.rows > 0 {
			return m.stop(start, "a transaction ends in ROLLBACK although the log holds its row changes, of which only those of non-transactional tables persist; "+m.published(), mixedRemedy)
		}
		return m.end(r, 0, start, next)
	case stmtSavepoint, stmtRelease, stmtRollbackTo:
		return m.savepoint(s, name, start)
	case stmtDML:
		if m.state != announced || !emptied(q.Statement) {
			if s, err = m.dml(&q, start); err != nil {
				return err
			}
			if s == stmtSpared && m.xa.open {
				return nil // it would take a number that a second reading does not give
			}
		}
	case stmtCreateStart:
		if m.state == announced {
			m.state = inside
		}
		return m.ddl(r, &q, s, start, next)
	}
	alone := m.state == announced
	if err := m.ddl(r, &q, s, start, next); err != nil || !alone {
		return err
	}
	return m.end(r, 0, start, next)
}

const mixedRemedy = "do not change transactional and non-transactional tables in one transaction; compare the tables, then move the cursor on with: binlogmq cursor set"

// savepoint handles the statements about savepoints.
func (m *Machine) savepoint(s statement, name string, start uint64) error {
	switch s {
	case stmtSavepoint:
		if m.saves == nil {
			m.saves = map[string]int64{}
		}
		if len(m.saves) < 1<<16 {
			m.saves[name] = m.rows
		}
	case stmtRollbackTo:
		if at, ok := m.saves[name]; m.rows > 0 && (!ok || at != m.rows) {
			return m.stop(start, "ROLLBACK TO SAVEPOINT takes row changes back that the log holds, of which only those of non-transactional tables persist; "+m.published(), mixedRemedy)
		}
	}
	return nil
}

// standaloneQuery handles the one statement of a MariaDB group without COMMIT.
func (m *Machine) standaloneQuery(r *Raw, q *Query, s statement, start, next uint64) error {
	if s == stmtDML && !m.opt.Scan && !emptied(q.Statement) {
		var err error
		if s, err = m.dml(q, start); err != nil {
			return err
		}
	}
	switch {
	case m.maria&mariaCompletedXA != 0:
		return m.xaEnd(r, q, s, start, next)
	case m.alter&(mariaExtraStartAlter|mariaExtraRollbackAlter) != 0:
		// First half of a two-phase ALTER, or its undoing: the statement comes again when it commits, if it does.
	case !s.control():
		if err := m.ddl(r, q, s, start, next); err != nil {
			return err
		}
	}
	return m.end(r, 0, start, next)
}

func verb(text []byte) string {
	l := lexer{b: text}
	w := l.next()
	for w == "(" {
		w = l.next()
	}
	return strings.ToValidUTF8(w[:min(len(w), 32)], "?")
}

// ddl emits a statement. Those about accounts, and about rows of excluded tables, keep their number, not their text.
func (m *Machine) ddl(r *Raw, q *Query, s statement, start, next uint64) error {
	if err := m.begin(r); err != nil {
		return err
	}
	if err := m.release(false); err != nil {
		return err
	}
	m.ordinal++
	var text []byte
	var about *event.Statement
	var defined []event.Defined
	if s != stmtAccount && (s != stmtSpared || m.creates(q)) {
		var err error
		if defined, err = m.changed(r, q, start, next); err != nil {
			return err
		}
	}
	if s != stmtAccount && s != stmtSpared {
		if text, about = m.describe(q); ofTemporary(r, about) {
			for i := range about.Changes {
				about.Changes[i].Object = event.ObjectTemporary
			}
		} else if about != nil {
			about.Defined = defined
		}
	}
	e := m.alloc.event(len(text))
	*e = event.Event{
		Kind: event.DDL, ServerID: r.ServerID, Ordinal: m.ordinal, Index: m.rows, Time: int64(r.Time)*1e6 + int64(q.Micros),
		File: m.file, Start: start, Next: next, Txn: m.txn, Stmt: about, Schema: string(q.Schema),
	}
	if text != nil {
		e.Raw = m.alloc.copy(text)
	}
	e.Size = sizeofEvent + len(e.Raw) + len(e.Schema) + about.Memory()
	return m.emit(e)
}

// wroteBy notes the version of the server that wrote the file. I5: comments that it has executed are read as it read them, whatever
// server sends the file later.
func (m *Machine) wroteBy(formatDescription []byte) {
	if len(formatDescription) < 52 {
		return
	}
	if v := ddl.ParseVersion(string(bytes.TrimRight(formatDescription[2:52], "\x00"))); v > 0 && v != m.opt.Server.Version {
		m.opt.Server.Version = v
		m.forget() // what rows are like depends on it, too
	}
}

// describe returns the text with which a statement is published, and what it is about; nothing if it may hold a secret that cannot be told.
func (m *Machine) describe(q *Query) ([]byte, *event.Statement) {
	if m.opt.Scan {
		return nil, nil
	}
	text := m.utf8(q, q.Statement)
	about := m.about(q, text)
	if text = redact(text, q.SQLMode, about); text == nil {
		return nil, nil
	}
	return text, about
}

// about tells what a statement with this text is about.
func (m *Machine) about(q *Query, text []byte) *event.Statement {
	return ddl.Describe(&ddl.Statement{Text: strings.ToValidUTF8(string(text), "\uFFFD"), Schema: string(q.Schema), SQLMode: q.SQLMode}, m.opt.Server)
}

// changed tells Options.Tables of a statement, and returns what that knows of the tables.
func (m *Machine) changed(r *Raw, q *Query, start, next uint64) ([]event.Defined, error) {
	if m.opt.Tables == nil || r.Flags&FlagThread != 0 && ofTemporary(r, m.about(q, m.utf8(q, q.Statement))) {
		return nil, nil
	}
	m.forget()
	st := Statement{
		Text: m.utf8(q, q.Statement), Schema: q.Schema, SQLMode: q.SQLMode, Collation: q.ServerCollation, Connection: q.Connection, Version: m.opt.Server.Version,
		ServerUUID: m.opt.ServerUUID, File: m.file, Start: start, Next: next, Temporary: r.Flags&FlagThread != 0, Error: q.ErrorCode,
	}
	if m.txn != nil {
		st.GTID = m.txn.GTID
	}
	err := m.opt.Tables.Changed(&st)
	var stop *StopError
	if errors.As(err, &stop) {
		e := m.stop(start, stop.What, stop.Remedy)
		e.Err = stop.Err
		return nil, e
	}
	return st.Defined, err
}

// ---- rows

func (m *Machine) tableMap(r *Raw, start uint64) error {
	t, err := ParseTableMap(r.Body())
	if err != nil {
		return err
	}
	d, ok := m.defs[string(t.Definition)]
	if !ok {
		first := t // escapes, unlike t
		if d, err = m.define(&first, start); err != nil {
			return err
		}
	}
	for i := range m.tables {
		if m.tables[i].id == t.ID {
			m.tables[i] = tableRef{t.ID, d.table, d}
			return nil
		}
	}
	m.tables = append(m.tables, tableRef{t.ID, d.table, d})
	return nil
}

func (m *Machine) define(t *TableMap, start uint64) (*definition, error) {
	d := &definition{schema: string(t.Schema), name: string(t.Table)}
	if m.opt.Match(d.schema, d.name) {
		t.Version = m.opt.Server.Version
		table, unread, err := m.table(t)
		if err != nil {
			var stop *StopError
			switch {
			case errors.As(err, &stop):
				// The place is ours to tell.
				remedy := stop.Remedy
				if stop.OfTable && (m.opt.Unread == nil || m.opt.Unread.Decide == nil) && countable(t) != nil {
					remedy += "; on_table_error: skip passes over such rows and counts them"
				}
				return nil, m.stopTable(start, d, stop.What, remedy, stop.Err)
			case errors.Is(err, ErrMalformed):
				return nil, fmt.Errorf("table %s.%s: %w", d.schema, d.name, err)
			}
			return nil, err
		}
		d.table, d.unread = table, unread
	}
	size := len(t.Definition) + len(d.schema) + len(d.name) + 256
	if d.table != nil {
		size += d.table.Memory()
	}
	if m.defSize+size > maxDefinitions {
		m.forget()
	}
	m.defs[string(t.Definition)] = d
	m.defSize += size
	return d, nil
}

// forget forgets what is known about tables; Options.Tables is asked again.
func (m *Machine) forget() {
	clear(m.defs)
	m.defSize = 0
}

func (m *Machine) rowsEvent(r *Raw, start, next uint64) error {
	h, err := ParseRowsHead(r.Type, r.Body())
	if err != nil {
		return err
	}
	var ref *tableRef
	for i := range m.tables {
		if m.tables[i].id == h.TableID {
			ref = &m.tables[i]
			break
		}
	}
	if ref == nil {
		if h.TableID == noTable {
			return nil
		}
		return malformed("rows event of table id %d, which no table map names", h.TableID)
	}
	if ref.table == nil {
		return nil // not captured: skipped unread
	}
	if m.state != inside {
		if m.state == between {
			return malformed("rows event outside a transaction")
		}
		m.state = inside
	}
	columns, im, raw, err := h.Images(m.limit(r.Type))
	if err != nil {
		return err
	}
	if columns != len(ref.table.Columns) {
		return malformed("table %s.%s: rows event of %d columns behind a table map of %d", ref.def.schema, ref.def.name, columns, len(ref.table.Columns))
	}
	var n int
	if h.Partial {
		n, err = event.CountPartialRows(ref.table, im, raw)
	} else {
		n, err = event.CountRows(ref.table, h.Op, im, raw)
	}
	if err != nil {
		return malformed("%v", err)
	}
	if n == 0 {
		return nil
	}
	if ref.def.unread != nil {
		return m.passRows(r, &h, ref.def, n, start, next)
	}
	table := ref.table.Shown()
	if table != ref.table {
		if h.Partial {
			return m.stopTable(start, ref.def, "partial updates of JSON in a table with hidden columns cannot be read",
				"SET GLOBAL binlog_row_value_options='' on the source; to go on, move the cursor behind the row with: binlogmq cursor set", nil)
		}
		if im, raw, err = ref.table.Strip(h.Op, im, raw); err != nil {
			return malformed("%v", err)
		}
		h.compressed = true // memory of its own
	}
	e := event.Event{
		Kind: event.Rows, Partial: h.Partial, ServerID: r.ServerID, Time: int64(r.Time) * 1e6, File: m.file, Start: start, Next: next, Table: table,
	}
	if table.RowEnd == 0 {
		e.Op, e.Rows = h.Op, uint32(n)
		e.Raw, e.Images = m.own(r, h.compressed, im, raw)
		return m.keepRows(r, &e)
	}
	runs, err := event.Live(table, h.Op, im, n, raw)
	if err != nil {
		return m.stopTable(start, ref.def, "the present rows of a table WITH SYSTEM VERSIONING cannot be told", "SET GLOBAL binlog_row_image = FULL on the source; to go on, "+
			"move the cursor behind the row with: binlogmq cursor set", err)
	}
	for i := range runs {
		e.Op, e.Rows, e.Raw = runs[i].Op, uint32(runs[i].Rows), runs[i].Raw
		e.Images = event.Images{Before: m.keep(runs[i].Images.Before), After: m.keep(runs[i].Images.After)}
		if len(runs) == 1 && runs[i].Rows == n {
			e.Raw = m.keep(e.Raw) // it may be the event's own memory
		}
		if err := m.keepRows(r, &e); err != nil {
			return err
		}
	}
	return nil
}

// keepRows numbers a rows event and holds it until it is known what follows.
func (m *Machine) keepRows(r *Raw, rows *event.Event) error {
	if err := m.begin(r); err != nil {
		return err
	}
	if err := m.release(false); err != nil {
		return err
	}
	e := m.alloc.event(len(rows.Raw))
	*e = *rows
	e.Ordinal, e.Index, e.Txn = m.ordinal+1, m.rows, m.txn
	e.Size = sizeofEvent + len(e.Raw) + len(e.Images.Before) + len(e.Images.After)
	m.ordinal += int64(e.Rows)
	m.rows += int64(e.Rows)
	m.held = e
	return nil
}

// limit is what unpacking an event must keep to.
func (m *Machine) limit(t EventType) sizeLimit { return sizeLimit{m.opt.MaxEvent, m.opt.OnLarge, t} }

// own returns images and bitmaps in memory that nobody writes again.
func (m *Machine) own(r *Raw, inflated bool, im event.Images, raw []byte) ([]byte, event.Images) {
	if r.Owned && !inflated {
		return raw, im
	}
	if inflated {
		return raw, event.Images{Before: m.keep(im.Before), After: m.keep(im.After)}
	}
	// Bitmaps and images lie side by side in the event: copy them at once.
	b, a := len(im.Before), len(im.After)
	from := len(r.Data) - len(raw) - b - a
	c := m.alloc.copy(r.Data[from:])
	var own event.Images
	if b > 0 {
		own.Before = c[:b:b]
	}
	if a > 0 {
		own.After = c[b : b+a : b+a]
	}
	return c[b+a:], own
}

func (m *Machine) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	return m.alloc.copy(b)
}

// ---- compressed transactions

// payloadEvent feeds the events inside. All of them lie where the payload event lies.
func (m *Machine) payloadEvent(r *Raw, start, next uint64) error {
	p, err := ParsePayload(r.Body())
	if err != nil {
		return err
	}
	if m.state == inside && !m.xa.again {
		return malformed("transaction payload inside a transaction")
	}
	if err := m.payload.reset(&p); err != nil {
		return err
	}
	for {
		inner, err := m.payload.next(m.limit(r.Type))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch inner.Type {
		case TypePayload, TypeRotate, TypeFormatDescription, TypeGTID, TypeAnonymousGTID, TypeGTIDTagged, TypeMariaGTID:
			return malformed("%v event inside a transaction payload", inner.Type)
		}
		if err := m.step(&inner, start, next); err != nil {
			return err
		}
	}
}
