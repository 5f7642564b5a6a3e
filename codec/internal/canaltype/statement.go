package canaltype

import (
	"github.com/binlogmq/binlogmq/codec/internal/statement"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// StatementType is the event type of a statement.
func StatementType(h statement.Head) canalwire.EventType {
	switch h.Object {
	case statement.Table:
		switch h.Verb {
		case statement.Create:
			return canalwire.Create
		case statement.Alter:
			return canalwire.Alter
		case statement.Drop:
			return canalwire.Erase
		case statement.Rename:
			return canalwire.Rename
		case statement.Truncate:
			return canalwire.Truncate
		}
	case statement.Index:
		switch h.Verb {
		case statement.Create:
			return canalwire.CIndex
		case statement.Drop:
			return canalwire.DIndex
		}
	}
	return canalwire.Query
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
