package event

import (
	"fmt"
	"strings"
)

// imagePlan is what [Table.Compile] prepares for walking row images.
type imagePlan struct {
	widths []int32 // one a column, as Column.width
	runs   []run   // a full image without NULLs, for walking past it
	jsons  int     // number of JSON columns

	virtual []int // the columns that are Virtual
}

// A run is a number of bytes to skip and then, unless prefix is 0, a value
// behind a length of prefix bytes.
type run struct {
	fixed  int
	prefix int
}

// Compile classifies the columns, fills Class and, where empty, SQLType, and
// plans the decoding of row images. It must succeed before a [Scanner] or
// [CountRows] sees the table; after that the table is immutable.
//
// Type and Meta of each column must be what [NormalizeType] returned for the
// column's TABLE_MAP type and metadata. Of the other fields Compile needs
//
//   - Unsigned for all numbers;
//   - Charset for CHAR, VARCHAR and TEXT columns and their binary twins:
//     MySQL's name of the character set, or "binary"; Collation 63 alone is
//     understood as "binary". An empty or unknown name is an error, since text
//     must not be guessed (I6). ENUM and SET may leave it empty: their Members are UTF-8;
//   - Members for ENUM and SET; without them only the index or mask can be had;
//   - SQLType, but only for temporals from before MySQL 5.6 and MariaDB's
//     mysql56_temporal_format (types 7, 11 and 12): "datetime", "time(3)" or the
//     like, since the log does not tell how many digits, and so bytes, MariaDB's have;
//   - Logical for MariaDB's UUID, INET4 and INET6 columns, which the log shows as BINARY, and its VECTOR, which it shows as VARBINARY.
//
// An error names schema, table, column and type code.
func (t *Table) Compile() error {
	n := len(t.Columns)
	plan := imagePlan{widths: make([]int32, n)}
	var cur run
	for i := range t.Columns {
		c := &t.Columns[i]
		if err := c.compile(); err != nil {
			return fmt.Errorf("table %s.%s: column %d %q: type code %d: %w", t.Schema, t.Name, i+1, c.Name, c.Type, err)
		}
		plan.widths[i] = c.width
		if c.Virtual != VirtualNone {
			plan.virtual = append(plan.virtual, i)
		}
		if c.Type == TypeJSON {
			plan.jsons++
		}
		if c.width >= 0 {
			cur.fixed += int(c.width)
			continue
		}
		cur.prefix = int(-c.width)
		plan.runs = append(plan.runs, cur)
		cur = run{}
	}
	if cur.fixed > 0 {
		plan.runs = append(plan.runs, cur)
	}
	for _, k := range t.Key {
		if k < 0 || k >= n {
			return fmt.Errorf("table %s.%s: key names column %d of %d", t.Schema, t.Name, k+1, n)
		}
	}
	if t.RowEnd < 0 || t.RowEnd > n || t.RowEnd > 0 && (t.Columns[t.RowEnd-1].Class != ClassTimestamp || t.Columns[t.RowEnd-1].width != 7) {
		return fmt.Errorf("table %s.%s: the end of a row's time is no TIMESTAMP(6)", t.Schema, t.Name)
	}
	t.image = plan
	if t.shown = t.withoutHidden(); t.shown != nil {
		return t.shown.Compile()
	}
	return nil
}

