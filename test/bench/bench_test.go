//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %s %s\n", name, strconv.FormatFloat(value, 'g', 4, 64), unit)
}

func TestMain(m *testing.M) {
	figure("cores", float64(runtime.NumCPU()), "cores")
	os.Exit(m.Run())
}

func atLeast(env string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(env)); err == nil && n > 0 {
		return n
	}
	return def
}

// rows is how many rows the recorded binlog holds.
var rows = atLeast("BINLOGMQ_BENCH_ROWS", 1_000_000)

const perTransaction = 10_000

const table = `(id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, customer INT UNSIGNED NOT NULL, state TINYINT NOT NULL,
  sku VARCHAR(40) NOT NULL, name VARCHAR(80) NOT NULL, city VARCHAR(40) NOT NULL, price DECIMAL(12,2) NOT NULL, tax DECIMAL(18,6) NOT NULL,
  at DATETIME(3) NOT NULL, changed TIMESTAMP NOT NULL, attrs JSON, note TEXT)`

// record writes rows into a table of its own on a fresh server, whose log holds
// little else, and returns the log's file and where the rows begin.
func record(t *testing.T) (db *testenv.Server, schemaName, file string, from int64) {
	t.Helper()
	db = testenv.NewMySQL(t, "mysql", "--max-binlog-size=1073741824", "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--innodb-buffer-pool-size=256M")
	schemaName = db.Database()
	db.Exec("CREATE TABLE `" + schemaName + "`.seed " + table)
	db.Exec("CREATE TABLE `" + schemaName + "`.orders " + table)
	db.Exec("USE `" + schemaName + "`")
	db.Exec("SET SESSION cte_max_recursion_depth=1000000")
	db.Exec(fmt.Sprintf(`INSERT INTO %s.seed SELECT n, n*7 %% 100000, n %% 5, CONCAT('SKU-', LPAD(n, 8, '0'), '-', LEFT(SHA2(n, 256), 12)),
		CONCAT('Product ', LEFT(SHA2(n+1, 256), 32), ' ', n), ELT(1 + n %% 4, 'Berlin', 'Zürich', 'New York', 'Kuala Lumpur'), (n %% 99999) / 100, (n %% 999983) / 1000,
		'2026-03-04 05:06:07.089' + INTERVAL n SECOND, '2026-01-01' + INTERVAL n MINUTE, JSON_OBJECT('color', ELT(1 + n %% 3, 'red', 'green', 'blue'), 'weight', n %% 1000, 'tags', JSON_ARRAY('a', n)),
		REPEAT(CHAR(97 + n %% 26), 40)
		FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) x`, schemaName, perTransaction))
	db.Exec("FLUSH BINARY LOGS")
	st := db.Query("SHOW BINARY LOG STATUS")[0]
	from, _ = strconv.ParseInt(st[1], 10, 64)
	for n := 0; n < rows; n += perTransaction {
		db.Exec("INSERT INTO " + schemaName + ".orders SELECT NULL, customer, state, sku, name, city, price, tax, at, changed, attrs, note FROM " + schemaName + ".seed")
	}
	db.Exec("FLUSH BINARY LOGS") // the server marks an open file inside its first event
	return db, schemaName, st[0], from
}

// packets turns a binlog file into what a dump connection would send.
func packets(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	seq := byte(1)
	for p := 4; p+19 <= len(b); {
		n := int(binary.LittleEndian.Uint32(b[p+9:]))
		if n < 19 || p+n > len(b) {
			break
		}
		out = append(out, byte(n+1), byte((n+1)>>8), byte((n+1)>>16), seq, 0)
		out = append(out, b[p:p+n]...)
		seq++
		p += n
	}
	return out
}

