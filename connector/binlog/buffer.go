package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error that says that bytes are not what
// the format asks for: damaged on the way or in the file, or of a format that
// this version does not know.
var ErrMalformed = errors.New("malformed binlog data")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

func short(what string, have int) error {
	return malformed("%s: ends after %d bytes", what, have)
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// leN reads an integer of len(b) bytes, at most 8.
func leN(b []byte) uint64 {
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// cursor reads a body field by field. After a read beyond the end it stays
// bad and returns zeroes.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad = true
		c.b = nil
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() byte {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return le16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return le32(p)
	}
	return 0
}

func (c *cursor) u48() uint64 { return leN(c.take(6)) }

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return le64(p)
	}
	return 0
}

// packed reads a length-encoded integer.
func (c *cursor) packed() uint64 {
	switch x := c.u8(); x {
	case 0xfb, 0xff:
		c.bad = true
		return 0
	case 0xfc:
		return uint64(c.u16())
	case 0xfd:
		return leN(c.take(3))
	case 0xfe:
		return c.u64()
	default:
		return uint64(x)
	}
}

// count reads a length-encoded integer that counts things of at least size
// bytes each in what is left.
func (c *cursor) count(size int) int {
	n := c.packed()
	if n > uint64(len(c.b)/size) {
		c.bad = true
		return 0
	}
	return int(n)
}

// bytes reads a length-encoded string.
func (c *cursor) bytes() []byte { return c.take(c.count(1)) }
