package file

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	if os.Getenv("FILE_TEST_STDOUT") != "" {
		writeToStdout()
		return
	}
	leak.Main(m)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

type line struct {
	Topic       string
	Key         *string
	KeyBase64   *string `json:"key_base64"`
	Value       json.RawMessage
	ValueBase64 *string `json:"value_base64"`
	Headers     map[string]string
	Sequence    int64
}

// parse returns the messages of one topic; every line must be whole.
func parse(t testing.TB, data []byte, topic string) []sinktest.Stored {
	t.Helper()
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Fatalf("a reader sees half a line: %q", data[max(0, len(data)-80):])
	}
	var out []sinktest.Stored
	for text := range bytes.Lines(data) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		if l.Topic != topic {
			continue
		}
		s := sinktest.Stored{}
		switch {
		case l.KeyBase64 != nil:
			s.Key, _ = base64.StdEncoding.DecodeString(*l.KeyBase64)
		case l.Key != nil:
			s.Key = []byte(*l.Key)
		}
		switch {
		case l.ValueBase64 != nil:
			s.Value, _ = base64.StdEncoding.DecodeString(*l.ValueBase64)
			if s.Value == nil {
				s.Value = []byte{}
			}
		case string(l.Value) != "null":
			s.Value = l.Value
		}
		for k, v := range l.Headers {
			s.Headers = append(s.Headers, sink.Header{Name: k, Value: []byte(v)})
		}
		out = append(out, s)
	}
	return out
}

func topics() func(testing.TB, int32) string {
	n := 0
	return func(testing.TB, int32) string { n++; return fmt.Sprintf("shop.t%d", n) }
}

func TestConformanceOfAFile(t *testing.T) {
	dir := t.TempDir()
	path := func(t testing.TB) string { // one a test, for the reader's sake
		return filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()))
	}
	for _, noSync := range []bool{false, true} {
		t.Run(fmt.Sprintf("no sync %t", noSync), func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Open: func(t testing.TB, b sinktest.Bounds) sink.Sink {
					s, err := New(Options{Path: path(t), NoSync: noSync, MaxInFlightMessages: int64(b.Messages), MaxInFlightBytes: b.Bytes})
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				NewTopic: topics(),
				Read: func(t testing.TB, topic string, _ int32) []sinktest.Stored {
					data, err := os.ReadFile(path(t))
					if err != nil {
						t.Fatal(err)
					}
					// A line may be in the middle of its write.
					return parse(t, data[:bytes.LastIndexByte(data, '\n')+1], topic)
				},
				Partitions: 1,
				EmptyKey:   true,
			})
		})
	}
}

// pipe is a named pipe whose reader can be stopped.
type pipe struct {
	path  string
	fd    int
	mu    sync.Mutex
	data  []byte
	held  bool
	quit  chan struct{}
	ended chan struct{}
}

func newPipe(t testing.TB) *pipe {
	t.Helper()
	p := &pipe{path: filepath.Join(t.TempDir(), "pipe"), quit: make(chan struct{}), ended: make(chan struct{})}
	if err := unix.Mkfifo(p.path, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.fd, err = unix.Open(p.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-p.quit:
				return
			case <-time.After(time.Millisecond):
				p.mu.Lock()
				if !p.held {
					p.drain()
				}
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		close(p.quit)
		<-p.ended
		unix.Close(p.fd)
	})
	return p
}

func (p *pipe) drain() {
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(p.fd, buf)
		if n <= 0 || err != nil {
			return
		}
		p.data = append(p.data, buf[:n]...)
	}
}

func (p *pipe) read() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	return bytes.Clone(p.data)
}

