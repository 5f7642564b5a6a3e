package canalwire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestScramble(t *testing.T) {
	seed := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	if got, want := Scramble("canal", seed), "7de44690d8e53782cb61804a2455c284a3bbfb06"; got != want {
		t.Errorf("scramble %s, want %s", got, want)
	}
	if got, want := HashPassword("canal"), "e3619321c1a937c46a0d8bd1dac39f93b27d4458"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	var hash [20]byte
	if _, err := hex.Decode(hash[:], []byte(HashPassword("canal"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token string
		want  bool
	}{
		{"7de44690d8e53782cb61804a2455c284a3bbfb06", true},
		{"7DE44690D8E53782CB61804A2455C284A3BBFB06", true},
		{"7de44690d8e53782cb61804a2455c284a3bbfb07", false},
		{"7de44690d8e53782cb61804a2455c284a3bbfb0600", false},
		{"7de44690d8e53782cb61804a2455c284a3bbfb", false},
		{"canal", false}, {"", false}, {"zz", false},
	} {
		if got := CheckScramble(hash, seed, []byte(c.token)); got != c.want {
			t.Errorf("token %q: %v", c.token, got)
		}
	}
	if !CheckClear(hash, []byte("canal")) || CheckClear(hash, []byte("Canal")) || CheckClear(hash, nil) {
		t.Error("clear password")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestPackets(t *testing.T) {
	for _, body := range [][]byte{nil, {}, []byte("x"), bytes.Repeat([]byte("y"), 70000)} {
		for _, version := range []bool{false, true} {
			p := AppendPacket([]byte("pre"), Get, version, body)[3:]
			typ, got, err := ReadPacket(bytes.NewReader(p), len(p))
			if err != nil || typ != Get || !bytes.Equal(got, body) {
				t.Errorf("%d bytes come back as type %d, %d bytes, %v", len(body), typ, len(got), err)
			}
			for _, last := range []int{1, len(body) / 3, len(body), 1 << 20} {
				got, room := 0, max(2*last, firstRead)
				r := readerFunc(func(b []byte) (int, error) {
					if most := max(room, growth*got); len(b) > most {
						t.Errorf("after a packet of %d bytes, room for %d when %d of %d had come", last, len(b), got, len(p))
					}
					n := copy(b, p[got:min(len(p), got+1000)])
					got += n
					return n, nil
				})
				if typ, got, err := ReadPacketAfter(r, len(p), last); err != nil || typ != Get || !bytes.Equal(got, body) {
					t.Errorf("%d bytes after a packet of %d come back as type %d, %d bytes, %v", len(body), last, typ, len(got), err)
				}
			}
			for cut := 0; cut < min(len(p), 40); cut++ {
				if _, _, err := ReadPacket(bytes.NewReader(p[:cut]), len(p)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%d of %d bytes: %v", cut, len(p), err)
				}
			}
			if _, _, err := ReadPacket(bytes.NewReader(p), len(p)-5); !errors.Is(err, ErrProtocol) {
				t.Errorf("a packet over the limit: %v", err)
			}
		}
	}
	// Compression is not offered.
	if _, _, err := parsePacket([]byte{4 << 3, 3}); !errors.Is(err, ErrProtocol) {
		t.Errorf("compressed packet: %v", err)
	}
}

func FuzzReadPacket(f *testing.F) {
	f.Add(AppendPacket(nil, Get, true, []byte("x")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, 0x2a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, body, err := ReadPacket(bytes.NewReader(b), 1<<20)
		if err == nil && len(body) > len(b) {
			t.Errorf("%d bytes hold %d", len(b), len(body))
		}
		if err == nil {
			_ = Fields(body, func(Field) error { return nil })
		}
	})
}
