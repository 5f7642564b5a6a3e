package jsontext

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// I9: what is large takes the memory that it needs once, whatever has to be escaped.
func TestLargeTextsAreMeasured(t *testing.T) {
	for name, unit := range map[string]string{
		"plain": "abcdefgh", "quotes": `"`, "control": "\x01", "mixed": "a\"\n\x02é\u2028\xff\xe2\x82", "latin": "\xe9\x80", "cut": "aaaaaaa\xe2\x82",
	} {
		s := []byte(strings.Repeat(unit, 3*large/len(unit)+1))
		if got, want := len(AppendEscaped(nil, s)), len(s)+more(s); got != want {
			t.Errorf("%s: %d bytes, measured %d", name, got, want)
		}
		want := string(append(append([]byte{'"'}, appendEscaped(nil, s)...), '"'))
		for what, got := range map[string][]byte{
			"AppendString": AppendString(nil, s),
			"Close":        Close(append([]byte{'"'}, s...), 1),
		} {
			if string(got) != want {
				t.Errorf("%s: %s differs from what small texts give", name, what)
			}
		}
		if string(AppendBase64(nil, s)) != `"`+base64.StdEncoding.EncodeToString(s)+`"` {
			t.Errorf("%s: AppendBase64 differs", name)
		}
		var latin []byte
		for _, part := range bytes.SplitAfter(s, s[len(s)-1:]) { // in small pieces
			latin = append(latin, bytes.Trim(AppendLatin1(nil, part), `"`)...)
		}
		if unit != `"` && string(AppendLatin1(nil, s)) != `"`+string(latin)+`"` {
			t.Errorf("%s: AppendLatin1 differs", name)
		}
		for what, f := range map[string]func(){
			"AppendString": func() { AppendString(nil, s) },
			"AppendLatin1": func() { AppendLatin1(nil, s) },
			"AppendBase64": func() { AppendBase64(nil, s) },
		} {
			n := testing.AllocsPerRun(1, f)
			for range 20 { // it counts what the runtime takes meanwhile, too
				if n <= growths {
					break
				}
				n = min(n, testing.AllocsPerRun(1, f))
			}
			if n < 1 || n > growths {
				t.Errorf("%s: %s takes memory %v times", name, what, n)
			}
		}
	}
}
