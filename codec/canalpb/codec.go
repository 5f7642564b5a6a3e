package canalpb

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/internal/canaltype"
	"github.com/binlogmq/binlogmq/codec/internal/plans"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// Options choose between the encodings of values that people expect. The zero
// value is what Canal does.
type Options struct {
	// Enum says how ENUM and SET are written: "ordinal" (default), the member's number
	// from 1 and the bit mask, or "label", as SELECT shows them.
	Enum string

	// Location is the time zone of TIMESTAMP values; nil is UTC. DATETIME has none.
	Location *time.Location
}

// Codec writes entries. It implements [codec.Codec] and is safe for concurrent use.
type Codec struct {
	labels   bool
	loc      *time.Location
	keys     codec.Codec
	plans    *plans.Cache[plan]
	scanners sync.Pool
}

var _ codec.Stubber = (*Codec)(nil)

// New returns a codec, or an error that names the option that it does not know. Message keys are those of
// keys: canal-json's, whose values are the same.
func New(o Options, keys codec.Codec) (*Codec, error) {
	c := &Codec{loc: o.Location, keys: keys, scanners: sync.Pool{New: func() any { return new(event.Scanner) }}}
	if c.loc == nil {
		c.loc = time.UTC
	}
	switch o.Enum {
	case "", "ordinal":
	case "label":
		c.labels = true
	default:
		return nil, fmt.Errorf("canal-protobuf: enum: %q is neither \"ordinal\" nor \"label\"", o.Enum)
	}
	c.plans = plans.New(c.plan)
	return c, nil
}

// Kinds of entries (EntryProtocol.proto, EntryType).
const (
	entryBegin = 1
	entryRows  = 2
	entryEnd   = 3
)

// Tags of the fields that are written: number<<3, and 2 for what has a length.
const (
	entryHeader, entryKind, entryStore = 1<<3 | 2, 2 << 3, 3<<3 | 2

	headerVersion, headerFile, headerOffset, headerServer = 1 << 3, 2<<3 | 2, 3 << 3, 4 << 3
	headerCharset, headerTime, headerSource               = 5<<3 | 2, 6 << 3, 7 << 3
	headerSchema, headerTable, headerLength, headerEvent  = 8<<3 | 2, 9<<3 | 2, 10 << 3, 11 << 3
	headerProps, headerGTID                               = 12<<3 | 2, 13<<3 | 2

	columnIndex, columnSQLType, columnName, columnKey, columnUpdated = 1 << 3, 2 << 3, 3<<3 | 2, 4 << 3, 5 << 3
	columnNull, columnValue, columnMySQLType                         = 6 << 3, 8<<3 | 2, 10<<3 | 2

	rowBefore, rowAfter = 1<<3 | 2, 2<<3 | 2

	changeEvent, changeDDL, changeSQL, changeRow, changeSchema = 2 << 3, 10 << 3, 11<<3 | 2, 12<<3 | 2, 14<<3 | 2

	beginThread, endTransaction = 4 << 3, 2<<3 | 2

	pairKey, pairValue = 1<<3 | 2, 2<<3 | 2

	packetType, packetBody        = 3 << 3, 5<<3 | 2
	messagesBatch, messagesEntry  = 1 << 3, 2<<3 | 2
	typeMessages, sourceTypeMySQL = 7, 2
)

// Lengths are written before what they count is known, as varints that are filled up to a fixed size; every
// reader of protobuf accepts them.
const (
	small = 3 // below 2 MiB: what holds names only
	large = 5
)

// AppendEntry appends the serialised Entry of an event. The row changes that e.Skip names are left out.
func (c *Codec) AppendEntry(dst []byte, e *event.Event) ([]byte, error) {
	switch e.Kind {
	case event.Begin:
		return c.appendBegin(dst, e), nil
	case event.Rows:
		return c.appendRows(dst, e)
	case event.DDL:
		return c.appendDDL(dst, e, e.Raw), nil
	case event.End:
		return c.appendEnd(dst, e), nil
	}
	return nil, fmt.Errorf("canal-protobuf: unknown kind of event %d", e.Kind)
}