func cpu(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// decode runs a recorded stream through framing, checksums, transactions and the codec.
func decode(t *testing.T, stream []byte, charsets map[uint32]string) (n int, out int64, events int) {
	t.Helper()
	codec := must(canaljson.New(canaljson.Options{}))
	var s event.Scanner
	buf := make([]byte, 0, 1<<20)
	m := binlog.NewMachine(binlog.Options{
		Destination: "bench", ServerUUID: "x", Match: func(string, string) bool { return true },
		Tables: schema.New(schema.Options{Version: "9.7.0", Charsets: charsets}),
		Emit: func(e *event.Event) error {
			events++
			if e.Kind != event.Rows {
				return nil
			}
			for s.Reset(e); s.Next(); n++ {
				var err error
				if buf, err = codec.AppendRow(buf[:0], s.Row()); err != nil {
					return err
				}
				out += int64(len(buf))
			}
			return s.Err()
		},
		Position: event.Position{File: "binlog.000001", Offset: 4},
	})
	defer m.Close()
	r := binlog.NewStream(bytes.NewReader(stream))
	for {
		raw, err := r.Next()
		if err == io.EOF {
			return n, out, events
		}
		if err == nil {
			err = m.Feed(&raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFigures(t *testing.T) {
	db, schemaName, file, from := record(t)
	path := filepath.Join(db.Dir, "data", file)
	t.Run("decode", func(t *testing.T) { decodeFigures(t, db, path) })
	t.Run("usual", func(t *testing.T) { usualFigures(t, path) })
	t.Run("kafka", func(t *testing.T) { programFigures(t, db, schemaName, file, from) })
}

func decodeFigures(t *testing.T, db *testenv.Server, path string) {
	charsets := map[uint32]string{}
	for _, r := range db.Query("SELECT id, character_set_name FROM information_schema.collations") {
		charsets[uint32(must(strconv.ParseUint(r[0], 10, 32)))] = r[1]
	}
	stream := packets(t, path)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var wall, used []float64
	var n int
	var out int64
	var mallocs float64
	for range 5 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c, begin := cpu(syscall.RUSAGE_SELF), time.Now()
		n, out, _ = decode(t, stream, charsets)
		wall = append(wall, float64(n)/time.Since(begin).Seconds())
		used = append(used, (cpu(syscall.RUSAGE_SELF)-c).Seconds()*1e6/float64(n))
		runtime.ReadMemStats(&after)
		mallocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	}
	slices.Sort(wall)
	slices.Sort(used)
	figure("decode_canal_json_rows", wall[2], "rows/s/core")
	figure("decode_canal_json_rows_best", wall[4], "rows/s/core")
	figure("decode_canal_json_cpu", used[2], "cpu-s/1M-rows")
	figure("decode_canal_json_in", wall[2]*float64(len(stream))/float64(n)/1e6, "MB/s")
	figure("decode_canal_json_out", wall[2]*float64(out)/float64(n)/1e6, "MB/s")
	figure("decode_binlog_bytes_per_row", float64(len(stream))/float64(n), "bytes")
	figure("decode_allocations_per_row", mallocs, "allocs")
}

// usualFigures measures what most Go bridges do: go-mysql's full parse, a map a row, encoding/json.
func usualFigures(t *testing.T, path string) {
	p := replication.NewBinlogParser()
	p.SetVerifyChecksum(true)
	n := 0
	c, begin := cpu(syscall.RUSAGE_SELF), time.Now()
	err := p.ParseFile(path, 4, func(e *replication.BinlogEvent) error {
		r, ok := e.Event.(*replication.RowsEvent)
		if !ok {
			return nil
		}
		names := r.Table.ColumnNameString()
		for _, row := range r.Rows {
			data := make(map[string]any, len(row))
			for i, v := range row {
				if b, ok := v.([]byte); ok {
					v = string(b)
				}
				data[names[i]] = v
			}
			if _, err := json.Marshal(map[string]any{"database": string(r.Table.Schema), "table": string(r.Table.Table), "type": "INSERT", "data": data}); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	figure("usual_go_parse_json_rows", float64(n)/time.Since(begin).Seconds(), "rows/s")
	figure("usual_go_parse_json_cpu", (cpu(syscall.RUSAGE_SELF)-c).Seconds()*1e6/float64(n), "cpu-s/1M-rows")
}

func config(t *testing.T, db *testenv.Server, schemaName, start, sink string) string {
	return fmt.Sprintf(`
meta: { file: { directory: %q } }
destinations:
  - name: bench
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.orders"]
    start: %q
    sinks:
      - name: out
        %s
`, filepath.Join(t.TempDir(), "meta"), db.Addr, db.ReplUser, db.ReplPassword, schemaName, start, sink)
}

func programFigures(t *testing.T, db *testenv.Server, schemaName, file string, from int64) {
	cluster := testenv.NewKafka(t, 1)
	for _, run := range []struct {
		name, codec string
		partitions  int
		delivery    string
	}{
		{"kafka_maxwell_1p", "maxwell", 1, "at_least_once"}, {"kafka_canal_json_1p", "canal-json", 1, "at_least_once"},
		{"kafka_canal_json_8p", "canal-json", 8, "at_least_once"}, {"kafka_canal_json_8p_sequenced", "canal-json", 8, "sequenced"},
	} {
		name := run.name
		cluster.CreateTopic(name, run.partitions)
		begin := time.Now()
		p := process.Start(t, config(t, db, schemaName, fmt.Sprintf("%s:%d", file, from),
			fmt.Sprintf("codec: %s\n        kafka: { brokers: [%q], delivery: %s }\n        topic: %q", run.codec, cluster.Bootstrap[0], run.delivery, name)))
		var first time.Time
		var firstRows int64
		var peak float64
		var end time.Time
		p.Await("all rows in Kafka", 10*time.Minute, func(r *admin.Report) bool {
			s := r.Destinations[0].Sinks[0]
			peak = max(peak, rss(p.PID()))
			if first.IsZero() && s.Rows > 0 {
				first, firstRows = time.Now(), s.Rows
			}
			end = time.Now()
			return s.Rows >= int64(rows)
		})
		c := childCPU(t, p.PID())
		r, _ := p.Report()
		p.Stop()
		figure(name+"_bytes_per_row", float64(r.Destinations[0].Sinks[0].Bytes)/float64(rows), "bytes")
		figure(name+"_rows", float64(int64(rows)-firstRows)/end.Sub(first).Seconds(), "rows/s")
		figure(name+"_rows_with_start", float64(rows)/end.Sub(begin).Seconds(), "rows/s")
		figure(name+"_cpu", c.Seconds()*1e6/float64(rows), "cpu-s/1M-rows")
		figure(name+"_rss_peak", peak, "MiB")
	}
}

// childCPU is the processor time of a process so far.
func childCPU(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	const ticks = 100 // USER_HZ on Linux
	return time.Duration(user+system) * time.Second / ticks
}

// rss is the resident memory of a process in MiB at its highest.
func rss(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// TestLatency measures from just before the INSERT to a consumer, at 2,000 rows/s.
func TestLatency(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql")
	cluster := testenv.NewKafka(t, 1)
	latency(t, db, cluster, "latency", "at_least_once")
	latency(t, db, cluster, "latency_sequenced", "sequenced")
}

func latency(t *testing.T, db *testenv.Server, cluster *testenv.KafkaCluster, name, delivery string) {
	schemaName := db.Database()
	db.Exec("CREATE TABLE `" + schemaName + "`.orders (id BIGINT PRIMARY KEY, sent BIGINT NOT NULL, pad VARCHAR(200) NOT NULL)")
	cluster.CreateTopic(name, 1)
	p := process.Start(t, config(t, db, schemaName, "latest", fmt.Sprintf("kafka: { brokers: [%q], delivery: %s }\n        topic: %s\n        headers: [seq, commit_time]", cluster.Bootstrap[0], delivery, name)))
	p.AwaitReady()
	consumer := must(kgo.NewClient(kgo.SeedBrokers(cluster.Bootstrap...), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond)))
	defer consumer.Close()

	seconds := atLeast("BINLOGMQ_BENCH_SECONDS", 30)
	const perSecond, group = 2000, 4
	total := seconds * perSecond
	go func() {
		c := db.Connect("")
		pad := strings.Repeat("x", 180)
		begin := time.Now()
		for n := 0; n < total; n += group {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / perSecond)))
			var b strings.Builder
			fmt.Fprintf(&b, "INSERT INTO `%s`.orders VALUES ", schemaName)
			now := time.Now().UnixMicro()
			for i := range group {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, "(%d,%d,'%s')", n+i, now, pad)
			}
			if _, err := c.Execute(b.String()); err != nil {
				panic(err)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+60)*time.Second)
	defer cancel()
	var whole, commit []float64
	c := childCPU(t, p.PID())
	begin := time.Now()
	for len(whole) < total {
		f := consumer.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMicro()
		f.EachRecord(func(r *kgo.Record) {
			var m struct{ Data []struct{ Sent string } }
			if err := json.Unmarshal(r.Value, &m); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, float64(now-must(strconv.ParseInt(m.Data[0].Sent, 10, 64)))/1000)
			for _, h := range r.Headers {
				if h.Key == "commit_time" {
					commit = append(commit, float64(now-must(strconv.ParseInt(string(h.Value), 10, 64)))/1000)
				}
			}
		})
	}
	used := (childCPU(t, p.PID()) - c).Seconds() / time.Since(begin).Seconds() * 100
	show := func(name string, v []float64) {
		v = v[min(len(v)/10, 4000):] // the first seconds warm up the broker's JVM
		slices.Sort(v)
		figure(name+"_p50", v[len(v)/2], "ms")
		figure(name+"_p99", v[len(v)*99/100], "ms")
		figure(name+"_max", v[len(v)-1], "ms")
	}
	show(name+"_insert_to_consumer", whole)
	show(name+"_commit_to_consumer", commit)
	figure(name+"_run_cpu", used, "%-of-a-core")
	figure(name+"_run_rss", rss(p.PID()), "MiB")
	p.Stop()
}

// TestStart measures from the start of the process to readiness.
func TestStart(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	schemaName := db.Database()
	var ms []float64
	for range 5 {
		begin := time.Now()
		p := process.Start(t, config(t, db, schemaName, "latest", `file: { path: "/dev/null", sync: false }`))
		p.AwaitReady()
		ms = append(ms, float64(time.Since(begin).Microseconds())/1000)
		p.Stop()
	}
	slices.Sort(ms)
	figure("start_to_ready", ms[2], "ms")
	info, err := os.Stat(process.Binary(t))
	if err == nil {
		figure("binary_size", float64(info.Size())/(1<<20), "MiB")
	}
}
