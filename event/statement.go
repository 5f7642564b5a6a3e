package event

// Action is what a statement does to an object.
type Action string

// The actions.
const (
	ActionCreate   Action = "create"
	ActionAlter    Action = "alter"
	ActionDrop     Action = "drop"
	ActionRename   Action = "rename"
	ActionTruncate Action = "truncate"
)

// Object is the kind of thing that a statement is about.
type Object string

// The objects. Tables, views and sequences of a database share one space of names.
const (
	ObjectTable     Object = "table"
	ObjectTemporary Object = "temporary table" // which no other session sees, and of which the log has no rows
	ObjectView      Object = "view"
	ObjectSequence  Object = "sequence" // MariaDB
	ObjectDatabase  Object = "database"
	ObjectTrigger   Object = "trigger"
	ObjectProcedure Object = "procedure"
	ObjectFunction  Object = "function"
	ObjectEvent     Object = "event"
	ObjectPackage   Object = "package" // MariaDB; its body, too
	ObjectLibrary   Object = "library" // MySQL
)

// named reports whether objects of this kind have names that patterns of tables are about.
func (o Object) named() bool { return o == ObjectTable || o == ObjectView || o == ObjectSequence }

// Name is the name of a table or of another object of a database.
type Name struct{ Schema, Name string }

// Change is what a statement does to one object.
type Change struct {
	Action Action
	Object Object
	Moved  bool   // rows come into the table that the log does not show: of a partition that is exchanged or converted, of an imported tablespace
	Index  Action // ActionCreate or ActionDrop: the change of the table is, or begins with, that of an index; else empty
	Schema string
	Name   string // empty for a database
	Old    Name   // ActionRename: the former name; Schema and Name are the new one
	Like   Name   // CREATE TABLE ... LIKE: the model
	On     Name   // of a trigger that is created: its table
}

// Statement tells which objects a statement changes, as its text says it: names of what IF EXISTS passes over are there too. It depends on
// the text, the session's database and sql_mode and the kind of server alone, and Defined on what was known when the statement was first read, so that it is
// the same whenever it is read (I5).
type Statement struct {
	Changes  []Change // in the order in which they happen
	Whole    bool     // the text was understood: nothing but Changes is changed
	Caseless bool     // as Table.Caseless; names are in lower case then

	Defined []Defined // what became of tables' definitions, where a schema history follows them
}

// First returns the first change; none is the zero Change.
func (s *Statement) First() Change {
	if s == nil || len(s.Changes) == 0 {
		return Change{}
	}
	return s.Changes[0]
}

// Concerns reports whether the statement may be about tables that are captured: about one of them under its old or new name, or about
// a database that may have some. It is true of a statement that names nothing or is not understood. Temporary tables are nobody's concern.
func (s *Statement) Concerns(table func(schema, table string) bool, schema func(string) bool) bool {
	if s == nil || !s.Whole || len(s.Changes) == 0 {
		return true
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		switch {
		case c.Object == ObjectTemporary:
		case !c.Object.named():
			if schema(c.Schema) {
				return true
			}
		case table(c.Schema, c.Name), c.Old != (Name{}) && table(c.Old.Schema, c.Old.Name):
			return true
		}
	}
	return false
}

// Brought calls f with the tables that have rows under their name afterwards which the log has not shown as rows of that name: those
// that got it from another table, and those into which rows were moved. It returns false if nobody knows all of them.
func (s *Statement) Brought(f func(schema, table string)) bool {
	if s == nil {
		return true // the text of none that does is withheld
	}
	for i := range s.Changes {
		if c := &s.Changes[i]; c.Object == ObjectTable && (c.Action == ActionRename || c.Moved) {
			f(c.Schema, c.Name)
		}
	}
	return s.Whole
}

// Memory returns the bytes that the statement occupies.
func (s *Statement) Memory() int {
	if s == nil {
		return 0
	}
	n := 32
	for i := range s.Changes {
		c := &s.Changes[i]
		n += 176 + len(c.Schema) + len(c.Name) + len(c.Old.Schema) + len(c.Old.Name) + len(c.Like.Schema) + len(c.Like.Name) + len(c.On.Schema) + len(c.On.Name)
	}
	for i := range s.Defined {
		d := &s.Defined[i]
		n += 64 + len(d.Schema) + len(d.Name) + d.Before.memory() + d.After.memory()
	}
	return n
}
