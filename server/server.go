package server

import (
	"context"

	"github.com/binlogmq/binlogmq/event"
)

// Server hands out what its destinations read. It is safe for concurrent use.
type Server struct {
	opts Options
}

// New returns a server without destinations.
func New(opts Options) *Server { return &Server{opts: opts} }

// AddDestination makes a destination known; reading begins with Start and the
// first subscription.
func (s *Server) AddDestination(name string, src Source, opts DestinationOptions) error {
	return ErrStopped
}

// Start lets a destination be read: at once if a subscription is connected, else with the
// first one. Reading begins at the oldest cursor of the connected subscriptions,
// so subscribe those that are configured before.
func (s *Server) Start(ctx context.Context, destination string) error { return ErrStopped }

// Restart reads a failed destination on from where it stopped; also the catch-up readers of its subscriptions that
// failed. It does nothing to what is running.
func (s *Server) Restart(ctx context.Context, destination string) error { return ErrStopped }

// Stop ends all readers and waiting gets, saves every cursor and returns when the server's
// goroutines have ended. An error says which cursors could not be saved before ctx ended.
func (s *Server) Stop(ctx context.Context) error { return nil }

// Subscribe connects a subscription, creating it if nothing is saved of it. The filter is a
// comma-separated list of table patterns as in the configuration's tables, "" for every table; begins, ends and DDL are
// delivered whatever the filter. A new subscription begins at the oldest cursor of the destination's other
// subscriptions, or where the source says when there is none; that first cursor is saved
// before Subscribe returns. Subscribing again while connected replaces the
// filter for what is not handed out yet and changes nothing else.
func (s *Server) Subscribe(ctx context.Context, id Identity, filter string, opts ...SubscribeOption) error {
	return ErrStopped
}

// Unsubscribe disconnects the subscription and forgets its cursor.
func (s *Server) Unsubscribe(ctx context.Context, id Identity) error { return ErrStopped }

// Disconnect saves the subscription's cursor and lets go of it: its outstanding batches are
// forgotten, the ring no longer waits for it.
func (s *Server) Disconnect(ctx context.Context, id Identity) error { return ErrStopped }

// Get is GetWithoutAck and Ack in one. It fails with ErrOutstanding if an earlier batch is not acknowledged.
func (s *Server) Get(ctx context.Context, id Identity, size Size, wait Wait) (*Batch, error) {
	return nil, ErrStopped
}

// GetWithoutAck hands out the next batch. Several batches may be outstanding. When there is nothing
// and wait does not say to wait on, the batch is empty and its ID is NoBatch.
func (s *Server) GetWithoutAck(ctx context.Context, id Identity, size Size, wait Wait) (*Batch, error) {
	return nil, ErrStopped
}

// Ack acknowledges a batch, which must be the oldest outstanding one (else a *BatchError), and
// moves the cursor behind it. The state is saved with the cursor; nil leaves the state as it is. The server keeps no reference to it.
func (s *Server) Ack(ctx context.Context, id Identity, batchID int64, state []byte) error {
	return ErrStopped
}

// Rollback forgets all outstanding batches; their events are handed out again under new ids.
func (s *Server) Rollback(ctx context.Context, id Identity) error { return ErrStopped }

// RollbackTo forgets the batch and all later ones; their events are handed out again
// under new ids. Earlier batches stay outstanding. An id that is not outstanding gives a *BatchError.
func (s *Server) RollbackTo(ctx context.Context, id Identity, batchID int64) error {
	return ErrStopped
}

// ListBatchIDs returns the ids of the outstanding batches, oldest first.
func (s *Server) ListBatchIDs(ctx context.Context, id Identity) ([]int64, error) {
	return nil, ErrStopped
}

// ListSubscriptions returns the destination's subscriptions, connected or only saved, sorted by client.
func (s *Server) ListSubscriptions(ctx context.Context, destination string) ([]SubscriptionInfo, error) {
	return nil, ErrStopped
}

// Cursor returns what the subscription has acknowledged, its state included; of one that is not connected,
// what is saved.
func (s *Server) Cursor(ctx context.Context, id Identity) (event.Cursor, error) {
	return event.Cursor{}, ErrStopped
}

// Status returns a snapshot of every destination, sorted by name.
func (s *Server) Status() []DestinationStatus { return nil }
