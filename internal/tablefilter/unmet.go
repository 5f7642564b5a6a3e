package tablefilter

import (
	"iter"
	"strings"
)

// Unmet returns the patterns that are about none of the tables, whose schema and name it is given, in the order of the list. An exclusion is
// among them only where it looks like a regular expression: any other may be about what does not exist yet.
func (f *Filter) Unmet(tables iter.Seq2[string, string]) (patterns []string) {
	if f == nil {
		return nil
	}
	met := make([]bool, len(f.rules))
	for schema, table := range tables {
		system := IsSystem(schema)
		if f.fold {
			schema, table = strings.ToLower(schema), strings.ToLower(table)
		}
		for i := range f.rules {
			if r := &f.rules[i]; !met[i] && (!system || r.exclude || r.explicit) {
				met[i] = r.schema.match(schema) && r.table.match(table)
			}
		}
	}
	for i, p := range f.text {
		if !met[i] && (!f.rules[i].exclude || strings.ContainsAny(p, `\()[]{}|^+`)) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}
