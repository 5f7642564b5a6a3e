package tablefilter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxCached bounds the verdicts remembered; a server with more tables than that
// in use pays for matching again.
const maxCached = 1 << 16

// Filter is a compiled pattern list. It is safe for concurrent use. The zero
// value and nil match every table outside the system schemas.
type Filter struct {
	rules    []rule
	allowAll bool // the first rule excludes: start from "everything"
	text     []string
	fold     bool // names are compared in lower case

	mu     sync.RWMutex
	cache  map[name]bool
	folded *Filter // see Folded
}

type name struct{ schema, table string }

type rule struct {
	exclude       bool
	schema, table glob
	explicit      bool // the schema is spelled out: may name a system schema
}

// New compiles patterns of the form "schema.table". In both halves * stands for
// any characters and ? for one; a backslash takes the next character literally,
// such as a dot within a name. A pattern that begins with ! excludes. The last
// pattern that matches decides; a table that none matches is left out, unless the list
// is empty or begins with an exclusion: then it is taken.
//
// Matching is case-sensitive, as table names are on the server's usual
// platforms; see [Filter.Folded] for others.
//
// The system schemas (mysql, sys, performance_schema, information_schema) are
// taken only by a pattern that spells the schema out.
//
// It takes patterns that [Check] refuses, for what they say: lists that were saved when nobody refused them (recipes of sinks, orders of snapshots) go on
// meaning what they meant (I5). What somebody writes is to be checked first.
func New(patterns []string) (*Filter, error) {
	f := &Filter{allowAll: true, text: append([]string(nil), patterns...)}
	for i, p := range patterns {
		r, err := parse(p, false)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			f.allowAll = r.exclude
		}
		f.rules = append(f.rules, r)
	}
	return f, nil
}

// Check refuses what New does, and patterns that were surely meant as regular expressions, as others have them: such a one is about other tables
// than its author thinks (I3).
func Check(patterns []string) error {
	for _, p := range patterns {
		if _, err := parse(p, true); err != nil {
			return err
		}
	}
	return nil
}

// Patterns returns the list the filter was made from.
func (f *Filter) Patterns() []string {
	if f == nil {
		return nil
	}
	return append([]string(nil), f.text...)
}

// For returns the filter as a source has it that tells upper from lower case, or does not (event.Table.Caseless).
func (f *Filter) For(caseless bool) *Filter {
	if caseless {
		return f.Folded()
	}
	return f
}

