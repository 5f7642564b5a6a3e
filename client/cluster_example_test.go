package client_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/binlogmq/binlogmq/client"
)

// Follows a destination from node to node, for ever. What a lost connection leaves unacknowledged comes again, so the
// program's own work must bear a repetition.
func ExampleCluster() {
	ctx := context.Background()
	c, err := client.NewCluster(client.ClusterOptions{
		TCPOptions: client.TCPOptions{Destination: "shop", User: "canal", Password: "canal"},
		ZooKeeper:  []string{"zk1:2181", "zk2:2181", "zk3:2181"}, // or Addresses, of the nodes
		Retries:    -1,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil { // waits while another process works as the client
		log.Fatal(err)
	}
	defer c.Disconnect(ctx)
	if err := c.Subscribe(ctx, `shop\..*`); err != nil {
		log.Fatal(err)
	}
	for {
		m, err := c.GetWithoutAck(ctx, 1000, client.Wait(time.Second))
		if err != nil {
			log.Fatal(err)
		}
		// Work on m.Entries, see the example of the package.
		if err := c.Ack(ctx, m.ID); err != nil && !errors.Is(err, client.ErrRolledBack) {
			log.Fatal(err)
		}
	}
}
