//go:build integration

package connector

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestDoubtfulLabels: a question mark in a label is taken as one where the server does not tell (I6: which is said once), and asked about where it tells.
func TestDoubtfulLabels(t *testing.T) {
	enum, set := []string{"x", "?", "a?"}, []string{"?1", "2", "3", "4", "5", "6", "7", "8", "?9"}
	for kind, told := range map[string]string{"mysql56": "e s", "mysql": "", "mariadb": "s"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			db := s.Database()
			s.Exec("CREATE TABLE `" + db + "`.t (id INT PRIMARY KEY, e ENUM('" + strings.Join(enum, "','") + "'), s SET('" + strings.Join(set, "','") + "')) CHARACTER SET utf8mb4")
			var log bytes.Buffer
			c := newConnectorWith(t, s, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, db+".*")
			session, sv, err := c.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer session.close()
			sv.vars["binlog_row_metadata"] = "MINIMAL"
			k := &catalog{ctx: t.Context(), c: c, addr: s.Addr, sv: sv}
			name := sv.ddl().Fold(ddl.Name{Schema: db, Table: "t"})
			for range 2 {
				all, err := k.read(session, func(schema string) bool { return schema == db }, nil)
				if err != nil {
					t.Fatal(err)
				}
				table := all[name]
				if table == nil || len(table.Columns) != 3 || !slices.Equal(table.Columns[1].Members, enum) || !slices.Equal(table.Columns[2].Members, set) {
					t.Fatalf("%+v", table)
				}
			}
			for _, column := range []string{"e", "s"} {
				want := 0
				if slices.Contains(strings.Fields(told), column) {
					want = 1
				}
				if n := strings.Count(log.String(), name.String()+"."+column+" "); n != want {
					t.Errorf("%s is told %d times, not %d\n%s", column, n, want, &log)
				}
			}
		})
	}
}