// EntrySize is about how many bytes AppendEntry appends.
func (c *Codec) EntrySize(e *event.Event) int {
	size := entryOverhead + len(e.File)
	switch e.Kind {
	case event.DDL:
		size += 2 * len(e.Raw) // with what it is about
	case event.Rows:
		p, rows, raw := c.plans.Get(e.Table), int(e.Rows-e.Skip), len(e.Raw)
		if e.Skip > 0 {
			raw = int(int64(raw) * int64(rows) / int64(e.Rows))
		}
		size += len(p.names) + raw
		if p.grows {
			size += raw / 2
		}
		n := e.Table.Present(e.Images.Before) + e.Table.Present(e.Images.After)
		size += rows * (rowOverhead + p.surroundings*n/max(1, len(p.columns)))
	}
	return size
}

// entryOverhead and rowOverhead are what an entry and a row of it have beside values and what surrounds those.
const (
	entryOverhead = 180
	rowOverhead   = 6
)

// AppendRow implements [codec.Codec]. Batch ids of messages are the ordinals of their changes.
func (c *Codec) AppendRow(dst []byte, r *event.Row) ([]byte, error) {
	return c.appendMessage(dst, r, c.plans.Get(r.Table), nil)
}

func (c *Codec) appendMessage(dst []byte, r *event.Row, p *plan, cut *cut) ([]byte, error) {
	dst, body, entry := openPacket(dst, r.Ordinal)
	dst, store, err := c.openRows(dst, r.Event, p, r.Op, 1)
	if err != nil {
		return nil, err
	}
	if dst, err = c.appendRow(dst, r, p, cut); err != nil {
		return nil, err
	}
	canalwire.CloseLength(dst, store, large)
	canalwire.CloseLength(dst, entry, large)
	canalwire.CloseLength(dst, body, large)
	return dst, nil
}

// AppendDDL implements [codec.Codec].
func (c *Codec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	return c.appendStatement(dst, e, e.Raw), nil
}

// appendStatement appends the message of a statement whose text sql stands for.
func (c *Codec) appendStatement(dst []byte, e *event.Event, sql []byte) []byte {
	dst, body, entry := openPacket(dst, e.Ordinal)
	dst = c.appendDDL(dst, e, sql)
	canalwire.CloseLength(dst, entry, large)
	canalwire.CloseLength(dst, body, large)
	return dst
}

// AppendKey implements [codec.Codec].
func (c *Codec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	return c.keys.AppendKey(dst, r, key)
}

// openPacket begins a MESSAGES packet of one entry.
func openPacket(dst []byte, batch int64) (_ []byte, body, entry int) {
	dst, body = canalwire.OpenLength(append(dst, packetType, typeMessages, packetBody), large)
	dst = protowire.AppendVarint(append(dst, messagesBatch), uint64(batch))
	dst, entry = canalwire.OpenLength(append(dst, messagesEntry), large)
	return dst, body, entry
}

// appendHeader appends an entry's header without what the kinds of entry add, and leaves it open.
func appendHeader(dst []byte, e *event.Event) (_ []byte, header int) {
	dst, header = canalwire.OpenLength(append(dst, entryHeader), small)
	dst = append(dst, headerVersion, 1)
	dst = protowire.AppendString(append(dst, headerFile), e.File)
	dst = protowire.AppendVarint(append(dst, headerOffset), e.Start)
	dst = protowire.AppendVarint(append(dst, headerServer), uint64(e.ServerID))
	dst = protowire.AppendString(append(dst, headerCharset), "UTF-8")
	dst = protowire.AppendVarint(append(dst, headerTime), uint64(e.Time/1e6*1000)) // Canal's are whole seconds
	dst = append(dst, headerSource, sourceTypeMySQL)
	if length := e.Next - e.Start; e.Next > e.Start {
		dst = protowire.AppendVarint(append(dst, headerLength), length)
	}
	return dst, header
}

