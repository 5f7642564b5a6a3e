//go:build integration

package compat

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// The artifacts that the Java programs are run with, by name in Maven.
var (
	kafkaClients = []string{"org.apache.kafka:kafka-clients:4.4.0"}
	pulsarClient = []string{"org.apache.pulsar:pulsar-client:4.1.0"}
	canal        = []string{"com.alibaba.otter:canal.protocol:1.1.8"}
	connect      = []string{"org.apache.kafka:connect-json:4.3.0", "org.apache.kafka:connect-transforms:4.3.0", "io.debezium:debezium-connect-plugins:3.6.1.Final", "io.debezium:debezium-connector-common:3.6.1.Final"}
	// flink-json takes the others from the cluster that it is installed in.
	flink = []string{"org.apache.flink:flink-json:2.1.0", "org.apache.flink:flink-core:2.1.0", "org.apache.flink:flink-table-common:2.1.0", "org.apache.flink:flink-table-runtime:2.1.0"}
)

// patience bounds what would else hang; nothing is timed by it.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	leak.Main(m)
}

// java runs a program of java/ with the lines as its input and returns the lines that it printed.
func java(t testing.TB, libraries []string, program string, input []string, args ...string) [][]byte {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := testenv.Java(t, ctx, libraries, filepath.Join("java", program+".java"), args...)
	defer time.AfterFunc(patience, cancel).Stop() // from here: its libraries are there, however long that took
	return lines(t, program, cmd, input)
}

// python runs a program of python/ and returns the lines that it printed.
func python(t testing.TB, packages []string, program string, args ...string) [][]byte {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := testenv.Python(t, ctx, packages, filepath.Join("python", program+".py"), args...)
	defer time.AfterFunc(patience, cancel).Stop()
	return lines(t, program, cmd, nil)
}

// lines runs a program with the lines as its input and returns those that it printed.
func lines(t testing.TB, program string, cmd *exec.Cmd, input []string) [][]byte {
	t.Helper()
	if input != nil {
		cmd.Stdin = strings.NewReader(strings.Join(input, "\n") + "\n")
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%.4000s", program, err, &errs)
	}
	var lines [][]byte
	s := bufio.NewScanner(&out)
	s.Buffer(nil, 256<<20)
	for s.Scan() {
		lines = append(lines, bytes.Clone(s.Bytes()))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// record is a message as a client shows it. nil is what the client shows as absent.
type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`    // Kafka; Pulsar: place in what was read of the partition
	Timestamp int64    `json:"timestamp"` // ms, by the producer's clock
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"` // Pulsar: in order of name

	TimestampType string `json:"timestampType"` // Kafka

	ID          []byte `json:"id"` // Pulsar, and all below
	KeyIsBase64 bool   `json:"keyIsBase64"`
	Sequence    int64  `json:"sequence"`
	EventTime   int64  `json:"eventTime"` // ms
	Producer    []byte `json:"producer"`

	compression string // Kafka, read by the Go client: of the record's batch
}

type header struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

func (r *record) header(name string) (string, bool) {
	for _, h := range r.Headers {
		if string(h.Name) == name {
			return string(h.Value), true
		}
	}
	return "", false
}

func (r *record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d at %d (%d %s %d %s) key %.100q value (%d bytes) %.300q", r.Topic, r.Partition, r.Offset, r.Timestamp, r.TimestampType, r.EventTime, r.Producer, r.Key, len(r.Value), r.Value)
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s=%.100q", h.Name, h.Value)
	}
	return b.String()
}

