package event

import (
	"math"
	"strconv"
	"testing"
)

// TestDecimalDigits: numbers of each length are written as strconv writes them, whatever room there is.
func TestDecimalDigits(t *testing.T) {
	check := func(u uint64) {
		for _, dst := range [][]byte{nil, make([]byte, 0, 40), []byte("x")} {
			if got, want := string(appendUint(dst, u)), string(strconv.AppendUint(dst, u, 10)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got, want := string(appendInt(dst, int64(u))), string(strconv.AppendInt(dst, int64(u), 10)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	check(math.MaxUint64)
	check(math.MaxInt64)
	check(1 << 63) // as a signed number the least one
	for p := uint64(1); ; p *= 10 {
		check(p - 1)
		check(p)
		check(p + 1)
		check(-p)
		if p == 1e19 {
			break
		}
	}
	for n := range 64 {
		check(1 << n)
		check(1<<n - 1)
	}
}

func BenchmarkAppendUint(b *testing.B) {
	var dst []byte
	for b.Loop() {
		dst = dst[:0]
		for u := uint64(1); u < 1e12; u *= 13 {
			dst = appendUint(dst, u)
		}
	}
}

func BenchmarkAppendUUID(b *testing.B) {
	var dst []byte
	for b.Loop() {
		dst = appendUUID(dst[:0], [16]byte{1, 2, 3, 254, 255})
	}
}
