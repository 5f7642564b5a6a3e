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

// Present counts the columns that an image with this bitmap has. Servers set the bits beyond the last column, which are none.
func (t *Table) Present(bitmap []byte) (n int) {
	for i, b := range bitmap {
		if rest := max(0, len(t.Columns)-i*8); rest < 8 {
			b &= 1<<rest - 1
		}
		n += bits.OnesCount8(b)
	}
	return n
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
	m.bitmap, m.present = bitmap, t.Present(bitmap)
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
	if e.Partial && e.Op != Update {
		return fmt.Errorf("table %s.%s: partial values in %s rows", e.Table.Schema, e.Table.Name, e.Op)
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
		n, err := rowLen(s.table, &s.before, &s.after, e.Partial, e.Raw[s.off:])
		if err != nil {
			return s.fail(err)
		}
		s.off += n
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
		image := s.image
		if e.Partial {
			image = s.partialImage
		}
		if err := image(&s.after, s.afterValues); err != nil {
			return s.fail(err)
		}
	}
	for _, i := range s.table.image.virtual {
		s.distrust(i)
	}
	i := int64(s.next)
	s.next++
	s.row.Ordinal = e.Ordinal + i
	s.row.Index = e.Index + i
	s.row.Last = e.Last && s.next == e.Rows
	return true
}

// distrust marks column i as absent where the images do not tell what it holds (I3).
func (s *Scanner) distrust(i int) {
	for _, values := range [2][]Value{s.row.Before, s.row.After} {
		if values != nil && values[i].state == stateNull && values[i].col.Virtual == VirtualNull {
			values[i].state = stateAbsent
		}
	}
	if s.row.Op == Update && s.row.After[i].state == stateAbsent {
		s.row.Before[i].raw, s.row.Before[i].state = nil, stateAbsent
	}
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

// rowLen returns the length of the row change at the front of b.
func rowLen(t *Table, before, after *imageScan, partial bool, b []byte) (int, error) {
	off := 0
	if before.bitmap != nil {
		n, err := imageLen(t, before, b)
		if err != nil {
			return 0, err
		}
		off = n
	}
	if after.bitmap == nil {
		return off, nil
	}
	if partial {
		_, n, err := partialHeader(t, b[off:])
		if err != nil {
			return 0, err
		}
		off += n
	}
	n, err := imageLen(t, after, b[off:])
	return off + n, err
}

// partialHeader reads what stands before the after image in an update with
// partial JSON: an option word (a packed integer) and, if its first bit is set,
// a bitmap with one bit for each JSON column of the table, in the image or
// not, that tells which values are differences.
func partialHeader(t *Table, b []byte) (bitmap []byte, n int, err error) {
	if len(b) < 1 {
		return nil, 0, errShort
	}
	switch b[0] {
	case 0:
		return nil, 1, nil
	case 1:
		n = 1 + (t.image.jsons+7)/8
		if len(b) < n {
			return nil, 0, errShort
		}
		return b[1:n], n, nil
	}
	return nil, 0, fmt.Errorf("unknown row value options %#x", b[0])
}

// partialImage is like image for an update with partial JSON. It replaces the
// differences by the documents that they make of the before image's.
func (s *Scanner) partialImage(m *imageScan, values []Value) error {
	bitmap, n, err := partialHeader(s.table, s.event.Raw[s.off:])
	if err != nil {
		return err
	}
	s.off += n
	if err := s.image(m, values); err != nil || bitmap == nil {
		return err
	}
	bit := 0
	for i := range values {
		v := &values[i]
		if v.col.Type != TypeJSON {
			continue
		}
		partial := bitmap[bit>>3]>>(bit&7)&1 != 0
		bit++
		if !partial || v.state != statePresent {
			continue
		}
		old := s.beforeValues[i]
		if old.state != statePresent {
			// I3: a difference to a document that we do not have is not a value.
			return fmt.Errorf("column %q: a JSON difference without the document that it changes: set binlog_row_image=FULL on the server or take PARTIAL_JSON out of binlog_row_value_options, and start behind this event", v.col.Name)
		}
		doc, err := applyJSONDiffs(old.raw, v.raw)
		if err != nil {
			return fmt.Errorf("column %q: %w", v.col.Name, err)
		}
		v.raw = doc
	}
	return nil
}

// CountRows returns how many row changes raw holds. It walks the images
// without looking at values. The table must be compiled; for updates with
// partial JSON (MySQL's event type 39) see [CountPartialRows].
func CountRows(t *Table, op Op, im Images, raw []byte) (int, error) {
	return countRows(t, op, im, false, raw)
}

// CountPartialRows is [CountRows] for an update event with [Event].Partial.
func CountPartialRows(t *Table, im Images, raw []byte) (int, error) {
	return countRows(t, Update, im, true, raw)
}

func countRows(t *Table, op Op, im Images, partial bool, raw []byte) (int, error) {
	var before, after imageScan
	if err := planImages(t, op, im, &before, &after); err != nil {
		return 0, err
	}
	rows, off := 0, 0
	for off < len(raw) {
		n, err := rowLen(t, &before, &after, partial, raw[off:])
		if err != nil {
			return rows, fmt.Errorf("table %s.%s: row change %d of an %s event: %w", t.Schema, t.Name, rows+1, op, err)
		}
		if n == 0 {
			return rows, fmt.Errorf("table %s.%s: %s rows event with empty images and %d bytes", t.Schema, t.Name, op, len(raw)-off)
		}
		off += n
		rows++
	}
	return rows, nil
}
