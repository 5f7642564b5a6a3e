package server

import "context"

// SaveState replaces the state of a connected subscription without moving its
// cursor, and returns when both are saved: for what must be durable before
// anything is done on its strength. It waits while the store refuses, and returns a *SaveError if
// ctx ends before; then the state may be saved later. The server keeps no reference to it.
func (s *Server) SaveState(ctx context.Context, id Identity, state []byte) error {
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	x, move, err := d.setState(id, state)
	if err != nil {
		return err
	}
	return d.saveBefore(ctx, x, move)
}

// setState replaces the state and returns the subscription and which of its moves that was.
func (d *destination) setState(id Identity, state []byte) (*sub, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, err := d.connected(id)
	if err != nil {
		return nil, 0, err
	}
	if d.fatal != nil {
		return nil, 0, d.fatal // I8: nothing is saved once we know
	}
	x.cursor.State, x.lazy = append(x.cursor.State[:0], state...), nil
	d.dirty(x)
	return x, x.run.moves, nil
}

// SaveState is [Server.SaveState].
func (c *Client) SaveState(ctx context.Context, state []byte) error {
	return c.s.SaveState(ctx, c.id, state)
}
