package canaltype

import (
	"github.com/binlogmq/binlogmq/codec/internal/statement"
	"github.com/binlogmq/binlogmq/event"
)

// EventType is Canal's EventType (EntryProtocol.proto).
type EventType uint8

// The event types that are used.
const (
	Insert   EventType = 1
	Update   EventType = 2
	Delete   EventType = 3
	Create   EventType = 4
	Alter    EventType = 5
	Erase    EventType = 6
	Query    EventType = 7
	Truncate EventType = 8
	Rename   EventType = 9
	CIndex   EventType = 10
	DIndex   EventType = 11
)

// String returns Canal's name.
func (t EventType) String() string {
	switch t {
	case Insert:
		return "INSERT"
	case Update:
		return "UPDATE"
	case Delete:
		return "DELETE"
	case Create:
		return "CREATE"
	case Alter:
		return "ALTER"
	case Erase:
		return "ERASE"
	case Truncate:
		return "TRUNCATE"
	case Rename:
		return "RENAME"
	case CIndex:
		return "CINDEX"
	case DIndex:
		return "DINDEX"
	}
	return "QUERY"
}

// StatementType is the event type of a statement.
func StatementType(h statement.Head) EventType {
	switch h.Object {
	case statement.Table:
		switch h.Verb {
		case statement.Create:
			return Create
		case statement.Alter:
			return Alter
		case statement.Drop:
			return Erase
		case statement.Rename:
			return Rename
		case statement.Truncate:
			return Truncate
		}
	case statement.Index:
		switch h.Verb {
		case statement.Create:
			return CIndex
		case statement.Drop:
			return DIndex
		}
	}
	return Query
}

// StatementTable is the table that the statement's message names: of a renamed one the new name, as
// Canal does, since the rows that follow carry it.
func StatementTable(e *event.Event, h statement.Head) (schema, table string) {
	schema, table = h.Schema, h.Name
	if h.Object == statement.Table && h.Verb == statement.Rename {
		schema, table = h.NewSchema, h.NewName
	}
	if schema == "" {
		schema = e.Schema
	}
	return schema, table
}
