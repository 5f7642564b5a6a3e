package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// session is what happens between two resets of the sink. Its state dies with it, so that
// nothing of a failed attempt can be taken for success of the next.
type session struct {
	b      *Bridge
	offset int64
	epoch  []byte

	order chan *chunk // encoding tasks in the order of their messages
	work  chan *chunk // the same, for whoever is free

	failed chan struct{} // closed with the first failure
	once   sync.Once
	cause  error // set before failed is closed

	sent        atomic.Bool   // something was published
	lost        atomic.Bool   // a message may be stored without being confirmed
	chunks      sync.Pool     // of this session: its workers may hold chunks that others use by now
	encoded     atomic.Int64  // bytes of slabs that are not done
	outstanding atomic.Int64  // slabs published and not done
	unpublished atomic.Int64  // chunks lined up and not published whole
	idle        chan struct{} // signalled when outstanding falls to 0
	room        chan struct{} // signalled when the window may have room
	acks        chan struct{} // signalled when the ledger may have a ready batch

	mu     sync.Mutex // guards ledger
	ledger ledger

	ackMu sync.Mutex // one goroutine acknowledges at a time
}

func newSession(b *Bridge) *session {
	b.mu.Lock()
	offset, epoch := b.saved.Offset, b.saved.Epoch
	b.mu.Unlock()
	queue := 4 * (b.o.Workers + 1)
	s := &session{
		b: b, offset: offset, epoch: fmt.Append(nil, epoch),
		order: make(chan *chunk, queue), work: make(chan *chunk, queue),
		failed: make(chan struct{}), idle: make(chan struct{}, 1), room: make(chan struct{}, 1), acks: make(chan struct{}, 1),
	}
	s.chunks.New = func() any {
		c := &chunk{session: s, out: make(chan *slab, 1)}
		c.claimed.Store(true)
		return c
	}
	return s
}

// fail ends the session with its first failure.
func (s *session) fail(err error) {
	s.once.Do(func() {
		s.cause = err
		close(s.failed)
	})
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// whole reports whether nothing is stored that is not acknowledged. The session is over.
func (s *session) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.pending() == 0 && !s.lost.Load()
}

// messageFailed: one layer failing fails the batch, and with it the session.
func (s *session) messageFailed(m *sink.Message, err error) {
	s.lost.Store(true)
	s.b.refuse(err, s.offset)
	select {
	case <-s.failed:
		return
	default:
	}
	s.fail(fmt.Errorf("message %d.%d to topic %s, partition %d: %w", m.Sequence, m.SubIndex, m.Topic, m.Partition, err))
}

// chunkDone: all messages of a chunk are done, or failed.
func (s *session) chunkDone(ticket int64, ok bool) {
	s.mu.Lock()
	err := s.ledger.done(ticket, ok)
	_, _, ready := s.ledger.ready()
	s.mu.Unlock()
	if err != nil {
		bug(err)
	}
	if ready {
		signal(s.acks)
	}
}

// held returns how many batches are open and the bytes of their events.
func (s *session) held() (batches int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.pending(), s.ledger.bytes
}

// run publishes until soft ends (then it drains and returns nil), hard ends, or something fails.
// All goroutines that it starts have ended when it returns.
func (s *session) run(soft, hard context.Context) error {
	ctx, cancel := context.WithCancel(hard)
	defer cancel()
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	defer context.AfterFunc(soft, stopIntake)()

	var wg sync.WaitGroup
	wg.Go(func() { // a failure anywhere ends all
		select {
		case <-s.failed:
			cancel()
		case <-ctx.Done():
		}
	})
	for range s.b.o.Workers {
		wg.Go(func() { s.encodeWork(ctx) })
	}
	wg.Go(func() {
		defer close(s.order)
		s.pull(intake, ctx)
	})
	wg.Go(func() { s.acknowledgeReady(ctx) })
	if ring, ok := s.b.o.Client.(ring); ok && s.b.transactional != nil {
		wg.Go(func() { s.yieldToRing(ctx, ring) })
	}

	err := s.publish(ctx)
	if err == nil {
		// Intake has ended, all is published.
		err = s.finish(ctx)
	}
	cancel()
	wg.Wait()
	select {
	case <-s.failed:
		// What failed first is the reason; the rest are its consequences.
		return s.cause
	default:
	}
	return err
}

