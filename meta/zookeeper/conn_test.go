package zookeeper

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

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
