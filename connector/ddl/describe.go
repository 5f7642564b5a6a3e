package ddl

import (
	"cmp"

	"github.com/binlogmq/binlogmq/event"
)

// Describe tells which objects a statement changes, in the order of its text. Unlike [Apply] it asks for nothing that was known before.
// What it has understood before it meets something that it does not know stays, with Whole false.
func Describe(st *Statement, srv Server) *event.Statement {
	t, whole := tokens(st.Text, st.SQLMode, srv)
	d := describer{st: st, srv: srv, p: parser{t: t}}
	understood := d.statement()
	return &event.Statement{Changes: d.changes, Whole: whole && understood, Caseless: srv.Caseless}
}

type describer struct {
	st      *Statement
	srv     Server
	p       parser
	changes []event.Change
}

// name consumes the name of an object.
func (d *describer) name() (event.Name, bool) {
	n, ok := d.p.name(d.st.Schema)
	n = d.srv.Fold(n)
	return event.Name{Schema: n.Schema, Name: n.Table}, ok
}

func (d *describer) add(a event.Action, o event.Object, n event.Name) *event.Change {
	d.changes = append(d.changes, event.Change{Action: a, Object: o, Schema: n.Schema, Name: n.Name})
	return &d.changes[len(d.changes)-1]
}

func (d *describer) statement() bool {
	p := &d.p
	if !p.setStatement() {
		return false
	}
	switch {
	case p.done():
		return true
	case p.word("CREATE"):
		return d.create()
	case p.word("ALTER"):
		return d.alter()
	case p.word("DROP"):
		return d.drop()
	case p.word("RENAME"):
		return p.oneOf("TABLE", "TABLES") && d.rename()
	case p.word("TRUNCATE"):
		p.word("TABLE")
		n, ok := d.name()
		if ok {
			d.add(event.ActionTruncate, event.ObjectTable, n)
			p.wait()
		}
		return ok && p.done()
	case p.at(0).is("DELETE"): // as servers log it that find a MEMORY table empty after a restart
		return d.emptied()
	}
	for _, verb := range harmless {
		if p.word(verb) {
			return true
		}
	}
	return false
}

// emptied reads DELETE FROM of a whole table.
func (d *describer) emptied() bool {
	p := &d.p
	if !p.word("DELETE", "FROM") {
		return false
	}
	n, ok := d.name()
	if ok = ok && p.done(); ok {
		d.add(event.ActionTruncate, event.ObjectTable, n)
	}
	return ok
}

// routines are the words of objects that have a name and nothing else that is told of them.
var routines = map[string]event.Object{
	"VIEW": event.ObjectView, "PROCEDURE": event.ObjectProcedure, "FUNCTION": event.ObjectFunction, "EVENT": event.ObjectEvent,
	"PACKAGE": event.ObjectPackage, "LIBRARY": event.ObjectLibrary, "TRIGGER": event.ObjectTrigger,
}

// ifExists passes over IF EXISTS and IF NOT EXISTS.
func (p *parser) ifExists() {
	if !p.word("IF", "NOT", "EXISTS") {
		p.word("IF", "EXISTS")
	}
}

// routine consumes what stands before one of routines, the word itself and the object's name.
func (d *describer) routine(a event.Action) bool {
	p := &d.p
	for i := 0; i < 32; i++ {
		t := p.next()
		if t.kind == end {
			return false
		}
		if t.kind != word {
			continue
		}
		for w, o := range routines {
			if !t.is(w) {
				continue
			}
			p.word("BODY")
			p.ifExists()
			n, ok := d.name()
			if !ok {
				return false
			}
			c := d.add(a, o, n)
			if o == event.ObjectTrigger && a == event.ActionCreate {
				for !p.word("ON") {
					if p.next().kind == end {
						return false
					}
				}
				c.On, ok = d.name()
			}
			return ok
		}
	}
	return false
}

