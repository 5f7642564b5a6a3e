//go:build integration

package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// edge is a table of the greatest and least values that Flink's types can hold, beside the workload's tables.
const edge = "(id INT PRIMARY KEY, u BIGINT UNSIGNED, i BIGINT, n DECIMAL(38,10), d DOUBLE, f FLOAT, dt DATE, t TIME, ts TIMESTAMP(3) NULL, c CHAR(10), b VARBINARY(20), y YEAR, e ENUM('x','y'), ok TINYINT(1))"

var edgeChanges = []string{
	"INSERT INTO edge VALUES (1,18446744073709551615,9223372036854775807,9999999999999999999999999999.9999999999,1.7976931348623157e308,3.4028234e38,'9999-12-31','23:59:59','2038-01-19 03:14:07.999','ä',X'00FF80',2155,'y',1)," +
		"(2,0,-9223372036854775808,-9999999999999999999999999999.9999999999,2.2250738585072014e-308,1.17549435e-38,'1000-01-01','00:00:00','1970-01-01 00:00:01.001','','',1901,'x',0)," +
		"(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
	"UPDATE edge SET u=9007199254740993, n=0.1234567890, d=0.1, f=0.1, c=NULL WHERE id=1",
	"UPDATE edge SET u=1, i=2, n=3, d=4, f=5, dt='2024-02-29', t='01:02:03', ts='2024-02-29 12:34:56.789', c='x', b='y', y=2024, e='x', ok=1 WHERE id=3",
	"INSERT INTO edge SELECT id+10, u, i, n, d, f, dt, t, ts, c, b, y, e, ok FROM edge",
	"DELETE FROM edge WHERE id=11",
}

// flinkTypes are the tables as somebody would declare them in Flink SQL. Values of ENUM, and of columns of bytes, depend on
// the codec; TINYINT(1) is a number.
func flinkTypes(codec string) map[string]string {
	e := "INT"
	if codec != "canal-json" {
		e = "STRING"
	}
	at, dt, t, ts := "TIMESTAMP(6)", "DATE", "TIME(0)", "TIMESTAMP(3)"
	if codec == "debezium" {
		at, dt, t, ts = "BIGINT", "INT", "BIGINT", "STRING"
	}
	return map[string]string{
		"accounts": "ROW<id DECIMAL(20,0), owner STRING, balance DECIMAL(20,4), note STRING, `at` " + at + ", ver BIGINT>",
		"pairs":    "ROW<a INT, b STRING, v INT, ver BIGINT>",
		"moves":    "ROW<v SMALLINT, id INT, ver BIGINT>",
		"events":   "ROW<x INT, y STRING, ver BIGINT>",
		"edge":     "ROW<id INT, u DECIMAL(20,0), i BIGINT, n DECIMAL(38,10), d DOUBLE, f FLOAT, dt " + dt + ", t " + t + ", ts " + ts + ", c STRING, b BYTES, y INT, e " + e + ", ok TINYINT>",
	}
}

// output is a sink of the program.
type output struct {
	name, system, compression, codec string
	more                             string // further lines of its configuration
	tombstones                       bool
	bare                             bool // only Flink knows the types of its values
	topics                           []string
}

func (o *output) topic(table string) string {
	for _, t := range o.topics {
		if strings.HasSuffix(t, "."+table) {
			return t
		}
	}
	panic("no topic for " + table)
}

