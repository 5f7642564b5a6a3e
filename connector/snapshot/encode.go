package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/event"
)

// Append appends the row image of an insert with all columns: the fields are what the server sent for [Reader.Select]. What it appends
// is, but for the packing of COMPRESSED columns and the form of MySQL's JSON, what the log has of an INSERT of the row. An error names the column; dst is then
// returned unchanged.
func (r *Reader) Append(dst []byte, fields []mysql.FieldValue) ([]byte, error) {
	if len(fields) != len(r.columns) {
		return dst, fmt.Errorf("table %s.%s: %d values of %d columns", r.table.Schema, r.table.Name, len(fields), len(r.columns))
	}
	out := append(dst, make([]byte, r.nulls)...)
	for i := range r.columns {
		if fields[i].Type == mysql.FieldValueTypeNull {
			out[len(dst)+i>>3] |= 1 << (i & 7)
			continue
		}
		var err error
		if out, err = r.columns[i].append(out, &fields[i]); err != nil {
			return dst, fmt.Errorf("table %s.%s: column %q (%s): %w", r.table.Schema, r.table.Name, r.columns[i].Name, r.columns[i].SQLType, err)
		}
	}
	return out, nil
}

var errValue = errors.New("the server shows a value that the column's type cannot have")

// append appends a value.
func (c *column) append(dst []byte, f *mysql.FieldValue) ([]byte, error) {
	b := f.AsString()
	switch c.form {
	case formInteger:
		return c.integer(dst, f)
	case formFloat:
		if f.Type != mysql.FieldValueTypeFloat {
			return dst, errValue
		}
		if c.Type == event.TypeFloat {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f.AsFloat64()))), nil
		}
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f.AsFloat64())), nil
	}
	if f.Type != mysql.FieldValueTypeString {
		return dst, errValue
	}
	switch c.form {
	case formDecimal:
		return event.PackDecimal(dst, b, int(c.Meta>>8), int(c.Meta&0xff))
	case formTemporal:
		return event.PackTemporal(dst, c.Column, b)
	case formJSON:
		return c.value(dst, []byte{event.JSONAsText}, b)
	case formCompressed:
		if len(b) == 0 {
			return c.value(dst, nil, nil)
		}
		return c.value(dst, []byte{0}, b) // as it is
	case formTrimmed:
		b = bytes.TrimRight(b, "\x00")
	case formUUID:
		raw, err := hex.DecodeString(strings.ReplaceAll(string(b), "-", ""))
		if err != nil || len(raw) != 16 {
			return dst, errValue
		}
		b = bytes.TrimRight(raw, "\x00")
	case formINET:
		a, err := netip.ParseAddr(string(b))
		if err != nil || a.BitLen() != 8*int(c.Meta) || a.Zone() != "" {
			return dst, errValue
		}
		b = bytes.TrimRight(a.AsSlice(), "\x00")
	}
	if c.Type == event.TypeBit {
		if len(b) != int(c.Meta+7)/8 {
			return dst, errValue
		}
		return append(dst, b...), nil
	}
	return c.value(dst, nil, b)
}

// value appends the length of a value and the value, which begins with head.
func (c *column) value(dst, head, b []byte) ([]byte, error) {
	n := uint64(len(head) + len(b))
	if c.prefix == 0 || n>>(8*c.prefix) != 0 {
		return dst, fmt.Errorf("%w: %d bytes", errValue, n)
	}
	for i := range c.prefix {
		dst = append(dst, byte(n>>(8*i)))
	}
	return append(append(dst, head...), b...), nil
}

// integer appends a number of a fixed size, least significant byte first.
func (c *column) integer(dst []byte, f *mysql.FieldValue) ([]byte, error) {
	n := f.AsUint64()
	negative := f.Type == mysql.FieldValueTypeSigned && f.AsInt64() < 0
	if f.Type != mysql.FieldValueTypeSigned && f.Type != mysql.FieldValueTypeUnsigned {
		return dst, errValue
	}
	size := 0
	switch c.Type {
	case event.TypeTiny:
		size = 1
	case event.TypeShort:
		size = 2
	case event.TypeInt24:
		size = 3
	case event.TypeLong:
		size = 4
	case event.TypeLongLong:
		size = 8
	case event.TypeEnum, event.TypeSet:
		size = int(c.Meta)
	case event.TypeYear:
		if negative || n != 0 && (n < 1900 || n > 2155) {
			return dst, errValue
		}
		if n != 0 {
			n -= 1900
		}
		return append(dst, byte(n)), nil
	}
	bits := 8 * size
	signed := !c.Unsigned && c.Type != event.TypeEnum && c.Type != event.TypeSet
	switch {
	case signed && (negative && int64(n) < -1<<(bits-1) || !negative && n > 1<<(bits-1)-1), !signed && (negative || bits < 64 && n>>bits != 0):
		return dst, errValue
	}
	for i := range size {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst, nil
}
