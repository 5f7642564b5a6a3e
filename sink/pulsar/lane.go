package pulsar

import (
	"fmt"
	"strings"
	"sync"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

// lane is the ordered line of messages for one topic partition in one session.
//
// Its entries are a queue: those that are sent, then those that wait. While the
// lane is direct the publisher sends each at once; otherwise the lane's own
// goroutine (run) does, which opens the producer, lets a message that is larger
// than any before go alone, and keeps what is on the wire bounded. So there is
// always one sender.
type lane struct {
	s         *session
	topic     string // as the messages name it
	partition int32

	prod    producer      // set by run before direct; nil while the lane sleeps
	closing chan struct{} // closed when the producer before is; nil: none
	account *account      // set with prod
	where   string        // topic partition as the broker knows it, for errors

	mu      sync.Mutex
	queue   ring
	sent    int  // entries at the head of queue that are on the wire
	direct  bool // the publisher sends
	alone   bool // the last entry sent must be confirmed before the next
	waiting bool // run waits until no more than wakeAt entries are on the wire
	wakeAt  int
	asleep  bool  // closed when idle; the next message opens it
	stored  int64 // everything of ours up to it is stored: it is not sent again
	lastID  int64 // of the last entry accepted; -1 before
	largest int   // wire size that a receipt has shown to pass
	policy  int   // the topic's own limit on the size of an entry; 0: none known
	over    error // why no more is taken and nothing more is reported; nil: alive
	count   uint64
	suspect int64 // account's: id that is no duplicate unless the topic is seen to hold it; -1: none

	known    int64  // confirmed when the lane was opened; between it and stored the topic's end is looked at
	proof    *proof // what a look has shown; nil: none was needed since the last receipt that is no duplicate
	told     []told // receipts that wait for a look; not more than are on the wire
	weighing bool   // a goroutine deals with them

	wake chan struct{} // one place; to run

	// The watchdog's own.
	seen  uint64
	since int64 // unix nanoseconds of the last progress seen; 0: nothing owed

	idleAt    int64 // lastID when it was last looked at
	idleSince int64 // unix nanoseconds
}

// push accepts e. It fails if the lane is over.
func (l *lane) push(e *entry) error {
	l.mu.Lock()
	if l.over != nil {
		err := l.over
		l.mu.Unlock()
		return err
	}
	l.lastID = e.id
	l.queue.push(e)
	if l.asleep {
		l.asleep = false
		l.s.goLane(l)
	}
	if l.direct {
		if e.id > l.stored && !l.goesAlone(e) && l.sent < l.s.window {
			l.sent++
			l.mu.Unlock()
			l.prod.send(e)
			return nil
		}
		l.direct = false
		l.s.goLane(l)
	}
	l.mu.Unlock()
	return nil
}

// alwaysAlone is the wire size above which an entry is sent alone though larger ones have passed: a topic's limit may be
// lowered at any time.
const alwaysAlone = 128 << 10

// goesAlone tells whether nothing may be on the wire beside e. I3: a topic's own size limit shows only when it refuses, and if what
// followed is stored then, the refused one never can be: its id is spent. l.mu is held.
func (l *lane) goesAlone(e *entry) bool { return e.wire > min(l.largest, alwaysAlone) }

// run opens the lane if it is not, sends what waits, and ends when nothing
// waits or the lane is over.
func (l *lane) run() {
	if l.prod == nil && !l.open() {
		return
	}
	for {
		l.mu.Lock()
		switch {
		case l.over != nil:
			l.mu.Unlock()
			return
		case l.queue.len() == l.sent && !l.alone:
			l.direct = true
			l.mu.Unlock()
			return
		}
		if l.sent < l.queue.len() && l.queue.at(l.sent).id <= l.stored {
			// I7: it is known to be stored, so nobody asks the broker. Nothing is on the wire yet: ids rise.
			e := l.queue.at(l.sent)
			if l.doubtful(e.id, e.id > l.known) {
				l.mu.Unlock()
				if err := l.prove(e.id); err != nil {
					if l.s.ctx.Err() == nil {
						l.s.fail(err)
					}
					return
				}
				continue
			}
			l.queue.pop()
			l.mu.Unlock()
			l.s.sink.duplicates.Add(1)
			l.s.sink.done(e, nil)
			continue
		}
		var e *entry
		hold := l.alone || l.sent >= l.s.window
		l.wakeAt = 0
		if hold {
			if !l.alone {
				l.wakeAt = l.s.window / 2
			}
		} else {
			e = l.queue.at(l.sent)
			if l.policy > 0 && e.wire+metadataRoom+len(l.s.sink.opt.producerName()) > l.policy {
				// Accepted before the policy was known.
				err := tooLarge(e.id, fmt.Errorf("pulsar: topic %s, key %q, sequence %d: %w: %d bytes, the topic's own maxMessageSize is %d with metadata; raise it: pulsar-admin topicPolicies set-max-message-size",
					l.topic, e.key, e.id>>subIndexBits, ErrTooLarge, e.size, l.policy))
				l.mu.Unlock()
				l.abandon(l.s.refuse(err))
				return
			}
			alone := l.goesAlone(e)
			hold = alone && l.sent > 0
			l.alone = alone && !hold
		}
		if hold {
			l.waiting = true
			l.mu.Unlock()
			select {
			case <-l.wake:
			case <-l.s.ctx.Done():
				return
			}
			continue
		}
		l.sent++
		l.mu.Unlock()
		l.prod.send(e)
	}
}

// receipt implements receiver.
func (l *lane) receipt(id int64, duplicate bool, err error) {
	killpoint.Hit("pulsar.receipt")
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock() // a late one: its message has been told already
		return
	}
	if err != nil {
		e := l.find(id)
		overtaken, account := wire.Refused(err) && l.sent > 0 && l.queue.at(l.sent-1).id > id || wire.Spent(err), l.account
		l.mu.Unlock()
		if l.s.closing.Load() {
			return // Reset reports it
		}
		if strings.Contains(err.Error(), "TopicTerminated") {
			// The broker lets a producer that it has refused so seem to hold the topic, and says that instead from then on, unless
			// it is fenced out. Nobody can send there any more.
			l.s.sink.opened.Delete(l.where)
		}
		if overtaken && account != nil {
			// Something of what followed may be stored: then this id is spent.
			l.s.sink.book.suspect(account, id)
		}
		failure := fmt.Errorf("pulsar: %s: the broker or the client gave up on %s: %s%w", l.where, describe(e, id), advice(err.Error(), l.s.sink.opt.producerName(), 0), err)
		if saysTooLarge(err) {
			failure = tooLarge(id, fmt.Errorf("%w: %w", ErrTooLarge, failure))
		}
		l.s.fail(failure)
		return
	}
	if l.weighing || l.doubtful(id, duplicate) {
		// I3: the broker says that it has stored this id or a later one.
		l.told = append(l.told, told{id, duplicate})
		begin := !l.weighing
		l.weighing = true
		l.mu.Unlock()
		if begin {
			l.s.begin(l.weigh)
		}
		return
	}
	l.take(id, duplicate)
}

