package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Kinds of delivery.
const (
	AtLeastOnce   = "at_least_once" // idempotent within a session, fresh producer id per session
	Sequenced     = "sequenced"     // exactly once: what is sent again after a restart has the numbers it had
	Transactional = "transactional" // exactly once and source transactions whole, for consumers that read committed only
)

// Limits and defaults of Options. Sizes are bytes.
const (
	DefaultMaxInFlightBytes    = 16 << 20
	DefaultMaxInFlightMessages = 50_000
	DefaultBatchBytes          = 1_000_000
	DefaultRequestTimeout      = 10 * time.Second
	DefaultCommitInterval      = 20 * time.Millisecond
	DefaultMaxTransactionBytes = 4 << 20
	DefaultTransactionTimeout  = time.Minute
	MaxRequestsInFlight        = 5 // the broker remembers the last 5 batches of a producer per partition

	// Brokers cut the connection at socket.request.max.bytes (100 MiB unless
	// configured), without any answer; so a batch ends well below it.
	maxBatchBytes = 96 << 20
)

// Options configure a Sink. The zero value of a field means its default.
type Options struct {
	Brokers  []string // host:port of some brokers; port 9092 if absent
	Delivery string   // AtLeastOnce (default), Sequenced or Transactional
	ClientID string   // "binlogmq"
	TLS      *tls.Config
	SASL     *SASL

	// Names of the life that Sequenced delivery keeps, and of the transactional id; required there.
	Deployment, Destination, Sink string

	Compression      string // none (default), gzip, snappy, lz4, zstd
	CompressionLevel int    // gzip and lz4 1..9, zstd 1..22; 0: the codec's default (zstd: fastest)

	Topics Topics // the cursor topic of Transactional delivery is created as they are, but for its single partition

	// Transactional delivery only. A commit follows the one before not sooner than CommitInterval, unless MaxTransactionBytes
	// of payload are in the transaction or Publish waits for room. A source transaction larger than that, or that takes longer than half of
	// TransactionTimeout to come, is spread over several Kafka transactions. MaxTransactionBytes is at most MaxInFlightBytes.
	CommitInterval      time.Duration // DefaultCommitInterval; negative: none
	MaxTransactionBytes int64         // DefaultMaxTransactionBytes, or half of MaxInFlightBytes where that is less
	TransactionTimeout  time.Duration // after which the brokers abort; DefaultTransactionTimeout

	// Bounds of what is accepted and not done, in payload bytes and messages; Publish
	// blocks at either. One message larger than MaxInFlightBytes is accepted when nothing
	// else is on its way. Beside these, each leader broker holds up to (RequestBytes + BatchBytes)
	// x RequestsInFlight of encoded batches.
	MaxInFlightBytes    int64
	MaxInFlightMessages int64

	BatchBytes       int           // greatest uncompressed batch of several messages; lowered to the topic's max.message.bytes
	RequestBytes     int           // a Produce request takes no further batch above this; 4 x BatchBytes
	RequestsInFlight int           // per leader broker, 1 (default) to MaxRequestsInFlight
	RequestTimeout   time.Duration // for the broker to have the in-sync replicas acknowledge; ours is half as much again

	// MetadataInterval is the time between looks at the partition counts of the
	// topics in use (default 5 min). Leaders are looked up on errors, not by time.
	MetadataInterval time.Duration

	Logger *slog.Logger // slog.Default()

	// slowAfter is how long a Produce request may be on its way before the leaders
	// of its partitions are looked up again: a frozen broker answers nothing. 2 s.
	slowAfter time.Duration

	// disagreeAfter is how long a lane may make no progress, because the broker's sequence state is not
	// what ours is, before the sink stops. 60 s.
	disagreeAfter time.Duration

	// Owner returns nil while this process provably owns its stream (meta.Lease.Err), else an error with which the session ends. It
	// is asked before each connect and each request that sends (I8), and must not block. nil: always.
	Owner func() error

	// without takes a guard of sequenced delivery away, to show in tests that it matters.
	without guard

	// watchEvery is how often Transactional delivery looks for partitions that hang (10 s), hangAfter how long the last stable
	// offset must stand still for that (30 s).
	watchEvery, hangAfter time.Duration
}

type guard uint8

const (
	nothing        guard = iota
	searching            // a lane goes on where the cursor says, whatever the log holds
	fixedNumbering       // the next sequence the broker wants goes to whatever message comes next
	skipping             // what the cursor record covers is published again
)

// SASL authenticates the connections.
type SASL struct {
	Mechanism string // plain, scram-sha-256, scram-sha-512
	User      string
	Password  string
}

// Topics says how missing topics are created.
type Topics struct {
	Create            bool
	Partitions        int32             // 0: the broker's num.partitions
	ReplicationFactor int16             // 0: the broker's default.replication.factor
	Configs           map[string]string // such as retention.ms
}

