package jsontext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// reference is what encoding/json writes without HTML escaping.
func reference(t testing.TB, s []byte) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(s)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var samples = []string{
	"", "a", "plain", "exactly8", "exactly8exactly8", "nine char",
	`quote " back \ slash /`, "tab\tnl\ncr\rbs\bff\fnul\x00esc\x1bdel\x7f",
	"<&>", "ünïcødé 漢字 😀", "\u2028 and \u2029", "\u2027\u202a", "\ufffd",
	"\xff", "abc\xffdef", "\xc3", "long enough \xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf",
	strings.Repeat("x", 1000), strings.Repeat(`"`, 33), strings.Repeat("é", 100),
	"1234567\"", "12345678\"", "\"1234567", "12345678901234\x01", "1234567\xc3\xa9", "1234567é8901234",
	"!!!!!!!!", " \x1f !\x1f#[\\]", "\x80\x81\x82\x83\x84\x85\x86\x87",
}

func check(t *testing.T, s []byte) {
	t.Helper()
	want := reference(t, s)
	if got := string(AppendString(nil, s)); got != want {
		t.Errorf("AppendString(%q) = %s, want %s", s, got, want)
	}
	// Close has to give the same, whatever stands before and however tight the slice is.
	d := append([]byte(`{"é":"`), s...)
	if got := string(Close(d[:len(d):len(d)], len(`{"é":"`))); got != `{"é":`+want {
		t.Errorf("Close(%q) = %s, want %s", s, got, want)
	}
	l := AppendLatin1([]byte("x"), s)[1:]
	var back string
	if !utf8.Valid(l) {
		t.Errorf("AppendLatin1(%q) is not UTF-8", s)
	}
	if err := json.Unmarshal(l, &back); err != nil {
		t.Fatalf("AppendLatin1(%q) = %s: %v", s, l, err)
	}
	var raw []byte
	for _, r := range back {
		if r > 0xff {
			t.Fatalf("AppendLatin1(%q) holds %U", s, r)
		}
		raw = append(raw, byte(r))
	}
	if !bytes.Equal(raw, s) {
		t.Errorf("AppendLatin1(%q) reads back as %q", s, raw)
	}
	if got, want := string(AppendBase64(nil, s)), `"`+base64.StdEncoding.EncodeToString(s)+`"`; got != want {
		t.Errorf("AppendBase64(%q) = %s, want %s", s, got, want)
	}
}

func TestAppend(t *testing.T) {
	for _, s := range samples {
		check(t, []byte(s))
	}
	check(t, []byte("start\""+strings.Repeat("é\xff\t", large)))
	// Every byte at every place of words and tails.
	for n := 1; n < 20; n++ {
		for at := range n {
			for c := range 256 {
				s := bytes.Repeat([]byte("x"), n)
				s[at] = byte(c)
				check(t, s)
			}
		}
	}
}

func FuzzAppend(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) { check(t, s) })
}

func TestNoAllocation(t *testing.T) {
	dst := make([]byte, 0, 8192)
	s := []byte("café \"" + strings.Repeat("text ", 50))
	if n := testing.AllocsPerRun(100, func() {
		d := AppendString(dst, s)
		d = AppendLatin1(d, s)
		d = AppendBase64(d, s)
		d = append(d, '"')
		at := len(d)
		d = append(d, s...)
		Close(d, at)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppendString(b *testing.B) {
	for name, s := range map[string]string{
		"ascii8": "shipping", "ascii40": strings.Repeat("address ", 5), "ascii1k": strings.Repeat("text ", 200),
		"chinese1k": strings.Repeat("漢字かな", 83), "latin": strings.Repeat("müßig ", 30), "quotes": strings.Repeat(`{"a":1}`, 20),
	} {
		b.Run(name, func(b *testing.B) {
			src, dst := []byte(s), make([]byte, 0, 1<<14)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendString(dst[:0], src)
			}
		})
	}
}
