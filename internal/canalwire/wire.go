// Package canalwire holds what both ends of Canal's TCP protocol (CanalProtocol.proto, version 1) need: framing,
// packet types, protobuf fields and the login's scramble. It starts no goroutine. It must never
// hold more memory than a small multiple of what has arrived, whatever a length says.
package canalwire

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of packets (CanalProtocol.proto, PacketType).
const (
	Handshake      = 1
	Authentication = 2
	Ack            = 3
	Subscription   = 4
	Unsubscription = 5
	Get            = 6
	Messages       = 7
	ClientAck      = 8
	ClientRollback = 12
)

// ErrProtocol is wrapped by the errors about what the other side has sent.
var ErrProtocol = errors.New("not Canal's protocol")

// ReadPacket reads one packet of at most limit bytes and returns its type and body.
func ReadPacket(r io.Reader, limit int) (typ int, body []byte, err error) {
	return ReadPacketAfter(r, limit, 0)
}

// ReadPacketAfter is ReadPacket for a connection whose last packet had a body of some bytes. The next one of up to twice as many is
// read in one piece.
func ReadPacketAfter(r io.Reader, limit, last int) (typ int, body []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return 0, nil, fmt.Errorf("%w: packet of %d bytes, at most %d are read", ErrProtocol, n, limit)
	}
	b, err := readFull(r, int(n), max(2*last, firstRead))
	if err != nil {
		return 0, nil, err
	}
	return parsePacket(b)
}

// firstRead is how much room is made before anything of a packet has come.
const firstRead = 64 << 10

// growth is how many times what has come the room for a packet may be.
const growth = 8

// readFull reads n bytes. What is said to follow may never come: the room is never more than growth times what
// has, or first.
func readFull(r io.Reader, n, first int) ([]byte, error) {
	b := make([]byte, min(n, first))
	for have := 0; ; {
		got, err := io.ReadFull(r, b[have:])
		if have += got; have == n {
			return b, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		more := make([]byte, min(n, growth*have))
		copy(more, b)
		b = more
	}
}

// parsePacket reads a Packet message.
func parsePacket(b []byte) (typ int, body []byte, err error) {
	compression := uint64(0)
	err = Fields(b, func(f Field) error {
		switch f.Number {
		case 3:
			typ = int(int32(f.Varint))
		case 4:
			compression = f.Varint
		case 5:
			body = f.Bytes
		}
		return nil
	})
	if err == nil && compression > 1 {
		err = fmt.Errorf("%w: compression %d, none is offered", ErrProtocol, compression)
	}
	return typ, body, err
}

// Field is one field of a protobuf message.
type Field struct {
	Number protowire.Number
	Varint uint64
	Bytes  []byte
}

// Fields calls each for every field of a message that is a varint or a byte string, until it returns an error; other fields are
// passed over.
func Fields(b []byte, each func(Field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %v", ErrProtocol, protowire.ParseError(n))
		}
		b = b[n:]
		f := Field{Number: number}
		switch kind {
		case protowire.VarintType:
			f.Varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.Bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %v", ErrProtocol, number, protowire.ParseError(n))
		}
		b = b[n:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := each(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// AppendPacket appends a whole packet, its length before it.
func AppendPacket(dst []byte, typ int, version bool, body []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if version {
		dst = append(dst, 2<<3, 1)
	}
	dst = append(dst, 3<<3, byte(typ))
	if len(body) > 0 {
		dst = append(dst, 5<<3|2)
		dst = protowire.AppendBytes(dst, body)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// Scramble returns what a client sends for a password and a handshake's seed: SHA1(password) XOR
// SHA1(seed + SHA1(SHA1(password))), as MySQL's native login, in hexadecimal digits.
func Scramble(password string, seed []byte) string {
	one := sha1.Sum([]byte(password))
	two := sha1.Sum(one[:])
	mask := sha1.Sum(append(append([]byte(nil), seed...), two[:]...))
	subtle.XORBytes(one[:], one[:], mask[:])
	return hex.EncodeToString(one[:])
}

// HashPassword is the form in which Canal's configuration keeps a password: SHA1(SHA1(password)) in hexadecimal digits.
func HashPassword(password string) string {
	one := sha1.Sum([]byte(password))
	two := sha1.Sum(one[:])
	return hex.EncodeToString(two[:])
}

// CheckScramble tells whether token is what somebody who knows the password of the hash sends. It takes the
// same time whatever differs.
func CheckScramble(hash [sha1.Size]byte, seed, token []byte) bool {
	var sent [sha1.Size]byte
	if n, err := hex.Decode(sent[:], token[:min(len(token), 2*sha1.Size)]); err != nil || n != sha1.Size || len(token) != 2*sha1.Size {
		return false
	}
	mask := sha1.Sum(append(append([]byte(nil), seed...), hash[:]...))
	subtle.XORBytes(sent[:], sent[:], mask[:])
	two := sha1.Sum(sent[:])
	return subtle.ConstantTimeCompare(two[:], hash[:]) == 1
}

// CheckClear tells whether the password has the hash.
func CheckClear(hash [sha1.Size]byte, password []byte) bool {
	one := sha1.Sum(password)
	two := sha1.Sum(one[:])
	return subtle.ConstantTimeCompare(two[:], hash[:]) == 1
}

// OpenLength leaves room of size bytes for a length that is written before what it counts is known, and returns
// where that begins.
func OpenLength(dst []byte, size int) (_ []byte, from int) {
	for range size {
		dst = append(dst, 0)
	}
	return dst, len(dst)
}

// CloseLength fills in the length of all that follows from, into the size bytes before it: a varint that is filled up to that size,
// which every reader of protobuf accepts. The length must be less than 1<<(7*size).
func CloseLength(dst []byte, from, size int) { PutLength(dst, from, size, len(dst)-from) }

// PutLength is CloseLength for a length that is known otherwise.
func PutLength(dst []byte, from, size, length int) {
	n := uint64(length)
	for i := from - size; i < from-1; i++ {
		dst[i] = byte(n) | 0x80
		n >>= 7
	}
	dst[from-1] = byte(n)
}
