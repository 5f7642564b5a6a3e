package codec

import (
	"fmt"

	"github.com/binlogmq/binlogmq/event"
)

// Codec writes one message format. Its methods append to dst and return the
// extended slice; on an error the returned slice is nil and the message cannot
// be sent (I3). They are safe for concurrent use and keep no reference to
// their arguments.
type Codec interface {
	// AppendKey appends the message key of the row in the format's own form, built from the key
	// columns given as indexes into r.Table.Columns; with none it is the key of
	// a table without one. An insert or update takes the values of r.After, a
	// delete those of r.Before.
	AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error)

	// AppendRow appends the message value of the row change.
	AppendRow(dst []byte, r *event.Row) ([]byte, error)

	// AppendDDL appends the message value of a DDL event.
	AppendDDL(dst []byte, e *event.Event) ([]byte, error)
}

// KeyLinker is a codec of a format in which the two messages of an update that changes the key, the delete under
// the old key and the insert under the new one, bear each other's key in headers.
type KeyLinker interface {
	Codec

	// KeyHeaders returns the name of the header that the delete bears, with the new key, and of the one that the
	// insert bears, with the old key.
	KeyHeaders() (onDelete, onInsert string)
}

// Truncater is a codec of a format in which the emptying of a table is a message among those of its rows.
type Truncater interface {
	Codec

	// Truncates reports whether the codec's options ask for such messages.
	Truncates() bool

	// AppendTruncate appends the message value that stands for the emptying of a table by a DDL event. The message has no key.
	AppendTruncate(dst []byte, e *event.Event, schema, table string) []byte
}

// Definer is a codec of a format in which DDL messages may hold tables' definitions.
type Definer interface {
	Codec

	// AppendBareDDL appends the message value of a DDL event without them.
	AppendBareDDL(dst []byte, e *event.Event) []byte
}

// DDLKeyer is a codec of a format in which DDL messages have a key.
type DDLKeyer interface {
	Codec

	// AppendDDLKey appends the message key of a DDL event.
	AppendDDLKey(dst []byte, e *event.Event) []byte
}

// RowError says which row change could not be written in a format, and where it stood (I3).
func RowError(format string, r *event.Row, err error) error {
	return fmt.Errorf("%s: table %s.%s: row change %d (%s) at %s:%d: %w",
		format, r.Table.Schema, r.Table.Name, r.Ordinal, r.Op, r.Event.File, r.Event.Start, err)
}