// shutHeader appends the transaction's GTID, or what names a chunk of a snapshot, and ends the header.
func shutHeader(dst []byte, header int, e *event.Event) []byte {
	var buf [128]byte
	if s := e.Snapshot(); s != nil {
		dst = appendPair(dst, headerProps, "snapshot", s.Append(buf[:0]))
	} else if e.Txn != nil && !e.Txn.GTID.IsZero() {
		gtid := e.Txn.GTID.Append(buf[:0])
		dst = appendPair(dst, headerProps, "curtGtid", gtid)
		dst = protowire.AppendBytes(append(dst, headerGTID), gtid)
	}
	canalwire.CloseLength(dst, header, small)
	return dst
}

func appendPair(dst []byte, tag byte, key string, value []byte) []byte {
	size := protowire.SizeBytes(len(key)) + protowire.SizeBytes(len(value)) + 2
	dst = protowire.AppendVarint(append(dst, tag), uint64(size))
	dst = protowire.AppendString(append(dst, pairKey), key)
	return protowire.AppendBytes(append(dst, pairValue), value)
}

func (c *Codec) appendBegin(dst []byte, e *event.Event) []byte {
	dst, header := appendHeader(dst, e)
	dst = shutHeader(dst, header, e)
	dst, store := canalwire.OpenLength(append(dst, entryKind, entryBegin, entryStore), small)
	if e.Txn != nil && e.Txn.ThreadID != 0 {
		dst = protowire.AppendVarint(append(dst, beginThread), uint64(e.Txn.ThreadID))
	}
	canalwire.CloseLength(dst, store, small)
	return dst
}

func (c *Codec) appendEnd(dst []byte, e *event.Event) []byte {
	dst, header := appendHeader(dst, e)
	dst = shutHeader(dst, header, e)
	dst, store := canalwire.OpenLength(append(dst, entryKind, entryEnd, entryStore), small)
	var buf [64]byte
	if s := e.Snapshot(); s != nil {
		dst = protowire.AppendBytes(append(dst, endTransaction), s.Append(buf[:0]))
	} else if e.XID != 0 {
		dst = protowire.AppendBytes(append(dst, endTransaction), strconv.AppendUint(buf[:0], e.XID, 10))
	}
	canalwire.CloseLength(dst, store, small)
	return dst
}

// appendDDL appends the entry of a statement.
func (c *Codec) appendDDL(dst []byte, e *event.Event, sql []byte) []byte {
	schema, table := canaltype.StatementTable(e)
	kind := canaltype.StatementType(e.Stmt)
	dst, header := appendHeader(dst, e)
	dst = appendText(append(dst, headerSchema), []byte(schema))
	dst = appendText(append(dst, headerTable), []byte(table))
	dst = append(dst, headerEvent, byte(kind))
	dst = appendPair(dst, headerProps, "tables", codec.AppendTables(nil, e.Stmt))
	dst = shutHeader(dst, header, e)
	dst, store := canalwire.OpenLength(append(dst, entryKind, entryRows, entryStore), large)
	dst = append(dst, changeEvent, byte(kind), changeDDL, 1)
	dst = appendText(append(dst, changeSQL), sql)
	dst = appendText(append(dst, changeSchema), []byte(e.Schema))
	canalwire.CloseLength(dst, store, large)
	return dst
}

// appendText appends what shall be a string of protobuf: bytes that are no UTF-8 become U+FFFD.
func appendText(dst, s []byte) []byte {
	if !utf8.Valid(s) {
		s = bytes.ToValidUTF8(s, []byte("\uFFFD"))
	}
	return protowire.AppendBytes(dst, s)
}

func eventType(op event.Op) (canalwire.EventType, bool) {
	switch op {
	case event.Insert:
		return canalwire.Insert, true
	case event.Update:
		return canalwire.Update, true
	case event.Delete:
		return canalwire.Delete, true
	}
	return 0, false
}

