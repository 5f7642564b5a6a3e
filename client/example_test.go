package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/binlogmq/binlogmq/client"
)

// Prints the row changes of a table until a batch is empty for a second.
func Example() {
	ctx := context.Background()
	c, err := client.NewTCP(client.TCPOptions{Address: "127.0.0.1:11111", Destination: "shop", User: "canal", Password: "canal"})
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
	for {
		m, err := c.GetWithoutAck(ctx, 1000, client.Wait(time.Second))
		if err != nil {
			log.Fatal(err)
		}
		if m.ID == client.NoBatch {
			return
		}
		for _, raw := range m.Entries {
			e, err := client.ParseEntry(raw)
			if err != nil {
				log.Fatal(err)
			}
			if e.Type != client.RowData {
				continue
			}
			change, err := client.ParseRowChange(e.Store)
			if err != nil {
				log.Fatal(err)
			}
			for _, row := range change.Rows {
				fmt.Println(e.Header.GTID, change.EventType, row.After)
			}
		}
		if err := c.Ack(ctx, m.ID); err != nil {
			log.Fatal(err)
		}
	}
}
