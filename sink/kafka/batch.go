package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/binlogmq/binlogmq/sink"
)

// Layout of a record batch, format v2 (Kafka's DefaultRecordBatch, KIP-98). Offsets of
// the fields that are written after the records.
const (
	batchHeaderLen = 61
	batchLengthAt  = 8
	batchCRCAt     = 17
	batchAttrAt    = 21 // where the CRC's range begins

	attrTransactional = 0x10

	// What a record has beside key, value, headers and the varint of its own
	// length, offset delta excluded: attributes and timestamp delta, both 0.
	recordFixedLen = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is a message that waits in a lane or travels in a batch. payload is what
// accounting calls its size; record is the encoded record's length without the
// offset delta and its own length prefix.
type entry struct {
	m       *sink.Message
	record  int32
	payload int32
}

// maxPayload bounds a message so that sizes fit their fields; the broker's limits are lower.
const maxPayload = 1 << 30

func newEntry(m *sink.Message, payload int) entry {
	n := recordFixedLen + bytesLen(m.Key) + bytesLen(m.Value) + varintLen(int64(len(m.Headers)))
	for i := range m.Headers {
		h := &m.Headers[i]
		n += varintLen(int64(len(h.Name))) + len(h.Name) + varintLen(int64(len(h.Value))) + len(h.Value)
	}
	return entry{m, int32(n), int32(payload)}
}

// maxLen is the most bytes that e takes in any batch.
func (e *entry) maxLen() int { return int(e.record) + 2*binary.MaxVarintLen32 }

// bytesLen is the encoded length of a nullable byte string.
func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of v as a zigzag varint.
func varintLen(v int64) int {
	return (bits.Len64(uint64(v<<1)^uint64(v>>63)|1) + 6) / 7
}

// appendLen appends a length, which is not negative, as a zigzag varint.
func appendLen(dst []byte, n int) []byte {
	u := uint64(n) << 1
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1: null
	}
	return append(appendLen(dst, len(b)), b...)
}

// batchParams are the fields of a batch that do not come from its messages.
type batchParams struct {
	producerID    int64
	epoch         int16
	sequence      int32
	transactional bool
	time          int64 // of all records, milliseconds since 1970 UTC: the time of sending
}

// appendBatch appends one record batch with the messages of entries, which are
// at least one. scratch holds the records before compression and is returned grown.
// The batch is stored uncompressed where compression does not make it smaller, so
// it is never larger than batchHeaderLen plus the sum of maxLen.
func appendBatch(dst []byte, p batchParams, entries []entry, c *compressor, scratch []byte) (_, _ []byte, err error) {
	start := len(dst)
	be := binary.BigEndian
	attr := uint16(0)
	if p.transactional {
		attr |= attrTransactional
	}
	var h [batchHeaderLen]byte
	be.PutUint32(h[12:], 0xffffffff) // partition leader epoch: the broker's to fill
	h[16] = 2                        // magic
	be.PutUint32(h[23:], uint32(len(entries)-1))
	be.PutUint64(h[27:], uint64(p.time))
	be.PutUint64(h[35:], uint64(p.time))
	be.PutUint64(h[43:], uint64(p.producerID))
	be.PutUint16(h[51:], uint16(p.epoch))
	be.PutUint32(h[53:], uint32(p.sequence))
	be.PutUint32(h[57:], uint32(len(entries)))
	dst = append(dst, h[:]...)

	if c.codec == codecNone {
		dst = appendRecords(dst, entries)
	} else {
		scratch = appendRecords(scratch[:0], entries)
		body := len(dst)
		if dst, err = c.append(dst, scratch); err != nil {
			return nil, scratch, err
		}
		if len(dst)-body >= len(scratch) {
			dst = append(dst[:body], scratch...)
		} else {
			attr |= uint16(c.codec)
		}
	}

	b := dst[start:]
	be.PutUint32(b[batchLengthAt:], uint32(len(b)-batchLengthAt-4))
	be.PutUint16(b[batchAttrAt:], attr)
	be.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchAttrAt:], castagnoli))
	return dst, scratch, nil
}

func appendRecords(dst []byte, entries []entry) []byte {
	for i := range entries {
		e := &entries[i]
		m := e.m
		dst = appendLen(dst, int(e.record)+varintLen(int64(i)))
		dst = append(dst, 0, 0) // attributes, timestamp delta
		dst = appendLen(dst, i)
		dst = appendBytes(dst, m.Key)
		dst = appendBytes(dst, m.Value)
		dst = appendLen(dst, len(m.Headers))
		for j := range m.Headers {
			h := &m.Headers[j]
			dst = append(appendLen(dst, len(h.Name)), h.Name...)
			dst = append(appendLen(dst, len(h.Value)), h.Value...)
		}
	}
	return dst
}
