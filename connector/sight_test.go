package connector

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

func TestSight(t *testing.T) {
	filter := func(text string) *tablefilter.Filter {
		t.Helper()
		f, err := tablefilter.New(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, c := range map[string]struct {
		grants           []string
		captured, wanted string
		want             string
		literal, fold    bool
	}{
		"nothing":           {[]string{"GRANT USAGE ON *.* TO `u`@`%`"}, "shop.*", "", "`shop`.*", false, false},
		"all":               {[]string{"GRANT ALL PRIVILEGES ON *.* TO 'u'@'%' WITH GRANT OPTION"}, "", "", "", false, false},
		"among others":      {[]string{"GRANT INSERT, SELECT, UPDATE ON *.* TO 'u'@'%'"}, "shop.*", "", "", false, false},
		"no SELECT":         {[]string{"GRANT INSERT, CREATE VIEW, SHOW VIEW ON `shop`.* TO 'u'@'%'"}, "shop.*", "", "`shop`.*", false, false},
		"database":          {[]string{"GRANT SELECT ON `shop`.* TO `u`@`%`"}, "shop.* other.*", "", "`other`.*", false, false},
		"one table":         {[]string{"GRANT SELECT ON `shop`.`orders` TO `u`@`%`"}, "shop.*", "", "`shop`.*", false, false},
		"that is all":       {[]string{"GRANT SELECT ON `shop`.`orders` TO `u`@`%`"}, "shop.*", "shop.orders", "", false, false},
		"the other way":     {[]string{"GRANT SELECT ON `shop`.`orders` TO `u`@`%`"}, "shop.orders", "*.*", "", false, false},
		"columns":           {[]string{"GRANT SELECT (`a`, `b`), INSERT ON `shop`.`orders` TO `u`@`%`"}, "shop.orders", "", "`shop`.`orders`", false, false},
		"wildcards":         {[]string{"GRANT SELECT ON `shop\\_%`.* TO `u`@`%`"}, "shop_*.a shopx.b", "", "`shopx`.`b`", false, false},
		"patterns":          {nil, "shop_*.a", "", "`shop\\_%`.*", false, false},
		"no wildcards":      {[]string{"GRANT SELECT ON `shop_1`.* TO `u`@`%`"}, "shop_1.a shopx1.a", "", "`shopx1`.`a`", true, false},
		"everything wanted": {[]string{"GRANT SELECT ON `shop`.* TO `u`@`%`"}, "", "", "*.*", false, false},
		"revoked":           {[]string{"GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `shop`.* FROM `u`@`%`", "REVOKE SELECT ON `mysql`.* FROM `u`@`%`"}, "shop.a other.*", "", "`shop`.`a`", true, false},
		"routines, roles":   {[]string{"GRANT EXECUTE ON PROCEDURE `shop`.`SELECT` TO `u`@`%`", "GRANT `r`@`%` TO `u`@`%`", "GRANT PROXY ON ''@'' TO 'root'@'localhost'"}, "shop.*", "", "`shop`.*", false, false},
		"quoted":            {[]string{"GRANT SELECT ON `a``b`.`c.d` TO `u`@`%`"}, "a`b.c\\.d a`b.e", "", "`a``b`.`e`", false, false},
		"case":              {[]string{"GRANT SELECT ON `Shop`.* TO `u`@`%`"}, "SHOP.a", "", "", false, true},
		"case counts":       {[]string{"GRANT SELECT ON `Shop`.* TO `u`@`%`"}, "SHOP.a", "", "`SHOP`.`a`", false, false},
		"left out":          {nil, "shop.* !shop.* mysql.*", "", "", false, false},
	} {
		s := &sight{literal: c.literal, caseless: c.fold}
		for _, g := range c.grants {
			s.add(g)
		}
		var want []string
		for _, on := range strings.Fields(c.want) {
			want = append(want, "GRANT SELECT ON "+on+" TO x")
		}
		if got := s.unseen(filter(c.captured).For(c.fold), filter(c.wanted).For(c.fold), "x"); strings.Join(got, ";") != strings.Join(want, ";") {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}
