package kafka

import (
	"errors"
	"fmt"
	"time"
)

// standstill is a partition whose last stable offset does not move.
type standstill struct {
	lso   int64
	since time.Time
}

// watch looks now and then for partitions where consumers that read committed only are held up by a transaction that
// nobody ends, although none of ours is open there: health is red for as long as there is one.
func (t *transactor) watch() {
	ses := t.ses
	defer ses.wg.Done()
	select {
	case <-t.begun:
	case <-ses.ctx.Done():
		return
	}
	tick := time.NewTicker(ses.s.o.watchEvery)
	defer tick.Stop()
	stands := map[partitionID]standstill{}
	troubled := false
	for {
		select {
		case <-tick.C:
		case <-ses.ctx.Done():
			ses.s.counts.hanging.Store(0)
			return
		}
		hanging, err := t.look(stands)
		if ses.ctx.Err() != nil {
			continue
		}
		if err != nil {
			ses.s.o.Logger.Debug("kafka: looking for hanging transactions", "error", err) // whoever sends shows what is wrong
			continue
		}
		ses.s.counts.hanging.Store(int64(len(hanging)))
		var fault error
		if len(hanging) > 0 {
			id := hanging[0]
			fault = ses.s.hanging(id.topic, id.partition, fmt.Errorf("at %d for %v; %d partitions", stands[id].lso, time.Since(stands[id].since).Round(time.Second), len(hanging)))
			if !troubled {
				ses.s.o.Logger.Error("kafka: consumers are held up", "error", fault)
			}
		}
		ses.mu.Lock()
		ses.setTrouble(troubled, fault)
		ses.mu.Unlock()
		troubled = fault != nil
	}
}

// look returns the partitions that have stood still for long.
func (t *transactor) look(stands map[partitionID]standstill) (hanging []partitionID, err error) {
	ses := t.ses
	by := map[string][]partitionID{}
	first := map[partitionID]int64{} // of the open transaction
	ses.mu.Lock()
	for _, tl := range ses.topics {
		for _, l := range tl.lanes {
			if l == nil || l.broker == nil {
				continue
			}
			id := partitionID{tl.t.name, l.partition}
			by[l.broker.addr] = append(by[l.broker.addr], id)
			if l.member {
				first[id] = l.first
			}
		}
	}
	ses.mu.Unlock()
	for addr, ids := range by {
		ends, lsos := make([]int64, len(ids)), make([]int64, len(ids))
		var bad error
		take := func(to []int64) func(int, int64, int16) {
			return func(i int, offset int64, code int16) {
				if to[i] = offset; code != codeNoError {
					bad = topicError(ids[i].topic, &Error{Code: code})
				}
			}
		}
		e := ses.s.atLeader(ses.ctx, addr, func(c *conn) error {
			return errors.Join(c.offsets(ses.ctx, readUncommitted, latestOffset, ids, take(ends)), c.offsets(ses.ctx, readCommitted, latestOffset, ids, take(lsos)))
		})
		if err = errors.Join(err, e, bad); e != nil || bad != nil {
			continue
		}
		for i, id := range ids {
			// Where our transaction has its first message, or may have it by now, the last stable offset rightly stands.
			if at, ours := first[id]; lsos[i] >= ends[i] || ours && (at < 0 || lsos[i] >= at) {
				delete(stands, id)
				continue
			}
			k, ok := stands[id]
			if !ok || k.lso != lsos[i] {
				k = standstill{lsos[i], time.Now()}
				stands[id] = k
			}
			if time.Since(k.since) >= ses.s.o.hangAfter {
				hanging = append(hanging, id)
			}
		}
	}
	return hanging, err
}
