package zookeeper

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readOnly is a connection of which only reading works.
type readOnly struct {
	net.Conn
	r        io.Reader
	deadline time.Time
}

func (c *readOnly) Read(p []byte) (int, error)        { return c.r.Read(p) }
func (c *readOnly) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }

// I8: the lease is counted from the timeout that the server granted, however its packet is cut.
func TestGrantedTimeout(t *testing.T) {
	packet := func(ms uint32, session uint64) []byte {
		b := binary.BigEndian.AppendUint32(nil, 36)
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, ms)
		return append(binary.BigEndian.AppendUint64(b, session), make([]byte, 20)...)
	}
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		for _, c := range []struct {
			session uint64
			want    time.Duration
		}{{7, 4 * time.Second}, {0, 9 * time.Second}} { // session 0: the old one has expired, nothing is granted
			var granted atomic.Int64
			granted.Store(int64(9 * time.Second))
			in := append(packet(4000, c.session), packet(1, 1)...) // what follows is no hello
			k := &conn{Conn: &readOnly{r: cut(bytes.NewReader(in))}, d: &dialer{silence: time.Second, granted: &granted}}
			if out, err := io.ReadAll(k); err != nil || !bytes.Equal(out, in) {
				t.Fatalf("%s: %x, %v", name, out, err)
			}
			if got := time.Duration(granted.Load()); got != c.want {
				t.Errorf("%s, session %d: granted %v, want %v", name, c.session, got, c.want)
			}
		}
	}
}

func TestSilentServerIsGivenUp(t *testing.T) {
	var granted atomic.Int64
	in := &readOnly{}
	k := &conn{Conn: in, d: &dialer{silence: 2 * time.Second, granted: &granted}}
	for _, c := range []struct{ granted, most time.Duration }{{0, 2 * time.Second}, {3 * time.Second, 1250 * time.Millisecond}} {
		granted.Store(int64(c.granted))
		if err := k.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(in.deadline); left > c.most {
			t.Errorf("granted %v: waits %v for the server, want at most %v", c.granted, left, c.most)
		}
	}
	if err := k.SetReadDeadline(time.Time{}); err != nil || !in.deadline.IsZero() {
		t.Errorf("no deadline became %v, %v", in.deadline, err)
	}
}

func TestHosts(t *testing.T) {
	h := &hosts{}
	if err := h.Init([]string{"a:1", "b:1"}); err != nil || h.Len() != 2 {
		t.Fatal(err)
	}
	var got []string
	next := func() {
		s, again := h.Next()
		if again {
			s += " again"
		}
		got = append(got, s)
	}
	next()
	next()
	next()
	h.Connected()
	next()
	next()
	next()
	if s := strings.Join(got, ", "); s != "a:1, b:1, a:1 again, b:1, a:1, b:1 again" {
		t.Error(s)
	}
}

func TestPack(t *testing.T) {
	noise := make([]byte, 2<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for name, in := range map[string][]byte{"small": []byte(`{"a":1}`), "large": bytes.Repeat([]byte(`{"a":1}`), 1<<18), "empty": {}} {
		p, err := pack(in)
		if err != nil || len(p) > maxNode {
			t.Fatalf("%s: %d bytes, %v", name, len(p), err)
		}
		if out, err := unpack(p); err != nil || !bytes.Equal(out, in) {
			t.Errorf("%s: %d bytes came back, %v", name, len(out), err)
		}
	}
	if _, err := pack(noise); err == nil || !strings.Contains(err.Error(), "node") {
		t.Errorf("a record that fits no node: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	p, err := pack(bytes.Repeat([]byte("binlogmq"), 1<<14))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := unpack(data); err == nil && len(out) > 64<<20 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Servers: []string{"127.0.0.1:1"}, SessionTimeout: time.Millisecond}, {Servers: []string{"127.0.0.1:1"}, Root: "x"},
		{Servers: []string{"127.0.0.1:1"}, Root: "/"}, {Servers: []string{"127.0.0.1:1"}, Root: "/a/"}, {Servers: []string{"127.0.0.1:1"}, Root: "/a/../b"},
	} {
		if s, err := Open(o); err == nil || !strings.Contains(err.Error(), "meta.zookeeper.") {
			t.Errorf("%+v: %v", o, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
}
