package schema

import (
	"slices"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// maxDefined bounds the columns of the definitions that one statement tells (I9); they take some 150 bytes each.
const maxDefined = 1 << 14

// defined returns what a statement tells of the tables of which it made these versions. Nobody asks what tables were that are only dropped. h.mu is held.
func (v *View) defined(made []*version) (all []event.Defined) {
	if v.h.keeper == nil || v.h.loose || !slices.ContainsFunc(made, func(x *version) bool { return x.Table != "" && x.State != ddl.Absent }) {
		return nil // I5: a history that is not kept knows another time what it does not know now
	}
	columns := 0
	for _, x := range made {
		if x.Table == "" {
			continue
		}
		d := event.Defined{Schema: x.Schema, Name: x.Table, Before: v.h.before(x), After: x.after()}
		for _, t := range []*event.Definition{d.Before, d.After} {
			if t != nil {
				columns += len(t.Columns)
			}
		}
		if columns > maxDefined {
			return nil // all, as their order is not saved
		}
		all = append(all, d)
	}
	return all
}

// before returns what a table was before the statement of a version; nil: there was none, or it was not known when the statement was
// first read. h.mu is held.
func (h *History) before(x *version) *event.Definition {
	if !x.Before {
		return nil
	}
	n := x.name()
	list := h.lists[n]
	for i := slices.Index(list, x) - 1; i >= 0; i-- {
		if !list[i].Looked { // what was looked up between is no newer
			return definition(list[i].Def)
		}
	}
	return definition(h.base[n])
}

// after returns what the statement made of the table; nil: there is none any more, or it was not known when the statement was first read.
func (v *version) after() *event.Definition {
	if v.State != ddl.Known || v.Late {
		return nil
	}
	return definition(v.Def)
}

// definition returns a table with the columns that statements know.
func definition(t *ddl.Table) *event.Definition {
	if t == nil {
		return nil
	}
	d := &event.Definition{Charset: t.Charset, Columns: make([]event.DefinedColumn, 0, len(t.Columns))}
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Hidden != "" {
			continue
		}
		out := event.DefinedColumn{
			Name: c.Name, Type: c.DataType, SQLType: c.SQLType, Charset: c.Charset, Fraction: c.Fraction, Members: c.Members,
			Nullable: c.Nullable, Unsure: c.AsLogged, Key: c.Key,
		}
		if c.JSON {
			out.Type, out.SQLType, out.Charset = "json", "json", ""
		}
		d.Columns = append(d.Columns, out)
	}
	return d
}
