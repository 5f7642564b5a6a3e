package maxwell

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/internal/jsonvalue"
	"github.com/binlogmq/binlogmq/codec/internal/plans"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// Options are Maxwell's settings of the same names in its own spelling
// (output_nulls and so on). Take them from [Defaults] and change what differs.
type Options struct {
	Nulls             bool   // output_nulls: columns that are NULL are written as null, else left out
	CommitInfo        bool   // output_commit_info: xid, and commit on a transaction's last row
	XOffset           bool   // output_xoffset: xoffset on all other rows; needs CommitInfo
	BinlogPosition    bool   // output_binlog_position: position, "FILE:OFFSET" of the rows event
	GTIDPosition      bool   // output_gtid_position: gtid
	ServerID          bool   // output_server_id
	ThreadID          bool   // output_thread_id
	PrimaryKeys       bool   // output_primary_keys: primary_key, the values
	PrimaryKeyColumns bool   // output_primary_key_columns: primary_key_columns, the names
	NullZeroDates     bool   // output_null_zerodates: zero dates become null
	KeyFormat         string // kafka_key_format: "hash" (default) or "array"
	Definitions       bool   // DDL: old and def where they are known; Maxwell always has them

	// Location is the time zone of TIMESTAMP values; nil is UTC, as in Maxwell.
	Location *time.Location
}

// Defaults returns Maxwell's defaults.
func Defaults() Options {
	return Options{Nulls: true, CommitInfo: true, XOffset: true, KeyFormat: "hash"}
}

// Codec writes maxwell JSON. It implements [codec.Codec].
type Codec struct {
	Options
	array bool
	plans *plans.Cache[plan]
}

var _ codec.Definer = (*Codec)(nil)

// New returns a codec, or an error that names the option whose value it does
// not know.
func New(o Options) (*Codec, error) {
	c := &Codec{Options: o, plans: plans.New(newPlan)}
	if c.Location == nil {
		c.Location = time.UTC
	}
	switch o.KeyFormat {
	case "", "hash":
	case "array":
		c.array = true
	default:
		return nil, fmt.Errorf("maxwell: kafka_key_format: %q is neither \"hash\" nor \"array\"", o.KeyFormat)
	}
	return c, nil
}

// AppendRow implements [codec.Codec]. An after image without all columns is
// completed from the before image where that holds them; what neither holds is
// left out of data.
func (c *Codec) AppendRow(dst []byte, r *event.Row) ([]byte, error) { return c.appendRow(dst, r, nil) }

