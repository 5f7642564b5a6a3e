package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// session is the life of one producer id. It ends by fail, once.
type session struct {
	s       *Sink
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	ctl     *control
	wake    chan struct{} // to the manager
	space   chan struct{} // to Publish: something is done
	msgs    atomic.Int64  // accepted and not done
	bytes   atomic.Int64  // their payload
	retries *atomic.Int64
	txn     *transactor // transactional delivery; nil with other kinds

	mu         sync.Mutex
	err        error // why it ended; nil while it lives
	started    bool  // producerID and epoch are valid
	producerID int64
	epoch      int16
	opened     bool // something was published; of the publishing goroutine
	topics     map[string]*topicLanes
	brokers    map[int32]*broker
	refresh    map[string]struct{} // topics whose leaders are to be looked up
	idle       chan struct{}       // closed when msgs falls to 0; nil: nobody waits
	free       []*batch
	troubled   int   // lanes, brokers and manager with an error
	lastErr    error // the youngest of those errors
}

type topicLanes struct {
	t     *topic
	lanes []*lane // by partition; nil: not in use
}

func newSession(s *Sink) *session {
	ses := &session{
		s:       s,
		ctl:     newControl(s.dial, s.o.Brokers, min(s.o.RequestTimeout, 3*time.Second)),
		wake:    make(chan struct{}, 1),
		space:   make(chan struct{}, 1),
		retries: &s.retries,
		topics:  map[string]*topicLanes{},
		brokers: map[int32]*broker{},
		refresh: map[string]struct{}{},
	}
	ses.ctx, ses.cancel = context.WithCancelCause(context.Background())
	if s.tally != nil {
		ses.txn = newTransactor(ses)
		ses.wg.Add(2)
		go ses.txn.run()
		go ses.txn.watch()
	}
	ses.wg.Add(1)
	go ses.manage()
	return ses
}

// setTrouble counts an error that is being retried in (err set) or out. Caller holds mu.
func (ses *session) setTrouble(had bool, err error) {
	if err != nil {
		ses.lastErr = err
	}
	switch has := err != nil; {
	case has && !had:
		ses.troubled++
	case had && !has:
		ses.troubled--
	}
}

// fail ends the session: the senders and the manager stop, what has not been sent
// is done with err, what is on its way when its sender stops. Only the first
// call has an effect.
func (ses *session) fail(err error) {
	ses.mu.Lock()
	if ses.err != nil {
		ses.mu.Unlock()
		return
	}
	ses.err = err
	ses.lastErr = err
	var rest []entry
	for _, t := range ses.topics {
		for _, l := range t.lanes {
			if l == nil {
				continue
			}
			if l.waiting != nil {
				l.waiting.Stop()
				l.waiting = nil
			}
			rest = l.drain(rest)
		}
	}
	if ses.txn != nil {
		rest = ses.txn.drain(rest)
	}
	ses.cancel(err)
	ses.mu.Unlock()
	ses.done(rest, err)
}

