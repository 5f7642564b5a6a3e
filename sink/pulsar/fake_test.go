package pulsar

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// cluster stands in for a broker where faults are to be injected that a real
// one cannot be made to show at will. It knows deduplication, exclusive
// producers and receipts in order, and nothing else.
type cluster struct {
	mu     sync.Mutex
	topics map[string]*fakeTopic
	said   string // the client's last complaint
	end    int64  // what every topic's tail shows
	tails  int    // questions for it
	scans  int    // of ends
	scan   error  // of every scan

	// sees tells what a scan finds of the ids that the topic holds, and how it ends. scans counts from 1.
	sees func(ctx context.Context, scans int, from wire.From, ids []int64) ([]int64, error)

	partitioned map[string]int
	dedupOff    bool
	away        error // of every question
	openError   error
	// fate decides what becomes of an entry.
	fate func(e *entry) fate
	stop chan struct{} // receipts wait while it is not nil and open
}

type fate int

const (
	normal      fate = iota
	refused          // not stored, no receipt, none after it either: the client's hang
	lostReceipt      // stored, no receipt
	outOfOrder       // the receipt names another id
	failed           // the callback gets an error
	denied           // not stored, the callback gets the broker's refusal
	twice            // two receipts
)

type fakeTopic struct {
	held   bool
	opened int
	last   int64
	stored []sinktest.Stored
	ids    []int64 // of stored
}

func newCluster() *cluster {
	return &cluster{topics: map[string]*fakeTopic{}, partitioned: map[string]int{}, end: -1}
}

func (c *cluster) topic(name string) *fakeTopic {
	t := c.topics[name]
	if t == nil {
		t = &fakeTopic{last: -1}
		c.topics[name] = t
	}
	return t
}

func (c *cluster) read(name string) []sinktest.Stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]sinktest.Stored(nil), c.topic(name).stored...)
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) pause() (resume func()) {
	stop := make(chan struct{})
	c.set(func() { c.stop = stop })
	return func() {
		c.set(func() { c.stop = nil })
		close(stop)
	}
}

type fakeBackend struct{ c *cluster }

func (b fakeBackend) partitions(ctx context.Context, topic string) (int, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.c.stop != nil {
		return 0, errors.New("no answer")
	}
	return b.c.partitioned[topic], errors.Join(b.c.away, ctx.Err())
}

func (b fakeBackend) prepare(e *entry) { (*client)(nil).prepare(e) }

func (b fakeBackend) open(ctx context.Context, topic string, r receiver) (producer, int64, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if err := errors.Join(b.c.openError, b.c.away, ctx.Err()); err != nil {
		return nil, 0, err
	}
	t := b.c.topic(topic)
	if t.held {
		return nil, 0, errors.New("server error: ProducerFenced: Topic has an existing exclusive producer: test/shop/s")
	}
	t.opened++
	t.held = true
	p := &fakeProducer{c: b.c, t: t, r: r, queue: make(chan *entry, 100_000), gone: make(chan struct{})}
	go p.run()
	return p, t.last, nil
}

func (b fakeBackend) tail(context.Context, string) (int64, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.tails++
	return b.c.end, b.c.away
}

func (b fakeBackend) scan(ctx context.Context, topic string, from wire.From, visit func(*wire.Stored) error) error {
	b.c.mu.Lock()
	ids, err := b.c.topic(topic).ids, b.c.scan
	b.c.scans++
	sees, n := b.c.sees, b.c.scans
	b.c.mu.Unlock()
	if err != nil {
		return err
	}
	if from.Entries > 0 {
		ids = ids[max(0, len(ids)-int(from.Entries)):]
	}
	if sees != nil {
		ids, err = sees(ctx, n, from, ids)
	}
	for _, id := range ids {
		if err := visit(&wire.Stored{Producer: []byte("test/shop/s"), First: id, Last: id, Messages: 1}); err != nil {
			return err
		}
	}
	return err
}

func (b fakeBackend) deduplicates(context.Context, string) (bool, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return !b.c.dedupOff, b.c.away
}

func (b fakeBackend) complaint() string {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.c.said
}

func (b fakeBackend) close() {}

type fakeProducer struct {
	c     *cluster
	t     *fakeTopic
	r     receiver
	queue chan *entry
	gone  chan struct{}
	deaf  bool
}

func (p *fakeProducer) send(e *entry) { p.queue <- e }

