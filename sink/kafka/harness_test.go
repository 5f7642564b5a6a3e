package kafka

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

var topicNumber atomic.Int64

// harness runs the sinks' conformance suite against a cluster.
func harness(brokers []string, o Options) sinktest.Harness {
	o.Brokers = brokers
	o.Deployment, o.Destination, o.Sink = "test", "shop", fmt.Sprintf("conformance-%x", rand.Uint64())
	var before *Sink // whose state the next one is given
	test := ""       // it belongs to
	return sinktest.Harness{
		ExactlyOnce: o.Delivery != AtLeastOnce && o.Delivery != "",
		Open: func(t testing.TB, b sinktest.Bounds) sink.Sink {
			o := o
			o.Logger = quiet()
			o.MaxInFlightBytes, o.MaxInFlightMessages = b.Bytes, int64(b.Messages)
			if o.Delivery == Transactional { // each test begins its numbers anew, which one sink never does
				o.Sink += fmt.Sprintf("-%x", crc32.ChecksumIEEE([]byte(t.Name())))
			}
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if s.KeepsState() {
				var state []byte
				if o.Delivery == Transactional && test != t.Name() {
					before, test = nil, t.Name()
				}
				if before != nil {
					state = before.AppendState(nil)
				}
				if _, err := s.Restore(ctxFor(t, patience), state, sink.Same); err != nil {
					t.Fatal(err)
				}
				before = s
			}
			return s
		},
		NewTopic: func(t testing.TB, partitions int32) string {
			name := fmt.Sprintf("conformance-%d-%x", topicNumber.Add(1), rand.Uint64())
			withAdmin(t, brokers, func(ctx context.Context, c *kadm.Client) error {
				_, err := c.CreateTopic(ctx, partitions, -1, nil, name)
				for err == nil { // until the broker knows it
					var l kadm.TopicDetails
					if l, err = c.ListTopics(ctx, name); err == nil && len(l[name].Partitions) == int(partitions) && l[name].Err == nil {
						break
					}
				}
				return err
			})
			return name
		},
		Read: func(t testing.TB, topic string, p int32) []sinktest.Stored {
			if o.Delivery == Transactional {
				return readCommittedPartition(t, brokers, topic, p)
			}
			return readPartition(t, brokers, topic, p)
		},
		Partitions: 6,
		EmptyKey:   true,
		Refuse: func(m *sink.Message) {
			m.Value = make([]byte, 3<<20)
			rnd := rand.NewChaCha8([32]byte{1})
			rnd.Read(m.Value) //nolint:errcheck // cannot fail
		},
	}
}

func withAdmin(t testing.TB, brokers []string, f func(context.Context, *kadm.Client) error) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := f(ctxFor(t, patience), kadm.NewClient(cl)); err != nil {
		t.Fatal(err)
	}
}

// readPartition returns everything that a partition holds now, read by another client.
func readPartition(t testing.TB, brokers []string, topic string, p int32) []sinktest.Stored {
	t.Helper()
	return readTo(t, brokers, topic, p, (*kadm.Client).ListEndOffsets)
}

