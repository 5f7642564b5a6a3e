package plans

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

type plan struct{ name string }

func newCache(limit int) *Cache[plan] {
	c := New(func(t *event.Table) (*plan, int) { return &plan{t.Name}, 1000 })
	c.limit = limit
	return c
}

func TestBounded(t *testing.T) {
	c := newCache(10_000)
	var freed atomic.Int64
	for i := range 1000 {
		tab := &event.Table{Name: fmt.Sprint(i)}
		runtime.AddCleanup(tab, func(int) { freed.Add(1) }, 0)
		if p := c.Get(tab); p.name != tab.Name {
			t.Fatalf("plan of %s for table %s", p.name, tab.Name)
		}
		if n := len(c.young) + len(c.old); n > 20 {
			t.Fatalf("%d plans held", n)
		}
	}
	for try := 0; freed.Load() < 950; try++ {
		if try == 500 {
			t.Fatalf("only %d of 1000 tables were let go", freed.Load())
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(c)
}

func TestWorkingSetStays(t *testing.T) {
	c := newCache(10_000)
	hot := &event.Table{Name: "hot"}
	want := c.Get(hot)
	for i := range 100 {
		c.Get(&event.Table{Name: fmt.Sprint(i)})
		if c.Get(hot) != want {
			t.Fatalf("the plan in use was dropped at %d", i)
		}
	}
}

func TestConcurrent(t *testing.T) {
	c := newCache(5_000)
	tables := make([]*event.Table, 20)
	for i := range tables {
		tables[i] = &event.Table{Name: fmt.Sprint(i)}
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				tab := tables[(i*7+w)%len(tables)]
				if p := c.Get(tab); p.name != tab.Name {
					t.Errorf("plan of %s for table %s", p.name, tab.Name)
					return
				}
			}
		})
	}
	wg.Wait()
}
