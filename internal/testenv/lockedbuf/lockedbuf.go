// Package lockedbuf has a buffer for what several goroutines or a child process write while a test looks at it.
package lockedbuf

import (
	"bytes"
	"sync"
)

// Buffer collects what is written to it. The zero value is empty and ready; it is safe for concurrent use and must not be copied.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer; it never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written up to now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
