package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// RunState says what a [Bridge] is doing.
type RunState uint8

// The states.
const (
	Idle     RunState = iota // Run has not been called
	Running                  // publishing, or waiting for events
	Retrying                 // a failure is being mended
	Draining                 // told to stop, waiting for confirmations
	Stopped                  // Run has returned; Err says why if it was not asked to
)

// String returns the state's name in lower case.
func (s RunState) String() string {
	return name([]string{"idle", "running", "retrying", "draining", "stopped"}, int(s))
}

// Status is what health checks and metrics show of a bridge.
type Status struct {
	State   RunState
	Err     error       // why it is not healthy now; nil when it is
	Sink    sink.Status // the sink's own
	Batches int         // handed out and not acknowledged
	Slabs   int64       // groups of messages handed to the sink and not done; Sink counts the messages
	Window  int64       // bytes of events and encoded messages held
	Acked   int64       // ordinal acknowledged last; 0 before the first acknowledgement
	Epoch   int64
	Offset  int64 // sequence = ordinal + Offset

	Reconciling bool // what is sent is compared with what the topics hold

	// Since New, replays included.
	Rows     int64 // row changes encoded and handed to the sink
	Messages int64 // messages confirmed
	Bytes    int64 // their payload
	Acks     int64 // batches acknowledged
	Failures int64 // sessions that failed and were replayed
	Epochs   int64 // epochs begun
	Present  int64 // messages not sent because their topics were found to hold them
	Hidden   int64 // DDL statements not sent because they carry secrets
	Bugs     int64 // reports that can only come from a bug, in the whole process

	// Messages above the limit since New, replays included, by what became of them. A stub with a dead letter counts as the latter.
	Stubs, Splits, DeadLetters int64
}

// stats are the counters behind Status.
type stats struct {
	rows, messages, bytes, acks, failures, epochs, hidden, acked, stubs, splits, deadLetters, present atomic.Int64
}

// Bridge is one sink's subscription. Run it once; the other methods may be
// called from any goroutine.
type Bridge struct {
	o           Options
	c           *compiled
	destination []byte
	recipe      *Recipe
	fingerprint string
	stateful    sink.Stateful // Options.Sink, if it keeps state

	transactional sink.Transactional // Options.Sink, if it keeps source transactions whole
	drains        bool               // it makes sure by itself that a change of configuration leaves nothing to be replayed

	stats   stats
	ddlTo   atomic.Pointer[target]  // where DDL statements go
	refused atomic.Pointer[refused] // the change whose message is too large for the broker; nil: none

	ran       atomic.Bool
	drain     chan struct{} // closed when Drain is called
	drainOnce sync.Once
	cut       context.Context // ends when draining must not go on
	cutNow    context.CancelFunc
	ended     chan struct{} // closed when Run has returned

	mu      sync.Mutex
	state   RunState
	err     error // why publishing is not healthy now
	feedErr error // why the server gives no events now
	result  error // of Run
	saved   State // what goes into the cursor; Partitions only grow
	version int64 // counts the changes of saved
	written int64 // version that is in the cursor
	durable int64 // version that is known to be saved
	session *session
	text    []byte // saved without the sink's state, encoded, at version textOf
	textOf  int64

	dirty bool // messages after the cursor that was loaded may be stored, under the numbers and partitions of saved

	reconciling *reconciliation // nil: what is sent is not compared with what the topics hold
	lost        *Reconcile      // of a cursor without state; the run's own

	mark  int64 // of the batch being acknowledged; guarded by the session's ackMu
	whole bool  // nothing is stored that is not acknowledged; the run's own

	notes    int64           // of the sink that are saved; the run's own
	farthest int64           // ordinal of the last change that this run has given to the sink; the run's own
	former   *event.Position // where the source's log ended when this run began, before which all is that earlier ones can have sent; nil: not known
	passed   bool            // the cursor is behind all of that
}

