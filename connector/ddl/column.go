package ddl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/event"
)

// definition is a column as a statement gives it.
type definition struct {
	Column
	primary  bool
	unique   bool
	rowStart bool // MariaDB: AS ROW START
	versions bool // MariaDB: WITH SYSTEM VERSIONING, which one column needs for the table to be so
	first    bool
	after    string // name of the column before it
	text     bool   // has a character set
	chars    uint64 // length in characters
	fixed    bool   // the character set was given
}

// reader reads definitions under the defaults that hold.
type reader struct {
	p       parser
	srv     Server
	mode    uint64
	charset string // the table's default; "" when not known

	connection string // what texts were converted to; "" when not known
}

// Integer types: name, default display width signed and unsigned.
var integers = map[string]struct {
	name             string
	signed, unsigned int
}{
	"TINYINT": {"tinyint", 4, 3}, "INT1": {"tinyint", 4, 3}, "SMALLINT": {"smallint", 6, 5}, "INT2": {"smallint", 6, 5},
	"MEDIUMINT": {"mediumint", 9, 8}, "INT3": {"mediumint", 9, 8}, "MIDDLEINT": {"mediumint", 9, 8},
	"INT": {"int", 11, 10}, "INTEGER": {"int", 11, 10}, "INT4": {"int", 11, 10}, "BIGINT": {"bigint", 20, 20}, "INT8": {"bigint", 20, 20},
}

var geometries = []string{"GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION"}

// Sizes of the text types, in bytes.
var textSizes = []struct {
	limit uint64
	name  string
}{{255, "tiny"}, {65535, ""}, {1<<24 - 1, "medium"}, {1<<32 - 1, "long"}}

// definition reads a column's name, type and attributes, up to the end of the tokens.
func (r *reader) definition() (definition, bool) {
	var d definition
	var ok bool
	if d.Name, ok = r.p.column(); !ok {
		return d, false
	}
	d.Nullable = true
	if !r.dataType(&d) || !r.attributes(&d) || !r.p.done() {
		return d, false
	}
	if d.primary {
		d.Nullable, d.AsLogged = false, false
	}
	return d, !d.text || r.finish(&d)
}

// numbers consumes (n) or (n,m).
func (r *reader) numbers() (n, m uint64, given int, ok bool) {
	inner, there := r.p.parens()
	if !there {
		return 0, 0, 0, r.p.at(0).s != "(" || r.p.at(0).kind != sign
	}
	for i, part := range clauses(inner) {
		if len(part) != 1 || part[0].kind != word || i > 1 {
			return 0, 0, 0, false
		}
		v, err := strconv.ParseUint(part[0].s, 10, 33)
		if err != nil {
			return 0, 0, 0, false
		}
		if i == 0 {
			n = v
		} else {
			m = v
		}
		given++
	}
	return n, m, given, true
}

