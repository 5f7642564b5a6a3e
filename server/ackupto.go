package server

import (
	"context"
	"errors"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/store"
)

// AckUpTo acknowledges everything handed out up to an ordinal, which may lie inside a batch or an event, and makes what lies
// behind it be handed out again: for a subscriber that comes to a change that it cannot pass. state as in AckLazy; nil leaves it.
func (s *Server) AckUpTo(ctx context.Context, id Identity, ordinal int64, state LazyState) error {
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	x, move, err := d.ackUpTo(id, ordinal, state)
	if err != nil || s.opts.SaveInterval > 0 {
		return err
	}
	return d.saveBefore(ctx, x, move)
}

// AckUpTo is [Server.AckUpTo].
func (c *Client) AckUpTo(ctx context.Context, ordinal int64, state LazyState) error {
	return c.s.AckUpTo(ctx, c.id, ordinal, state)
}

func (d *destination) ackUpTo(id Identity, ordinal int64, lazy LazyState) (*sub, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.connected(id)
	if err != nil {
		return nil, 0, err
	}
	if d.fatal != nil {
		return nil, 0, d.fatal // I8: nothing is saved once we know
	}
	freed, err := s.ackUpTo(ordinal, lazy)
	if errors.Is(err, errBackward) {
		return nil, 0, d.broken(err)
	}
	if err != nil {
		return nil, 0, err
	}
	d.moved(s, freed)
	return s, s.run.moves, nil
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
