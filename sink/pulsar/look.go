package pulsar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

const (
	lookAtOnce = 16                   // topics whose ends are looked at at the same time
	lookBehind = 50_000               // of our entries at the end of a topic, at least, that are kept of a look
	lookSlack  = time.Minute          // how much earlier than the last receipts that were saved a message may have been sent
	lookFar    = time.Hour            // the same with a broker that was away, and clocks that disagree
	lookNear   = 1000                 // entries that are read first
	lookBroad  = 64 * int64(lookNear) // and then
)

// proof is what the end of a topic partition holds of our messages. What the broker calls a duplicate is not above what it has
// stored of our name, which does not say that it is stored itself: it may have been refused while later ones were on their way. nil
// shows nothing.
type proof struct {
	spans []span // by first, and with last rising
	cut   bool   // there are older ones, which were left out
	blind bool   // nothing can be seen: the broker is taken at its word
}

// span is an entry: all of a lane's messages from one id to another.
type span struct{ first, last int64 }

// add notes an entry of ours, and keeps the newest ones (I9).
func (p *proof) add(s span, keep int) {
	if len(p.spans) >= 2*keep {
		n := copy(p.spans, p.spans[len(p.spans)-keep:])
		p.spans, p.cut = p.spans[:n], true
	}
	p.spans = append(p.spans, s)
}

// settle brings the spans into order, which they are in unless the topic has some of them twice.
func (p *proof) settle() {
	slices.SortStableFunc(p.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(p.spans); i++ {
		p.spans[i].last = max(p.spans[i].last, p.spans[i-1].last)
	}
}

// behind leaves out what is before an id that is shown, for what is asked next is not below it.
func (p *proof) behind(id int64) {
	if i, _ := slices.BinarySearchFunc(p.spans, id, func(s span, id int64) int { return cmp.Compare(s.last, id) }); len(p.spans) > 0 && p.spans[0].first <= id {
		p.spans, p.cut = slices.Clone(p.spans[i:]), false
	}
}

// reaches tells whether the proof goes back to where an id is, or must be missed.
func (p *proof) reaches(id int64) bool {
	return p.cut || len(p.spans) > 0 && p.spans[0].first <= id
}

// newest returns the highest id seen; -1: none.
func (p *proof) newest() int64 {
	if len(p.spans) == 0 {
		return -1
	}
	return p.spans[len(p.spans)-1].last
}

// shows tells whether the topic holds an id, as far as can be seen.
func (p *proof) shows(id int64) bool {
	if p == nil {
		return false
	}
	i, found := slices.BinarySearchFunc(p.spans, id, func(s span, id int64) int { return cmp.Compare(s.first, id) })
	switch {
	case p.blind || found:
		return true
	case i == 0:
		// A message that was refused is overtaken by no more than was on its way with it.
		return p.cut
	}
	return id <= p.spans[i-1].last
}

var (
	errSeen    = errors.New("seen enough")
	errNotSeen = errors.New("the broker calls a message a duplicate that is newer than what it shows of the topic")
)

// look reads the end of a topic partition, as far back as where id is.
func (s *Sink) look(ctx context.Context, back backend, where string, id int64) (*proof, error) {
	killpoint.Hit("pulsar.look")
	name, keep := s.opt.producerName(), max(lookBehind, 2*int(s.opt.MaxInFlightMessages))
	best := &proof{}
	ago := time.Since(s.book.lastReceipts())
	for _, from := range []wire.From{{Entries: lookNear}, {Entries: lookBroad}, {Back: ago + lookSlack}, {Back: ago + lookFar}, {}} {
		p := &proof{}
		err := back.scan(ctx, where, from, func(e *wire.Stored) error {
			if string(e.Producer) != name {
				return nil
			}
			p.add(span{e.First, e.Last}, keep)
			if from == (wire.From{}) && !p.reaches(id) {
				return errSeen // what was before is not held any more
			}
			return nil
		})
		p.settle()
		if err != nil && err != errSeen && p.newest() < id { // what follows may be no message
			return nil, err
		}
		if len(p.spans) > 0 && (len(best.spans) == 0 || p.spans[0].first < best.spans[0].first) && err != errSeen {
			best = p
		}
		if best.reaches(id) {
			break
		}
	}
	return best, nil
}

// lastReceipts returns the time of the last receipts that was saved.
func (b *book) lastReceipts() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.UnixMilli(b.seen)
}

