package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/sink"
)

// saved is a cursor with the state that belongs to it.
type saved struct {
	at    int
	state []byte
}

// replays publishes messages 0..total-1 through many sinks, each of which ends at some instant and is followed by one
// that begins at an older cursor. between is called with no sink there.
func replays(t *testing.T, o Options, topic string, parts int32, total int, seed uint64, between func(*rand.Rand)) error {
	rnd := rand.New(rand.NewPCG(1, seed))
	ctx := ctxFor(t, patience)
	cursors := []saved{{}}
	for life := 0; ; life++ {
		from := cursors[max(0, len(cursors)-1-rnd.IntN(4))]
		s := newSequenced(t, o, from.state, sink.Same)
		if _, err := s.Partitions(ctx, topic); err != nil {
			return err
		}
		if from.at == 0 { // as the owner does before it publishes
			cursors[0].state = s.AppendState(nil)
		}
		var f fates
		base, next := s.Mark(), from.at
		last := life > 60
		for next < total && (last || rnd.IntN(12) > 0) {
			n := min(1+rnd.IntN(150), total-next)
			if _, err := s.Publish(ctx, numbered(&f, topic, parts, next, n)); err != nil {
				return err
			}
			next += n
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
		}
		if next == total {
			if err := s.Flush(ctx); err != nil {
				return err
			}
		}
		for o.without != 0 && next > from.at && ctx.Err() == nil { // what is stored is what goes wrong in the next life
			if ok, errs := f.count(); ok > 0 || len(errs) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := s.Close(ctx); err != nil {
			return err
		}
		done := 0
		for f.of != nil {
			if err, ok := f.of[int64(from.at+done)]; !ok || err != nil {
				break
			}
			done++
		}
		for _, err := range f.errs {
			if !errors.Is(err, sink.ErrReset) {
				return err
			}
		}
		if from.at+done == total {
			return nil
		}
		if done > 0 {
			k := rnd.IntN(done + 1)
			s.Acknowledge(base + int64(k))
			cursors = append(cursors, saved{from.at + k, s.AppendState(nil)})
		}
		if between != nil {
			between(rnd)
		}
	}
}

func stored(t *testing.T, cl *kfake.Cluster, topic string, parts int32) (out []*kgo.Record) {
	t.Helper()
	for p := range parts {
		for _, r := range readPartition(t, cl.ListenAddrs(), topic, p) {
			out = append(out, &kgo.Record{Partition: p, Key: r.Key, Value: r.Value})
		}
	}
	return out
}

// I2, I5, I7: a sink that ends at any instant and is followed by another one that replays from an older
// cursor stores each message once, in order.
func TestReplaysStoreOnce(t *testing.T) {
	for _, o := range []Options{{RequestsInFlight: 1}, {RequestsInFlight: 5, Compression: "zstd"}, {RequestsInFlight: 5, Compression: "lz4"}} {
		for _, every := range []int64{0, 60} {
			t.Run(fmt.Sprintf("%d in flight, %s, cut every %d", o.RequestsInFlight, o.Compression, every), func(t *testing.T) {
				t.Parallel()
				var cut cutter
				cl := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "shop"), kfake.ListenFn(cut.listen))
				cut.every.Store(every)
				o := o
				o.Brokers, o.BatchBytes, o.RequestBytes = cl.ListenAddrs(), 2000, 4000
				const total = 8000
				if err := replays(t, o, "shop", 6, total, uint64(every)+uint64(o.RequestsInFlight), func(rnd *rand.Rand) {
					if rnd.IntN(2) == 0 {
						cl.ShufflePartitionLeaders()
					}
				}); err != nil {
					t.Fatal(err)
				}
				cut.every.Store(0)
				verify(t, stored(t, cl, "shop", 6), total)
			})
		}
	}
}