// New checks the options and returns a bridge. An error names every fault.
func New(o Options) (*Bridge, error) {
	o.Tables = append([]string(nil), o.Tables...)
	c, err := o.complete()
	if err != nil {
		return nil, err
	}
	b := &Bridge{o: o, c: c, destination: []byte(o.Destination), recipe: o.recipe(), fingerprint: o.fingerprint(),
		drain: make(chan struct{}), ended: make(chan struct{})}
	if s, ok := o.Sink.(sink.Stateful); ok && s.KeepsState() {
		b.stateful = s
		_, forgets := s.(sink.Forgetful)
		b.drains = !forgets
	}
	if s, ok := o.Sink.(sink.Transactional); ok && s.KeepsTransactions() {
		b.transactional = s
	}
	b.cut, b.cutNow = context.WithCancel(context.Background())
	return b, nil
}

// Fingerprint returns that of the bridge's recipe, as it stands in its State.
func (b *Bridge) Fingerprint() string { return b.fingerprint }

// Recipe returns the bridge's own. It must not be changed.
func (b *Bridge) Recipe() *Recipe { return b.recipe }

// Status returns a snapshot.
func (b *Bridge) Status() Status {
	s := Status{
		Sink: b.o.Sink.Status(), Acked: b.stats.acked.Load(), Rows: b.stats.rows.Load(), Messages: b.stats.messages.Load(),
		Bytes: b.stats.bytes.Load(), Acks: b.stats.acks.Load(), Failures: b.stats.failures.Load(), Epochs: b.stats.epochs.Load(),
		Hidden: b.stats.hidden.Load(), Present: b.stats.present.Load(), Bugs: bugs.Load(),
		Stubs: b.stats.stubs.Load(), Splits: b.stats.splits.Load(), DeadLetters: b.stats.deadLetters.Load(),
	}
	b.mu.Lock()
	s.State, s.Err, s.Epoch, s.Offset = b.state, b.err, b.saved.Epoch, b.saved.Offset
	s.Reconciling = b.reconciling != nil
	se := b.session
	if s.Err == nil {
		s.Err = b.feedErr
	}
	b.mu.Unlock()
	if s.Err == nil {
		s.Err = s.Sink.Err
	}
	if se != nil {
		batches, bytes := se.held()
		s.Batches, s.Slabs = batches, se.outstanding.Load()
		s.Window = bytes + se.encoded.Load()
	}
	return s
}

// Run publishes until ctx ends or Drain is called, then takes in nothing more, waits
// for what is on its way (at most Options.DrainTimeout), acknowledges it and returns nil, or
// ErrDrain if the time was over. Failures it retries for ever. It returns a *StopError when it cannot go on;
// then the subscription is disconnected and keeps its cursor.
//
// The sink is not closed. The subscription must be connected before.
func (b *Bridge) Run(ctx context.Context) error {
	if b.ran.Swap(true) {
		return errors.New("bridge: Run called twice")
	}
	defer close(b.ended)
	soft, cancelSoft := context.WithCancel(ctx)
	defer cancelSoft()
	// hard outlives ctx for the time of draining.
	hard, cancelHard := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelHard()
	defer context.AfterFunc(b.cut, cancelHard)()

	var wg sync.WaitGroup
	wg.Go(func() { // the timer of draining
		select {
		case <-soft.Done():
		case <-b.drain:
			cancelSoft()
		case <-hard.Done():
			return
		}
		b.enter(Draining)
		t := time.NewTimer(b.o.DrainTimeout)
		defer t.Stop()
		select {
		case <-t.C:
			cancelHard()
		case <-hard.Done():
		}
	})
	err := b.run(soft, hard)
	if final := b.final(err); final != nil {
		err = final
		b.o.Logger.Error("the sink's subscription has stopped", "error", err)
		// Nobody else on the destination should wait for a subscription that does not go on.
		if derr := b.o.Client.Disconnect(hard); derr != nil {
			b.o.Logger.Warn("the stopped subscription could not be disconnected", "error", derr)
		}
	}
	cancelHard()
	wg.Wait()
	b.mu.Lock()
	b.state, b.result = Stopped, err
	b.err = err
	if err == nil {
		b.session = nil // what it holds in part is handed out again at the next start
	}
	b.mu.Unlock()
	return err
}

