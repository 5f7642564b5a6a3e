package kafka

import (
	"context"

	"github.com/binlogmq/binlogmq/sink"
)

var _ sink.Limiter = (*Sink)(nil)

// MessageLimit implements sink.Limiter: the topic's max.message.bytes when the sink first looked, which
// bounds a whole batch and so a message alone in one.
func (s *Sink) MessageLimit(ctx context.Context, name string) (int, error) {
	t, err := s.topic(ctx, name)
	if err != nil {
		return 0, err
	}
	return min(t.limit, maxBatchBytes), nil
}
