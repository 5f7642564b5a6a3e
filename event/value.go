package event

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// Value is one column of a row image: the bytes as the server logged them and
// the column that says what they mean. It is small and meant to be copied; its methods take a pointer since a copy for each
// of their calls is felt.
type Value struct {
	raw   []byte
	col   *Column
	state valueState
}

type valueState uint8

const (
	stateAbsent valueState = iota // not in the image (binlog_row_image MINIMAL or NOBLOB)
	stateNull
	statePresent
)

// Column returns the column that the value belongs to.
func (v *Value) Column() *Column { return v.col }

// IsNull reports whether the value is in the image and is NULL.
func (v *Value) IsNull() bool { return v.state == stateNull }

// IsAbsent reports whether the image does not hold the column. An absent value
// is not NULL: in the after image of an update it is unchanged (and, with
// MariaDB's FULL_NODUP, to be had from the before image), in an insert the
// column's default, elsewhere unknown.
func (v *Value) IsAbsent() bool { return v.state == stateAbsent }

// Raw returns the bytes of the value as logged, without a length prefix; nil
// for NULL and absent. BINARY values lack trailing zero bytes there, COMPRESSED
// ones are packed.
func (v *Value) Raw() []byte { return v.raw }

// Equal reports whether both values are absent, both NULL, or present with
// the same content.
func (v *Value) Equal(o Value) bool {
	if v.state != o.state {
		return false
	}
	if v.state != statePresent || bytes.Equal(v.raw, o.raw) {
		return true
	}
	if v.col == nil || o.col == nil || !v.col.compressed || !o.col.compressed {
		return false
	}
	// The same content may have been packed at another level.
	a, err := unpack(nil, v.raw)
	if err != nil {
		return false
	}
	b, err := unpack(nil, o.raw)
	return err == nil && bytes.Equal(a, b)
}

// AppendText appends the value as SELECT shows it, in UTF-8, TIMESTAMP in UTC.
// It is [Value.AppendTextIn] with time.UTC.
func (v *Value) AppendText(dst []byte) ([]byte, error) { return v.AppendTextIn(dst, time.UTC) }

// AppendTextIn appends the value as SELECT shows it, in UTF-8, with TIMESTAMP
// values in loc. The text is the server's own but for
//
//   - FLOAT: the shortest decimal that reads back to the same 32-bit number,
//     where the server would round to six digits;
//   - BIT: the unsigned decimal number, as SELECT b+0;
//   - VECTOR: "[1,2.5]", each element the shortest decimal that reads back to
//     the same 32-bit number; one that is not a number is null;
//   - FLOAT(M,D), DOUBLE(M,D) and ZEROFILL: not padded, the log knows no declared width;
//   - characters that the column's bytes do not define: U+FFFD.
//
// BINARY values are padded with zero bytes to the declared length; they and
// the other byte strings are appended as they are. An error names the column;
// dst is then returned unchanged. NULL and absent values have no text.
func (v *Value) AppendTextIn(dst []byte, loc *time.Location) ([]byte, error) {
	if v.state != statePresent {
		return dst, v.noValue()
	}
	c, raw := v.col, v.raw
	out, err := dst, error(nil)
	switch c.Class {
	case ClassInt:
		return appendInt(dst, signed(raw)), nil
	case ClassUint:
		return appendUint(dst, littleEndian(raw)), nil
	case ClassChar, ClassText:
		if c.compressed {
			if raw, err = unpack(nil, raw); err != nil {
				break
			}
		}
		return c.set.append(dst, raw), nil
	case ClassDecimal:
		out, err = appendDecimal(dst, raw, int(c.Meta>>8), int(c.Meta&0xff))
	case ClassDatetime:
		out, err = c.appendDatetime(dst, raw)
	case ClassTimestamp:
		out, err = c.appendTimestamp(dst, raw, loc)
	case ClassDate:
		out, err = appendDate(dst, raw)
	case ClassTime:
		out, err = c.appendTime(dst, raw)
	case ClassJSON:
		out, err = appendJSON(dst, raw)
	case ClassEnum, ClassSet:
		out, err = c.appendLabels(dst, littleEndian(raw))
	case ClassFloat:
		out, err = appendFinite(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), 32)
	case ClassDouble:
		out, err = appendFinite(dst, math.Float64frombits(binary.LittleEndian.Uint64(raw)), 64)
	case ClassBit:
		out = appendUint(dst, bigEndian(raw))
	case ClassYear:
		out = appendDigits(dst, uint64(year(raw)), 4)
	case ClassVarbinary, ClassBlob:
		if !c.compressed {
			return append(dst, raw...), nil
		}
		out, err = unpack(dst, raw)
	case ClassGeometry:
		return append(dst, raw...), nil
	case ClassBinary:
		out, err = appendPadded(dst, raw, int(c.Meta))
	case ClassVector:
		out, err = appendVector(dst, raw)
	case ClassUUID, ClassINET4, ClassINET6:
		out, err = c.appendLogical(dst, raw)
	default:
		err = errors.New("the value has no text")
	}
	if err != nil {
		return dst, v.wrap(err)
	}
	return out, nil
}

