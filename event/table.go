package event

import "unsafe"

// Table describes the columns of the row images that refer to it. A Table is
// immutable once [Table.Compile] has succeeded and may be shared by goroutines.
// A changed table definition is a new Table.
type Table struct {
	Schema  string
	Name    string
	Columns []Column
	Key     []int // indexes into Columns of the primary key (or the server's chosen unique key), in key order; nil: none

	// Caseless: the source compares names of databases and tables without regard to case, and may have changed theirs to lower case.
	Caseless bool

	// RowEnd is 1 + the index of the column that says until when a row is valid, of a MariaDB table WITH SYSTEM VERSIONING whose
	// events show what its present rows undergo; 0: any other table. See Live.
	RowEnd int

	// Fields below are set by Compile.
	image imagePlan
	shown *Table // without Hidden columns; nil: there are none
}

// Memory estimates the bytes that the table occupies, for those who keep tables (I9).
func (t *Table) Memory() int {
	n := int(unsafe.Sizeof(*t)) + len(t.Schema) + len(t.Name) + 8*len(t.Key)
	for i := range t.Columns {
		c := &t.Columns[i]
		n += int(unsafe.Sizeof(*c)) + len(c.Name) + len(c.SQLType) + 32 // their own overheads
		for _, m := range c.Members {
			n += int(unsafe.Sizeof(m)) + len(m)
		}
	}
	if t.shown != nil {
		n += t.shown.Memory()
	}
	return n
}

// AllColumns returns the bitmap of an image that has all columns, as [Images] has it.
func (t *Table) AllColumns() []byte {
	b := make([]byte, (len(t.Columns)+7)/8)
	for i := range t.Columns {
		b[i>>3] |= 1 << (i & 7)
	}
	return b
}

// Column is one column of a [Table].
type Column struct {
	Name      string
	Type      byte   // type code of the TABLE_MAP, with ENUM, SET and long CHAR resolved from the metadata
	Meta      uint16 // the type's TABLE_MAP metadata, normalised: see Compile
	Unsigned  bool
	Nullable  bool
	Invisible bool
	Hidden    bool     // the server's own, such as the hash behind a long unique key: in the log, and nowhere else. See Shown
	Collation uint32   // collation id; 63 = binary; 0 = unknown
	Charset   string   // character set of character, ENUM and SET columns, MySQL's name; "binary" for byte strings
	Members   []string // ENUM and SET: labels in UTF-8
	SQLType   string   // declared type, e.g. "varchar(20)" or "int unsigned": from information_schema, else derived
	Logical   Logical  // what information_schema knows beyond the TABLE_MAP; LogicalNone = as the type says
	Virtual   Virtual  // how far row images can be believed of a column that MariaDB computes; VirtualNone = like any other

	// Set by Compile.
	Class      Class
	width      int32    // bytes of a fixed-width value; below zero: bytes of the length prefix, negated
	fsp        uint8    // fraction digits of an old temporal type
	compressed bool     // MariaDB COMPRESSED: values are packed
	set        *charset // text classes: how to turn bytes into UTF-8
}

// Logical marks column types that the binlog cannot tell from their storage type.
type Logical uint8

// Logical types.
const (
	LogicalNone   Logical = iota
	LogicalBool           // tinyint(1)
	LogicalJSON           // MariaDB JSON: longtext
	LogicalUUID           // MariaDB
	LogicalINET4          // MariaDB
	LogicalINET6          // MariaDB
	LogicalVector         // MariaDB: varbinary
)

// Virtual says how far row images can be believed of a VIRTUAL column of MariaDB. MySQL logs such columns like all others.
type Virtual uint8

const (
	// VirtualNone is any other column.
	VirtualNone Virtual = iota

	// VirtualLogged is one whose values in images are right; but that the after image of an update lacks it, as with
	// binlog_row_image=FULL_NODUP, does not mean that it is unchanged. A [Scanner] then shows it as absent from both images.
	VirtualLogged

	// VirtualNull is one of MariaDB before 10.5, which logs NULL for it whatever it is. A [Scanner] shows that as absent.
	VirtualNull
)

// Class groups column types by how a value is written as text.
type Class uint8

// The classes.
const (
	ClassInt       Class = iota + 1 // signed integers
	ClassUint                       // unsigned integers
	ClassFloat                      // FLOAT: 32 bit
	ClassDouble                     // DOUBLE: 64 bit
	ClassDecimal                    // DECIMAL
	ClassBit                        // BIT(1..64)
	ClassYear                       // YEAR
	ClassDate                       // DATE
	ClassTime                       // TIME(0..6)
	ClassDatetime                   // DATETIME(0..6)
	ClassTimestamp                  // TIMESTAMP(0..6)
	ClassChar                       // CHAR, VARCHAR: text
	ClassText                       // TEXT family: text
	ClassBinary                     // BINARY: padded to its declared length
	ClassVarbinary                  // VARBINARY
	ClassBlob                       // BLOB family
	ClassEnum                       // ENUM
	ClassSet                        // SET
	ClassJSON                       // MySQL's binary JSON
	ClassGeometry                   // 4-byte SRID and WKB
	ClassVector                     // VECTOR: float32 little-endian
	ClassUUID                       // MariaDB UUID
	ClassINET4                      // MariaDB INET4
	ClassINET6                      // MariaDB INET6
)
