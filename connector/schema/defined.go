package schema

import (
	"slices"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

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
		if out.Members == nil && (c.DataType == "enum" || c.DataType == "set") {
			out.Members, _ = ParseMembers(c.SQLType)
		}
		if c.JSON {
			out.Type, out.SQLType, out.Charset = "json", "json", ""
		}
		d.Columns = append(d.Columns, out)
	}
	return d
}
