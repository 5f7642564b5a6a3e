//go:build integration

package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience bounds every wait for something that must come; nobody times it, so a busy host may take its time.
const patience = 6 * time.Minute

// secret stands for every password; no output may hold it.
const secret = "s3cr3t-Wort"

// setup is a configuration of one destination with a file sink, of which tests change parts.
type setup struct {
	name, address, user, password string
	tables                        string
	start                         string
	more                          string // of the destination
	sink                          string // without its name; "" = a file
	meta                          string
	top                           string // more at the top
	lines                         string // of the file sink
}

func newSetup(t *testing.T, db *testenv.Server) *setup {
	t.Helper()
	dir := t.TempDir()
	// A name of its own: the identity at the source is made of it, and others read the same source.
	s := &setup{name: "shop_" + testenv.Name(t), meta: filepath.Join(dir, "meta"), lines: filepath.Join(dir, "lines"), start: "latest", tables: "*.*"}
	if db != nil {
		s.address, s.user, s.password = db.Addr, db.ReplUser, db.ReplPassword
	}
	return s
}

func (s *setup) text() string {
	sink := s.sink
	if sink == "" {
		sink = fmt.Sprintf("file: { path: %q, sync: false }", s.lines)
	}
	return fmt.Sprintf(`
meta: { file: { directory: %q }, save_interval: 100ms }
stop_timeout: 5s
%s
destinations:
  - name: %s
    source: { address: %q, user: %q, password: %q }
    tables: [%q]
    start: %q
    %s
    sinks:
      - name: out
        %s
`, s.meta, s.top, s.name, s.address, s.user, s.password, s.tables, s.start, s.more, sink)
}

func (s *setup) file(t *testing.T) string { return writeFile(t, s.text()) }

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// result is what a command printed and how it ended.
type result struct {
	code int
	out  string // standard output
	errs string // standard error
}

// command runs the program to its end.
func command(t *testing.T, atMost time.Duration, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("binlogmq %s did not end within %v:\n%s%s", strings.Join(args, " "), atMost, &out, &errs)
	}
	if strings.Contains(errs.String(), "DATA RACE") {
		t.Error("data race")
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

var (
	doubledText = regexp.MustCompile(`destination (\S+?)[:,] .*destination (\S+?)[:,] `)
)

// neat holds a log against what every message must be.
func neat(t *testing.T, log string) {
	t.Helper()
	for _, bad := range []string{secret, "goroutine ", "panic", "%!", "<nil>"} {
		if strings.Contains(log, bad) {
			t.Errorf("the output holds %q:\n%s", bad, log)
		}
	}
	for line := range strings.Lines(log) {
		if doubledText.MatchString(line) || strings.Count(line, " destination=") > 1 || strings.Count(line, "pulsar: ") > 2 || strings.Count(line, "kafka: ") > 2 {
			t.Errorf("says a thing twice: %s", line)
		}
		if len(line) > 1500 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
}

// loud returns the lines that would wake somebody. What other tests do on the same server is no fault of this one.
func loud(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, `msg="statement-format DML of tables that are not captured`) {
			continue
		}
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") {
			lines = append(lines, line)
		}
	}
	return lines
}

func holds(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, text)
		}
	}
}

// refused runs the program, which must end with code 1 and say so in its last line.
func (s *setup) refused(t *testing.T, wants ...string) result {
	t.Helper()
	r := command(t, patience, "", "run", "-c", s.file(t))
	s.refusal(t, r.code, r.errs, wants...)
	return r
}

func (s *setup) refusal(t *testing.T, code int, log string, wants ...string) {
	t.Helper()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	neat(t, log)
	lines := strings.Split(strings.TrimSpace(log), "\n")
	last := lines[len(lines)-1]
	holds(t, "the last line", last, append([]string{"level=ERROR"}, wants...)...)
	if n := len(loud(log)); n > 3 {
		t.Errorf("%d loud lines for one fault:\n%s", n, log)
	}
	t.Log(last)
}

// red waits until health is red with a text that holds all wants, for the destination or one of its sinks.
func red(t *testing.T, p *process.Child, atMost time.Duration, wants ...string) string {
	t.Helper()
	var text string
	p.Await("red health with "+strings.Join(wants, ", "), atMost, func(r *admin.Report) bool {
		text = faultsOf(r)
		for _, w := range wants {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return !r.Healthy()
	})
	neat(t, text)
	t.Log("health: ", text)
	return text
}

func faultsOf(r *admin.Report) string {
	var b strings.Builder
	for i := range r.Destinations {
		d := &r.Destinations[i]
		if d.Error != "" {
			fmt.Fprintln(&b, d.Error)
		}
		for j := range d.Sinks {
			if d.Sinks[j].Error != "" {
				fmt.Fprintln(&b, d.Sinks[j].Error)
			}
		}
	}
	return strings.TrimSpace(b.String())
}

// green waits until everything works and is done.
func green(t *testing.T, p *process.Child) {
	t.Helper()
	p.Await("green health and nothing left to do", patience, func(r *admin.Report) bool {
		d := r.Destinations[0]
		for _, s := range d.Sinks {
			if s.Behind != 0 {
				return false
			}
		}
		return r.Healthy() && r.Ready() && d.LagKnown && d.LagSeconds == 0 && d.LagBytes == 0
	})
}

// row is one line of a file sink.
type row struct {
	Topic   string            `json:"topic"`
	Key     string            `json:"key"`
	Value   json.RawMessage   `json:"value"`
	Headers map[string]string `json:"headers"`
}

// rows returns what the file sink has of a table.
func (s *setup) rows(t *testing.T, table string) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(s.lines)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if strings.HasSuffix(r.Topic, "."+table) {
			rows = append(rows, r)
		}
	}
	return rows
}

// table makes a database of the test's own with a table, and restricts the setup to it.
func (s *setup) table(t *testing.T, db *testenv.Server) string {
	t.Helper()
	name := db.Database()
	db.Exec("CREATE TABLE " + name + ".t (id INT PRIMARY KEY, v LONGTEXT)")
	s.tables = name + ".*"
	return name + ".t"
}

const terminate = syscall.SIGTERM
