package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout bounds one call of a script. A first start may have to download the server.
const startTimeout = 15 * time.Minute

// Name returns a name that no other test uses, made from t's: lower case letters, digits and
// underscores, at most 40 of them, good for a database, a topic, a client id.
func Name(t testing.TB) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimPrefix(t.Name(), "Test")) {
		if r < 'a' || r > 'z' {
			if r < '0' || r > '9' {
				r = '_'
			}
		}
		if b.Len() < 29 {
			b.WriteRune(r)
		}
	}
	return "t" + b.String() + "_" + random(t)
}

func random(t testing.TB) string {
	t.Helper()
	var raw [4]byte
	if _, err := rand.Read(raw[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(raw[:])
}

// root is the folder of the repository: where go.mod lies.
var root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory: cannot find the folder testenv")
		}
		dir = up
	}
})

// RaceOptions are the race detector's options, GORACE: those of the environment, with races of client libraries suppressed
// that are known to do no harm.
func RaceOptions() string {
	_, here, _, _ := runtime.Caller(0)
	return strings.TrimSpace(os.Getenv("GORACE") + " suppressions=" + filepath.Join(filepath.Dir(here), "race.suppressions"))
}

// FreeAddresses returns addresses on loopback that nobody listens on, and that no other test or server is given until t ends: one may
// be bound much later, and again after a while.
func FreeAddresses(t testing.TB, n int) []string {
	t.Helper()
	return AddressesFor(t, t.TempDir(), n)
}

// AddressesFor is FreeAddresses as long as a folder exists.
func AddressesFor(t testing.TB, dir string, n int) []string {
	t.Helper()
	line, err := run(nil, "ports.sh", dir, strconv.Itoa(n))
	if err != nil {
		t.Fatal(err)
	}
	addrs := strings.Fields(line)
	for i, port := range addrs {
		addrs[i] = "127.0.0.1:" + port
	}
	return addrs
}

// state is the folder below which all servers have their data.
func state() (string, error) {
	if dir := os.Getenv("BINLOGMQ_TESTENV_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := root()
	return filepath.Join(dir, ".testenv"), err
}

// run calls a script of the folder testenv and returns the last line that it prints. The error holds what
// the script said: of a server that did not start, its own last lines.
func run(env []string, script string, args ...string) (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "testenv", script), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("testenv/%s %s: %w\n%s%s", script, strings.Join(args, " "), err, &out, &said)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1], nil
}

// shared starts the server that all tests share unless it runs, and returns what its script prints. args are
// built from the server's folder.
func shared(t testing.TB, name, script string, args func(dir string) []string) (line, dir string) {
	t.Helper()
	base, err := state()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "shared", name)
	unlock, err := lock(filepath.Join(base, name+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if line, err = run(nil, script, args(dir)...); err != nil {
		t.Fatal(err)
	}
	return line, dir
}

// private returns the folder of a server for t alone. The server is wiped when t ends.
func private(t testing.TB, name, script string) string {
	t.Helper()
	base, err := state()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "private", name+"-"+random(t))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the server of %s logged:\n%s", dir, logTail(dir))
		}
		// An empty folder is one whose server never got as far as its configuration.
		if os.Remove(dir) == nil {
			return
		}
		if _, err := run(nil, script, "wipe", dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// logTail returns the last lines of the logs below dir.
func logTail(dir string) string {
	var b strings.Builder
	for _, pattern := range []string{"error.log", "server.log", "*/server.log"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || len(text) == 0 {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			fmt.Fprintf(&b, "--- %s\n%s\n", file, strings.Join(lines[max(0, len(lines)-12):], "\n"))
		}
	}
	return b.String()
}

// lock waits for the file lock at path. The scripts take the same one.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// control calls a script on the folder of a private server.
func control(t testing.TB, own bool, env []string, script, verb, dir string, args ...string) {
	t.Helper()
	if !own {
		t.Fatalf("%s of a server that is not this test's own: start one with testenv.New...", verb)
	}
	if _, err := run(env, script, append([]string{verb, dir}, args...)...); err != nil {
		t.Fatal(err)
	}
}
