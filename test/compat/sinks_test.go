//go:build integration

package compat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/kafka"
	"github.com/binlogmq/binlogmq/sink/pulsar"
)

// owner waits for messages and fails the test for those that were not stored.
type owner struct {
	t  testing.TB
	wg sync.WaitGroup
}

func (o *owner) MessageDone(m *sink.Message, err error) {
	if err != nil {
		o.t.Errorf("message %d: %v", m.Sequence, err)
	}
	o.wg.Done()
}

// publish sends messages of every shape that a sink accepts to a topic and returns them.
func publish(t testing.TB, s sink.Sink, topic string, kafka bool) []sink.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := s.Partitions(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 50_000)
	rand.NewChaCha8([32]byte{7}).Read(random) //nolint:errcheck // cannot fail
	keys := [][]byte{[]byte(`{"id":"7"}`), []byte("schlüssel 漢😀"), []byte("\x00\x01 \"\\\n"), bytes.Repeat([]byte("k"), 5000)}
	values := [][]byte{[]byte(`{"a":"é漢😀"}`), nil, {0, 0xff, 0x80}, bytes.Repeat([]byte("compressible "), 5000), random}
	if kafka {
		keys = append(keys, nil, []byte{}, []byte{0xff, 0xfe, 0x80})
		values = append(values, []byte{}) // pulsar-client-go cannot read these
	}
	headers := [][]sink.Header{nil, {{Name: "seq", Value: []byte("1")}}, {{Name: "größe", Value: []byte("漢😀")}, {Name: "empty", Value: []byte{}}, {Name: "long", Value: bytes.Repeat([]byte("h"), 3000)}}}
	o := &owner{t: t}
	var msgs []sink.Message
	for i := range len(keys) * len(values) * len(headers) {
		k := keys[i%len(keys)]
		msgs = append(msgs, sink.Message{
			Topic: topic, Partition: sink.Partition(k, n), Sequence: int64(i + 1), SubIndex: uint16(i % 3), Time: 1700000000123 + int64(i), Owner: o,
			Key: k, Value: values[i/len(keys)%len(values)], Headers: headers[i/len(keys)/len(values)],
		})
	}
	msgs = append(msgs, sink.Message{Topic: topic, Partition: 0, Sequence: int64(len(msgs) + 1), Time: 1700000000123, Owner: o, Key: []byte("large"), Value: bytes.Repeat(random, 30)})
	o.wg.Add(len(msgs))
	if _, err := s.Publish(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	o.wg.Wait()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return msgs
}

// shape is what must be read of a message.
func shape(key, value []byte, partition int32, headers []string) string {
	null := func(b []byte) string {
		if b == nil {
			return "null"
		}
		if len(b) > 1000 {
			return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
		}
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("partition %d key %s value %s %s", partition, null(key), null(value), headers)
}

func wanted(msgs []sink.Message, sorted bool) []string {
	var out []string
	for i := range msgs {
		hs := []string{}
		for _, h := range msgs[i].Headers {
			hs = append(hs, fmt.Sprintf("%s=%q", h.Name, h.Value))
		}
		if sorted {
			slices.Sort(hs)
		}
		out = append(out, shape(msgs[i].Key, msgs[i].Value, msgs[i].Partition, hs))
	}
	return byPartition(out)
}

func found(rs []record) []string {
	var out []string
	for i := range rs {
		hs := []string{}
		for _, h := range rs[i].Headers {
			hs = append(hs, fmt.Sprintf("%s=%q", h.Name, h.Value))
		}
		out = append(out, shape(rs[i].Key, rs[i].Value, rs[i].Partition, hs))
	}
	return byPartition(out)
}

// byPartition keeps the order within a partition.
func byPartition(lines []string) []string {
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
	})
	return lines
}

func equalLines(t testing.TB, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("message %d\n read %.2000s\n want %.2000s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d messages read, want %d", len(got), len(want))
	}
}

