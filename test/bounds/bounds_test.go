//go:build integration

package bounds

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

const mib = 1 << 20

// long says whether the sizes are those of the documentation.
var long = os.Getenv("BINLOGMQ_BOUNDS") == "long"

// size chooses between the short form and the long one.
func size(short, whole int) int {
	if long {
		return whole
	}
	return short
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "binlogmq-bounds-")
	if err != nil {
		panic(err)
	}
	if os.Getenv("BINLOGMQ_TEST_BINARY") == "" {
		// Without the race detector, which multiplies memory.
		bin := filepath.Join(dir, "binlogmq")
		build := exec.Command("go", "build", "-o", bin, "github.com/binlogmq/binlogmq/cmd/binlogmq")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("%s%v\n", out, err)
			os.Exit(1)
		}
		if err := os.Setenv("BINLOGMQ_TEST_BINARY", bin); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Println(err)
	}
	if err := leak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

func TestBounds(t *testing.T) {
	db := source(t, "mysql", "--innodb-redo-log-capacity=2147483648", "--innodb-file-per-table=OFF")
	cluster := testenv.NewKafka(t, 1, "message.max.bytes=100000000")
	t.Run("large transaction", func(t *testing.T) { largeTransaction(t, db) })
	t.Run("compressed/mysql", func(t *testing.T) { compressed(t, db) })
	t.Run("compressed/mariadb", func(t *testing.T) { compressed(t, source(t, "mariadb")) })
	t.Run("large rows", func(t *testing.T) { largeRows(t, db, cluster) })
	t.Run("many tables", func(t *testing.T) { manyTables(t, db) })
	t.Run("broker down", func(t *testing.T) { brokerDown(t, db, cluster) })
}

// source is a database server with room for large rows that is loaded quickly.
func source(t *testing.T, kind string, options ...string) *testenv.Server {
	t.Helper()
	return testenv.NewMySQL(t, kind, append([]string{
		"--max-allowed-packet=1073741824", "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--innodb-doublewrite=0",
	}, options...)...)
}

// start runs the program with one destination, of which source and sink are keys with their values. It reads from where
// the log ends now.
func start(t *testing.T, db *testenv.Server, schema, source, sink string) *process.Child {
	t.Helper()
	c := process.Start(t, fmt.Sprintf(`
meta: { file: { directory: %q } }
destinations:
  - name: bounds
    source: { address: %q, user: %s, password: %s, %s }
    tables: ["%s.*"]
    sinks:
      - name: out
        %s
`, filepath.Join(t.TempDir(), "meta"), db.Addr, db.ReplUser, db.ReplPassword, source, schema, sink))
	c.AwaitReady()
	return c
}

const nowhere = `file: { path: /dev/null, sync: false }`

func kafka(cluster *testenv.KafkaCluster, topic string) string {
	return fmt.Sprintf("kafka: { brokers: [%q] }\n        topic: %q", cluster.Bootstrap[0], topic)
}

const patience = 30 * time.Minute

// published waits until the sink has n row changes confirmed.
func published(c *process.Child, n int) {
	c.Await(fmt.Sprintf("%d row changes", n), patience, func(r *admin.Report) bool {
		d := &r.Destinations[0]
		return len(d.Sinks) > 0 && d.Sinks[0].Rows >= int64(n) && d.Sinks[0].InFlight == 0
	})
}

// within fails the test unless the program has stayed below limit bytes.
func within(t *testing.T, c *process.Child, what string, limit int64) {
	t.Helper()
	now, peak := c.Memory()
	t.Logf("%s: at most %d MiB, now %d MiB, %.1f s of CPU; the bound is %d MiB", what, peak/mib, now/mib, c.CPU().Seconds(), limit/mib)
	if peak > limit {
		t.Errorf("%s: I9: %d MiB of memory, the bound is %d MiB", what, peak/mib, limit/mib)
	}
}

// The bound with default settings, without the largest row; config.MemoryBound has the same parts.
const fixed = (96 + 2*16 + 4*8) * mib

