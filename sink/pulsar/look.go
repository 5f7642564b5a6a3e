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
	busyLooks  = 8                    // at a topic that has as many consumers as it may have, before that counts as if it could not be read
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

// holds tells whether the topic was seen to hold an id.
func (p *proof) holds(id int64) bool {
	if p == nil {
		return false
	}
	i, found := slices.BinarySearchFunc(p.spans, id, func(s span, id int64) int { return cmp.Compare(s.first, id) })
	return found || i > 0 && id <= p.spans[i-1].last
}

// shows tells whether the topic holds an id, as far as can be seen: a message that was refused is overtaken by no more than was on
// its way with it.
func (p *proof) shows(id int64) bool {
	return p != nil && (p.blind || p.cut && (len(p.spans) == 0 || id < p.spans[0].first) || p.holds(id))
}

// proves tells whether that is enough to take an id for stored: of one that is noted as a suspect, the broker's word is not.
func (p *proof) proves(id int64, noted bool) bool { return p.holds(id) || !noted && p.shows(id) }

var (
	errSeen    = errors.New("seen enough")
	errNotSeen = errors.New("the broker calls a message a duplicate that is newer than what it shows of the topic")
)

// look reads the end of a topic partition, as far back as where id is.
func (s *Sink) look(ctx context.Context, back backend, where string, id int64) (*proof, error) {
	killpoint.Hit("pulsar.look")
	name, keep := s.opt.producerName(), max(lookBehind, 2*int(s.opt.MaxInFlightMessages))
	best := &proof{}
	var failed error
	ago := max(time.Since(s.book.lastReceipts()), 0) // the clock may have been set back
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
		if failed = nil; err != nil && err != errSeen && p.newest() < id { // what follows may be no message
			if ctx.Err() != nil || mayNotRead(err) || mayReadLater(err) {
				return nil, err
			}
			failed = err // a time by the broker's clock may be behind the topic's end, where it is silent: a wider scan may tell more
			continue
		}
		if p.reaches(id) {
			return p, nil
		}
		if len(best.spans) == 0 || err == nil && len(p.spans) > 0 && p.spans[0].first < best.spans[0].first {
			best = p
		}
	}
	return best, failed
}

// lastReceipts returns the time of the last receipts that was saved.
func (b *book) lastReceipts() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.UnixMilli(b.seen)
}

// looking is a lane's trouble while its topic's end is looked at.
type looking struct{ *lane }

// prove looks at the end of the topic until l.proof lets id be believed. An error says that the message is not stored and never can be
// (I3), or that the session has ended. Only the goroutine that deals with what the broker calls duplicates may call it.
func (l *lane) prove(id int64) error {
	n := l.s
	defer n.sink.forget(looking{l})
	l.mu.Lock()
	e, noted := l.find(id), id == l.suspect
	l.mu.Unlock()
	missed, busy := false, 0
	for wait := (backoff{}); ; n.sink.retries.Add(1) {
		p, err := l.look(id)
		unreadable := mayNotRead(err)
		if mayReadLater(err) {
			busy++
			unreadable = busy >= busyLooks
		}
		gone := err == nil && !p.reaches(id)
		switch {
		case n.ctx.Err() != nil:
			return n.ctx.Err()
		case noted && (gone || unreadable):
			return l.spent(e, id, leftBehind) // nobody can see more of it
		case gone:
			n.sink.opt.Logger.Warn("pulsar: the topic holds the messages no more that were on their way when the last run or link ended; the broker is taken at its word that it had stored them",
				"topic", l.where, "sequence", id>>subIndexBits, "holds_from", sequenceText(p.oldest()))
			p.cut, p.blind = true, len(p.spans) == 0
		case err == nil && p.newest() < id:
			err = errNotSeen
		case unreadable:
			n.sink.unseen.Do(func() {
				n.sink.opt.Logger.Warn("pulsar: the ends of topics cannot be read, so the broker is taken at its word where it says that it has stored messages for which no receipt is known; "+
					readRemedy(err, namespaceOf(l.where)), "topic", l.where, "error", err)
			})
			p, err = &proof{blind: true}, nil
		}
		switch {
		case err != nil:
			n.sink.trouble(looking{l}, fmt.Errorf("pulsar: %s: whether the topic holds what the broker calls a duplicate has to be read: %w", l.where, err))
			if !wait.sleep(n.ctx) {
				return n.ctx.Err()
			}
		case p.proves(id, noted):
			p.behind(id)
			l.mu.Lock()
			l.proof = p
			l.mu.Unlock()
			return nil
		case !missed:
			// What is trimmed while it is read is left out, like what was refused. Where it began, a second look does not reach.
			missed = true
		default:
			if !noted {
				n.sink.book.suspect(l.account, id)
			}
			return l.spent(e, id, "the topic does not hold it, and later ones")
		}
	}
}

// mayNotRead tells that the role has not the right to read, or the policies of the topic do not allow it.
func mayNotRead(err error) bool {
	code := wire.Code(err)
	return code == wire.CodeAuthorization || code == wire.CodeNotAllowed
}

// mayReadLater tells that the topic has as many consumers as it may have.
func mayReadLater(err error) bool { return wire.Code(err) == wire.CodeConsumerBusy }

// readRemedy says what lets us read a namespace's topics; "" if the error is of another kind.
func readRemedy(err error, namespace string) string {
	switch wire.Code(err) {
	case wire.CodeAuthorization:
		return "let the role consume: pulsar-admin namespaces grant-permission " + namespace + " --role ROLE --actions produce,consume"
	case wire.CodeNotAllowed:
		return "let policies allow one more subscription, of type Exclusive: pulsar-admin namespaces set-subscription-types-enabled " + namespace +
			" and set-max-subscriptions-per-topic, and the topic's own"
	case wire.CodeConsumerBusy:
		return "let policies allow one more consumer: pulsar-admin namespaces set-max-consumers-per-topic " + namespace + ", and the topic's own"
	}
	return ""
}

// namespaceOf returns the namespace of a topic partition.
func namespaceOf(where string) string {
	name, err := parsePartition(where)
	if err != nil {
		return "TENANT/NAMESPACE"
	}
	return name.namespace
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
	shown := make(chan struct{})
	slow := time.AfterFunc(troubleAfter, func() {
		defer close(shown)
		n.sink.trouble(looking{l}, fmt.Errorf("pulsar: %s: the end of the topic is being read, to see whether it holds what the broker calls a duplicate", l.where))
	})
	defer func() {
		if !slow.Stop() {
			<-shown // before it is forgotten
		}
	}()
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
	return duplicate && !l.proof.proves(id, id == l.suspect)
}
