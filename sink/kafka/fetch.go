package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
)

// Fetch API as it is used here. Version 11 is the last one that is not "flexible"; brokers
// have it from 2.4 on, and all that is asked for here.
const (
	fetchKey     = 1
	fetchVersion = 11

	codeOffsetOutOfRange = 1
	latestOffset         = -1 // ListOffsets: the high watermark
	earliestOffset       = -2 // ListOffsets: the log's start

	readUncommitted = 0
	readCommitted   = 1

	attrControl = 0x20 // a batch that holds the end of a transaction

	maxUnpacked = 256 << 20 // what a batch may decompress to when its last record is looked at
)

// partitionLog is a partition as the connection to its leader shows it. It implements
// logReader. Whoever opened the connection owns it.
type partitionLog struct {
	ctx       context.Context
	c         *conn
	timeout   time.Duration
	topic     string
	partition int32

	high int64 // high watermark that the last Fetch told
}

// endOffsets asks for the high watermarks, or the starts, of partitions of which the broker
// is the leader. each gets the index of the partition.
func (c *conn) endOffsets(ctx context.Context, timestamp int64, lanes []partitionID, each func(i int, offset int64, code int16)) error {
	return c.offsets(ctx, readUncommitted, timestamp, lanes, each)
}

// offsets is endOffsets at an isolation level: for readCommitted the last stable offset stands for the high watermark.
func (c *conn) offsets(ctx context.Context, isolation int8, timestamp int64, lanes []partitionID, each func(i int, offset int64, code int16)) error {
	req := &listoffsets.Request{ReplicaID: -1, IsolationLevel: isolation}
	index := make(map[partitionID]int, len(lanes))
	at := map[string]int{}
	for i, l := range lanes {
		index[l] = i
		t, ok := at[l.topic]
		if !ok {
			t = len(req.Topics)
			at[l.topic] = t
			req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: l.topic})
		}
		req.Topics[t].Partitions = append(req.Topics[t].Partitions, listoffsets.RequestPartition{Partition: l.partition, CurrentLeaderEpoch: -1, Timestamp: timestamp})
	}
	m, err := c.roundTrip(ctx, req)
	if err != nil {
		return err
	}
	n := 0
	for _, t := range m.(*listoffsets.Response).Topics {
		for _, p := range t.Partitions {
			id := partitionID{t.Topic, p.Partition}
			i, ok := index[id]
			if !ok {
				return fmt.Errorf("kafka: broker %s: a ListOffsets answer names %s/%d, which was not asked for or named before", c.addr, t.Topic, p.Partition)
			}
			delete(index, id)
			n++
			// No message is as young as a time asked for: then there is none.
			if p.ErrorCode == codeNoError && p.Offset < 0 && timestamp < 0 {
				return fmt.Errorf("kafka: broker %s: a ListOffsets answer holds no offset for %s/%d", c.addr, t.Topic, p.Partition)
			}
			each(i, p.Offset, p.ErrorCode)
		}
	}
	if n != len(lanes) {
		return fmt.Errorf("kafka: broker %s: a ListOffsets answer names %d of %d partitions", c.addr, n, len(lanes))
	}
	return nil
}

type partitionID struct {
	topic     string
	partition int32
}

// start implements logReader.
func (l *partitionLog) start() (int64, error) { return l.offset(earliestOffset) }

func (l *partitionLog) offset(timestamp int64) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	var code int16
	err = l.c.endOffsets(ctx, timestamp, []partitionID{{l.topic, l.partition}}, func(_ int, o int64, c int16) { offset, code = o, c })
	if err == nil && code != codeNoError {
		err = &Error{Code: code}
	}
	return offset, err
}

// fetch implements logReader.
func (l *partitionLog) fetch(offset int64, maxBytes int32) ([]batchHeader, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	frame, err := l.c.rawExchange(ctx, fetchKey, fetchVersion, func(dst []byte) []byte {
		return appendFetch(dst, l.topic, l.partition, offset, maxBytes)
	})
	if err != nil {
		return nil, err
	}
	batches, high, code, err := parseFetch(frame[8:], l.topic, l.partition)
	l.high = high
	switch {
	case err != nil:
		return nil, err
	case code == codeOffsetOutOfRange:
		return nil, errOutOfRange
	case code == codeTopicNotAuthorized:
		return nil, errNotReadable
	case code != codeNoError:
		return nil, &Error{Code: code}
	}
	return batches, nil
}

// appendFetch appends the body of a Fetch request for one partition that waits for nothing.
func appendFetch(dst []byte, topic string, partition int32, offset int64, maxBytes int32) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, 0xffffffff) // replica: none
	dst = be.AppendUint32(dst, 0)          // wait: not at all
	dst = be.AppendUint32(dst, 0)          // for so many bytes
	dst = be.AppendUint32(dst, maxResponse/2)
	dst = append(dst, 0)                   // isolation: up to the high watermark
	dst = be.AppendUint32(dst, 0)          // session id
	dst = be.AppendUint32(dst, 0xffffffff) // session epoch: none
	dst = be.AppendUint32(dst, 1)
	dst = be.AppendUint16(dst, uint16(len(topic)))
	dst = append(dst, topic...)
	dst = be.AppendUint32(dst, 1)
	dst = be.AppendUint32(dst, uint32(partition))
	dst = be.AppendUint32(dst, 0xffffffff) // leader epoch: not known
	dst = be.AppendUint64(dst, uint64(offset))
	dst = be.AppendUint64(dst, 0xffffffffffffffff) // our log start: none
	dst = be.AppendUint32(dst, uint32(maxBytes))
	dst = be.AppendUint32(dst, 0) // forgotten topics
	return be.AppendUint16(dst, 0)
}

