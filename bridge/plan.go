package bridge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/sink"
)

// plan is everything that one table's rows have in common. It is immutable and
// shared by the goroutines that encode.
type plan struct {
	table     *event.Table
	to        target
	dead      *target // where the whole of a message goes that is too large for to; nil: nowhere
	key       []int   // indexes of the key columns; nil: none, or not used
	rule      Key
	name      []byte // "schema.table"
	schema    []byte
	tableName []byte
}

// target is a topic that messages go to.
type target struct {
	topic      string
	partitions int32    // 0: the sink has none
	home       int32    // partition of rows without key
	present    *present // what it holds that is not to be sent; nil: nothing is known
	limit      int      // largest sink.Message.Framed; 0: none that is decided by
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
	pins  map[string]target                                  // topics resolved in this session, without home
	pin   func(topic string, n int32) error                  // remembers a topic's number in the state, or reports that it changed
	count func(ctx context.Context, t string) (int32, error) // asks the sink
	find  func(ctx context.Context, t string, n int32) (*present, error)
	limit func(ctx context.Context, t string) (int, error) // returns the topic's limit, as remembered in the state; nil: nothing is decided by it
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
		size := t.Memory() + len(pl.to.topic) + 2*len(pl.name) + 256
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
	pl := &plan{table: t, rule: p.o.Key, name: []byte(name), schema: []byte(t.Schema), tableName: []byte(t.Name)}
	if pl.rule == PrimaryKey {
		pl.key = t.Key
	}
	for _, k := range p.c.keys {
		if !k.filter.For(t.Caseless).Match(t.Schema, t.Name) {
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
	if pl.to, err = p.resolve(ctx, topic, p.o.MaxMessageBytes); err != nil {
		return nil, err
	}
	// I5: a row without key takes its table as partition key.
	pl.to.home = partition(pl.name, pl.to.partitions)
	if p.c.dead != nil {
		if pl.dead, err = p.deadLetters(ctx, pl); err != nil {
			return nil, err
		}
	}
	return pl, nil
}

// truncates reports whether topics of tables hold messages of statements.
func truncates(c codec.Codec) bool {
	t, ok := c.(codec.Truncater)
	return ok && t.Truncates()
}

// emptied returns the plan of the table whose emptying is to be a message among its rows; nil: the event is no such one.
func (p *planner) emptied(ctx context.Context, e *event.Event) (*plan, error) {
	if !truncates(p.o.Codec) {
		return nil, nil
	}
	first := e.Stmt.First()
	if first.Action != event.ActionTruncate || first.Object != event.ObjectTable || !p.c.takes(first.Schema, first.Name, e.Stmt.Caseless) {
		return nil, nil
	}
	// Without key: its place is that of rows that have none.
	o := *p
	o.c = &compiled{topics: p.c.topics}
	return o.make(ctx, &event.Table{Schema: first.Schema, Name: first.Name, Caseless: e.Stmt.Caseless})
}

// resolve returns what is known of a topic, which stays what it is. limit is its limit, if not 0.
func (p *planner) resolve(ctx context.Context, topic string, limit int) (target, error) {
	if t, ok := p.pins[topic]; ok {
		return t, nil
	}
	n, err := p.count(ctx, topic)
	if err != nil {
		return target{}, fmt.Errorf("topic %s: %w", topic, err)
	}
	if err := p.pin(topic, n); err != nil {
		return target{}, err
	}
	if limit == 0 && p.limit != nil {
		if limit, err = p.limit(ctx, topic); err != nil {
			return target{}, fmt.Errorf("topic %s: its limit: %w", topic, err)
		}
	}
	t := target{topic: topic, partitions: n, limit: limit}
	if t.present, err = p.find(ctx, topic, n); err != nil {
		return target{}, err
	}
	p.pins[topic] = t
	return t, nil
}

// columnIndex finds a column; its name's case means nothing, as in SQL.
func columnIndex(t *event.Table, name string) int {
	return slices.IndexFunc(t.Columns, func(c event.Column) bool { return strings.EqualFold(c.Name, name) })
}

// partition is the partition of a key among n; -1 where the sink has none.
func partition(key []byte, n int32) int32 {
	if n <= 0 {
		return -1
	}
	return sink.Partition(key, n)
}
