package pulsar

import (
	"context"
	"sync"
)

// gate bounds the messages and bytes that are accepted and not done (I9).
type gate struct {
	maxMsgs, maxBytes int64

	mu          sync.Mutex
	msgs, bytes int64
	room        chan struct{} // closed when there may be room; nil: nobody waits
	idle        chan struct{} // closed when nothing is held; nil: nobody waits
}

// enter waits until a message of n bytes fits, or ctx or the session ends.
func (g *gate) enter(ctx context.Context, ended <-chan struct{}, n int64) error {
	g.mu.Lock()
	for g.msgs > 0 && (g.msgs >= g.maxMsgs || g.bytes+n > g.maxBytes) {
		if g.room == nil {
			g.room = make(chan struct{})
		}
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
		g.mu.Lock()
	}
	g.msgs++
	g.bytes += n
	g.mu.Unlock()
	return nil
}

// leave gives back what a message took.
func (g *gate) leave(n int64) {
	g.mu.Lock()
	g.msgs--
	g.bytes -= n
	// A waiter is woken at three quarters: one switch for many messages.
	if g.room != nil && (g.msgs == 0 || g.msgs <= g.maxMsgs*3/4 && g.bytes <= g.maxBytes*3/4) {
		close(g.room)
		g.room = nil
	}
	if g.idle != nil && g.msgs == 0 {
		close(g.idle)
		g.idle = nil
	}
	g.mu.Unlock()
}

// wait returns when nothing is held, or ctx ends.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.msgs == 0 {
			g.mu.Unlock()
			return nil
		}
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) held() (msgs, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.msgs, g.bytes
}