// dataType reads the type and what may stand right behind it.
func (r *reader) dataType(d *definition) bool {
	p := &r.p
	t := p.next()
	if t.kind != word {
		return false
	}
	name := strings.ToUpper(t.s)
	if r.mode&modeOracle != 0 && r.srv.MariaDB {
		if r.srv.Version < 100300 {
			return false
		}
		name = r.oracle(name)
	}
	plain := func(name string) bool {
		d.DataType, d.SQLType = name, name
		return true
	}
	switch name {
	case "BOOL", "BOOLEAN":
		d.DataType, d.SQLType = "tinyint", "tinyint(1)"
		return true
	case "SERIAL":
		d.DataType, d.SQLType, d.Nullable = "bigint", r.integer("BIGINT", 0, 0, true, false), false
		return true
	case "DATE":
		return plain("date")
	case "JSON":
		if !r.srv.MariaDB {
			return plain("json")
		}
		d.JSON, d.Charset = r.srv.Version >= 100403, "utf8mb4" // before, it is no more than another word
		return plain("longtext")
	case "UUID", "INET4", "INET6":
		return plain(strings.ToLower(name))
	case "YEAR":
		n, _, given, ok := r.numbers()
		if plain("year"); r.srv.widths() {
			if given == 0 || n != 2 || !r.srv.MariaDB { // MySQL makes YEAR(4) of YEAR(2) since 5.6.6
				n = 4
			}
			d.SQLType = fmt.Sprintf("year(%d)", n)
		}
		r.signs()
		return ok
	case "TIME", "DATETIME", "TIMESTAMP":
		n, _, given, ok := r.numbers()
		if name == "TIMESTAMP" && r.mode&modeMaxDB != 0 && (r.srv.MariaDB || r.srv.Version < 80000) {
			name = "DATETIME"
		}
		plain(strings.ToLower(name))
		if d.Fraction = n; given > 0 && n > 0 {
			d.SQLType = fmt.Sprintf("%s(%d)", d.DataType, n)
		}
		d.AsLogged = name == "TIMESTAMP"
		return ok
	case "BIT":
		n, _, given, ok := r.numbers()
		if given == 0 {
			n = 1
		}
		d.DataType, d.SQLType, d.Precision = "bit", fmt.Sprintf("bit(%d)", n), n
		return ok
	case "VECTOR":
		n, _, given, ok := r.numbers()
		if given == 0 {
			n = 2048
		}
		d.DataType, d.SQLType = "vector", fmt.Sprintf("vector(%d)", n)
		return ok
	case "DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER":
		n, m, given, ok := r.numbers()
		if given == 0 || n == 0 {
			n = 10
		}
		unsigned, zerofill := r.signs()
		d.DataType, d.Precision, d.Scale = "decimal", n, m
		d.SQLType = fmt.Sprintf("decimal(%d,%d)", n, m) + suffix(unsigned, zerofill)
		return ok && name != "NUMBER"
	case "FLOAT", "FLOAT4", "DOUBLE", "FLOAT8", "REAL":
		return r.float(d, name)
	case "ENUM", "SET":
		return r.members(d, strings.ToLower(name))
	case "LONG":
		if p.word("VARBINARY") {
			return plain("mediumblob")
		}
		_ = p.word("VARCHAR") || p.word("VARCHARACTER") || p.word("CHAR", "VARYING") || p.word("CHARACTER", "VARYING")
		return r.string(d, "MEDIUMTEXT")
	case "NATIONAL", "NCHAR", "NVARCHAR", "NVARCHARACTER":
		d.Charset, d.fixed = "utf8", true
		varying := name == "NVARCHAR" || name == "NVARCHARACTER"
		switch {
		case name == "NATIONAL" && (p.word("VARCHAR") || p.word("VARCHARACTER")):
			varying = true
		case name == "NATIONAL" && !(p.word("CHAR") || p.word("CHARACTER")):
			return false
		case name == "NCHAR" && (p.word("VARCHAR") || p.word("VARCHARACTER")):
			varying = true
		}
		if varying || p.word("VARYING") {
			return r.string(d, "VARCHAR")
		}
		return r.string(d, "CHAR")
	case "CHARACTER", "CHAR":
		if p.word("VARYING") {
			return r.string(d, "VARCHAR")
		}
		return r.string(d, "CHAR")
	case "VARCHARACTER":
		return r.string(d, "VARCHAR")
	case "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT":
		return r.string(d, name)
	case "BINARY", "VARBINARY":
		n, _, given, ok := r.numbers()
		if given == 0 {
			n = 1
		}
		d.DataType, d.Octets = strings.ToLower(name), n
		d.SQLType = fmt.Sprintf("%s(%d)", d.DataType, n)
		return ok && n <= maxOctets
	case "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB":
		n, _, given, ok := r.numbers()
		if name == "BLOB" && given > 0 && (n > 0 || r.emptyIsTiny()) {
			return ok && plain(sized(n)+"blob")
		}
		return ok && plain(strings.ToLower(name))
	}
	if _, ok := integers[name]; ok {
		n, _, given, ok := r.numbers()
		unsigned, zerofill := r.signs()
		d.DataType, d.SQLType = integers[name].name, r.integer(name, int(n), given, unsigned, zerofill)
		return ok
	}
	if slices.Contains(geometries, name) {
		_, _, _, ok := r.numbers()
		plain(strings.ToLower(name))
		if strings.HasSuffix(d.DataType, "collection") {
			plain(map[bool]string{true: "geometrycollection", false: "geomcollection"}[r.srv.MariaDB || r.srv.Version < 80011])
		}
		return ok
	}
	return false
}

// oracle returns the type that MariaDB makes of a name in sql_mode ORACLE.
func (r *reader) oracle(name string) string {
	sized := r.p.at(0).kind == sign && r.p.at(0).s == "("
	switch name {
	case "VARCHAR2":
		return "VARCHAR"
	case "NUMBER":
		if sized {
			return "DECIMAL"
		}
		return "DOUBLE"
	case "RAW":
		return "VARBINARY"
	case "CLOB":
		return "LONGTEXT"
	case "BLOB":
		if !sized {
			return "LONGBLOB"
		}
	case "DATE":
		return "DATETIME"
	}
	return name
}

