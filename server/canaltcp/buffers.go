package canaltcp

import "sync"

// buffers keeps what packets were written in for the next ones, most bytes of it: a busy client's are large, and
// costly to make anew for each.
type buffers struct {
	most int

	mu    sync.Mutex
	free  [][]byte
	bytes int
}

// get returns an empty buffer.
func (b *buffers) get() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.free) - 1
	if n < 0 {
		return nil
	}
	buf := b.free[n]
	b.free[n] = nil
	b.free = b.free[:n]
	b.bytes -= cap(buf)
	return buf[:0]
}

// put gives a buffer back, which is used no more.
func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := cap(buf); n > 0 && b.bytes+n <= b.most {
		b.free = append(b.free, buf)
		b.bytes += n
	}
}
