package binlog

import (
	"errors"

	"github.com/binlogmq/binlogmq/event"
)

// UnreadOptions have the rows of captured tables that cannot be described counted, and passed over: they show as row changes without a
// table, so that those behind them have the numbers that they have anyway (I5).
type UnreadOptions struct {
	// Decided tells why rows with this definition, where the reader stands, are passed over; nil: that has not been decided.
	Decided func(*TableMap) (*StopError, error)

	// Decide has them passed over from here on, as Tables has failed with that error, and in every replay; false: that cannot be kept.
	// nil: such rows end the stream, unless it has been decided (I5).
	Decide func(*TableMap, *StopError) (bool, error)

	Tell func(*Unread) // of each rows event that is passed over
}

// Unread is a rows event that was passed over.
type Unread struct {
	Schema, Table string
	Rows          int // row changes
	File          string
	Start         uint64 // of the event
	GTID          event.GTID
	Why           *StopError
}

// table asks Options.Tables for a table. One whose rows are passed over comes with the reason.
func (m *Machine) table(t *TableMap) (*event.Table, *StopError, error) {
	o := m.opt.Unread
	if o == nil {
		table, err := m.opt.Tables.Table(t)
		return table, nil, err
	}
	why, err := o.Decided(t)
	if err != nil {
		return nil, nil, err
	}
	if why != nil {
		if table := countable(t); table != nil {
			return table, why, nil
		}
		return nil, nil, why
	}
	table, err := m.opt.Tables.Table(t)
	if err == nil || o.Decide == nil || !errors.As(err, &why) || !why.OfTable {
		return table, nil, err
	}
	if table = countable(t); table == nil {
		return nil, nil, err // nobody can tell how many numbers its rows take (I5)
	}
	switch kept, failure := o.Decide(t, why); {
	case failure != nil:
		return nil, nil, failure
	case !kept:
		stop := *why
		stop.Remedy += "; on_table_error: skip does not help here, as the schema history cannot note which rows are passed over (schema: log, more than it holds, or rows behind these could be read)"
		return nil, nil, &stop
	}
	return table, why, nil
}

// countable returns a table with which rows can be counted of which nothing else is known; nil if they cannot be.
func countable(t *TableMap) *event.Table {
	cols, err := t.Columns()
	if err != nil {
		return nil
	}
	table := &event.Table{Schema: string(t.Schema), Name: string(t.Table), Columns: make([]event.Column, len(cols.Types))}
	meta := cols.Meta
	for i, typ := range cols.Types {
		real, m, n, err := event.NormalizeType(typ, meta)
		if err != nil {
			return nil
		}
		switch meta = meta[n:]; real {
		case event.TypeTime, event.TypeDatetime, event.TypeTimestamp:
			return nil // the log does not tell how long they are
		}
		table.Columns[i] = event.Column{Type: real, Meta: m, Charset: "binary"}
	}
	if table.Compile() != nil {
		return nil
	}
	return table
}

// passRows emits a rows event that only counts.
func (m *Machine) passRows(r *Raw, h *RowsHead, d *definition, n int, start, next uint64) error {
	u := Unread{Schema: d.schema, Table: d.name, Rows: n, File: m.file, Start: start, Why: d.unread}
	if m.txn != nil {
		u.GTID = m.txn.GTID
	}
	m.opt.Unread.Tell(&u)
	about := &event.Statement{Whole: true, Changes: []event.Change{{Action: event.ActionAlter, Object: event.ObjectTable, Schema: d.schema, Name: d.name}}}
	return m.keepRows(r, &event.Event{
		Kind: event.Rows, Op: h.Op, Rows: uint32(n), ServerID: r.ServerID, Time: int64(r.Time) * 1e6, File: m.file, Start: start, Next: next, Stmt: about,
	})
}
