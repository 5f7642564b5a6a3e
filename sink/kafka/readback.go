package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/binlogmq/binlogmq/sink"
)

var _ sink.Reader = (*Sink)(nil)

// KeepsReadable implements sink.Reader: a transactional sink keeps its cursor in Kafka, where nothing is in doubt.
func (s *Sink) KeepsReadable() bool { return s.o.Delivery != Transactional }

// ReadBack implements sink.Reader. What the life has sent since it began is left out: its numbers tell of it.
func (s *Sink) ReadBack(ctx context.Context, topic string, partition int32, from sink.From, visit func(*sink.Stored) error) error {
	l := life{epoch: -1}
	if s.book != nil {
		l = s.book.identity()
	}
	at := int64(-1)
	return s.untilAnswered(ctx, "reading what a topic holds", func() error {
		by, missing, err := s.leaders(ctx, map[string]int32{topic: partition + 1})
		if err != nil || len(missing) > 0 {
			return err
		}
		for addr, lanes := range by {
			for _, id := range lanes {
				if id.partition != partition {
					continue
				}
				c, err := s.dial.dial(ctx, addr)
				if err != nil {
					return err
				}
				defer c.Close()
				p := &partitionLog{ctx: ctx, c: c, timeout: s.clientTimeout(), topic: topic, partition: partition}
				if at < 0 {
					if at, err = p.begin(from); err != nil {
						return p.explain(err)
					}
				}
				return p.explain(p.readBack(&at, l, visit))
			}
		}
		return topicError(topic, fmt.Errorf("partition %d %w", partition, errNoLeader))
	})
}

// begin finds where reading back begins.
func (l *partitionLog) begin(from sink.From) (int64, error) {
	start, err := l.start()
	if err != nil {
		return 0, err
	}
	if !from.Since.IsZero() {
		at, err := l.offset(from.Since.UnixMilli())
		if err == nil && at < 0 {
			at, err = l.offset(latestOffset)
		}
		return at, err
	}
	if len(from.State) == 0 {
		return start, nil
	}
	_, accounts, err := parseState(from.State)
	if err != nil {
		return 0, &DeliveryError{Topic: l.topic, Partition: l.partition, Err: err, Remedy: "read all of the topics: `binlogmq cursor new-life --reconcile --since begin`"}
	}
	end, err := l.offset(latestOffset)
	if err != nil {
		return 0, err
	}
	for _, a := range accounts {
		if a.topic != l.topic || int(l.partition) >= len(a.counters) {
			continue
		}
		c := &a.counters[l.partition]
		if at := c.acked + c.lag; at >= start && at <= end {
			return at, nil
		}
		// Not the log that the state tells of: all of it is new.
	}
	return start, nil
}

// readBack tells the messages from offset at on, and moves it.
func (l *partitionLog) readBack(at *int64, own life, visit func(*sink.Stored) error) error {
	end, err := l.offset(latestOffset)
	if err != nil {
		return err
	}
	var headers []sink.Header
	for *at < end {
		batches, err := l.fetch(*at, scanBytes)
		if errors.Is(err, errOutOfRange) {
			start, err := l.start()
			if err != nil {
				return err
			}
			if start <= *at {
				return errLogMoves
			}
			*at = start // retention was quicker
			continue
		}
		if err != nil {
			return err
		}
		moved := false
		for i := range batches {
			b := &batches[i]
			switch {
			case b.last() < *at:
				continue
			case b.base >= end:
				*at, moved = end, true
			case b.raw == nil: // the answer ended within it
			// A Kafka transaction may yet be aborted, and is not ours.
			case b.producerID == own.producerID && b.epoch == own.epoch, binary.BigEndian.Uint16(b.raw[batchAttrAt:])&(attrTransactional|attrControl) != 0:
				*at, moved = b.last()+1, true
				continue
			default:
				if headers, err = l.tell(b, *at, headers, visit); err != nil {
					return err
				}
				*at, moved = b.last()+1, true
				continue
			}
			break
		}
		if !moved {
			return errLogMoves
		}
	}
	return nil
}

// tell tells the messages of a batch from an offset on.
func (l *partitionLog) tell(b *batchHeader, from int64, headers []sink.Header, visit func(*sink.Stored) error) ([]sink.Header, error) {
	body, n, _, err := unpack(b.raw)
	if err != nil {
		return headers, &finalError{topicError(l.topic, fmt.Errorf("partition %d, offset %d: %w", l.partition, b.base, err))}
	}
	r := recordReader{b: body}
	for range n {
		rec := recordReader{b: r.take(r.varint())}
		rec.take(1) // attributes
		rec.varint()
		offset := b.base + int64(rec.varint())
		rec.bytes()
		rec.bytes()
		headers = headers[:0]
		for h := rec.varint(); h > 0 && !rec.bad; h-- {
			name := rec.bytes()
			headers = append(headers, sink.Header{Name: string(name), Value: rec.bytes()})
		}
		if r.bad || rec.bad {
			return headers, &finalError{topicError(l.topic, fmt.Errorf("partition %d, offset %d: %w", l.partition, b.base, errShortResponse))}
		}
		if offset < from {
			continue
		}
		if err := visit(&sink.Stored{Place: fmt.Sprintf("offset %d", offset), Headers: headers}); err != nil {
			return headers, &finalError{err}
		}
	}
	return headers, nil
}

// explain says what is to be done where reading is not allowed.
func (l *partitionLog) explain(err error) error {
	if errors.Is(err, errNotReadable) {
		return &DeliveryError{Topic: l.topic, Partition: l.partition, Err: fmt.Errorf("%w: what the topic holds must be read, and READ on it is refused", ErrUnknowable),
			Remedy: "allow it: kafka-acls.sh --add --allow-principal User:NAME --operation Read --topic " + l.topic}
	}
	return err
}
