package pulsar

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/internal/leak"
)

// The client library leaves a goroutine behind now and then when a producer is closed while its connection is lost.
func TestMain(m *testing.M) {
	leak.Main(m, goleak.IgnoreTopFunction("github.com/apache/pulsar-client-go/pulsar.(*partitionProducer).runEventsLoop.func1"))
}
