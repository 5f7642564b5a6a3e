package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalfilter"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canalview"
)

// Encoder writes events as serialised entries, and estimates their size.
type Encoder interface {
	AppendEntry(dst []byte, e *event.Event) ([]byte, error)
	EntrySize(e *event.Event) int
}

// Embedded is a [Connector] to a server in the same process.
type Embedded struct {
	s         *server.Server
	id        server.Identity
	e         Encoder
	connected bool
	filter    *string
}

var _ Connector = (*Embedded)(nil)

// NewEmbedded returns a connector that is not connected yet.
func NewEmbedded(s *server.Server, id server.Identity, e Encoder) *Embedded {
	return &Embedded{s: s, id: id, e: e}
}

// Connect implements [Connector].
func (c *Embedded) Connect(ctx context.Context) error {
	c.connected = true
	if c.filter != nil {
		if err := c.Subscribe(ctx, *c.filter); err != nil {
			return err
		}
	}
	return c.Rollback(ctx)
}

// Disconnect implements [Connector].
func (c *Embedded) Disconnect(ctx context.Context) error {
	if !c.connected {
		return nil
	}
	c.connected = false
	return unlessNotSubscribed(c.s.Disconnect(ctx, c.id))
}

// ready says whether a call can be made.
func (c *Embedded) ready(ctx context.Context) error {
	if !c.connected {
		return ErrNotConnected
	}
	return ctx.Err()
}

func unlessNotSubscribed(err error) error {
	if errors.Is(err, server.ErrNotSubscribed) {
		return nil
	}
	return err
}

// Subscribe implements [Connector].
func (c *Embedded) Subscribe(ctx context.Context, filter string) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	f, err := canalfilter.New(filter)
	if err != nil {
		return fmt.Errorf("%w: filter: %w", ErrRefused, err)
	}
	if err := c.s.Subscribe(ctx, c.id, filter, server.WithMatcher(canalview.Subscription{Tables: f, Entries: c.e}), server.WithWholeTransaction()); err != nil {
		return err
	}
	c.filter = &filter
	return nil
}

// Unsubscribe implements [Connector].
func (c *Embedded) Unsubscribe(ctx context.Context) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.filter = nil
	return unlessNotSubscribed(c.s.Unsubscribe(ctx, c.id))
}

// GetWithoutAck implements [Connector]; size counts KiB.
func (c *Embedded) GetWithoutAck(ctx context.Context, size int, wait Wait) (*Message, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	w := server.NoWait
	switch {
	case wait == WaitFull:
		w = server.WaitFull
	case wait > 0:
		w = server.WaitAtMost(time.Duration(wait))
	}
	b, err := c.s.GetWithoutAck(ctx, c.id, server.Size{Bytes: int64(max(0, min(size, maxSize))) << 10}, w)
	if err != nil {
		return nil, err
	}
	events := canalview.WithoutEmpty(b.Events)
	m := &Message{ID: b.ID, Entries: make([][]byte, 0, len(events))}
	for _, e := range events {
		entry, err := c.e.AppendEntry(nil, e)
		if err != nil {
			// Nobody has the batch: it comes again, with the same error while it is not mended (I3).
			return nil, errors.Join(err, c.s.RollbackTo(context.WithoutCancel(ctx), c.id, b.ID))
		}
		m.Entries = append(m.Entries, entry)
	}
	return m, nil
}

// Get implements [Connector].
func (c *Embedded) Get(ctx context.Context, size int, wait Wait) (*Message, error) {
	return getAndAck(ctx, c, size, wait)
}

// Ack implements [Connector].
func (c *Embedded) Ack(ctx context.Context, id int64) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if id == NoBatch {
		return nil
	}
	return c.s.Ack(ctx, c.id, id, nil)
}

// Rollback implements [Connector].
func (c *Embedded) Rollback(ctx context.Context) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	return unlessNotSubscribed(c.s.Rollback(ctx, c.id))
}

// RollbackTo implements [Connector].
func (c *Embedded) RollbackTo(ctx context.Context, id int64) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if id == NoBatch {
		return nil
	}
	return c.s.RollbackTo(ctx, c.id, id)
}

// List implements [Connector].
func (c *Embedded) List(ctx context.Context) ([]int64, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	ids, err := c.s.ListBatchIDs(ctx, c.id)
	return ids, unlessNotSubscribed(err)
}