// take ends a message with its receipt. l.mu is held, and is not when it returns.
func (l *lane) take(id int64, duplicate bool) {
	if l.sent == 0 || l.queue.at(0).id != id {
		l.mu.Unlock()
		l.s.fail(fmt.Errorf("pulsar: %s: a receipt for id %d came out of order; the session starts again", l.where, id))
		return
	}
	e := l.queue.at(0)
	if !duplicate {
		l.proof = nil
	}
	l.queue.pop()
	l.sent--
	l.count++
	l.s.sink.book.confirm(l.account, id)
	if e.wire > l.largest {
		l.largest = e.wire
	}
	if l.suspect >= 0 && id >= l.suspect {
		l.suspect = -1
		l.account.suspect.Store(-1)
	}
	wake := l.waiting && l.sent <= l.wakeAt
	l.alone = false
	if wake {
		l.waiting = false
	}
	l.mu.Unlock()
	if duplicate {
		// I5, I7: under Exclusive and with ids that are a function of the row this
		// message is stored, or about to be by an older session of ours.
		l.s.sink.duplicates.Add(1)
	}
	l.s.sink.done(e, nil)
	if wake {
		l.wake <- struct{}{} // never blocks: one token per wait
	}
}

const leftBehind = "it was left without receipt before, and the topic cannot be seen to hold it"

