package pulsar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
)

// Limits and defaults of Options. Sizes are bytes.
const (
	DefaultMaxInFlightMessages = 10_000
	DefaultMaxInFlightBytes    = 64 << 20
	DefaultWatchdogTimeout     = 30 * time.Second
	DefaultDeduplicationWindow = 5 * time.Hour
	DefaultIdleTimeout         = time.Hour
	DefaultMaxProducers        = 5000

	// DefaultMaxMessageBytes is the broker's default maxMessageSize less room for the
	// metadata that the client adds. Key, headers and value together count.
	DefaultMaxMessageBytes = 5<<20 - 10<<10

	// laneMessages bounds what is on the wire of one lane; the client reserves
	// 24 bytes of queue for each, in each lane.
	laneMessages = 1000
)

// Options configure a Sink. The zero value of a field means its default.
type Options struct {
	URL   string      // pulsar://host:6650 or pulsar+ssl://host:6651; several hosts separated by commas
	Token string      // JSON web token; "": none
	TLS   *tls.Config // for pulsar+ssl and https; nil: the system's roots. With a client certificate and no token it also authenticates.

	// Deployment, Destination and Sink make the producer's name. They must stay the same over
	// restarts, and no other sink may have the same three.
	Deployment, Destination, Sink string

	Topics   Topics
	AdminURL string // http(s)://host:8080 of a broker, for topics with several partitions, topic limits and Check; "": do without

	// Producer is what sends: ProducerWire (default), our own, or ProducerClient, the official client. Both
	// are exact, under the same names and ids: one may follow the other.
	Producer string

	// Batching, of ProducerWire only, packs messages that gather while others are on their way into one entry: many
	// times less work for the broker. A Key_Shared subscription hands out whole entries, so its
	// consumers then see messages of one key out of order.
	Batching bool

	// Owner returns nil while this process provably owns its stream (meta.Lease.Err). It is asked before each link to a topic is
	// made, and before a producer of the same name is fenced out (I8); it must not block. nil: the sink takes a
	// topic over when it first opens it, and later waits until the topic is free.
	Owner func() error

	// DeduplicationWindow is how long after the last receipt the broker surely remembers what it stored of us: it must stay
	// below brokerDeduplicationProducerInactivityTimeoutMinutes, which is 6 hours unless changed. After a longer pause the
	// ends of topics that the broker has forgotten are read.
	DeduplicationWindow time.Duration

	// A topic that was not written to for IdleTimeout is closed until it is needed again; it must be below
	// DeduplicationWindow. With more than MaxProducers open at once those that wait longest are closed earlier. Topics with messages
	// on their way stay open, so MaxProducers may be exceeded.
	IdleTimeout  time.Duration
	MaxProducers int

	Compression string // none (default), lz4, zlib, zstd, snappy

	// Bounds of what is accepted and not done, in payload bytes and messages;
	// Publish blocks at either. One larger message is accepted when nothing else is on its way.
	MaxInFlightMessages int64
	MaxInFlightBytes    int64

	// MaxMessageBytes is the largest message sent: key, headers and value before
	// compression. It must stay 10 KiB below the broker's maxMessageSize.
	MaxMessageBytes int

	// WatchdogTimeout is how long a broker that answers may owe a receipt before the
	// session is torn down; 1 s at least.
	WatchdogTimeout time.Duration

	// WithoutDeduplication accepts namespaces in which the broker's deduplication is
	// off: messages may then be stored twice after a restart or a lost link.
	WithoutDeduplication bool

	CheckTopics []string // names or templates of topics, for Check to look at; those with {variables} tell their namespace only

	Logger *slog.Logger // slog.Default()
}

// Topics says how missing topics are created.
type Topics struct {
	// Create lets the sink create topics: through AdminURL if Partitions is above 1,
	// else by the broker's own auto-creation. Without it a missing topic is an error, which
	// needs AdminURL to be seen where the broker creates topics by itself.
	Create bool

	// Partitions is how many a new topic gets; 0 and 1 mean a topic without partitions. A topic
	// that exists keeps the number it has.
	Partitions int32
}

var compressions = map[string]pulsarclient.CompressionType{
	"none": pulsarclient.NoCompression, "lz4": pulsarclient.LZ4, "zlib": pulsarclient.ZLib,
	"zstd": pulsarclient.ZSTD, "snappy": pulsarclient.SNAPPY,
}

