package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/addpartitionstotxn"
	"github.com/segmentio/kafka-go/protocol/endtxn"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
)

// coordinator talks to the broker that keeps the sink's transactions. One goroutine at a time uses it.
type coordinator struct {
	s   *Sink
	ctl *control
	c   *conn // nil: to be looked for
}

func newCoordinator(s *Sink) *coordinator {
	return &coordinator{s: s, ctl: newControl(s.dial, s.o.Brokers, min(s.o.RequestTimeout, 3*time.Second))}
}

func (co *coordinator) hangUp() {
	if co.c != nil {
		co.c.Close()
		co.c = nil
	}
}

func (co *coordinator) close() {
	co.hangUp()
	co.ctl.close()
}

// coordinatorKey is the kind of a transactional id in FindCoordinator.
const coordinatorKey = 1

func (co *coordinator) connect(ctx context.Context) error {
	if co.c != nil && !co.c.expired() {
		return nil
	}
	co.hangUp()
	res, err := ask[*findcoordinator.Response](ctx, co.ctl, &findcoordinator.Request{Key: co.s.transactionalID(), KeyType: coordinatorKey})
	if err != nil {
		return err
	}
	if res.ErrorCode != codeNoError {
		return transactionError("looking for the coordinator of", co.s.transactionalID(), res.ErrorCode)
	}
	co.c, err = co.s.dial.dial(ctx, net.JoinHostPort(res.Host, strconv.Itoa(int(res.Port))))
	return err
}

// roundTrip asks the coordinator once. After an error of the connection nobody knows whether the request took effect.
func roundTrip[R protocol.Message](ctx context.Context, co *coordinator, msg protocol.Message) (R, error) {
	var zero R
	if err := co.connect(ctx); err != nil {
		return zero, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(co.s.o.RequestTimeout, 5*time.Second))
	defer cancel()
	res, err := co.c.roundTrip(ctx, msg)
	if err != nil {
		err = fmt.Errorf("kafka: coordinator %s: %w", co.c.addr, err)
		co.hangUp()
		return zero, err
	}
	return res.(R), nil
}

// judge makes an error of an answer's code, and looks for the coordinator anew where it has moved.
func (co *coordinator) judge(what string, code int16) error {
	switch code {
	case codeNoError:
		return nil
	case 14, 15, 16: // COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR
		co.hangUp()
	}
	return transactionError(what, co.s.transactionalID(), code)
}

// transactionError says what a code means for a transactional id.
func transactionError(what, id string, code int16) error {
	err := fmt.Errorf("kafka: %s transactional id %s: %w", what, id, &Error{Code: code})
	switch code {
	case codeTransactionalIDNotAuth:
		err = fmt.Errorf("%w; allow it: kafka-acls.sh --add --allow-principal User:NAME --operation Write --operation Describe --transactional-id %s", err, id)
	case codeInvalidTxnTimeout:
		err = fmt.Errorf("%w; set transaction_timeout to no more than the brokers' transaction.max.timeout.ms", err)
	}
	if !retriable(code) {
		return &finalError{err}
	}
	return err
}

// fenced says whether err tells that the producer epoch is no longer ours.
func fenced(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == codeInvalidEpoch || e.Code == codeFenced)
}

// repeatable says whether a request that failed with err may be sent again as it was; short: very soon.
func repeatable(err error) (again, short bool) {
	var final *finalError
	var stop *DeliveryError
	if err == nil || errors.As(err, &final) || errors.As(err, &stop) || errors.Is(err, errClosed) {
		return false, false
	}
	var e *Error
	return true, errors.As(err, &e) && e.Code == codeConcurrentTxns
}

// init takes the transactional id over: every other owner is fenced, its transaction aborted.
func (co *coordinator) init(ctx context.Context) (producerID int64, epoch int16, err error) {
	res, err := roundTrip[*initproducerid.Response](ctx, co, &initproducerid.Request{
		TransactionalID: co.s.transactionalID(), TransactionTimeoutMs: int32(co.s.o.TransactionTimeout.Milliseconds()), ProducerID: -1, ProducerEpoch: -1,
	})
	if err != nil {
		return 0, 0, err
	}
	switch res.ErrorCode {
	case codeInvalidEpoch, codeFenced: // another one was quicker: once more, then the cursor record tells who stays
		return 0, 0, fmt.Errorf("kafka: taking over transactional id %s: %w", co.s.transactionalID(), &Error{Code: res.ErrorCode})
	}
	return res.ProducerID, res.ProducerEpoch, co.judge("taking over", res.ErrorCode)
}

// add adds the partitions of lanes to the transaction, or begins it.
func (co *coordinator) add(ctx context.Context, producerID int64, epoch int16, lanes []*lane) error {
	req := &addpartitionstotxn.Request{TransactionalID: co.s.transactionalID(), ProducerID: producerID, ProducerEpoch: epoch}
	at := map[string]int{}
	for _, l := range lanes {
		i, ok := at[l.t.name]
		if !ok {
			i = len(req.Topics)
			at[l.t.name] = i
			req.Topics = append(req.Topics, addpartitionstotxn.RequestTopic{Name: l.t.name})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, l.partition)
	}
	res, err := roundTrip[*addpartitionstotxn.Response](ctx, co, req)
	if err != nil {
		return err
	}
	n := 0
	var bad error
	for _, t := range res.Results {
		for _, p := range t.Results {
			if p.ErrorCode != codeNotAttempted { // since another one fails, whose code says why
				n++
			}
			if p.ErrorCode == codeNoError || p.ErrorCode == codeNotAttempted || bad != nil {
				continue
			}
			bad = co.judge(fmt.Sprintf("adding topic %s partition %d to the transaction of", t.Name, p.PartitionIndex), p.ErrorCode)
			if p.ErrorCode == codeTopicNotAuthorized {
				bad = fmt.Errorf("%w; allow WRITE: kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic %s", bad, t.Name)
			}
		}
	}
	if bad == nil && n != len(lanes) {
		bad = fmt.Errorf("kafka: coordinator: an answer decides on %d of %d partitions", n, len(lanes))
	}
	return bad
}

// end ends the transaction. The answer to a repetition is that to the first request.
func (co *coordinator) end(ctx context.Context, producerID int64, epoch int16, commit bool) error {
	res, err := roundTrip[*endtxn.Response](ctx, co, &endtxn.Request{
		TransactionalID: co.s.transactionalID(), ProducerID: producerID, ProducerEpoch: epoch, Committed: commit,
	})
	if err != nil {
		return err
	}
	return co.judge("ending the transaction of", res.ErrorCode)
}
