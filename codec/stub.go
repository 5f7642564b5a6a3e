package codec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/binlogmq/binlogmq/event"
)

// Stubber is a codec that can write messages without their largest contents. What it leaves out is
// replaced, where it stood, by its [Digest] in the form that the format gives to the
// column's content, so that parsers of the format still take the message.
type Stubber interface {
	Codec

	// AppendStub appends the message value of the row change, as AppendRow does, with the contents of as many
	// columns replaced as it takes to make it no longer than room bytes, the largest first. Columns of
	// the table's key and of key are never replaced. It fails with ErrNoStub when the value does not become that short.
	AppendStub(dst []byte, r *event.Row, key []int, room int) ([]byte, error)

	// AppendDDLStub appends the message value of a DDL event with the statement replaced by a comment
	// that holds its digest. It fails with ErrNoStub when that is longer than room bytes.
	AppendDDLStub(dst []byte, e *event.Event, room int) ([]byte, error)
}

// ErrNoStub says that a message stays too large whatever is left out of it.
var ErrNoStub = errors.New("what remains without the large columns is larger than allowed")

// Digest returns what stands for content in a stub: the JSON object
//
//	{"binlogmq_stub":{"bytes":N,"sha256":"HEX"}}
func Digest(content []byte) []byte {
	b := append(make([]byte, 0, 128), `{"binlogmq_stub":`...)
	return append(AppendSum(b, content), '}')
}

// AppendSum appends {"bytes":N,"sha256":"HEX"}, the length and the SHA-256 of content.
func AppendSum(dst, content []byte) []byte {
	sum := sha256.Sum256(content)
	dst = strconv.AppendInt(append(dst, `{"bytes":`...), int64(len(content)), 10)
	dst = hex.AppendEncode(append(dst, `,"sha256":"`...), sum[:])
	return append(dst, `"}`...)
}

// SumLen is at least the length of what AppendSum appends.
const SumLen = len(`{"bytes":,"sha256":""}`) + 20 + 2*sha256.Size

// Span is where a value that may be replaced stands in a message: from the byte Start up to End.
type Span struct {
	Start, End int
	Column     int
	Value      *event.Value
}

// Spans collects the spans of a message while it is written. A nil *Spans collects nothing.
type Spans struct {
	all  []Span
	keep []int // columns that are never replaced
}

// AppendCut is [Stubber.AppendStub] of a format in which a value can be replaced where it stands. appendRow appends the whole message value and
// adds the spans of the values; replace returns what stands for one of them, or nil where it cannot be replaced.
func AppendCut(format string, dst []byte, r *event.Row, key []int, room int,
	appendRow func(dst []byte, r *event.Row, spans *Spans) ([]byte, error), replace func(*Span) ([]byte, error)) ([]byte, error) {
	at, spans := len(dst), &Spans{keep: append(slices.Clone(key), r.Table.Key...)}
	dst, err := appendRow(dst, r, spans)
	if err != nil {
		return nil, err
	}
	if dst, err = spans.cut(dst, at, room, replace); err != nil {
		return nil, RowError(format, r, err)
	}
	return dst, nil
}

// Add notes that the value of a column stands at start, up to end.
func (s *Spans) Add(column int, v *event.Value, start, end int) {
	if s != nil && !v.IsNull() && !slices.Contains(s.keep, column) {
		s.all = append(s.all, Span{start, end, column, v})
	}
}

// cut replaces spans of the message dst[at:], the largest first, until it is no longer than room, and returns dst with the
// result from at on. replace writes what stands for a span; nil stands for a span that cannot be replaced.
func (s *Spans) cut(dst []byte, at, room int, replace func(*Span) ([]byte, error)) ([]byte, error) {
	bySize := slices.Clone(s.all)
	// I5: the order decides what consumers see, so it is a function of the message.
	slices.SortFunc(bySize, func(a, b Span) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start))
	})
	type cut struct {
		Span
		by []byte
	}
	var cuts []cut
	size := len(dst) - at
	for i := range bySize {
		sp := &bySize[i]
		if size <= room || sp.End-sp.Start <= len(`{"binlogmq_stub":`) {
			break
		}
		by, err := replace(sp)
		if err != nil {
			return nil, err
		}
		if by == nil || len(by) >= sp.End-sp.Start {
			continue
		}
		size -= sp.End - sp.Start - len(by)
		cuts = append(cuts, cut{*sp, by})
	}
	if size > room {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrNoStub, size, room)
	}
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Compare(a.Start, b.Start) })
	// What is put in is shorter than what it replaces, so everything moves down.
	w, from := at, at
	for _, c := range cuts {
		w += copy(dst[w:], dst[from:c.Start])
		w += copy(dst[w:], c.by)
		from = c.End
	}
	w += copy(dst[w:], dst[from:])
	return dst[:w], nil
}

// DigestComment returns what stands for a DDL statement in a stub: its digest in an SQL comment.
func DigestComment(statement []byte) []byte {
	return append(append([]byte("/* "), Digest(statement)...), " */"...)
}

// Fits returns dst, or ErrNoStub if dst[at:] is longer than room.
func Fits(dst []byte, at, room int) ([]byte, error) {
	if n := len(dst) - at; n > room {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrNoStub, n, room)
	}
	return dst, nil
}
