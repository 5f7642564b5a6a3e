package kafka

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/sink"
)

var update = flag.Bool("update", false, "write golden files")

func entriesOf(msgs []sink.Message) []entry {
	es := make([]entry, len(msgs))
	for i := range msgs {
		es[i] = newEntry(&msgs[i], msgs[i].Size())
	}
	return es
}

func mustCompressor(t testing.TB, name string, level int) *compressor {
	t.Helper()
	c, err := newCompressor(name, level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

var sampleMessages = []sink.Message{
	{Key: []byte("k1"), Value: []byte(`{"id":1}`), Headers: []sink.Header{{Name: "seq", Value: []byte("1")}, {Name: "gtid", Value: []byte("a:1")}}},
	{Key: nil, Value: []byte("no key")},
	{Key: []byte("deleted"), Value: nil},
	{Key: []byte{}, Value: []byte{}, Headers: []sink.Header{{Name: "empty", Value: nil}, {Name: "ü", Value: []byte("値")}}},
	{Key: bytes.Repeat([]byte("k"), 64), Value: bytes.Repeat([]byte("0123456789"), 40)},
}

var sampleParams = batchParams{producerID: 4711, epoch: 3, sequence: 0x7ffffffe, time: 1_700_000_000_123}

func TestBatchGolden(t *testing.T) {
	for _, txn := range []bool{false, true} {
		p := sampleParams
		p.transactional = txn
		b, _, err := appendBatch([]byte("before"), p, entriesOf(sampleMessages), mustCompressor(t, "none", 0), nil)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.TrimPrefix(b, []byte("before"))
		path := filepath.Join("testdata", fmt.Sprintf("batch_transactional_%v.hex", txn))
		if *update {
			if err := os.WriteFile(path, []byte(hex.Dump(b)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.Dump(b); got != string(want) {
			t.Errorf("transactional %v:\n%s\nwant\n%s", txn, got, want)
		}
	}
}

// Two other clients' decoders, which check the CRC, find every field.
func TestBatchDecodedByOthers(t *testing.T) {
	long := make([]sink.Message, 0, 400)
	for i := range 400 {
		m := &sampleMessages[i%len(sampleMessages)]
		long = append(long, sink.Message{Key: m.Key, Value: m.Value, Headers: m.Headers})
	}
	noise := []byte(make([]byte, 3000))
	rand.NewChaCha8([32]byte{}).Read(noise) //nolint:errcheck // cannot fail
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for name, msgs := range map[string][]sink.Message{"sample": sampleMessages, "long": long, "noise": {{Key: []byte("n"), Value: noise}}} {
			for _, level := range []int{0, 1, 9} {
				t.Run(fmt.Sprintf("%s-%d/%s", codec, level, name), func(t *testing.T) {
					es := entriesOf(msgs)
					b, _, err := appendBatch(nil, sampleParams, es, mustCompressor(t, codec, level), nil)
					if err != nil {
						t.Fatal(err)
					}
					most := batchHeaderLen
					for i := range es {
						most += es[i].maxLen()
					}
					if len(b) > most {
						t.Errorf("%d bytes, announced at most %d", len(b), most)
					}
					if codec != "none" && name == "long" && len(b) > most/2 {
						t.Errorf("%d of %d bytes: not compressed", len(b), most)
					}
					decodeFranz(t, b, msgs)
					decodeKafkaGo(t, b, msgs)
				})
			}
		}
	}
}

func decodeFranz(t *testing.T, raw []byte, msgs []sink.Message) {
	t.Helper()
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	p := sampleParams
	if b.ProducerID != p.producerID || b.ProducerEpoch != p.epoch || b.FirstSequence != p.sequence || b.FirstTimestamp != p.time || b.MaxTimestamp != p.time ||
		int(b.NumRecords) != len(msgs) || int(b.LastOffsetDelta) != len(msgs)-1 || b.Magic != 2 || int(b.Length) != len(raw)-12 {
		t.Errorf("batch %+v", b)
	}
	recs, err := kfake.BatchRecords(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != len(msgs) {
		t.Fatalf("%d records, want %d", len(recs), len(msgs))
	}
	for i := range recs {
		r, m := &recs[i], &msgs[i]
		if int(r.OffsetDelta) != i || r.TimestampDelta64 != 0 || !same(r.Key, m.Key) || !same(r.Value, m.Value) || len(r.Headers) != len(m.Headers) {
			t.Fatalf("record %d: %+v", i, r)
		}
		for j := range r.Headers {
			if r.Headers[j].Key != m.Headers[j].Name || !bytes.Equal(r.Headers[j].Value, m.Headers[j].Value) || r.Headers[j].Value == nil {
				t.Fatalf("record %d header %d: %+v", i, j, r.Headers[j])
			}
		}
	}
	// The whole fetch path, with the CRC.
	part := kmsg.NewFetchResponseTopicPartition()
	part.HighWatermark, part.LastStableOffset, part.RecordBatches = int64(len(msgs)), int64(len(msgs)), raw
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"}, &part, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil || len(fp.Records) != len(msgs) {
		t.Fatalf("franz-go reads %d records: %v", len(fp.Records), fp.Err)
	}
}

func decodeKafkaGo(t *testing.T, raw []byte, msgs []sink.Message) {
	t.Helper()
	var rs protocol.RecordSet
	framed := append([]byte{byte(len(raw) >> 24), byte(len(raw) >> 16), byte(len(raw) >> 8), byte(len(raw))}, raw...)
	if _, err := rs.ReadFrom(bytes.NewReader(framed)); err != nil {
		t.Fatal(err)
	}
	for i := range msgs {
		r, err := rs.Records.ReadRecord()
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		k, err1 := protocol.ReadAll(r.Key)
		v, err2 := protocol.ReadAll(r.Value)
		if err1 != nil || err2 != nil || !same(k, msgs[i].Key) || !same(v, msgs[i].Value) || len(r.Headers) != len(msgs[i].Headers) {
			t.Fatalf("record %d: %q %q %v %v", i, k, v, err1, err2)
		}
	}
	if _, err := rs.Records.ReadRecord(); err != io.EOF {
		t.Fatalf("after the last record: %v", err)
	}
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestCompressorRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		level int
	}{{"brotli", 0}, {"gzip", 10}, {"gzip", -1}, {"lz4", 10}, {"zstd", 23}, {"zstd", -5}} {
		if _, err := newCompressor(c.name, c.level); err == nil {
			t.Errorf("%s level %d is taken", c.name, c.level)
		}
	}
}

// BenchmarkAppendBatch encodes batches of 2000 messages of 250 B, 16 B key and three headers.
func BenchmarkAppendBatch(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		b.Run(codec, func(b *testing.B) {
			msgs := benchMessages(nil, "t", 1, 2000)
			c := mustCompressor(b, codec, 0)
			es := make([]entry, len(msgs))
			var buf, scratch []byte
			var err error
			b.ReportAllocs()
			for b.Loop() {
				for i := range msgs {
					es[i] = newEntry(&msgs[i], msgs[i].Size())
				}
				if buf, scratch, err = appendBatch(buf[:0], sampleParams, es, c, scratch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(msgs)), "ns/msg")
			b.ReportMetric(float64(len(buf))/float64(len(msgs)), "B/msg")
		})
	}
}

func benchMessages(o sink.Owner, topic string, parts int32, n int) []sink.Message {
	rnd := rand.New(rand.NewPCG(1, 2))
	rows := make([][]byte, 4001)
	for i := range rows {
		v := fmt.Appendf(nil, `{"id":%d,"name":"customer number %d","city":"Springfield","data":"`, i*7919, i)
		for len(v) < 248 {
			v = append(v, "abcdefghijklmnopqrstuvwxyz0123456789"[rnd.IntN(36)])
		}
		rows[i] = append(v, `"}`...)
	}
	key, gtid, num := []byte("0123456789abcdef"), []byte("3e11fa47:1234567"), []byte("12345678")
	heads := []sink.Header{{Name: "seq", Value: num}, {Name: "gtid", Value: gtid}, {Name: "row", Value: num[:2]}}
	msgs := make([]sink.Message, n)
	for i := range msgs {
		msgs[i] = sink.Message{Topic: topic, Partition: int32(i) % parts, Sequence: int64(i), Key: key, Value: rows[i%len(rows)], Headers: heads, Owner: o}
	}
	return msgs
}
