//go:build integration

package compat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

type quietLog struct{}

func (quietLog) Printf(string, ...any) {}

// TestCanalsClusterClients proves that Canal's Java cluster clients, unchanged, find whichever of two processes serves their destination by
// Canal's nodes in ZooKeeper, and follow it when that one is killed, and when an operator has it moved: every row comes at least once, and none before one that was
// committed earlier (I2). The Python client, which knows no cluster, does so by a list of addresses.
func TestCanalsClusterClients(t *testing.T) {
	db, zoo := testenv.MySQL(t, "mysql"), testenv.ZooKeeper(t)
	schema, name := db.Database(), testenv.Name(t)
	db.Exec("CREATE TABLE " + schema + ".t (id INT PRIMARY KEY)")
	for phase := range 3 { // one each: what the client before has acknowledged in part comes again whole
		db.Exec(fmt.Sprintf("CREATE TABLE %s.last%d (id INT PRIMARY KEY)", schema, phase))
	}
	first := 1_000_000_000 + rand.Int64N(1_000_000_000)
	var configs, ports []string
	var nodes []*process.Child
	for i := range 2 {
		address := process.FreeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		ports = append(ports, port)
		configs = append(configs, fmt.Sprintf(`
deployment: test
meta: { zookeeper: { servers: [%q], session_timeout: 4s, root: /binlogmq-test/%s, node: node%d }, save_interval: 200ms }
canal: { listen: %q, user: canal, password: canal, allow_clear_text: true }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s, server_id: %d }
    tables: ["%s.*"]
`, zoo.Servers[0], name, i, address, name, db.Addr, db.ReplUser, db.ReplPassword, first+int64(i), schema))
		nodes = append(nodes, process.Start(t, configs[i]))
	}
	// owner is the process that serves the destination, and how many rows the client there has acknowledged.
	owner := func() (int, int64) {
		for i, n := range nodes {
			if r, ok := n.Report(); ok && r.Destinations[0].Owner {
				at := slices.IndexFunc(r.Destinations[0].Sinks, func(k admin.Sink) bool { return k.Name == "1001" })
				if at >= 0 {
					return i, r.Destinations[0].Sinks[at].Rows
				}
				return i, -1
			}
		}
		return -1, -1
	}
	await := func(what string, ended <-chan struct{}, f func(owner int, rows int64) bool) int {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			i, rows := owner()
			if i >= 0 && f(i, rows) {
				return i
			}
			select {
			case <-ended:
				t.Fatalf("waiting for %s: the client has ended", what)
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("waiting for %s in vain", what)
			}
		}
	}
	next := 1
	insert := func(n int) {
		for range n {
			db.Exec(fmt.Sprintf("INSERT INTO %s.t VALUES (%d)", schema, next))
			next++
		}
	}
	operator, _, err := zk.Connect(zoo.Servers, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quietLog{}))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	cluster := func(version string) func(last string) [][]byte {
		return func(last string) [][]byte {
			return java(t, canalClient(version), "CanalClient", nil, zoo.Servers[0], "zookeeper", name, "canal", "canal", `.*\..*`, last)
		}
	}
	for phase, client := range []struct {
		name string
		run  func(last string) [][]byte
	}{
		{"Java 1.1.8", cluster("1.1.8")}, {"Java 1.1.4", cluster("1.1.4")},
		{"Python", func(last string) [][]byte {
			return python(t, canalPython, "canal_client", "127.0.0.1", strings.Join(ports, ","), name, "canal", "canal", `.*\..*`, last)
		}},
	} {
		from := next
		lines, ended := make(chan [][]byte, 1), make(chan struct{})
		go func() {
			defer close(lines)
			defer close(ended)
			lines <- client.run(fmt.Sprint("last", phase))
		}()
		await("the client", ended, func(_ int, rows int64) bool { return rows >= 0 })
		insert(50)
		old := await("the first rows", ended, func(_ int, rows int64) bool { return rows > 0 })
		insert(50)
		nodes[old].Kill()
		insert(50)
		began := time.Now()
		await("the next owner", ended, func(i int, _ int64) bool { return i != old })
		took := time.Since(began)
		nodes[old] = process.Start(t, configs[old])
		old = await("the client at the next owner", ended, func(_ int, rows int64) bool { return rows > 0 })
		insert(50)
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // the other one is there to take it
			servers, _, err := operator.Children(canalzk.DestinationCluster(canalzk.Root, name))
			if err == nil && len(servers) == 2 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("servers %v (%v)", servers, err)
			}
		}
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // on a busy machine the node may be away for a moment
			running, _, err := operator.Get(canalzk.Running(canalzk.Root, name))
			if err == nil {
				_, err = operator.Set(canalzk.Running(canalzk.Root, name), bytes.Replace(running, []byte("true"), []byte("false"), 1), -1)
			}
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		insert(50)
		await("the owner that it is moved to", ended, func(i int, _ int64) bool { return i != old })
		await("the client there", ended, func(i int, rows int64) bool { return i != old && rows > 0 })
		insert(50)
		db.Exec(fmt.Sprintf("INSERT INTO %s.last%d VALUES (1)", schema, phase))
		out, ok := <-lines
		if !ok {
			t.FailNow()
		}
		repeated := 0
		for _, r := range readCanalClient(t, out) {
			if r.Table != "t" {
				continue
			}
			id, err := strconv.Atoi(fmt.Sprint(r.Data["id"]))
			switch {
			case err != nil || id > from:
				t.Fatalf("client %s: row %v, want %d", client.name, r.Data["id"], from)
			case id < from:
				repeated++
			default:
				from++
			}
		}
		if from != next {
			t.Errorf("client %s: rows up to %d, want %d", client.name, from-1, next-1)
		}
		t.Logf("client %s: %d rows, %d of them again; the next process owned the destination %v after the first one was killed", client.name, next-1, repeated, took.Round(time.Millisecond))
	}
	for _, n := range nodes {
		n.Stop()
		if strings.Contains(n.Log(), "Canal's nodes in ZooKeeper") {
			t.Errorf("a fault with Canal's nodes:\n%s", n.Log())
		}
	}
}
