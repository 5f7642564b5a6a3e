package pulsar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

const (
	operationTimeout  = 10 * time.Second
	keepAliveInterval = 15 * time.Second

	drainQuiet = 500 * time.Millisecond // without receipts: none is to be expected
	drainMost  = 5 * time.Second
)

// client is the backend on pulsar-client-go. Its calls take no context, so each
// runs in a goroutine of its own that close waits for. What the client hides, where the broker stands and who holds the
// topic, is asked on the broker's own protocol before the client connects, each time.
type client struct {
	s   *Sink
	opt *Options
	c   pulsarclient.Client
	ask *wire.Client
	log *clientLog
	wg  sync.WaitGroup

	begun    time.Time
	answered atomic.Int64 // when a message was last done, since begun
	drained  atomic.Int64 // when a producer was first closed that had messages on their way, since begun; 0: never
}

func newClient(s *Sink) (backend, error) {
	o := &s.opt
	ask, err := o.wireClient()
	if err != nil {
		return nil, err
	}
	log := newClientLog(o.Logger)
	co := pulsarclient.ClientOptions{
		URL:                o.URL,
		ConnectionTimeout:  operationTimeout,
		OperationTimeout:   operationTimeout,
		KeepAliveInterval:  keepAliveInterval,
		MemoryLimitBytes:   -1, // the gate bounds
		Logger:             log,
		MetricsCardinality: pulsarclient.MetricsCardinalityNone,
		MetricsRegisterer:  prometheus.NewRegistry(), // its own metrics stay out of ours
	}
	if strings.HasPrefix(o.URL, "pulsar+ssl://") {
		// A ready configuration: the client would wait for ever on a file that it cannot read.
		co.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS != nil {
			co.TLSConfig = o.TLS.Clone()
		}
	}
	switch {
	case o.Token != "":
		co.Authentication = pulsarclient.NewAuthenticationToken(o.Token)
	case co.TLSConfig != nil && len(co.TLSConfig.Certificates) > 0:
		cert := co.TLSConfig.Certificates[0]
		co.Authentication = pulsarclient.NewAuthenticationFromTLSCertSupplier(func() (*tls.Certificate, error) { return &cert, nil })
	}
	c, err := pulsarclient.NewClient(co)
	if err != nil {
		ask.Close()
		return nil, fmt.Errorf("pulsar: %s: %w", o.URL, err)
	}
	return &client{s: s, opt: o, c: c, ask: ask, log: log, begun: time.Now()}, nil
}