// normalize fills in defaults and reports every fault at once.
func (o Options) normalize() (Options, sasl.Mechanism, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("kafka: "+format, args...)) }

	if len(o.Brokers) == 0 {
		bad("brokers: at least one address is needed")
	}
	brokers := make([]string, len(o.Brokers))
	for i, b := range o.Brokers {
		if strings.TrimSpace(b) == "" {
			bad("brokers: empty address")
		}
		if _, _, err := net.SplitHostPort(b); err != nil {
			b = net.JoinHostPort(strings.Trim(b, "[]"), "9092")
		}
		brokers[i] = b
	}
	o.Brokers = brokers

	switch o.Delivery {
	case "":
		o.Delivery = AtLeastOnce
	case AtLeastOnce:
	case Sequenced, Transactional:
		if o.Deployment == "" || o.Destination == "" || o.Sink == "" {
			bad("delivery: %s needs the names of deployment, destination and sink", o.Delivery)
		}
	default:
		bad("delivery: unknown value %q; use %s, %s or %s", o.Delivery, Sequenced, Transactional, AtLeastOnce)
	}
	if o.Compression == "" {
		o.Compression = "none"
	}
	if _, err := newCompressor(o.Compression, o.CompressionLevel); err != nil {
		errs = append(errs, err)
	}
	if o.Topics.Partitions < 0 || o.Topics.ReplicationFactor < 0 {
		bad("topics: partitions and replication must not be negative")
	}
	setDefault(&o.ClientID, "binlogmq")
	setDefault(&o.MaxInFlightBytes, DefaultMaxInFlightBytes)
	if o.Delivery == Transactional { // a source transaction of many small rows must fit in
		setDefault(&o.MaxInFlightMessages, 10*DefaultMaxInFlightMessages)
	}
	setDefault(&o.MaxInFlightMessages, DefaultMaxInFlightMessages)
	setDefault(&o.BatchBytes, DefaultBatchBytes)
	setDefault(&o.RequestBytes, 4*o.BatchBytes)
	setDefault(&o.RequestsInFlight, 1)
	setDefault(&o.RequestTimeout, DefaultRequestTimeout)
	setDefault(&o.MetadataInterval, 5*time.Minute)
	setDefault(&o.CommitInterval, DefaultCommitInterval)
	setDefault(&o.MaxTransactionBytes, max(1, min(DefaultMaxTransactionBytes, o.MaxInFlightBytes/2)))
	setDefault(&o.TransactionTimeout, DefaultTransactionTimeout)
	if o.MaxTransactionBytes < 0 || o.MaxTransactionBytes > o.MaxInFlightBytes {
		bad("max transaction bytes: %d is not within 1 and the bound in flight, %d", o.MaxTransactionBytes, o.MaxInFlightBytes)
	}
	if o.TransactionTimeout < time.Second || o.TransactionTimeout > time.Hour {
		bad("transaction timeout: %v is not within 1s and 1h", o.TransactionTimeout)
	}
	if o.CommitInterval > o.TransactionTimeout/2 {
		bad("commit interval: %v is more than half of the transaction timeout, %v", o.CommitInterval, o.TransactionTimeout)
	}
	if o.MaxInFlightBytes < 0 || o.MaxInFlightMessages < 0 {
		bad("the bounds in flight must be positive")
	}
	if o.BatchBytes < 1024 || o.BatchBytes > maxBatchBytes {
		bad("batch bytes: %d is not within 1024 and %d", o.BatchBytes, maxBatchBytes)
	}
	if o.RequestBytes < 0 || o.RequestBytes > maxBatchBytes {
		o.RequestBytes = maxBatchBytes
	}
	if o.RequestsInFlight < 1 || o.RequestsInFlight > MaxRequestsInFlight {
		bad("requests in flight: %d is not within 1 and %d", o.RequestsInFlight, MaxRequestsInFlight)
	}
	if o.RequestTimeout < 10*time.Millisecond || o.RequestTimeout > time.Hour {
		bad("request timeout: %v is not within 10ms and 1h", o.RequestTimeout)
	}
	if o.MetadataInterval < 0 {
		bad("metadata interval: must be positive")
	}
	if o.Owner == nil {
		o.Owner = func() error { return nil }
	}
	setDefault(&o.slowAfter, 2*time.Second)
	setDefault(&o.disagreeAfter, time.Minute)
	setDefault(&o.watchEvery, 10*time.Second)
	setDefault(&o.hangAfter, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}

	var mech sasl.Mechanism
	if o.SASL != nil {
		var err error
		if mech, err = o.SASL.mechanism(); err != nil {
			errs = append(errs, err)
		}
	}
	return o, mech, errors.Join(errs...)
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s.User == "" {
		return nil, errors.New("kafka: sasl: user is missing")
	}
	var algo scram.Algorithm
	switch strings.ToLower(s.Mechanism) {
	case "plain":
		return plain.Mechanism{Username: s.User, Password: s.Password}, nil
	case "scram-sha-256":
		algo = scram.SHA256
	case "scram-sha-512":
		algo = scram.SHA512
	default:
		return nil, fmt.Errorf("kafka: sasl: unknown mechanism %q; use plain, scram-sha-256 or scram-sha-512", s.Mechanism)
	}
	m, err := scram.Mechanism(algo, s.User, s.Password)
	if err != nil {
		// The library's text may quote what it was given.
		return nil, errors.New("kafka: sasl: user or password holds characters that SCRAM does not allow")
	}
	return m, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
