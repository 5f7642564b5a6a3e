package statement

import (
	"bytes"
	"strings"
)

// Verb is what a statement does.
type Verb uint8

// The verbs.
const (
	Other Verb = iota
	Create
	Alter
	Drop
	Rename
	Truncate
)

// Object is the kind of thing that it is done to.
type Object uint8

// The objects. None stands for everything that is neither of the others.
const (
	None Object = iota
	Table
	Database
	Index
)

// Head is what the beginning of a statement says.
type Head struct {
	Verb   Verb
	Object Object

	// Schema and Name are the table (or, in Schema alone, the database) that the statement
	// names: the only one, else both are empty. Schema is empty where the
	// statement leaves it to the session's default.
	Schema, Name string

	// NewSchema and NewName are what RENAME TABLE makes of it.
	NewSchema, NewName string

	// Several is true when the statement names more than one table.
	Several bool

	// Account is true for statements that create or change accounts, grants or
	// server links: their text can hold passwords or what is derived from them.
	Account bool
}

// Parse reads the head of sql.
func Parse(sql []byte) Head {
	l := lexer{s: sql}
	var h Head
	switch {
	case l.word("CREATE"):
		h.Verb = Create
	case l.word("ALTER"):
		h.Verb = Alter
	case l.word("DROP"):
		h.Verb = Drop
	case l.word("RENAME"):
		h.Verb = Rename
	case l.word("TRUNCATE"):
		h.Verb = Truncate
	case l.word("SET"):
		if l.word("STATEMENT") && l.past("FOR") { // MariaDB: SET STATEMENT variable=value FOR statement
			return Parse(l.s[l.pos:])
		}
		// SET PASSWORD, SET DEFAULT ROLE, SET ROLE.
		h.Account = l.word("PASSWORD")
		return h
	case l.word("GRANT"), l.word("REVOKE"):
		h.Account = true
		return h
	default:
		return h
	}
	l.modifiers()
	switch {
	case l.word("TABLE"), l.word("TABLES"):
		h.Object = Table
	case h.Verb == Truncate:
		h.Object = Table
	case h.Verb == Rename:
		h.Account = l.word("USER")
		return h
	case l.word("DATABASE"), l.word("SCHEMA"):
		h.Object = Database
	case l.word("INDEX"):
		h.Object = Index
	case l.word("USER"), l.word("ROLE"), l.word("SERVER"):
		h.Account = true
		return h
	default:
		return h
	}
	if l.word("IF") {
		l.word("NOT")
		l.word("EXISTS")
	}
	switch h.Object {
	case Database:
		if h.Verb == Alter && l.databaseOption() {
			return h // ALTER DATABASE CHARACTER SET x: the session's own
		}
		h.Schema, _ = l.identifier()
	case Index:
		if _, ok := l.identifier(); !ok {
			return h
		}
		// CREATE INDEX i [USING BTREE] ON t
		if l.word("USING") {
			l.next()
		}
		if l.word("ON") {
			h.Schema, h.Name, _ = l.name()
		}
	case Table:
		var ok bool
		if h.Schema, h.Name, ok = l.name(); !ok {
			return h
		}
		switch h.Verb {
		case Rename:
			if l.word("WAIT") {
				l.next()
			}
			l.word("NOWAIT")
			if !l.word("TO") {
				h.Schema, h.Name = "", ""
				return h
			}
			h.NewSchema, h.NewName, ok = l.name()
			if h.Several = l.punct(','); h.Several || !ok {
				h.Schema, h.Name, h.NewSchema, h.NewName = "", "", "", ""
			}
		case Drop:
			if h.Several = l.punct(','); h.Several {
				h.Schema, h.Name = "", ""
			}
		}
	}
	return h
}

// Redacted returns the text under which the statement may be shown: sql itself,
// or for an account statement its first two words alone.
func Redacted(sql []byte, h Head) []byte {
	if !h.Account {
		return sql
	}
	l := lexer{s: sql}
	first := l.next()
	second := l.next()
	out := append([]byte(nil), first.text...)
	if h.Verb != Other || second.is("PASSWORD") {
		out = append(append(out, ' '), second.text...)
	}
	return append(out, " /* not published */"...)
}

type kind uint8

const (
	end kind = iota
	word
	quoted
	punctuation
)

type token struct {
	kind kind
	text []byte // without its quotes, inner ones still doubled
}

func (t token) is(w string) bool {
	return t.kind == word && len(t.text) == len(w) && strings.EqualFold(string(t.text), w)
}

type lexer struct {
	s   []byte
	pos int
}