// openRows begins the entry of row changes, up to the first row.
func (c *Codec) openRows(dst []byte, e *event.Event, p *plan, op event.Op, rows uint64) (_ []byte, store int, err error) {
	kind, ok := eventType(op)
	if !ok {
		return nil, 0, fmt.Errorf("canal-protobuf: table %s.%s: unknown operation %d", e.Table.Schema, e.Table.Name, op)
	}
	dst, header := appendHeader(dst, e)
	dst = append(dst, p.names...)
	dst = append(dst, headerEvent, byte(kind))
	var buf [20]byte
	dst = appendPair(dst, headerProps, "rowsCount", strconv.AppendUint(buf[:0], rows, 10))
	dst = shutHeader(dst, header, e)
	dst, store = canalwire.OpenLength(append(dst, entryKind, entryRows, entryStore), large)
	return append(dst, changeEvent, byte(kind), changeDDL, 0), store, nil
}

func (c *Codec) appendRows(dst []byte, e *event.Event) ([]byte, error) {
	p := c.plans.Get(e.Table)
	dst, store, err := c.openRows(dst, e, p, e.Op, uint64(e.Rows-e.Skip))
	if err != nil {
		return nil, err
	}
	s := c.scanners.Get().(*event.Scanner)
	defer c.scanners.Put(s)
	s.Reset(e)
	for s.Next() {
		if dst, err = c.appendRow(dst, s.Row(), p, nil); err != nil {
			return nil, err
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	canalwire.CloseLength(dst, store, large)
	return dst, nil
}

// appendRow appends one row change. An after image without all columns is completed from the before image where that
// holds them; what neither holds is left out. What cut says is replaced by digests.
func (c *Codec) appendRow(dst []byte, r *event.Row, p *plan, cut *cut) ([]byte, error) {
	n := len(p.columns)
	if len(r.Before) != n && (len(r.Before) > 0 || r.Op != event.Insert) || len(r.After) != n && (len(r.After) > 0 || r.Op != event.Delete) {
		return nil, fmt.Errorf("canal-protobuf: table %s.%s: row with %d and %d values, table with %d columns",
			r.Table.Schema, r.Table.Name, len(r.Before), len(r.After), n)
	}
	dst, row := canalwire.OpenLength(append(dst, changeRow), large)
	var err error
	for i := range r.Before {
		if v := &r.Before[i]; !v.IsAbsent() {
			if dst, err = c.appendColumn(dst, rowBefore, v, p, i, false, cut.at(0, i)); err != nil {
				return nil, wrap(r, err)
			}
		}
	}
	for i := range r.After {
		v, updated := &r.After[i], true
		if v.IsAbsent() {
			if len(r.Before) == 0 || r.Before[i].IsAbsent() {
				continue
			}
			v, updated = &r.Before[i], false
		} else if len(r.Before) > 0 {
			updated = !v.Equal(r.Before[i])
		}
		if dst, err = c.appendColumn(dst, rowAfter, v, p, i, updated, cut.at(1, i)); err != nil {
			return nil, wrap(r, err)
		}
	}
	canalwire.CloseLength(dst, row, large)
	return dst, nil
}

// appendColumn appends a Column message as a field of a row, with its tag and its length.
func (c *Codec) appendColumn(dst []byte, tag byte, v *event.Value, p *plan, i int, updated bool, cut *place) ([]byte, error) {
	col := &p.columns[i]
	form := &col.forms[0]
	if updated {
		form = &col.forms[1]
	}
	if v.IsNull() {
		return append(append(dst, tag), form.null...), nil
	}
	raw := v.Raw()
	text := col.encoding == canaltype.UTF8 && (cut == nil || !cut.digest) && utf8.Valid(raw)
	most := shortValue
	switch {
	case text:
		most = len(raw)
	case col.encoding != canaltype.Plain && col.encoding != canaltype.Number:
		most = 128 + 4*len(raw) // few texts have more than this many times their bytes
	}
	at, size, valueSize := len(dst)+2, 1, 1
	if most <= form.most {
		dst = append(dst, form.short...)
		dst[at-2] = tag
	} else {
		valueSize = protowire.SizeVarint(uint64(most))
		size = protowire.SizeVarint(uint64(len(form.head) + valueSize + most + len(col.tail)))
		dst, at = canalwire.OpenLength(append(dst, tag), size)
		dst, _ = canalwire.OpenLength(append(dst, form.head...), valueSize)
	}
	from := len(dst)
	var err error
	switch {
	case text:
		dst = append(dst, raw...)
	case cut != nil && cut.digest:
		dst, err = c.appendDigest(dst, v, col.encoding)
	default:
		dst, err = c.appendValue(dst, v, col.encoding)
	}
	if err != nil {
		return nil, err
	}
	if cut != nil {
		cut.size = len(dst) - from
	}
	dst = closeLength(dst, from, valueSize)
	dst = append(dst, col.tail...)
	return closeLength(dst, at, size), nil
}

// shortValue is what few numbers and dates are longer than.
const shortValue = 24

// closeLength is canalwire.CloseLength for a length that may have turned out to need more room than size.
func closeLength(dst []byte, from, size int) []byte {
	n := len(dst) - from
	if size == 1 && n < 1<<7 {
		dst[from-1] = byte(n)
		return dst
	}
	need := protowire.SizeVarint(uint64(n))
	if need > size {
		dst = slices.Insert(dst, from, make([]byte, need-size)...)
		from, size = from+need-size, need
	}
	canalwire.CloseLength(dst, from, size)
	return dst
}

// appendDigest appends what stands for a value in a stub.
func (c *Codec) appendDigest(dst []byte, v *event.Value, enc canaltype.Encoding) ([]byte, error) {
	content := v.Raw()
	switch enc {
	case canaltype.Text, canaltype.Padded:
		var err error
		if content, err = v.AppendText(nil); err != nil {
			return nil, err
		}
	}
	return append(dst, codec.Digest(content)...), nil
}

// cut says of each column of both images whether its digest stands for it, and notes how long its text is. A nil
// cut says nothing.
type cut [2][]place

type place struct {
	size   int
	digest bool
}

func (c *cut) at(image, column int) *place {
	if c == nil {
		return nil
	}
	return &c[image][column]
}

// AppendStub implements [codec.Stubber]: the digest is the text of the column's value.
func (c *Codec) AppendStub(dst []byte, r *event.Row, key []int, room int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	at, cut := len(dst), &cut{make([]place, len(p.columns)), make([]place, len(p.columns))}
	dst, err := c.appendMessage(dst, r, p, cut)
	if err != nil {
		return nil, err
	}
	var order []*place
	for i := range p.columns {
		if enc := p.columns[i].encoding; enc == canaltype.Plain || enc == canaltype.Number || slices.Contains(key, i) || slices.Contains(r.Table.Key, i) {
			continue // never large, or needed
		}
		for image := range cut {
			if pl := cut.at(image, i); pl.size > codec.SumLen {
				order = append(order, pl)
			}
		}
	}
	// I5: the order is a function of the row.
	slices.SortStableFunc(order, func(a, b *place) int { return cmp.Compare(b.size, a.size) })
	for _, pl := range order {
		if len(dst)-at <= room {
			break
		}
		pl.digest = true
		if dst, err = c.appendMessage(dst[:at], r, p, cut); err != nil {
			return nil, err
		}
	}
	return codec.Fits(dst, at, room)
}

// AppendDDLStub implements [codec.Stubber].
func (c *Codec) AppendDDLStub(dst []byte, e *event.Event, room int) ([]byte, error) {
	at := len(dst)
	return codec.Fits(c.appendStatement(dst, e, codec.DigestComment(e.Raw)), at, room)
}

// appendValue appends the text of a value.
func (c *Codec) appendValue(dst []byte, v *event.Value, enc canaltype.Encoding) ([]byte, error) {
	switch enc {
	case canaltype.Number:
		n, err := v.Uint64()
		if err != nil {
			return nil, err
		}
		return strconv.AppendUint(dst, n, 10), nil
	case canaltype.Raw:
		return appendLatin1(dst, v.Raw()), nil
	case canaltype.Padded:
		// The content is completed behind dst, written again behind itself, and moved down.
		at := len(dst)
		dst, err := v.AppendText(dst)
		if err != nil {
			return nil, err
		}
		end := len(dst)
		dst = appendLatin1(dst, dst[at:end])
		n := copy(dst[at:], dst[end:])
		return dst[:at+n], nil
	case canaltype.UTF8: // that is none
		return appendValid(dst, v.Raw()), nil
	}
	at := len(dst)
	dst, err := v.AppendTextIn(dst, c.loc)
	if err != nil || enc == canaltype.Plain || utf8.Valid(dst[at:]) {
		return dst, err
	}
	end := len(dst)
	dst = appendValid(dst, dst[at:end])
	n := copy(dst[at:], dst[end:])
	return dst[:at+n], nil
}

// appendValid appends text with U+FFFD for what is no UTF-8.
func appendValid(dst, s []byte) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[n:]
	}
	return dst
}

