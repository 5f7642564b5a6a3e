package wire

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
)

// BenchmarkEntries encodes messages of canal-json's usual size and composes their entries, with a thousand of them on the way.
func BenchmarkEntries(b *testing.B) {
	src := &sink.Message{Key: []byte(`{"id":"12345678"}`), Value: bytes.Repeat([]byte("x"), 1075), Time: 1_700_000_000_000,
		Headers: []sink.Header{{Name: "seq", Value: []byte("123456789012")}, {Name: "gtid", Value: bytes.Repeat([]byte("0"), 40)}, {Name: "row", Value: []byte("4711")}}}
	var e Encoder
	var w composer
	var onWay fifo[Message]
	p := &Producer{nameField: appendText(nil, 1, "default/bench/out")}
	cpu := cpuTime()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		var m Message
		e.Encode(&m, int64(n)<<10, src)
		onWay.push(m)
		if onWay.len() < 1000 {
			continue
		}
		one := []Message{onWay.pop()}
		if len(w.buf) >= writeBytes {
			w.buf = w.buf[:0]
		}
		if _, err := w.entry(p, 1, one, 1_700_000_000_000, defaultMaxMessage); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuTime()-cpu).Seconds()/float64(n)*1e6, "cpu-s/1M")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
