package wire

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/sink"
)

const (
	chunkBytes = 64 << 10
	keepBuffer = 1 << 20 // larger buffers are not kept for the next use
)

// Message is a message ready to be sent. It is made by an [Encoder]; what it
// refers to is immutable from then on, so it may be copied.
type Message struct {
	ID int64

	// Unbatched: fields of MessageMetadata, then the payload. Batched: the length of the
	// SingleMessageMetadata, itself, and the payload.
	// Then, batched only, the field partition_key of MessageMetadata, for a batch's own.
	data []byte
	meta int32 // length of what is before the payload
	key  int32 // length of what is after it
}

// Size is how many bytes of an entry grow with the message.
func (m *Message) Size() int { return len(m.data) - int(m.key) }

func (m *Message) body() []byte { return m.data[:m.Size()] }

// Encoder makes messages. Its zero value makes those of unbatched producers. One
// goroutine at a time.
type Encoder struct {
	Batching bool // for producers with that option

	chunk []byte // shared by many messages; the garbage collector frees it with the last
}

// Encode fills dst from src. dst keeps no reference to src's buffers. A key that is not
// UTF-8 travels in base64, marked as such (partition_key_b64_encoded).
func (e *Encoder) Encode(dst *Message, id int64, src *sink.Message) {
	const field = 8 // bound of tag and length, or of a flag
	room := len(src.Value) + len(src.Key)*4 + 12*field
	for i := range src.Headers {
		room += len(src.Headers[i].Name) + len(src.Headers[i].Value) + 3*field
	}
	if cap(e.chunk)-len(e.chunk) < room {
		if room > chunkBytes/4 {
			b := make([]byte, 0, room)
			e.encode(dst, b, id, src)
			return
		}
		e.chunk = make([]byte, 0, chunkBytes)
	}
	e.chunk = e.encode(dst, e.chunk, id, src)
}

// encode appends to b and returns it. Field numbers: MessageMetadata and
// SingleMessageMetadata in PulsarApi.proto.
func (e *Encoder) encode(dst *Message, b []byte, id int64, src *sink.Message) []byte {
	*dst = Message{ID: id}
	start := len(b)
	if !e.Batching {
		for i := range src.Headers {
			b = appendHeader(b, 4, &src.Headers[i])
		}
		b = appendKey(b, 6, 17, src.Key)
		if src.Time > 0 {
			b = appendNum(b, 12, uint64(src.Time))
		}
		if src.Value == nil {
			b = appendNum(b, 25, 1)
		}
		dst.meta = int32(len(b) - start)
		b = append(b, src.Value...)
		dst.data = b[start:len(b):len(b)]
		return b
	}
	b = append(b, 0, 0, 0, 0)
	for i := range src.Headers {
		b = appendHeader(b, 1, &src.Headers[i])
	}
	b = appendKey(b, 2, 6, src.Key)
	b = appendNum(b, 3, uint64(len(src.Value)))
	if src.Time > 0 {
		b = appendNum(b, 5, uint64(src.Time))
	}
	b = appendNum(b, 8, uint64(id))
	if src.Value == nil {
		b = appendNum(b, 9, 1)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	dst.meta = int32(len(b) - start)
	b = append(b, src.Value...)
	at := len(b)
	b = appendKey(b, 6, 17, src.Key)
	dst.key = int32(len(b) - at)
	dst.data = b[start:len(b):len(b)]
	return b
}

// appendHeader appends a KeyValue.
func appendHeader(b []byte, n protowire.Number, h *sink.Header) []byte {
	if size := 4 + len(h.Name) + len(h.Value); size < 1<<7 { // all lengths are of one byte
		b = append(b, byte(n<<3|2), byte(size), 1<<3|2, byte(len(h.Name)))
		b = append(append(b, h.Name...), 2<<3|2, byte(len(h.Value)))
		return append(b, h.Value...)
	}
	b = protowire.AppendTag(b, n, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(h.Name))+protowire.SizeBytes(len(h.Value))))
	b = appendText(b, 1, h.Name)
	return appendData(b, 2, h.Value)
}

