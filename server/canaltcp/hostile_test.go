package canaltcp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/internal/canalwire"
)

// TestHostile: whatever some clients send, or do not, another one is served (I9).
func TestHostile(t *testing.T) {
	r := newRig(t, Options{MaxConnections: 60})
	good := r.connect(1001, "")
	login := canalwire.AppendPacket(nil, canalwire.Authentication, false, nil)
	after := func(p []byte) []byte { return append(bytes.Clone(login), p...) }
	random := make([]byte, 5000)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(random)
	get := func(size, timeout int) []byte {
		return canalwire.AppendPacket(nil, canalwire.Get, false, message(field{1, "shop"}, field{2, "666"}, field{3, size}, field{4, timeout}))
	}
	subscribe := canalwire.AppendPacket(nil, canalwire.Subscription, false, message(field{1, "shop"}, field{2, "666"}))
	var open []net.Conn
	for i, p := range [][]byte{
		{0xff, 0xff, 0xff, 0xff},
		{0x7f, 0xff, 0xff, 0xff, 0},
		{0, 0, 0x40, 0, 1},
		{0, 0, 0, 3, 0x2a, 0xff, 0xff},
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{0, 0, 0, 0},
		bytes.Repeat([]byte{0}, 1000),
		random,
		after(random),
		login[:3],
		after([]byte{0, 5, 0, 0, 1}), // a packet that never comes, of a length that might
		after([]byte{0xff, 0xff, 0xff, 0xff}),
		canalwire.AppendPacket(nil, canalwire.Get, false, []byte("\x0a\x04shop\x12\x041001")), // before the login
		canalwire.AppendPacket(nil, canalwire.Authentication, false, []byte{0x0a, 0xff}),
		canalwire.AppendPacket(nil, canalwire.Authentication, false, message(field{1, string(make([]byte, 2*maxLogin))})),
		after(bytes.Repeat(get(1<<30, 0), 3)),                                   // without a subscription
		after(append(bytes.Clone(subscribe), bytes.Repeat(get(1, -1), 500)...)), // answers that nobody reads
		after(append(bytes.Clone(subscribe), get(-5, 1<<40)...)),
		after(canalwire.AppendPacket(nil, canalwire.Subscription, false, message(field{1, "shop"}, field{2, "666"}, field{7, string(bytes.Repeat([]byte("("), 100_000))}))),
		after(canalwire.AppendPacket(nil, canalwire.Subscription, false, message(field{1, "shop"}, field{2, "667"}, field{7, "(a{1000}){1000}"}))),
	} {
		n := r.dial()
		open = append(open, n)
		if _, err := n.Write(p); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = n.(*net.TCPConn).CloseWrite()
		}
	}
	for range 100 { // more than are let in
		n, err := net.Dial("tcp", r.address)
		r.must(err)
		open = append(open, n)
	}
	r.h.write(200)
	equal(t, "the good one", r.collect(good, 200), sequence(1, 200, 1))
	// One that comes late finds room, whoever waits there without a word.
	equal(t, "a late one", r.collect(r.connect(1002, ""), 200), sequence(1, 200, 1))
	for _, n := range open {
		_ = n.Close()
	}
	if r.tcp.Status().Refused == 0 {
		t.Error("no connection was refused")
	}
}

