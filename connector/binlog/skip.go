package binlog

import (
	"math"

	"github.com/binlogmq/binlogmq/event"
)

// A transaction that the operator has ordered to be passed over shows as a Begin, row changes without a table that only
// count, and an End. What it holds is not read, so that it may be anything; how many numbers it takes is
// part of the order (I5).

// skipOrder looks up whether the transaction that begins is to be passed over.
func (m *Machine) skipOrder(g event.GTID) {
	if m.opt.Skip != nil {
		m.skip = m.opt.Skip(g)
		m.skipped = g
	}
}

// stepSkipped handles the events of a transaction that is passed over, as far as they decide where it ends.
// own is false for those that have nothing to do with it.
func (m *Machine) stepSkipped(r *Raw, start, next uint64) (own bool, err error) {
	switch r.Type {
	case TypeRotate, TypeFormatDescription, TypeHeartbeat, TypeHeartbeatV2, TypeGTID, TypeAnonymousGTID, TypeGTIDTagged, TypeMariaGTID:
		return false, nil
	case TypeXID, TypePayload, TypeIncident: // a payload is a whole transaction; MySQL gives an incident a GTID, and nothing else
		return true, m.endSkipped(r, start, next)
	case TypeXAPrepare:
		return true, m.unskippable(start)
	case TypeQuery, TypeQueryCompressed, TypeExecuteLoadQuery:
		return true, m.querySkipped(r, start, next)
	}
	return true, nil
}

func (m *Machine) querySkipped(r *Raw, start, next uint64) error {
	q, err := ParseQuery(r.Type, r.Body())
	if err != nil {
		return err
	}
	s, _ := classify(m.utf8(&q, q.Statement), q.SQLMode)
	switch s {
	case stmtEmpty, stmtSavepoint, stmtRelease, stmtRollbackTo:
		return nil
	case stmtBegin, stmtCreateStart:
		m.state = inside
		if s == stmtBegin {
			return nil
		}
	case stmtXAStart, stmtXAEnd, stmtXAPrepare, stmtXACommit, stmtXARollback:
		return m.unskippable(start)
	case stmtCommit, stmtRollback:
		return m.endSkipped(r, start, next)
	}
	if !s.control() && s != stmtAccount && (s != stmtDML || m.creates(&q)) {
		if _, err := m.changed(r, &q, start, next); err != nil { // it is not published, but what it did holds
			return err
		}
	}
	if m.state == inside {
		return nil
	}
	return m.endSkipped(r, start, next)
}

func (m *Machine) unskippable(start uint64) error {
	return m.stop(start, "a part of an XA transaction is ordered to be skipped, which cannot be done: its row changes lie elsewhere in the log",
		"move the cursor behind it with: binlogmq cursor set")
}

// endSkipped emits the transaction.
func (m *Machine) endSkipped(r *Raw, start, next uint64) error {
	n := m.skip
	m.skip = 0
	if m.opt.Skipped != nil {
		m.opt.Skipped(m.skipped, n)
	}
	if err := m.begin(r); err != nil {
		return err
	}
	for left := n - 1; left > 0; {
		rows := min(left, math.MaxInt32)
		e := m.alloc.event(0)
		*e = event.Event{
			Kind: event.Rows, Op: event.Insert, ServerID: r.ServerID, Rows: uint32(rows), Ordinal: m.ordinal + 1, Index: m.rows, Time: int64(r.Time) * 1e6,
			File: m.file, Start: start, Next: next, Txn: m.txn, Size: sizeofEvent,
		}
		m.ordinal += rows
		m.rows += rows
		left -= rows
		if err := m.release(false); err != nil {
			return err
		}
		m.held = e
	}
	return m.end(r, 0, start, next)
}
