package store

import (
	"fmt"
	"math"

	"github.com/binlogmq/binlogmq/event"
)

// Ring holds consecutive events of one destination. Events are numbered by an
// index that rises by one from event to event; what lies between [Ring.Low]
// and [Ring.Next] is held. Readers take events in order and acknowledge them in order; the ring
// frees what all its readers have acknowledged.
//
// Not safe for concurrent use.
type Ring struct {
	slots     []slot // length is a power of two
	low, next int64  // indexes: held are [low, next)
	maxEvents int
	maxBytes  int64

	base      int64        // highest ordinal below low
	baseEnd   int64        // slot.end of the event below low
	floor     *event.Event // the event below low if it is a transaction end, else nil
	afterOpen bool         // the event below low is a Begin

	readers []*Reader
}

// slot is one held event.
type slot struct {
	e    *event.Event
	last int64 // highest ordinal up to this event, it included
	end  int64 // bytes of all events up to this one, it included, from an arbitrary start
}

// Reader is a place in a ring: everything below Acked is acknowledged, everything below Taken
// is handed out.
type Reader struct {
	ack, get int64
}

// Acked returns the index of the oldest event that the reader has not acknowledged.
func (rd *Reader) Acked() int64 { return rd.ack }

// Taken returns the index of the next event to hand out.
func (rd *Reader) Taken() int64 { return rd.get }

// OrdinalError says that an event does not carry the ordinal that must follow.
type OrdinalError struct {
	Want, Got int64
}

func (e *OrdinalError) Error() string {
	return fmt.Sprintf("event carries ordinal %d, %d must follow", e.Got, e.Want)
}

// New returns an empty ring whose first event carries ordinal start.Ordinal+1. The
// bounds count events and bytes (Event.Size) and are at least 1. An empty ring
// takes one event of any size, so that an event larger than the bound is passed on alone (I9).
// Start is the transaction end before the first event; it is only compared with.
func New(maxEvents int, maxBytes int64, start *event.Event) *Ring {
	return &Ring{
		maxEvents: max(maxEvents, 1),
		maxBytes:  max(maxBytes, 1),
		slots:     make([]slot, 16),
		base:      start.Ordinal,
		floor:     start,
	}
}

// Low returns the index of the oldest event held.
func (r *Ring) Low() int64 { return r.low }

// Next returns the index that the next event put will have.
func (r *Ring) Next() int64 { return r.next }

// Len returns the number of events held.
func (r *Ring) Len() int { return int(r.next - r.low) }

// Bytes returns the bytes of the events held.
func (r *Ring) Bytes() int64 { return r.endBefore(r.next) - r.baseEnd }

// Last returns the highest ordinal put.
func (r *Ring) Last() int64 { return r.OrdinalBefore(r.next) }

func (r *Ring) at(i int64) *slot { return &r.slots[uint64(i)&uint64(len(r.slots)-1)] }

// Event returns the held event of index i.
func (r *Ring) Event(i int64) *event.Event { return r.at(i).e }

// Ordinal returns the highest ordinal up to the held event of index i, it included.
func (r *Ring) Ordinal(i int64) int64 { return r.at(i).last }

// OrdinalBefore returns the highest ordinal of the events below index i, which
// lies in [Low, Next].
func (r *Ring) OrdinalBefore(i int64) int64 {
	if i <= r.low {
		return r.base
	}
	return r.at(i - 1).last
}

func (r *Ring) endBefore(i int64) int64 {
	if i <= r.low {
		return r.baseEnd
	}
	return r.at(i - 1).end
}

// EndBefore returns the event before index i if it is known and a transaction
// end, else nil.
func (r *Ring) EndBefore(i int64) *event.Event {
	switch {
	case i == r.low:
		return r.floor
	case i > r.low && i <= r.next:
		if e := r.at(i - 1).e; e.Kind == event.End {
			return e
		}
	}
	return nil
}

// LastOrdinal returns the highest ordinal that e itself carries; 0 for a Begin.
func LastOrdinal(e *event.Event) int64 {
	if e.Kind == event.Rows {
		return e.Ordinal + int64(e.Rows) - 1
	}
	return e.Ordinal
}

