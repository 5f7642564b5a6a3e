package debezium

import (
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/event"
)

// appendDefinition appends a table as Debezium's schema changes have it. What a definition does not know is null, which the schema allows.
func appendDefinition(dst []byte, d *event.Definition) []byte {
	dst = append(dst, `{"defaultCharsetName":`...)
	dst = quotedOrNull(dst, d.Charset)
	dst = append(dst, `,"primaryKeyColumnNames":[`...)
	for i, name := range d.PrimaryKey() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quoted(dst, name)
	}
	dst = append(dst, `],"columns":[`...)
	for i := range d.Columns {
		c := &d.Columns[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		name, length, scale := typeOf(c)
		dst = quoted(append(dst, `{"name":`...), c.Name)
		dst = strconv.AppendInt(append(dst, `,"jdbcType":`...), int64(jdbcType(c.Type)), 10)
		dst = quoted(append(dst, `,"nativeType":null,"typeName":`...), name)
		dst = quoted(append(dst, `,"typeExpression":`...), name)
		charset := c.Charset
		if charset == "binary" {
			charset = ""
		}
		dst = quotedOrNull(append(dst, `,"charsetName":`...), charset)
		dst = numberOrNull(append(dst, `,"length":`...), length)
		dst = numberOrNull(append(dst, `,"scale":`...), scale)
		dst = strconv.AppendInt(append(dst, `,"position":`...), int64(i+1), 10)
		dst = append(dst, `,"optional":`...)
		if c.Unsure {
			dst = append(dst, "null"...)
		} else {
			dst = strconv.AppendBool(dst, c.Nullable)
		}
		dst = append(dst, `,"autoIncremented":null,"generated":null,"comment":null,"defaultValueExpression":null,"enumValues":`...)
		if c.Members == nil {
			dst = append(dst, "null}"...)
			continue
		}
		dst = append(dst, '[')
		for j, m := range c.Members {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = quoted(dst, "'"+strings.ReplaceAll(m, "'", "''")+"'")
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"comment":null}`...)
}

func quotedOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return quoted(dst, s)
}

// numberOrNull appends n, below 0 null.
func numberOrNull(dst []byte, n int) []byte {
	if n < 0 {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

// typeOf returns Debezium's name of a column's type, its length and its scale; below 0: it has none.
func typeOf(c *event.DefinedColumn) (name string, length, scale int) {
	length, scale = -1, -1
	name = c.Type
	for _, word := range []string{"unsigned", "zerofill"} {
		if strings.Contains(c.SQLType, " "+word) {
			name += " " + word
		}
	}
	name = strings.ToUpper(name)
	switch c.Type {
	case "enum":
		return name, 1, scale
	case "set":
		return name, max(2*len(c.Members)-1, 0), scale
	}
	if _, rest, ok := strings.Cut(c.SQLType, "("); ok {
		numbers, _, _ := strings.Cut(rest, ")")
		first, second, two := strings.Cut(numbers, ",")
		if n, err := strconv.Atoi(first); err == nil {
			length = n
		}
		if n, err := strconv.Atoi(second); two && err == nil {
			scale = n
		}
	}
	switch c.Type {
	case "tinyint":
		if length != 1 { // older servers show a width where none was given
			length = -1
		}
	case "smallint", "mediumint", "int", "bigint", "year":
		length = -1
	}
	return name, length, scale
}

// jdbcType is the number of java.sql.Types that Debezium gives to a type.
func jdbcType(t string) int {
	switch t {
	case "tinyint", "smallint":
		return 5
	case "mediumint", "int", "year":
		return 4
	case "bigint":
		return -5
	case "float":
		return 6
	case "double":
		return 8
	case "decimal":
		return 3
	case "bit":
		return -7
	case "date":
		return 91
	case "time":
		return 92
	case "datetime":
		return 93
	case "timestamp":
		return 2014
	case "char", "enum", "set":
		return 1
	case "varchar", "tinytext", "text", "mediumtext", "longtext":
		return 12
	case "binary":
		return -2
	case "varbinary":
		return -3
	case "tinyblob", "blob", "mediumblob", "longblob":
		return 2004
	}
	return 1111 // JSON, VECTOR, geometries and what else has no type of its own
}
