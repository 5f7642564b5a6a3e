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
var hint = regexp.MustCompile(`(?i)identified|passw|pwd|secret|connection\W|option_list|engine_attribute|crypt|(en|de)code|asymmetric|\bkdf\b|private key|://`)

// bodyHint is hint for where anything may be said: what is put together at run time looks like nothing.
var bodyHint = regexp.MustCompile(hint.String() + `|\b(prepare|immediate|options)\b`)

// redact returns the text with which a statement may be published, nil if that is none: it has a hint of a secret in a place
// where nobody can tell what is one. The result may be text itself.
func redact(text []byte, mode uint64, about *event.Statement) []byte {
	switch first := about.First(); {
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
	r := redactor{text: text}
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
}

// options are followed by a secret, or by a text that has one in it.
var options = []string{"CONNECTION", "OPTION_LIST", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PASSWORD", "PASSWD", "PWD", "IDENTIFIED", "SECRET"}

// ciphers take keys as arguments.
var ciphers = []string{"AES_ENCRYPT", "AES_DECRYPT", "DES_ENCRYPT", "DES_DECRYPT", "ENCODE", "DECODE", "ENCRYPT", "PASSWORD", "OLD_PASSWORD", "KDF",
	"ASYMMETRIC_ENCRYPT", "ASYMMETRIC_DECRYPT", "ASYMMETRIC_SIGN", "ASYMMETRIC_DERIVE"}

// secretText matches texts that have a secret in them: a URL with a password, a private key, or a password as SPIDER has it in comments.
var secretText = regexp.MustCompile(`(?i)private key-|://\S*:\S*@|(passw(or)?d|pwd|secret)["'\\]*\s*[=:"'\\]`)

func (r *redactor) scan(mode uint64) {
	l := lexer{r.text, mode}
	var before [2][]byte                // the tokens before, without an equals sign
	depth, within, again := 0, 0, false // again: the token before was a secret, which goes on in a string that follows
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
			if depth++; within == 0 && is(before[0], ciphers) {
				within = depth
			}
		case t[0] == ')':
			if within == depth {
				within = 0
			}
			depth--
		case t[0] == '\'' || t[0] == '"':
			if text = again || within > 0 || is(before[0], options) || is(before[0], []string{"BY", "AS", "USING"}) && is(before[1], options) || secretText.Match(t[1:]); text {
				piece, r.changed = append(append([]byte{t[0]}, hidden...), t[0]), true
			}
		case within > 0 && (bytes.HasPrefix(t, []byte("0x")) || bytes.HasPrefix(t, []byte("0X"))):
			piece, r.changed = []byte("'"+hidden+"'"), true
		}
		again = text
		r.out = append(r.out, piece...)
		if t[0] != '=' {
			before[0], before[1] = t, before[0]
		}
	}
}

// is reports whether the token is one of the words, bare or quoted.
func is(t []byte, words []string) bool {
	s := strings.Trim(string(t), "`\"")
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
