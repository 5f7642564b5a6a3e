package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/client"
)

// Message is what a consumer received.
type Message struct {
	Topic     string
	Partition int32
	Key       []byte
	Value     []byte
	Headers   map[string]string
}

// Change is a row change as a message tells it. Values are text; nil is NULL.
type Change struct {
	Schema, Table string
	Op            string // insert, update, delete
	Data          map[string]*string
	Old           map[string]*string // update: what the changed columns held
}

// Parse reads a message value of the codec canal-json, maxwell or debezium.
func Parse(codec string, value []byte) (*Change, error) {
	if codec == "debezium" {
		return parseDebezium(value)
	}
	var v struct {
		Database string          `json:"database"`
		Table    string          `json:"table"`
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Old      json.RawMessage `json:"old"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("%w in %s", err, value)
	}
	c := &Change{Schema: v.Database, Table: v.Table, Op: strings.TrimPrefix(strings.ToLower(v.Type), "bootstrap-")}
	var err error
	if c.Data, err = fields(v.Data, codec == "canal-json"); err != nil {
		return nil, fmt.Errorf("data: %w in %s", err, value)
	}
	if len(v.Old) > 0 && !bytes.Equal(v.Old, []byte("null")) {
		if c.Old, err = fields(v.Old, codec == "canal-json"); err != nil {
			return nil, fmt.Errorf("old: %w in %s", err, value)
		}
	}
	return c, nil
}

func fields(raw json.RawMessage, list bool) (map[string]*string, error) {
	if list {
		var rows []json.RawMessage
		if err := json.Unmarshal(raw, &rows); err != nil {
			return nil, err
		}
		if len(rows) != 1 {
			return nil, fmt.Errorf("%d rows in one message", len(rows))
		}
		raw = rows[0]
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	out := make(map[string]*string, len(m))
	for k, v := range m {
		if v == nil {
			out[k] = nil
			continue
		}
		s := fmt.Sprint(v)
		out[k] = &s
	}
	return out, nil
}

// Checker takes the messages of one sink, partition by partition in order, and
// rebuilds the tables. It is not safe for concurrent use.
type Checker struct {
	Codec   string
	Schema  string
	Tables  []Table // what is rebuilt; nil: those of Create
	Replays bool    // messages may be repeated, with the numbers and bytes they had
	Before  bool    // rows may have been there before the first message; a snapshot tells of them, in the midst of the changes

	Messages  int64 // new ones
	Repeated  int64
	Snapshots int64 // those of Messages that are rows of snapshots

	lanes map[lane]number
	sent  map[number][32]byte
	rows  map[string]map[string]map[string]*string // table -> key -> row; with Before nil: it is known to be gone
}

type lane struct {
	topic     string
	partition int32
}

type number struct {
	seq int64
	sub int64
}

func (n number) less(o number) bool { return n.seq < o.seq || n.seq == o.seq && n.sub < o.sub }

// Sequences returns how many numbers were seen: the row changes that arrived.
func (c *Checker) Sequences() int64 {
	seqs := map[int64]bool{}
	for n := range c.sent {
		seqs[n.seq] = true
	}
	return int64(len(seqs))
}

// Add checks and applies one message: I4 (order of a key), I5 (numbers), and that nothing
// is missing between two changes of a row.
func (c *Checker) Add(m Message) error {
	if c.lanes == nil {
		c.lanes, c.sent, c.rows = map[lane]number{}, map[number][32]byte{}, map[string]map[string]map[string]*string{}
	}
	n, err := numberOf(m)
	if err != nil {
		return err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d ", m.Topic, m.Partition, len(m.Key))
	h.Write(m.Key)
	h.Write(m.Value)
	sum := [32]byte(h.Sum(nil))
	if before, seen := c.sent[n]; seen {
		if !c.Replays {
			return fmt.Errorf("%s/%d: message %v arrived twice: %s", m.Topic, m.Partition, n, m.Value)
		}
		if before != sum {
			return fmt.Errorf("%s/%d: message %v was repeated with other content: %s", m.Topic, m.Partition, n, m.Value)
		}
		c.Repeated++
		return nil
	}
	l := lane{m.Topic, m.Partition}
	if last, ok := c.lanes[l]; ok && !last.less(n) {
		return fmt.Errorf("%s/%d: new message %v after %v", m.Topic, m.Partition, n, last)
	}
	c.lanes[l] = n
	c.sent[n] = sum
	c.Messages++
	return c.apply(m)
}

func numberOf(m Message) (number, error) {
	seq, err := strconv.ParseInt(m.Headers["seq"], 10, 64)
	if err != nil {
		return number{}, fmt.Errorf("%s/%d: header seq: %w", m.Topic, m.Partition, err)
	}
	n := number{seq: seq}
	if s, ok := m.Headers["sub"]; ok {
		if n.sub, err = strconv.ParseInt(s, 10, 64); err != nil {
			return n, fmt.Errorf("%s/%d: header sub: %w", m.Topic, m.Partition, err)
		}
	}
	return n, nil
}

func (c *Checker) apply(m Message) error {
	ch, err := Parse(c.Codec, m.Value)
	if err != nil {
		return err
	}
	if ch.Schema != c.Schema {
		return nil
	}
	t, ok := c.table(ch.Table)
	if !ok {
		return nil
	}
	rows := c.rows[t.Name]
	if rows == nil {
		rows = map[string]map[string]*string{}
		c.rows[t.Name] = rows
	}
	k := key(t, ch.Data)
	now, known := rows[k]
	live, unseen := now != nil, c.Before && !known
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s/%d seq %s: %s key %s: %s\n message %s\n row %s", m.Topic, m.Partition, m.Headers["seq"], t.Name, k, fmt.Sprintf(format, args...), m.Value, show(now))
	}
	if m.Headers["snapshot"] != "" {
		c.Snapshots++
		switch {
		case ch.Op != "insert":
			return fail("%s in a snapshot", ch.Op)
		case known && !live:
			return fail("the snapshot brings back what is deleted")
		case live && show(now) != show(ch.Data):
			return fail("the snapshot shows another row than the stream before it")
		}
		rows[k] = ch.Data
		return nil
	}
	switch ch.Op {
	case "insert":
		if live {
			return fail("inserted while it lives")
		}
	case "update":
		if unseen {
			break
		}
		if !live {
			return fail("updated and never seen")
		}
		for col, v := range ch.Old {
			if !same(v, now[col]) {
				return fail("old %s is %s: a change is missing or out of order", col, text(v))
			}
		}
		for col, v := range now {
			if _, changed := ch.Old[col]; !changed && !same(v, ch.Data[col]) {
				return fail("%s changed without being in old", col)
			}
		}
	case "delete":
		if !live && !unseen {
			return fail("deleted and never seen")
		}
		for col, v := range now {
			if !same(v, ch.Data[col]) {
				return fail("deleted with another %s", col)
			}
		}
		if delete(rows, k); c.Before {
			rows[k] = nil
		}
		return nil
	default:
		return fail("unknown type %q", ch.Op)
	}
	rows[k] = ch.Data
	return nil
}

func (c *Checker) tables() []Table {
	if c.Tables != nil {
		return c.Tables
	}
	return Tables
}

func (c *Checker) table(name string) (Table, bool) {
	for _, t := range c.tables() {
		if t.Name == name {
			return t, true
		}
	}
	return Table{}, false
}

func key(t Table, row map[string]*string) string {
	cols := t.Key
	if cols == nil {
		cols = []string{"ver"}
	}
	var b strings.Builder
	for _, c := range cols {
		b.WriteString(text(row[c]))
		b.WriteByte('|')
	}
	return b.String()
}

func same(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func text(s *string) string {
	if s == nil {
		return "NULL"
	}
	return strconv.Quote(*s)
}

func show(row map[string]*string) string {
	cols := make([]string, 0, len(row))
	for c := range row {
		cols = append(cols, c)
	}
	sort.Strings(cols)
	var b strings.Builder
	for _, c := range cols {
		fmt.Fprintf(&b, "%s=%s ", c, text(row[c]))
	}
	return b.String()
}

// Compare holds the rebuilt tables against the source's.
func (c *Checker) Compare(conn *client.Conn) error {
	if _, err := conn.Execute("SET NAMES utf8mb4"); err != nil {
		return err
	}
	for _, t := range c.tables() {
		cols, err := columns(conn, c.Schema, t.Name)
		if err != nil {
			return err
		}
		casts := make([]string, len(cols))
		for i, col := range cols {
			casts[i] = "CAST(`" + col + "` AS CHAR CHARACTER SET utf8mb4)"
		}
		r, err := conn.Execute("SELECT " + strings.Join(casts, ",") + " FROM `" + c.Schema + "`." + t.Name)
		if err != nil {
			return err
		}
		rows := maps.Clone(c.rows[t.Name])
		maps.DeleteFunc(rows, func(_ string, row map[string]*string) bool { return row == nil })
		if r.RowNumber() != len(rows) {
			return fmt.Errorf("%s: the source has %d rows, the messages give %d", t.Name, r.RowNumber(), len(rows))
		}
		for i := range r.RowNumber() {
			want := make(map[string]*string, len(cols))
			for j, col := range cols {
				if null, _ := r.IsNull(i, j); null {
					want[col] = nil
					continue
				}
				s, err := r.GetString(i, j)
				if err != nil {
					return err
				}
				want[col] = &s
			}
			got, ok := rows[key(t, want)]
			if !ok || show(got) != show(want) {
				return fmt.Errorf("%s: the source has %s\n the messages give %s", t.Name, show(want), show(got))
			}
		}
	}
	return nil
}

func columns(conn *client.Conn, schema, table string) ([]string, error) {
	r, err := conn.Execute("SELECT column_name FROM information_schema.columns WHERE table_schema='" + schema + "' AND table_name='" + table + "' ORDER BY ordinal_position")
	if err != nil {
		return nil, err
	}
	var cols []string
	for i := range r.RowNumber() {
		s, err := r.GetString(i, 0)
		if err != nil {
			return nil, err
		}
		cols = append(cols, s)
	}
	return cols, nil
}
