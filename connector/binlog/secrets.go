package binlog

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/binlogmq/binlogmq/event"
)

// Statements about accounts are withheld as a whole (stmtAccount). Others may hold secrets as well: options of tables
// that lie on other servers, keys in expressions, and whatever stands in the body of a routine.

// hint matches what the texts of secrets have about them. Without it a text is published as it is.
var hint = regexp.MustCompile(`(?i)identified|passw|passphrase|(\b|_)pass\b|pwd|secret|connection\W|option_list|engine_attribute|crypt|(en|de)code|asymmetric|kdf|_sign\b|private key|://`)

// bodyHint is hint for where anything may be said: what is put together at run time looks like nothing, and the procedures of
// cloud services take passwords by place.
var bodyHint = regexp.MustCompile(hint.String() + `|\b(prepare|immediate|options)\b|\brds_|\baz_replication|(change|external)_?(master|source)`)

// redact returns the text with which a statement may be published, nil if that is none: it has a hint of a secret in a place
// where nobody can tell what is one. The result may be text itself.
func redact(text []byte, mode uint64, about *event.Statement) []byte {
	switch first := about.First(); {
	case about.Whole && first.Action == event.ActionDrop:
		// It has names only.
	case !about.Whole, first.Object == "", first.Object == event.ObjectTrigger, first.Object == event.ObjectProcedure, first.Object == event.ObjectFunction,
		first.Object == event.ObjectEvent, first.Object == event.ObjectPackage, first.Object == event.ObjectLibrary:
		if bodyHint.Match(text) {
			return nil
		}
		return text
	}
	if !hint.Match(text) {
		return text
	}
	r := redactor{text: text, index: about.First().Index == event.ActionCreate}
	// A statement may be read in another mode than it runs in: SET STATEMENT.
	r.names = mode&modeAnsiQuotes != 0 && !bytes.Contains(bytes.ToLower(text), []byte("sql_mode"))
	r.scan(mode)
	if !r.changed {
		return text
	}
	return r.out
}

// hidden stands in the place of a secret.
const hidden = "***"

// redactor copies a statement without its secrets.
type redactor struct {
	text    []byte
	out     []byte
	changed bool
	names   bool // what stands in double quotes is a name
	index   bool // the statement creates an index
}

// options are followed by a secret, or by a text that has one in it.
var options = []string{"CONNECTION", "OPTION_LIST", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PASSWORD", "PASSWD", "PWD", "IDENTIFIED", "SECRET"}

// cipher reports whether a function takes keys as arguments: those of the servers, and others that are called alike.
func cipher(name string) bool {
	name = strings.ToUpper(strings.TrimLeft(name, "`\"["))
	switch name {
	case "ENCODE", "DECODE", "PASSWORD", "OLD_PASSWORD":
		return true
	}
	return strings.Contains(name, "CRYPT") || strings.Contains(name, "KDF") || strings.Contains(name, "ASYMMETRIC") || strings.HasSuffix(name, "_SIGN")
}

// naming are the words behind which a name stands, with columns in parentheses after it.
var naming = []string{"TABLE", "EXISTS", "VIEW", "INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "REFERENCES"}

// called reports whether what stands before a parenthesis is a function that takes keys. before are the tokens, the last first.
func (r *redactor) called(before *[4][]byte) bool {
	if !cipher(string(before[0])) {
		return false
	}
	for i := 1; i < len(before); i++ {
		if i > 1 && string(before[1]) != "." {
			break
		}
		if r.is(before[i], naming) || r.index && r.is(before[i], []string{"ON"}) {
			return false
		}
	}
	return true
}

// secretText matches texts that have a secret in them: a URL with a password, a private key, or a password as SPIDER has it in comments.
var secretText = regexp.MustCompile(`(?i)private key-|://\S*:\S*@|((\b|_)pass|passw(or)?d|passphrase|pwd|secret)["'\\]*\s*[=:"'\\]`)

func (r *redactor) scan(mode uint64) {
	l := lexer{b: r.text, mode: mode}
	var before [4][]byte                          // the tokens before, the last first, without equals signs
	depth, within, typed, again := 0, 0, 0, false // again: the token before was a secret, which goes on in a string that follows
	for {
		start := len(r.text) - len(l.b)
		l.skip()
		from := len(r.text) - len(l.b)
		r.gap(r.text[start:from])
		t := l.token()
		if len(t) == 0 {
			return
		}
		end := len(r.text) - len(l.b)
		piece := r.text[from:end]
		text := false
		switch {
		case t[0] == '(':
			depth++
			switch {
			case within == 0 && r.called(&before):
				within = depth
			case within > 0 && typed == 0 && r.is(before[1], []string{"AS"}): // CAST(a AS CHAR(9))
				typed = depth
			}
		case t[0] == ')':
			if within == depth {
				within = 0
			}
			if typed == depth {
				typed = 0
			}
			depth--
		case t[0] == '\'' || t[0] == '"' && !r.names:
			if text = again || within > 0 || r.is(before[0], options) || r.is(before[0], []string{"BY", "AS", "USING"}) && r.is(before[1], []string{"IDENTIFIED"}) || secretText.Match(t[1:]); text {
				piece, r.changed = append(append([]byte{t[0]}, hidden...), t[0]), true
			}
		case within > 0 && typed == 0 && t[0] >= '0' && t[0] <= '9':
			piece, r.changed = []byte("'"+hidden+"'"), true
		}
		again = text
		if n := len(r.out); n > 0 && r.out[n-1] == '\'' && piece[0] == '\'' {
			r.out = append(r.out, ' ') // a number stood there: two strings are not to be one
		}
		r.out = append(r.out, piece...)
		if t[0] != '=' {
			before = [4][]byte{t, before[0], before[1], before[2]}
		}
	}
}

// is reports whether the token is one of the words, bare or a quoted name.
func (r *redactor) is(t []byte, words []string) bool {
	s := strings.TrimLeft(string(t), "`[")
	if r.names {
		s = strings.TrimLeft(s, "\"")
	}
	for _, w := range words {
		if strings.EqualFold(s, w) {
			return true
		}
	}
	return false
}

// gap copies what lies between two tokens: blanks and comments. A comment with a hint of a secret loses its text.
func (r *redactor) gap(g []byte) {
	for len(g) > 0 {
		n := 1
		switch {
		case bytes.HasPrefix(g, []byte("/*")):
			l := lexer{b: g}
			if l.executed() {
				n = len(g) - len(l.b)
				break
			}
			if n = bytes.Index(g[2:], []byte("*/")) + 4; n < 4 {
				n = len(g)
			}
			if bodyHint.Match(g[:n]) {
				r.out, r.changed, g = append(r.out, "/* "+hidden+" */"...), true, g[n:]
				continue
			}
		case g[0] == '#' || bytes.HasPrefix(g, []byte("--")):
			if n = bytes.IndexByte(g, '\n'); n < 0 {
				n = len(g)
			}
			if bodyHint.Match(g[:n]) {
				r.out, r.changed, g = append(r.out, "-- "+hidden...), true, g[n:]
				continue
			}
		}
		r.out, g = append(r.out, g[:n]...), g[n:]
	}
}
