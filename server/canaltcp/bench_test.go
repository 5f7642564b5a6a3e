package canaltcp

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/server"
)

// flood is a source of transactions of 30 events without an end.
type flood struct{ rows *event.Event }

func (f *flood) Start(context.Context) (event.Cursor, error) {
	return event.Cursor{Position: event.Position{File: "f", Offset: 4}}, nil
}

func (f *flood) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	const perTransaction = 30
	n, at := from.Ordinal, from.Position.Offset
	for {
		txn := *codectest.Txn
		txn.GTID.Seq = at
		events := make([]*event.Event, 0, perTransaction+2)
		events = append(events, &event.Event{Kind: event.Begin, Txn: &txn, File: "f", Start: at, Next: at + 1, Size: 100})
		index := int64(0)
		for range perTransaction {
			at++
			e := *f.rows
			e.Ordinal, e.Index, e.Txn, e.File, e.Start, e.Next, e.Size = n+1, index, &txn, "f", at, at+1, len(e.Raw)+200
			n, index = n+int64(e.Rows), index+int64(e.Rows)
			events = append(events, &e)
		}
		events[perTransaction].Last = true
		at++
		n++
		events = append(events, &event.Event{Kind: event.End, Txn: &txn, File: "f", Start: at, Next: at + 1, Ordinal: n, Index: index, XID: at, Size: 100})
		at++
		if err := put(ctx, events); err != nil {
			return err
		}
	}
}

// BenchmarkClient has one client get and acknowledge, without looking into what it gets, all in one process.
func BenchmarkClient(b *testing.B) {
	for _, unit := range []struct {
		name string
		unit int64
	}{{"memory", 1024}, {"events", -1}} {
		b.Run(unit.name, func(b *testing.B) {
			keys, err := canaljson.New(canaljson.Options{})
			if err != nil {
				b.Fatal(err)
			}
			encoder, err := canalpb.New(canalpb.Options{}, keys)
			if err != nil {
				b.Fatal(err)
			}
			s := server.New(server.Options{SaveInterval: time.Second})
			source := &flood{codectest.Bench(b)}
			if err := s.AddDestination("bench", source, server.DestinationOptions{}); err != nil {
				b.Fatal(err)
			}
			if err := s.Start(b.Context(), "bench"); err != nil {
				b.Fatal(err)
			}
			tcp, err := New(Options{Upstream: s, Encoder: encoder, MemoryUnit: unit.unit})
			if err != nil {
				b.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- tcp.Serve(ctx, l) }()
			defer func() {
				cancel()
				<-done
				_ = s.Stop(context.Background())
			}()
			c, err := client.NewTCP(client.TCPOptions{Address: l.Addr().String(), Destination: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Connect(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := c.Subscribe(b.Context(), ""); err != nil {
				b.Fatal(err)
			}
			rows, bytes := 0, 0
			cpu := codectest.CPUTime()
			for b.Loop() {
				m, err := c.GetWithoutAck(b.Context(), 1000, client.WaitFull)
				if err != nil {
					b.Fatal(err)
				}
				for _, e := range m.Entries {
					bytes += len(e)
				}
				rows += len(m.Entries) * 30 / 32 * codectest.BenchRows
				if err := c.Ack(b.Context(), m.ID); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric((codectest.CPUTime()-cpu).Seconds()*1e6/float64(rows), "cpu-s/1M-rows")
			b.ReportMetric(float64(bytes)/float64(rows), "B/row")
			b.StopTimer()
			_ = c.Disconnect(context.Background())
		})
	}
}
