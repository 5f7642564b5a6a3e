package meta

import "strings"

const upperHex = "0123456789ABCDEF"

// plain reports whether Escape leaves the byte at index i as it is. A leading
// dot is not: it would hide the file.
func plain(c byte, i int) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0
}

// Escape writes a name so that it can be part of a path: bytes other than letters, digits and _ - are
// written as % and two upper-case hexadecimal digits, and so is a dot that leads.
func Escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c, i) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// Unescape undoes Escape; false for what Escape does not write.
func Unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) {
				return "", false
			}
			hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		b.WriteByte(c)
	}
	out := b.String()
	return out, Escape(out) == s
}
