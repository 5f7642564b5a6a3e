package client

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/server"
)

// setup stands in for a test where there is none.
type setup struct{ testing.TB }

func (setup) Helper()           {}
func (setup) Fatal(args ...any) { log.Fatal(args...) }

// A server in the same process: a batch is rolled back once and comes again, then it is acknowledged.
func ExampleEmbedded() {
	ctx := context.Background()
	s := server.New(server.Options{}) // Meta: where cursors are kept; here in memory
	defer s.Stop(ctx)
	three := &source{table: codectest.Shop(setup{}), n: 3} // a program has a connector.Connector
	if err := s.AddDestination("shop", three, server.DestinationOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	keys, err := canaljson.New(canaljson.Options{})
	if err != nil {
		log.Fatal(err)
	}
	entries, err := canalpb.New(canalpb.Options{}, keys)
	if err != nil {
		log.Fatal(err)
	}

	c := NewEmbedded(s, server.Identity{Destination: "shop", Client: "1001"}, entries)
	if err := c.Connect(ctx); err != nil {
		log.Fatal(err)
	}
	defer c.Disconnect(ctx)
	if err := c.Subscribe(ctx, `shop\.item`); err != nil {
		log.Fatal(err)
	}
	for try := range 2 {
		rows := 0
		for rows < 3 {
			m, err := c.GetWithoutAck(ctx, 100, Wait(1e6))
			if err != nil {
				log.Fatal(err)
			}
			for _, raw := range m.Entries {
				e, err := ParseEntry(raw)
				if err != nil {
					log.Fatal(err)
				}
				if e.Type != RowData {
					continue
				}
				change, err := ParseRowChange(e.Store)
				if err != nil {
					log.Fatal(err)
				}
				for _, row := range change.Rows {
					fmt.Println(e.Header.Schema, e.Header.Table, change.EventType, row.After[0].Name, row.After[0].Value)
					rows++
				}
			}
			if try == 1 && m.ID != NoBatch {
				if err := c.Ack(ctx, m.ID); err != nil {
					log.Fatal(err)
				}
			}
		}
		if try == 0 {
			fmt.Println("rolled back")
			if err := c.Rollback(ctx); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// shop item INSERT id 1
	// shop item INSERT id 2
	// shop item INSERT id 3
	// rolled back
	// shop item INSERT id 1
	// shop item INSERT id 2
	// shop item INSERT id 3
}
