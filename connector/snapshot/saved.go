package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
)

const (
	// logFormat is the number of the documents' format; a change of the fields' meaning is a new one.
	logFormat = 1

	// logDocument holds the state.
	logDocument = "snapshot"

	// pieceBytes bounds what one document holds of a chunk, in bytes: ZooKeeper takes less than 1 MiB, in which base64 of it has room.
	pieceBytes = 512 << 10

	// maxLeft bounds how many chunks can wait for being deleted.
	maxLeft = 1 << 20

	// maxBody bounds a chunk in memory, in bytes, against damaged documents. One holds little more than a row.
	maxBody = 1 << 30
)

func headName(n int64) string { return fmt.Sprintf("%s-%d", logDocument, n) }

func pieceName(n int64, i int) string { return fmt.Sprintf("%s-%d-%d", logDocument, n, i) }

// state is what the document "snapshot" holds.
type state struct {
	Format   int       `json:"format"`
	Life     string    `json:"life"`              // heads of another one do not count
	From     int64     `json:"from"`              // number of the first chunk of which documents may be left
	First    int64     `json:"first"`             // number of the first chunk that counts
	Base     int64     `json:"base,omitempty"`    // ordinals below it are of an earlier numbering
	Passed   int64     `json:"passed,omitempty"`  // End of the last chunk that all cursors have passed
	Queue    []Request `json:"queue,omitempty"`   // what is ordered
	Progress Progress  `json:"progress,omitzero"` // the latest that was saved without a chunk
	Ended    []Ended   `json:"ended,omitempty"`   // what is not ordered any more
	Moving   *moving   `json:"moving,omitempty"`  // cursors are being moved
}

// moving is what is known when cursors begin to move.
type moving struct {
	Oldest int64 `json:"oldest"` // where the last cursor stands
	Above  int64 `json:"above"`  // whoever has been moved stands here or higher; nobody else does
}

func newState() state { return state{Format: logFormat, Life: newLife(), From: 1, First: 1} }

func encodeState(s *state) ([]byte, error) { return json.Marshal(s) }

func decodeState(data []byte, s *state) error {
	if err := decode(data, s); err != nil {
		return err
	}
	switch {
	case s.Format != logFormat:
		return fmt.Errorf("format %d is not known, only %d", s.Format, logFormat)
	case s.Life == "" || s.From < 1 || s.First < s.From || s.First-s.From > maxLeft || s.First > math.MaxInt64/2:
		return fmt.Errorf("chunks from %d and %d on", s.From, s.First)
	}
	for i := range s.Queue {
		if s.Queue[i].ID == "" {
			return fmt.Errorf("request %d has no id", i+1)
		}
	}
	return nil
}

// decode reads JSON as this version writes it.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON")
	}
	return nil
}

const damagedRemedy = "restore it from a backup, together with the cursors, or begin at another place without it (binlogmq cursor set) and order the snapshot again"

// Damaged is the error of a document that cannot be used: ErrDamaged, and a stop, as without it numbers mean nothing (I3).
func Damaged(destination, name string, err error) error {
	return &binlog.StopError{Destination: destination, What: fmt.Sprintf("the saved document %q of its snapshots cannot be used", name),
		Remedy: damagedRemedy, Err: fmt.Errorf("%w: %w", ErrDamaged, err)}
}

// damaged is Damaged of this destination.
func (l *Log) damaged(name string, err error) error {
	return Damaged(l.keeper.Destination(), name, err)
}

// head is what the document "snapshot-N" holds: where a chunk stands, and what its pieces amount to.
type head struct {
	Format  int    `json:"format"`
	Life    string `json:"life"`
	Number  int64  `json:"number"`
	Ordinal int64  `json:"ordinal"`
	End     int64  `json:"end"`
	Counts  string `json:"counts"`
	Request string `json:"request"`
	Pieces  int    `json:"pieces"`
	Size    int64  `json:"size"` // of all pieces, in bytes
}

func (h *head) entry() entry { return entry{h.Ordinal, h.End, h.Counts, h.Request, h.bytes()} }

// documentBytes is what each document takes beside what it holds, roughly.
const documentBytes = 512

// bytes returns what the chunk takes as it is saved.
func (h *head) bytes() int64 { return h.Size*4/3 + int64(h.Pieces+1)*documentBytes }

