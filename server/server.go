package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/meta"
)

// Server hands out what its destinations read. It is safe for concurrent use.
type Server struct {
	opts  Options
	store meta.Store
	clock Clock
	log   *slog.Logger

	ctx      context.Context // ends with Stop
	cancel   context.CancelFunc
	wg       sync.WaitGroup // the saver
	saveWake chan struct{}

	mu           sync.RWMutex // taken before any destination's mu
	stopped      bool
	destinations map[string]*destination
}

// New returns a server without destinations. Stop ends it.
func New(opts Options) *Server {
	s := &Server{opts: opts, store: opts.Meta, clock: opts.Clock, log: opts.Logger, saveWake: make(chan struct{}, 1), destinations: make(map[string]*destination)}
	if s.store == nil {
		s.store = &meta.Memory{}
	}
	if s.clock == nil {
		s.clock = systemClock{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Add(1)
	go s.saver()
	return s
}

// AddDestination makes a destination known; reading begins with Start and the
// first subscription.
func (s *Server) AddDestination(name string, src Source, opts DestinationOptions) error {
	if err := (Identity{Destination: name, Client: "x"}).Validate(); err != nil {
		return err
	}
	def := s.opts.DestinationOptions
	opts.RingEvents = cmp.Or(opts.RingEvents, def.RingEvents, DefaultRingEvents)
	opts.RingBytes = cmp.Or(opts.RingBytes, def.RingBytes, DefaultRingBytes)
	opts.DetachAfter = cmp.Or(opts.DetachAfter, def.DetachAfter, DefaultDetachAfter)
	opts.CatchUpReaders = cmp.Or(opts.CatchUpReaders, def.CatchUpReaders, DefaultCatchUpReaders)
	if opts.RingEvents < 0 || opts.RingBytes < 0 {
		return fmt.Errorf("destination %s: the ring's bounds must be above 0", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if s.destinations[name] != nil {
		return fmt.Errorf("destination %s exists already", name)
	}
	d := &destination{s: s, name: name, src: src, opts: opts, ctl: make(chan struct{}, 1), core: newCore(name, opts.RingEvents, opts.RingBytes)}
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	d.ctl <- struct{}{}
	s.destinations[name] = d
	return nil
}

func (s *Server) destination(name string) (*destination, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.stopped {
		return nil, ErrStopped
	}
	d := s.destinations[name]
	if d == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownDestination, name)
	}
	return d, nil
}

// all returns the destinations, sorted by name.
func (s *Server) all() []*destination {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ds := make([]*destination, 0, len(s.destinations))
	for _, d := range s.destinations {
		ds = append(ds, d)
	}
	slices.SortFunc(ds, func(a, b *destination) int { return cmp.Compare(a.name, b.name) })
	return ds
}

// Start lets a destination be read: at once if a subscription is connected, else with the
// first one. Reading begins at the oldest cursor of the connected subscriptions,
// so subscribe those that are configured before; one that comes later with an
// older cursor is fed by a catch-up reader.
func (s *Server) Start(ctx context.Context, destination string) error {
	return s.control(ctx, destination, false)
}

// Restart reads a failed destination on from where it stopped, and so do the catch-up readers of
// its subscriptions that failed. What runs is left alone.
func (s *Server) Restart(ctx context.Context, destination string) error {
	return s.control(ctx, destination, true)
}

// control starts the destination, or starts it again, with both its locks held.
func (s *Server) control(ctx context.Context, name string, again bool) error {
	d, err := s.destination(name)
	if err != nil {
		return err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if again {
		return d.restart()
	}
	return d.start()
}

// Prepare calls DestinationOptions.Prepare, unless that has been done. Start and Subscribe do so by themselves.
func (s *Server) Prepare(ctx context.Context, destination string) error {
	d, err := s.destination(destination)
	if err != nil {
		return err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return d.prepare(ctx)
}

// prepare runs under enter, whose context it has.
func (d *destination) prepare(ctx context.Context) error {
	if d.opts.Prepare == nil || d.prepared {
		return nil
	}
	if err := d.opts.Prepare(ctx); err != nil {
		return d.ended(err)
	}
	d.prepared = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.placed = true
	return nil
}

// tell calls DestinationOptions.Failed.
func (d *destination) tell(err error) {
	if err != nil && d.opts.Failed != nil {
		d.opts.Failed(err)
	}
}

// RemoveDestination ends the destination's readers and waiting gets, saves the cursors of
// its subscriptions and forgets it. An error says which cursors could not be saved.
func (s *Server) RemoveDestination(ctx context.Context, name string) error {
	d, err := s.destination(name)
	if err != nil {
		return err
	}
	d.cancel() // what waits for the source or the store, with the right to connect
	if err := d.lockControl(ctx); err != nil {
		return err
	}
	defer d.unlockControl()
	err = d.close(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destinations[name] == d {
		delete(s.destinations, name)
	}
	return err
}

// Stop ends all readers and waiting gets, saves every cursor and returns when the server's
// goroutines have ended. An error says which cursors could not be saved, or what has not ended before ctx did.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	s.mu.Unlock()
	if !first {
		return nil
	}
	ds := s.all()
	for _, d := range ds { // all begin to end before any is waited for
		d.mu.Lock()
		d.halt()
		d.mu.Unlock()
	}
	s.cancel()
	var errs []error
	if err := waitGroup(ctx, &s.wg); err != nil {
		errs = append(errs, fmt.Errorf("cursors are still being saved: %w", err))
	}
	for _, d := range ds {
		errs = append(errs, d.close(ctx))
	}
	return errors.Join(errs...)
}

// close ends the destination and saves its cursors.
func (d *destination) close(ctx context.Context) error {
	d.mu.Lock()
	d.halt()
	subs := sortedSubs(d.subs)
	d.mu.Unlock()
	var errs []error
	// Saved first: a reader that is slow to end must not cost a cursor.
	for _, x := range subs {
		d.mu.Lock()
		need := x.run.moves
		fenced := d.fatal != nil
		d.mu.Unlock()
		if fenced {
			continue
		}
		if err := d.save(ctx, x, need, true); err != nil {
			errs = append(errs, notSaved(x.id, err))
		}
	}
	if err := waitGroup(ctx, &d.wg); err != nil {
		errs = append(errs, fmt.Errorf("destination %s: its readers have not ended: %w", d.name, err))
	}
	return errors.Join(errs...)
}

func waitGroup(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// parseFilter reads a comma-separated list of table patterns.
func parseFilter(text string) (Matcher, error) {
	var patterns []string
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p != "" {
			patterns = append(patterns, p)
		}
	}
	if len(patterns) == 0 {
		return nil, nil
	}
	return tablefilter.New(patterns)
}

// Subscribe connects a subscription, creating it if nothing is saved of it. The filter is a
// comma-separated list of table patterns as in the configuration's tables, "" for every table; begins, ends and DDL are
// delivered whatever the filter (but see [StatementMatcher]). A new subscription begins at the oldest cursor of the destination's other
// subscriptions, connected or only saved, or where the source says when there is none; that first cursor is saved
// before Subscribe returns. Subscribing again while connected replaces the
// filter for what is not handed out yet and changes nothing else.
//
// A cursor that does not agree with what the destination's reader has read is an error: now, if the reader is there
// already, else when it comes there, and then it stops the destination.
func (s *Server) Subscribe(ctx context.Context, id Identity, filter string, opts ...SubscribeOption) error {
	if err := id.Validate(); err != nil {
		return err
	}
	var o subscribeOptions
	for _, f := range opts {
		f(&o)
	}
	if o.matcher == nil {
		var err error
		if o.matcher, err = parseFilter(filter); err != nil {
			return fmt.Errorf("%s: filter: %w", id, err)
		}
	}
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	x, again, err := d.subscription(ctx, id, filter, o)
	if err != nil || again {
		return d.ended(err)
	}
	// The first cursor must not move with a crash, and no batch id may be used twice.
	if err := d.saveFirst(ctx, x, o.untilSaved); err != nil {
		d.keep(x)
		return d.ended(notSaved(id, err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return ErrStopped
	}
	return d.connect(x)
}

// keep goes on trying to save a subscription that could not be connected, if it replaces one that had to be saved.
func (d *destination) keep(x *sub) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subs[x.id.Client] != nil {
		d.subs[x.id.Client] = x
		d.dirty(x)
	}
}

// subscription returns a subscription that is not connected yet, or replaces the filter
// of one that is. It runs under enter.
func (d *destination) subscription(ctx context.Context, id Identity, filter string, o subscribeOptions) (x *sub, again bool, err error) {
	d.mu.Lock()
	old := d.subs[id.Client]
	if old != nil && old.run.connected {
		defer d.mu.Unlock()
		if old.filter != filter {
			d.dirty(old)
		}
		old.setFilter(filter, o.matcher)
		old.wake()
		return nil, true, nil
	}
	x = newSub(id)
	x.setFilter(filter, o.matcher)
	d.mu.Unlock()
	if old != nil { // its last save has failed, and is tried again until this one takes over
		if err := old.lockSave(ctx); err != nil {
			return nil, false, err
		}
		old.run.forgotten = true
		old.unlockSave()
		d.mu.Lock()
		x.cursor, err = old.whole()
		d.mu.Unlock()
		if err != nil {
			return nil, false, err
		}
		x.nextID, x.skips = old.nextID, old.skips
	} else {
		r, err := d.s.store.Load(ctx, id)
		switch {
		case err == nil:
			x.cursor, x.nextID, x.skips = r.Cursor, r.BatchFloor+1, r.Skips
		case errors.Is(err, meta.ErrNotFound):
			if x.cursor, x.skips, err = d.firstCursor(ctx); err != nil {
				return nil, false, err // the source's errors say where they come from
			}
		default:
			return nil, false, err // which names the subscription
		}
	}
	x.cut, x.cutAt, x.cutOf, x.entire = x.cursor.Last(), x.cursor.Ordinal, x.cursor.Open, o.wholeTransaction
	if x.entire {
		x.cut = x.cursor.Ordinal
	}
	x.floor = x.nextID - 1
	return x, false, nil
}

// firstCursor returns where a new subscription begins, and the destination's skips.
func (d *destination) firstCursor(ctx context.Context) (event.Cursor, []meta.Skip, error) {
	var all []event.Cursor
	var skips []meta.Skip
	consider := func(c event.Cursor, more []meta.Skip) {
		all = append(all, transactionEnd(c))
		for _, k := range more {
			if !slices.Contains(skips, k) {
				skips = append(skips, k)
			}
		}
	}
	d.mu.Lock()
	placed := d.placed
	known := make(map[string]bool)
	for name, x := range d.subs {
		known[name] = true
		consider(x.cursor, x.skips)
	}
	d.mu.Unlock()
	ids, err := d.s.store.List(ctx, d.name)
	if err != nil {
		return event.Cursor{}, nil, err
	}
	for _, id := range ids {
		if known[id.Client] {
			continue
		}
		r, err := d.s.store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) {
			continue
		}
		if err != nil {
			return event.Cursor{}, nil, err
		}
		consider(r.Cursor, r.Skips)
	}
	if len(all) > 0 {
		return oldestOf(all, placed), skips, nil
	}
	c, err := d.src.Start(ctx)
	return transactionEnd(c), nil, err
}

// oldestOf returns the cursor with the lowest ordinal. placed: the highest ordinals are of the server that answers, and cursors that were left
// on another one, as nobody can go on from them, do not count.
func oldestOf(all []event.Cursor, placed bool) event.Cursor {
	order := func(a, b event.Cursor) int { return cmp.Compare(a.Ordinal, b.Ordinal) }
	at := slices.MaxFunc(all, order).Position.ServerUUID
	return slices.MinFunc(slices.DeleteFunc(all, func(c event.Cursor) bool {
		other := c.Position.ServerUUID
		return placed && at != "" && other != "" && other != at
	}), order)
}

// Unsubscribe disconnects the subscription and forgets its cursor.
func (s *Server) Unsubscribe(ctx context.Context, id Identity) error {
	if err := id.Validate(); err != nil {
		return err
	}
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	d.mu.Lock()
	x := d.subs[id.Client]
	if x != nil {
		d.drop(x)
		delete(d.subs, id.Client)
	}
	d.mu.Unlock()
	if x != nil {
		if err := x.lockSave(ctx); err != nil {
			return err
		}
		x.run.forgotten = true
		x.unlockSave()
	}
	return d.s.store.Delete(ctx, id)
}

// Disconnect saves the subscription's cursor and lets go of it: its outstanding batches are
// forgotten, the ring no longer waits for it. If the cursor cannot be saved the error is a *SaveError, and the
// server goes on trying.
func (s *Server) Disconnect(ctx context.Context, id Identity) error {
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	d.mu.Lock()
	x, err := d.connected(id)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	d.drop(x)
	need := x.run.moves
	d.mu.Unlock()
	if err := d.save(ctx, x, need, true); err != nil {
		d.mu.Lock()
		x.run.moves++ // even if only the reservation of batch ids is not given back
		d.mu.Unlock()
		d.s.pokeSaver()
		return &SaveError{Identity: id, Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetSaved(x)
	return nil
}

// Get is GetWithoutAck and Ack in one. It fails with ErrOutstanding if an earlier batch is not acknowledged.
func (s *Server) Get(ctx context.Context, id Identity, size Size, wait Wait) (*Batch, error) {
	d, err := s.destination(id.Destination)
	if err != nil {
		return nil, err
	}
	b, err := d.get(ctx, id, size, wait, true)
	if err != nil || b.ID == NoBatch {
		return b, err
	}
	if err := s.Ack(ctx, id, b.ID, nil); err != nil {
		return nil, err
	}
	return b, nil
}

// GetWithoutAck hands out the next batch. Several batches may be outstanding. When there is nothing
// and wait does not say to wait on, the batch is empty and its ID is NoBatch. When reading has stopped, what was read
// is handed out first, then every get returns the *DestinationError. A get that waits holds up no other call.
func (s *Server) GetWithoutAck(ctx context.Context, id Identity, size Size, wait Wait) (*Batch, error) {
	d, err := s.destination(id.Destination)
	if err != nil {
		return nil, err
	}
	return d.get(ctx, id, size, wait, false)
}

// Ack acknowledges a batch, which must be the oldest outstanding one (else a *BatchError), and
// moves the cursor behind it. The state is saved with the cursor; nil leaves the state as it is. The server keeps no reference to it.
//
// The cursor is saved within Options.SaveInterval, or before Ack returns if that is
// 0: then Ack waits while the store refuses, and returns a *SaveError if ctx ends before; the batch is acknowledged all the same.
func (s *Server) Ack(ctx context.Context, id Identity, batchID int64, state []byte) error {
	return s.acknowledge(ctx, id, func(x *sub) (bool, error) { return x.ack(batchID, state, nil) })
}

// acknowledge lets f acknowledge something that a subscription was handed out, and saves the cursor before it returns if that is asked for.
func (s *Server) acknowledge(ctx context.Context, id Identity, f func(*sub) (freed bool, err error)) error {
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	x, move, err := d.acknowledge(id, f)
	if err != nil || s.opts.SaveInterval > 0 {
		return err
	}
	return d.saveBefore(ctx, x, move)
}

// Rollback forgets all outstanding batches; their events are handed out again under new ids.
func (s *Server) Rollback(_ context.Context, id Identity) error {
	return s.withSub(id, func(d *destination, x *sub) error {
		x.rollbackAll()
		x.wake()
		return nil
	})
}

// RollbackTo forgets the batch and all later ones; their events are handed out again
// under new ids. Earlier batches stay outstanding. An id that is not outstanding gives a *BatchError.
func (s *Server) RollbackTo(_ context.Context, id Identity, batchID int64) error {
	return s.withSub(id, func(d *destination, x *sub) error {
		err := x.rollback(batchID)
		x.wake()
		return err
	})
}

// ListBatchIDs returns the ids of the outstanding batches, oldest first.
func (s *Server) ListBatchIDs(_ context.Context, id Identity) (ids []int64, err error) {
	err = s.withSub(id, func(d *destination, x *sub) error {
		for _, b := range x.batches {
			ids = append(ids, b.id)
		}
		return nil
	})
	return ids, err
}

// withSub calls do with a connected subscription under its destination's lock.
func (s *Server) withSub(id Identity, do func(*destination, *sub) error) error {
	d, err := s.destination(id.Destination)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x, err := d.connected(id)
	if err != nil {
		return err
	}
	return do(d, x)
}

// ListSubscriptions returns the destination's subscriptions, connected or only saved, sorted by client.
func (s *Server) ListSubscriptions(ctx context.Context, destination string) ([]SubscriptionInfo, error) {
	d, err := s.destination(destination)
	if err != nil {
		return nil, err
	}
	ids, err := s.store.List(ctx, destination)
	if err != nil {
		return nil, err
	}
	var out []SubscriptionInfo
	d.mu.Lock()
	known := make(map[string]bool)
	for _, x := range d.subs {
		known[x.id.Client] = true
		out = append(out, SubscriptionInfo{Identity: x.id, Filter: x.filter, Connected: x.run.connected})
	}
	d.mu.Unlock()
	for _, id := range ids {
		if known[id.Client] {
			continue
		}
		r, err := s.store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		out = append(out, SubscriptionInfo{Identity: id, Filter: r.Filter})
	}
	slices.SortFunc(out, func(a, b SubscriptionInfo) int { return cmp.Compare(a.Identity.Client, b.Identity.Client) })
	return out, nil
}

// Subscription returns what is known of one subscription, whether it is connected or not. The error of one that is not known is
// [ErrNotSubscribed].
func (s *Server) Subscription(ctx context.Context, id Identity) (SubscriptionInfo, error) {
	d, err := s.destination(id.Destination)
	if err != nil {
		return SubscriptionInfo{}, err
	}
	d.mu.Lock()
	if x := d.subs[id.Client]; x != nil {
		defer d.mu.Unlock()
		return SubscriptionInfo{Identity: id, Filter: x.filter, Connected: x.run.connected}, nil
	}
	d.mu.Unlock()
	r, err := s.store.Load(ctx, id)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return SubscriptionInfo{}, fmt.Errorf("%s: %w", id, ErrNotSubscribed)
	case err != nil:
		return SubscriptionInfo{}, fmt.Errorf("%s: %w", id, err)
	}
	return SubscriptionInfo{Identity: id, Filter: r.Filter}, nil
}

// Cursor returns what the subscription has acknowledged, its state included; of one that is not connected,
// what is saved, or an error that is meta.ErrNotFound.
func (s *Server) Cursor(ctx context.Context, id Identity) (event.Cursor, error) {
	d, err := s.destination(id.Destination)
	if err != nil {
		return event.Cursor{}, err
	}
	d.mu.Lock()
	if x := d.subs[id.Client]; x != nil {
		defer d.mu.Unlock()
		return x.whole()
	}
	d.mu.Unlock()
	r, err := s.store.Load(ctx, id)
	if err != nil {
		return event.Cursor{}, fmt.Errorf("%s: %w", id, err)
	}
	return r.Cursor, nil
}

// Status returns a snapshot of every destination, sorted by name.
func (s *Server) Status() []DestinationStatus {
	ds := s.all()
	out := make([]DestinationStatus, len(ds))
	for i, d := range ds {
		out[i] = d.status()
	}
	return out
}

func (d *destination) status() DestinationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := DestinationStatus{Name: d.name, MaxEvents: d.maxEvents, MaxBytes: d.maxBytes, Err: d.fatal}
	m := d.main
	if m != nil {
		tail := transactionEnd(m.tail)
		st.RingEvents, st.RingBytes = m.ring.Len(), m.ring.Bytes()
		st.Put, st.Ack, st.Position = m.ring.Last(), m.ring.Last(), tail.Position
		st.Events, st.Rows, st.Bytes = m.events, m.rows, m.bytes
		if m.run.blocked {
			st.FullSince = m.run.fullSince
		}
		if m.run.reading {
			st.State = Reading
		}
		if st.Err == nil {
			st.Err = m.err
		}
	}
	if st.Err != nil {
		st.State = Failed
	}
	for _, x := range sortedSubs(d.subs) {
		if !x.run.connected {
			continue
		}
		ss := x.status(st.Put)
		st.Ack = min(st.Ack, ss.Cursor.Last())
		st.Subscriptions = append(st.Subscriptions, ss)
	}
	return st
}

// status returns a snapshot; put is the last ordinal of the main ring.
func (s *sub) status(put int64) SubscriptionStatus {
	r := meta.Record{Cursor: s.cursor}
	ss := SubscriptionStatus{
		Identity: s.id, Filter: s.filter, Cursor: r.Clone().Cursor, Batches: len(s.batches),
		Saved: s.run.savedLast, SavedAt: s.run.savedAt, SaveErr: s.run.saveErr, Rows: s.rows, Detached: s.detached,
	}
	if len(s.batches) > 0 {
		ss.OldestUnacked = s.batches[0].at
	}
	f := s.feed
	if f == nil || s.ahead {
		ss.Feed = FeedAhead
		return ss
	}
	if i := s.rd.Acked(); i < f.ring.Next() {
		ss.OldestEvent = time.UnixMicro(f.ring.Event(i).Txn.Time)
	}
	if f.owner != nil {
		ss.RingEvents, ss.RingBytes, ss.Err = f.ring.Len(), f.ring.Bytes(), f.err
		switch {
		case f.run.reading:
			ss.Feed = FeedCatchUp
		case f.run.queued:
			ss.Feed = FeedQueued
		default:
			ss.Feed = FeedOwn
		}
	}
	ss.Lag = max(put, f.ring.Last()) - s.cursor.Last()
	return ss
}
