package binlog

import (
	"bytes"
	"slices"
	"strings"
)

// tableName is a table as a statement names it; schema is empty where it leaves that to the session's default.
type tableName struct{ schema, name string }

// written returns the tables that a statement may write to by itself, or more of those that it names. It answers false where
// the text alone does not tell: procedures, functions called by a statement of their own, common table expressions, derived tables.
func written(text []byte, mode uint64) (tables []tableName, ok bool) {
	l := names{lexer: lexer{b: text, mode: mode}}
	l.next()
	switch l.word() {
	case "SET": // MariaDB: SET STATEMENT variable=value FOR statement
		if l.next(); l.word() != "STATEMENT" || !l.variables() {
			return nil, false
		}
		return written(l.b, mode)
	case "ANALYZE":
		l.analyzed()
		return written(l.b, mode)
	case "INSERT", "REPLACE":
		l.pass("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
		return l.one()
	case "CREATE": // TABLE ... SELECT
		l.pass("OR", "REPLACE", "TABLE", "IF", "NOT", "EXISTS")
		return l.one()
	case "LOAD":
		for l.tok != nil {
			if l.word() == "INTO" {
				if l.next(); l.word() == "TABLE" {
					l.next()
					return l.one()
				}
				continue
			}
			l.next()
		}
		return nil, false
	case "UPDATE":
		l.pass("LOW_PRIORITY", "IGNORE")
		return l.all("SET")
	case "DELETE":
		l.pass("LOW_PRIORITY", "QUICK", "IGNORE")
		// DELETE a FROM ... and DELETE FROM a USING ... name all tables once more behind the word.
		return l.all("WHERE", "ORDER", "LIMIT", "RETURNING", "FOR")
	}
	return nil, false
}

// names reads table names. tok is the token that comes next.
type names struct {
	lexer
	tok []byte
}

func (l *names) next() { l.tok = l.token() }

// word is the next token in upper case if it is a bare word that may be a keyword.
func (l *names) word() string {
	if l.named || len(l.tok) == 0 || !wordByte(l.tok[0]) {
		return ""
	}
	return strings.ToUpper(string(l.tok))
}

// pass passes over the current word and those of the given ones that follow it.
func (l *names) pass(words ...string) {
	for l.next(); slices.Contains(words, l.word()); l.next() {
	}
}

func (l *names) identifier() (string, bool) {
	t := l.tok
	switch {
	case len(t) == 0:
		return "", false
	case t[0] == '`' || t[0] == '"' || t[0] == '[' && len(t) > 1:
		l.next()
		quote := strings.Replace(string(t[:1]), "[", "]", 1)
		return strings.ReplaceAll(string(t[1:]), quote+quote, quote), true
	case wordByte(t[0]):
		l.next()
		return string(t), true
	}
	return "", false
}

// name reads [schema.]table[.*].
func (l *names) name() (t tableName, ok bool) {
	if t.name, ok = l.identifier(); !ok {
		return t, false
	}
	for string(l.tok) == "." {
		l.next()
		if string(l.tok) == "*" {
			l.next()
			return t, true
		}
		if t.schema != "" {
			return t, false
		}
		t.schema = t.name
		if t.name, ok = l.identifier(); !ok {
			return t, false
		}
	}
	return t, true
}

func (l *names) one() ([]tableName, bool) {
	t, ok := l.name()
	return []tableName{t}, ok
}

// all collects the names that stand where a table may stand, up to one of the words or the end. Aliases
// of multi-table DELETE are among them: they name no table, so somebody who asks whether all are excluded asks too much.
func (l *names) all(until ...string) (tables []tableName, ok bool) {
	expect := true // a table comes next
	for l.tok != nil {
		w := l.word()
		switch {
		case slices.Contains(until, w):
			return tables, len(tables) > 0 && !expect
		case w == "SELECT" || w == "VALUES" || w == "JSON_TABLE" || w == "TABLE" || w == "LATERAL":
			return nil, false // a derived table
		case w == "FROM" || w == "USING" || w == "JOIN" || w == "STRAIGHT_JOIN" || string(l.tok) == ",":
			expect = true
			l.next()
		case string(l.tok) == "(" && expect:
			l.next()
		case expect:
			t, ok := l.name()
			if !ok {
				return nil, false
			}
			tables = append(tables, t)
			expect = false
		default:
			l.next()
		}
	}
	return tables, len(tables) > 0 && !expect
}

// spares reports whether a statement that changes rows leaves all captured tables alone, as far as its text, and
// on MySQL its list of databases, can tell. What triggers and functions of an excluded table's own database do is not seen.
func (m *Machine) spares(q *Query) bool {
	tables, ok := written(m.utf8(q, q.Statement), q.SQLMode)
	if !ok || m.opt.Scan {
		return false
	}
	seen := make([]string, 0, 4)
	for _, t := range tables {
		if t.schema == "" {
			t.schema = string(q.Schema)
		}
		// Where the server folds names, the log of rows has them in lower case.
		if t.schema == "" || m.opt.Match(t.schema, t.name) || m.opt.Match(strings.ToLower(t.schema), strings.ToLower(t.name)) {
			return false
		}
		seen = append(seen, t.schema)
	}
	if q.Unlisted {
		return false // cascades of foreign keys may write anywhere
	}
	if len(q.Databases) == 0 {
		return true
	}
	for db := range bytes.SplitSeq(bytes.TrimSuffix(q.Databases, []byte{0}), []byte{0}) {
		name := string(db)
		if !slices.ContainsFunc(seen, func(s string) bool { return strings.EqualFold(s, name) }) && (m.opt.MatchSchema == nil || m.opt.MatchSchema(name)) {
			return false // a trigger or a function writes there
		}
	}
	return true
}

// dml handles a statement that changes rows as text: it is passed over, or stops the stream.
func (m *Machine) dml(q *Query, start uint64) (statement, error) {
	switch {
	case m.spares(q):
		if m.opt.Spared != nil {
			m.opt.Spared(verb(q.Statement), string(q.Schema))
		}
	case m.opt.Passed != nil: // I3: the user has chosen so; the statement keeps its number
		p := Passed{Verb: verb(q.Statement), Schema: string(q.Schema), File: m.file, Start: start}
		if m.txn != nil {
			p.GTID = m.txn.GTID
		}
		m.opt.Passed(&p)
	default:
		return stmtDML, m.statementDML(start, verb(q.Statement))
	}
	return stmtSpared, nil
}

// creates reports whether a statement that changes rows makes the table that they are put in: CREATE TABLE ... SELECT. I6: whoever
// follows definitions has to know, whether it is published or not.
func (m *Machine) creates(q *Query) bool {
	l := lexer{b: m.utf8(q, q.Statement), mode: q.SQLMode}
	w := l.next()
	for w == "SET" && l.variables() {
		w = l.next()
	}
	return w == "CREATE"
}
