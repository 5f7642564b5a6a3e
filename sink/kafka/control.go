package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// control sends requests that any broker answers, one at a time, over one
// connection that it keeps. Safe for concurrent use.
type control struct {
	d       *dialer
	seeds   []string
	timeout time.Duration // for one request, and for each attempt to connect

	lock  chan struct{} // holds a token while free
	c     *conn
	addrs []string // what the last metadata listed
	next  int

	end  context.Context // over when close is called
	stop context.CancelFunc
}

var errClosed = errors.New("kafka: the sink is closed")

func newControl(d *dialer, seeds []string, timeout time.Duration) *control {
	t := &control{d: d, seeds: slices.Clone(seeds), timeout: timeout, lock: make(chan struct{}, 1)}
	rand.Shuffle(len(t.seeds), func(i, j int) { t.seeds[i], t.seeds[j] = t.seeds[j], t.seeds[i] })
	t.lock <- struct{}{}
	t.end, t.stop = context.WithCancel(context.Background())
	return t
}

// do asks the connected broker, or the next of those known. It does not repeat.
func (t *control) do(ctx context.Context, msg protocol.Message) (protocol.Message, error) {
	select {
	case <-t.lock:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { t.lock <- struct{}{} }()
	if t.end.Err() != nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.end, func() { cancel(errClosed) })()

	reused := t.c != nil
	for {
		if t.c == nil || t.c.expired() {
			t.hangUp()
			c, err := t.connect(ctx)
			if err != nil {
				return nil, err
			}
			t.c = c
		}
		res, err := t.roundTrip(ctx, msg)
		if err == nil {
			if m, ok := res.(*metadata.Response); ok {
				t.learn(m)
			}
			return res, nil
		}
		addr := t.c.addr
		t.hangUp()
		// The broker closes connections that were idle: then, and only then, once more.
		if !reused || ctx.Err() != nil {
			if errors.Is(err, io.EOF) && t.d.mech == nil {
				err = fmt.Errorf("it closed the connection (%w): the listener may expect SASL: set sasl", err)
			}
			return nil, fmt.Errorf("kafka: broker %s: %w", addr, err)
		}
		reused = false
	}
}

func (t *control) roundTrip(ctx context.Context, msg protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.c.roundTrip(ctx, msg)
}

// connect tries every address once.
func (t *control) connect(ctx context.Context) (*conn, error) {
	all := slices.Clone(t.addrs)
	for _, addr := range t.seeds {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	var errs []error
	for range all {
		addr := all[t.next%len(all)]
		t.next++
		c, err := t.dial(ctx, addr)
		if err == nil {
			return c, nil
		}
		if !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (t *control) dial(ctx context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.d.dial(ctx, addr)
}

func (t *control) learn(m *metadata.Response) {
	t.addrs = t.addrs[:0]
	for _, b := range m.Brokers {
		t.addrs = append(t.addrs, brokerAddr(b))
	}
}

func (t *control) hangUp() {
	if t.c != nil {
		t.c.Close()
		t.c = nil
	}
}

// close ends the request under way and hangs up.
func (t *control) close() {
	t.stop()
	<-t.lock
	t.hangUp()
	t.lock <- struct{}{}
}

func brokerAddr(b metadata.ResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

// ask is do with the answer's type.
func ask[R protocol.Message](ctx context.Context, t *control, msg protocol.Message) (R, error) {
	res, err := t.do(ctx, msg)
	if err != nil {
		var zero R
		return zero, err
	}
	return res.(R), nil
}
