//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
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
	t.Run("canal", func(t *testing.T) { canalFigures(t, db, schemaName, file, from) })
	t.Run("program", func(t *testing.T) { programFigures(t, db, schemaName, file, from) })
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

// mode is one way to publish.
type mode struct {
	name   string
	keys   func(b *brokers, topic string) string // of the sink
	create func(b *brokers, topic string)
	topic  string // prefix
	start  string // none: where the rows begin in the log
}

// brokers are what all modes share.
type brokers struct {
	kafka  *testenv.KafkaCluster
	pulsar *testenv.PulsarBroker
}

func kafkaMode(name, codec, delivery string, partitions int) mode {
	return mode{
		name: name,
		keys: func(b *brokers, topic string) string {
			return fmt.Sprintf("codec: %s\n        kafka: { brokers: [%q], delivery: %s }\n        topic: %q", codec, b.kafka.Bootstrap[0], delivery, topic)
		},
		create: func(b *brokers, topic string) { b.kafka.CreateTopic(topic, partitions) },
	}
}

func pulsarMode(name, producer string, batching bool) mode {
	return mode{
		name:  name,
		topic: "persistent://public/default/",
		keys: func(b *brokers, topic string) string {
			return fmt.Sprintf("codec: canal-json\n        pulsar: { url: %q, producer: %s, batching: %t }\n        topic: %q", b.pulsar.URL, producer, batching, topic)
		},
		create: func(*brokers, string) {},
	}
}

// snapshot is a mode in which the rows are read from their table.
func snapshot(m mode) mode {
	m.start = "snapshot"
	return m
}

// modes are measured in turn, rounds times, so that what else the machine does falls on all of them.
var modes = []mode{
	kafkaMode("kafka_maxwell_1p", "maxwell", "at_least_once", 1),
	kafkaMode("kafka_canal_json_1p", "canal-json", "at_least_once", 1),
	kafkaMode("kafka_canal_json_8p", "canal-json", "at_least_once", 8),
	kafkaMode("kafka_canal_json_8p_sequenced", "canal-json", "sequenced", 8),
	kafkaMode("kafka_canal_json_8p_transactional", "canal-json", "transactional", 8),
	snapshot(kafkaMode("kafka_canal_json_8p_snapshot", "canal-json", "sequenced", 8)),
	pulsarMode("pulsar_wire", "wire", false),
	pulsarMode("pulsar_wire_batching", "wire", true),
	pulsarMode("pulsar_client", "client", false),
}

var rounds = atLeast("BINLOGMQ_BENCH_ROUNDS", 3)

// only, if set, is a pattern that names of modes must match.
var only = regexp.MustCompile(os.Getenv("BINLOGMQ_BENCH_MODES"))

func programFigures(t *testing.T, db *testenv.Server, schemaName, file string, from int64) {
	b := &brokers{kafka: testenv.NewKafka(t, 1), pulsar: testenv.NewPulsar(t)}
	used, rate := map[string][]float64{}, map[string][]float64{}
	for round := range rounds {
		for _, m := range modes {
			if !only.MatchString(m.name) {
				continue
			}
			topic := fmt.Sprintf("%s%s_%d", m.topic, m.name, round)
			m.create(b, topic)
			begin := time.Now()
			start := m.start
			if start == "" {
				start = fmt.Sprintf("%s:%d", file, from)
			}
			p := process.Start(t, config(t, db, schemaName, start, m.keys(b, topic)))
			var first, end time.Time
			var firstRows int64
			p.Await("all rows at the broker", 20*time.Minute, func(r *admin.Report) bool {
				if len(r.Destinations[0].Sinks) == 0 {
					return false
				}
				s := r.Destinations[0].Sinks[0]
				if first.IsZero() && s.Rows > 0 {
					first, firstRows = time.Now(), s.Rows
				}
				end = time.Now()
				if s.Rows >= int64(rows) {
					return true
				}
				time.Sleep(80 * time.Millisecond) // asking costs the program time that is not the sink's
				return false
			})
			c := p.CPU()
			_, peak := p.Memory()
			r, _ := p.Report()
			p.Stop()
			used[m.name] = append(used[m.name], c.Seconds()*1e6/float64(rows))
			rate[m.name] = append(rate[m.name], float64(int64(rows)-firstRows)/end.Sub(first).Seconds())
			if round == rounds-1 {
				figure(m.name+"_bytes_per_row", float64(r.Destinations[0].Sinks[0].Bytes)/float64(rows), "bytes")
				figure(m.name+"_rows", middle(rate[m.name]), "rows/s")
				figure(m.name+"_rows_with_start", float64(rows)/end.Sub(begin).Seconds(), "rows/s")
				figure(m.name+"_cpu", middle(used[m.name]), "cpu-s/1M-rows")
				figure(m.name+"_rss_peak", float64(peak)/(1<<20), "MiB")
			}
		}
	}
	ratio := func(a, b string) {
		if len(used[a]) == 0 || len(used[b]) == 0 {
			return
		}
		figure(a+"_cpu_over_"+b, middle(used[a])/middle(used[b]), "times")
		figure(a+"_rows_over_"+b, middle(rate[a])/middle(rate[b]), "times")
	}
	ratio("kafka_canal_json_8p_sequenced", "kafka_canal_json_8p")
	ratio("kafka_canal_json_8p_transactional", "kafka_canal_json_8p")
	ratio("kafka_canal_json_8p_snapshot", "kafka_canal_json_8p_sequenced")
	ratio("pulsar_wire", "pulsar_client")
	ratio("pulsar_wire_batching", "pulsar_client")
}

