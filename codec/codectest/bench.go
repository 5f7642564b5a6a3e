package codectest

import (
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// Benchmark scans e and gives each row to encode, b.N rows in all. It reports
// rows/s, bytes read per second (MB/s), the bytes written per row, and the
// rows per second of CPU time, which is what counts on a shared machine.
func Benchmark(b *testing.B, e *event.Event, encode func([]byte, *event.Row) ([]byte, error)) {
	b.Helper()
	var (
		s    event.Scanner
		out  = make([]byte, 0, 1<<16)
		size int64
	)
	b.SetBytes(int64(len(e.Raw) / int(e.Rows)))
	b.ReportAllocs()
	b.ResetTimer()
	cpu := CPUTime()
	for n := 0; n < b.N; {
		s.Reset(e)
		for n < b.N && s.Next() {
			var err error
			if out, err = encode(out[:0], s.Row()); err != nil {
				b.Fatal(err)
			}
			size += int64(len(out))
			n++
		}
		if s.Err() != nil {
			b.Fatal(s.Err())
		}
	}
	if cpu = CPUTime() - cpu; cpu > 0 {
		b.ReportMetric(float64(b.N)/cpu.Seconds(), "rows/cpu-s")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(size)/float64(b.N), "outB/row")
}
