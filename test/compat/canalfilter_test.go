//go:build integration

package compat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/canalfilter"
)

// TestFiltersAsCanal holds the verdicts of our filters to those of Canal's own class.
func TestFiltersAsCanal(t *testing.T) {
	names := []string{
		"shop.item", "shop.items", "SHOP.Item", "shop.order_1", "shop.order_12", "shop.order_x", "shopx.item", "my.shop.item", "canal.test1", "canal.canal_a", "mysql.user", "canal.test10",
		"a.b", "Ä.ö", "shop.it-em", "shop.a,b", "shop.b", "shop.a",
	}
	var lines []string
	var want []bool
	for _, filter := range []string{
		"", `.*\..*`, `.*\\..*`, `.*`, `shop\..*`, `shop\.item`, `SHOP\.ITEM`, `canal\.canal.*`, `canal.test1`, `mysql\..*,canal.test1`, `mysql\..*,,canal.test1,`, ` shop\.item , canal\.test1 `,
		`shop\.order_\d{1,2}`, `shop\.order_[0-9]{1,2},a\.b`, `shop\.(item|order_1)`, `shop\.(item|order_1),a\.b`, `(shop|canal)\..*`, `shop\.[a,b]`, `shop\..*?`, `.*\.item`, `.*item`,
		`shop\.item|canal\.test1`, `^shop\.item$`, `shop\.item$`, `shop\.items?`, `shop\.a,shop\.a\,b`, `ä\.Ö`, `[^s].*\..*`, `shop\.order_\w`, `shop\.(?:item|b)`,
	} {
		f, err := canalfilter.New(filter)
		if err != nil {
			t.Fatalf("%q: %v", filter, err)
		}
		for _, name := range names {
			schema, table, _ := strings.Cut(name, ".")
			lines, want = append(lines, filter+"\t"+name), append(want, f.Match(schema, table))
		}
	}
	differs := map[string]bool{}
	verdicts := java(t, canalServer, "CanalFilter", lines)
	if len(verdicts) != len(lines) {
		t.Fatalf("%d verdicts on %d names", len(verdicts), len(lines))
	}
	for i, line := range verdicts {
		if string(line) == fmt.Sprint(want[i]) {
			continue
		}
		filter, _, _ := strings.Cut(lines[i], "\t")
		if _, known := otherVerdicts[filter]; !known || !want[i] {
			t.Errorf("%q: Canal says %s, we say %v", lines[i], line, want[i])
		}
		differs[filter] = true
	}
	for filter := range otherVerdicts {
		if !differs[filter] {
			t.Errorf("no difference any more: %q", filter)
		}
	}
}

// otherVerdicts are the filters that let tables through here which Canal 1.1.7 keeps back, as docs/compatibility.md says.
var otherVerdicts = map[string]struct{}{
	` shop\.item , canal\.test1 `: {}, // blanks around a comma
	// Commas within an expression, at which later ones than 1.1.7 do not part it.
	`shop\.order_\d{1,2}`:         {},
	`shop\.order_[0-9]{1,2},a\.b`: {},
	`shop\.a,shop\.a\,b`:          {},
}
