package pulsar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

var (
	errEnded  = errors.New("pulsar: the session has ended")
	errClosed = errors.New("pulsar: the sink is closed")
)

const (
	openAtOnce   = 16               // lanes opened at the same time
	closeAtOnce  = 32               // producers closed at the same time
	grace        = 2 * time.Second  // for receipts on their way at Reset and Close
	ghostTime    = 60 * time.Second // a broker forgets a dead connection of ours in 2 x keepAliveIntervalSeconds
	troubleAfter = 5 * time.Second  // without receipts, before Status shows it
	refusalGrace = 2 * time.Second  // without receipts, once the broker has refused a message
	surplusIdle  = 2 * time.Second  // without messages, before a producer too many is closed
)

type laneKey struct {
	topic     string
	partition int32
}

// session is what one Reset begins and the next ends: a client, its lanes, and
// the goroutines that open and watch them.
type session struct {
	sink     *Sink
	back     backend
	previous <-chan struct{} // closed when the session before has let go of its names
	ctx      context.Context // of the session's goroutines
	cancel   context.CancelFunc
	wg       sync.WaitGroup // lanes' goroutines and the watchdog
	window   int            // messages of one lane on the wire
	opening  chan struct{}  // a place for each attempt to open a lane
	closing  atomic.Bool    // errors are no news any more
	ended    chan struct{}  // closed when the session takes no more messages
	gone     chan struct{}  // closed when all is freed

	producers atomic.Int64  // open ones
	closers   chan struct{} // a place for each producer that closes because it is idle
	looks     chan struct{} // a place for each look at a topic's end

	mu     sync.Mutex
	lanes  map[laneKey]*lane
	err    error // why the session takes no more messages
	failed bool  // everything held was given up with err

	// The publisher's own: the lane of the last message.
	last    *lane
	lastKey laneKey

	probing    atomic.Bool
	aliveSince atomic.Int64 // unix nanoseconds of the first of the probes that the broker answered without a break; 0: the last one failed
}

func (s *Sink) newSession(previous <-chan struct{}) (*session, error) {
	back, err := s.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &session{
		sink: s, back: back, previous: previous, ctx: ctx, cancel: cancel, window: s.opt.window(),
		opening: make(chan struct{}, openAtOnce), ended: make(chan struct{}), gone: make(chan struct{}), closers: make(chan struct{}, closeAtOnce), looks: make(chan struct{}, lookAtOnce),
		lanes: map[laneKey]*lane{},
	}
	n.wg.Add(1)
	go n.watch()
	return n, nil
}

// lane returns the lane of a topic partition, made on first use.
func (n *session) lane(topic string, partition int32) (*lane, error) {
	key := laneKey{topic, partition}
	if n.last != nil && n.lastKey == key {
		return n.last, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return nil, n.err
	}
	l := n.lanes[key]
	if l == nil {
		l = &lane{s: n, topic: topic, partition: partition, where: fmt.Sprintf("topic %s partition %d", topic, partition),
			lastID: -1, suspect: -1, wake: make(chan struct{}, 1)}
		n.lanes[key] = l
		n.wg.Go(l.run)
	}
	n.last, n.lastKey = l, key
	return l, nil
}

// goLane starts the goroutine of a lane that is not direct any more. l.mu is held.
func (n *session) goLane(l *lane) { n.wg.Go(l.run) }

// begin runs f in a goroutine of the session, unless that ends.
func (n *session) begin(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closing.Load() { // end says so before it takes n.mu, and waits for goroutines after it
		n.wg.Go(f)
	}
}

// refuse ends the session for new messages. What is held goes on.
func (n *session) refuse(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.err = err
		close(n.ended)
	}
	return n.err
}

// fail ends the session and gives up everything held: the first error poisons
// all lanes, for nobody can tell any more what is stored.
func (n *session) fail(err error) {
	n.refuse(err)
	n.mu.Lock()
	if n.failed {
		n.mu.Unlock()
		return
	}
	n.failed = true
	n.err = err
	lanes := n.all()
	n.mu.Unlock()
	n.cancel()
	n.sink.opt.Logger.Warn("pulsar: the session has failed", "error", err)
	for _, l := range lanes {
		l.abandon(err)
	}
}

