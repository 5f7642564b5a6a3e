package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// DeliveryError is an error of sequenced delivery that no retry mends: going on could lose
// or double messages.
type DeliveryError struct {
	Topic     string // "" where no topic is meant
	Partition int32
	Err       error
	Remedy    string
}

func (e *DeliveryError) Error() string {
	where := ""
	if e.Topic != "" {
		where = fmt.Sprintf("topic %s partition %d: ", e.Topic, e.Partition)
	}
	return fmt.Sprintf("kafka: %s%v; %s", where, e.Err, e.Remedy)
}

// Unwrap returns the cause.
func (e *DeliveryError) Unwrap() error { return e.Err }

// Permanent says that the sink must stop.
func (e *DeliveryError) Permanent() bool { return true }

// Causes of a DeliveryError.
var (
	ErrSuperseded    = errors.New("a newer life of this sink writes there")
	ErrDisagree      = errors.New("sequence state disagrees: the broker refuses what should come next")
	ErrLostMessages  = errors.New("the broker lost messages that it had acknowledged, or the topic was deleted and created anew")
	ErrUnknowable    = errors.New("what is stored already cannot be known")
	ErrNotReplayed   = errors.New("the replay differs from what was sent before")
	ErrNotDrained    = errors.New("the configuration changed while messages after the cursor are stored already")
	ErrOtherCluster  = errors.New("the brokers belong to another cluster than when the sink began")
	ErrFewPartitions = errors.New("the topic has fewer partitions than before")
)

const (
	newLifeRemedy = "when that is understood, begin anew with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"
	restoreRemedy = "restore the cursor from a backup, or begin anew with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"
	drainRemedy   = "run the configuration, and the version, that sent them until the sink has stopped cleanly (SIGTERM), then change it; or begin anew with `binlogmq cursor new-life --reconcile`, which reads what the topics hold, or with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"
)

var _ sink.Stateful = (*Sink)(nil)

// KeepsState implements sink.Stateful.
func (s *Sink) KeepsState() bool { return s.book != nil || s.tally != nil }

// Mark implements sink.Stateful.
func (s *Sink) Mark() int64 {
	if s.tally != nil {
		return s.tally.mark()
	}
	return s.book.mark()
}

// Acknowledge implements sink.Stateful.
func (s *Sink) Acknowledge(mark int64) {
	if s.tally != nil {
		s.tally.acknowledge(mark)
		return
	}
	s.book.acknowledge(mark)
}

// AppendState implements sink.Stateful.
func (s *Sink) AppendState(dst []byte) []byte {
	if s.tally != nil {
		return s.tally.append(dst)
	}
	return s.book.append(dst)
}

// Restore implements sink.Stateful. A life goes on as it is saved, with the same producer id and
// epoch. A new one begins where there is none, in another cluster, and where the replay will not be
// the same: then only if the log shows that nothing after the cursor is stored.
func (s *Sink) Restore(ctx context.Context, state []byte, how sink.Continuation) (fresh bool, err error) {
	if s.tally != nil {
		return s.restoreTransactional(ctx, state, how)
	}
	cluster, err := s.clusterID(ctx)
	if err != nil {
		return false, err
	}
	l := life{cluster: cluster, deployment: s.o.Deployment, destination: s.o.Destination, sink: s.o.Sink, epoch: math.MaxInt16}
	var accounts []*account
	why := ""
	if len(state) == 0 || isTenure(state) { // of another kind of delivery
		why = "none is saved"
	} else {
		was, saved, err := parseState(state)
		if err != nil && how != sink.Moved {
			return false, &DeliveryError{Err: err, Remedy: restoreRemedy}
		}
		switch {
		case err != nil:
			why = "the cursor was moved, and the saved one cannot be read"
		case was.cluster != cluster:
			why = fmt.Sprintf("the brokers belong to cluster %q, not %q", cluster, was.cluster)
		case was.deployment != l.deployment || was.destination != l.destination || was.sink != l.sink:
			why = fmt.Sprintf("the saved one belongs to %s/%s/%s", was.deployment, was.destination, was.sink)
		case how == sink.Same:
			l, accounts = was, saved
		case how == sink.Changed:
			if err := s.drained(ctx, was, saved); err != nil {
				return false, err
			}
			why = "the configuration changed, and everything stored is acknowledged"
			l.producerID, l.epoch = was.producerID, was.epoch
		default:
			why = "the cursor was moved"
			l.producerID, l.epoch = was.producerID, was.epoch
		}
	}
	if why != "" {
		fresh = true
		// The same producer id with the next epoch keeps the old life from writing where the new one has.
		if l.epoch < math.MaxInt16 {
			l.epoch++
		} else if l.producerID, l.epoch, err = s.newProducerID(ctx); err != nil {
			return false, err
		}
		s.o.Logger.Info("kafka: a new life begins: "+why, "producer_id", l.producerID, "epoch", l.epoch, "cluster", l.cluster)
	}
	s.book.begin(l, accounts)
	s.mu.Lock()
	s.topics = map[string]*topic{}
	first := !s.restored
	s.restored = true
	s.mu.Unlock()
	if first {
		close(s.alive)
		return fresh, nil
	}
	return fresh, s.Reset(ctx)
}

