package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server/metatest"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	if dir := os.Getenv("BINLOGMQ_TEST_LOCK"); dir != "" { // a process of its own that holds the lock
		if _, err := Open(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	leak.Main(m)
}

var shop = meta.Identity{Destination: "shop", Client: "sink-orders"}

func sample(ordinal int64) *meta.Record {
	r := &meta.Record{
		Cursor: event.Cursor{
			Position: event.Position{File: "binlog.000007", Offset: 5_000_000_000, ServerUUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562"},
			Ordinal:  ordinal, Progress: 3, State: []byte("lanes"),
		},
		Filter: "shop.*", BatchFloor: 12, SavedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	r.Cursor.Position.GTIDs, _ = event.ParseGTIDSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9")
	return r
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	metatest.Run(t, true, func(t *testing.T) (meta.Store, func()) {
		s, err := Open(filepath.Join(dir, "made", "here"))
		if err != nil {
			t.Fatal(err)
		}
		return s, func() { s.Close() }
	})
}

// The format is what later versions must read.
func TestGolden(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Save(context.Background(), shop, sample(41)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "shop@sink-orders.cursor.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/v1.json")
	if *update {
		err = os.WriteFile("testdata/v1.json", got, 0o644)
		want = got
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, ".shop@sink-orders.cursor.json.tmp")); err == nil {
		t.Error("temporary file left")
	}
}

func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ctx := context.Background()
	if err := s.Save(ctx, shop, sample(41)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "shop@sink-orders.cursor.json")
	good, _ := os.ReadFile(path)
	for name, bad := range map[string]string{
		"empty":      "",
		"cut":        string(good[:len(good)/2]),
		"edited":     strings.Replace(string(good), `"ordinal": 41`, `"ordinal": 42`, 1),
		"version":    strings.Replace(string(good), `"binlogmq_cursor": 1`, `"binlogmq_cursor": 2`, 1),
		"appended":   string(good) + "{}",
		"no json":    "\x00\x01\x02",
		"no object":  "[]",
		"field":      strings.Replace(string(good), `"checksum"`, `"x": 1, "checksum"`, 1),
		"no record":  `{"binlogmq_cursor":1,"checksum":"crc32c:00000000"}`,
		"null":       "null",
		"somebody's": string(must(meta.EncodeRecord(meta.Identity{Destination: "shop", Client: "other"}, sample(1)))),
	} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := s.Load(ctx, shop)
		if err == nil || errors.Is(err, meta.ErrNotFound) { // I3
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		for _, part := range []string{path, "shop/sink-orders", "binlogmq cursor set"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not name %q", name, err, part)
			}
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestOutOfRange(t *testing.T) {
	s := open(t, t.TempDir())
	for _, r := range []*meta.Record{
		{Cursor: event.Cursor{Ordinal: -1}}, {Cursor: event.Cursor{Progress: -1}}, {BatchFloor: -1},
		{Cursor: event.Cursor{Ordinal: 1 << 62, Progress: 1 << 62}},
	} {
		if err := s.Save(context.Background(), shop, r); err == nil {
			t.Errorf("%+v saved", r)
		}
	}
}

// I7: whichever step fails, the old record stays, and what was begun is cleared away.
func TestSaveFails(t *testing.T) {
	ctx := context.Background()
	noRoom := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	for name, fail := range map[string]func(*Store){
		"write": func(s *Store) {
			s.write = func(f *os.File, b []byte) (int, error) {
				n, _ := f.Write(b[:len(b)/2])
				return n, noRoom
			}
		},
		"sync":   func(s *Store) { s.sync = func(*os.File) error { return noRoom } },
		"rename": func(s *Store) { s.rename = func(string, string) error { return noRoom } },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			if err := s.Save(ctx, shop, sample(41)); err != nil {
				t.Fatal(err)
			}
			write, sync, rename := s.write, s.sync, s.rename
			fail(s)
			err := s.Save(ctx, shop, sample(42))
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v", err)
			}
			if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 41 {
				t.Errorf("after the failure: %v, %v", r, err)
			}
			s.write, s.sync, s.rename = write, sync, rename
			if err := s.Save(ctx, shop, sample(42)); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 42 {
				t.Errorf("after it was mended: %v, %v", r, err)
			}
			entries, _ := os.ReadDir(dir)
			if len(entries) != 2 { // the lock and the record
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// The same with the kernel's own refusal: every write to /dev/full finds the disk full.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	ctx := context.Background()
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Save(ctx, shop, sample(41)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, ".shop@sink-orders.cursor.json.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(ctx, shop, sample(42)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
	if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 41 {
		t.Errorf("after the failure: %v, %v", r, err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dir, ".shop@schema.document.json.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveDocument(t.Context(), "shop", meta.SchemaHistory, []byte("{}")); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room in "+dir) {
		t.Errorf("error %v, which does not say where room is needed", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BINLOGMQ_TEST_LOCK="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); cmd.Wait() }()
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process says %q", line)
	}

	_, err = Open(dir)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Fatalf("error %v, want the owner's pid %d", err, cmd.Process.Pid)
	}
	if r, err := OpenReadOnly(dir); err != nil {
		t.Error(err)
	} else {
		if _, err := r.List(context.Background(), ""); err != nil {
			t.Error(err)
		}
		if r.Save(context.Background(), shop, sample(1)) == nil || r.Delete(context.Background(), shop) == nil {
			t.Error("a store for reading was written to")
		}
	}

	// The owner dies without unlocking: the directory is free.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, lockName)); strings.TrimSpace(string(text)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("lock file says %q, our pid is %d", text, os.Getpid())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, err = Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestOpenFails(t *testing.T) {
	f := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(f, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f); err == nil {
		t.Error("a file was opened as directory")
	}
	if _, err := OpenReadOnly(filepath.Join(f, "none")); err == nil {
		t.Error("what is not there was opened")
	}
}

func TestFreeBytes(t *testing.T) {
	n, err := FreeBytes(t.TempDir())
	if err != nil || n <= 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := FreeBytes("/no/such/directory"); err == nil {
		t.Error("no error")
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("shop@1001.cursor.json")
	f.Add("a%2Fb@x.cursor.json")
	f.Fuzz(func(t *testing.T, name string) {
		id, ok := identityOf(name)
		if !ok {
			return
		}
		if back, err := fileName(id); err == nil && back != name {
			t.Fatalf("%q is %v, whose file is %q", name, id, back)
		}
		if strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
			t.Fatalf("%q taken for a cursor file", name)
		}
	})
}
