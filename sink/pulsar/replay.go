package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/binlogmq/binlogmq/sink"
)

var _ sink.Recounter = (*Sink)(nil)

// recountAtOnce is how many topics are asked for at a time.
const recountAtOnce = 16

// Recount implements sink.Recounter.
func (s *Sink) Recount(ctx context.Context, topics []string) (map[string]int32, error) {
	defer s.trouble("recount", nil)
	out := make(map[string]int32, len(topics))
	for wait := (backoff{}); ; {
		err := s.recount(ctx, topics, out)
		var final *refusal
		if err == nil || errors.As(err, &final) || errors.Is(err, errClosed) {
			return out, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pulsar: counting partitions: %w (last error: %w)", ctx.Err(), err)
		}
		s.trouble("recount", err)
		s.retries.Add(1)
		if !wait.sleep(ctx) {
			return nil, fmt.Errorf("pulsar: counting partitions: %w (last error: %w)", ctx.Err(), err)
		}
	}
}

// recount asks for the topics that out lacks.
func (s *Sink) recount(ctx context.Context, topics []string, out map[string]int32) error {
	n, err := s.session()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards out and first
	var first error
	room := make(chan struct{}, recountAtOnce)
	for _, topic := range topics {
		mu.Lock()
		_, known := out[topic]
		stop := first != nil
		mu.Unlock()
		if known {
			continue
		}
		if stop {
			break
		}
		name, err := parseTopic(topic)
		if err != nil {
			mu.Lock()
			first = &refusal{err.Error()}
			mu.Unlock()
			break
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			count, err := n.back.partitions(ctx, name.full)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out[topic] = int32(max(count, 1))
			case !isMissing(err) && first == nil:
				first = explain(err, "topic "+topic, s.opt.producerName(), n.back.complaint(), 0)
			}
		})
	}
	wg.Wait()
	return first
}
