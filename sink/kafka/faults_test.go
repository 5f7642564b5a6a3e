package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/sink"
)

type deadConn struct{ net.Conn }

func (deadConn) Close() error                     { return nil }
func (deadConn) SetReadDeadline(time.Time) error  { return nil }
func (deadConn) SetWriteDeadline(time.Time) error { return nil }
func (deadConn) SetDeadline(time.Time) error      { return nil }

// cutter makes a fake cluster's connections break: every nth write of an answer
// is swallowed and the connection closed, so that what was stored is not known.
type cutter struct {
	every atomic.Int64 // 0: never
	n     atomic.Int64
	cuts  atomic.Int64
}

func (c *cutter) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &cutListener{l, c}, err
}

type cutListener struct {
	net.Listener
	c *cutter
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, l.c}, nil
}

type cutConn struct {
	net.Conn
	c *cutter
}

func (c *cutConn) Write(b []byte) (int, error) {
	if n := c.c.every.Load(); n > 0 && c.c.n.Add(1)%n == 0 {
		c.c.cuts.Add(1)
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// I4, I7: whatever goes wrong on the way, within a session each message is stored
// once, in order, and reported done.
func TestFaultsLoseNothing(t *testing.T) {
	produce := []kmsg.Key{kmsg.Produce}
	for _, c := range []struct {
		name   string
		faults []kfake.Fault
		early  bool // inject before the sink exists
		moves  bool
		cut    int64
	}{
		{name: "acknowledgement lost", faults: []kfake.Fault{{Keys: produce, Err: kerr.NotEnoughReplicasAfterAppend, Count: 30}}},
		{name: "stored but timed out", faults: []kfake.Fault{{Keys: produce, Err: kerr.RequestTimedOut, Count: 8}}},
		{name: "not leader", faults: []kfake.Fault{{Keys: produce, Err: kerr.NotLeaderForPartition, Count: 20}}},
		{name: "not leader on one partition", faults: []kfake.Fault{{Keys: produce, Topic: "shop", Partitions: []int32{2}, Err: kerr.NotLeaderForPartition, Count: 7}}},
		{name: "not enough replicas", faults: []kfake.Fault{{Keys: produce, Err: kerr.NotEnoughReplicas, Count: 40}}},
		{name: "topic unknown for a while", faults: []kfake.Fault{{Keys: produce, Err: kerr.UnknownTopicOrPartition, Count: 6}, {Keys: []kmsg.Key{kmsg.Metadata}, Topic: "shop", Err: kerr.UnknownTopicOrPartition, Count: 3}}},
		{name: "disk of a broker", faults: []kfake.Fault{{Keys: produce, Nodes: []int32{1}, Err: kerr.KafkaStorageError, Count: 5}}},
		{name: "coordinator loading", early: true, faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 4}}},
		{name: "all at once", moves: true, cut: 40, faults: []kfake.Fault{
			{Keys: produce, Err: kerr.NotEnoughReplicasAfterAppend, Count: 10}, {Keys: produce, Err: kerr.NotEnoughReplicas, Count: 10}, {Keys: produce, Err: kerr.NotLeaderForPartition, Count: 10}}},
		{name: "leaders move", moves: true},
		{name: "connections cut", cut: 9},
	} {
		for _, inflight := range []int{1, 5, -1, -5} {
			sequenced := inflight < 0
			inflight = max(inflight, -inflight)
			t.Run(fmt.Sprintf("%s/%d in flight/sequenced %t", c.name, inflight, sequenced), func(t *testing.T) {
				t.Parallel()
				var cut cutter
				cl := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "shop"), kfake.ListenFn(cut.listen))
				for p := range int32(6) { // each broker leads two
					if err := cl.MoveTopicPartition("shop", p, p%3); err != nil {
						t.Fatal(err)
					}
				}
				var faults *kfake.FaultHandle
				if c.early {
					faults = cl.Fault(c.faults...)
				}
				o := Options{Brokers: cl.ListenAddrs(), RequestsInFlight: inflight, BatchBytes: 2000, RequestBytes: 4000}
				var s *Sink
				if sequenced {
					s = newSequenced(t, o, nil, sink.Same)
				} else {
					s = newSink(t, o)
				}
				ctx := ctxFor(t, patience)
				if _, err := s.Partitions(ctx, "shop"); err != nil {
					t.Fatal(err)
				}
				if c.faults != nil && !c.early {
					faults = cl.Fault(c.faults...)
				}
				cut.every.Store(c.cut)
				const total = 6000
				var f fates
				rnd := rand.New(rand.NewPCG(1, uint64(inflight)))
				for i := 0; i < total; {
					n := min(1+rnd.IntN(200), total-i)
					if k, err := s.Publish(ctx, numbered(&f, "shop", 6, i, n)); err != nil || k != n {
						t.Fatalf("Publish = %d, %v", k, err)
					}
					i += n
					if c.moves && rnd.IntN(3) == 0 {
						cl.ShufflePartitionLeaders()
					}
					time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
				}
				if err := s.Flush(ctx); err != nil {
					t.Fatalf("%v; %+v", err, s.Status())
				}
				cut.every.Store(0)
				if faults != nil {
					faults.Remove()
				}
				if ok, errs := f.count(); ok != total {
					t.Fatalf("%d done, errors %v", ok, errs)
				}
				healed(t, s)
				if st := s.Status(); (c.faults != nil && !(sequenced && c.early) || c.cut > 0) && st.Retries == 0 {
					t.Errorf("status %+v", st)
				}
				if c.cut > 0 && cut.cuts.Load() == 0 {
					t.Error("no connection was cut")
				}
				verify(t, readAll(t, cl.ListenAddrs(), "shop", total), total)
			})
		}
	}
}

