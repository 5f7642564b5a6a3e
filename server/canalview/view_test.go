package canalview

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

func TestWithoutEmpty(t *testing.T) {
	kinds := map[rune]event.Kind{'b': event.Begin, 'r': event.Rows, 'd': event.DDL, 'e': event.End}
	for in, want := range map[string]string{
		"": "", "be": "be", "bebe": "be", "bebebe": "be", "bre": "bre", "brebe": "bre", "bebre": "bre", "bebrebebdebe": "brebde",
		"b": "b", "e": "e", "ebe": "e", "beb": "b", "rebeb": "reb", "rrebebr": "rrebr",
	} {
		var events []*event.Event
		for _, k := range in {
			events = append(events, &event.Event{Kind: kinds[k]})
		}
		got := ""
		for _, e := range WithoutEmpty(events) {
			got += e.Kind.String()[:1]
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		if len(events) > 0 && events[0].Kind != kinds[rune(in[0])] {
			t.Errorf("%q: the events given were changed", in)
		}
	}
}

// only sees one table.
type only string

func (o only) Match(schema, table string) bool { return string(o) == schema+"."+table }

func TestMatchStatement(t *testing.T) {
	for sql, want := range map[string]string{ // who sees it of the tables named here; "all": everybody
		"CREATE TABLE a (id INT)":        "shop.a",
		"ALTER TABLE b.a ADD c INT":      "b.a",
		"TRUNCATE a":                     "shop.a",
		"RENAME TABLE x.a TO y.b":        "x.a y.b",
		"ALTER TABLE a RENAME y.b":       "shop.a y.b",
		"CREATE INDEX i ON a (id)":       "shop.a",
		"DROP TABLE a, x.a":              "shop.a x.a",
		"CREATE VIEW b.a AS SELECT 1":    "b.a",
		"DROP TEMPORARY TABLE a":         "",
		"CREATE DATABASE other":          "all",
		"CREATE PROCEDURE a() SELECT 1":  "all",
		"DROP TABLE a, 'b'":              "all",
		"what nobody has ever called it": "all",
	} {
		var saw []string
		for _, table := range []string{"b.a", "shop.a", "x.a", "y.b", "z.z"} {
			e := &event.Event{Kind: event.DDL, Stmt: ddl.Describe(&ddl.Statement{Text: sql, Schema: "shop"}, ddl.Server{Version: 90700})}
			if (Subscription{Tables: only(table)}).MatchStatement(e) {
				saw = append(saw, table)
			}
		}
		got := strings.Join(saw, " ")
		if len(saw) == 5 {
			got = "all"
		}
		if got != want {
			t.Errorf("%s: seen by %q, want %q", sql, got, want)
		}
	}
	if (Subscription{Tables: only("shop.a")}).MatchStatement(&event.Event{Kind: event.DDL, Schema: "shop"}) {
		t.Error("a statement that is withheld is seen")
	}
}

// TestCaseless: patterns of the configuration know no case where the source knows none.
func TestCaseless(t *testing.T) {
	tables, err := tablefilter.New([]string{"Shop.*", "!shop.TMP_*"})
	if err != nil {
		t.Fatal(err)
	}
	s := Subscription{Tables: tables}
	for _, c := range []struct {
		schema, name string
		caseless     bool
		want         bool
	}{
		{"Shop", "a", false, true}, {"shop", "a", false, false}, {"Shop", "tmp_a", false, true},
		{"shop", "a", true, true}, {"shop", "tmp_a", true, false}, {"shops", "a", true, false},
	} {
		if got := s.MatchTable(&event.Table{Schema: c.schema, Name: c.name, Caseless: c.caseless}); got != c.want {
			t.Errorf("%+v: table seen: %t", c, got)
		}
		stmt := ddl.Describe(&ddl.Statement{Text: "TRUNCATE `" + c.name + "`", Schema: c.schema}, ddl.Server{Version: 90700, Caseless: c.caseless})
		if got := s.MatchStatement(&event.Event{Kind: event.DDL, Stmt: stmt}); got != c.want {
			t.Errorf("%+v: statement seen: %t", c, got)
		}
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

// FuzzWithoutEmpty: nothing but pairs of a Begin and the End behind it is left out, and never everything.
func FuzzWithoutEmpty(f *testing.F) {
	f.Add([]byte{0, 3, 0, 1, 3, 0, 3})
	f.Fuzz(func(t *testing.T, kinds []byte) {
		var events []*event.Event
		for _, k := range kinds {
			events = append(events, &event.Event{Kind: event.Begin + event.Kind(k%4)})
		}
		got := WithoutEmpty(events)
		at := 0
		for i := 0; i < len(events); i++ {
			if at < len(got) && got[at] == events[i] {
				at++
				continue
			}
			if i+1 == len(events) || events[i].Kind != event.Begin || events[i+1].Kind != event.End {
				t.Fatalf("event %d of %v is missing", i, kinds)
			}
			i++
		}
		if at != len(got) || len(got) == 0 && len(events) > 0 {
			t.Fatalf("%d of %d events are left of %v", len(got), len(events), kinds)
		}
	})
}