// normalize fills in defaults and reports every fault at once.
func (o Options) normalize() (Options, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("pulsar: "+format, args...)) }

	scheme, hosts, ok := strings.Cut(o.URL, "://")
	switch {
	case o.URL == "":
		bad("url: is missing; write pulsar://HOST:6650")
	case !ok || scheme != "pulsar" && scheme != "pulsar+ssl":
		bad("url: must begin with pulsar:// or pulsar+ssl://")
	case strings.Contains(hosts, "@"):
		bad("url: must hold no user; use token")
	default:
		for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
			if u, err := url.Parse("pulsar://" + host); err != nil || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" {
				bad("url: %q is not HOST:PORT", host)
			}
		}
	}
	admin, _, _ := strings.Cut(o.AdminURL, "://")
	if o.AdminURL != "" {
		if u, err := url.Parse(o.AdminURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			bad("admin_url: must be http://HOST:PORT or https://HOST:PORT")
		}
	}
	if o.TLS != nil && scheme == "pulsar" && admin != "https" {
		bad("tls: is set but url begins with pulsar://, which is not encrypted; write pulsar+ssl://")
	}
	if o.Token != strings.TrimSpace(o.Token) || strings.ContainsAny(o.Token, "\r\n\t ") {
		bad("token: contains blanks")
	}
	for _, part := range []struct{ key, name string }{{"deployment", o.Deployment}, {"destination", o.Destination}, {"sink", o.Sink}} {
		switch {
		case part.name == "":
			bad("%s: is missing; it is part of the producer's name", part.key)
		case strings.ContainsAny(part.name, "/\x00"):
			bad("%s: %q must not contain a slash; it is part of the producer's name", part.key, part.name)
		}
	}
	if o.Topics.Partitions < 0 {
		bad("topics.partitions: must not be negative")
	}
	if o.Topics.Create && o.Topics.Partitions > 1 && o.AdminURL == "" {
		bad("topics.partitions: topics with %d partitions can only be created through admin_url; set it, or create them yourself and set topics.create to false", o.Topics.Partitions)
	}
	if o.Producer == "" {
		o.Producer = ProducerWire
	}
	if o.Producer != ProducerClient && o.Producer != ProducerWire {
		bad("producer: unknown value %q; use client or wire", o.Producer)
	}
	if o.Batching && o.Producer != ProducerWire {
		bad("batching: needs producer: wire; the client's batches are not exact across a restart")
	}
	if o.Compression == "" {
		o.Compression = "none"
	}
	if _, ok := compressions[o.Compression]; !ok {
		bad("compression: unknown value %q; use none, lz4, zlib, zstd or snappy", o.Compression)
	}
	if o.MaxInFlightMessages < 0 || o.MaxInFlightBytes < 0 || o.MaxMessageBytes < 0 {
		bad("bounds must not be negative")
	}
	if o.MaxInFlightMessages == 0 {
		o.MaxInFlightMessages = DefaultMaxInFlightMessages
	}
	if o.MaxInFlightBytes == 0 {
		o.MaxInFlightBytes = DefaultMaxInFlightBytes
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = DefaultMaxMessageBytes
	}
	switch {
	case o.WatchdogTimeout == 0:
		o.WatchdogTimeout = DefaultWatchdogTimeout
	case o.WatchdogTimeout < time.Second:
		bad("watchdog: %s is less than 1 s", o.WatchdogTimeout)
	}
	if o.DeduplicationWindow == 0 {
		o.DeduplicationWindow = DefaultDeduplicationWindow
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = min(DefaultIdleTimeout, o.DeduplicationWindow/2)
	}
	if o.MaxProducers == 0 {
		o.MaxProducers = DefaultMaxProducers
	}
	switch {
	case o.DeduplicationWindow < 0 || o.MaxProducers < 0:
		bad("deduplication_window and max_producers must not be negative")
	case o.IdleTimeout < time.Second || o.IdleTimeout >= o.DeduplicationWindow:
		bad("idle_timeout: %s is not between 1s and deduplication_window, %s", o.IdleTimeout, o.DeduplicationWindow)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = o.Logger.With("destination", o.Destination, "sink", o.Sink)
	return o, errors.Join(errs...)
}

func (o *Options) producerName() string {
	return o.Deployment + "/" + o.Destination + "/" + o.Sink
}

// topicName is a persistent topic's name in its parts.
type topicName struct {
	full      string // persistent://tenant/namespace/local
	namespace string // tenant/namespace
	local     string
}

// parsePartition takes the full name of a topic or of one of its partitions.
func parsePartition(s string) (topicName, error) {
	if i := strings.LastIndex(s, "-partition-"); i >= 0 {
		s = s[:i]
	}
	return parseTopic(s)
}

// parseTopic accepts persistent://tenant/namespace/topic, tenant/namespace/topic
// and topic (in public/default), as every Pulsar client does.
func parseTopic(s string) (topicName, error) {
	bad := func(why string) (topicName, error) {
		return topicName{}, fmt.Errorf("pulsar: topic %q: %s", s, why)
	}
	rest := s
	if domain, r, ok := strings.Cut(s, "://"); ok {
		if domain != "persistent" {
			return bad("only persistent:// topics keep what they confirm")
		}
		rest = r
	} else if !strings.Contains(s, "/") {
		rest = "public/default/" + s
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || strings.Contains(parts[2], "/") {
		return bad("must be persistent://TENANT/NAMESPACE/TOPIC")
	}
	if strings.Contains(parts[2], "-partition-") {
		return bad("names one partition of a topic; name the topic")
	}
	for _, r := range rest {
		if r <= ' ' || r == 0x7f {
			return bad("contains blanks or control characters")
		}
	}
	return topicName{full: "persistent://" + rest, namespace: parts[0] + "/" + parts[1], local: parts[2]}, nil
}
