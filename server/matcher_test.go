package server

import (
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// caseful matches by what a table is, not by its name, and says that every event weighs a hundred.
type caseful struct{}

func (caseful) Match(string, string) bool          { return false }
func (caseful) MatchTable(t *event.Table) bool     { return !t.Caseless }
func (caseful) Weight(*event.Event) int            { return 100 }
func (caseful) MatchStatement(e *event.Event) bool { return e.Stmt == nil }

// TestMatchers: a matcher is asked for what it knows beyond names.
func TestMatchers(t *testing.T) {
	s := newSub(Identity{Destination: "d", Client: "1"})
	plain, folded := &event.Table{Schema: "shop", Name: "item"}, &event.Table{Schema: "shop", Name: "item", Caseless: true}
	e := &event.Event{Size: 7}
	s.setFilter("", caseful{})
	if !s.wants(plain) || s.wants(folded) || s.weight(e) != 100 || !s.wantsStatement(e) {
		t.Error("a matcher that knows tables and weights is not asked")
	}
	f, err := tablefilter.New([]string{"Shop.*"})
	if err != nil {
		t.Fatal(err)
	}
	s.setFilter("", f)
	if s.wants(plain) || !s.wants(folded) || s.weight(e) != 7 || !s.wantsStatement(e) {
		t.Error("patterns know case where the source does not, or the other way round")
	}
}
