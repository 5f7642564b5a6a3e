package bridge

import (
	"errors"
	"fmt"
)

// ledger is the upper half of the way up: it knows which chunks of which
// batches are done, and so which batches may be acknowledged. It is a pure state
// machine: no I/O, no clock, no lock; its owner serialises the calls.
//
// Batches are opened in the order in which the server handed them out. Every
// chunk of a batch is added before the batch is sealed; every chunk is done exactly once.
// A failed chunk fails its batch, and a failed batch is never ready, nor is any batch behind it.
type ledger struct {
	open  []entry // a queue: open[head:] are the batches not yet acknowledged, oldest first
	head  int
	base  int64 // ticket of open[head]
	bytes int64 // weights of the open batches
}

// entry is one batch that is handed out and not acknowledged.
type entry struct {
	batch  int64 // the server's batch id
	weight int64 // bytes that its events occupy
	mark   int64 // of the sink, behind its last message; 0: it has no messages, or the sink keeps no state
	last   int64 // highest ordinal in it; 0 when nothing in it is counted
	left   int   // chunks added and not done
	sealed bool  // no chunk follows
	failed bool
}

// errLedger reports a use of the ledger that cannot be right. It means that
// some layer reported twice, or for something that never was.
var errLedger = errors.New("bridge: ledger out of step (a bug)")

// begin opens a batch and returns its ticket: tickets count up by one.
func (l *ledger) begin(batch, weight, last int64) int64 {
	if l.head > 64 && l.head*2 > len(l.open) {
		n := copy(l.open, l.open[l.head:])
		l.open = l.open[:n]
		l.head = 0
	}
	l.open = append(l.open, entry{batch: batch, weight: weight, last: last})
	l.bytes += weight
	return l.base + int64(len(l.open)-l.head) - 1
}

func (l *ledger) at(ticket int64) (*entry, error) {
	i := ticket - l.base
	if i < 0 || i >= int64(len(l.open)-l.head) {
		return nil, fmt.Errorf("%w: no open batch has ticket %d", errLedger, ticket)
	}
	return &l.open[l.head+int(i)], nil
}

// add says that the batch has one chunk more.
func (l *ledger) add(ticket int64) error {
	e, err := l.at(ticket)
	if err != nil {
		return err
	}
	if e.sealed {
		return fmt.Errorf("%w: chunk added to sealed batch %d", errLedger, e.batch)
	}
	e.left++
	return nil
}

// seal says that all chunks of the batch have been added.
func (l *ledger) seal(ticket int64) error {
	e, err := l.at(ticket)
	if err != nil {
		return err
	}
	if e.sealed {
		return fmt.Errorf("%w: batch %d sealed twice", errLedger, e.batch)
	}
	e.sealed = true
	return nil
}

// done says that one chunk of the batch is done: confirmed whole, or failed.
func (l *ledger) done(ticket int64, ok bool) error {
	e, err := l.at(ticket)
	if err != nil {
		return err
	}
	if e.left == 0 {
		return fmt.Errorf("%w: more chunks of batch %d done than it has", errLedger, e.batch)
	}
	e.left--
	if !ok {
		e.failed = true
	}
	return nil
}

// mark notes the sink's mark behind the messages of the batch that are published.
func (l *ledger) mark(ticket, mark int64) error {
	e, err := l.at(ticket)
	if err != nil {
		return err
	}
	if e.left == 0 || mark < e.mark {
		return fmt.Errorf("%w: batch %d marked after its end, or backward", errLedger, e.batch)
	}
	e.mark = mark
	return nil
}

// front returns the mark of the oldest batch.
func (l *ledger) front() int64 { return l.open[l.head].mark }

// ready returns the oldest batch if it is complete: the only one that may be
// acknowledged now.
func (l *ledger) ready() (batch, last int64, ok bool) {
	if l.head == len(l.open) {
		return 0, 0, false
	}
	e := &l.open[l.head]
	// I1: complete, and nothing older is open.
	if !e.sealed || e.left > 0 || e.failed {
		return 0, 0, false
	}
	return e.batch, e.last, true
}

// acked takes the oldest batch out, after the server has accepted its acknowledgement.
func (l *ledger) acked(batch int64) error {
	b, _, ok := l.ready()
	if !ok || b != batch {
		return fmt.Errorf("%w: batch %d acknowledged out of turn", errLedger, batch)
	}
	l.bytes -= l.open[l.head].weight
	l.open[l.head] = entry{}
	l.head++
	l.base++
	if l.head == len(l.open) {
		l.open, l.head = l.open[:0], 0
	}
	return nil
}

// sealed returns the number of batches that are not acknowledged, if no chunk of them follows; else -1.
func (l *ledger) sealed() int {
	if n := len(l.open); n > l.head && !l.open[n-1].sealed {
		return -1
	}
	return l.pending()
}

// pending returns the number of batches that are not acknowledged.
func (l *ledger) pending() int { return len(l.open) - l.head }