// appendRow notes in spans where the values stand.
func (c *Codec) appendRow(dst []byte, r *event.Row, spans *codec.Spans) ([]byte, error) {
	if r.Op < event.Insert || r.Op > event.Delete {
		return nil, fmt.Errorf("maxwell: table %s.%s: unknown operation %d", r.Table.Schema, r.Table.Name, r.Op)
	}
	p, e := c.plans.Get(r.Table), r.Event
	values, fallback := r.After, r.Before
	if r.Op == event.Delete {
		values, fallback = r.Before, nil
	}
	if n := len(p.columns); len(values) != n || len(fallback) != n && (len(fallback) > 0 || r.Op == event.Update) {
		return nil, fmt.Errorf("maxwell: table %s.%s: row with %d and %d values, table with %d columns",
			r.Table.Schema, r.Table.Name, len(r.Before), len(r.After), len(p.columns))
	}
	if e.Snapshot() != nil {
		// Maxwell knows neither a transaction nor a place in the log of such rows.
		dst = append(dst, p.read...)
		dst = strconv.AppendInt(dst, e.Time/1e6, 10)
	} else {
		dst = append(dst, p.head[r.Op]...)
		dst = strconv.AppendInt(dst, e.Time/1e6, 10)
		dst = c.appendMeta(dst, r)
	}
	var err error
	if c.PrimaryKeys {
		dst = append(dst, `,"primary_key":[`...)
		for i, k := range r.Table.Key {
			if i > 0 {
				dst = append(dst, ',')
			}
			v, err := codec.KeyValue(r, k)
			if err != nil {
				return nil, wrap(r, err)
			}
			if dst, err = c.appendValue(dst, v, &p.columns[k]); err != nil {
				return nil, wrap(r, err)
			}
		}
		dst = append(dst, ']')
	}
	if c.PrimaryKeyColumns {
		dst = append(dst, `,"primary_key_columns":`...)
		dst = append(dst, p.pkNames...)
	}
	dst = append(dst, `,"data":{`...)
	skip := 1 // the comma before the first name
	for i := range values {
		v := &values[i]
		if v.IsAbsent() {
			if len(fallback) == 0 {
				continue
			}
			if v = &fallback[i]; v.IsAbsent() {
				continue
			}
		}
		at := len(dst) + len(p.columns[i].name) - skip
		if dst, skip, err = c.appendField(dst, v, &p.columns[i], skip); err != nil {
			return nil, wrap(r, err)
		}
		if spans != nil {
			spans.Add(i, v, at, len(dst))
		}
	}
	dst = append(dst, '}')
	if r.Op == event.Update {
		dst = append(dst, `,"old":{`...)
		skip = 1
		for i := range values {
			before := &fallback[i]
			if before.IsAbsent() || values[i].IsAbsent() || before.Equal(values[i]) {
				continue
			}
			at := len(dst) + len(p.columns[i].name) - skip
			if dst, skip, err = c.appendField(dst, before, &p.columns[i], skip); err != nil {
				return nil, wrap(r, err)
			}
			if spans != nil {
				spans.Add(i, before, at, len(dst))
			}
		}
		dst = append(dst, '}')
	}
	return append(dst, '}'), nil
}

// appendMeta appends what stands between ts and the keys.
func (c *Codec) appendMeta(dst []byte, r *event.Row) []byte {
	e := r.Event
	if c.CommitInfo {
		dst = append(dst, `,"xid":`...)
		dst = strconv.AppendUint(dst, xid(e), 10)
		if r.Last {
			dst = append(dst, `,"commit":true`...)
		} else if c.XOffset {
			dst = append(dst, `,"xoffset":`...)
			dst = strconv.AppendInt(dst, r.Index, 10)
		}
	}
	if c.BinlogPosition {
		dst = append(dst, `,"position":`...)
		dst = jsontext.AppendString(dst, []byte(e.File))
		dst[len(dst)-1] = ':'
		dst = strconv.AppendUint(dst, e.Start, 10)
		dst = append(dst, '"')
	}
	if c.GTIDPosition {
		dst = appendGTID(dst, e)
	}
	if c.ServerID {
		dst = append(dst, `,"server_id":`...)
		dst = strconv.AppendUint(dst, uint64(e.ServerID), 10)
	}
	if c.ThreadID && e.Txn != nil && e.Txn.ThreadID != 0 {
		dst = append(dst, `,"thread_id":`...)
		dst = strconv.AppendUint(dst, uint64(e.Txn.ThreadID), 10)
	}
	return dst
}

func appendGTID(dst []byte, e *event.Event) []byte {
	if e.Txn == nil || e.Txn.GTID.IsZero() {
		return append(dst, `,"gtid":null`...)
	}
	dst = append(dst, `,"gtid":"`...)
	dst = e.Txn.GTID.Append(dst)
	return append(dst, '"')
}

// xid stands for Maxwell's: the engine's transaction number comes with the
// transaction's end, which streaming does not wait for. The transaction's
// number in its GTID, else the offset at which it starts, is as good for
// telling neighbouring transactions apart, and the same in every replay (I5).
func xid(e *event.Event) uint64 {
	switch {
	case e.Txn == nil:
		return e.Start
	case e.Txn.GTID.IsZero():
		return e.Txn.Start
	}
	return e.Txn.GTID.Seq
}

