package sink

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The hashes are those of the Java client's own test (UtilsTest.testMurmur2).
func TestMurmur2JavaVectors(t *testing.T) {
	for _, c := range []struct {
		key  string
		hash int32
	}{
		{"21", -973932308},
		{"foobar", -790332482},
		{"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
		{"abc", 479470107},
	} {
		if got := int32(murmur2([]byte(c.key))); got != c.hash {
			t.Errorf("murmur2(%q) = %d, want %d", c.key, got, c.hash)
		}
	}
}

func TestPartition(t *testing.T) {
	for _, c := range []struct {
		key  string
		n    int32
		want int32
	}{
		{"21", 6, int32((uint32(0xffffffff&(-973932308+1<<32)) & 0x7fffffff) % 6)},
		{"abc", 1, 0},
		{"abc", 0, 0},
		{"abc", -1, 0},
		{"abc", 7, 479470107 % 7},
	} {
		if got := Partition([]byte(c.key), c.n); got != c.want {
			t.Errorf("Partition(%q, %d) = %d, want %d", c.key, c.n, got, c.want)
		}
	}
	if Partition(nil, 12) != Partition([]byte{}, 12) {
		t.Error("nil and empty keys differ")
	}
}

// I5: the choice equals that of another Java-compatible client, whatever the key.
func TestPartitionEqualsFranzGo(t *testing.T) {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	rnd := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, 64)
	for range 20000 {
		k := key[:rnd.IntN(len(key))]
		for i := range k {
			k[i] = byte(rnd.Uint32())
		}
		n := 1 + rnd.IntN(100)
		if len(k) == 0 {
			k = []byte{}
		}
		if got, want := Partition(k, int32(n)), p.Partition(&kgo.Record{Key: k}, n); int(got) != want {
			t.Fatalf("Partition(%x, %d) = %d, want %d", k, n, got, want)
		}
	}
}

func BenchmarkPartition(b *testing.B) {
	key := []byte("0123456789abcdef")
	for b.Loop() {
		Partition(key, 6)
	}
}
