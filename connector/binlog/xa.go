package binlog

import (
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/event"
)

// Prepared names an XA transaction whose row changes were logged with its XA PREPARE and count from its XA COMMIT on.
type Prepared struct {
	XID    string // as the server writes it: X'global',X'branch',format
	File   string // where the group that ends in its XA PREPARE begins; "" when the Machine has not read that
	Start  uint64
	Before uint64 // where the group of its XA COMMIT begins, in BeforeFile: the last XA PREPARE of this id before it counts
	// BeforeFile is the file of Before.
	BeforeFile string
}

// Reread reads the events of a prepared XA transaction again and feeds them, from the group's first event on, until feed
// says that it has them all. It returns false when the log does not hold the transaction any more.
type Reread func(p *Prepared, feed func(*Raw) (done bool, err error)) (found bool, err error)

const defaultHeldXA = 32 << 20

// maxPrepared bounds how many XA transactions may be prepared at a time.
const maxPrepared = 1 << 17

// xaState is what a Machine knows of XA transactions.
type xaState struct {
	open    bool           // between XA START and its end: all is held back
	id      string         // of the open one as its XA START has it; may be empty
	held    []*event.Event // of the open one
	size    int            // bytes of held
	spilled bool           // held is not all

	again bool // the events of a prepared transaction are read again
	done  bool // with again: all of them

	prepared map[string]*prepared // by id
	kept     int                  // bytes of the events of prepared
}

// prepared is an XA transaction that is neither committed nor rolled back.
type prepared struct {
	file   string
	start  uint64
	rows   int64
	events []*event.Event // its row changes; nil when they must be read again
	size   int
}

// close forgets the open transaction.
func (x *xaState) close() { x.open, x.id, x.held, x.size, x.spilled = false, "", nil, 0, false }

// hold keeps an event of the open XA transaction.
func (m *Machine) hold(e *event.Event) {
	x := &m.xa
	if x.spilled {
		return
	}
	if x.kept+x.size+e.Size > cmp.Or(m.opt.HeldXA, defaultHeldXA) {
		x.spilled, x.held, x.size = true, nil, 0
		return
	}
	x.held = append(x.held, e)
	x.size += e.Size
}

// undo takes back what the open transaction has counted.
func (m *Machine) undo() {
	m.ordinal, m.rows, m.begun, m.held = m.base, 0, false, nil
	m.xa.close()
}

