package binlog

import "github.com/binlogmq/binlogmq/event"

// clientCharsets names the character sets, by their default collation, in
// which clients may send statements and which are not UTF-8 already. A
// client cannot use UCS-2, UTF-16 and UTF-32.
var clientCharsets = map[uint16]string{
	1: "big5", 3: "dec8", 4: "cp850", 6: "hp8", 7: "koi8r", 8: "latin1", 9: "latin2", 10: "swe7", 12: "ujis", 13: "sjis", 16: "hebrew", 18: "tis620",
	19: "euckr", 22: "koi8u", 24: "gb2312", 25: "greek", 26: "cp1250", 28: "gbk", 30: "latin5", 32: "armscii8", 36: "cp866", 37: "keybcs2",
	38: "macce", 39: "macroman", 40: "cp852", 41: "latin7", 51: "cp1251", 57: "cp1256", 59: "cp1257", 92: "geostd8", 95: "cp932", 97: "eucjpms", 248: "gb18030",
}

// utf8 returns the statement's text in UTF-8.
func (m *Machine) utf8(q *Query, text []byte) []byte {
	name, ok := clientCharsets[q.Charset]
	if !ok || isASCII(text) {
		return text
	}
	out, err := event.AppendUTF8(nil, name, text)
	if err != nil {
		return text // a set that the decoder does not have: the bytes as they are
	}
	return out
}

func isASCII(b []byte) bool {
	for _, x := range b {
		if x >= 0x80 {
			return false
		}
	}
	return true
}
