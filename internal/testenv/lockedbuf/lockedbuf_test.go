package lockedbuf

import (
	"strings"
	"sync"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestBuffer(t *testing.T) {
	var b Buffer
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if n, err := b.Write([]byte("line\n")); n != 5 || err != nil {
					t.Error(n, err)
				}
				_ = b.String()
			}
		})
	}
	wg.Wait()
	if got := b.String(); got != strings.Repeat("line\n", 400) {
		t.Errorf("%d bytes", len(got))
	}
}
