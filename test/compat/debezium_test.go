//go:build integration

package compat

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/codec/debezium"
	"github.com/binlogmq/binlogmq/event"
)

// connectReads lets Kafka Connect's JsonConverter and Debezium's ExtractNewRecordState read the messages of a sink with
// codec debezium, and holds what they make of them against the source: rows, keys, names of schemas, tombstones, and
// the keys that the two halves of a change of the key have of each other.
func connectReads(t *testing.T, o *output, all []record, conn *client.Conn, prefix, schema string) {
	var rs []record
	var input []string
	word := func(b []byte, ok bool) string {
		if !ok || b == nil {
			return "-"
		}
		return encode(b)
	}
	for _, topic := range o.topics {
		for _, r := range ofTopic(all, topic) {
			newKey, hasNew := r.header("__debezium.newkey")
			oldKey, hasOld := r.header("__debezium.oldkey")
			rs = append(rs, r)
			input = append(input, strings.Join([]string{r.Topic, word(r.Key, true), word(r.Value, true), word([]byte(newKey), hasNew), word([]byte(oldKey), hasOld)}, " "))
		}
	}
	lines := java(t, connect, "ConnectReader", input)
	if len(lines) != len(rs) {
		t.Fatalf("%d answers to %d messages", len(lines), len(rs))
	}
	rows := view{t: t, rows: map[string]map[string]map[string]*string{}}
	type half struct{ key, other string }
	deleted, inserted := map[string]half{}, map[string]half{} // by seq
	tombstones, deletes := 0, 0
	for i, r := range rs {
		var got struct {
			Rows                    json.RawMessage
			Key, Value              *string // names of the schemas
			KeyText, NewKey, OldKey []byte
		}
		if err := json.Unmarshal(lines[i], &got); err != nil {
			t.Fatalf("%v in %.300s", err, lines[i])
		}
		table := r.Topic[strings.LastIndexByte(r.Topic, '.')+1:]
		base := prefix + "." + schema + "." + table
		if keyless := table == "events"; keyless != (got.Key == nil) || keyless != (r.Key == nil) || !keyless && *got.Key != base+".Key" {
			t.Fatalf("the schema of the key is %v: %v", got.Key, &r)
		}
		seq, _ := r.header("seq")
		if r.Value == nil {
			if tombstones++; got.Value != nil || string(got.NewKey) != deleted[seq].other {
				t.Fatalf("a tombstone with schema %v, new key %s: %v", got.Value, got.NewKey, &r)
			}
			continue
		}
		if got.Value == nil || *got.Value != base+".Envelope" {
			t.Fatalf("the schema of the value is %v: %v", got.Value, &r)
		}
		rows.apply("debezium", &r, got.Rows)
		switch op := string(got.Rows); {
		case strings.Contains(op, `"-D"`):
			if table != "events" {
				deletes++
			}
			deleted[seq] = half{string(got.KeyText), string(got.NewKey)}
		case got.OldKey != nil:
			inserted[seq] = half{string(got.KeyText), string(got.OldKey)}
		case got.NewKey != nil:
			t.Fatalf("a new key: %v", &r)
		}
	}
	for table := range flinkTypes("debezium") {
		rows.compare(conn, schema, table, "debezium")
	}
	for seq, to := range inserted {
		if from := deleted[seq]; from.key != to.other || from.other != to.key {
			t.Errorf("seq %s: the insert under %s comes from %s, the delete of %s goes to %s", seq, to.key, to.other, from.key, from.other)
		}
	}
	if tombstones != deletes || len(inserted) == 0 {
		t.Errorf("%d deletes, %d tombstones, %d changes of the key", deletes, tombstones, len(inserted))
	}
	t.Logf("%d messages, %v, %d tombstones, %d changes of the key", len(rs), rows.kinds, tombstones, len(inserted))
}

