package event

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// AppendUTF8 appends b, text in the MySQL character set of that name, to dst
// as UTF-8. Bytes that the character set does not define become U+FFFD. The only
// error is a name that is not known; "binary" is none, its bytes are no text.
func AppendUTF8(dst []byte, charset string, b []byte) ([]byte, error) {
	cs := charsetByName(charset)
	if cs == nil {
		return dst, fmt.Errorf("event: character set %q is not supported", charset)
	}
	return cs.append(dst, b), nil
}

// Holds reports whether the MySQL character set of that name has all characters of the text. The server puts question marks in the place of others.
func Holds(charset, text string) bool {
	cs := charsetByName(charset)
	if cs == nil {
		return false
	}
	for _, r := range text {
		if !cs.has(r) {
			return false
		}
	}
	return true
}

func (c *charset) has(r rune) bool {
	switch {
	case c.form == formSingle:
		return slices.Contains(c.single, r)
	case c.form == formMulti && !c.multi.four && r >= utf8.RuneSelf:
		c.multi.once.Do(c.multi.load)
		return r <= 0xffff && (slices.Contains(c.multi.one[:], uint16(r)) || slices.Contains(c.multi.two, uint16(r)) || slices.Contains(c.multi.behind, uint16(r)))
	}
	return c.max == 4 || r <= 0xffff
}

// charset turns the bytes of a character set into UTF-8 as the server's own
// CONVERT(... USING utf8mb4) does. Its latin1 is Windows-1252 with the five
// undefined bytes mapped to C1 controls.
type charset struct {
	name   string
	max    int // bytes of the longest character
	form   charsetForm
	ascii  bool       // the bytes below 0x80 are ASCII and nothing else
	single []rune     // singleByte: what each byte means
	multi  *multibyte // multiByte
}

type charsetForm uint8

const (
	formUTF8 charsetForm = iota
	formSingle
	formMulti
	formUTF16   // big-endian, and UCS-2 which is a part of it
	formUTF16LE // little-endian
	formUTF32   // big-endian
)

func charsetByName(name string) *charset { return charsets[name] }

var charsets = func() map[string]*charset {
	all := map[string]*charset{}
	for _, c := range []*charset{
		{name: "utf8mb4", max: 4},
		{name: "utf8mb3", max: 3},
		{name: "utf8", max: 3},
		{name: "ucs2", max: 2, form: formUTF16},
		{name: "utf16", max: 4, form: formUTF16},
		{name: "utf16le", max: 4, form: formUTF16LE},
		{name: "utf32", max: 4, form: formUTF32},
		{name: "gbk", max: 2, multi: &multibyte{enc: simplifiedchinese.GBK}},
		{name: "gb2312", max: 2, multi: &multibyte{enc: simplifiedchinese.GBK}},
		{name: "gb18030", max: 4, multi: &multibyte{enc: simplifiedchinese.GB18030, four: true}},
		{name: "big5", max: 2, multi: &multibyte{enc: traditionalchinese.Big5}},
		{name: "sjis", max: 2, multi: &multibyte{enc: japanese.ShiftJIS}},
		{name: "cp932", max: 2, multi: &multibyte{enc: japanese.ShiftJIS}},
		{name: "ujis", max: 3, multi: &multibyte{enc: japanese.EUCJP, three: true}},
		{name: "eucjpms", max: 3, multi: &multibyte{enc: japanese.EUCJP, three: true}},
		{name: "euckr", max: 2, multi: &multibyte{enc: korean.EUCKR}},
	} {
		if c.multi != nil {
			c.form = formMulti
			c.multi.name = c.name
		}
		c.ascii = c.form == formUTF8 || c.form == formMulti
		all[c.name] = c
	}
	// ASCII has no upper half; servers store such bytes in its columns all the same.
	singles := maps.Clone(singleByteTables)
	singles["ascii"] = strings.Repeat(string(utf8.RuneError), 128)
	for name, table := range singles {
		c := &charset{name: name, max: 1, form: formSingle, ascii: true}
		// The tables hold the upper half only, or all 256 bytes.
		if c.single = []rune(table); len(c.single) == 128 {
			low := make([]rune, 128, 256)
			for i := range low {
				low[i] = rune(i)
			}
			c.single = append(low, c.single...)
		}
		for i, r := range c.single[:128] {
			c.ascii = c.ascii && r == rune(i)
		}
		all[name] = c
	}
	return all
}()

