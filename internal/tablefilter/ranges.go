package tablefilter

import "strings"

// Range is a set of tables: those whose names two patterns match, one for the schema and one for the table.
type Range struct {
	schema, table []symbol
}

// symbol is a part of a pattern that stands for characters, not for bytes as in a glob.
type symbol struct {
	kind kind
	char rune
}

func symbols(g glob) (out []symbol) {
	for i := 0; i < len(g); {
		if g[i].kind != literal {
			out = append(out, symbol{kind: g[i].kind})
			i++
			continue
		}
		var text []byte // a letter may take several tokens
		for ; i < len(g) && g[i].kind == literal; i++ {
			text = append(text, g[i].lit)
		}
		out = append(out, chars(string(text))...)
	}
	return out
}

func chars(text string) (out []symbol) {
	for _, c := range text {
		out = append(out, symbol{char: c})
	}
	return out
}

// like reads a pattern of SQL's LIKE: % and _, and a backslash that takes the next character literally.
func like(text string) (out []symbol) {
	escaped := false
	for _, c := range text {
		switch {
		case !escaped && c == '\\':
			escaped = true
			continue
		case !escaped && c == '%':
			out = append(out, symbol{kind: many})
		case !escaped && c == '_':
			out = append(out, symbol{kind: one})
		default:
			out = append(out, symbol{char: c})
		}
		escaped = false
	}
	if escaped {
		out = append(out, symbol{char: '\\'})
	}
	return out
}

func (r *rule) tables() Range {
	return Range{schema: symbols(r.schema), table: symbols(r.table)}
}

// everything is all tables.
func everything() Range {
	return Range{schema: []symbol{{kind: many}}, table: []symbol{{kind: many}}}
}

// LikeSchema is all tables of the schemas that a pattern of SQL's LIKE matches.
func LikeSchema(pattern string) Range {
	return Range{schema: like(pattern), table: []symbol{{kind: many}}}
}

// One is a table; for an empty name all of the schema.
func One(schema, table string) Range {
	r := Range{schema: chars(schema), table: chars(table)}
	if table == "" {
		r.table = []symbol{{kind: many}}
	}
	return r
}

// Within reports whether each table of r is one of o.
func (r Range) Within(o Range) bool { return covers(o.schema, r.schema) && covers(o.table, r.table) }

// Meets reports whether some name may be that of a table of both.
func (r Range) Meets(o Range) bool { return meet(r.schema, o.schema) && meet(r.table, o.table) }

// Names returns the schema and the table, if r has only one; an empty one stands for a pattern with wildcards.
func (r Range) Names() (schema, table string) { return spelled(r.schema), spelled(r.table) }

func spelled(g []symbol) string {
	var b strings.Builder
	for _, s := range g {
		if s.kind != literal {
			return ""
		}
		b.WriteRune(s.char)
	}
	return b.String()
}

// SchemaLike returns a pattern of SQL's LIKE for the schemas.
func (r Range) SchemaLike() string {
	var b strings.Builder
	for _, s := range r.schema {
		switch {
		case s.kind == many:
			b.WriteByte('%')
		case s.kind == one:
			b.WriteByte('_')
		case s.char == '%' || s.char == '_' || s.char == '\\':
			b.WriteByte('\\')
			b.WriteRune(s.char)
		default:
			b.WriteRune(s.char)
		}
	}
	return b.String()
}

// Ranges returns what the patterns take in, without those that a later pattern takes out wholly.
func (f *Filter) Ranges() []Range {
	if f == nil || f.allowAll && len(f.rules) == 0 {
		return []Range{everything()}
	}
	var all []Range
	if f.allowAll {
		all = append(all, everything())
	}
	for i := range f.rules {
		r := f.rules[i].tables()
		if f.rules[i].exclude {
			kept := all[:0]
			for _, a := range all {
				if !a.Within(r) {
					kept = append(kept, a)
				}
			}
			all = kept
			continue
		}
		all = append(all, r)
	}
	return all
}

// MayTake reports whether a table of the range may be taken. It may answer true where none is, never the other way round.
func (f *Filter) MayTake(r Range) bool {
	schema, _ := r.Names()
	system := IsSystem(schema)
	if f == nil {
		return !system
	}
	take := f.allowAll && !system
	for i := range f.rules {
		x := &f.rules[i]
		switch t := x.tables(); {
		case x.exclude && r.Within(t):
			take = false
		case !x.exclude && (!system || x.explicit) && r.Meets(t):
			take = true
		}
	}
	return take
}

// Outside returns those of a list of patterns that take in tables, but surely none that f takes, however the source compares names.
func (f *Filter) Outside(patterns []string) (out []string) {
	for _, p := range patterns {
		r, err := parse(p, true)
		if err != nil || r.exclude {
			continue
		}
		folded := r
		folded.schema, folded.table = r.schema.lower(), r.table.lower()
		if !f.MayTake(r.tables()) && !f.Folded().MayTake(folded.tables()) {
			out = append(out, p)
		}
	}
	return out
}

// MayTakeNamed is MayTake for a table that is written schema.table, whichever of its dots divides it and however the source compares names.
func (f *Filter) MayTakeNamed(full string) bool {
	for i := range full {
		if full[i] != '.' {
			continue
		}
		schema, table := full[:i], full[i+1:]
		if f.Match(schema, table) || f.Folded().Match(schema, table) {
			return true
		}
	}
	return false
}

// covers reports whether a matches whatever b does. It may answer false where that is so (for wildcards of b), never the other way round.
func covers(a, b []symbol) bool {
	for len(a) > 0 {
		switch {
		case a[0].kind == many:
			for i := 0; i <= len(b); i++ {
				if covers(a[1:], b[i:]) {
					return true
				}
			}
			return false
		case len(b) == 0 || b[0].kind == many, a[0].kind == literal && a[0] != b[0]:
			return false
		}
		a, b = a[1:], b[1:]
	}
	return len(b) == 0
}

// meet reports whether something is matched by both.
func meet(a, b []symbol) bool {
	reach := make([]bool, len(b)+1) // of b, behind what was taken of a
	closure := func() {
		for j := range b {
			if reach[j] && b[j].kind == many {
				reach[j+1] = true
			}
		}
	}
	reach[0] = true
	closure()
	for _, s := range a {
		next := make([]bool, len(b)+1)
		for j, ok := range reach {
			if !ok {
				continue
			}
			if s.kind == many { // takes any part of b
				for k := j; k <= len(b); k++ {
					next[k] = true
				}
				break
			}
			if j < len(b) {
				switch {
				case b[j].kind == many:
					next[j] = true
				case s.kind == one || b[j].kind == one || s == b[j]:
					next[j+1] = true
				}
			}
		}
		reach = next
		closure()
	}
	return reach[len(b)]
}
