package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/binlogmq/binlogmq/internal/retry"
)

// Error codes of the Kafka protocol that are treated in some special way.
const (
	codeUnknownTopic       = 3
	codeLeaderNotAvailable = 5
	codeNotLeader          = 6
	codeRequestTimedOut    = 7
	codeBrokerNotAvailable = 8
	codeMessageTooLarge    = 10
	codeInvalidTopic       = 17
	codeRecordListTooLarge = 18
	codeNotEnoughReplicas  = 19
	codeTopicNotAuthorized = 29
	codeClusterNotAuth     = 31
	codeTopicExists        = 36
	codeNotController      = 41
	codeOutOfOrder         = 45
	codeDuplicate          = 46
	codeInvalidEpoch       = 47
	codeInvalidTxnTimeout  = 50
	codeConcurrentTxns     = 51

	codeTransactionalIDNotAuth = 53
	codeNotAttempted           = 55

	codeUnknownProducer = 59
	codeFenced          = 90
	codeNoError         = 0
)

// Error is an error code that a broker answered with.
type Error struct {
	Code    int16  // https://kafka.apache.org/protocol#protocol_error_codes
	Message string // the broker's own words, often empty
}

func (e *Error) Error() string {
	s := "Kafka error " + strconv.Itoa(int(e.Code))
	if t := kafkago.Error(e.Code).Title(); t != "" {
		s += " (" + t + ")"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// ErrRecordTooLarge is in the chain of the error that a message is done with
// when the broker refuses it for its size alone.
var ErrRecordTooLarge = errors.New("the message is larger than the topic allows")

// ErrPartitionsChanged is in the chain of the error that ends a session when a
// topic has another number of partitions than when the sink first saw it.
var ErrPartitionsChanged = errors.New("the number of partitions changed")

// retriable says whether a request that was answered with code may be sent again
// as it was. It is the one place that decides.
func retriable(code int16) bool {
	switch code {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, codeRequestTimedOut, codeBrokerNotAvailable,
		9,          // REPLICA_NOT_AVAILABLE
		13,         // NETWORK_EXCEPTION
		14, 15, 16, // COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR
		codeNotEnoughReplicas,
		20, // NOT_ENOUGH_REPLICAS_AFTER_APPEND
		codeConcurrentTxns,
		56,     // KAFKA_STORAGE_ERROR: the disk of this replica; another one will lead
		72,     // LISTENER_NOT_FOUND
		74, 75, // FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
		89: // THROTTLING_QUOTA_EXCEEDED
		return true
	}
	return false
}

// movesLeader says whether code may mean that another broker leads the partition now.
func movesLeader(code int16) bool {
	switch code {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, codeBrokerNotAvailable, 9, 13, 56, 72, 74, 75:
		return true
	}
	return false
}

// producerIDError is the error of an InitProducerID that was answered with code, nil if there is
// none. It is permanent unless a retry makes sense.
func producerIDError(code int16) error {
	if code == codeNoError {
		return nil
	}
	err := fmt.Errorf("kafka: getting a producer id: %w", &Error{Code: code})
	if code == codeClusterNotAuth {
		err = fmt.Errorf("%w; allow it: kafka-acls.sh --add --allow-principal User:NAME --operation IdempotentWrite --cluster (or WRITE on any topic)", err)
	}
	if !retriable(code) {
		return &finalError{err}
	}
	return err
}

// finalError marks an error that a repetition by ourselves does not mend.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

const maxBackoff = 2 * time.Second

// backoff is the pause before attempt n (1 = first repetition), with jitter:
// 5 ms doubling up to maxBackoff.
func backoff(n int) time.Duration {
	d := maxBackoff
	if n < 10 {
		d = min(5*time.Millisecond<<max(n-1, 0), maxBackoff)
	}
	return retry.Jitter(d)
}

// produceBackoff is backoff for a Produce answered with code. The wait for
// replicas or another transaction is short and common.
func produceBackoff(code int16, n int) time.Duration {
	if code == codeNotEnoughReplicas || code == codeConcurrentTxns {
		if n <= 20 {
			return time.Millisecond
		}
		n -= 20
	}
	return backoff(n)
}

func topicError(topic string, err error) error {
	return fmt.Errorf("kafka: topic %s: %w", topic, err)
}
