package bridge

import (
	"context"
	"fmt"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/sink"
)

// plan is everything that one table's rows have in common. It is immutable and
// shared by the goroutines that encode.
type plan struct {
	table      *event.Table
	topic      string
	partitions int32 // of topic; 0: the sink has none
	key        []int // indexes of the key columns; nil: none, or not used
	rule       Key
	name       []byte // "schema.table"
	home       int32  // partition of rows without key
	schema     []byte
	tableName  []byte
}

// maxPlans bounds the bytes of the plans kept and of their tables (I9). A server with more tables in use than that
// pays for planning again.
const maxPlans = 32 << 20

// planner makes plans. It belongs to the goroutine that pulls.
type planner struct {
	o     *Options
	c     *compiled
	plans map[*event.Table]*plan
	size  int // bytes of plans
	last  *plan
	pins  map[string]int32                                   // topics resolved in this session
	pin   func(topic string, n int32) error                  // remembers a topic's number in the state, or reports that it changed
	count func(ctx context.Context, t string) (int32, error) // asks the sink
}

// of returns the plan of a table. It may wait for the broker, until ctx ends.
func (p *planner) of(ctx context.Context, t *event.Table) (*plan, error) {
	if p.last != nil && p.last.table == t {
		return p.last, nil
	}
	pl := p.plans[t]
	if pl == nil {
		var err error
		if pl, err = p.make(ctx, t); err != nil {
			return nil, err
		}
		size := t.Memory() + len(pl.topic) + 2*len(pl.name) + 256
		if p.size+size > maxPlans {
			clear(p.plans)
			p.size = 0
		}
		p.plans[t] = pl
		p.size += size
	}
	p.last = pl
	return pl, nil
}

func (p *planner) make(ctx context.Context, t *event.Table) (*plan, error) {
	name := t.Schema + "." + t.Name
	topic, err := p.c.topics.topic(t.Schema, t.Name)
	if err != nil {
		return nil, &StopError{Table: name, Err: err,
			Remedy: "change the sink's topic template so that it does not use the offending name, or exclude the table from the sink"}
	}
	pl := &plan{table: t, topic: topic, rule: p.o.Key, name: []byte(name), schema: []byte(t.Schema), tableName: []byte(t.Name)}
	if pl.rule == PrimaryKey {
		pl.key = t.Key
	}
	for _, k := range p.c.keys {
		if !k.filter.Match(t.Schema, t.Name) {
			continue
		}
		pl.rule, pl.key = PrimaryKey, nil
		for _, column := range k.columns {
			i := columnIndex(t, column)
			if i < 0 {
				return nil, &StopError{Table: name, Err: fmt.Errorf("key column %q is not in the table", column),
					Remedy: "correct the sink's key columns for this table"}
			}
			pl.key = append(pl.key, i)
		}
		break
	}
	if pl.partitions, err = p.resolve(ctx, topic); err != nil {
		return nil, err
	}
	// I5: a row without key takes its table as partition key.
	pl.home = partition(pl.name, pl.partitions)
	return pl, nil
}

// resolve returns the number of partitions of a topic, which stays what it is.
func (p *planner) resolve(ctx context.Context, topic string) (int32, error) {
	if n, ok := p.pins[topic]; ok {
		return n, nil
	}
	n, err := p.count(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	if err := p.pin(topic, n); err != nil {
		return 0, err
	}
	p.pins[topic] = n
	return n, nil
}

func columnIndex(t *event.Table, name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// partition is the partition of a key among n; -1 where the sink has none.
func partition(key []byte, n int32) int32 {
	if n <= 0 {
		return -1
	}
	return sink.Partition(key, n)
}