// spent is the error of a message that nobody may take for stored (I3).
func (l *lane) spent(e *entry, id int64, why string) error {
	return fmt.Errorf("pulsar: %s: %s is called a duplicate, but %s: it may have been refused for its size and lost. "+
		"Raise or remove the topic's maxMessageSize policy (pulsar-admin topicPolicies remove-max-message-size), and send to another topic or under another deployment name", l.where, describe(e, id), why)
}

// sleep closes the producer of a lane that has nothing to do, and tells whether it had nothing.
func (l *lane) sleep() bool {
	n := l.s
	l.mu.Lock()
	if !l.direct || l.queue.len() > 0 || l.over != nil {
		l.mu.Unlock()
		return false
	}
	p, closing := l.prod, make(chan struct{})
	l.prod, l.direct, l.asleep, l.closing = nil, false, true, closing
	l.account.quiet.Store(true)
	l.mu.Unlock()
	n.producers.Add(-1)
	n.wg.Go(func() {
		defer close(closing)
		n.closers <- struct{}{}
		defer func() { <-n.closers }()
		p.close()
	})
	return true
}

func (l *lane) find(id int64) *entry {
	for i := range l.queue.len() {
		if e := l.queue.at(i); e.id == id {
			return e
		}
	}
	return nil
}

// abandon reports everything held as done with err; nothing is reported after.
func (l *lane) abandon(err error) {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return
	}
	l.over = err
	l.told = nil
	if l.account != nil && l.sent == 0 {
		l.account.quiet.Store(true)
	}
	held := l.queue.drain()
	l.sent = 0
	l.mu.Unlock()
	for _, e := range held {
		l.s.sink.done(e, err)
	}
}

// oldest returns what the watchdog needs to name.
func (l *lane) oldest() (e *entry, sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent > 0 && !l.weighing { // else the first may have its receipt
		e = l.queue.at(0)
	}
	return e, l.sent
}

func describe(e *entry, id int64) string {
	if e == nil {
		return fmt.Sprintf("the message with id %d", id)
	}
	return fmt.Sprintf("the message of sequence %d, key %q, %d bytes", e.id>>subIndexBits, e.key, e.size)
}

// keyHint is the part of a key that an error shows.
func keyHint(m *sink.Message) string {
	if len(m.Key) > 100 {
		return string(m.Key[:100]) + "..."
	}
	return string(m.Key)
}

// ring is a queue of entries that grows as needed.
type ring struct {
	items []*entry // length is 0 or a power of two
	head  int
	n     int
}

func (r *ring) len() int { return r.n }

func (r *ring) at(i int) *entry { return r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring) push(e *entry) {
	if r.n == len(r.items) {
		grown := make([]*entry, max(16, 2*len(r.items)))
		for i := range r.n {
			grown[i] = r.at(i)
		}
		r.items, r.head = grown, 0
	}
	r.items[(r.head+r.n)&(len(r.items)-1)] = e
	r.n++
}

func (r *ring) pop() {
	r.items[r.head] = nil
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
}

func (r *ring) drain() []*entry {
	out := make([]*entry, r.n)
	for i := range out {
		out[i] = r.at(i)
	}
	*r = ring{}
	return out
}
