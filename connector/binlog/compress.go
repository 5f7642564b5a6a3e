package binlog

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxInflated bounds what one compressed event may grow to: the greatest
// max_allowed_packet there is.
const maxInflated = 1 << 30

var zlibReaders sync.Pool

// inflateWithin unpacks a compressed part of a MariaDB event into new memory, of at most limit bytes: a byte with the
// algorithm (0: zlib) and the size of the length that follows, the length of the
// plain bytes, big-endian, and a zlib stream (binlog_buf_uncompress in log_event.cc).
func inflateWithin(b []byte, limit sizeLimit) ([]byte, error) {
	c := cursor{b: b}
	head := c.u8()
	size := 0
	for _, x := range c.take(int(head & 7)) {
		size = size<<8 | int(x)
		if size > maxInflated {
			return nil, malformed("compressed event of more than %d bytes", maxInflated)
		}
	}
	if c.bad || head&7 == 0 || head&7 > 4 {
		return nil, malformed("compressed event: bad length")
	}
	if alg := head >> 4 & 7; alg != 0 {
		return nil, malformed("compressed event: unknown algorithm %d", alg)
	}
	// Deflate packs at most 1032 bytes into one.
	if size > 1032*(len(c.b)+1) {
		return nil, malformed("compressed event: %d bytes cannot hold %d", len(c.b), size)
	}
	if err := limit.check(size); err != nil {
		return nil, err
	}
	src := bytes.NewReader(c.b)
	var r io.ReadCloser
	if p, ok := zlibReaders.Get().(io.ReadCloser); ok {
		if err := p.(zlib.Resetter).Reset(src, nil); err != nil {
			return nil, malformed("compressed event: %v", err)
		}
		r = p
	} else {
		var err error
		if r, err = zlib.NewReader(src); err != nil {
			return nil, malformed("compressed event: %v", err)
		}
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, malformed("compressed event: %v", err)
	}
	// The checksum of zlib is checked at the end of the stream.
	var one [1]byte
	if n, err := r.Read(one[:]); n != 0 || err != io.EOF {
		return nil, malformed("compressed event: longer than its length or damaged (%v)", err)
	}
	zlibReaders.Put(r)
	return out, nil
}

// inflate is inflateWithin for a statement, which the server bounds.
func inflate(b []byte) ([]byte, error) { return inflateWithin(b, sizeLimit{}) }

// Payload is a TRANSACTION_PAYLOAD event (type 40): a whole transaction but its
// GTID event, compressed.
type Payload struct {
	Compression uint64 // 0 zstd, 255 none
	Size        uint64 // plain bytes; 0 when the event does not say
	Data        []byte
}

// ParsePayload parses the body of a TRANSACTION_PAYLOAD event.
func ParsePayload(body []byte) (Payload, error) {
	c := cursor{b: body}
	p := Payload{Compression: 255}
	size := uint64(len(body))
	for {
		field := c.packed()
		if c.bad {
			return p, short("transaction payload", len(body))
		}
		if field == 0 {
			break
		}
		v := cursor{b: c.bytes()}
		switch field {
		case 1:
			size = v.packed()
		case 2:
			p.Compression = v.packed()
		case 3:
			p.Size = v.packed()
		}
		if c.bad || v.bad {
			return p, short("transaction payload", len(body))
		}
	}
	if size < uint64(len(c.b)) {
		c.b = c.b[:size]
	} else if size > uint64(len(c.b)) && size != uint64(len(body)) {
		return p, short("transaction payload", len(body))
	}
	p.Data = c.b
	if p.Compression != 0 && p.Compression != 255 {
		return p, malformed("transaction payload: unknown compression %d", p.Compression)
	}
	return p, nil
}

// payloadReader reads the events inside a payload one by one, so that memory
// does not depend on the transaction's size. It is reused.
type payloadReader struct {
	src  bytes.Reader
	br   *bufio.Reader
	zstd *zstd.Decoder
}

// sizeLimit bounds what unpacking makes of an event. (I9)
type sizeLimit struct {
	max   int            // bytes; 0: no limit
	large func(size int) // told of sizes from LargeEvent on; may be nil
	typ   EventType      // of the event, for the error
}

// check refuses a size beyond the limit, before memory for it is taken.
func (l *sizeLimit) check(size int) error {
	if l.max > 0 && size > max(l.max, bufferSize) {
		return &TooLargeError{l.typ, int64(size), l.max}
	}
	if l.large != nil && size >= LargeEvent {
		l.large(size)
	}
	return nil
}

// maxWindow is the window of zstd's highest level, which is the most that a
// decoder needs at a time.
const maxWindow = 128 << 20

func (r *payloadReader) reset(p *Payload) error {
	r.src.Reset(p.Data)
	var in io.Reader = &r.src
	if p.Compression == 0 {
		if r.zstd == nil {
			// One at a time: decodes in the caller's goroutine and starts none.
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return err
			}
			r.zstd = d
		}
		if err := r.zstd.Reset(&r.src); err != nil {
			return malformed("transaction payload: %v", err)
		}
		in = r.zstd
	}
	if r.br == nil {
		r.br = bufio.NewReaderSize(in, 64<<10)
	} else {
		r.br.Reset(in)
	}
	return nil
}

// next returns the next event, io.EOF behind the last. Inner events have no checksum.
func (r *payloadReader) next(limit sizeLimit) (Raw, error) {
	b, err := r.br.Peek(HeaderSize)
	if err != nil {
		if err == io.EOF && len(b) == 0 {
			return Raw{}, io.EOF
		}
		return Raw{}, payloadError(err)
	}
	h, err := ParseHeader(b)
	if err != nil {
		return Raw{}, err
	}
	n := int(h.Size)
	if n <= r.br.Size() {
		if b, err = r.br.Peek(n); err != nil {
			return Raw{}, payloadError(err)
		}
		_, _ = r.br.Discard(n)
		return Raw{Header: h, Data: b}, nil
	}
	limit.typ = h.Type
	if err := limit.check(n); err != nil {
		return Raw{}, err
	}
	// A few bytes can claim any size: memory comes in two steps, as for plain events.
	data := make([]byte, min(n, maxPacket))
	if _, err := io.ReadFull(r.br, data); err != nil {
		return Raw{}, payloadError(err)
	}
	if n > len(data) {
		whole := make([]byte, n)
		at := copy(whole, data)
		if _, err := io.ReadFull(r.br, whole[at:]); err != nil {
			return Raw{}, payloadError(err)
		}
		data = whole
	}
	return Raw{Header: h, Data: data, Owned: true}, nil
}

func payloadError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return malformed("transaction payload: %v", err)
}

func (r *payloadReader) close() {
	if r.zstd != nil {
		r.zstd.Close()
		r.zstd = nil
	}
}
