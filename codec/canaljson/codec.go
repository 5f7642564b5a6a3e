package canaljson

import (
	"fmt"
	"strconv"
	"time"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/internal/canaltype"
	"github.com/binlogmq/binlogmq/codec/internal/plans"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// Options choose between the encodings of values that people expect. The zero
// value is what Canal does.
type Options struct {
	// Binary says how byte strings (BINARY, VARBINARY, BLOB, GEOMETRY) are written:
	// "latin1" (default), each byte as the character of the same number, or "base64".
	Binary string

	// Enum says how ENUM and SET are written: "ordinal" (default), the member's number
	// from 1 and the bit mask, or "label", as SELECT shows them.
	Enum string

	// Location is the time zone of TIMESTAMP values; nil is UTC. DATETIME has none.
	Location *time.Location
}

// Codec writes canal-json. It implements [codec.Codec].
type Codec struct {
	base64 bool
	labels bool
	loc    *time.Location
	plans  *plans.Cache[plan]
}

var _ codec.Codec = (*Codec)(nil)

// New returns a codec, or an error that names the option that it does not know.
func New(o Options) (*Codec, error) {
	c := &Codec{loc: o.Location}
	if c.loc == nil {
		c.loc = time.UTC
	}
	switch o.Binary {
	case "", "latin1":
	case "base64":
		c.base64 = true
	default:
		return nil, fmt.Errorf("canal-json: binary: %q is neither \"latin1\" nor \"base64\"", o.Binary)
	}
	switch o.Enum {
	case "", "ordinal":
	case "label":
		c.labels = true
	default:
		return nil, fmt.Errorf("canal-json: enum: %q is neither \"ordinal\" nor \"label\"", o.Enum)
	}
	c.plans = plans.New(c.plan)
	return c, nil
}

var types = [...][]byte{
	event.Insert: []byte(`,"type":"INSERT"}`),
	event.Update: []byte(`,"type":"UPDATE"}`),
	event.Delete: []byte(`,"type":"DELETE"}`),
}

// AppendRow implements [codec.Codec]. An after image without all columns is
// completed from the before image where that holds them; what neither holds is
// left out of data.
func (c *Codec) AppendRow(dst []byte, r *event.Row) ([]byte, error) { return c.appendRow(dst, r, nil) }

// appendRow notes in spans where the values stand.
func (c *Codec) appendRow(dst []byte, r *event.Row, spans *codec.Spans) ([]byte, error) {
	if r.Op < event.Insert || r.Op > event.Delete {
		return nil, fmt.Errorf("canal-json: table %s.%s: unknown operation %d", r.Table.Schema, r.Table.Name, r.Op)
	}
	p, e := c.plans.Get(r.Table), r.Event
	values, fallback := r.After, r.Before
	if r.Op == event.Delete {
		values, fallback = r.Before, nil
	}
	if n := len(p.columns); len(values) != n || len(fallback) != n && (len(fallback) > 0 || r.Op == event.Update) {
		return nil, fmt.Errorf("canal-json: table %s.%s: row with %d and %d values, table with %d columns",
			r.Table.Schema, r.Table.Name, len(r.Before), len(r.After), len(p.columns))
	}
	var err error
	dst = append(dst, `{"data":[{`...)
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
		col := &p.columns[i]
		dst = append(dst, col.name[skip:]...)
		skip = 0
		at := len(dst)
		if col.encoding == canaltype.UTF8 && !v.IsNull() {
			dst = jsontext.AppendString(dst, v.Raw())
		} else if dst, err = c.appendValue(dst, v, col.encoding); err != nil {
			return nil, wrap(r, err)
		}
		if spans != nil {
			spans.Add(i, v, at, len(dst))
		}
	}
	dst = append(dst, p.database...)
	dst = strconv.AppendInt(dst, e.Time/1000, 10)
	dst = appendGTID(dst, e)
	dst = strconv.AppendInt(dst, r.Ordinal, 10)
	dst = append(dst, p.types...)
	if r.Op == event.Update {
		dst = append(dst, `[{`...)
		skip = 1
		for i := range values {
			before := &fallback[i]
			if before.IsAbsent() || values[i].IsAbsent() || before.Equal(values[i]) {
				continue
			}
			col := &p.columns[i]
			dst = append(dst, col.name[skip:]...)
			skip = 0
			at := len(dst)
			if dst, err = c.appendValue(dst, before, col.encoding); err != nil {
				return nil, wrap(r, err)
			}
			if spans != nil {
				spans.Add(i, before, at, len(dst))
			}
		}
		dst = append(dst, `}]`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, p.table...)
	dst = strconv.AppendInt(dst, commitTime(e), 10)
	return append(dst, types[r.Op]...), nil
}

// appendGTID appends what stands between the values of es and id.
func appendGTID(dst []byte, e *event.Event) []byte {
	dst = append(dst, `,"gtid":"`...)
	if e.Txn != nil {
		dst = e.Txn.GTID.Append(dst)
	}
	return append(dst, `","id":`...)
}

// commitTime is the value of ts. I5: the clock must not decide it.
func commitTime(e *event.Event) int64 {
	if e.Txn == nil {
		return e.Time / 1000
	}
	return e.Txn.Time / 1000
}

func (c *Codec) appendValue(dst []byte, v *event.Value, enc canaltype.Encoding) ([]byte, error) {
	if v.IsNull() {
		return append(dst, "null"...), nil
	}
	var err error
	switch enc {
	case canaltype.UTF8:
		return jsontext.AppendString(dst, v.Raw()), nil
	case canaltype.Plain:
		dst = append(dst, '"')
		if dst, err = v.AppendTextIn(dst, c.loc); err != nil {
			return nil, err
		}
		return append(dst, '"'), nil
	case canaltype.Text:
		dst = append(dst, '"')
		at := len(dst)
		if dst, err = v.AppendTextIn(dst, c.loc); err != nil {
			return nil, err
		}
		return jsontext.Close(dst, at), nil
	case canaltype.Number:
		n, err := v.Uint64()
		if err != nil {
			return nil, err
		}
		dst = strconv.AppendUint(append(dst, '"'), n, 10)
		return append(dst, '"'), nil
	case canaltype.Raw:
		return c.appendBytes(dst, v.Raw()), nil
	}
	// The content is completed behind dst, written again behind itself, and moved down.
	at := len(dst)
	if dst, err = v.AppendText(dst); err != nil {
		return nil, err
	}
	end := len(dst)
	dst = c.appendBytes(dst, dst[at:])
	n := copy(dst[at:], dst[end:])
	return dst[:at+n], nil
}

func (c *Codec) appendBytes(dst, b []byte) []byte {
	if c.base64 {
		return jsontext.AppendBase64(dst, b)
	}
	return jsontext.AppendLatin1(dst, b)
}

// AppendKey implements [codec.Codec]. The key is a JSON object of the key
// columns in the order given, their values as in data; without key columns it
// is the text schema.table. A key column that no image of the row holds is an error.
func (c *Codec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	if len(key) == 0 {
		return append(dst, p.noKey...), nil
	}
	dst = append(dst, '{')
	skip := 1
	for _, k := range key {
		v, err := codec.KeyValue(r, k)
		if err != nil {
			return nil, wrap(r, err)
		}
		dst = append(dst, p.columns[k].name[skip:]...)
		skip = 0
		if dst, err = c.appendValue(dst, v, p.columns[k].encoding); err != nil {
			return nil, wrap(r, err)
		}
	}
	return append(dst, '}'), nil
}

// AppendDDL implements [codec.Codec].
func (c *Codec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	return c.appendDDL(dst, e, e.Raw), nil
}

func (c *Codec) appendDDL(dst []byte, e *event.Event, sql []byte) []byte {
	schema, table := canaltype.StatementTable(e)
	dst = append(dst, `{"data":null,"database":`...)
	dst = jsontext.AppendString(dst, []byte(schema))
	dst = append(dst, `,"es":`...)
	dst = strconv.AppendInt(dst, e.Time/1000, 10)
	dst = appendGTID(dst, e)
	dst = strconv.AppendInt(dst, e.Ordinal, 10)
	dst = append(dst, `,"isDdl":true,"mysqlType":null,"old":null,"pkNames":null,"sql":`...)
	dst = jsontext.AppendString(dst, sql)
	dst = append(dst, `,"sqlType":null,"table":`...)
	dst = jsontext.AppendString(dst, []byte(table))
	dst = append(dst, `,"ts":`...)
	dst = strconv.AppendInt(dst, commitTime(e), 10)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, canaltype.StatementType(e.Stmt).String()...)
	return append(dst, `"}`...)
}

// wrap says where the value stood that could not be written (I3).
func wrap(r *event.Row, err error) error { return codec.RowError("canal-json", r, err) }