func appendKey(b []byte, n, flag protowire.Number, key []byte) []byte {
	if len(key) == 0 {
		return b
	}
	if utf8.Valid(key) {
		return appendData(b, n, key)
	}
	b = protowire.AppendTag(b, n, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(base64.StdEncoding.EncodedLen(len(key))))
	b = base64.StdEncoding.AppendEncode(b, key)
	return appendNum(b, flag, 1)
}

// composer writes entries into a connection's buffer. One goroutine at a time.
type composer struct {
	buf  []byte // what goes to the broker next
	raw  []byte // a batch before compression
	comp compressor
}

// entry appends the SEND of msgs, as a batch if so asked, and returns the size that the broker's limits
// are about: metadata and payload. If that is above limit nothing is appended.
//
//	[total][command size][BaseCommand SEND][0x0e01][CRC-32C of what follows][metadata size][MessageMetadata][payload]
func (w *composer) entry(p *Producer, pid uint64, msgs []Message, publishTime int64, limit int) (int, error) {
	first, last := &msgs[0], &msgs[len(msgs)-1]
	payload, plain := first.data[first.meta:], 0
	if p.o.Batching {
		payload = nil
		for i := range msgs {
			plain += msgs[i].Size()
		}
		if p.compression != compressNone {
			if cap(w.raw) > keepBuffer {
				w.raw = nil
			}
			w.raw = w.raw[:0]
			for i := range msgs {
				w.raw = append(w.raw, msgs[i].body()...)
			}
			payload = w.raw
		}
	} else {
		plain = len(payload)
	}
	compressed, typ, err := w.comp.compress(p.compression, payload)
	if err != nil {
		return 0, err
	}

	start := len(w.buf)
	b := append(w.buf, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, 1<<3, cmdSend, cmdSend<<3|2, 0)
	send := len(b)
	b = appendNum(b, 1, pid)
	b = appendNum(b, 2, uint64(first.ID))
	if p.o.Batching {
		b = appendNum(b, 3, uint64(len(msgs)))
		b = appendNum(b, 6, uint64(last.ID))
	}
	b[send-1] = byte(len(b) - send) // at most 4 fields of 11 bytes
	binary.BigEndian.PutUint32(b[start+4:], uint32(len(b)-start-8))

	b = append(b, 0x0e, 0x01, 0, 0, 0, 0)
	checked := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, p.nameField...)
	b = appendNum(b, 2, uint64(first.ID))
	b = appendNum(b, 3, uint64(publishTime))
	if !p.o.Batching {
		b = append(b, first.data[:first.meta]...)
	} else {
		// The first key stands for the entry, as other clients do it.
		b = append(b, first.data[first.Size():]...)
		b = appendNum(b, 11, uint64(len(msgs)))
		b = appendNum(b, 24, uint64(last.ID))
	}
	if typ != compressNone {
		b = appendNum(b, 8, uint64(typ))
	}
	b = appendNum(b, 9, uint64(plain))
	binary.BigEndian.PutUint32(b[checked:], uint32(len(b)-checked-4))
	if p.o.Batching && p.compression == compressNone {
		for i := range msgs {
			b = append(b, msgs[i].body()...)
		}
	} else {
		b = append(b, compressed...)
	}
	size := len(b) - checked - 4
	w.buf = b
	if size > limit {
		w.buf = b[:start]
		return size, nil
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	binary.BigEndian.PutUint32(b[checked-4:], crc32.Checksum(b[checked:], castagnoli))
	return size, nil
}

// NewMessage returns a message of an unbatched producer with nothing but a payload.
func NewMessage(id int64, payload []byte) (m Message) {
	new(Encoder).Encode(&m, id, &sink.Message{Value: payload})
	return m
}
