package ddl

import (
	"strconv"
	"strings"
)

// Bits of sql_mode that decide how a statement is read.
const (
	modeRealAsFloat        = 1 << 0
	modeAnsiQuotes         = 1 << 2
	modeOracle             = 1 << 9  // MariaDB; MySQL has not had it since 8.0
	modeMSSQL              = 1 << 10 // MariaDB
	modeMaxDB              = 1 << 12 // MariaDB, and MySQL before 8.0
	modeNoBackslashEscapes = 1 << 20
)

type kind uint8

const (
	end    kind = iota
	word        // bare identifier, keyword or number
	quoted      // identifier in quotes, which are taken off
	text        // string, unescaped
	sign        // one other byte
)

type token struct {
	kind kind
	s    string
}

// is reports whether the token is the bare word w, which is in upper case.
func (t token) is(w string) bool { return t.kind == word && strings.EqualFold(t.s, w) }

// damaged reports whether the token is an identifier that could not be read as it was sent.
func (t token) damaged() bool {
	return (t.kind == word || t.kind == quoted) && strings.ContainsRune(t.s, '\uFFFD')
}

// maxTokens bounds the memory that a statement takes; beyond it nothing is understood.
const maxTokens = 1 << 19

// lexer splits a statement into tokens, without comments, as the very server does that has run it, and gives up where that is not certain (I6). Package
// binlog's lexer looks for what any server may take for a statement or a secret: there comments with text to be executed always are, whatever their
// version, nothing is an error, and nothing is unescaped. So they are two.
type lexer struct {
	s    string
	i    int
	mode uint64
	srv  Server
}

// tokens returns the tokens of a statement; ok is false when it has too many, or a quote or comment that does not end.
func tokens(s string, mode uint64, srv Server) (out []token, ok bool) {
	l := lexer{s: s, mode: mode, srv: srv}
	for {
		t, ok := l.next()
		if !ok || len(out) == maxTokens {
			return out, false
		}
		if t.kind == end {
			return out, true
		}
		out = append(out, t)
	}
}

func wordByte(x byte) bool {
	return x == '_' || x == '$' || x == '@' || x >= '0' && x <= '9' || x >= 'A' && x <= 'Z' || x >= 'a' && x <= 'z' || x >= 0x80
}

func (l *lexer) next() (token, bool) {
	for l.i < len(l.s) {
		rest := l.s[l.i:]
		switch x := rest[0]; {
		case x == ' ' || x >= '\t' && x <= '\r':
			l.i++
		case x == '#' || x == '-' && len(rest) > 1 && rest[1] == '-' && (len(rest) == 2 || rest[2] <= ' '):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			l.i += n + 1
		case strings.HasPrefix(rest, "*/"): // end of a comment whose text is executed
			l.i += 2
		case strings.HasPrefix(rest, "/*"):
			if n := l.executed(rest); n > 0 {
				l.i += n
				continue
			}
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return token{}, false
			}
			l.i += n + 4
		case x == '\'' || x == '"' || x == '`':
			return l.quote(x)
		case x == '[' && l.mode&modeMSSQL != 0 && l.srv.MariaDB:
			return l.quote(']')
		case wordByte(x):
			n := 1
			for n < len(rest) && wordByte(rest[n]) {
				n++
			}
			l.i += n
			return token{word, l.stored(rest[:n])}, true
		default:
			l.i++
			return token{sign, rest[:1]}, true
		}
	}
	return token{}, true
}

// stored is a name as the server keeps it: MySQL puts question marks in the place of characters beyond the first 65,536, MariaDB has no such names.
func (l *lexer) stored(name string) string {
	if l.srv.MariaDB || !strings.ContainsFunc(name, func(r rune) bool { return r > 0xffff }) {
		return name
	}
	return strings.Map(func(r rune) rune {
		if r > 0xffff {
			return '?'
		}
		return r
	}, name)
}

// executed returns the length of the opening of a comment whose text the server executes, 0 for other comments.
func (l *lexer) executed(s string) int {
	i := 2
	maria := strings.HasPrefix(s[i:], "M")
	if maria {
		i++
	}
	if i >= len(s) || s[i] != '!' || maria && !l.srv.MariaDB {
		return 0
	}
	i++
	from := i
	for i < len(s) && i < from+6 && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i-from < 5 {
		return from
	}
	version, _ := strconv.Atoi(s[from:i])
	if version > l.srv.Version || l.srv.MariaDB && !maria && version >= 50700 && version < 100000 {
		return 0 // of a later server, or of MySQL's own
	}
	return i
}

