package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	tailEntries = 1000 // of a topic's end that are read first
	permits     = 1000 // messages that the broker may send ahead
)

// Stored is an entry that a topic holds. Its byte strings are valid during the visit only.
type Stored struct {
	Ledger, Entry int64
	Producer      []byte // name of the producer
	First, Last   int64  // lowest and highest id; equal unless the entry is a batch
	Messages      int

	Metadata []byte // MessageMetadata (PulsarApi.proto)
	Payload  []byte // compressed and batched as it was sent
}

// Tail returns the highest id that the topic holds of a producer name; -1: none, or not any more. It reads the end of the
// topic, and all of it where the end has none of that name. It needs the right to consume, and leaves no
// subscription behind.
func (c *Client) Tail(ctx context.Context, topic, producer string) (int64, error) {
	last := int64(-1)
	visit := func(e *Stored) error {
		if string(e.Producer) == producer {
			last = max(last, e.Last)
		}
		return nil
	}
	all, err := c.Scan(ctx, topic, From{Entries: tailEntries}, visit)
	if err == nil && last < 0 && !all {
		_, err = c.Scan(ctx, topic, From{}, visit)
	}
	return last, err
}

// From says where a scan begins. The zero value is the beginning of the topic.
type From struct {
	Back    time.Duration // so long ago, by the times of the messages; in seconds, rounded up; 0: Entries counts
	Entries int64         // so many entries before the end, and no earlier than with the last ledger
}

// Scan visits the entries of a topic, up to the one that is the last when it begins. all tells that these were surely all that the
// topic holds. An error of visit ends it. It fails when the broker is silent for the operation timeout.
func (c *Client) Scan(ctx context.Context, topic string, from From, visit func(*Stored) error) (all bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(c.ctx, cancel)()
	defer cancel()
	bound, done := c.bound(ctx)
	defer done()
	n, err := c.lookup(bound, topic)
	if err != nil {
		return false, err
	}
	// A connection of its own: its frames are large, and nobody must wait for them.
	n, br, err := c.connect(bound, n.addr)
	if err != nil {
		return false, err
	}
	defer n.nc.Close()
	r := &scanner{c: c, n: n, br: br, ctx: ctx, topic: topic}
	defer context.AfterFunc(ctx, func() { n.nc.SetDeadline(time.Unix(1, 0)) })()
	all, err = r.scan(from, visit)
	if ctx.Err() != nil {
		err = fmt.Errorf("reading %s: %w", topic, ctx.Err())
	}
	return all, err
}

// scanner reads one topic on one connection, which it has for itself.
type scanner struct {
	c     *Client
	n     *conn
	br    *bufio.Reader
	ctx   context.Context
	topic string
	buf   bytes.Buffer // the frame
	f, id fields
}

func (r *scanner) scan(from From, visit func(*Stored) error) (all bool, err error) {
	const looker, reader = 1, 2 // consumers
	if err := r.subscribe(looker, -1, -1, 0); err != nil {
		return false, err
	}
	request := r.c.ids.Add(1)
	if err := r.send(cmdGetLastMessageID, appendNum(appendNum(nil, 1, looker), 2, request)); err != nil {
		return false, err
	}
	if _, err := r.await(cmdLastMessageID, 2, request); err != nil {
		return false, err
	}
	if err := r.id.parse(r.f.bytes(1)); err != nil {
		return false, err
	}
	ledger, entry := r.id.int(1, -1), r.id.int(2, -1)
	if ledger < 0 || entry < 0 {
		return true, nil
	}
	if behind := r.f.bytes(3); behind != nil {
		// Where this consumer begins. It is behind the last message when that was trimmed, which is named all the same.
		if err := r.id.parse(behind); err != nil {
			return false, err
		}
		if l, e := r.id.int(1, -1), r.id.int(2, -1); l > ledger || l == ledger && e >= entry {
			return true, nil
		}
	}
	request = r.c.ids.Add(1)
	if err := r.send(cmdCloseConsumer, closeBody(looker, request)); err != nil {
		return false, err
	}
	if _, err := r.await(cmdSuccess, 1, request); err != nil {
		return false, err
	}
	switch {
	case from.Back > 0:
		err = r.subscribe(reader, -1, -1, from.Back)
	case from.Entries > 0:
		err = r.subscribe(reader, ledger, max(entry-from.Entries, -1), 0) // begins after it
	default:
		all = true
		err = r.subscribe(reader, -1, -1, 0)
	}
	if err != nil {
		return false, err
	}
	for room := 0; ; {
		if room <= permits/2 {
			if err := r.send(cmdFlow, appendNum(appendNum(nil, 1, reader), 2, permits)); err != nil {
				return false, err
			}
			room += permits
		}
		rest, err := r.await(cmdMessage, 1, reader)
		if err != nil {
			return false, err
		}
		if err := r.id.parse(r.f.bytes(2)); err != nil {
			return false, err
		}
		e := Stored{Ledger: r.id.int(1, -1), Entry: r.id.int(2, -1)}
		if err := e.parse(rest, &r.f); err != nil {
			return false, fmt.Errorf("reading %s: entry %d:%d: %w", r.topic, e.Ledger, e.Entry, err)
		}
		room -= e.Messages
		if err := visit(&e); err != nil {
			return false, err
		}
		if e.Ledger > ledger || e.Ledger == ledger && e.Entry >= entry {
			return all, nil
		}
	}
}

