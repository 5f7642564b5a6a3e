package canalfilter

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, name string
		want         bool
	}{
		{"", "shop.item", true},
		{" , ", "shop.item", true},
		{`.*\..*`, "shop.item", true},
		{`canal\..*`, "canal.test", true},
		{`canal\..*`, "canals.test", false},
		{`canal\.canal.*`, "canal.canal_1", true},
		{`canal\.canal.*`, "canal.other", false},
		{`canal\.test1`, "canal.test1", true},
		{`canal\.test1`, "canal.test10", false}, // the whole name must match
		{`canal\.test1`, "xcanal.test1", false},
		{`mysql\..*,canal.test1`, "canal.test1", true},
		{`mysql\..*,canal.test1`, "mysql.user", true},
		{`mysql\..*,canal.test1`, "canal.test2", false},
		{`SHOP\.Item`, "shop.ITEM", true},
		{`shop\.t_\d{1,2}`, "shop.t_12", true}, // the comma belongs to the expression
		{`shop\.t_\d{1,2}`, "shop.t_123", false},
		{`shop\.[a,b]`, "shop.b", true},
		{`(shop\.a,b)`, "shop.a,b", true},
		{`shop\.a\,b`, "shop.a,b", true},
		{`shop\.a|shop\.b`, "shop.b", true},
		{`shop\.a|shop\.b`, "shop.bb", false},
		{`shop\.Ünï`, "shop.ünï", true},
		{".*\\..*", "a.b\nc", true},
	} {
		f, err := New(c.filter)
		if err != nil {
			t.Errorf("%q: %v", c.filter, err)
			continue
		}
		schema, table, _ := strings.Cut(c.name, ".")
		if got := f.Match(schema, table); got != c.want {
			t.Errorf("%q on %s: %v", c.filter, c.name, got)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, text := range []string{"(", `a\.b,[`, "(?=a)b", strings.Repeat("a", maxLength+1), ")"} {
		if _, err := New(text); err == nil {
			t.Errorf("%.20q is accepted", text)
		}
	}
	if _, err := New(`good\..*,ba(d`); err == nil || !strings.Contains(err.Error(), `"ba(d"`) {
		t.Errorf("the error does not name the expression: %v", err)
	}
}

func FuzzNew(f *testing.F) {
	f.Add(`mysql\..*,canal.t{1,2}`, "a", "b")
	f.Fuzz(func(t *testing.T, text, schema, table string) {
		if x, err := New(text); err == nil {
			x.Match(schema, table)
		}
	})
}