func (c *Codec) appendField(dst []byte, v *event.Value, col *column, skip int) ([]byte, int, error) {
	if v.IsNull() && !c.Nulls {
		return dst, skip, nil
	}
	dst = append(dst, col.name[skip:]...)
	dst, err := c.appendValue(dst, v, col)
	return dst, 0, err
}

func (c *Codec) appendValue(dst []byte, v *event.Value, col *column) ([]byte, error) {
	if v.IsNull() {
		return append(dst, "null"...), nil
	}
	var err error
	switch col.encoding {
	case number, document:
		return v.AppendText(dst)
	case utf8:
		return jsontext.AppendString(dst, v.Raw()), nil
	case plain:
		dst = append(dst, '"')
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
		return append(dst, '"'), nil
	case date:
		at := len(dst)
		dst = append(dst, '"')
		if dst, err = v.AppendTextIn(dst, c.Location); err != nil {
			return nil, err
		}
		if c.NullZeroDates && zeroDate(dst[at+1:]) {
			return append(dst[:at], "null"...), nil
		}
		return append(dst, '"'), nil
	case text: // as package debezium has it: one function for both costs 8 % of every row here; TestConformance of each holds it to the same texts
		dst = append(dst, '"')
		at := len(dst)
		if dst, err = v.AppendText(dst); err != nil {
			return nil, err
		}
		return jsontext.Close(dst, at), nil
	case float:
		return jsonvalue.AppendFloat(dst, v)
	case unsigned:
		n, err := v.Uint64()
		if err != nil {
			return nil, err
		}
		return strconv.AppendUint(dst, n, 10), nil
	case blob:
		return jsonvalue.AppendBase64(dst, v)
	case set:
		return appendSet(dst, v, col)
	case likely:
		return appendLikely(dst, v)
	case geometry:
		return appendGeometry(dst, v)
	}
	return nil, fmt.Errorf("column %q: unknown encoding %d", v.Column().Name, col.encoding)
}

// zeroDate reports whether the text of a date or time has no digit but 0.
func zeroDate(s []byte) bool {
	for _, b := range s {
		if b >= '1' && b <= '9' {
			return false
		}
	}
	return true
}

func appendSet(dst []byte, v *event.Value, col *column) ([]byte, error) {
	mask, err := v.Uint64()
	if err != nil {
		return nil, err
	}
	if n := bits.Len64(mask); n > len(col.members) {
		return nil, fmt.Errorf("column %q: member %d of a SET with %d known members: set binlog_row_metadata=FULL on the server",
			v.Column().Name, n, len(col.members))
	}
	dst = append(dst, '[')
	for skip := 1; mask != 0; mask &= mask - 1 {
		dst = append(dst, col.members[bits.TrailingZeros64(mask)][skip:]...)
		skip = 0
	}
	return append(dst, ']'), nil
}

// appendLikely writes MariaDB's JSON, which is text under a check that can be
// switched off: what is no JSON is written as a string.
func appendLikely(dst []byte, v *event.Value) ([]byte, error) {
	dst = append(dst, '"')
	at := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	doc := dst[at:]
	if !json.Valid(doc) {
		return jsontext.Close(dst, at), nil
	}
	// The quote makes room. Line ends can only stand between tokens; without
	// them a message is one line.
	for i, b := range doc {
		if b == '\n' || b == '\r' {
			doc[i] = ' '
		}
	}
	copy(dst[at-1:], doc)
	return dst[:len(dst)-1], nil
}

func appendGeometry(dst []byte, v *event.Value) ([]byte, error) {
	dst = append(dst, '"')
	if raw := v.Raw(); len(raw) > 0 { // MariaDB stores '' where it has to invent a value
		var err error
		if dst, err = appendWKT(dst, raw); err != nil {
			return nil, fmt.Errorf("column %q: %w", v.Column().Name, err)
		}
	}
	return append(dst, '"'), nil
}

