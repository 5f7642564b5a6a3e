package event

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"unicode/utf8"
)

// Value types of MySQL's binary JSON. Source: MySQL, sql-common/json_binary.h.
const (
	jsonSmallObject = 0x00
	jsonLargeObject = 0x01
	jsonSmallArray  = 0x02
	jsonLargeArray  = 0x03
	jsonLiteral     = 0x04
	jsonInt16       = 0x05
	jsonUint16      = 0x06
	jsonInt32       = 0x07
	jsonUint32      = 0x08
	jsonInt64       = 0x09
	jsonUint64      = 0x0a
	jsonDouble      = 0x0b
	jsonString      = 0x0c
	jsonOpaque      = 0x0f
)

// JSONAsText begins a value of MySQL's type JSON that holds the document as text behind it: what SELECT shows, where the binary form is not to be had. No
// server logs it.
const JSONAsText = 0x7f

// jsonDepth is the server's limit on nesting, with some room.
const jsonDepth = 128

var (
	errJSON      = errors.New("malformed binary JSON")
	errJSONDepth = errors.New("binary JSON nested too deep")
)

// appendJSON appends the text of a binary JSON document exactly as the server
// prints it: members in stored order, a space behind ',' and ':'. An empty
// document is what INSERT IGNORE makes of a NULL, and shown as null. Behind [JSONAsText] stands what the server printed.
func appendJSON(dst, doc []byte) ([]byte, error) {
	switch {
	case len(doc) == 0:
		return append(dst, "null"...), nil
	case doc[0] == JSONAsText && json.Valid(doc[1:]): // which no log proves
		return append(dst, doc[1:]...), nil
	}
	if n := len(doc) + len(doc)/4; len(doc) > 1<<20 && n > cap(dst)-len(dst) {
		dst = append(make([]byte, 0, len(dst)+n), dst...) // I9: at once, where growing leaves as much again behind
	}
	w := jsonWriter{dst: dst, budget: len(doc)}
	if err := w.value(doc[0], doc[1:], 0); err != nil {
		return dst, err
	}
	return w.dst, nil
}

// jsonWriter walks one document. Values follow offsets, so that the bytes which
// an update in place leaves unused do not matter. A regular document holds
// every value once; budget, its size, bounds the work on one that refers to the
// same bytes again and again.
type jsonWriter struct {
	dst    []byte
	budget int
}

// spend takes n bytes of the document off the budget.
func (w *jsonWriter) spend(n int) bool {
	w.budget -= n
	return w.budget >= 0
}

// value writes the value of type typ that starts at the front of b.
func (w *jsonWriter) value(typ byte, b []byte, depth int) error {
	switch typ {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		if depth >= jsonDepth {
			return errJSONDepth
		}
		return w.container(typ, b, depth)
	case jsonLiteral:
		if len(b) < 1 || b[0] > 2 {
			return errJSON
		}
		w.dst = append(w.dst, [3]string{"null", "true", "false"}[b[0]]...)
		return nil
	case jsonInt16, jsonUint16:
		if len(b) < 2 {
			return errJSON
		}
		u := binary.LittleEndian.Uint16(b)
		if typ == jsonInt16 {
			w.dst = appendInt(w.dst, int64(int16(u)))
		} else {
			w.dst = appendUint(w.dst, uint64(u))
		}
		return nil
	case jsonInt32, jsonUint32:
		if len(b) < 4 {
			return errJSON
		}
		u := binary.LittleEndian.Uint32(b)
		if typ == jsonInt32 {
			w.dst = appendInt(w.dst, int64(int32(u)))
		} else {
			w.dst = appendUint(w.dst, uint64(u))
		}
		return nil
	case jsonInt64, jsonUint64, jsonDouble:
		if len(b) < 8 {
			return errJSON
		}
		u := binary.LittleEndian.Uint64(b)
		switch typ {
		case jsonInt64:
			w.dst = appendInt(w.dst, int64(u))
		case jsonUint64:
			w.dst = appendUint(w.dst, u)
		default:
			return w.double(math.Float64frombits(u))
		}
		return nil
	case jsonString:
		s, err := jsonBytes(b)
		if err != nil {
			return err
		}
		if !w.spend(len(s)) {
			return errJSON
		}
		w.quote(s)
		return nil
	case jsonOpaque:
		return w.opaque(b)
	}
	return errJSON
}

