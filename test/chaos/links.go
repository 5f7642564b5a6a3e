package chaos

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// links are the proxies between the program and its servers.
type links struct {
	t    testing.TB
	all  []*toxiproxy.Proxy
	mend func()
}

func newLinks(t testing.TB) *links {
	l := &links{t: t, mend: func() {}}
	t.Cleanup(func() {
		l.repair()
		for _, p := range l.all {
			try(p.Stop)
		}
	})
	return l
}

// wedge is how long Toxiproxy may take to change a link. It takes for ever where it waits, with its lock held, for
// a connection whose other end does not read, or that a fault before has ended in the middle.
const wedge = 5 * time.Second

// try says whether f has come to its end.
func try(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(wedge):
		return false
	}
}

// replace puts a new proxy in the place of a wedged one, whose connections stay open and are deaf.
func (l *links) replace(which int) {
	l.t.Helper()
	old := l.all[which]
	go old.Stop() // closes the listener first
	var err error
	for range 100 {
		p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), old.Name, old.Listen, old.Upstream)
		if err = p.Start(); err == nil {
			l.all[which] = p
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.t.Fatalf("the link to %s: %v", old.Name, err)
}

// add makes a link from an address, which may have port 0, and returns where it listens.
func (l *links) add(name, from, to string) string {
	l.t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, name, from, to)
	if err := p.Start(); err != nil {
		l.t.Fatalf("the link to %s: %v", name, err)
	}
	l.all = append(l.all, p)
	return p.Listen
}

// harm does something to a link until repair is called.
func (l *links) harm(what string, which, size int) {
	l.t.Helper()
	l.repair()
	p := l.all[which]
	toxic := func(kind, stream, attributes string) {
		const name = "harm"
		var err error
		if !try(func() {
			_, err = p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, name, kind, stream, attributes)))
		}) {
			l.mend = func() { l.replace(which) }
			return
		}
		if err != nil {
			l.t.Fatalf("link to %s: %v", p.Name, err)
		}
		l.mend = func() {
			if !try(func() { err = p.Toxics.RemoveToxic(context.Background(), name) }) {
				l.replace(which)
			} else if err != nil {
				l.t.Errorf("link to %s: %v", p.Name, err)
			}
		}
	}
	switch what {
	case "cut link": // nobody is there until it is mended
		if !try(p.Stop) {
			l.mend = func() { l.replace(which) }
			return
		}
		l.mend = func() {
			if err := p.Start(); err != nil {
				l.t.Fatalf("link to %s: %v", p.Name, err)
			}
		}
	case "slow link":
		toxic("latency", "downstream", fmt.Sprintf(`"latency":%d,"jitter":%d`, size, size/2))
	case "half-open link": // the answers are lost, and nobody is told
		toxic("timeout", "downstream", `"timeout":0`)
	case "deaf link": // the requests are
		toxic("timeout", "upstream", `"timeout":0`)
	case "torn link": // each connection ends after some bytes, in the middle of whatever it carries
		toxic("limit_data", "downstream", fmt.Sprintf(`"bytes":%d`, size))
	default:
		l.t.Fatalf("unknown fault %q", what)
	}
}

func (l *links) repair() {
	l.mend()
	l.mend = func() {}
}

// ports finds n loopback ports, base*10+1 and up, that are free, with a base above the given one.
// They lie below those that the scripts of testenv give out, and the system.
func ports(t testing.TB, n, above int) (base int) {
	t.Helper()
	for base = above + 1; base < 2000; base++ {
		free := true
		for i := 1; i <= n && free; i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base*10+i))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}