// pull takes batches from the server while the window has room, and lines up
// their chunks. It ends when intake ends, or with a chunk that carries an error.
func (s *session) pull(intake, ctx context.Context) {
	b := s.b
	p := b.planner()
	size := server.Size{Events: b.o.BatchEvents, Bytes: b.o.BatchBytes}
	var pause backoff
	for {
		if !s.awaitRoom(intake) {
			return
		}
		batch, err := b.o.Client.GetWithoutAck(intake, size, server.WaitAny)
		if intake.Err() != nil {
			return // a batch handed out this late is rolled back
		}
		if err != nil {
			if b.final(err) != nil {
				s.line(ctx, s.poison(fmt.Errorf("get: %w", err)))
				return
			}
			// The messages on their way are none the worse for it.
			b.feed(err)
			var stopped *server.DestinationError
			if pause.n == 0 && !errors.As(err, &stopped) { // which the server logs
				b.o.Logger.Warn("no events from the server; trying again until there are", "error", err)
			}
			d := pause.next(b.o.BackoffMin, b.o.BackoffMax)
			if retry.Sleep(intake, d) != nil {
				return
			}
			continue
		}
		if pause.n > 0 {
			pause.n = 0
			b.feed(nil)
		}
		if len(batch.Events) == 0 {
			continue
		}
		if !s.take(intake, ctx, batch, p) {
			return
		}
	}
}

// awaitRoom waits until the window has room for one batch more (I9).
func (s *session) awaitRoom(ctx context.Context) bool {
	for {
		batches, bytes := s.held()
		if batches < s.b.o.WindowBatches && bytes+s.encoded.Load() < s.b.o.WindowBytes {
			return ctx.Err() == nil
		}
		var later <-chan time.Time
		if t := s.b.transactional; t != nil {
			if s.unpublished.Load() == 0 && !s.acknowledging() {
				t.Yield() // or the rest of a large transaction is waited for, which does not fit
			}
			later = time.After(yieldPeriod)
		}
		select {
		case <-s.room:
		case <-later:
		case <-ctx.Done():
			return false
		}
	}
}

// yieldPeriod is how often a full window or ring is looked at for a sink that waits for the end of a transaction.
const yieldPeriod = 5 * time.Millisecond

// acknowledging says whether the oldest batch is confirmed, so that room comes by itself.
func (s *session) acknowledging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ready := s.ledger.ready()
	return ready
}

// ring is a client that knows whether the server reads on.
type ring interface {
	// Stalled reports whether nothing comes before an acknowledgement, and how many batches are handed out.
	Stalled() (handed int, stalled bool)
}

// yieldToRing tells the sink when the ring holds nothing but what the sink has: the rest of a transaction larger than
// the ring comes only after a commit.
func (s *session) yieldToRing(ctx context.Context, r ring) {
	t := time.NewTicker(yieldPeriod)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if s.outstanding.Load() == 0 || s.unpublished.Load() != 0 {
			continue
		}
		handed, stalled := r.Stalled()
		if !stalled {
			continue
		}
		s.mu.Lock()
		all := s.ledger.sealed() == handed
		s.mu.Unlock()
		if all && s.unpublished.Load() == 0 && !s.acknowledging() { // in this order: what was handed out is lined up by now
			s.b.transactional.Yield()
		}
	}
}

// take enters a batch into the ledger and lines up its chunks; false ends the intake.
func (s *session) take(intake, ctx context.Context, batch *server.Batch, p *planner) bool {
	var weight, last int64
	for _, e := range batch.Events {
		weight += int64(e.Size)
		switch e.Kind {
		case event.Rows:
			last = e.Ordinal + int64(e.Rows) - 1
		case event.DDL, event.End:
			last = e.Ordinal
		}
	}
	s.mu.Lock()
	ticket := s.ledger.begin(batch.ID, weight, last)
	s.mu.Unlock()

	var c *chunk
	push := func(e *event.Event) bool {
		ready := c
		c = nil
		// I5: a topic's number of partitions is saved before anything is sent there.
		if err := s.savePins(intake); err != nil {
			return s.stuck(intake, ctx, nil, e, err)
		}
		return s.line(ctx, ready)
	}
	for _, e := range batch.Events {
		var pl *plan
		publish := false
		switch e.Kind {
		case event.Rows:
			if e.Skip >= e.Rows {
				continue
			}
			var err error
			if pl, err = p.of(intake, e.Table); err != nil {
				return s.stuck(intake, ctx, c, e, err)
			}
		case event.DDL:
			var err error
			publish, err = s.statement(intake, p, e)
			if err == nil {
				pl, err = p.emptied(intake, e)
			}
			if err != nil {
				return s.stuck(intake, ctx, c, e, err)
			}
			if !publish && pl == nil {
				continue
			}
		case event.End:
			if s.b.transactional == nil {
				continue
			}
		default:
			continue
		}
		if c == nil {
			c = s.chunk(ticket)
		}
		c.parts = append(c.parts, part{e, pl, publish})
		c.raw += int64(len(e.Raw))
		if c.raw >= chunkBytes && !push(e) {
			return false
		}
	}
	if c != nil && !push(batch.Events[len(batch.Events)-1]) {
		return false
	}
	s.mu.Lock()
	err := s.ledger.seal(ticket)
	_, _, ready := s.ledger.ready()
	s.mu.Unlock()
	if err != nil {
		bug(err)
	}
	if ready {
		signal(s.acks)
	}
	return true
}

