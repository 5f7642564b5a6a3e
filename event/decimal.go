package event

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// decimalBytes is the size of a group of 0..9 decimal digits.
var decimalBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

var pow10 = [10]uint32{1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000}

var errDecimal = errors.New("malformed DECIMAL")

// decimalSize returns the bytes of a DECIMAL(precision, scale).
func decimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/9*4 + decimalBytes[whole%9] + scale/9*4 + decimalBytes[scale%9]
}

// appendDecimal appends a DECIMAL(precision, scale) with all digits of its
// scale. The form is that of MySQL's decimal2bin: groups of nine digits in four
// big-endian bytes, a shorter group first and last, the first bit inverted, and
// all bits inverted in a negative number.
func appendDecimal(dst, b []byte, precision, scale int) ([]byte, error) {
	start, whole := len(dst), precision-scale
	if len(b) != decimalSize(precision, scale) {
		return dst, errDecimal
	}
	flip, top := uint32(0), uint32(0x80)
	if b[0]&0x80 == 0 {
		flip = math.MaxUint32
		dst = append(dst, '-')
	}
	// group reads the digits of one group off the front of b.
	group := func(digits int) (uint32, bool) {
		n := decimalBytes[digits]
		var u uint32
		for _, x := range b[:n] {
			u = u<<8 | uint32(x)
		}
		b = b[n:]
		u = (u ^ flip) & (math.MaxUint32 >> (32 - 8*n))
		if top != 0 {
			u ^= 0x80 << (8 * (n - 1))
			top = 0
		}
		return u, u < pow10[digits]
	}
	leading := true
	for first := whole % 9; whole > 0; first = 0 {
		digits := first
		if digits == 0 {
			digits = 9
		}
		whole -= digits
		u, ok := group(digits)
		switch {
		case !ok:
			return dst[:start], errDecimal
		case !leading:
			dst = appendDigits(dst, uint64(u), 9)
		case u != 0:
			dst = appendUint(dst, uint64(u))
			leading = false
		}
	}
	if leading {
		dst = append(dst, '0')
	}
	if scale > 0 {
		dst = append(dst, '.')
	}
	for scale > 0 {
		digits := min(scale, 9)
		scale -= digits
		u, ok := group(digits)
		if !ok {
			return dst[:start], errDecimal
		}
		dst = appendDigits(dst, uint64(u), digits)
	}
	return dst, nil
}

const digitPairs = "00010203040506070809" +
	"10111213141516171819" +
	"20212223242526272829" +
	"30313233343536373839" +
	"40414243444546474849" +
	"50515253545556575859" +
	"60616263646566676869" +
	"70717273747576777879" +
	"80818283848586878889" +
	"90919293949596979899"

// appendUint appends u in decimal digits. It writes them where they belong, which is faster than strconv's way over a buffer.
func appendUint(dst []byte, u uint64) []byte {
	n := bits.Len64(u|1) * 1233 >> 12 // digits, or one less
	if u >= powers[n] {
		n++
	}
	return appendDigits(dst, u, n)
}

// appendInt appends n in decimal digits, with a sign if it is negative.
func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendUint(append(dst, '-'), -uint64(n))
	}
	return appendUint(dst, uint64(n))
}

// powers are those of ten, the first one taken for 0, which has a digit.
var powers = [20]uint64{0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// appendDigits appends the last n (0..20) digits of u, zeros in front.
func appendDigits(dst []byte, u uint64, n int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	b := dst[at:]
	for n >= 2 {
		q := u / 100
		p := (u - q*100) * 2
		u = q
		n -= 2
		b[n], b[n+1] = digitPairs[p], digitPairs[p+1]
	}
	if n == 1 {
		b[0] = byte('0' + u%10)
	}
	return dst
}

// appendFloat appends the shortest decimal that reads back to the same number
// of 32 or 64 bits, in the form of MySQL's my_gcvt: positional from 1e-15 up to
// 15 digits before the point or when digits follow it, else with an exponent
// that has neither plus sign nor leading zeros. f must be finite.
func appendFloat(dst []byte, f float64, size int) []byte {
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], f, 'e', -1, size) // [-]d[.ddd]e±dd
	if e[0] == '-' {
		dst = append(dst, '-')
		e = e[1:]
	}
	var digits [20]byte
	n, i := 0, 0
	for ; e[i] != 'e'; i++ {
		if e[i] != '.' {
			digits[n] = e[i]
			n++
		}
	}
	exp := 0
	for _, x := range e[i+2:] {
		exp = exp*10 + int(x-'0')
	}
	if e[i+1] == '-' {
		exp = -exp
	}
	point := exp + 1 // digits before the decimal point
	switch {
	case point < -14 || point > 15 && n <= point:
		dst = append(dst, digits[0])
		if n > 1 {
			dst = append(dst, '.')
			dst = append(dst, digits[1:n]...)
		}
		dst = append(dst, 'e')
		return strconv.AppendInt(dst, int64(exp), 10)
	case point <= 0:
		dst = append(dst, "0."...)
		for ; point < 0; point++ {
			dst = append(dst, '0')
		}
		return append(dst, digits[:n]...)
	case point >= n:
		dst = append(dst, digits[:n]...)
		for ; n < point; n++ {
			dst = append(dst, '0')
		}
		return dst
	}
	dst = append(dst, digits[:point]...)
	dst = append(dst, '.')
	return append(dst, digits[point:n]...)
}
