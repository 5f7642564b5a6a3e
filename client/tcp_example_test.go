package client

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canaltcp"
)

// serveExample serves the destination "shop" at the address that it returns, until stop is called: what binlogmq does with
//
//	canal: { listen: "127.0.0.1:11111", user: canal, password: canal }
func serveExample() (address string, stop func()) {
	s := server.New(server.Options{})
	if err := s.AddDestination("shop", &source{table: codectest.Shop(setup{}), n: 3}, server.DestinationOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(context.Background(), "shop"); err != nil {
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
	tcp, err := canaltcp.New(canaltcp.Options{Upstream: s, Encoder: entries, User: "canal", Password: "canal"})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tcp.Serve(ctx, l) }()
	return l.Addr().String(), func() {
		cancel()
		<-done
		_ = s.Stop(context.Background())
	}
}

// Prints the row changes of a table, each batch acknowledged when it is done.
func ExampleTCP() {
	address, stop := serveExample()
	defer stop()
	ctx := context.Background()
	c, err := NewTCP(TCPOptions{Address: address, Destination: "shop", User: "canal", Password: "canal"})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		log.Fatal(err)
	}
	defer c.Disconnect(ctx)
	if err := c.Subscribe(ctx, `shop\.item`); err != nil {
		log.Fatal(err)
	}
	for rows := 0; rows < 3; {
		m, err := c.GetWithoutAck(ctx, 1000, NoWait)
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
				fmt.Printf("%s.%s %s:", e.Header.Schema, e.Header.Table, change.EventType)
				for _, column := range row.After {
					fmt.Printf(" %s=%q", column.Name, column.Value)
				}
				fmt.Println()
				rows++
			}
		}
		if m.ID != NoBatch {
			if err := c.Ack(ctx, m.ID); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// shop.item INSERT: id="1" name="pen" qty="1" note=""
	// shop.item INSERT: id="2" name="pen" qty="1" note=""
	// shop.item INSERT: id="3" name="pen" qty="1" note=""
}