// unnamed are the kinds of things whose name is no concern of tables.
var unnamed = []string{"TABLESPACE", "LOGFILE", "UNDO", "RESOURCE", "INSTANCE", "USER", "ROLE", "SERVER"}

func (d *describer) create() bool {
	p := &d.p
	p.word("OR", "REPLACE")
	table := event.ObjectTable
	if p.word("TEMPORARY") {
		table = event.ObjectTemporary
	}
	switch {
	case p.word("TABLE"):
		p.ifExists()
		n, ok := d.name()
		if !ok {
			return false
		}
		c := d.add(event.ActionCreate, table, n)
		like := p.word("LIKE")
		if !like && p.at(0).kind == sign && p.at(0).s == "(" && p.at(1).is("LIKE") {
			like = true
			p.i += 2
		}
		if like {
			c.Like, ok = d.name()
		}
		return ok
	case p.oneOf("DATABASE", "SCHEMA"):
		return d.database(event.ActionCreate)
	case p.word("SEQUENCE"):
		p.ifExists()
		n, ok := d.name()
		if table == event.ObjectTable && ok {
			d.add(event.ActionCreate, event.ObjectSequence, n)
		}
		return ok
	}
	if p.oneOf(unnamed...) || p.word("SPATIAL", "REFERENCE") {
		return true
	}
	at := p.i
	for p.oneOf("ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") {
	}
	if p.word("INDEX") {
		return d.index(event.ActionCreate)
	}
	p.i = at
	return d.routine(event.ActionCreate)
}

// index consumes an index's name and that of its table.
func (d *describer) index(a event.Action) bool {
	p := &d.p
	p.ifExists()
	if _, ok := p.ident(); !ok {
		return false
	}
	if p.word("USING") || p.word("TYPE") {
		p.next()
	}
	if !p.word("ON") {
		return false
	}
	n, ok := d.name()
	if ok {
		d.add(event.ActionAlter, event.ObjectTable, n).Index = a
	}
	return ok
}

func (d *describer) database(a event.Action) bool {
	p := &d.p
	p.ifExists()
	name, ok := p.ident()
	if ok {
		d.add(a, event.ObjectDatabase, event.Name{Schema: d.srv.Fold(Name{Schema: name}).Schema})
	}
	return ok
}

func (d *describer) drop() bool {
	p := &d.p
	table := event.ObjectTable
	if p.word("TEMPORARY") {
		table = event.ObjectTemporary
	}
	switch {
	case p.oneOf("TABLE", "TABLES"):
		return d.dropList(table)
	case p.word("SEQUENCE"):
		if table == event.ObjectTable {
			table = event.ObjectSequence
		}
		return d.dropList(table)
	case p.word("VIEW"):
		return d.dropList(event.ObjectView)
	case p.oneOf("DATABASE", "SCHEMA"):
		return d.database(event.ActionDrop)
	}
	if p.oneOf(unnamed...) || p.word("SPATIAL", "REFERENCE") || p.word("PREPARE") {
		return true
	}
	p.oneOf("ONLINE", "OFFLINE")
	if p.word("INDEX") {
		return d.index(event.ActionDrop)
	}
	return d.routine(event.ActionDrop)
}

func (d *describer) dropList(o event.Object) bool {
	p := &d.p
	p.ifExists()
	for {
		n, ok := d.name()
		if !ok {
			return false
		}
		d.add(event.ActionDrop, o, n)
		if p.sign(",") {
			continue
		}
		p.wait()
		p.oneOf("RESTRICT", "CASCADE")
		return p.done()
	}
}

func (d *describer) rename() bool {
	p := &d.p
	p.ifExists()
	for {
		from, ok := d.name()
		if !ok {
			return false
		}
		p.wait()
		if !p.word("TO") {
			return false
		}
		to, ok := d.name()
		if !ok {
			return false
		}
		d.add(event.ActionRename, event.ObjectTable, to).Old = from
		if !p.sign(",") {
			return p.done()
		}
	}
}

