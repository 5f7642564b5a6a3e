package connector

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
)

// I6: definitions that were read while statements came are kept but for what the statements may have changed.
func TestCatalogBesideStatements(t *testing.T) {
	name := func(s string) ddl.Name {
		schema, table, _ := strings.Cut(s, ".")
		return ddl.Name{Schema: schema, Table: table}
	}
	table := name("shop.t")
	for _, c := range []struct {
		sql   string
		table *ddl.Name // looked up alone
		want  string    // what is to be read again
		left  string
	}{
		{"ALTER TABLE elsewhere.x ADD c INT", nil, "", "big big.u shop shop.t shop.v"},
		{"ALTER TABLE t ADD c INT", nil, "shop.t", "big big.u shop.v"},
		{"RENAME TABLE t TO big.w", nil, "big.w shop.t", "big.u shop.v"},
		{"DROP DATABASE shop", nil, "shop shop.t shop.v", "big big.u"},
		{"FROBNICATE v", nil, "shop.v", "big big.u shop.t"},
		{"GRANT SELECT ON *.* TO x", nil, "", "big big.u shop shop.t shop.v"},
		{"ALTER TABLE v ADD c INT", &table, "", ""},
		{"ALTER TABLE t ADD c INT", &table, "shop.t", ""},
		{"ALTER DATABASE shop CHARACTER SET latin1", &table, "shop", ""},
	} {
		all := map[ddl.Name]*ddl.Table{}
		for _, n := range []string{"shop", "shop.t", "shop.v", "big", "big.u"} {
			all[name(n)] = &ddl.Table{}
		}
		changed := map[ddl.Name]bool{}
		for _, n := range ddl.Touched(&ddl.Statement{Text: c.sql, Schema: "shop"}, ddl.Server{Version: 80400}, listed(all)) {
			changed[n] = true
		}
		relevant(changed, func(s string) bool { return s != "elsewhere" }, c.table)
		if got := sorted(maps.Keys(changed)); got != c.want {
			t.Errorf("%s: %s is read again, want %s", c.sql, got, c.want)
		}
		if c.table != nil {
			continue
		}
		without(all, changed)
		if got := sorted(maps.Keys(all)); got != c.left {
			t.Errorf("%s: %s is left, want %s", c.sql, got, c.left)
		}
	}
}

func sorted(seq func(func(ddl.Name) bool)) string {
	var out []string
	for n := range seq {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestShownAs(t *testing.T) {
	for _, c := range []struct {
		label, shown string
		ofBytes      bool
		want         bool
	}{
		{"a?", "a?", false, true},
		{"a😀", "a?", false, true},
		{"a中", "a?", false, false}, // which would be shown
		{"", "a?", false, false},   // what the server makes of a number that has no label
		{"1,b", "b?", false, false},
		{"?\xff", "??", true, true},
		{"?\xff", "?", true, false},
		{"?a", "??", true, false},
	} {
		if got := shownAs(c.label, c.shown, c.ofBytes); got != c.want {
			t.Errorf("%q shown as %q: %t", c.label, c.shown, got)
		}
	}
}
