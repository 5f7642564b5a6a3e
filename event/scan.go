package event

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Scanner walks the row changes of a rows event. Its zero value is ready; one
// Scanner serves any number of events, one after the other, by one goroutine.
// It allocates when the table changes, never per row.
type Scanner struct {
	event         *Event
	table         *Table
	row           Row
	before, after imageScan
	beforeValues  []Value
	afterValues   []Value
	off           int
	next          uint32 // index in the event of the row change that Next will show
	err           error
}

// imageScan is what one column bitmap says about the images that follow it.
type imageScan struct {
	bitmap  []byte
	full    bool // every column is present
	present int  // number of columns that are
	nulls   int  // bytes of the image's NULL bitmap
}

// plan reads a column bitmap. A nil bitmap gives the zero imageScan.
func (m *imageScan) plan(t *Table, bitmap []byte, which string) error {
	*m = imageScan{}
	if bitmap == nil {
		return nil
	}
	n := len(t.Columns)
	if len(bitmap) != (n+7)/8 {
		return fmt.Errorf("table %s.%s: column bitmap of the %s image has %d bytes, %d columns need %d",
			t.Schema, t.Name, which, len(bitmap), n, (n+7)/8)
	}
	m.bitmap = bitmap
	for i, b := range bitmap {
		if rest := n - i*8; rest < 8 {
			b &= 1<<rest - 1
		}
		m.present += bits.OnesCount8(b)
	}
	m.full = m.present == n
	m.nulls = (m.present + 7) / 8
	return nil
}

func (m *imageScan) has(i int) bool { return m.bitmap[i>>3]>>(i&7)&1 != 0 }

// planImages checks that the bitmaps are those that the operation needs.
func planImages(t *Table, op Op, im Images, before, after *imageScan) error {
	if t == nil || t.image.widths == nil && len(t.Columns) > 0 {
		return fmt.Errorf("event: rows of a table that was not compiled")
	}
	if wantBefore, wantAfter := op == Update || op == Delete, op == Insert || op == Update; op < Insert || op > Delete ||
		wantBefore != (im.Before != nil) || wantAfter != (im.After != nil) {
		return fmt.Errorf("table %s.%s: %v rows have the wrong column bitmaps (before: %t, after: %t)",
			t.Schema, t.Name, op, im.Before != nil, im.After != nil)
	}
	if err := before.plan(t, im.Before, "before"); err != nil {
		return err
	}
	return after.plan(t, im.After, "after")
}

// Reset makes the Scanner walk e, which must be of kind [Rows] and stay
// unchanged while it is walked.
func (s *Scanner) Reset(e *Event) {
	s.event, s.off, s.next = e, 0, 0
	if s.err = s.reset(e); s.err != nil {
		s.row = Row{}
	}
}

func (s *Scanner) reset(e *Event) error {
	if e.Kind != Rows {
		return fmt.Errorf("event: Scanner cannot walk an event of kind %v", e.Kind)
	}
	if e.Partial {
		// I3: a difference is not a value.
		return fmt.Errorf("table %s.%s: the update holds partial JSON values; unset PARTIAL_JSON in binlog_row_value_options on the server and start behind this event",
			e.Table.Schema, e.Table.Name)
	}
	if err := planImages(e.Table, e.Op, e.Images, &s.before, &s.after); err != nil {
		return err
	}
	if s.table != e.Table {
		s.table = e.Table
		s.beforeValues = s.beforeValues[:0]
		s.afterValues = s.afterValues[:0]
	}
	s.row = Row{Event: e, Table: e.Table, Op: e.Op}
	if s.before.bitmap != nil {
		s.beforeValues = prepare(s.beforeValues, e.Table, &s.before)
		s.row.Before = s.beforeValues
	}
	if s.after.bitmap != nil {
		s.afterValues = prepare(s.afterValues, e.Table, &s.after)
		s.row.After = s.afterValues
	}
	return nil
}

// prepare binds the values to their columns and marks the absent ones.
func prepare(v []Value, t *Table, m *imageScan) []Value {
	n := len(t.Columns)
	if len(v) != n || n == 0 {
		if cap(v) < n || v == nil {
			v = make([]Value, n)
		}
		v = v[:n]
		for i := range v {
			v[i] = Value{col: &t.Columns[i]}
		}
	}
	if !m.full {
		for i := range v {
			if !m.has(i) {
				v[i].raw, v[i].state = nil, stateAbsent
			}
		}
	}
	return v
}

// Next moves to the next row change, the first one after Reset being the one
// behind e.Skip. It returns false at the end of the event and on an error.
func (s *Scanner) Next() bool {
	e := s.event
	if s.err != nil || e == nil {
		return false
	}
	for s.next < e.Skip && s.next < e.Rows {
		for _, m := range [2]*imageScan{&s.before, &s.after} {
			if m.bitmap == nil {
				continue
			}
			n, err := imageLen(s.table, m, e.Raw[s.off:])
			if err != nil {
				return s.fail(err)
			}
			s.off += n
		}
		s.next++
	}
	if s.next >= e.Rows {
		// I3: an event that is longer than the rows counted in it was misread.
		if s.off != len(e.Raw) {
			return s.fail(fmt.Errorf("%d bytes follow the last of %d row changes", len(e.Raw)-s.off, e.Rows))
		}
		s.event = nil
		return false
	}
	if s.before.bitmap != nil {
		if err := s.image(&s.before, s.beforeValues); err != nil {
			return s.fail(err)
		}
	}
	if s.after.bitmap != nil {
		if err := s.image(&s.after, s.afterValues); err != nil {
			return s.fail(err)
		}
	}
	i := int64(s.next)
	s.next++
	s.row.Ordinal = e.Ordinal + i
	s.row.Index = e.Index + i
	s.row.Last = e.Last && s.next == e.Rows
	return true
}

