package consume

import (
	"context"
	"errors"
	"fmt"
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
const patience = 5 * time.Minute

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
	left, err := limits(ctx, kadm.NewClient(c), topic, committed)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return
	}
	if err != nil {
		t.Fatal(err)
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

// limits returns where each partition that holds something ends. With committed no transaction may be open there; the broker
// answers a commit before its markers are everywhere, so that is waited for.
func limits(ctx context.Context, admin *kadm.Client, topic string, committed bool) (map[int32]int64, error) {
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		stable := ends
		if err == nil && committed {
			if stable, err = admin.ListCommittedOffsets(ctx, topic); err == nil {
				err = stable.Error()
			}
		}
		switch {
		case err == nil:
			left := map[int32]int64{}
			ends.Each(func(o kadm.ListedOffset) {
				if o.Offset > 0 {
					left[o.Partition] = o.Offset
				}
				if s, ok := stable.Lookup(topic, o.Partition); !ok || s.Offset < o.Offset {
					err = fmt.Errorf("%s/%d: a transaction is open from offset %d on; the end is %d", topic, o.Partition, s.Offset, o.Offset)
				}
			})
			if err == nil {
				return left, nil
			}
		case !kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("the ends of %s: %w", topic, err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
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
	for ; err != nil; parts, err = c.TopicPartitions(topic) { // so does one that has just started and is asked too early
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
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