// head reads the head of a chunk; nil: there is none that counts.
func (l *Log) head(ctx context.Context, life string, n int64) (*head, error) {
	data, err := l.keeper.Load(ctx, headName(n))
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	if data == nil {
		return nil, nil
	}
	h := &head{}
	if err := decodeHead(data, n, h); err != nil {
		return nil, l.damaged(headName(n), err)
	}
	if h.Life != life {
		return nil, nil
	}
	return h, nil
}

func decodeHead(data []byte, n int64, h *head) error {
	if err := decode(data, h); err != nil {
		return err
	}
	switch {
	case h.Format != logFormat:
		return fmt.Errorf("format %d is not known, only %d", h.Format, logFormat)
	case h.Number != n:
		return fmt.Errorf("it is of chunk %d", h.Number)
	case h.Ordinal < 0 || h.End < h.Ordinal+2:
		return fmt.Errorf("it stands from ordinal %d to %d", h.Ordinal, h.End)
	case h.Pieces < 1 || h.Size < 1 || h.Size > maxBody || (h.Size+pieceBytes-1)/pieceBytes != int64(h.Pieces):
		return fmt.Errorf("%d bytes in %d pieces", h.Size, h.Pieces)
	}
	return nil
}

// body is the beginning of what the pieces of a chunk hold, behind its length; the rows of the parts follow.
type body struct {
	Chunk *Chunk       `json:"chunk"`
	Table *event.Table `json:"table"`
	Parts []part       `json:"parts"`
}

type part struct {
	Rows  int `json:"rows"`
	Bytes int `json:"bytes"`
}

// check makes sure that a chunk can be saved. last is where the one before it ends.
func (c *Chunk) check(last int64) error {
	if c.Snapshot == nil || c.Table == nil || len(c.Parts) == 0 {
		return errors.New("a chunk is not whole")
	}
	for i := range c.Parts {
		if c.Parts[i].Rows < 1 {
			return errors.New("a part of a chunk has no rows")
		}
	}
	if c.Ordinal < last || c.End != c.Ordinal+c.Rows()+1 {
		return fmt.Errorf("a chunk of %d rows stands from ordinal %d to %d, and the one before it ends at %d", c.Rows(), c.Ordinal, c.End, last)
	}
	return nil
}

// Compression. Both are safe for concurrent use.
var (
	packer   = sync.OnceValues(func() (*zstd.Encoder, error) { return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) })
	unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBody))
	})
)

// encodeChunk writes what the pieces hold.
func encodeChunk(c *Chunk) ([]byte, error) {
	b := body{Chunk: c, Table: c.Table, Parts: make([]part, len(c.Parts))}
	size := 0
	for i := range c.Parts {
		b.Parts[i] = part{c.Parts[i].Rows, len(c.Parts[i].Raw)}
		size += len(c.Parts[i].Raw)
	}
	text, err := json.Marshal(&b)
	if err != nil {
		return nil, err
	}
	if size += len(text) + binary.MaxVarintLen64; size > maxBody {
		return nil, fmt.Errorf("a chunk of table %s.%s takes %d bytes, %d are allowed", c.Table.Schema, c.Table.Name, size, maxBody)
	}
	raw := make([]byte, 0, size)
	raw = binary.AppendUvarint(raw, uint64(len(text)))
	raw = append(raw, text...)
	for i := range c.Parts {
		raw = append(raw, c.Parts[i].Raw...)
	}
	z, err := packer()
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(raw, nil), nil
}

// decodeChunk reads what encodeChunk wrote.
func decodeChunk(data []byte) (*Chunk, error) {
	z, err := unpacker()
	if err != nil {
		return nil, err
	}
	raw, err := z.DecodeAll(data, nil)
	if err != nil {
		return nil, err
	}
	return parseChunk(raw)
}

