package condition

import (
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"id > 5": "",
		"a IN (1, 2) AND (b = 'x)' OR c = \"(\")": "",
		"`odd)name` = 1":                   "",
		`a = 'it''s' AND b = 'it\'s; --'`:  "",
		"`a``)` = `b\\` AND c - 1 > d / 2": "",
		"":                                 "is empty",
		" \n":                              "is empty",
		"1) OR (1":                         "closes that was not opened",
		"(a = 1":                           "does not close",
		"a = 1; DROP TABLE t":              "semicolon",
		"a = 1 -- and the rest":            "comment",
		"a = 1 # and the rest":             "comment",
		"a = 1 /* and the rest":            "comment",
		"a = 'open":                        "does not end",
		`a = 'open\'`:                      "does not end",
		"a = `open":                        "does not end",
		"a = 1\x00":                        "zero byte",
	} {
		err := Check(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCheckAll(t *testing.T) {
	if err := CheckAll(map[string]string{"shop.orders": "id > 5", "shop.a.b": "1"}); err != nil {
		t.Error(err)
	}
	err := CheckAll(map[string]string{"orders": "1", "shop.*": "1", "shop.item": "("})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not every fault is told: %v", err)
	}
}

// FuzzCheck: what is let through stays between its parentheses.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"id > 5", "a = 'x'", "(a)", "`a`", `"\""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Check(s) != nil {
			return
		}
		if Check("("+s+") AND (1)") != nil {
			t.Errorf("%q alone is a condition, and not in parentheses", s)
		}
		if Check(s+")") == nil || Check("("+s) == nil {
			t.Errorf("%q swallows a parenthesis", s)
		}
	})
}