// parseFetch reads a Fetch response for one partition. The batches alias b.
func parseFetch(b []byte, topic string, partition int32) (batches []batchHeader, high int64, code int16, err error) {
	r := reader{b: b}
	r.int32() // throttle time
	code = r.int16()
	r.int32() // session id
	if r.err == nil && code != codeNoError {
		return nil, high, code, nil
	}
	if n := r.count(6); n != 1 {
		return nil, 0, 0, cmpErr(r.err, errors.New("kafka: a Fetch answer does not name one topic"))
	}
	name := r.string()
	if n := r.count(42); n != 1 {
		return nil, 0, 0, cmpErr(r.err, errors.New("kafka: a Fetch answer does not name one partition"))
	}
	p := r.int32()
	code = r.int16()
	high = r.int64()
	r.int64() // last stable offset
	r.int64() // log start
	for n := r.count(16); n > 0; n-- {
		r.int64()
		r.int64()
	}
	r.int32() // preferred replica
	records := r.take(int(max(r.int32(), 0)))
	if r.err != nil {
		return nil, 0, 0, r.err
	}
	if string(name) != topic || p != partition {
		return nil, 0, 0, fmt.Errorf("kafka: a Fetch answer names %s/%d, which was not asked for", name, p)
	}
	if code != codeNoError {
		return nil, high, code, nil
	}
	batches, err = parseBatches(records)
	return batches, high, code, err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// parseBatches reads the headers of record batches; the last one may be cut off.
func parseBatches(b []byte) ([]batchHeader, error) {
	be := binary.BigEndian
	var out []batchHeader
	for len(b) >= batchHeaderLen {
		if b[16] != 2 {
			return nil, fmt.Errorf("kafka: a record batch of format %d, not 2, lies at offset %d: sequenced delivery needs topics without messages of Kafka before 0.11", b[16], be.Uint64(b))
		}
		h := batchHeader{
			base: int64(be.Uint64(b)), lastDelta: int32(be.Uint32(b[23:])), producerID: int64(be.Uint64(b[43:])),
			epoch: int16(be.Uint16(b[51:])), sequence: int32(be.Uint32(b[53:])),
		}
		size := int64(int32(be.Uint32(b[batchLengthAt:]))) + batchLengthAt + 4
		if size < batchHeaderLen || h.base < 0 || h.lastDelta < 0 {
			return nil, errors.New("kafka: a record batch has an impossible header")
		}
		if size > int64(len(b)) {
			return append(out, h), nil
		}
		h.raw = b[:size:size]
		out = append(out, h)
		b = b[size:]
	}
	return out, nil
}

// lastMark returns what the last record of a batch says of its number: the headers seq and sub. ok is
// false if it does not carry them.
func lastMark(raw []byte) (seq int64, sub uint16, ok bool, err error) {
	rec, found, control, err := lastRecord(raw)
	if err != nil || !found || control {
		return 0, 0, false, err
	}
	rec.bytes()
	rec.bytes()
	for h := rec.varint(); h > 0 && !rec.bad; h-- {
		name, value := rec.bytes(), rec.bytes()
		switch string(name) {
		case "seq":
			seq, err = strconv.ParseInt(string(value), 10, 64)
			ok = err == nil
		case "sub":
			var v uint64
			v, err = strconv.ParseUint(string(value), 10, 16)
			sub = uint16(v)
		}
		if err != nil {
			return 0, 0, false, nil // somebody else's idea of these names
		}
	}
	if rec.bad {
		return 0, 0, false, errShortResponse
	}
	return seq, sub, ok, nil
}

// lastRecord finds the last record of a batch; the reader stands before its key. found is false in a batch that
// compaction has emptied.
func lastRecord(raw []byte) (rec recordReader, found, control bool, err error) {
	body, n, control, err := unpack(raw)
	if err != nil || n == 0 {
		return rec, false, control, err
	}
	r := recordReader{b: body}
	for range n {
		rec = recordReader{b: r.take(r.varint())}
		if r.bad {
			return rec, false, control, errShortResponse
		}
	}
	rec.take(1) // attributes
	rec.varint()
	rec.varint()
	return rec, true, control, nil
}

// unpack returns the records of a batch and their number, which is 0 if compaction has emptied it.
func unpack(raw []byte) (body []byte, n int32, control bool, err error) {
	be := binary.BigEndian
	if len(raw) < batchHeaderLen {
		return nil, 0, false, errShortResponse
	}
	attr := be.Uint16(raw[batchAttrAt:])
	control = attr&attrControl != 0
	if n = int32(be.Uint32(raw[57:])); n <= 0 {
		return nil, 0, control, nil
	}
	body = raw[batchHeaderLen:]
	codec := compress.Compression(attr & 7)
	if codec == compress.None {
		return body, n, control, nil
	}
	c := codec.Codec()
	if c == nil {
		return nil, 0, control, fmt.Errorf("kafka: a batch has compression %d, which is not known", attr&7)
	}
	d := c.NewReader(bytes.NewReader(body))
	body, err = io.ReadAll(io.LimitReader(d, maxUnpacked+1))
	if e := d.Close(); err == nil {
		err = e
	}
	if err == nil && len(body) > maxUnpacked {
		err = fmt.Errorf("kafka: a batch unpacks to more than %d MiB", maxUnpacked>>20)
	}
	return body, n, control, err
}

// recordReader takes fields off a record. After the first fault every field is empty.
type recordReader struct {
	b   []byte
	bad bool
}

func (r *recordReader) varint() int {
	v, n := binary.Varint(r.b)
	if n <= 0 || v != int64(int32(v)) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *recordReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// bytes takes a byte string that may be null.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n < 0 {
		return nil
	}
	return r.take(n)
}