// The first batch on a partition stays alone until it is acknowledged: a broker
// without state takes any sequence (I4).
func TestFirstBatchAlone(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	s := newSink(t, Options{Brokers: cl.ListenAddrs(), RequestsInFlight: 5, BatchBytes: 1024})
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	var first, others atomic.Int64
	cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 5, When: func(r kmsg.Request) bool {
		var b kmsg.RecordBatch
		if err := b.ReadFrom(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records); err != nil {
			t.Error(err)
		}
		if b.FirstSequence == 0 {
			first.Add(1)
		} else if first.Load() <= 5 {
			others.Add(1)
		}
		return b.FirstSequence == 0
	}})
	var f fates
	if _, err := s.Publish(ctx, numbered(&f, "shop", 1, 0, 500)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if first.Load() != 5 || others.Load() != 0 {
		// The fault is gone after 5 hits, and with it the counting.
		t.Errorf("first batch sent and refused %d times, %d others before", first.Load(), others.Load())
	}
	verify(t, readAll(t, cl.ListenAddrs(), "shop", 500), 500)
}

// What cannot be mended by sending again ends the session; Reset begins another.
func TestFatalCodesEndTheSession(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.UnknownProducerID, kerr.ProducerFenced,
		kerr.CorruptMessage, kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.UnsupportedCompressionType,
	} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(4, "shop"))
			s := newSink(t, Options{Brokers: cl.ListenAddrs(), BatchBytes: 1024})
			ctx := ctxFor(t, patience)
			if _, err := s.Partitions(ctx, "shop"); err != nil {
				t.Fatal(err)
			}
			cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop", Partitions: []int32{1}, Err: e})
			var f fates
			n, _ := s.Publish(ctx, numbered(&f, "shop", 4, 0, 2000))
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			ok, errs := f.count()
			if ok+len(errs) != n || len(errs) == 0 {
				t.Fatalf("%d accepted, %d done, %d failed", n, ok, len(errs))
			}
			var code *Error
			if !errors.As(errs[0], &code) || code.Code != e.Code || !strings.Contains(errs[0].Error(), "shop partition 1") {
				t.Errorf("error %v", errs[0])
			}
			if k, err := s.Publish(ctx, numbered(&f, "shop", 4, 0, 1)); k != 0 || err == nil {
				t.Errorf("Publish after the failure = %d, %v", k, err)
			}
			if s.Status().Err == nil {
				t.Error("status shows no error")
			}
			if err := s.Reset(ctx); err != nil {
				t.Fatal(err)
			}
			var g fates
			if k, err := s.Publish(ctx, numbered(&g, "shop", 4, 0, 2000)); k != 2000 || err != nil {
				t.Fatalf("Publish after Reset = %d, %v", k, err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if ok, _ := g.count(); ok != 2000 {
				t.Errorf("%d of 2000 done after Reset", ok)
			}
		})
	}
}

// 46 says that the broker has the batch.
func TestDuplicateIsDone(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	s := newSink(t, Options{Brokers: cl.ListenAddrs()})
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.DuplicateSequenceNumber})
	var f fates
	if _, err := s.Publish(ctx, numbered(&f, "shop", 1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := f.count(); ok != 1 {
		t.Errorf("errors %v", errs)
	}
}

// A batch refused for its size is halved, under the sequences it had.
func TestTooLargeIsHalved(t *testing.T) {
	limit := "3000"
	for _, describe := range []bool{true, false} {
		t.Run(fmt.Sprintf("limit known %v", describe), func(t *testing.T) {
			cl := fakeCluster(t, kfake.NumBrokers(1))
			if err := cl.CreateTopic("shop", 2, map[string]string{"max.message.bytes": limit}); err != nil {
				t.Fatal(err)
			}
			if !describe {
				cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			}
			var sizes, over atomic.Int64
			cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1, When: func(r kmsg.Request) bool {
				for _, p := range r.(*kmsg.ProduceRequest).Topics[0].Partitions {
					sizes.Add(1)
					if len(p.Records) > 3000 {
						over.Add(1)
						return true
					}
				}
				return false
			}})
			s := newSink(t, Options{Brokers: cl.ListenAddrs(), RequestsInFlight: 3})
			ctx := ctxFor(t, patience)
			if _, err := s.Partitions(ctx, "shop"); err != nil {
				t.Fatal(err)
			}
			var f fates
			const total = 3000
			if _, err := s.Publish(ctx, numbered(&f, "shop", 2, 0, total)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if ok, errs := f.count(); ok != total {
				t.Fatalf("%d done, errors %v", ok, errs[:1])
			}
			if describe && over.Load() > 0 || !describe && over.Load() == 0 {
				t.Errorf("%d batches above the limit of %d", over.Load(), sizes.Load())
			}
			verify(t, readAll(t, cl.ListenAddrs(), "shop", total), total)
		})
	}
}