func (p *fakeProducer) run() {
	defer close(p.gone)
	for e := range p.queue {
		p.c.mu.Lock()
		stop := p.c.stop
		what := normal
		if p.c.fate != nil {
			what = p.c.fate(e)
		}
		p.c.mu.Unlock()
		if stop != nil {
			<-stop
		}
		duplicate := false
		p.c.mu.Lock()
		switch {
		case what == refused:
			p.deaf = true
			p.c.said = "Received send error from server: [NotAllowedError] : [Exceed maximum message size]"
		case what == denied:
		case e.id <= p.t.last:
			duplicate = true
		default:
			p.t.last = e.id
			pm := e.message
			s := sinktest.Stored{Value: pm.Payload}
			if pm.Key != "" {
				s.Key = []byte(pm.Key)
			}
			for k, v := range pm.Properties {
				s.Headers = append(s.Headers, sink.Header{Name: k, Value: []byte(v)})
			}
			p.t.stored, p.t.ids = append(p.t.stored, s), append(p.t.ids, e.id)
		}
		p.c.mu.Unlock()
		switch {
		case p.deaf:
		case what == lostReceipt:
			p.deaf = true // the client ignores the receipts after a missing one
		case what == outOfOrder:
			p.r.receipt(e.id+1, false, nil)
		case what == failed:
			p.r.receipt(e.id, false, errors.New("injected"))
		case what == denied:
			p.r.receipt(e.id, false, &wire.Error{Code: wire.CodeNotAllowed, Message: "Exceed maximum message size"})
		case what == twice:
			p.r.receipt(e.id, duplicate, nil)
			p.r.receipt(e.id, duplicate, nil)
		default:
			p.r.receipt(e.id, duplicate, nil)
		}
	}
}

func (p *fakeProducer) expect(int64) {}

func (p *fakeProducer) close() {
	close(p.queue)
	<-p.gone
	p.c.set(func() { p.t.held = false })
}

func newFake(t testing.TB, c *cluster, change func(*Options)) *Sink {
	t.Helper()
	o := Options{URL: "pulsar://localhost", Deployment: "test", Destination: "shop", Sink: "s", Topics: Topics{Create: true}, Logger: discard}
	if change != nil {
		change(&o)
	}
	o, err := o.normalize()
	if err != nil {
		t.Fatal(err)
	}
	s := &Sink{opt: o, connect: func() (backend, error) { return fakeBackend{c}, nil }}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func opened(t testing.TB, c *cluster, change func(*Options)) *Sink {
	s := newFake(t, c, change)
	t.Cleanup(func() {
		if err := s.Close(limit(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const topic = "persistent://public/default/t"

func TestConformanceOnFake(t *testing.T) {
	c := newCluster()
	n := 0
	sinktest.Run(t, sinktest.Harness{
		Open: func(t testing.TB, b sinktest.Bounds) sink.Sink {
			return newFake(t, c, func(o *Options) {
				o.MaxInFlightMessages, o.MaxInFlightBytes = int64(b.Messages), b.Bytes
			})
		},
		NewTopic: func(t testing.TB, partitions int32) string {
			n++
			name := topic + strings.Repeat("x", n)
			if partitions > 1 {
				c.set(func() { c.partitioned[name] = int(partitions) })
			}
			return name
		},
		Read: func(t testing.TB, topic string, partition int32) []sinktest.Stored {
			if c.partitioned[topic] > 0 {
				topic += "-partition-" + string(rune('0'+partition))
			}
			return c.read(topic)
		},
		Partitions:  3,
		ExactlyOnce: true,
		Refuse:      func(m *sink.Message) { m.Value = make([]byte, DefaultMaxMessageBytes) },
		Stall:       func(testing.TB) func() { return c.pause() },
	})
}

// alike returns messages of one size, of which none goes alone behind a larger one.
func alike(r *sinktest.Recorder, first int64, n int, value string) []sink.Message {
	msgs := sinktest.Messages(r, topic, 0, first, n)
	for i := range msgs {
		msgs[i].Key, msgs[i].Value, msgs[i].Headers = []byte("k"), []byte(value), msgs[i].Headers[:1]
	}
	return msgs
}

// together publishes messages while receipts stand still, which might keep pace, and waits until all are done.
func together(t testing.TB, cl *cluster, s *Sink, msgs []sink.Message) {
	t.Helper()
	resume := cl.pause()
	if _, err := s.Publish(limit(t), msgs); err != nil {
		t.Fatal(err)
	}
	resume()
	settled(s)
}

// settled waits until no message is on its way.
func settled(s *Sink) {
	for s.Status().InFlight > 0 {
		time.Sleep(time.Millisecond)
	}
}
