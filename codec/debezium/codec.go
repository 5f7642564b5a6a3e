package debezium

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/internal/plans"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// Version is what messages give as source.version: the version of Debezium whose messages they resemble. It is
// not binlogmq's own, which would change the bytes of a replay (I5).
const Version = "3.6.1.Final"

// Options are Debezium's settings of the same names; "" is Debezium's default.
type Options struct {
	Name           string // topic.prefix: the source's name in messages and in the names of schemas
	Schemas        bool   // schemas.enable: keys and values bear their schema
	Decimal        string // decimal.handling.mode: "precise" (default), "string" or "double"
	Time           string // time.precision.mode: "adaptive_time_microseconds" (default), "microseconds" or "connect"
	BigintUnsigned string // bigint.unsigned.handling.mode: "long" (default) or "precise"
	Binary         string // binary.handling.mode: "bytes" (default), "base64", "base64-url-safe" or "hex"
	Skipped        string // skipped.operations: "t" (default) or "none", with which TRUNCATE is a message of its table
	Definitions    bool   // schema changes: what is known of the tables; Debezium always knows them
	Failure        string // event.converting.failure.handling.mode: "warn" (default; such values become null) or "fail"
}

// The values of the options that are not free text, the defaults first.
var (
	decimalModes = []string{"precise", "string", "double"}
	timeModes    = []string{"adaptive_time_microseconds", "microseconds", "connect"}
	bigintModes  = []string{"long", "precise"}
	binaryModes  = []string{"bytes", "base64", "base64-url-safe", "hex"}
	failureModes = []string{"warn", "fail"}
	skippedModes = []string{"t", "none"}
)

const (
	decimalString = 1 // indexes of decimalModes
	decimalDouble = 2
)

// Codec writes Debezium's messages. It implements [codec.Codec].
type Codec struct {
	schemas         bool
	decimals        int
	adaptive        bool // time: milliseconds where they suffice
	connectTime     bool
	preciseUnsigned bool
	binaryText      bool // byte strings are strings to Connect
	appendBinary    func(dst, content []byte) []byte
	fail            bool
	truncates       bool
	definitions     bool
	name            string
	head            []byte // of source: `,"name":"…","ts_ms":`
	plans           *plans.Cache[plan]
}

var (
	_ codec.KeyLinker = (*Codec)(nil)
	_ codec.DDLKeyer  = (*Codec)(nil)
	_ codec.Definer   = (*Codec)(nil)
	_ codec.Truncater = (*Codec)(nil)
)

// New returns a codec, or an error that names the option whose value it does not know.
func New(o Options) (*Codec, error) {
	var err error
	mode := func(name, value string, known []string) int {
		for i, k := range known {
			if value == k || value == "" {
				return i
			}
		}
		err = fmt.Errorf("debezium: %s: %q is none of %q", name, value, known)
		return 0
	}
	c := &Codec{schemas: o.Schemas, name: o.Name, definitions: o.Definitions, decimals: mode("decimal.handling.mode", o.Decimal, decimalModes)}
	switch mode("time.precision.mode", o.Time, timeModes) {
	case 0:
		c.adaptive = true
	case 2:
		c.connectTime = true
	}
	c.preciseUnsigned = mode("bigint.unsigned.handling.mode", o.BigintUnsigned, bigintModes) == 1
	binary := mode("binary.handling.mode", o.Binary, binaryModes)
	c.binaryText = binary > 0
	c.appendBinary = [...]func(dst, content []byte) []byte{jsontext.AppendBase64, jsontext.AppendBase64, appendBase64URL, appendHex}[binary]
	c.fail = mode("event.converting.failure.handling.mode", o.Failure, failureModes) == 1
	c.truncates = mode("skipped.operations", o.Skipped, skippedModes) == 1
	if o.Name == "" && err == nil {
		err = fmt.Errorf("debezium: topic.prefix: a name is needed")
	}
	if err != nil {
		return nil, err
	}
	c.head = append(quoted([]byte(`","name":`), o.Name), `,"ts_ms":`...)
	c.plans = plans.New(c.newPlan)
	return c, nil
}

func appendBase64URL(dst, content []byte) []byte {
	dst = jsontext.Reserve(dst, base64.URLEncoding.EncodedLen(len(content))+2)
	return append(base64.URLEncoding.AppendEncode(append(dst, '"'), content), '"')
}

