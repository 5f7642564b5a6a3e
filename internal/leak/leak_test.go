package leak

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

func TestFind(t *testing.T) {
	others := goleak.IgnoreCurrent()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		<-end
		close(ended)
	}()
	if err := find(0, others); err == nil || !strings.Contains(err.Error(), "TestFind") {
		t.Errorf("a goroutine that stays: %v", err)
	}
	time.AfterFunc(2*time.Second, func() { close(end) }) // more than goleak waits
	if err := find(patience, others); err != nil {
		t.Errorf("one that ends late: %v", err)
	}
	<-ended
}
