package event

import (
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// charset turns the bytes of a character set into UTF-8.
type charset struct {
	name string
	max  int  // bytes of the longest character
	utf8 bool // is UTF-8 already
	wide byte // 'u' UCS-2, '6' UTF-16, 'l' UTF-16LE, '3' UTF-32
	enc  encoding.Encoding
}

var charsets = map[string]*charset{}

func init() {
	add := func(max int, enc encoding.Encoding, names ...string) {
		for _, n := range names {
			charsets[n] = &charset{name: n, max: max, enc: enc}
		}
	}
	for name, max := range map[string]int{"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ascii": 1} {
		charsets[name] = &charset{name: name, max: max, utf8: true}
	}
	add(1, charmap.Windows1252, "latin1")
	add(2, simplifiedchinese.GBK, "gbk", "gb2312")
	add(4, simplifiedchinese.GB18030, "gb18030")
	add(2, traditionalchinese.Big5, "big5")
	add(2, japanese.ShiftJIS, "sjis", "cp932")
	add(3, japanese.EUCJP, "ujis", "eucjpms")
	add(2, korean.EUCKR, "euckr")
}

func charsetByName(name string) *charset { return charsets[name] }

func (cs *charset) append(dst, b []byte) []byte {
	if cs.utf8 {
		return appendValid(dst, b)
	}
	s, _ := cs.enc.NewDecoder().Bytes(b)
	return append(dst, s...)
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

// AppendUTF8 appends b, text of the named MySQL character set, as UTF-8.
func AppendUTF8(dst []byte, charset string, b []byte) ([]byte, error) {
	cs := charsetByName(charset)
	if cs == nil {
		return dst, fmt.Errorf("event: character set %q is not supported", charset)
	}
	return cs.append(dst, b), nil
}