// Drain tells Run to stop as the end of its ctx does, and waits for it. When ctx
// ends first it cuts the waiting for confirmations short.
func (b *Bridge) Drain(ctx context.Context) error {
	b.drainOnce.Do(func() { close(b.drain) })
	if !b.ran.Load() {
		return nil
	}
	select {
	case <-b.ended:
	case <-ctx.Done():
		b.cutNow()
		<-b.ended
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.result
}

// enter changes the state, unless that would hide that the bridge is stopping.
func (b *Bridge) enter(s RunState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state < Draining || s > b.state {
		b.state = s
	}
}

// unhealthy shows err in Status until healthy is called.
func (b *Bridge) unhealthy(err error) {
	b.mu.Lock()
	b.err = err
	b.mu.Unlock()
}

func (b *Bridge) healthy() {
	b.mu.Lock()
	was := b.err
	b.err = nil
	if b.state == Retrying {
		b.state = Running
	}
	b.mu.Unlock()
	if was != nil {
		b.o.Logger.Info("the sink goes on")
	}
}

// feed notes whether the server gives events.
func (b *Bridge) feed(err error) {
	b.mu.Lock()
	b.feedErr = err
	b.mu.Unlock()
}

// run holds sessions until one ends on purpose.
func (b *Bridge) run(soft, hard context.Context) error {
	b.enter(Running)
	var pause backoff
	logged := "" // the failure logged last
	asking, stopAsking := context.WithCancel(soft)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer stopAsking()
	for loaded := false; ; {
		var err error
		if !loaded {
			err = b.load(soft)
			loaded = err == nil
			if loaded && b.o.SourceEnd != nil {
				asked.Go(func() { b.askFormer(asking) })
			}
		}
		if err == nil {
			before := b.stats.acks.Load()
			if err = b.hold(soft, hard); err == nil {
				return nil
			}
			if b.stats.acks.Load() > before {
				pause.n = 0
			}
			b.stats.failures.Add(1)
		}
		if final := b.final(err); final != nil {
			return final
		}
		if hard.Err() != nil {
			return ErrDrain
		}
		var re *repartitionError
		if errors.As(err, &re) && b.whole {
			if err = b.repartition(soft, re); err == nil {
				continue
			}
		}
		b.unhealthy(err)
		if soft.Err() != nil {
			if !loaded {
				return nil // nothing was on its way
			}
			return fmt.Errorf("%w (%w)", ErrDrain, err)
		}
		b.enter(Retrying)
		d := pause.next(b.o.BackoffMin, b.o.BackoffMax)
		// A fault that lasts is logged at its 1st, 2nd, 4th, 8th ... repetition; Status shows it all the time.
		if text := err.Error(); text != logged || pause.n&(pause.n-1) == 0 {
			logged = text
			b.o.Logger.Warn("publishing failed; it is repeated from the last acknowledgement", "error", err, "pause", d.Round(time.Millisecond))
		}
		if retry.Sleep(soft, d) != nil {
			return nil // nothing is on its way
		}
	}
}

// load reads the state from the cursor, and begins a new epoch if the options changed.
func (b *Bridge) load(ctx context.Context) error {
	if err := b.o.Owner(); err != nil { // I8
		return err
	}
	if err := b.o.Client.Rollback(ctx); err != nil {
		return fmt.Errorf("rollback: %w", err)
	}
	cursor, err := b.o.Client.Cursor(ctx)
	if err != nil {
		return fmt.Errorf("read the cursor: %w", err)
	}
	st, err := ParseState(cursor.State)
	if err != nil {
		return &StopError{Err: err, Remedy: "run the version that wrote it, or set the cursor anew (binlogmq cursor set), which begins a new epoch"}
	}
	changed := st != nil && st.Fingerprint != b.fingerprint
	if changed && st.Fingerprint != MovedFingerprint && !st.Clean && !b.drains && b.o.Exact {
		// I5: the broker would not recognise under new numbers what is stored.
		return &StopError{Err: otherVersion(ErrUnfinished, st), Remedy: unfinishedRemedy}
	}
	var grown *repartitionError
	if st != nil && !changed && st.Clean {
		if grown, err = b.grown(ctx, st); err != nil {
			return err
		}
		changed = grown != nil
	}
	if err := b.reconcile(ctx, st, &cursor); err != nil {
		return err
	}
	// A sink may refuse to go on with a changed configuration; then nothing has changed.
	fresh, err := b.restore(ctx, st, changed)
	if err != nil {
		if st != nil && st.Fingerprint == elsewhereFingerprint {
			err = fmt.Errorf("another server answers, which may hold what lies behind the cursor in another order: %w", err)
		}
		if changed {
			err = otherVersion(err, st)
		}
		return err
	}
	killpoint.Hit("bridge.restored")
	clean := st == nil || st.Clean
	switch {
	case st == nil:
		// I5: a cursor that was lost may have used numbers, which a broker that deduplicates would drop in silence.
		st = NewState(b.o.Born)
		st.follow(b.recipe)
		st.Reconciling = b.lost
		err = b.adopt(ctx, st)
	case changed:
		was := *st
		st.next(b.recipe)
		st.forget() // topics of other routes, perhaps; those in use are learned again
		b.stats.epochs.Add(1)
		again := "what was sent after the cursor is sent again under new numbers"
		if was.Clean || b.drains && st.Sink != nil && was.Fingerprint != MovedFingerprint {
			again = "nothing was sent after the cursor"
		}
		why := "the sink's configuration changed, or its cursor was moved"
		if grown != nil {
			why = grown.Error()
		}
		if st.Reconciling != nil {
			again = "what was sent after the cursor is looked for in the topics, and not sent again"
		}
		b.o.Logger.Warn(why+": a new epoch begins; "+again,
			"old_epoch", was.Epoch, "epoch", st.Epoch, "offset", st.Offset, "ordinal", cursor.Last())
		clean = true
		err = b.adopt(ctx, st)
	case fresh:
		st.forget() // the sink learns its topics anew, and so do we
		clean = true
		st.follow(b.recipe)
		err = b.adopt(ctx, st)
	case st.Clean || st.Recipe == nil:
		st.follow(b.recipe) // before anything is sent that the mark would deny
		err = b.adopt(ctx, st)
	default:
		b.mu.Lock()
		b.saved, b.written, b.durable = *st.clone(), b.version, b.version
		b.saved.Sink = nil
		b.mu.Unlock()
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.dirty = !clean
	b.mu.Unlock()
	b.stats.acked.Store(cursor.Last())
	return nil
}

// otherVersion adds to an error of a changed configuration that the program is another, if that is why.
func otherVersion(err error, st *State) error {
	if _, why := ParseRecipe(st.Recipe); errors.Is(why, ErrRule) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// restore gives the sink the state that the cursor has for it; st is nil where the cursor
// has none. fresh says that the state must be saved before anything is published.
func (b *Bridge) restore(ctx context.Context, st *State, changed bool) (fresh bool, err error) {
	if b.stateful == nil {
		// What another kind of delivery counted would not count what this one sends.
		return st != nil && len(st.Sink) > 0, nil
	}
	var state []byte
	how := sink.Same
	if st != nil {
		state = st.Sink
		switch {
		case st.Fingerprint == MovedFingerprint:
			how = sink.Moved
		case changed:
			how = sink.Changed
		}
	}
	if fresh, err = b.stateful.Restore(ctx, state, how); err != nil {
		return false, fmt.Errorf("restore the sink's state: %w", err)
	}
	return fresh, nil
}

// adopt makes st the state from which numbers are taken. I5: it is saved before the first
// of its numbers is used, so that no other start can give them to other messages.
func (b *Bridge) adopt(ctx context.Context, st *State) error {
	st = st.clone()
	st.Sink = nil // the sink has it
	text, err := st.Encode()
	if err != nil {
		return err
	}
	if b.stateful != nil {
		text = appendState(nil, text, b.stateful.AppendState(nil))
	}
	if err := b.o.Client.SaveState(ctx, text); err != nil {
		return fmt.Errorf("save epoch %d: %w", st.Epoch, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = *st
	b.version++
	b.written, b.durable = b.version, b.version
	return nil
}

// repartition begins a new epoch because a topic's number of partitions changed.
func (b *Bridge) repartition(ctx context.Context, re *repartitionError) error {
	b.mu.Lock()
	st := b.saved.clone()
	b.mu.Unlock()
	was := st.Epoch
	if b.stateful != nil {
		if _, err := b.stateful.Restore(ctx, b.stateful.AppendState(nil), sink.Changed); err != nil {
			return err
		}
		st.forget() // learned again, as the sink does
	} else {
		clear(st.Limits)
		st.Partitions[re.topic] = re.now
	}
	st.next(b.recipe)
	if err := b.adopt(ctx, st); err != nil {
		return err
	}
	b.stats.epochs.Add(1)
	b.o.Logger.Warn("a topic's number of partitions changed: a new epoch begins; what was sent after the cursor is sent again under new numbers, and rows of a key may lie in two partitions",
		"topic", re.topic, "old_partitions", re.was, "partitions", re.now, "old_epoch", was, "epoch", st.Epoch, "offset", st.Offset)
	return nil
}

// pin notes a topic's number of partitions in the state.
func (b *Bridge) pin(topic string, n int32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, ok := b.saved.Partitions[topic]
	if ok && was != n {
		return &repartitionError{topic, was, n}
	}
	if !ok {
		b.saved.Partitions[topic] = n
		b.version++
	}
	return nil
}

// pinned reports whether all that pin noted is saved.
func (b *Bridge) pinned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.durable == b.version
}

// savePins saves what pin noted. The caller sees to it that no acknowledgement
// with an older state is under way.
func (b *Bridge) savePins(ctx context.Context) error {
	b.mu.Lock()
	version := b.version
	if b.durable == version {
		b.mu.Unlock()
		return nil
	}
	text, err := b.encode()
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if err := b.o.Client.SaveState(ctx, text); err != nil {
		return fmt.Errorf("save the number of partitions of new topics: %w", err)
	}
	b.mu.Lock()
	b.written, b.durable = max(b.written, version), version
	b.mu.Unlock()
	return nil
}

// saveState saves the state as it is. No session runs.
func (b *Bridge) saveState(ctx context.Context) error {
	b.mu.Lock()
	text, err := b.encode()
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.o.Client.SaveState(ctx, text)
}

// encode returns the state as it is to be saved with what is acknowledged. Caller holds mu.
func (b *Bridge) encode() ([]byte, error) {
	if b.stateful == nil {
		return b.saved.Encode()
	}
	if b.text == nil || b.textOf != b.version {
		text, err := b.saved.Encode()
		if err != nil {
			return nil, err
		}
		b.text, b.textOf = text, b.version
	}
	return appendState(nil, b.text, b.stateful.AppendState(nil)), nil
}

// acknowledge acknowledges a batch at the server, with the state behind it. It
// returns the state's version. Caller holds the session's ackMu.
func (b *Bridge) acknowledge(ctx context.Context, batch, mark int64) (version int64, err error) {
	if b.stateful == nil {
		state, version, err := b.stateBytes()
		if err != nil {
			return 0, err
		}
		return version, b.o.Client.Ack(ctx, batch, state)
	}
	b.mark = mark
	b.mu.Lock()
	version = b.version
	b.mu.Unlock()
	return version, b.o.Client.AckLazy(ctx, batch, (*lazyState)(b))
}

// lazyState is what the server calls for the state of a sink that keeps one.
type lazyState Bridge

// Acknowledged implements server.LazyState. AckLazy calls it.
func (s *lazyState) Acknowledged(int64) {
	if s.mark > 0 { // else the batch has no messages
		s.stateful.Acknowledge(s.mark)
	}
}

// State implements server.LazyState.
func (s *lazyState) State() ([]byte, error) {
	b := (*Bridge)(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.encode()
}

// stateBytes returns the state to save with the next acknowledgement, and its
// version; nil when the cursor has it.
func (b *Bridge) stateBytes() ([]byte, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written == b.version {
		return nil, b.version, nil
	}
	text, err := b.saved.Encode()
	return text, b.version, err
}

// acked notes that the server took an acknowledgement with a version of the state.
func (b *Bridge) acked(ordinal, version int64) {
	b.stats.acks.Add(1)
	if ordinal > 0 {
		b.stats.acked.Store(ordinal)
	}
	b.mu.Lock()
	b.written = max(b.written, version)
	red := b.err != nil
	b.mu.Unlock()
	if red {
		b.healthy()
	}
}

// hold runs one session and mends what it leaves: afterwards nothing is on its
// way and the server hands out again what is not acknowledged.
func (b *Bridge) hold(soft, hard context.Context) error {
	s := newSession(b)
	b.mu.Lock()
	b.session = s
	b.mu.Unlock()
	b.whole = false
	if err := b.o.Owner(); err != nil { // I8
		return err
	}
	err := s.run(soft, hard)
	if err == nil {
		if s.whole() {
			b.stoppedClean(hard)
		}
		return nil
	}
	if b.settles(err) {
		// Everything before the point that we cannot pass may still be confirmed. The session is intact.
		d, cancel := context.WithTimeout(hard, b.o.DrainTimeout)
		ferr := b.o.Sink.Flush(d)
		cancel()
		if ferr != nil {
			b.o.Logger.Warn("not everything before the stop is confirmed", "error", ferr)
		}
	}
	var at *heldError
	errors.As(err, &at)
	if rerr := b.reset(s, hard, at); rerr != nil {
		return errors.Join(err, rerr)
	}
	b.saveNotes(hard)
	if b.whole && b.final(err) != nil {
		if !at.late() {
			b.Passed() // earlier runs came no further, either
		}
		b.stoppedClean(hard)
	}
	return err
}

// Passed says that the cursor has passed all that earlier runs can have sent, which the bridge else learns from where the source's
// log ended at its start. Any goroutine may call it.
func (b *Bridge) Passed() {
	b.mu.Lock()
	b.passed = true
	b.mu.Unlock()
}

// saveNotes saves what the sink must not forget though no acknowledgement may ever save it. No session runs.
func (b *Bridge) saveNotes(ctx context.Context) {
	noting, ok := b.o.Sink.(sink.Noting)
	if !ok {
		return
	}
	n := noting.Notes()
	if n == b.notes {
		return
	}
	if err := b.saveState(ctx); err != nil {
		b.o.Logger.Warn("what the sink must remember of a failure is not saved yet", "error", err)
		return
	}
	b.notes = n
}

// acknowledgeUpTo acknowledges what was handed out up to an ordinal, in part of a batch, too. No session runs.
func (b *Bridge) acknowledgeUpTo(ctx context.Context, s *session, ordinal int64) error {
	if b.stateful == nil {
		return b.o.Client.AckUpTo(ctx, ordinal, nil)
	}
	b.mark = 0
	if s.sent.Load() { // else the mark is that of an older session, which may have published more than was confirmed
		b.mark = b.stateful.Mark()
	}
	return b.o.Client.AckUpTo(ctx, ordinal, (*lazyState)(b))
}

// askFormer asks where the source's log ends if earlier runs may have sent what is not acknowledged.
func (b *Bridge) askFormer(ctx context.Context) {
	b.mu.Lock()
	dirty := b.dirty
	b.mu.Unlock()
	if !dirty {
		return
	}
	end, err := b.o.SourceEnd(ctx)
	switch {
	case err == nil:
		b.mu.Lock()
		b.former = &end
		b.mu.Unlock()
	case ctx.Err() == nil:
		b.o.Logger.Warn("where the source's log ends is not known; the sink's next start repeats what may be stored already", "error", err)
	}
}

// behindAll says whether the cursor has passed all that may be stored: what this run has sent in any of its sessions,
// and what earlier ones can have sent.
func (b *Bridge) behindAll(ctx context.Context) bool {
	cursor, err := b.o.Client.Cursor(ctx)
	if err != nil || cursor.Last() < b.farthest {
		return false
	}
	b.mu.Lock()
	dirty, former := b.dirty && !b.passed, b.former
	b.mu.Unlock()
	return !dirty || former != nil && cursor.Position.Reached(former)
}

// stoppedClean notes in the state that nothing is stored that is not acknowledged, if that is so (I5). Without it the next
// start replays, which is only slower.
func (b *Bridge) stoppedClean(ctx context.Context) {
	if !b.behindAll(ctx) {
		return
	}
	b.mu.Lock()
	if b.reconciling != nil { // what others have sent lies behind the cursor
		b.mu.Unlock()
		return
	}
	b.saved.Clean = true
	b.version++
	b.mu.Unlock()
	if err := b.saveState(ctx); err != nil {
		b.o.Logger.Warn("that the sink has stopped in order could not be saved", "error", err)
	}
}

// grown returns a topic that has more partitions now than the state says.
func (b *Bridge) grown(ctx context.Context, st *State) (*repartitionError, error) {
	r, ok := b.o.Sink.(sink.Recounter)
	if !ok || len(st.Partitions) == 0 {
		return nil, nil
	}
	more, err := Grown(ctx, r, st)
	if err != nil || len(more) == 0 {
		return nil, err
	}
	now, err := r.Recount(ctx, more[:1])
	if err != nil {
		return nil, err
	}
	return &repartitionError{more[0], st.Partitions[more[0]], now[more[0]]}, nil
}

// Grown returns the topics that have more partitions now than the state says, sorted. To use those
// begins a new epoch.
func Grown(ctx context.Context, r sink.Recounter, st *State) ([]string, error) {
	now, err := r.Recount(ctx, slices.Sorted(maps.Keys(st.Partitions)))
	if err != nil {
		return nil, fmt.Errorf("count the partitions of the topics in use: %w", err)
	}
	var more []string
	for topic, was := range st.Partitions {
		if now[topic] > was {
			more = append(more, topic)
		}
	}
	slices.Sort(more)
	return more, nil
}

// partitions asks the sink for a topic's number of partitions. While what is stored after the cursor is
// replayed it stays what it was (I5), also when the topic has more by now.
func (b *Bridge) partitions(ctx context.Context, topic string) (int32, error) {
	n, err := b.o.Sink.Partitions(ctx, topic)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	was, known := b.saved.Partitions[topic]
	dirty := b.dirty
	b.mu.Unlock()
	switch {
	case !known || !dirty || n == was:
		return n, nil
	case n < was:
		return 0, &StopError{Err: fmt.Errorf("topic %s has %d partitions, not %d as before: it was deleted and created anew", topic, n, was), Remedy: reconcileRemedy}
	}
	b.o.Logger.Warn("a topic has more partitions than before; those from before are used until the sink has stopped in order once", "topic", topic, "partitions", n, "used", was)
	return was, nil
}

const (
	unfinishedRemedy = "run the configuration, and the version, that sent them until the sink has stopped cleanly (SIGTERM), then change it; where it cannot, since it stops before a change that is refused, begin anew with `binlogmq cursor new-life --reconcile`, which reads what the topics hold, or with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"
	reconcileRemedy  = "when that is understood, begin anew with `binlogmq cursor new-life --reconcile`, which reads what the topics hold"
)

// settles reports whether err leaves the sink's session intact.
func (b *Bridge) settles(err error) bool {
	if errors.Is(err, server.ErrFenced) {
		return false // I8: what is on its way is not waited for
	}
	var re *repartitionError
	return b.final(err) != nil || errors.As(err, &re)
}

// reset ends the sink's session and rolls the server back to the ack pointer,
// trying for as long as hard allows. at is the change that the session stopped before, if that is why it ended.
func (b *Bridge) reset(s *session, hard context.Context, at *heldError) error {
	var pause backoff
	for step := 0; step < 3; {
		var err error
		switch step {
		case 0:
			err = b.o.Sink.Reset(hard)
		case 1:
			// No completion of the old session follows a Reset; what it told before is counted.
			if err = s.settled(hard); err == nil {
				err = s.acknowledge(hard)
			}
			if err == nil && at != nil && !s.lost.Load() {
				// All before the change is confirmed, and nothing from it on was sent: the cursor goes right before it.
				err = b.acknowledgeUpTo(hard, s, at.ordinal-1)
				b.whole = err == nil && b.farthest < at.ordinal
			}
			if err != nil && hard.Err() == nil {
				b.o.Logger.Warn("confirmed batches could not be acknowledged; they are sent again", "error", err)
				err = nil
			}
		case 2:
			err = b.o.Client.Rollback(hard)
		}
		switch {
		case err == nil:
			step++
			continue
		case hard.Err() != nil || b.final(err) != nil:
			return err
		}
		b.unhealthy(err)
		b.enter(Retrying)
		d := pause.next(b.o.BackoffMin, b.o.BackoffMax)
		b.o.Logger.Warn("the session could not be reset; trying again", "error", err, "pause", d)
		if retry.Sleep(hard, d) != nil {
			return hard.Err()
		}
	}
	return nil
}

// backoff doubles pauses with jitter.
type backoff struct{ n int }

func (p *backoff) next(low, high time.Duration) time.Duration {
	d := high
	if p.n < 32 && low<<p.n > 0 && low<<p.n < high {
		d = low << p.n
	}
	p.n++
	return retry.Jitter(d)
}
