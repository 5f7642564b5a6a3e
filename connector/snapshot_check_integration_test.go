//go:build integration

package connector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestCheckSnapshots: what may not be read is told with the grant that lets us, and what cannot be read well with what mends it.
func TestCheckSnapshots(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			user := account(t, s, db, "REPLICATION SLAVE", "REPLICATION CLIENT")
			if s.MariaDB() {
				s.Exec("GRANT REPLICATION SLAVE ADMIN, BINLOG MONITOR ON *.* TO " + user + "@'127.0.0.1'")
			}
			s.Exec("CREATE TABLE `" + db + "`.`a``b` (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE `" + db + "`.plain (id INT PRIMARY KEY) ENGINE=MyISAM")
			s.Exec("CREATE TABLE `" + db + "`.nullable (id INT, UNIQUE KEY (id), v VARCHAR(10) NOT NULL, UNIQUE KEY (v(5)))")
			s.Exec("CREATE TABLE `" + db + "`.other (id INT PRIMARY KEY)")
			con := newConnectorWith(t, s, func(o *Options) { o.User, o.Password = user, "x" }, db+".*")
			found := func(patterns ...string) string {
				t.Helper()
				f, err := tablefilter.New(patterns)
				if err != nil {
					t.Fatal(err)
				}
				text := ""
				for _, f := range con.CheckSnapshots(t.Context(), f) {
					text += fmt.Sprintln(f.Severity, f.What, "->", f.Remedy)
				}
				return text
			}
			want := func(text string, words ...string) {
				t.Helper()
				for _, w := range words {
					no := strings.HasPrefix(w, "!")
					if strings.Contains(text, strings.TrimPrefix(w, "!")) == no {
						t.Errorf("%q in\n%s", w, text)
					}
				}
			}
			account := "'" + user + "'@'127.0.0.1'"
			want(found(), "warning no table of database "+db+" can be seen", "GRANT SELECT ON `"+db+"`.* TO "+account+";", "error user "+user+" may not read all tables", "!ok ")
			s.Exec("GRANT INSERT ON `" + db + "`.* TO " + user + "@'127.0.0.1'")
			s.Exec("GRANT SELECT ON `" + db + "`.other TO " + user + "@'127.0.0.1'")
			want(found(), "error user "+user+" may not read 3 of the tables", "GRANT SELECT ON `"+db+"`.`a``b` TO "+account+";", "GRANT SELECT ON `"+db+"`.`plain` TO "+account+";", "!`other`", "!can be seen")
			want(found(db+".o*"), "ok 1 table can be read", "warning user "+user+" may not read all", "!error")
			want(found("nowhere.*"), "!"+db)
			s.Exec("GRANT SELECT ON `" + db + "`.* TO " + user + "@'127.0.0.1'")
			want(found(), "ok 4 tables can be read", "!may not read all", "warning 1 tables have an engine without transactions", db+".plain", "!error", "!have no key")

			// What the account may by a role, it may.
			s.Exec("REVOKE SELECT ON `" + db + "`.* FROM " + user + "@'127.0.0.1'")
			want(found(), "may not read all tables")
			role := "r" + user
			s.Exec("CREATE ROLE " + role)
			t.Cleanup(func() { s.Exec("DROP ROLE " + role) })
			s.Exec("GRANT SELECT ON `" + strings.ReplaceAll(db, "_", "\\_") + "`.* TO " + role)
			s.Exec("GRANT " + role + " TO " + user + "@'127.0.0.1'")
			if s.MariaDB() {
				s.Exec("SET DEFAULT ROLE " + role + " FOR " + user + "@'127.0.0.1'")
			} else {
				s.Exec("SET DEFAULT ROLE " + role + " TO " + user + "@'127.0.0.1'")
			}
			want(found(), "ok 4 tables can be read", "!may not read all", "!error")

			k := &checker{c: con, addr: s.Addr}
			var err error
			if k.s, err = con.dial(t.Context(), s.Addr); err != nil {
				t.Fatal(err)
			}
			defer k.s.close()
			for table, want := range map[string]bool{"a`b": true, "nullable": false} {
				if got, err := k.keyed(t.Context(), ddl.Name{Schema: db, Table: table}); got != want || err != nil {
					t.Errorf("%s has a key: %t, %v", table, got, err)
				}
			}
		})
	}
}