// untilAnswered repeats f while the brokers are away.
func (s *Sink) untilAnswered(ctx context.Context, what string, f func() error) error {
	wait := func(err error) {
		s.mu.Lock()
		s.away = err
		s.mu.Unlock()
	}
	defer wait(nil)
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			return nil
		}
		var stop *DeliveryError
		var final *finalError
		if errors.As(err, &stop) || errors.As(err, &final) || errors.Is(err, errClosed) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
		}
		wait(err)
		if n&(n-1) == 0 {
			s.o.Logger.Warn("kafka: "+what+": will be repeated", "attempt", n, "error", err)
		}
		if end := retry.Sleep(ctx, backoff(n)); end != nil {
			return fmt.Errorf("%w (last error: %w)", end, err)
		}
	}
}

func (s *Sink) clusterID(ctx context.Context) (id string, err error) {
	err = s.untilAnswered(ctx, "asking for the cluster's id", func() error {
		res, err := ask[*metadata.Response](ctx, s.admin, &metadata.Request{TopicNames: []string{}})
		if err == nil {
			id = res.ClusterID
		}
		return err
	})
	return id, err
}

func (s *Sink) newProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	err = s.untilAnswered(ctx, "getting a producer id", func() error {
		res, err := ask[*initproducerid.Response](ctx, s.admin, &initproducerid.Request{TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			return err
		}
		if err := producerIDError(res.ErrorCode); err != nil {
			return err
		}
		id, epoch = res.ProducerID, res.ProducerEpoch
		return nil
	})
	return id, epoch, err
}

// leaders groups partitions by the address of their leader. Topics that do not exist are left out and returned.
func (s *Sink) leaders(ctx context.Context, topics map[string]int32) (by map[string][]partitionID, missing []string, err error) {
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	res, err := ask[*metadata.Response](ctx, s.admin, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, nil, err
	}
	addrs := make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		addrs[b.NodeID] = brokerAddr(b)
	}
	by = map[string][]partitionID{}
	for i := range res.Topics {
		t := &res.Topics[i]
		n, known := topics[t.Name]
		if !known {
			continue
		}
		switch {
		case t.ErrorCode == codeUnknownTopic:
			missing = append(missing, t.Name)
			continue
		case t.ErrorCode != codeNoError && t.ErrorCode != codeLeaderNotAvailable:
			return nil, nil, topicError(t.Name, &Error{Code: t.ErrorCode})
		case len(t.Partitions) < int(n):
			return nil, nil, fewPartitions(t.Name, n, len(t.Partitions))
		}
		for _, p := range t.Partitions {
			if p.PartitionIndex >= n {
				continue
			}
			addr, ok := addrs[p.LeaderID]
			if !ok {
				return nil, nil, topicError(t.Name, fmt.Errorf("partition %d %w", p.PartitionIndex, errNoLeader))
			}
			by[addr] = append(by[addr], partitionID{t.Name, p.PartitionIndex})
		}
	}
	return by, missing, nil
}

func fewPartitions(topic string, was int32, now int) error {
	return &DeliveryError{Topic: topic, Err: fmt.Errorf("%w: %d, not %d", ErrFewPartitions, now, was), Remedy: newLifeRemedy}
}

// begins looks where messages of this life begin in a topic's first n partitions, with which it has not begun yet: at their ends, unless the life's are
// there all the same. A predecessor that was frozen, and goes on from a copy of our state, sends what we shall: the same messages under the same numbers (I4, I5).
func (s *Sink) begins(ctx context.Context, topic string, n int32) ([]counter, error) {
	by, missing, err := s.leaders(ctx, map[string]int32{topic: n})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, topicError(topic, &Error{Code: codeUnknownTopic})
	}
	life := s.book.identity()
	out := make([]counter, n)
	for addr, lanes := range by {
		if err := s.atLeader(ctx, addr, func(c *conn) error {
			var bad error
			err := c.endOffsets(ctx, latestOffset, lanes, func(i int, offset int64, code int16) {
				if out[lanes[i].partition].lag = offset; code != codeNoError {
					bad = topicError(topic, &Error{Code: code})
				}
			})
			if err = errors.Join(err, bad); err != nil {
				return err
			}
			for _, id := range lanes {
				k := &out[id.partition]
				q := search{producerID: life.producerID, epoch: life.epoch, end: k.lag}
				v, ours, err := q.last(&partitionLog{ctx: ctx, c: c, timeout: s.o.RequestTimeout, topic: topic, partition: id.partition})
				switch {
				case errors.Is(err, errOutOfRange), errors.Is(err, errNotReadable):
				case err != nil:
					return topicError(topic, fmt.Errorf("looking for what partition %d holds: %w", id.partition, err))
				case ours && v.outcome != found:
					return refusal(id, v)
				case ours:
					*k = counter{shared: v.count != q.end}
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// atLeader lends f a connection.
func (s *Sink) atLeader(ctx context.Context, addr string, f func(*conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	c, err := s.dial.dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// refusal makes the error of a verdict that is not to be gone on with.
func refusal(id partitionID, v verdict) error {
	e := &DeliveryError{Topic: id.topic, Partition: id.partition, Remedy: newLifeRemedy}
	cause := ErrUnknowable
	switch v.outcome {
	case behind:
		cause = ErrLostMessages
	case superseded:
		cause = ErrSuperseded
		e.Remedy = "stop one of the two processes, or give each a deployment name of its own"
	}
	e.Err = fmt.Errorf("%w: %s", cause, v.why)
	return e
}
