//go:build integration

package compat

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// commandOut runs the program with a command and returns what it prints.
func commandOut(t *testing.T, config string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(process.Binary(t), append(args, "-c", file)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestCanalsCursorsAreTakenOver: the clients of a real Canal go on with this program where that has left them, none of their transactions missing and
// none again, whether it kept their cursors in ZooKeeper or in a file. What the program cannot prove it refuses, and a client of which a Canal has left a cursor does
// not begin anew unasked (I2, I3). In the second case the destination has a sink already that has read further.
func TestCanalsCursorsAreTakenOver(t *testing.T) {
	for _, c := range []struct{ kind, keep string }{{"mysql", "zookeeper"}, {"mariadb", "file"}} {
		t.Run(c.keep+" on "+c.kind, func(t *testing.T) { takeOver(t, c.kind, c.keep == "zookeeper") })
	}
}

func takeOver(t *testing.T, kind string, zookeeper bool) {
	db, zoo := testenv.MySQL(t, kind), testenv.ZooKeeper(t)
	schema, name := db.Database(), testenv.Name(t)
	db.Exec("CREATE TABLE " + schema + ".numbers (id INT PRIMARY KEY)")
	for i := range 3 {
		db.Exec(fmt.Sprintf("CREATE TABLE %s.last%d (id INT PRIMARY KEY)", schema, i))
	}
	show := "SHOW BINARY LOG STATUS"
	if db.MariaDB() {
		show = "SHOW MASTER STATUS"
	}
	status := db.Query(show)[0]
	written := 0
	write := func(transactions int) {
		for range transactions {
			var rows []string
			for range perTransaction {
				written++
				rows = append(rows, fmt.Sprintf("(%d)", written))
			}
			db.Exec("INSERT INTO " + schema + ".numbers VALUES " + strings.Join(rows, ","))
		}
	}
	dir := t.TempDir()
	address, out := process.FreeAddress(t), filepath.Join(dir, "out.jsonl")
	keep, meta, sinks := []string{"file", filepath.Join(dir, "canal")}, fmt.Sprintf("{ file: { directory: %q } }", filepath.Join(dir, "meta")), fmt.Sprintf(`
    sinks:
      - name: file
        file: { path: %q, values_only: true }
`, out)
	importArgs := []string{"cursor", "import-canal", "--yes", "--from", filepath.Join(dir, "canal", name, "meta.dat")}
	if zookeeper {
		keep, meta, sinks = []string{"zookeeper", zoo.Servers[0]}, fmt.Sprintf("{ zookeeper: { servers: [%q], session_timeout: 4s, root: /binlogmq-test/%s } }", zoo.Servers[0], name), ""
		importArgs = importArgs[:3]
	}
	config := fmt.Sprintf(`
deployment: test
meta: %s
canal: { listen: %q, user: canal, password: canal }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    start: "%s:%s"
%s`, meta, address, name, db.Addr, db.ReplUser, db.ReplPassword, schema, status[0], status[1], sinks)

	canalAt, stopCanal := startCanal(t, db, name, status[0], status[1], schema+`\..*`, keep...)
	// Client 1002 is a Go client that stays behind, 1001 the Java client. In Canal they share the stream.
	behind := follow(t, canalAt, name, 1002)
	behind.must(behind.c.Subscribe(t.Context(), schema+`\..*`)) // in Canal a filter is everybody's
	write(20)
	for last(behind.ids) < 5*perTransaction {
		batch, ids := behind.get(1)
		behind.must(behind.c.Ack(t.Context(), batch))
		behind.add(ids)
	}
	behind.settle()
	behind.must(behind.c.Disconnect(t.Context()))
	db.Exec("ALTER TABLE " + schema + ".numbers ADD COLUMN note VARCHAR(10)")
	db.Exec("ALTER TABLE " + schema + ".numbers DROP COLUMN note")
	write(10)
	db.Exec("INSERT INTO " + schema + ".last0 VALUES (1)")
	javaIDs := func(at string, phase int) (ids []int) {
		t.Helper()
		host, port, _ := net.SplitHostPort(at)
		for _, r := range readCanalClient(t, java(t, canalClient("1.1.8"), "CanalClient", nil, host, port, name, "canal", "canal", `.*\..*`, fmt.Sprint("last", phase))) {
			if r.Table == "numbers" {
				id, err := strconv.Atoi(fmt.Sprint(r.Data["id"]))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
		}
		return ids
	}
	javaIDs(canalAt, 0)
	javaDone := written // all up to last0
	write(10)
	stopCanal() // which waits until it has saved its cursors
	write(5)

	child := process.Start(t, config)
	if zookeeper {
		child.AwaitReady()
		c, err := client.NewTCP(client.TCPOptions{Address: address, Destination: name, User: "canal", Password: "canal"})
		behind.must(err)
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // until the program owns the destination
			err = c.Connect(t.Context())
			if err == nil {
				err = c.Subscribe(t.Context(), "")
			}
			if err == nil {
				t.Fatal("a client of which Canal has left a cursor begins anew")
			}
			if strings.Contains(err.Error(), "import-canal") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("a client of which Canal has left a cursor: %v", err)
			}
		}
		behind.must(c.Disconnect(t.Context()))
	} else { // the sink reads on
		child.Await("the sink", patience, func(*admin.Report) bool {
			text, err := os.ReadFile(out)
			return err == nil && bytes.Count(text, []byte(`"table":"numbers"`)) >= written
		})
	}
	child.Stop()

	if zookeeper { // as long as a Canal serves the destination its clients move on
		conn, _, err := zk.Connect(zoo.Servers, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quietLog{}))
		behind.must(err)
		_, err = conn.Create(canalzk.Running(canalzk.Root, name), canalzk.RunningData{Active: true, Address: "canal:11111"}.Encode(), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Error(err)
		}
		if text, err := commandOut(t, config, importArgs...); err == nil || !strings.Contains(text, "stop it first") {
			t.Errorf("imported beside a Canal: %v\n%s", err, text)
		}
		conn.Close()
	}

	// Another log than Canal's is refused: of the same server, at a place that it does not have, or has otherwise.
	text, err := commandOut(t, strings.ReplaceAll(config, db.Addr, testenv.MySQL(t, map[bool]string{true: "mysql", false: "mariadb"}[db.MariaDB()]).Addr), importArgs...)
	if err == nil {
		t.Errorf("imported from another server:\n%s", text)
	}
	text, err = commandOut(t, config, importArgs...)
	if err != nil || !strings.Contains(text, "2 cursors are imported") {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Log(text)
	if text, err = commandOut(t, config, importArgs...); err == nil || !strings.Contains(text, "nothing to import") {
		t.Errorf("imported twice: %v\n%s", err, text)
	}

	child = process.Start(t, config)
	child.AwaitReady()
	db.Exec("INSERT INTO " + schema + ".last1 VALUES (1)")
	for end := time.Now().Add(patience); zookeeper && !func() bool { r, ok := child.Report(); return ok && r.Destinations[0].Owner }(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program does not own the destination")
		}
	}
	ids := javaIDs(address, 1)
	for i := range ids {
		if ids[i] != javaDone+1+i {
			t.Fatalf("the Java client goes on with %v, want %d on", ids[:min(len(ids), 30)], javaDone+1)
		}
	}
	if len(ids) != written-javaDone {
		t.Errorf("the Java client got %d rows, want %d", len(ids), written-javaDone)
	}
	from := last(behind.ids)
	again, err := client.NewTCP(client.TCPOptions{Address: address, Destination: name, ClientID: 1002, User: "canal", Password: "canal"})
	behind.must(err)
	behind.c = again
	behind.connect()
	behind.must(again.Subscribe(t.Context(), `.*\.numbers`))
	behind.to(written)
	if from%perTransaction != 0 {
		t.Logf("the client that stayed behind had %d rows, the last transaction in part", from)
	}
	behind.complete("the client that stayed behind", written)
	child.Stop()
}
