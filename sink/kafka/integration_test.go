//go:build integration

package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

func TestConformance(t *testing.T) {
	k := testenv.NewKafka(t, 1)
	for _, o := range []Options{{Delivery: AtLeastOnce}, {Delivery: Sequenced, RequestsInFlight: 3}, {Delivery: Transactional, RequestsInFlight: 3, Topics: Topics{Create: true, ReplicationFactor: 1}}} {
		t.Run(o.Delivery, func(t *testing.T) {
			o := o
			o.RequestTimeout = 5 * time.Second
			h := harness(k.Bootstrap, o)
			h.Stall = func(t testing.TB) func() {
				k.Pause(1)
				return func() { k.Resume(1) }
			}
			sinktest.Run(t, h)
		})
	}
}

// Every compression is read back whole by another client, which checks the CRCs.
func TestCompressions(t *testing.T) {
	k := testenv.Kafka(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			s := newSink(t, Options{Brokers: k.Bootstrap, Compression: codec, Topics: Topics{Create: true, Partitions: 3, ReplicationFactor: 1}})
			ctx := ctxFor(t, patience)
			topic := testenv.Name(t)
			if n, err := s.Partitions(ctx, topic); n != 3 || err != nil {
				t.Fatalf("Partitions = %d, %v", n, err)
			}
			var f fates
			const total = 5000
			if _, err := s.Publish(ctx, numbered(&f, topic, 3, 0, total)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			verify(t, readAll(t, k.Bootstrap, topic, total), total)
		})
	}
}

