// Package condition looks at conditions in SQL that people write, before they become a part of a longer statement.
package condition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CheckAll looks at conditions by the name of their table, schema.table. The error joins all faults, in the order of the names.
func CheckAll(where map[string]string) error {
	var errs []error
	for table, text := range where {
		if i := strings.IndexByte(table, '.'); i <= 0 || i == len(table)-1 || strings.ContainsAny(table, "*?!`") {
			errs = append(errs, fmt.Errorf("%q is not the name of a table: write schema.table, without wildcards and quotes", table))
		}
		if err := Check(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", table, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Check refuses what would not stay one condition between parentheses: what is empty, has a quote or a parenthesis that does not end, a
// comment, or a semicolon. What it lets through may still be no SQL; that says the server. Strings are read as with an empty sql_mode.
func Check(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("the condition is empty")
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch x := text[i]; x {
		case '\'', '"', '`':
			n := quoted(text[i:])
			if n == 0 {
				return fmt.Errorf("the quote %c in %q does not end", x, text)
			}
			i += n - 1
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return fmt.Errorf("a parenthesis in %q closes that was not opened", text)
			}
		case ';':
			return fmt.Errorf("%q holds a semicolon: one condition is wanted", text)
		case '#':
			return fmt.Errorf("%q holds a comment", text)
		case '-', '/':
			if next := text[i+1:]; x == '-' && strings.HasPrefix(next, "-") || x == '/' && strings.HasPrefix(next, "*") {
				return fmt.Errorf("%q holds a comment (a minus before a negative number wants a space)", text)
			}
		case 0:
			return fmt.Errorf("%q holds a zero byte", text)
		}
	}
	if depth > 0 {
		return fmt.Errorf("a parenthesis in %q does not close", text)
	}
	return nil
}

// quoted returns the length of the string or identifier with which text begins; 0: it does not end.
func quoted(text string) int {
	q := text[0]
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if q != '`' {
				i++
			}
		case q:
			if i+1 == len(text) || text[i+1] != q {
				return i + 1
			}
			i++
		}
	}
	return 0
}
