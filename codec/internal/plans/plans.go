package plans

import (
	"sync"
	"sync/atomic"

	"github.com/binlogmq/binlogmq/event"
)

// generation is how much weight one generation may hold. Two of them are kept at most.
const generation = 8 << 20

// Cache maps tables to plans of type P. It is safe for concurrent use; build
// may run more than once for a table, and one of the results is kept.
type Cache[P any] struct {
	build func(*event.Table) (plan *P, weight int)

	last  atomic.Pointer[entry[P]] // rows come in runs of one table
	limit int
	mu    sync.RWMutex
	young map[*event.Table]*entry[P]
	old   map[*event.Table]*entry[P]
	held  int // weight of young
}

type entry[P any] struct {
	table  *event.Table
	plan   *P
	weight int
}

// New returns an empty cache. build makes the plan of a table and estimates
// the bytes that it occupies.
func New[P any](build func(*event.Table) (*P, int)) *Cache[P] {
	return &Cache[P]{build: build, limit: generation, young: map[*event.Table]*entry[P]{}}
}

// Get returns the plan of t.
func (c *Cache[P]) Get(t *event.Table) *P {
	if e := c.last.Load(); e != nil && e.table == t {
		return e.plan
	}
	return c.find(t)
}

func (c *Cache[P]) find(t *event.Table) *P {
	c.mu.RLock()
	e := c.young[t]
	c.mu.RUnlock()
	if e == nil {
		e = c.insert(t)
	}
	c.last.Store(e)
	return e.plan
}

func (c *Cache[P]) insert(t *event.Table) *entry[P] {
	c.mu.RLock()
	e := c.old[t]
	c.mu.RUnlock()
	if e == nil {
		p, w := c.build(t)
		e = &entry[P]{t, p, w + 128}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.young[t]; other != nil {
		return other
	}
	if c.held+e.weight > c.limit {
		c.old, c.young, c.held = c.young, map[*event.Table]*entry[P]{}, 0
	}
	c.young[t] = e
	c.held += e.weight
	return e
}
