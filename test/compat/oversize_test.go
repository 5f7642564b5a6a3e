//go:build integration

package compat

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestForeignClientsReadStubs proves that what stands for rows above a topic's limit can be read by Kafka's Java client and taken by
// Flink's parsers of the JSON formats, as rows of the table's own types: the small columns as they are, and the digest that
// the source gives in the place of the large ones.
func TestForeignClientsReadStubs(t *testing.T) {
	db, k := testenv.MySQL(t, "mysql"), testenv.Kafka(t)
	table := db.Database() + ".t"
	db.Exec("CREATE TABLE " + table + " (id INT PRIMARY KEY, n DECIMAL(10,2), body LONGTEXT, scan LONGBLOB, doc JSON)")
	name := testenv.Name(t)
	config := fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: [%q]
    sinks:
`, filepath.Join(t.TempDir(), "meta"), strings.TrimSuffix(table, ".t"), db.Addr, db.ReplUser, db.ReplPassword, table)
	codecs := []string{"canal-json", "maxwell", "debezium"}
	for _, codec := range codecs {
		config += fmt.Sprintf("      - name: %s\n        kafka: { brokers: [\"%s\"], topics: { partitions: 1 } }\n        codec: %s\n        canal_json: { binary: base64 }\n        debezium: { schemas.enable: false, decimal.handling.mode: string }\n        tombstones: false\n        oversize: stub\n        topic: %s\n",
			codec, strings.Join(k.Bootstrap, `","`), codec, name+"."+codec)
	}
	p := process.Start(t, config)
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 1.50, REPEAT('é\"', 600000), REPEAT(X'00FF', 400000), JSON_OBJECT('a', REPEAT('j', 700000)))")
	sum := db.Query("SELECT LENGTH(body), SHA2(body,256), LENGTH(scan), SHA2(scan,256) FROM " + table)[0]
	db.Exec("UPDATE " + table + " SET n=2.25, body='short' WHERE id=1")
	db.Exec("DELETE FROM " + table + " WHERE id=1")
	p.Await("both sinks", patience, func(r *admin.Report) bool {
		for _, s := range r.Destinations[0].Sinks {
			if s.Messages < 3 || s.Behind != 0 {
				return false
			}
		}
		return true
	})
	p.Stop()

	digest := func(size, sum string) string {
		return fmt.Sprintf(`{"binlogmq_stub":{"bytes":%s,"sha256":"%s"}}`, size, sum)
	}
	for _, codec := range codecs {
		rs := kafkaByJava(t, k, []string{name + "." + codec})
		if len(rs) != 3 {
			t.Fatalf("%s: %d messages", codec, len(rs))
		}
		var input []string
		const row = "ROW<id INT, n DECIMAL(10,2), body STRING, scan BYTES, doc STRING>"
		for i := range rs {
			if h, ok := rs[i].header("stub"); !ok || !json.Valid([]byte(h)) {
				t.Errorf("%s: message %d has header stub %q", codec, i, h)
			}
			input = append(input, codec+" t "+encode(rs[i].Value))
		}
		t.Logf("%s: %s", codec, rs[0].Value)
		lines := java(t, flink, "FlinkReader", input, codec+"|t|"+row)
		if len(lines) != len(rs) {
			t.Fatalf("%d answers to %d messages", len(lines), len(rs))
		}
		for i, want := range []struct{ kinds, n, body string }{{"+I", "1.50", digest(sum[0], sum[1])}, {"-U +U", "2.25", "short"}, {"-D", "2.25", "short"}} {
			var rows []struct {
				Kind string
				Row  map[string]*[]byte
			}
			if err := json.Unmarshal(lines[i], &rows); err != nil {
				t.Fatalf("%s: message %d: %v in %.300s", codec, i, err, lines[i])
			}
			var kinds []string
			for _, r := range rows {
				kinds = append(kinds, r.Kind)
			}
			last := rows[len(rows)-1].Row
			if got := strings.Join(kinds, " "); got != want.kinds || string(*last["n"]) != want.n || string(*last["body"]) != want.body || string(*last["id"]) != "1" || string(*last["scan"]) != hex.EncodeToString([]byte(digest(sum[2], sum[3]))) {
				t.Errorf("%s: message %d is %s of n %s, body %s, scan %s", codec, i, got, *last["n"], *last["body"], *last["scan"])
			}
		}
	}
}