// AppendKey implements [codec.Codec]. The key is Maxwell's for Kafka:
// {"database":"shop","table":"t","pk.id":7} or ["shop","t",[{"id":7}]], with
// the columns given, names in lower case. Without key columns _uuid stands for
// them, which is different for each row change and the same in every replay.
// A key column that no image of the row holds is an error.
func (c *Codec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	if c.array {
		dst = append(dst, p.array...)
	} else {
		dst = append(dst, p.key...)
	}
	if len(key) == 0 {
		if c.array {
			dst = append(dst, `{"_uuid":"`...)
			dst = appendUUID(dst, r)
			return append(dst, `"}]]`...), nil
		}
		dst = append(dst, `,"_uuid":"`...)
		dst = appendUUID(dst, r)
		return append(dst, `"}`...), nil
	}
	skip := 1
	for _, k := range key {
		v, err := codec.KeyValue(r, k)
		if err != nil {
			return nil, wrap(r, err)
		}
		if c.array {
			dst = append(dst, p.arrName[k][skip:]...)
		} else {
			dst = append(dst, p.keyName[k]...)
		}
		skip = 0
		if dst, err = c.appendValue(dst, v, &p.columns[k]); err != nil {
			return nil, wrap(r, err)
		}
		if c.array {
			dst = append(dst, '}')
		}
	}
	if c.array {
		return append(dst, "]]"...), nil
	}
	return append(dst, '}'), nil
}

// AppendDDL implements [codec.Codec]: type, database, table (the first that the statement names, as it was called), old and def where
// they are known and wanted, ts in milliseconds and sql.
func (c *Codec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	return c.appendDDL(dst, e, e.Raw, c.Definitions), nil
}

// AppendBareDDL implements [codec.Definer].
func (c *Codec) AppendBareDDL(dst []byte, e *event.Event) []byte {
	return c.appendDDL(dst, e, e.Raw, false)
}

func (c *Codec) appendDDL(dst []byte, e *event.Event, sql []byte, definitions bool) []byte {
	first := e.Stmt.First()
	name := event.Name{Schema: cmp.Or(first.Schema, e.Schema)}
	switch {
	case first.Old != (event.Name{}):
		name = first.Old
	case first.Object == event.ObjectTable || first.Object == event.ObjectTemporary:
		name.Name = first.Name
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, ddlType(first)...)
	dst = append(dst, `","database":`...)
	dst = jsontext.AppendString(dst, []byte(name.Schema))
	if name.Name != "" {
		dst = append(dst, `,"table":`...)
		dst = jsontext.AppendString(dst, []byte(name.Name))
	}
	if definitions && first.Object == event.ObjectTable {
		dst = appendDefinitions(dst, e.Stmt, name)
	}
	dst = append(dst, `,"ts":`...)
	dst = strconv.AppendInt(dst, e.Time/1000, 10)
	dst = append(dst, `,"sql":`...)
	dst = jsontext.AppendString(dst, sql)
	if c.BinlogPosition {
		dst = append(dst, `,"position":`...)
		dst = jsontext.AppendString(dst, []byte(e.File))
		dst[len(dst)-1] = ':'
		dst = strconv.AppendUint(dst, e.Start, 10)
		dst = append(dst, '"')
	}
	if c.GTIDPosition {
		dst = appendGTID(dst, e)
	}
	return append(dst, '}')
}

// ddlType is Maxwell's type of a statement, by its first change. It has none for TRUNCATE, which
// it does not publish, nor for what is done to neither table nor database.
func ddlType(first event.Change) string {
	object := "database-"
	switch first.Object {
	case event.ObjectTable, event.ObjectTemporary:
		object = "table-"
	case event.ObjectDatabase:
	default:
		return "statement"
	}
	if first.Action == event.ActionRename {
		return object + "alter"
	}
	return object + string(first.Action)
}

// wrap says where the value stood that could not be written (I3).
func wrap(r *event.Row, err error) error { return codec.RowError("maxwell", r, err) }