// call runs f and returns its result, or ctx's error when that ends first; then
// what f returns later goes to drop.
func call[T any](ctx context.Context, wg *sync.WaitGroup, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	wg.Go(func() {
		v, err := f()
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && drop != nil {
				drop(v)
			}
		}
	})
	select {
	case r := <-done:
		if r.err != nil {
			r.err = flat{r.err}
		}
		return r.v, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

func (c *client) partitions(ctx context.Context, topic string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	names, err := call(ctx, &c.wg, func() ([]string, error) { return c.c.TopicPartitions(topic) }, nil)
	if err != nil {
		return 0, err
	}
	if len(names) == 1 && !strings.HasSuffix(names[0], "-partition-0") {
		return 0, nil
	}
	return len(names), nil
}

// prepare implements backend. One string holds the key and all header values.
func (c *client) prepare(e *entry) {
	m, pm := e.m, new(pulsarclient.ProducerMessage)
	e.message = pm
	n := len(m.Key)
	for i := range m.Headers {
		n += len(m.Headers[i].Value)
	}
	var b strings.Builder
	b.Grow(n)
	b.Write(m.Key)
	for i := range m.Headers {
		b.Write(m.Headers[i].Value)
	}
	text := b.String()
	pm.Key = text[:len(m.Key)]
	e.key = pm.Key[:min(len(pm.Key), 100)]
	if len(m.Headers) > 0 {
		pm.Properties = make(map[string]string, len(m.Headers))
		at := len(m.Key)
		for i := range m.Headers {
			next := at + len(m.Headers[i].Value)
			pm.Properties[m.Headers[i].Name] = text[at:next]
			at = next
		}
	}
	if m.Value != nil { // a nil payload is sent as null value: a tombstone
		// The client reads the payload after send has returned, maybe after the message is
		// done with an error and its buffer used for another.
		pm.Payload = append(make([]byte, 0, len(m.Value)), m.Value...)
	}
	if m.Time > 0 {
		pm.EventTime = time.UnixMilli(m.Time)
	}
	pm.SequenceID = &e.id
}

func (c *client) options(topic, name string) pulsarclient.ProducerOptions {
	return pulsarclient.ProducerOptions{
		Topic:                           topic,
		Name:                            name,
		DisableBatching:                 true, // the broker judges an entry by its first id only
		SendTimeout:                     -1,   // it fails what the broker may still store; the watchdog decides
		MaxPendingMessages:              laneMessages,
		CompressionType:                 compressions[c.opt.Compression],
		CompressionLevel:                pulsarclient.Faster,
		PartitionsAutoDiscoveryInterval: 1000 * time.Hour, // cannot be switched off; of one partition there is none
		// I8: the other modes let a woken process of the same name write beside us.
		ProducerAccessMode: pulsarclient.ProducerAccessModeExclusive,
	}
}

func (c *client) open(ctx context.Context, topic string, r receiver) (producer, int64, error) {
	// The topic is taken over as the other backend does it, and given to the client.
	first, err := c.ask.Open(ctx, c.s.exclusive(topic), make(fateOf, 1))
	if err != nil {
		return nil, 0, err
	}
	c.s.opened.Store(topic, true)
	last := first.LastSequenceID()
	first.Close()
	cp := &clientProducer{c: c, topic: topic, r: r, gone: make(chan struct{}), closed: make(chan struct{}), idle: make(chan struct{}, 1)}
	cp.confirmed.Store(-1)
	o := c.options(topic, c.opt.producerName())
	o.BackOffPolicyFunc = cp.reconnecting
	p, err := call(ctx, &c.wg,
		func() (pulsarclient.Producer, error) { return c.c.CreateProducer(o) },
		func(p pulsarclient.Producer) {
			cp.p = p
			cp.close()
		})
	if err != nil {
		return nil, 0, err // p is a typed nil then
	}
	cp.p = p
	cp.callback = func(id pulsarclient.MessageID, pm *pulsarclient.ProducerMessage, err error) {
		cp.pending.Add(-1)
		c.answered.Store(int64(time.Since(c.begun)))
		if err == nil {
			cp.confirmed.Store(*pm.SequenceID)
		} else {
			cp.connects(false) // it has closed itself
		}
		r.receipt(*pm.SequenceID, err == nil && isDuplicate(id), err)
	}
	return cp, last, nil
}

func (c *client) tail(ctx context.Context, topic string) (int64, error) {
	return c.ask.Tail(ctx, topic, c.opt.producerName())
}

func (c *client) scan(ctx context.Context, topic string, from wire.From, visit func(*wire.Stored) error) error {
	_, err := c.ask.Scan(ctx, topic, from, visit)
	return err
}

// isDuplicate tells a receipt without an entry: -1:-1.
func isDuplicate(id pulsarclient.MessageID) bool {
	return id != nil && id.LedgerID() == -1 && id.EntryID() == -1
}

func (c *client) deduplicates(ctx context.Context, topic string) (bool, error) {
	return call(ctx, &c.wg, func() (bool, error) {
		o := c.options(topic, c.opt.producerName())
		o.ProducerAccessMode = pulsarclient.ProducerAccessModeShared // other sinks test here too
		p, err := c.c.CreateProducer(o)
		if err != nil {
			return false, err
		}
		defer p.Close()
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		id := time.Now().UnixMilli() // rises over restarts; if not, both are duplicates
		var second pulsarclient.MessageID
		for range 2 {
			if second, err = p.Send(ctx, &pulsarclient.ProducerMessage{Payload: []byte("binlogmq"), SequenceID: &id}); err != nil {
				return false, err
			}
		}
		return isDuplicate(second), nil
	}, nil)
}

func (c *client) complaint() string { return c.log.last() }

func (c *client) close() {
	c.wg.Wait()
	c.c.Close()
	c.ask.Close()
}

type clientProducer struct {
	c         *client
	topic     string
	p         pulsarclient.Producer
	r         receiver
	callback  func(pulsarclient.MessageID, *pulsarclient.ProducerMessage, error)
	confirmed atomic.Int64
	pending   atomic.Int64  // messages that are not done
	gone      chan struct{} // closed first
	closed    chan struct{} // closed when the client's producer is

	// The client may be making a new link while it closes the producer, and would then hold the topic for ever: it looks only before
	// it begins. So closing waits for the link.
	mu         sync.Mutex
	connecting bool
	idle       chan struct{} // holds one when a link was made or given up
}

// connects notes that the client begins to make a link, or has ended that.
func (p *clientProducer) connects(now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connecting == now {
		return
	}
	p.connecting = now
	if now {
		select {
		case <-p.idle: // of an earlier one
		default:
		}
	} else {
		p.idle <- struct{}{}
	}
}

// reconnecting is called by the client when a link is lost, before it makes a new one and sends again.
func (p *clientProducer) reconnecting() clientbackoff.Policy {
	p.resume()
	return &reconnect{p: p}
}

// resume returns when the client may make a link, or must see that the producer is closed.
func (p *clientProducer) resume() {
	select {
	case <-p.gone:
	default:
		p.settle()
	}
	p.connects(true)
	select {
	case <-p.gone:
		p.connects(false)
		<-p.closed
	default:
	}
}

// settle returns when it is known that the broker remembers what it confirmed, and the topic is free, or the producer is closed. I3: the
// client may not send again before.
func (p *clientProducer) settle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.gone:
			cancel()
		case <-stop:
		}
	}()
	begun := time.Now()
	for wait := (backoff{}); ; {
		err := p.verify(ctx)
		code := wire.Code(err)
		switch {
		case err == nil, code == wire.CodeTopicNotFound, code == wire.CodeTopicTerminated: // the client knows what that means
			return
		case wire.Forgotten(err), isFenced(err.Error()) && time.Since(begun) > ghostTime:
			p.r.receipt(-1, false, err)
			<-p.gone
			return
		}
		if !wait.sleep(ctx) {
			return
		}
	}
}