// TestFlood: ten thousand connections, or as many as this process may have, hinder neither a client that is there nor one
// that comes, and take bounded memory (I9).
func TestFlood(t *testing.T) {
	r := newRig(t, Options{})
	good := r.connect(1001, "")
	var limit syscall.Rlimit
	r.must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	n := int(min(10_000, limit.Cur-min(limit.Cur, 2*DefaultMaxConnections+200)))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	written, seen := 0, 0
	for i := range n {
		c, err := net.Dial("tcp", r.address)
		r.must(err)
		open = append(open, c)
		if i%3 == 0 {
			_, _ = c.Write([]byte{0, 0, 0x3f, 0xff, 1})
		}
		if i%500 == 0 {
			r.h.write(2)
			written += 2
			equal(t, "the good one", r.collect(good, 2), sequence(seen+1, written, 1))
			seen = written
		}
	}
	late := r.connect(1002, "")
	r.h.write(4)
	equal(t, "the good one", r.collect(good, 4), sequence(seen+1, written+4, 1))
	for last := sequence(written+4, written+4, 1)[0]; ; { // it begins where the other's cursor was
		ids := r.collect(late, 1)
		if ids[len(ids)-1] == last {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got, most := int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(DefaultMaxConnections/4*2*maxLogin+n<<12); got > most {
		t.Errorf("%d connections hold %d bytes, more than %d", n, got, most)
	}
	if s := r.tcp.Status(); s.Connections > DefaultMaxConnections || n > DefaultMaxConnections && s.Refused == 0 {
		t.Errorf("%+v", s)
	}
}

// TestSlowReader: a client that does not read its answer is given up, and holds up nobody's memory for ever.
func TestSlowReader(t *testing.T) {
	r := newRig(t, Options{Memory: 1 << 20, patience: 500 * time.Millisecond})
	p := r.servePipes()
	r.h.write(1000)
	good := r.connect(1001, "")
	before := r.collect(good, 100) // or some more
	for range 3 {
		for tries := 0; !hungry(t, p); tries++ {
			if tries == 100 {
				t.Fatal("a login that is read at once is given up")
			}
		}
		// All of the memory is taken by an answer that nobody reads, until it is given up.
	}
	equal(t, "before and after", append(before, r.collect(good, 1000-len(before))...), sequence(1, 1000, 1))
}

// hungry logs in and asks for more than it reads. It tells whether it came so far: where the machine holds it up for longer than the
// server has patience its connection is given up before.
func hungry(t *testing.T, p *pipes) bool {
	t.Helper()
	n := p.dial(t)
	if _, _, err := canalwire.ReadPacket(n, 1<<10); err != nil {
		return false
	}
	if _, err := n.Write(canalwire.AppendPacket(nil, canalwire.Authentication, false, message(field{5, "shop"}, field{6, "7"}))); err != nil {
		return false
	}
	if typ, _, err := canalwire.ReadPacket(n, 1<<10); err != nil {
		return false
	} else if typ != canalwire.Ack {
		t.Fatalf("the login is answered by %d", typ)
	}
	_, err := n.Write(canalwire.AppendPacket(nil, canalwire.Get, false, message(field{1, "shop"}, field{2, "7"}, field{3, 1 << 20})))
	return err == nil
}

// TestTimeouts: a connection without a request ends after what its client names in its login, in milliseconds, else after what the server
// is told; one that waits for an answer does not.
func TestTimeouts(t *testing.T) {
	for name, clients := range map[string]bool{"the server's": false, "the client's": true} {
		t.Run(name, func(t *testing.T) {
			// On a busy machine the client's next request may come too late. Then with more time.
			for timeout := 50 * time.Millisecond; !timesOut(t, clients, timeout); timeout *= 4 {
				if timeout > 10*time.Second {
					t.Fatal("a client that is in time is cut off")
				}
			}
		})
	}
}

// timesOut tells whether the connection outlived what it should. That it ends behind that is certain.
func timesOut(t *testing.T, clients bool, timeout time.Duration) bool {
	t.Helper()
	o, ms := Options{IdleTimeout: timeout}, int(timeout.Milliseconds())
	var login []field
	if clients {
		o, login = Options{}, []field{{3, ms}, {4, ms / 2}}
	}
	r := newRig(t, o)
	n := r.dial()
	exchange := func(want, typ int, fields ...field) error {
		_, err := n.Write(canalwire.AppendPacket(nil, typ, false, message(fields...)))
		if err != nil {
			return err
		}
		got, _, err := canalwire.ReadPacket(n, 100)
		if err == nil && got != want {
			t.Errorf("type %d is answered by %d", typ, got)
		}
		return err
	}
	id := []field{{1, "shop"}, {2, "7"}}
	if err := errors.Join(exchange(canalwire.Ack, canalwire.Authentication, login...),
		exchange(canalwire.Ack, canalwire.Subscription, id...),
		// Longer than the timeout: nothing is wrong with a client that waits.
		exchange(canalwire.Messages, canalwire.Get, append(id, field{3, 1}, field{4, 4 * ms}, field{5, 2})...)); err != nil {
		t.Logf("with a timeout of %v: %v", timeout, err)
		return false
	}
	closed(t, n)
	return true
}

// TestTLS: encrypted, with a client that verifies; one that speaks plainly is not let in.
func TestTLS(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // for its certificate
	defer web.Close()
	r := newRig(t, Options{TLS: &tls.Config{Certificates: web.TLS.Certificates}})
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	connect := func(config *tls.Config) (*client.TCP, error) {
		c, err := client.NewTCP(client.TCPOptions{Address: r.address, Destination: "shop", TLS: config, Timeout: time.Minute})
		r.must(err)
		t.Cleanup(func() { _ = c.Disconnect(t.Context()) })
		return c, c.Connect(t.Context())
	}
	c, err := connect(&tls.Config{RootCAs: roots})
	r.must(err)
	r.must(c.Subscribe(t.Context(), ""))
	r.h.write(100)
	equal(t, "rows", r.collect(c, 100), sequence(1, 100, 1))
	if _, err := connect(&tls.Config{}); err == nil {
		t.Error("a certificate that nobody knows was accepted")
	}
	n, err := net.Dial("tcp", r.address)
	r.must(err)
	defer n.Close()
	r.must(n.SetDeadline(time.Now().Add(time.Minute)))
	_, err = n.Write(canalwire.AppendPacket(nil, canalwire.Authentication, false, nil))
	r.must(err)
	if b, err := io.ReadAll(n); errors.Is(err, os.ErrDeadlineExceeded) || bytes.Contains(b, []byte("utf8")) {
		t.Errorf("in plain text: %q, %v", b, err)
	}
}
