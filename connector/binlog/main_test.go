package binlog

import (
	"flag"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { leak.Main(m) }
