package kafka

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/binlogmq/binlogmq/internal/testenv/lockedbuf"
	"github.com/binlogmq/binlogmq/sink"
)

// certificate makes a key and a certificate for 127.0.0.1.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

func roundTripThrough(t *testing.T, o Options, opts ...kgo.Opt) {
	t.Helper()
	s := newSink(t, o)
	ctx := ctxFor(t, patience)
	if _, err := s.Partitions(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	var f fates
	if _, err := s.Publish(ctx, numbered(&f, "shop", 2, 0, 500)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	verify(t, readAll(t, o.Brokers, "shop", 500, opts...), 500)
}

func TestTLSAndSASL(t *testing.T) {
	cert, pool := certificate(t)
	cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "shop"), kfake.EnableSASL(), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}),
		kfake.Superuser("PLAIN", "alice", "secret-p"), kfake.Superuser("SCRAM-SHA-256", "bob", "secret-2"), kfake.Superuser("SCRAM-SHA-512", "carol", "secret-5"))
	conf := &tls.Config{RootCAs: pool}
	for _, c := range []SASL{{"plain", "alice", "secret-p"}, {"scram-sha-256", "bob", "secret-2"}, {"SCRAM-SHA-512", "carol", "secret-5"}} {
		t.Run(c.Mechanism, func(t *testing.T) {
			s := newSink(t, Options{Brokers: cl.ListenAddrs(), TLS: conf, SASL: &c})
			ctx := ctxFor(t, patience)
			if n, err := s.Partitions(ctx, "shop"); n != 2 || err != nil {
				t.Fatalf("Partitions = %d, %v", n, err)
			}
			var f fates
			if _, err := s.Publish(ctx, numbered(&f, "shop", 2, 0, 100)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if ok, errs := f.count(); ok != 100 {
				t.Errorf("%d done, %v", ok, errs)
			}
			if found := s.CheckTopics(ctx, "shop"); hasError(found) {
				t.Errorf("findings %+v", found)
			}
		})
	}
	t.Run("wrong password", func(t *testing.T) {
		var log lockedbuf.Buffer
		for _, c := range []SASL{{"plain", "alice", "wrong-word"}, {"scram-sha-256", "bob", "wrong-word"}, {"scram-sha-512", "nobody", "wrong-word"}} {
			s := newSink(t, Options{Brokers: cl.ListenAddrs(), TLS: conf, SASL: &c, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			found := s.Check(ctxFor(t, patience))
			if !hasError(found) || !strings.Contains(found[0].What, "refuses the authentication") || !strings.Contains(found[0].Remedy, "sasl") {
				t.Errorf("findings %+v", found)
			}
			_, err := s.Partitions(ctxFor(t, 100*time.Millisecond), "shop")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Partitions: %v", err)
			}
			var auth *AuthError
			for ctx := ctxFor(t, patience); !errors.As(s.Status().Err, &auth); time.Sleep(time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatalf("status %+v", s.Status())
				}
			}
			for _, text := range []string{err.Error(), auth.Error(), found[0].What} {
				if strings.Contains(text, "wrong-word") {
					t.Errorf("the password shows: %s", text)
				}
			}
			if err := s.Close(ctxFor(t, patience)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(log.String(), "wrong-word") {
			t.Errorf("the password is logged:\n%s", log.String())
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs()})
		if found := s.Check(ctxFor(t, patience)); !hasError(found) || !strings.Contains(found[0].What, "TLS") && !strings.Contains(found[0].What, "tls") {
			t.Errorf("findings %+v", found)
		}
	})
	t.Run("unknown authority", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), TLS: &tls.Config{}})
		if found := s.Check(ctxFor(t, patience)); !hasError(found) || !strings.Contains(found[0].What, "certificate") {
			t.Errorf("findings %+v", found)
		}
	})
	t.Run("TLS alone", func(t *testing.T) {
		open := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
		roundTripThrough(t, Options{Brokers: open.ListenAddrs(), TLS: conf}, kgo.DialTLSConfig(conf))
	})
	t.Run("PLAIN without TLS", func(t *testing.T) {
		open := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret-p"))
		roundTripThrough(t, Options{Brokers: open.ListenAddrs(), SASL: &SASL{"plain", "alice", "secret-p"}}, kgo.SASL(plain.Auth{User: "alice", Pass: "secret-p"}.AsMechanism()))
	})
}

func hasError(found []sink.Finding) bool {
	for _, f := range found {
		if f.Severity == sink.SeverityError {
			return true
		}
	}
	return false
}

