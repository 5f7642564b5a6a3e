package binlog

import (
	"bytes"
	"strings"
)

// statement says what a QUERY event's text is to the state machine.
type statement uint8

const (
	stmtDDL         statement = iota // everything that is none of the following
	stmtEmpty                        // nothing but comments
	stmtBegin                        // BEGIN, START TRANSACTION
	stmtCommit                       //
	stmtRollback                     // of the whole transaction
	stmtRollbackTo                   // a savepoint
	stmtSavepoint                    //
	stmtRelease                      // a savepoint
	stmtXAStart                      // XA START, XA BEGIN
	stmtXAEnd                        //
	stmtXAPrepare                    //
	stmtXACommit                     //
	stmtXARollback                   //
	stmtAccount                      // users, rights and foreign servers: may carry secrets
	stmtSpared                       // stmtDML that leaves captured tables alone
	stmtDML                          // changes rows, or may do so, as text
	stmtCreateStart                  // CREATE TABLE ... START TRANSACTION: the CREATE of a CREATE TABLE ... SELECT
)

// String is for error messages and logs.
func (s statement) String() string {
	return [...]string{"DDL", "comment", "BEGIN", "COMMIT", "ROLLBACK", "ROLLBACK TO", "SAVEPOINT", "RELEASE SAVEPOINT", "XA START", "XA END",
		"XA PREPARE", "XA COMMIT", "XA ROLLBACK", "account statement", "DML of excluded tables", "DML", "CREATE ... START TRANSACTION"}[s]
}

// control reports whether the statement is transaction control, which takes no ordinal.
func (s statement) control() bool { return s >= stmtEmpty && s <= stmtXARollback }

// Bits of sql_mode that decide how a statement is read; they are the same in MySQL and MariaDB.
const (
	modeAnsiQuotes         = 1 << 2
	modeMSSQL              = 1 << 10 // MariaDB: names may stand in brackets; elsewhere no statement has any outside of its texts
	modeNoBackslashEscapes = 1 << 20
)

// lexer walks over the tokens of a statement, without comments. It knows as
// much of SQL as every server version agrees on; package ddl's reads as one version does.
type lexer struct {
	b     []byte
	mode  uint64 // sql_mode of the session that ran the statement
	named bool   // the last token is a word behind a dot: a name, even where it is a reserved word

	dot, number bool // the last token is a dot behind a name, or digits
}

// next returns the next token: a word in upper case, a quoted name or string with
// its opening quote, or one other byte; "" at the end.
func (l *lexer) next() string {
	t := l.token()
	if len(t) > 0 && wordByte(t[0]) {
		return strings.ToUpper(string(t))
	}
	return string(t)
}

// token is next with words as they are written.
func (l *lexer) token() []byte {
	t := l.read()
	l.named = l.dot && len(t) > 0 && wordByte(t[0])
	l.dot = string(t) == "." && !l.number // 1. is a number
	l.number = len(t) > 0 && len(bytes.Trim(t, "0123456789")) == 0
	return t
}

func (l *lexer) read() []byte {
	l.skip()
	if len(l.b) == 0 {
		return nil
	}
	switch x := l.b[0]; {
	case x == '\'' || x == '"' || x == '`':
		return l.quoted(x)
	case x == '[' && l.mode&modeMSSQL != 0:
		return l.quoted(']')
	case wordByte(x):
		n := 1
		for n < len(l.b) && wordByte(l.b[n]) {
			n++
		}
		w := l.b[:n]
		l.b = l.b[n:]
		return w
	}
	w := l.b[:1]
	l.b = l.b[1:]
	return w
}

// skip passes over blanks, comments, and the signs around those whose text is executed.
func (l *lexer) skip() {
	for len(l.b) > 0 {
		switch x := l.b[0]; {
		case x == ' ' || x >= '\t' && x <= '\r':
			l.b = l.b[1:]
		case x == '#' || x == '-' && len(l.b) > 1 && l.b[1] == '-' && (len(l.b) == 2 || l.b[2] <= ' '):
			i := bytes.IndexByte(l.b, '\n')
			if i < 0 {
				i = len(l.b) - 1
			}
			l.b = l.b[i+1:]
		case x == '*' && len(l.b) > 1 && l.b[1] == '/': // end of a comment whose text is executed
			l.b = l.b[2:]
		case x == '/' && len(l.b) > 1 && l.b[1] == '*':
			if l.executed() {
				continue
			}
			i := bytes.Index(l.b[2:], []byte("*/"))
			if i < 0 {
				l.b = nil
				continue
			}
			l.b = l.b[2+i+2:]
		default:
			return
		}
	}
}

// executed passes over the opening of /*! and /*M!, with a version number,
// as what follows is executed.
func (l *lexer) executed() bool {
	rest := l.b[2:]
	if len(rest) > 0 && rest[0] == 'M' {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != '!' {
		return false
	}
	rest = rest[1:]
	for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
		rest = rest[1:]
	}
	l.b = rest
	return true
}

// quoted reads what stands in quotes; q is the closing one.
func (l *lexer) quoted(q byte) []byte {
	escapes := q != '`' && q != ']' && l.mode&modeNoBackslashEscapes == 0 && (q != '"' || l.mode&modeAnsiQuotes == 0)
	i := 1
	for i < len(l.b) {
		switch {
		case l.b[i] == '\\' && escapes:
			i++
		case l.b[i] == q:
			if i+1 < len(l.b) && l.b[i+1] == q {
				i++
				break
			}
			s := l.b[:i]
			l.b = l.b[i+1:]
			return s
		}
		i++
	}
	s := l.b
	l.b = nil
	return s
}