// appendLatin1 appends each byte as the character of the same number.
func appendLatin1(dst, b []byte) []byte {
	for _, x := range b {
		dst = utf8.AppendRune(dst, rune(x))
	}
	return dst
}

// wrap says where the value stood that could not be written (I3).
func wrap(r *event.Row, err error) error { return codec.RowError("canal-protobuf", r, err) }

// column is what is the same for all values of a column.
type column struct {
	forms    [2]form // as it was, updated
	tail     []byte  // declared type
	encoding canaltype.Encoding
}

// form is what surrounds the values of a column that are updated, or not.
type form struct {
	head  []byte // all up to the value's length
	short []byte // head between room for the field's tag and the message's length, and for the value's length, where a byte is enough for each
	most  int    // bytes of a value for which that is so; -1: for none
	null  []byte // the whole of a NULL, its length before it
}

// plan is what is the same for all rows of a table.
type plan struct {
	columns      []column
	names        []byte // schema and table, as in a header
	surroundings int    // about what surrounds the values of a whole row, and how much longer numbers are as text
	grows        bool   // some are byte strings, of which every second byte may need two
}

func (c *Codec) plan(t *event.Table) (*plan, int) {
	p := &plan{columns: make([]column, len(t.Columns))}
	p.names = appendText(append(p.names, headerSchema), []byte(t.Schema))
	p.names = appendText(append(p.names, headerTable), []byte(t.Name))
	weight := len(p.names)
	for i := range t.Columns {
		col := &t.Columns[i]
		head := protowire.AppendVarint([]byte{columnIndex}, uint64(i))
		head = protowire.AppendVarint(append(head, columnSQLType), uint64(int64(canaltype.SQLType(col, c.labels))))
		head = appendText(append(head, columnName), []byte(col.Name))
		if slices.Contains(t.Key, i) {
			head = append(head, columnKey, 1)
		}
		tail := appendText([]byte{columnMySQLType}, []byte(col.SQLType))
		p.columns[i] = column{tail: tail, encoding: canaltype.EncodingOf(col, c.labels)}
		for updated := range p.columns[i].forms {
			head := slices.Clip(head)
			if updated == 1 {
				head = append(head, columnUpdated, 1)
			}
			null := slices.Concat(head, []byte{columnNull, 1}, tail)
			head = append(head, columnNull, 0, columnValue)
			p.columns[i].forms[updated] = form{head: head, short: slices.Concat([]byte{0, 0}, head, []byte{0}),
				most: max(1<<7-1-len(head)-1-len(tail), -1), null: protowire.AppendBytes(nil, null)}
			weight += 120 + 3*len(head) + len(tail)
		}
		p.surroundings += len(head) + len(tail) + 9
		switch p.columns[i].encoding {
		case canaltype.Plain, canaltype.Number:
			p.surroundings += 5
		case canaltype.Raw, canaltype.Padded:
			p.grows = true
		}
	}
	return p, weight
}
