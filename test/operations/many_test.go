//go:build integration

package operations

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestManyRowsInAStatement: statements that change 8,000 rows, 4 MiB each, give a message a row with each codec, in their order and far below what a
// topic takes, however little that is.
func TestManyRowsInAStatement(t *testing.T) {
	t.Parallel()
	const rows = 8000
	db := testenv.MySQL(t, "mysql")
	k, b := testenv.Kafka(t), testenv.Pulsar(t)
	s := newSetup(t, db)
	s.name = testenv.Name(t)
	table := s.table(t, db)
	kafkaTopic, pulsarTopic := k.Topic(1, "max.message.bytes=5000"), b.Topic()
	s.more = "ring: { bytes: 1MiB }"
	s.sink = kafkaSink(k, kafkaTopic, "create: false")
	text := s.text() + fmt.Sprintf("      - name: pulsar\n        %s\n", pulsarSink(b, pulsarTopic, "create: true"))
	dir := t.TempDir()
	codecs := []string{"canal-json", "canal-protobuf", "maxwell", "debezium"}
	for _, codec := range codecs {
		text += fmt.Sprintf("      - name: %s\n        file: { path: %q, sync: false }\n        codec: %[1]s\n", codec, filepath.Join(dir, codec))
	}
	p := process.Start(t, text)
	p.AwaitReady()
	c := db.Connect("")
	for _, q := range []string{
		fmt.Sprintf("SET SESSION cte_max_recursion_depth=%d", rows),
		fmt.Sprintf("INSERT INTO %s WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i, REPEAT('p', 500) FROM n", table, rows),
		"UPDATE " + table + " SET v = CONCAT(v, 'x') ORDER BY id",
	} {
		if _, err := c.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	p.Await("all messages of all sinks", patience, func(r *admin.Report) bool {
		for _, k := range r.Destinations[0].Sinks {
			if k.Messages != 2*rows {
				return false
			}
		}
		return r.Healthy()
	})
	p.Stop()
	if n := kafkaRows(t, k, kafkaTopic); n != 2*rows {
		t.Errorf("Kafka: %d records", n)
	}
	if n := pulsarRows(t, b, pulsarTopic); n != 2*rows {
		t.Errorf("Pulsar: %d messages", n)
	}
	for _, codec := range codecs {
		data, err := os.ReadFile(filepath.Join(dir, codec))
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for line := range strings.Lines(string(data)) {
			var r row
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			// The rows are numbered in their transaction, and the key is in the same line.
			id := strconv.Itoa(i%rows + 1)
			if r.Headers["row"] != strconv.Itoa(i%rows) || codec != "canal-protobuf" && !strings.Contains(r.Key, id) {
				t.Fatalf("%s: message %d has row %s and key %s", codec, i, r.Headers["row"], r.Key)
			}
			if codec == "canal-json" {
				var v struct {
					Type      string
					Data, Old []map[string]string
				}
				if err := json.Unmarshal(r.Value, &v); err != nil || len(v.Data) != 1 || v.Data[0]["id"] != id ||
					(v.Type == "INSERT") != (i < rows) || (len(v.Data[0]["v"]) == 501) != (i >= rows) || i >= rows && len(v.Old[0]["v"]) != 500 {
					t.Fatalf("%s: message %d: %.300s", codec, i, r.Value)
				}
			}
			if len(line) > 12<<10 { // debezium's has its schema
				t.Fatalf("%s: a message of %d bytes", codec, len(line))
			}
			i++
		}
		if i != 2*rows {
			t.Errorf("%s: %d messages", codec, i)
		}
	}
}