// container writes an object or array.
func (w *jsonWriter) container(typ byte, b []byte, depth int) error {
	c, err := openJSON(typ, b)
	if err != nil {
		return err
	}
	if !w.spend(c.n * c.entry()) {
		return errJSON
	}
	closing := byte(']')
	if c.object {
		closing = '}'
		w.dst = append(w.dst, '{')
	} else {
		w.dst = append(w.dst, '[')
	}
	for i := range c.n {
		if i > 0 {
			w.dst = append(w.dst, ", "...)
		}
		if c.object {
			key, err := c.key(i)
			if err != nil || !w.spend(len(key)) {
				return errJSON
			}
			w.quote(key)
			w.dst = append(w.dst, ": "...)
		}
		typ, b, err := c.value(i)
		if err != nil {
			return err
		}
		if err := w.value(typ, b, depth+1); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, closing)
	return nil
}

// jsonContainer is a view on an object or array: number of elements, size in
// bytes, key entries (offset, length), value entries (type, value or offset),
// keys, values. Offsets count from its start and have two bytes, four when large.
type jsonContainer struct {
	b             []byte
	n             int
	size          int // bytes of an offset
	object, large bool
}

// openJSON checks that the entries of the container at the front of b are there.
func openJSON(typ byte, b []byte) (jsonContainer, error) {
	c := jsonContainer{size: 2, object: typ < jsonSmallArray, large: typ&1 != 0}
	if c.large {
		c.size = 4
	}
	if len(b) < 2*c.size {
		return c, errJSON
	}
	c.n = jsonOffset(b, c.large)
	bytes := jsonOffset(b[c.size:], c.large)
	if bytes > len(b) || bytes < 2*c.size || c.n > (bytes-2*c.size)/c.entry() {
		return c, errJSON
	}
	c.b = b[:bytes]
	return c, nil
}

// entry returns the bytes that one element takes in the entries.
func (c *jsonContainer) entry() int {
	if c.object {
		return 2*c.size + 3
	}
	return c.size + 1
}

// key returns the name of member i of an object.
func (c *jsonContainer) key(i int) ([]byte, error) {
	entry := c.b[2*c.size+i*(c.size+2):]
	at, length := jsonOffset(entry, c.large), int(binary.LittleEndian.Uint16(entry[c.size:]))
	if at > len(c.b) || length > len(c.b)-at {
		return nil, errJSON
	}
	return c.b[at : at+length], nil
}

// value returns type and bytes of element i; the bytes go on to the container's end.
func (c *jsonContainer) value(i int) (byte, []byte, error) {
	at := 2*c.size + i*(c.size+1)
	if c.object {
		at += c.n * (c.size + 2)
	}
	entry := c.b[at : at+1+c.size]
	if jsonInlined(entry[0], c.large) {
		return entry[0], entry[1:], nil
	}
	if at = jsonOffset(entry[1:], c.large); at > len(c.b) {
		return 0, nil, errJSON
	}
	return entry[0], c.b[at:], nil
}

// jsonInlined tells whether values of the type stand in place of their offset.
func jsonInlined(typ byte, large bool) bool {
	return typ == jsonLiteral || typ == jsonInt16 || typ == jsonUint16 || large && (typ == jsonInt32 || typ == jsonUint32)
}

func jsonOffset(b []byte, large bool) int {
	if large {
		return int(min(binary.LittleEndian.Uint32(b), math.MaxInt32))
	}
	return int(binary.LittleEndian.Uint16(b))
}

// jsonBytes reads a length of one to five bytes, seven bits each, least
// significant first, and the bytes that follow it.
func jsonBytes(b []byte) ([]byte, error) {
	var n uint64
	for i, x := range b {
		if i == 5 {
			break
		}
		n |= uint64(x&0x7f) << (7 * i)
		if x&0x80 == 0 {
			b = b[i+1:]
			if n > uint64(len(b)) {
				return nil, errJSON
			}
			return b[:n], nil
		}
	}
	return nil, errJSON
}