func suffix(unsigned, zerofill bool) string {
	switch {
	case zerofill:
		return " unsigned zerofill"
	case unsigned:
		return " unsigned"
	}
	return ""
}

// signs consumes SIGNED, UNSIGNED and ZEROFILL.
func (r *reader) signs() (unsigned, zerofill bool) {
	for {
		switch {
		case r.p.word("UNSIGNED"):
			unsigned = true
		case r.p.word("ZEROFILL"):
			unsigned, zerofill = true, true
		case r.p.word("SIGNED"):
		default:
			return unsigned, zerofill
		}
	}
}

// integer returns the COLUMN_TYPE of an integer.
func (r *reader) integer(name string, n, given int, unsigned, zerofill bool) string {
	t := integers[name]
	if given == 0 || n == 0 {
		if n = t.signed; unsigned {
			n = t.unsigned
		}
	}
	if r.srv.widths() || zerofill || t.name == "tinyint" && n == 1 && given > 0 && !unsigned {
		return fmt.Sprintf("%s(%d)", t.name, n) + suffix(unsigned, zerofill)
	}
	return t.name + suffix(unsigned, zerofill)
}

func (r *reader) float(d *definition, name string) bool {
	d.DataType = "double"
	if name == "FLOAT" || name == "FLOAT4" || name == "REAL" && r.mode&modeRealAsFloat != 0 {
		d.DataType = "float"
	} else if name == "DOUBLE" {
		r.p.word("PRECISION")
	}
	n, m, given, ok := r.numbers()
	if given == 1 {
		if d.DataType == "float" && n > 24 {
			d.DataType = "double"
		}
		given = 0
	}
	d.SQLType = d.DataType
	if given == 2 {
		d.SQLType = fmt.Sprintf("%s(%d,%d)", d.DataType, n, m)
	}
	d.SQLType += suffix(r.signs())
	return ok
}

// members reads the labels of an ENUM or SET.
func (r *reader) members(d *definition, name string) bool {
	inner, ok := r.p.parens()
	if !ok || len(inner) == 0 {
		return false
	}
	for _, part := range clauses(inner) {
		if len(part) != 1 || part[0].kind != text || strings.ContainsRune(part[0].s, '\uFFFD') {
			return false // in hexadecimal, or of another character set, or one that nobody knows
		}
		if s := part[0].s; r.connection != "" && !isASCII(s) && !event.Holds(r.connection, s) {
			return false
		}
		d.Members = append(d.Members, part[0].s)
	}
	d.DataType, d.text = name, true
	return r.charsetOptions(d)
}

// string reads length and character set of a character type.
func (r *reader) string(d *definition, name string) bool {
	n, _, given, ok := r.numbers()
	if !ok {
		return false
	}
	d.text, d.DataType, d.chars = true, strings.ToLower(name), n
	switch name {
	case "CHAR":
		if given == 0 {
			d.chars = 1
		}
	case "VARCHAR":
		if given == 0 {
			return false
		}
	case "TEXT":
		if given > 0 && n == 0 && r.emptyIsTiny() {
			d.DataType = "tinytext"
		}
	default:
		d.chars = 0
	}
	return r.charsetOptions(d)
}

// emptyIsTiny reports whether TEXT(0) and BLOB(0) are the smallest types; else they are as without length.
func (r *reader) emptyIsTiny() bool { return !r.srv.MariaDB && r.srv.Version >= 80000 }

// charsetOptions reads what may follow a character type.
func (r *reader) charsetOptions(d *definition) bool {
	p := &r.p
	for {
		switch {
		case p.word("CHARACTER", "SET"), p.word("CHAR", "SET"), p.word("CHARSET"):
			c, ok := r.charsetName()
			if !ok {
				return false
			}
			d.Charset, d.fixed = c, true
		case p.word("ASCII"):
			d.Charset, d.fixed = "latin1", true
		case p.word("UNICODE"):
			d.Charset, d.fixed = "ucs2", true
		case p.word("BYTE"):
			d.Charset, d.fixed = "binary", true
		case p.word("BINARY"): // the binary collation of whatever set it is
		case p.word("COMPRESSED"):
			if p.sign("=") {
				p.next()
			}
		default:
			return true
		}
	}
}

