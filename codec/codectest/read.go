package codectest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/event"
)

// ReadCanalJSON takes a message of a row change apart as strictly as it can.
func ReadCanalJSON(value []byte) (Message, error) {
	var m struct {
		Data      []map[string]json.RawMessage
		Database  *string
		ES        int64
		GTID      *string
		ID        int64
		IsDDL     *bool `json:"isDdl"`
		MysqlType map[string]string
		Old       []map[string]json.RawMessage
		PkNames   []string
		SQL       *string
		SQLType   map[string]int `json:"sqlType"`
		Table     *string
		TS        int64
		Type      string
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Message{}, err
	}
	out := Message{Op: strings.ToLower(m.Type)}
	switch {
	case m.Database == nil || m.Table == nil || m.GTID == nil || m.SQL == nil || *m.SQL != "" || m.IsDDL == nil || *m.IsDDL:
		return out, fmt.Errorf("a key is missing or wrong")
	case len(m.Data) != 1:
		return out, fmt.Errorf("%d rows", len(m.Data))
	case (m.Type == "UPDATE") != (len(m.Old) == 1):
		return out, fmt.Errorf("%s with %d old rows", m.Type, len(m.Old))
	case m.ES <= 0 || m.TS < m.ES || m.ID <= 0:
		return out, fmt.Errorf("es %d, ts %d, id %d", m.ES, m.TS, m.ID)
	}
	// Canal's keys stand in alphabetical order.
	if keys, err := Keys(value); err != nil || len(keys) != 14 || !slices.IsSorted(keys) {
		return out, fmt.Errorf("keys %v (%v)", keys, err)
	}
	out.Schema, out.Table, out.Data = *m.Database, *m.Table, m.Data[0]
	if len(m.Old) > 0 {
		out.Old = m.Old[0]
	}
	for name, v := range out.Data {
		if m.MysqlType[name] == "" || m.SQLType[name] == 0 {
			return out, fmt.Errorf("column %s has no type", name)
		}
		if v[0] != '"' && string(v) != "null" {
			return out, fmt.Errorf("column %s is neither a string nor null: %s", name, v)
		}
	}
	return out, nil
}

// ReadMaxwell takes a message of a row change, or of a snapshot's row, which is an insert, apart as strictly as it can.
func ReadMaxwell(value []byte) (Message, error) {
	var m struct {
		Database, Table, Type string
		TS                    int64
		XID                   *uint64
		XOffset               *int64
		Commit                *bool
		Position              string
		GTID                  string
		ServerID              uint32            `json:"server_id"`
		ThreadID              uint32            `json:"thread_id"`
		PrimaryKey            []json.RawMessage `json:"primary_key"`
		PrimaryKeyColumns     []string          `json:"primary_key_columns"`
		Data, Old             map[string]json.RawMessage
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Message{}, err
	}
	out := Message{Schema: m.Database, Table: m.Table, Op: m.Type, Data: m.Data, Old: m.Old}
	snapshot := m.Type == "bootstrap-insert"
	if snapshot {
		out.Op = "insert"
	}
	switch {
	case m.TS <= 0 || (m.XID == nil) != snapshot || m.XID != nil && *m.XID == 0:
		return out, fmt.Errorf("ts or xid")
	case snapshot && (m.Commit != nil || m.XOffset != nil || m.Position != "" || m.GTID != "" || m.ServerID != 0 || m.ThreadID != 0):
		return out, fmt.Errorf("a snapshot's row with a transaction or a place")
	case !snapshot && ((m.Commit == nil) == (m.XOffset == nil) || m.Commit != nil && !*m.Commit):
		return out, fmt.Errorf("commit or xoffset")
	case (m.Type == "update") != (m.Old != nil):
		return out, fmt.Errorf("old of %s: %v", m.Type, m.Old)
	case m.Data == nil || len(m.PrimaryKey) != len(m.PrimaryKeyColumns):
		return out, fmt.Errorf("data, primary_key or primary_key_columns")
	}
	order := []string{"database", "table", "type", "ts", "xid", "commit", "xoffset", "position", "gtid", "server_id", "thread_id",
		"primary_key", "primary_key_columns", "data", "old"}
	keys, err := Keys(value)
	if err != nil || !slices.IsSortedFunc(keys, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
		return out, fmt.Errorf("order of the keys: %v (%v)", keys, err)
	}
	return out, nil
}

// setText writes the labels of a SET as servers do: without a comma behind a label ” that comes first.
func setText(labels []string) string {
	text := ""
	for _, label := range labels {
		if text != "" {
			text += ","
		}
		text += label
	}
	return text
}

// MaxwellText undoes the encodings of maxwell that docs/formats.md describes, for [Format].Text. A GEOMETRY stays the WKT that it
// is, and a JSON document of MariaDB the nested JSON, or the string that holds it.
func MaxwellText(col *event.Column, v json.RawMessage) (string, error) {
	switch col.Class {
	case event.ClassInt, event.ClassUint, event.ClassDecimal, event.ClassBit, event.ClassVector, event.ClassJSON:
		return string(v), nil
	case event.ClassFloat, event.ClassDouble:
		return strings.TrimSuffix(string(v), ".0"), nil
	case event.ClassYear:
		return fmt.Sprintf("%04s", v), nil
	case event.ClassSet:
		var labels []string
		err := json.Unmarshal(v, &labels)
		return setText(labels), err
	case event.ClassText:
		if col.Logical == event.LogicalJSON && v[0] != '"' {
			return string(v), nil
		}
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return "", err
	}
	switch col.Class {
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		b, err := base64.StdEncoding.DecodeString(s)
		return string(b), err
	}
	return s, nil
}

