package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Versions of the Produce API that are written and read here. 3 is the first with
// record batches v2, 7 the first with zstd, 8 the last one that is not "flexible".
const (
	produceKey         = 0
	minProduceVersion  = 3
	zstdProduceVersion = 7
	maxProduceVersion  = 8
)

// appendProduceHeader appends everything of a Produce request before its topics,
// with room for the size in front and for the number of topics at the end.
func appendProduceHeader(dst []byte, version int16, correlation int32, clientID, transactionalID string, timeoutMs int32) []byte {
	be := binary.BigEndian
	dst = append(dst, 0, 0, 0, 0)
	dst = be.AppendUint16(dst, produceKey)
	dst = be.AppendUint16(dst, uint16(version))
	dst = be.AppendUint32(dst, uint32(correlation))
	dst = be.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if transactionalID == "" {
		dst = be.AppendUint16(dst, 0xffff) // none
	} else {
		dst = be.AppendUint16(dst, uint16(len(transactionalID)))
		dst = append(dst, transactionalID...)
	}
	dst = be.AppendUint16(dst, 0xffff) // acks: all in-sync replicas
	dst = be.AppendUint32(dst, uint32(timeoutMs))
	return append(dst, 0, 0, 0, 0)
}

// producePartition is the answer for one partition.
type producePartition struct {
	topic     []byte // aliases the response
	partition int32
	code      int16
	offset    int64
	message   []byte // the broker's words, aliases the response; may be empty
}

var errShortResponse = errors.New("kafka: the broker's answer ends too early")

// reader takes fields off a response. After the first fault every field is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		if r.err == nil {
			r.err = errShortResponse
		}
		r.b = nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// string returns a string that may be null (nil).
func (r *reader) string() []byte {
	n := r.int16()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

// count returns the length of an array whose elements take at least size bytes.
func (r *reader) count(size int) int {
	n := int(r.int32())
	if n <= 0 {
		return 0
	}
	if n > len(r.b)/size {
		r.err = errShortResponse
		r.b = nil
		return 0
	}
	return n
}

// parseProduce calls each for every partition of a Produce response, which
// begins after the correlation id. It allocates nothing.
func parseProduce(b []byte, version int16, each func(*producePartition) error) error {
	if version < minProduceVersion || version > maxProduceVersion {
		return fmt.Errorf("kafka: Produce version %d is not known", version)
	}
	r := reader{b: b}
	for topics := r.count(6); topics > 0; topics-- {
		var p producePartition
		p.topic = r.string()
		for n := r.count(22); n > 0; n-- {
			p.partition, p.code, p.offset, p.message = r.int32(), r.int16(), r.int64(), nil
			r.int64() // log append time
			if version >= 5 {
				r.int64() // log start offset
			}
			if version >= 8 {
				for e := r.count(6); e > 0; e-- {
					r.int32()
					if s := r.string(); p.message == nil {
						p.message = s
					}
				}
				if s := r.string(); len(s) > 0 {
					p.message = s
				}
			}
			if r.err != nil {
				return r.err
			}
			if err := each(&p); err != nil {
				return err
			}
		}
	}
	r.int32() // throttle time: the broker stops reading from us by itself
	return r.err
}
