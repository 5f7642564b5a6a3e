//go:build integration

package pulsar

import (
	"bytes"
	"context"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
)

func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBroker publishes messages of 250 bytes with key and header to a real broker, into one
// topic; run it with -benchtime 200000x. The client's own share is what
// BenchmarkPublish does not show.
func BenchmarkBroker(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) { benchmarkBroker(b, k) })
	}
}

func benchmarkBroker(b *testing.B, k kind) {
	broker := testenv.Pulsar(b)
	s := openBench(b, options(broker, k, "bench"))
	name := broker.Topic()
	value := append(append([]byte(`{"id":12345678,"note":"`), bytes.Repeat([]byte("x"), 225)...), `"}`...)
	send := func(first, n int) {
		for at := 0; at < n; at += 500 {
			msgs := make([]sink.Message, min(500, n-at))
			for i := range msgs {
				m := &msgs[i]
				seq := int64(first + at + i)
				m.Topic, m.Sequence, m.Time, m.Key, m.Value, m.Owner = name, seq, 1_700_000_000_000, []byte("12345678"), value, nobody{}
				m.Headers = []sink.Header{{Name: "seq", Value: strconv.AppendInt(nil, seq, 10)}}
			}
			if _, err := s.Publish(within(b), msgs); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Flush(within(b)); err != nil {
			b.Fatal(err)
		}
	}
	first := 0
	for b.Loop() {
		const warm, n = 20_000, 200_000
		b.StopTimer()
		send(first, warm)
		first += warm
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun, used := time.Now(), cpu(b)
		b.StartTimer()
		send(first, n)
		first += n
		took, spent := time.Since(begun), cpu(b)-used
		runtime.ReadMemStats(&after)
		b.ReportMetric(n/took.Seconds(), "msg/s")
		b.ReportMetric(spent.Seconds()/n*1e6, "CPU-s/1M")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/msg")
	}
}

// BenchmarkBareClient is the client alone with the same messages, to compare.
func BenchmarkBareClient(b *testing.B) {
	broker := testenv.Pulsar(b)
	o := options(broker, kinds[0], "bare")
	o.Logger = discard
	o, err := o.normalize()
	if err != nil {
		b.Fatal(err)
	}
	back, err := newClient(&Sink{opt: o})
	if err != nil {
		b.Fatal(err)
	}
	defer back.close()
	c := back.(*client)
	p, err := c.c.CreateProducer(c.options(broker.Topic(), o.producerName()))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	value := append(append([]byte(`{"id":12345678,"note":"`), bytes.Repeat([]byte("x"), 225)...), `"}`...)
	next := int64(0)
	send := func(n int) {
		for range n {
			id := next << subIndexBits
			next++
			p.SendAsync(context.Background(), &pulsarclient.ProducerMessage{Key: "12345678", Payload: value, SequenceID: &id, EventTime: time.UnixMilli(1_700_000_000_000),
				Properties: map[string]string{"seq": strconv.FormatInt(next, 10)}}, func(_ pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
		if err := p.FlushWithCtx(within(b)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		const warm, n = 20_000, 200_000
		b.StopTimer()
		send(warm)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun, used := time.Now(), cpu(b)
		b.StartTimer()
		send(n)
		took, spent := time.Since(begun), cpu(b)-used
		runtime.ReadMemStats(&after)
		b.ReportMetric(n/took.Seconds(), "msg/s")
		b.ReportMetric(spent.Seconds()/n*1e6, "CPU-s/1M")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/msg")
	}
}

func openBench(b *testing.B, o Options) *Sink {
	o.Logger = discard
	return open(b, o)
}
