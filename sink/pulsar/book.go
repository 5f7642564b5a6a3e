package pulsar

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/sink"
)

// DeliveryError is an error that no retry mends: going on could lose or double messages.
type DeliveryError struct {
	Topic  string // of one partition where the topic has partitions; "" where no topic is meant
	Err    error
	Remedy string
}

func (e *DeliveryError) Error() string {
	if e.Topic == "" {
		return fmt.Sprintf("pulsar: %v; %s", e.Err, e.Remedy)
	}
	return fmt.Sprintf("pulsar: topic %s: %v; %s", e.Topic, e.Err, e.Remedy)
}

// Unwrap returns the cause.
func (e *DeliveryError) Unwrap() error { return e.Err }

// Permanent says that the sink must stop.
func (e *DeliveryError) Permanent() bool { return true }

// Causes of a DeliveryError.
var (
	ErrLostMessages = errors.New("messages that the broker had confirmed are gone, and so is what it remembered of them: the topic was deleted and made again, or its end was trimmed while we were away")
	ErrNoCursor     = errors.New("the broker knows messages of this name, though no cursor is saved")
	ErrBadState     = errors.New("the sink's state that is saved with the cursor cannot be read")
)

const newLifeRemedy = "when that is understood, begin anew with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"

// account is what the broker has confirmed of one topic partition.
type account struct {
	confirmed atomic.Int64 // highest id with a receipt; everything of ours up to it is stored; -1: none
	quiet     atomic.Bool  // the lane has ended, and everything that was ever sent is confirmed
	suspect   atomic.Int64 // id of a message that was refused, or left without receipt, though later ones may be stored: it must not be taken for stored; -1: none
}

// book holds the accounts, which are saved with the cursor: a broker that remembers less than was confirmed
// has forgotten (I3), and what was confirmed is never sent again (I7). Its methods may be called from any goroutine.
type book struct {
	active atomic.Bool  // a receipt came since the time was last taken
	notes  atomic.Int64 // suspects so far

	mu       sync.Mutex
	accounts map[string]*account
	names    []string // of accounts; sorted if !unsorted
	unsorted bool
	seen     int64 // unix milliseconds of the last receipts
	away     bool  // when the state was restored they were older than the broker is sure to remember us
	virgin   bool  // restored from nothing
}

func newBook() *book { return &book{accounts: map[string]*account{}} }

// account returns that of a topic partition by its full name, made on first use.
func (b *book) account(name string) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[name]
	if a == nil {
		a = b.open(name, -1)
	}
	return a
}

func (b *book) open(name string, confirmed int64) *account {
	a := &account{}
	a.confirmed.Store(confirmed)
	a.suspect.Store(-1)
	b.accounts[name] = a
	b.names = append(b.names, name)
	b.unsorted = true
	return a
}

func (b *book) confirm(a *account, id int64) {
	a.confirmed.Store(id)
	if !b.active.Load() {
		b.active.Store(true)
	}
}

func (b *book) circumstances() (away, virgin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away, b.virgin
}

const (
	stateVersion    = 1
	suspectsVersion = 2 // there are suspects behind the accounts
	maxAccounts     = 1 << 24
)

// saved is what a state says, by topic partitions' full names.
type saved struct {
	seen      int64 // unix milliseconds of the last receipts
	confirmed map[string]int64
	suspects  map[string]int64
}

// append encodes the book: version, time of the last receipts, and the list of what is confirmed; with version 2 the list of suspects
// as well. Lists have the number of their topics, and of each, sorted by name, the length of what its name shares with the one before, the
// length of the rest, the rest, and id+1. Numbers are varints.
func (b *book) append(dst []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active.Swap(false) {
		b.seen = time.Now().UnixMilli()
	}
	if b.unsorted {
		slices.Sort(b.names)
		b.unsorted = false
	}
	start := len(dst)
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, uint64(b.seen))
	dst, _ = b.list(dst, func(a *account) int64 { return a.confirmed.Load() })
	with, n := b.list(dst, func(a *account) int64 { return a.suspect.Load() })
	if n == 0 {
		return dst
	}
	with[start] = suspectsVersion
	return with
}