// fail stops the walk with an error that says where it stopped.
func (s *Scanner) fail(err error) bool {
	e := s.event
	s.err = fmt.Errorf("table %s.%s: row change %d of the %s event at %s:%d: %w",
		e.Table.Schema, e.Table.Name, s.next+1, e.Op, e.File, e.Start, err)
	return false
}

// Row returns the row change that Next moved to. It and its values are valid
// until the next call of Next or Reset; the bytes behind them as long as the Event.
func (s *Scanner) Row() *Row { return &s.row }

// Err returns the error that ended the walk, nil at the regular end.
func (s *Scanner) Err() error { return s.err }

// image points the values to their bytes in the image at s.off and moves behind it.
func (s *Scanner) image(m *imageScan, values []Value) error {
	b := s.event.Raw[s.off:]
	nulls := m.nulls
	if len(b) < nulls {
		return errShort
	}
	bitmap, widths := b[:nulls], s.table.image.widths
	if len(values) != len(widths) {
		return errShort
	}
	pos, bit := nulls, 0
	for i := range values {
		if !m.full && !m.has(i) {
			continue
		}
		v := &values[i]
		null := bitmap[bit>>3] >> (bit & 7) & 1
		bit++
		if null != 0 {
			v.raw, v.state = nil, stateNull
			continue
		}
		n := int(widths[i])
		if n < 0 {
			var p int
			if n, p = prefixed(b, pos, -n); n < 0 {
				return columnShort(v.col)
			}
			pos += p
		}
		end := pos + n
		if uint(end) > uint(len(b)) {
			return columnShort(v.col)
		}
		v.raw, v.state = b[pos:end:end], statePresent
		pos = end
	}
	s.off += pos
	return nil
}

// prefixed reads a little-endian length of size bytes at pos. It returns -1
// when b ends before it or when no value of that length can follow.
func prefixed(b []byte, pos, size int) (n, prefix int) {
	if len(b)-pos < size {
		return -1, 0
	}
	switch size {
	case 1:
		return int(b[pos]), 1
	case 2:
		return int(binary.LittleEndian.Uint16(b[pos:])), 2
	case 3:
		return int(b[pos]) | int(b[pos+1])<<8 | int(b[pos+2])<<16, 3
	default:
		n := binary.LittleEndian.Uint32(b[pos:])
		if uint64(n) > uint64(len(b)-pos) {
			return -1, 0
		}
		return int(n), 4
	}
}

var errShort = fmt.Errorf("the row image ends early")

func columnShort(c *Column) error {
	return fmt.Errorf("column %q (type code %d): the row image ends early", c.Name, c.Type)
}

// imageLen returns the length of the image at the front of b.
func imageLen(t *Table, m *imageScan, b []byte) (int, error) {
	if len(b) < m.nulls {
		return 0, errShort
	}
	pos := m.nulls
	if m.full && m.noNulls(b) {
		for _, r := range t.image.runs {
			pos += r.fixed
			if r.prefix > 0 {
				if pos > len(b) {
					return 0, errShort
				}
				n, p := prefixed(b, pos, r.prefix)
				if n < 0 {
					return 0, errShort
				}
				pos += p + n
			}
		}
		if pos > len(b) {
			return 0, errShort
		}
		return pos, nil
	}
	bit := 0
	for i, w := range t.image.widths {
		if !m.full && !m.has(i) {
			continue
		}
		null := b[bit>>3] >> (bit & 7) & 1
		bit++
		if null != 0 {
			continue
		}
		n := int(w)
		if n < 0 {
			var p int
			if n, p = prefixed(b, pos, -n); n < 0 {
				return 0, columnShort(&t.Columns[i])
			}
			pos += p
		}
		if pos += n; pos > len(b) {
			return 0, columnShort(&t.Columns[i])
		}
	}
	return pos, nil
}

// noNulls tells whether the NULL bitmap at the front of b is empty. Its bits
// beyond the last column mean nothing; servers set them.
func (m *imageScan) noNulls(b []byte) bool {
	n := m.present / 8
	for _, x := range b[:n] {
		if x != 0 {
			return false
		}
	}
	return m.present%8 == 0 || b[n]&(1<<(m.present%8)-1) == 0
}

// CountRows returns how many row changes raw holds. It walks the images
// without looking at values. The table must be compiled; partial images
// (MySQL's event type 39) have another layout and must not be given to it.
func CountRows(t *Table, op Op, im Images, raw []byte) (int, error) {
	var before, after imageScan
	if err := planImages(t, op, im, &before, &after); err != nil {
		return 0, err
	}
	rows, off := 0, 0
	for off < len(raw) {
		start := off
		for _, m := range [2]*imageScan{&before, &after} {
			if m.bitmap == nil {
				continue
			}
			n, err := imageLen(t, m, raw[off:])
			if err != nil {
				return rows, fmt.Errorf("table %s.%s: row change %d of an %s event: %w", t.Schema, t.Name, rows+1, op, err)
			}
			off += n
		}
		if off == start {
			return rows, fmt.Errorf("table %s.%s: %s rows event with empty images and %d bytes", t.Schema, t.Name, op, len(raw)-off)
		}
		rows++
	}
	return rows, nil
}