func TestConformanceOfAPipe(t *testing.T) {
	p := newPipe(t)
	name := topics()
	sinktest.Run(t, sinktest.Harness{
		Open: func(t testing.TB, b sinktest.Bounds) sink.Sink {
			s, err := New(Options{Path: p.path, MaxInFlightMessages: int64(b.Messages), MaxInFlightBytes: b.Bytes})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		NewTopic: func(t testing.TB, n int32) string {
			p.read()
			p.mu.Lock()
			p.data = nil // of older topics, which nobody asks for again
			p.mu.Unlock()
			return name(t, n)
		},
		Read: func(t testing.TB, topic string, _ int32) []sinktest.Stored {
			data := p.read()
			return parse(t, data[:bytes.LastIndexByte(data, '\n')+1], topic)
		},
		Partitions: 1,
		EmptyKey:   true,
		Stall: func(t testing.TB) func() {
			set := func(held bool) {
				p.mu.Lock()
				p.held = held
				p.mu.Unlock()
			}
			set(true)
			return func() { set(false) }
		},
	})
}

func message(owner sink.Owner, key, value string) *sink.Message {
	m := &sink.Message{Topic: "shop.orders", Sequence: 7, Owner: owner, Headers: []sink.Header{{Name: "seq", Value: []byte("7")}}}
	if key != "NULL" {
		m.Key = []byte(key)
	}
	if value != "NULL" {
		m.Value = []byte(value)
	}
	return m
}

func TestLines(t *testing.T) {
	var whole, values []byte
	for _, c := range [][2]string{
		{"1", `{"id":1,"note":"naïve"}`}, {"NULL", `[1, 2]`}, {"2", "NULL"}, {"3", ""}, {"4", "null"}, {"5", "plain text"}, {"6", "\xff\x00"},
		{"\xfe", `{"a":1}`}, {"", `"x"`}, {"q\"\\\n", "{\n \"a\": [1,\n 2]\n}"}, {"7", " {} "}, {"8", "\"bad \xff utf8\""}, {"9", `1e400`}, {"10", `{"a":1,"a":2}`},
	} {
		m := message(nil, c[0], c[1])
		whole = appendLine(whole, m)
		values = appendValue(values, m)
	}
	golden(t, "lines.jsonl", whole)
	golden(t, "values.jsonl", values)
	for _, data := range [][]byte{whole, values} {
		for l := range bytes.Lines(data) {
			if !json.Valid(l) {
				t.Errorf("%q is no JSON", l)
			}
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("t", []byte("k"), []byte(`{"a":1}`), "h", []byte("v"))
	f.Add("", []byte("\xff"), []byte("null"), "", []byte{})
	f.Fuzz(func(t *testing.T, topic string, key, value []byte, name string, header []byte) {
		m := sink.Message{Topic: topic, Key: key, Value: value, Headers: []sink.Header{{Name: name, Value: header}}, Sequence: 1}
		out := appendLine(nil, &m)
		if bytes.IndexByte(out, '\n') != len(out)-1 {
			t.Fatalf("%q is not one line", out)
		}
		var l line
		if err := json.Unmarshal(out, &l); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		got := parse(t, out, l.Topic)
		if len(got) != 1 || !bytes.Equal(got[0].Key, key) || !bytes.Equal(got[0].Value, value) {
			t.Fatalf("%q comes back as %+v", out, got)
		}
		if v := appendValue(nil, &m); bytes.IndexByte(v, '\n') != len(v)-1 || !json.Valid(v) {
			t.Fatalf("%q is no line of JSON", v)
		}
	})
}

// I7: what a crash has left of a line is cut off at the next start.
func TestHalfALineIsCutOff(t *testing.T) {
	m := message(nil, "1", `{"a":1}`)
	good := string(appendLine(nil, m))
	long := good + strings.Repeat("x", 200<<10)
	for _, c := range []struct {
		name, before, after string
		values, fails       bool
	}{
		{"empty", "", "", false, false},
		{"whole", good + good, good + good, false, false},
		{"half", good + good[:20], good, false, false},
		{"first letters", good + good[:3], good, false, false},
		{"only half", good[:30], "", false, false},
		{"half a long line", good + lineStart + strings.Repeat("y", 200<<10), good, false, false},
		{"somebody else's file", "hello", "hello", false, true},
		{"somebody else's end", long, long, false, true},
		{"values", "{}\n{\"a\"", "{}\n", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := New(Options{Path: path, ValuesOnly: c.values})
			if (err != nil) != c.fails {
				t.Fatalf("New: %v", err)
			}
			if err == nil {
				if err := s.Close(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := os.ReadFile(path); string(got) != c.after {
				t.Fatalf("%d bytes are left, want %d", len(got), len(c.after))
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	s, err := New(Options{Path: held})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(within(t))
	for _, c := range []struct {
		name string
		opt  Options
		want string
	}{
		{"no path", Options{}, "path: is missing"},
		{"negative", Options{Path: "x", MaxInFlightBytes: -1}, "must not be negative"},
		{"folder", Options{Path: dir}, "folder"},
		{"no such folder", Options{Path: filepath.Join(dir, "no", "f")}, "no such file"},
		{"in use", Options{Path: held}, "in use by another process"},
		{"pipe without reader", Options{Path: fifo}, "nobody reads"},
	} {
		if _, err := New(c.opt); err == nil || !strings.Contains(err.Error(), c.want) && c.name != "folder" {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// I3, I9: a full disk is waited for, nobody sees half a line meanwhile, and nothing is lost.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no disk of its own: ", err)
	}
	defer unix.Unmount(dir, 0)
	path, ballast := filepath.Join(dir, "out"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r := sinktest.NewRecorder(nil)
	const n = 600 // of about 170 bytes
	msgs := sinktest.Messages(r, "t", 0, 1, n)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	for s.Status().Err == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.Status().Err; !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	done, failed := r.Count()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, data, "t"); len(got) < done || failed > 0 {
		t.Fatalf("%d lines, %d messages done, %d failed", len(got), done, failed)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Status().Err; err != nil {
		t.Fatal(err)
	}
	want := make([]int64, n)
	for i := range want {
		want[i] = int64(i + 1)
	}
	data, _ = os.ReadFile(path)
	sinktest.CheckExact(t, "full disk", parse(t, data, "t"), want)
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
}

// A reader that leaves ends the session with a clear error, and not the process.
func TestNobodyReads(t *testing.T) {
	p := newPipe(t)
	s, err := New(Options{Path: p.path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(within(t))
	close(p.quit)
	<-p.ended
	unix.Close(p.fd)
	p.quit, p.ended = make(chan struct{}), make(chan struct{})
	close(p.ended)
	p.fd, _ = unix.Open("/dev/null", unix.O_RDONLY, 0)
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, "t", 0, 1, 3)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(within(t), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Result(&msgs[0]); !errors.Is(err, syscall.EPIPE) || !strings.Contains(err.Error(), "nobody reads") {
		t.Fatal(err)
	}
	if n, err := s.Publish(within(t), sinktest.Messages(r, "t", 0, 4, 1)); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("%d, %v", n, err)
	}
}

// writeToStdout is the child of TestStandardOutput.
func writeToStdout() {
	s, err := New(Options{Path: "-"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r := sinktest.NewRecorder(nil)
	for seq := int64(1); seq < 100_000; seq += 100 {
		msgs := sinktest.Messages(r, "t", 0, seq, 100)
		if _, err = s.Publish(context.Background(), msgs); err != nil {
			break
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

func TestStandardOutput(t *testing.T) {
	cmd := exec.CommandContext(within(t), os.Args[0])
	cmd.Env = append(os.Environ(), "FILE_TEST_STDOUT=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10_000)
	n, err := out.Read(buf)
	if err != nil || !bytes.HasPrefix(buf[:n], []byte(lineStart)) {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	out.Close() // as `head` does
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(stderr.String(), "nobody reads") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, noSync := range []bool{true, false} {
		b.Run(fmt.Sprintf("sync=%t", !noSync), func(b *testing.B) {
			s, err := New(Options{Path: filepath.Join(b.TempDir(), "f"), NoSync: noSync})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(context.Background())
			b.ReportAllocs()
			const size = 500
			value := []byte(`{"note":"` + strings.Repeat("x", 230) + `"}`)
			for n := 0; n < b.N; n += size {
				msgs := make([]sink.Message, size)
				for i := range msgs {
					m := &msgs[i]
					m.Topic, m.Sequence, m.Key, m.Value, m.Owner = "shop.orders", int64(n+i), value[:8], value, nobody{}
				}
				if _, err := s.Publish(context.Background(), msgs); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(value)))
		})
	}
}

type nobody struct{}

func (nobody) MessageDone(*sink.Message, error) {}
