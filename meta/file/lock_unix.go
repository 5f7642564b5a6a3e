//go:build linux || darwin || freebsd

package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile locks the file and writes our process id into it. The lock ends
// with the process, however that ends; the file stays.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("cursor directory: %w; make it writable, or choose another with meta.file.directory", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			text, _ := io.ReadAll(io.LimitReader(f, 32))
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			return nil, &LockedError{Directory: filepath.Dir(path), PID: pid}
		}
		return nil, fmt.Errorf("cursor directory: lock %s: %w", path, err)
	}
	// The pid is for people only; a full disk must not keep us from starting.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// FreeBytes returns how many bytes an ordinary user may still write to the
// file system that holds the directory.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free room of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
