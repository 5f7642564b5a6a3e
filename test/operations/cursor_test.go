//go:build integration

package operations

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

func epoch(t *testing.T, show string) int64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *epoch +(\d+)$`).FindStringSubmatch(show)
	if m == nil {
		t.Fatalf("no epoch in\n%s", show)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCursorCommands proves that a cursor can be looked at and moved, and that after each move the program goes on there
// with a new epoch and numbers never used (I5).
func TestCursorCommands(t *testing.T) {
	db := testenv.NewMySQL(t, "mysql") // of whose log the test reads everything
	s := newSetup(t, db)
	table := s.table(t, db)
	rows := func(n int, f func()) {
		t.Helper()
		before := len(s.rows(t, "t"))
		p := process.Start(t, s.text())
		p.AwaitReady()
		f()
		p.Await(fmt.Sprint(n, " rows"), patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages == int64(n) })
		// Reading takes no lock.
		if r := command(t, patience, "", "cursor", "show", "-c", s.file(t)); r.code != 0 {
			t.Errorf("cursor show beside the running program: %d %s", r.code, r.errs)
		}
		p.Stop()
		if got := len(s.rows(t, "t")) - before; got != n {
			t.Errorf("%d rows, not %d", got, n)
		}
		risingSequences(t, s.rows(t, "t"))
	}
	cursor := func(code int, stdin string, args ...string) result {
		t.Helper()
		r := command(t, patience, stdin, append(append([]string{"cursor"}, args...), "-c", s.file(t))...)
		if r.code != code {
			t.Fatalf("cursor %v: exit code %d, not %d\n%s%s", args, r.code, code, r.out, r.errs)
		}
		neat(t, r.out+r.errs)
		return r
	}
	show := func() string { t.Helper(); return cursor(0, "", "show").out }

	r := command(t, patience, "", "cursor", "show", "-c", s.file(t))
	holds(t, "cursor show before the first start", r.out+r.errs, s.meta)

	file, offset := end(t, db)
	gtids := db.Query("SELECT @@GLOBAL.gtid_executed")[0][0]
	rows(1, func() { db.Exec("INSERT INTO " + table + " VALUES (1, 'a')") })
	text := show()
	holds(t, "cursor show", text, s.name+"/sink-out", "position", "gtids", "ordinal", "epoch", "saved")
	was := epoch(t, text)

	// It asks first.
	r = cursor(1, "no\n", "set", "--at", "earliest")
	holds(t, "the question", r.out, s.name+"/sink-out goes to", "new epoch", "Type yes")
	holds(t, "the refusal", r.errs, "nothing was changed")
	if show() != text {
		t.Error("the cursor moved although it was not to")
	}
	r = cursor(2, "", "set", "--at", "latest", "--destination", "nosuch")
	holds(t, "unknown destination", r.errs, "nosuch", "shop")
	cursor(2, "", "set")
	cursor(2, "", "set", "--at", "snapshot", "--yes")
	cursor(1, "", "set", "--at", "nosuch.000001:4", "--yes")
	if show() != text {
		t.Error("a refused move changed the cursor")
	}

	for _, c := range []struct {
		at   string
		rows int // row changes since
	}{
		{fmt.Sprintf("%s:%d", file, offset), 1},
		{"gtid:" + strings.ReplaceAll(gtids, "\n", ""), 2},
		{"latest", 0},
	} {
		r = cursor(0, "yes\n", "set", "--at", c.at)
		holds(t, "cursor set", r.out, "moved")
		rows(c.rows+1, func() { db.Exec("INSERT INTO " + table + " (id, v) SELECT MAX(id)+1, 'x' FROM " + table + " AS o") })
		now := epoch(t, show())
		if now <= was {
			t.Errorf("epoch %d after %d", now, was)
		}
		was = now
	}
	// All there is, of this table.
	cursor(0, "", "set", "--at", "earliest", "--yes")
	rows(4, func() {})
	if now := epoch(t, show()); now <= was {
		t.Errorf("epoch %d after %d", now, was)
	}
}
