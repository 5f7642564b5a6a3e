package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// PackDecimal appends a DECIMAL(precision, scale) as row images hold it; text is what SELECT shows of it, zeros in front allowed. See appendDecimal.
func PackDecimal(dst, text []byte, precision, scale int) ([]byte, error) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	whole, frac, _ := bytes.Cut(text, []byte{'.'})
	if len(whole)+len(frac) == 0 || precision < 1 || precision > 65 || scale < 0 || scale > precision {
		return dst, errDecimal
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) > precision-scale || len(frac) > scale {
		return dst, errDecimal
	}
	var digits [65]byte
	for i := range digits {
		digits[i] = '0'
	}
	copy(digits[precision-scale-len(whole):], whole)
	copy(digits[precision-scale:], frac)
	start, sign := len(dst), byte(0)
	group := func(at, n int) bool {
		u := uint32(0)
		for _, d := range digits[at : at+n] {
			if d < '0' || d > '9' {
				return false
			}
			u = u*10 + uint32(d-'0')
			sign |= d - '0'
		}
		for size := decimalBytes[n]; size > 0; size-- {
			dst = append(dst, byte(u>>(8*(size-1))))
		}
		return true
	}
	at := 0
	for at < precision {
		n := (precision - scale - at) % 9
		switch {
		case at >= precision-scale:
			n = min(precision-at, 9)
		case n == 0:
			n = 9
		}
		if !group(at, n) {
			return dst[:start], errDecimal
		}
		at += n
	}
	if negative && sign != 0 { // there is no -0
		for i := start; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	dst[start] ^= 0x80
	return dst, nil
}

// PackTemporal appends a date or time as row images hold it; text is what SELECT shows of it, of a TIMESTAMP in UTC. Columns of the formats from before MySQL
// 5.6 are an error.
func PackTemporal(dst []byte, c *Column, text []byte) ([]byte, error) {
	r := temporalText{b: text}
	switch c.Type {
	case TypeDate, TypeNewDate:
		y, m, d := r.day()
		if !r.done() || m > 15 || d > 31 {
			return dst, errTemporal
		}
		u := y<<9 | m<<5 | d
		return append(dst, byte(u), byte(u>>8), byte(u>>16)), nil
	case TypeTime2:
		negative := r.take('-')
		h, m, s := r.clock()
		frac := r.fraction(int(c.Meta))
		if !r.done() || h > 838 {
			return dst, errTemporal
		}
		shift := 8 * ((int(c.Meta) + 1) / 2)
		v := int64(h<<12|m<<6|s)<<shift | int64(frac)
		if negative {
			v = -v
		}
		return appendBigEndian(dst, uint64(v+0x800000<<shift), 3+shift/8), nil
	case TypeDatetime2, TypeTimestamp2:
		y, m, d := r.day()
		r.expect(' ')
		h, mi, s := r.clock()
		frac := r.fraction(int(c.Meta))
		if !r.done() || m > 12 || d > 31 || h > 23 {
			return dst, errTemporal
		}
		if c.Type == TypeDatetime2 {
			u := uint64(1)<<39 | uint64(y*13+m)<<22 | uint64(d)<<17 | uint64(h<<12|mi<<6|s)
			return appendBigEndian(appendBigEndian(dst, u, 5), uint64(frac), (int(c.Meta)+1)/2), nil
		}
		sec := int64(0)
		if zero := y|m|d|h|mi|s|frac == 0; !zero {
			t := time.Date(int(y), time.Month(m), int(d), int(h), int(mi), int(s), 0, time.UTC)
			sec = t.Unix()
			// Zero stands for the zero value alone, and what is no day is not moved to one.
			if sec < 0 || sec > math.MaxUint32 || sec == 0 && frac == 0 || t.Day() != int(d) || t.Month() != time.Month(m) {
				return dst, errTemporal
			}
		}
		return appendBigEndian(binary.BigEndian.AppendUint32(dst, uint32(sec)), uint64(frac), (int(c.Meta)+1)/2), nil
	}
	return dst, fmt.Errorf("type code %d has no text that can be packed", c.Type)
}

// appendBigEndian appends the last n bytes of u.
func appendBigEndian(dst []byte, u uint64, n int) []byte {
	for ; n > 0; n-- {
		dst = append(dst, byte(u>>(8*(n-1))))
	}
	return dst
}

// temporalText reads a date or time off the front of b.
type temporalText struct {
	b   []byte
	bad bool
}

func (r *temporalText) done() bool { return !r.bad && len(r.b) == 0 }

func (r *temporalText) take(x byte) bool {
	if len(r.b) == 0 || r.b[0] != x {
		return false
	}
	r.b = r.b[1:]
	return true
}

func (r *temporalText) expect(x byte) { r.bad = !r.take(x) || r.bad }

// number reads from least to most digits.
func (r *temporalText) number(least, most int) (u uint) {
	n := 0
	for n < most && n < len(r.b) && r.b[n] >= '0' && r.b[n] <= '9' {
		u = u*10 + uint(r.b[n]-'0')
		n++
	}
	r.b = r.b[n:]
	r.bad = r.bad || n < least
	return u
}

func (r *temporalText) day() (y, m, d uint) {
	y = r.number(4, 4)
	r.expect('-')
	m = r.number(2, 2)
	r.expect('-')
	return y, m, r.number(2, 2)
}

// clock reads "hh:mm:ss", with three digits of the hours where a TIME has so many.
func (r *temporalText) clock() (h, m, s uint) {
	h = r.number(2, 3)
	r.expect(':')
	m = r.number(2, 2)
	r.expect(':')
	s = r.number(2, 2)
	r.bad = r.bad || m > 59 || s > 59
	return h, m, s
}

// fraction reads so many digits as they are stored: in pairs.
func (r *temporalText) fraction(digits int) uint {
	if digits == 0 {
		return 0
	}
	r.expect('.')
	u := r.number(digits, digits)
	if digits&1 != 0 {
		u *= 10
	}
	return u
}
