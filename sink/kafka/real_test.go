//go:build integration

package kafka

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/sink"
)

func realBrokers(t testing.TB) []string {
	b := os.Getenv("BINLOGMQ_TEST_KAFKA")
	if b == "" {
		t.Skip("BINLOGMQ_TEST_KAFKA is not set")
	}
	return strings.Split(b, ",")
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

type counter struct {
	ok, bad atomic.Int64
}

func (c *counter) MessageDone(_ *sink.Message, err error) {
	if err != nil {
		c.bad.Add(1)
		return
	}
	c.ok.Add(1)
}

// BenchmarkRealBroker publishes 1 M messages of 250 B value, 16 B key and three small
// headers per round.
func BenchmarkRealBroker(b *testing.B) {
	for _, comp := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		b.Run(comp, func(b *testing.B) {
			const total, parts = 1_000_000, 6
			s := newSink(b, Options{Brokers: realBrokers(b), Compression: comp, Topics: Topics{Create: true, Partitions: parts, ReplicationFactor: 1}})
			ctx := ctxFor(b, 5*time.Minute)
			topic := fmt.Sprintf("bench-%s-%d", comp, time.Now().UnixNano())
			if _, err := s.Partitions(ctx, topic); err != nil {
				b.Fatal(err)
			}
			var c counter
			msgs := benchMessages(&c, topic, parts, total)
			runtime.GC()
			for b.Loop() {
				var m0, m1 runtime.MemStats
				runtime.ReadMemStats(&m0)
				cpu, start := cpuSeconds(), time.Now()
				for i := 0; i < len(msgs); i += 500 {
					if _, err := s.Publish(ctx, msgs[i:min(i+500, len(msgs))]); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Flush(ctx); err != nil {
					b.Fatal(err)
				}
				d := time.Since(start).Seconds()
				runtime.ReadMemStats(&m1)
				if c.bad.Load() > 0 {
					b.Fatal("messages failed")
				}
				b.ReportMetric(total/d/1000, "krows/s")
				b.ReportMetric((cpuSeconds()-cpu)*1e6/total, "cpu_s/Mrow")
				b.ReportMetric(float64(m1.Mallocs-m0.Mallocs)/total, "allocs/row")
				b.ReportMetric(0, "ns/op")
				b.StopTimer()
				msgs = benchMessages(&c, topic, parts, total)
				runtime.GC()
				b.StartTimer()
			}
		})
	}
}

func benchMessages(o sink.Owner, topic string, parts int32, n int) []sink.Message {
	rows := make([][]byte, 997)
	for i := range rows {
		v := []byte(fmt.Sprintf(`{"id":%d,"name":"customer number %d","city":"Springfield","data":"`, i*7919, i))
		for k := 0; len(v) < 248; k++ {
			v = append(v, "abcdefghijklmnopqrstuvwxyz0123456789"[(i*31+k*k*7)%36])
		}
		rows[i] = append(v, `"}`...)
	}
	key, gtid := []byte("0123456789abcdef"), []byte("3e11fa47:1234567")
	num := []byte("12345678")
	heads := []sink.Header{{Name: "seq", Value: num}, {Name: "gtid", Value: gtid}, {Name: "row", Value: num[:2]}}
	msgs := make([]sink.Message, n)
	for i := range msgs {
		msgs[i] = sink.Message{Topic: topic, Partition: int32(i) % parts, Sequence: int64(i), Key: key, Value: rows[i%len(rows)], Headers: heads, Owner: o}
	}
	return msgs
}

type latencies struct {
	mu   sync.Mutex
	sent map[int64]time.Time
	all  []time.Duration
}

func (l *latencies) MessageDone(m *sink.Message, err error) {
	now := time.Now()
	l.mu.Lock()
	l.all = append(l.all, now.Sub(time.UnixMicro(m.Time)))
	l.mu.Unlock()
}

// BenchmarkRealLatency prints the time from Publish to done at 2,000 messages a second.
func BenchmarkRealLatency(b *testing.B) {
	s := newSink(b, Options{Brokers: realBrokers(b), Topics: Topics{Create: true, Partitions: 6, ReplicationFactor: 1}})
	ctx := ctxFor(b, time.Minute)
	topic := fmt.Sprintf("latency-%d", time.Now().UnixNano())
	if _, err := s.Partitions(ctx, topic); err != nil {
		b.Fatal(err)
	}
	var l latencies
	for b.Loop() {
		tick := time.NewTicker(500 * time.Microsecond)
		for i := range 10000 {
			<-tick.C
			m := benchMessages(&l, topic, 6, 1)
			m[0].Partition = int32(i % 6)
			m[0].Time = time.Now().UnixMicro()
			if _, err := s.Publish(ctx, m); err != nil {
				b.Fatal(err)
			}
		}
		tick.Stop()
		if err := s.Flush(ctx); err != nil {
			b.Fatal(err)
		}
	}
	sort.Slice(l.all, func(i, j int) bool { return l.all[i] < l.all[j] })
	b.ReportMetric(float64(l.all[len(l.all)/2].Microseconds())/1000, "p50_ms")
	b.ReportMetric(float64(l.all[len(l.all)*99/100].Microseconds())/1000, "p99_ms")
	b.ReportMetric(0, "ns/op")
}

// Every compression is read back whole by another client, with CRCs checked.
func TestRealCompressions(t *testing.T) {
	for _, comp := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(comp, func(t *testing.T) {
			s := newSink(t, Options{Brokers: realBrokers(t), Compression: comp, Topics: Topics{Create: true, Partitions: 3, ReplicationFactor: 1}})
			ctx := ctxFor(t, time.Minute)
			topic := fmt.Sprintf("comp-%s-%d", comp, time.Now().UnixNano())
			parts, err := s.Partitions(ctx, topic)
			if err != nil {
				t.Fatal(err)
			}
			var f fates
			const total = 5000
			if _, err := s.Publish(ctx, numbered(&f, topic, parts, 0, total)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			verify(t, readAll(t, realBrokers(t), topic, total, kgo.FetchIsolationLevel(kgo.ReadCommitted())), total)
		})
	}
}
