package canaljson

import (
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

// BenchmarkRow scans and encodes the 12-column table, insert events of 32 rows.
func BenchmarkRow(b *testing.B) {
	c, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	codectest.Benchmark(b, codectest.Bench(b), c.AppendRow)
}

// BenchmarkKey scans the same rows and encodes their keys.
func BenchmarkKey(b *testing.B) {
	c, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	key := []int{0}
	codectest.Benchmark(b, codectest.Bench(b), func(dst []byte, r *event.Row) ([]byte, error) { return c.AppendKey(dst, r, key) })
}