// TestConnectReadsEveryValue proves that Kafka Connect's JsonConverter makes the right value of every class of column and
// each of its edge values, by the schema that the message bears, in every form that the codec can give it.
func TestConnectReadsEveryValue(t *testing.T) {
	type message struct {
		o    debezium.Options
		col  *event.Column
		text string
	}
	var messages []message
	var input []string
	for _, o := range []debezium.Options{
		{Schemas: true},
		{Schemas: true, Decimal: "string", Time: "microseconds", BigintUnsigned: "precise", Binary: "hex"},
		{Schemas: true, Decimal: "double", Binary: "base64-url-safe"},
	} {
		o.Name = "peer"
		c, err := debezium.New(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, cs := range codectest.Cases() {
			tab := codectest.Table(t, cs)
			for _, e := range cs.Edges {
				r := codectest.Row(t, tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 8)), codectest.V([]byte("k")), codectest.V(e.Raw)})
				key, err := c.AppendKey(nil, r, tab.Key)
				if err != nil {
					t.Fatal(err)
				}
				value, err := c.AppendRow(nil, r)
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, message{o, &tab.Columns[2], e.Text})
				input = append(input, "topic "+encode(key)+" "+encode(value)+" - -")
			}
		}
	}
	lines := java(t, connect, "ConnectReader", input)
	if len(lines) != len(messages) {
		t.Fatalf("%d answers to %d messages", len(lines), len(messages))
	}
	for i, m := range messages {
		// The names of the schemas are not JSON: the table's name has a quote.
		rows, _, _ := strings.Cut(strings.TrimPrefix(string(lines[i]), `{"rows":`), `,"key":`)
		var got []struct{ Row map[string]*[]byte }
		if err := json.Unmarshal([]byte(rows), &got); err != nil || len(got) != 1 {
			t.Fatalf("%v in %.300s", err, lines[i])
		}
		have := "null"
		if v := got[0].Row[m.col.Name]; v != nil {
			have = string(*v)
		}
		if want := connectText(m.o, m.col, m.text); have != want && !sameNumber(m.col, have, want) {
			t.Errorf("%s %q (%+v): Connect has %q, want %q", m.col.SQLType, m.text, m.o, have, want)
		}
	}
	t.Logf("%d values", len(messages))
}

func sameNumber(col *event.Column, a, b string) bool {
	size := 64
	switch col.Class {
	case event.ClassFloat:
		size = 32
	case event.ClassDouble, event.ClassDecimal:
	case event.ClassVector:
		return strings.NewReplacer(".0", "", " ", "").Replace(a) == b
	default:
		return false
	}
	x, err1 := strconv.ParseFloat(a, size)
	y, err2 := strconv.ParseFloat(b, size)
	return err1 == nil && err2 == nil && x == y
}

// connectText is what Connect has to show for a value that the source shows as text.
func connectText(o debezium.Options, col *event.Column, text string) string {
	micros := func(at time.Time) string {
		if o.Time == "" && col.Meta <= 3 {
			return strconv.FormatInt(at.UnixMilli(), 10)
		}
		return strconv.FormatInt(at.UnixMicro(), 10)
	}
	switch col.Class {
	case event.ClassUint:
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && o.BigintUnsigned == "" {
			return strconv.FormatInt(int64(n), 10) // as Debezium: the field is an int64
		}
	case event.ClassBit:
		n, _ := strconv.ParseUint(text, 10, 64)
		if col.Meta == 1 {
			return strconv.FormatBool(n == 1)
		}
		return hex.EncodeToString(codectest.Le(int64(n), int(col.Meta+7)/8))
	case event.ClassYear:
		n, _ := strconv.Atoi(text)
		return strconv.Itoa(n)
	case event.ClassDate, event.ClassDatetime, event.ClassTimestamp:
		if strings.Contains(text, "-00") {
			return "null"
		}
		if col.Class == event.ClassTimestamp {
			return strings.Replace(text, " ", "T", 1) + "Z"
		}
		at, err := time.Parse("2006-01-02 15:04:05", (text + " 00:00:00")[:max(19, len(text))])
		if err != nil {
			return err.Error()
		}
		if col.Class == event.ClassDate {
			return strconv.FormatInt(at.Unix()/86400, 10)
		}
		return micros(at)
	case event.ClassTime:
		clock := strings.Split(strings.TrimPrefix(text, "-"), ":")
		d, err := time.ParseDuration(clock[0] + "h" + clock[1] + "m" + clock[2] + "s")
		if err != nil {
			return err.Error()
		}
		if text[0] == '-' {
			d = -d
		}
		return strconv.FormatInt(d.Microseconds(), 10)
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		if o.Binary != "base64-url-safe" {
			return hex.EncodeToString([]byte(text)) // bytes to Connect, or a string
		}
		return strings.NewReplacer("+", "-", "/", "_").Replace(encode([]byte(text)))
	case event.ClassGeometry:
		if text == "" {
			return "wkb= srid=null "
		}
		return fmt.Sprintf("wkb=%x srid=null ", text[4:])
	}
	return text
}
