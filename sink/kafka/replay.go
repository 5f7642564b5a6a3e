package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

var (
	_ sink.Recounter = (*Sink)(nil)
	_ sink.Replayer  = (*Sink)(nil)
)

// Recount implements sink.Recounter.
func (s *Sink) Recount(ctx context.Context, topics []string) (map[string]int32, error) {
	out := map[string]int32{}
	for names := range slices.Chunk(topics, searchAtOnce) {
		err := s.untilAnswered(ctx, "counting partitions", func() error {
			res, err := ask[*metadata.Response](ctx, s.admin, &metadata.Request{TopicNames: names})
			if err != nil {
				return err
			}
			for i := range res.Topics {
				if t := &res.Topics[i]; t.ErrorCode == codeNoError || t.ErrorCode == codeLeaderNotAvailable {
					out[t.Name] = int32(len(t.Partitions))
				} else if t.ErrorCode != codeUnknownTopic {
					return topicError(t.Name, &Error{Code: t.ErrorCode})
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Replayed implements sink.Replayer: the life knows every topic that it was used with, and the log how
// far each partition has come.
func (s *Sink) Replayed(ctx context.Context) (passed func() bool, err error) {
	if s.alive == nil {
		return nil, nil
	}
	select {
	case <-s.alive:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.tally != nil {
		return s.tally.replayed(), nil
	}
	l, accounts := s.book.snapshot()
	type tail struct {
		c *counter
		n int64
	}
	var tails []tail
	err = s.tails(ctx, l, accounts, func(id partitionID, _ *counter, stored int64) error {
		s.book.mu.Lock()
		defer s.book.mu.Unlock()
		// The search worked on copies; this is the counter that moves.
		if a := s.book.byTopic[id.topic]; a != nil && int(id.partition) < len(a.counters) {
			tails = append(tails, tail{&a.counters[id.partition], stored})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() bool {
		s.book.mu.Lock()
		defer s.book.mu.Unlock()
		return !slices.ContainsFunc(tails, func(t tail) bool { return t.c.acked < t.n })
	}, nil
}

// snapshot returns copies of what is acknowledged.
func (b *book) snapshot() (life, []*account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	accounts := make([]*account, len(b.accounts))
	for i, a := range b.accounts {
		c := &account{topic: a.topic, counters: make([]counter, len(a.counters))}
		for j := range a.counters {
			k := &a.counters[j]
			c.counters[j] = counter{acked: k.acked, lag: k.lag, shared: k.shared}
		}
		accounts[i] = c
	}
	return b.life, accounts
}

// goneAfter is how often a topic is asked for before it counts as deleted.
const goneAfter = 12

// tails looks how many messages of the life each partition holds, and tells each. It looks twice: what a killed process
// had on its way may still land. Topics that are gone hold none.
func (s *Sink) tails(ctx context.Context, l life, accounts []*account, each func(id partitionID, k *counter, stored int64) error) error {
	topics := map[string]int32{}
	counters := map[partitionID]*counter{}
	for _, a := range accounts {
		topics[a.topic] = int32(len(a.counters))
		for i := range a.counters {
			counters[partitionID{a.topic, int32(i)}] = &a.counters[i]
		}
	}
	if len(topics) == 0 {
		return nil
	}
	asked := 0
	since := time.Now()
	stored := map[partitionID]int64{}
	for pass := range 2 {
		if pass > 0 {
			if err := retry.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		err := s.untilAnswered(ctx, "looking for what is stored and not acknowledged", func() error {
			by, missing, err := s.leaders(ctx, topics)
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				if asked++; asked < goneAfter {
					return topicError(missing[0], &Error{Code: codeUnknownTopic})
				}
				s.o.Logger.Warn("kafka: topics of the old configuration are gone", "topics", strings.Join(missing, " "))
				for _, name := range missing {
					delete(topics, name)
				}
			}
			for addr, lanes := range by {
				for lanes := range slices.Chunk(lanes, searchAtOnce) {
					if err := s.atLeader(ctx, addr, func(c *conn) error {
						return s.tailsAt(ctx, c, l, lanes, counters, since, stored)
					}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for id, n := range stored {
		if err := each(id, counters[id], n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) tailsAt(ctx context.Context, c *conn, l life, lanes []partitionID, counters map[partitionID]*counter, since time.Time, stored map[partitionID]int64) error {
	ends := make([]int64, len(lanes))
	var bad error
	if err := c.endOffsets(ctx, latestOffset, lanes, func(i int, offset int64, code int16) {
		if ends[i] = offset; code != codeNoError {
			bad = topicError(lanes[i].topic, &Error{Code: code})
		}
	}); err != nil || bad != nil {
		return errors.Join(err, bad)
	}
	for i, id := range lanes {
		k := counters[id]
		q := search{producerID: l.producerID, epoch: l.epoch, count: k.acked, offset: k.acked + k.lag, shared: k.shared, end: ends[i]}
		v, err := q.run(&partitionLog{ctx: ctx, c: c, timeout: s.o.RequestTimeout, topic: id.topic, partition: id.partition})
		if err != nil {
			return topicError(id.topic, err)
		}
		switch {
		case v.outcome == found:
			stored[id] = v.count
		case v.outcome == behind && time.Since(since) < s.o.disagreeAfter:
			return topicError(id.topic, errors.New(v.why))
		default:
			return refusal(id, v)
		}
	}
	return nil
}

// drained returns nil if everything that the life has stored is acknowledged: then nothing
// has to be replayed under its numbers.
func (s *Sink) drained(ctx context.Context, l life, accounts []*account) error {
	return s.tails(ctx, l, accounts, func(id partitionID, k *counter, stored int64) error {
		if stored == k.acked {
			return nil
		}
		return &DeliveryError{id.topic, id.partition, fmt.Errorf("%w: %d of them there", ErrNotDrained, stored-k.acked), drainRemedy}
	})
}
