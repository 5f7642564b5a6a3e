package debezium

import (
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

// BenchmarkRow scans and encodes the 12-column table, insert events of 32 rows.
func BenchmarkRow(b *testing.B) {
	for name, schemas := range map[string]bool{"plain": false, "schemas": true} {
		b.Run(name, func(b *testing.B) {
			codectest.Benchmark(b, codectest.Bench(b), newCodec(b, Options{Name: "bench", Schemas: schemas}).AppendRow)
		})
	}
}

// BenchmarkKey scans the same rows and encodes their keys.
func BenchmarkKey(b *testing.B) {
	c := newCodec(b, Options{Name: "bench"})
	key := []int{0}
	codectest.Benchmark(b, codectest.Bench(b), func(dst []byte, r *event.Row) ([]byte, error) { return c.AppendKey(dst, r, key) })
}
