package ddl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Apply returns what the statement changes, given what was known before. Tables that it may change in a way that cannot be followed
// come out as [Unknown]; a statement of an unknown kind makes so every table that its text names. The changes are in order, and
// at most one of them is for each name.
func Apply(st *Statement, srv Server, known Tables) []Change {
	if st.Version > 0 {
		srv.Version = st.Version // I5: comments that it has executed are read as it read them, whatever server sends the log later
	}
	t, whole := tokens(st.Text, st.SQLMode, srv)
	a := &applier{st: st, srv: srv, known: known, made: map[Name]int{}, p: parser{t: t}}
	if !whole || !a.statement() {
		a.changes, a.made = a.changes[:0], map[Name]int{}
		a.named(t)
	}
	if slices.ContainsFunc(t, token.damaged) {
		a.damaged(t)
	}
	if st.Error != 0 && st.Error != unknownTable { // I6: which part it has done nobody knows
		for i := range a.changes {
			a.changes[i].State, a.changes[i].Table = Unknown, nil
		}
	}
	return a.changes
}

// damaged makes unknown what a statement has made, or may have changed, some of whose names could not be read: they were in a character set that
// nobody knows. Such a name may be that of any table whose name is not in ASCII (I6).
func (a *applier) damaged(t []token) {
	for i := range a.changes {
		if c := &a.changes[i]; c.State == Known {
			c.State, c.Table = Unknown, nil
		}
	}
	for _, n := range a.known.Names("") {
		if !isASCII(n.Schema + n.Table) {
			a.set(n, Unknown, nil, Name{})
		}
	}
	a.named(t)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

// Touched returns the tables that the statement may change, under their old and new names, and the databases
// whose default it may change.
func Touched(st *Statement, srv Server, known Tables) []Name {
	changes := Apply(st, srv, known)
	out := make([]Name, len(changes))
	for i := range changes {
		out[i] = changes[i].Name
	}
	return out
}

type applier struct {
	st      *Statement
	srv     Server
	known   Tables
	p       parser
	changes []Change
	made    map[Name]int // which of changes is a name's
}

// lookup sees what this statement has changed already.
func (a *applier) lookup(n Name) (State, *Table) {
	n = a.srv.Fold(n)
	if i, ok := a.made[n]; ok {
		return a.changes[i].State, a.changes[i].Table
	}
	return a.known.Lookup(n)
}

func (a *applier) set(n Name, s State, t *Table, from Name) {
	n, from = a.srv.Fold(n), a.srv.Fold(from)
	c := Change{Name: n, State: s, Table: t, From: from}
	if i, ok := a.made[n]; ok {
		a.changes[i] = c
		return
	}
	a.made[n] = len(a.changes)
	a.changes = append(a.changes, c)
}

// named makes every table unknown that the tokens name.
func (a *applier) named(t []token) {
	words := map[string]bool{}
	for _, x := range t {
		if x.kind != sign {
			words[strings.ToLower(x.s)] = true
		}
	}
	for _, n := range a.known.Names("") {
		if words[strings.ToLower(n.Table)] && (words[strings.ToLower(n.Schema)] || strings.EqualFold(n.Schema, a.st.Schema)) {
			a.set(n, Unknown, nil, Name{})
		}
	}
}

// harmless are the verbs of statements that define no table.
var harmless = []string{"ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "FLUSH", "RESET", "PURGE", "SET", "INSTALL", "UNINSTALL", "GRANT", "REVOKE", "CALL", "LOCK",
	"UNLOCK", "KILL", "USE", "TRUNCATE", "CACHE", "LOAD", "INSERT", "UPDATE", "DELETE", "REPLACE", "COMMIT", "BEGIN", "ROLLBACK", "XA", "SAVEPOINT", "RELEASE", "DO",
	"BINLOG", "SHUTDOWN", "CLONE", "HELP", "SHOW", "SELECT", "WITH", "HANDLER", "SIGNAL", "CHANGE", "START", "STOP", "COMMENT"}

// others are the kinds of things that CREATE, ALTER and DROP are about and that are no tables.
var others = []string{"VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "LOGFILE", "TABLESPACE", "SPATIAL", "RESOURCE", "INSTANCE", "PACKAGE",
	"LIBRARY", "JSON"}

// statement applies the whole statement; it returns false when it does not understand it.
func (a *applier) statement() bool {
	p := &a.p
	if !p.setStatement() {
		return false
	}
	verb := p.next()
	switch {
	case verb.kind == end:
		return true
	case verb.is("CREATE"):
		return a.create()
	case verb.is("ALTER"):
		return a.alter()
	case verb.is("DROP"):
		return a.drop()
	case verb.is("RENAME"):
		return a.rename()
	}
	return verb.kind == word && slices.ContainsFunc(harmless, verb.is)
}

// setStatement passes over MariaDB's SET STATEMENT variable=value FOR; it returns false if the FOR is missing.
func (p *parser) setStatement() bool {
	for p.word("SET", "STATEMENT") {
		for !p.word("FOR") {
			if p.next().kind == end {
				return false
			}
		}
	}
	return true
}

// other reports whether the statement is about no table.
func (a *applier) other() bool {
	p := &a.p
	for i := 0; i < 32; i++ {
		t := p.at(i)
		switch {
		case t.kind == word && slices.ContainsFunc(others, t.is):
			return true
		case t.kind == end, t.is("TABLE"), t.is("TABLES"), t.is("INDEX"), t.is("DATABASE"), t.is("SCHEMA"), t.is("SEQUENCE"):
			return false
		}
	}
	return false
}

func (a *applier) create() bool {
	p := &a.p
	p.word("OR", "REPLACE")
	replace := p.i > 1 && p.t[p.i-1].is("REPLACE")
	temporary := p.word("TEMPORARY")
	switch {
	case p.word("TABLE"):
		if temporary {
			return true
		}
		return a.createTable(replace)
	case p.oneOf("DATABASE", "SCHEMA"):
		return a.createDatabase(replace)
	case p.word("SEQUENCE"):
		exists := p.word("IF", "NOT", "EXISTS")
		n, ok := p.name(a.st.Schema)
		if !ok {
			return false
		}
		if temporary {
			return true
		}
		switch s, _ := a.lookup(n); {
		case exists && s == Known:
		case exists && s == Unknown, p.word("AS"):
			a.set(n, Unknown, nil, Name{})
		default:
			a.set(n, Known, a.sequence(n), Name{})
		}
		return true
	}
	unique := false
	for p.oneOf("ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") {
		unique = unique || p.t[p.i-1].is("UNIQUE")
	}
	if p.word("INDEX") {
		p.word("IF", "NOT", "EXISTS")
		index, ok := p.ident()
		if p.word("USING") || p.word("TYPE") {
			p.next()
		}
		if !ok || !p.word("ON") {
			return false
		}
		n, ok := p.name(a.st.Schema)
		if !ok {
			return false
		}
		return a.edit(n, func(e *editor) bool {
			parts, ok := p.parens()
			return ok && e.index(index, parts, unique)
		})
	}
	p.i = 1
	return a.other()
}

func (a *applier) createDatabase(replace bool) bool {
	p := &a.p
	exists := p.word("IF", "NOT", "EXISTS")
	name, ok := p.ident()
	if !ok {
		return false
	}
	n := Name{Schema: name}
	if exists {
		switch s, _ := a.lookup(n); s {
		case Known:
			return true
		case Unknown: // it may have been there, and then it has kept its character set
			a.set(n, Unknown, nil, Name{})
			return true
		}
	}
	if replace {
		a.dropAll(name)
	}
	a.set(n, Known, &Table{Charset: a.databaseCharset(a.st.Charset)}, Name{})
	return true
}

// databaseCharset reads the options of a database and returns its character set, "" when it cannot be known.
func (a *applier) databaseCharset(charset string) string {
	set, _ := a.charsetOption(&a.p, charset, a.st.Charset)
	return set
}

// charsetOption looks for the default character set among options; it returns given without one, and def for DEFAULT.
func (a *applier) charsetOption(p *parser, given, def string) (charset string, found bool) {
	charset = given
	for !p.done() {
		switch {
		case p.word("CHARACTER", "SET"), p.word("CHAR", "SET"), p.word("CHARSET"):
			p.sign("=")
			c := strings.ToLower(p.next().s)
			if found = true; c == "default" {
				c = def
			}
			if charset = c; width(c) == 0 {
				charset = ""
			}
		case p.word("COLLATE"):
			p.sign("=")
			c := strings.ToLower(p.next().s)
			set := CharsetOf(c)
			switch {
			case set != "":
				charset, found = set, true
			case c == "default" && a.srv.MariaDB && a.srv.Version >= 101100:
				// Of whatever set it is.
			case c == "default" && a.srv.MariaDB && a.srv.Version >= 100300:
				charset, found = "", true // the one or the other
			case c == "default":
				charset, found = def, true
			case !strings.HasPrefix(c, "uca1400_"):
				charset, found = "", true
			}
		default:
			if p.at(0).kind == sign && p.at(0).s == "(" {
				if _, ok := p.parens(); ok {
					continue
				}
			}
			p.next()
		}
	}
	return charset, found
}

func (a *applier) dropAll(schema string) {
	schema = a.srv.Fold(Name{Schema: schema}).Schema
	for _, n := range a.known.Names(schema) {
		a.set(n, Absent, nil, Name{})
	}
	for _, c := range slices.Clone(a.changes) {
		if c.Name.Schema == schema && c.State != Absent {
			a.set(c.Name, Absent, nil, Name{})
		}
	}
}

// schemaCharset returns the default of a database, "" when it is not known.
func (a *applier) schemaCharset(schema string) string {
	if s, t := a.lookup(Name{Schema: schema}); s == Known {
		return t.Charset
	}
	return ""
}

func (a *applier) createTable(replace bool) bool {
	p := &a.p
	exists := p.word("IF", "NOT", "EXISTS")
	n, ok := p.name(a.st.Schema)
	if !ok {
		return false
	}
	if exists && !replace {
		switch s, _ := a.lookup(n); s {
		case Known:
			return true
		case Unknown:
			a.set(n, Unknown, nil, Name{})
			return true
		}
	}
	state, table := a.definition(n)
	a.set(n, state, table, Name{})
	return true
}

// definition reads what follows the name in CREATE TABLE.
func (a *applier) definition(n Name) (State, *Table) {
	p := &a.p
	like := p.word("LIKE")
	var inner []token
	if !like {
		var ok bool
		if inner, ok = p.parens(); !ok {
			return Unknown, nil
		}
		l := parser{t: inner}
		switch {
		case l.word("LIKE"):
			p, like = &l, true
		case l.oneOf("SELECT", "TABLE", "VALUES", "WITH"): // no column, as these words are reserved
			return Unknown, nil
		}
	}
	if like {
		from, ok := p.name(a.st.Schema)
		s, t := a.lookup(from)
		// I6: a temporary table of that name may be the model. Of MariaDB's OR REPLACE the log always says so, whatever the session has.
		if !ok || s != Known || a.st.Temporary {
			return Unknown, nil
		}
		return Known, t
	}
	// Options decide how columns are read.
	e := &editor{a: a, table: &Table{}, schema: n.Schema, created: true}
	o := parser{t: p.t[p.i:]}
	options := o.t
	depth := 0
	for i, x := range options {
		switch {
		case x.kind == sign && x.s == "(":
			depth++
		case x.kind == sign && x.s == ")":
			depth--
		case x.is("SELECT"), x.is("TABLE"), x.is("VALUES"):
			return Unknown, nil
		case depth == 0 && x.is("PARTITION"):
			options = options[:i]
		default:
			continue
		}
		if len(options) <= i {
			break
		}
	}
	versioned := false
	for i := range options {
		if options[i].is("SYSTEM") && i > 0 && options[i-1].is("WITH") && i+1 < len(options) && options[i+1].is("VERSIONING") {
			versioned = true
		}
	}
	e.table.Charset, _ = a.charsetOption(&parser{t: options}, a.schemaCharset(n.Schema), a.schemaCharset(n.Schema))
	name := engine(options)
	e.table.InnoDB = name == "" && a.srv.InnoDB || strings.EqualFold(name, "InnoDB")
	for _, c := range clauses(inner) {
		if !e.element(c, false) {
			return Unknown, nil
		}
	}
	if versioned || slices.ContainsFunc(e.fresh, func(d definition) bool { return d.versions }) {
		e.versioning()
	}
	if !e.finish() {
		return Unknown, nil
	}
	return Known, e.table
}

func (a *applier) drop() bool {
	p := &a.p
	temporary := p.word("TEMPORARY")
	switch {
	case p.oneOf("TABLE", "TABLES", "SEQUENCE"):
		p.word("IF", "EXISTS")
		for {
			n, ok := p.name(a.st.Schema)
			if !ok {
				return false
			}
			if !temporary {
				a.set(n, Absent, nil, Name{})
			}
			if !p.sign(",") {
				return true
			}
		}
	case p.oneOf("DATABASE", "SCHEMA"):
		p.word("IF", "EXISTS")
		name, ok := p.ident()
		if !ok {
			return false
		}
		a.dropAll(name)
		a.set(Name{Schema: name}, Absent, nil, Name{})
		return true
	}
	p.oneOf("ONLINE", "OFFLINE")
	if p.word("INDEX") {
		p.word("IF", "EXISTS")
		index, ok := p.ident()
		if !ok || !p.word("ON") {
			return false
		}
		n, ok := p.name(a.st.Schema)
		return ok && a.edit(n, func(e *editor) bool { return e.dropIndex(index) })
	}
	p.i = 1
	return a.other()
}

func (a *applier) rename() bool {
	p := &a.p
	if p.word("USER") {
		return true
	}
	if !p.oneOf("TABLE", "TABLES") || a.st.Temporary { // I6: some of the names may be those of temporary tables
		return false
	}
	p.word("IF", "EXISTS")
	for {
		from, ok := p.name(a.st.Schema)
		if !ok {
			return false
		}
		p.wait()
		if !p.word("TO") {
			return false
		}
		to, ok := p.name(a.st.Schema)
		if !ok {
			return false
		}
		a.move(from, to)
		if !p.sign(",") {
			return p.done()
		}
	}
}

// wait passes over MariaDB's WAIT n and NOWAIT.
func (p *parser) wait() {
	if p.word("WAIT") {
		p.next()
	}
	p.word("NOWAIT")
}

// move gives a table another name.
func (a *applier) move(from, to Name) {
	from, to = a.srv.Fold(from), a.srv.Fold(to)
	s, t := a.lookup(from)
	if s == Absent {
		s = Unknown // it was there: made where the log did not see it, or nobody may look at it
	}
	if there, _ := a.lookup(to); there == Known && from != to {
		// I6: no table can take the name of another, but a temporary one can hide it; MariaDB does not mark its RENAME TABLE as one of those.
		a.set(from, Unknown, nil, Name{})
		a.set(to, Unknown, nil, Name{})
		return
	}
	origin := from
	if i, ok := a.made[from]; ok && a.changes[i].From != (Name{}) {
		origin = a.changes[i].From
	}
	if from != to {
		a.set(from, Absent, nil, Name{})
	}
	a.set(to, s, t, origin)
}

func (a *applier) alter() bool {
	p := &a.p
	for p.oneOf("ONLINE", "OFFLINE", "IGNORE") {
	}
	switch {
	case p.word("TABLE"):
		return a.alterTable()
	case p.oneOf("DATABASE", "SCHEMA"):
		return a.alterDatabase()
	case p.word("SEQUENCE"):
		p.word("IF", "EXISTS")
		n, ok := p.name(a.st.Schema)
		if ok && p.word("AS") {
			a.set(n, Unknown, nil, Name{})
		}
		return ok
	}
	p.i = 1
	return a.other()
}

// sequence is what every SEQUENCE of MariaDB looks like.
func (a *applier) sequence(n Name) *Table {
	t := &Table{Charset: a.schemaCharset(n.Schema)}
	for _, name := range []string{"next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option", "cycle_count"} {
		c := Column{Name: name, DataType: "bigint", SQLType: "bigint(21)"}
		switch name {
		case "cache_size":
			c.SQLType = "bigint(21) unsigned"
		case "cycle_option":
			c.DataType, c.SQLType = "tinyint", "tinyint(1) unsigned"
		}
		t.Columns = append(t.Columns, c)
	}
	return t
}

// databaseOptions begin an ALTER DATABASE that leaves its name out.
var databaseOptions = []string{"CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "UPGRADE", "COMMENT"}

// databaseOption reports whether such an option comes next, and no name.
func (p *parser) databaseOption() bool { return slices.ContainsFunc(databaseOptions, p.at(0).is) }

func (a *applier) alterDatabase() bool {
	p := &a.p
	name := a.st.Schema
	if !p.databaseOption() {
		var ok bool
		if name, ok = p.ident(); !ok {
			return false
		}
	}
	n := Name{Schema: name}
	set, found := a.charsetOption(p, "", a.st.Charset)
	if !found {
		return true
	}
	if s, _ := a.lookup(n); s != Known { // a database that is Known has no tables but those that are
		a.set(n, Unknown, nil, Name{})
		return true
	}
	a.set(n, Known, &Table{Charset: set}, Name{})
	return true
}

// edit changes a known table; any other one is Unknown afterwards.
func (a *applier) edit(n Name, f func(*editor) bool) bool {
	s, t := a.lookup(n)
	if s != Known {
		a.set(n, Unknown, nil, Name{})
		return true
	}
	e := &editor{a: a, table: t.clone(), schema: n.Schema}
	if !f(e) || !e.finish() {
		a.set(n, Unknown, nil, Name{})
		return true
	}
	a.set(n, Known, e.table, Name{})
	return true
}

// partitions begin the clauses about partitions, which change no column and stand last.
var partitions = []string{"ADD", "DROP", "TRUNCATE", "COALESCE", "REORGANIZE", "EXCHANGE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "DISCARD", "IMPORT", "REMOVE", "UPGRADE", "SECONDARY_LOAD"}

// renames consumes what stands before the new name in a clause of ALTER TABLE that gives the table one.
func (p *parser) renames() bool {
	if !p.at(0).is("RENAME") || slices.ContainsFunc([]string{"COLUMN", "INDEX", "KEY"}, p.at(1).is) && p.at(2).kind != end && p.at(2).kind != sign {
		return false
	}
	p.i++
	_ = p.oneOf("TO", "AS") || p.sign("=")
	return true
}

func (a *applier) alterTable() bool {
	p := &a.p
	p.word("IF", "EXISTS")
	n, ok := p.name(a.st.Schema)
	if !ok {
		return false
	}
	p.wait()
	list := clauses(p.t[p.i:])
	var made, gone Name // MariaDB makes a table of a partition, or the other way round
	for i, c := range list {
		q := parser{t: c}
		switch {
		case q.word("CONVERT", "PARTITION"):
			if _, ok = q.ident(); ok && q.word("TO", "TABLE") {
				made, ok = q.name(cmp.Or(a.st.Schema, n.Schema))
			} else {
				ok = false
			}
		case q.word("CONVERT", "TABLE"):
			gone, ok = q.name(cmp.Or(a.st.Schema, n.Schema))
		}
		if !ok || q.i == 0 && (q.word("CONVERT") && !q.at(0).is("TO") || q.word("ADD", "TABLE")) {
			return false
		}
		if made != (Name{}) || gone != (Name{}) {
			list = list[:i]
			break
		}
		q.i = 0
		if q.oneOf(partitions...) && (q.at(0).is("PARTITION") || q.at(0).is("PARTITIONING")) || q.word("PARTITION") || q.word("ORDER", "BY") {
			list = list[:i]
			break
		}
		if at := partitioned(c); at > 0 {
			list = append(slices.Clone(list[:i]), c[:at])
			break
		}
	}
	to := n
	for i := 0; i < len(list); i++ {
		q := parser{t: list[i]}
		if !q.renames() {
			continue
		}
		if to, ok = q.name(cmp.Or(a.st.Schema, n.Schema)); !ok { // the session's database, not the table's
			return false
		}
		list = slices.Delete(slices.Clone(list), i, i+1)
		i--
	}
	a.edit(n, func(e *editor) bool { return e.alter(list) })
	if made != (Name{}) {
		s, t := a.lookup(n)
		a.set(made, s, t, Name{})
	}
	if gone != (Name{}) {
		a.set(gone, Absent, nil, Name{})
	}
	if to != n {
		a.move(n, to)
	}
	return true
}

// partitioned returns where in a clause that about partitions begins which may stand behind the last of the others without a comma; 0: nowhere.
func partitioned(c []token) int {
	for i, depth := 1, 0; i+1 < len(c); i++ {
		switch {
		case c[i].kind == sign && c[i].s == "(":
			depth++
		case c[i].kind == sign && c[i].s == ")":
			depth--
		case depth == 0 && (c[i].is("PARTITION") && c[i+1].is("BY") || c[i].is("REMOVE") && c[i+1].is("PARTITIONING")):
			return i
		}
	}
	return 0
}

// editor changes one table.
type editor struct {
	a        *applier
	table    *Table // its columns without those that are Hidden while it is edited
	schema   string
	created  bool
	rowTimes bool     // has its own columns of system versioning
	period   []string // columns of MariaDB's PERIOD FOR

	open   bool // table and hidden are apart
	gipk   bool // its first column is the primary key that MySQL made for it, which stays the first
	hidden []Column
	unique [][]token    // parts of new unique keys
	fresh  []definition // new and changed columns, in the order of the clauses
	old    []string     // the column that each of fresh takes the place of; "" for new ones
	drop   map[string]bool
	rename map[string]string
	pk     []string // the new primary key
	dropPK bool
}

func (e *editor) reader(t []token) *reader {
	return &reader{p: parser{t: t}, srv: e.a.srv, mode: e.a.st.SQLMode, charset: e.table.Charset, connection: e.a.st.Connection}
}

// begin takes the hidden columns apart, which stay behind all others.
func (e *editor) begin() {
	if e.open {
		return
	}
	e.open = true
	e.hidden = nil
	kept := e.table.Columns[:0:0]
	for _, c := range e.table.Columns {
		if c.Hidden != "" {
			e.hidden = append(e.hidden, c)
		} else {
			kept = append(kept, c)
		}
	}
	e.table.Columns = kept
	e.gipk = !e.a.srv.MariaDB && e.a.srv.Version >= 80030 && len(kept) > 0 && generatedKey(&kept[0]) && len(e.key0()) == 1
}

// generatedKey reports whether a first column is the generated invisible primary key of a table that has no other.
func generatedKey(c *Column) bool {
	return strings.EqualFold(c.Name, "my_row_id") && c.SQLType == "bigint unsigned" && c.Invisible && c.Key == 1
}

// element reads one element of CREATE TABLE or of ADD (...); unless: columns that are there already stay as they are.
func (e *editor) element(c []token, unless bool) bool {
	if key, ok := e.key(c); ok || key {
		return ok
	}
	r := e.reader(c)
	d, ok := r.definition()
	if !ok {
		return false
	}
	if !unless || !e.exists(d.Name) {
		e.add(d, "")
	}
	return true
}

func (e *editor) add(d definition, old string) {
	e.begin()
	if d.primary {
		e.pk = append(e.pk, d.Name)
	}
	if d.unique {
		e.unique = append(e.unique, []token{{quoted, d.Name}})
	}
	if d.rowStart {
		e.rowTimes, e.table.RowTimes = true, false
	}
	e.fresh = append(e.fresh, d)
	e.old = append(e.old, old)
}

// key reads the definition of an index or constraint. key is false when the tokens define none.
func (e *editor) key(c []token) (key, ok bool) {
	p := parser{t: c}
	constraint := p.word("CONSTRAINT")
	name := ""
	if constraint && !slices.ContainsFunc([]string{"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}, p.at(0).is) {
		name, _ = p.ident()
	}
	unique := false
	switch {
	case p.word("PRIMARY"):
		p.word("KEY")
		for p.at(0).kind == word || p.at(0).kind == quoted { // USING BTREE, or a name
			p.next()
		}
		parts, ok := p.parens()
		if !ok {
			return true, false
		}
		for _, part := range clauses(parts) {
			if len(part) > 0 && (part[0].kind == word || part[0].kind == quoted) {
				e.pk = append(e.pk, part[0].s)
				continue
			}
			return true, false
		}
		return true, true
	case p.word("FOREIGN", "KEY"), p.word("CHECK"):
		return true, true
	case p.word("PERIOD", "FOR"):
		p.word("IF", "NOT", "EXISTS")
		period, named := p.ident()
		parts, ok := p.parens()
		for _, part := range clauses(parts) {
			if len(part) != 1 {
				return true, false
			}
			if !strings.EqualFold(period, "SYSTEM_TIME") { // its columns say by themselves what they are
				e.period = append(e.period, part[0].s)
			}
		}
		return true, named && ok
	case constraint && !p.at(0).is("UNIQUE"):
		return true, false
	case p.word("UNIQUE"):
		unique = true
		p.oneOf("INDEX", "KEY")
	case p.word("VECTOR", "INDEX"), p.word("VECTOR", "KEY"):
	case p.oneOf("FULLTEXT", "SPATIAL"):
		p.oneOf("INDEX", "KEY")
	case p.oneOf("INDEX", "KEY"):
	default:
		return false, false
	}
	p.word("IF", "NOT", "EXISTS")
	hash := false
	for p.at(0).kind == word || p.at(0).kind == quoted {
		if p.at(0).is("USING") || p.at(0).is("TYPE") {
			hash = hash || p.at(1).is("HASH")
			p.i += 2
			continue
		}
		name, _ = p.ident()
	}
	parts, ok := p.parens()
	if !ok {
		return true, false
	}
	for !p.done() {
		hash = hash || p.next().is("HASH")
	}
	if hash && unique && e.a.srv.MariaDB {
		return true, false // it may come with a hidden column
	}
	return true, e.index(name, parts, unique)
}

// index adds the hidden columns of an index on expressions.
func (e *editor) index(name string, parts []token, unique bool) bool {
	e.begin()
	for i, part := range clauses(parts) {
		if len(part) == 0 {
			return false
		}
		if part[0].kind == sign && part[0].s == "(" {
			if e.a.srv.MariaDB {
				return false
			}
			if name == "" {
				name = e.unnamed()
			}
			e.hidden = append(e.hidden, Column{Name: HiddenName(name, i), Hidden: name, Invisible: true, AsLogged: true})
			continue
		}
	}
	if unique {
		e.unique = append(e.unique, parts)
	}
	return true
}

// HiddenName is how MySQL names the column that holds an index's expression; part counts from 0.
func HiddenName(index string, part int) string {
	return fmt.Sprintf("!hidden!%s!%d!0", index, part)
}

// unnamed is the name that MySQL gives to an index whose first part is an expression.
func (e *editor) unnamed() string {
	for i := 1; ; i++ {
		name := "functional_index"
		if i > 1 {
			name = fmt.Sprintf("functional_index_%d", i)
		}
		if !slices.ContainsFunc(e.hidden, func(c Column) bool { return strings.EqualFold(c.Hidden, name) }) {
			return name
		}
	}
}

// hashed reports whether MariaDB may make a unique key of these parts by hash, for which it keeps a hidden column.
func (e *editor) hashed(parts []token, list []Column) bool {
	octets, most := uint64(0), uint64(767)
	if e.table.InnoDB && e.a.srv.LongKeys {
		most = 3072
	}
	for _, part := range clauses(parts) {
		if len(part) > 2 && part[1].kind == sign && part[1].s == "(" { // a prefix
			n, err := strconv.ParseUint(part[2].s, 10, 16)
			if err != nil {
				return true
			}
			octets += 4 * n
			continue
		}
		i := slices.IndexFunc(list, func(c Column) bool { return len(part) > 0 && strings.EqualFold(c.Name, part[0].s) })
		switch {
		case i < 0, strings.HasSuffix(list[i].DataType, "text"), strings.HasSuffix(list[i].DataType, "blob"):
			return true
		case list[i].Octets > 0:
			octets += list[i].Octets
		default:
			octets += 32 // no other type takes more
		}
	}
	return octets > most
}

// engine returns the engine that options give, "" where they give none.
func engine(options []token) string {
	p := parser{t: options}
	for !p.done() {
		if p.word("ENGINE") {
			p.sign("=")
			return p.next().s
		}
		if _, ok := p.parens(); !ok {
			p.next()
		}
	}
	return ""
}

func (e *editor) dropIndex(name string) bool {
	e.begin()
	if strings.EqualFold(name, "PRIMARY") {
		e.dropPK = true
	}
	e.hidden = slices.DeleteFunc(e.hidden, func(c Column) bool { return strings.EqualFold(c.Hidden, name) })
	return true
}

// versioning adds the columns of MariaDB's system versioning.
func (e *editor) versioning() {
	e.begin()
	e.table.Versioned, e.table.RowTimes = true, !e.rowTimes
}

// AddRowTimes adds the columns of MariaDB's system versioning, which the log has and information_schema has not.
func (t *Table) AddRowTimes() {
	for _, name := range []string{"row_start", "row_end"} {
		t.Columns = append(t.Columns, Column{Name: name, DataType: "timestamp", SQLType: "timestamp(6)", Fraction: 6, Invisible: true, RowEnd: name == "row_end"})
	}
}

// alter applies the clauses of ALTER TABLE.
func (e *editor) alter(list [][]token) bool {
	// Which set new columns have is decided by the options, wherever they stand.
	converted, given := "", ""
	for _, c := range list {
		p := parser{t: c}
		if p.word("CONVERT", "TO") {
			set, found := e.a.charsetOption(&p, "", e.convertDefault())
			if !found || set == "" || !e.convert(set) {
				return false
			}
			converted = set
			continue
		}
		if !option(c) {
			continue
		}
		if set, found := e.a.charsetOption(&p, "", e.a.schemaCharset(e.schema)); found {
			e.table.Charset, given = set, set
		}
		if name := engine(c); name != "" {
			was := e.table.InnoDB
			if e.table.InnoDB = strings.EqualFold(name, "InnoDB"); was && !e.table.InnoDB && e.a.srv.MariaDB && slices.ContainsFunc(e.table.Columns, func(c Column) bool { return c.Octets > 767 }) {
				return false // its unique keys may be too long for another engine
			}
		}
	}
	if converted != "" && given != "" && given != converted {
		return false // which of them the table has depends on the server
	}
	for _, c := range list {
		if !e.clause(c) {
			return false
		}
	}
	return converted == "" || e.convertFresh(converted)
}

// convertDefault returns what CONVERT TO CHARACTER SET DEFAULT converts to, "" where it is not known: new servers look at the table's database, others at
// that of the session.
func (e *editor) convertDefault() string {
	a := e.a
	table, session := a.schemaCharset(e.schema), a.st.Charset
	if a.st.Schema != "" {
		session = a.schemaCharset(a.st.Schema)
	}
	switch {
	case table == session, a.srv.MariaDB && a.srv.Version >= 101100:
		return table
	case a.srv.MariaDB && a.srv.Version >= 100300:
		return ""
	}
	return session
}

// convertFresh gives the set that all columns are converted to to those that the same statement adds or changes, whatever set it gives them.
func (e *editor) convertFresh(set string) bool {
	for i := range e.fresh {
		d := &e.fresh[i]
		switch {
		case d.JSON, d.DataType == "longtext" && !d.text: // MariaDB's JSON
			return false
		case strings.HasSuffix(d.DataType, "text") && (e.old[i] != "" || d.chars > 0): // it may become a larger one
			return false
		case !d.text, d.Charset == "", d.Charset == "binary":
		case !d.encode(set, d.chars):
			return false
		}
	}
	return true
}

// option reports whether the clause is made of table options.
func option(c []token) bool {
	return len(c) > 0 && !slices.ContainsFunc([]string{"ADD", "ALTER", "CHANGE", "MODIFY", "DROP", "RENAME", "CONVERT"}, c[0].is)
}

// clause applies one clause.
func (e *editor) clause(c []token) bool {
	e.begin()
	p := parser{t: c}
	switch {
	case p.word("ADD"):
		if p.word("SYSTEM", "VERSIONING") {
			e.versioning()
			return true
		}
		if key, ok := e.key(c[p.i:]); key || ok {
			return ok
		}
		p.word("COLUMN")
		unless := p.word("IF", "NOT", "EXISTS")
		if p.at(0).kind == sign && p.at(0).s == "(" {
			inner, ok := p.parens()
			if !ok {
				return false
			}
			for _, x := range clauses(inner) {
				if !e.element(x, unless) {
					return false
				}
			}
			return p.done()
		}
		d, ok := e.reader(c[p.i:]).definition()
		if !ok {
			return false
		}
		if unless && e.exists(d.Name) {
			return true
		}
		e.add(d, "")
		return true
	case p.word("CHANGE"), p.word("MODIFY"):
		change := p.t[0].is("CHANGE")
		p.word("COLUMN")
		maybe := p.word("IF", "EXISTS")
		old := ""
		if change {
			var ok bool
			if old, ok = p.column(); !ok {
				return false
			}
		}
		d, ok := e.reader(c[p.i:]).definition()
		if !ok {
			return false
		}
		if !change {
			old = d.Name
		}
		if e.table.find(old) < 0 {
			return maybe
		}
		e.add(d, old)
		return true
	case p.word("DROP"):
		return e.dropClause(&p)
	case p.word("RENAME"):
		switch {
		case p.word("COLUMN"):
			maybe := p.word("IF", "EXISTS")
			from, ok1 := p.column()
			to := p.word("TO")
			name, ok2 := p.column()
			if !ok1 || !to || !ok2 || !p.done() {
				return false
			}
			if e.table.find(from) < 0 {
				return maybe
			}
			if e.rename == nil {
				e.rename = map[string]string{}
			}
			e.rename[strings.ToLower(from)] = name
			return true
		case p.oneOf("INDEX", "KEY"):
			p.word("IF", "EXISTS")
			from, _ := p.ident()
			to := p.word("TO")
			name, ok := p.ident()
			for i := range e.hidden {
				if h := &e.hidden[i]; strings.EqualFold(h.Hidden, from) {
					h.Name, h.Hidden = strings.Replace(h.Name, "!"+h.Hidden+"!", "!"+name+"!", 1), name
				}
			}
			return to && ok
		}
		return false
	case p.word("ALTER"):
		if p.oneOf("INDEX", "KEY", "CHECK", "CONSTRAINT") && p.at(0).kind != end {
			return true
		}
		p.i = 1
		p.word("COLUMN")
		p.word("IF", "EXISTS")
		name, ok := p.column()
		i := e.table.find(name)
		if !ok || i < 0 {
			return false
		}
		switch {
		case p.word("SET", "INVISIBLE"):
			e.table.Columns[i].Invisible = true
		case p.word("SET", "VISIBLE"):
			e.table.Columns[i].Invisible = false
		case p.word("SET", "DEFAULT"), p.word("DROP", "DEFAULT"):
		default:
			return false
		}
		return true
	}
	// An option; alter has looked for what matters.
	assigned := p.at(1).kind == sign && p.at(1).s == "="
	return p.done() || assigned || p.at(0).kind == word && slices.ContainsFunc(options, p.at(0).is)
}

// options begin the clauses that change no column, where no = stands behind the word.
var options = []string{"DEFAULT", "CHARACTER", "CHARSET", "CHAR", "COLLATE", "CONVERT", "ENGINE", "TYPE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT", "COMPRESSION",
	"CONNECTION", "DATA", "INDEX", "DELAY_KEY_WRITE", "ENCRYPTION", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "STATS_AUTO_RECALC",
	"STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "UNION", "WITH", "WITHOUT", "START", "SECONDARY_ENGINE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "ENGINE_ATTRIBUTE",
	"SECONDARY_ENGINE_ATTRIBUTE", "AUTOEXTEND_SIZE", "STORAGE", "ALGORITHM", "LOCK", "FORCE", "ENABLE", "DISABLE", "DISCARD", "IMPORT", "ORDER", "NODEGROUP", "PAGE_CHECKSUM",
	"TABLE_CHECKSUM", "TRANSACTIONAL", "SEQUENCE", "PERIOD"}

func (e *editor) exists(column string) bool {
	if e.table.find(column) >= 0 {
		return true
	}
	return slices.ContainsFunc(e.fresh, func(d definition) bool { return strings.EqualFold(d.Name, column) })
}

func (e *editor) dropClause(p *parser) bool {
	switch {
	case p.word("PRIMARY"):
		e.dropPK = true
		return true
	case p.word("SYSTEM", "VERSIONING"):
		e.table.Versioned, e.table.RowTimes = false, false
		if n := len(e.table.Columns); n >= 2 && e.table.Columns[n-2].Name == "row_start" && e.table.Columns[n-1].Name == "row_end" && e.table.Columns[n-1].Invisible {
			e.table.Columns = e.table.Columns[:n-2]
			return true
		}
		return true
	case p.word("FOREIGN", "KEY"), p.word("CHECK"), p.word("PERIOD", "FOR"):
		return true
	case p.oneOf("INDEX", "KEY", "CONSTRAINT") && p.at(0).kind != end:
		p.word("IF", "EXISTS")
		name, ok := p.ident()
		return ok && e.dropIndex(name)
	}
	p.i = 1
	p.word("COLUMN")
	maybe := p.word("IF", "EXISTS")
	name, ok := p.column()
	if !ok {
		return false
	}
	if e.table.find(name) < 0 {
		return maybe
	}
	if e.drop == nil {
		e.drop = map[string]bool{}
	}
	e.drop[strings.ToLower(name)] = true
	return true
}

// convert gives all character columns another set.
func (e *editor) convert(set string) bool {
	e.begin()
	for i := range e.table.Columns {
		c := &e.table.Columns[i]
		if c.Charset == "" || c.Charset == set {
			continue
		}
		if set == "binary" {
			return false
		}
		old := width(c.Charset)
		if old == 0 {
			return false
		}
		switch c.DataType {
		case "char", "varchar":
			if !c.encode(set, c.Octets/old) {
				return false
			}
		case "enum", "set":
			// Servers keep the bytes of the labels, which are other labels then.
			if !samePrefix(c.Charset, set, "utf8") && !(asciiLabels(c) && extendsASCII(c.Charset) && extendsASCII(set)) {
				return false
			}
			c.Charset = set
		default:
			c.Charset = set
			for _, size := range textSizes { // it becomes a larger one if as many characters would not fit
				if n := size.limit / old * width(set); c.DataType == size.name+"text" && n > size.limit && size.name != "long" {
					c.DataType = sized(n) + "text"
					c.SQLType = c.DataType
					break
				}
			}
		}
	}
	e.table.Charset = set
	return true
}

// extendsASCII reports whether text in ASCII has the same bytes in the character set.
func extendsASCII(charset string) bool {
	return charset != "ucs2" && charset != "swe7" && !strings.HasPrefix(charset, "utf16") && charset != "utf32"
}

func samePrefix(a, b, prefix string) bool {
	return strings.HasPrefix(a, prefix) && strings.HasPrefix(b, prefix)
}

// asciiLabels reports whether the labels are known, and in ASCII.
func asciiLabels(c *Column) bool {
	return c.Members != nil && !slices.ContainsFunc(c.Members, func(m string) bool { return !isASCII(m) })
}

// finish puts the columns in order, as the server does: what stays and what is changed in place, then what moves or is new.
func (e *editor) finish() bool {
	e.begin()
	t := e.table
	was := e.key0()
	key := slices.Clone(was) // by the names that its columns have now; "" where one is dropped
	inKey := func(name string) int {
		return slices.IndexFunc(was, func(k string) bool { return strings.EqualFold(k, name) })
	}
	for i, k := range was {
		if e.drop[strings.ToLower(k)] {
			key[i] = ""
			if !e.dropPK && e.given(k) {
				return false // MySQL keeps the part of the key for the new column of that name
			}
		}
	}
	var tail []Column // system versioning's own stay last
	list := make([]Column, 0, len(t.Columns)+len(e.fresh))
	used := make([]bool, len(e.fresh))
	for _, c := range t.Columns {
		if e.drop[strings.ToLower(c.Name)] {
			continue
		}
		part := inKey(c.Name)
		i := slices.IndexFunc(e.old, func(o string) bool { return o != "" && strings.EqualFold(o, c.Name) })
		if i < 0 {
			if to, ok := e.rename[strings.ToLower(c.Name)]; ok {
				if part >= 0 {
					key[part] = to
				}
				c.Name = to
			}
			if c.Invisible && (c.Name == "row_start" || c.Name == "row_end") && c.DataType == "timestamp" && t.RowTimes {
				tail = append(tail, c)
				continue
			}
			list = append(list, c)
			continue
		}
		d := &e.fresh[i]
		if part >= 0 {
			if key[part] = d.Name; !e.dropPK {
				d.Nullable, d.AsLogged = false, false
			}
		}
		used[i] = !d.first && d.after == ""
		list = append(list, d.Column) // also one that moves: until its turn comes, others may be put behind it
	}
	for i := range e.fresh {
		d := &e.fresh[i]
		if e.old[i] != "" && !used[i] {
			list = slices.DeleteFunc(list, func(c Column) bool { return strings.EqualFold(c.Name, d.Name) })
		}
		switch {
		case used[i]:
		case d.first:
			list = slices.Insert(list, 0, d.Column)
		case d.after != "":
			at := slices.IndexFunc(list, func(c Column) bool { return strings.EqualFold(c.Name, d.after) })
			if at < 0 {
				return false
			}
			list = slices.Insert(list, at+1, d.Column)
		default:
			list = append(list, d.Column)
		}
	}
	if at := slices.IndexFunc(list, func(c Column) bool { return e.gipk && strings.EqualFold(c.Name, t.Columns[0].Name) }); at > 0 {
		return false // whether it is that key depends on AUTO_INCREMENT, engine and partitions, and with that where it stands
	}
	if t.RowTimes && len(tail) == 0 && !slices.ContainsFunc(list, func(c Column) bool { return c.Name == "row_start" }) {
		var own Table
		own.AddRowTimes()
		tail = own.Columns
	}
	list = append(list, tail...)
	key = slices.DeleteFunc(key, func(k string) bool { return k == "" })
	if e.dropPK {
		key = nil
	}
	if len(e.pk) > 0 {
		key = e.pk
	}
	seen := map[string]bool{}
	for i := range list {
		name := strings.ToLower(list[i].Name)
		if seen[name] || name == "" {
			return false // the server would have refused it: we do not know what it did
		}
		seen[name] = true
		list[i].Key = 1 + slices.IndexFunc(key, func(k string) bool { return strings.EqualFold(k, list[i].Name) })
		if list[i].Key > 0 {
			list[i].Nullable, list[i].AsLogged = false, false
		}
		if slices.ContainsFunc(e.period, func(p string) bool { return strings.EqualFold(p, list[i].Name) }) {
			list[i].Nullable, list[i].AsLogged = false, false
		}
	}
	for _, k := range key {
		if !seen[strings.ToLower(k)] {
			return false
		}
	}
	if len(list) == 0 || len(list) > 4096 || e.a.srv.MariaDB && slices.ContainsFunc(e.unique, func(parts []token) bool { return e.hashed(parts, list) }) {
		return false
	}
	t.Columns = append(list, e.hidden...)
	e.open = false
	return true
}

// given reports whether the statement gives a name to a new column or to another one.
func (e *editor) given(name string) bool {
	for _, to := range e.rename {
		if strings.EqualFold(to, name) {
			return true
		}
	}
	return slices.ContainsFunc(e.fresh, func(d definition) bool { return strings.EqualFold(d.Name, name) })
}

// key0 returns the columns of the primary key before the statement.
func (e *editor) key0() []string {
	var parts []Column
	for _, c := range e.table.Columns {
		if c.Key > 0 {
			parts = append(parts, c)
		}
	}
	slices.SortFunc(parts, func(x, y Column) int { return cmp.Compare(x.Key, y.Key) })
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].Name
	}
	return names
}
