package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// output is where lines go. It belongs to the writing goroutine, but for interrupt.
type output struct {
	name    string
	f       *os.File
	regular bool  // a file that we opened, alone: it can be cut
	sync    bool  // what is written must be synced
	size    int64 // of whole lines, if regular
	synced  int64 // of what is known to be on disk, if regular
}

// openOutput opens the path, "-" being standard output.
func openOutput(path string, values, sync bool) (*output, error) {
	if path == "-" {
		// On the descriptor 1 itself a broken pipe kills the process (os/signal, SIGPIPE).
		fd, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("file: standard output: %w", err)
		}
		o := &output{name: "standard output", f: os.NewFile(uintptr(fd), "stdout")}
		if info, err := o.f.Stat(); err == nil {
			o.sync = sync && info.Mode().IsRegular()
		}
		return o, nil
	}
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND // it is read to find its last line
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		flags = os.O_WRONLY | syscall.O_NONBLOCK // a pipe without reader is an error, not a wait
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("file: %s is a pipe that nobody reads; start the reader first: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	o := &output{name: path, f: f}
	if err := o.prepare(path, values, sync); err != nil {
		f.Close()
		return nil, err
	}
	return o, nil
}

func (o *output) prepare(path string, values, sync bool) error {
	info, err := o.f.Stat()
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	if info.IsDir() {
		return fmt.Errorf("file: %s is a folder", path)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	o.regular, o.sync = true, sync
	if err := unix.Flock(int(o.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("file: %s is %w; give each sink a file of its own", path, ErrInUse)
		}
		return fmt.Errorf("file: locking %s: %w", path, err)
	}
	if o.size, err = wholeLines(o.f, info.Size(), values); err != nil {
		return fmt.Errorf("file: %s: %w", path, err)
	}
	if o.size < info.Size() {
		if err := o.f.Truncate(o.size); err != nil {
			return fmt.Errorf("file: cutting off half a line: %w", err)
		}
	}
	if o.sync {
		// The file's own entry must outlive a crash too.
		if err := o.f.Sync(); err != nil {
			return fmt.Errorf("file: %w", err)
		}
		if err := syncFolder(path); err != nil {
			return err
		}
	}
	o.synced = o.size
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(folder(path))
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems cannot
		return fmt.Errorf("file: syncing the folder of %s: %w", path, err)
	}
	return nil
}

// wholeLines returns where the last line ends. What follows must look like
// the beginning of a line of ours.
func wholeLines(r io.ReaderAt, size int64, values bool) (int64, error) {
	const chunk = 64 << 10
	buf := make([]byte, chunk)
	end := int64(0)
	for at := size; at > 0 && end == 0; {
		n := min(at, chunk)
		at -= n
		if _, err := r.ReadAt(buf[:n], at); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			end = at + int64(i) + 1
		}
	}
	if end == size || values {
		return end, nil
	}
	n, err := r.ReadAt(buf[:min(size-end, int64(len(lineStart)))], end)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.HasPrefix([]byte(lineStart), buf[:n]) {
		return 0, fmt.Errorf("it ends in the middle of a line that is not ours (byte %d); move it away or end that line", end)
	}
	return end, nil
}

// write writes whole lines. After an error rest is what must be written again:
// everything, or for what cannot be cut, the part that is not out yet.
func (o *output) write(lines []byte) (rest []byte, err error) {
	n, err := o.f.Write(lines)
	if err == nil {
		o.size += int64(n)
		return nil, nil
	}
	if !o.regular {
		return lines[n:], err
	}
	if n > 0 {
		if cut := o.f.Truncate(o.size); cut != nil {
			return lines, &fatal{errors.Join(err, fmt.Errorf("cutting off half a line: %w", cut))}
		}
	}
	return lines, err
}

// flush makes what was written durable.
func (o *output) flush() error {
	if !o.sync {
		o.synced = o.size
		return nil
	}
	if err := o.f.Sync(); err != nil {
		// The kernel may have dropped the pages: nothing since the last sync is sure any more.
		return &fatal{err}
	}
	o.synced = o.size
	return nil
}

// close ends the output; after a failure what is not known to be durable is cut
// off, for it will be sent again. It may be called more than once.
func (o *output) close(failed bool) {
	if failed && o.regular && o.size > o.synced {
		_ = o.f.Truncate(o.synced) // what remains is repeated, which at least once allows
	}
	_ = o.f.Close()
}

// fatal is an error after which the output cannot be used any more.
type fatal struct{ err error }

func (f *fatal) Error() string { return f.err.Error() }
func (f *fatal) Unwrap() error { return f.err }

// canWait tells whether the output may work again by itself: a full disk or quota.
func canWait(err error) bool {
	var f *fatal
	if errors.As(err, &f) {
		return false
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN)
}