// prove looks at the end of the topic until l.proof shows an id. An error says that the message is not stored and never can be (I3), or
// that the session has ended. Only the goroutine that deals with what the broker calls duplicates may call it.
func (l *lane) prove(id int64) error {
	n := l.s
	type looking struct{ *lane }
	defer n.sink.forget(looking{l})
	for wait := (backoff{}); ; n.sink.retries.Add(1) {
		p, err := l.look(id)
		switch {
		case n.ctx.Err() != nil:
			return n.ctx.Err()
		case err == nil && !p.reaches(id):
			n.sink.opt.Logger.Warn("pulsar: the topic holds the messages no more that were on their way when the last run or link ended; the broker is taken at its word that it had stored them",
				"topic", l.where, "sequence", id>>subIndexBits, "holds_from", sequenceText(p.oldest()))
			p.cut, p.blind = true, len(p.spans) == 0
		case err == nil && p.newest() < id:
			err = errNotSeen
		case mayNotRead(err):
			n.sink.unseen.Do(func() {
				n.sink.opt.Logger.Warn("pulsar: the ends of topics cannot be read, so the broker is taken at its word where it says that it has stored messages for which no receipt is known; "+
					"let the role consume (pulsar-admin namespaces grant-permission NAMESPACE --role ROLE --actions produce,consume)", "topic", l.where, "error", err)
			})
			p, err = &proof{blind: true}, nil
		}
		if err == nil {
			if p.shows(id) {
				p.behind(id)
				l.mu.Lock()
				l.proof = p
				l.mu.Unlock()
				return nil
			}
			l.mu.Lock()
			e := l.find(id)
			l.mu.Unlock()
			n.sink.book.suspect(l.account, id)
			return l.spent(e, id, "the topic does not hold it, and later ones")
		}
		n.sink.trouble(looking{l}, fmt.Errorf("pulsar: %s: whether the topic holds what the broker calls a duplicate has to be read: %w", l.where, err))
		if !wait.sleep(n.ctx) {
			return n.ctx.Err()
		}
	}
}

// mayNotRead tells that the role has not the right to read, or the policies of the topic do not allow it.
func mayNotRead(err error) bool {
	code := wire.Code(err)
	return code == wire.CodeAuthorization || code == wire.CodeNotAllowed
}

// oldest returns the lowest id seen; -1: none.
func (p *proof) oldest() int64 {
	if len(p.spans) == 0 {
		return -1
	}
	return p.spans[0].first
}

// look is Sink.look when it is this lane's turn.
func (l *lane) look(id int64) (*proof, error) {
	n := l.s
	select {
	case n.looks <- struct{}{}:
		defer func() { <-n.looks }()
	case <-n.ctx.Done():
		return nil, n.ctx.Err()
	}
	return n.sink.look(n.ctx, n.back, l.where, id)
}

// told is a receipt that waits until it is known whether the topic holds its message, or one before.
type told struct {
	id        int64
	duplicate bool
}

// weigh deals with the receipts that wait, in their order, and ends when none does.
func (l *lane) weigh() {
	for {
		l.mu.Lock()
		if l.over != nil || len(l.told) == 0 {
			l.told, l.weighing = nil, false
			l.mu.Unlock()
			return
		}
		t := l.told[0]
		if l.doubtful(t.id, t.duplicate) {
			l.mu.Unlock()
			if err := l.prove(t.id); err != nil {
				if l.s.ctx.Err() == nil {
					l.s.fail(err)
				}
				return
			}
			continue
		}
		l.told = l.told[1:]
		l.take(t.id, t.duplicate)
	}
}

// doubtful tells whether the topic must be looked at before a receipt is believed. l.mu is held.
func (l *lane) doubtful(id int64, duplicate bool) bool {
	return duplicate && id != l.suspect && !l.proof.shows(id)
}
