//go:build integration

package connector

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// TestFileOver4GiB: without GTIDs the dump command has 32 bits for an offset; behind them the file is read from its start and
// passed over by our own count. With BINLOGMQ_LARGE_FILES=1 the file is that large, which takes minutes and 9 GiB on disk; without, the
// same is done at an offset that the command could name.
func TestFileOver4GiB(t *testing.T) {
	s := testenv.NewMySQL(t, "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--max-binlog-size=1073741824")
	rows, large := 3, os.Getenv("BINLOGMQ_LARGE_FILES") != ""
	if large {
		rows = 280
	}
	s.Exec("CREATE DATABASE shop")
	s.Exec("CREATE TABLE shop.big (id INT, b LONGBLOB) ENGINE=BLACKHOLE") // one statement is one transaction, which keeps to one file
	s.Exec("CREATE TABLE shop.t (id INT PRIMARY KEY)")
	c := newConnector(t, s, "latest", "shop.t")
	from := start(t, c)
	s.Exec(fmt.Sprintf("INSERT INTO shop.big WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i, REPEAT('x', 16000000) FROM n", rows))
	events := readUntil(t, c, from, func(e *event.Event) bool { return e.Kind == event.End })
	last := events[len(events)-1]
	if file := s.Query("SHOW BINARY LOGS")[0]; last.File != file[0] || last.File != from.Position.File || large != (last.Next > math.MaxUint32) {
		t.Fatalf("the transaction ends at %s:%d, the server's file is %s", last.File, last.Next, file)
	}
	s.Exec("INSERT INTO shop.t VALUES (1)") // in the next file, if this one is full
	cursor := event.Cursor{Position: event.Position{File: last.File, Offset: last.Next, ServerUUID: last.Txn.ServerUUID}, Ordinal: last.Ordinal}
	began := time.Now()
	seen := false // a file that begins shows as an empty transaction
	events = readUntil(t, c, cursor, func(e *event.Event) bool {
		seen = seen || e.Kind == event.Rows
		return seen && e.Kind == event.End
	})
	t.Logf("read on behind %d bytes after %v", last.Next, time.Since(began).Round(time.Millisecond))
	if got := strings.Join(rowsOf(events, "t"), " "); got != "i1" || !large && events[0].Start != last.Next {
		t.Errorf("rows %q, from offset %d, want i1 from %d", got, events[0].Start, last.Next)
	}

	// The passing over by itself, wherever the place lies; and a place where no transaction ends.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, off := range []uint64{0, 1} {
		conn, sv, err := c.connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.dump(ctx, conn, sv, c.identity(0), event.Position{File: last.File, Offset: 4}); err != nil {
			t.Fatal(err)
		}
		stream := c.stream(ctx, conn, nil)
		err = c.skipTo(stream, last.File, last.Next-off)
		if (err == nil) != (off == 0) || err != nil && !strings.Contains(err.Error(), "no transaction ends at") {
			t.Errorf("to %d: %v", last.Next-off, err)
		}
		conn.close()
	}
}
