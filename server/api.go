package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// Identity names one subscription: a destination and a client on it.
type Identity = meta.Identity

// Source is the database side of a destination.
type Source interface {
	// Start returns where a destination begins that no cursor is saved of: a
	// transaction end, with an Ordinal that no event of another life has and nothing done beyond it.
	Start(ctx context.Context) (event.Cursor, error)

	// Read hands on every event behind the transaction end from.Position, numbered from
	// from.Ordinal+1; Progress and State of from mean nothing to it. It calls put
	// with one or more events at a time, in order, from one goroutine, and
	// stops when put returns an error, which it returns unchanged or wrapped. It returns only with an
	// error or when ctx has ended; a lost link it mends itself. Several Reads may
	// run at once. The events, not the slice, belong to the server after put.
	Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error
}

// BesideSource may be implemented by a [Source] that tells the reader of a destination's main ring from those that catch up beside it.
type BesideSource interface {
	// ReadBeside is Read for a catch-up reader.
	ReadBeside(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error
}

// Clock tells the time; tests inject their own.
type Clock interface {
	Now() time.Time
	NewTimer(d time.Duration) Timer
}

// Timer fires once on its channel unless stopped before.
type Timer interface {
	C() <-chan time.Time
	Stop() bool
}

// Defaults and limits of Options.
const (
	DefaultSaveInterval   = time.Second
	DefaultRingEvents     = 16384
	DefaultRingBytes      = 16 << 20
	DefaultDetachAfter    = 3 * time.Second
	DefaultCatchUpReaders = 4
	DefaultBatchEvents    = 1024
)

// Options are the server's own settings. The zero value of each field gives its default.
type Options struct {
	Meta   meta.Store   // where cursors are saved; nil: in memory only
	Logger *slog.Logger // nil: nothing is logged
	Clock  Clock        // nil: the system's clock

	// SaveInterval is how often moving cursors are saved. 0 saves before Ack
	// returns: then Ack waits while the cursor cannot be saved. Configuration defaults to DefaultSaveInterval.
	SaveInterval time.Duration

	DestinationOptions // for destinations that are added without their own
}

// DestinationOptions bound one destination. The zero value of each field gives
// the server's, and there its default.
//
// Events in memory are at most those of one ring, and of one more for each connected
// subscription that lags or has just come back; what subscribers hold of batches is part of that (I9).
type DestinationOptions struct {
	RingEvents int   // most events in a ring
	RingBytes  int64 // most bytes of events (Event.Size) in a ring; a larger event is taken alone (I9)

	// DetachAfter is how long the ring may be full while another subscription has
	// nothing left to do, until the subscription that holds it up is detached; negative: never.
	DetachAfter time.Duration

	// CatchUpReaders is how many catch-up readers may run at once; negative: none.
	CatchUpReaders int

	// Prepare is called once, until it succeeds, before a cursor of the destination is loaded or saved. It sees to it that the saved
	// cursors are of the server that answers (event.Position.ServerUUID). From then on a reader ends with event.ErrAnotherServer
	// when another one answers. Nil: nobody sees to it, and readers go on.
	Prepare func(ctx context.Context) error

	// Failed is told why a reader has ended for good, or why a cursor does not fit to what is read. It must return at once and not call
	// the server. Nil: nobody is told but those who get.
	Failed func(err error)
}

// Matcher decides which tables a subscription sees. It must be safe for
// concurrent use and always give the same answer.
type Matcher interface {
	Match(schema, table string) bool
}

// StatementMatcher may be implemented by a [Matcher] that decides which statements a subscription sees, too; without it that is
// all of them.
type StatementMatcher interface {
	MatchStatement(e *event.Event) bool
}

// TableMatcher may be implemented by a [Matcher] to which more counts of a table than its names, such as event.Table.Caseless.
type TableMatcher interface {
	MatchTable(t *event.Table) bool
}

// Weigher may be implemented by a [Matcher] whose subscriber gets events in a form of its own: Size.Bytes counts what
// Weight says then. It must be quick, and call nothing of the server.
type Weigher interface {
	Weight(e *event.Event) int
}

// SubscribeOption changes one Subscribe.
type SubscribeOption func(*subscribeOptions)

type subscribeOptions struct {
	matcher          Matcher
	wholeTransaction bool
	untilSaved       bool
}

// WithMatcher decides with m instead of reading the filter text as a list of
// table patterns. The text is still saved and listed.
func WithMatcher(m Matcher) SubscribeOption {
	return func(o *subscribeOptions) { o.matcher = m }
}

// WithWholeTransaction hands out a transaction that was acknowledged in part from its
// start again, rows that were acknowledged included, as Canal's clients expect.
func WithWholeTransaction() SubscribeOption {
	return func(o *subscribeOptions) { o.wholeTransaction = true }
}

// UntilSaved lets Subscribe wait, until its context ends, while the store refuses the first cursor; without it that is an error.
func UntilSaved() SubscribeOption {
	return func(o *subscribeOptions) { o.untilSaved = true }
}

// Size says when a batch is full: as soon as it reaches one of the limits that
// are above zero. It may pass a limit of Rows or Bytes by less than its last event. No limit
// at all stands for DefaultBatchEvents.
type Size struct {
	Events int   // events, begins and ends included
	Rows   int   // row changes
	Bytes  int64 // bytes of events in memory (Event.Size), or what the matcher says of them (see [Weigher])
}

// Wait says how long a get waits.
type Wait struct {
	mode waitMode
	d    time.Duration
}

type waitMode uint8

const (
	waitNone waitMode = iota
	waitAny
	waitFull
	waitAtMost
)

// How a get waits.
var (
	// NoWait takes what is there.
	NoWait = Wait{mode: waitNone}
	// WaitAny waits for one event and takes what is there then.
	WaitAny = Wait{mode: waitAny}
	// WaitFull waits until the batch is full, or the ring is full and nothing more can come.
	WaitFull = Wait{mode: waitFull}
)

// WaitAtMost waits until the batch is full, at most for d, and takes what is there then.
func WaitAtMost(d time.Duration) Wait { return Wait{mode: waitAtMost, d: d} }

// NoBatch is the ID of an empty batch, which needs no acknowledgement.
const NoBatch int64 = -1

// Batch is what one get hands out. It may end inside a transaction. Events are
// shared with other subscriptions and must not be changed.
type Batch struct {
	ID     int64 // rises from batch to batch of a subscription, also across restarts; NoBatch when there are no events
	Events []*event.Event
}

// Errors of the subscribers' calls; the errors returned wrap one of them where
// the case fits and say more.
var (
	ErrUnknownDestination = errors.New("no such destination")
	ErrNotSubscribed      = errors.New("not subscribed")
	ErrUnknownBatch       = errors.New("unknown batch id")
	ErrBatchOrder         = errors.New("batch acknowledged out of order")
	ErrOutstanding        = errors.New("an earlier batch is not acknowledged")
	ErrStopped            = errors.New("server stopped")
	ErrBatchIDs           = errors.New("no batch ids left that are reserved on disk")

	// ErrFenced is [meta.ErrFenced]: another process owns the destination now (I8).
	ErrFenced = meta.ErrFenced
)

// BatchError is returned by Ack and RollbackTo for an id that they cannot take. It unwraps to
// ErrUnknownBatch or ErrBatchOrder.
type BatchError struct {
	Identity Identity
	Op       string // "ack" or "rollback"
	ID       int64  // the id given
	Oldest   int64  // the oldest outstanding id; NoBatch when there is none
	Err      error
}

func (e *BatchError) Error() string {
	if e.Oldest == NoBatch {
		return fmt.Sprintf("%s: %s of batch %d: %v: no batch is outstanding", e.Identity, e.Op, e.ID, e.Err)
	}
	return fmt.Sprintf("%s: %s of batch %d: %v: the oldest outstanding batch is %d", e.Identity, e.Op, e.ID, e.Err, e.Oldest)
}

// Unwrap returns ErrUnknownBatch or ErrBatchOrder.
func (e *BatchError) Unwrap() error { return e.Err }

// DestinationError says that reading a destination, or one subscription's catch-up reader, has stopped. Nothing
// is lost: [Server.Restart] reads on where it stopped.
type DestinationError struct {
	Destination string
	Client      string // the subscription whose catch-up reader failed; "" for the destination's reader
	Err         error
}

func (e *DestinationError) Error() string {
	// A source's errors name the destination too.
	cause := strings.TrimPrefix(e.Err.Error(), "destination "+e.Destination+": ")
	if e.Client != "" {
		return fmt.Sprintf("destination %s: catch-up reader of client %s stopped: %s", e.Destination, e.Client, cause)
	}
	return fmt.Sprintf("destination %s: reading stopped: %s", e.Destination, cause)
}

// Unwrap returns the reader's error.
func (e *DestinationError) Unwrap() error { return e.Err }

// SaveError says that a cursor moved in memory but could not be saved yet. Saving goes on in
// the background.
type SaveError struct {
	Identity Identity
	Err      error
}

func (e *SaveError) Error() string {
	return fmt.Sprintf("%s: acknowledged, but the cursor is not saved: %v", e.Identity, e.Err)
}

// Unwrap returns why saving failed.
func (e *SaveError) Unwrap() error { return e.Err }

// SubscriptionInfo is one line of ListSubscriptions.
type SubscriptionInfo struct {
	Identity  Identity
	Filter    string
	Connected bool
}

// State says whether a destination is being read.
type State uint8

// The states of a destination.
const (
	Idle    State = iota // not started, or no subscription is connected yet
	Reading              // its reader runs
	Failed               // its reader has stopped with an error
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Reading:
		return "reading"
	case Failed:
		return "failed"
	}
	return "idle"
}

