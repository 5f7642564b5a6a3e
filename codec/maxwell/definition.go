package maxwell

import (
	"strconv"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// appendDefinitions appends old, what an altered table was, and def, what the statement made of it, as far as they are known.
func appendDefinitions(dst []byte, s *event.Statement, name event.Name) []byte {
	to := name
	for i := range s.Changes {
		if c := &s.Changes[i]; c.Action == event.ActionRename && c.Old == to {
			to = event.Name{Schema: c.Schema, Name: c.Name}
		}
	}
	at := len(dst)
	before, _ := s.Definition(name.Schema, name.Name)
	_, after := s.Definition(to.Schema, to.Name)
	switch s.First().Action {
	case event.ActionCreate:
		before = nil
	case event.ActionAlter, event.ActionRename:
	default:
		return dst
	}
	if before != nil {
		dst = appendDefinition(append(dst, `,"old":`...), before, name)
	}
	if after != nil {
		dst = appendDefinition(append(dst, `,"def":`...), after, to)
	}
	if len(dst)-at > codec.MaxDefinitions {
		return dst[:at]
	}
	return dst
}

func appendDefinition(dst []byte, d *event.Definition, name event.Name) []byte {
	text := func(s string) { dst = jsontext.AppendString(dst, []byte(s)) }
	list := func(names []string) {
		dst = append(dst, '[')
		for i, n := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			text(n)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `{"database":`...)
	text(name.Schema)
	if d.Charset == "" {
		dst = append(dst, `,"charset":null`...)
	} else {
		dst = append(dst, `,"charset":`...)
		text(d.Charset)
	}
	dst = append(dst, `,"table":`...)
	text(name.Name)
	dst = append(dst, `,"columns":[`...)
	for i := range d.Columns {
		c := &d.Columns[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"type":`...)
		text(c.Type)
		dst = append(dst, `,"name":`...)
		text(c.Name)
		switch c.Type {
		case "tinyint", "smallint", "mediumint", "int", "bigint":
			dst = strconv.AppendBool(append(dst, `,"signed":`...), !c.Unsigned())
		case "time", "datetime", "timestamp":
			dst = strconv.AppendUint(append(dst, `,"column-length":`...), c.Fraction, 10)
		case "enum", "set":
			dst = append(dst, `,"enum-values":`...)
			list(c.Members)
		case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
			dst = append(dst, `,"charset":"binary"`...)
		default:
			if c.Charset != "" {
				dst = append(dst, `,"charset":`...)
				text(c.Charset)
			}
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `],"primary-key":`...)
	list(d.PrimaryKey())
	return append(dst, '}')
}