// onePhase hands on what was held of an XA transaction that has committed in one phase.
func (m *Machine) onePhase(r *Raw, start, next uint64) error {
	if err := m.release(true); err != nil {
		return err
	}
	if m.xa.spilled {
		p := &Prepared{File: m.txn.File, Start: m.txn.Start, BeforeFile: m.file, Before: next}
		m.undo()
		return m.reread(p, r, start, next)
	}
	held := m.xa.held
	m.xa.close()
	for _, e := range held {
		if err := m.opt.Emit(e); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) xaPrepare(r *Raw, start, next uint64) error {
	x, err := ParseXAPrepare(r.Body())
	if err != nil {
		return err
	}
	if m.state != inside {
		return malformed("XA prepare event outside a transaction")
	}
	if x.OnePhase {
		return m.end(r, 0, start, next)
	}
	if sameXID(m.xa.id, x.XID) {
		x.XID = m.xa.id
	}
	return m.prepare(r, x.XID, start, next)
}

// sameXID compares two ids as far as MySQL's XA prepare event tells them: statements have the format with 64 bits, the event has the low 32.
func sameXID(a, b string) bool {
	i, j := strings.LastIndexByte(a, ','), strings.LastIndexByte(b, ',')
	if i < 0 || j < 0 || a[:i] != b[:j] {
		return false
	}
	x, err := strconv.ParseUint(a[i+1:], 10, 64)
	y, err2 := strconv.ParseUint(b[j+1:], 10, 64)
	return err == nil && err2 == nil && uint32(x) == uint32(y)
}

// prepare keeps the row changes of the open transaction until the log says what becomes of them. They take their
// numbers then: to the stream this group is a transaction without content.
func (m *Machine) prepare(r *Raw, xid string, start, next uint64) error {
	if !m.xa.open { // the log shows no XA START
		if m.shown {
			return m.stop(start, "XA transaction "+xid+" is prepared, and its first row changes, which looked like those of any transaction, have been published",
				"compare the tables, then move the cursor on with: binlogmq cursor set")
		}
		m.xa.open = true
		for _, e := range m.ahead {
			m.hold(e)
		}
		m.drop()
	}
	if err := m.release(true); err != nil {
		return err
	}
	p := &prepared{file: m.txn.File, start: m.txn.Start, rows: m.rows}
	if !m.xa.spilled {
		for _, e := range m.xa.held {
			if e.Kind == event.Rows {
				p.events = append(p.events, e)
				p.size += e.Size
			}
		}
	}
	if m.xa.prepared == nil {
		m.xa.prepared = map[string]*prepared{}
	}
	m.forgetPrepared(xid)
	if len(m.xa.prepared) >= maxPrepared && !m.opt.Scan {
		return m.stop(start, strconv.Itoa(maxPrepared)+" XA transactions are prepared and neither committed nor rolled back",
			"look at XA RECOVER on the source, and commit or roll back what nobody waits for")
	}
	m.xa.prepared[xid] = p
	m.xa.kept += p.size
	m.undo()
	return m.end(r, 0, start, next)
}

func (m *Machine) forgetPrepared(xid string) *prepared {
	p := m.xa.prepared[xid]
	if p != nil {
		delete(m.xa.prepared, xid)
		m.xa.kept -= p.size
	}
	return p
}

// Prepared lists the XA transactions that have been read and were neither committed nor rolled back, each with the place
// where its group begins.
func (m *Machine) Prepared() []Prepared {
	list := make([]Prepared, 0, len(m.xa.prepared))
	for xid, p := range m.xa.prepared {
		list = append(list, Prepared{XID: xid, File: p.file, Start: p.start})
	}
	return list
}

// xaEnd handles the statements XA PREPARE, COMMIT and ROLLBACK.
func (m *Machine) xaEnd(r *Raw, q *Query, s statement, start, next uint64) error {
	if m.xa.open && s == stmtXACommit {
		return m.end(r, 0, start, next) // in one phase
	}
	if m.xa.open && s == stmtXARollback {
		m.undo()
		return m.end(r, 0, start, next)
	}
	xid, ok := xaID(q.Statement)
	if !ok {
		return malformed("XA statement without an id: %s", verb(q.Statement))
	}
	switch {
	case s == stmtXAPrepare:
		return m.prepare(r, xid, start, next)
	case s == stmtXARollback, m.opt.Scan:
		m.forgetPrepared(xid)
		return m.end(r, 0, start, next)
	}
	p := m.forgetPrepared(xid)
	switch {
	case p == nil: // prepared before the place where this reader began
		if err := m.reread(&Prepared{XID: xid, BeforeFile: m.file, Before: m.txn.Start}, r, start, next); err != nil {
			return err
		}
	case p.rows == 0:
	case p.events == nil:
		if err := m.reread(&Prepared{XID: xid, File: p.file, Start: p.start, BeforeFile: m.file, Before: m.txn.Start}, r, start, next); err != nil {
			return err
		}
	default:
		if err := m.begin(r); err != nil {
			return err
		}
		for _, e := range p.events {
			if err := m.release(false); err != nil {
				return err
			}
			e.Last, e.Txn, e.File, e.Start, e.Next = false, m.txn, m.file, start, next
			e.Ordinal, e.Index = m.ordinal+1, m.rows
			m.ordinal += int64(e.Rows)
			m.rows += int64(e.Rows)
			m.held = e
		}
	}
	return m.end(r, 0, start, next)
}

// reread hands on the row changes of an XA transaction that are not at hand, as part of the open one.
func (m *Machine) reread(p *Prepared, r *Raw, start, next uint64) error {
	if err := m.begin(r); err != nil {
		return err
	}
	m.state = inside
	outer := m.payload
	m.payload = payloadReader{}
	clear(m.saves)
	defer func() {
		m.payload.close()
		m.payload = outer
		m.xa.again, m.xa.done = false, false
	}()
	m.xa.again, m.xa.done = true, false
	groups := 0
	found, err := false, error(nil)
	if m.opt.Reread != nil {
		found, err = m.opt.Reread(p, func(r *Raw) (bool, error) {
			switch r.Type {
			case TypeGTID, TypeAnonymousGTID, TypeGTIDTagged, TypeMariaGTID:
				if groups++; groups > 1 {
					return false, malformed("XA transaction %s does not end where it did before", p.XID)
				}
			case TypeXAPrepare:
				x, err := ParseXAPrepare(r.Body())
				if err == nil && p.XID != "" && !sameXID(x.XID, p.XID) {
					err = malformed("XA transaction %s stands where %s stood before", x.XID, p.XID)
				}
				return true, err
			}
			err := m.step(r, start, next)
			return m.xa.done, err
		})
	}
	if err == nil && !found {
		// I3: its row changes count from here on, and nobody knows them.
		return m.stop(start, "XA transaction "+p.XID+" commits, but the source does not have the binlog any more that holds its row changes",
			"keep binlogs longer than transactions stay prepared; compare the tables that it changed, if they are captured, then move the cursor behind it with: binlogmq cursor set")
	}
	return err
}

// stepAgain is step for the events that reread brings.
func (m *Machine) stepAgain(r *Raw, start, next uint64) error {
	switch t := r.Type; t {
	case TypeTableMap:
		return m.tableMap(r, start)
	case TypePayload:
		return m.payloadEvent(r, start, next)
	case TypeXAPrepare, TypeXID:
		m.xa.done = true
		return nil
	case TypeQuery, TypeQueryCompressed, TypeExecuteLoadQuery:
		q, err := ParseQuery(t, r.Body())
		if err != nil {
			return err
		}
		switch s, name := classify(m.utf8(&q, q.Statement), q.SQLMode); s {
		case stmtDML:
			_, err := m.dml(&q, start)
			return err
		case stmtXAPrepare, stmtXACommit, stmtCommit:
			m.xa.done = true
		default:
			return m.savepoint(s, name, start)
		}
		return nil
	default:
		if isRows(t) {
			return m.rowsEvent(r, start, next)
		}
		return nil
	}
}

// xaID returns the id in an XA statement, as events have it.
func xaID(text []byte) (string, bool) {
	l := lexer{b: text}
	l.next()
	l.next()
	part := func() ([]byte, bool) {
		w := l.next()
		isHex := false
		if w == "X" {
			w, isHex = l.next(), true
		}
		if rest, ok := strings.CutPrefix(w, "0X"); ok {
			b, err := hex.DecodeString(rest)
			return b, err == nil
		}
		if w == "" || w[0] != '\'' && w[0] != '"' {
			return nil, false
		}
		if !isHex {
			return []byte(w[1:]), true
		}
		b, err := hex.DecodeString(w[1:])
		return b, err == nil
	}
	global, ok := part()
	if !ok {
		return "", false
	}
	var branch []byte
	format := uint64(1)
	if l.next() == "," {
		if branch, ok = part(); !ok {
			return "", false
		}
		if l.next() == "," {
			n, err := strconv.ParseUint(l.next(), 10, 64)
			if err != nil {
				return "", false
			}
			format = n
		}
	}
	return xidText(format, append(global[:len(global):len(global)], branch...), len(global)), true
}
