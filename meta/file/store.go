package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/binlogmq/binlogmq/internal/killpoint"
	"github.com/binlogmq/binlogmq/meta"
)

const (
	lockName = "lock"
	suffix   = ".cursor.json"

	// maxFileName is what every usual file system takes, less the temporary file's additions.
	maxFileName = 240
)

// Store is a directory of cursors. It is safe for concurrent use; calls for one
// identity must be made one at a time.
type Store struct {
	meta.SoleOwners // the directory's lock is the lease

	dir      string
	lock     *os.File
	readOnly bool

	// Steps of Save that tests make fail.
	write  func(*os.File, []byte) (int, error)
	sync   func(*os.File) error
	rename func(from, to string) error
}

var (
	_ meta.Store  = (*Store)(nil)
	_ meta.Owners = (*Store)(nil)
)

func newStore(dir string) *Store {
	return &Store{dir: dir, write: (*os.File).Write, sync: (*os.File).Sync, rename: os.Rename}
}

// Open locks the directory, which it creates if it is not there. While another process
// has it locked the error is a *LockedError.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("cursor directory: %w; choose another with meta.file.directory", err)
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	s := newStore(dir)
	s.lock = lock
	return s, nil
}

// OpenReadOnly looks at a directory that another process may have locked. Save and Delete fail.
func OpenReadOnly(dir string) (*Store, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("cursor directory: %w", err)
	}
	s := newStore(dir)
	s.readOnly = true
	return s, nil
}

// Close unlocks the directory.
func (s *Store) Close() error {
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return errors.Join(lock.Truncate(0), lock.Close())
}

// Directory returns the directory's path.
func (s *Store) Directory() string { return s.dir }

// LockedError says that another process has the directory locked.
type LockedError struct {
	Directory string
	PID       int // 0 when the lock file does not say
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("cursor directory %s is in use by %s: stop it, or give this one a directory of its own (meta.file.directory)", e.Directory, who)
}

// fileName returns the name of the identity's file.
func fileName(id meta.Identity) (string, error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	name := meta.Escape(id.Destination) + "@" + id.Client + suffix
	if len(name) > maxFileName {
		return "", fmt.Errorf("destination %s: its name is too long for a file name", id.Destination)
	}
	return name, nil
}

// identityOf returns whose file has that name.
func identityOf(name string) (meta.Identity, bool) {
	base, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return meta.Identity{}, false
	}
	dest, client, ok := strings.Cut(base, "@")
	if !ok {
		return meta.Identity{}, false
	}
	var id meta.Identity
	if id.Destination, ok = meta.Unescape(dest); !ok {
		return id, false
	}
	id.Client = client
	return id, id.Validate() == nil
}

// Load implements meta.Store.
func (s *Store) Load(_ context.Context, id meta.Identity) (*meta.Record, error) {
	name, err := fileName(id)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, name)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", id, meta.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("cursor of %s: %w", id, err)
	}
	got, r, err := meta.DecodeRecord(data)
	if err == nil && got != id {
		err = fmt.Errorf("it belongs to %s", got)
	}
	if err != nil {
		return nil, fmt.Errorf("cursor file %s of %s cannot be used: %w: %w; restore it from a backup, or set the cursor with: binlogmq cursor set", path, id, meta.ErrDamaged, err)
	}
	return r, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, meta.MaxRecord+1))
	if err == nil && len(data) > meta.MaxRecord {
		err = fmt.Errorf("%s: larger than %d bytes", path, meta.MaxRecord)
	}
	return data, err
}

var errReadOnly = errors.New("the cursor directory is opened for reading only")

// Save implements meta.Store.
func (s *Store) Save(_ context.Context, id meta.Identity, r *meta.Record) error {
	if s.readOnly {
		return errReadOnly
	}
	name, err := fileName(id)
	if err != nil {
		return err
	}
	data, err := meta.EncodeRecord(id, r)
	if err != nil {
		return fmt.Errorf("cursor of %s: %w", id, err)
	}
	path := filepath.Join(s.dir, name)
	tmp := filepath.Join(s.dir, "."+name+".tmp")
	if err := s.replace(path, tmp, data); err != nil {
		return fmt.Errorf("cursor of %s not saved: %w", id, err)
	}
	return nil
}

// replace puts data into path so that a crash at any instant leaves the old or
// the new content (I7).
func (s *Store) replace(path, tmp string, data []byte) (err error) {
	defer func() {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = fmt.Errorf("%w; make room in %s", err, s.dir)
		}
	}()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = s.write(f, data)
	killpoint.Hit("file.written")
	if err == nil {
		err = s.sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		killpoint.Hit("file.rename")
		err = s.rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // gives its room back; if that fails the next save writes over it
		return err
	}
	killpoint.Hit("file.renamed")
	return s.syncDir()
}

// syncDir makes renames and removals durable.
func (s *Store) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	err = s.sync(d)
	return errors.Join(err, d.Close())
}

// Delete implements meta.Store.
func (s *Store) Delete(_ context.Context, id meta.Identity) error {
	if s.readOnly {
		return errReadOnly
	}
	name, err := fileName(id)
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.syncDir()
	}
	if err != nil {
		return fmt.Errorf("cursor of %s not deleted: %w", id, err)
	}
	return nil
}

// List implements meta.Store. Files that are not cursors are passed over.
func (s *Store) List(_ context.Context, destination string) ([]meta.Identity, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cursor directory: %w", err)
	}
	var ids []meta.Identity
	for _, e := range entries {
		if id, ok := identityOf(e.Name()); ok && (destination == "" || id.Destination == destination) {
			ids = append(ids, id)
		}
	}
	meta.SortIdentities(ids)
	return ids, nil
}
