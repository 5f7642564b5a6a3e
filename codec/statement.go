package codec

import (
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// maxTables bounds the list of what a statement is about, which travels in a header (I9).
const maxTables = 16 << 10

// MaxDefinitions bounds the tables' definitions in a message, in bytes (I9): a message that no topic takes would stop the sink. It is the same for all
// topics, so that it does not depend on them what a message holds (I5).
const MaxDefinitions = 256 << 10

// AppendTables appends the list of what a statement is about, as a JSON array in the order of the statement. It ends with
// {"action":"unknown"} where the statement may be about more than the list says.
func AppendTables(dst []byte, s *event.Statement) []byte {
	return AppendTablesWithin(dst, s, maxTables)
}

// AppendTablesWithin is AppendTables with another bound on the names, in bytes, which counts where it is the smaller one.
func AppendTablesWithin(dst []byte, s *event.Statement, most int) []byte {
	at := len(dst)
	most = min(most, maxTables)
	dst = append(dst, '[')
	whole := s != nil && s.Whole
	if s != nil {
		for i := range s.Changes {
			before := len(dst)
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst = appendChange(dst, &s.Changes[i]); len(dst)-at > most {
				dst, whole = dst[:before], false
				break
			}
		}
	}
	if !whole {
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"action":"unknown"}`...)
	}
	return append(dst, ']')
}

func appendChange(dst []byte, c *event.Change) []byte {
	dst = append(append(dst, `{"action":"`...), c.Action...)
	dst = append(append(dst, `","kind":"`...), c.Object...)
	dst = append(dst, '"')
	for _, n := range [...]struct{ prefix, schema, name string }{
		{"", c.Schema, c.Name}, {"old_", c.Old.Schema, c.Old.Name}, {"like_", c.Like.Schema, c.Like.Name}, {"on_", c.On.Schema, c.On.Name},
	} {
		if n.schema != "" {
			dst = append(append(append(dst, `,"`...), n.prefix...), `database":`...)
			dst = jsontext.AppendString(dst, []byte(n.schema))
		}
		if n.name != "" {
			dst = append(append(append(dst, `,"`...), n.prefix...), `name":`...)
			dst = jsontext.AppendString(dst, []byte(n.name))
		}
	}
	return append(dst, '}')
}
