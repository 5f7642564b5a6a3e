// Package leak runs a package's tests and fails if goroutines are left behind. It must never be imported by anything but tests.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after a test. One that closes a connection waits for the other side, which a
// busy machine may hold up for much longer than goleak waits by itself.
const patience = time.Minute

// Main is what a package's TestMain calls. It does not return.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left behind by the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find returns an error if goroutines that options do not excuse are still there after a minute.
func Find(options ...goleak.Option) error { return find(patience, options...) }

func find(atMost time.Duration, options ...goleak.Option) error {
	for end := time.Now().Add(atMost); ; {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
