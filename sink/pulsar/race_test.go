//go:build race && integration

package pulsar

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The race detector reads its options before main, so the tests start again with
// the client's known race suppressed.
func init() {
	options := os.Getenv("GORACE")
	if strings.Contains(options, "suppressions=") {
		return
	}
	file, err := filepath.Abs("testdata/race.suppressions")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("GORACE", strings.TrimSpace(options+" suppressions="+file)); err != nil {
		panic(err)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	panic(syscall.Exec(self, os.Args, os.Environ()))
}
