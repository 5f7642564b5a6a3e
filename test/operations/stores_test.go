//go:build integration

package operations

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestSkipAndMoveI5: a destination passes over one transaction that it cannot publish, and over nothing else; numbers go
// on as they would have, in each start; and cursors move from one store to another with all that. The same commands work on both stores and refuse while
// somebody owns the destination.
func TestSkipAndMoveI5(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	s := newSetup(t, db)
	table := s.table(t, db)
	zoo := func() string {
		z := testenv.ZooKeeper(t)
		root := "/binlogmq-test/" + testenv.Name(t)
		return strings.Replace(s.text(), fmt.Sprintf("file: { directory: %q }", s.meta), fmt.Sprintf("zookeeper: { servers: [%q], session_timeout: 4s, root: %q }", z.Servers[0], root), 1)
	}
	inFiles, inZooKeeper := s.text(), zoo()
	run := func(config string, code int, args ...string) result {
		t.Helper()
		r := command(t, patience, "no\n", append(append([]string{"cursor"}, args...), "-c", writeFile(t, config))...)
		if r.code != code {
			t.Fatalf("cursor %v: exit code %d, not %d\n%s%s", args, r.code, code, r.out, r.errs)
		}
		if args[0] != "export" {
			neat(t, r.out+r.errs)
		}
		return r
	}
	next := 0
	insert := func() { next++; db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'row')", table, next)) }
	c := db.Connect("")
	var gtid string
	// unreadable writes a transaction that stops the destination, and returns its GTID.
	unreadable := func(config string) string {
		t.Helper()
		p := process.Start(t, config)
		p.AwaitReady()
		insert()
		for _, q := range []string{"SET SESSION binlog_format=STATEMENT", "UPDATE " + table + " SET v='statement' WHERE id=1", "SET SESSION binlog_format=ROW"} {
			if _, err := c.Execute(q); err != nil {
				t.Fatal(err)
			}
		}
		insert()
		if code := p.Wait(patience); code != 1 {
			t.Fatalf("exit code %d", code)
		}
		m := regexp.MustCompile(`GTID ([0-9a-f-]+:\d+)`).FindStringSubmatch(p.Log())
		if m == nil {
			t.Fatalf("no GTID in\n%s", p.Log())
		}
		return m[1]
	}
	total := func(config string, rows, skipped int64) {
		t.Helper()
		p := process.Start(t, config)
		p.AwaitReady()
		insert()
		p.Await("the rows", patience, func(r *admin.Report) bool {
			d := r.Destinations[0]
			return len(d.Sinks) == 1 && d.Sinks[0].Messages == rows && d.Skipped == skipped
		})
		if r := run(config, 1, "skip", "--gtid", gtid, "--yes"); !strings.Contains(r.errs, "in use by process") && !strings.Contains(r.errs, "is owned by") {
			t.Errorf("skip beside the running program: %s", r.errs)
		}
		p.Stop()
		got := s.rows(t, "t")
		risingSequences(t, got)
		if len(got) != next {
			t.Errorf("%d rows arrived, %d were inserted", len(got), next)
		}
	}

	for _, config := range []string{inFiles, inZooKeeper} {
		if config == inZooKeeper {
			text := run(inFiles, 0, "export").out
			file := filepath.Join(t.TempDir(), "cursors.json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if !json.Valid([]byte(text)) {
				t.Fatalf("export:\n%s", text)
			}
			r := run(config, 1, "import", "--from", file)
			holds(t, "the question", r.out, s.name+"/sink-out goes to", "must not run any more", "Type yes")
			run(config, 1, "import", "--from", file, "--destination", "other")
			run(config, 0, "import", "--from", file, "--yes")
			if again := run(config, 0, "export").out; again != text {
				t.Errorf("exported from ZooKeeper:\n%s\nfrom files:\n%s", again, text)
			}
			r = run(config, 1, "import", "--from", file)
			holds(t, "import over a cursor", r.out, "in place of")
			holds(t, "check", command(t, patience, "", "check", "-c", writeFile(t, config)).out, "\nmeta ZooKeeper ", "reachable, 1 cursors below /binlogmq-test/")
		}
		gtid = unreadable(config)
		before := len(s.rows(t, "t"))
		r := run(config, 1, "skip", "--gtid", gtid) // it asks first
		holds(t, "the question", r.out, "passes over transaction "+gtid, "never will be", "Type yes")
		run(config, 2, "skip", "--gtid", "nonsense")
		far := gtid[:strings.LastIndexByte(gtid, ':')+1] + strconv.Itoa(1<<40)
		holds(t, "a GTID that is not there", run(config, 1, "skip", "--gtid", far, "--yes").errs, "reading stops before it comes to transaction")
		run(config, 0, "skip", "--gtid", gtid, "--yes")
		holds(t, "cursor show", run(config, 0, "show").out, gtid)
		total(config, 2, 1) // the row behind it, and a new one
		if got := s.rows(t, "t")[before:]; len(got) != 2 {
			t.Errorf("%d rows behind the skipped transaction", len(got))
		}
		total(config, 1, 0) // started again: all as usual
		holds(t, "skip of what is passed", run(config, 1, "skip", "--gtid", gtid, "--yes").errs, "nothing to skip")
	}
	// The numbers have no gap but the skipped transactions' own, and no new epoch began.
	rows := s.rows(t, "t")
	first, last := rows[0].Headers["seq"], rows[len(rows)-1].Headers["seq"]
	a, err1 := strconv.ParseInt(first, 10, 64)
	b, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil || b-a > 1<<20 {
		t.Errorf("numbers from %s to %s: a new epoch began", first, last)
	}
}
