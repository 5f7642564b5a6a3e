//go:build integration

package compat

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestCanalsFiltersReplaceTables: with canal.filter: replace the filters of Canal's Java and Python clients decide alone what they see, as with Canal, but for what the
// destination's tables exclude; in any case, and also of tables that nobody had asked for when they were changed. A client without a filter sees the
// destination's tables. With narrow, the default, it is what both let through.
func TestCanalsFiltersReplaceTables(t *testing.T) {
	db := testenv.NewMySQL(t, "mariadb") // all tables of the server are read, others' too
	schema, other := db.Database(), "Elsewhere"
	db.Exec("CREATE DATABASE " + other)
	tables := []string{schema + ".a_one", schema + ".a_secret", schema + ".b_one", schema + ".Mixed", other + ".b_one"}
	for _, name := range tables {
		db.Exec("CREATE TABLE " + name + " (id INT PRIMARY KEY)")
	}
	type run struct {
		replace bool
		client  string
		filter  string
		sees    []string
	}
	clients := map[string]func(at []string, filter, last string) [][]byte{
		"Java 1.1.8": func(at []string, filter, last string) [][]byte {
			return java(t, canalClient("1.1.8"), "CanalClient", nil, append(at, filter, last)...)
		},
		"Java 1.1.4": func(at []string, filter, last string) [][]byte {
			return java(t, canalClient("1.1.4"), "CanalClient", nil, append(at, filter, last)...)
		},
		"Python": func(at []string, filter, last string) [][]byte {
			return python(t, canalPython, "canal_client", append(at, filter, last)...)
		},
	}
	runs := []run{
		{true, "Java 1.1.8", schema + `\.b_.*`, []string{schema + ".b_one"}},
		{true, "Java 1.1.4", strings.ToUpper(schema) + `\.A_.*,` + schema + `\.mixed,elsewhere\.b_(one|two)`, []string{schema + ".a_one", schema + ".Mixed", other + ".b_one"}},
		{true, "Python", `.*\..*`, []string{schema + ".a_one", schema + ".b_one", schema + ".Mixed", other + ".b_one"}},
		{true, "Java 1.1.8", "", []string{schema + ".a_one"}},
		{false, "Java 1.1.8", schema + `\.(a_.*|b_.*)`, []string{schema + ".a_one"}},
		{false, "Python", `.*\..*`, []string{schema + ".a_one"}},
	}
	for i := range runs {
		db.Exec(fmt.Sprintf("CREATE TABLE %s.a_last%d (id INT PRIMARY KEY)", schema, i))
	}
	status := db.Query("SHOW MASTER STATUS")[0]
	var child *process.Child
	var at []string
	for i, r := range runs {
		if i == 0 || r.replace != runs[i-1].replace {
			if child != nil {
				child.Stop()
				status = db.Query("SHOW MASTER STATUS")[0]
			}
			mode := map[bool]string{true: "replace", false: "narrow"}[r.replace]
			address := process.FreeAddress(t)
			child = process.Start(t, fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
canal: { listen: %q, user: canal, password: canal, allow_clear_text: true, filter: %s }
destinations:
  - name: all
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.a_*", "!%s.a_secret"]
    start: "%s:%s"
`, filepath.Join(t.TempDir(), mode), address, mode, db.Addr, db.ReplUser, db.ReplPassword, schema, schema, status[0], status[1]))
			child.AwaitReady()
			host, port, _ := net.SplitHostPort(address)
			at = []string{host, port, "all", "canal", "canal"}
		}
		for _, name := range tables {
			db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d)", name, i))
		}
		last := fmt.Sprint("a_last", i)
		db.Exec(fmt.Sprintf("INSERT INTO %s.%s VALUES (1)", schema, last))
		filter := r.filter
		if filter != "" {
			filter += "," + schema + `\.` + last
		}
		var sees []string
		for _, line := range clients[r.client](slices.Clone(at), filter, last) {
			f := strings.Split(string(line), "\t")
			if f[0] != "row" || strings.HasPrefix(f[2], "a_last") {
				continue
			}
			if id := readCanalClient(t, [][]byte{line})[0].Data["id"]; id != fmt.Sprint(i) {
				t.Errorf("run %d: row %v of %s.%s", i, id, f[1], f[2])
			}
			sees = append(sees, f[1]+"."+f[2])
		}
		if !slices.Equal(sees, r.sees) {
			t.Errorf("run %d: %s with filter %q, replace %t, sees %q, want %q", i, r.client, filter, r.replace, sees, r.sees)
		}
	}
	child.Stop()
}
