// Package canalview says what a client with Canal's contract sees of what a destination's ring holds, over TCP or in the same process. It
// starts no goroutine and must never change an event.
package canalview

import (
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/server"
)

var _ interface {
	server.Matcher
	server.TableMatcher
	server.StatementMatcher
	server.Weigher
} = Subscription{}

// Tables decides which tables somebody sees.
type Tables = server.Matcher

// Entries says how large an event's entry is, about.
type Entries interface {
	EntrySize(e *event.Event) int
}

// Subscription is what a client sees: the rows of certain tables, and the statements about them; and the size of its batches, which
// counts entries as with Canal. It implements [server.Matcher] and what a matcher may have beside.
type Subscription struct {
	Tables
	Entries
}

// of returns the tables as a source has them that tells upper from lower case, or does not.
func (s Subscription) of(caseless bool) Tables {
	if f, ok := s.Tables.(*tablefilter.Filter); ok {
		return f.For(caseless)
	}
	return s.Tables // Canal's filters know no case
}

// MatchTable implements [server.TableMatcher].
func (s Subscription) MatchTable(t *event.Table) bool {
	return s.of(t.Caseless).Match(t.Schema, t.Name)
}

// Weight implements [server.Weigher].
func (s Subscription) Weight(e *event.Event) int { return s.EntrySize(e) }

// MatchStatement tells whether the client sees a statement: one about a table that it sees, by its old or new name, or
// about none. What is withheld nobody sees.
func (s Subscription) MatchStatement(e *event.Event) bool {
	return e.Stmt != nil && e.Stmt.Concerns(s.of(e.Stmt.Caseless).Match, func(string) bool { return true })
}

// WithoutEmpty returns the events without the transactions of which nothing lies between Begin and End. If
// nothing else is there, the last of them stays, lest a batch be empty.
func WithoutEmpty(events []*event.Event) []*event.Event {
	var out []*event.Event // nil until one is left out
	for i := 0; i < len(events); i++ {
		if i+1 < len(events) && events[i].Kind == event.Begin && events[i+1].Kind == event.End && (i+2 < len(events) || i > 0 && (out == nil || len(out) > 0)) {
			if out == nil {
				out = append(make([]*event.Event, 0, len(events)), events[:i]...)
			}
			i++
			continue
		}
		if out != nil {
			out = append(out, events[i])
		}
	}
	if out == nil {
		return events
	}
	return out
}