// Folded returns the same filter for a server that does not tell upper from lower case in names of databases and
// tables (lower_case_table_names): neither do its patterns.
func (f *Filter) Folded() *Filter {
	if f == nil || f.fold {
		return f
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.folded == nil {
		f.folded = &Filter{allowAll: f.allowAll, text: f.text, fold: true}
		for _, r := range f.rules {
			r.schema, r.table = r.schema.lower(), r.table.lower()
			f.folded.rules = append(f.folded.rules, r)
		}
	}
	return f.folded
}

// Match reports whether the table is taken.
func (f *Filter) Match(schema, table string) bool {
	if f == nil {
		return !IsSystem(schema)
	}
	k := name{schema, table}
	f.mu.RLock()
	v, ok := f.cache[k]
	f.mu.RUnlock()
	if ok {
		return v
	}
	v = f.match(schema, table)
	// The names may share memory with a network buffer: keep copies.
	k = name{strings.Clone(schema), strings.Clone(table)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache == nil || len(f.cache) >= maxCached {
		f.cache = make(map[name]bool)
	}
	f.cache[k] = v
	return v
}

func (f *Filter) match(schema, table string) bool {
	if f.fold {
		schema, table = strings.ToLower(schema), strings.ToLower(table)
	}
	system := IsSystem(schema)
	take := f.allowAll && !system
	for i := range f.rules {
		r := &f.rules[i]
		if system && !r.exclude && !r.explicit {
			continue
		}
		if r.schema.match(schema) && r.table.match(table) {
			take = !r.exclude
		}
	}
	return take
}

// MatchSchema reports whether the filter may take a table of the schema. It may answer true where none is taken,
// never the other way round.
func (f *Filter) MatchSchema(schema string) bool {
	system := IsSystem(schema)
	if f == nil {
		return !system
	}
	if f.fold {
		schema = strings.ToLower(schema)
	}
	take := f.allowAll && !system
	for i := range f.rules {
		r := &f.rules[i]
		if system && !r.exclude && !r.explicit || !r.schema.match(schema) {
			continue
		}
		if !r.exclude {
			take = true
		} else if len(r.table) == 1 && r.table[0].kind == many {
			take = false
		}
	}
	return take
}

// Schemas returns the schemas that tables can be taken from, sorted, as the patterns spell them out; nil when they do not spell out all.
func (f *Filter) Schemas() []string {
	if f == nil || f.allowAll {
		return nil
	}
	var all []string
	for _, r := range f.rules {
		switch {
		case r.exclude:
			continue
		case !r.explicit:
			return nil
		}
		name := make([]byte, len(r.schema))
		for i, t := range r.schema {
			name[i] = t.lit
		}
		all = append(all, string(name))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// IsSystem reports whether schema is one that the server keeps for itself.
func IsSystem(schema string) bool {
	switch strings.ToLower(schema) {
	case "mysql", "sys", "performance_schema", "information_schema":
		return true
	}
	return false
}

// parse compiles one pattern; wary: for Check.
func parse(p string, wary bool) (rule, error) {
	var r rule
	s := strings.TrimSpace(p)
	if s == "" {
		return r, fmt.Errorf("table pattern is empty: write schema.table, such as \"shop.*\"")
	}
	if s[0] == '!' {
		r.exclude, s = true, s[1:]
	}
	var halves []glob
	var cur glob
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			i++
			switch {
			case i == len(s):
				return r, fmt.Errorf("table pattern %q ends in a lone backslash", p)
			case wary && (s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z' || s[i] >= '0' && s[i] <= '9'): // I3: what \d means elsewhere it does not mean here
				return r, fmt.Errorf("table pattern %q is no regular expression: \\ takes the next character as it is, and %q needs none; * stands for any characters and ? for one", p, s[i:i+1])
			}
			cur = append(cur, token{lit: s[i]})
		case '.':
			// I3: of databases called so there are none, and test\..* is what others write for test.*
			if n := len(cur); wary && n > 0 && len(halves) == 0 && cur[n-1] == (token{lit: '.'}) {
				return r, fmt.Errorf("table pattern %q is no regular expression: write database.* for the tables of a database, and ? for a dot at the end of its name", p)
			}
			halves = append(halves, cur)
			cur = nil
		case '*':
			if n := len(cur); n == 0 || cur[n-1].kind != many {
				cur = append(cur, token{kind: many})
			}
		case '?':
			cur = append(cur, token{kind: one})
		default:
			cur = append(cur, token{lit: c})
		}
	}
	halves = append(halves, cur)
	if len(halves) != 2 || len(halves[0]) == 0 || len(halves[1]) == 0 {
		return r, fmt.Errorf("table pattern %q is not of the form schema.table (a dot within a name is written \\.)", p)
	}
	r.schema, r.table = halves[0], halves[1]
	r.explicit = !r.schema.wild()
	return r, nil
}

type kind uint8

const (
	literal kind = iota
	one
	many
)

type token struct {
	kind kind
	lit  byte
}

type glob []token

func (g glob) wild() bool {
	for _, t := range g {
		if t.kind != literal {
			return true
		}
	}
	return false
}

// lower is the pattern in lower case.
func (g glob) lower() (out glob) {
	for i := 0; i < len(g); {
		if g[i].kind != literal {
			out = append(out, g[i])
			i++
			continue
		}
		var text []byte // a letter may take several tokens
		for ; i < len(g) && g[i].kind == literal; i++ {
			text = append(text, g[i].lit)
		}
		for _, c := range bytes.ToLower(text) {
			out = append(out, token{lit: c})
		}
	}
	return out
}

// match runs in O(len(g)*len(s)) at worst: on a mismatch it goes back to the
// last * only.
func (g glob) match(s string) bool {
	gi, si, star, mark := 0, 0, -1, 0
	for si < len(s) {
		switch {
		case gi < len(g) && g[gi].kind == many:
			star, mark = gi, si
			gi++
		case gi < len(g) && g[gi].kind == one:
			gi++
			si += runeLen(s[si:])
		case gi < len(g) && g[gi].lit == s[si]:
			gi++
			si++
		case star >= 0:
			mark++
			gi, si = star+1, mark
		default:
			return false
		}
	}
	for gi < len(g) && g[gi].kind == many {
		gi++
	}
	return gi == len(g)
}

// runeLen is the length of the first character of s, which is not empty.
func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}