// list appends those accounts of which id is not negative, and returns how many there were. b.mu is held.
func (b *book) list(dst []byte, id func(*account) int64) ([]byte, int) {
	ids := make([]int64, len(b.names))
	n := 0
	for i, name := range b.names {
		if ids[i] = id(b.accounts[name]); ids[i] >= 0 {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	before := ""
	for i, name := range b.names {
		if ids[i] < 0 {
			continue
		}
		same := 0
		for same < min(len(before), len(name)) && before[same] == name[same] {
			same++
		}
		dst = binary.AppendUvarint(dst, uint64(same))
		dst = binary.AppendUvarint(dst, uint64(len(name)-same))
		dst = append(dst, name[same:]...)
		dst = binary.AppendUvarint(dst, uint64(ids[i]+1))
		before = name
	}
	return dst, n
}

// parseState decodes what append made.
func parseState(b []byte) (saved, error) {
	bad := func() (saved, error) {
		return saved{}, fmt.Errorf("%w (version %d, %d bytes)", ErrBadState, append(b[:len(b):len(b)], 0)[0], len(b))
	}
	if len(b) == 0 || b[0] != stateVersion && b[0] != suspectsVersion {
		return bad()
	}
	rest, ok := b[1:], true
	number := func(limit uint64) uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > limit {
			ok = false
			return 0
		}
		rest = rest[n:]
		return v
	}
	list := func() map[string]int64 {
		n := number(maxAccounts)
		ids := map[string]int64{}
		name := ""
		for range n {
			same := number(uint64(len(name)))
			size := number(uint64(len(rest)))
			if !ok || size > uint64(len(rest)) {
				ok = false
				return nil
			}
			name = name[:same] + string(rest[:size])
			rest = rest[size:]
			ids[name] = int64(number(math.MaxInt64)) - 1
		}
		if len(ids) != int(n) {
			ok = false
		}
		return ids
	}
	s := saved{seen: int64(number(math.MaxInt64))}
	s.confirmed = list()
	if ok && b[0] == suspectsVersion {
		s.suspects = list()
	}
	if !ok || len(rest) > 0 {
		return bad()
	}
	return s, nil
}

// restore replaces the book's content.
func (b *book) restore(from saved, away, virgin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts, b.names = map[string]*account{}, nil
	for name, id := range from.confirmed {
		b.open(name, id)
	}
	for name, id := range from.suspects {
		a := b.accounts[name]
		if a == nil {
			a = b.open(name, -1)
		}
		a.suspect.Store(id)
	}
	b.seen, b.away, b.virgin = from.seen, away, virgin
}

var (
	_ sink.Forgetful = (*Sink)(nil)
	_ sink.Noting    = (*Sink)(nil)
)

// Forgetful implements sink.Forgetful.
func (s *Sink) Forgetful() {}

// KeepsState implements sink.Stateful.
func (s *Sink) KeepsState() bool { return true }

// Mark implements sink.Stateful.
func (s *Sink) Mark() int64 { return s.accepted }

// Acknowledge implements sink.Stateful. What counts here is what the broker confirmed, wherever the cursor is.
func (s *Sink) Acknowledge(int64) {}

// suspect notes that a message was refused, or is left without receipt, though later ones may be stored.
func (b *book) suspect(a *account, id int64) {
	a.suspect.Store(id)
	b.notes.Add(1)
}

// Notes implements sink.Noting.
func (s *Sink) Notes() int64 { return s.book.notes.Load() }

// AppendState implements sink.Stateful.
func (s *Sink) AppendState(dst []byte) []byte { return s.book.append(dst) }

// Restore implements sink.Stateful. It asks no broker: each topic is looked at when it is opened.
func (s *Sink) Restore(ctx context.Context, state []byte, how sink.Continuation) (fresh bool, err error) {
	now := time.Now().UnixMilli()
	switch {
	case how == sink.Moved:
		// What the broker confirmed before the cursor was moved is not what comes now.
		s.book.restore(saved{seen: now}, false, false)
	case len(state) == 0:
		s.book.restore(saved{seen: now}, false, true)
	default:
		from, err := parseState(state)
		if err != nil {
			return false, &DeliveryError{Err: err, Remedy: "restore the cursor from a backup, or begin anew with `binlogmq cursor new-life`, which may repeat messages sent after the cursor"}
		}
		away := now-from.seen > s.opt.DeduplicationWindow.Milliseconds()
		if away && len(from.confirmed) > 0 {
			s.opt.Logger.Warn("pulsar: the last receipt is older than the broker is sure to remember our messages; where it has forgotten them the ends of the topics are read",
				"last_receipt", time.UnixMilli(from.seen).UTC(), "deduplication_window", s.opt.DeduplicationWindow)
		}
		s.book.restore(from, away, false)
	}
	s.mu.Lock()
	s.topics = map[string]*topicInfo{} // as their owner does, who learns them again
	first := !s.restored
	s.restored = true
	s.mu.Unlock()
	if first {
		return false, nil
	}
	return false, s.Reset(ctx)
}

// standing finds out, when a topic partition has been opened, up to which id everything is stored. last is what the
// broker remembers of our name; nobody else can send under it now.
func (s *Sink) standing(ctx context.Context, back backend, where, namespace string, prod producer, a *account, last int64) (stored int64, err error) {
	confirmed := a.confirmed.Load()
	s.mu.Lock()
	deduplicates := s.checked[namespace]
	s.mu.Unlock()
	away, virgin := s.book.circumstances()
	switch {
	case !deduplicates: // at least once, as configured
		return confirmed, nil
	case last >= confirmed && (last >= 0 || !away || confirmed >= 0):
		if virgin && confirmed < 0 && last >= 0 {
			return last, errVirgin
		}
		prod.expect(confirmed)
		return confirmed, nil
	}
	// I3: the broker has forgotten us.
	if confirmed >= 0 {
		if err := s.deduplicatedStill(ctx, back, namespace); err != nil {
			return 0, err
		}
	}
	tail, err := back.tail(ctx, where)
	if err != nil {
		return 0, fmt.Errorf("pulsar: topic %s: the broker has forgotten our messages, so the end of the topic has to be read: %s%w", where, consumeAdvice(err, namespace), err)
	}
	switch {
	case tail >= confirmed && tail >= 0:
		s.opt.Logger.Warn("pulsar: the broker has forgotten what it stored of us, but the topic has it; sending goes on behind its last message",
			"topic", where, "broker_remembers", last>>subIndexBits, "stored", tail>>subIndexBits, "confirmed", confirmed>>subIndexBits)
		return tail, nil
	case confirmed < 0:
		return confirmed, nil // never used, as far as anybody knows
	case a.quiet.Load():
		s.opt.Logger.Warn("pulsar: the topic has lost messages that were confirmed, and the broker has forgotten them: was it deleted while it was idle? Sending goes on with new messages; nothing was on its way",
			"topic", where, "confirmed", confirmed>>subIndexBits)
		return confirmed, nil
	}
	return 0, &DeliveryError{Topic: where, Remedy: newLifeRemedy,
		Err: fmt.Errorf("%w (sequence %d was confirmed; the topic ends at %s)", ErrLostMessages, confirmed>>subIndexBits, sequenceText(tail))}
}

// errVirgin marks a topic that has messages of ours though we have never been anywhere.
var errVirgin = errors.New("no cursor")

func sequenceText(id int64) string {
	if id < 0 {
		return "nothing of ours"
	}
	return fmt.Sprint("sequence ", id>>subIndexBits)
}

func consumeAdvice(err error, namespace string) string {
	if remedy := readRemedy(err, namespace); remedy != "" {
		return remedy + ": "
	}
	return ""
}

// noCursor refuses a message whose id the broker has seen, though nothing was saved of that: it would be dropped as a duplicate.
func noCursor(where string, id, last int64) error {
	return &DeliveryError{Topic: where, Err: fmt.Errorf("%w: up to sequence %d, and the next one to send is %d, which would be dropped as a duplicate", ErrNoCursor, last>>subIndexBits, id>>subIndexBits),
		Remedy: "restore the cursor from a backup; or give this sink another deployment name, under which everything after the new cursor is sent"}
}