// I9: while a broker is down and rows keep coming, memory is flat and the reader stands still; afterwards it catches up by itself.
func brokerDown(t *testing.T, db *testenv.Server, cluster *testenv.KafkaCluster) {
	schema := db.Database()
	db.Exec("CREATE TABLE " + schema + ".r (id INT PRIMARY KEY AUTO_INCREMENT, pad VARCHAR(250))")
	topic := cluster.Topic(2)
	c := start(t, db, schema, "max_event: 16MiB", kafka(cluster, topic))
	const each = 5000
	insert := "INSERT INTO " + schema + ".r (pad) SELECT REPEAT('x', 250) FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 5000) SELECT n FROM s) x"
	db.Exec("SET SESSION cte_max_recursion_depth = 1000000")
	db.Exec(insert)
	published(c, each)

	cluster.Kill(1)
	sent := each
	var stalled int64
	for round, rounds := 0, size(30, 300); round < rounds; round++ {
		db.Exec(insert)
		sent += each
		var d admin.Destination
		c.Await("an answer", patience, func(r *admin.Report) bool { d = r.Destinations[0]; return true })
		if d.RingBytes > d.RingLimit {
			t.Errorf("I9: %d bytes in a ring of %d", d.RingBytes, d.RingLimit)
		}
		if d.RingBytes > d.RingLimit*3/4 {
			if stalled == 0 {
				stalled = d.Events
				t.Logf("the ring is full after %d rows", sent)
			} else if d.Events > stalled+4096 {
				t.Errorf("the reader goes on: %d events, %d when the ring was full", d.Events, stalled)
			}
		}
	}
	c.Await("a full ring", patience, func(r *admin.Report) bool { // which a busy machine has not read by now
		return stalled > 0 || r.Destinations[0].RingBytes > r.Destinations[0].RingLimit*3/4
	})
	within(t, c, "broker down", fixed)
	cluster.Restart(1)
	published(c, sent)
	within(t, c, "after catching up", fixed)
	c.Stop()
}

// I9: the size of a transaction does not matter.
func largeTransaction(t *testing.T, db *testenv.Server) {
	schema := db.Database()
	db.Exec("CREATE TABLE " + schema + ".r (id INT PRIMARY KEY AUTO_INCREMENT, pad VARCHAR(1000))")
	c := start(t, db, schema, "max_event: 16MiB", nowhere)
	const statement = 64 * mib / 1000 // rows
	db.Exec("SET SESSION cte_max_recursion_depth = 1000000")
	db.Exec("BEGIN")
	rows := 0
	for total := size(300, 4096) * mib; rows*1000 < total; rows += statement {
		db.Exec(fmt.Sprintf("INSERT INTO %s.r (pad) SELECT REPEAT('y', 1000) FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) x", schema, statement))
	}
	db.Exec("COMMIT")
	published(c, rows)
	within(t, c, fmt.Sprintf("a transaction of %d MB", rows/1000), fixed)
	c.Stop()
}

// I9: what a server compresses is unpacked piece by piece. A compressed transaction of MySQL is one event, and counts as one.
func compressed(t *testing.T, db *testenv.Server) {
	schema := db.Database()
	db.Exec("CREATE TABLE " + schema + ".r (id INT PRIMARY KEY AUTO_INCREMENT, pad VARCHAR(1000))")
	c := start(t, db, schema, "max_event: 16MiB", nowhere)
	const numbers = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 65536) SELECT n FROM s"
	if db.MariaDB() {
		db.Exec("SET GLOBAL log_bin_compress = ON")
		db.Exec("SET SESSION max_recursive_iterations = 1000000")
	} else {
		db.Exec("SET SESSION binlog_transaction_compression = ON")
		db.Exec("SET SESSION cte_max_recursion_depth = 1000000")
		defer db.Exec("SET SESSION binlog_transaction_compression = OFF")
	}
	db.Exec("BEGIN")
	rows := 0
	for total := size(190, 2048) * mib; rows*1000 < total; rows += 65536 {
		db.Exec("INSERT INTO " + schema + ".r (pad) SELECT REPEAT('z', 1000) FROM (" + numbers + ") x")
	}
	db.Exec("COMMIT")
	published(c, rows)
	within(t, c, fmt.Sprintf("a compressed transaction of %d MB", rows/1000), fixed+8*16*mib)
	c.Stop()
}