// done reports the fate of messages. Caller does not hold mu.
func (ses *session) done(entries []entry, err error) {
	if len(entries) == 0 {
		return
	}
	n, size := int64(len(entries)), int64(0)
	for i := range entries {
		if entries[i].m.Owner == nil { // a cursor record, which nobody counts
			n--
			continue
		}
		size += int64(entries[i].payload)
		entries[i].m.Done(err)
	}
	ses.bytes.Add(-size)
	if ses.msgs.Add(-n) == 0 {
		ses.mu.Lock()
		if ses.idle != nil && ses.msgs.Load() == 0 {
			close(ses.idle)
			ses.idle = nil
		}
		ses.mu.Unlock()
	}
	notify(ses.space)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newBatch returns an empty batch. Caller holds mu.
func (ses *session) newBatch(l *lane) *batch {
	if n := len(ses.free); n > 0 {
		b := ses.free[n-1]
		ses.free = ses.free[:n-1]
		b.l = l
		return b
	}
	return &batch{l: l}
}

// recycle keeps a batch that is done for another use. Caller holds mu.
func (ses *session) recycle(b *batch) {
	clear(b.entries)
	*b = batch{entries: b.entries[:0]}
	if len(ses.free) < 256 && cap(b.entries) <= 1<<15 {
		ses.free = append(ses.free, b)
	}
}

// lane returns the lane of a partition of a known topic, or nil if the topic has
// no lane yet. Caller holds mu.
func (ses *session) lane(t *topicLanes, partition int32) (*lane, error) {
	if partition < 0 || int(partition) >= len(t.lanes) {
		return nil, topicError(t.t.name, fmt.Errorf("no partition %d: it has %d", partition, len(t.lanes)))
	}
	l := t.lanes[partition]
	if l == nil {
		l = &lane{ses: ses, t: t.t, partition: partition}
		if t.t.confirmed != nil {
			l.stored = t.t.confirmed[partition]
		}
		if ses.txn != nil {
			l.stored, l.first = ses.txn.resume, -1
		}
		if book := ses.s.book; book != nil {
			l.seq = &sequence{c: &t.t.account.counters[partition]}
			l.number, l.seq.lag, l.seq.shared = book.start(l.seq.c)
			l.seq.stored = l.number
		}
		t.lanes[partition] = l
		ses.lookUp(t.t.name)
	}
	return l, nil
}

// addTopic makes room for the lanes of a topic. Caller holds mu.
func (ses *session) addTopic(t *topic) *topicLanes {
	tl := ses.topics[t.name]
	if tl == nil {
		tl = &topicLanes{t, make([]*lane, t.partitions)}
		ses.topics[t.name] = tl
	}
	return tl
}

// lookUp has the manager ask for the leaders of a topic. Caller holds mu.
func (ses *session) lookUp(topic string) {
	ses.refresh[topic] = struct{}{}
	notify(ses.wake)
}

// manage gets the producer id, then keeps the leaders of the lanes known.
func (ses *session) manage() {
	defer ses.wg.Done()
	defer ses.ctl.close()
	if !ses.start() {
		return
	}
	slow := time.NewTicker(ses.s.o.slowAfter / 2)
	defer slow.Stop()
	all := time.NewTicker(ses.s.o.MetadataInterval)
	defer all.Stop()
	var (
		attempts int
		troubled bool
		ask      = map[string]struct{}{}
	)
	for {
		ses.mu.Lock()
		maps.Copy(ask, ses.refresh)
		clear(ses.refresh)
		ses.mu.Unlock()
		if len(ask) > 0 {
			err := ses.refreshLeaders(slices.Collect(maps.Keys(ask)))
			if ses.ctx.Err() != nil {
				return
			}
			ses.mu.Lock()
			ses.setTrouble(troubled, err)
			ses.mu.Unlock()
			troubled = err != nil
			if err != nil {
				attempts++
				ses.logRetry("looking up leaders", attempts, err)
				if retry.Sleep(ses.ctx, backoff(attempts)) != nil {
					return
				}
				continue // with the same topics, and those that came meanwhile
			}
			attempts = 0
			clear(ask)
			continue
		}
		select {
		case <-ses.wake:
		case <-slow.C:
			ses.lookUpSlow()
		case <-all.C:
			ses.mu.Lock()
			for name := range ses.topics {
				ses.refresh[name] = struct{}{}
			}
			ses.mu.Unlock()
		case <-ses.ctx.Done():
			return
		}
	}
}

// start gets a producer id. It retries until the session ends.
func (ses *session) start() bool {
	if ses.s.alive != nil {
		select {
		case <-ses.s.alive:
		case <-ses.ctx.Done():
			return false
		}
	}
	if ses.txn != nil {
		return ses.takeOver()
	}
	if book := ses.s.book; book != nil {
		// I8: a restart takes up the same producer id and epoch; the sequences tell what is a repetition.
		l := book.identity()
		ses.mu.Lock()
		defer ses.mu.Unlock()
		ses.producerID, ses.epoch, ses.started = l.producerID, l.epoch, true
		return true
	}
	troubled := false
	for n := 1; ; n++ {
		res, err := ask[*initproducerid.Response](ses.ctx, ses.ctl, &initproducerid.Request{
			TransactionTimeoutMs: 60_000,
			ProducerID:           -1,
			ProducerEpoch:        -1,
		})
		if ses.ctx.Err() != nil {
			return false
		}
		if err == nil {
			err = producerIDError(res.ErrorCode)
			var final *finalError
			if errors.As(err, &final) {
				ses.fail(err)
				return false
			}
		}
		ses.mu.Lock()
		ses.setTrouble(troubled, err)
		troubled = err != nil
		if err == nil {
			ses.producerID, ses.epoch, ses.started = res.ProducerID, res.ProducerEpoch, true
			ses.s.o.Logger.Debug("kafka: session started", "producer_id", res.ProducerID, "epoch", res.ProducerEpoch)
			ses.mu.Unlock()
			return true
		}
		ses.mu.Unlock()
		ses.retries.Add(1)
		ses.logRetry("getting a producer id", n, err)
		if retry.Sleep(ses.ctx, backoff(n)) != nil {
			return false
		}
	}
}

// logRetry logs the 1st, 2nd, 4th, 8th ... repetition.
func (ses *session) logRetry(what string, n int, err error) {
	if n&(n-1) == 0 {
		ses.s.o.Logger.Warn("kafka: "+what+": will be repeated", "attempt", n, "error", err)
	}
}

// lookUpSlow looks up the leaders of what has been on its way for long.
func (ses *session) lookUpSlow() {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	for _, b := range ses.brokers {
		if !b.slow() {
			continue
		}
		b.setErr(fmt.Errorf("kafka: broker %d (%s) has not answered for %v", b.id, b.addr, time.Since(b.pipe.sent[0].at).Round(time.Second)))
		for _, r := range b.pipe.sent {
			for _, bt := range r.batches {
				ses.refresh[bt.l.t.name] = struct{}{}
			}
		}
	}
}

var errNoLeader = errors.New("has no leader now")

// refreshLeaders asks for the leaders of topics and hands the lanes to them. An
// error means that some are not known yet.
func (ses *session) refreshLeaders(topics []string) error {
	slices.Sort(topics)
	res, err := ask[*metadata.Response](ses.ctx, ses.ctl, &metadata.Request{TopicNames: topics})
	if err != nil {
		return err
	}
	ses.mu.Lock()
	unresolved, changed := ses.assign(res)
	ses.mu.Unlock()
	if changed != nil {
		ses.fail(changed)
		return changed
	}
	return unresolved
}

// assign hands lanes to the brokers that lead them. Caller holds mu.
func (ses *session) assign(res *metadata.Response) (unresolved, changed error) {
	if ses.err != nil {
		return nil, nil
	}
	if book := ses.s.book; book != nil {
		if l := book.identity(); res.ClusterID != l.cluster {
			return nil, &DeliveryError{Err: fmt.Errorf("%w: %q, not %q", ErrOtherCluster, res.ClusterID, l.cluster), Remedy: "correct the sink's brokers"}
		}
	}
	addrs := make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		addrs[b.NodeID] = brokerAddr(b)
		if known := ses.brokers[b.NodeID]; known != nil {
			known.addr = addrs[b.NodeID]
		}
	}
	for i := range res.Topics {
		mt := &res.Topics[i]
		t := ses.topics[mt.Name]
		if t == nil {
			continue
		}
		if mt.ErrorCode != codeNoError && mt.ErrorCode != codeLeaderNotAvailable {
			err := topicError(mt.Name, &Error{Code: mt.ErrorCode})
			switch {
			case mt.ErrorCode == codeUnknownTopic:
				err = fmt.Errorf("%w; it was there before: create it again with %d partitions, or remove the tables that it is for", err, t.t.partitions)
			case mt.ErrorCode == codeTopicNotAuthorized:
				err = fmt.Errorf("%w; allow WRITE: kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic %s", err, mt.Name)
			}
			if !retriable(mt.ErrorCode) {
				return nil, err
			}
			unresolved = err
			continue
		}
		// I5: keys are spread by the number that was seen first.
		n := len(mt.Partitions)
		if ses.s.book != nil && n > int(t.t.partitions) {
			n = int(t.t.partitions) // the life goes on with those that it began with
		}
		if n > 0 && n != int(t.t.partitions) {
			if ses.s.book != nil {
				return nil, fewPartitions(mt.Name, t.t.partitions, n)
			}
			return nil, topicError(mt.Name, fmt.Errorf("%w from %d to %d while the sink was running, which moves keys to other partitions: "+
				"let consumers finish what is there, then restart", ErrPartitionsChanged, t.t.partitions, n))
		}
		for _, p := range mt.Partitions {
			if p.PartitionIndex < 0 || int(p.PartitionIndex) >= len(t.lanes) {
				continue
			}
			l := t.lanes[p.PartitionIndex]
			if l == nil {
				continue
			}
			addr, ok := addrs[p.LeaderID]
			if !ok {
				if l.inflight == 0 {
					unresolved = topicError(mt.Name, fmt.Errorf("partition %d %w", p.PartitionIndex, errNoLeader))
					l.lead(nil)
				}
				continue
			}
			if l.inflight > 0 {
				if l.broker.id != p.LeaderID && l.broker.slow() {
					// Frozen and deposed: its answer would be a refusal.
					l.broker.pipe.fail(errors.New("it does not answer and no longer leads"))
					l.broker.pipe.conn.Close()
				}
				continue
			}
			b := ses.brokers[p.LeaderID]
			if b == nil {
				b = &broker{ses: ses, id: p.LeaderID, addr: addr, wake: make(chan struct{}, 1), search: make(chan struct{}, 1)}
				ses.brokers[p.LeaderID] = b
				ses.wg.Add(1)
				go b.run()
			}
			l.lead(b)
		}
	}
	return unresolved, nil
}

// end ends the session and waits for its goroutines.
func (ses *session) end(ctx context.Context) error {
	ses.fail(sink.ErrReset)
	done := make(chan struct{})
	go func() {
		ses.wg.Wait()
		if ses.txn != nil {
			ses.txn.closed.Do(ses.txn.co.close) // the manager has used it first, then the transactor; end may be called again
		}
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
