package binlog_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

var charsets = map[uint32]string{
	8: "latin1", 28: "gbk", 33: "utf8mb3", 45: "utf8mb4", 46: "utf8mb4", 63: "binary", 83: "utf8mb3", 224: "utf8mb4", 255: "utf8mb4", 2304: "utf8mb4", 309: "utf8mb4",
}

// machine returns a Machine as the connector builds one, which captures shop.*.
func machine(tb testing.TB, mariaDB bool, emit func(*event.Event) error) *binlog.Machine {
	f, err := tablefilter.New([]string{"shop.*"})
	if err != nil {
		tb.Fatal(err)
	}
	m := binlog.NewMachine(binlog.Options{
		Destination: "shop", ServerUUID: "u", Match: f.Match, Emit: emit,
		Tables: schema.New(schema.Options{MariaDB: mariaDB, Charsets: charsets}),
	})
	tb.Cleanup(m.Close)
	return m
}

// TestRecordedStreams runs streams that real servers sent through framing,
// parsers, tables and state machine.
func TestRecordedStreams(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			base := filepath.Join("testdata", "record", kind)
			in, err := os.ReadFile(base + ".stream")
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			var check checker
			m := machine(t, kind != "mysql", func(e *event.Event) error {
				check.event(t, e)
				return transcribe(&out, e)
			})
			s := binlog.NewStream(bytes.NewReader(in))
			for {
				raw, err := s.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Feed(&raw); err != nil {
					t.Fatal(err)
				}
				if !raw.Owned { // nothing may point into the reader's buffer
					for i := range raw.Data {
						raw.Data[i] = 0xaa
					}
				}
			}
			golden(t, base+".golden", out.Bytes())
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", file, firstDifference(string(got), string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			expected := "(nothing)"
			if i < len(w) {
				expected = w[i]
			}
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], expected)
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

func transcribe(w io.Writer, e *event.Event) error {
	fmt.Fprintf(w, "%s ordinal=%d index=%d %s:%d-%d time=%d", e.Kind, e.Ordinal, e.Index, e.File, e.Start, e.Next, e.Time)
	switch e.Kind {
	case event.Begin:
		fmt.Fprintf(w, " gtid=%s server=%d thread=%d commit=%d\n", e.Txn.GTID, e.Txn.ServerID, e.Txn.ThreadID, e.Txn.Time)
	case event.DDL:
		fmt.Fprintf(w, " [%s] %q\n", e.Schema, e.Raw)
	case event.End:
		fmt.Fprintf(w, " xid=%d\n", e.XID)
	case event.Rows:
		fmt.Fprintf(w, " %s %s.%s rows=%d last=%v key=%v\n", e.Op, e.Table.Schema, e.Table.Name, e.Rows, e.Last, e.Table.Key)
		var s event.Scanner
		s.Reset(e)
		for s.Next() {
			r := s.Row()
			image(w, "-", r.Before)
			image(w, "+", r.After)
		}
		return s.Err()
	}
	return nil
}

func image(w io.Writer, sign string, values []event.Value) {
	if values == nil {
		return
	}
	fmt.Fprintf(w, "  %s", sign)
	for i := range values {
		v := &values[i]
		c := v.Column()
		switch {
		case v.IsAbsent():
		case v.IsNull():
			fmt.Fprintf(w, " %s=NULL", c.Name)
		default:
			text, err := v.AppendText(nil)
			if err != nil {
				text = []byte(err.Error())
			}
			if len(text) > 60 {
				text = fmt.Appendf(text[:20], "... (%d bytes)", len(text))
			}
			fmt.Fprintf(w, " %s:%s=%q", c.Name, c.SQLType, text)
		}
	}
	fmt.Fprintln(w)
}

// checker holds what is true of every stream.
type checker struct {
	last  int64 // number given last
	index int64
	open  bool
	only  *event.Event // last counted event
	pos   uint64
	file  string
}

func (c *checker) event(t *testing.T, e *event.Event) {
	t.Helper()
	if e.Txn == nil || e.Size <= 0 || e.Start > e.Next {
		t.Errorf("incomplete event: %+v", e)
	}
	if e.File == c.file && e.Start < c.pos {
		t.Errorf("event at %d behind one at %d", e.Start, c.pos)
	}
	c.file, c.pos = e.File, e.Start
	if e.Kind == event.Begin {
		if c.open {
			t.Error("two Begins")
		}
		c.open, c.index, c.only = true, 0, nil
		return
	}
	if !c.open {
		t.Errorf("%s without Begin", e.Kind)
	}
	// I5: numbers without a gap.
	if e.Ordinal != c.last+1 || e.Index != c.index {
		t.Errorf("%s has ordinal %d, index %d; want %d, %d", e.Kind, e.Ordinal, e.Index, c.last+1, c.index)
	}
	c.last = e.Ordinal
	switch e.Kind {
	case event.Rows:
		c.last += int64(e.Rows) - 1
		c.index += int64(e.Rows)
		var s event.Scanner
		s.Reset(e)
		n := 0
		for s.Next() {
			n++
		}
		if s.Err() != nil || n != int(e.Rows) || n == 0 {
			t.Errorf("%d rows, counted %d: %v", n, e.Rows, s.Err())
		}
	case event.End:
		c.open = false
	}
	if c.only != nil && c.only.Kind == event.Rows && c.only.Last != (e.Kind == event.End) {
		t.Errorf("rows event %d says last=%v before a %s", c.only.Ordinal, c.only.Last, e.Kind)
	}
	c.only = e
}