// verify opens the topic for a moment, beside nobody, in the mode that leaves its epoch alone.
func (p *clientProducer) verify(ctx context.Context) error {
	o := p.c.s.exclusive(p.topic)
	o.Access, o.Takeover = wire.Shared, nil
	first, err := p.c.ask.Open(ctx, o, make(fateOf, 1))
	if err != nil {
		return err
	}
	last, confirmed := first.LastSequenceID(), p.confirmed.Load()
	first.Close()
	if o.Deduplicates && last < confirmed {
		return wire.Forgot(p.topic, o.Name, last, confirmed)
	}
	return nil
}

func (p *clientProducer) expect(id int64) { p.confirmed.Store(id) }

func (p *clientProducer) send(e *entry) {
	defer func() {
		// A producer that closes itself (fenced, topic gone) closes a channel that
		// SendAsync may be about to write to.
		if r := recover(); r != nil {
			p.pending.Add(-1)
			p.connects(false)
			p.r.receipt(e.id, false, fmt.Errorf("the client gave up while sending: %v", r))
		}
	}()
	p.pending.Add(1)
	p.p.SendAsync(context.Background(), e.message, p.callback)
}

// drain waits for the receipts of what is on its way, as long as any come. A receipt that the client reads while it fails the same
// message, because its producer is closed, makes it panic, or takes the place of another message's (I3).
func (p *clientProducer) drain() {
	c := p.c
	for p.pending.Load() > 0 {
		now := int64(time.Since(c.begun))
		c.drained.CompareAndSwap(0, now)
		first := c.drained.Load()
		if now-max(first, c.answered.Load()) >= int64(drainQuiet) || now-first >= int64(drainMost) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *clientProducer) close() {
	close(p.gone)
	p.mu.Lock()
	wait := p.connecting
	p.mu.Unlock()
	if wait {
		// A producer that has closed itself with nothing to fail does not tell; a link takes a look-up and a request.
		t := time.NewTimer(2 * operationTimeout)
		defer t.Stop()
		select {
		case <-p.idle:
		case <-t.C:
		}
	}
	p.drain()
	p.p.Close()
	close(p.closed)
}

// reconnect is the wait between a producer's attempts to connect again: our own, but
// of the client's type. Its default goes up to a minute.
type reconnect struct {
	p *clientProducer
	b backoff
}

func (r *reconnect) Next() time.Duration {
	r.p.connects(false)
	r.p.resume()
	return r.b.next()
}

func (r *reconnect) IsMaxBackoffReached() bool { return r.b.last >= maxBackoff }

// Reset is called when the link stands.
func (r *reconnect) Reset() {
	r.p.connects(false)
	r.b = backoff{}
}

// isMissing tells that a topic does not exist and may not be created by use.
func isMissing(err error) bool {
	return errors.Is(err, pulsarclient.ErrTopicNotfound) || strings.Contains(err.Error(), "TopicNotFound")
}

// flat is an error on one line; the client joins its errors with line ends.
type flat struct{ error }

func (f flat) Error() string { return strings.ReplaceAll(f.error.Error(), "\n", "; ") }
func (f flat) Unwrap() error { return f.error }