// Int64 returns the number behind an integer, BIT, YEAR, ENUM (index, 0 for an
// invalid member) or SET (mask) value; an error for other classes, for NULL
// and absent values, and for numbers beyond 2^63-1.
func (v *Value) Int64() (int64, error) {
	if v.state == statePresent && v.col.Class == ClassInt {
		return signed(v.raw), nil
	}
	u, err := v.Uint64()
	if err == nil && u > math.MaxInt64 {
		err = v.wrap(fmt.Errorf("%d does not fit 64 bits with sign", u))
		u = 0
	}
	return int64(u), err
}

// Uint64 is like [Value.Int64] for numbers from 0 to 2^64-1; a negative number
// is an error.
func (v *Value) Uint64() (uint64, error) {
	if v.state != statePresent {
		return 0, v.noValue()
	}
	switch v.col.Class {
	case ClassInt:
		n := signed(v.raw)
		if n < 0 {
			return 0, v.wrap(fmt.Errorf("%d is negative", n))
		}
		return uint64(n), nil
	case ClassUint, ClassEnum, ClassSet:
		return littleEndian(v.raw), nil
	case ClassBit:
		return bigEndian(v.raw), nil
	case ClassYear:
		return uint64(year(v.raw)), nil
	}
	return 0, v.wrap(errors.New("not an integer"))
}

func (v *Value) noValue() error {
	switch {
	case v.col == nil:
		return errors.New("event: the zero Value has no column")
	case v.state == stateNull:
		return v.wrap(errors.New("the value is NULL"))
	}
	return v.wrap(errors.New("the value is not in the row image; set binlog_row_image=FULL on the server where it is needed"))
}

func (v *Value) wrap(err error) error {
	return fmt.Errorf("column %q (%s): %w", v.col.Name, v.col.SQLType, err)
}

// littleEndian reads 1..8 bytes, least significant first.
func littleEndian(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	var u uint64
	for i := len(b) - 1; i >= 0; i-- {
		u = u<<8 | uint64(b[i])
	}
	return u
}

// signed reads 1..8 bytes, least significant first, in two's complement.
func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(littleEndian(b)<<shift) >> shift
}

// bigEndian reads up to 8 bytes, most significant first.
func bigEndian(b []byte) uint64 {
	var u uint64
	for _, x := range b {
		u = u<<8 | uint64(x)
	}
	return u
}

func year(b []byte) int {
	if b[0] == 0 {
		return 0
	}
	return 1900 + int(b[0])
}

// appendPadded restores the trailing zero bytes that the server cuts off.
func appendPadded(dst, raw []byte, size int) ([]byte, error) {
	if len(raw) > size {
		return dst, fmt.Errorf("%d bytes in a column of %d", len(raw), size)
	}
	dst = append(dst, raw...)
	for n := size - len(raw); n > 0; n-- {
		dst = append(dst, 0)
	}
	return dst, nil
}

// appendLabels appends the ENUM label of index n, or the labels of the SET mask n.
func (c *Column) appendLabels(dst []byte, n uint64) ([]byte, error) {
	if n == 0 {
		return dst, nil // no member: '' of an ENUM, the empty SET
	}
	if len(c.Members) == 0 {
		return dst, errors.New("labels unknown: set binlog_row_metadata=FULL on the server, or have the schema read from information_schema")
	}
	if c.Class == ClassEnum {
		if n > uint64(len(c.Members)) {
			return dst, fmt.Errorf("index %d, but the column has %d labels", n, len(c.Members))
		}
		return append(dst, c.Members[n-1]...), nil
	}
	if bits.Len64(n) > len(c.Members) {
		return dst, fmt.Errorf("mask %#x, but the column has %d labels", n, len(c.Members))
	}
	for begin := len(dst); n != 0; n &= n - 1 {
		if len(dst) > begin { // the server puts no comma behind a label '' that comes first
			dst = append(dst, ',')
		}
		dst = append(dst, c.Members[bits.TrailingZeros64(n)]...)
	}
	return dst, nil
}

