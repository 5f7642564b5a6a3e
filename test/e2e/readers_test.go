//go:build integration

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/consume"
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
	var msgs []workload.Message
	consume.Kafka(t, k.cluster.Bootstrap, k.prefix+"."+table, false, func(m workload.Message) { msgs = append(msgs, m) })
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
	var msgs []workload.Message
	consume.Pulsar(t, p.broker.URL, fmt.Sprintf("persistent://public/default/%s.%s", p.prefix, table), func(m workload.Message) { msgs = append(msgs, m) })
	return msgs
}

type fileTarget struct {
	path   string
	format string
}

func (f *fileTarget) codec() string { return f.format }

// sink does not wait for the disk: a killed process leaves to the system what it has written, and fsync is most of the time on a busy disk.
func (f *fileTarget) sink() string { return fmt.Sprintf("file: { path: %q, sync: false }", f.path) }

func (f *fileTarget) read(t testing.TB, table string) []workload.Message {
	t.Helper()
	return f.lines(t, func(topic string) bool { return strings.HasSuffix(topic, "."+table) })
}

// lines returns the messages of the topics that are wanted, in the order of the file.
func (f *fileTarget) lines(t testing.TB, wanted func(topic string) bool) []workload.Message {
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
		if wanted(l.Topic) {
			msgs = append(msgs, workload.Message{Topic: l.Topic, Key: l.Key, Value: l.Value, Headers: l.Headers})
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return msgs
}
