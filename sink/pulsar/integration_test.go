//go:build integration

package pulsar

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

const wait = 5 * time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	t.Cleanup(cancel)
	return ctx
}

// kind is a producer under test.
type kind struct {
	name, producer string
	batching       bool
}

var kinds = []kind{{"client", ProducerClient, false}, {"wire", ProducerWire, false}, {"batched", ProducerWire, true}}

// each runs f with each kind of producer, two at a time.
func each(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

func options(b *testenv.PulsarBroker, k kind, name string) Options {
	return Options{URL: b.URL, AdminURL: b.AdminURL, Deployment: "test", Destination: "shop", Sink: name, Topics: Topics{Create: true},
		Producer: k.producer, Batching: k.batching}
}

// shows waits until the status holds all of these; on a busy machine something else may be wrong before.
func shows(t testing.TB, s *Sink, wants ...string) error {
	t.Helper()
	for ctx := within(t); ; time.Sleep(10 * time.Millisecond) {
		err := s.Status().Err
		if err != nil && !slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
			return err
		}
		if ctx.Err() != nil {
			t.Fatalf("the status is %v, without one of %q", err, wants)
		}
	}
}

func open(t testing.TB, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(within(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// rest makes an admin call of the test's own.
func rest(t testing.TB, b *testenv.PulsarBroker, method, path, body string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	repeated := false
	for ctx := within(t); ; time.Sleep(200 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, method, b.AdminURL+"/admin/v2/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		switch {
		case res.StatusCode < 300, repeated && res.StatusCode == http.StatusConflict: // it was done all the same
			return
		case res.StatusCode < 500:
			t.Fatalf("%s %s: %s", method, path, res.Status)
		}
		t.Logf("%s %s: %s", method, path, res.Status) // as a broker says whose store is busy
		repeated = true
	}
}

// keep makes a namespace that retains what no subscription holds.
func keep(t testing.TB, b *testenv.PulsarBroker, namespace string, create bool) {
	if create {
		rest(t, b, http.MethodPut, "namespaces/"+namespace, "{}")
	}
	rest(t, b, http.MethodPost, "namespaces/"+namespace+"/retention", `{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}`)
}

func testClient(t testing.TB, b *testenv.PulsarBroker) pulsarclient.Client {
	t.Helper()
	c, err := pulsarclient.NewClient(pulsarclient.ClientOptions{URL: b.URL, Logger: newClientLog(discard), MetricsRegisterer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// emptyZstd is what the Go client's reader makes of an empty value in zstd, which
// it forgets to decompress; the Java client reads it right.
const emptyZstd = "(\xb5/\xfd \x00\x01\x00\x00"

// read returns everything stored in a topic partition.
func read(t testing.TB, c pulsarclient.Client, topic string) []sinktest.Stored {
	t.Helper()
	ctx := within(t)
	var r pulsarclient.Reader
	for {
		var err error
		r, err = c.CreateReader(pulsarclient.ReaderOptions{Topic: topic, StartMessageID: pulsarclient.EarliestMessageID(), ReceiverQueueSize: 2000})
		if err == nil {
			break
		}
		select { // a broker that has just started does not find its bookie at once
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(200 * time.Millisecond):
		}
	}
	defer r.Close()
	last, err := r.GetLastMessageID()
	if err != nil {
		t.Fatal(err)
	}
	var out []sinktest.Stored
	if last.EntryID() < 0 {
		return out
	}
	for {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := sinktest.Stored{Value: m.Payload()}
		if s.Value == nil && !m.IsNullValue() || string(s.Value) == emptyZstd {
			s.Value = []byte{}
		}
		if m.IsNullValue() {
			s.Value = nil
		}
		if m.Key() != "" {
			s.Key = []byte(m.Key())
		}
		for k, v := range m.Properties() {
			s.Headers = append(s.Headers, sink.Header{Name: k, Value: []byte(v)})
		}
		out = append(out, s)
		if id := m.ID(); (id.LedgerID() > last.LedgerID() || id.LedgerID() == last.LedgerID() && id.EntryID() >= last.EntryID()) &&
			(id.BatchSize() <= 1 || id.BatchIdx() == id.BatchSize()-1) {
			return out
		}
	}
}

// The broker stands still at times, so the kinds take turns.
func TestConformance(t *testing.T) {
	own := testenv.NewPulsar(t)
	c := testClient(t, own)
	read(t, c, own.Topic()) // its connection is not the sink's
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			partitioned := map[string]bool{}
			topics := 0
			sinktest.Run(t, sinktest.Harness{
				Open: func(t testing.TB, bounds sinktest.Bounds) sink.Sink {
					o := options(own, k, "conformance")
					if k.batching {
						o.Compression = "zstd"
					}
					o.MaxInFlightMessages, o.MaxInFlightBytes = int64(bounds.Messages), bounds.Bytes
					s, err := New(o)
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				NewTopic: func(t testing.TB, partitions int32) string {
					topics++
					topic := fmt.Sprintf("%s-%s-%d", own.Topic(), k.name, topics)
					if partitions > 1 {
						name, _ := parseTopic(topic)
						rest(t, own, http.MethodPut, name.path()+"/partitions", fmt.Sprint(partitions))
						partitioned[topic] = true
					}
					return topic
				},
				Read: func(t testing.TB, topic string, partition int32) []sinktest.Stored {
					if partitioned[topic] {
						topic = fmt.Sprintf("%s-partition-%d", topic, partition)
					}
					return read(t, c, topic)
				},
				Partitions:  3,
				ExactlyOnce: true,
				Refuse:      func(m *sink.Message) { m.Value = bytes.Repeat([]byte("x"), DefaultMaxMessageBytes) },
				Stall: func(t testing.TB) func() {
					own.Pause()
					return own.Resume
				},
			})
		})
	}
}