// appendFinite refuses what no server stores.
func appendFinite(dst []byte, f float64, size int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, errors.New("not a finite number")
	}
	return appendFloat(dst, f, size), nil
}

// appendVector appends the elements of a VECTOR: 32-bit floats, little-endian.
func appendVector(dst, raw []byte) ([]byte, error) {
	if len(raw)%4 != 0 {
		return dst, fmt.Errorf("a vector of %d bytes", len(raw))
	}
	dst = append(dst, '[')
	for i := 0; i < len(raw); i += 4 {
		if i > 0 {
			dst = append(dst, ',')
		}
		f := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			dst = append(dst, "null"...)
			continue
		}
		dst = appendFloat(dst, f, 32)
	}
	return append(dst, ']'), nil
}

// appendLogical appends MariaDB's UUID, INET4 and INET6, of which the log
// leaves trailing zero bytes out.
func (c *Column) appendLogical(dst, raw []byte) ([]byte, error) {
	var a [16]byte
	if len(raw) > int(c.Meta) || len(raw) > len(a) {
		return dst, fmt.Errorf("%d bytes in a column of %d", len(raw), c.Meta)
	}
	copy(a[:], raw)
	switch c.Class {
	case ClassUUID:
		for i, x := range a {
			if i == 4 || i == 6 || i == 8 || i == 10 {
				dst = append(dst, '-')
			}
			dst = append(dst, hexDigits[x>>4], hexDigits[x&15])
		}
		return dst, nil
	case ClassINET4:
		return appendINET4(dst, a[:4]), nil
	}
	return appendINET6(dst, a), nil
}

const hexDigits = "0123456789abcdef"

func appendINET4(dst, a []byte) []byte {
	for i, x := range a[:4] {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(x), 10)
	}
	return dst
}

// appendINET6 writes what MariaDB's Inet6::to_string does: the longest run of
// zero groups, even of one group, becomes "::"; addresses below ::ffff:0:0/96
// end as IPv4 does.
func appendINET6(dst []byte, a [16]byte) []byte {
	var words [8]uint16
	for i := range words {
		words[i] = binary.BigEndian.Uint16(a[2*i:])
	}
	gap, length := -1, 0
	for i := 0; i < 8; {
		j := i
		for j < 8 && words[j] == 0 {
			j++
		}
		if j-i > length {
			gap, length = i, j-i
		}
		i = j + 1
	}
	for i := 0; i < 8; i++ {
		if i == gap {
			if i == 0 {
				dst = append(dst, ':')
			}
			dst = append(dst, ':')
			i += length - 1
			continue
		}
		if i == 6 && gap == 0 && (length == 6 || length == 5 && words[5] == 0xffff) {
			return appendINET4(dst, a[12:])
		}
		dst = strconv.AppendUint(dst, uint64(words[i]), 16)
		if i != 7 {
			dst = append(dst, ':')
		}
	}
	return dst
}

// unpack appends the content of a MariaDB COMPRESSED value: empty for an empty
// value; else a header byte whose high half is 0 (the bytes follow) or 8 (zlib),
// whose low three bits are the size of the big-endian original length that
// follows, and whose bit 3 says that the zlib header is left out. Source:
// MariaDB, sql/field_comp.cc.
func unpack(dst, raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return dst, nil
	}
	head := raw[0]
	if head>>4 == 0 {
		return append(dst, raw[1:]...), nil
	}
	size := int(head & 7)
	if head>>4 != 8 || size == 0 || size > 4 || len(raw) < 1+size {
		return dst, fmt.Errorf("compressed value with an unknown header %#02x", head)
	}
	length := bigEndian(raw[1 : 1+size])
	body := raw[1+size:]
	// zlib cannot pack better than 1032 to 1, so a greater length is a lie.
	if length > uint64(len(body))*1032+64 {
		return dst, fmt.Errorf("compressed value of %d bytes claims to hold %d", len(body), length)
	}
	var r io.ReadCloser
	if head&8 != 0 {
		r = flate.NewReader(bytes.NewReader(body))
	} else {
		var err error
		if r, err = zlib.NewReader(bytes.NewReader(body)); err != nil {
			return dst, fmt.Errorf("compressed value: %w", err)
		}
	}
	start := len(dst)
	dst = append(dst, make([]byte, length)...)
	if _, err := io.ReadFull(r, dst[start:]); err != nil {
		return dst[:start], fmt.Errorf("compressed value: %w", err)
	}
	// Reading on to the end verifies the checksum.
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return dst[:start], fmt.Errorf("compressed value does not end after %d bytes (%v)", length, err)
	}
	return dst, nil
}