// A compressible message above the limit passes, one that is not is named.
func TestLargeMessages(t *testing.T) {
	k := testenv.Kafka(t)
	ctx := ctxFor(t, patience)
	topic := k.Topic(2) // all goes to the first partition
	s := newSink(t, Options{Brokers: k.Bootstrap, Compression: "zstd"})
	if _, err := s.Partitions(ctx, topic); err != nil {
		t.Fatal(err)
	}
	if l := s.topics[topic].limit; l != 1048588 {
		t.Errorf("limit %d", l)
	}
	var f fates
	msgs := numbered(&f, topic, 1, 0, 3)
	msgs[1].Value = []byte(strings.Repeat("compressible ", 400_000))
	if _, err := s.Publish(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := f.count(); ok != 3 {
		t.Fatalf("errors %v", errs)
	}
	for _, size := range []int{1_100_000, 110 << 20} { // the second one is above what a broker reads
		var g fates
		msgs = numbered(&g, topic, 1, 3, 1)
		msgs[0].Value = make([]byte, size)
		rand.NewChaCha8([32]byte{}).Read(msgs[0].Value) //nolint:errcheck // cannot fail
		if _, err := s.Publish(ctx, msgs); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		err := g.of[3]
		most := "1048588"
		if size > maxBatchBytes {
			most = fmt.Sprint(maxBatchBytes)
		}
		if err == nil || !strings.Contains(err.Error(), most) || !strings.Contains(err.Error(), topic) {
			t.Errorf("error %v", err)
		}
		if err := s.Reset(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// What the error asks for mends it, without a restart.
	if err := limit(ctx, k, topic, 2097152, 1_100_000); err != nil {
		t.Fatal(err)
	}
	var g fates
	msgs = numbered(&g, topic, 1, 3, 1)
	msgs[0].Value = make([]byte, 1_100_000)
	rand.NewChaCha8([32]byte{}).Read(msgs[0].Value) //nolint:errcheck // cannot fail
	if _, err := s.Publish(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := g.count(); ok != 1 {
		t.Errorf("errors %v", errs)
	}
	// Lowered below what batches are made of: they are halved.
	if err := limit(ctx, k, topic, 3000, 5000); err != nil {
		t.Fatal(err)
	}
	var h fates
	if _, err := s.Publish(ctx, numbered(&h, topic, 1, 4, 3000)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := h.count(); ok != 3000 {
		t.Errorf("%d done, errors %v", ok, errs)
	}
	stored := readPartition(t, k.Bootstrap, topic, 0)
	if len(stored) != 3004 || string(stored[3003].Value) != "3003" || string(stored[4].Value) != "4" {
		t.Errorf("%d stored", len(stored))
	}
}

// limit sets a topic's largest batch and returns when its broker goes by it, which is a moment after it tells so: when it takes a record of
// probe bytes in the topic's second partition, or takes it no more.
func limit(ctx context.Context, k *testenv.KafkaCluster, topic string, bytes, probe int) error {
	value := strconv.Itoa(bytes)
	r, err := k.Admin().AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, topic)
	if err == nil {
		err = r[0].Err
	}
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.ProducerBatchMaxBytes(4<<20))
	if err != nil {
		return err
	}
	defer cl.Close()
	large := &kgo.Record{Topic: topic, Partition: 1, Value: make([]byte, probe)}
	rand.NewChaCha8([32]byte{}).Read(large.Value) //nolint:errcheck // cannot fail
	for {
		err := cl.ProduceSync(ctx, large).FirstErr()
		if err != nil && !errors.Is(err, kerr.MessageTooLarge) {
			return err
		}
		if (err == nil) == (probe < bytes) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // the other partition is told in the same breath
	return nil
}

// I4, I7: leaders that move, brokers that are killed, frozen and restarted: in one
// session everything is stored once and in order.
func TestThreeBrokers(t *testing.T) {
	k := testenv.NewKafka(t, 3)
	for _, inflight := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d in flight", inflight), func(t *testing.T) {
			topic := k.Topic(6)
			s := newSink(t, Options{Brokers: k.Bootstrap, RequestsInFlight: inflight, Compression: "lz4"})
			ctx := ctxFor(t, 10*time.Minute)
			if _, err := s.Partitions(ctx, topic); err != nil {
				t.Fatal(err)
			}
			var f fates
			stop := make(chan struct{})
			var total int
			done := make(chan error, 1)
			go func() {
				defer close(done)
				rnd := rand.New(rand.NewPCG(3, 4))
				for {
					select {
					case <-stop:
						return
					default:
					}
					n := 1 + rnd.IntN(100)
					if _, err := s.Publish(ctx, numbered(&f, topic, 6, total, n)); err != nil {
						done <- err
						return
					}
					total += n
					time.Sleep(time.Duration(2+rnd.IntN(20)) * time.Millisecond)
				}
			}()
			check := func(what string) {
				t.Helper()
				before, _ := f.count()
				start := time.Now()
				for {
					if ok, errs := f.count(); len(errs) > 0 {
						t.Fatalf("%s: %v", what, errs[0])
					} else if ok > before+500 {
						break
					}
					if ctx.Err() != nil {
						t.Fatalf("%s: no progress: %+v", what, s.Status())
					}
					time.Sleep(time.Millisecond)
				}
				t.Logf("%s: went on after %v, %d retries", what, time.Since(start).Round(time.Millisecond), s.Status().Retries)
			}
			check("start")
			for p := range int32(6) {
				leader := k.Leader(topic, p)
				k.MoveLeader(topic, p, leader%3+1)
			}
			check("leaders moved")
			k.Kill(2)
			check("broker 2 killed")
			k.Restart(2)
			check("broker 2 restarted")
			k.Pause(3)
			check("broker 3 frozen")
			k.Resume(3)
			check("broker 3 thawed")
			k.Restart(1)
			check("broker 1 restarted")
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatalf("%v: %+v", err, s.Status())
			}
			if ok, errs := f.count(); ok != total {
				t.Fatalf("%d of %d done, errors %v", ok, total, errs)
			}
			verify(t, readAll(t, k.Bootstrap, topic, total), total)
		})
	}
}

// A single broker that dies and comes back: everything waits for it.
func TestOneBrokerKilled(t *testing.T) {
	k := testenv.NewKafka(t, 1)
	topic := k.Topic(3)
	s := newSink(t, Options{Brokers: k.Bootstrap, RequestsInFlight: 2})
	ctx := ctxFor(t, 10*time.Minute)
	if _, err := s.Partitions(ctx, topic); err != nil {
		t.Fatal(err)
	}
	var f fates
	var total atomic.Int64
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := int(total.Load())
			if _, err := s.Publish(ctx, numbered(&f, topic, 3, n, 50)); err != nil {
				done <- err
				return
			}
			total.Add(50)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for range 3 {
		before := total.Load()
		for total.Load() < before+1000 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		k.Kill(1)
		for s.Status().Err == nil && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		k.Restart(1)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatalf("%v: %+v", err, s.Status())
	}
	n := int(total.Load())
	if ok, errs := f.count(); ok != n {
		t.Fatalf("%d of %d done, errors %v", ok, n, errs)
	}
	healed(t, s)
	verify(t, readAll(t, k.Bootstrap, topic, n), n)
}

