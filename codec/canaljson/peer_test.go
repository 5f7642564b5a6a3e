package canaljson

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
)

type flat struct {
	Data, Old                  []map[string]*string
	Database, Table, Type, SQL string
	IsDDL                      bool `json:"isDdl"`
	MysqlType                  map[string]string
	SQLType                    map[string]int `json:"sqlType"`
	PkNames                    []string
	GTID                       string
	ID, ES, TS                 int64
}

// TestAgainstCanal compares with what Canal 1.1.7 published for the same rows
// (one row a message there too, after splitting). Each difference is listed,
// and is one that docs/formats.md explains; anything else fails, and so does a
// difference that is listed but not there.
func TestAgainstCanal(t *testing.T) {
	// What we write where Canal writes something else, by row and column.
	values := map[string]string{
		// Canal loses the scale of a DECIMAL whose value has none.
		"nums 1 dcu": "0.0000", "nums 3 dc": "0.00", "nums 3 dcbig": "0.000000000000000000000000000000",
		"nums 6 dc": "1.00", "nums 7 dc": "100.00",
		// Java's form of a floating-point number; ours is the server's.
		"nums 2 f": "3.4e38", "nums 2 d": "1.7976931348623157e308", "nums 5 f": "1e-45", "nums 5 d": "5e-324",
		"nums 6 f": "16777216", "nums 6 d": "1e21", "nums 7 f": "10000000000", "nums 7 d": "0.0000001",
		// Canal decodes all text in the character set of its own connection.
		"texts 2 l": "café €", "texts 2 g": "中文 编码", "texts 2 mt": "müsli",
		// Canal does not pad BINARY.
		"texts 2 bn": "\x01\x02\x00\x00\x00\x00\x00\x00", "texts 3 bn": "\x00\x00\x00\x00\x00\x00\x00\x00",
	}
	// sqlType is stable here and wide enough for every value of the column.
	sqlTypes := map[string]int{"tiu": 5, "iu": -5, "biu": 3, "j": 12, "s": -7}

	lines := readLines(t, "testdata/canal.jsonl")
	c := newCodec(t, Options{})
	rows := codectest.PeerRows(t)
	if len(rows) != len(lines) {
		t.Fatalf("%d rows, %d messages", len(rows), len(lines))
	}
	seen := map[string]bool{}
	for i, p := range rows {
		out, err := c.AppendRow(nil, codectest.Row(t, p.Table, p.Before, p.After))
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		var got, want flat
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(lines[i], &want); err != nil {
			t.Fatal(err)
		}
		compare := func(label string, g, w map[string]*string) {
			for name, v := range w {
				id := p.Name + label + name
				ours, listed := values[id]
				switch {
				case g[name] == nil || v == nil:
					if _, ok := g[name]; !ok || g[name] != v {
						t.Errorf("%s: %v, Canal %v", id, g[name], v)
					}
				case listed && *g[name] == ours && ours != *v:
					seen[id] = true
				case *g[name] != *v:
					t.Errorf("%s: %q, Canal %q", id, *g[name], *v)
				}
			}
			if len(g) != len(w) {
				t.Errorf("%s: %d columns, Canal %d", p.Name+label, len(g), len(w))
			}
		}
		compare(" ", got.Data[0], want.Data[0])
		if len(got.Old) != len(want.Old) {
			t.Errorf("%s: old %v, Canal %v", p.Name, got.Old, want.Old)
		} else if len(got.Old) == 1 {
			compare(" old ", got.Old[0], want.Old[0])
		}
		for name, w := range want.SQLType {
			if g := got.SQLType[name]; g != w && g != sqlTypes[name] {
				t.Errorf("%s %s: sqlType %d, Canal %d", p.Name, name, g, w)
			}
		}
		for name, w := range want.MysqlType {
			if g := got.MysqlType[name]; g != w {
				t.Errorf("%s %s: mysqlType %q, Canal %q", p.Name, name, g, w)
			}
		}
		gotPk, _ := json.Marshal(got.PkNames)
		wantPk, _ := json.Marshal(want.PkNames)
		if !bytes.Equal(gotPk, wantPk) || got.Database != want.Database || got.Table != want.Table || got.Type != want.Type ||
			got.SQL != want.SQL || got.IsDDL != want.IsDDL {
			t.Errorf("%s: %s\nCanal %s", p.Name, out, lines[i])
		}
	}
	for id := range values {
		if !seen[id] {
			t.Errorf("%s is listed as a difference, but is none", id)
		}
	}
}

func readLines(t *testing.T, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}