// subscribe begins to read behind a position; -1:-1 is before the first one. With back it begins that long ago instead. The
// subscription ends with the connection.
func (r *scanner) subscribe(consumer uint64, ledger, entry int64, back time.Duration) error {
	request := r.c.ids.Add(1)
	b := appendText(nil, 1, r.topic)
	b = appendText(b, 2, fmt.Sprintf("binlogmq-%d-%d", time.Now().UnixNano(), request))
	b = appendNum(b, 3, 0) // exclusive
	b = appendNum(b, 4, consumer)
	b = appendNum(b, 5, request)
	b = appendNum(b, 8, 0) // not durable
	b = appendData(b, 9, appendNum(appendNum(nil, 1, uint64(ledger)), 2, uint64(entry)))
	b = appendNum(b, 13, 1) // from the earliest
	b = appendNum(b, 15, 0) // the topic is not made by this
	if back > 0 {
		b = appendNum(b, 16, uint64((back+time.Second-1)/time.Second))
	}
	if err := r.send(cmdSubscribe, b); err != nil {
		return err
	}
	_, err := r.await(cmdSuccess, 1, request)
	return err
}

func (r *scanner) send(typ int, body []byte) error {
	r.n.nc.SetWriteDeadline(time.Now().Add(r.c.o.OperationTimeout))
	_, err := r.n.nc.Write(appendCommand(nil, typ, body))
	return err
}

// await returns when a command of the type comes whose field holds the number; it is in r.f then. rest is what follows it.
func (r *scanner) await(typ int, field protowire.Number, number uint64) (rest []byte, err error) {
	for {
		got, body, rest, err := r.frame()
		if err == nil {
			err = r.f.parse(body)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: broker %s: %w", r.topic, r.n.addr.broker, err)
		}
		switch got {
		case typ:
			if r.f.uint(field) == number {
				return rest, nil
			}
		case cmdError:
			return nil, &Error{Code: int(r.f.uint(2)), Op: "reading", Topic: r.topic, Broker: r.n.addr.broker, Message: r.f.text(3)}
		case cmdPing:
			err = r.send(cmdPong, nil)
		case cmdAuthChallenge:
			err = r.send(cmdAuthResponse, r.n.authResponse())
		case cmdCloseConsumer:
			err = errors.New("the topic moves")
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: broker %s: %w", r.topic, r.n.addr.broker, err)
		}
	}
}

// frame reads the next frame. What it returns is valid until the next call.
func (r *scanner) frame() (typ int, body, rest []byte, err error) {
	if err := r.ctx.Err(); err != nil {
		return 0, nil, nil, err
	}
	r.n.nc.SetReadDeadline(time.Now().Add(r.c.o.OperationTimeout))
	var h [4]byte
	if _, err := io.ReadFull(r.br, h[:]); err != nil {
		return 0, nil, nil, silence(err)
	}
	total := int64(binary.BigEndian.Uint32(h[:]))
	if limit := int64(r.n.maxMessage) + maxFrame; total < 4 || total > limit {
		return 0, nil, nil, fmt.Errorf("a frame of %d bytes; the broker's messages have up to %d", total, r.n.maxMessage)
	}
	if r.buf.Cap() > keepBuffer {
		r.buf = bytes.Buffer{}
	}
	r.buf.Reset()
	if _, err := io.CopyN(&r.buf, r.br, total); err != nil {
		return 0, nil, nil, silence(err)
	}
	b := r.buf.Bytes()
	size := binary.BigEndian.Uint32(b)
	if int64(size) > total-4 {
		return 0, nil, nil, fmt.Errorf("a command of %d bytes in a frame of %d", size, total)
	}
	typ, body, err = parseCommand(b[4 : 4+size])
	return typ, body, b[4+size:], err
}

func silence(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errSilent
	}
	return err
}

// parse takes an entry as a consumer gets it:
//
//	[0x0e02][size][BrokerEntryMetadata], if the broker keeps it, [0x0e01][CRC-32C], [metadata size][MessageMetadata][payload]
func (e *Stored) parse(b []byte, f *fields) error {
	if len(b) >= 6 && b[0] == 0x0e && b[1] == 0x02 {
		n := binary.BigEndian.Uint32(b[2:])
		if uint64(n) > uint64(len(b)-6) {
			return errMalformed
		}
		b = b[6+n:]
	}
	if len(b) >= 6 && b[0] == 0x0e && b[1] == 0x01 {
		b = b[6:]
	}
	if len(b) < 4 {
		return errMalformed
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return errMalformed
	}
	e.Metadata, e.Payload = b[4:4+n], b[4+n:]
	if err := f.parse(e.Metadata); err != nil {
		return err
	}
	e.Producer = f.bytes(1)
	e.First = f.int(2, -1)
	e.Last = max(e.First, f.int(24, -1))
	e.Messages = int(min(max(f.int(11, 1), 1), permits))
	return nil
}
