package bridge

import (
	"context"
	"syscall"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/server"
)

// benchClient hands out one prepared batch again and again, until rows are acknowledged.
type benchClient struct {
	fakeClient
	events []*event.Event
	rows   int64 // left to hand out
	each   int64 // rows of one batch
	id     int64
	acked  int64
	done   chan struct{}
}

func (c *benchClient) GetWithoutAck(ctx context.Context, _ server.Size, _ server.Wait) (*server.Batch, error) {
	if c.rows <= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.rows -= c.each
	c.id++
	return &server.Batch{ID: c.id, Events: c.events}, nil
}

func (c *benchClient) Ack(_ context.Context, id int64, _ []byte) error {
	if c.acked -= c.each; c.acked <= 0 {
		close(c.done)
	}
	return nil
}

// tinyCodec costs next to nothing, so that what is left is the bridge.
type tinyCodec struct{}

func (tinyCodec) AppendKey(dst []byte, r *event.Row, key []int) ([]byte, error) {
	return append(dst, r.Values()[key[0]].Raw()...), nil
}
func (tinyCodec) AppendRow(dst []byte, r *event.Row) ([]byte, error) {
	return append(dst, "value"...), nil
}
func (tinyCodec) AppendDDL(dst []byte, e *event.Event) ([]byte, error) { return dst, nil }

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkBridge carries 12-column rows of 249 bytes from a client that has them ready to a sink that confirms at once.
// Compare canal-json with BenchmarkCodec: the rest is the bridge's own cost. Of one row a transaction each batch holds 64.
func BenchmarkBridge(b *testing.B) {
	canal, err := canaljson.New(canaljson.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		codec   codec.Codec
		workers int
		single  bool
	}{
		{"tiny", tinyCodec{}, 1, false},
		{"tiny/inline", tinyCodec{}, -1, false},
		{"tiny/one row a transaction", tinyCodec{}, 1, true},
		{"canal-json", canal, 1, false},
		{"canal-json/inline", canal, -1, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := codectest.Bench(b)
			e.Size = len(e.Raw) + 200
			if c.single {
				n := 1
				for ; ; n++ {
					if rows, err := event.CountRows(e.Table, e.Op, e.Images, e.Raw[:n]); err == nil && rows == 1 {
						break
					}
				}
				e.Rows, e.Raw, e.Size = 1, e.Raw[:n], n+200
			}
			var events []*event.Event
			rows := int64(0)
			for range 64 {
				txn := *e.Txn
				rowsEvent := *e
				rowsEvent.Txn = &txn
				events = append(events, &event.Event{Kind: event.Begin, Txn: &txn}, &rowsEvent, &event.Event{Kind: event.End, Txn: &txn, Ordinal: 1 << 20})
				rows += int64(rowsEvent.Rows)
			}
			client := &benchClient{events: events, rows: int64(b.N), acked: int64(b.N), each: rows, done: make(chan struct{})}
			br := testBridge(b, func(o *Options) {
				o.Client, o.Codec, o.Workers = client, c.codec, c.workers
				o.Sink = nullSink{12}
			})
			ctx, cancel := context.WithCancel(context.Background())
			end := make(chan error)
			b.ReportAllocs()
			b.ResetTimer()
			used := cpu()
			go func() { end <- br.Run(ctx) }()
			<-client.done
			b.StopTimer()
			used = cpu() - used
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(used/float64(b.N)*1e6, "cpu-s/Mrow")
			cancel()
			if err := <-end; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkCodec is what scanning, key and value alone cost.
func BenchmarkCodec(b *testing.B) {
	canal, err := canaljson.New(canaljson.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]codec.Codec{"canal-json": canal, "tiny": tinyCodec{}} {
		b.Run(name, func(b *testing.B) {
			e := codectest.Bench(b)
			var sc event.Scanner
			buf := make([]byte, 0, 1<<20)
			b.ReportAllocs()
			used := cpu()
			for n := 0; n < b.N; {
				sc.Reset(e)
				buf = buf[:0]
				for ; sc.Next() && n < b.N; n++ {
					r := sc.Row()
					if buf, err = c.AppendKey(buf, r, e.Table.Key); err != nil {
						b.Fatal(err)
					}
					if buf, err = c.AppendRow(buf, r); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric((cpu()-used)/float64(b.N)*1e6, "cpu-s/Mrow")
		})
	}
}
