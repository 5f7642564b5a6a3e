package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func fakeCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readAll reads n records of a topic, with some patience for more.
func readAll(t testing.TB, brokers []string, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var recs []*kgo.Record
	ctx := ctxFor(t, 5*time.Minute)
	for len(recs) < n {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d records: %v", len(recs), n, ctx.Err())
		}
		recs = append(recs, f.Records()...)
	}
	more := cl.PollFetches(ctxFor(t, 300*time.Millisecond))
	return append(recs, more.Records()...)
}

// verify checks that the records are the messages 0..n-1 of numbered: each once,
// in order within its partition (I4).
func verify(t testing.TB, recs []*kgo.Record, n int) {
	t.Helper()
	if len(recs) != n {
		t.Errorf("%d records, want %d", len(recs), n)
	}
	last := map[int32]int{}
	seen := make([]bool, n)
	for _, r := range recs {
		k := 0
		for _, c := range r.Value {
			k = k*10 + int(c-'0')
		}
		if k >= n || seen[k] {
			t.Fatalf("record %d: unknown or doubled", k)
		}
		seen[k] = true
		if prev, ok := last[r.Partition]; ok && prev >= k {
			t.Fatalf("partition %d: %d after %d", r.Partition, k, prev)
		}
		last[r.Partition] = k
	}
}

func TestPublishFlushClose(t *testing.T) {
	c := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "shop"))
	s := newSink(t, Options{Brokers: c.ListenAddrs()})
	ctx := ctxFor(t, patience)
	n, err := s.Partitions(ctx, "shop")
	if err != nil || n != 6 {
		t.Fatalf("Partitions = %d, %v", n, err)
	}
	var f fates
	const total = 20000
	for i := 0; i < total; i += 100 {
		if k, err := s.Publish(ctx, numbered(&f, "shop", 6, i, 100)); err != nil || k != 100 {
			t.Fatalf("Publish = %d, %v", k, err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := f.count(); ok != total {
		t.Fatalf("%d done, errors %v", ok, errs)
	}
	if st := s.Status(); st.Err != nil || st.InFlight != 0 || st.Bytes != 0 {
		t.Fatalf("status %+v", st)
	}
	recs := readAll(t, c.ListenAddrs(), "shop", total)
	verify(t, recs, total)
	if r := recs[0]; string(r.Headers[0].Value) != string(r.Value) || string(r.Key) != "key-"+string(r.Value) || time.Since(r.Timestamp) > time.Hour {
		t.Errorf("record %+v", r)
	}
}