// Fields is a parsed protobuf message: the values of each field, in order; a varint as its decimal digits.
type Fields map[protowire.Number][][]byte

// ParseFields reads a protobuf message of varints and strings.
func ParseFields(b []byte) (Fields, error) {
	m := Fields{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		var v []byte
		switch kind {
		case protowire.VarintType:
			var x uint64
			x, n = protowire.ConsumeVarint(b)
			v = strconv.AppendInt(nil, int64(x), 10)
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		default:
			return nil, fmt.Errorf("field %d has wire type %d", number, kind)
		}
		if n < 0 {
			return nil, fmt.Errorf("field %d: %w", number, protowire.ParseError(n))
		}
		m[number] = append(m[number], v)
		b = b[n:]
	}
	return m, nil
}

// Text returns the first value of a field, "" for none.
func (m Fields) Text(number protowire.Number) string {
	if len(m[number]) == 0 {
		return ""
	}
	return string(m[number][0])
}

// ParsePath parses the only value of each field in turn.
func ParsePath(b []byte, numbers ...protowire.Number) (Fields, error) {
	m, err := ParseFields(b)
	for _, n := range numbers {
		if err != nil {
			return nil, err
		}
		if len(m[n]) != 1 {
			return nil, fmt.Errorf("%d values of field %d", len(m[n]), n)
		}
		m, err = ParseFields(m[n][0])
	}
	return m, err
}

// ReadCanalEntry takes a packet of canal-protobuf apart, down to the header and the content of its only entry.
func ReadCanalEntry(value []byte) (header, store Fields, err error) {
	packet, err := ParseFields(value)
	if err != nil {
		return nil, nil, err
	}
	if packet.Text(3) != "7" {
		return nil, nil, fmt.Errorf("packet type %s", packet.Text(3))
	}
	if header, err = ParsePath(value, 5, 2, 1); err != nil {
		return nil, nil, err
	}
	for number, want := range map[protowire.Number]string{1: "1", 5: "UTF-8"} {
		if got := header.Text(number); got != want {
			return nil, nil, fmt.Errorf("header field %d is %q, want %q", number, got, want)
		}
	}
	store, err = ParsePath(value, 5, 2, 3)
	return header, store, err
}

// canalImage reads the columns of one image, and which are marked as updated.
func canalImage(columns [][]byte) (map[string]json.RawMessage, map[string]bool, error) {
	out, updated := map[string]json.RawMessage{}, map[string]bool{}
	for _, b := range columns {
		c, err := ParseFields(b)
		if err != nil {
			return nil, nil, err
		}
		name, value := c.Text(3), c.Text(8)
		switch {
		case c.Text(10) == "" || c.Text(2) == "" || c.Text(1) == "":
			return nil, nil, fmt.Errorf("column %q has no type or no index", name)
		case !utf8.ValidString(value):
			return nil, nil, fmt.Errorf("column %q is no text: %q", name, value)
		case c.Text(6) == "1" && value != "":
			return nil, nil, fmt.Errorf("column %q is NULL and %q", name, value)
		}
		if c.Text(6) == "1" {
			out[name] = json.RawMessage("null")
		} else if out[name], err = json.Marshal(value); err != nil {
			return nil, nil, err
		}
		updated[name] = c.Text(5) == "1"
	}
	return out, updated, nil
}

// ReadCanalProtobuf takes a message of a row change apart as strictly as it can.
func ReadCanalProtobuf(value []byte) (m Message, err error) {
	header, store, err := ReadCanalEntry(value)
	if err != nil {
		return m, err
	}
	m.Schema, m.Table = header.Text(8), header.Text(9)
	m.Op = map[string]string{"1": "insert", "2": "update", "3": "delete"}[header.Text(11)]
	if store.Text(2) != header.Text(11) || store.Text(10) != "0" || len(store[12]) != 1 {
		return m, fmt.Errorf("event type %s, in the header %s, ddl %s, %d rows", store.Text(2), header.Text(11), store.Text(10), len(store[12]))
	}
	row, err := ParseFields(store[12][0])
	if err != nil {
		return m, err
	}
	before, changed, err := canalImage(row[1])
	if err != nil {
		return m, err
	}
	if m.Op == "delete" {
		m.Data = before
		return m, nil
	}
	var updated map[string]bool
	if m.Data, updated, err = canalImage(row[2]); err != nil {
		return m, err
	}
	for name := range changed {
		if changed[name] {
			return m, fmt.Errorf("column %s of the image before is updated", name)
		}
	}
	m.Old = map[string]json.RawMessage{}
	for name, v := range before {
		if updated[name] {
			m.Old[name] = v
		}
	}
	for name := range m.Data {
		if m.Op == "insert" && !updated[name] {
			return m, fmt.Errorf("column %s of an insert is not updated", name)
		}
	}
	return m, nil
}