// quote reads a quoted identifier or a string; q is the closing quote.
func (l *lexer) quote(q byte) (token, bool) {
	k := text
	if q == '`' || q == ']' || q == '"' && l.mode&modeAnsiQuotes != 0 {
		k = quoted
	}
	escapes := k == text && l.mode&modeNoBackslashEscapes == 0
	var b strings.Builder
	for i := l.i + 1; i < len(l.s); i++ {
		switch x := l.s[i]; {
		case x == '\\' && escapes && i+1 < len(l.s):
			i++
			switch l.s[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '0':
				b.WriteByte(0)
			case 'b':
				b.WriteByte('\b')
			case 'Z':
				b.WriteByte(26)
			case '%', '_': // of patterns: the backslash stays
				b.WriteString(l.s[i-1 : i+1])
			default:
				b.WriteByte(l.s[i])
			}
		case x == q:
			if i+1 < len(l.s) && l.s[i+1] == q {
				b.WriteByte(q)
				i++
				break
			}
			l.i = i + 1
			if k == quoted {
				return token{k, l.stored(b.String())}, true
			}
			return token{k, b.String()}, true
		default:
			b.WriteByte(x)
		}
	}
	l.i = len(l.s)
	return token{}, false
}

// parser walks over tokens.
type parser struct {
	t []token
	i int
}

func (p *parser) at(n int) token {
	if p.i+n < len(p.t) {
		return p.t[p.i+n]
	}
	return token{}
}

func (p *parser) next() token {
	t := p.at(0)
	if t.kind != end {
		p.i++
	}
	return t
}

// word consumes these bare words if they come next.
func (p *parser) word(words ...string) bool {
	for i, w := range words {
		if !p.at(i).is(w) {
			return false
		}
	}
	p.i += len(words)
	return true
}

// oneOf consumes the next token if it is one of these bare words.
func (p *parser) oneOf(words ...string) bool {
	for _, w := range words {
		if p.word(w) {
			return true
		}
	}
	return false
}

func (p *parser) sign(c string) bool {
	if t := p.at(0); t.kind == sign && t.s == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) done() bool { return p.at(0).kind == end }

// ident consumes an identifier.
func (p *parser) ident() (string, bool) {
	t := p.at(0)
	if t.kind != word && t.kind != quoted || t.s == "" {
		return "", false
	}
	p.i++
	return t.s, true
}

// name consumes [schema.]table; a leading dot means the default schema.
func (p *parser) name(schema string) (Name, bool) {
	p.sign(".")
	s, ok := p.ident()
	if !ok {
		return Name{}, false
	}
	if !p.sign(".") {
		return Name{schema, s}, schema != ""
	}
	t, ok := p.ident()
	return Name{s, t}, ok
}

// column consumes [[schema.]table.]column.
func (p *parser) column() (string, bool) {
	p.sign(".")
	s, ok := p.ident()
	for ok && p.sign(".") {
		s, ok = p.ident()
	}
	return s, ok
}

// parens consumes a balanced pair of parentheses with what is between, which it returns.
func (p *parser) parens() (inner []token, ok bool) {
	if !p.sign("(") {
		return nil, false
	}
	from, depth := p.i, 1
	for {
		t := p.next()
		switch {
		case t.kind == end:
			return nil, false
		case t.kind == sign && t.s == "(":
			depth++
		case t.kind == sign && t.s == ")":
			if depth--; depth == 0 {
				return p.t[from : p.i-1], true
			}
		}
	}
}

// clauses splits tokens at the commas outside of parentheses.
func clauses(t []token) [][]token {
	var out [][]token
	depth, from := 0, 0
	for i, x := range t {
		if x.kind != sign {
			continue
		}
		switch x.s {
		case "(":
			depth++
		case ")":
			depth--
		case ",":
			if depth == 0 {
				out = append(out, t[from:i])
				from = i + 1
			}
		}
	}
	return append(out, t[from:])
}
