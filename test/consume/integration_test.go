//go:build integration

package consume

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/workload"
)

// The Java clients find what the Go clients find, and nothing of an aborted transaction.
func TestJavaFindsTheSame(t *testing.T) {
	limit := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("kafka", func(t *testing.T) {
		ctx := limit(t)
		k := testenv.Kafka(t)
		topic := k.Topic(2)
		c, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...), kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for n := range 10 {
				r := &kgo.Record{Topic: topic, Partition: int32(n % 2), Key: fmt.Appendf(nil, "k%d", n), Value: fmt.Appendf(nil, "%d.%d é", i, n),
					Headers: []kgo.RecordHeader{{Key: "seq", Value: fmt.Append(nil, n)}, {Key: "gtid", Value: []byte{0, 0xff}}}}
				if n == 4 {
					r.Key, r.Value, r.Headers = nil, nil, nil
				}
				if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
		}
		found := Lanes{}
		Kafka(t, k.Bootstrap, topic, true, found.Add)
		if err := found.Compare(KafkaByJava(t, k.Bootstrap, []string{topic})); err != nil || found.Messages() != 20 {
			t.Fatal(err, found.Messages())
		}
	})
	t.Run("pulsar", func(t *testing.T) {
		ctx := limit(t)
		b := testenv.Pulsar(t)
		topic := b.Topic()
		c, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, OperationTimeout: time.Minute, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p, err := c.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for n := range 20 {
			m := &pulsar.ProducerMessage{Key: fmt.Sprintf("k%d", n), Payload: fmt.Appendf(nil, "%d é", n), Properties: map[string]string{"seq": fmt.Sprint(n), "row": "é"}}
			if n == 4 {
				m.Key, m.Properties = "", nil
			}
			if _, err := p.Send(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		found := Lanes{}
		Pulsar(t, b.URL, topic, found.Add)
		java := PulsarByJava(t, b.URL, []string{topic})
		if err := found.Compare(java); err != nil || found.Messages() != 20 {
			t.Fatal(err, found.Messages())
		}
		found.Add(workload.Message{Topic: topic})
		if err := found.Compare(java); err == nil {
			t.Error("a message that is missing is not noticed")
		}
	})
}
