package workload

import (
	"fmt"
	"strings"
	"testing"
)

func msg(seq int, partition int32, value string) Message {
	return Message{Topic: "t", Partition: partition, Key: []byte("k"), Value: []byte(value), Headers: map[string]string{"seq": fmt.Sprint(seq)}}
}

func moves(op string, id, ver int, old string) string {
	return fmt.Sprintf(`{"database":"s","table":"moves","type":%q,"data":{"v":1,"id":%d,"ver":%d}%s}`, op, id, ver, old)
}

// TestParseDebezium: values as the source shows them, of messages with schema and without.
func TestParseDebezium(t *testing.T) {
	const payload = `{"before":{"id":1,"n":"ZA==","at":1700000000123456,"v":null},"after":{"id":1,"n":"/w==","at":1700000000123456,"v":"x"},"source":{"db":"s","table":"t"},"op":"u"}`
	const schema = `{"fields":[{"field":"before"},{"field":"after","fields":[{"field":"id"},{"field":"v"},{"field":"n","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}},{"field":"at","name":"io.debezium.time.MicroTimestamp"}]}]}`
	for value, want := range map[string]string{
		payload: `update s.t at="1700000000123456" id="1" n="/w==" v="x"  n="ZA==" v=NULL `,
		`{"schema":` + schema + `,"payload":` + payload + `}`: `update s.t at="2023-11-14 22:13:20.123456" id="1" n="-0.01" v="x"  n="1.00" v=NULL `,
	} {
		c, err := Parse("debezium", []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %s.%s %s %s", c.Op, c.Schema, c.Table, show(c.Data), show(c.Old)); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// TestCheckerIsNotBlind proves that each fault the checker is for turns it red.
func TestCheckerIsNotBlind(t *testing.T) {
	ins, upd2 := moves("insert", 1, 1, ""), moves("update", 1, 2, `,"old":{"ver":1}`)
	upd3, del3 := moves("update", 1, 3, `,"old":{"ver":2}`), moves("delete", 1, 3, "")
	read := func(seq, ver int, op string) Message {
		m := msg(seq, 0, moves(op, 1, ver, ""))
		m.Headers["snapshot"] = "id/1"
		return m
	}
	tests := []struct {
		name    string
		replays bool
		msgs    []Message
		want    string
	}{
		{"right", false, []Message{msg(1, 0, ins), msg(2, 0, upd2), msg(5, 0, upd3), msg(6, 0, del3), msg(9, 0, moves("insert", 1, 7, ""))}, ""},
		{"lost update", false, []Message{msg(1, 0, ins), msg(5, 0, upd3)}, "missing or out of order"},
		{"lost insert", false, []Message{msg(2, 0, upd2)}, "never seen"},
		{"lost delete", false, []Message{msg(1, 0, ins), msg(9, 0, moves("insert", 1, 7, ""))}, "while it lives"},
		{"swapped", false, []Message{msg(1, 0, ins), msg(5, 0, upd3), msg(2, 0, upd2)}, "missing or out of order"},
		{"doubled", false, []Message{msg(1, 0, ins), msg(1, 0, ins)}, "arrived twice"},
		{"replayed", true, []Message{msg(1, 0, ins), msg(2, 0, upd2), msg(1, 0, ins), msg(2, 0, upd2)}, ""},
		{"replayed with other numbers", true, []Message{msg(1, 0, ins), msg(2, 0, ins)}, "while it lives"},
		{"replayed with other content", true, []Message{msg(1, 0, ins), msg(1, 0, upd2)}, "other content"},
		{"replayed elsewhere", true, []Message{msg(1, 0, ins), msg(1, 1, ins)}, "other content"},
		{"numbers fall", false, []Message{msg(3, 0, ins), msg(2, 0, upd2)}, "after"},
		{"silent change", false, []Message{msg(1, 0, ins), msg(2, 0, moves("update", 1, 2, `,"old":{}`))}, "without being in old"},
		{"no number", false, []Message{{Value: []byte(ins)}}, "header seq"},
	}
	before := len(tests)
	tests = append(tests, []struct {
		name    string
		replays bool
		msgs    []Message
		want    string
	}{
		{"snapshot, then changes", false, []Message{read(1, 1, "insert"), msg(2, 0, upd2), msg(5, 0, upd3), msg(6, 0, del3)}, ""},
		{"changes, then a snapshot", false, []Message{msg(2, 0, upd2), msg(5, 0, upd3), read(6, 3, "insert")}, ""},
		{"deleted before it was read", false, []Message{msg(6, 0, del3), msg(7, 0, moves("insert", 1, 7, "")), read(8, 7, "insert")}, ""},
		{"an older row", false, []Message{msg(2, 0, upd2), msg(5, 0, upd3), read(6, 2, "insert")}, "another row than the stream"},
		{"a newer row", false, []Message{read(1, 3, "insert"), msg(5, 0, upd3)}, "missing or out of order"},
		{"a deleted row", false, []Message{msg(6, 0, del3), read(7, 3, "insert")}, "brings back"},
		{"no insert", false, []Message{read(1, 1, "update")}, "in a snapshot"},
		{"inserted after it was read", false, []Message{read(1, 1, "insert"), msg(2, 0, moves("insert", 1, 2, ""))}, "while it lives"},
		{"deleted twice", false, []Message{msg(6, 0, del3), msg(7, 0, del3)}, "never seen"},
		{"updated when it is gone", false, []Message{msg(6, 0, del3), msg(7, 0, upd2)}, "never seen"},
	}...)
	for i, tt := range tests {
		c := &Checker{Codec: "maxwell", Schema: "s", Replays: tt.replays, Before: i >= before}
		var err error
		for _, m := range tt.msgs {
			if err = c.Add(m); err != nil {
				break
			}
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
