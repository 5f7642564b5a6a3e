//go:build integration

package compat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// canalRow is a row change as one of Canal's clients saw it, or as a canal-json message has it.
type canalRow struct {
	Table, Type string
	Data, Old   map[string]any
	Types       map[string]string
	SQLTypes    map[string]int
	Keys        string
}

// readCanalClient reads what java/CanalClient printed.
func readCanalClient(t *testing.T, lines [][]byte) (rows []canalRow) {
	t.Helper()
	for _, line := range lines {
		f := strings.Split(string(line), "\t")
		if f[0] != "row" {
			continue
		}
		r := canalRow{Table: f[2], Type: f[3], Data: map[string]any{}, Old: map[string]any{}, Types: map[string]string{}, SQLTypes: map[string]int{}}
		var images [2]map[string]any
		updated := map[string]bool{}
		at := 4
		var keys []string
		for i := range images {
			images[i] = map[string]any{}
			n, err := strconv.Atoi(f[at])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			at++
			for range n {
				name := f[at]
				var value any
				if f[at+1] != "-" {
					b, err := base64.StdEncoding.DecodeString(f[at+1])
					if err != nil {
						t.Fatal(err)
					}
					value = string(b)
				}
				images[i][name] = value
				updated[name] = updated[name] || strings.HasPrefix(f[at+2], "updated")
				r.Types[name] = f[at+3]
				r.SQLTypes[name], _ = strconv.Atoi(f[at+4])
				if strings.HasSuffix(f[at+2], " key") && (i == 1 || r.Type == "DELETE") {
					keys = append(keys, name)
				}
				at += 5
			}
		}
		slices.Sort(keys)
		r.Keys = strings.Join(keys, ",")
		r.Data = images[1]
		if r.Type == "DELETE" {
			r.Data = images[0]
		}
		if r.Type == "UPDATE" {
			for name, v := range images[0] {
				if updated[name] {
					r.Old[name] = v
				}
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// readFlat reads a file sink's canal-json messages.
func readFlat(t *testing.T, lines [][]byte) (rows []canalRow) {
	t.Helper()
	for _, line := range lines {
		var m struct {
			Table, Type string
			IsDDL       bool `json:"isDdl"`
			Data, Old   []map[string]any
			MysqlType   map[string]string
			SQLType     map[string]int `json:"sqlType"`
			PkNames     []string
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if m.IsDDL {
			continue
		}
		r := canalRow{Table: m.Table, Type: m.Type, Data: m.Data[0], Old: map[string]any{}, Types: m.MysqlType, SQLTypes: m.SQLType}
		slices.Sort(m.PkNames)
		r.Keys = strings.Join(m.PkNames, ",")
		if len(m.Old) > 0 {
			r.Old = m.Old[0]
		}
		rows = append(rows, r)
	}
	return rows
}

// canalClient is Canal's Java client.
func canalClient(version string) []string {
	return []string{"com.alibaba.otter:canal.client:" + version, "com.alibaba.otter:canal.protocol:" + version}
}

// canalPython is Canal's Python client, with the protobuf that its generated code works with.
var canalPython = []string{"canal-python==0.4", "protobuf==3.20.3"}

// TestCanalsOwnClients proves that Canal's Java and Python clients, unchanged, get every row change of a random workload once
// acknowledged, in binlog order, with the values of canal-json: two versions of the Java client and then the Python client, each of which goes
// on where the one before has left; two of them roll back and reconnect at random, beside a sink on the same destination (I1, I2).
func TestCanalsOwnClients(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	schema := db.Database()
	conn := db.Connect("")
	if err := workload.Create(conn, schema); err != nil {
		t.Fatal(err)
	}
	db.Exec("CREATE TABLE " + schema + ".edge " + edge)
	for phase := range 3 { // one each: the last transaction of the client before was perhaps acknowledged in part, and comes again whole
		db.Exec(fmt.Sprintf("CREATE TABLE %s.last%d (id INT PRIMARY KEY)", schema, phase))
	}
	name, file, address := testenv.Name(t), filepath.Join(t.TempDir(), "out.jsonl"), process.FreeAddress(t)
	child := process.Start(t, fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
canal: { listen: %q, user: canal, password: E3619321C1A937C46A0D8BD1DAC39F93B27D4458, allow_clear_text: true }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    sinks:
      - name: file
        file: { path: %q, values_only: true }
        key_change: update
`, filepath.Join(t.TempDir(), "meta"), address, name, db.Addr, db.ReplUser, db.ReplPassword, schema, file))
	child.AwaitReady()
	host, port, _ := net.SplitHostPort(address)

	var got []canalRow
	w := workload.NewWriter(db.Connect(""), schema, 0, 1, 17)
	w.Large = 300
	edgeConn := db.Connect(schema)
	args := func(phase int, more ...string) []string {
		return append([]string{host, port, name, "canal", "canal", `.*\..*`, fmt.Sprint("last", phase)}, more...)
	}
	// The client id is always the same: each one goes on where the one before has left.
	for phase, run := range []func() [][]byte{
		func() [][]byte { return java(t, canalClient("1.1.8"), "CanalClient", nil, args(0, "4711")...) },
		func() [][]byte { return java(t, canalClient("1.1.4"), "CanalClient", nil, args(1)...) },
		func() [][]byte { return python(t, canalPython, "canal_client", args(2, "4711")...) },
	} {
		lines, ended := make(chan [][]byte, 1), make(chan struct{})
		go func() {
			defer close(lines)
			defer close(ended)
			lines <- run()
		}()
		if phase == 0 {
			child.Await("the client's subscription", patience, func(r *admin.Report) bool {
				select {
				case <-ended: // it has failed, and says why
					return true
				default:
				}
				return slices.ContainsFunc(r.Destinations[0].Sinks, func(k admin.Sink) bool { return k.Name == "1001" && k.Kind == "canal" })
			})
			for _, q := range append([]string{"SET time_zone='+00:00'"}, edgeChanges...) {
				if _, err := edgeConn.Execute(q); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Run(context.Background(), 150); err != nil {
			t.Fatal(err)
		}
		db.Exec(fmt.Sprintf("INSERT INTO %s.last%d VALUES (1)", schema, phase))
		out, ok := <-lines
		if !ok {
			t.FailNow()
		}
		got = append(got, readCanalClient(t, out)...)
	}
	end := db.Query("SHOW BINARY LOG STATUS")[0]
	offset, err := strconv.ParseInt(end[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	child.Await("the file", patience, func(r *admin.Report) bool {
		at, _, _ := strings.Cut(r.Destinations[0].Position, " ")
		log, at, _ := strings.Cut(at, ":")
		n, _ := strconv.ParseInt(at, 10, 64)
		return (log > end[0] || log == end[0] && n >= offset) && r.Destinations[0].Sinks[0].Behind == 0
	})
	child.Stop()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := readFlat(t, bytes.Split(bytes.TrimSpace(text), []byte("\n")))
	isLast := func(r canalRow) bool { return strings.HasPrefix(r.Table, "last") }
	got, want = slices.DeleteFunc(got, isLast), slices.DeleteFunc(want, isLast)
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("row change %d:\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) || int64(len(got)) < w.Changes {
		t.Errorf("%d row changes, the file has %d, %d were written", len(got), len(want), w.Changes)
	}
}