func TestSingleMessageTooLarge(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1))
	if err := cl.CreateTopic("shop", 1, map[string]string{"max.message.bytes": "5000"}); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, Options{Brokers: cl.ListenAddrs()})
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	var f fates
	msgs := numbered(&f, "shop", 1, 0, 10)
	msgs[6].Value = make([]byte, 6000)
	n, _ := s.Publish(ctx, msgs) // fails when the large one has failed by now
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	err := f.of[6]
	if !errors.Is(err, ErrRecordTooLarge) {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{"topic shop", `"key-6"`, "5000", "60", "kafka-configs.sh"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	for i := int64(7); i < int64(n); i++ {
		if f.of[i] == nil {
			t.Errorf("message %d behind the refused one is done", i)
		}
	}
}

func TestTopics(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(3), kfake.DefaultNumPartitions(7))
	ctx := ctxFor(t, patience)
	t.Run("missing", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs()})
		_, err := s.Partitions(ctx, "missing")
		if !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "kafka-topics.sh") || !strings.Contains(err.Error(), "missing") {
			t.Errorf("error %v", err)
		}
		var f fates
		if n, err := s.Publish(ctx, numbered(&f, "missing", 1, 0, 1)); n != 0 || !errors.Is(err, ErrNoTopic) {
			t.Errorf("Publish = %d, %v", n, err)
		}
	})
	t.Run("created", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true, Partitions: 5, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "1234567", "max.message.bytes": "4321"}}})
		n, err := s.Partitions(ctx, "created")
		if n != 5 || err != nil {
			t.Fatalf("Partitions = %d, %v", n, err)
		}
		conf, err := s.describeTopic(ctx, "created")
		if err != nil || conf["retention.ms"] != "1234567" || s.topics["created"].batchBytes != 4321 {
			t.Errorf("settings %v, %v; %+v", conf, err, s.topics["created"])
		}
	})
	t.Run("created by the broker's defaults", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true}})
		if n, err := s.Partitions(ctx, "defaults"); n != 7 || err != nil {
			t.Fatalf("Partitions = %d, %v", n, err)
		}
	})
	t.Run("bad names", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true}})
		for _, name := range []string{"", ".", "..", "a/b", "ü", "a b", strings.Repeat("x", 250)} {
			if _, err := s.Partitions(ctx, name); err == nil || !strings.Contains(err.Error(), "template") {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true}})
		cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed})
		if _, err := s.Partitions(ctx, "forbidden"); err == nil || !strings.Contains(err.Error(), "kafka-acls.sh") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("created by somebody else meanwhile", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true, Partitions: 3}})
		h := cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "created", Err: kerr.UnknownTopicOrPartition, Count: 2})
		defer h.Remove()
		if n, err := s.Partitions(ctx, "created"); n != 5 || err != nil {
			t.Errorf("Partitions = %d, %v", n, err)
		}
	})
	t.Run("no such partition", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs()})
		var f fates
		msgs := numbered(&f, "created", 1, 0, 3)
		msgs[1].Partition = 5
		if n, err := s.Publish(ctx, msgs); n != 1 || err == nil {
			t.Errorf("Publish = %d, %v", n, err)
		}
		if _, errs := f.count(); len(errs) != 1 {
			t.Errorf("errors %v", errs)
		}
	})
}

// I5: partition counts are pinned.
func TestPartitionsChanged(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "shop"))
	s := newSink(t, Options{Brokers: cl.ListenAddrs(), MetadataInterval: 20 * time.Millisecond})
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	var f fates
	if _, err := s.Publish(ctx, numbered(&f, "shop", 3, 0, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		r, err := c.UpdatePartitions(ctx, 5, "shop")
		if err == nil {
			err = r["shop"].Err
		}
		return err
	})
	for ctx.Err() == nil && !errors.Is(s.Status().Err, ErrPartitionsChanged) {
		time.Sleep(5 * time.Millisecond)
	}
	_, err := s.Publish(ctx, numbered(&f, "shop", 3, 10, 1))
	if !errors.Is(err, ErrPartitionsChanged) || !strings.Contains(err.Error(), "from 3 to 5") || !strings.Contains(err.Error(), "shop") {
		t.Fatalf("error %v", err)
	}
	if n, err := s.Partitions(ctx, "shop"); n != 3 || err != nil {
		t.Errorf("Partitions = %d, %v", n, err)
	}
}

