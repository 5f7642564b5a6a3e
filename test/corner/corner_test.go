//go:build integration

package corner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

func TestMain(m *testing.M) { leak.Main(m) }

func load(t *testing.T) []*Case {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	var all []*Case
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		cases, err := parse(string(b))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, cases...)
	}
	return all
}

func config(t *testing.T, db *testenv.Server, tables, out string) string {
	t.Helper()
	return fmt.Sprintf("meta: { file: { directory: %q } }\ndestinations:\n", filepath.Join(t.TempDir(), "meta")) + destination(db, "corner", tables, "live", out)
}

func destination(db *testenv.Server, name, tables, versioned, out string) string {
	return fmt.Sprintf(`
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: [%q]
    system_versioned: %s
    ring: { bytes: 1MiB, events: 256 }
    sinks:
      - name: lines
        file: { path: %q, sync: false }
        canal_json: { binary: base64, enum: label }
        ddl_topic: ddl
`, name, db.Addr, db.ReplUser, db.ReplPassword, tables, versioned, out)
}

// end is where the server's log ends.
func end(t *testing.T, db *testenv.Server) (file string, offset int64) {
	t.Helper()
	q := "SHOW MASTER STATUS"
	if db.Kind == "mysql" {
		q = "SHOW BINARY LOG STATUS"
	}
	row := db.Query(q)[0]
	offset, err := strconv.ParseInt(row[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return row[0], offset
}

// settle waits until everything that the server has logged is published.
func settle(t *testing.T, db *testenv.Server, p *process.Child) {
	t.Helper()
	file, offset := end(t, db)
	p.Await("everything to be published", 10*time.Minute, func(r *admin.Report) bool {
		for i := range r.Destinations {
			d := &r.Destinations[i]
			at, _, _ := strings.Cut(d.Position, " ")
			atFile, o, _ := strings.Cut(at, ":")
			n, _ := strconv.ParseInt(o, 10, 64)
			if !((atFile > file || atFile == file && n >= offset) && d.Sinks[0].Behind == 0 || !r.Healthy() && d.State == "failed") {
				return false
			}
		}
		return true
	})
}

// published reads the messages by schema; DDL has that of the statement.
func published(t *testing.T, path string) map[string][]*message {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	by := map[string][]*message{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 256<<20)
	last := int64(-1)
	for s.Scan() {
		m := &message{}
		if err := json.Unmarshal(s.Bytes(), m); err != nil {
			t.Fatalf("%v in %.1000s", err, s.Bytes())
		}
		seq, err := strconv.ParseInt(m.Headers["seq"], 10, 64)
		if err != nil || seq < last {
			t.Errorf("sequence %q behind %d", m.Headers["seq"], last)
		}
		last = seq
		by[m.Value.Database] = append(by[m.Value.Database], m)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return by
}

// schema is the case's own.
func (c *Case) schema() string {
	if c.Raw {
		return "raw_" + c.Name
	}
	return "corner_" + c.Name
}

// run executes the case's statements.
func (c *Case) run(db *testenv.Server) error {
	db.Exec("CREATE DATABASE IF NOT EXISTS " + c.schema() + " CHARACTER SET utf8mb4")
	conn, err := client.Connect(db.Addr, db.User, db.Password, c.schema())
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, q := range append([]string{"SET NAMES utf8mb4", "SET time_zone='+00:00'"}, c.Statements[db.Kind]...) {
		if _, err := conn.Execute(strings.ReplaceAll(q, "{DB}", c.schema())); err != nil {
			return fmt.Errorf("%.300s: %w", q, err)
		}
	}
	return nil
}

// compare holds the messages against the expectations.
func (c *Case) compare(t *testing.T, kind string, msgs []*message) {
	t.Helper()
	var got []string
	for _, m := range msgs {
		if m.Value.IsDDL && !c.DDL {
			continue
		}
		line, err := m.render()
		if err != nil {
			t.Error(err)
		}
		got = append(got, strings.ReplaceAll(line, c.schema(), "{DB}"))
	}
	if want := c.Want[kind]; !slices.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Errorf("%d messages, want %d; equal up to the one of index %d\n got\n%s\n want\n%s", len(got), len(want), i, list(got[i:]), list(want[i:]))
	}
}

func list(lines []string) string {
	if len(lines) > 40 {
		lines = append(slices.Clone(lines[:40]), "...")
	}
	return "> " + strings.Join(lines, "\n> ")
}

// I3, I4, I6: every case gives its messages, in order and in full.
func TestCases(t *testing.T) {
	cases := load(t)
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := testenv.NewMySQL(t, kind) // its own: some cases set global variables
			out, raw := filepath.Join(t.TempDir(), "out.jsonl"), filepath.Join(t.TempDir(), "raw.jsonl")
			file, offset := end(t, db)
			text := config(t, db, "corner_*.*", out) + destination(db, "raw", "raw_*.*", "raw", raw)
			p := process.Start(t, text)
			p.AwaitReady()
			failed := map[string]error{}
			for _, c := range cases {
				if c.Stops == "" && c.runs(kind) {
					db.Exec("DROP DATABASE IF EXISTS " + c.schema())
					failed[c.Name] = c.run(db)
				}
			}
			settle(t, db, p)
			p.Await("health, green or for good red", 10*time.Minute, func(r *admin.Report) bool {
				for i := range r.Destinations {
					if d := &r.Destinations[i]; d.State == "failed" {
						t.Errorf("destination %s has failed: %s", d.Name, d.Error)
					}
				}
				return t.Failed() || r.Healthy()
			})
			p.Stop()
			by := map[bool]map[string][]*message{false: published(t, out), true: published(t, raw)}
			for _, c := range cases {
				if c.Stops != "" || !c.runs(kind) {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					if err := failed[c.Name]; err != nil {
						t.Error(err)
					}
					c.compare(t, kind, by[c.Raw][c.schema()])
				})
				db.Exec("DROP DATABASE IF EXISTS " + c.schema())
			}
			if !db.RowMetadata() {
				return // what cannot be followed without column names is TestNamelessBacklog's
			}
			// I6: as a backlog of which no table is left, it reads as it did while the tables were there.
			dir := t.TempDir()
			late := map[bool]string{false: filepath.Join(dir, "out.jsonl"), true: filepath.Join(dir, "raw.jsonl")}
			except := ""
			for _, c := range cases {
				if c.Present {
					except += fmt.Sprintf(", %q", "!"+c.schema()+".*")
				}
			}
			text = strings.NewReplacer("tables: [", fmt.Sprintf("start: \"%s:%d\"\n    tables: [", file, offset), `_*.*"`, `_*.*"`+except,
				fmt.Sprintf("%q", out), fmt.Sprintf("%q", late[false]), fmt.Sprintf("%q", raw), fmt.Sprintf("%q", late[true]), `meta"`, `late"`).Replace(text)
			p = process.Start(t, text)
			settle(t, db, p)
			p.Stop()
			by = map[bool]map[string][]*message{false: published(t, late[false]), true: published(t, late[true])}
			for _, c := range cases {
				if c.Stops == "" && c.runs(kind) && failed[c.Name] == nil && !c.Present {
					t.Run(c.Name+" as a backlog", func(t *testing.T) {
						all := by[c.Raw][c.schema()]
						if n := len(all); n > 0 && all[n-1].Value.IsDDL && strings.HasPrefix(all[n-1].Value.SQL, "DROP DATABASE") {
							all = all[:n-1] // ours, behind the case
						}
						c.compare(t, kind, all)
					})
				}
			}
		})
	}
}

