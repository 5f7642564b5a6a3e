package binlog

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Raw is one event as framed.
type Raw struct {
	Header
	// Data is the whole event, header included and checksum cut off.
	Data []byte
	// Owned says that Data is memory of its own that nobody writes again;
	// otherwise the next call of the reader overwrites it.
	Owned bool
}

// Body returns what follows the header.
func (r *Raw) Body() []byte { return r.Data[HeaderSize:] }

// ServerError is an error packet of the server.
type ServerError struct {
	Code    uint16
	State   string // SQLSTATE; "" when the server sent none
	Message string
}

// Error returns code and message.
func (e *ServerError) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// ErrStreamEnd is returned by [Stream.Next] when the server says that the
// stream has ended, as it does when it shuts down.
var ErrStreamEnd = errors.New("the server ended the binlog stream")

// ErrChecksum is wrapped by the error about an event whose CRC32 is wrong. It
// wraps [ErrMalformed] as well.
var ErrChecksum = fmt.Errorf("%w: checksum mismatch", ErrMalformed)

// Checksum algorithms of the format description event.
const (
	checksumNone    = 0
	checksumCRC32   = 1
	checksumUnknown = 255
)

const (
	bufferSize = 256 << 10
	maxPacket  = 1<<24 - 1
	firstAlloc = 1 << 20 // larger pieces get their memory while their bytes arrive
)

// Stream frames the packets that a server sends after a dump command: one event a
// packet, events of 16 MiB and more spread over several. It verifies each event's checksum.
// Not for concurrent use.
type Stream struct {
	br       *bufio.Reader
	seq      byte
	started  bool
	checksum byte
	limit    int
	onLarge  func(size int)
}

// NewStream returns a Stream that reads from r, which it buffers.
func NewStream(r io.Reader) *Stream {
	return &Stream{br: bufio.NewReaderSize(r, bufferSize), checksum: checksumUnknown}
}

// Limit makes Next refuse events of more than n bytes with a *[TooLargeError]. An event is the most
// that is held in memory at once. Events of up to 256 KiB are never refused; 0 means no limit.
func (s *Stream) Limit(n int) { s.limit = n }

// OnLarge makes Next call f, from its own goroutine, with the size of each event of at least [LargeEvent] bytes before memory for it is taken.
func (s *Stream) OnLarge(f func(size int)) { s.onLarge = f }

// LargeEvent is from how many bytes on an event is worth telling of: the memory of smaller ones vanishes in that of the ring.
const LargeEvent = 8 << 20

// TooLargeError says that an event is larger than [Stream.Limit] allows.
type TooLargeError struct {
	Type  EventType
	Size  int64
	Limit int
}

// Error names type, size and limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%v event of %d bytes is larger than the limit of %d", e.Type, e.Size, e.Limit)
}

// Ready reports whether the next event lies in the buffer as a whole, so that
// Next returns without reading from the connection.
func (s *Stream) Ready() bool {
	n := s.br.Buffered()
	if n < 4 {
		return false
	}
	h, _ := s.br.Peek(4)
	return n >= 4+packetLen(h)
}

func packetLen(h []byte) int { return int(h[0]) | int(h[1])<<8 | int(h[2])<<16 }

// header reads the header of the next packet.
func (s *Stream) header(h []byte) (int, error) {
	if s.started && h[3] != s.seq {
		return 0, malformed("packet number %d where %d was due", h[3], s.seq)
	}
	s.started = true
	s.seq = h[3] + 1
	return packetLen(h), nil
}