// I7: a replay that comes in pieces, the later ones when its lane knows already what the log has, stores nothing of it again.
func TestAReplayInPiecesStoresOnce(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
	ctx := ctxFor(t, patience)
	o := Options{Brokers: cl.ListenAddrs()}
	publish := func(s *Sink, first, n int) {
		t.Helper()
		if err := firstError(t, s, "shop", 2, first, n); err != nil {
			t.Fatal(err)
		}
	}
	s := newSequenced(t, o, nil, sink.Same)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	state := s.AppendState(nil)
	publish(s, 0, 100)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s = newSequenced(t, o, state, sink.Same)
	for first := 0; first < 120; first += 10 {
		publish(s, first, 10)
	}
	verify(t, stored(t, cl, "shop", 2), 120)
	s.Acknowledge(s.Mark())
	state = s.AppendState(nil)
	publish(newSequenced(t, o, state, sink.Same), 120, 10)
	verify(t, stored(t, cl, "shop", 2), 130)
}

// Each guard matters: without it messages are doubled or lost, or the sink stops.
func TestGuardsMatter(t *testing.T) {
	run := func(t *testing.T, o Options) (wrong bool, err error) {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
		o.Brokers, o.BatchBytes = cl.ListenAddrs(), 2000
		if o.without != 0 {
			o.disagreeAfter = 100 * time.Millisecond
		}
		const total = 3000
		err = replays(t, o, "shop", 2, total, 5, nil)
		seen := map[string]int{}
		for _, r := range stored(t, cl, "shop", 2) {
			seen[string(r.Value)]++
		}
		for _, n := range seen {
			wrong = wrong || n > 1
		}
		return wrong || len(seen) != total, err
	}
	if wrong, err := run(t, Options{}); wrong || err != nil {
		t.Fatalf("with all guards: wrong %t, %v", wrong, err)
	}
	if wrong, err := run(t, Options{without: searching}); !wrong && err == nil {
		t.Error("without searching nothing goes wrong")
	}
	if wrong, err := run(t, Options{without: fixedNumbering}); !wrong && err == nil {
		t.Error("without fixed numbering nothing goes wrong")
	}

	// A state that is not saved with its cursor is found out by the header seq, and does harm without it.
	for _, headers := range []bool{true, false} {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
		ctx := ctxFor(t, patience)
		msgs := func(f *fates, first, n int) []sink.Message {
			m := numbered(f, "shop", 1, first, n)
			for i := range m {
				if !headers {
					m[i].Headers = nil
				}
			}
			return m
		}
		s := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
		if _, err := s.Partitions(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		state := s.AppendState(nil)
		var f fates
		if _, err := s.Publish(ctx, msgs(&f, 0, 100)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(ctx); err != nil { // some may be stored
			t.Fatal(err)
		}
		s = newSequenced(t, Options{Brokers: cl.ListenAddrs()}, state, sink.Same)
		if _, err := s.Publish(ctx, msgs(&f, 0, 100)); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		// The cursor says 50, the state 0.
		s2 := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, state, sink.Same)
		var g fates
		_, err := s2.Publish(ctx, msgs(&g, 50, 100))
		if err == nil {
			err = s2.Flush(ctx)
		}
		_, errs := g.count()
		n := len(stored(t, cl, "shop", 1))
		if headers && (len(errs) == 0 || !errors.Is(errs[0], ErrNotReplayed)) {
			t.Errorf("the header seq tells nothing: %v, %v", err, errs)
		}
		if !headers && n == 150 && len(errs) == 0 {
			t.Error("a state of another cursor does no harm")
		}
	}
}

func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// firstError publishes n messages from first on and returns the first error that comes of it.
func firstError(t *testing.T, s *Sink, topic string, parts int32, first, n int) error {
	t.Helper()
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, topic); err != nil {
		return err
	}
	var f fates
	if _, err := s.Publish(ctx, numbered(&f, topic, parts, first, n)); err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if _, errs := f.count(); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

func TestBrokerDisagrees(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID} {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
		s := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
		cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: 4})
		if err := firstError(t, s, "shop", 2, 0, 100); err != nil {
			t.Fatalf("%v for a while: %v", code, err)
		}
		verify(t, stored(t, cl, "shop", 2), 100)
		s.Acknowledge(s.Mark())
		state := s.AppendState(nil)
		if err := s.Close(ctxFor(t, patience)); err != nil {
			t.Fatal(err)
		}
		s = newSequenced(t, Options{Brokers: cl.ListenAddrs(), disagreeAfter: 300 * time.Millisecond}, state, sink.Same)
		h := cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop", Partitions: []int32{1}, Err: code, Count: -1})
		err := firstError(t, s, "shop", 2, 100, 100)
		h.Remove()
		if !errors.Is(err, ErrDisagree) || !permanent(err) || !strings.Contains(err.Error(), "shop partition 1") {
			t.Errorf("%v for long: %v", code, err)
		}
	}
}

