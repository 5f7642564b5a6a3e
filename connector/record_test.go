//go:build record

package connector

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestRecord writes the packets that each server sends for the statements of
// binlog/testdata/record/KIND.sql to KIND.stream beside it, which the unit tests of
// binlog and schema read. It runs with the build tags integration and record.
func TestRecord(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			server := testenv.NewMySQL(t, kind)
			base := filepath.Join("binlog", "testdata", "record", kind)
			script, err := os.ReadFile(base + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			c := newConnector(t, server, "latest")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cur, err := c.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range strings.Split(string(script), ";\n") {
				if q = strings.TrimSpace(q); q != "" {
					server.Exec(q)
				}
			}
			s, sv, err := c.connect(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			_, end, _, err := s.binlogStatus(ctx, sv)
			if err != nil {
				t.Fatal(err)
			}
			pos := cur.Position
			pos.GTIDs = event.GTIDSet{} // by file and offset: the transactions and nothing before them
			if err := c.dump(ctx, s, sv, c.identity(0), pos); err != nil {
				t.Fatal(err)
			}
			tee := &teeReader{r: &readGuard{nc: s.conn.Conn.Conn, timeout: 10 * time.Second, ctx: ctx}}
			stream := binlog.NewStream(tee)
			m := c.scanner(pos, func(*event.Event) error { return nil })
			for {
				raw, err := stream.Next()
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Feed(&raw); err != nil {
					t.Fatal(err)
				}
				if _, o := m.Position(); o == end && !stream.Ready() {
					break
				}
			}
			if err := os.WriteFile(base+".stream", tee.b, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type teeReader struct {
	r *readGuard
	b []byte
}

func (t *teeReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.b = append(t.b, p[:n]...)
	return n, err
}
