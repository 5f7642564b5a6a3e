package pulsar

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/sink"
)

var _ sink.Reader = (*Sink)(nil)

// KeepsReadable implements sink.Reader.
func (s *Sink) KeepsReadable() bool { return true }

// lookBacks are how far back reading begins that looks for messages behind a sequence: the shortest
// that begins before it.
var lookBacks = []time.Duration{2 * time.Minute, time.Hour, 24 * time.Hour}

// ReadBack implements sink.Reader. It needs the right to consume, and leaves no subscription behind. Our own messages
// are told, too: what is sent again is recognised by its number or by the visitor.
func (s *Sink) ReadBack(ctx context.Context, topic string, partition int32, from sink.From, visit func(*sink.Stored) error) error {
	defer s.trouble("read back", nil)
	last := pulsarclient.EarliestMessageID() // told
	for wait := (backoff{}); ; {
		err := s.readBack(ctx, topic, partition, from, &last, visit)
		var final *visitError
		var refused *refusal
		switch {
		case err == nil || errors.As(err, &refused) || errors.Is(err, errClosed):
			return err
		case errors.As(err, &final):
			return final.error
		case ctx.Err() != nil:
			return fmt.Errorf("pulsar: reading topic %s: %w (last error: %w)", topic, ctx.Err(), err)
		case strings.Contains(err.Error(), "AuthorizationError"), strings.Contains(err.Error(), "not authorized"):
			err = fmt.Errorf("%w; allow the role to consume: pulsar-admin namespaces grant-permission --actions produce,consume", err)
		}
		s.trouble("read back", fmt.Errorf("pulsar: reading topic %s: %w", topic, flat{err}))
		s.retries.Add(1)
		if !wait.sleep(ctx) {
			return fmt.Errorf("pulsar: reading topic %s: %w (last error: %w)", topic, ctx.Err(), err)
		}
	}
}

// visitError carries an error of a visit.
type visitError struct{ error }

// readBack tells what lies behind last, and moves it.
func (s *Sink) readBack(ctx context.Context, topic string, partition int32, from sink.From, last *pulsarclient.MessageID, visit func(*sink.Stored) error) error {
	n, err := s.session()
	if err != nil {
		return err
	}
	info, err := s.resolve(ctx, n.back, topic)
	if err != nil {
		return err
	}
	name := info.name.full
	if info.partitions > 0 {
		name = fmt.Sprintf("%s-partition-%d", name, max(partition, 0))
	}
	b, err := newClient(s)
	if err != nil {
		return err
	}
	c := b.(*client)
	defer c.close()
	r, err := call(ctx, &c.wg, func() (pulsarclient.Reader, error) {
		return c.c.CreateReader(pulsarclient.ReaderOptions{Topic: name, StartMessageID: *last, ReceiverQueueSize: 1000})
	}, func(r pulsarclient.Reader) { r.Close() })
	if err != nil {
		return err
	}
	defer r.Close()
	end, err := call(ctx, &c.wg, r.GetLastMessageID, nil)
	if err != nil {
		return err
	}
	if end.EntryID() < 0 {
		return nil // it holds nothing
	}
	first, err := seek(ctx, c, r, from, *last)
	if err != nil {
		return err
	}
	var headers []sink.Header
	for m := first; ; m = nil {
		if m == nil {
			more, err := call(ctx, &c.wg, func() (bool, error) { return r.HasNext(), nil }, nil)
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if m, err = r.Next(ctx); err != nil {
				return err
			}
		}
		headers = headers[:0]
		for k, v := range m.Properties() {
			headers = append(headers, sink.Header{Name: k, Value: []byte(v)})
		}
		if err := visit(&sink.Stored{Place: fmt.Sprintf("message %v", m.ID()), Headers: headers}); err != nil {
			return &visitError{err}
		}
		*last = m.ID()
		if !before(*last, end) && m.ID().BatchIdx()+1 >= m.ID().BatchSize() {
			return nil
		}
	}
	// HasNext also says no where it could not ask.
	if again, err := call(ctx, &c.wg, r.GetLastMessageID, nil); err != nil {
		return err
	} else if again.EntryID() >= 0 && (from.Since.IsZero() || (*last).EntryID() >= 0) && before(*last, again) {
		return fmt.Errorf("the broker gave messages up to %v only, and holds some up to %v", *last, again)
	}
	return nil
}

// before compares the places of two entries.
func before(a, b pulsarclient.MessageID) bool {
	return a.LedgerID() < b.LedgerID() || a.LedgerID() == b.LedgerID() && a.EntryID() < b.EntryID()
}

// seek goes to where reading begins. It returns a message that it had to read for that.
func seek(ctx context.Context, c *client, r pulsarclient.Reader, from sink.From, last pulsarclient.MessageID) (pulsarclient.Message, error) {
	to := func(t time.Time) error {
		_, err := call(ctx, &c.wg, func() (struct{}, error) { return struct{}{}, r.SeekByTime(t) }, nil)
		return err
	}
	switch {
	case last.EntryID() >= 0: // reading goes on
		return nil, nil
	case !from.Since.IsZero():
		return nil, to(from.Since)
	case from.After <= 0:
		return nil, nil
	}
	for _, d := range lookBacks {
		if err := to(time.Now().Add(-d)); err != nil {
			return nil, err
		}
		more, err := call(ctx, &c.wg, func() (bool, error) { return r.HasNext(), nil }, nil)
		if err != nil {
			return nil, err
		}
		if !more {
			continue // nothing is as young; what is looked for may be older
		}
		m, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		// Sequences rise along a topic: all that comes before is older.
		if seq, err := strconv.ParseInt(m.Properties()["seq"], 10, 64); err == nil && seq <= from.After {
			return m, nil
		}
	}
	return nil, to(time.UnixMilli(1)) // all of it
}
