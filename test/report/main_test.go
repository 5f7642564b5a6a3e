package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestReport(t *testing.T) {
	const pass = `{"Action":"output","Package":"p","Test":"A","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	for name, c := range map[string]struct {
		in   string
		ok   bool
		want []string
		not  string
	}{
		"passes":                        {pass, true, []string{"ok    p", "1 passed, 0 failed, 0 skipped"}, "noise"},
		"nothing ran":                   {`{"Action":"pass","Package":"p"}` + "\n", false, []string{"0 passed"}, ""},
		"a skip":                        {pass + `{"Action":"output","Package":"p","Test":"B","Output":"why\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"B"}` + "\n", false, []string{"why", "1 skipped"}, "noise"},
		"a failure":                     {pass + `{"Action":"output","Package":"p","Test":"B","Output":"bad\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"B"}` + "\n", false, []string{"bad", "1 failed"}, "noise"},
		"a panic":                       {pass + `{"Action":"output","Package":"q","Output":"panic: x\n"}` + "\n" + `{"Action":"fail","Package":"q"}` + "\n", false, []string{"panic: x", "FAIL  q"}, ""},
		"a broken build":                {pass + `{"Action":"build-output","ImportPath":"q","Output":"q.go:1: oops\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"q"}` + "\n", false, []string{"q.go:1: oops"}, ""},
		"a test's own words at the end": {`{"Action":"output","Package":"p","Test":"B","Output":"    b_test.go:7: it broke\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"B"}` + "\n" + pass, false, []string{"ok    p                                                                1.5 s\nfailed: p B\n    b_test.go:7: it broke\n1 passed"}, ""},
		"a race in a test that passes":  {`{"Action":"output","Package":"p","Test":"A","Output":"WARNING: DATA RACE\n"}` + "\n" + `{"Action":"output","Package":"p","Test":"A","Output":"======\n"}` + "\n" + pass + `{"Action":"fail","Package":"p"}`, false, []string{"data race in the tests of p\nWARNING: DATA RACE\n======\n"}, "noise"},
		"text of a tool":                {"plain\n" + pass, true, []string{"plain"}, ""},
		"no tests at all":               {pass + `{"Action":"skip","Package":"q"}` + "\n", true, []string{"0 skipped"}, "q"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			w := bufio.NewWriter(&b)
			ok, err := report(strings.NewReader(c.in), w)
			w.Flush()
			if err != nil || ok != c.ok {
				t.Errorf("ok %v, error %v, want %v", ok, err, c.ok)
			}
			for _, want := range c.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, &b)
				}
			}
			if c.not != "" && strings.Contains(b.String(), c.not) {
				t.Errorf("%q should not be in:\n%s", c.not, &b)
			}
		})
	}
}

func TestMain(m *testing.M) { leak.Main(m) }
