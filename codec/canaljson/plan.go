package canaljson

import (
	"strconv"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// How a value becomes the inside of a JSON string.
type encoding uint8

const (
	plain  encoding = iota // text that never needs escaping: numbers, dates, UUIDs
	utf8                   // the raw bytes are text in UTF-8
	text                   // text that may need escaping
	number                 // ENUM index, SET mask
	raw                    // byte string whose raw bytes are its content
	padded                 // byte string whose content has to be completed first
)

type column struct {
	name     []byte // `,"name":`
	encoding encoding
}

// plan is what is the same for all rows of a table.
type plan struct {
	columns  []column
	database []byte // from the end of data to the value of es
	types    []byte // from the end of id to the value of old
	table    []byte // from the end of old to the value of ts
	noKey    []byte // the message key of a table without one
}

// MySQL's type codes, as the TABLE_MAP has them.
const (
	typeTiny       = 1
	typeShort      = 2
	typeInt24      = 9
	typeLong       = 3
	typeLongLong   = 8
	typeVarchar    = 15
	typePackedBlob = 140 // MariaDB's COMPRESSED columns
	typePackedChar = 141
)

// The constants of java.sql.Types that Canal writes as sqlType.
const (
	javaBit       = -7
	javaTinyint   = -6
	javaBigint    = -5
	javaChar      = 1
	javaDecimal   = 3
	javaInteger   = 4
	javaSmallint  = 5
	javaReal      = 7
	javaDouble    = 8
	javaVarchar   = 12
	javaDate      = 91
	javaTime      = 92
	javaTimestamp = 93
	javaBlob      = 2004
	javaClob      = 2005
)

func (c *Codec) plan(t *event.Table) (*plan, int) {
	p := &plan{columns: make([]column, len(t.Columns))}
	weight := 0
	str := func(dst []byte, s string) []byte { return jsontext.AppendString(dst, []byte(s)) }

	p.database = append(p.database, `}],"database":`...)
	p.database = append(str(p.database, t.Schema), `,"es":`...)

	p.types = append(p.types, `,"isDdl":false,"mysqlType":{`...)
	var sqlTypes []byte
	for i := range t.Columns {
		col := &t.Columns[i]
		name := append(str([]byte{','}, col.Name), ':')
		p.columns[i] = column{name: name, encoding: c.encoding(col)}
		weight += 40 + len(name)
		if i == 0 {
			name = name[1:]
		}
		p.types = str(append(p.types, name...), col.SQLType)
		sqlTypes = strconv.AppendInt(append(sqlTypes, name...), int64(c.sqlType(col)), 10)
	}
	p.types = append(p.types, `},"old":`...)

	p.table = append(p.table, `,"pkNames":`...)
	if len(t.Key) == 0 {
		p.table = append(p.table, "null"...)
	} else {
		for i, k := range t.Key {
			p.table = append(p.table, "[,"[min(i, 1)])
			p.table = str(p.table, t.Columns[k].Name)
		}
		p.table = append(p.table, ']')
	}
	p.table = append(p.table, `,"sql":"","sqlType":{`...)
	p.table = append(p.table, sqlTypes...)
	p.table = append(p.table, `},"table":`...)
	p.table = append(str(p.table, t.Name), `,"ts":`...)

	p.noKey = append(append(append(p.noKey, t.Schema...), '.'), t.Name...)
	return p, weight + len(p.database) + len(p.types) + len(p.table) + len(p.noKey)
}

func (c *Codec) encoding(col *event.Column) encoding {
	switch col.Class {
	case event.ClassChar, event.ClassText:
		switch col.Charset {
		case "utf8mb4", "utf8mb3", "utf8", "ascii":
			if col.Type != typePackedBlob && col.Type != typePackedChar {
				return utf8
			}
		}
		return text
	case event.ClassJSON:
		return text
	case event.ClassEnum, event.ClassSet:
		if c.labels {
			return text
		}
		return number
	case event.ClassBinary:
		return padded
	case event.ClassVarbinary, event.ClassBlob:
		if col.Type == typePackedBlob || col.Type == typePackedChar {
			return padded
		}
		return raw
	case event.ClassGeometry:
		return raw
	}
	return plain
}

// sqlType is Canal's java.sql.Types number of the column's declaration. Canal
// widens unsigned columns value by value; here the wider type always stands
// for them, so that the type of a column does not change from row to row.
func (c *Codec) sqlType(col *event.Column) int {
	switch col.Class {
	case event.ClassInt:
		switch col.Type {
		case typeTiny:
			return javaTinyint
		case typeShort:
			return javaSmallint
		case typeLongLong:
			return javaBigint
		}
		return javaInteger
	case event.ClassUint:
		switch col.Type {
		case typeTiny:
			return javaSmallint
		case typeShort, typeInt24:
			return javaInteger
		case typeLong:
			return javaBigint
		}
		return javaDecimal
	case event.ClassFloat:
		return javaReal
	case event.ClassDouble:
		return javaDouble
	case event.ClassDecimal:
		return javaDecimal
	case event.ClassBit:
		return javaBit
	case event.ClassYear, event.ClassJSON, event.ClassVector:
		return javaVarchar
	case event.ClassDate:
		return javaDate
	case event.ClassTime:
		return javaTime
	case event.ClassDatetime, event.ClassTimestamp:
		return javaTimestamp
	case event.ClassChar:
		if col.Type == typeVarchar || col.Type == typePackedChar {
			return javaVarchar
		}
		return javaChar
	case event.ClassText:
		return javaClob
	case event.ClassEnum:
		if c.labels {
			return javaVarchar
		}
		return javaInteger
	case event.ClassSet:
		if c.labels {
			return javaVarchar
		}
		return javaBit
	case event.ClassUUID, event.ClassINET4, event.ClassINET6:
		return javaChar
	}
	return javaBlob
}
