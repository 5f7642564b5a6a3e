package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-zookeeper/zk"
)

// hosts gives the client its servers by name, so that names are looked up at each dial. It implements zk.HostProvider.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since the last connection
}

func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	retryStart = h.tried >= len(h.servers)
	if retryStart {
		h.tried = 0
	}
	h.tried++
	return server, retryStart
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// clientLog passes the client's messages on. They name servers and session ids, no secret.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client: " + fmt.Sprintf(format, args...))
}

// call runs a request of the client, which knows no context. When ctx ends first the request may still be carried out.
func call[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	done := make(chan result, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return zero, errClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.calls.Done()
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// multi carries out all operations or none. failed is the index of the operation that was refused, -1 when none was.
func (s *Store) multi(ctx context.Context, ops ...any) (failed int, err error) {
	rs, err := call(ctx, s, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
	if err == nil {
		return -1, nil
	}
	for i := range rs {
		if rs[i].Error != nil {
			return i, rs[i].Error // those before it would have been carried out, those behind it were not tried
		}
	}
	return -1, err
}
