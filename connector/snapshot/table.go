package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
)

// Definition returns the table that events of the stream refer to while the definition holds, see [schema.Present]. n must be spelt
// as the source spells it, and the definition be information_schema's.
func Definition(n ddl.Name, def *ddl.Table, o schema.Options, log schema.Logged) (*event.Table, error) {
	return schema.Present(n, def, o, log)
}

// SameKey tells whether rows of both tables are identified by the same columns, so that what [AppendIdentity] says of them can be compared.
func SameKey(a, b *event.Table) bool {
	return slices.EqualFunc(a.Key, b.Key, func(i, j int) bool { return strings.EqualFold(a.Columns[i].Name, b.Columns[j].Name) })
}

// Session is the statement that prepares the session in which a [Reader]'s expressions are selected: text in the column's own bytes, TIMESTAMP in UTC, dates that
// are none compared as they are, and sorting, where the key has parts of columns and so is no order that an index has, by all of a column that can be in a key.
const Session = "SET SESSION character_set_results=NULL, time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES', max_sort_length=32768, sort_buffer_size=16777216"

// A Reader turns what the source shows of a table into row images, and keys into conditions, in a session prepared with [Session].
// It is safe for concurrent use.
type Reader struct {
	table   *event.Table
	def     *ddl.Table
	columns []column
	nulls   int // bytes of an image's NULL bitmap
}

// column is how one column is read.
type column struct {
	*event.Column
	form   form
	sql    string // what is selected
	prefix int    // bytes of a length in front of a value; 0: none

	unordered bool // the server does not compare values in the order in which it sorts them
	bytes     bool // text is compared and sorted by its bytes
}

// form says what the text of a selected expression is.
type form uint8

const (
	formBytes      form = iota // the value's own bytes
	formInteger                // a decimal number
	formFloat                  // a number of floating point
	formDecimal                // a number with all its fraction digits
	formTemporal               // a date or time
	formJSON                   // text of MySQL's JSON
	formCompressed             // the bytes that MariaDB's COMPRESSED packs
	formTrimmed                // bytes whose zeros at the end are padding
	formUUID                   // MariaDB's
	formINET                   // MariaDB's INET4 and INET6
	formNull                   // NULL, since the log shows no more
)

// NewReader returns a Reader of a table that [Definition] has returned for def.
func NewReader(t *event.Table, def *ddl.Table) (*Reader, error) {
	r := &Reader{table: t, def: def, columns: make([]column, len(t.Columns)), nulls: (len(t.Columns) + 7) / 8}
	for i := range t.Columns {
		c := &r.columns[i]
		c.Column = &t.Columns[i]
		k := slices.IndexFunc(def.Columns, func(k ddl.Column) bool { return k.Name == c.Name && k.Hidden == "" })
		if k < 0 {
			return nil, fmt.Errorf("table %s.%s: column %q is not in the definition", t.Schema, t.Name, c.Name)
		}
		if err := c.plan(&def.Columns[k]); err != nil {
			return nil, fmt.Errorf("table %s.%s: column %q (%s): %w", t.Schema, t.Name, c.Name, c.SQLType, err)
		}
	}
	return r, nil
}

// plan chooses what is selected.
func (c *column) plan(k *ddl.Column) error {
	name := Quote(c.Name)
	c.sql = name
	switch c.Type {
	case event.TypeTiny, event.TypeShort, event.TypeInt24, event.TypeLong, event.TypeLongLong:
		c.form = formInteger
	case event.TypeYear:
		c.form = formInteger
		if strings.HasPrefix(k.SQLType, "year(2)") {
			c.sql = "YEAR(" + name + ")" // by itself it shows two digits
		}
	case event.TypeEnum, event.TypeSet:
		c.form, c.sql = formInteger, "("+name+"|0)" // its number, as 64 bits without sign
	case event.TypeFloat, event.TypeDouble:
		c.form, c.sql = formFloat, name+"*1e0" // all digits, where a declared width or FLOAT would round
	case event.TypeNewDecimal:
		c.form = formDecimal
	case event.TypeDate, event.TypeTime2, event.TypeDatetime2, event.TypeTimestamp2:
		c.form = formTemporal
		// Of its TIME from before mysql56_temporal_format MariaDB misses values of five digits that are less than zero.
		c.unordered = c.Type == event.TypeTime2 && c.Meta > 0 && strings.Contains(k.SQLType, "/* mariadb-5.3 */")
	case event.TypeJSON:
		c.form = formJSON
	case event.TypeVarcharCompressed, event.TypeBlobCompressed:
		c.form = formCompressed
	case event.TypeString:
		switch {
		case k.DataType == "uuid":
			c.form = formUUID
		case k.DataType == "inet4", k.DataType == "inet6":
			c.form = formINET
		case k.DataType == "binary":
			c.form = formTrimmed
		}
	}
	switch c.Type {
	case event.TypeString, event.TypeVarchar, event.TypeVarcharCompressed:
		if c.prefix = 1; c.Meta > 255 {
			c.prefix = 2
		}
	case event.TypeBlob, event.TypeBlobCompressed, event.TypeGeometry, event.TypeJSON, event.TypeVector:
		c.prefix = int(c.Meta)
	}
	if c.Virtual == event.VirtualNull {
		c.form, c.sql = formNull, "NULL"
	}
	return nil
}

// Table returns the table of the row images.
func (r *Reader) Table() *event.Table { return r.table }

// ByBytes says which columns of the key the server would sort, as no index has the order: by some collations it sorts text otherwise than it compares it, so text
// of these is compared and sorted by its bytes. It returns those that are text, and is to be called before others use the Reader.
func (r *Reader) ByBytes(columns []string) (text []string) {
	for i := range r.columns {
		c := &r.columns[i]
		// I3: an ENUM and a SET have a character set, too, but are read, sorted and compared as numbers.
		c.bytes = c.form == formBytes && c.Charset != "" && c.Charset != "binary" && slices.Contains(columns, c.Name)
		if c.bytes {
			text = append(text, c.Name)
		}
	}
	return text
}

// Select returns what is to be selected, an expression for each column.
func (r *Reader) Select() []string {
	out := make([]string, len(r.columns))
	for i := range r.columns {
		out[i] = r.columns[i].sql
	}
	return out
}

// From returns what stands behind FROM.
func (r *Reader) From() string {
	from := Quote(r.table.Schema) + "." + Quote(r.table.Name)
	if r.def.Versioned && r.table.RowEnd == 0 {
		from += " FOR SYSTEM_TIME ALL" // its rows are shown as they are stored
	}
	return from
}

// Quote returns a name as it is written in statements.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
