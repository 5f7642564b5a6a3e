package server

import (
	"context"

	"github.com/binlogmq/binlogmq/event"
)

// Client makes one subscription's calls. It is safe for concurrent use.
type Client struct {
	s  *Server
	id Identity
}

// Client returns the calls bound to one identity; it does not subscribe.
func (s *Server) Client(id Identity) *Client { return &Client{s: s, id: id} }

// Identity returns the identity the client is bound to.
func (c *Client) Identity() Identity { return c.id }

// Subscribe is [Server.Subscribe].
func (c *Client) Subscribe(ctx context.Context, filter string, opts ...SubscribeOption) error {
	return c.s.Subscribe(ctx, c.id, filter, opts...)
}

// Unsubscribe is [Server.Unsubscribe].
func (c *Client) Unsubscribe(ctx context.Context) error { return c.s.Unsubscribe(ctx, c.id) }

// Disconnect is [Server.Disconnect].
func (c *Client) Disconnect(ctx context.Context) error { return c.s.Disconnect(ctx, c.id) }

// Get is [Server.Get].
func (c *Client) Get(ctx context.Context, size Size, wait Wait) (*Batch, error) {
	return c.s.Get(ctx, c.id, size, wait)
}

// GetWithoutAck is [Server.GetWithoutAck].
func (c *Client) GetWithoutAck(ctx context.Context, size Size, wait Wait) (*Batch, error) {
	return c.s.GetWithoutAck(ctx, c.id, size, wait)
}

// Ack is [Server.Ack].
func (c *Client) Ack(ctx context.Context, batchID int64, state []byte) error {
	return c.s.Ack(ctx, c.id, batchID, state)
}

// Rollback is [Server.Rollback].
func (c *Client) Rollback(ctx context.Context) error { return c.s.Rollback(ctx, c.id) }

// RollbackTo is [Server.RollbackTo].
func (c *Client) RollbackTo(ctx context.Context, batchID int64) error {
	return c.s.RollbackTo(ctx, c.id, batchID)
}

// ListBatchIDs is [Server.ListBatchIDs].
func (c *Client) ListBatchIDs(ctx context.Context) ([]int64, error) {
	return c.s.ListBatchIDs(ctx, c.id)
}

// Cursor is [Server.Cursor].
func (c *Client) Cursor(ctx context.Context) (event.Cursor, error) { return c.s.Cursor(ctx, c.id) }
