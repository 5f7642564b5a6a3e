package canaltcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// pipes is a listener whose connections keep writes apart: one read gives what one write has sent.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case n := <-p.dialed:
		return n, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	p.dialed <- theirs
	t.Cleanup(func() { _ = ours.Close() })
	if err := ours.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return ours
}

// servePipes serves the rig's clients over pipes, too.
func (r *rig) servePipes() *pipes {
	p := newPipes()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.tcp.Serve(ctx, p) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	return p
}

// whole takes what one read gives for one packet, as Node's client does, and returns its type and body.
func whole(t *testing.T, n net.Conn, buf []byte) (typ int, body, all []byte) {
	t.Helper()
	m, err := n.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	all = buf[:m]
	if m < 4 || int(binary.BigEndian.Uint32(all)) != m-4 {
		t.Fatalf("one read gives %x: not one packet", all)
	}
	typ, body, err = canalwire.ReadPacket(bytes.NewReader(all), m)
	if err != nil {
		t.Fatal(err)
	}
	return typ, body, all
}

// field is one of a request.
type field struct {
	number protowire.Number
	value  any // string, []byte or int
}

func message(fields ...field) (b []byte) {
	for _, f := range fields {
		switch v := f.value.(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, f.number, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, f.number, protowire.BytesType), v)
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, f.number, protowire.VarintType), uint64(v))
		}
	}
	return b
}

// framed frames a body as some client does: with the fields before it that it sends.
func framed(typ int, body []byte, before ...field) []byte {
	p := message(append(before, field{3, typ}, field{5, body})...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

// habits is how a client of another language talks. All read a packet and drop what may have come behind it.
type habits struct {
	name     string
	user     string
	password func(seed []byte) []byte
	login    []field // behind user and password
	before   []field // of every packet
	get      []field // behind destination, client id and size
	// Whether everything is rolled back before the subscription, and at the end.
	rollbackFirst, rollbackLast bool
}

func inClear(password string) func([]byte) []byte {
	return func([]byte) []byte { return []byte(password) }
}

func scrambled(password string) func([]byte) []byte {
	return func(seed []byte) []byte { return []byte(canalwire.Scramble(password, seed)) }
}

// TestForeignHabits: what clients in other languages send and expect, byte by byte. Each reply is one write of one packet, nothing comes that
// was not asked for, and a get is never answered by an ack while its client does nothing wrong.
func TestForeignHabits(t *testing.T) {
	for _, h := range []habits{
		{ // Each packet has its own buffered reader, so what comes with it is lost.
			name: "Go", user: "canal", password: scrambled("secret"), login: []field{{3, 60000}, {4, 3600000}},
			before: []field{{1, 17}, {2, 1}}, get: []field{{4, -1}, {5, -1}, {6, 0}}, rollbackFirst: true, rollbackLast: true,
		},
		{name: "Go without password", password: scrambled(""), login: []field{{3, 60000}, {4, 3600000}}, get: []field{{4, 100}, {5, 2}, {6, 0}}, rollbackFirst: true, rollbackLast: true},
		{ // One read of the socket is one packet.
			name: "Node", user: "canal", password: inClear("secret"), login: []field{{3, 0}, {4, 0}},
			before: []field{{1, 17}, {2, 1}}, get: []field{{4, -1}, {5, 2}, {6, 0}},
		},
		{name: "Python", user: "canal", password: inClear("secret"), get: []field{{4, -1}, {5, -1}, {6, 0}}, rollbackFirst: true},
		{name: "PHP", user: "canal", password: scrambled("secret"), get: []field{{4, -1}, {5, -1}, {6, 0}}, rollbackFirst: true},
		{name: "Java", user: "canal", password: scrambled("secret"), login: []field{{3, 60000}, {4, 3600000}}, get: []field{{4, -1}, {5, 2}, {6, 0}}, rollbackFirst: true},
	} {
		t.Run(h.name, func(t *testing.T) {
			o := Options{User: h.user, AllowClearText: true}
			if h.user != "" {
				o.Password = "secret"
			}
			r := newRig(t, o)
			p := r.servePipes()
			r.h.write(30)
			buf := make([]byte, 1<<20)
			send := func(n net.Conn, typ int, fields ...field) {
				t.Helper()
				if _, err := n.Write(framed(typ, message(fields...), h.before...)); err != nil {
					t.Fatal(err)
				}
			}
			id := []field{{1, "shop"}, {2, "10001"}}
			connect := func() net.Conn {
				t.Helper()
				n := p.dial(t)
				_, body, all := whole(t, n, buf)
				seed := slices.Clone(body[8:16])
				// Version 1, type HANDSHAKE; utf8, eight bytes of seed, no compression.
				if want := fmt.Sprintf("0000001810011801"+"2a12"+"0a0475746638"+"1208%x"+"1801", seed); hex.EncodeToString(all) != want {
					t.Fatalf("handshake %x, want %s", all, want)
				}
				send(n, canalwire.Authentication, append([]field{{1, h.user}, {2, h.password(seed)}}, h.login...)...)
				if _, _, all = whole(t, n, buf); hex.EncodeToString(all) != "000000021803" { // an empty ACK
					t.Fatalf("login: %x", all)
				}
				if h.rollbackFirst { // nobody has subscribed, and no answer comes
					send(n, canalwire.ClientRollback, append(id, field{3, 0})...)
				}
				send(n, canalwire.Subscription, append(id, field{7, `.*\..*`})...)
				if _, _, all = whole(t, n, buf); hex.EncodeToString(all) != "000000021803" {
					t.Fatalf("subscription: %x", all)
				}
				return n
			}
			get := func(n net.Conn) (batch int64, entries int) {
				t.Helper()
				send(n, canalwire.Get, append(append(id, field{3, 2}), h.get...)...)
				typ, body, all := whole(t, n, buf)
				// Nothing but type and body, as the server's fast path has it.
				if typ != canalwire.Messages || !bytes.HasPrefix(all[4:], []byte{3 << 3, canalwire.Messages, 5<<3 | 2}) {
					t.Fatalf("get: %x", all)
				}
				if err := canalwire.Fields(body, func(f canalwire.Field) error {
					switch f.Number {
					case 1:
						batch = int64(f.Varint)
					case 2:
						entries++
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if (batch == -1) != (entries == 0) {
					t.Fatalf("batch %d of %d entries", batch, entries)
				}
				return batch, entries
			}
			n := connect()
			first := 0
			for first == 0 {
				batch, entries := get(n)
				if first = entries; batch != -1 {
					send(n, canalwire.ClientRollback, append(id, field{3, int(batch)})...) // no answer
				}
			}
			total := 0
			for total < 90 {
				batch, entries := get(n)
				if total == 0 && entries > 0 && entries < first {
					t.Errorf("%d entries after a rollback of %d", entries, first)
				}
				total += entries
				if batch != -1 {
					send(n, canalwire.ClientAck, append(id, field{3, int(batch)})...) // no answer
				}
			}
			if total != 90 {
				t.Errorf("%d entries, want 90", total)
			}
			if batch, _ := get(n); batch != -1 {
				t.Errorf("batch %d behind the end", batch)
			}
			if h.rollbackLast {
				send(n, canalwire.ClientRollback, append(id, field{3, 0})...)
			}
			_ = n.Close()

			// A wrong ack: no answer, which would be taken for the next get's; the connection ends.
			n = connect()
			send(n, canalwire.ClientAck, append(id, field{3, 4711})...)
			if m, err := n.Read(buf); m != 0 || err == nil {
				t.Errorf("a wrong ack is answered by %x (%v)", buf[:m], err)
			} else if errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}