// double writes a number that always looks like a floating-point one.
func (w *jsonWriter) double(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return errJSON
	}
	start := len(w.dst)
	w.dst = appendFloat(w.dst, f, 64)
	for _, x := range w.dst[start:] {
		if x == '.' || x == 'e' {
			return nil
		}
	}
	w.dst = append(w.dst, ".0"...)
	return nil
}

// opaque writes a value of a type that JSON does not have: the type code, a
// length and the bytes.
func (w *jsonWriter) opaque(b []byte) error {
	if len(b) < 1 {
		return errJSON
	}
	typ := b[0]
	b, err := jsonBytes(b[1:])
	if err != nil {
		return err
	}
	if !w.spend(len(b)) {
		return errJSON
	}
	switch typ {
	case TypeNewDecimal:
		if len(b) < 2 {
			return errJSON
		}
		p, s := int(b[0]), int(b[1])
		if p < 1 || p > 81 || s > p {
			return errJSON
		}
		w.dst, err = appendDecimal(w.dst, b[2:], p, s)
		return err
	case TypeDate, TypeTime, TypeDatetime, TypeTimestamp:
		if len(b) != 8 {
			return errJSON
		}
		return w.temporal(typ, int64(binary.LittleEndian.Uint64(b)))
	}
	w.dst = append(w.dst, `"base64:type`...)
	w.dst = appendUint(w.dst, uint64(typ))
	w.dst = append(w.dst, ':')
	// The server's base64 breaks lines after 76 characters, here escaped.
	for len(b) > 57 {
		w.dst = base64.StdEncoding.AppendEncode(w.dst, b[:57])
		w.dst = append(w.dst, `\n`...)
		b = b[57:]
	}
	w.dst = base64.StdEncoding.AppendEncode(w.dst, b)
	w.dst = append(w.dst, '"')
	return nil
}

// temporal writes a date or time in the server's 64-bit packed form: sign,
// packed date and time, 24 bits of microseconds.
func (w *jsonWriter) temporal(typ byte, v int64) error {
	w.dst = append(w.dst, '"')
	if v < 0 {
		if v == math.MinInt64 {
			return errJSON
		}
		v = -v
		w.dst = append(w.dst, '-')
	}
	micros, u := uint64(v&0xffffff), uint64(v>>24)
	if micros > 999999 {
		return errJSON
	}
	switch typ {
	case TypeTime:
		w.dst = appendClock(w.dst, uint(u>>12)&0x3ff, uint(u>>6)&63, uint(u)&63)
	case TypeDate:
		ym := uint(u >> 22)
		if ym/13 > 9999 {
			return errJSON
		}
		w.dst = append(appendDay(w.dst, ym/13, ym%13, uint(u>>17)&31), '"')
		return nil
	default:
		var err error
		if w.dst, err = appendPackedDatetime(w.dst, u); err != nil {
			return errJSON
		}
	}
	w.dst = appendDigits(append(w.dst, '.'), micros, 6)
	w.dst = append(w.dst, '"')
	return nil
}

// jsonEscape tells for each byte what follows the backslash: 0 for none, 'u'
// for a code in four hex digits, jsonHigh for a byte of a longer character.
var jsonEscape = func() (t [256]byte) {
	for i := range t {
		switch {
		case i < 0x20:
			t[i] = 'u'
		case i >= utf8.RuneSelf:
			t[i] = jsonHigh
		}
	}
	for from, to := range map[byte]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'} {
		t[from] = to
	}
	return t
}()

const jsonHigh = 1

// quote writes a string of the document with the server's escapes. Bytes that
// are not UTF-8 become U+FFFD.
func (w *jsonWriter) quote(s []byte) {
	dst := append(w.dst, '"')
	from, checked := 0, false
	for i := 0; i < len(s); i++ {
		x := s[i]
		e := jsonEscape[x]
		if e == 0 {
			continue
		}
		if e == jsonHigh {
			if !checked {
				checked = true
				if !utf8.Valid(s[i:]) {
					dst = append(dst, s[from:i]...)
					s, from, i = appendValid(nil, s[i:]), 0, -1
				}
			}
			continue
		}
		dst = append(append(dst, s[from:i]...), '\\', e)
		if e == 'u' {
			dst = append(dst, '0', '0', hexDigits[x>>4], hexDigits[x&15])
		}
		from = i + 1
	}
	dst = append(dst, s[from:]...)
	w.dst = append(dst, '"')
}
