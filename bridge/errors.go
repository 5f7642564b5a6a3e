package bridge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// StopError is an error that no retry mends: the sink's subscription stops
// before the change that cannot be sent, and keeps its cursor there (I3).
type StopError struct {
	Destination string
	Sink        string
	Table       string // "schema.table"; "" where no table is meant
	Position    string // FILE:OFFSET and GTID of the event; "" where no event is meant
	Err         error
	Remedy      string // what to do
}

// Error says what, where and what to do.
func (e *StopError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "destination %s, sink %s: stopped", e.Destination, e.Sink)
	if e.Table != "" {
		fmt.Fprintf(&b, " at table %s", e.Table)
	}
	if e.Position != "" {
		fmt.Fprintf(&b, ", position %s", e.Position)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; remedy: %s", e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *StopError) Unwrap() error { return e.Err }

// ErrDrain is returned by Run and Drain when the time to drain was over before the sink had
// confirmed everything. Nothing is lost: what was not confirmed is sent again at the next start.
var ErrDrain = errors.New("bridge: stopped before everything was confirmed; the rest is sent again at the next start")

// stopAt makes a StopError for an event.
func stopAt(e *event.Event, err error, remedy string) *StopError {
	s := &StopError{Position: where(e), Err: err, Remedy: remedy}
	if e.Table != nil {
		s.Table = e.Table.Schema + "." + e.Table.Name
	}
	return s
}

// where writes an event's position for people.
func where(e *event.Event) string {
	s := fmt.Sprintf("%s:%d", e.File, e.Start)
	switch snapshot := e.Snapshot(); {
	case snapshot != nil:
		s += " (snapshot " + snapshot.String() + ")"
	case e.Txn != nil && !e.Txn.GTID.IsZero():
		s += " (" + e.Txn.GTID.String() + ")"
	}
	return s
}

// repartitionError says that a topic has another number of partitions than the cursor's
// state says: the replay would put rows elsewhere than before, so a new epoch begins.
type repartitionError struct {
	topic    string
	was, now int32
}

func (e *repartitionError) Error() string {
	return fmt.Sprintf("topic %s has %d partitions now, %d before", e.topic, e.now, e.was)
}

// heldError says that everything below the ordinal was handed to the sink, and nothing from it on, when the
// session came to a change that it cannot pass.
type heldError struct {
	error
	ordinal int64
}

// late says that the broker has refused the change, perhaps when later ones were stored already. All other changes that
// cannot be passed are recognised before anything is sent, by whoever counts as this run does.
func (e *heldError) late() bool {
	var large *sink.TooLargeError
	return errors.As(e.error, &large)
}

func (e *heldError) Unwrap() error { return e.error }

// held marks an error of the change with the ordinal.
func held(err error, ordinal int64) error {
	var stop *StopError
	var re *repartitionError
	if errors.As(err, &stop) || errors.As(err, &re) {
		return &heldError{err, ordinal}
	}
	return err
}

// ErrUnfinished is in the chain of the StopError of a sink whose configuration changed while what was sent after
// the cursor may be stored already, and was not sent again under the old one first.
var ErrUnfinished = errors.New("the configuration changed while messages after the cursor may be stored already")

// permanent is how a sink marks an error that no retry mends.
type permanent interface{ Permanent() bool }

// final returns the error to stop with, or nil if err is worth a retry. It is
// the one place where the bridge decides that.
func (b *Bridge) final(err error) error {
	var stop *StopError
	if errors.As(err, &stop) {
		if stop.Destination == "" {
			c := *stop
			c.Destination, c.Sink = b.o.Destination, b.o.Name
			return &c
		}
		return err
	}
	var p permanent
	if errors.As(err, &p) && p.Permanent() {
		return &StopError{Destination: b.o.Destination, Sink: b.o.Name, Err: err, Remedy: "see the error; then start the sink again"}
	}
	if errors.Is(err, server.ErrFenced) { // I8
		return &StopError{Destination: b.o.Destination, Sink: b.o.Name, Err: err, Remedy: "another process owns the destination; stop one of the two"}
	}
	for _, e := range []error{server.ErrStopped, server.ErrNotSubscribed, server.ErrUnknownDestination} {
		if errors.Is(err, e) {
			return &StopError{Destination: b.o.Destination, Sink: b.o.Name, Err: err, Remedy: "subscribe and run the sink again"}
		}
	}
	return nil
}
