//go:build integration

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"log/slog"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/workload"
)

// target is a broker system: how a sink is configured for it, and how any
// service would read what arrives.
type target interface {
	// sink returns the sink's lines of the configuration, indented as a list item's content.
	sink() string
	codec() string
	// read returns all messages of the table's topic, partition by partition in order.
	read(t testing.TB, table string) []workload.Message
}

type kafkaTarget struct {
	cluster *testenv.KafkaCluster
	prefix  string
	format  string
}

func (k *kafkaTarget) codec() string { return k.format }

func (k *kafkaTarget) sink() string {
	return fmt.Sprintf("kafka: { brokers: [%s], compression: zstd, topics: { partitions: 3 } }\n        topic: \"%s.{table}\"", quoted(k.cluster.Bootstrap), k.prefix)
}

func quoted(list []string) string { return `"` + strings.Join(list, `","`) + `"` }

func (k *kafkaTarget) read(t testing.TB, table string) []workload.Message {
	t.Helper()
	topic := k.prefix + "." + table
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.Bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	var msgs []workload.Message
	for int64(len(msgs)) < left {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("reading %s: %v (%d of %d)", topic, err, len(msgs), left)
		}
		f.EachRecord(func(r *kgo.Record) {
			m := workload.Message{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: map[string]string{}}
			for _, h := range r.Headers {
				m.Headers[h.Key] = string(h.Value)
			}
			msgs = append(msgs, m)
		})
	}
	return msgs
}

// atLeastOnceTarget is Kafka with delivery: at_least_once.
type atLeastOnceTarget struct{ *kafkaTarget }

func (k *atLeastOnceTarget) sink() string {
	return strings.Replace(k.kafkaTarget.sink(), "compression:", "delivery: at_least_once, compression:", 1)
}

type pulsarTarget struct {
	broker *testenv.PulsarBroker
	prefix string
	format string
	more   string // settings of the sink, each followed by a comma
}

func (p *pulsarTarget) codec() string { return p.format }

func (p *pulsarTarget) sink() string {
	return fmt.Sprintf("pulsar: { %s url: %q, admin_url: %q, topics: { partitions: 2 } }\n        topic: \"persistent://public/default/%s.{table}\"", p.more, p.broker.URL, p.broker.AdminURL, p.prefix)
}

func (p *pulsarTarget) read(t testing.TB, table string) []workload.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: p.broker.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topic := fmt.Sprintf("persistent://public/default/%s.%s", p.prefix, table)
	parts, err := c.TopicPartitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	var msgs []workload.Message
	for i, part := range parts {
		// A broker that has just started does not find its bookie at once.
		var r pulsar.Reader
		var last pulsar.MessageID
		for {
			if r, err = c.CreateReader(pulsar.ReaderOptions{Topic: part, StartMessageID: pulsar.EarliestMessageID()}); err == nil {
				if last, err = r.GetLastMessageID(); err == nil {
					break
				}
				r.Close()
			}
			select {
			case <-ctx.Done():
				t.Fatal(err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		for end := last.EntryID() < 0; !end; {
			m, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, workload.Message{Topic: topic, Partition: int32(i), Key: []byte(m.Key()), Value: m.Payload(), Headers: m.Properties()})
			id := m.ID()
			end = (id.LedgerID() > last.LedgerID() || id.LedgerID() == last.LedgerID() && id.EntryID() >= last.EntryID()) &&
				(id.BatchSize() <= 1 || id.BatchIdx() == id.BatchSize()-1)
		}
		r.Close()
	}
	return msgs
}

type fileTarget struct {
	path   string
	format string
}

func (f *fileTarget) codec() string { return f.format }

func (f *fileTarget) sink() string { return fmt.Sprintf("file: { path: %q }", f.path) }

func (f *fileTarget) read(t testing.TB, table string) []workload.Message {
	t.Helper()
	in, err := os.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var msgs []workload.Message
	s := bufio.NewScanner(in)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		var l struct {
			Topic   string            `json:"topic"`
			Key     json.RawMessage   `json:"key"`
			Value   json.RawMessage   `json:"value"`
			Headers map[string]string `json:"headers"`
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%v in line %s", err, s.Bytes())
		}
		if strings.HasSuffix(l.Topic, "."+table) {
			msgs = append(msgs, workload.Message{Topic: l.Topic, Key: l.Key, Value: l.Value, Headers: l.Headers})
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return msgs
}
