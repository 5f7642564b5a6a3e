package kafka

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/sink"
)

func TestMain(m *testing.M) {
	sink.OnSecondCompletion = func(m *sink.Message) { panic("a message is done twice") }
	leak.Main(m)
}

const patience = 5 * time.Minute

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// fates is an Owner that remembers what became of each message.
type fates struct {
	mu   sync.Mutex
	ok   int
	errs []error
	of   map[int64]error
}

func (f *fates) MessageDone(m *sink.Message, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[int64]error{}
	}
	f.of[m.Sequence] = err
	if err == nil {
		f.ok++
	} else {
		f.errs = append(f.errs, err)
	}
}

func (f *fates) count() (ok int, errs []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ok, f.errs
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// healed waits until the status shows no error. All may be done before: what looks for leaders may just be waiting before its next attempt.
func healed(t testing.TB, s *Sink) {
	t.Helper()
	ctx := ctxFor(t, patience)
	for s.Status().Err != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.Status().Err; err != nil {
		t.Errorf("status: %v", err)
	}
}

// freePort returns a port that nobody listens on, below those that the system and the scripts of testenv give out.
func freePort(t testing.TB) int {
	t.Helper()
	for {
		port := 5000 + rand.IntN(5000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

func newSink(t testing.TB, o Options) *Sink {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctxFor(t, patience)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// newSequenced returns a sink with sequenced delivery that goes on with a state.
func newSequenced(t testing.TB, o Options, state []byte, how sink.Continuation) *Sink {
	t.Helper()
	o.Delivery = Sequenced
	return newStateful(t, o, state, how)
}

// newTransactional is newSequenced with transactional delivery.
func newTransactional(t testing.TB, o Options, state []byte, how sink.Continuation) *Sink {
	t.Helper()
	o.Delivery, o.Topics.Create = Transactional, true
	return newStateful(t, o, state, how)
}

func newStateful(t testing.TB, o Options, state []byte, how sink.Continuation) *Sink {
	t.Helper()
	setDefault(&o.Deployment, "test")
	setDefault(&o.Destination, "shop")
	setDefault(&o.Sink, "out")
	s := newSink(t, o)
	if _, err := s.Restore(ctxFor(t, patience), state, how); err != nil {
		t.Fatal(err)
	}
	return s
}

// numbered returns n messages over the partitions, with rising sequences from first.
func numbered(owner sink.Owner, topic string, partitions int32, first, n int) []sink.Message {
	msgs := make([]sink.Message, n)
	for i := range msgs {
		k := first + i
		msgs[i] = sink.Message{
			Topic:     topic,
			Partition: int32(k) % partitions,
			Sequence:  int64(k),
			Key:       fmt.Appendf(nil, "key-%d", k),
			Value:     fmt.Appendf(nil, "%d", k),
			Headers:   []sink.Header{{Name: "seq", Value: fmt.Appendf(nil, "%d", k)}},
			Owner:     owner,
		}
	}
	return msgs
}