// DestinationStatus is what health checks and metrics show of a destination.
type DestinationStatus struct {
	Name          string
	State         State
	Err           error // why State is Failed
	RingEvents    int   // events in the main ring
	RingBytes     int64 // their bytes
	MaxEvents     int   // bounds of the ring
	MaxBytes      int64
	FullSince     time.Time      // since when the reader has been held up by a full ring; zero when it is not
	Put           int64          // ordinal of the last counted event read
	Ack           int64          // lowest ordinal that all connected subscriptions have acknowledged
	Position      event.Position // last transaction end read
	Events        int64          // events read into the main ring since start
	Rows          int64          // row changes read into the main ring since start
	Bytes         int64          // bytes read into the main ring since start
	Subscriptions []SubscriptionStatus
}

// SubscriptionStatus is what health checks and metrics show of a connected subscription.
type SubscriptionStatus struct {
	Identity      Identity
	Filter        string
	Feed          Feed
	Err           error        // why its own reader has stopped
	Cursor        event.Cursor // acknowledged
	Lag           int64        // ordinals that the destination has read and this subscription has not acknowledged
	Batches       int          // outstanding
	OldestUnacked time.Time    // when the oldest outstanding batch was handed out; zero when there is none
	OldestEvent   time.Time    // commit time of the oldest event that is not acknowledged; zero when none is known
	RingEvents    int          // events in a ring of its own
	RingBytes     int64
	Saved         int64     // ordinal of the saved cursor
	SavedAt       time.Time // when it was written
	SaveErr       error     // why the cursor cannot be saved now; it is retried
	Rows          int64     // row changes acknowledged since it connected, filtered-out ones included
	Detached      int64     // times it was detached from the main ring since it connected
}

// Feed says where a connected subscription gets its events from.
type Feed uint8

// The feeds.
const (
	FeedRing    Feed = iota // the main ring
	FeedAhead               // the main ring, which has not come to its cursor yet
	FeedOwn                 // a ring of its own that holds what it had when it was detached; no reader runs
	FeedCatchUp             // a ring of its own that a catch-up reader fills
	FeedQueued              // a ring of its own; waits until one of the limited catch-up readers is free
)

// String returns the feed's name in lower case.
func (f Feed) String() string {
	switch f {
	case FeedAhead:
		return "ahead"
	case FeedOwn:
		return "own"
	case FeedCatchUp:
		return "catch-up"
	case FeedQueued:
		return "queued"
	}
	return "ring"
}
