package kafka

import (
	"errors"
	"fmt"
)

// search finds out how many messages of a life a partition holds: what the log says, below the high
// watermark only. It never asks for the broker's producer state, which knows of batches that may yet vanish.
//
// It is a pure function of the log as a logReader shows it.
type search struct {
	producerID int64
	epoch      int16
	count      int64 // messages below it are stored for certain
	offset     int64 // message number count and all behind it lie there or above
	shared     bool  // others have written since the life began
	end        int64 // high watermark
}

// logReader reads record batches of one partition.
type logReader interface {
	// fetch returns batches in order, beginning with the one that holds the offset, or the next
	// one above: at least one if there is any. It returns errOutOfRange below the log's start or above its end.
	fetch(offset int64, maxBytes int32) ([]batchHeader, error)
	// start returns the offset of the first record that is not deleted.
	start() (int64, error)
}

var (
	errOutOfRange  = errors.New("kafka: offset out of range")
	errNotReadable = errors.New("kafka: READ is not allowed")
	errLogMoves    = errors.New("kafka: the log changed while it was read")
)

// batchHeader is what a search needs of a record batch.
type batchHeader struct {
	base       int64 // offset of the first record
	lastDelta  int32 // offset of the last record, less base
	producerID int64
	epoch      int16
	sequence   int32  // of the first record
	raw        []byte // the whole batch; nil where the answer ended within it
}

func (b *batchHeader) last() int64 { return b.base + int64(b.lastDelta) }

// outcome is what a search comes to.
type outcome uint8

const (
	found      outcome = iota
	behind             // the log is shorter than what was acknowledged: a new leader may not know all yet, or messages are lost
	superseded         // a newer life of this sink writes
	unknowable         // how many are stored cannot be said
)

// verdict is the result of a search.
type verdict struct {
	outcome outcome
	count   int64  // found: messages stored below the high watermark
	shared  bool   // others write to the partition
	tail    []byte // the batch with message count-1, if that is new and was seen whole
	why     string
}

// scanBytes is how much of a log is read at once.
const scanBytes = 1 << 20

func (q search) run(l logReader) (verdict, error) {
	switch {
	case q.end < q.offset:
		return verdict{outcome: behind, why: fmt.Sprintf("the high watermark is %d, and messages up to offset %d were acknowledged", q.end, q.offset)}, nil
	case q.end == q.offset:
		return verdict{count: q.count, shared: q.shared}, nil
	}
	// Mostly the last batch is ours and says all.
	v, ours, err := q.last(l)
	switch {
	case errors.Is(err, errOutOfRange):
		start, err := l.start()
		if err != nil {
			return verdict{}, err
		}
		if start < q.end {
			return verdict{}, errLogMoves
		}
		// Everything is deleted.
		return q.conclude(q.count, q.offset, q.offset, false, nil), nil
	case errors.Is(err, errNotReadable):
		if q.shared {
			return verdict{outcome: unknowable, why: "others write to the partition, and the sink's user may not read it (READ on the topic)"}, nil
		}
		return q.conclude(q.count, q.offset, q.offset, false, nil), nil
	case err != nil:
		return verdict{}, err
	}
	if !ours {
		return q.scan(l)
	}
	if v.outcome == found && v.count-q.count != q.end-q.offset {
		v.shared = true
	}
	return v, nil
}

// last says what the last batch means; false if it is not of this life, or there is none.
func (q *search) last(l logReader) (v verdict, ours bool, err error) {
	if q.end == 0 {
		return v, false, nil
	}
	batches, err := l.fetch(q.end-1, 1)
	if err != nil {
		return v, false, err
	}
	for i := range batches {
		if b := &batches[i]; b.base < q.end && b.last() == q.end-1 {
			if v, ours = q.judge(b); ours {
				break
			}
		}
	}
	return v, ours, nil
}

// judge says what a batch of ours means; false if it is not of this life.
func (q *search) judge(b *batchHeader) (verdict, bool) {
	if b.producerID != q.producerID || b.epoch < q.epoch {
		return verdict{}, false
	}
	if b.epoch > q.epoch {
		return verdict{outcome: superseded, why: fmt.Sprintf("epoch %d of the producer id has written at offset %d, and this is epoch %d", b.epoch, b.last(), q.epoch)}, true
	}
	// The number next to ours of all that have this sequence.
	lastSequence := (int64(b.sequence) + int64(b.lastDelta)) & 0x7fffffff
	n := q.count + int64(int32(uint32(lastSequence-(q.count-1))<<1)>>1)
	if n < q.count {
		return verdict{outcome: behind, why: fmt.Sprintf("the last message stored is number %d, and %d were acknowledged", n-1, q.count)}, true
	}
	if n-q.count > b.last()+1-q.offset {
		return verdict{outcome: unknowable, why: fmt.Sprintf("it holds message number %d at offset %d, where it cannot be: the topic is not the one that was written to before", n-1, b.last())}, true
	}
	v := verdict{count: n, shared: q.shared}
	if n > q.count {
		v.tail = b.raw
	}
	return v, true
}

// scan reads everything since the last message that is known.
func (q *search) scan(l logReader) (verdict, error) {
	count, after := q.count, q.offset // what is known last, and the offset behind it
	covered := q.offset               // everything since after and below this is of others
	foreign := false                  // something is
	var tail []byte
	for at := q.offset; at < q.end; {
		batches, err := l.fetch(at, scanBytes)
		if errors.Is(err, errOutOfRange) {
			start, err := l.start()
			if err != nil {
				return verdict{}, err
			}
			if start <= at {
				return verdict{}, errLogMoves
			}
			at = start // covered tells of the gap
			continue
		}
		if err != nil {
			return verdict{}, err
		}
		moved := false
		for i := range batches {
			b := &batches[i]
			if b.last() < at {
				continue
			}
			if b.base >= q.end {
				at, moved = q.end, true
				break
			}
			at, moved = b.last()+1, true
			v, ours := q.judge(b)
			switch {
			case ours && v.outcome != found:
				return v, nil
			case ours:
				count, after, covered, foreign, tail = v.count, at, at, false, v.tail
			case b.base <= covered:
				covered, foreign = max(covered, at), true
			default:
				foreign = true // with a gap before it
			}
		}
		if !moved {
			break // nothing more is there
		}
	}
	return q.conclude(count, after, covered, foreign, tail), nil
}

// conclude weighs what was read: count messages end at offset after; behind them the log
// shows batches of others only, without a gap up to covered.
func (q *search) conclude(count, after, covered int64, foreign bool, tail []byte) verdict {
	switch {
	case covered >= q.end:
		return verdict{count: count, shared: q.shared || foreign || q.end-q.offset != count-q.count, tail: tail}
	case !foreign && !q.shared && after-q.offset == count-q.count:
		// What is missing is deleted or compacted, and only we write here: each offset was a message.
		return verdict{count: count + q.end - after}
	}
	return verdict{outcome: unknowable, why: fmt.Sprintf("records between offsets %d and %d are deleted or compacted, and others than this sink write to the partition", after, q.end)}
}
