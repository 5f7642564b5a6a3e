package tablefilter

import (
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMatch(t *testing.T) {
	tests := []struct {
		patterns []string
		taken    []string
		left     []string
	}{
		{nil, []string{"shop.orders", "a.b"}, []string{"mysql.user", "sys.x", "PERFORMANCE_SCHEMA.t"}},
		{[]string{"shop.*", "!shop.tmp_*"}, []string{"shop.orders", "shop.tmp"}, []string{"shop.tmp_1", "shop2.orders", "Shop.orders"}},
		{[]string{"shop.*", "!shop.tmp_*", "shop.tmp_keep"}, []string{"shop.tmp_keep"}, []string{"shop.tmp_drop"}},
		{[]string{"!shop.tmp_*"}, []string{"shop.orders", "other.t"}, []string{"shop.tmp_1", "mysql.user"}},
		{[]string{"*.*"}, []string{"a.b"}, []string{"mysql.user"}},
		{[]string{"mysql.user", "*.x"}, []string{"mysql.user", "a.x"}, []string{"mysql.db", "sys.x", "a.user"}},
		{[]string{"shop_?.t*n"}, []string{"shop_1.tn", "shop_é.tXn", "shop_1.tnnn"}, []string{"shop_.tn", "shop_12.tn", "shop_1.tnX"}},
		{[]string{`a\.b.c\*`}, []string{"a\x00b.c*"}, []string{"a.bc*"}},
		{[]string{"**.t"}, []string{"a.t"}, []string{"a.tt"}},
	}
	for _, tt := range tests {
		f, err := New(tt.patterns)
		if err != nil {
			t.Fatal(tt.patterns, err)
		}
		check := func(full string, want bool) {
			schema, table, _ := strings.Cut(full, ".")
			schema = strings.ReplaceAll(schema, "\x00", ".")
			for i := 0; i < 2; i++ { // the second answer comes from the cache
				if got := f.Match(schema, table); got != want {
					t.Errorf("%q: Match(%s, %s) = %v, want %v", tt.patterns, schema, table, got, want)
				}
			}
		}
		for _, s := range tt.taken {
			check(s, true)
		}
		for _, s := range tt.left {
			check(s, false)
		}
	}
}

// A server that folds names has them in lower case, or as they were written, and compares neither by case.
func TestFolded(t *testing.T) {
	f, err := New([]string{"Shop.*", "!SHOP.Tmp_*", `É\.B.?x`})
	if err != nil {
		t.Fatal(err)
	}
	for full, want := range map[string][2]bool{ // as it is, and folded
		"Shop.a": {true, true}, "shop.a": {false, true}, "SHOP.A": {false, true}, "Shop.tmp_1": {true, false}, "shop.TMP_1": {false, false},
		"other.a": {false, false}, "é\x00b.AX": {false, true}, "É\x00B.yx": {true, true},
	} {
		schema, table, _ := strings.Cut(full, ".")
		schema = strings.ReplaceAll(schema, "\x00", ".")
		for range 2 { // from the cache, too
			if got := [2]bool{f.Match(schema, table), f.Folded().Match(schema, table)}; got != want {
				t.Errorf("%s.%s: %v, want %v", schema, table, got, want)
			}
		}
	}
	if !f.Folded().MatchSchema("sHOP") || f.MatchSchema("sHOP") || f.Folded().MatchSchema("Other") {
		t.Error("schemas")
	}
	folded := f.Folded()
	if f.Folded() != folded || folded.Folded() != folded || (*Filter)(nil).Folded() != nil || strings.Join(f.Folded().Patterns(), " ") != strings.Join(f.Patterns(), " ") {
		t.Error("folding makes another filter each time, or loses its text")
	}
}

func TestMatchSchema(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		may, not string
	}{
		{nil, "shop a", "mysql sys"},
		{[]string{"shop.*", "!shop.tmp_*"}, "shop", "other mysql"},
		{[]string{"!shop.*"}, "other", "shop mysql"},
		{[]string{"*.*", "!a*.*", "ab.t"}, "ab x", "aa mysql"},
		{[]string{"mysql.user"}, "mysql", "shop"},
	} {
		f, err := New(c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		for want, list := range map[bool]string{true: c.may, false: c.not} {
			for _, schema := range strings.Fields(list) {
				if got := f.MatchSchema(schema); got != want {
					t.Errorf("%q: MatchSchema(%s) = %v", c.patterns, schema, got)
				}
			}
		}
	}
	if f := (*Filter)(nil); !f.MatchSchema("a") || f.MatchSchema("sys") {
		t.Error("nil")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, p := range []string{"", "shop", "a.b.c", ".t", "s.", "!", `s.t\`} {
		if _, err := New([]string{p}); err == nil {
			t.Errorf("pattern %q was accepted", p)
		}
		if Check([]string{"s.t", p}) == nil {
			t.Errorf("pattern %q passes the check", p)
		}
	}
	// I3: as Canal, Maxwell and Debezium have them. Taken for patterns they would be about nothing, or about what nobody means.
	for _, p := range []string{`shop\..*`, `!shop\..*`, `shop\.order_\d{1,2}`, `.*\..*`, `shop.order_\d+`, `shop.\w+`, `/shop.*\..*/`, `shop\.tmp\..*`, `!shop\..*_(ghc|gho)$`, `shop.a\1`} {
		if Check([]string{p}) == nil {
			t.Errorf("regular expression %q was accepted", p)
		}
	}
	for _, p := range []string{`a\.b.c\.d`, `a\*b.c\?d`, `s.t\.`, `s?.t`, `s.a\\b`, `\!s.t`, `s.a(b)`, `a\ b.c`} {
		if err := Check([]string{p}); err != nil {
			t.Error(err)
		}
	}
	if err := Check(nil); err != nil {
		t.Error(err)
	}
}

// TestSavedPatternsI5: what was saved before regular expressions were refused decides as it did.
func TestSavedPatternsI5(t *testing.T) {
	saved := []string{"*.*", `!shop\..*`, `!shop.order_\d`, `!a\b.*`, `!b.\1`}
	f, err := New(saved)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[[2]string]bool{
		{"shop", "orders"}: true, {"shop.", "orders"}: false, {"shop", "order_d"}: false, {"shop", "order_1"}: true, {"ab", "t"}: false, {`a\b`, "t"}: true,
		{"b", "1"}: false, {"b", "2"}: true,
	} {
		if got := f.Match(name[0], name[1]); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	for _, p := range saved[1:] {
		if Check([]string{p}) == nil {
			t.Errorf("%q passes the check", p)
		}
	}
}

func TestUnmet(t *testing.T) {
	names := [][2]string{{"shop", "orders"}, {"Shop", "Items"}, {"mysql", "user"}, {"a.b", "c"}}
	for _, c := range []struct {
		patterns []string
		fold     bool
		want     string
	}{
		{nil, false, ""},
		{[]string{"shop.*", "!shop.tmp_*"}, false, ""},
		{[]string{"*.*"}, false, ""},
		{[]string{"shop.items", "Shop.Items", `a\.b.?`}, false, "shop.items"},
		{[]string{"shop.items", "SHOP.ORDERS"}, true, ""},
		{[]string{"*.user", "my?ql.user", "mysql.user"}, false, "*.user my?ql.user"},
		{[]string{"shop.*", "!shop.(tmp|old)_*", `!shop\.tmp_.*`, "!shop.new*"}, false, `!shop.(tmp|old)_* !shop\.tmp_.*`},
	} {
		f, err := New(c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		if c.fold {
			f = f.Folded()
		}
		got := f.Unmet(func(yield func(string, string) bool) {
			for _, n := range names {
				if !yield(n[0], n[1]) {
					return
				}
			}
		})
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.patterns, got, c.want)
		}
	}
	if (*Filter)(nil).Unmet(nil) != nil {
		t.Error("no filter misses nothing")
	}
}

func TestNilFilter(t *testing.T) {
	var f *Filter
	if !f.Match("a", "b") || f.Match("mysql", "user") || f.Patterns() != nil {
		t.Error("a nil filter must take all but the system schemas")
	}
}

// FuzzGlob holds the matcher against regexp.
func FuzzGlob(f *testing.F) {
	f.Add("a*b?c", "aXXbYc")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		r, err := parse("s."+pattern, false)
		if err != nil || !isText(s) || !isText(pattern) {
			return
		}
		var re strings.Builder
		re.WriteString(`(?s)^`)
		for _, tok := range r.table {
			switch tok.kind {
			case many:
				re.WriteString(".*")
			case one:
				re.WriteString(".")
			default:
				re.WriteString(regexp.QuoteMeta(string(rune(tok.lit))))
			}
		}
		want := regexp.MustCompile(re.String() + "$").MatchString(s)
		if got := r.table.match(s); got != want {
			t.Errorf("%q on %q: %v, regexp says %v", pattern, s, got, want)
		}
	})
}

func isText(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func BenchmarkMatch(b *testing.B) {
	f, _ := New([]string{"shop.*", "!shop.tmp_*"})
	b.ReportAllocs()
	for b.Loop() {
		f.Match("shop", "orders")
	}
}

func TestSchemas(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{nil, ""}, {[]string{"*.*"}, ""}, {[]string{"!shop.tmp"}, ""}, {[]string{"shop.*", "s?.*"}, ""},
		{[]string{"shop.*", "!shop.tmp_*", "crm.a", "shop.b", "!*.x"}, "crm shop"}, {[]string{`a\.b.c`}, "a.b"},
	} {
		f, err := New(c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.Schemas(), " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.patterns, got, c.want)
		}
	}
	if got := (*Filter)(nil).Schemas(); got != nil {
		t.Error(got)
	}
}