// I8: what a newer life has written to is not written to by an older one.
// I4, I7: a predecessor that was frozen and goes on from a copy of the state may come to a topic first. What it sends there is known, whether it is
// all or not yet, and whoever else writes there; it stores nothing twice.
func TestTopicOfAFrozenPredecessor(t *testing.T) {
	for name, n := range map[string][2]int{"it has sent the half": {60, 120}, "all": {120, 120}, "a few, in batches that are not ours": {7, 120}} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, others %v", name, others), func(t *testing.T) {
				t.Parallel()
				cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
				o := Options{Brokers: cl.ListenAddrs()}
				if others {
					other, err := kgo.NewClient(kgo.SeedBrokers(cl.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
					if err != nil {
						t.Fatal(err)
					}
					defer other.Close()
					for p := range int32(2) {
						if err := other.ProduceSync(ctxFor(t, patience), &kgo.Record{Topic: "shop", Partition: p, Value: []byte("other")}).FirstErr(); err != nil {
							t.Fatal(err)
						}
					}
				}
				first := newSequenced(t, o, nil, sink.Same)
				state := first.AppendState(nil) // of no topic
				if err := firstError(t, first, "shop", 2, 0, n[0]); err != nil {
					t.Fatal(err)
				}
				second := newSequenced(t, o, state, sink.Same)
				if err := firstError(t, second, "shop", 2, 0, n[1]); err != nil {
					t.Fatal(err)
				}
				second.Acknowledge(second.Mark())
				if err := firstError(t, newSequenced(t, o, second.AppendState(nil), sink.Same), "shop", 2, n[1], 30); err != nil {
					t.Fatal(err)
				}
				verify(t, slices.DeleteFunc(stored(t, cl, "shop", 2), func(r *kgo.Record) bool { return string(r.Value) == "other" }), n[1]+30)
			})
		}
	}
}

func TestNewerLifeWins(t *testing.T) {
	for _, inLog := range []bool{false, true} {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
		old := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
		if err := firstError(t, old, "shop", 1, 0, 10); err != nil {
			t.Fatal(err)
		}
		young := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, old.AppendState(nil), sink.Moved)
		if a, b := old.book.identity(), young.book.identity(); a.producerID != b.producerID || a.epoch+1 != b.epoch {
			t.Fatalf("lives %+v and %+v", a, b)
		}
		if err := firstError(t, young, "shop", 1, 10, 10); err != nil {
			t.Fatal(err)
		}
		if inLog { // its own search finds the newer one
			if err := old.Reset(ctxFor(t, patience)); err != nil {
				t.Fatal(err)
			}
		}
		err := firstError(t, old, "shop", 1, 20, 10)
		if !errors.Is(err, ErrSuperseded) || !permanent(err) {
			t.Errorf("the old life goes on: %v", err)
		}
		verify(t, stored(t, cl, "shop", 1), 20)
	}
}

func TestLostMessagesStopTheSink(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	s := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
	if err := firstError(t, s, "shop", 1, 0, 10); err != nil {
		t.Fatal(err)
	}
	s.Acknowledge(s.Mark())
	state := s.AppendState(nil)
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		if _, err := c.DeleteTopics(ctx, "shop"); err != nil {
			return err
		}
		_, err := c.CreateTopic(ctx, 1, 1, nil, "shop")
		return err
	})
	s = newSequenced(t, Options{Brokers: cl.ListenAddrs(), disagreeAfter: 100 * time.Millisecond}, state, sink.Same)
	err := firstError(t, s, "shop", 1, 10, 10)
	if !errors.Is(err, ErrLostMessages) || !permanent(err) {
		t.Error(err)
	}
	if n := len(stored(t, cl, "shop", 1)); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

