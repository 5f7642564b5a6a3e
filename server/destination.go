package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

// destination drives a core: it locks, waits, reads and tells the time. All
// fields behind mu are guarded by it; no call into Source or Store is made with mu held.
type destination struct {
	s    *Server
	name string
	src  Source
	opts DestinationOptions
	ctl  chan struct{}  // holds one token; taken by calls that connect and disconnect
	wg   sync.WaitGroup // readers

	ctx    context.Context // ends when the destination is removed or the server stops
	cancel context.CancelFunc

	prepared bool // see DestinationOptions.Prepare; guarded by ctl

	mu sync.Mutex
	*core
	started  bool
	gone     bool    // stopped or removed: no reader starts, no get waits
	fatal    error   // nothing is handed out or saved any more: another process owns the destination
	catchUps int     // own readers that run
	queue    []*feed // own rings that wait for a free catch-up reader
}

// feedRun is what destination keeps of a feed.
type feedRun struct {
	reading   bool // a reader goroutine runs
	cancel    context.CancelFunc
	leave     error         // not nil: the reader shall end, for no fault
	room      chan struct{} // wakes a put that waits for room
	blocked   bool          // a put waits for room
	fullSince time.Time     // since when the ring is full, or has been and is not half empty yet
	idleSince time.Time     // since when there is again and again a subscription that has nothing left to do meanwhile
	idleUntil time.Time     // since when there has been none; zero: there is one
	deadline  time.Time     // when a put that waits for room looks again; zero: when it is woken
	queued    bool
}

// subRun is what destination keeps of a subscription.
type subRun struct {
	connected bool
	notify    chan struct{} // closed to wake waiting gets; nil when none waits

	// Saving, see save.go.
	saving    chan struct{} // holds one token; taken to write or delete the record, before destination.mu
	forgotten bool          // the record is deleted: never write it again
	moves     int64         // counts changes that must be saved
	saved     int64         // moves that are saved
	savedLast int64         // Cursor.Last of the saved record
	savedAt   time.Time     // when the saved record was known to be what is acknowledged
	saveErr   error
	savedCh   chan struct{} // closed when a record was saved; nil when nobody waits
}

// Why readers are asked to end.
var (
	errLeft   = errors.New("reader no longer needed")
	errParked = errors.New("reader ended until its subscription asks for more")
)

func (d *destination) lockControl(ctx context.Context) error {
	select {
	case <-d.ctl:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *destination) unlockControl() { d.ctl <- struct{}{} }

// enter is lockControl for all but what ends the destination, which must not wait for a source or a store that is away: the context
// that it returns ends with the destination, too. leave gives the lock back.
func (d *destination) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := d.lockControl(ctx); err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	gone := d.gone || d.ctx.Err() != nil
	d.mu.Unlock()
	if gone {
		d.unlockControl()
		return nil, nil, fmt.Errorf("destination %s: %w", d.name, ErrStopped)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		d.unlockControl()
	}, nil
}

// ended returns ErrStopped for an error of what the end of the destination has cut short.
func (d *destination) ended(err error) error {
	if err != nil && d.ctx.Err() != nil {
		return fmt.Errorf("destination %s: %w: %w", d.name, ErrStopped, err)
	}
	return err
}

// wake wakes the subscription's waiting gets.
func (s *sub) wake() {
	if s.run.notify != nil {
		close(s.run.notify)
		s.run.notify = nil
	}
}

func (f *feed) wake() {
	for _, s := range f.subs {
		s.wake()
	}
}

// freed wakes a put that waits for room, once there is some worth waking for.
func (f *feed) freed() {
	used := f.ring.Used()
	if used <= 0.5 {
		f.run.fullSince, f.run.idleSince, f.run.idleUntil = time.Time{}, time.Time{}, time.Time{}
	}
	if f.run.blocked && f.roomy() {
		f.signal()
	}
}

// helped wakes a put that waits for room, and does not know yet that one who could go on is held up by others.
func (d *destination) helped(f *feed) {
	if f.run.blocked && d.opts.DetachAfter >= 0 && !d.s.clock.Now().Before(f.run.deadline) && len(f.laggards()) > 0 {
		f.signal()
	}
}

