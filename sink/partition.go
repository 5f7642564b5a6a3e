package sink

import "encoding/binary"

// Partition returns the partition, 0 <= p < n, that key belongs to in a topic of
// n partitions. It is the choice of the Java client's default partitioner for
// messages with a key (murmur2 as in org.apache.kafka.common.utils.Utils, sign
// bit cleared, modulo n), so that other producers and stream processors agree.
// A nil key is hashed like an empty one: the choice is a pure function of key
// and n (I5). n < 1 yields 0.
func Partition(key []byte, n int32) int32 {
	if n < 1 {
		return 0
	}
	return int32((murmur2(key) & 0x7fffffff) % uint32(n))
}

func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data) * m
		k = (k ^ k>>r) * m
		h = h*m ^ k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
