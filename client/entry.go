package client

import (
	"fmt"

	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// EntryType says what an [Entry] is (EntryProtocol.proto, EntryType).
type EntryType int32

// The types of entries.
const (
	TransactionBegin EntryType = 1
	RowData          EntryType = 2
	TransactionEnd   EntryType = 3
)

// EventType says what a [RowChange] does (EntryProtocol.proto, EventType).
type EventType = canalwire.EventType

// The types of events.
const (
	Insert   = canalwire.Insert
	Update   = canalwire.Update
	Delete   = canalwire.Delete
	Create   = canalwire.Create
	Alter    = canalwire.Alter
	Erase    = canalwire.Erase
	Query    = canalwire.Query
	Truncate = canalwire.Truncate
	Rename   = canalwire.Rename
	CIndex   = canalwire.CIndex
	DIndex   = canalwire.DIndex
)

// Entry is one binlog-level step.
type Entry struct {
	Header Header
	Type   EntryType
	Store  []byte // a RowChange (see [ParseRowChange]) where Type is RowData
}

// Header says where an entry comes from.
type Header struct {
	File        string // binlog file
	Offset      int64  // of the event in File
	ServerID    int64
	Time        int64 // milliseconds since 1970 UTC, of whole seconds
	Schema      string
	Table       string
	EventLength int64
	EventType   EventType // 0 where the entry is no RowData
	GTID        string    // of the transaction; "" where the server has none
	Props       map[string]string
}

// RowChange is the content of a RowData entry: rows of one table, or a statement.
type RowChange struct {
	EventType EventType
	DDL       bool
	SQL       string // the statement, if DDL
	DDLSchema string // its default schema
	Rows      []Row
}

// Row is one row change: an insert has no Before, a delete no After.
type Row struct {
	Before, After []Column
}

// Column is one value of a row. A column that the binlog does not hold is missing.
type Column struct {
	Index     int
	SQLType   int // java.sql.Types
	Name      string
	Key       bool
	Updated   bool // in After: it differs from Before
	Null      bool
	Value     string // docs/formats.md says how values are written; "" for NULL
	MySQLType string
}

// ParseEntry reads an entry as a [Message] holds it. Store refers to raw.
func ParseEntry(raw []byte) (*Entry, error) {
	e := &Entry{Type: RowData}
	err := canalwire.Fields(raw, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			return parseHeader(f.Bytes, &e.Header)
		case 2:
			e.Type = EntryType(f.Varint)
		case 3:
			e.Store = f.Bytes
		}
		return nil
	})
	if err != nil {
		return nil, malformed(err)
	}
	return e, nil
}

func malformed(err error) error { return fmt.Errorf("client: malformed entry: %w", err) }

func parseHeader(b []byte, h *Header) error {
	return canalwire.Fields(b, func(f canalwire.Field) error {
		switch f.Number {
		case 2:
			h.File = string(f.Bytes)
		case 3:
			h.Offset = int64(f.Varint)
		case 4:
			h.ServerID = int64(f.Varint)
		case 6:
			h.Time = int64(f.Varint)
		case 8:
			h.Schema = string(f.Bytes)
		case 9:
			h.Table = string(f.Bytes)
		case 10:
			h.EventLength = int64(f.Varint)
		case 11:
			h.EventType = EventType(f.Varint)
		case 12:
			return parsePair(f.Bytes, &h.Props)
		case 13:
			h.GTID = string(f.Bytes)
		}
		return nil
	})
}

func parsePair(b []byte, props *map[string]string) error {
	var key, value string
	err := canalwire.Fields(b, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			key = string(f.Bytes)
		case 2:
			value = string(f.Bytes)
		}
		return nil
	})
	if *props == nil {
		*props = map[string]string{}
	}
	(*props)[key] = value
	return err
}

// ParseRowChange reads the content of a RowData entry.
func ParseRowChange(store []byte) (*RowChange, error) {
	c := &RowChange{EventType: Update}
	err := canalwire.Fields(store, func(f canalwire.Field) error {
		switch f.Number {
		case 2:
			c.EventType = EventType(f.Varint)
		case 10:
			c.DDL = f.Varint != 0
		case 11:
			c.SQL = string(f.Bytes)
		case 12:
			c.Rows = append(c.Rows, Row{})
			return parseRow(f.Bytes, &c.Rows[len(c.Rows)-1])
		case 14:
			c.DDLSchema = string(f.Bytes)
		}
		return nil
	})
	if err != nil {
		return nil, malformed(err)
	}
	return c, nil
}

func parseRow(b []byte, r *Row) error {
	return canalwire.Fields(b, func(f canalwire.Field) error {
		var image *[]Column
		switch f.Number {
		case 1:
			image = &r.Before
		case 2:
			image = &r.After
		default:
			return nil
		}
		*image = append(*image, Column{})
		return parseColumn(f.Bytes, &(*image)[len(*image)-1])
	})
}

func parseColumn(b []byte, c *Column) error {
	return canalwire.Fields(b, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			c.Index = int(int32(f.Varint))
		case 2:
			c.SQLType = int(int32(f.Varint))
		case 3:
			c.Name = string(f.Bytes)
		case 4:
			c.Key = f.Varint != 0
		case 5:
			c.Updated = f.Varint != 0
		case 6:
			c.Null = f.Varint != 0
		case 8:
			c.Value = string(f.Bytes)
		case 10:
			c.MySQLType = string(f.Bytes)
		}
		return nil
	})
}
