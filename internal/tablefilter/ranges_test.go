package tablefilter

import (
	"strings"
	"testing"
)

func mustFilter(t *testing.T, patterns ...string) *Filter {
	t.Helper()
	f, err := New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRangeWithin(t *testing.T) {
	for _, c := range []struct {
		pattern string
		in      Range
		want    bool
	}{
		{"shop.*", everything(), true}, {"*.*", One("shop", ""), false}, {"shop.*", One("shop", ""), true}, {"shop.*", One("shop", "orders"), false},
		{"shop.orders", One("shop", "orders"), true}, {"shop.orders", One("shop", "order"), false}, {"shop_1.*", LikeSchema("shop_1"), true}, {"shop_1.*", LikeSchema(`shop\_1`), true},
		{"shopx1.*", LikeSchema(`shop\_1`), false}, {"shopx1.*", LikeSchema("shop_1"), true}, {"shop*.a", LikeSchema("shop%"), true}, {"s*p*.a", LikeSchema("s%"), true}, {"shop*.a", LikeSchema("shop_%"), false},
		{"shop?.a", LikeSchema("shop_"), true}, {"ü.a", LikeSchema("_"), true}, {"üü.a", LikeSchema("_"), false}, {"shop?.a", LikeSchema("shop%"), true}, {"a.b", LikeSchema(`\`), false},
	} {
		if got := mustFilter(t, c.pattern).Ranges()[0].Within(c.in); got != c.want {
			t.Errorf("%s in %v: %t", c.pattern, c.in, got)
		}
	}
}

func TestMayTake(t *testing.T) {
	for _, c := range []struct {
		filter []string
		order  string
		want   bool
	}{
		{nil, "shop.a", true}, {nil, "mysql.user", false}, {[]string{"*.*"}, "mysql.user", false}, {[]string{"mysql.*"}, "mysql.user", true}, {[]string{"shop.*"}, "other.*", false}, {[]string{"shop.*"}, "*.a", true},
		{[]string{"shop.*", "!shop.secret*"}, "shop.secret_1", false}, {[]string{"shop.*", "!shop.secret*"}, "shop.s*", true}, {[]string{"!a.*"}, "a.b", false}, {[]string{"!a.*", "a.b"}, "a.?", true},
		{[]string{"s*p.a"}, "sh*.a", true}, {[]string{"s*p.a"}, "s?.a", true}, {[]string{"s*p.a"}, "s?x.a", false}, {[]string{"ab*.a"}, "*cd.b", false}, {[]string{"ab*.a"}, "*cd.a", true}, {[]string{"ü.a"}, "?.a", true},
	} {
		if got := mustFilter(t, c.filter...).MayTake(mustFilter(t, c.order).Ranges()[0]); got != c.want {
			t.Errorf("%v may take of %s: %t", c.filter, c.order, got)
		}
	}
	f := mustFilter(t, "shop.*", "a.b\\.c")
	for name, want := range map[string]bool{"shop.x": true, "SHOP.x": true, "other.x": false, "a.b.c": true, "shop": false} {
		if got := f.MayTakeNamed(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestOutside(t *testing.T) {
	f := mustFilter(t, "Shop.*", "!shop.secret*")
	if got := f.Outside([]string{"SHOP.a", "other.*", "!x.y", "shop.secret_1", "Shop.secret_1", "*.secret_1", "x"}); strings.Join(got, " ") != "other.* shop.secret_1" {
		t.Errorf("%q", got)
	}
	if got := mustFilter(t).Outside([]string{"a.b"}); got != nil {
		t.Errorf("of all: %q", got)
	}
}

func TestRangesOfAFilter(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     []string
	}{
		{nil, []string{"%"}}, {[]string{"!a.*"}, []string{"%"}}, {[]string{"shop_*.a", "b.c", "!b.*"}, []string{`shop\_%`}}, {[]string{"a.*", "!a.x"}, []string{"a"}},
	} {
		var got []string
		for _, r := range mustFilter(t, c.patterns...).Ranges() {
			got = append(got, r.SchemaLike())
		}
		if len(got) != len(c.want) || got[0] != c.want[0] {
			t.Errorf("%v: %q, not %q", c.patterns, got, c.want)
		}
	}
}
