package jsontext

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

const (
	lsb = 0x0101010101010101 // the lowest bit of each byte of a word
	msb = 0x8080808080808080 // the highest one
)

// escape tells what a byte of a string becomes: 0 = it stands for itself,
// 'u' = \u00XX, 0x80 = part of a multi-byte rune, else the letter behind the
// backslash.
var escape = func() (t [256]byte) {
	for i := range 0x20 {
		t[i] = 'u'
	}
	t['"'], t['\\'] = '"', '\\'
	t['\b'], t['\f'], t['\n'], t['\r'], t['\t'] = 'b', 'f', 'n', 'r', 't'
	for i := 0x80; i < 0x100; i++ {
		t[i] = 0x80
	}
	return t
}()

const hex = "0123456789abcdef"

// special has the highest bit set in each byte of w that cannot be copied into
// a JSON string as it is, or that begins or continues a multi-byte rune. Only
// the lowest bit set is exact: borrows can mark bytes above it too.
func special(w uint64) uint64 {
	quote := w ^ '"'*lsb
	back := w ^ '\\'*lsb
	return (w | (w - 0x20*lsb) | (quote - lsb) | (back - lsb)) & msb
}

// plain returns the number of bytes from i on that need no attention.
func plain(s []byte, i int) int {
	for ; i+8 <= len(s); i += 8 {
		if m := special(binary.LittleEndian.Uint64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	if i < len(s) && len(s) >= 8 {
		// The last word again, without the bytes seen already.
		m := special(binary.LittleEndian.Uint64(s[len(s)-8:]))
		if m &= ^uint64(0) << (8 * uint(8-(len(s)-i))); m == 0 {
			return len(s)
		}
	}
	for i < len(s) && escape[s[i]] == 0 {
		i++
	}
	return i
}

// AppendString appends s as a JSON string with its quotes. Control characters,
// quote, backslash, U+2028 and U+2029 are escaped, invalid UTF-8 becomes
// \ufffd, everything else stays as it is.
func AppendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = AppendEscaped(dst, s)
	return append(dst, '"')
}

// AppendEscaped is [AppendString] without the quotes.
func AppendEscaped(dst, s []byte) []byte {
	if len(s) > large {
		dst = Reserve(dst, len(s)+more(s))
	}
	return appendEscaped(dst, s)
}

func appendEscaped(dst, s []byte) []byte {
	start, i := 0, 0
	for {
		i = plain(s, i)
		if i == len(s) {
			return append(dst, s[start:]...)
		}
		if s[i] < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendASCII(dst, s[i])
			i++
			start = i
			continue
		}
		for i < len(s) && s[i] >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				dst = append(dst, s[start:i]...)
				dst = append(dst, `\ufffd`...)
				start = i + 1
			case r == '\u2028' || r == '\u2029':
				// Valid in JSON, but not in the JavaScript that some
				// consumers still evaluate; encoding/json escapes them too.
				dst = append(dst, s[start:i]...)
				dst = append(dst, `\u202`...)
				dst = append(dst, hex[r&0xf])
				start = i + n
			}
			i += n
		}
	}
}

func appendASCII(dst []byte, c byte) []byte {
	switch e := escape[c]; e {
	case 0:
		return append(dst, c)
	case 'u':
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
	default:
		return append(dst, '\\', e)
	}
}

// large is from where on a text is measured before it is written: looking at it twice is
// cheaper then than what growing step by step costs in memory.
const large = 1 << 16

// slack is what Reserve leaves behind a large text for the rest of its row.
const slack = 16 << 10

// Reserve returns dst with room for n bytes more, exactly that and a little slack: where append would take
// a quarter more of something large, and leave as much again behind. (I9)
func Reserve(dst []byte, n int) []byte {
	if n <= cap(dst)-len(dst) {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n+slack), dst...)
}

// more is by how many bytes s grows when it is escaped: at least 0.
func more(s []byte) int {
	n, i := 0, 0
	for {
		if i = plain(s, i); i == len(s) {
			return n
		}
		switch e := escape[s[i]]; e {
		case 0:
			i++
			continue
		case 'u':
			n += 5
			i++
			continue
		case 0x80:
		default:
			n++
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			n += 5
		case r == '\u2028' || r == '\u2029':
			n += 3
		}
		i += size
	}
}

// Close turns the raw text dst[start:], appended behind an opening quote that
// the caller has written, into the inside of a JSON string and appends the
// closing quote. It serves text that is produced by appending.
func Close(dst []byte, start int) []byte {
	if i := plain(dst[start:], 0); start+i < len(dst) {
		from := start + i
		end := len(dst)
		if end-from > large {
			// Moved to the end of what the escaped text will fill, the raw one is read before it is written over:
			// the former only grows.
			n := more(dst[from:])
			dst = Reserve(dst, n+1)[:end+n]
			copy(dst[from+n:], dst[from:end])
			return append(appendEscaped(dst[:from], dst[from+n:]), '"')
		}
		// Write the escaped text behind the raw one, then move it down.
		dst = slices.Grow(dst, 2*(end-from)+16)
		dst = appendEscaped(dst, dst[from:end])
		n := copy(dst[from:], dst[end:])
		dst = dst[:from+n]
	}
	return append(dst, '"')
}

// latin1Len is how many bytes AppendLatin1 makes of one.
var latin1Len = func() (t [256]uint8) {
	for i := range t {
		switch e := escape[i]; e {
		case 0:
			t[i] = 1
		case 'u':
			t[i] = 6
		default: // an escape of two characters, or two bytes of UTF-8
			t[i] = 2
		}
	}
	return t
}()

// AppendLatin1 appends b as a JSON string in which each byte stands as the
// character of the same number (ISO-8859-1): byte 0xE9 becomes U+00E9. It is
// reversible and works for any bytes.
func AppendLatin1(dst, b []byte) []byte {
	if len(b) > large {
		n := 2
		for _, c := range b {
			n += int(latin1Len[c])
		}
		dst = Reserve(dst, n)
	}
	dst = append(dst, '"')
	for i := 0; i < len(b); {
		n := plain(b, i)
		dst = append(dst, b[i:n]...)
		for i = n; i < len(b) && escape[b[i]] != 0; i++ {
			if c := b[i]; c >= utf8.RuneSelf {
				dst = append(dst, 0xc0|c>>6, 0x80|c&0x3f)
			} else {
				dst = appendASCII(dst, c)
			}
		}
	}
	return append(dst, '"')
}

// AppendBase64 appends b in standard base64 with padding, in quotes.
func AppendBase64(dst, b []byte) []byte {
	if len(b) > large {
		dst = Reserve(dst, base64.StdEncoding.EncodedLen(len(b))+2)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