// readCommittedPartition returns what a partition holds up to its last stable offset, without what was aborted.
func readCommittedPartition(t testing.TB, brokers []string, topic string, p int32) []sinktest.Stored {
	t.Helper()
	// The broker answers a commit before its markers are everywhere.
	withAdmin(t, brokers, func(ctx context.Context, c *kadm.Client) error {
		for ctx.Err() == nil {
			stable, err := c.ListCommittedOffsets(ctx, topic)
			if err != nil {
				return err
			}
			ends, err := c.ListEndOffsets(ctx, topic)
			if err != nil {
				return err
			}
			lso, _ := stable.Lookup(topic, p)
			end, _ := ends.Lookup(topic, p)
			if lso.Offset == end.Offset {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		return ctx.Err()
	})
	return readTo(t, brokers, topic, p, (*kadm.Client).ListCommittedOffsets, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
}

func readTo(t testing.TB, brokers []string, topic string, p int32, upTo func(*kadm.Client, context.Context, ...string) (kadm.ListedOffsets, error), opts ...kgo.Opt) []sinktest.Stored {
	t.Helper()
	var end int64
	withAdmin(t, brokers, func(ctx context.Context, c *kadm.Client) error {
		ends, err := upTo(c, ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		o, _ := ends.Lookup(topic, p)
		end = o.Offset
		return err
	})
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.FetchMaxWait(50*time.Millisecond), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := ctxFor(t, patience)
	var out []sinktest.Stored
	for next := int64(0); next < end; {
		for _, r := range cl.PollFetches(ctx).Records() {
			if r.Offset >= end {
				break
			}
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			s := sinktest.Stored{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
			for _, h := range r.Headers {
				s.Headers = append(s.Headers, sink.Header{Name: h.Key, Value: h.Value})
			}
			out = append(out, s)
		}
		if ctx.Err() != nil {
			t.Fatalf("reading %s/%d: at offset %d of %d: %v", topic, p, next, end, ctx.Err())
		}
	}
	return out
}

// door counts the connections that a fake cluster has open. Its brokers read each of ours request by request, so those that a closed
// session had written are stored at any time until they have come to the connection's end.
type door struct {
	mu   sync.Mutex
	open map[string]bool // by our end's address
}

func (d *door) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &doorListener{l, d}, err
}

type doorListener struct {
	net.Listener
	d *door
}

func (l *doorListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.d.open[c.RemoteAddr().String()] = true
	return &doorConn{c, l.d}, nil
}

type doorConn struct {
	net.Conn
	d *door
}

// Close is called when the broker has handed on all that it read.
func (c *doorConn) Close() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	delete(c.d.open, c.RemoteAddr().String())
	return c.Conn.Close()
}

// settle returns when the brokers have no connection but the one that stays.
func (d *door) settle(ctx context.Context, stays string) error {
	for {
		d.mu.Lock()
		left := len(d.open)
		if d.open[stays] {
			left--
		}
		d.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the fake has %d connections open still: %w", left, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// settled is a sink whose ended sessions can store nothing any more.
type settled struct {
	*Sink
	d *door
}

func (s *settled) Reset(ctx context.Context) error {
	if ses, err := s.session(); err == nil { // before another one begins, which connects
		if err := ses.end(ctx); err != nil {
			return err
		}
		stays := ""
		<-s.admin.lock
		if s.admin.c != nil {
			stays = s.admin.c.LocalAddr().String()
		}
		s.admin.lock <- struct{}{}
		if err := s.d.settle(ctx, stays); err != nil {
			return err
		}
	}
	return s.Sink.Reset(ctx)
}

func (s *settled) Close(ctx context.Context) error {
	if err := s.Sink.Close(ctx); err != nil {
		return err
	}
	return s.d.settle(ctx, "")
}

func TestConformanceFake(t *testing.T) {
	for _, o := range []Options{
		{RequestsInFlight: 1}, {RequestsInFlight: 5},
		{RequestsInFlight: 1, Delivery: Sequenced}, {RequestsInFlight: 5, Delivery: Sequenced},
		{RequestsInFlight: 1, Delivery: Transactional, Topics: Topics{Create: true}}, {RequestsInFlight: 5, Delivery: Transactional, Topics: Topics{Create: true}},
	} {
		t.Run(fmt.Sprintf("%s/%d in flight", o.Delivery, o.RequestsInFlight), func(t *testing.T) {
			d := &door{open: map[string]bool{}}
			c := fakeCluster(t, kfake.NumBrokers(3), kfake.ListenFn(d.listen))
			h := harness(c.ListenAddrs(), o)
			open := h.Open
			h.Open = func(t testing.TB, b sinktest.Bounds) sink.Sink { return &settled{open(t, b).(*Sink), d} }
			// The fake's own ends of our connections end when it notices.
			for _, f := range []string{"read", "write"} {
				h.Leaks = append(h.Leaks, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn)."+f))
			}
			sinktest.Run(t, h)
		})
	}
}
