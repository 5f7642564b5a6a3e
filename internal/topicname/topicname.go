// Package topicname reads the templates from which topics' names are made. It has no state and starts nothing.
package topicname

import (
	"fmt"
	"slices"
	"strings"
)

// Fields of a table's topic, and of one that belongs to no table.
var (
	OfTable = []string{"destination", "schema", "table"}
	OfNone  = []string{"destination"}
)

// Piece is literal text, or a field when Field is set.
type Piece struct {
	Text  string
	Field string
}

// Parse reads a template: text with fields in braces, such as {schema}. Only the fields given are allowed.
func Parse(template string, fields []string) ([]Piece, error) {
	var pieces []Piece
	rest := template
	for {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			break
		}
		j := strings.IndexByte(rest[i:], '}')
		if rest[i] != '{' || j < 0 {
			return nil, fmt.Errorf("topic template %q: unbalanced brace", template)
		}
		field := rest[i+1 : i+j]
		if !slices.Contains(fields, field) {
			return nil, fmt.Errorf("topic template %q: unknown field {%s}, known are {%s}", template, field, strings.Join(fields, "}, {"))
		}
		if i > 0 {
			pieces = append(pieces, Piece{Text: rest[:i]})
		}
		pieces = append(pieces, Piece{Field: field})
		rest = rest[i+j+1:]
	}
	if rest != "" {
		pieces = append(pieces, Piece{Text: rest})
	}
	return pieces, nil
}