// I7: a coordinator that takes over from one that died before it had noted the end of a transaction ends it once more. The
// second marker does not hide the cursor.
func TestMarkerTwice(t *testing.T) {
	k := testenv.Kafka(t)
	name := testenv.Name(t)
	o := Options{Brokers: k.Bootstrap, Delivery: Transactional, Deployment: "test", Destination: name, Sink: "out", Topics: Topics{Create: true, ReplicationFactor: 1}}
	s := newSink(t, o)
	ctx := ctxFor(t, patience)
	if _, err := s.Restore(ctx, nil, sink.Same); err != nil {
		t.Fatal(err)
	}
	if err := firstError(t, s, name, 1, 0, 10); err != nil {
		t.Fatal(err)
	}
	s.Acknowledge(s.Mark())
	state := s.AppendState(nil)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}

	c, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	txns, err := kadm.NewClient(c).DescribeTransactions(ctx, s.transactionalID())
	if err != nil {
		t.Fatal(err)
	}
	txn := txns[s.transactionalID()]
	topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	topic.Topic, topic.Partitions = s.cursorTopic(), []int32{0}
	marker := kmsg.NewWriteTxnMarkersRequestMarker()
	marker.ProducerID, marker.ProducerEpoch, marker.Committed, marker.Topics = txn.ProducerID, txn.ProducerEpoch, true, []kmsg.WriteTxnMarkersRequestMarkerTopic{topic}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{marker}
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(res.Markers[0].Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Fatal(err)
	}

	s = newSink(t, o)
	if fresh, err := s.Restore(ctx, state, sink.Same); err != nil || fresh {
		t.Fatal(fresh, err)
	}
	if err := firstError(t, s, name, 1, 10, 10); err != nil {
		t.Fatal(err)
	}
	verify(t, committed(t, k.Bootstrap, name, 1), 20)
}