// statement says whether a DDL event is published, and resolves the topic.
func (s *session) statement(ctx context.Context, p *planner, e *event.Event) (publish bool, err error) {
	c := s.b.c
	switch {
	case c.ddlTopic == "":
		return false, nil
	case len(e.Raw) == 0:
		// The connector takes the text out of statements that carry secrets.
		s.b.stats.hidden.Add(1)
		return false, nil
	case s.b.o.DDL != AllDDL && !c.concerns(e.Stmt):
		return false, nil
	}
	to, err := p.resolve(ctx, c.ddlTopic, s.b.o.MaxMessageBytes)
	if err == nil {
		s.b.ddlTo.Store(&to)
	}
	return true, err
}

// stuck ends the intake at an event that cannot be planned. What comes before it is sent.
func (s *session) stuck(intake, ctx context.Context, c *chunk, e *event.Event, err error) bool {
	if intake.Err() != nil {
		return false
	}
	var stop *StopError
	if errors.As(err, &stop) && stop.Position == "" {
		stop.Position = where(e)
	}
	err = held(err, e.Ordinal+int64(e.Skip))
	if c != nil {
		if perr := s.savePins(intake); perr != nil {
			c, err = nil, perr
		}
	}
	if c == nil || s.line(ctx, c) {
		s.line(ctx, s.poison(err))
	}
	return false
}

// savePins saves the state if a topic was pinned.
func (s *session) savePins(ctx context.Context) error {
	if s.b.pinned() {
		return nil
	}
	s.ackMu.Lock() // no acknowledgement with an older state meanwhile
	defer s.ackMu.Unlock()
	killpoint.Hit("bridge.pin")
	return s.b.savePins(ctx)
}

// chunk returns an empty chunk that is entered in the ledger.
func (s *session) chunk(ticket int64) *chunk {
	c := s.chunks.Get().(*chunk)
	c.ticket, c.raw = ticket, 0
	c.left.Store(1)
	s.mu.Lock()
	err := s.ledger.add(ticket)
	s.mu.Unlock()
	if err != nil {
		bug(err)
	}
	return c
}

// poison returns a chunk of no batch that only carries an error.
func (s *session) poison(err error) *chunk {
	return &chunk{session: s, err: err}
}

// line appends a chunk to the line. The publisher encodes it itself when
// it is the only one; else the workers are told too.
func (s *session) line(ctx context.Context, c *chunk) bool {
	waiting := len(s.order) > 0
	poison := c.out == nil
	if !poison {
		c.claimed.Store(false)
	}
	s.unpublished.Add(1)
	select {
	case s.order <- c:
	case <-ctx.Done():
		return false
	}
	if waiting && !poison {
		select {
		case s.work <- c:
		default:
		}
	}
	return true
}