func appendHex(dst, content []byte) []byte {
	dst = jsontext.Reserve(dst, hex.EncodedLen(len(content))+2)
	return append(hex.AppendEncode(append(dst, '"'), content), '"')
}

var ops = [...]byte{event.Insert: 'c', event.Update: 'u', event.Delete: 'd'}

// AppendRow implements [codec.Codec]. An after image without all columns is completed from the before image where
// that holds them. For what no image holds stands Debezium's placeholder, where the column's type has room
// for it; other columns are left out, or with schemas, where a missing field reads as NULL, an error.
func (c *Codec) AppendRow(dst []byte, r *event.Row) ([]byte, error) { return c.appendRow(dst, r, nil) }

// appendRow notes in spans where the values stand.
func (c *Codec) appendRow(dst []byte, r *event.Row, spans *codec.Spans) ([]byte, error) {
	if r.Op < event.Insert || r.Op > event.Delete {
		return nil, fmt.Errorf("debezium: table %s.%s: unknown operation %d", r.Table.Schema, r.Table.Name, r.Op)
	}
	p, e := c.plans.Get(r.Table), r.Event
	n := len(p.columns)
	if hasBefore, hasAfter := r.Op != event.Insert, r.Op != event.Delete; hasBefore && len(r.Before) != n || hasAfter && len(r.After) != n {
		return nil, fmt.Errorf("debezium: table %s.%s: row with %d and %d values, table with %d columns",
			r.Table.Schema, r.Table.Name, len(r.Before), len(r.After), n)
	}
	dst = c.openEnvelope(dst, p, e)
	var err error
	if r.Op == event.Insert {
		dst = append(dst, "null"...)
	} else if dst, err = c.appendImage(dst, p, r.Before, nil, spans); err != nil {
		return nil, wrap(r, err)
	}
	dst = append(dst, `,"after":`...)
	if r.Op == event.Delete {
		dst = append(dst, "null"...)
	} else if dst, err = c.appendImage(dst, p, r.After, r.Before, spans); err != nil {
		return nil, wrap(r, err)
	}
	op, db := ops[r.Op], p.db
	if e.Snapshot() != nil {
		op, db = 'r', p.read
	}
	return c.closeEnvelope(dst, p, e, r.Ordinal-e.Ordinal, op, db), nil
}

// openEnvelope appends what stands before the value of before.
func (c *Codec) openEnvelope(dst []byte, p *plan, e *event.Event) []byte {
	if c.schemas {
		dst = append(dst, p.schema...)
		dst = append(dst, connectorOf(e)...)
	}
	return append(dst, p.rest...)
}

