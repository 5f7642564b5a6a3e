package debezium

import (
	"slices"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/codec/internal/jsonvalue"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// How a value becomes JSON.
type encoding uint8

const (
	number       encoding = iota // the text is a JSON number (or, VECTOR, an array of them)
	wrapped                      // BIGINT UNSIGNED in a field that is declared int64
	float                        // a number that must look like one that can have a fraction
	integer                      // the value's unsigned number: YEAR, whose text has leading zeros
	flag                         // BIT(1)
	bits8                        // BIT(n): base64 of its bytes, the least significant first
	unscaled                     // base64 of the number without its point, in two's complement
	plain                        // the text in quotes, never in need of escaping
	utf8                         // the raw bytes are text in UTF-8
	text                         // text that may need escaping
	blob                         // a byte string as binary.handling.mode says
	date                         // days since 1970
	clock                        // TIME: microseconds
	clockMillis                  // TIME: milliseconds, in one day only
	moment                       // DATETIME: microseconds since 1970
	momentMillis                 // DATETIME: milliseconds since 1970
	zoned                        // TIMESTAMP: ISO 8601 in UTC
	geometry                     // {"wkb","srid"}
	point                        // {"x","y","wkb","srid"}
)

type column struct {
	name     []byte // `,"name":`
	encoding encoding
	nullable bool
	field    []byte // schema: `,{"type":…,"field":"name"}`
	absent   []byte // what stands for a value that no image holds; nil: there is nothing
	empty    uint64 // bit of the label '' of a SET; 0: it has none
}

// plan is what is the same for all rows of a table.
type plan struct {
	columns []column
	schema  []byte // value: from the start to the connector's name in its schema; empty without schemas
	rest    []byte // value: from there to the value of before
	db      []byte // from behind ts_ms to the value of ts_us
	read    []byte // the same of a snapshot's rows
	table   []byte // from behind ts_ns to the value of server_id
	keyTail []byte // key: from behind the fields to the payload
}

// The fragments of schemas that are the same for all tables. What Debezium's messages hold was read from its own output.
const (
	structOf   = `{"type":"struct","fields":[`
	sourceHead = structOf + `{"type":"string","optional":false,"field":"version"},{"type":"string","optional":false,"field":"connector"},` +
		`{"type":"string","optional":false,"field":"name"},{"type":"int64","optional":false,"field":"ts_ms"},` +
		`{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"default":"false","field":"snapshot"},` +
		`{"type":"string","optional":false,"field":"db"},{"type":"string","optional":true,"field":"sequence"},{"type":"int64","optional":true,"field":"ts_us"},` +
		`{"type":"int64","optional":true,"field":"ts_ns"},{"type":"string","optional":true,"field":"table"},{"type":"int64","optional":false,"field":"server_id"},` +
		`{"type":"string","optional":true,"field":"gtid"},{"type":"string","optional":false,"field":"file"},{"type":"int64","optional":false,"field":"pos"},` +
		`{"type":"int32","optional":false,"field":"row"},{"type":"int64","optional":true,"field":"thread"},{"type":"string","optional":true,"field":"query"}],` +
		`"optional":false,"name":"io.debezium.connector.`
	sourceTail   = `.Source","version":1,"field":"source"},`
	envelopeTail = structOf + `{"type":"string","optional":false,"field":"id"},{"type":"int64","optional":false,"field":"total_order"},` +
		`{"type":"int64","optional":false,"field":"data_collection_order"}],"optional":true,"name":"event.block","version":1,"field":"transaction"},` +
		`{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},{"type":"int64","optional":true,"field":"ts_us"},` +
		`{"type":"int64","optional":true,"field":"ts_ns"}],"optional":false,"name":`
	wkbField   = `{"type":"bytes","optional":false,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}]`
	pointField = `{"type":"double","optional":false,"field":"x"},{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}]`
)

// ddlHead and ddlTail are the schema of a schema change message around the connector's name, ddlKey* that of its key.
const (
	ddlHead = `{"schema":` + structOf + sourceHead
	ddlTail = sourceTail + `{"type":"int64","optional":false,"field":"ts_ms"},{"type":"string","optional":true,"field":"databaseName"},` +
		`{"type":"string","optional":true,"field":"schemaName"},{"type":"string","optional":true,"field":"ddl"},{"type":"array","items":` + structOf +
		`{"type":"string","optional":false,"field":"type"},{"type":"string","optional":false,"field":"id"},` + structOf +
		`{"type":"string","optional":true,"field":"defaultCharsetName"},{"type":"array","items":{"type":"string","optional":false},"optional":true,"field":"primaryKeyColumnNames"},` +
		`{"type":"array","items":` + structOf + `{"type":"string","optional":false,"field":"name"},{"type":"int32","optional":false,"field":"jdbcType"},` +
		`{"type":"int32","optional":true,"field":"nativeType"},{"type":"string","optional":false,"field":"typeName"},{"type":"string","optional":true,"field":"typeExpression"},` +
		`{"type":"string","optional":true,"field":"charsetName"},{"type":"int32","optional":true,"field":"length"},{"type":"int32","optional":true,"field":"scale"},` +
		`{"type":"int32","optional":false,"field":"position"},{"type":"boolean","optional":true,"field":"optional"},{"type":"boolean","optional":true,"field":"autoIncremented"},` +
		`{"type":"boolean","optional":true,"field":"generated"},{"type":"string","optional":true,"field":"comment"},{"type":"string","optional":true,"field":"defaultValueExpression"},` +
		`{"type":"array","items":{"type":"string","optional":false},"optional":true,"field":"enumValues"}],"optional":false,"name":"io.debezium.connector.schema.Column","version":1},` +
		`"optional":false,"field":"columns"},{"type":"string","optional":true,"field":"comment"}],"optional":true,"name":"io.debezium.connector.schema.Table","version":1,"field":"table"}],` +
		`"optional":false,"name":"io.debezium.connector.schema.Change","version":1},"optional":false,"field":"tableChanges"}],"optional":false,"name":"io.debezium.connector.`
	ddlEnd     = `.SchemaChangeValue","version":1},"payload":`
	ddlKeyHead = `{"schema":` + structOf + `{"type":"string","optional":false,"field":"databaseName"}],"optional":false,"name":"io.debezium.connector.`
	ddlKeyTail = `.SchemaChangeKey","version":1},"payload":`
)

func quoted(dst []byte, s string) []byte { return jsontext.AppendString(dst, []byte(s)) }

func (c *Codec) newPlan(t *event.Table) (*plan, int) {
	p := &plan{columns: make([]column, len(t.Columns))}
	weight := 200
	for i := range t.Columns {
		col := &t.Columns[i]
		out := &p.columns[i]
		enc, schema := c.encodingOf(col)
		*out = column{name: append(quoted([]byte{','}, col.Name), ':'), encoding: enc, nullable: col.Nullable, absent: c.absent(col)}
		if n := slices.Index(col.Members, ""); col.Class == event.ClassSet && n >= 0 {
			out.empty = 1 << n
		}
		weight += 120 + len(col.Name)
		if c.schemas {
			out.field = append(append([]byte(`,{"type":`), schema.typ...), `,"optional":`...)
			out.field = strconv.AppendBool(out.field, col.Nullable)
			out.field = append(append(out.field, schema.more...), `,"field":`...)
			out.field = append(quoted(out.field, col.Name), '}')
			weight += 3 * len(out.field)
		}
	}
	full := schemaName(c.name + "." + t.Schema + "." + t.Name)
	if c.schemas {
		p.schema = append(p.schema, `{"schema":`+structOf...)
		for _, image := range []string{"before", "after"} {
			p.schema = append(p.schema, structOf...)
			skip := 1 // the comma before the first field
			for i := range p.columns {
				p.schema = append(p.schema, p.columns[i].field[skip:]...)
				skip = 0
			}
			p.schema = quoted(append(p.schema, `],"optional":true,"name":`...), full+".Value")
			p.schema = append(p.schema, `,"field":"`+image+`"},`...)
		}
		p.schema = append(p.schema, sourceHead...)
		p.rest = quoted([]byte(sourceTail+envelopeTail), full+".Envelope")
		p.rest = append(p.rest, `,"version":2},"payload":`...)
		p.keyTail = quoted([]byte(`],"optional":false,"name":`), full+".Key")
		p.keyTail = append(p.keyTail, `},"payload":`...)
	}
	p.rest = append(p.rest, `{"before":`...)
	p.db = sourceDB(`"false"`, t.Schema)
	p.read = sourceDB(`"incremental"`, t.Schema)
	p.table = append(quoted([]byte(`,"table":`), t.Name), `,"server_id":`...)
	return p, weight + len(p.schema) + len(p.rest) + len(p.keyTail) + len(p.db) + len(p.read) + len(p.table)
}

// sourceDB returns the part of source from behind ts_ms to the value of ts_us.
func sourceDB(snapshot, schema string) []byte {
	return append(quoted([]byte(`,"snapshot":`+snapshot+`,"db":`), schema), `,"sequence":null,"ts_us":`...)
}

// schemaName replaces what Kafka does not take in a topic's name, as Debezium does, which names schemas after topics: each UTF-16 unit by "_".
func schemaName(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			b.WriteByte(byte(r))
		case r > 0xffff:
			b.WriteString("__")
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// fieldSchema is a field's schema: its type, and what follows optional.
type fieldSchema struct{ typ, more string }

func named(typ, name string) fieldSchema {
	return fieldSchema{`"` + typ + `"`, `,"name":"` + name + `","version":1`}
}

// decimal is the schema of a number without its point.
func decimal(precision, scale int) fieldSchema {
	s := named("bytes", "org.apache.kafka.connect.data.Decimal")
	s.more += `,"parameters":{"scale":"` + strconv.Itoa(scale) + `","connect.decimal.precision":"` + strconv.Itoa(precision) + `"}`
	return s
}

// members is the schema of ENUM and SET: labels in a list, commas within them escaped.
func members(name string, labels []string) fieldSchema {
	var list strings.Builder
	for i, l := range labels {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strings.ReplaceAll(l, ",", `\,`))
	}
	s := named("string", name)
	s.more += `,"parameters":{"allowed":` + string(quoted(nil, list.String())) + `}`
	return s
}

// encodingOf tells how values of the column are written and what its field's schema is.
func (c *Codec) encodingOf(col *event.Column) (encoding, fieldSchema) {
	basic := func(typ string) fieldSchema { return fieldSchema{typ: `"` + typ + `"`} }
	switch col.Class {
	case event.ClassInt:
		switch col.Type {
		case event.TypeTiny, event.TypeShort:
			return number, basic("int16")
		case event.TypeLongLong:
			return number, basic("int64")
		}
		return number, basic("int32")
	case event.ClassUint:
		switch col.Type {
		case event.TypeTiny:
			return number, basic("int16")
		case event.TypeShort, event.TypeInt24:
			return number, basic("int32")
		case event.TypeLong:
			return number, basic("int64")
		}
		switch {
		case c.preciseUnsigned:
			return unscaled, decimal(20, 0)
		case c.schemas:
			return wrapped, basic("int64")
		}
		return number, basic("int64")
	case event.ClassFloat:
		return float, basic("float")
	case event.ClassDouble:
		return float, basic("double")
	case event.ClassDecimal:
		switch c.decimals {
		case decimalString:
			return plain, basic("string")
		case decimalDouble:
			return float, basic("double")
		}
		return unscaled, decimal(int(col.Meta>>8), int(col.Meta&0xff))
	case event.ClassBit:
		if col.Meta == 1 {
			return flag, basic("boolean")
		}
		s := named("bytes", "io.debezium.data.Bits")
		s.more += `,"parameters":{"length":"` + strconv.Itoa(int(col.Meta)) + `"}`
		return bits8, s
	case event.ClassYear:
		return integer, named("int32", "io.debezium.time.Year")
	case event.ClassDate:
		if c.connectTime {
			return date, named("int32", "org.apache.kafka.connect.data.Date")
		}
		return date, named("int32", "io.debezium.time.Date")
	case event.ClassTime:
		if c.connectTime {
			return clockMillis, named("int32", "org.apache.kafka.connect.data.Time")
		}
		return clock, named("int64", "io.debezium.time.MicroTime")
	case event.ClassDatetime:
		switch {
		case c.connectTime:
			return momentMillis, named("int64", "org.apache.kafka.connect.data.Timestamp")
		case c.adaptive && digits(col) <= 3:
			return momentMillis, named("int64", "io.debezium.time.Timestamp")
		}
		return moment, named("int64", "io.debezium.time.MicroTimestamp")
	case event.ClassTimestamp:
		return zoned, named("string", "io.debezium.time.ZonedTimestamp")
	case event.ClassChar, event.ClassText:
		s := basic("string")
		if col.Logical == event.LogicalJSON {
			s = named("string", "io.debezium.data.Json")
		}
		if jsonvalue.UTF8(col) {
			return utf8, s
		}
		return text, s
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		if c.binaryText {
			return blob, basic("string")
		}
		return blob, basic("bytes")
	case event.ClassEnum:
		return text, members("io.debezium.data.Enum", col.Members)
	case event.ClassSet:
		return text, members("io.debezium.data.EnumSet", col.Members)
	case event.ClassJSON:
		return text, named("string", "io.debezium.data.Json")
	case event.ClassGeometry:
		if strings.EqualFold(col.SQLType, "point") {
			return point, fieldSchema{structType(pointField), `,"name":"io.debezium.data.geometry.Point","version":1,"doc":"Geometry (POINT)"`}
		}
		return geometry, fieldSchema{structType(wkbField), `,"name":"io.debezium.data.geometry.Geometry","version":1,"doc":"Geometry"`}
	case event.ClassVector:
		return number, fieldSchema{`"array","items":{"type":"float","optional":false}`, `,"name":"io.debezium.data.FloatVector","version":1`}
	}
	return plain, basic("string") // UUID, INET4, INET6
}

// structType is the type of a field that has fields.
func structType(fields string) string { return `"struct","fields":[` + fields }

// digits is the number of fraction digits of a DATETIME column.
func digits(col *event.Column) int {
	if col.Type != event.TypeDatetime {
		return int(col.Meta)
	}
	// Of the old format only the declaration knows: datetime(n).
	if i := strings.IndexByte(col.SQLType, '('); i >= 0 && i+1 < len(col.SQLType) {
		return int(col.SQLType[i+1] - '0')
	}
	return 0
}

// unavailable is what Debezium writes for a value that the log does not hold, where the field's type has room for it.
const unavailable = "__debezium_unavailable_value"

func (c *Codec) absent(col *event.Column) []byte {
	switch col.Class {
	case event.ClassChar, event.ClassText, event.ClassJSON:
		return quoted(nil, unavailable)
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		return c.appendBinary(nil, []byte(unavailable))
	}
	return nil
}
