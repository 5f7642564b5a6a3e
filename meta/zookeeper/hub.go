package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// hub keeps watches, at most one a path: the client keeps each until it fires, so that asking for one with each look
// would take memory for ever.
type hub struct {
	mu    sync.Mutex
	open  map[string]chan struct{} // closed when something has happened to the path
	pokes []chan struct{}          // told of everything
}

func newHub() *hub { return &hub{open: map[string]chan struct{}{}} }

// listener returns a channel that is told whenever a watch fires. Not to be called once the client runs.
func (h *hub) listener() chan struct{} {
	c := make(chan struct{}, 1)
	h.pokes = append(h.pokes, c)
	return c
}

// poke wakes whoever listens on a listener's channel.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// arm returns the channel of the path's watch; it has to be asked for if it is new.
func (h *hub) arm(at string) (changed chan struct{}, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.open[at]
	if changed == nil {
		changed, isNew = make(chan struct{}), true
		h.open[at] = changed
	}
	return changed, isNew
}

// fire tells of a change.
func (h *hub) fire(at string) {
	h.mu.Lock()
	c := h.open[at]
	delete(h.open, at)
	h.mu.Unlock()
	if c != nil {
		close(c)
	}
	h.pokeAll()
}

func (h *hub) pokeAll() {
	for _, c := range h.pokes {
		poke(c)
	}
}

// fireAll tells that every watch is gone, with the session.
func (h *hub) fireAll() {
	h.mu.Lock()
	all := h.open
	h.open = map[string]chan struct{}{}
	h.mu.Unlock()
	for _, c := range all {
		close(c)
	}
	h.pokeAll()
}

// watched is get with a watch: changed is closed when the node may have changed, appeared or gone.
func (s *Store) watched(ctx context.Context, at string) (n node, changed <-chan struct{}, err error) {
	if err := s.authenticate(ctx); err != nil {
		return node{}, nil, err
	}
	c, isNew := s.hub.arm(at)
	if isNew {
		_, err := call(ctx, s, func() (bool, error) {
			there, _, _, err := s.conn.ExistsW(at)
			return there, err
		})
		if err != nil {
			s.hub.fire(at)
			return node{}, nil, err
		}
	}
	n, err = s.get(ctx, at)
	return n, c, err
}

// watchedChildren names the children of a node, with a watch as watched's. A node that is not there has none.
func (s *Store) watchedChildren(ctx context.Context, at string) ([]string, error) {
	if err := s.authenticate(ctx); err != nil {
		return nil, err
	}
	_, isNew := s.hub.arm(at)
	names, err := call(ctx, s, func() (names []string, err error) {
		if isNew {
			names, _, _, err = s.conn.ChildrenW(at)
		} else {
			names, _, err = s.conn.Children(at)
		}
		return names, err
	})
	if err != nil && isNew {
		s.hub.fire(at)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}
