package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/topicname"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// Client is what the bridge needs of the embedded server: the calls of one
// subscription. *server.Client is one. The bridge calls it from several goroutines.
type Client interface {
	// GetWithoutAck hands out the next batch; with server.WaitAny it blocks until there is an event.
	GetWithoutAck(ctx context.Context, size server.Size, wait server.Wait) (*server.Batch, error)
	// Ack acknowledges the oldest batch that is handed out and saves state with the cursor; nil leaves the state as it is.
	Ack(ctx context.Context, batchID int64, state []byte) error
	// AckLazy is Ack with a state that is asked for when the cursor is saved.
	AckLazy(ctx context.Context, batchID int64, state server.LazyState) error
	// AckUpTo acknowledges all that is handed out up to the ordinal, and makes the rest be handed out again.
	AckUpTo(ctx context.Context, ordinal int64, state server.LazyState) error
	// SaveState saves the state with the cursor as it is; it is durable when SaveState returns.
	SaveState(ctx context.Context, state []byte) error
	// Rollback makes everything since the last Ack be handed out again.
	Rollback(ctx context.Context) error
	// Cursor returns what is acknowledged.
	Cursor(ctx context.Context) (event.Cursor, error)
	// Disconnect lets go of the subscription, so that nobody waits for it; its cursor stays.
	Disconnect(ctx context.Context) error
}

// DDL chooses the statements that are published.
type DDL uint8

// The choices.
const (
	CapturedDDL DDL = iota // those about a table that the sink takes, by its old or new name, about a database that may have one, and what names nothing
	AllDDL                 // all of the source
)

var ddlNames = []string{"captured", "all"}

// String returns the choice as it is written in a configuration.
func (d DDL) String() string { return name(ddlNames, int(d)) }

// ParseDDL is the inverse of String; "" is CapturedDDL.
func ParseDDL(s string) (DDL, error) {
	i, err := parseName("ddl", ddlNames, s)
	return DDL(i), err
}

// Key chooses the message key.
type Key uint8

// The choices. Rows without key go to the partition of their table (I5).
const (
	PrimaryKey Key = iota // the table's primary key, in the codec's form
	TableKey              // "schema.table": all rows of a table in one partition
	NoKey                 // messages have no key; partitioned by table
)

var keyNames = []string{"primary_key", "table", "none"}

// String returns the choice as it is written in a configuration.
func (k Key) String() string { return name(keyNames, int(k)) }

// ParseKey is the inverse of String; "" is PrimaryKey.
func ParseKey(s string) (Key, error) {
	i, err := parseName("key", keyNames, s)
	return Key(i), err
}

// KeyColumns names the key columns of some tables, in key order.
type KeyColumns struct {
	Tables  []string `json:"tables"` // patterns as tablefilter takes them
	Columns []string `json:"columns"`
}

// KeyChange says what becomes of an update that changes its message's key.
type KeyChange uint8

// The choices.
const (
	SplitKeyChange  KeyChange = iota // delete with the old key, then insert with the new one
	UpdateKeyChange                  // one update, with the new key
)

var keyChangeNames = []string{"split", "update"}

// String returns the choice as it is written in a configuration.
func (k KeyChange) String() string { return name(keyChangeNames, int(k)) }

