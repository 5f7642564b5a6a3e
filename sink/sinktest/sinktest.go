package sinktest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/sink"
)

// SeqHeader is the header in which the suite's messages carry their sequence
// as decimal text.
const SeqHeader = "seq"

// patience is how long the suite waits for what must happen; only a sink that
// hangs ever uses it up.
const patience = 2 * time.Minute

// Stored is a message as an independent reader finds it. A nil Key means that
// the message has none, a nil Value that it is a tombstone.
type Stored struct {
	Key, Value []byte
	Headers    []sink.Header // in any order
}

// Bounds limits what a sink may hold; zero means the sink's default.
type Bounds struct {
	Messages int   // accepted and not done
	Bytes    int64 // their payload bytes; a single larger message passes alone
}

// Harness tells the suite how to deal with one implementation.
type Harness struct {
	// Open returns a new sink with these bounds. All sinks of one test write to the
	// same system, under the same names, as restarts of one process would. The suite closes them.
	Open func(t testing.TB, b Bounds) sink.Sink

	// NewTopic returns the name of a topic that nobody used before. The suite asks for at
	// most Partitions partitions.
	NewTopic func(t testing.TB, partitions int32) string

	// Read returns what is stored now in one partition of topic, in order.
	Read func(t testing.TB, topic string, partition int32) []Stored

	// Partitions is the largest number of partitions that a topic can have; 1
	// where the sink knows none.
	Partitions int32

	// Topics is how many topics the test of many topics uses; 0 means 20.
	Topics int

	// ExactlyOnce says that a replay with the same sequences stores nothing twice, in a
	// new session and in a new sink.
	ExactlyOnce bool

	// EmptyKey says that an empty key can be told from none.
	EmptyKey bool

	// Refuse, if given, returns what makes a message one that this sink refuses
	// for good: too large, for instance.
	Refuse func(m *sink.Message)

	// Stall, if given, makes the system stop confirming (a paused broker, a full disk, a
	// pipe that nobody reads) until resume is called.
	Stall func(t testing.TB) (resume func())

	// Leaks are options for goleak, for goroutines that a client library leaves to
	// die by themselves.
	Leaks []goleak.Option
}

// Recorder is an owner that remembers what became of each message. Its methods
// may be called from any goroutine.
type Recorder struct {
	mu     sync.Mutex
	change chan struct{} // closed and replaced at each completion
	times  map[*sink.Message]int
	errs   map[*sink.Message]error
	n      int
	failed int
	hook   func(*sink.Message, error)
}

// NewRecorder returns a recorder. The hook, if not nil, runs in each
// MessageDone, before it is recorded.
func NewRecorder(hook func(*sink.Message, error)) *Recorder {
	return &Recorder{change: make(chan struct{}), times: map[*sink.Message]int{}, errs: map[*sink.Message]error{}, hook: hook}
}

// MessageDone implements sink.Owner.
func (r *Recorder) MessageDone(m *sink.Message, err error) {
	if r.hook != nil {
		r.hook(m, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[m]++
	r.errs[m] = err
	r.n++
	if err != nil {
		r.failed++
	}
	close(r.change)
	r.change = make(chan struct{})
}

// Count returns how many completions came, and how many of them with an error.
func (r *Recorder) Count() (done, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.failed
}

// Result returns how often m was done and the last error.
func (r *Recorder) Result(m *sink.Message) (times int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times[m], r.errs[m]
}

// Wait returns when n completions have come or ctx ends.
func (r *Recorder) Wait(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		have, change := r.n, r.change
		r.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d completions: %w", have, n, ctx.Err())
		}
	}
}

// Messages returns n messages for one lane with rising sequences from first on.
func Messages(owner sink.Owner, topic string, partition int32, first int64, n int) []sink.Message {
	msgs := make([]sink.Message, n)
	for i := range msgs {
		Fill(&msgs[i], owner, topic, partition, first+int64(i))
	}
	return msgs
}

// Fill makes m the suite's message with that sequence; the content is a function of it.
func Fill(m *sink.Message, owner sink.Owner, topic string, partition int32, seq int64) {
	text := strconv.FormatInt(seq, 10)
	m.Topic, m.Partition, m.Sequence, m.Owner = topic, partition, seq, owner
	m.Time = 1_700_000_000_000 + seq
	m.Key = []byte("k" + strconv.FormatInt(seq%17, 10))
	m.Value = []byte(`{"id":` + text + `,"note":"row ` + text + `"}`)
	m.Headers = []sink.Header{{Name: SeqHeader, Value: []byte(text)}, {Name: "gtid", Value: []byte("3E11FA47-71CA-11E1-9E33-C80AA9429562:" + text)}}
}

// Seq returns the sequence that a stored message carries, or -1.
func Seq(s *Stored) int64 {
	for i := range s.Headers {
		if s.Headers[i].Name == SeqHeader {
			if n, err := strconv.ParseInt(string(s.Headers[i].Value), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// Seqs returns the sequences of stored messages.
func Seqs(stored []Stored) []int64 {
	out := make([]int64, len(stored))
	for i := range stored {
		out[i] = Seq(&stored[i])
	}
	return out
}

// CheckExact fails t unless stored holds exactly the sequences want, in order.
func CheckExact(t testing.TB, where string, stored []Stored, want []int64) {
	t.Helper()
	got := Seqs(stored)
	for i := 0; i < len(got) && i < len(want); i++ {
		if got[i] != want[i] {
			t.Fatalf("%s: message %d is number %d, want %d (%d stored, %d wanted)", where, i, got[i], want[i], len(got), len(want))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d messages stored, want %d", where, len(got), len(want))
	}
}

// CheckAtLeastOnce fails t unless stored holds each of want, the first
// appearances are in order, and the last one stored is the last one wanted.
func CheckAtLeastOnce(t testing.TB, where string, stored []Stored, want []int64) {
	t.Helper()
	index := make(map[int64]int, len(want))
	for i, w := range want {
		index[w] = i
	}
	next, last := 0, -1
	for _, seq := range Seqs(stored) {
		i, ok := index[seq]
		switch {
		case !ok:
			t.Fatalf("%s: number %d was never published", where, seq)
		case i > next:
			t.Fatalf("%s: number %d came before number %d", where, seq, want[next])
		case i == next:
			next++
		}
		last = i
	}
	if next != len(want) {
		t.Fatalf("%s: number %d is missing", where, want[next])
	}
	if last != len(want)-1 {
		t.Fatalf("%s: the last message stored is number %d, want %d", where, want[last], want[len(want)-1])
	}
}