// roomy says whether there is room enough to wake a put for.
func (f *feed) roomy() bool { return f.ring.Used() <= 0.875 || f.ring.Len() == 0 }

func (f *feed) signal() {
	if f.run.room == nil {
		return
	}
	select {
	case f.run.room <- struct{}{}:
	default:
	}
}

// read starts the feed's reader unless it runs or must not.
func (d *destination) read(f *feed) {
	if f == nil || f.run.reading || f.err != nil || d.fatal != nil || d.gone || !d.started {
		return
	}
	ctx, cancel := context.WithCancel(d.s.ctx)
	f.again = true
	f.run.reading, f.run.cancel, f.run.leave = true, cancel, nil
	f.run.room = make(chan struct{}, 1)
	if f.owner != nil {
		d.catchUps++
		d.s.log.Info("catch-up reader started", "destination", d.name, "client", f.owner.id.Client,
			"file", f.tail.Position.File, "offset", f.tail.Position.Offset, "ordinal", f.tail.Ordinal)
	}
	from := transactionEnd(f.tail)
	read := d.src.Read
	if b, ok := d.src.(BesideSource); ok && f.owner != nil {
		read = b.ReadBeside
	}
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		defer cancel()
		err := read(ctx, from, func(ctx context.Context, events []*event.Event) error { return d.put(ctx, f, events) })
		d.mu.Lock()
		defer d.mu.Unlock()
		d.readEnded(f, err)
	}()
}

// leave asks the feed's reader to end, for no fault of its own.
func (d *destination) leave(f *feed, why error) {
	if f.run.queued {
		f.run.queued = false
		d.queue = slices.DeleteFunc(d.queue, func(x *feed) bool { return x == f })
	}
	if f.run.reading && f.run.leave == nil {
		f.run.leave = why
		f.run.cancel()
		f.signal()
	}
}

func (d *destination) readEnded(f *feed, err error) {
	f.run.reading, f.run.blocked = false, false
	client := ""
	if f.owner != nil {
		client = f.owner.id.Client
		d.catchUps--
		d.next()
		if d.main != nil && d.main.pinBy == f {
			d.unpin()
			d.main.freed()
		}
	}
	switch {
	case d.gone:
	case f.run.leave != nil:
		d.s.log.Debug("reader ended", "destination", d.name, "client", client, "reason", f.run.leave)
	default:
		if err == nil {
			err = errors.New("the source ended without an error")
		}
		f.err = &DestinationError{Destination: d.name, Client: client, Err: err} // I3: stop, with the error where all can see it
		d.tell(f.err)
		at := []any{"destination", d.name, "error", err, "file", f.tail.Position.File, "offset", f.tail.Position.Offset, "ordinal", f.ring.Last()}
		if client != "" {
			at = append(at, "client", client)
		}
		d.s.log.Error("reading stopped", at...)
	}
	f.wake() // an error to tell, or a parked reader that is asked for again
	if f == d.main {
		d.read(f) // if it was restarted meanwhile
	}
}

// next starts catch-up readers that waited for a free one.
func (d *destination) next() {
	for len(d.queue) > 0 && d.catchUps < d.opts.CatchUpReaders {
		f := d.queue[0]
		d.queue = d.queue[1:]
		f.run.queued = false
		d.read(f)
	}
}

