package binlog

import (
	"errors"

	"github.com/binlogmq/binlogmq/event"
)

// Insertion is a transaction that no log has: rows that were read from a table, as inserts.
type Insertion struct {
	Snapshot *event.Snapshot
	ServerID uint32
	Time     int64 // microseconds since 1970 UTC
	Table    *event.Table
	Parts    []InsertionPart
}

// InsertionPart is a run of rows that becomes one event. Raw must not be written again.
type InsertionPart struct {
	Rows int    // at least 1
	Raw  []byte // row images with all columns of the table's Shown
}

// place is a transaction end.
type place struct {
	file   string
	offset uint64
	server string
}

// Ordinal returns the last number that was given.
func (m *Machine) Ordinal() int64 { return m.ordinal }

// Insert emits a transaction of its own between two of the stream, behind the last transaction end, which remains the place at which
// reading goes on. It takes its ordinals as one of the log does. Rows of a table that is not captured are left out, and take none.
func (m *Machine) Insert(i *Insertion) error {
	if m.state != between {
		return errors.New("rows of a snapshot inside a transaction")
	}
	at := &m.last
	t := m.alloc.txn()
	*t = event.Txn{
		File: at.file, Start: at.offset, ServerUUID: at.server, ServerID: i.ServerID, Time: i.Time, Snapshot: i.Snapshot,
	}
	e := m.alloc.event(0)
	*e = event.Event{
		Kind: event.Begin, ServerID: i.ServerID, Time: i.Time, File: at.file, Start: at.offset, Next: at.offset, Txn: t, Size: sizeofEvent + sizeofTxn,
	}
	if err := m.opt.Emit(e); err != nil {
		return err
	}
	rows := int64(0)
	if m.opt.Match(i.Table.Schema, i.Table.Name) {
		table := i.Table.Shown()
		all := table.AllColumns()
		for k := range i.Parts {
			p := &i.Parts[k]
			e := m.alloc.event(len(p.Raw))
			*e = event.Event{
				Kind: event.Rows, Op: event.Insert, Last: k == len(i.Parts)-1, ServerID: i.ServerID, Rows: uint32(p.Rows), Ordinal: m.ordinal + 1, Index: rows,
				Time: i.Time, File: at.file, Start: at.offset, Next: at.offset, Txn: t, Table: table, Images: event.Images{After: all}, Raw: p.Raw,
				Size: sizeofEvent + len(p.Raw) + len(all),
			}
			m.ordinal += int64(p.Rows)
			rows += int64(p.Rows)
			if err := m.opt.Emit(e); err != nil {
				return err
			}
		}
	}
	m.ordinal++
	e = m.alloc.event(0)
	*e = event.Event{
		Kind: event.End, ServerID: i.ServerID, Ordinal: m.ordinal, Index: rows, Time: i.Time, File: at.file, Start: at.offset, Next: at.offset, Txn: t, Size: sizeofEvent,
	}
	return m.opt.Emit(e)
}