// TLS, SASL and rights on a real broker.
func TestSecurity(t *testing.T) {
	k := testenv.NewSecureKafka(t,
		"connections.max.reauth.ms=10000",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS", // the listeners without SASL
	)
	ctx := ctxFor(t, 10*time.Minute)
	admin := k.Admin()
	if _, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "eve", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "secret-e"}}); err != nil {
		t.Fatal(err)
	}
	allow := func(user, topic string, op kadm.ACLOperation) {
		t.Helper()
		if _, err := admin.CreateACLs(ctx, kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:"+user).AllowHosts("*").Operations(op)); err != nil {
			t.Fatal(err)
		}
	}
	writable := func() string {
		t.Helper()
		topic := k.Topic(2)
		allow(k.User, topic, kadm.OpWrite)
		return topic
	}
	topic := writable()
	allow("eve", topic, kadm.OpDescribe)
	ca, err := os.ReadFile(k.CA)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool()}
	conf.RootCAs.AppendCertsFromPEM(ca)
	t.Run("logins", func(t *testing.T) {
		for _, c := range []struct {
			addr  string
			tls   *tls.Config
			mech  string
			lasts time.Duration // 13 s is longer than a connection lives without authenticating again
		}{
			{k.TLS, conf, "", 0}, {k.SASL, nil, "plain", 13 * time.Second}, {k.SASL, nil, "scram-sha-512", 0},
			{k.SASLTLS, conf, "plain", 0}, {k.SASLTLS, conf, "scram-sha-256", 0}, {k.SASLTLS, conf, "scram-sha-512", 13 * time.Second},
		} {
			topics := []string{writable(), writable(), writable()}
			t.Run(fmt.Sprintf("TLS %v %s", c.tls != nil, c.mech), func(t *testing.T) {
				t.Parallel()
				o := Options{Brokers: []string{c.addr}, TLS: c.tls}
				if c.mech != "" {
					o.SASL = &SASL{c.mech, k.User, k.Password}
				}
				// A busy broker, too, makes the sink try again, but not each time.
				for i, topic := range topics {
					s := newSink(t, o)
					if n, err := s.Partitions(ctx, topic); n != 2 || err != nil {
						t.Fatalf("Partitions = %d, %v", n, err)
					}
					var f fates
					total := 0
					publish := func() {
						t.Helper()
						if _, err := s.Publish(ctx, numbered(&f, topic, 2, total, 20)); err != nil {
							t.Fatal(err)
						}
						total += 20
						if err := s.Flush(ctx); err != nil {
							t.Fatal(err)
						}
					}
					publish()
					retries := s.Status().Retries // of the first steps on a fresh broker
					for start := time.Now(); time.Since(start) < c.lasts; time.Sleep(50 * time.Millisecond) {
						publish()
					}
					publish()
					if _, errs := f.count(); len(errs) > 0 {
						t.Errorf("errors %v", errs)
					}
					if found := s.CheckTopics(ctx, topic); hasError(found) {
						t.Errorf("findings %+v", found)
					}
					verify(t, readAll(t, k.Bootstrap, topic, total), total)
					st := s.Status()
					if st.Retries == retries {
						break
					}
					if i == len(topics)-1 {
						t.Errorf("the broker cuts the connection each time: %+v", st)
					}
				}
			})
		}
	})
	t.Run("no right to write", func(t *testing.T) {
		s := newSink(t, Options{Brokers: []string{k.SASL}, SASL: &SASL{"scram-sha-512", "eve", "secret-e"}})
		found := fmt.Sprintf("%+v", s.CheckTopics(ctx, topic, "unseen"))
		for _, part := range []string{"may not write", "producer id", "kafka-acls.sh", "topic unseen"} {
			if !strings.Contains(found, part) {
				t.Errorf("%q is not in %s", part, found)
			}
		}
		var f fates
		_, err := s.Publish(ctx, numbered(&f, topic, 2, 0, 1))
		for err == nil && ctx.Err() == nil {
			_, err = s.Publish(ctx, numbered(&f, topic, 2, 0, 1))
		}
		if !strings.Contains(err.Error(), "kafka-acls.sh") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		s := newSink(t, Options{Brokers: []string{k.SASLTLS}, TLS: conf, SASL: &SASL{"scram-sha-512", k.User, "wrong-word"}})
		found := s.Check(ctx)
		if !hasError(found) || strings.Contains(fmt.Sprint(found), "wrong-word") || !strings.Contains(found[0].What, "refuses the authentication") {
			t.Errorf("findings %+v", found)
		}
	})
	for name, addr := range map[string]string{"no TLS": k.TLS, "no SASL": k.SASL} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, Options{Brokers: []string{addr}, RequestTimeout: 6 * time.Second})
			found := s.Check(ctx)
			if !hasError(found) || !strings.Contains(found[0].What, strings.Fields(name)[1]) {
				t.Errorf("findings %+v", found)
			}
		})
	}
}

func TestRealCheck(t *testing.T) {
	k := testenv.Kafka(t)
	topic := k.Topic(2, "retention.ms=60000", "max.message.bytes=20000")
	s := newSink(t, Options{Brokers: k.Bootstrap, Topics: Topics{Create: true, Partitions: 2, ReplicationFactor: 5}})
	found := fmt.Sprintf("%+v", s.CheckTopics(ctxFor(t, patience), topic, "not_there_yet"))
	for _, part := range []string{"replication factor is 1", "after 1m0s", "max.message.bytes is 20000", "topic not_there_yet", "eplication factor"} {
		if !strings.Contains(found, part) {
			t.Errorf("%q is not in %s", part, found)
		}
	}
	tx := newSink(t, Options{Brokers: k.Bootstrap, Delivery: Transactional, Deployment: "test", Destination: "shop", Sink: "out", Topics: Topics{Create: true}})
	all := tx.CheckTopics(ctxFor(t, patience), topic)
	found = fmt.Sprintf("%+v", all)
	for _, part := range []string{"on brokers of Kafka 4.3 or 4.4", "replication factor 1, from the brokers' default", tx.cursorTopic(), "add the others"} {
		if !strings.Contains(found, part) {
			t.Errorf("transactional: %q is not in %s", part, found)
		}
	}
	if strings.Count(found, "delivery: transactional with replication factor 1 and min.insync.replicas 1") != 2 || hasError(all) {
		t.Errorf("transactional: %s", found)
	}
	if _, err := s.Partitions(ctxFor(t, patience), "not_there_yet"); err == nil || !strings.Contains(err.Error(), "topics settings") {
		t.Errorf("error %v", err)
	}
}