// put takes events from a reader, and waits while the ring is full: that is the back-pressure (I9).
func (d *destination) put(ctx context.Context, f *feed, events []*event.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var since time.Time // since when this put waits without progress
	for {
		if f.run.leave != nil {
			return f.run.leave
		}
		part := events
		if f.owner != nil {
			part = toLastEnd(events)
		}
		n, err := f.accept(part)
		events = events[n:]
		if n > 0 {
			since = time.Time{}
			if !f.run.idleSince.IsZero() && f.run.idleUntil.IsZero() {
				f.run.idleUntil = d.s.clock.Now()
			}
			f.wake()
			if f == d.main {
				d.meet()
			}
		}
		if err != nil {
			return err
		}
		if n == len(part) {
			if f.owner != nil {
				joined, err := d.tryJoin(f)
				if err != nil || joined {
					return cmp.Or(err, errLeft)
				}
				d.near(f)
			}
			if len(events) == 0 {
				return nil
			}
			continue
		}
		if f.relieve() || d.makeRoom(f) {
			continue
		}
		now := d.s.clock.Now()
		if since.IsZero() {
			since = now
		}
		var deadline time.Time // of the wait for room
		if f.owner != nil {
			// A reader whose subscription stands still gives its place and connection back.
			if deadline = since.Add(d.park()); !now.Before(deadline) {
				f.run.leave = errParked
				return errParked
			}
		} else if d.opts.DetachAfter >= 0 && !f.run.idleSince.IsZero() {
			deadline = f.run.idleSince.Add(d.opts.DetachAfter)
		}
		if err := d.waitRoom(ctx, f, now, deadline); err != nil {
			return err
		}
	}
}

func (d *destination) park() time.Duration {
	if d.opts.DetachAfter > 0 {
		return d.opts.DetachAfter
	}
	return DefaultDetachAfter
}

// toLastEnd returns the events up to the last transaction end among them; all when there is none.
func toLastEnd(events []*event.Event) []*event.Event {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == event.End {
			return events[:i+1]
		}
	}
	return events
}

// makeRoom notes that the feed's ring is full, and lets go of what need not be
// waited for. It returns whether something was freed.
func (d *destination) makeRoom(f *feed) bool {
	now := d.s.clock.Now()
	if f.run.fullSince.IsZero() {
		f.run.fullSince = now
	}
	if f != d.main {
		return false
	}
	low := f.ring.Low()
	d.unpin()
	behind := f.laggards()
	if len(behind) > 0 {
		if until := f.run.idleUntil; f.run.idleSince.IsZero() || !until.IsZero() && now.Sub(until) > d.opts.DetachAfter {
			f.run.idleSince = now // those behind have held nobody up of late, however long the ring was full
		}
		f.run.idleUntil = time.Time{}
	}
	if d.opts.DetachAfter >= 0 && now.Sub(f.run.idleSince) >= d.opts.DetachAfter {
		for _, s := range behind {
			d.s.log.Warn("subscription lags and is detached from the ring; it goes on with a reader of its own when it moves",
				"destination", d.name, "client", s.id.Client, "ordinal", s.cursor.Last(), "behind", f.ring.Last()-s.cursor.Last())
			d.detach(s)
			s.wake()
		}
		f.relieve() // all that are left may be ahead
	}
	if f.ring.Low() == low {
		return false
	}
	f.freed()
	return true
}