// parseChunk reads what the pieces hold, unpacked. Rows are not copied.
func parseChunk(raw []byte) (*Chunk, error) {
	n, used := binary.Uvarint(raw)
	if used <= 0 || n > uint64(len(raw)-used) {
		return nil, errors.New("it is cut short")
	}
	raw = raw[used:]
	var b body
	if err := decode(raw[:n], &b); err != nil {
		return nil, err
	}
	raw = raw[n:]
	if b.Chunk == nil || b.Chunk.Snapshot == nil || b.Table == nil || len(b.Parts) == 0 {
		return nil, errors.New("something is missing")
	}
	if err := b.Table.Compile(); err != nil {
		return nil, err
	}
	c := b.Chunk
	c.Table = b.Table
	for _, p := range b.Parts {
		if p.Rows < 1 || p.Bytes < 0 || p.Bytes > len(raw) || p.Rows > math.MaxInt32 {
			return nil, fmt.Errorf("a part of %d rows in %d bytes, of which %d are there", p.Rows, p.Bytes, len(raw))
		}
		c.Parts = append(c.Parts, Part{Rows: p.Rows, Raw: raw[:p.Bytes:p.Bytes]})
		raw = raw[p.Bytes:]
	}
	if len(raw) > 0 {
		return nil, fmt.Errorf("%d bytes belong to no part", len(raw))
	}
	if err := c.check(c.Ordinal); err != nil {
		return nil, err
	}
	return c, nil
}

// write saves a chunk: its pieces, and then the head, with which it counts. l.mu is held.
func (l *Log) write(ctx context.Context, life string, n int64, c *Chunk) (*head, error) {
	data, err := encodeChunk(c)
	if err != nil {
		return nil, err
	}
	h := &head{Format: logFormat, Life: life, Number: n, Ordinal: c.Ordinal, End: c.End, Counts: c.Counts, Request: c.After.Request, Size: int64(len(data))}
	for len(data) > 0 {
		p := data[:min(len(data), pieceBytes)]
		data = data[len(p):]
		text, err := json.Marshal(p) // base64
		if err != nil {
			return nil, err
		}
		if err := l.keeper.Save(ctx, pieceName(n, h.Pieces), text); err != nil {
			return nil, err
		}
		killpoint.Hit("snapshot.piece")
		h.Pieces++
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	l.unsure = n
	if err := l.keeper.Save(ctx, headName(n), text); err != nil { // I7: from here on it stands in the stream
		return nil, err
	}
	l.unsure = 0
	killpoint.Hit("snapshot.chunk")
	return h, nil
}

// chunk reads a chunk with its rows.
func (l *Log) chunk(ctx context.Context, life string, n int64, e *entry) (*Chunk, error) {
	h, err := l.head(ctx, life, n)
	if err != nil {
		return nil, err
	}
	if h == nil || h.entry() != *e {
		return nil, l.damaged(headName(n), errors.New("it is not what it was"))
	}
	data := make([]byte, 0, min(h.Size, 4<<20))
	for i := range h.Pieces {
		text, err := l.keeper.Load(ctx, pieceName(n, i))
		if err != nil {
			return nil, fmt.Errorf("snapshots: %w", err)
		}
		var p []byte
		if err := decode(text, &p); err != nil {
			return nil, l.damaged(pieceName(n, i), err)
		}
		if want := min(h.Size-int64(len(data)), pieceBytes); int64(len(p)) != want {
			return nil, l.damaged(pieceName(n, i), fmt.Errorf("%d bytes instead of %d", len(p), want))
		}
		data = append(data, p...)
	}
	c, err := decodeChunk(data)
	if err == nil && (c.Ordinal != h.Ordinal || c.End != h.End || c.Counts != h.Counts || c.After.Request != h.Request || c.Snapshot.Chunk != n) {
		err = errors.New("its pieces are of another chunk")
	}
	if err != nil {
		return nil, l.damaged(headName(n), err)
	}
	return c, nil
}

// discard deletes what there is of a chunk that does not count. Its pieces lie without a gap, so they are deleted from the last one on. l.mu is held.
func (l *Log) discard(ctx context.Context, n int64) error {
	// A head that counts nowhere yet must go before its pieces; one that does not count any more may.
	if err := l.remove(ctx, headName(n)); err != nil {
		return err
	}
	last := 0
	for {
		data, err := l.keeper.Load(ctx, pieceName(n, last))
		if err != nil && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("snapshots: %w", err)
		}
		if data == nil && err == nil {
			break
		}
		last++
	}
	for i := last - 1; i >= 0; i-- {
		if err := l.remove(ctx, pieceName(n, i)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) remove(ctx context.Context, name string) error {
	if err := l.keeper.Save(ctx, name, nil); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	return nil
}
