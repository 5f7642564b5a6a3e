//go:build race

package testenv

import (
	"os"
	"strings"
	"syscall"
)

// The race detector reads its options before main, so the tests start again with the known races of client libraries
// suppressed.
func init() {
	options := os.Getenv("GORACE")
	if strings.Contains(options, "suppressions=") {
		return
	}
	if err := os.Setenv("GORACE", RaceOptions()); err != nil {
		panic(err)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	panic(syscall.Exec(self, os.Args, os.Environ()))
}
