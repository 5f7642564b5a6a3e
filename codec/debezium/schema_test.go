package debezium

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

// schema is a schema of Kafka Connect in JSON, as its JsonConverter reads it.
type schema struct {
	Type       string
	Optional   bool
	Name       string
	Version    int
	Parameters map[string]string
	Doc        string
	Default    json.RawMessage
	Field      string
	Fields     []*schema
	Items      *schema
}

func readSchema(text []byte) (*schema, error) {
	s := new(schema)
	return s, strict(text, s)
}

// check holds a payload to its schema more strictly than JsonConverter does, which takes a text for the number 0.
func (s *schema) check(v json.RawMessage, path string) error {
	fail := func(what string) error { return fmt.Errorf("%s: %s: %.80s", path, what, v) }
	if string(v) == "null" {
		if !s.Optional {
			return fail("null in a field that is not optional")
		}
		return nil
	}
	whole := func(bits int) error {
		if _, err := strconv.ParseInt(string(v), 10, bits); err != nil {
			return fail(err.Error())
		}
		return nil
	}
	var text string
	str := func() error { return json.Unmarshal(v, &text) }
	switch s.Type {
	case "int16":
		return whole(16)
	case "int32":
		return whole(32)
	case "int64":
		return whole(64)
	case "float", "double":
		if f, err := strconv.ParseFloat(string(v), 64); err != nil || math.IsInf(f, 0) {
			return fail("no number")
		}
	case "boolean":
		if string(v) != "true" && string(v) != "false" {
			return fail("no boolean")
		}
	case "string":
		return str()
	case "bytes":
		if err := str(); err != nil {
			return err
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fail(err.Error())
		}
		if s.Name == "org.apache.kafka.connect.data.Decimal" && (len(b) == 0 || s.Parameters["scale"] == "") {
			return fail("no Decimal")
		}
	case "array":
		var items []json.RawMessage
		if err := json.Unmarshal(v, &items); err != nil {
			return err
		}
		for _, i := range items {
			if err := s.Items.check(i, path+"[]"); err != nil {
				return err
			}
		}
	case "struct":
		keys, err := codectest.Keys(v)
		if err != nil {
			return err
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(v, &fields); err != nil {
			return err
		}
		var want []string
		for _, f := range s.Fields {
			want = append(want, f.Field)
			if err := f.check(fields[f.Field], path+"."+f.Field); err != nil {
				return err
			}
		}
		if !slices.Equal(keys, want) {
			return fail(fmt.Sprintf("fields %q", want))
		}
	default:
		return fail("unknown type " + s.Type)
	}
	return nil
}

// TestSchemas holds the schemas of keys, values and schema changes, byte for byte, to those that Debezium published
// for tables declared alike. It knows what the log does not: defaults, and the width of FLOAT(7,3), which it
// makes a double.
func TestSchemas(t *testing.T) {
	tables := map[string]*event.Table{}
	for _, r := range codectest.PeerRows(t) {
		tables[r.Table.Name] = r.Table
	}
	tables["vec"] = codectest.Compile(t, &event.Table{Schema: "edge", Name: "vec", Key: []int{0}, Columns: []event.Column{
		{Name: "id", Type: codectest.TypeLong}, {Name: "v", Type: codectest.TypeVector, Meta: 4, Nullable: true}}})
	tables["opts"] = opts(t)
	file, err := os.ReadFile("testdata/schemas.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c := newCodec(t, schemaOptions)
	schemaOf := func(message []byte) []byte {
		var m struct{ Schema json.RawMessage }
		if err := json.Unmarshal(message, &m); err != nil {
			t.Fatalf("%v: %s", err, message)
		}
		return m.Schema
	}
	defaults := regexp.MustCompile(`,"default":("[^"]*"|\d+)(,"field":"[^s])`) // but that of snapshot
	seen := 0
	for _, line := range bytes.Split(bytes.TrimSpace(file), []byte("\n")) {
		var peer struct {
			Table      string
			Key, Value json.RawMessage
		}
		if err := json.Unmarshal(line, &peer); err != nil {
			t.Fatal(err)
		}
		peer.Value = defaults.ReplaceAll(peer.Value, []byte("$2"))
		peer.Value = bytes.ReplaceAll(peer.Value, []byte(`{"type":"double","optional":true,"field":"f1"}`), []byte(`{"type":"float","optional":true,"field":"f1"}`))
		var key, value []byte
		if peer.Table == "ddl" {
			e := codectest.DDL("edge", "CREATE TABLE t (id INT)")
			key = c.AppendDDLKey(nil, e)
			if value, err = c.AppendDDL(nil, e); err != nil {
				t.Fatal(err)
			}
		} else {
			tab := tables[peer.Table]
			p := c.plans.Get(tab)
			value = append(append(append(value, p.schema...), "mysql"...), p.rest[:len(p.rest)-len(`,"payload":{"before":`)]...)
			value = append(value, '}')
			key = []byte(`{"schema":null}`)
			if len(tab.Key) > 0 {
				cells := make([]codectest.Cell, len(tab.Columns))
				for i := range cells {
					cells[i] = codectest.Null
				}
				if key, err = c.AppendKey(nil, codectest.Row(t, tab, nil, cells), tab.Key); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := schemaOf(value); !bytes.Equal(got, peer.Value) {
			t.Errorf("%s: value\n%s\nDebezium\n%s", peer.Table, got, peer.Value)
		}
		if got := schemaOf(key); !bytes.Equal(got, peer.Key) {
			t.Errorf("%s: key\n%s\nDebezium\n%s", peer.Table, got, peer.Key)
		}
		seen++
	}
	if seen != len(tables)+1 {
		t.Errorf("%d schemas of %d tables", seen, len(tables))
	}
}

// opts is a table of what the other tables have not:
//
//	CREATE TABLE opts (id BIGINT UNSIGNED NOT NULL, k CHAR(3) NOT NULL, a INT NOT NULL, b INT NOT NULL DEFAULT 5, c DECIMAL(10,2) NOT NULL DEFAULT 1.5, dz DATE NOT NULL, dtz DATETIME NOT NULL, dt6z DATETIME(6) NOT NULL, tz TIMESTAMP NOT NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL, dt1 DATETIME(1), dt2 DATETIME(2), dt4 DATETIME(4), t1 TIME(1), t3 TIME(3), t4 TIME(4), ti1u TINYINT(1) UNSIGNED, ti1 TINYINT(1), siu SMALLINT UNSIGNED, mi MEDIUMINT, biu BIGINT UNSIGNED, num DECIMAL(38,0), f1 FLOAT(7,3), f24 FLOAT(20), f53 FLOAT(30), d1 DOUBLE(10,2), e ENUM('a','b,c') NOT NULL DEFAULT 'a', s SET('x','y') NOT NULL, b8 BIT(8), b2 BIT(2), v VARCHAR(10) NOT NULL DEFAULT 'q', vb VARBINARY(16), bn BINARY(4), tb TINYBLOB, lb LONGBLOB, lt LONGTEXT, y YEAR NOT NULL, `we``ird "x` INT, pt POINT NOT NULL SRID 4326, poly POLYGON, gc GEOMETRYCOLLECTION, ls LINESTRING, mp MULTIPOINT, js JSON NOT NULL, vc VECTOR(2), nc NCHAR(4), PRIMARY KEY (id,k));
func opts(t testing.TB) *event.Table {
	tab := &event.Table{Schema: "edge", Name: "opts", Key: []int{0, 1}}
	add := func(name string, typ byte, meta uint16, with func(*event.Column)) {
		c := event.Column{Name: name, Type: typ, Meta: meta, Nullable: true}
		if with != nil {
			with(&c)
		}
		tab.Columns = append(tab.Columns, c)
	}
	never := func(c *event.Column) { c.Nullable = false }
	unsigned := func(c *event.Column) { c.Unsigned = true }
	charset := func(name string) func(*event.Column) { return func(c *event.Column) { c.Charset = name } }
	add("id", codectest.TypeLongLong, 0, func(c *event.Column) { c.Unsigned, c.Nullable = true, false })
	add("k", codectest.TypeString, 12, func(c *event.Column) { c.Charset, c.Nullable = "utf8mb4", false })
	add("a", codectest.TypeLong, 0, never)
	add("b", codectest.TypeLong, 0, never)
	add("c", codectest.TypeDecimal, 10<<8|2, never)
	add("dz", codectest.TypeDate, 0, never)
	add("dtz", codectest.TypeDatetime2, 0, never)
	add("dt6z", codectest.TypeDatetime2, 6, never)
	add("tz", codectest.TypeTimestamp2, 0, never)
	add("ts3", codectest.TypeTimestamp2, 3, nil)
	add("ts6", codectest.TypeTimestamp2, 6, nil)
	add("dt1", codectest.TypeDatetime2, 1, nil)
	add("dt2", codectest.TypeDatetime2, 2, nil)
	add("dt4", codectest.TypeDatetime2, 4, nil)
	add("t1", codectest.TypeTime2, 1, nil)
	add("t3", codectest.TypeTime2, 3, nil)
	add("t4", codectest.TypeTime2, 4, nil)
	add("ti1u", codectest.TypeTiny, 0, unsigned)
	add("ti1", codectest.TypeTiny, 0, func(c *event.Column) { c.Logical = event.LogicalBool })
	add("siu", codectest.TypeShort, 0, unsigned)
	add("mi", codectest.TypeInt24, 0, nil)
	add("biu", codectest.TypeLongLong, 0, unsigned)
	add("num", codectest.TypeDecimal, 38<<8, nil)
	add("f1", codectest.TypeFloat, 4, nil)
	add("f24", codectest.TypeFloat, 4, nil)
	add("f53", codectest.TypeDouble, 8, nil)
	add("d1", codectest.TypeDouble, 8, nil)
	add("e", codectest.TypeEnum, 1, func(c *event.Column) { c.Members, c.Nullable = []string{"a", "b,c"}, false })
	add("s", codectest.TypeSet, 1, func(c *event.Column) { c.Members, c.Nullable = []string{"x", "y"}, false })
	add("b8", codectest.TypeBit, 8, nil)
	add("b2", codectest.TypeBit, 2, nil)
	add("v", codectest.TypeVarchar, 40, func(c *event.Column) { c.Charset, c.Nullable = "utf8mb4", false })
	add("vb", codectest.TypeVarchar, 16, charset("binary"))
	add("bn", codectest.TypeString, 4, charset("binary"))
	add("tb", codectest.TypeBlob, 1, charset("binary"))
	add("lb", codectest.TypeBlob, 4, charset("binary"))
	add("lt", codectest.TypeBlob, 4, charset("utf8mb4"))
	add("y", codectest.TypeYear, 0, never)
	add("we`ird \"x", codectest.TypeLong, 0, nil)
	add("pt", codectest.TypeGeometry, 4, func(c *event.Column) { c.SQLType, c.Nullable = "point", false })
	for _, name := range []string{"poly", "gc", "ls", "mp"} {
		add(name, codectest.TypeGeometry, 4, nil)
	}
	add("js", codectest.TypeJSON, 4, never)
	add("vc", codectest.TypeVector, 4, nil)
	add("nc", codectest.TypeString, 12, charset("utf8mb3"))
	return codectest.Compile(t, tab)
}

// Debezium names schemas after topics.
func TestSchemaNames(t *testing.T) {
	for in, want := range map[string]string{"p.shop.Item_2-x": "p.shop.Item_2-x", "p.a b.t$1": "p.a_b.t_1", "p.é.😀": "p._.__"} {
		if got := schemaName(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