// I5: under another configuration a new life begins, if all that was stored is acknowledged.
func TestChangedConfiguration(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(3, "shop"))
	o := Options{Brokers: cl.ListenAddrs()}
	s := newSequenced(t, o, nil, sink.Same)
	if err := firstError(t, s, "shop", 3, 0, 30); err != nil {
		t.Fatal(err)
	}
	mark := s.Mark()
	s.Acknowledge(mark - 1)
	behind := s.AppendState(nil)
	s.Acknowledge(mark)
	drained := s.AppendState(nil)

	again := newSink(t, Options{Brokers: o.Brokers, Delivery: Sequenced, Deployment: "test", Destination: "shop", Sink: "out"})
	ctx := ctxFor(t, patience)
	if _, err := again.Restore(ctx, behind, sink.Changed); !errors.Is(err, ErrNotDrained) || !permanent(err) || !strings.Contains(err.Error(), "SIGTERM") {
		t.Fatalf("a message is stored and not acknowledged: %v", err)
	}
	fresh, err := again.Restore(ctx, drained, sink.Changed)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	was, is := s.book.identity(), again.book.identity()
	if was.epoch+1 != is.epoch || was.producerID != is.producerID {
		t.Errorf("lives %+v, %+v", was, is)
	}
	if err := firstError(t, again, "shop", 3, 30, 30); err != nil {
		t.Fatal(err)
	}
	verify(t, stored(t, cl, "shop", 3), 60)

	// Elsewhere the producer id is somebody else's.
	other := fakeCluster(t, kfake.NumBrokers(1), kfake.ClusterID("another"), kfake.SeedTopics(3, "shop"))
	moved := newSequenced(t, Options{Brokers: other.ListenAddrs()}, drained, sink.Same)
	if id := moved.book.identity(); id.cluster != "another" || id.epoch != 0 || moved.book.account("shop") != nil {
		t.Errorf("life in another cluster: %+v", id)
	}
	// Topics that are gone need no draining.
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		_, err := c.DeleteTopics(ctx, "shop")
		return err
	})
	if fresh, err := newSink(t, Options{Brokers: o.Brokers, Delivery: Sequenced, Deployment: "test", Destination: "shop", Sink: "out"}).Restore(ctx, behind, sink.Changed); err != nil || !fresh {
		t.Errorf("the topic is gone: %v", err)
	}
	if _, err := again.Restore(ctx, []byte{9}, sink.Same); !permanent(err) {
		t.Errorf("a state of another version: %v", err)
	}
}

// D9: while no broker answers, the state waits and the status says why.
func TestRestoreWaits(t *testing.T) {
	const addr = "127.0.0.1:1"
	s := newSink(t, Options{Brokers: []string{addr}, Delivery: Sequenced, Deployment: "test", Destination: "shop", Sink: "out"})
	ctx, cancel := context.WithCancel(ctxFor(t, patience))
	done := make(chan error, 1)
	go func() {
		_, err := s.Restore(ctx, nil, sink.Same)
		done <- err
	}()
	for s.Status().Err == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.Status().Err; !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Status().Err; err != nil {
		t.Error(err)
	}
}