// A server that speaks something else is named as such, and no memory is taken
// by what it says.
func TestNotKafka(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x00\x00\x02ab", "\x00\x00\x00\x00", "\x7f\xff\xff\xff", "\x00\x00\x10\x00short", ""} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Read(make([]byte, 100)) //nolint:errcheck // whatever it is
				c.Write([]byte(answer))   //nolint:errcheck // the other side may be gone
				c.(*net.TCPConn).Close()
			}
		}()
		d := &dialer{clientID: "t", timeout: patience}
		c, err := d.dial(context.Background(), l.Addr().String())
		if err == nil {
			c.Close()
			t.Errorf("%q is taken for Kafka", answer)
		} else if !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("%q: %v", answer, err)
		}
		if strings.HasPrefix(answer, "HTTP") && (err == nil || !strings.Contains(err.Error(), "not Kafka's protocol")) {
			t.Errorf("%q: %v", answer, err)
		}
		l.Close()
		<-done
	}
}

func TestOldBrokerIsRefusedByName(t *testing.T) {
	c := &conn{addr: "b:1"}
	c.versions[produceKey] = versionRange{0, 2, true}
	if _, err := c.version(produceKey, minProduceVersion, maxProduceVersion); err == nil || !strings.Contains(err.Error(), "Produce") {
		t.Errorf("error %v", err)
	}
	c.versions[produceKey] = versionRange{9, 13, true}
	if _, err := c.version(produceKey, minProduceVersion, maxProduceVersion); err == nil {
		t.Error("a broker without our versions is taken")
	}
	c.versions[produceKey] = versionRange{0, 5, true}
	if v, err := c.version(produceKey, minProduceVersion, maxProduceVersion); v != 5 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	if _, err := c.version(protocol.ApiKey(500), 0, 1); err == nil {
		t.Error("an unknown API is taken")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04abcd"))
	f.Add([]byte("HTTP/1.1"))
	f.Add([]byte("\x03\xff\xff\xffabcd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &conn{br: bufio.NewReader(bytes.NewReader(b))}
		frame, err := c.readFrame(nil)
		if err == nil && (len(frame) < 8 || len(frame) != int(binary.BigEndian.Uint32(frame))+4) {
			t.Fatalf("frame %x", frame)
		}
		if cap(frame) > 4*len(b)+64<<10 {
			t.Fatalf("%d bytes taken for %d", cap(frame), len(b))
		}
	})
}

func TestDecodeResponse(t *testing.T) {
	frame := []byte{0, 0, 0, 4, 0, 0, 0, 9}
	if _, err := decodeResponse(frame, protocol.Metadata, 8, 8); err == nil || !strings.Contains(err.Error(), "out of turn") {
		t.Errorf("error %v", err)
	}
	_ = metadata.Response{}
	// An array length that makes the decoder panic.
	bad := append([]byte{0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff)
	if _, err := decodeResponse(bad[:12], protocol.Metadata, 8, 9); err == nil {
		t.Error("a short answer is taken")
	}
}

func TestOptions(t *testing.T) {
	_, _, err := Options{Delivery: "sequenced", Compression: "brotli", RequestsInFlight: 6, BatchBytes: 10, SASL: &SASL{Mechanism: "gssapi", User: "u", Password: "hidden"}}.normalize()
	if err == nil {
		t.Fatal("bad options are taken")
	}
	for _, part := range []string{"brokers", "sequenced needs the names", "brotli", "requests in flight", "batch bytes", "gssapi"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, err)
		}
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Error("the password shows")
	}
	for _, d := range []string{"transactional", "exactly_once"} {
		if _, err := New(Options{Brokers: []string{"b"}, Delivery: d}); err == nil || !strings.Contains(err.Error(), d) {
			t.Errorf("%s: %v", d, err)
		}
	}
	o, _, err := Options{Brokers: []string{"kafka", "k2:1", "::1", "[::1]:5"}}.normalize()
	if err != nil || strings.Join(o.Brokers, " ") != "kafka:9092 k2:1 [::1]:9092 [::1]:5" {
		t.Errorf("brokers %q, %v", o.Brokers, err)
	}
}