var compressions = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// TestJavaReadsEveryShapeFromKafka proves that keys, values, tombstones and headers of every shape reach Kafka's own
// consumer unchanged (it checks the CRC of each batch), in order, with each compression.
func TestJavaReadsEveryShapeFromKafka(t *testing.T) {
	k := testenv.Kafka(t)
	sent := map[string][]sink.Message{}
	var topics []string
	for _, c := range compressions {
		topic := testenv.Name(t) + "_" + c
		k.CreateTopic(topic, 3, "max.message.bytes=4000000")
		s, err := kafka.New(kafka.Options{Brokers: k.Bootstrap, Compression: c, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		sent[topic] = publish(t, s, topic, true)
		topics = append(topics, topic)
	}
	byJava, byGo := kafkaByJava(t, k, topics), kafkaByGo(t, k, topics)
	same(t, byJava, byGo, false)
	for _, topic := range topics {
		equalLines(t, found(ofTopic(byJava, topic)), wanted(sent[topic], false))
	}
	for i := range byGo {
		if want := byGo[i].Topic[strings.LastIndexByte(byGo[i].Topic, '_')+1:]; byGo[i].compression != want && want != "none" && len(byGo[i].Value) > 50_000 && byGo[i].Value[0] == 'c' {
			t.Errorf("%s/%d at %d: compressed with %s", byGo[i].Topic, byGo[i].Partition, byGo[i].Offset, byGo[i].compression)
		}
	}
}

// TestJavaReadsEveryShapeFromPulsar proves the same of Pulsar's own reader.
func TestJavaReadsEveryShapeFromPulsar(t *testing.T) {
	p := testenv.Pulsar(t)
	sent := map[string][]sink.Message{}
	var topics []string
	for _, c := range []string{"none", "lz4", "zlib", "zstd", "snappy"} {
		topic := p.Topic() + "_" + c
		s, err := pulsar.New(pulsar.Options{URL: p.URL, AdminURL: p.AdminURL, Compression: c, Deployment: "test", Destination: "compat", Sink: testenv.Name(t),
			Topics: pulsar.Topics{Create: true, Partitions: 2}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		sent[topic] = publish(t, s, topic, false)
		topics = append(topics, topic)
	}
	byJava := pulsarByJava(t, p, topics)
	same(t, byJava, pulsarByGo(t, p, topics), true)
	for _, topic := range topics {
		rs := ofTopic(byJava, topic)
		equalLines(t, found(rs), wanted(sent[topic], true))
		ids := map[int64]bool{}
		for i := range sent[topic] {
			ids[sent[topic][i].Sequence<<10|int64(sent[topic][i].SubIndex)] = true
		}
		for i := range rs {
			if !ids[rs[i].Sequence] || rs[i].EventTime < 1700000000123 || rs[i].KeyIsBase64 {
				t.Errorf("sequence id %d, event time %d, key as base64 %v: %v", rs[i].Sequence, rs[i].EventTime, rs[i].KeyIsBase64, &rs[i])
			}
			delete(ids, rs[i].Sequence)
		}
	}
}

func ofTopic(rs []record, topic string) []record {
	var out []record
	for i := range rs {
		if rs[i].Topic == topic {
			out = append(out, rs[i])
		}
	}
	return out
}

// TestJavaProducerChoosesTheSamePartition proves that a Java producer with default settings and ours agree where a key
// belongs, whatever its length and bytes.
func TestJavaProducerChoosesTheSamePartition(t *testing.T) {
	k := testenv.Kafka(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var keys [][]byte
	for n := range 300 {
		key := make([]byte, n)
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		keys = append(keys, key, fmt.Appendf(nil, `{"id":"%d"}`, n))
	}
	for _, n := range []int32{1, 2, 3, 7, 12} {
		topic := k.Topic(int(n))
		for i, p := range partitionsByJava(t, k, topic, keys) {
			if want := sink.Partition(keys[i], n); p != want {
				t.Errorf("key %x: partition %d of %d, ours is %d", keys[i], p, n, want)
			}
		}
	}
}

// partitionsByJava returns where Kafka's own producer, with default settings, put each key.
func partitionsByJava(t testing.TB, k *testenv.KafkaCluster, topic string, keys [][]byte) []int32 {
	t.Helper()
	input := make([]string, len(keys))
	for i, key := range keys {
		input[i] = encode(key)
	}
	lines := java(t, kafkaClients, "KafkaPartitions", input, strings.Join(k.Bootstrap, ","), topic)
	if len(lines) != len(keys) {
		t.Fatalf("%d partitions for %d keys", len(lines), len(keys))
	}
	out := make([]int32, len(lines))
	for i, l := range lines {
		p, err := strconv.ParseInt(string(l), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = int32(p)
	}
	return out
}
