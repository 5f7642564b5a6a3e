package binlog

import (
	"bytes"
	"compress/zlib"
	"strings"
	"testing"
)

func zlibBytes(plain []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return b.Bytes()
}

func TestInflate(t *testing.T) {
	plain := []byte(strings.Repeat("abc", 1000))
	good := deflated(plain)
	for range 3 { // readers are used again
		if got, err := inflate(good); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	for name, b := range map[string][]byte{
		"empty":             {},
		"no length":         {0x80},
		"length of 5 bytes": {0x85, 0, 0, 0, 0, 1},
		"algorithm":         append([]byte{0x90 | 1, 3}, zlibBytes([]byte("abc"))...),
		"too much claimed":  append([]byte{0x84, 0x3f, 0xff, 0xff, 0xff}, zlibBytes(plain)...),
		"above the limit":   append([]byte{0x84, 0xff, 0xff, 0xff, 0xff}, zlibBytes(plain)...),
		"cut":               good[:len(good)-6],
		"checksum":          append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"longer than said":  append([]byte{0x81, 2}, zlibBytes([]byte("abc"))...),
		"shorter than said": append([]byte{0x81, 4}, zlibBytes([]byte("abc"))...),
	} {
		if got, err := inflate(b); err == nil {
			t.Errorf("%s: got %d bytes", name, len(got))
		}
	}
}