// compile sets Class, width, charset and SQLType. A width below zero stands
// for a value behind a length of -width bytes.
func (c *Column) compile() error {
	c.set = nil
	fixed := func(class Class, width int) {
		c.Class, c.width = class, int32(width)
	}
	integer := func(width int) {
		if fixed(ClassInt, width); c.Unsigned {
			c.Class = ClassUint
		}
	}
	switch c.Type {
	case TypeTiny:
		integer(1)
	case TypeShort:
		integer(2)
	case TypeInt24:
		integer(3)
	case TypeLong:
		integer(4)
	case TypeLongLong:
		integer(8)
	case TypeFloat:
		fixed(ClassFloat, 4)
	case TypeDouble:
		fixed(ClassDouble, 8)
	case TypeNewDecimal:
		p, s := int(c.Meta>>8), int(c.Meta&0xff)
		if p < 1 || p > 65 || s > 38 || s > p {
			return fmt.Errorf("impossible DECIMAL(%d,%d)", p, s)
		}
		fixed(ClassDecimal, decimalSize(p, s))
	case TypeBit:
		if c.Meta < 1 || c.Meta > 64 {
			return fmt.Errorf("impossible BIT(%d)", c.Meta)
		}
		fixed(ClassBit, int(c.Meta+7)/8)
	case TypeYear:
		fixed(ClassYear, 1)
	case TypeDate, TypeNewDate:
		fixed(ClassDate, 3)
	case TypeTime2, TypeDatetime2, TypeTimestamp2:
		if c.Meta > 6 {
			return fmt.Errorf("impossible number of fraction digits %d", c.Meta)
		}
		w := (int(c.Meta) + 1) / 2
		switch c.Type {
		case TypeTime2:
			fixed(ClassTime, 3+w)
		case TypeDatetime2:
			fixed(ClassDatetime, 5+w)
		default:
			fixed(ClassTimestamp, 4+w)
		}
	case TypeTime, TypeDatetime, TypeTimestamp:
		fsp, err := declaredFraction(c.SQLType)
		if err != nil {
			return err
		}
		c.fsp = uint8(fsp)
		switch c.Type {
		case TypeTime:
			fixed(ClassTime, int(oldTimeBytes[fsp]))
		case TypeDatetime:
			fixed(ClassDatetime, int(oldDatetimeBytes[fsp]))
		default:
			fixed(ClassTimestamp, 4+(fsp+1)/2)
		}
	case TypeEnum:
		if c.Meta != 1 && c.Meta != 2 {
			return fmt.Errorf("impossible size %d of an ENUM", c.Meta)
		}
		fixed(ClassEnum, int(c.Meta))
	case TypeSet:
		if c.Meta < 1 || c.Meta > 8 {
			return fmt.Errorf("impossible size %d of a SET", c.Meta)
		}
		fixed(ClassSet, int(c.Meta))
	case TypeString, TypeVarchar, TypeVarcharCompressed:
		prefix := -1
		if c.Meta > 255 {
			prefix = -2
		}
		if c.Type == TypeString {
			if err := c.character(ClassChar, ClassBinary, prefix); err != nil {
				return err
			}
			return c.logical()
		}
		if c.Type == TypeVarcharCompressed {
			c.compressed = true
		}
		if err := c.character(ClassChar, ClassVarbinary, prefix); err != nil {
			return err
		}
	case TypeBlob, TypeBlobCompressed, TypeGeometry, TypeJSON, TypeVector:
		if c.Meta < 1 || c.Meta > 4 {
			return fmt.Errorf("impossible length prefix of %d bytes", c.Meta)
		}
		prefix := -int(c.Meta)
		switch c.Type {
		case TypeGeometry:
			fixed(ClassGeometry, prefix)
		case TypeJSON:
			fixed(ClassJSON, prefix)
		case TypeVector:
			fixed(ClassVector, prefix)
		default:
			c.compressed = c.Type == TypeBlobCompressed
			if err := c.character(ClassText, ClassBlob, prefix); err != nil {
				return err
			}
		}
	case TypeDecimal:
		return fmt.Errorf("DECIMAL of MySQL 4 is not supported; rebuild the table with ALTER TABLE ... FORCE")
	default:
		return fmt.Errorf("unknown column type")
	}
	return c.logical()
}

// character chooses between the text and the byte-string class and looks the
// character set up.
func (c *Column) character(text, bin Class, width int) error {
	c.width = int32(width)
	if c.Charset == "binary" || c.Charset == "" && c.Collation == 63 {
		c.Class = bin
		return nil
	}
	c.Class = text
	if c.Charset == "" {
		return fmt.Errorf("character set unknown: set binlog_row_metadata=FULL on the server, or have the schema read from information_schema")
	}
	if c.set = charsetByName(c.Charset); c.set == nil {
		return fmt.Errorf("character set %q (collation %d) is not supported", c.Charset, c.Collation)
	}
	return nil
}

// logical applies Logical, which overrules the storage type, and derives SQLType.
func (c *Column) logical() error {
	var class Class
	var size uint16
	switch c.Logical {
	case LogicalUUID:
		class, size = ClassUUID, 16
	case LogicalINET4:
		class, size = ClassINET4, 4
	case LogicalINET6:
		class, size = ClassINET6, 16
	}
	if c.Logical == LogicalVector {
		if c.Class != ClassVarbinary || c.compressed || c.Meta%4 != 0 {
			return fmt.Errorf("information_schema says vector, but the log shows type %d of %d bytes: the table was altered since", c.Type, c.Meta)
		}
		c.Class = ClassVector
	}
	if size > 0 {
		if c.Type != TypeString || c.Meta != size {
			return fmt.Errorf("information_schema says %s, but the log shows type %d of %d bytes: the table was altered since", c.Logical, c.Type, c.Meta)
		}
		c.Class = class
	}
	if c.SQLType == "" {
		c.SQLType = derivedSQLType(c)
	}
	return nil
}

// String returns the type's SQL name, or "" for LogicalNone.
func (l Logical) String() string {
	switch l {
	case LogicalBool:
		return "boolean"
	case LogicalJSON:
		return "json"
	case LogicalUUID:
		return "uuid"
	case LogicalINET4:
		return "inet4"
	case LogicalINET6:
		return "inet6"
	case LogicalVector:
		return "vector"
	}
	return ""
}

// declaredFraction returns n of a declared type like "datetime(n)", 0 without
// parentheses; what follows does not matter.
func declaredFraction(sqlType string) (int, error) {
	if sqlType == "" {
		// I6: without it the width of the value is a guess.
		return 0, fmt.Errorf("fraction digits of the old temporal format unknown: have the schema read from information_schema, or rebuild the table with ALTER TABLE ... FORCE")
	}
	i := strings.IndexByte(sqlType, '(')
	if i < 0 {
		return 0, nil
	}
	s := sqlType[i:]
	if len(s) < 3 || s[1] < '0' || s[1] > '6' || s[2] != ')' {
		return 0, fmt.Errorf("cannot read the fraction digits of %q", sqlType)
	}
	return int(s[1] - '0'), nil
}