// word consumes the next token if it is the bare word w.
func (l *lexer) word(w string) bool {
	at := l.pos
	if l.next().is(w) {
		return true
	}
	l.pos = at
	return false
}

func (l *lexer) punct(c byte) bool {
	at := l.pos
	if t := l.next(); t.kind == punctuation && t.text[0] == c {
		return true
	}
	l.pos = at
	return false
}

// past consumes everything up to the bare word w, and it too; strings are passed over. It reports whether there is one.
func (l *lexer) past(w string) bool {
	for {
		switch t := l.next(); {
		case t.kind == end:
			return false
		case t.is(w):
			return true
		case t.kind == punctuation && t.text[0] == '\'':
			for l.pos < len(l.s) && l.s[l.pos] != '\'' {
				if l.s[l.pos] == '\\' {
					l.pos++
				}
				l.pos++
			}
			l.pos = min(l.pos+1, len(l.s))
		}
	}
}

// modifiers consumes what may stand between the verb and the kind of object.
func (l *lexer) modifiers() {
	for {
		switch {
		case l.word("OR"): // OR REPLACE
			l.word("REPLACE")
		case l.word("TEMPORARY"), l.word("UNIQUE"), l.word("FULLTEXT"), l.word("SPATIAL"),
			l.word("ONLINE"), l.word("OFFLINE"), l.word("IGNORE"), l.word("UNDO"), l.word("AGGREGATE"):
		default:
			return
		}
	}
}

// databaseOption reports whether an option of ALTER DATABASE comes next instead
// of a name. Some of the words could be names too; then neither is taken.
func (l *lexer) databaseOption() bool {
	for _, w := range [...]string{"CHARACTER", "CHARSET", "COLLATE", "COMMENT", "DEFAULT", "ENCRYPTION", "READ", "UPGRADE"} {
		if l.word(w) {
			return true
		}
	}
	return false
}

func (l *lexer) identifier() (string, bool) {
	switch t := l.next(); t.kind {
	case word:
		return string(t.text), true
	case quoted:
		q := l.s[l.pos-1] // the closing quote
		return string(bytes.ReplaceAll(t.text, []byte{q, q}, []byte{q})), true
	}
	return "", false
}

// name consumes [schema.]table.
func (l *lexer) name() (schema, table string, ok bool) {
	l.punct('.') // MySQL accepts .t for t
	if table, ok = l.identifier(); !ok {
		return "", "", false
	}
	if l.punct('.') {
		schema = table
		if table, ok = l.identifier(); !ok {
			return "", "", false
		}
	}
	return schema, table, true
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// skip moves over white space and comments. The inside of an executable comment
// (/*! and /*M!) counts as text, as it does for the server that logged it.
func (l *lexer) skip() {
	for l.pos < len(l.s) {
		rest := l.s[l.pos:]
		switch c := rest[0]; {
		case c <= ' ':
			l.pos++
		case c == '#', bytes.HasPrefix(rest, []byte("--")) && (len(rest) == 2 || rest[2] <= ' '):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			l.pos += n + 1
		case bytes.HasPrefix(rest, []byte("/*!")), bytes.HasPrefix(rest, []byte("/*M!")):
			l.pos += bytes.IndexByte(rest, '!') + 1
			for l.pos < len(l.s) && l.s[l.pos] >= '0' && l.s[l.pos] <= '9' {
				l.pos++
			}
		case bytes.HasPrefix(rest, []byte("*/")):
			l.pos += 2
		case bytes.HasPrefix(rest, []byte("/*")):
			n := bytes.Index(rest[2:], []byte("*/"))
			if n < 0 {
				l.pos = len(l.s)
				return
			}
			l.pos += n + 4
		default:
			return
		}
	}
}

func (l *lexer) next() token {
	l.skip()
	if l.pos >= len(l.s) {
		return token{}
	}
	start := l.pos
	c := l.s[start]
	switch {
	case isWord(c):
		for l.pos < len(l.s) && isWord(l.s[l.pos]) {
			l.pos++
		}
		return token{word, l.s[start:l.pos]}
	case c == '`' || c == '"':
		for i := start + 1; i < len(l.s); i++ {
			if l.s[i] != c {
				continue
			}
			if i+1 < len(l.s) && l.s[i+1] == c {
				i++
				continue
			}
			l.pos = i + 1
			return token{quoted, l.s[start+1 : i]}
		}
		l.pos = len(l.s) // never closed: nothing to be learned from it
		return token{}
	}
	l.pos++
	return token{punctuation, l.s[start:l.pos]}
}