// ParseKeyChange is the inverse of String; "" is SplitKeyChange.
func ParseKeyChange(s string) (KeyChange, error) {
	i, err := parseName("key_change", keyChangeNames, s)
	return KeyChange(i), err
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

func parseName(what string, names []string, s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: unknown value %q, known are %s", what, s, strings.Join(names, ", "))
}

// DefaultHeaders are the headers of a message unless others are chosen.
var DefaultHeaders = []string{"seq", "gtid", "row", "tables"}

// Options say what a [Bridge] does. Destination, Sink name, Client, Sink, Codec and Topic are required.
type Options struct {
	Destination string
	Name        string // the sink's name, for errors and logs
	Client      Client
	Sink        sink.Sink
	Codec       codec.Codec

	// What follows decides which messages a row yields and where they go. All of it is part of the fingerprint: see Recipe.
	Delivery    string       // kind of sink and delivery; which sink is to replay what was sent depends on it
	CodecID     string       // the codec's name and options
	Tables      []string     // what the destination captures
	AllVersions bool         // the history rows of system-versioned tables too: connector.Options.AllVersions
	Filter      string       // the subscription's own filter
	Topic       string       // template with {destination}, {schema}, {table}
	DDLTopic    string       // template with {destination}: DDL statements go there, all to partition 0; "" = nowhere
	DDL         DDL          // which of them
	Key         Key          //
	KeyColumns  []KeyColumns // exceptions to Key; the first entry that matches a table decides
	KeyChange   KeyChange    //
	Tombstones  bool         // a delete with a key is followed by a message with that key and no value, for compacted topics

	// What becomes of a message above the limit. The limit, and with it Headers, is part of the fingerprint unless Oversize is StopOversize.
	Oversize        Oversize
	MaxMessageBytes int    // limit on sink.Message.Framed; 0: the topic's own as it is when a topic is first used in an epoch
	DeadLetterTopic string // DeadLetterOversize: template as Topic, of the topics that take what does not fit into the others

	// Exact: the broker recognises a repetition by its number, and whoever reads relies on it. Then the sink stops rather than
	// begin a new epoch while messages after the cursor may be stored.
	Exact bool

	// SourceEnd tells where the source's log ends. It waits while the source is away. nil: what topics hold cannot be compared
	// with the source's log where that is needed.
	SourceEnd func(ctx context.Context) (event.Position, error)

	Names Names // what the broker allows as a topic's name

	// Headers names what travels with a message; nil means DefaultHeaders, empty none. Values are text, numbers
	// decimal: seq (with "sub" beside it on the second and later messages of one change), gtid (absent when the
	// server has none; in its place a snapshot's row has "snapshot", the name of its chunk: event.Snapshot.Append), row (index in the transaction; not on DDL), tables (on DDL only: codec.AppendTables), destination, schema,
	// table (not on DDL), op (insert, update, delete, snapshot, truncate, ddl), position (FILE:OFFSET of the event), commit_time (microseconds since 1970 UTC), epoch.
	// A codec.KeyLinker has headers of its own beside them, and the emptying of a table always has op.
	Headers []string

	// Owner returns nil while this process provably owns the destination (meta.Lease.Err), else an error that is
	// server.ErrFenced, and then for good. It is asked before each session, send round and acknowledgement (I8). nil: always.
	Owner func() error

	Workers       int           // goroutines that encode beside the one that publishes; 0 = cores-1, at most 3; negative = none
	WindowBytes   int64         // bound on events and encoded messages on their way; 0 = 16 MiB. One batch and one slab a worker may pass it
	WindowBatches int           // bound on batches not acknowledged; 0 = 256
	BatchEvents   int           // most events of a batch; 0 = 2048: small against the ring, which is freed batch by batch
	BatchBytes    int64         // most bytes of a batch; 0 = 512 KiB, at most a quarter of WindowBytes
	Born          time.Time     // when the cursor has no state: numbers lie above all that lives before this time can have used; zero: they begin at 0
	DrainTimeout  time.Duration // how long Run waits for confirmations when it is told to stop; 0 = 10 s
	BackoffMin    time.Duration // first pause after a failure; 0 = 100 ms
	BackoffMax    time.Duration // longest pause; 0 = 30 s
	Logger        *slog.Logger  // nil = slog.Default
}

// chunkBytes is how much raw data one encoding task takes. Big enough that
// handing it on costs nothing, small enough that two cores share a batch.
const chunkBytes = 64 << 10

// slabBytes is how much encoded data is published at once.
const slabBytes = 256 << 10

// slabMessages bounds the messages published at once.
const slabMessages = 4096

// complete fills in defaults and compiles; it reports every fault at once.
func (o *Options) complete() (*compiled, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Destination == "" {
		fault("no destination")
	}
	if o.Name == "" {
		fault("the sink has no name")
	}
	if o.Client == nil || o.Sink == nil || o.Codec == nil {
		fault("client, sink and codec are required")
	}
	if o.Workers == 0 {
		o.Workers = min(runtime.GOMAXPROCS(0)-1, 3)
	}
	o.Workers = max(o.Workers, 0)
	defaults(&o.WindowBytes, 16<<20)
	defaults(&o.WindowBatches, 256)
	defaults(&o.BatchEvents, 2048)
	defaults(&o.BatchBytes, 512<<10)
	o.BatchBytes = max(1, min(o.BatchBytes, o.WindowBytes/4))
	defaults(&o.DrainTimeout, 10*time.Second)
	defaults(&o.BackoffMin, 100*time.Millisecond)
	defaults(&o.BackoffMax, 30*time.Second)
	o.BackoffMax = max(o.BackoffMax, o.BackoffMin)
	if o.Owner == nil {
		o.Owner = func() error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = o.Logger.With("destination", o.Destination, "sink", o.Name)

	c := new(compiled)
	var err error
	if c.topics, err = newRouter(o.Topic, o.Destination, o.Names, topicname.OfTable); err != nil {
		fault("topic: %w", err)
	}
	if o.DDLTopic != "" {
		r, err := newRouter(o.DDLTopic, o.Destination, o.Names, topicname.OfNone)
		if err != nil {
			fault("ddl_topic: %w", err)
		} else {
			c.ddlTopic, _ = r.topic("", "")
		}
	}
	o.completeOversize(c, fault)
	o.completeDDL(c, fault)
	if o.Key > NoKey {
		fault("key: unknown choice %d", o.Key)
	}
	if o.KeyChange > UpdateKeyChange {
		fault("key_change: unknown choice %d", o.KeyChange)
	}
	for i, k := range o.KeyColumns {
		f, err := tablefilter.New(k.Tables)
		switch {
		case err != nil:
			fault("key columns %d: %w", i, err)
		case len(k.Tables) == 0 || len(k.Columns) == 0:
			fault("key columns %d: tables and columns are required", i)
		}
		c.keys = append(c.keys, keyRule{f, k.Columns})
	}
	if c.headers, err = parseHeaders(o.headers()); err != nil {
		faults = append(faults, err)
	}
	c.commitTime = slices.Contains(c.headers, headerCommitTime)
	if l, ok := o.Codec.(codec.KeyLinker); ok {
		c.newKeyHeader, c.oldKeyHeader = l.KeyHeaders()
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("bridge: %w", errors.Join(faults...))
	}
	return c, nil
}

// completeDDL compiles which tables the sink takes.
func (o *Options) completeDDL(c *compiled, fault func(string, ...any)) {
	if o.DDL > AllDDL {
		fault("ddl: unknown choice %d", o.DDL)
	}
	var own []string
	for p := range strings.SplitSeq(o.Filter, ",") {
		if p = strings.TrimSpace(p); p != "" {
			own = append(own, p)
		}
	}
	for _, patterns := range [][]string{o.Tables, own} {
		f, err := tablefilter.New(patterns)
		if err != nil {
			fault("tables: %w", err)
			continue
		}
		c.taken = append(c.taken, f)
	}
}

// headers returns the names of the headers that travel with a message.
func (o *Options) headers() []string {
	if o.Headers == nil {
		return DefaultHeaders
	}
	return o.Headers
}

func defaults[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// compiled is what Options come to.
type compiled struct {
	topics   *router
	ddlTopic string
	dead     *router // DeadLetterOversize; else nil
	keys     []keyRule
	headers  []header
	taken    []*tablefilter.Filter // a table that all of them take is the sink's

	commitTime bool // one of headers is headerCommitTime

	newKeyHeader, oldKeyHeader string // those of a codec.KeyLinker; else empty
}

// takes reports whether the sink takes a table's rows. caseless: as event.Table.Caseless.
func (c *compiled) takes(schema, table string, caseless bool) bool {
	for _, f := range c.taken {
		if !f.For(caseless).Match(schema, table) {
			return false
		}
	}
	return true
}

// concerns reports whether a statement may be about tables that the sink takes.
func (c *compiled) concerns(s *event.Statement) bool {
	return s.Concerns(func(schema, table string) bool { return c.takes(schema, table, s.Caseless) }, func(schema string) bool {
		for _, f := range c.taken {
			if !f.For(s.Caseless).MatchSchema(schema) {
				return false
			}
		}
		return true
	})
}

type keyRule struct {
	filter  *tablefilter.Filter
	columns []string
}

// header is one of the headers that may travel with a message.
type header uint8

const (
	headerSeq header = iota
	headerGTID
	headerRow
	headerDestination
	headerSchema
	headerTable
	headerOp
	headerPosition
	headerCommitTime
	headerEpoch
	headerTables
)

var headerNames = []string{"seq", "gtid", "row", "destination", "schema", "table", "op", "position", "commit_time", "epoch", "tables"}

// subHeader stands beside seq on the second and later messages of one change.
const subHeader = "sub"

// snapshotHeader stands in the place of gtid on rows of snapshots.
const snapshotHeader = "snapshot"

func parseHeaders(names []string) ([]header, error) {
	var hs []header
	seen := map[string]bool{}
	for _, n := range names {
		if n == "" {
			return nil, errors.New("headers: empty name")
		}
		i, err := parseName("headers", headerNames, n)
		if err != nil {
			return nil, err
		}
		if seen[n] {
			return nil, fmt.Errorf("headers: %q is named twice", n)
		}
		seen[n] = true
		hs = append(hs, header(i))
	}
	return hs, nil
}
