package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Codes of ServerError in PulsarApi.proto that are dealt with here.
const (
	CodePersistence       = 2 // for a message: whether it is a duplicate cannot be said yet
	CodeAuthentication    = 3
	CodeAuthorization     = 4
	CodeConsumerBusy      = 5 // the topic, or the subscription, has as many consumers as it may have
	CodeChecksum          = 9
	CodeTopicNotFound     = 11
	CodeTopicTerminated   = 15
	CodeProducerBusy      = 16
	CodeNotAllowed        = 22 // for a message: larger than the topic's own limit
	CodeProducerFenced    = 25
	codeOfOurOwn          = -1
	heldBy                = "existing exclusive producer: "
	limitRemedy           = "raise the topic's own limit (pulsar-admin topicPolicies set-max-message-size) or the broker's maxMessageSize"
	forgottenRemedy       = "was the topic deleted and made again, or deduplication switched off, or was this producer away for longer than brokerDeduplicationProducerInactivityTimeoutMinutes?"
	repeatedChecksumLimit = 3
	spentRemedy           = "under this producer name it cannot be sent any more: find out why it was refused, and publish to another topic or under another deployment name"
)

var codeNames = [...]string{
	"UnknownError", "MetadataError", "PersistenceError", "AuthenticationError", "AuthorizationError", "ConsumerBusy", "ServiceNotReady",
	"ProducerBlockedQuotaExceededError", "ProducerBlockedQuotaExceededException", "ChecksumError", "UnsupportedVersionError", "TopicNotFound",
	"SubscriptionNotFound", "ConsumerNotFound", "TooManyRequests", "TopicTerminatedError", "ProducerBusy", "InvalidTopicName",
	"IncompatibleSchema", "ConsumerAssignError", "TransactionCoordinatorNotFound", "InvalidTxnStatus", "NotAllowedError",
	"TransactionConflict", "TransactionNotFound", "ProducerFenced",
}

// Error is what a broker answered, or what makes going on impossible.
type Error struct {
	Code    int // of ServerError; -1: our own finding
	Op      string
	Topic   string // "" where none is concerned
	Broker  string // HOST:PORT
	Message string // the broker's words, with a remedy where there is one
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Topic != "" {
		b.WriteString(" " + e.Topic)
	}
	if e.Broker != "" {
		b.WriteString(" at broker " + e.Broker)
	}
	b.WriteString(": ")
	switch {
	case e.Code >= 0 && e.Code < len(codeNames):
		b.WriteString(codeNames[e.Code] + " (" + strconv.Itoa(e.Code) + "): ")
	case e.Code != codeOfOurOwn:
		fmt.Fprintf(&b, "error %d: ", e.Code)
	}
	b.WriteString(e.Message)
	return b.String()
}

// Code returns the broker's code in err's chain, or -1.
func Code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}

// Refused tells that the broker will never take the message as it is.
func Refused(err error) bool { return Code(err) == CodeNotAllowed }

// Forgot is the error of a broker that remembers less of a producer name than it has confirmed.
func Forgot(topic, name string, last, confirmed int64) *Error {
	return &Error{Code: codeOfOurOwn, Op: "opening a producer on", Topic: topic,
		Message: fmt.Sprintf("the broker has forgotten: its last sequence id of %q is %d, it had confirmed %d; %s", name, last, confirmed, forgottenRemedy)}
}

// Forgotten tells that the broker remembers less than it has confirmed.
func Forgotten(err error) bool {
	var e *Error
	return errors.As(err, &e) && strings.HasSuffix(e.Message, forgottenRemedy)
}

// Spent tells that the broker has refused a message and stored later ones:
// under its id it would be called a duplicate.
func Spent(err error) bool {
	var e *Error
	return errors.As(err, &e) && strings.HasSuffix(e.Message, spentRemedy)
}

// final tells that repeating a send cannot help.
func final(code int) bool {
	switch code {
	case CodeAuthentication, CodeAuthorization, CodeTopicTerminated, CodeNotAllowed:
		return true
	}
	return false
}

var (
	// ErrClosed is returned by a client or producer that was closed.
	ErrClosed = errors.New("closed")

	errSilent = errors.New("the broker has gone silent")
)
