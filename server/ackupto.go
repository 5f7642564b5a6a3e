package server

import (
	"context"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/store"
)

// AckUpTo acknowledges everything handed out up to an ordinal, which may lie inside a batch or an event, and makes what lies
// behind it be handed out again: for a subscriber that comes to a change that it cannot pass. state as in AckLazy; nil leaves it.
func (s *Server) AckUpTo(ctx context.Context, id Identity, ordinal int64, state LazyState) error {
	return s.acknowledge(ctx, id, func(x *sub) (bool, error) { return x.ackUpTo(ordinal, state) })
}

// AckUpTo is [Server.AckUpTo].
func (c *Client) AckUpTo(ctx context.Context, ordinal int64, state LazyState) error {
	return c.s.AckUpTo(ctx, c.id, ordinal, state)
}

// ackUpTo acknowledges what is handed out up to the ordinal and forgets the outstanding batches.
func (s *sub) ackUpTo(ordinal int64, lazy LazyState) (freed bool, err error) {
	if s.rd == nil || len(s.batches) == 0 { // all that was handed out is acknowledged
		if lazy != nil {
			lazy.Acknowledged(NoBatch)
			s.lazy = lazy
		}
		return false, nil
	}
	r := s.feed.ring
	end := s.batches[len(s.batches)-1].to
	to := s.rd.Acked()
	for to < end {
		if e := r.Event(to); e.Kind != event.Begin && store.LastOrdinal(e) > ordinal {
			break
		}
		to++
	}
	if freed, err = s.move(to); err != nil {
		return freed, err
	}
	if to < end {
		// The part of an event that is done; the rest of it is handed out with Skip.
		if e := r.Event(to); e.Kind == event.Rows && e.Ordinal <= ordinal {
			s.cursor.Progress, s.cursor.Open = max(s.cursor.Progress, ordinal-s.cursor.Ordinal), e.Txn.GTID
		}
	}
	s.cut = max(s.cut, s.cursor.Last())
	if lazy != nil {
		lazy.Acknowledged(s.batches[0].id)
		s.lazy = lazy
	}
	s.rollbackAll()
	return freed, nil
}