// closeEnvelope appends what stands behind the value of after. db is one of the plan.
func (c *Codec) closeEnvelope(dst []byte, p *plan, e *event.Event, row int64, op byte, db []byte) []byte {
	dst = append(dst, `,"source":`...)
	var buf [72]byte
	t := digitsOfTime(&buf, commitTime(e))
	dst = c.appendSource(dst, e, t, connectorOf(e), db, p.table, row)
	dst = append(dst, `,"transaction":null,"op":"`...)
	dst = append(dst, op)
	dst = append(append(dst, `","ts_ms":`...), t.ms...)
	dst = append(append(dst, `,"ts_us":`...), t.us...)
	dst = append(append(dst, `,"ts_ns":`...), t.ns...)
	if c.schemas {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// Truncates implements [codec.Truncater].
func (c *Codec) Truncates() bool { return c.truncates }

// AppendTruncate implements [codec.Truncater]. A statement does not tell the table's columns: its schema has none.
func (c *Codec) AppendTruncate(dst []byte, e *event.Event, schema, table string) []byte {
	p, _ := c.newPlan(&event.Table{Schema: schema, Name: table})
	dst = append(c.openEnvelope(dst, p, e), `null,"after":null`...)
	return c.closeEnvelope(dst, p, e, 0, 't', p.db)
}

// appendImage appends the columns of an image, completed from fallback where that is given.
func (c *Codec) appendImage(dst []byte, p *plan, values, fallback []event.Value, spans *codec.Spans) ([]byte, error) {
	dst = append(dst, '{')
	skip := 1 // the comma before the first name
	for i := range values {
		v, col := &values[i], &p.columns[i]
		if v.IsAbsent() && len(fallback) > 0 {
			v = &fallback[i]
		}
		if v.IsAbsent() {
			if col.absent == nil {
				if !c.schemas {
					continue
				}
				// I3: with a schema, readers take a missing field for NULL.
				return nil, fmt.Errorf("column %q is not in the row image: set binlog_row_image=FULL on the server, or schemas.enable: false for this sink", v.Column().Name)
			}
			dst = append(append(dst, col.name[skip:]...), col.absent...)
			skip = 0
			continue
		}
		dst = append(dst, col.name[skip:]...)
		skip = 0
		at := len(dst)
		var err error
		if dst, err = c.appendValue(dst, v, col); err != nil {
			return nil, err
		}
		if spans != nil {
			spans.Add(i, v, at, len(dst))
		}
	}
	return append(dst, '}'), nil
}

var mysql, mariadb = []byte("mysql"), []byte("mariadb")

// connectorOf names the connector of Debezium that reads such a server. Only MySQL's servers have a UUID.
func connectorOf(e *event.Event) []byte {
	const uuid = len("3e11fa47-71ca-11e1-9e33-c80aa9429562")
	if t := e.Txn; t != nil && (t.GTID.IsMariaDB() || t.GTID.IsZero() && t.ServerUUID != "" && len(t.ServerUUID) != uuid) {
		return mariadb
	}
	return mysql
}

// commitTime is when the transaction was committed, in microseconds.
func commitTime(e *event.Event) int64 {
	if e.Txn == nil {
		return e.Time
	}
	return e.Txn.Time
}

// times are the digits of a time in milliseconds, microseconds and nanoseconds, which each message has twice.
type times struct{ ms, us, ns []byte }

// digitsOfTime writes into buf.
func digitsOfTime(buf *[72]byte, micros int64) times {
	us := strconv.AppendInt(buf[:0:24], micros, 10)
	if micros >= 1000 {
		return times{us[:len(us)-3], us, append(us, "000"...)}
	}
	return times{strconv.AppendInt(buf[24:24:48], micros/1000, 10), us, strconv.AppendInt(buf[48:48], micros*1000, 10)}
}

// appendSource appends the object source. db and table are the fragments before ts_us and server_id.
func (c *Codec) appendSource(dst []byte, e *event.Event, t times, connector, db, table []byte, row int64) []byte {
	dst = append(dst, `{"version":"`+Version+`","connector":"`...)
	dst = append(dst, connector...)
	dst = append(dst, c.head...)
	dst = append(append(append(dst, t.ms...), db...), t.us...)
	dst = append(append(dst, `,"ts_ns":`...), t.ns...)
	dst = append(dst, table...)
	dst = strconv.AppendUint(dst, uint64(e.ServerID), 10)
	if e.Txn == nil || e.Txn.GTID.IsZero() {
		dst = append(dst, `,"gtid":null,"file":`...)
	} else {
		dst = append(dst, `,"gtid":"`...)
		dst = e.Txn.GTID.Append(dst)
		dst = append(dst, `","file":`...)
	}
	dst = append(dst, '"')
	dst = jsontext.AppendEscaped(dst, []byte(e.File))
	dst = append(dst, `","pos":`...)
	dst = strconv.AppendUint(dst, e.Start, 10)
	dst = append(dst, `,"row":`...)
	dst = strconv.AppendInt(dst, row, 10)
	if e.Txn == nil || e.Txn.ThreadID == 0 {
		return append(dst, `,"thread":null,"query":null}`...)
	}
	dst = append(dst, `,"thread":`...)
	dst = strconv.AppendUint(dst, uint64(e.Txn.ThreadID), 10)
	return append(dst, `,"query":null}`...)
}

// AppendKey implements [codec.Codec]. The key is Debezium's: an object of the columns given, with its schema if
// keys bear one. Without key columns there is none. A key column that no image of the row holds is an error.
func (c *Codec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	if len(key) == 0 {
		return dst, nil
	}
	p := c.plans.Get(r.Table)
	if c.schemas {
		dst = append(dst, `{"schema":`+structOf...)
		skip := 1
		for _, k := range key {
			if k >= 0 && k < len(p.columns) {
				dst = append(dst, p.columns[k].field[skip:]...)
				skip = 0
			}
		}
		dst = append(dst, p.keyTail...)
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
		if dst, err = c.appendValue(dst, v, &p.columns[k]); err != nil {
			return nil, wrap(r, err)
		}
	}
	if c.schemas {
		dst = append(dst, '}')
	}
	return append(dst, '}'), nil
}

// KeyHeaders implements [codec.KeyLinker].
func (c *Codec) KeyHeaders() (onDelete, onInsert string) {
	return "__debezium.newkey", "__debezium.oldkey"
}

// AppendDDL implements [codec.Codec]: Debezium's schema change message. tableChanges names all tables, with what the
// statement made of them where that is known and wanted.
func (c *Codec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) {
	return c.appendDDL(dst, e, e.Raw, c.definitions), nil
}

// AppendBareDDL implements [codec.Definer].
func (c *Codec) AppendBareDDL(dst []byte, e *event.Event) []byte {
	return c.appendDDL(dst, e, e.Raw, false)
}

// AppendDDLKey implements [codec.DDLKeyer]: the key is the database.
func (c *Codec) AppendDDLKey(dst []byte, e *event.Event) []byte {
	if c.schemas {
		dst = append(append(append(dst, ddlKeyHead...), connectorOf(e)...), ddlKeyTail...)
	}
	dst = quoted(append(dst, `{"databaseName":`...), database(e))
	if c.schemas {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// database is the database that a statement is about.
func database(e *event.Event) string { return cmp.Or(e.Stmt.First().Schema, e.Schema) }

// changeTypes are Debezium's types of what becomes of a table. It has none for TRUNCATE.
var changeTypes = map[event.Action]string{event.ActionCreate: "CREATE", event.ActionAlter: "ALTER", event.ActionRename: "ALTER", event.ActionDrop: "DROP"}

func (c *Codec) appendDDL(dst []byte, e *event.Event, sql []byte, definitions bool) []byte {
	connector, schema, table := connectorOf(e), database(e), ""
	if first := e.Stmt.First(); first.Object == event.ObjectTable {
		table = first.Name
	}
	if c.schemas {
		dst = append(append(dst, ddlHead...), connector...)
		dst = append(append(dst, ddlTail...), connector...)
		dst = append(dst, ddlEnd...)
	}
	dst = append(dst, `{"source":`...)
	db := sourceDB(`"false"`, schema)
	name := []byte(`,"table":null,"server_id":`)
	if table != "" {
		name = append(quoted([]byte(`,"table":`), table), `,"server_id":`...)
	}
	var buf [72]byte
	t := digitsOfTime(&buf, commitTime(e))
	dst = c.appendSource(dst, e, t, connector, db, name, 0)
	dst = append(append(dst, `,"ts_ms":`...), t.ms...)
	dst = quoted(append(dst, `,"databaseName":`...), schema)
	dst = jsontext.AppendString(append(dst, `,"schemaName":null,"ddl":`...), sql)
	dst = append(dst, `,"tableChanges":[`...)
	if e.Stmt != nil {
		comma, room := "", codec.MaxDefinitions
		for i := range e.Stmt.Changes {
			change := &e.Stmt.Changes[i]
			kind := changeTypes[change.Action]
			if change.Object != event.ObjectTable || kind == "" {
				continue
			}
			dst = append(append(append(append(dst, comma...), `{"type":"`...), kind...), `","id":`...)
			dst = quoted(dst, identifier(change.Schema)+"."+identifier(change.Name))
			dst = append(dst, `,"table":`...)
			at := len(dst)
			if _, after := e.Stmt.Definition(change.Schema, change.Name); definitions && after != nil {
				dst = appendDefinition(dst, after)
			}
			if n := len(dst) - at; n == 0 || n > room {
				dst = append(dst[:at], "null"...)
			} else {
				room -= n
			}
			dst = append(dst, '}')
			comma = ","
		}
	}
	dst = append(dst, "]}"...)
	if c.schemas {
		dst = append(dst, '}')
	}
	return dst
}

// wrap says where the value stood that could not be written (I3).
func wrap(r *event.Row, err error) error { return codec.RowError("debezium", r, err) }
