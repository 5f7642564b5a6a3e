// Package leak runs a package's tests and fails if goroutines are left behind. It must never be imported by anything but tests.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the last test. One that closes a connection waits for the other side, which a
// busy machine may hold up for much longer than goleak waits by itself.
const patience = time.Minute

// Main is what a package's TestMain calls. It does not return.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(patience, options...); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left behind by the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func find(atMost time.Duration, options ...goleak.Option) error {
	for end := time.Now().Add(atMost); ; {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
