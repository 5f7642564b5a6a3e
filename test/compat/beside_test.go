//go:build integration && debezium

package compat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// debeziumEngine is Debezium's own connector.
var debeziumEngine = []string{"io.debezium:debezium-embedded:3.6.1.Final", "io.debezium:debezium-connector-mysql:3.6.1.Final"}

// published is a message of a topic, as far as it has to be the same from both.
type published struct{ key, value, headers any }

// TestBesideDebezium lets Debezium and the program read one server, and holds their messages against each other: the same ones
// in each topic, in the same order, with the same keys, headers, schemas, rows and places in the log. What
// differs is their own time and version, and the empty message that Debezium sends behind a delete without key.
func TestBesideDebezium(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql")
	schema := db.Database()
	conn := db.Connect("")
	if err := workload.Create(conn, schema); err != nil {
		t.Fatal(err)
	}
	db.Exec("CREATE TABLE " + schema + ".edge " + edge)
	db.Exec("CREATE TABLE " + schema + ".labels (id INT PRIMARY KEY, s SET('','x','y'), m SET('x','','y'))")
	db.Exec("CREATE TABLE " + schema + ".hello (id INT AUTO_INCREMENT PRIMARY KEY)")
	db.Exec("CREATE TABLE " + schema + ".done (id INT)")

	lines := filepath.Join(t.TempDir(), "lines")
	child := process.Start(t, fmt.Sprintf(`
meta: { file: { directory: %q } }
destinations:
  - name: beside
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    sinks:
      - { name: lines, codec: debezium, file: { path: %q } }
`, filepath.Join(t.TempDir(), "meta"), db.Addr, db.ReplUser, db.ReplPassword, schema, lines))
	child.AwaitReady()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	host, port, _ := strings.Cut(db.Addr, ":")
	cmd := testenv.Java(t, ctx, debeziumEngine, filepath.Join("java", "DebeziumReader.java"), host, port, db.User, db.Password, schema, "beside")
	defer time.AfterFunc(patience, cancel).Stop()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun, read := make(chan struct{}), make(chan [][]byte)
	go func() {
		var all [][]byte
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			if all = append(all, bytes.Clone(s.Bytes())); len(all) == 1 {
				close(begun)
			}
		}
		if len(all) == 0 {
			close(begun)
		}
		read <- all
	}()
	for waiting := true; waiting; {
		db.Exec("INSERT INTO " + schema + ".hello VALUES ()")
		select {
		case <-begun:
			waiting = false
		case <-time.After(200 * time.Millisecond):
		}
	}
	w := workload.NewWriter(db.Connect(""), schema, 0, 1, 11)
	w.Large = 300
	if err := w.Run(context.Background(), 300); err != nil {
		t.Fatal(err)
	}
	edgeConn := db.Connect(schema)
	for _, q := range append([]string{"SET time_zone='+00:00'"}, edgeChanges...) {
		if _, err := edgeConn.Execute(q); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec("ALTER TABLE " + schema + ".moves ADD COLUMN added VARCHAR(20) AFTER v, RENAME COLUMN ver TO version")
	db.Exec("UPDATE " + schema + ".moves SET added='x', version=version+1")
	db.Exec("INSERT INTO " + schema + ".labels VALUES (0,0,0),(1,1,1),(2,2,2),(3,3,3),(4,4,4),(5,5,5),(6,6,6),(7,7,7)")
	db.Exec("INSERT INTO " + schema + ".done VALUES (1)")
	theirs := <-read
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%.4000s", err, &errs)
	}
	child.Await("all of it", patience, func(r *admin.Report) bool {
		text, err := os.ReadFile(lines)
		return err == nil && bytes.Contains(text, []byte(`"topic":"beside.`+schema+`.done"`)) && r.Destinations[0].Sinks[0].Behind == 0
	})
	child.Stop()
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	ours := bytes.Split(bytes.TrimSpace(text), []byte("\n"))

	got, want := topics(t, ours, true), topics(t, theirs, false)
	n := 0
	for topic, messages := range want {
		if strings.HasSuffix(topic, ".hello") {
			continue
		}
		n += len(messages)
		if len(got[topic]) != len(messages) {
			t.Errorf("%s: %d messages, Debezium %d", topic, len(got[topic]), len(messages))
			continue
		}
		for i := range messages {
			if g, w := got[topic][i], messages[i]; !alike(g.key, w.key) || !alike(g.value, w.value) || !alike(g.headers, w.headers) {
				t.Fatalf("%s: message %d\n%s\nDebezium\n%s", topic, i, compact(g), compact(w))
			}
		}
	}
	if len(want) < 6 || n < 1000 {
		t.Errorf("%d messages of %d topics", n, len(want))
	}
	t.Logf("%d messages of %d topics", n, len(want))
}

func compact(p published) string {
	var b []byte
	for _, v := range []any{p.key, p.headers, p.value} {
		text, _ := json.Marshal(v)
		b = append(append(b, text...), ' ')
	}
	return string(b)
}

// topics sorts the messages of either by topic.
func topics(t *testing.T, lines [][]byte, ours bool) map[string][]published {
	t.Helper()
	all := map[string][]published{}
	for _, l := range lines {
		var m struct {
			Topic      string
			Key, Value json.RawMessage
			Headers    map[string]json.RawMessage
		}
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatalf("%v in %.300s", err, l)
		}
		inner := func(raw json.RawMessage) any { // our file has keys and headers as text
			var s string
			if ours && json.Unmarshal(raw, &s) == nil && s != "" {
				raw = []byte(s)
			}
			if len(raw) == 0 {
				return nil
			}
			return decode(t, raw)
		}
		p := published{key: inner(m.Key), value: decode(t, m.Value)}
		headers := map[string]any{}
		for name, v := range m.Headers {
			if strings.HasPrefix(name, "__debezium.") {
				headers[name] = inner(v)
			}
		}
		p.headers = headers
		if p.key == nil && p.value == nil {
			continue
		}
		if v, ok := p.value.(map[string]any); ok {
			payload := v["payload"].(map[string]any)
			for _, name := range []string{"ts_ms", "ts_us", "ts_ns"} {
				delete(payload, name)
			}
			delete(payload["source"].(map[string]any), "version")
		}
		all[m.Topic] = append(all[m.Topic], p)
	}
	return all
}

// alike compares JSON values, numbers by what they are: FLOAT has two shortest forms in Java and here.
func alike(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		n, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, ok1 := new(big.Rat).SetString(a.String())
		y, ok2 := new(big.Rat).SetString(n.String())
		f, _ := strconv.ParseFloat(a.String(), 32)
		g, _ := strconv.ParseFloat(n.String(), 32)
		return ok1 && ok2 && (x.Cmp(y) == 0 || f == g && strings.ContainsAny(n.String(), "Ee."))
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return false
		}
		for i := range a {
			if !alike(a[i], l[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(m) != len(a) {
			return false
		}
		for k, v := range a {
			if w, ok := m[k]; !ok || !alike(v, w) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
