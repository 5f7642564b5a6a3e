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
			p.Stop()
		}
	})
	return l
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
		name := "harm"
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, name, kind, stream, attributes))); err != nil {
			l.t.Fatalf("link to %s: %v", p.Name, err)
		}
		l.mend = func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := p.Toxics.RemoveToxic(ctx, name); err != nil {
				l.t.Errorf("link to %s: %v", p.Name, err)
			}
		}
	}
	switch what {
	case "cut link": // nobody is there until it is mended
		p.Stop()
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
// They lie below those that the system gives out.
func ports(t testing.TB, n, above int) (base int) {
	t.Helper()
	for base = above + 1; base < 3200; base++ {
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
