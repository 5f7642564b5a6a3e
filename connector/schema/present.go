package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// Logged says what a server's TABLE_MAPs tell beyond types and names, as a definition does not.
type Logged struct {
	Metadata string // binlog_row_metadata; "" where the server does not have it

	// Unique are the columns of the first unique key all of whose columns are NOT NULL and whole: the server logs it as the key of a table
	// that has no primary key.
	Unique []string
}

// Present returns the table as a [Builder] makes it of its TABLE_MAPs while the definition holds, compiled, and without columns that are
// event.Column.Hidden: as event.Table.Shown. Two things of it no definition tells, and nobody looks at them: ids of collations, but for "binary", and
// whether a temporal column still has the format from before MySQL 5.6; it is described as if it had not. o.View and o.From do not matter.
func Present(n ddl.Name, def *ddl.Table, o Options, log Logged) (*event.Table, error) {
	b := New(o)
	b.wrote = ddl.ParseVersion(o.Version)
	own := *def
	own.Columns = slices.DeleteFunc(slices.Clone(def.Columns), func(k ddl.Column) bool { return k.Hidden != "" })
	if log.Metadata == "FULL" && !slices.ContainsFunc(own.Columns, func(k ddl.Column) bool { return k.Key > 0 }) {
		for i := range own.Columns {
			own.Columns[i].Key = 1 + slices.Index(log.Unique, own.Columns[i].Name)
		}
	}
	table := &event.Table{Schema: n.Schema, Name: n.Table, Caseless: o.Caseless, Columns: make([]event.Column, len(own.Columns))}
	for i := range own.Columns {
		k, c := &own.Columns[i], &table.Columns[i]
		var ok bool
		if c.Type, c.Meta, ok = loggedAs(k, o.MariaDB); !ok {
			return nil, stop(fmt.Sprintf("column %s of table %s is of type %s, which is not known", k.Name, n, k.SQLType), skipRemedy, nil)
		}
		c.Nullable = k.Nullable
	}
	if err := b.adopt(table, &binlog.Columns{}, &own, false, hidesNone, skipRemedy); err != nil {
		return nil, err
	}
	for i := range table.Columns {
		c := &table.Columns[i]
		c.Unsigned = c.Unsigned || c.Type == event.TypeYear && (log.Metadata == "MINIMAL" || log.Metadata == "FULL")
		c.Invisible = c.Invisible && !(o.MariaDB && log.Metadata == "FULL") // of which its log says nothing
	}
	if end := endColumn(table, false); o.MariaDB && !o.AllVersions && own.Versioned && end >= 0 {
		presentRows(table, end)
	}
	if err := table.Compile(); err != nil {
		return nil, stop("the table cannot be read", skipRemedy, err)
	}
	return table, nil
}

// loggedAs returns type and metadata of a column in TABLE_MAPs, as event.NormalizeType does: what [disagree] holds the log's against.
func loggedAs(k *ddl.Column, mariaDB bool) (typ byte, meta uint16, ok bool) {
	compressed := mariaDB && strings.Contains(k.SQLType, "COMPRESSED")
	as := func(typ byte, meta uint64) (byte, uint16, bool) { return typ, uint16(meta), meta <= 1<<16-1 }
	switch k.DataType {
	case "tinyint":
		return as(event.TypeTiny, 0)
	case "smallint":
		return as(event.TypeShort, 0)
	case "mediumint":
		return as(event.TypeInt24, 0)
	case "int":
		return as(event.TypeLong, 0)
	case "bigint":
		return as(event.TypeLongLong, 0)
	case "float":
		return as(event.TypeFloat, 4)
	case "double":
		return as(event.TypeDouble, 8)
	case "decimal":
		return as(event.TypeNewDecimal, k.Precision<<8|k.Scale)
	case "year":
		return as(event.TypeYear, 0)
	case "date":
		return as(event.TypeDate, 0)
	case "time":
		return as(event.TypeTime2, k.Fraction)
	case "datetime":
		return as(event.TypeDatetime2, k.Fraction)
	case "timestamp":
		return as(event.TypeTimestamp2, k.Fraction)
	case "bit":
		return as(event.TypeBit, k.Precision)
	case "enum":
		if len(k.Members) > 255 {
			return as(event.TypeEnum, 2)
		}
		return as(event.TypeEnum, 1)
	case "set":
		if n := (len(k.Members) + 7) / 8; n <= 4 {
			return as(event.TypeSet, uint64(max(n, 1)))
		}
		return as(event.TypeSet, 8)
	case "char", "binary":
		return as(event.TypeString, k.Octets)
	case "uuid", "inet6":
		return as(event.TypeString, 16)
	case "inet4":
		return as(event.TypeString, 4)
	case "varchar", "varbinary":
		if compressed {
			return as(event.TypeVarcharCompressed, k.Octets+1) // its header byte
		}
		return as(event.TypeVarchar, k.Octets)
	case "vector":
		if !mariaDB {
			return as(event.TypeVector, 4)
		}
		digits, _, _ := strings.Cut(strings.TrimPrefix(k.SQLType, "vector("), ")")
		n, err := strconv.ParseUint(digits, 10, 16)
		typ, meta, ok := as(event.TypeVarchar, 4*n)
		return typ, meta, ok && err == nil
	case "json":
		return as(event.TypeJSON, 4)
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection":
		return as(event.TypeGeometry, 4)
	}
	size, ok := blobs[k.DataType]
	if compressed {
		return event.TypeBlobCompressed, size, ok
	}
	return event.TypeBlob, size, ok
}
