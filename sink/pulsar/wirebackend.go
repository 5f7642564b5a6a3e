package pulsar

import (
	"context"
	"fmt"
	"time"

	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

// Values of Options.Producer.
const (
	ProducerClient = "client" // pulsar-client-go
	ProducerWire   = "wire"   // our own, on the broker's binary protocol
)

// wireBackend is the backend on our own producer.
type wireBackend struct {
	s   *Sink
	c   *wire.Client
	enc wire.Encoder // the publisher's own
}

func newWireBackend(s *Sink) (backend, error) {
	c, err := s.opt.wireClient()
	if err != nil {
		return nil, err
	}
	return &wireBackend{s: s, c: c, enc: wire.Encoder{Batching: s.opt.Batching}}, nil
}

func (o *Options) wireClient() (*wire.Client, error) {
	c, err := wire.New(wire.Options{URL: o.URL, Token: o.Token, TLS: o.TLS,
		ConnectTimeout: operationTimeout, OperationTimeout: operationTimeout, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("pulsar: %w", err)
	}
	return c, nil
}

func (b *wireBackend) partitions(ctx context.Context, topic string) (int, error) {
	return b.c.Partitions(ctx, topic)
}

// prepare implements backend.
func (b *wireBackend) prepare(e *entry) {
	b.enc.Encode(&e.encoded, e.id, e.m)
	e.key = string(e.m.Key[:min(len(e.m.Key), 100)])
}

func (b *wireBackend) open(ctx context.Context, topic string, r receiver) (producer, int64, error) {
	o := b.s.exclusive(topic)
	o.Batching, o.Compression = b.s.opt.Batching, b.s.opt.Compression
	p, err := b.c.Open(ctx, o, wireReceiver{r})
	if err != nil {
		return nil, 0, err
	}
	b.s.opened.Store(topic, true)
	return &wireProducer{p}, p.LastSequenceID(), nil
}

// exclusive are the options of the one producer of a topic.
func (s *Sink) exclusive(topic string) wire.ProducerOptions {
	return wire.ProducerOptions{
		Topic: topic, Name: s.opt.producerName(), Access: wire.Exclusive,
		Owner: s.opt.Owner,
		// I8: who starts is the owner. Later the holder of our name may be our successor.
		Takeover: func() bool {
			_, before := s.opened.Load(topic)
			return !before || s.opt.Owner != nil
		},
		Deduplicates: s.knownToDeduplicate(topic),
	}
}

func (b *wireBackend) tail(ctx context.Context, topic string) (int64, error) {
	return b.c.Tail(ctx, topic, b.s.opt.producerName())
}

func (b *wireBackend) scan(ctx context.Context, topic string, from wire.From, visit func(*wire.Stored) error) error {
	_, err := b.c.Scan(ctx, topic, from, visit)
	return err
}

type wireReceiver struct{ r receiver }

func (w wireReceiver) Receipt(id int64, duplicate bool, err error) { w.r.receipt(id, duplicate, err) }

type wireProducer struct{ p *wire.Producer }

func (p *wireProducer) send(e *entry) {
	m := e.encoded
	e.encoded = wire.Message{} // entries are made in slabs: none must hold the bytes of others
	p.p.Send(m)
}

func (p *wireProducer) expect(id int64) { p.p.Expect(id) }

func (p *wireProducer) close() { p.p.Close() }

// deduplicates implements backend: the broker must remember an id for the name.
func (b *wireBackend) deduplicates(ctx context.Context, topic string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	o := wire.ProducerOptions{Topic: topic, Name: b.s.opt.producerName(), Access: wire.Shared} // other sinks test here too
	told := make(fateOf, 1)
	p, err := b.c.Open(ctx, o, told)
	if err != nil {
		return false, err
	}
	id := max(time.Now().UnixMilli(), p.LastSequenceID()+1)
	p.Send(wire.NewMessage(id, []byte("binlogmq")))
	select {
	case err = <-told:
	case <-ctx.Done():
		err = fmt.Errorf("no receipt: %w", ctx.Err())
	}
	p.Close()
	if err != nil {
		return false, err
	}
	p, err = b.c.Open(ctx, o, told)
	if err != nil {
		return false, err
	}
	defer p.Close()
	return p.LastSequenceID() == id, nil
}

// fateOf takes the fate of one message.
type fateOf chan error

func (f fateOf) Receipt(_ int64, _ bool, err error) {
	select {
	case f <- err:
	default:
	}
}

func (b *wireBackend) complaint() string { return b.c.Complaint() }

func (b *wireBackend) close() { b.c.Close() }

// knownToDeduplicate tells whether the broker was found to deduplicate in the topic's namespace.
func (s *Sink) knownToDeduplicate(topic string) bool {
	name, err := parsePartition(topic)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checked[name.namespace]
}

// window is how many messages of a lane may be on the wire.
func (o *Options) window() int {
	if o.Producer == ProducerWire {
		return int(o.MaxInFlightMessages) // it queues without reserving
	}
	return laneMessages
}