// append appends b as UTF-8.
func (c *charset) append(dst, b []byte) []byte {
	if c.ascii {
		n := asciiPrefix(b)
		dst = append(dst, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			return dst
		}
	}
	switch c.form {
	case formSingle:
		for _, x := range b {
			dst = utf8.AppendRune(dst, c.single[x])
		}
	case formMulti:
		return c.multi.append(dst, b)
	case formUTF16:
		return appendUTF16(dst, b, binary.BigEndian)
	case formUTF16LE:
		return appendUTF16(dst, b, binary.LittleEndian)
	case formUTF32:
		for ; len(b) >= 4; b = b[4:] {
			dst = utf8.AppendRune(dst, rune(binary.BigEndian.Uint32(b)&0x7fffffff))
		}
		if len(b) > 0 {
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
	default:
		return appendValid(dst, b)
	}
	return dst
}

// asciiPrefix returns how many bytes at the front are below 0x80, in steps of
// eight bytes.
func asciiPrefix(b []byte) int {
	n := 0
	for len(b)-n >= 8 && binary.LittleEndian.Uint64(b[n:])&0x8080808080808080 == 0 {
		n += 8
	}
	for n < len(b) && b[n] < utf8.RuneSelf {
		n++
	}
	return n
}

// appendValid appends UTF-8 and replaces what is none.
func appendValid(dst, b []byte) []byte {
	if utf8.Valid(b) {
		return append(dst, b...)
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

func appendUTF16(dst, b []byte, order binary.ByteOrder) []byte {
	for ; len(b) >= 2; b = b[2:] {
		r := rune(order.Uint16(b))
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if len(b) >= 4 {
				low = rune(order.Uint16(b[2:]))
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				b = b[2:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	if len(b) > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}

// multibyte is a character set of characters of one to four bytes whose
// first byte, when below 0x80, is ASCII. Its tables are made from
// golang.org/x/text at first use and corrected where the server differs.
type multibyte struct {
	name  string
	enc   encoding.Encoding
	three bool // 0x8f starts characters of three bytes
	four  bool // a second byte 0x30..0x39 starts characters of four bytes

	once   sync.Once
	one    [256]uint16 // 0: no character
	two    []uint16    // by both bytes, big-endian; 0: no character
	behind []uint16    // three: by the two bytes behind 0x8f
}

// A charsetPatch says that the codes from first to last mean consecutive
// characters from r on, or nothing when r is 0.
type charsetPatch struct {
	first, last uint32
	r           uint16
}

func (m *multibyte) load() {
	dec := m.enc.NewDecoder()
	rune1 := func(b ...byte) uint16 {
		dec.Reset()
		s, err := dec.Bytes(b)
		if err != nil {
			return 0
		}
		r, n := utf8.DecodeRune(s)
		if n != len(s) || r == utf8.RuneError || r > 0xffff {
			return 0
		}
		return uint16(r)
	}
	m.two = make([]uint16, 1<<16)
	if m.three {
		m.behind = make([]uint16, 1<<16)
	}
	for i := range 256 {
		m.one[i] = rune1(byte(i))
		if i < 0x80 {
			m.one[i] = uint16(i)
			continue
		}
		for j := range 256 {
			m.two[i<<8|j] = rune1(byte(i), byte(j))
			if m.three && i > 0xa0 && j > 0xa0 {
				m.behind[i<<8|j] = rune1(0x8f, byte(i), byte(j))
			}
		}
	}
	for _, p := range charsetPatches[m.name] {
		r := p.r
		for code := p.first; code <= p.last; code++ {
			switch {
			case code < 1<<8:
				m.one[code] = r
			case code < 1<<16:
				m.two[code] = r
			case m.three:
				m.behind[code&0xffff] = r
			}
			if r != 0 {
				r++
			}
		}
	}
}

func (m *multibyte) append(dst, b []byte) []byte {
	m.once.Do(m.load)
	for len(b) > 0 {
		x := b[0]
		if x < utf8.RuneSelf {
			n := asciiPrefix(b)
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		r, n := rune(0), 1
		if r = rune(m.one[x]); r == 0 && len(b) >= 2 {
			r, n = rune(m.two[int(x)<<8|int(b[1])]), 2
			switch {
			case r != 0:
			case m.three && x == 0x8f && len(b) >= 3:
				r, n = rune(m.behind[int(b[1])<<8|int(b[2])]), 3
			case m.four && b[1] >= '0' && b[1] <= '9' && len(b) >= 4:
				if r = gb18030(b); r != 0 {
					n = 4
				}
			}
			if r == 0 && b[1] < utf8.RuneSelf {
				n = 1 // keep ASCII behind a stray byte
			}
		}
		if r == 0 {
			r = utf8.RuneError
		}
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// gb18030 returns the character of the four bytes at the front of b, 0 for none.
func gb18030(b []byte) rune {
	if b[2] < 0x81 || b[3] < '0' || b[3] > '9' {
		return 0
	}
	switch binary.BigEndian.Uint32(b) {
	case 0x8135f437: // the server has the table of 2005
		return 0xe7c7
	case 0x8431a437:
		return utf8.RuneError
	}
	s, err := simplifiedchinese.GB18030.NewDecoder().Bytes(b[:4])
	if err != nil {
		return 0
	}
	if r, n := utf8.DecodeRune(s); n == len(s) && r != utf8.RuneError {
		return r
	}
	return 0
}