// Put takes events as long as there is room and returns how many it took. An
// error names an ordinal out of line; the events before that one are taken.
func (r *Ring) Put(events []*event.Event) (int, error) {
	last, end := r.Last(), r.endBefore(r.next)
	// Both bounds as ends that must not be passed.
	lastIndex := r.low + int64(r.maxEvents)
	lastEnd := r.baseEnd + r.maxBytes
	if lastEnd < r.baseEnd {
		lastEnd = math.MaxInt64
	}
	for n, e := range events {
		end += int64(max(e.Size, 0))
		if (r.next >= lastIndex || end > lastEnd) && r.next > r.low {
			return n, nil
		}
		switch e.Kind {
		case event.Begin:
		case event.Rows:
			if first := e.Ordinal + int64(e.Skip); first != last+1 || e.Skip >= e.Rows {
				return n, &OrdinalError{last + 1, first}
			}
			last += int64(e.Rows - e.Skip)
		case event.DDL, event.End:
			if e.Ordinal != last+1 {
				return n, &OrdinalError{last + 1, e.Ordinal}
			}
			last++
		default:
			return n, fmt.Errorf("event of unknown kind %d after ordinal %d", e.Kind, last)
		}
		if r.next-r.low == int64(len(r.slots)) {
			r.grow()
		}
		*r.at(r.next) = slot{e, last, end}
		r.next++
	}
	return len(events), nil
}

func (r *Ring) grow() {
	old := *r
	r.slots = make([]slot, 2*len(old.slots))
	for i := r.low; i < r.next; i++ {
		*r.at(i) = *old.at(i)
	}
}

// Used returns how full the ring is, from 0 to 1 or above: the larger share of
// its two bounds.
func (r *Ring) Used() float64 {
	return max(float64(r.Len())/float64(r.maxEvents), float64(r.Bytes())/float64(r.maxBytes))
}

