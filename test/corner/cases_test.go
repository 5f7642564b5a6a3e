//go:build integration

package corner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/internal/testenv"
)

// Case is a block of SQL that runs on one connection in a schema of its own, and
// the messages that it must give, in order.
type Case struct {
	Name       string
	Not        map[string]string   // why a kind of server cannot run it
	Statements map[string][]string // by kind
	Want       map[string][]string // by kind
	Stops      string              // what the error says that stops the destination; empty: it goes on
	DDL        bool                // messages of DDL are compared too
	Raw        bool                // system_versioned: raw
	Present    bool                // its tables must be there when it is read
}

// parse reads cases. A case begins with
//
//	== NAME [ddl] [raw] [present]
//
// and runs on all of [testenv.Kinds] but those of its lines "not KINDS: REASON". Lines up to one that ends in a semicolon
// are a statement; one that begins with "[KINDS] " is for these servers alone. "> TEXT" is an expected message, "KINDS> TEXT" one on
// these servers alone; "stops TEXT" says that the destination stops with an error that holds the text. Lines that begin with "# " are
// comments. KINDS are kinds with commas between them; mariadb* are all those of MariaDB, mysql* those of MySQL. {DB} stands for the
// case's schema.
func parse(text string) ([]*Case, error) {
	var cases []*Case
	var c *Case
	statement := ""
	var on []string // of the statement
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t")
		head, rest, found := strings.Cut(line, "> ")
		switch {
		case strings.HasPrefix(line, "== "):
			words := strings.Fields(line[3:])
			c = &Case{Name: words[0], Not: map[string]string{}, Statements: map[string][]string{}, Want: map[string][]string{}}
			for _, word := range words[1:] {
				switch word {
				case "ddl":
					c.DDL = true
				case "raw":
					c.Raw = true
				case "present":
					c.Present = true
				default:
					return nil, fmt.Errorf("line %d: unknown word %q", n+1, word)
				}
			}
			cases = append(cases, c)
		case strings.HasPrefix(line, "# ") && statement == "" || line == "" && statement == "":
		case c == nil:
			return nil, fmt.Errorf("line %d: outside a case", n+1)
		case statement == "" && strings.HasPrefix(line, "stops "):
			c.Stops = line[6:]
		case statement == "" && strings.HasPrefix(line, "not "):
			list, why, _ := strings.Cut(line[4:], ": ")
			out := kinds(list)
			if out == nil || why == "" {
				return nil, fmt.Errorf("line %d: want not KINDS: REASON", n+1)
			}
			for _, k := range out {
				c.Not[k] = why
			}
		case statement == "" && found && (head == "" || kinds(head) != nil):
			on := testenv.Kinds
			if head != "" {
				on = kinds(head)
			}
			for _, k := range on {
				c.Want[k] = append(c.Want[k], rest)
			}
		default:
			if statement == "" {
				on = testenv.Kinds
				if list, rest, ok := strings.Cut(line, "] "); ok && line[0] == '[' {
					if on, line = kinds(list[1:]), rest; on == nil {
						return nil, fmt.Errorf("line %d: want [KINDS] STATEMENT", n+1)
					}
				}
			}
			statement += line
			if !strings.HasSuffix(line, ";") {
				statement += "\n"
				continue
			}
			for _, k := range on {
				c.Statements[k] = append(c.Statements[k], strings.TrimSuffix(statement, ";"))
			}
			statement = ""
		}
	}
	if statement != "" {
		return nil, fmt.Errorf("the last statement has no semicolon")
	}
	return cases, nil
}

// runs tells whether the case is for servers of the kind.
func (c *Case) runs(kind string) bool { return c.Not[kind] == "" }

// kinds are those of a list; nil where one is unknown.
func kinds(list string) (all []string) {
	for _, word := range strings.Split(list, ",") {
		some, family := strings.CutSuffix(word, "*")
		found := false
		for _, k := range testenv.Kinds {
			if k == word || family && strings.HasPrefix(k, some) {
				all, found = append(all, k), true
			}
		}
		if !found {
			return nil
		}
	}
	return all
}

// message is a line of the file sink with a canal-json value.
type message struct {
	Topic   string            `json:"topic"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
	Value   struct {
		Database string            `json:"database"`
		Table    string            `json:"table"`
		Type     string            `json:"type"`
		IsDDL    bool              `json:"isDdl"`
		SQL      string            `json:"sql"`
		Data     []json.RawMessage `json:"data"`
		Old      []json.RawMessage `json:"old"`
		SQLType  map[string]int    `json:"sqlType"`
		PKNames  []string          `json:"pkNames"`
	} `json:"value"`
}

// render is the message in the form of the expectations: the kind, the table with
// its key columns, and the columns in order.
func (m *message) render() (string, error) {
	v := &m.Value
	if v.IsDDL {
		return v.Type + " " + v.Table + ": " + strings.Join(strings.Fields(v.SQL), " "), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s(%s)", v.Type, name(v.Table), strings.Join(v.PKNames, ","))
	if len(v.Data) != 1 || v.Type == "UPDATE" && len(v.Old) != 1 {
		return "", fmt.Errorf("%d rows, %d old ones in one message", len(v.Data), len(v.Old))
	}
	if err := m.row(&b, v.Data[0]); err != nil {
		return "", err
	}
	if v.Type == "UPDATE" {
		b.WriteString(" was")
		if err := m.row(&b, v.Old[0]); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (m *message) row(b *strings.Builder, raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		col, err := d.Token()
		if err != nil {
			return err
		}
		val, err := d.Token()
		if err != nil {
			return err
		}
		b.WriteByte(' ')
		b.WriteString(name(fmt.Sprint(col)))
		b.WriteByte('=')
		switch s, ok := val.(string); {
		case val == nil:
			b.WriteString("NULL")
		case !ok:
			return fmt.Errorf("column %v is %T", col, val)
		case m.Value.SQLType[fmt.Sprint(col)] == 2004: // binary
			raw, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return fmt.Errorf("column %v: %w", col, err)
			}
			if len(raw) > 40 {
				b.WriteString("x" + long(string(raw)))
				break
			}
			fmt.Fprintf(b, "x%X", raw)
		case len(s) > 200:
			b.WriteString(long(s))
		default:
			b.WriteString(name(s))
		}
	}
	return nil
}

// long tells length and content of a long value: c*N for one character N times, else a checksum.
func long(s string) string {
	if strings.Count(s, s[:1]) == len(s) {
		return name(s[:1]) + "*" + strconv.Itoa(len(s))
	}
	return fmt.Sprintf("[%d bytes, crc %08x]", len(s), crc32.ChecksumIEEE([]byte(s)))
}

// name quotes what would not be told apart from the text around it.
func name(s string) string {
	plain := s != "" && s != "NULL" && s[0] != 'x' && !strings.ContainsAny(s, " =()") && strconv.Quote(s) == `"`+s+`"`
	if plain {
		return s
	}
	return strconv.Quote(s)
}
