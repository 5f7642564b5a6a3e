package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

var _ sink.Limiter = (*Sink)(nil)

// MessageLimit implements sink.Limiter: Options.MaxMessageBytes or, where AdminURL shows that it is
// lower, the topic's own maxMessageSize less what we add to a message.
func (s *Sink) MessageLimit(ctx context.Context, topic string) (int, error) {
	limit := s.opt.MaxMessageBytes
	if s.admin == nil {
		return limit, nil
	}
	name, err := parseTopic(topic)
	if err != nil {
		return 0, &refusal{err.Error()}
	}
	defer s.trouble(&s.opt, nil)
	for wait := (backoff{}); ; {
		policy, err := s.admin.maxMessageSize(ctx, name)
		switch {
		case err == nil && policy > 0:
			return min(limit, policy-metadataRoom-len(s.opt.producerName())), nil
		case err == nil, isStatus(err, http.StatusUnauthorized), isStatus(err, http.StatusForbidden), isStatus(err, http.StatusNotFound), isStatus(err, http.StatusMethodNotAllowed):
			return limit, nil // no policy, no topic yet, or none of our business: topic policies are off (405)
		}
		// What the limit is decides what is sent, so a guess would not do.
		s.trouble(&s.opt, fmt.Errorf("pulsar: topic %s: its maxMessageSize: %w", topic, err))
		s.retries.Add(1)
		if !wait.sleep(ctx) {
			return 0, fmt.Errorf("pulsar: topic %s: its maxMessageSize: %w (last error: %w)", topic, ctx.Err(), err)
		}
	}
}

// tooLarge makes the error of the message with this id, of which the broker takes nothing.
func tooLarge(id int64, err error) error {
	return &sink.TooLargeError{Sequence: id >> subIndexBits, SubIndex: uint16(id & maxSubIndex), Err: err}
}

// saysTooLarge tells whether the broker or the client refused a message for its size.
func saysTooLarge(err error) bool {
	return wire.Refused(err) || errors.Is(err, pulsarclient.ErrMessageTooLarge)
}