func wordByte(x byte) bool {
	return x == '_' || x == '$' || x == '@' || x >= '0' && x <= '9' || x >= 'A' && x <= 'Z' || x >= 'a' && x <= 'z' || x >= 0x80
}

// classify says what the statement is, and the savepoint that it names. mode is the session's sql_mode.
func classify(text []byte, mode uint64) (statement, string) {
	// Nearly every QUERY event is one of these two.
	switch string(text) {
	case "BEGIN":
		return stmtBegin, ""
	case "COMMIT":
		return stmtCommit, ""
	}
	l := lexer{b: text, mode: mode}
	w := l.next()
	for w == "(" {
		w = l.next()
	}
	switch w {
	case "":
		return stmtEmpty, ""
	case "BEGIN":
		return stmtBegin, ""
	case "START":
		if l.next() == "TRANSACTION" {
			return stmtBegin, ""
		}
	case "COMMIT":
		return stmtCommit, ""
	case "ROLLBACK":
		w = l.next()
		if w == "WORK" {
			w = l.next()
		}
		if w != "TO" {
			return stmtRollback, ""
		}
		if w = l.next(); w == "SAVEPOINT" {
			w = l.next()
		}
		return stmtRollbackTo, savepoint(w)
	case "SAVEPOINT":
		return stmtSavepoint, savepoint(l.next())
	case "RELEASE":
		l.next()
		return stmtRelease, savepoint(l.next())
	case "XA":
		switch l.next() {
		case "START", "BEGIN":
			return stmtXAStart, ""
		case "END":
			return stmtXAEnd, ""
		case "PREPARE":
			return stmtXAPrepare, ""
		case "COMMIT":
			return stmtXACommit, ""
		case "ROLLBACK":
			return stmtXARollback, ""
		}
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "CALL", "DO", "HANDLER", "MERGE", "VALUES", "EXECUTE":
		return stmtDML, ""
	case "GRANT", "REVOKE":
		return stmtAccount, ""
	case "SET":
		switch l.next() {
		case "PASSWORD", "DEFAULT": // SET DEFAULT ROLE
			return stmtAccount, ""
		case "STATEMENT": // MariaDB: SET STATEMENT variable=value FOR statement
			if l.variables() {
				return classify(l.b, mode)
			}
		}
	case "ANALYZE":
		l.analyzed()
		if s, _ := classify(l.b, mode); s == stmtDML {
			return stmtDML, ""
		}
	case "CREATE", "ALTER", "DROP", "RENAME":
		return classifyDefinition(&l, w), ""
	}
	return stmtDDL, ""
}

// variables passes over what stands in front of the statement in MariaDB's SET STATEMENT variable=value FOR statement; false if
// there is none.
func (l *lexer) variables() bool {
	for {
		switch w := l.next(); {
		case w == "":
			return false
		case w == "FOR" && !l.named:
			return true
		}
	}
}

// analyzed passes over what stands behind ANALYZE before the statement that MariaDB executes, and tells about: FORMAT=JSON.
func (l *lexer) analyzed() {
	rest := *l
	if rest.next() == "FORMAT" && rest.next() == "=" {
		rest.next()
		*l = rest
	}
}

// emptied reports whether the statement is DELETE FROM `schema`.`table`, which servers before MySQL 8 log on
// their own account, outside BEGIN and COMMIT, when a MEMORY table is first used after a restart: as good as a TRUNCATE.
func emptied(text []byte) bool {
	l := lexer{b: text}
	name := func() bool {
		w := l.next()
		return len(w) > 1 && (w[0] == '`' || w[0] == '"')
	}
	return l.next() == "DELETE" && l.next() == "FROM" && name() && l.next() == "." && name() && l.next() == ""
}

func classifyDefinition(l *lexer, verb string) statement {
	temporary := false
	for {
		switch l.next() {
		case "OR", "REPLACE", "IF", "NOT", "EXISTS", "IGNORE", "ONLINE", "OFFLINE", "UNDO":
		case "TEMPORARY":
			temporary = true
		case "USER", "SERVER", "ROLE":
			return stmtAccount
		case "TABLE":
			if verb != "CREATE" || temporary {
				return stmtDDL
			}
			// Under row format a CREATE TABLE ... SELECT is logged without its SELECT, as are its forms ... TABLE t and ... VALUES ROW(1).
			last, prev := "", ""
			for {
				w := l.next()
				switch {
				case l.named: // shop.table
				case w == "SELECT" || w == "TABLE":
					return stmtDML
				case w == "VALUES":
					if w = l.next(); w != "LESS" && w != "IN" { // of partitions
						return stmtDML
					}
				case w == "":
					if prev == "START" && last == "TRANSACTION" {
						return stmtCreateStart
					}
					return stmtDDL
				}
				prev, last = last, w
			}
		default:
			return stmtDDL
		}
	}
}

// savepoint normalises the name, which is not case-sensitive.
func savepoint(w string) string { return strings.ToUpper(strings.TrimLeft(w, "`\"[")) }