// TestForeignClientsReadTheProgramsMessages proves that what the program publishes of a random workload on MySQL can be
// read by clients and parsers that are not ours: each row change once, in order of its key, and the tables
// rebuilt from what they read equal the source's.
func TestForeignClientsReadTheProgramsMessages(t *testing.T) {
	db, k, p := testenv.MySQL(t, "mysql"), testenv.Kafka(t), testenv.Pulsar(t)
	schema := db.Database()
	conn := db.Connect("")
	if err := workload.Create(conn, schema); err != nil {
		t.Fatal(err)
	}
	db.Exec("CREATE TABLE " + schema + ".edge " + edge)

	allHeaders := "headers: [seq, gtid, row, destination, schema, table, op, position, commit_time, epoch]"
	outputs := []*output{
		{name: "plain", system: "kafka", compression: "none", codec: "canal-json", more: "canal_json: { binary: base64 }"},
		{name: "gzip", system: "kafka", compression: "gzip", codec: "maxwell", more: allHeaders},
		{name: "snappy", system: "kafka", compression: "snappy", codec: "canal-json", more: "tombstones: true", tombstones: true},
		{name: "lz4", system: "kafka", compression: "lz4", codec: "maxwell"},
		{name: "zstd", system: "kafka", compression: "zstd", codec: "canal-json", more: allHeaders},
		{name: "schemas", system: "kafka", compression: "none", codec: "debezium", more: "debezium: { bigint.unsigned.handling.mode: precise }", tombstones: true},
		{name: "bare", system: "kafka", compression: "none", codec: "debezium", more: "debezium: { schemas.enable: false, decimal.handling.mode: string }", tombstones: true, bare: true},
		{name: "pplain", system: "pulsar", compression: "none", codec: "canal-json", more: allHeaders},
		{name: "pzstd", system: "pulsar", compression: "zstd", codec: "maxwell", more: "tombstones: true", tombstones: true},
	}
	prefix := testenv.Name(t)
	config := fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    sinks:
`, filepath.Join(t.TempDir(), "meta"), prefix, db.Addr, db.ReplUser, db.ReplPassword, schema)
	tables := slices.Sorted(maps.Keys(flinkTypes("")))
	var kafkaTopics, pulsarTopics []string
	for _, o := range outputs {
		base, sink := prefix+"."+o.name, ""
		if o.system == "kafka" {
			sink = fmt.Sprintf("kafka: { brokers: [%q], compression: %s, topics: { partitions: 3 } }", strings.Join(k.Bootstrap, `","`), o.compression)
		} else {
			base = "persistent://public/default/" + base
			sink = fmt.Sprintf("pulsar: { url: %q, admin_url: %q, compression: %s, topics: { partitions: 2 } }", p.URL, p.AdminURL, o.compression)
		}
		config += fmt.Sprintf("      - name: %s\n        %s\n        codec: %s\n        topic: %q\n        %s\n", o.name, sink, o.codec, base+".{table}", o.more)
		for _, table := range tables {
			o.topics = append(o.topics, base+"."+table)
		}
		if o.system == "kafka" {
			kafkaTopics = append(kafkaTopics, o.topics...)
		} else {
			pulsarTopics = append(pulsarTopics, o.topics...)
		}
	}

	child := process.Start(t, config)
	child.AwaitReady()
	committed := int64(0)
	for i := range 2 {
		w := workload.NewWriter(db.Connect(""), schema, i, 2, 11)
		w.Large = 300
		if err := w.Run(context.Background(), 400); err != nil {
			t.Fatal(err)
		}
		committed += w.Changes
	}
	edgeConn := db.Connect(schema)
	for _, q := range append([]string{"SET time_zone='+00:00'"}, edgeChanges...) {
		if _, err := edgeConn.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	end := db.Query("SHOW BINARY LOG STATUS")[0]
	child.Await("every sink to have acknowledged everything", patience, func(r *admin.Report) bool {
		d := r.Destinations[0]
		at, _, _ := strings.Cut(d.Position, " ")
		file, offset, _ := strings.Cut(at, ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		want, _ := strconv.ParseInt(end[1], 10, 64)
		behind := int64(0)
		for _, s := range d.Sinks {
			behind += int64(s.Behind)
		}
		return err == nil && (file > end[0] || file == end[0] && n >= want) && behind == 0
	})
	child.Stop()

	byJava := kafkaByJava(t, k, kafkaTopics)
	byGo := kafkaByGo(t, k, kafkaTopics)
	t.Run("Kafka, Java and Go alike", func(t *testing.T) {
		same(t, byJava, byGo, false)
		for i := range byJava {
			r := &byJava[i]
			if r.TimestampType != "CreateTime" {
				t.Fatalf("timestamp type %s: %v", r.TimestampType, r)
			}
			for _, o := range outputs {
				// Batches that would not become smaller may be left as they are.
				if slices.Contains(o.topics, r.Topic) && byGo[i].compression != o.compression && byGo[i].compression != "none" {
					t.Fatalf("compressed with %s, want %s: %v", byGo[i].compression, o.compression, r)
				}
			}
		}
		for _, o := range outputs {
			if o.system == "kafka" && !slices.ContainsFunc(byGo, func(r record) bool { return slices.Contains(o.topics, r.Topic) && r.compression == o.compression }) {
				t.Errorf("no message was compressed with %s", o.compression)
			}
		}
	})
	pulsarByJava, pulsarByGo := pulsarByJava(t, p, pulsarTopics), pulsarByGo(t, p, pulsarTopics)
	t.Run("Pulsar, Java and Go alike", func(t *testing.T) {
		same(t, pulsarByJava, pulsarByGo, true)
		for i := range pulsarByJava {
			r := &pulsarByJava[i]
			seq, err := strconv.ParseInt(first(r.header("seq")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sub := int64(0)
			if s, ok := r.header("sub"); ok {
				if sub, err = strconv.ParseInt(s, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			name := strings.Split(strings.TrimPrefix(r.Topic, "persistent://public/default/"), ".")[1]
			if r.Sequence != seq<<10|sub || string(r.Producer) != "test/"+prefix+"/"+name || r.EventTime == 0 || r.KeyIsBase64 {
				t.Fatalf("sequence id %d, producer %s, event time %d, key as base64 %v: %v", r.Sequence, r.Producer, r.EventTime, r.KeyIsBase64, r)
			}
		}
	})

	all := slices.Concat(byJava, pulsarByJava)
	for _, o := range outputs {
		t.Run(o.name, func(t *testing.T) {
			check := workload.Checker{Codec: o.codec, Schema: schema}
			deletes, tombstones := 0, 0
			for _, topic := range o.topics {
				for _, r := range ofTopic(all, topic) {
					if r.Value == nil {
						tombstones++
						continue
					}
					m := workload.Message{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: map[string]string{}}
					for _, h := range r.Headers {
						m.Headers[string(h.Name)] = string(h.Value)
					}
					if !o.bare {
						if err := check.Add(m); err != nil {
							t.Fatal(err)
						}
					}
					c, err := workload.Parse(o.codec, r.Value)
					if err != nil {
						t.Fatal(err)
					}
					if c.Op == "delete" && c.Table != "events" {
						deletes++
					}
					if strings.Contains(o.more, "commit_time") {
						headersSay(t, &r, c, prefix)
					}
				}
			}
			if !o.bare {
				if err := check.Compare(conn); err != nil {
					t.Error(err)
				}
				if got, want := check.Sequences(), committed+edgeRows; got != want {
					t.Errorf("%d row changes committed, %d arrived", want, got)
				}
			}
			if !o.tombstones {
				deletes = 0
			}
			if tombstones != deletes {
				t.Errorf("%d tombstones for %d deletes", tombstones, deletes)
			}
			t.Logf("%d row changes, %d messages, %d tombstones", check.Sequences(), check.Messages, tombstones)
		})
	}

	t.Run("Java producer's partitions", func(t *testing.T) {
		partitions := map[string]int32{}
		for i := range byJava {
			r := &byJava[i]
			// A row without key goes where its table does; its key in maxwell tells rows apart only, in debezium it has none.
			if strings.HasSuffix(r.Topic, ".events") && (r.Key == nil || r.Key[len(r.Key)-1] == '}') {
				continue
			}
			if p, seen := partitions[string(r.Key)]; seen && p != r.Partition {
				t.Fatalf("key on partition %d too: %v", p, r)
			}
			partitions[string(r.Key)] = r.Partition
		}
		var keys [][]byte
		for key := range partitions {
			keys = append(keys, []byte(key))
		}
		for i, got := range partitionsByJava(t, k, k.Topic(3), keys) {
			if want := partitions[string(keys[i])]; got != want {
				t.Errorf("key %q: the Java producer chooses partition %d, ours is %d", keys[i], got, want)
			}
		}
		t.Logf("%d keys", len(keys))
	})

	t.Run("Canal's FlatMessage", func(t *testing.T) {
		var values [][]byte
		var input []string
		for i := range byJava {
			r := &byJava[i]
			if r.Value != nil && slices.ContainsFunc(outputs, func(o *output) bool { return o.codec == "canal-json" && slices.Contains(o.topics, r.Topic) }) {
				values = append(values, r.Value)
				input = append(input, encode(r.Value))
			}
		}
		lines := java(t, canal, "CanalReader", input)
		if len(lines) != len(values) {
			t.Fatalf("%d objects of %d messages", len(lines), len(values))
		}
		for i := range lines {
			if got, want := decode(t, lines[i]), decode(t, values[i]); !reflect.DeepEqual(got, want) {
				t.Fatalf("Canal's class made\n%s of\n%s", lines[i], values[i])
			}
		}
		t.Logf("%d messages", len(values))
	})

	t.Run("Kafka Connect", func(t *testing.T) { connectReads(t, outputs[5], byJava, conn, prefix, schema) })

	for _, o := range []*output{outputs[0], outputs[3], outputs[6]} {
		t.Run("Flink's "+o.codec, func(t *testing.T) {
			var args, input []string
			for table, row := range flinkTypes(o.codec) {
				args = append(args, o.codec+"|"+table+"|"+row)
			}
			var rs []record
			for _, table := range tables {
				for _, r := range ofTopic(byJava, o.topic(table)) {
					if r.Value == nil {
						continue // what becomes of tombstones shows TestFlinkConditions
					}
					rs = append(rs, r)
					input = append(input, o.codec+" "+table+" "+encode(r.Value))
				}
			}
			lines := java(t, flink, "FlinkReader", input, args...)
			if len(lines) != len(rs) {
				t.Fatalf("%d answers to %d messages", len(lines), len(rs))
			}
			view := view{t: t, rows: map[string]map[string]map[string]*string{}}
			for i := range lines {
				view.apply(o.codec, &rs[i], lines[i])
			}
			for _, table := range tables {
				view.compare(conn, schema, table, o.codec)
			}
			t.Logf("%d messages, %v", len(rs), view.kinds)
		})
	}
}

// edgeRows is how many rows edgeChanges change.
const edgeRows = 3 + 1 + 1 + 3 + 1

func first(s string, _ bool) string { return s }

// headersSay fails the test unless the headers of a message tell the same as its value.
func headersSay(t testing.TB, r *record, c *workload.Change, destination string) {
	t.Helper()
	for name, want := range map[string]string{"destination": destination, "schema": c.Schema, "table": c.Table, "epoch": "0"} {
		if got, _ := r.header(name); got != want && (name != "epoch" || got == "") {
			t.Fatalf("header %s is %q, want %q: %v", name, got, want, r)
		}
	}
	for _, name := range []string{"gtid", "row", "position", "commit_time"} {
		if got, _ := r.header(name); got == "" {
			t.Fatalf("no header %s: %v", name, r)
		}
	}
	// A change of the key travels as a delete and an insert.
	if got, _ := r.header("op"); got != c.Op && got != "update" {
		t.Fatalf("header op is %q: %v", got, r)
	}
}

func decode(t testing.TB, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// view is the tables as Flink would keep them.
type view struct {
	t     testing.TB
	rows  map[string]map[string]map[string]*string // table -> key -> row
	kinds map[string]int
}

// apply takes the rows that Flink made of one message.
func (v *view) apply(codec string, r *record, line []byte) {
	v.t.Helper()
	var rows []struct {
		Kind string
		Row  map[string]*[]byte
	}
	if err := json.Unmarshal(line, &rows); err != nil {
		v.t.Fatalf("%v in %s of %s", err, line, r.Value)
	}
	c, err := workload.Parse(codec, r.Value)
	if err != nil {
		v.t.Fatal(err)
	}
	want := map[string][]string{"insert": {"+I"}, "update": {"-U", "+U"}, "delete": {"-D"}}[c.Op]
	if len(rows) != len(want) {
		v.t.Fatalf("Flink made %d rows of %s", len(rows), r.Value)
	}
	for i, row := range rows {
		if row.Kind != want[i] {
			v.t.Fatalf("Flink made %s of %s", row.Kind, r.Value)
		}
		if v.kinds == nil {
			v.kinds = map[string]int{}
		}
		v.kinds[row.Kind]++
		now := map[string]*string{}
		for name, value := range row.Row {
			if meta, ok := strings.CutPrefix(name, "metadata "); ok {
				v.metadata(codec, c, r, meta, value)
				continue
			}
			now[name] = nil
			if value != nil {
				s := string(*value)
				now[name] = &s
			}
		}
		table := v.rows[c.Table]
		if table == nil {
			table = map[string]map[string]*string{}
			v.rows[c.Table] = table
		}
		key := keyOf(c.Table, now)
		before, live := table[key]
		switch row.Kind {
		case "+I":
			if live {
				v.t.Fatalf("inserted while it lives: %s", r.Value)
			}
		case "+U":
			if live {
				v.t.Fatalf("the row before was not withdrawn: %s", r.Value)
			}
		default:
			if !live || !reflect.DeepEqual(before, now) {
				v.t.Fatalf("Flink withdraws %s, the row is %s: %s", show(now), show(before), r.Value)
			}
			delete(table, key)
			continue
		}
		table[key] = now
	}
}

// metadata holds a metadata column against the message.
func (v *view) metadata(codec string, c *workload.Change, r *record, name string, value *[]byte) {
	v.t.Helper()
	keys := map[string]string{"pairs": "a,b"}
	var want string
	switch name {
	case "database", "source.database":
		want = c.Schema
	case "table", "source.table":
		want = c.Table
	case "schema", "source.schema": // of messages with schema, and of databases that have schemas
		if value != nil {
			v.t.Fatalf("%s is %s: %s", name, *value, r.Value)
		}
		return
	case "pk-names":
		if c.Table == "events" {
			if value != nil {
				v.t.Fatalf("primary key %s of a table without one: %s", *value, r.Value)
			}
			return
		}
		if want = keys[c.Table]; want == "" {
			want = "id"
		}
	case "primary-key-columns": // comes with output_primary_key_columns only
		if value != nil {
			v.t.Fatalf("%s is %s: %s", name, *value, r.Value)
		}
		return
	default: // times and types
		if value == nil {
			v.t.Fatalf("Flink found no %s in %s", name, r.Value)
		}
		return
	}
	if value == nil || string(*value) != want {
		v.t.Fatalf("Flink's %s of %s", name, r.Value)
	}
}

func keyOf(table string, row map[string]*string) string {
	cols := map[string][]string{"pairs": {"a", "b"}, "events": {"ver"}}[table]
	if cols == nil {
		cols = []string{"id"}
	}
	var b strings.Builder
	for _, c := range cols {
		fmt.Fprintf(&b, "%q|", text(row[c]))
	}
	return b.String()
}

func text(s *string) string {
	if s == nil {
		return "NULL"
	}
	return *s
}

func show(row map[string]*string) string {
	var b strings.Builder
	for _, c := range slices.Sorted(maps.Keys(row)) {
		fmt.Fprintf(&b, "%s=%.200q ", c, text(row[c]))
	}
	return b.String()
}

// query returns the rows of a statement as text, NULL as "NULL".
func query(t testing.TB, conn *client.Conn, statement string) [][]string {
	t.Helper()
	r, err := conn.Execute(statement)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]string, r.RowNumber())
	for i := range rows {
		for j := range r.ColumnNumber() {
			value := "NULL"
			if null, _ := r.IsNull(i, j); !null {
				if value, err = r.GetString(i, j); err != nil {
					t.Fatal(err)
				}
			}
			rows[i] = append(rows[i], value)
		}
	}
	return rows
}

// compare holds a table against the source's.
func (v *view) compare(conn *client.Conn, schema, table, codec string) {
	v.t.Helper()
	var names, exprs []string
	for _, row := range query(v.t, conn, "SELECT column_name, data_type, datetime_precision FROM information_schema.columns WHERE table_schema='"+schema+"' AND table_name='"+table+"' ORDER BY ordinal_position") {
		name, expr := row[0], "CAST(`"+row[0]+"` AS CHAR CHARACTER SET utf8mb4)"
		inUTC := func(digits string) string {
			return "CAST(CAST(CONVERT_TZ(`" + name + "`, @@session.time_zone, '+00:00') AS DATETIME(" + digits + ")) AS CHAR)"
		}
		switch row[1] {
		case "date", "time", "datetime", "timestamp":
			if codec == "debezium" {
				expr = map[string]string{
					"date": "DATEDIFF(`" + name + "`, '1970-01-01')", "time": "TIME_TO_SEC(`" + name + "`)*1000000",
					"datetime": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `" + name + "`)", "timestamp": "CONCAT(REPLACE(" + inUTC(row[2]) + ", ' ', 'T'), 'Z')",
				}[row[1]]
			} else if row[1] == "timestamp" {
				expr = inUTC("6")
			}
		case "varbinary":
			expr = "LOWER(HEX(`" + name + "`))"
		case "float", "double":
			expr = "`" + name + "`+0e0"
		case "enum":
			if codec == "canal-json" {
				expr = "`" + name + "`+0"
			}
		}
		names, exprs = append(names, name), append(exprs, expr)
	}
	source := query(v.t, conn, "SELECT "+strings.Join(exprs, ",")+" FROM `"+schema+"`."+table)
	if len(source) != len(v.rows[table]) || len(source) == 0 {
		v.t.Fatalf("%s: the source has %d rows, Flink %d", table, len(source), len(v.rows[table]))
	}
	for _, values := range source {
		want := map[string]*string{}
		for i := range values {
			want[names[i]] = &values[i]
		}
		got := v.rows[table][keyOf(table, want)]
		for i, name := range names {
			have := text(got[name])
			if have == values[i] {
				continue
			}
			// Java and MySQL write the same number in two ways; FLOAT is compared in its own width.
			if a, err := strconv.ParseFloat(have, 64); err == nil && (name == "d" || name == "f") {
				if b, err := strconv.ParseFloat(values[i], 64); err == nil && (a == b || name == "f" && float32(a) == float32(b) && !math.IsInf(a, 0)) {
					continue
				}
			}
			v.t.Errorf("%s: column %s is %q in Flink, %q at the source: %s", table, name, have, values[i], show(want))
		}
	}
}