func inOrder(rs []record) {
	slices.SortStableFunc(rs, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
}

func parseRecords(t testing.TB, lines [][]byte) []record {
	t.Helper()
	rs := make([]record, len(lines))
	for i, l := range lines {
		if err := json.Unmarshal(l, &rs[i]); err != nil {
			t.Fatalf("%v in %.1000s", err, l)
		}
	}
	return rs
}

// kafkaByJava and kafkaByGo read all that topics hold, in order of topic, partition and offset.
func kafkaByJava(t testing.TB, k *testenv.KafkaCluster, topics []string) []record {
	t.Helper()
	rs := parseRecords(t, java(t, kafkaClients, "KafkaReader", nil, append([]string{strings.Join(k.Bootstrap, ","), "read_uncommitted"}, topics...)...))
	inOrder(rs)
	return rs
}

func kafkaByGo(t testing.TB, k *testenv.KafkaCluster, topics []string) []record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	var rs []record
	for int64(len(rs)) < left {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("franz-go: %v (%d of %d messages)", err, len(rs), left)
		}
		f.EachRecord(func(m *kgo.Record) {
			r := record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value, Headers: []header{},
				TimestampType: map[int8]string{0: "CreateTime", 1: "LogAppendTime"}[m.Attrs.TimestampType()],
				compression:   []string{"none", "gzip", "snappy", "lz4", "zstd"}[m.Attrs.CompressionType()]}
			for _, h := range m.Headers {
				r.Headers = append(r.Headers, header{[]byte(h.Key), h.Value})
			}
			rs = append(rs, r)
		})
	}
	inOrder(rs)
	return rs
}

// pulsarByJava and pulsarByGo read all that topics hold, in order of topic, partition and place.
func pulsarByJava(t testing.TB, p *testenv.PulsarBroker, topics []string) []record {
	t.Helper()
	rs := parseRecords(t, java(t, pulsarClient, "PulsarReader", nil, append([]string{p.URL}, topics...)...))
	number(rs)
	return rs
}

func pulsarByGo(t testing.TB, p *testenv.PulsarBroker, topics []string) []record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: p.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var rs []record
	for _, topic := range topics {
		parts, err := c.TopicPartitions(topic)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range parts {
			reader, err := c.CreateReader(pulsar.ReaderOptions{Topic: part, StartMessageID: pulsar.EarliestMessageID()})
			if err != nil {
				t.Fatal(err)
			}
			for reader.HasNext() {
				m, err := reader.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				r := record{Topic: topic, Partition: int32(i), Key: []byte(m.Key()), Value: m.Payload(), Headers: []header{},
					Timestamp: m.PublishTime().UnixMilli(), EventTime: m.EventTime().UnixMilli(), Producer: []byte(m.ProducerName())}
				for name, value := range m.Properties() {
					r.Headers = append(r.Headers, header{[]byte(name), []byte(value)})
				}
				slices.SortFunc(r.Headers, func(a, b header) int { return bytes.Compare(a.Name, b.Name) })
				rs = append(rs, r)
			}
			reader.Close()
		}
	}
	number(rs)
	return rs
}

// number gives the messages of each partition, which are in order, their places.
func number(rs []record) {
	type lane struct {
		topic     string
		partition int32
	}
	next := map[lane]int64{}
	for i := range rs {
		l := lane{rs[i].Topic, rs[i].Partition}
		rs[i].Offset = next[l]
		next[l]++
	}
	inOrder(rs)
}

// same fails the test unless two clients read the same messages, byte by byte.
func same(t testing.TB, a, b []record, pulsar bool) {
	t.Helper()
	for i := range min(len(a), len(b)) {
		x, y := &a[i], &b[i]
		equal := x.Topic == y.Topic && x.Partition == y.Partition && x.Offset == y.Offset && x.Timestamp == y.Timestamp &&
			x.TimestampType == y.TimestampType && bytes.Equal(x.Key, y.Key) && bytes.Equal(x.Value, y.Value) && slices.EqualFunc(x.Headers, y.Headers, sameHeader) &&
			x.EventTime == y.EventTime && bytes.Equal(x.Producer, y.Producer)
		// pulsar-client-go tells neither a null value from an empty one nor an absent key.
		if !pulsar {
			equal = equal && (x.Key == nil) == (y.Key == nil) && (x.Value == nil) == (y.Value == nil)
		}
		if !equal {
			t.Fatalf("two clients read different messages:\n%v\n%v", x, y)
		}
	}
	if len(a) != len(b) {
		t.Fatalf("one client read %d messages, the other %d", len(a), len(b))
	}
}

func sameHeader(a, b header) bool {
	return bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Value, b.Value)
}
