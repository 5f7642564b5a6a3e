package server

import (
	"context"
	"fmt"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// LazyState is a cursor's state that its subscriber keeps in memory and that is written only when the
// cursor is saved or read: for a state that is large, or that changes with every acknowledgement.
//
// Both methods are called with a lock of the server held. They must be quick and must not call the server.
type LazyState interface {
	// Acknowledged is called when the cursor moves behind the batch. From then on State returns
	// the state that belongs to this cursor (I2).
	Acknowledged(batchID int64)
	// State returns the bytes; the server does not change them. An error keeps the cursor from being saved.
	State() ([]byte, error)
}

// AckLazy is [Server.Ack] with a state that is not written yet. The server asks
// for it until the next Ack with bytes, SaveState or AckLazy.
func (s *Server) AckLazy(ctx context.Context, id Identity, batchID int64, state LazyState) error {
	return s.acknowledge(ctx, id, func(x *sub) (bool, error) { return x.ack(batchID, nil, state) })
}

// AckLazy is [Server.AckLazy].
func (c *Client) AckLazy(ctx context.Context, batchID int64, state LazyState) error {
	return c.s.AckLazy(ctx, c.id, batchID, state)
}

// whole returns a copy of the cursor with its state. The destination's mu is held.
func (s *sub) whole() (event.Cursor, error) {
	r := meta.Record{Cursor: s.cursor}
	if s.lazy == nil {
		return r.Clone().Cursor, nil
	}
	r.Cursor.State = nil
	c := r.Clone().Cursor
	state, err := s.lazy.State()
	if err != nil {
		return event.Cursor{}, fmt.Errorf("%s: state of the cursor: %w", s.id, err)
	}
	c.State = state
	return c, nil
}