// I3: what cannot be read or sent stops the destination with an error that says so, publishes nothing of it,
// and ends the program; behind it, it goes on once the cursor is moved.
func TestStops(t *testing.T) {
	for _, c := range load(t) {
		for _, kind := range testenv.Kinds {
			if c.Stops == "" || !c.runs(kind) {
				continue
			}
			t.Run(c.Name+"/"+kind, func(t *testing.T) {
				db := testenv.MySQL(t, kind)
				db.Exec("DROP DATABASE IF EXISTS " + c.schema())
				t.Cleanup(func() { db.Exec("DROP DATABASE IF EXISTS " + c.schema()) })
				out := filepath.Join(t.TempDir(), "out.jsonl")
				cfg := config(t, db, c.schema()+".*", out)
				p := process.Start(t, cfg)
				p.AwaitReady()
				if err := c.run(db); err != nil {
					t.Fatal(err)
				}
				if code := p.Wait(5 * time.Minute); code != 1 {
					t.Errorf("exit code %d", code)
				}
				if log := p.Log(); !strings.Contains(log, c.Stops) || !strings.Contains(log, "cursor set") && !strings.Contains(log, "schema forget") && !strings.Contains(log, "remedy") {
					t.Errorf("it says\n%s\nwithout %q", log, c.Stops)
				}
				c.compare(t, kind, published(t, out)[c.schema()])
			})
		}
	}
}