// waitRoom waits until the ring has room, or the deadline if there is one. It gives mu up meanwhile.
func (d *destination) waitRoom(ctx context.Context, f *feed, now, deadline time.Time) error {
	var expired <-chan time.Time
	if now.Before(deadline) {
		t := d.s.clock.NewTimer(deadline.Sub(now))
		defer t.Stop()
		expired = t.C()
	}
	f.run.blocked, f.run.deadline = true, deadline
	f.wake() // gets that wait for a full batch: nothing more comes until somebody acknowledges
	d.mu.Unlock()
	var err error
	select {
	case <-f.run.room:
	case <-expired:
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.mu.Lock()
	f.run.blocked = false
	if f.run.leave != nil {
		return f.run.leave
	}
	return err
}

// tryJoin moves the owner of f to the main ring if they meet.
func (d *destination) tryJoin(f *feed) (bool, error) {
	s := f.owner
	joined, err := d.join(f)
	if !joined {
		return false, err
	}
	d.s.log.Info("subscription is back on the ring", "destination", d.name, "client", s.id.Client, "ordinal", s.cursor.Last())
	d.leave(f, errLeft)
	s.wake()
	return true, nil
}

// meet has those on rings of their own join the main ring where it has come to them: one that was quicker for a moment would not be
// asked again as long as nothing is written.
func (d *destination) meet() {
	if d.catchUps == 0 {
		return
	}
	for _, s := range d.subs {
		if f := s.feed; f != nil && f.owner == s && f.err == nil {
			if _, err := d.tryJoin(f); err != nil {
				d.fail(f, err)
			}
		}
	}
}

// fail stops a ring of a subscription's own.
func (d *destination) fail(f *feed, err error) {
	f.err = &DestinationError{Destination: d.name, Client: f.owner.id.Client, Err: err}
	d.tell(f.err)
	d.leave(f, errLeft)
	f.wake()
}

// more asks for more events behind what a subscription on a ring of its own
// has. It returns whether it joined the main ring.
func (d *destination) more(s *sub) (bool, error) {
	f := s.feed
	if f == nil || f.owner != s || f.err != nil {
		return false, nil
	}
	joined, err := d.tryJoin(f)
	if err != nil {
		d.fail(f, err)
		return false, nil
	}
	if joined || f.run.reading || f.run.queued || !d.started {
		return joined, nil
	}
	if d.catchUps < d.opts.CatchUpReaders {
		d.read(f)
	} else {
		f.run.queued = true
		d.queue = append(d.queue, f)
	}
	return false, nil
}

// connect gives a new subscription its place and starts what must run.
func (d *destination) connect(s *sub) error {
	d.subs[s.id.Client] = s
	s.run.connected = true
	if !d.started {
		return nil
	}
	old := d.main
	err := d.attach(s)
	if err != nil {
		d.tell(err)
		d.drop(s)
		delete(d.subs, s.id.Client)
	} else if s.feed == d.main {
		d.main.relieve() // nobody may be left whom the ring is full for
		d.main.freed()
		d.helped(d.main)
	}
	if old != nil && old != d.main {
		d.leave(old, errLeft)
	}
	if d.main != nil && old != d.main {
		d.read(d.main)
	}
	return err
}

// drop takes a subscription off its ring.
func (d *destination) drop(s *sub) {
	s.run.connected = false
	f := s.feed
	d.release(s)
	s.wake()
	switch {
	case f == nil:
	case f.owner == s:
		d.leave(f, errLeft)
	default:
		f.relieve()
		f.freed()
	}
	if d.main != nil && d.main != f {
		d.main.freed() // it may have been held for the reader that left
	}
}

// start lets the destination be read.
func (d *destination) start() error {
	if d.gone {
		return ErrStopped
	}
	d.started = true
	var err error
	if d.main == nil {
		err = d.begin()
	} else {
		err = d.attachAll()
	}
	if err != nil {
		if d.main.err == nil {
			d.main.err = &DestinationError{Destination: d.name, Err: err}
		}
		d.tell(err)
		return err
	}
	d.read(d.main)
	return nil
}

// halt ends all readers and waiting gets for good; the caller waits for d.wg afterwards.
func (d *destination) halt() {
	d.gone = true
	d.endReaders()
}

// endReaders ends all readers and wakes all gets.
func (d *destination) endReaders() {
	d.queue = nil
	d.eachFeed(func(f *feed) {
		f.run.queued = false
		d.leave(f, errLeft)
	})
	for _, s := range d.subs {
		s.wake()
	}
}

func (d *destination) eachFeed(do func(*feed)) {
	if d.main != nil {
		do(d.main)
	}
	for _, s := range d.subs {
		if s.feed != nil && s.feed.owner == s {
			do(s.feed)
		}
	}
}

// fence stops the destination because another process owns it (I8).
func (d *destination) fence(err error) {
	if d.fatal != nil {
		return
	}
	d.fatal = &DestinationError{Destination: d.name, Err: err}
	d.s.log.Error("another process owns the destination; it is stopped here", "destination", d.name, "error", err)
	d.endReaders()
}

// restart reads on what has failed.
func (d *destination) restart() error {
	if d.gone {
		return ErrStopped
	}
	d.fatal = nil
	d.eachFeed(func(f *feed) { f.err = nil }) // a cursor that does not agree fails again
	if err := d.start(); err != nil {
		return err
	}
	for _, s := range d.subs {
		s.wake() // those with a ring of their own ask for more
	}
	return nil
}

// get hands out the next batch of a connected subscription.
func (d *destination) get(ctx context.Context, id Identity, size Size, wait Wait, auto bool) (*Batch, error) {
	if size == (Size{}) {
		size.Events = DefaultBatchEvents
	}
	var expired <-chan time.Time
	late := wait.mode == waitNone || wait.mode == waitAtMost && wait.d <= 0
	if wait.mode == waitAtMost && wait.d > 0 {
		t := d.s.clock.NewTimer(wait.d)
		defer t.Stop()
		expired = t.C()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.connected(id)
	if err != nil {
		return nil, err
	}
	var sc scan
	for {
		switch {
		case d.gone:
			return nil, fmt.Errorf("%s: %w", id, ErrStopped)
		case d.fatal != nil:
			return nil, d.fatal
		case !s.run.connected:
			return nil, fmt.Errorf("%s: %w", id, ErrNotSubscribed)
		case auto && len(s.batches) > 0:
			return nil, fmt.Errorf("%s: %w", id, ErrOutstanding)
		}
		s.look(&sc, size)
		if sc.err != nil && len(sc.events) == 0 {
			err := &DestinationError{Destination: d.name, Client: s.id.Client, Err: sc.err}
			d.tell(err)
			return nil, err
		}
		if err := d.swallow(s, &sc); err != nil {
			return nil, err
		}
		f := s.feed
		if f == nil && d.main != nil && d.main.err != nil {
			return nil, d.main.err
		}
		drained := !sc.full && (f == nil || s.rd == nil || sc.next == f.ring.Next())
		if drained {
			joined, err := d.more(s)
			if err != nil {
				return nil, err
			}
			if joined {
				continue
			}
		}
		ready := sc.full || sc.err != nil || late || wait.mode == waitAny ||
			f != nil && (f.run.blocked || f.err != nil) // nothing more comes
		if ready && len(sc.events) > 0 {
			b, err := s.take(&sc, d.s.clock.Now())
			if errors.Is(err, ErrBatchIDs) {
				if err := d.reserve(ctx, s); err != nil {
					return nil, err
				}
				continue
			}
			return b, err
		}
		if f != nil && f.err != nil {
			return nil, f.err
		}
		if late {
			return &Batch{ID: NoBatch}, nil
		}
		if s.run.notify == nil {
			s.run.notify = make(chan struct{})
		}
		notify := s.run.notify
		d.mu.Unlock()
		select {
		case <-notify:
		case <-expired:
			late = true
		case <-ctx.Done():
			err = ctx.Err()
		}
		d.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// swallow deals with events that the filter hides.
func (d *destination) swallow(s *sub, sc *scan) error {
	freed, moved, err := s.swallow(sc)
	if err != nil {
		return d.broken(err)
	}
	if moved {
		d.moved(s, freed)
	}
	return nil
}

// moved deals with a cursor that has moved.
func (d *destination) moved(s *sub, freed bool) {
	f := s.feed
	d.dirty(s)
	if freed {
		f.freed()
	}
	d.helped(f) // s may have nothing left to do
}

// broken stops the destination because of a fault of ours.
func (d *destination) broken(err error) error {
	d.fatal = &DestinationError{Destination: d.name, Err: err}
	d.s.log.Error("destination stopped", "destination", d.name, "error", err)
	d.endReaders()
	return d.fatal
}

// connected returns the connected subscription.
func (d *destination) connected(id Identity) (*sub, error) {
	s := d.subs[id.Client]
	switch {
	case d.gone:
		return nil, fmt.Errorf("%s: %w", id, ErrStopped)
	case s == nil || !s.run.connected:
		return nil, fmt.Errorf("%s: %w", id, ErrNotSubscribed)
	}
	return s, nil
}

// acknowledge lets f acknowledge something, and returns the subscription and which of its moves that was.
func (d *destination) acknowledge(id Identity, f func(*sub) (freed bool, err error)) (*sub, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.connected(id)
	if err != nil {
		return nil, 0, err
	}
	if d.fatal != nil {
		return nil, 0, d.fatal // I8: nothing is saved once we know
	}
	freed, err := f(s)
	if errors.Is(err, errBackward) {
		return nil, 0, d.broken(err)
	}
	if err != nil {
		return nil, 0, err
	}
	d.moved(s, freed)
	return s, s.run.moves, nil
}