// Next returns the next event. Errors are those of the reader (io.EOF when
// the connection ended between two packets), a *[ServerError], [ErrStreamEnd] or one
// that wraps [ErrMalformed]. After an error the Stream is of no further use.
func (s *Stream) Next() (Raw, error) {
	h, err := s.br.Peek(4)
	if err != nil {
		if err == io.EOF && len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return Raw{}, err
	}
	n, err := s.header(h)
	if err != nil {
		return Raw{}, err
	}
	if n == maxPacket || 4+n > s.br.Size() {
		_, _ = s.br.Discard(4)
		return s.large(n)
	}
	p, err := s.br.Peek(4 + n)
	if err != nil {
		return Raw{}, unexpected(err)
	}
	_, _ = s.br.Discard(4 + n)
	p = p[4:]
	if n == 0 || p[0] != 0 {
		return Raw{}, packetError(p)
	}
	return s.event(p[1:], false)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// large reads an event that does not fit into the buffer. Its first packet has
// n bytes, of which none are read.
func (s *Stream) large(n int) (Raw, error) {
	var head [1 + HeaderSize]byte
	if n < len(head) {
		return Raw{}, short("packet", n)
	}
	if _, err := io.ReadFull(s.br, head[:]); err != nil {
		return Raw{}, unexpected(err)
	}
	if head[0] != 0 {
		return Raw{}, packetError(head[:])
	}
	eh, err := ParseHeader(head[1:])
	if err != nil {
		return Raw{}, err
	}
	size := int(eh.Size)
	if s.limit > 0 && size > s.limit {
		return Raw{}, &TooLargeError{eh.Type, int64(size), s.limit} // I9
	}
	if s.onLarge != nil && size >= LargeEvent {
		s.onLarge(size)
	}
	data := make([]byte, HeaderSize, min(size, max(n, firstAlloc))) // a packet is at most 16 MiB
	copy(data, head[1:])
	left := n - len(head)
	for {
		if left > size-len(data) {
			return Raw{}, malformed("packets of an event of %d bytes hold more than that", size)
		}
		for left > 0 {
			if len(data) == cap(data) {
				// I9: at once to the end. Whoever has sent 16 MiB means it, and doubling would leave as much again behind.
				grown := make([]byte, len(data), size)
				copy(grown, data)
				data = grown
			}
			part := data[len(data):min(len(data)+left, cap(data))]
			if _, err := io.ReadFull(s.br, part); err != nil {
				return Raw{}, unexpected(err)
			}
			data = data[:len(data)+len(part)]
			left -= len(part)
		}
		if n < maxPacket {
			break
		}
		var h [4]byte
		if _, err := io.ReadFull(s.br, h[:]); err != nil {
			return Raw{}, unexpected(err)
		}
		if n, err = s.header(h[:]); err != nil {
			return Raw{}, err
		}
		left = n
	}
	return s.event(data, true)
}

// packetError makes an error of a packet that holds no event.
func packetError(p []byte) error {
	switch {
	case len(p) == 0:
		return malformed("empty packet")
	case p[0] == 0xfe && len(p) < 9:
		return ErrStreamEnd
	case p[0] == 0xff && len(p) >= 3:
		e := &ServerError{Code: le16(p[1:])}
		p = p[3:]
		if len(p) >= 6 && p[0] == '#' {
			e.State, p = string(p[1:6]), p[6:]
		}
		e.Message = string(p[:min(len(p), 1024)])
		return e
	}
	return malformed("packet of kind %#x", p[0])
}

// event checks the framed event and cuts its checksum off.
func (s *Stream) event(data []byte, owned bool) (Raw, error) {
	h, err := ParseHeader(data)
	if err != nil {
		return Raw{}, err
	}
	if int64(h.Size) != int64(len(data)) {
		return Raw{}, malformed("%v event says %d bytes, the packets hold %d", h.Type, h.Size, len(data))
	}
	r := Raw{Header: h, Data: data, Owned: owned}
	sum := s.checksum
	if h.Type == TypeFormatDescription {
		f, err := ParseFormatDescription(r.Body())
		if err != nil {
			return Raw{}, err
		}
		// The event that names the algorithm always has room for a checksum, and a right one if the algorithm is CRC32.
		s.checksum, sum = f.checksum, f.checksum
		if f.checksum == checksumNone && f.hasChecksum {
			r.Data = data[:len(data)-4]
			return r, nil
		}
	}
	good := len(data) >= HeaderSize+4 && crc32.ChecksumIEEE(data[:len(data)-4]) == le32(data[len(data)-4:])
	switch {
	case sum == checksumNone:
	case good:
		r.Data = data[:len(data)-4]
	case h.Type == TypeRotate && h.Flags&FlagArtificial != 0:
		// Made by the sender, in the old file's or in the new one's manner; the parser checks the name.
	case sum == checksumUnknown:
		return Raw{}, malformed("%v event before the format description", h.Type)
	default:
		return Raw{}, fmt.Errorf("%w in a %v event of %d bytes", ErrChecksum, h.Type, h.Size)
	}
	return r, nil
}