// encodeWork encodes chunks ahead of the publisher. A chunk taken from work may have been
// encoded, sent, recycled and lined up again meanwhile: claiming it is right all the same.
func (s *session) encodeWork(ctx context.Context) {
	x := s.encoder()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-s.work:
			if !c.claim() {
				continue
			}
			c.err = x.encode(c, func(sl *slab) bool {
				select {
				case c.out <- sl:
					return true
				case <-ctx.Done():
					s.encoded.Add(-sl.size)
					return false
				}
			})
			select {
			case c.out <- nil:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *session) encoder() *encoder {
	return &encoder{b: s.b, session: s}
}

// publish hands the messages to the sink, in order, until the line ends.
func (s *session) publish(ctx context.Context) error {
	x := s.encoder()
	var c *chunk
	var failure error
	send := func(sl *slab) bool {
		failure = s.send(ctx, c, sl)
		return failure == nil
	}
	for {
		select {
		case next, ok := <-s.order:
			if !ok {
				return ctx.Err()
			}
			c = next
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		switch {
		case c.out == nil:
			return c.err
		case c.claim():
			err = x.encode(c, send)
		default:
			for err == nil {
				var sl *slab
				select {
				case sl = <-c.out:
				case <-ctx.Done():
					return ctx.Err()
				}
				if sl == nil {
					err = c.err
					break
				}
				if !send(sl) {
					err = failure
				}
			}
		}
		if failure != nil {
			return failure
		}
		if err != nil {
			return err
		}
		if c.ended {
			s.b.transactional.EndTransaction()
		}
		s.mark(c.ticket)
		c.drop()
		s.unpublished.Add(-1)
	}
}

// mark notes what of the sink's numbering belongs to a batch, before its last chunk can be done.
func (s *session) mark(ticket int64) {
	if s.b.stateful == nil {
		return
	}
	m := s.b.stateful.Mark()
	s.mu.Lock()
	err := s.ledger.mark(ticket, m)
	s.mu.Unlock()
	if err != nil {
		bug(err)
	}
}

// send publishes one slab. From the moment that the sink has taken all of it, it is the sink's and may be
// recycled under our hands.
func (s *session) send(ctx context.Context, c *chunk, sl *slab) error {
	n := len(sl.msgs)
	s.b.stats.rows.Add(sl.rows)
	sl.chunk = c
	sl.left.Store(int64(n))
	c.left.Add(1)
	s.outstanding.Add(1)
	accepted, err := 0, s.b.o.Owner() // I8
	if err == nil {
		if sl.ended {
			s.b.transactional.EndTransaction()
		}
		s.sent.Store(true)
		if n > 0 {
			s.b.farthest = max(s.b.farthest, sl.msgs[n-1].Sequence-s.offset)
		}
		accepted, err = s.b.o.Sink.Publish(ctx, sl.msgs)
	}
	if accepted < n {
		if err == nil {
			err = fmt.Errorf("the sink took %d of %d messages without saying why", accepted, n)
		}
		sl.failed.Store(true)
		sl.drop(int64(n - accepted))
	}
	if err != nil {
		s.b.refuse(err, s.offset)
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// finish waits for the confirmation of everything published and acknowledges it.
func (s *session) finish(ctx context.Context) error {
	flush := s.b.o.Sink.Flush
	if t := s.b.transactional; t != nil {
		flush = t.Finish // a transaction of which only a part has come is not to be seen
	}
	if err := flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.acknowledge(ctx)
}

// settled waits until nothing is on its way.
func (s *session) settled(ctx context.Context) error {
	for s.outstanding.Load() != 0 {
		select {
		case <-s.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// acknowledgeReady acknowledges batches as they become ready.
func (s *session) acknowledgeReady(ctx context.Context) {
	var look <-chan time.Time
	if s.b.Status().Reconciling {
		t := time.NewTicker(reconcilePeriod)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-look:
			s.ackMu.Lock()
			s.b.reconciled(ctx)
			s.ackMu.Unlock()
		case <-s.acks:
			if err := s.acknowledge(ctx); err != nil && ctx.Err() == nil {
				s.fail(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// acknowledge acknowledges the batches that are ready, oldest first.
func (s *session) acknowledge(ctx context.Context) error {
	s.ackMu.Lock()
	defer s.ackMu.Unlock()
	for {
		s.mu.Lock()
		batch, last, ok := s.ledger.ready()
		var mark int64
		if ok {
			mark = s.ledger.front()
		}
		s.mu.Unlock()
		if !ok {
			return nil
		}
		if err := s.b.o.Owner(); err != nil { // I8
			return err
		}
		// I1: the oldest batch, and the broker has confirmed all of it.
		killpoint.Hit("bridge.acknowledge")
		version, err := s.b.acknowledge(ctx, batch, mark)
		if err != nil {
			var unsaved *server.SaveError
			if !errors.As(err, &unsaved) {
				return fmt.Errorf("acknowledge batch %d: %w", batch, err)
			}
			s.b.o.Logger.Warn("the cursor is not saved yet", "error", err)
		}
		killpoint.Hit("bridge.acknowledged")
		s.mu.Lock()
		err = s.ledger.acked(batch)
		s.mu.Unlock()
		if err != nil {
			bug(err)
		}
		s.b.acked(last, version)
		signal(s.room)
	}
}
