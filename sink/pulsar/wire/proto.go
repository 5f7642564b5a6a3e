package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of commands; the command's body is the field of the same number
// (PulsarApi.proto, BaseCommand).
const (
	cmdConnect             = 2
	cmdConnected           = 3
	cmdSubscribe           = 4
	cmdProducer            = 5
	cmdSend                = 6
	cmdSendReceipt         = 7
	cmdSendError           = 8
	cmdMessage             = 9
	cmdFlow                = 11
	cmdSuccess             = 13
	cmdError               = 14
	cmdCloseProducer       = 15
	cmdCloseConsumer       = 16
	cmdProducerSuccess     = 17
	cmdPing                = 18
	cmdPong                = 19
	cmdPartitionedMetadata = 21
	cmdPartitionedAnswer   = 22
	cmdLookup              = 23
	cmdLookupAnswer        = 24
	cmdGetLastMessageID    = 29
	cmdLastMessageID       = 30
	cmdAuthChallenge       = 36
	cmdAuthResponse        = 37
)

const (
	protocolVersion = 19 // the newest without cluster migration (ProtocolVersion)
	clientVersion   = "binlogmq-wire"

	// maxFrame bounds a command from the broker. What a producer is told is
	// small; the longest is an error's text.
	maxFrame = 64 << 10

	// frameRoom is how far a broker's frames may exceed its maxMessageSize
	// (Commands.MESSAGE_SIZE_FRAME_PADDING). We keep below maxMessageSize itself.
	defaultMaxMessage = 5 << 20
)

// castagnoli is the polynomial of a frame's checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errMalformed = errors.New("malformed message")

// fields is a parsed protobuf message: varints and byte strings by field
// number. Of a repeated field the last one counts; other wire types and high
// numbers are skipped.
type fields struct {
	nums, strs uint32 // which are present, one bit a number
	num        [32]uint64
	str        [32][]byte // into the parsed buffer
}

func (f *fields) parse(b []byte) error {
	f.nums, f.strs = 0, 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		switch {
		case typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errMalformed
			}
			b = b[n:]
			if num < 32 {
				f.nums |= 1 << num
				f.num[num] = v
			}
		case typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errMalformed
			}
			b = b[n:]
			if num < 32 {
				f.strs |= 1 << num
				f.str[num] = v
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return errMalformed
			}
			b = b[n:]
		}
	}
	return nil
}

// uint returns a varint field, 0 if absent.
func (f *fields) uint(n protowire.Number) uint64 {
	if f.nums&(1<<n) == 0 {
		return 0
	}
	return f.num[n]
}

// int returns a varint field as a signed number, or what stands for absence.
func (f *fields) int(n protowire.Number, absent int64) int64 {
	if f.nums&(1<<n) == 0 {
		return absent
	}
	return int64(f.num[n])
}

// bytes returns a byte string, nil if absent.
func (f *fields) bytes(n protowire.Number) []byte {
	if f.strs&(1<<n) == 0 {
		return nil
	}
	return f.str[n]
}

// text copies a string for an error or an address; long ones are cut.
func (f *fields) text(n protowire.Number) string {
	b := f.bytes(n)
	return string(b[:min(len(b), 2000)])
}

// parseCommand splits a BaseCommand into its type and its body.
func parseCommand(b []byte) (typ int, body []byte, err error) {
	var at protowire.Number
	for len(b) > 0 {
		num, wt, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, nil, errMalformed
		}
		b = b[n:]
		switch wt {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, nil, errMalformed
			}
			b = b[n:]
			if num == 1 {
				if v > 1<<16 {
					return 0, nil, errMalformed
				}
				typ = int(v)
			}
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return 0, nil, errMalformed
			}
			b = b[n:]
			at, body = num, v
		default:
			n := protowire.ConsumeFieldValue(num, wt, b)
			if n < 0 {
				return 0, nil, errMalformed
			}
			b = b[n:]
		}
	}
	if typ == 0 {
		return 0, nil, errMalformed
	}
	if int(at) != typ {
		body = nil
	}
	return typ, body, nil
}

// readFrame returns the next command from br and how many bytes to discard
// once it has been dealt with. A timeout loses nothing: call again.
func readFrame(br *bufio.Reader) (cmd []byte, size int, err error) {
	h, err := br.Peek(4)
	if err != nil {
		return nil, 0, err
	}
	total := binary.BigEndian.Uint32(h)
	if total < 4 || total > maxFrame-4 {
		return nil, 0, fmt.Errorf("a frame of %d bytes is not one of a Pulsar broker's answers: is this its binary port, with or without TLS as configured?", total)
	}
	b, err := br.Peek(4 + int(total))
	if err != nil {
		return nil, 0, err
	}
	n := binary.BigEndian.Uint32(b[4:])
	if n > total-4 {
		return nil, 0, fmt.Errorf("a command of %d bytes in a frame of %d", n, total)
	}
	return b[8 : 8+n], 4 + int(total), nil
}

func appendNum(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendText(b []byte, n protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendData(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// appendCommand appends a frame that holds a command and nothing else.
func appendCommand(b []byte, typ int, body []byte) []byte {
	size := protowire.SizeTag(1) + protowire.SizeVarint(uint64(typ)) +
		protowire.SizeTag(protowire.Number(typ)) + protowire.SizeBytes(len(body))
	b = binary.BigEndian.AppendUint32(b, uint32(size+4))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = appendNum(b, 1, uint64(typ))
	return appendData(b, protowire.Number(typ), body)
}
