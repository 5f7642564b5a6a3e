package zkdial

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

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
			d := &Dialer{Timeout: 9 * time.Second}
			d.granted.Store(int64(9 * time.Second))
			in := append(packet(4000, c.session), packet(1, 1)...) // what follows is no hello
			k := &conn{Conn: &readOnly{r: cut(bytes.NewReader(in))}, d: d}
			if out, err := io.ReadAll(k); err != nil || !bytes.Equal(out, in) {
				t.Fatalf("%s: %x, %v", name, out, err)
			}
			if got := d.Granted(); got != c.want {
				t.Errorf("%s, session %d: granted %v, want %v", name, c.session, got, c.want)
			}
			if got := d.Hold(); got != c.want*2/3 {
				t.Errorf("%s, session %d: held for %v", name, c.session, got)
			}
		}
	}
}

func TestSilentServerIsGivenUp(t *testing.T) {
	in := &readOnly{}
	d := &Dialer{Timeout: 6 * time.Second}
	k := &conn{Conn: in, d: d}
	for _, c := range []struct{ granted, most time.Duration }{{0, 2500 * time.Millisecond}, {3 * time.Second, 1250 * time.Millisecond}, {time.Minute, 2500 * time.Millisecond}} {
		d.granted.Store(int64(c.granted))
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

// A server may grant more than was asked for, on which nobody counts.
func TestHold(t *testing.T) {
	d := &Dialer{Timeout: 9 * time.Second}
	for _, c := range []struct{ granted, want time.Duration }{{0, 6 * time.Second}, {3 * time.Second, 2 * time.Second}, {time.Minute, 6 * time.Second}} {
		d.granted.Store(int64(c.granted))
		if got := d.Hold(); got != c.want {
			t.Errorf("granted %v: held for %v, want %v", c.granted, got, c.want)
		}
	}
}
