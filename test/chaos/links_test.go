package chaos

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echo serves what comes in back.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// answers says whether n bytes come back over the connection within a time.
func answers(c net.Conn, n int, within time.Duration) bool {
	_ = c.SetDeadline(time.Now().Add(within))
	sent := bytes.Repeat([]byte("x"), n)
	if _, err := c.Write(sent); err != nil {
		return false
	}
	_, err := io.ReadFull(c, sent)
	return err == nil
}

// TestLinksFailAsAsked proves that each fault of a link shows, on connections that were there and on new ones, and that
// it is over when the link is repaired.
func TestLinksFailAsAsked(t *testing.T) {
	l := newLinks(t)
	addr := l.add("an echo", "127.0.0.1:0", echo(t))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return nil
		}
		return c
	}
	for _, fault := range []string{"cut link", "slow link", "half-open link", "deaf link", "torn link"} {
		old := dial()
		if old == nil || !answers(old, 100, 30*time.Second) {
			t.Fatalf("before %s: the link does not work", fault)
		}
		size := 800
		l.harm(fault, 0, size)
		fresh := dial()
		for name, c := range map[string]net.Conn{"the old": old, "a new": fresh} {
			if c == nil {
				continue // cut
			}
			// A slow link answers late, a torn one not all.
			if begin := time.Now(); answers(c, 1000, 1500*time.Millisecond) && !(fault == "slow link" && time.Since(begin) > time.Duration(size/2)*time.Millisecond) {
				t.Errorf("%s: %s connection works", fault, name)
			}
			c.Close()
		}
		l.repair()
		c := dial()
		if c == nil || !answers(c, 1000, 30*time.Second) {
			t.Fatalf("after %s: the link does not work", fault)
		}
		c.Close()
	}
	// As where Toxiproxy does not come back.
	l.replace(0)
	c := dial()
	if c == nil || !answers(c, 1000, 30*time.Second) {
		t.Fatal("a replaced link does not work")
	}
	c.Close()
}
