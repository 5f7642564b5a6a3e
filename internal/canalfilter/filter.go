// Package canalfilter reads the table filters of Canal: comma-separated regular expressions, each of which
// must match the whole of schema.table, in any case. It starts no goroutine and
// must never guess: an expression that it cannot read is an error.
package canalfilter

import (
	"fmt"
	"regexp"
	"strings"
)

// maxLength bounds a filter's text.
const maxLength = 256 << 10

// Filter decides which tables a subscription sees. It is immutable and safe for concurrent use.
type Filter struct {
	expressions []*regexp.Regexp // none: every table
}

// New reads a filter's text; "" stands for every table. Commas inside braces, brackets and parentheses belong to the
// expression. The expressions are Go's, which lack look-ahead and back-references; the error
// names the one that cannot be read.
func New(text string) (*Filter, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("filter of %d bytes, at most %d are read", len(text), maxLength)
	}
	f := &Filter{}
	for _, part := range split(text) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		e, err := regexp.Compile(`(?is)^(?:` + part + `)$`)
		if err != nil {
			return nil, fmt.Errorf("expression %q: %w", part, err)
		}
		f.expressions = append(f.expressions, e)
	}
	return f, nil
}

// Empty tells whether the text has no expression at all.
func (f *Filter) Empty() bool { return len(f.expressions) == 0 }

// Match tells whether the filter lets the table through.
func (f *Filter) Match(schema, table string) bool {
	if f.Empty() {
		return true
	}
	name := schema + "." + table
	for _, e := range f.expressions {
		if e.MatchString(name) {
			return true
		}
	}
	return false
}

// split cuts at the commas that are outside of braces, brackets and parentheses. A backslash takes the next
// byte out of consideration.
func split(text string) (parts []string) {
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 {
				parts = append(parts, text[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, text[from:])
}
