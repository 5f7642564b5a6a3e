package chaos

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/binlogmq/binlogmq/test/workload"
)

// row is a row as text. No column of the tables here is ever NULL.
type row map[string]string

// change identifies one row change: each gives its row a tag of its own, and a delete carries the last one.
type change struct {
	op  byte // i, u, d
	tag int64
}

var hashSeed = maphash.MakeSeed()

// digest stands for what a change must look like to consumers.
func digest(table string, r row) uint64 {
	cols := make([]string, 0, len(r))
	for c := range r {
		cols = append(cols, c)
	}
	slices.Sort(cols)
	var b strings.Builder
	b.WriteString(table)
	for _, c := range cols {
		fmt.Fprintf(&b, "\x00%s=%s", c, r[c])
	}
	return maphash.String(hashSeed, b.String())
}

// history is what the writers know of the past. It is safe for concurrent use.
type history struct {
	mu        sync.Mutex
	committed map[change]uint64 // digest
	undone    map[change]bool   // rolled back, by the writer or by a crash
}

func newHistory() *history {
	return &history{committed: map[change]uint64{}, undone: map[change]bool{}}
}

// record is a change of a transaction that is open.
type record struct {
	change
	digest uint64
}

func (h *history) settle(rs []record, committed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range rs {
		if committed {
			h.committed[r.change] = r.digest
		} else {
			h.undone[r.change] = true
		}
	}
}

// audit compares the messages of one sink with the history. Add the messages of each partition in order, then call Finish.
type audit struct {
	h       *history
	codec   string
	repeats bool // a message may come again (at_least_once)

	Messages    int64
	Doubled     int64 // changes that arrived once more: allowed or not
	Lost        int64
	Reordered   int64 // an older change of a row after a newer one
	Uncommitted int64 // changes that were rolled back, or that nobody made
	Wrong       int64 // changes with other contents than the writer gave
	Falling     int64 // a number of the partition that is not above the one before

	seen  map[change]bool
	last  map[string]int64 // topic and key: tag
	lanes map[string][]byte
	first []string // what was found wrong, the first few
}

func newAudit(h *history, codec string, repeats bool) *audit {
	return &audit{h: h, codec: codec, repeats: repeats, seen: map[change]bool{}, last: map[string]int64{}, lanes: map[string][]byte{}}
}

func (a *audit) wrong(n *int64, m *workload.Message, format string, args ...any) {
	*n++
	if len(a.first) < 12 {
		a.first = append(a.first, fmt.Sprintf("%s/%d seq %s: %s: %s", m.Topic, m.Partition, m.Headers["seq"], fmt.Sprintf(format, args...), m.Value))
	}
}

// Add takes the next message. Its error says that the message cannot be understood.
func (a *audit) Add(m workload.Message) error {
	a.Messages++
	c, err := workload.Parse(a.codec, m.Value)
	if err != nil {
		return fmt.Errorf("%s/%d: %w", m.Topic, m.Partition, err)
	}
	r := make(row, len(c.Data))
	for col, v := range c.Data {
		if v == nil {
			return fmt.Errorf("%s/%d: column %s is NULL in %s", m.Topic, m.Partition, col, m.Value)
		}
		r[col] = *v
	}
	id := change{op: c.Op[0]}
	if _, err := fmt.Sscan(r["tag"], &id.tag); err != nil {
		return fmt.Errorf("%s/%d: tag: %w in %s", m.Topic, m.Partition, err, m.Value)
	}
	again := a.seen[id]
	a.seen[id] = true
	if err := a.number(&m, again); err != nil {
		return err
	}
	a.h.mu.Lock()
	want, committed := a.h.committed[id]
	undone := a.h.undone[id]
	a.h.mu.Unlock()
	switch {
	case !committed && undone: // what was rolled back may be done again, as the delete of a row
		a.wrong(&a.Uncommitted, &m, "this was rolled back")
	case !committed:
		a.wrong(&a.Uncommitted, &m, "nobody committed this")
	case want != digest(c.Table, r):
		a.wrong(&a.Wrong, &m, "the writer gave other values")
	}
	if again {
		a.Doubled++
		if !a.repeats {
			a.Doubled--
			a.wrong(&a.Doubled, &m, "arrived twice")
		}
		return nil
	}
	key := m.Topic + "\x00" + string(m.Key)
	if last, ok := a.last[key]; ok && (id.tag < last || id.tag == last && id.op != 'd') {
		a.wrong(&a.Reordered, &m, "comes after the row's change %d", last)
	}
	a.last[key] = id.tag
	return nil
}

// number holds the message's sequence against the one before (I5).
func (a *audit) number(m *workload.Message, again bool) error {
	var seq, sub int64
	if _, err := fmt.Sscan(m.Headers["seq"], &seq); err != nil {
		return fmt.Errorf("%s/%d: header seq: %w", m.Topic, m.Partition, err)
	}
	if s, ok := m.Headers["sub"]; ok {
		if _, err := fmt.Sscan(s, &sub); err != nil {
			return fmt.Errorf("%s/%d: header sub: %w", m.Topic, m.Partition, err)
		}
	}
	now := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(seq)), uint64(sub))
	lane := fmt.Sprintf("%s/%d", m.Topic, m.Partition)
	if last := a.lanes[lane]; last != nil && string(now) <= string(last) {
		if !again {
			a.wrong(&a.Falling, m, "its number is not above the one before")
		}
		return nil
	}
	a.lanes[lane] = now
	return nil
}

// Finish counts what is missing.
func (a *audit) Finish() {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	for id := range a.h.committed {
		if !a.seen[id] {
			a.Lost++
			if a.Lost <= 5 {
				a.first = append(a.first, fmt.Sprintf("lost: %c of tag %d", id.op, id.tag))
			}
		}
	}
}

// Clean says whether nothing is wrong.
func (a *audit) Clean() bool {
	return a.Lost+a.Reordered+a.Uncommitted+a.Wrong+a.Falling == 0 && (a.repeats || a.Doubled == 0)
}

func (a *audit) String() string {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	return fmt.Sprintf("%d changes committed, %d rolled back, %d messages: %d lost, %d doubled, %d reordered, %d uncommitted, %d with wrong values, %d with a falling number",
		len(a.h.committed), len(a.h.undone), a.Messages, a.Lost, a.Doubled, a.Reordered, a.Uncommitted, a.Wrong, a.Falling)
}
