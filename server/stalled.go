package server

// Stalled reports whether reading waits for room in the subscription's ring, all of which is handed out to it:
// then no event comes before it acknowledges one of its batches, of which there are handed.
func (s *Server) Stalled(id Identity) (handed int, stalled bool) {
	d, err := s.destination(id.Destination)
	if err != nil {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x, err := d.connected(id)
	if err != nil || x.feed == nil || x.rd == nil {
		return 0, false
	}
	return len(x.batches), x.feed.run.blocked && !x.feed.roomy() && x.rd.Taken() == x.feed.ring.Next()
}

// Stalled is [Server.Stalled].
func (c *Client) Stalled() (handed int, stalled bool) { return c.s.Stalled(c.id) }
