package chaos

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/internal/leak"
)

// Toxiproxy leaves goroutines behind where a fault ended a connection.
func TestMain(m *testing.M) {
	const proxy = "github.com/Shopify/toxiproxy/v2"
	var known []goleak.Option
	for _, f := range []string{".(*ToxicLink).read", ".(*ToxicLink).write", ".(*ToxicLink).AddToxic", ".(*ToxicLink).RemoveToxic", ".(*ToxicCollection).AddToxicJson",
		".(*ToxicCollection).RemoveToxic", ".(*ToxicCollection).RemoveLink", ".(*Proxy).Stop", ".(*Proxy).server", ".(*Proxy).freeBlocker", "/toxics.(*ToxicStub).Run"} {
		known = append(known, goleak.IgnoreAnyFunction(proxy+f))
	}
	leak.Main(m, known...)
}
