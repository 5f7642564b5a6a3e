package binlog

import "github.com/binlogmq/binlogmq/event"

// RowsHead is the fixed part of a rows event.
type RowsHead struct {
	TableID uint64
	Op      event.Op
	Partial bool // PARTIAL_UPDATE_ROWS
	EndStmt bool // last rows event of its statement

	compressed bool
	body       []byte // from the column count on
}

// noTable is the table id of rows events that only end a statement.
const noTable = 0xffffff

// isRows reports whether t is a rows event of a version that is read.
func isRows(t EventType) bool {
	return t >= TypeWriteRowsV1 && t <= TypeDeleteRowsV1 || t >= TypeWriteRows && t <= TypeDeleteRows ||
		t == TypePartialUpdateRows || t >= TypeWriteRowsCompressedV1 && t <= TypeDeleteRowsCompressed
}

// ParseRowsHead reads the head of a rows event of type t, and no row image.
func ParseRowsHead(t EventType, body []byte) (RowsHead, error) {
	c := cursor{b: body}
	r := RowsHead{TableID: c.u48()}
	r.EndStmt = c.u16()&1 != 0
	v2 := false
	switch t {
	case TypeWriteRowsV1, TypeWriteRows, TypeWriteRowsCompressedV1, TypeWriteRowsCompressed:
		r.Op = event.Insert
	case TypeUpdateRowsV1, TypeUpdateRows, TypeUpdateRowsCompressedV1, TypeUpdateRowsCompressed:
		r.Op = event.Update
	case TypePartialUpdateRows:
		r.Op, r.Partial = event.Update, true
	case TypeDeleteRowsV1, TypeDeleteRows, TypeDeleteRowsCompressedV1, TypeDeleteRowsCompressed:
		r.Op = event.Delete
	default:
		return r, malformed("%v event is not a rows event", t)
	}
	switch {
	case t >= TypeWriteRows && t <= TypeDeleteRows, t == TypePartialUpdateRows, t >= TypeWriteRowsCompressed && t <= TypeDeleteRowsCompressed:
		v2 = true
	}
	r.compressed = t >= TypeWriteRowsCompressedV1 && t <= TypeDeleteRowsCompressed
	if v2 {
		n := int(c.u16()) // extra data, with its length
		c.bad = c.bad || n < 2
		c.take(n - 2)
	}
	if c.bad {
		return r, short("rows event", len(body))
	}
	r.body = c.b
	return r, nil
}

// Images returns the number of columns, the column bitmaps and the row images. All of it
// shares the event's memory, but the images of a compressed event are memory of their own.
func (r *RowsHead) Images(limit sizeLimit) (columns int, im event.Images, rows []byte, err error) {
	c := cursor{b: r.body}
	count := c.packed()
	c.bad = c.bad || count > 4096 // the server's own limit
	if c.bad {
		return 0, event.Images{}, nil, short("rows event", len(r.body))
	}
	n := int(count)
	size := (n + 7) / 8
	first := c.take(size)
	switch r.Op {
	case event.Insert:
		im.After = first
	case event.Delete:
		im.Before = first
	case event.Update:
		im.Before, im.After = first, c.take(size)
	}
	if c.bad {
		return 0, event.Images{}, nil, short("rows event", len(r.body))
	}
	rows = c.b
	if r.compressed {
		if rows, err = inflateWithin(rows, limit); err != nil {
			return 0, event.Images{}, nil, err
		}
	}
	return n, im, rows, nil
}