// all returns the lanes; n.mu is held.
func (n *session) all() []*lane {
	lanes := make([]*lane, 0, len(n.lanes))
	for _, l := range n.lanes {
		lanes = append(lanes, l)
	}
	return lanes
}

// end ends the session. When it returns every message is done and none will be
// reported any more; freeing the rest goes on until gone is closed.
func (n *session) end(ctx context.Context) {
	n.closing.Store(true)
	n.refuse(sink.ErrReset)
	n.cancel()
	go n.free()
	if msgs, _ := n.sink.gate.held(); msgs > 0 {
		// A producer that closes in order gets the receipts of what the broker has.
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-n.gone:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	n.mu.Lock()
	lanes := n.all()
	n.mu.Unlock()
	for _, l := range lanes {
		l.abandon(sink.ErrReset)
	}
	// What is left are completions that run this moment; an owner does not block.
	_ = n.sink.gate.wait(context.Background())
}

// free closes producers and client once no goroutine of ours uses them.
func (n *session) free() {
	defer close(n.gone)
	n.wg.Wait()
	n.mu.Lock()
	lanes := n.all()
	n.mu.Unlock()
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range min(closeAtOnce, len(lanes)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(lanes)); i = next.Add(1) - 1 {
				if p := lanes[i].prod; p != nil {
					p.close()
				}
			}
		})
	}
	wg.Wait()
	n.back.close()
	if n.previous != nil {
		<-n.previous
	}
}

// open creates the lane's producer; it retries until that succeeds (true) or the session ends.
func (l *lane) open() bool {
	n := l.s
	if l.closing != nil {
		<-l.closing
	}
	if n.previous != nil {
		// Our own older connections would fence us.
		for i, patience := range []time.Duration{time.Second, ghostTime} {
			if i > 0 {
				n.sink.trouble(l, errors.New("pulsar: "+l.where+": waiting for the last session to let go of it"))
			}
			t := time.NewTimer(patience)
			select {
			case <-n.previous:
				patience = 0
			case <-t.C:
			case <-n.ctx.Done():
				patience = 0
			}
			t.Stop()
			if patience == 0 {
				break
			}
		}
	}
	begun := time.Now()
	for wait := (backoff{}); ; n.sink.retries.Add(1) {
		err := l.attempt()
		if n.ctx.Err() != nil {
			n.sink.forget(l)
			return false
		}
		n.sink.trouble(l, explain(err, l.where, n.sink.opt.producerName(), n.back.complaint(), time.Since(begun)))
		if err == nil {
			return true
		}
		var stop *DeliveryError
		if errors.As(err, &stop) {
			n.fail(err)
			return false
		}
		if !wait.sleep(n.ctx) {
			n.sink.forget(l)
			return false
		}
	}
}