// Other writers are walked over; what they wrote is never taken for ours.
func TestOthersWriteToo(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
	other, err := kgo.NewClient(kgo.SeedBrokers(cl.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const total = 3000
	if err := replays(t, Options{Brokers: cl.ListenAddrs(), BatchBytes: 2000}, "shop", 2, total, 7, func(rnd *rand.Rand) {
		for range rnd.IntN(4) {
			if err := other.ProduceSync(ctxFor(t, patience), &kgo.Record{Topic: "shop", Partition: int32(rnd.IntN(2)), Value: []byte("other")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	var ours []*kgo.Record
	for _, r := range stored(t, cl, "shop", 2) {
		if string(r.Value) != "other" {
			ours = append(ours, r)
		}
	}
	verify(t, ours, total)
}

// A log that was emptied tells by its offsets, unless others wrote there.
func TestDeletedRecords(t *testing.T) {
	for _, others := range []bool{false, true} {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
		s := newSequenced(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
		if err := firstError(t, s, "shop", 1, 0, 10); err != nil {
			t.Fatal(err)
		}
		if others {
			other, err := kgo.NewClient(kgo.SeedBrokers(cl.ListenAddrs()...))
			if err == nil {
				err = other.ProduceSync(ctxFor(t, patience), &kgo.Record{Topic: "shop", Value: []byte("other")}).FirstErr()
				other.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := firstError(t, s, "shop", 1, 10, 1); err != nil { // sees it
				t.Fatal(err)
			}
		}
		s.Acknowledge(3)
		state := s.AppendState(nil)
		withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
			ends, err := c.ListEndOffsets(ctx, "shop")
			if err == nil {
				_, err = c.DeleteRecords(ctx, ends.Offsets())
			}
			return err
		})
		s = newSequenced(t, Options{Brokers: cl.ListenAddrs()}, state, sink.Same)
		err := firstError(t, s, "shop", 1, 3, 20)
		if others {
			if !errors.Is(err, ErrUnknowable) || !permanent(err) {
				t.Errorf("others write: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		recs := readPartition(t, cl.ListenAddrs(), "shop", 0)
		if len(recs) != 13 || string(recs[0].Value) != "10" {
			t.Errorf("%d records, the first %q", len(recs), recs[0].Value)
		}
	}
}

// I5: a life goes on with the partitions that a topic had.
func TestMorePartitions(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "shop"))
	o := Options{Brokers: cl.ListenAddrs(), MetadataInterval: 20 * time.Millisecond}
	s := newSequenced(t, o, nil, sink.Same)
	if err := firstError(t, s, "shop", 3, 0, 30); err != nil {
		t.Fatal(err)
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		_, err := c.UpdatePartitions(ctx, 5, "shop")
		return err
	})
	time.Sleep(60 * time.Millisecond)
	if err := firstError(t, s, "shop", 3, 30, 30); err != nil {
		t.Fatal(err)
	}
	s.Acknowledge(s.Mark())
	s2 := newSequenced(t, o, s.AppendState(nil), sink.Same)
	if n, err := s2.Partitions(ctxFor(t, patience), "shop"); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if err := firstError(t, s2, "shop", 3, 60, 30); err != nil {
		t.Fatal(err)
	}
	verify(t, stored(t, cl, "shop", 5), 90)
	s2.Acknowledge(s2.Mark())
	s3 := newSequenced(t, o, s2.AppendState(nil), sink.Changed)
	if n, err := s3.Partitions(ctxFor(t, patience), "shop"); n != 5 || err != nil {
		t.Fatal(n, err)
	}
}

func TestLastMark(t *testing.T) {
	var f fates
	msgs := numbered(&f, "shop", 1, 5, 40)
	for i := range msgs {
		if i%2 == 1 {
			msgs[i].Headers = append(msgs[i].Headers, sink.Header{Name: "sub", Value: []byte("3")})
		}
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c := mustCompressor(t, name, 0)
		for n := 1; n <= len(msgs); n++ {
			raw, _, err := appendBatch(nil, batchParams{}, entriesOf(msgs[:n]), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			seq, sub, ok, err := lastMark(raw)
			want := uint16(0)
			if n%2 == 0 {
				want = 3
			}
			if err != nil || !ok || seq != int64(4+n) || sub != want {
				t.Fatalf("%s: seq %d.%d, %t, %v", name, seq, sub, ok, err)
			}
			if n < 20 {
				for cut := range raw {
					lastMark(raw[:cut]) //nolint:errcheck // must not panic
				}
			}
		}
		c.close()
	}
	msgs[0].Headers = nil
	raw, _, err := appendBatch(nil, batchParams{}, entriesOf(msgs[:1]), mustCompressor(t, "none", 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := lastMark(raw); ok || err != nil {
		t.Errorf("without headers: %t, %v", ok, err)
	}
}

func FuzzFetch(f *testing.F) {
	var fs fates
	c := mustCompressor(f, "none", 0)
	raw, _, err := appendBatch(nil, batchParams{producerID: 4}, entriesOf(numbered(&fs, "shop", 1, 0, 3)), c, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(append(raw, raw[:70]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseFetch(data, "shop", 0) //nolint:errcheck // must not panic
		batches, err := parseBatches(data)
		if err != nil {
			return
		}
		for _, b := range batches {
			if b.raw != nil && b.raw[batchAttrAt+1]&7 == 0 {
				lastMark(b.raw) //nolint:errcheck // must not panic
			}
		}
	})
}
