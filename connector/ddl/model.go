package ddl

import (
	"slices"
	"strings"
)

// Server tells what kind of server logged the statements. The texts of types and a few defaults depend on it.
type Server struct {
	MariaDB bool
	Version int // as in executable comments: 50651, 80400, 101106

	// Caseless: names of tables and databases are not case-sensitive (lower_case_table_names).
	Caseless bool

	// What decides up to which length MariaDB's unique keys are not made by hash; false where it is not known.
	InnoDB   bool // the engine of tables that are created without ENGINE (default_storage_engine)
	LongKeys bool // InnoDB's keys may have 3,072 bytes: innodb_page_size is 16 KiB or more
}

// Fold returns the name as the server compares it.
func (s Server) Fold(n Name) Name {
	if s.Caseless {
		return Name{strings.ToLower(n.Schema), strings.ToLower(n.Table)}
	}
	return n
}

// ParseVersion reads the number of a server from its version, such as "8.4.0" or "10.11.6-MariaDB-log".
func ParseVersion(version string) int {
	n, part, parts := 0, 0, 0
	for i := 0; i <= len(version) && parts < 3; i++ {
		if i < len(version) && version[i] >= '0' && version[i] <= '9' {
			part = min(part*10+int(version[i]-'0'), 99)
			continue
		}
		n, part = n*100+part, 0
		parts++
		if i < len(version) && version[i] != '.' {
			break
		}
	}
	for ; parts < 3; parts++ {
		n *= 100
	}
	return n
}

// widths reports whether the server shows display widths of integers and years.
func (s Server) widths() bool { return s.MariaDB || s.Version < 80019 }

// Name names a table, or a database if Table is empty.
type Name struct{ Schema, Table string }

// String returns "schema.table".
func (n Name) String() string {
	if n.Table == "" {
		return n.Schema
	}
	return n.Schema + "." + n.Table
}

// Column is a column as information_schema describes it.
type Column struct {
	Name      string   `json:"name"`
	DataType  string   `json:"type"`                // lower case: "varchar"
	SQLType   string   `json:"sql,omitempty"`       // COLUMN_TYPE: "varchar(20)", "enum('a','b')"
	Charset   string   `json:"charset,omitempty"`   // "" for columns without
	Octets    uint64   `json:"octets,omitempty"`    // CHARACTER_OCTET_LENGTH
	Precision uint64   `json:"precision,omitempty"` // NUMERIC_PRECISION
	Scale     uint64   `json:"scale,omitempty"`     // NUMERIC_SCALE
	Fraction  uint64   `json:"fraction,omitempty"`  // DATETIME_PRECISION
	Members   []string `json:"members,omitempty"`   // labels of ENUM and SET; nil: they cannot be read
	Nullable  bool     `json:"nullable,omitempty"`
	AsLogged  bool     `json:"as_logged,omitempty"` // whether it is nullable depends on what the statement does not tell: the log does
	Invisible bool     `json:"invisible,omitempty"`
	Virtual   bool     `json:"virtual,omitempty"` // computed whenever it is read
	RowEnd    bool     `json:"row_end,omitempty"` // MariaDB: AS ROW END, which is the last part of every unique key
	JSON      bool     `json:"json,omitempty"`    // MariaDB: a JSON column, which is a longtext with a check
	Hidden    string   `json:"index,omitempty"`   // the index of which it is an expression: the log has such columns, information_schema has not
	Key       int      `json:"key,omitempty"`     // position in the primary key, from 1; 0: no part of it
}

// Table is what is known of a table; of a database that is its character set only.
type Table struct {
	Charset   string   `json:"charset,omitempty"` // default for new columns; "" when not known
	Columns   []Column `json:"columns,omitempty"`
	InnoDB    bool     `json:"innodb,omitempty"`    // its engine is InnoDB
	Versioned bool     `json:"versioned,omitempty"` // MariaDB: WITH SYSTEM VERSIONING
	RowTimes  bool     `json:"row_times,omitempty"` // the last two columns are those that system versioning adds by itself
}

// clone returns a copy whose columns can be changed.
func (t *Table) clone() *Table {
	c := *t
	c.Columns = slices.Clone(t.Columns)
	return &c
}

func (t *Table) find(column string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, column) })
}

// State says what is known about a name.
type State uint8

// The states.
const (
	Absent  State = iota // no such table
	Known                // as its Table says
	Unknown              // there may be one, nobody can tell which
)

// Tables is what was known before a statement.
type Tables interface {
	// Lookup returns what is known of a table, or of a database if the name has no table. Absent is proven, not only unheard of.
	Lookup(Name) (State, *Table)

	// Names lists the tables of a schema, or of all if it is "", that are not Absent.
	Names(schema string) []Name
}

// Change is what a statement made of one table or database.
type Change struct {
	Name  Name
	State State
	Table *Table // when Known
	From  Name   // the former name, if it was renamed
}

// Statement is a logged statement with what decides how it is read.
type Statement struct {
	Text    string // UTF-8
	Schema  string // default database
	SQLMode uint64
	Charset string // default character set of the server; "" when not known
	Version int    // of the server that wrote it, as in [Server]; 0: that of the Server with which it is read

	// Connection is the character set that the server has converted its texts to, but not its names; "" when not known.
	Connection string

	// Temporary: its session has temporary tables, each of which hides the table of its name from it.
	Temporary bool

	// Error is the number of the error with which it ended, 0 for none. It was logged as it had done a part of its work.
	Error uint16
}

// unknownTable is the error of a DROP TABLE that has dropped all of its tables that were there.
const unknownTable = 1051

// maxBytes gives the bytes of the longest character, for the sets that have more than one.
var maxBytes = map[string]uint64{
	"utf8": 3, "utf8mb3": 3, "utf8mb4": 4, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4,
	"gbk": 2, "gb2312": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2, "ujis": 3, "eucjpms": 3,
}

var singleByte = strings.Fields("binary dec8 cp850 hp8 koi8r latin1 latin2 swe7 ascii hebrew tis620 koi8u greek cp1250 latin5 armscii8 cp866 keybcs2 macce macroman cp852 latin7 cp1251 cp1256 cp1257 geostd8")

// width returns the bytes of the longest character of a set, 0 if the set is not known.
func width(charset string) uint64 {
	if n := maxBytes[charset]; n > 0 {
		return n
	}
	if slices.Contains(singleByte, charset) {
		return 1
	}
	return 0
}

// CharsetOf returns the character set of a collation, "" for those that belong to several.
func CharsetOf(collation string) string {
	c, _, _ := strings.Cut(strings.ToLower(collation), "_")
	if width(c) == 0 {
		return ""
	}
	return c
}
