package event

import (
	"strconv"
	"strings"
)

// DerivedSQLType returns the declared type as far as the TABLE_MAP tells it,
// in information_schema's words: "varchar(20)", "int unsigned",
// "decimal(12,2)", "datetime(3)", "enum('a','b')". What the log does not know
// is left out: display widths, zerofill, the (M,D) of FLOAT and DOUBLE, the
// kind of a geometry. Where a character set's greatest width is unknown,
// lengths count bytes. It returns "" for an unknown type.
func DerivedSQLType(c *Column) string {
	switch c.Logical {
	case LogicalBool:
		return c.number("tinyint(1)")
	case LogicalUUID, LogicalINET4, LogicalINET6:
		return c.Logical.String()
	}
	binary := c.Charset == "binary" || c.Charset == "" && c.Collation == 63
	length := func(text, bin string, bytes int) string {
		if binary {
			return bin + "(" + strconv.Itoa(bytes) + ")"
		}
		if cs := charsetByName(c.Charset); cs != nil {
			bytes /= cs.max
		}
		return text + "(" + strconv.Itoa(bytes) + ")"
	}
	switch c.Type {
	case typeTiny:
		return c.number("tinyint")
	case typeShort:
		return c.number("smallint")
	case typeInt24:
		return c.number("mediumint")
	case typeLong:
		return c.number("int")
	case typeLongLong:
		return c.number("bigint")
	case typeFloat:
		return c.number("float")
	case typeDouble:
		return c.number("double")
	case typeNewDecimal:
		return c.number("decimal(" + strconv.Itoa(int(c.Meta>>8)) + "," + strconv.Itoa(int(c.Meta&0xff)) + ")")
	case typeBit:
		return "bit(" + strconv.Itoa(int(c.Meta)) + ")"
	case typeYear:
		return "year"
	case typeDate, typeNewDate:
		return "date"
	case typeTime, typeTime2:
		return c.fraction("time")
	case typeDatetime, typeDatetime2:
		return c.fraction("datetime")
	case typeTimestamp, typeTimestamp2:
		return c.fraction("timestamp")
	case typeString:
		return length("char", "binary", int(c.Meta))
	case typeVarchar:
		return length("varchar", "varbinary", int(c.Meta))
	case typeVarcharCompressed:
		return length("varchar", "varbinary", max(int(c.Meta)-1, 0))
	case typeBlob, typeBlobCompressed:
		if c.Meta < 1 || c.Meta > 4 {
			return ""
		}
		size := [...]string{"tiny", "", "medium", "long"}[c.Meta-1]
		if binary {
			return size + "blob"
		}
		return size + "text"
	case typeEnum:
		return members("enum", c.Members)
	case typeSet:
		return members("set", c.Members)
	case typeJSON:
		return "json"
	case typeGeometry:
		return "geometry"
	case typeVector:
		return "vector"
	}
	return ""
}

func (c *Column) number(name string) string {
	if c.Unsigned {
		return name + " unsigned"
	}
	return name
}

func (c *Column) fraction(name string) string {
	digits := int(c.Meta)
	if c.Type == typeTime || c.Type == typeDatetime || c.Type == typeTimestamp {
		digits = int(c.fsp)
	}
	if digits == 0 {
		return name
	}
	return name + "(" + strconv.Itoa(digits) + ")"
}

func members(name string, labels []string) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('(')
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(l, "'", "''"))
		b.WriteByte('\'')
	}
	b.WriteByte(')')
	return b.String()
}
