//go:build integration

package connector

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// I3: a row that gets a key of where all is read already, while the log tells no more of it than that, is shown as a whole all the same.
func TestSnapshotOfRowsThatMove(t *testing.T) {
	for kind, image := range map[string]string{"mysql": "MINIMAL", "mariadb11": "NOBLOB"} {
		t.Run(kind+" "+image, func(t *testing.T) {
			t.Parallel()
			const rows = 60
			s := testenv.MySQL(t, kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".t (id INT PRIMARY KEY, n INT, pad TEXT)")
			var values []string
			for id := range rows {
				values = append(values, fmt.Sprintf("(%d, %d, 'p%d')", id, id, id))
			}
			s.Exec("INSERT INTO " + db + ".t VALUES " + strings.Join(values, ","))
			log := snapshot.NewLog(nil)
			c := newConnectorWith(t, s, func(o *Options) {
				o.Start, o.Snapshots, o.Snapshot = "latest", log, SnapshotOptions{ChunkRows: 10, RowsPerSecond: 20}
			}, db+".*")
			from := start(t, c)
			if err := log.Order(t.Context(), snapshot.Request{ID: "first"}); err != nil {
				t.Fatal(err)
			}
			over := make(chan []*event.Event, 1)
			go func() {
				defer close(over)
				all, err := collect(t.Context(), c, from, marker(db+".done_"))
				if err != nil {
					t.Errorf("Read ended: %v", err)
				}
				over <- all
			}()
			for until := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Millisecond) {
				if st := log.Status(); len(st.Ended) > 0 || st.Progress != nil && len(st.Progress.Last) > 0 {
					break
				}
				if time.Now().After(until) {
					t.Fatalf("%+v", log.Status())
				}
			}
			partial := s.Connect(db)
			for _, q := range []string{"SET SESSION binlog_row_image=" + image, fmt.Sprintf("UPDATE t SET id=-1 WHERE id=%d", rows-1)} {
				if _, err := partial.Execute(q); err != nil {
					t.Fatal(err)
				}
			}
			for until := time.Now().Add(4 * time.Minute); len(log.Status().Ended) == 0 && time.Now().Before(until); {
				time.Sleep(10 * time.Millisecond)
			}
			s.Exec("CREATE TABLE " + db + ".done_ (id INT)")

			// What consumers have that write over what they know.
			have := map[int][3]string{}
			for _, e := range <-over {
				var scan event.Scanner
				for scan.Reset(e); e.Kind == event.Rows && scan.Next(); {
					key := func(v []event.Value) int {
						text, err := v[0].AppendText(nil)
						if err != nil {
							t.Fatal(err)
						}
						id, _ := strconv.Atoi(string(text))
						return id
					}
					row := scan.Row()
					var now [3]string
					if row.Before != nil {
						now = have[key(row.Before)]
						delete(have, key(row.Before))
					}
					for i := range row.After {
						if row.After[i].IsAbsent() {
							continue
						}
						text, err := row.After[i].AppendText(nil)
						if err != nil {
							t.Fatal(err)
						}
						now[i] = string(text)
					}
					have[key(row.After)] = now
				}
			}
			if len(have) != rows {
				t.Errorf("%d rows", len(have))
			}
			for id, row := range have {
				was := id
				if id < 0 {
					was = rows - 1
				}
				if want := [3]string{strconv.Itoa(id), strconv.Itoa(was), "p" + strconv.Itoa(was)}; row != want {
					t.Errorf("row %q, want %q", row, want)
				}
			}
		})
	}
}