// charsetName reads the name of a character set.
func (r *reader) charsetName() (string, bool) {
	t := r.p.next()
	if t.kind != word && t.kind != quoted && t.kind != text {
		return "", false
	}
	c := strings.ToLower(t.s)
	return c, width(c) > 0
}

// collate applies a collation's character set to the column.
func (d *definition) collate(collation string) bool {
	c := strings.ToLower(collation)
	if set := CharsetOf(c); set != "" {
		d.Charset, d.fixed = set, true
		return true
	}
	return strings.HasPrefix(c, "uca1400_") || c == "default" // of the column's own set
}

// collated applies a collation that may stand behind any type.
func (d *definition) collated(collation string) bool {
	switch {
	case d.text, d.Charset != "":
		return d.collate(collation)
	case strings.HasSuffix(d.DataType, "binary"), strings.HasSuffix(d.DataType, "blob"):
		return strings.EqualFold(collation, "binary") // MariaDB makes texts of them by any other
	}
	return true
}

// attributes reads what follows the type.
func (r *reader) attributes(d *definition) bool {
	p := &r.p
	counts, null, constraint := false, false, false
	for !p.done() {
		t := p.next()
		if t.kind == quoted { // MariaDB: an engine's own option
			if !p.sign("=") || p.next().kind == end {
				return false
			}
			continue
		}
		if t.kind != word {
			return false
		}
		ok := true
		switch strings.ToUpper(t.s) {
		case "NOT":
			switch {
			case p.word("NULL"):
				d.Nullable, d.AsLogged = false, false
			case p.word("SECONDARY"):
			default:
				return false
			}
		case "NULL":
			d.Nullable, d.AsLogged = true, false
			null = true
		case "DEFAULT":
			ok = r.expression()
		case "ON":
			ok = p.word("UPDATE") && r.expression()
		case "STORED", "PERSISTENT":
			d.Virtual = false
		case "AUTO_INCREMENT":
			d.Nullable, d.AsLogged = false, false
			counts = true
		case "VIRTUAL", "ENFORCED", "VISIBLE", "COMPRESSED":
			if t.is("COMPRESSED") && p.sign("=") {
				p.next()
			}
		case "INVISIBLE":
			d.Invisible = true
		case "SERIAL":
			ok = p.word("DEFAULT", "VALUE")
			d.Nullable, d.AsLogged = false, false
		case "PRIMARY":
			p.word("KEY")
			d.primary = true
		case "KEY":
			d.primary = true
		case "UNIQUE":
			p.word("KEY")
			d.unique = true
		case "COMMENT":
			ok = p.next().kind == text
		case "COLLATE":
			c, named := p.ident()
			if !named {
				c = p.next().s
			}
			ok = d.collated(c)
		case "CHARACTER", "CHARSET":
			p.i--
			at := p.i
			ok = d.text && r.charsetOptions(d) && p.i > at
		case "COLUMN_FORMAT", "STORAGE", "SRID":
			ok = p.next().kind != end
		case "REF_SYSTEM_ID", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE":
			p.sign("=")
			ok = p.next().kind != end
		case "GENERATED":
			ok = p.word("ALWAYS", "AS") && r.generated(d)
		case "AS":
			ok = r.generated(d)
		case "WITH", "WITHOUT":
			ok, d.versions = p.word("SYSTEM", "VERSIONING"), t.is("WITH")
		case "CONSTRAINT":
			if !p.at(0).is("CHECK") {
				_, ok = p.ident()
				constraint = true
			}
			ok = ok && p.at(0).is("CHECK")
		case "CHECK":
			var check []token
			check, ok = p.parens()
			d.JSON = d.JSON || ok && !constraint && r.jsonCheck(d, check)
			_ = p.word("NOT", "ENFORCED") || p.word("ENFORCED")
		case "REFERENCES":
			ok = r.references()
		case "FIRST":
			d.first = true
			ok = p.done()
		case "AFTER":
			d.after, ok = p.column()
			ok = ok && p.done()
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	if counts && null {
		d.AsLogged = true
	}
	return true
}

// generated reads what follows AS.
func (r *reader) generated(d *definition) bool {
	d.rowStart, d.RowEnd = r.p.word("ROW", "START"), r.p.word("ROW", "END")
	if d.rowStart || d.RowEnd {
		d.Nullable, d.AsLogged = false, false
		return true
	}
	_, ok := r.p.parens()
	d.Virtual = true
	if d.AsLogged { // a generated column is nullable
		d.Nullable, d.AsLogged = true, false
	}
	return ok
}

// jsonCheck reports whether the column is what MariaDB shows and logs JSON columns as: a longtext with this check. Versions before 10.2.22
// do not show checks, so that nobody can tell.
func (r *reader) jsonCheck(d *definition, check []token) bool {
	if !r.srv.MariaDB || r.srv.Version < 100222 || d.DataType != "longtext" || len(check) != 4 || !check[0].is("JSON_VALID") || check[1].s != "(" || check[3].s != ")" {
		return false
	}
	return check[2].kind != text && strings.EqualFold(check[2].s, d.Name)
}

// afterExpression are the words that end a default without parentheses.
var afterExpression = []string{"NOT", "NULL", "DEFAULT", "ON", "AUTO_INCREMENT", "PRIMARY", "KEY", "UNIQUE", "COMMENT", "COLLATE", "COLUMN_FORMAT", "STORAGE", "REFERENCES",
	"CHECK", "CONSTRAINT", "INVISIBLE", "VISIBLE", "FIRST", "AFTER", "GENERATED", "AS", "CHARACTER", "SERIAL", "ENGINE_ATTRIBUTE", "SRID", "WITH", "WITHOUT", "REF_SYSTEM_ID"}

// expression passes over a default.
func (r *reader) expression() bool {
	p := &r.p
	for first := true; !p.done(); first = false {
		t := p.at(0)
		if t.kind == sign && t.s == "(" {
			if _, ok := p.parens(); !ok {
				return false
			}
			continue
		}
		if !first && t.kind == word && slices.ContainsFunc(afterExpression, t.is) {
			return true
		}
		if p.i++; t.kind == word && strings.Trim(t.s, "0123456789") != "" || t.kind == quoted { // 1. is a number
			for p.sign(".") {
				p.next() // MariaDB's NEXT VALUE FOR shop.key: a name, even where it is a reserved word
			}
		}
	}
	return true
}

// references passes over a column's REFERENCES.
func (r *reader) references() bool {
	p := &r.p
	if _, ok := p.name("-"); !ok {
		return false
	}
	p.parens()
	for {
		switch {
		case p.word("MATCH"):
			p.next()
		case p.word("ON", "DELETE"), p.word("ON", "UPDATE"):
			if !(p.word("SET", "NULL") || p.word("SET", "DEFAULT") || p.word("NO", "ACTION") || p.word("RESTRICT") || p.word("CASCADE")) {
				return false
			}
		default:
			return true
		}
	}
}

// maxOctets is the length up to which every server keeps the type of a string.
const maxOctets = 65532

// sized returns the prefix of the smallest text or blob type for so many bytes.
func sized(n uint64) string {
	for _, s := range textSizes {
		if n <= s.limit {
			return s.name
		}
	}
	return "long"
}

// finish gives a character column its set and its sizes.
func (r *reader) finish(d *definition) bool {
	if !d.fixed {
		d.Charset = r.charset
	}
	if d.Charset != "binary" {
		for i, m := range d.Members {
			d.Members[i] = strings.TrimRight(m, " ")
		}
	}
	return d.encode(d.Charset, d.chars)
}

// encode sets what depends on the character set of a column.
func (c *Column) encode(charset string, chars uint64) bool {
	n := width(charset)
	if n == 0 {
		return false
	}
	c.Charset = charset
	binary := charset == "binary"
	switch c.DataType {
	case "enum", "set":
		quotedMembers := make([]string, len(c.Members))
		for i, m := range c.Members {
			if !binary && !isASCII(m) && !event.Holds(charset, m) {
				return false
			}
			quotedMembers[i] = "'" + strings.ReplaceAll(m, "'", "''") + "'"
		}
		c.SQLType = c.DataType + "(" + strings.Join(quotedMembers, ",") + ")"
		if binary {
			c.Charset = ""
		}
		return true
	case "char", "varchar":
		c.Octets = chars * n
		if c.Octets > maxOctets {
			return false // made another type, or refused
		}
		if binary {
			c.DataType = map[string]string{"char": "binary", "varchar": "varbinary"}[c.DataType]
		}
		c.SQLType = fmt.Sprintf("%s(%d)", c.DataType, chars)
	case "text":
		if chars > 0 {
			c.DataType = sized(chars*n) + "text"
		}
		c.SQLType = c.DataType
		fallthrough
	default:
		if binary {
			c.DataType = strings.TrimSuffix(c.DataType, "text") + "blob"
		}
		c.SQLType = c.DataType
	}
	if binary {
		c.Charset = ""
	}
	return true
}