// After returns the index of the event that follows the given ordinal, when
// the ring knows it: the event that ended with that ordinal is held, or is the
// last one freed and nothing without ordinal was freed behind it.
func (r *Ring) After(ordinal int64) (int64, bool) {
	if ordinal == r.base {
		return r.low, !r.afterOpen
	}
	if ordinal < r.base || ordinal > r.Last() {
		return 0, false
	}
	// The first event that reaches the ordinal.
	lo, hi := r.low, r.next
	for lo < hi {
		if mid := lo + (hi-lo)/2; r.at(mid).last < ordinal {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo + 1, r.at(lo).last == ordinal
}

// Attach adds a reader at index i, which must lie in [Low, Next].
func (r *Ring) Attach(i int64) *Reader {
	if i < r.low || i > r.next {
		panic(fmt.Sprintf("store: reader at %d outside the ring's %d to %d", i, r.low, r.next))
	}
	rd := &Reader{ack: i, get: i}
	r.readers = append(r.readers, rd)
	return rd
}

// Detach removes a reader and frees what only it was waiting for; a ring
// without readers keeps what it holds.
func (r *Ring) Detach(rd *Reader) {
	for i, x := range r.readers {
		if x == rd {
			r.readers = append(r.readers[:i], r.readers[i+1:]...)
			break
		}
	}
	r.free()
}

// Readers returns how many readers there are.
func (r *Ring) Readers() int { return len(r.readers) }

// Take moves the reader's hand-out place to index i, forward, or backward down to what it has acknowledged.
func (r *Ring) Take(rd *Reader, i int64) {
	if i < rd.ack || i > r.next {
		panic(fmt.Sprintf("store: hand-out place %d outside %d to %d", i, rd.ack, r.next))
	}
	rd.get = i
}

// Ack acknowledges everything below index i for the reader and frees what all
// readers have acknowledged. It returns whether something was freed.
func (r *Ring) Ack(rd *Reader, i int64) bool {
	if i < rd.ack || i > rd.get { // I2: forward only, and never beyond what was handed out
		panic(fmt.Sprintf("store: acknowledgement of %d outside %d to %d", i, rd.ack, rd.get))
	}
	rd.ack = i
	return r.free()
}

// free frees what all readers have acknowledged.
func (r *Ring) free() bool {
	if len(r.readers) == 0 {
		return false
	}
	low := r.next
	for _, rd := range r.readers {
		low = min(low, rd.ack)
	}
	return r.Drop(low)
}

// Drop frees everything below index i, whoever has not acknowledged it. The
// caller has made sure that no reader needs it. It returns whether something was freed.
func (r *Ring) Drop(i int64) bool {
	i = min(i, r.next)
	if i <= r.low {
		return false
	}
	s := r.at(i - 1)
	r.base, r.baseEnd = s.last, s.end
	r.floor = nil
	if s.e.Kind == event.End {
		r.floor = s.e
	}
	r.afterOpen = s.e.Kind == event.Begin
	// Freed slots let go of their events.
	mask := int64(len(r.slots) - 1)
	if from, to := r.low&mask, i&mask; i-r.low < int64(len(r.slots)) && from <= to {
		clear(r.slots[from:to])
	} else {
		clear(r.slots[from:])
		clear(r.slots[:to])
	}
	r.low = i
	return true
}

// Fork returns a ring of the same bounds and indexes that holds, beside r,
// what rd has not acknowledged, with one reader at rd's place. Events are shared, not copied. rd is left as it is.
func (r *Ring) Fork(rd *Reader) (*Ring, *Reader) {
	f := &Ring{
		slots:     make([]slot, 16),
		low:       rd.ack,
		next:      rd.ack,
		maxEvents: r.maxEvents,
		maxBytes:  r.maxBytes,
		base:      r.OrdinalBefore(rd.ack),
		baseEnd:   r.endBefore(rd.ack),
		floor:     r.EndBefore(rd.ack),
	}
	if rd.ack == r.low {
		f.afterOpen = r.afterOpen
	} else {
		f.afterOpen = r.Event(rd.ack-1).Kind == event.Begin
	}
	for i := rd.ack; i < r.next; i++ {
		if f.next-f.low == int64(len(f.slots)) {
			f.grow()
		}
		*f.at(i) = *r.at(i)
		f.next++
	}
	g := f.Attach(rd.ack)
	g.get = rd.get
	return f, g
}

// Join moves the only reader of a ring of its own onto r, and returns the
// reader's new self, or nil if that cannot be (yet). Own must end where an event of r ends
// that r still knows; r must hold what follows it. What the reader has not acknowledged and r
// has freed already goes back into r, beyond its bounds if need be: these events were in memory before, and r takes no
// other until it is below its bounds again (I9). Own must not be used afterwards.
func (r *Ring) Join(own *Ring, rd *Reader) *Reader {
	at, ok := r.After(own.Last())
	if !ok {
		return nil
	}
	shift := at - own.next // index in r = index in own + shift
	ack, get := rd.ack+shift, rd.get+shift
	// Both rings cut the stream into the same events, or they do not fit.
	same := func(i int64) bool { return r.OrdinalBefore(i) == own.OrdinalBefore(i-shift) }
	if low := max(ack, r.low); low > at || !same(low) || get >= r.low && !same(get) {
		return nil
	}
	if ack < r.low {
		if own.at(r.low-1-shift).e.Kind == event.Begin != r.afterOpen {
			return nil
		}
		floor := own.EndBefore(rd.ack)
		afterOpen := own.afterOpen
		if rd.ack > own.low {
			afterOpen = own.Event(rd.ack-1).Kind == event.Begin
		}
		base := own.OrdinalBefore(rd.ack)
		for i := r.low - 1; i >= ack; i-- {
			if r.next-r.low == int64(len(r.slots)) {
				r.grow()
			}
			s := own.at(i - shift)
			*r.at(i) = slot{s.e, s.last, r.baseEnd}
			r.baseEnd -= int64(max(s.e.Size, 0))
			r.low = i
		}
		r.base, r.floor, r.afterOpen = base, floor, afterOpen
	}
	g := r.Attach(ack)
	g.get = get
	return g
}
