package bridge

import (
	"flag"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/sink"
)

// updating says that -update is given, the flag that package codectest defines.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func TestMain(m *testing.M) {
	sink.OnSecondCompletion = func(m *sink.Message) { panic("second completion of a message") }
	bug = func(err error) { panic(err) }
	flag.Parse()
	leak.Main(m)
}
