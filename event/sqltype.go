package event

import (
	"strconv"
	"strings"
)

// derivedSQLType returns the declared type as far as the TABLE_MAP tells it,
// in information_schema's words: "varchar(20)", "int unsigned",
// "decimal(12,2)", "datetime(3)", "enum('a','b')". What the log does not know
// is left out: display widths, zerofill, the (M,D) of FLOAT and DOUBLE, the
// kind of a geometry. Where a character set's greatest width is unknown,
// lengths count bytes. It returns "" for an unknown type.
func derivedSQLType(c *Column) string {
	switch c.Logical {
	case LogicalBool:
		return c.number("tinyint(1)")
	case LogicalUUID, LogicalINET4, LogicalINET6:
		return c.Logical.String()
	case LogicalVector:
		return "vector(" + strconv.Itoa(int(c.Meta)/4) + ")"
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
	case TypeTiny:
		return c.number("tinyint")
	case TypeShort:
		return c.number("smallint")
	case TypeInt24:
		return c.number("mediumint")
	case TypeLong:
		return c.number("int")
	case TypeLongLong:
		return c.number("bigint")
	case TypeFloat:
		return c.number("float")
	case TypeDouble:
		return c.number("double")
	case TypeNewDecimal:
		return c.number("decimal(" + strconv.Itoa(int(c.Meta>>8)) + "," + strconv.Itoa(int(c.Meta&0xff)) + ")")
	case TypeBit:
		return "bit(" + strconv.Itoa(int(c.Meta)) + ")"
	case TypeYear:
		return "year"
	case TypeDate, TypeNewDate:
		return "date"
	case TypeTime, TypeTime2:
		return c.fraction("time")
	case TypeDatetime, TypeDatetime2:
		return c.fraction("datetime")
	case TypeTimestamp, TypeTimestamp2:
		return c.fraction("timestamp")
	case TypeString:
		return length("char", "binary", int(c.Meta))
	case TypeVarchar:
		return length("varchar", "varbinary", int(c.Meta))
	case TypeVarcharCompressed:
		return length("varchar", "varbinary", max(int(c.Meta)-1, 0))
	case TypeBlob, TypeBlobCompressed:
		if c.Meta < 1 || c.Meta > 4 {
			return ""
		}
		size := [...]string{"tiny", "", "medium", "long"}[c.Meta-1]
		if binary {
			return size + "blob"
		}
		return size + "text"
	case TypeEnum:
		return members("enum", c.Members)
	case TypeSet:
		return members("set", c.Members)
	case TypeJSON:
		return "json"
	case TypeGeometry:
		return "geometry"
	case TypeVector:
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
	if c.Type == TypeTime || c.Type == TypeDatetime || c.Type == TypeTimestamp {
		digits = int(c.fsp)
	}
	if digits == 0 {
		return name
	}
	return name + "(" + strconv.Itoa(digits) + ")"
}

// memberEscape writes labels as the servers' COLUMN_TYPE does.
var memberEscape = strings.NewReplacer("'", "''", `\`, `\\`, "\x00", `\0`, "\n", `\n`, "\r", `\r`)

func members(name string, labels []string) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('(')
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\'')
		b.WriteString(memberEscape.Replace(l))
		b.WriteByte('\'')
	}
	b.WriteByte(')')
	return b.String()
}
