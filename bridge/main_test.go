package bridge

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

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
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