func (d *describer) alter() bool {
	p := &d.p
	for p.oneOf("ONLINE", "OFFLINE", "IGNORE") {
	}
	switch {
	case p.word("TABLE"):
		return d.alterTable()
	case p.oneOf("DATABASE", "SCHEMA"):
		if p.databaseOption() {
			d.add(event.ActionAlter, event.ObjectDatabase, event.Name{Schema: d.srv.Fold(Name{Schema: d.st.Schema}).Schema})
			return true
		}
		return d.database(event.ActionAlter)
	case p.word("SEQUENCE"):
		p.ifExists()
		n, ok := d.name()
		if ok {
			d.add(event.ActionAlter, event.ObjectSequence, n)
		}
		return ok
	case p.oneOf(unnamed...):
		return true
	}
	return d.routine(event.ActionAlter)
}

func (d *describer) alterTable() bool {
	p := &d.p
	p.ifExists()
	n, ok := d.name()
	if !ok {
		return false
	}
	p.wait()
	st := *d.st
	st.Schema = cmp.Or(st.Schema, n.Schema) // the session's database, not the table's
	var to, other event.Name
	first, others, dropped, created, altered, renamed, moved := event.Action(""), 0, false, false, false, false, false
	for i, c := range clauses(p.t[p.i:]) {
		q := &describer{st: &st, srv: d.srv, p: parser{t: c}}
		if q.p.renames() {
			if to, ok = q.name(); !ok {
				return false
			}
			renamed = renamed || i == 0
			continue
		}
		others++
		if i == 0 {
			first = q.p.indexed()
		}
		moved = moved || q.p.at(0).is("IMPORT") // a tablespace
		// Clauses about partitions stand last, and may be about a second table.
		for ; !q.p.done(); q.p.next() {
			switch {
			case altered || dropped || created:
			case q.p.word("EXCHANGE", "PARTITION"):
				for !q.p.word("WITH", "TABLE") {
					if q.p.next().kind == end {
						return false
					}
				}
				if other, altered = q.name(); !altered {
					return false
				}
			case q.p.word("CONVERT", "PARTITION"): // MariaDB
				for !q.p.word("TO", "TABLE") {
					if q.p.next().kind == end {
						return false
					}
				}
				if other, created = q.name(); !created {
					return false
				}
			case q.p.word("CONVERT", "TABLE"): // MariaDB
				if other, dropped = q.name(); !dropped {
					return false
				}
			}
		}
	}
	rename := func() { d.add(event.ActionRename, event.ObjectTable, to).Old = n }
	called := n
	if renamed { // Canal goes by the first
		rename()
		called = to
	}
	if others > 0 {
		c := d.add(event.ActionAlter, event.ObjectTable, called)
		c.Index, c.Moved = first, moved || altered || dropped
	}
	switch {
	case altered:
		d.add(event.ActionAlter, event.ObjectTable, other).Moved = true
	case created:
		d.add(event.ActionCreate, event.ObjectTable, other).Moved = true
	case dropped:
		d.add(event.ActionDrop, event.ObjectTable, other)
	}
	if to != (event.Name{}) && !renamed {
		rename()
	}
	return true
}

// indexed tells what a clause of ALTER TABLE does with an index.
func (p *parser) indexed() event.Action {
	switch {
	case p.word("ADD"):
		p.sign("(")
		if p.word("CONSTRAINT") && !p.at(0).is("PRIMARY") && !p.at(0).is("UNIQUE") && !p.at(0).is("FOREIGN") {
			p.next()
		}
		// VECTOR alone may be a column's name.
		if p.oneOf("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL") || p.word("PRIMARY", "KEY") || p.word("VECTOR", "INDEX") || p.word("VECTOR", "KEY") {
			return event.ActionCreate
		}
	case p.word("DROP"):
		if p.oneOf("INDEX", "KEY", "CONSTRAINT") {
			return event.ActionDrop
		}
	}
	return ""
}
