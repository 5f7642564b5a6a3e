package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// loop is a source that hands out the same events over and over, renumbered:
// more of them than the ring holds, so that none is renumbered while held.
type loop struct {
	rows int // row changes an event
	n    int // row changes to hand out
}

func (l *loop) Start(context.Context) (event.Cursor, error) {
	return event.Cursor{Position: event.Position{File: "b", Offset: 4, ServerUUID: uuid1}}, nil
}

func (l *loop) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	const txns = 16384
	events := make([]*event.Event, 0, 3*txns)
	for range txns {
		t := &event.Txn{File: "b", ServerUUID: uuid1}
		events = append(events,
			&event.Event{Kind: event.Begin, Txn: t, Size: 150, File: "b"},
			&event.Event{Kind: event.Rows, Txn: t, Table: tables[0], Rows: uint32(l.rows), Size: 100 + 250*l.rows, File: "b"},
			&event.Event{Kind: event.End, Txn: t, Size: 150, File: "b"})
	}
	last, offset, seq := from.Ordinal, uint64(4), uint64(0)
	const part = 3 * 64
	for done := 0; done < l.n; {
		for i := 0; i < len(events) && done < l.n; i += part {
			for _, e := range events[i : i+part] {
				offset += uint64(e.Size)
				e.Next = offset
				switch e.Kind {
				case event.Begin:
					seq++
					e.Txn.GTID = event.GTID{SID: [16]byte{1}, Seq: seq}
				case event.Rows:
					e.Ordinal = last + 1
					last += int64(l.rows)
					done += l.rows
				case event.End:
					last++
					e.Ordinal = last
				}
			}
			if err := put(ctx, events[i:i+part]); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// BenchmarkServer is the way of one row change from Source.Read through ring, get and ack to
// the moved cursor, each subscription pulling four batches ahead.
func BenchmarkServer(b *testing.B) {
	for _, rows := range []int{1, 32} {
		for _, subs := range []int{1, 2} {
			for _, filter := range []string{"", "shop.*"} {
				b.Run(fmt.Sprintf("rows=%d/subs=%d/filter=%t", rows, subs, filter != ""), func(b *testing.B) { bench(b, rows, subs, filter) })
			}
		}
	}
}

func bench(b *testing.B, rows, subs int, filter string) {
	src := &loop{rows: rows, n: b.N}
	s := New(Options{SaveInterval: time.Second})
	defer s.Stop(ctx)
	if err := s.AddDestination("shop", src, DestinationOptions{}); err != nil {
		b.Fatal(err)
	}
	var m Matcher
	if filter != "" {
		m, _ = tablefilter.New([]string{filter})
	}
	clients := make([]*Client, subs)
	for i := range clients {
		clients[i] = s.Client(id(fmt.Sprint(i)))
		if err := clients[i].Subscribe(ctx, "", func(o *subscribeOptions) { o.matcher = m }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := s.Start(ctx, "shop"); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var out []int64
			for done := 0; done < b.N; {
				x, err := c.GetWithoutAck(ctx, Size{Events: 1024, Rows: 4096}, WaitAny)
				if err != nil {
					b.Error(err)
					return
				}
				for _, e := range x.Events {
					done += int(e.Rows)
				}
				if out = append(out, x.ID); len(out) == 4 {
					if err := c.Ack(ctx, out[0], nil); err != nil {
						b.Error(err)
						return
					}
					out = append(out[:0], out[1:]...)
				}
			}
			for _, x := range out {
				if err := c.Ack(ctx, x, nil); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
