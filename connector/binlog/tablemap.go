package binlog

// TableMap is a TABLE_MAP event (type 19). Its slices share the event's memory.
type TableMap struct {
	ID     uint64
	Schema []byte
	Table  []byte
	// Definition is everything behind the table id and the flags. Equal
	// definitions mean equal tables.
	Definition []byte
	// Version is that of the server that wrote it, as in ddl.Server; 0 when nobody has told it.
	Version int

	rest []byte
}

// ParseTableMap reads id and names. [TableMap.Columns] reads the rest.
func ParseTableMap(body []byte) (TableMap, error) {
	c := cursor{b: body}
	t := TableMap{ID: c.u48()}
	c.u16()
	t.Definition = c.b
	t.Schema = c.take(int(c.u8()))
	c.u8()
	t.Table = c.take(int(c.u8()))
	c.u8()
	if c.bad {
		return t, short("table map", len(body))
	}
	t.rest = c.b
	return t, nil
}

// Columns is the part of a TABLE_MAP that describes the columns. What the
// server's binlog_row_metadata left out is nil. Names and members share the
// event's memory.
type Columns struct {
	Types    []byte // one a column
	Meta     []byte // metadata of all columns, one after the other
	Nullable []byte // bitmap, least significant bit first

	Unsigned       []byte     // bitmap over the numeric columns, most significant bit first
	DefaultCharset *Charsets  // of the character columns
	ColumnCharset  []uint32   // the same in its other form: one collation id a character column
	Names          [][]byte   // UTF-8
	SetMembers     [][][]byte // one list a SET column, in the column's charset
	EnumMembers    [][][]byte // one list an ENUM column
	Geometry       []uint32   // kind of each GEOMETRY column
	Key            []KeyPart  // primary key
	MemberDefault  *Charsets  // of the ENUM and SET columns
	MemberCharset  []uint32   // the same in its other form
	Visible        []byte     // bitmap, most significant bit first
	VectorDim      []uint32   // dimension of each VECTOR column
}

// Charsets gives the collation id that most columns have and the exceptions.
type Charsets struct {
	Default uint32
	Except  map[int]uint32 // by number among the columns concerned
}

// Of returns the collation id of the i-th column concerned.
func (c *Charsets) Of(i int) uint32 {
	if id, ok := c.Except[i]; ok {
		return id
	}
	return c.Default
}

// KeyPart is one column of a primary key.
type KeyPart struct {
	Column int
	Prefix uint64 // characters of the column that the key uses; 0: all
}

// Codes of the optional metadata fields.
const (
	metaUnsigned       = 1
	metaDefaultCharset = 2
	metaColumnCharset  = 3
	metaNames          = 4
	metaSetMembers     = 5
	metaEnumMembers    = 6
	metaGeometry       = 7
	metaKey            = 8
	metaKeyPrefix      = 9
	metaMemberDefault  = 10
	metaMemberCharset  = 11
	metaVisible        = 12
	metaVectorDim      = 13
)

// Columns parses the columns' part. Unknown optional fields are passed over.
func (t *TableMap) Columns() (*Columns, error) {
	c := cursor{b: t.rest}
	n := c.count(1)
	if n > 4096 { // the server's own limit
		c.bad = true
	}
	d := &Columns{Types: c.take(n), Meta: c.bytes(), Nullable: c.take((n + 7) / 8)}
	if c.bad {
		return nil, short("table map", len(t.Definition))
	}
	for len(c.b) > 0 {
		field := c.u8()
		v := cursor{b: c.bytes()}
		if c.bad {
			return nil, short("table map", len(t.Definition))
		}
		switch field {
		case metaUnsigned:
			d.Unsigned = v.b
		case metaDefaultCharset:
			d.DefaultCharset = v.charsets()
		case metaColumnCharset:
			d.ColumnCharset = v.numbers()
		case metaNames:
			d.Names = make([][]byte, 0, n)
			for len(v.b) > 0 && !v.bad {
				d.Names = append(d.Names, v.bytes())
			}
			v.bad = v.bad || len(d.Names) != n
		case metaSetMembers:
			d.SetMembers = v.lists()
		case metaEnumMembers:
			d.EnumMembers = v.lists()
		case metaGeometry:
			d.Geometry = v.numbers()
		case metaKey, metaKeyPrefix:
			d.Key = nil
			for len(v.b) > 0 && !v.bad {
				k := v.packed()
				p := uint64(0)
				if field == metaKeyPrefix {
					p = v.packed()
				}
				if k >= uint64(n) {
					v.bad = true
					break
				}
				d.Key = append(d.Key, KeyPart{int(k), p})
			}
		case metaMemberDefault:
			d.MemberDefault = v.charsets()
		case metaMemberCharset:
			d.MemberCharset = v.numbers()
		case metaVisible:
			d.Visible = v.b
			v.bad = len(v.b) < (n+7)/8
		case metaVectorDim:
			d.VectorDim = v.numbers()
		}
		if v.bad {
			return nil, malformed("table map: optional field %d", field)
		}
	}
	return d, nil
}

func (c *cursor) numbers() []uint32 {
	out := []uint32{}
	for len(c.b) > 0 && !c.bad {
		x := c.packed()
		c.bad = c.bad || x > 1<<32-1
		out = append(out, uint32(x))
	}
	return out
}

func (c *cursor) charsets() *Charsets {
	list := c.numbers()
	if len(list)%2 == 0 {
		c.bad = true
		return nil
	}
	cs := &Charsets{Default: list[0]}
	for i := 1; i < len(list); i += 2 {
		if cs.Except == nil {
			cs.Except = make(map[int]uint32, len(list)/2)
		}
		cs.Except[int(list[i])] = list[i+1]
	}
	return cs
}

func (c *cursor) lists() [][][]byte {
	out := [][][]byte{}
	for len(c.b) > 0 && !c.bad {
		n := c.count(1)
		list := make([][]byte, 0, n)
		for ; n > 0 && !c.bad; n-- {
			list = append(list, c.bytes())
		}
		out = append(out, list)
	}
	return out
}
