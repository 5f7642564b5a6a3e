//go:build !linux && !darwin && !freebsd

package file

import (
	"errors"
	"os"
)

func lockFile(string) (*os.File, error) {
	return nil, errors.New("cursor directories cannot be locked on this system")
}

// FreeBytes is not known on this system.
func FreeBytes(string) (int64, error) {
	return 0, errors.New("free room cannot be told on this system")
}
