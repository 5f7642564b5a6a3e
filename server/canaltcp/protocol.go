package canaltcp

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// Error codes of an ack packet.
const (
	codeFailed     = 400 // login refused, a packet that is not understood, any failure
	codeIncomplete = 401 // destination or client id missing
)

// What a packet from a client may have: the longest is a subscription with its filter. Who has not logged in says little.
const (
	maxRequest = 320 << 10
	maxLogin   = 16 << 10
)

// seedSize is the length of the handshake's seed.
const seedSize = 8

// login is a ClientAuth message. Its timeouts are milliseconds, whatever the message's comments say.
type login struct {
	user, destination, client, filter string
	password                          []byte
	readTimeout, writeTimeout         int32
}

func parseLogin(b []byte) (l login, err error) {
	err = canalwire.Fields(b, func(f canalwire.Field) error {
		switch f.Number {
		case 1:
			l.user = string(f.Bytes)
		case 2:
			l.password = f.Bytes
		case 3:
			l.readTimeout = int32(f.Varint)
		case 4:
			l.writeTimeout = int32(f.Varint)
		case 5:
			l.destination = string(f.Bytes)
		case 6:
			l.client = string(f.Bytes)
		case 7:
			l.filter = string(f.Bytes)
		}
		return nil
	})
	return l, err
}

// request is any other message of a client. The messages share their first fields' numbers.
type request struct {
	destination, client, filter string
	batch                       int64 // ack, rollback
	size                        int32 // get
	timeout                     int64 // get; below zero: do not wait
	unit                        int32 // get
	autoAck                     bool  // get
}

// parseRequest reads the body of a packet of the given type.
func parseRequest(typ int, b []byte) (r request, err error) {
	r.timeout, r.unit = -1, 2
	err = canalwire.Fields(b, func(f canalwire.Field) error {
		switch {
		case f.Number == 1:
			r.destination = string(f.Bytes)
		case f.Number == 2:
			r.client = string(f.Bytes)
		case f.Number == 7:
			r.filter = string(f.Bytes)
		case f.Number == 3 && typ == canalwire.Get:
			r.size = int32(f.Varint)
		case f.Number == 3:
			r.batch = int64(f.Varint)
		case f.Number == 4:
			r.timeout = int64(f.Varint)
		case f.Number == 5:
			r.unit = int32(f.Varint)
		case f.Number == 6:
			r.autoAck = f.Varint != 0
		}
		return nil
	})
	return r, err
}

// appendHandshake appends the packet with which a server greets: the only one whose version clients look at.
func appendHandshake(dst []byte, seed []byte) []byte {
	body := protowire.AppendString([]byte{1<<3 | 2}, "utf8")
	body = protowire.AppendBytes(append(body, 2<<3|2), seed)
	body = append(body, 3<<3, 1)
	return canalwire.AppendPacket(dst, canalwire.Handshake, true, body)
}

// appendAck appends the answer to a login or a subscription; code 0 is success.
func appendAck(dst []byte, code int32, message string) []byte {
	var body []byte
	if code != 0 {
		body = protowire.AppendVarint([]byte{1 << 3}, uint64(code))
		// Clients take a packet with other bytes for garbage, and what a client has sent may be told it.
		body = protowire.AppendString(append(body, 2<<3|2), strings.ToValidUTF8(message, "\uFFFD"))
	}
	return canalwire.AppendPacket(dst, canalwire.Ack, false, body)
}

// lengthSize is the room for the lengths in a packet of entries.
const lengthSize = 5

// beginMessages begins a packet of entries in buf, which is emptied.
func beginMessages(buf []byte, batch int64) []byte {
	buf = append(buf[:0], 0, 0, 0, 0, 3<<3, canalwire.Messages, 5<<3|2)
	buf, _ = canalwire.OpenLength(buf, lengthSize)
	return protowire.AppendVarint(append(buf, 1<<3), uint64(batch))
}

const (
	messagesBody  = 7 + lengthSize // where the body begins in a packet of entries
	messagesEntry = 2<<3 | 2       // tag of an entry
)

// endMessages completes the packet, behind which more bytes of entries follow.
func endMessages(buf []byte, more int) error {
	size := len(buf) - 4 + more
	if size > math.MaxInt32 {
		return fmt.Errorf("packet of %d bytes, Canal's protocol has room for %d: exclude the table, or write smaller transactions", size, math.MaxInt32)
	}
	canalwire.PutLength(buf, messagesBody, lengthSize, len(buf)-messagesBody+more)
	binary.BigEndian.PutUint32(buf, uint32(size))
	return nil
}
