package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/internal/testenv/lockedbuf"
	"github.com/binlogmq/binlogmq/sink/kafka"
)

var build struct {
	sync.Once
	path string
	err  error
}

// Binary builds the program once a test binary, with the race detector, and returns its path. With
// BINLOGMQ_TEST_BINARY set it is that program instead.
func Binary(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("BINLOGMQ_TEST_BINARY"); p != "" {
		return p
	}
	build.Do(func() {
		dir, err := os.MkdirTemp("", "binlogmq-test-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "binlogmq")
		build.err = Build(build.path, "-race")
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// Build builds the program into a file, with further arguments of go build.
func Build(to string, args ...string) error {
	args = append(append([]string{"build"}, args...), "-o", to, "github.com/binlogmq/binlogmq/cmd/binlogmq")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building binlogmq: %w\n%s", err, out)
	}
	return nil
}

// FreeAddress returns an address of [testenv.FreeAddresses].
func FreeAddress(t testing.TB) string {
	t.Helper()
	return testenv.FreeAddresses(t, 1)[0]
}

// Child is a running program.
type Child struct {
	t     testing.TB
	cmd   *exec.Cmd
	admin string
	log   *lockedbuf.Buffer
	done  chan struct{}
	err   error
}

// Options change how a program is started.
type Options struct {
	Binary  string   // another program than that of the function Binary
	Env     []string // more of the environment, NAME=VALUE
	LogFile string   // file that what it prints is appended to; then a test that fails does not print it
}

// Start runs the program with the configuration text, to which the admin address is
// added. It is killed at the test's end if it still runs.
func Start(t testing.TB, config string) *Child {
	t.Helper()
	return StartWith(t, config, Options{})
}

// StartWith is Start with options.
func StartWith(t testing.TB, config string, o Options) *Child {
	t.Helper()
	bin := o.Binary
	if bin == "" {
		bin = Binary(t)
	}
	dir := t.TempDir()
	addr := testenv.AddressesFor(t, dir, 1)[0]
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config+"\nadmin: { listen: \""+addr+"\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Child{t: t, admin: addr, log: &lockedbuf.Buffer{}, done: make(chan struct{})}
	c.cmd = exec.Command(bin, "run", "-c", file)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if o.LogFile != "" {
		f, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		out := io.MultiWriter(c.log, f)
		c.cmd.Stdout, c.cmd.Stderr = out, out
	}
	c.cmd.Env = append(append(os.Environ(), "GORACE="+testenv.RaceOptions()), o.Env...)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.cmd.Wait()
		_ = os.RemoveAll(dir) // with which the address is given back: a long run starts thousands
		close(c.done)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
		if t.Failed() && o.LogFile == "" {
			t.Logf("the program printed:\n%s", tail(c.log.String(), 8000))
		}
		if strings.Contains(c.log.String(), "DATA RACE") {
			t.Errorf("data race:\n%s", tail(c.log.String(), 20000))
		}
	})
	// Before its first line the program handles no signals.
	for c.log.String() == "" {
		select {
		case <-c.done:
			return c
		case <-time.After(time.Millisecond):
		}
	}
	return c
}

func tail(s string, n int) string {
	if len(s) > n {
		return "... " + s[len(s)-n:]
	}
	return s
}

// Log returns what the program has printed so far.
func (c *Child) Log() string { return c.log.String() }

// Ousted tells whether the program has ended because another process has taken a sink over: a frozen one that is woken may be
// in the middle of its start, and then it is the newer of the two.
func (c *Child) Ousted() bool {
	select {
	case <-c.done:
		return strings.Contains(c.log.String(), kafka.ErrFencedOut.Error())
	default:
		return false
	}
}

// Admin returns the address of health and metrics.
func (c *Child) Admin() string { return c.admin }

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (c *Child) Ended() <-chan struct{} { return c.done }

// Signal sends a signal. A program that has ended gets none.
func (c *Child) Signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatal(err)
	}
}

// Stop asks for a soft stop and fails the test unless the program ends with 0.
func (c *Child) Stop() {
	c.t.Helper()
	c.Signal(syscall.SIGTERM)
	if code := c.Wait(3 * time.Minute); code != 0 {
		c.t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// Kill sends SIGKILL and waits for the end.
func (c *Child) Kill() {
	c.t.Helper()
	c.Signal(syscall.SIGKILL)
	c.Wait(3 * time.Minute)
}

// Wait returns the exit code, -1 after a signal.
func (c *Child) Wait(atMost time.Duration) int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(atMost):
		c.Signal(syscall.SIGQUIT) // prints the goroutines
		<-c.done
		c.t.Fatalf("the program did not end within %v", atMost)
	}
	var exit *exec.ExitError
	if errors.As(c.err, &exit) {
		return exit.ExitCode()
	}
	if c.err != nil {
		c.t.Fatal(c.err)
	}
	return 0
}

// Report asks /healthz; ok tells whether the program answered.
func (c *Child) Report() (r admin.Report, ok bool) {
	select {
	case <-c.done: // its address may be another one's by now
		return r, false
	default:
	}
	resp, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + c.admin + "/healthz")
	if err != nil {
		return r, false
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r) == nil
}

// Await polls the report until f is content; it fails the test when the program
// ends before, or after atMost.
func (c *Child) Await(what string, atMost time.Duration, f func(*admin.Report) bool) {
	c.t.Helper()
	deadline := time.Now().Add(atMost)
	for {
		r, ok := c.Report()
		if ok && f(&r) {
			return
		}
		select {
		case <-c.done:
			c.t.Fatalf("waiting for %s: the program has ended", what)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			b, _ := json.Marshal(r)
			c.t.Fatalf("waiting for %s: not within %v; report %s", what, atMost, b)
		}
	}
}

// AwaitReady waits until every source is connected.
func (c *Child) AwaitReady() {
	c.t.Helper()
	c.Await("readiness", 3*time.Minute, (*admin.Report).Ready)
}

// AwaitAcknowledged waits until the first destination has read the source's log up to a
// place and every sink has acknowledged all that was read.
func (c *Child) AwaitAcknowledged(file string, offset int64, atMost time.Duration) {
	c.t.Helper()
	c.Await("every sink to have acknowledged everything", atMost, func(r *admin.Report) bool {
		d := r.Destinations[0]
		at, _, _ := strings.Cut(d.Position, " ")
		atFile, atOffset, ok := strings.Cut(at, ":")
		n, err := strconv.ParseInt(atOffset, 10, 64)
		if !ok || err != nil || atFile < file || atFile == file && n < offset {
			return false
		}
		for _, k := range d.Sinks {
			if k.Behind != 0 {
				return false
			}
		}
		return true
	})
}
