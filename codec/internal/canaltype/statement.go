package canaltype

import (
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// StatementType is the event type of a statement: that of the first table that it names.
func StatementType(s *event.Statement) canalwire.EventType {
	c := s.First()
	if c.Object != event.ObjectTable && c.Object != event.ObjectTemporary {
		return canalwire.Query
	}
	switch c.Action {
	case event.ActionCreate:
		return canalwire.Create
	case event.ActionDrop:
		return canalwire.Erase
	case event.ActionRename:
		return canalwire.Rename
	case event.ActionTruncate:
		return canalwire.Truncate
	}
	switch c.Index {
	case event.ActionCreate:
		return canalwire.CIndex
	case event.ActionDrop:
		return canalwire.DIndex
	}
	return canalwire.Alter
}

// StatementTable is the table that the statement's message names: the first one, and of a renamed one the new name, as
// Canal does, since the rows that follow carry it.
func StatementTable(e *event.Event) (schema, table string) {
	switch c := e.Stmt.First(); c.Object {
	case "":
		return e.Schema, ""
	case event.ObjectTable, event.ObjectTemporary:
		return c.Schema, c.Name
	default:
		return c.Schema, ""
	}
}