// I9: a row of any size takes no more than eight times that much, and gives it back.
func largeRows(t *testing.T, db *testenv.Server, cluster *testenv.KafkaCluster) {
	schema := db.Database()
	db.Exec("CREATE TABLE " + schema + ".big (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB, t LONGTEXT, j JSON)")
	topic := cluster.Topic(1)
	for _, sink := range []struct {
		name, keys string
		most       int // MiB of the largest row: a request to a Kafka broker has at most 100 MiB
	}{
		{"file", nowhere, 100}, {"kafka", kafka(cluster, topic), 45},
	} {
		n := size(min(sink.most, 32), sink.most) * mib
		for _, x := range []struct{ column, value string }{
			{"t", fmt.Sprintf("REPEAT('abcdefghij klmnop\\n', %d)", n/18)},
			{"b", fmt.Sprintf("REPEAT(RANDOM_BYTES(1024), %d)", n/1024)},
			{"j", fmt.Sprintf("CONCAT('[1', REPEAT(',\"abcdefghijklmnop\",12345', %d), ']')", n/24)},
		} {
			if !long && sink.name == "kafka" && x.column != "b" {
				continue // the heaviest one
			}
			t.Run(sink.name+"/"+x.column, func(t *testing.T) {
				c := start(t, db, schema, "max_event: 1GiB", sink.keys)
				for range 4 {
					db.Exec(fmt.Sprintf("INSERT INTO %s.big (%s) VALUES (%s)", schema, x.column, x.value))
				}
				published(c, 4)
				within(t, c, fmt.Sprintf("rows of %d MiB", n/mib), fixed+int64(8*n))
				if !long {
					c.Kill()
					return
				}
				begin := time.Now()
				for now, peak := c.Memory(); now > fixed; now, peak = c.Memory() {
					if time.Since(begin) > 3*time.Minute {
						t.Fatalf("I9: %d of %d MiB are still held", now/mib, peak/mib)
					}
					time.Sleep(time.Second)
				}
				t.Logf("given back after %v", time.Since(begin).Round(time.Second))
				c.Stop()
			})
		}
	}
}

// I9: what is remembered of tables is bounded, whatever their number.
func manyTables(t *testing.T, db *testenv.Server) {
	schema := db.Database()
	tables := size(400, 10_000)
	run := func(count int, f func(i int) string) {
		for i := range count {
			db.Exec(f(i))
		}
	}
	run(tables, func(i int) string {
		return fmt.Sprintf("CREATE TABLE %s.t%05d (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(50), b DECIMAL(10,2), c DATETIME(3), d ENUM('x','y'), e TEXT)", schema, i)
	})
	insert := func(i int) string {
		return fmt.Sprintf("INSERT INTO %s.t%05d (a, b, c, d, e) VALUES ('abc', 1.5, '2026-01-01', 'y', '%s')", schema, i, strings.Repeat("e", 100))
	}
	for _, sink := range []struct{ name, keys string }{
		{"one topic", nowhere + "\n        topic: all"}, {"a topic a table", nowhere},
	} {
		t.Run(sink.name, func(t *testing.T) {
			c := start(t, db, schema, "max_event: 16MiB", sink.keys)
			begin := time.Now()
			run(tables, insert)
			published(c, tables)
			t.Logf("a row in each of %d tables, each a transaction: %v", tables, time.Since(begin).Round(time.Millisecond))
			begin = time.Now()
			db.Exec("BEGIN")
			run(2*tables, func(i int) string { return insert(i % tables) })
			db.Exec("COMMIT")
			published(c, 3*tables)
			t.Logf("two rows in each in turn, in one transaction: %v", time.Since(begin).Round(time.Millisecond))
			within(t, c, fmt.Sprintf("%d tables", tables), fixed)
			c.Stop()
		})
	}
}