// middle returns the median.
func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// TestLatency measures from just before the INSERT to a consumer, at 2,000 rows/s.
func TestLatency(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql")
	b := &brokers{kafka: testenv.NewKafka(t, 1), pulsar: testenv.NewPulsar(t, "managedLedgerNewEntriesCheckDelayInMillis=0")}
	for _, m := range []mode{
		kafkaMode("latency_kafka", "canal-json", "at_least_once", 1),
		kafkaMode("latency_kafka_sequenced", "canal-json", "sequenced", 1),
		kafkaMode("latency_kafka_transactional", "canal-json", "transactional", 1),
		pulsarMode("latency_pulsar_wire", "wire", false),
		pulsarMode("latency_pulsar_wire_batching", "wire", true),
		pulsarMode("latency_pulsar_client", "client", false),
	} {
		if only.MatchString(m.name) {
			t.Run(m.name, func(t *testing.T) { latency(t, db, b, m) })
		}
	}
}

// received is what a consumer got, when it got it.
type received func(value, commitTime []byte)

// consume reads a Kafka topic, committed messages only, or a Pulsar one until f is content.
func consume(t *testing.T, ctx context.Context, b *brokers, m mode, topic string, take received, enough func() bool) {
	if m.topic == "" {
		c := must(kgo.NewClient(kgo.SeedBrokers(b.kafka.Bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond)))
		defer c.Close()
		for !enough() {
			f := c.PollFetches(ctx)
			if err := f.Err(); err != nil {
				t.Fatal(err)
			}
			f.EachRecord(func(r *kgo.Record) {
				for _, h := range r.Headers {
					if h.Key == "commit_time" {
						take(r.Value, h.Value)
					}
				}
			})
		}
		return
	}
	client := must(pulsar.NewClient(pulsar.ClientOptions{URL: b.pulsar.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))}))
	defer client.Close()
	r := must(client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID(), ReceiverQueueSize: 1000}))
	defer r.Close()
	for !enough() {
		msg, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		take(msg.Payload(), []byte(msg.Properties()["commit_time"]))
	}
}

func latency(t *testing.T, db *testenv.Server, b *brokers, m mode) {
	schemaName := db.Database()
	db.Exec("CREATE TABLE `" + schemaName + "`.orders (id BIGINT PRIMARY KEY, sent BIGINT NOT NULL, pad VARCHAR(200) NOT NULL)")
	topic := m.topic + m.name
	m.create(b, topic)
	p := process.Start(t, config(t, db, schemaName, "latest", m.keys(b, topic)+"\n        headers: [seq, commit_time]"))
	p.AwaitReady()

	seconds := atLeast("BINLOGMQ_BENCH_SECONDS", 30)
	const perSecond, group = 2000, 4
	total := seconds * perSecond
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+120)*time.Second)
	defer cancel()
	writer := db.Connect("")
	failed := make(chan error, 1)
	insert := func(n, rows int) error {
		var q strings.Builder
		fmt.Fprintf(&q, "INSERT INTO `%s`.orders VALUES ", schemaName)
		now := time.Now().UnixMicro()
		for i := range rows {
			if i > 0 {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "(%d,%d,'%s')", n+i, now, pad)
		}
		_, err := writer.Execute(q.String())
		return err
	}
	// A topic of Pulsar begins with its first message.
	if err := insert(-1, 1); err != nil {
		t.Fatal(err)
	}
	p.Await("the first row at the broker", time.Minute, func(r *admin.Report) bool {
		d := &r.Destinations[0]
		return len(d.Sinks) > 0 && d.Sinks[0].Rows > 0
	})
	go func() {
		defer close(failed)
		begin := time.Now()
		for n := 0; n < total; n += group {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / perSecond)))
			if err := insert(n, group); err != nil {
				failed <- err
				cancel()
				return
			}
		}
	}()
	var whole, commit []float64
	c := p.CPU()
	begin := time.Now()
	consume(t, ctx, b, m, topic, func(value, commitTime []byte) {
		now := time.Now().UnixMicro()
		var v struct{ Data []struct{ Sent string } }
		if err := json.Unmarshal(value, &v); err != nil {
			t.Fatal(err)
		}
		whole = append(whole, float64(now-must(strconv.ParseInt(v.Data[0].Sent, 10, 64)))/1000)
		commit = append(commit, float64(now-must(strconv.ParseInt(string(commitTime), 10, 64)))/1000)
	}, func() bool { return len(whole) > total })
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	used := (p.CPU() - c).Seconds() / time.Since(begin).Seconds() * 100
	show := func(name string, v []float64) {
		v = v[min(len(v)/10, 4000):] // the first seconds warm up the broker's JVM
		slices.Sort(v)
		figure(name+"_p50", v[len(v)/2], "ms")
		figure(name+"_p99", v[len(v)*99/100], "ms")
		figure(name+"_max", v[len(v)-1], "ms")
	}
	show(m.name+"_insert_to_consumer", whole)
	show(m.name+"_commit_to_consumer", commit)
	figure(m.name+"_run_cpu", used, "%-of-a-core")
	_, peak := p.Memory()
	figure(m.name+"_run_rss", float64(peak)/(1<<20), "MiB")
	p.Stop()
}

var pad = strings.Repeat("x", 180)

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
