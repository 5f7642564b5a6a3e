package binlog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(r io.Reader) (got []Raw, err error) {
	s := NewStream(r)
	for {
		e, err := s.Next()
		if err != nil {
			return got, err
		}
		e.Data = bytes.Clone(e.Data)
		got = append(got, e)
	}
}

func TestStream(t *testing.T) {
	small := []int{8, 1000, bufferSize - HeaderSize - 10, bufferSize, 1 << 20}
	var b *builder
	for name, sizes := range map[string][]int{
		"halves": small, "whole": small,
		"packets": {maxPacket - HeaderSize - 5, maxPacket - HeaderSize - 4, maxPacket - HeaderSize - 6, 2*maxPacket + 77},
	} {
		b = newBuilder()
		b.format("binlog.000001")
		for i, n := range sizes {
			b.add(TypeRowsQuery, 0, bytes.Repeat([]byte{byte(i + 1)}, n))
		}
		var r io.Reader = bytes.NewReader(b.out)
		if name == "halves" {
			r = iotest.HalfReader(r)
		}
		got, err := readAll(r)
		if err != io.EOF || len(got) != len(sizes)+2 {
			t.Fatalf("%s: %d events, %v", name, len(got), err)
		}
		for i, n := range sizes {
			e := got[i+2]
			if e.Type != TypeRowsQuery || len(e.Body()) != n || bytes.Count(e.Body(), []byte{byte(i + 1)}) != n {
				t.Errorf("%s: event of %d bytes is damaged", name, n)
			}
			if e.Owned != (n+HeaderSize+4+1+4 > bufferSize) {
				t.Errorf("%s: event of %d bytes: owned is %v", name, n, e.Owned)
			}
		}
	}
	b = newBuilder()
	b.format("binlog.000001")
	b.add(TypeRowsQuery, 0, make([]byte, maxPacket+1))
	for _, cut := range []int{1, 3, 30, 300, len(b.out) - 1, len(b.out) - 50} {
		if _, err := readAll(bytes.NewReader(b.out[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func TestStreamChecksum(t *testing.T) {
	b := newBuilder()
	b.format("binlog.000001")
	n := len(b.out)
	b.add(TypeXID, 0, xidBody(1))
	for i := n + 5 + 13; i < len(b.out); i++ { // from the LogPos on: sizes and types have their own checks
		d := bytes.Clone(b.out)
		d[i] ^= 0x10
		if _, err := readAll(bytes.NewReader(d)); !errors.Is(err, ErrChecksum) || !errors.Is(err, ErrMalformed) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
	}
	// Without checksums, as the format description says.
	b = newBuilder()
	b.sum = false
	b.add(TypeRotate, FlagArtificial, rotateBody("binlog.000001", 4))
	b.sum = true
	b.add(TypeFormatDescription, 0, formatBody("10.11.1-MariaDB", checksumNone))
	b.sum = false
	b.add(TypeXID, 0, xidBody(1))
	got, err := readAll(bytes.NewReader(b.out))
	if err != io.EOF || len(got) != 3 || len(got[2].Body()) != 8 || len(got[1].Body()) != len(formatBody("", 0)) {
		t.Fatalf("%d events, %v", len(got), err)
	}
	// A server from before checksums.
	b = newBuilder()
	b.sum = false
	b.add(TypeRotate, FlagArtificial, rotateBody("binlog.000001", 4))
	f := formatBody("5.5.40", 0)
	b.add(TypeFormatDescription, 0, f[:len(f)-1])
	b.add(TypeXID, 0, xidBody(1))
	if got, err := readAll(bytes.NewReader(b.out)); err != io.EOF || len(got) != 3 {
		t.Fatalf("%d events, %v", len(got), err)
	}
}

func TestStreamErrors(t *testing.T) {
	packet := func(seq byte, p string) string {
		return string([]byte{byte(len(p)), byte(len(p) >> 8), byte(len(p) >> 16), seq}) + p
	}
	b := newBuilder()
	good := string(append([]byte{0}, b.event(TypeRotate, FlagArtificial, rotateBody("binlog.000001", 4))...))
	for name, c := range map[string]struct{ in, want string }{
		"server error":       {packet(1, "\xff\xd4\x04#HY000Could not find first log file name"), "error 1236: Could not find first log file name"},
		"without a state":    {packet(1, "\xff\xd4\x04gone"), "error 1236: gone"},
		"large server error": {packet(1, good) + packet(2, "\xff\xd4\x04#HY000x"), "error 1236: x"},
		"end":                {packet(1, "\xfe\x00\x00\x02\x00"), "ended the binlog stream"},
		"empty":              {packet(1, ""), "empty packet"},
		"kind":               {packet(1, "\x07abc"), "kind 0x7"},
		"sequence":           {packet(1, good) + packet(3, good), "packet number 3 where 2 was due"},
		"header cut":         {packet(1, "\x00abc"), "event header: ends after 3 bytes"},
		"event before format": {packet(1, string(append([]byte{0}, func() []byte { b := newBuilder(); b.sum = false; return b.event(TypeXID, 0, xidBody(1)) }()...))),
			"before the format description"},
		"size": {packet(1, good[:9+1]+"\xff"+good[11:]), "event says 255 bytes"},
	} {
		_, err := readAll(strings.NewReader(c.in))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A length that nobody sends bytes for costs no memory.
func TestStreamUncheckedLength(t *testing.T) {
	b := newBuilder()
	e := b.event(TypeRowsQuery, 0, make([]byte, 100))
	e[9], e[10], e[11], e[12] = 0xff, 0xff, 0xff, 0xff
	in := append([]byte{0xff, 0xff, 0xff, 1, 0}, e...)
	if _, err := readAll(bytes.NewReader(in)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

// I9: an event above the limit is refused before its memory is taken.
func TestStreamLimit(t *testing.T) {
	b := newBuilder()
	b.format("binlog.000001")
	b.add(TypeRowsQuery, 0, make([]byte, 1<<20))
	s := NewStream(bytes.NewReader(b.out))
	s.Limit(1 << 20)
	for range 2 {
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	var large *TooLargeError
	if _, err := s.Next(); !errors.As(err, &large) || large.Size != 1<<20+HeaderSize+4 || errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
}

func TestStreamReady(t *testing.T) {
	b := newBuilder()
	b.format("binlog.000001")
	whole := len(b.out)
	b.add(TypeXID, 0, xidBody(1))
	s := NewStream(bytes.NewReader(b.out[:whole+10]))
	if s.Ready() {
		t.Error("ready before anything was read")
	}
	for range 2 {
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Ready() {
		t.Error("ready with a part of a packet")
	}
}

func FuzzStream(f *testing.F) {
	b := newBuilder()
	b.format("binlog.000001")
	b.add(TypeXID, 0, xidBody(1))
	f.Add(b.out)
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := readAll(bytes.NewReader(in)); err == nil {
			t.Fatal("no error at the end")
		}
	})
}