func (l *lane) attempt() error {
	n := l.s
	select {
	case n.opening <- struct{}{}:
		defer func() { <-n.opening }()
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
	info, err := n.sink.resolve(n.ctx, n.back, l.topic)
	if err != nil {
		return err
	}
	where := info.name.full
	switch {
	case info.partitions > 0 && (l.partition >= 0 && l.partition < info.partitions):
		where = fmt.Sprintf("%s-partition-%d", where, l.partition)
	case info.partitions == 0 && l.partition <= 0:
	default:
		return fmt.Errorf("pulsar: topic %s has no partition %d: it has %d", l.topic, l.partition, info.partitions)
	}
	if err := n.sink.deduplicated(n.ctx, n.back, info.name.namespace); err != nil {
		return err
	}
	policy := n.sink.topicLimit(n.ctx, info.name)
	killpoint.Hit("pulsar.open")
	prod, last, err := n.back.open(n.ctx, where, l)
	if err != nil {
		return err
	}
	killpoint.Hit("pulsar.opened")
	a := n.sink.book.account(where)
	stored, err := n.sink.standing(n.ctx, n.back, where, info.name.namespace, prod, a, last)
	l.mu.Lock()
	if err == errVirgin {
		err = nil
		if l.queue.len() > 0 && l.queue.at(0).id <= last {
			err = noCursor(where, l.queue.at(0).id, last)
		}
	}
	if err == nil {
		l.prod, l.where, l.policy, l.account, l.stored, l.suspect, l.known = prod, where, policy, a, stored, a.suspect.Load(), a.confirmed.Load()
		a.quiet.Store(false)
		n.producers.Add(1)
	}
	l.mu.Unlock()
	if err != nil {
		prod.close()
	}
	return err
}

// explain says what an error at opening a lane means and what to do.
func explain(err error, where, name, complaint string, since time.Duration) error {
	var told *refusal
	if err == nil || errors.As(err, &told) {
		return err
	}
	return fmt.Errorf("pulsar: %s: cannot open: %s%w%s", where, advice(err.Error()+complaint, name, since), inner{err}, quoted(complaint))
}

// inner is an error in another one, which says of whom it is already.
type inner struct{ err error }

func (e inner) Error() string { return strings.TrimPrefix(e.err.Error(), "pulsar: ") }
func (e inner) Unwrap() error { return e.err }

// advice returns what the broker's words mean and what to do, "" if they say it
// themselves. It is the one place that knows them.
func advice(text, name string, since time.Duration) string {
	switch {
	case isFenced(text) && since <= ghostTime:
		return fmt.Sprintf("the topic is held by another producer, or by an older connection of our own (%q) that the broker has not given up yet; trying again for %s now: ", name, since.Round(time.Second))
	case isFenced(text):
		return fmt.Sprintf("the topic is held by another process that runs with the same deployment, destination and sink names (%q), or by another producer: stop it, or give this sink another name; trying again for %s now: ", name, since.Round(time.Second))
	case strings.Contains(text, "TopicNotFound"):
		return "the topic does not exist and the broker may not create it: pulsar-admin topics create, or set topics.create and admin_url, or allowAutoTopicCreation=true: "
	case strings.Contains(text, "uthoriz") || strings.Contains(text, "uthentic"):
		return "not allowed to produce: check the token and its role (pulsar-admin namespaces grant-permission TENANT/NAMESPACE --role ROLE --actions produce): "
	case strings.Contains(text, "TopicTerminated"):
		return "the topic was terminated and takes no more messages: route to another topic, or delete it: "
	case strings.Contains(text, "QuotaExceeded"):
		return "the backlog quota is full: let consumers catch up, or raise it (pulsar-admin namespaces set-backlog-quota): "
	case strings.Contains(text, "TLS with broker"), strings.Contains(text, "tls: "):
		return "no encrypted connection to the broker: check url, tls and the broker's certificate: "
	case strings.Contains(text, "connection error"), strings.Contains(text, "connection refused"), strings.Contains(text, "no such host"):
		return "the broker cannot be reached: check url and that it runs: "
	}
	return ""
}

func isFenced(text string) bool {
	return strings.Contains(text, "ProducerFenced") || strings.Contains(text, "ProducerBusy") || strings.Contains(text, "producer fenced")
}

func quoted(complaint string) string {
	if complaint == "" {
		return ""
	}
	return " (last heard: " + complaint + ")"
}

// refusal is an error that already says all there is to say.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// watch tears the session down when a broker that answers owes receipts: there
// are refusals after which the client waits for ever.
func (n *session) watch() {
	defer n.wg.Done()
	timeout := n.sink.opt.WatchdogTimeout
	tick := time.NewTicker(min(max(timeout/10, 50*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			n.sink.forget(n)
			return
		case now := <-tick.C:
			n.look(now, timeout)
		}
	}
}

func (n *session) look(now time.Time, timeout time.Duration) {
	n.mu.Lock()
	lanes := n.all()
	n.mu.Unlock()
	var worst *lane
	idle := make([]*lane, 0, len(lanes))
	for _, l := range lanes {
		l.mu.Lock()
		if l.sent == 0 || l.weighing {
			l.since = 0
		} else if l.count != l.seen || l.since == 0 {
			l.seen, l.since = l.count, now.UnixNano()
		}
		since := l.since
		switch {
		case !l.direct || l.queue.len() > 0 || l.idleAt != l.lastID:
			l.idleAt, l.idleSince = l.lastID, now.UnixNano()
		default:
			idle = append(idle, l)
		}
		l.mu.Unlock()
		if since != 0 && (worst == nil || since < worst.since) {
			worst = l
		}
	}
	n.rest(now, idle)
	stalled := time.Duration(0)
	if worst != nil {
		stalled = time.Duration(now.UnixNano() - worst.since)
	}
	if stalled < min(timeout/2, troubleAfter) {
		n.sink.trouble(n, nil)
		n.aliveSince.Store(0)
		return
	}
	e, sent := worst.oldest()
	if e == nil {
		return
	}
	said := n.back.complaint()
	if stalled >= troubleAfter {
		n.sink.trouble(n, fmt.Errorf("pulsar: %s: no receipt for %s; %s is waiting for the broker: check that it runs%s", worst.where, stalled.Round(time.Second), describe(e, e.id), quoted(said)))
	}
	n.probe(worst.topic)
	alive := n.aliveSince.Load()
	// An outage is sat out; what ends the session is a broker that answers other questions.
	owes := stalled >= timeout && alive != 0 && now.UnixNano()-alive >= int64(timeout/2)
	refused := stalled >= min(timeout, refusalGrace) && refusesForGood(said)
	if !owes && !refused {
		return
	}
	if refused && sent > 1 {
		// Something of what followed may be stored: then this id is spent.
		n.sink.book.suspect(worst.account, e.id)
	}
	err := fmt.Errorf("pulsar: %s: no receipt for %s within %s although the broker answers: if the topic's own maxMessageSize is smaller, raise it (pulsar-admin topicPolicies get-max-message-size %s)%s",
		worst.where, describe(e, e.id), stalled.Round(100*time.Millisecond), worst.topic, quoted(said))
	if refused && strings.Contains(said, "NotAllowedError") {
		err = tooLarge(e.id, fmt.Errorf("%w: %w", ErrTooLarge, err))
	}
	n.fail(err)
}

// rest closes lanes that have been idle for long, or for a while if too many are open.
func (n *session) rest(now time.Time, idle []*lane) {
	opt := &n.sink.opt
	surplus := int(n.producers.Load()) - opt.MaxProducers
	if surplus > 0 {
		slices.SortFunc(idle, func(a, b *lane) int { return cmp.Compare(a.idleSince, b.idleSince) })
	}
	for _, l := range idle {
		since := time.Duration(now.UnixNano() - l.idleSince)
		if since < opt.IdleTimeout && (surplus <= 0 || since < surplusIdle) {
			continue
		}
		if l.sleep() {
			surplus--
		}
	}
}

// refusesForGood tells whether the broker's words are those after which the
// client never calls back (connection.handleSendError of pulsar-client-go).
func refusesForGood(said string) bool {
	return strings.Contains(said, "NotAllowedError") || strings.Contains(said, "TopicTerminatedError")
}

// probe asks the broker a question beside the lanes.
func (n *session) probe(topic string) {
	if n.probing.Swap(true) {
		return
	}
	n.wg.Go(func() {
		defer n.probing.Store(false)
		name, err := parseTopic(topic)
		if err == nil {
			_, err = n.back.partitions(n.ctx, name.full)
		}
		if err != nil {
			n.aliveSince.Store(0)
		} else {
			n.aliveSince.CompareAndSwap(0, time.Now().UnixNano())
		}
	})
}

// backoff waits longer each time, with jitter.
type backoff struct{ last time.Duration }

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstBackoff), maxBackoff)
	return retry.Jitter(b.last)
}

// sleep returns false if ctx ended.
func (b *backoff) sleep(ctx context.Context) bool { return retry.Sleep(ctx, b.next()) == nil }