// I9: with no broker to be reached Publish blocks at the bound, the status tells
// why, and everything arrives when the broker does.
func TestBrokerComesLate(t *testing.T) {
	port := freePort(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s := newSink(t, Options{Brokers: []string{addr}, MaxInFlightMessages: 100})
	for short := 200 * time.Millisecond; ; short *= 4 { // which a busy machine may need for the first attempt
		_, err := s.Partitions(ctxFor(t, short), "shop")
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), addr) {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || short > patience {
			t.Fatalf("Partitions without a broker: %v", err)
		}
	}
	ctx := ctxFor(t, patience)
	for s.Status().Err == nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if st := s.Status(); !strings.Contains(st.Err.Error(), addr) {
		t.Errorf("status %+v", st)
	}
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.Ports(port), kfake.SeedTopics(2, "shop"))
	if n, err := s.Partitions(ctx, "shop"); n != 2 || err != nil {
		t.Fatalf("Partitions = %d, %v", n, err)
	}
	// No answers for a while.
	var stalled atomic.Bool
	stalled.Store(true)
	cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: func(kmsg.Request) bool { return stalled.Load() }})
	var f fates
	msgs := numbered(&f, "shop", 2, 0, 1000)
	some, cancel := context.WithCancel(ctx)
	defer cancel()
	blocked := make(chan bool)
	go func() {
		defer close(blocked)
		for st := s.Status(); (st.InFlight != 100 || st.Err == nil || st.Retries == 0) && ctx.Err() == nil; st = s.Status() {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	n, err := s.Publish(some, msgs)
	<-blocked
	if n != 100 || !errors.Is(err, context.Canceled) {
		t.Fatalf("Publish = %d, %v; status %+v", n, err, s.Status())
	}
	stalled.Store(false)
	if k, err := s.Publish(ctx, msgs[n:]); k != len(msgs)-n || err != nil {
		t.Fatalf("Publish = %d, %v", k, err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	healed(t, s)
	verify(t, readAll(t, []string{addr}, "shop", 1000), 1000)
}

// Close does not wait for a broker that never answers.
func TestCloseWhilePartitionsWaits(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	thaw, asked := make(chan struct{}), make(chan struct{}, 100)
	defer close(thaw)
	cl.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cl.KeepControl()
		asked <- struct{}{}
		cl.SleepControl(func() { <-thaw })
		return nil, nil, false
	})
	s := newSink(t, Options{Brokers: cl.ListenAddrs(), RequestTimeout: time.Hour})
	done := make(chan error, 1)
	go func() {
		_, err := s.Partitions(context.Background(), "shop")
		done <- err
	}()
	<-asked
	if err := s.Close(ctxFor(t, patience)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errClosed) {
		t.Errorf("Partitions: %v", err)
	}
	if n, err := s.Partitions(context.Background(), "shop"); n != 0 || !errors.Is(err, errClosed) {
		t.Errorf("Partitions after Close = %d, %v", n, err)
	}
	if st := s.Status(); !errors.Is(st.Err, errClosed) {
		t.Errorf("status %+v", st)
	}
}

// A frozen broker is left as soon as another one leads.
func TestFrozenLeader(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "shop"))
	s := newSink(t, Options{Brokers: cl.ListenAddrs(), RequestTimeout: time.Minute, slowAfter: 100 * time.Millisecond})
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	var f fates
	publish := func(first, n int) {
		if _, err := s.Publish(ctx, numbered(&f, "shop", 1, first, n)); err != nil {
			t.Fatal(err)
		}
	}
	publish(0, 10)
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	old := cl.LeaderFor("shop", 0)
	thaw := make(chan struct{})
	defer close(thaw)
	frozen := make(chan struct{}, 100)
	cl.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cl.KeepControl()
		if cl.CurrentNode() != old {
			return nil, nil, false
		}
		frozen <- struct{}{}
		cl.SleepControl(func() { <-thaw })
		return nil, errors.New("frozen"), true
	})
	publish(10, 100)
	<-frozen
	if err := cl.MoveTopicPartition("shop", 0, 1-old); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("moved after %v", time.Since(start).Round(time.Millisecond))
	verify(t, readAll(t, cl.ListenAddrs(), "shop", 110), 110)
}

var _ sink.Sink = (*Sink)(nil)