// TestTopicsThatKafkaTakesForOne: beside shop_x.t there can be no shop.x.t. It is told with what mends it, which is no command that makes the topic by hand.
func TestTopicsThatKafkaTakesForOne(t *testing.T) {
	k := testenv.Kafka(t)
	ctx := ctxFor(t, patience)
	s := newSink(t, Options{Brokers: k.Bootstrap, Topics: Topics{Create: true, ReplicationFactor: 1}})
	one := testenv.Name(t) + "_x.t"
	other := strings.ReplaceAll(one, "_", ".")
	for _, name := range []string{one, strings.ToUpper(one)} { // Kafka tells these apart
		if _, err := s.Partitions(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Partitions(ctx, other); err == nil || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), one) || !strings.Contains(err.Error(), "change the sink's topic template") {
		t.Errorf("error %v", err)
	}
	told := false
	for _, f := range s.CheckTopics(ctx, other) {
		if f.Where != "topic "+other {
			continue
		}
		told = true
		if f.Severity != sink.SeverityError || !strings.Contains(f.What, one) || !strings.Contains(f.Remedy, "change the sink's topic template") || strings.Contains(f.Remedy, "--create") {
			t.Errorf("%+v", f)
		}
	}
	if !told {
		t.Error("a check tells nothing of it")
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

type completions struct{ ok, bad atomic.Int64 }

func (c *completions) MessageDone(_ *sink.Message, err error) {
	if err != nil {
		c.bad.Add(1)
		return
	}
	c.ok.Add(1)
}

// BenchmarkBroker publishes 1 M messages of 250 B value, 16 B key and three small
// headers a round. The CPU is that of this process.
func BenchmarkBroker(b *testing.B) {
	k := testenv.Kafka(b)
	for _, c := range [][2]string{{AtLeastOnce, "none"}, {Sequenced, "none"}, {Transactional, "none"}, {AtLeastOnce, "lz4"}, {Sequenced, "lz4"}, {AtLeastOnce, "snappy"}, {AtLeastOnce, "zstd"}, {AtLeastOnce, "gzip"}} {
		b.Run(c[0]+"/"+c[1], func(b *testing.B) {
			const total, parts = 1_000_000, 6
			s := either(b, Options{Brokers: k.Bootstrap, Delivery: c[0], Compression: c[1], Topics: Topics{Create: true, Partitions: parts, ReplicationFactor: 1, Configs: map[string]string{"retention.bytes": "50000000", "segment.bytes": "50000000"}}})
			ctx := ctxFor(b, 5*time.Minute)
			topic := testenv.Name(b)
			if _, err := s.Partitions(ctx, topic); err != nil {
				b.Fatal(err)
			}
			var c completions
			var cpu, wall, mallocs float64
			for b.Loop() {
				b.StopTimer()
				msgs := benchMessages(&c, topic, parts, total)
				runtime.GC()
				var m0, m1 runtime.MemStats
				runtime.ReadMemStats(&m0)
				c0, t0 := cpuSeconds(), time.Now()
				b.StartTimer()
				for i := 0; i < len(msgs); i += 500 {
					if _, err := s.Publish(ctx, msgs[i:min(i+500, len(msgs))]); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Flush(ctx); err != nil {
					b.Fatal(err)
				}
				if s.KeepsState() {
					s.Acknowledge(s.Mark())
				}
				b.StopTimer()
				wall += time.Since(t0).Seconds()
				cpu += cpuSeconds() - c0
				runtime.ReadMemStats(&m1)
				mallocs += float64(m1.Mallocs - m0.Mallocs)
				b.StartTimer()
			}
			if c.bad.Load() > 0 {
				b.Fatal("messages failed")
			}
			rows := float64(c.ok.Load())
			b.ReportMetric(rows/wall/1000, "krows/s")
			b.ReportMetric(cpu/rows*1e6, "cpu_s/Mrow")
			b.ReportMetric(mallocs/rows, "allocs/row")
		})
	}
}

// either returns a sink with a new life, or one that needs none.
func either(b *testing.B, o Options) *Sink {
	if o.Delivery != AtLeastOnce {
		return newStateful(b, o, nil, sink.Same)
	}
	return newSink(b, o)
}

type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) MessageDone(m *sink.Message, err error) {
	d := time.Duration(time.Now().UnixNano() - m.Time)
	l.mu.Lock()
	l.all = append(l.all, d)
	l.mu.Unlock()
}

// BenchmarkLatency measures the time from Publish to done, at 2,000 messages a second.
func BenchmarkLatency(b *testing.B) {
	k := testenv.Kafka(b)
	for _, delivery := range []string{AtLeastOnce, Sequenced, Transactional} {
		b.Run(delivery, func(b *testing.B) {
			latency(b, either(b, Options{Brokers: k.Bootstrap, Delivery: delivery, Topics: Topics{Create: true, Partitions: 6, ReplicationFactor: 1}}))
		})
	}
}

func latency(b *testing.B, s *Sink) {
	ctx := ctxFor(b, 5*time.Minute)
	topic := testenv.Name(b)
	if _, err := s.Partitions(ctx, topic); err != nil {
		b.Fatal(err)
	}
	var l latencies
	msgs := benchMessages(&l, topic, 6, 10_000)
	for b.Loop() {
		msgs := benchMessages(&l, topic, 6, len(msgs))
		tick := time.NewTicker(500 * time.Microsecond)
		for i := range msgs {
			<-tick.C
			msgs[i].Time = time.Now().UnixNano() // here only, the clock of this test
			if _, err := s.Publish(ctx, msgs[i:i+1]); err != nil {
				b.Fatal(err)
			}
		}
		tick.Stop()
		if err := s.Flush(ctx); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(l.all)
	b.ReportMetric(float64(l.all[len(l.all)/2].Microseconds())/1000, "p50_ms")
	b.ReportMetric(float64(l.all[len(l.all)*99/100].Microseconds())/1000, "p99_ms")
}

// lanesVariable is the number of partitions of BenchmarkManyLanes.
const lanesVariable = "BINLOGMQ_KAFKA_LANES"

// BenchmarkManyLanes measures a start beside a broker that holds many partitions of ours: one message to each, after each lane
// was synchronised with the log. That is the first start of the life, which finds nothing; one whose state knows all that is stored; and
// one after a kill, whose state knows of none of two messages in each partition, which are sent again.
func BenchmarkManyLanes(b *testing.B) {
	partitions := 2000
	if n, err := strconv.Atoi(os.Getenv(lanesVariable)); err == nil {
		partitions = n
	}
	k := testenv.NewKafka(b, 1, "log.index.size.max.bytes=4096")
	ctx := ctxFor(b, 30*time.Minute)
	const atOnce = 5000 // the controller makes no more than 10,000 records of a request
	topic := k.Topic(min(partitions, atOnce))
	for made := atOnce; made < partitions; made += atOnce {
		if _, err := k.Admin().CreatePartitions(ctx, min(atOnce, partitions-made), topic); err != nil {
			b.Fatal(err)
		}
	}
	for k.Leader(topic, int32(partitions-1)) < 0 {
		time.Sleep(100 * time.Millisecond)
	}
	start := func(what string, state []byte, first, n int) (before, after []byte) {
		b.Helper()
		var m0, m1 runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m0)
		begin, cpu := time.Now(), cpuSeconds()
		s := newStateful(b, Options{Brokers: k.Bootstrap, Delivery: Sequenced}, state, sink.Same)
		if _, err := s.Partitions(ctx, topic); err != nil {
			b.Fatal(err)
		}
		before = s.AppendState(nil)
		var c completions
		msgs := numbered(&c, topic, int32(partitions), first, n)
		for i := 0; i < len(msgs); i += 500 {
			if _, err := s.Publish(ctx, msgs[i:min(i+500, len(msgs))]); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Flush(ctx); err != nil {
			b.Fatal(err)
		}
		took, used := time.Since(begin), cpuSeconds()-cpu
		if c.bad.Load() > 0 || c.ok.Load() != int64(n) {
			b.Fatal(s.Status().Err)
		}
		runtime.GC()
		runtime.ReadMemStats(&m1)
		s.Acknowledge(s.Mark())
		after = s.AppendState(nil)
		b.ReportMetric(took.Seconds(), what+"_s")
		b.ReportMetric(used, what+"_cpu_s")
		b.ReportMetric(float64(int64(m1.HeapAlloc)-int64(m0.HeapAlloc))/float64(partitions), what+"_heap_B/lane")
		if err := s.Close(ctx); err != nil {
			b.Fatal(err)
		}
		return before, after
	}
	for b.Loop() {
		none, state := start("first", nil, 0, partitions)
		_, state = start("again", state, partitions, partitions)
		start("killed", none, 0, 2*partitions)
		b.ReportMetric(float64(len(state)), "state_B")
	}
}
