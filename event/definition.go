package event

import "strings"

// Definition is a table as a statement found or left it. It is immutable.
type Definition struct {
	Charset string // default character set; "" when not known
	Columns []DefinedColumn
}

// DefinedColumn is a column of a [Definition], in the words of information_schema.
type DefinedColumn struct {
	Name     string
	Type     string // DATA_TYPE in lower case: "varchar"; "json" where MariaDB stores it as text
	SQLType  string // COLUMN_TYPE: "varchar(20)"
	Charset  string // "" for columns without
	Fraction uint64 // DATETIME_PRECISION
	Members  []string
	Nullable bool
	Unsure   bool // whether it is nullable is not known
	Key      int  // position in the primary key, from 1; 0: no part of it
}

// Unsigned reports whether the column's type is declared so; ZEROFILL is, too.
func (c *DefinedColumn) Unsigned() bool { return strings.Contains(c.SQLType, " unsigned") }

// Defined is what became of a table's definition.
type Defined struct {
	Schema, Name  string
	Before, After *Definition // nil: there is none, or it is not known
}

// Definition returns what is known of a table before and behind the statement.
func (s *Statement) Definition(schema, name string) (before, after *Definition) {
	if s == nil {
		return nil, nil
	}
	for i := range s.Defined {
		if d := &s.Defined[i]; d.Schema == schema && d.Name == name {
			return d.Before, d.After
		}
	}
	return nil, nil
}

// PrimaryKey returns the names of the primary key's columns in the order of the key.
func (d *Definition) PrimaryKey() []string {
	var key []string
	for next := 1; ; next++ {
		found := false
		for i := range d.Columns {
			if d.Columns[i].Key == next {
				key, found = append(key, d.Columns[i].Name), true
			}
		}
		if !found {
			return key
		}
	}
}

// memory returns the bytes that the definition occupies.
func (d *Definition) memory() int {
	if d == nil {
		return 0
	}
	n := 64 + len(d.Charset)
	for i := range d.Columns {
		c := &d.Columns[i]
		n += 144 + len(c.Name) + len(c.Type) + len(c.SQLType) + len(c.Charset)
		for _, m := range c.Members {
			n += 16 + len(m)
		}
	}
	return n
}
