package consume

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/test/workload"
)

// patience bounds the time without a message before the end of a topic.
const patience = 2 * time.Minute

// Kafka hands out all messages of a topic, in order within each partition; none where there is no topic. With
// committed it reads read_committed, and a transaction that is still open at the end fails the test.
func Kafka(t testing.TB, bootstrap []string, topic string, committed bool, each func(workload.Message)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	opts := []kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords()}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	left := map[int32]int64{} // partition: its end
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return
	}
	if err != nil {
		t.Fatalf("the ends of %s: %v", topic, err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	if committed {
		stable, err := admin.ListCommittedOffsets(ctx, topic)
		if err == nil {
			err = stable.Error()
		}
		if err != nil {
			t.Fatalf("the stable ends of %s: %v", topic, err)
		}
		stable.Each(func(o kadm.ListedOffset) {
			if o.Offset < left[o.Partition] {
				t.Errorf("%s/%d: a transaction is open from offset %d on; the end is %d", topic, o.Partition, o.Offset, left[o.Partition])
				left[o.Partition] = o.Offset
			}
			if o.Offset == 0 {
				delete(left, o.Partition)
			}
		})
	}
	for len(left) > 0 {
		poll, done := context.WithTimeout(context.Background(), patience)
		f := c.PollFetches(poll)
		done()
		if err := f.Err(); err != nil {
			t.Fatalf("reading %s: %v (ends not reached: %v)", topic, err, left)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			m := workload.Message{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: map[string]string{}}
			for _, h := range r.Headers {
				m.Headers[h.Key] = string(h.Value)
			}
			each(m)
		})
	}
}

// Pulsar hands out all messages of a topic, partition by partition in order; none where there is no topic.
func Pulsar(t testing.TB, url, topic string, each func(workload.Message)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	parts, err := c.TopicPartitions(topic)
	if err != nil {
		t.Fatal(err)
	}
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
			next, done := context.WithTimeout(context.Background(), patience)
			m, err := r.Next(next)
			done()
			if err != nil {
				t.Fatalf("reading %s: %v", part, err)
			}
			each(workload.Message{Topic: topic, Partition: int32(i), Key: []byte(m.Key()), Value: m.Payload(), Headers: m.Properties()})
			id := m.ID()
			end = (id.LedgerID() > last.LedgerID() || id.LedgerID() == last.LedgerID() && id.EntryID() >= last.EntryID()) &&
				(id.BatchSize() <= 1 || id.BatchIdx() == id.BatchSize()-1)
		}
		r.Close()
	}
}