func TestCheck(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(3))
	for name, conf := range map[string]map[string]string{
		"plain": nil, "short": {"retention.ms": "60000", "max.message.bytes": "1000", "min.insync.replicas": "1"}, "compacted": {"cleanup.policy": "compact"},
	} {
		if err := cl.CreateTopic(name, 2, conf); err != nil {
			t.Fatal(err)
		}
	}
	ctx := ctxFor(t, patience)
	expect := func(t *testing.T, found []sink.Finding, severity, where, what string) {
		t.Helper()
		for _, f := range found {
			if f.Severity == severity && strings.Contains(f.Where, where) && strings.Contains(f.What, what) {
				return
			}
		}
		t.Errorf("no %s about %s: %s in %+v", severity, where, what, found)
	}
	t.Run("topics", func(t *testing.T) {
		s := newSink(t, Options{Brokers: append(cl.ListenAddrs(), "127.0.0.1:1")})
		found := s.CheckTopics(ctx, "plain", "short", "compacted", "missing", "bad/name", "short")
		expect(t, found, sink.SeverityWarning, "broker 127.0.0.1:1", "connect")
		expect(t, found, sink.SeverityWarning, "short", "1m0s")
		expect(t, found, sink.SeverityWarning, "short", "max.message.bytes is 1000")
		expect(t, found, sink.SeverityInfo, "compacted", "without a key")
		expect(t, found, sink.SeverityError, "missing", "does not exist")
		expect(t, found, sink.SeverityError, "bad/name", "not a valid name")
	})
	t.Run("creating", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Create: true, ReplicationFactor: 1}})
		expect(t, s.CheckTopics(ctx, "missing"), sink.SeverityWarning, "missing", "replication factor 1, from the sink's")
		if cl.TopicInfo("missing") != nil {
			t.Error("check has created the topic")
		}
		cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation})
		expect(t, s.CheckTopics(ctx, "missing"), sink.SeverityError, "missing", "Policy")
	})
	t.Run("the brokers' defaults", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs()})
		for _, c := range []struct {
			replicas   int16
			minISR     string
			configured int16
			severity   string // "": nothing to say
			what       string
			remedy     string
		}{
			{1, "1", 0, sink.SeverityWarning, "replication factor 1, from the brokers' default.replication.factor", "replication_factor to 3, and min.insync.replicas: 2 in its kafka.topics.configs"},
			{1, "2", 0, sink.SeverityWarning, "replication factor 1", "replication_factor to 3"},
			{-1, "", 1, sink.SeverityWarning, "replication factor 1, from the sink's kafka.topics.replication_factor", "replication_factor to 3"},
			{3, "1", 0, sink.SeverityWarning, "min.insync.replicas 1", "min.insync.replicas: 2"},
			{-1, "", 0, sink.SeverityInfo, "may not be seen", "--operation DescribeConfigs --topic new"},
			{3, "2", 0, "", "", ""},
			{3, "", 0, "", "", ""},
			{-1, "", 3, "", "", ""},
		} {
			s.o.Topics.ReplicationFactor = c.configured
			k := &checker{s: s, ctx: ctx}
			r := &createtopics.ResponseTopic{Name: "new", ReplicationFactor: c.replicas}
			if c.minISR != "" {
				r.Configs = append(r.Configs, createtopics.ResponseTopicConfig{Name: configMinISR, Value: c.minISR})
			}
			k.promised(&metadata.Response{Brokers: make([]metadata.ResponseBroker, 3)}, "topic new", r)
			if c.severity == "" {
				if len(k.found) > 0 {
					t.Errorf("%+v: %+v", c, k.found)
				}
				continue
			}
			expect(t, k.found, c.severity, "topic new", c.what)
			if len(k.found) != 1 || !strings.Contains(k.found[0].Remedy, c.remedy) {
				t.Errorf("%+v: %+v", c, k.found)
			}
		}
	})
	t.Run("more replicas", func(t *testing.T) {
		k := &checker{s: newSink(t, Options{Brokers: []string{"b:9092"}}), ctx: ctx}
		res := &metadata.Response{}
		for _, id := range []int32{7, 5, 6} {
			res.Brokers = append(res.Brokers, metadata.ResponseBroker{NodeID: id})
		}
		topic := &metadata.ResponseTopic{Name: "one"}
		for n := range int32(2) {
			topic.Partitions = append(topic.Partitions, metadata.ResponsePartition{PartitionIndex: n, ReplicaNodes: []int32{6}})
		}
		want := `echo '{"version":1,"partitions":[{"topic":"one","partition":0,"replicas":[6,5,7]},{"topic":"one","partition":1,"replicas":[6,7,5]}]}' > replicas.json` +
			"\nkafka-reassign-partitions.sh --bootstrap-server b:9092 --execute --reassignment-json-file replicas.json"
		if got := k.replicate(res, topic); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		k.s = newSink(t, Options{Brokers: []string{"b:9092"}, Delivery: Transactional, Deployment: "test", Destination: "shop", Sink: "out"})
		for name, want := range map[string]string{
			"one":             "--topic one --partitions N --replication-factor 3 --config min.insync.replicas=2",
			k.s.cursorTopic(): "--partitions 1 --config cleanup.policy=compact --replication-factor 3 --config min.insync.replicas=2",
		} {
			if got := k.create(res, name); !strings.Contains(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		res.Brokers = res.Brokers[:2]
		if got := k.replicate(res, topic); !strings.Contains(got, "2 of the 3 brokers") {
			t.Error(got)
		}
	})
	t.Run("rights", func(t *testing.T) {
		s := newSink(t, Options{Brokers: cl.ListenAddrs()})
		h := cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1}, kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		defer h.Remove()
		found := s.CheckTopics(ctx, "plain")
		expect(t, found, sink.SeverityError, "Kafka at", "producer id")
		expect(t, found, sink.SeverityInfo, "plain", "cannot be read")
	})
	t.Run("nobody there", func(t *testing.T) {
		s := newSink(t, Options{Brokers: []string{"127.0.0.1:1"}})
		if found := s.Check(ctx); len(found) != 1 || found[0].Severity != sink.SeverityError || found[0].Remedy == "" {
			t.Errorf("findings %+v", found)
		}
	})
}
