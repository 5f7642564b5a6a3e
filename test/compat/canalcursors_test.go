//go:build integration

package compat

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// follower is a client that notes the ids of the rows that it gets.
type follower struct {
	t   *testing.T
	c   *client.TCP
	ids []int
	// again is set when it has connected: a transaction whose end was not acknowledged may come again, whole.
	again bool
}

func follow(t *testing.T, address, destination string, id int16) *follower {
	t.Helper()
	c, err := client.NewTCP(client.TCPOptions{Address: address, Destination: destination, ClientID: id, User: "canal", Password: "canal"})
	f := &follower{t: t, c: c}
	f.must(err)
	f.connect()
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	f.must(c.Subscribe(t.Context(), `.*\.numbers`))
	return f
}

func (f *follower) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *follower) connect() {
	f.t.Helper()
	f.must(f.c.Connect(f.t.Context()))
	f.again = true
}

// perTransaction is how many rows a transaction has.
const perTransaction = 10

// add notes the ids of a batch that was acknowledged.
func (f *follower) add(ids []int) {
	if len(ids) == 0 {
		return
	}
	if n := ids[0] - 1; f.again && n < len(f.ids) && n%perTransaction == 0 && n >= len(f.ids)-perTransaction {
		f.ids = f.ids[:n]
	}
	f.again = false
	f.ids = append(f.ids, ids...)
}

// get returns a batch that is not empty, and its ids.
func (f *follower) get(size int) (batch int64, ids []int) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; {
		m, err := f.c.GetWithoutAck(f.t.Context(), size, client.Wait(100*time.Millisecond))
		f.must(err)
		if m.ID == client.NoBatch {
			if time.Now().After(end) {
				f.t.Fatalf("nothing came behind %v", last(f.ids))
			}
			continue
		}
		for _, raw := range m.Entries {
			e, err := client.ParseEntry(raw)
			f.must(err)
			if e.Type != client.RowData {
				continue
			}
			change, err := client.ParseRowChange(e.Store)
			f.must(err)
			for _, row := range change.Rows {
				id, err := strconv.Atoi(row.After[0].Value)
				f.must(err)
				ids = append(ids, id)
			}
		}
		return m.ID, ids
	}
}

// to gets and acknowledges up to the row with the id.
func (f *follower) to(id int) {
	f.t.Helper()
	for last(f.ids) < id {
		batch, ids := f.get(16)
		f.must(f.c.Ack(f.t.Context(), batch))
		f.add(ids)
	}
}

// settle returns when the server has dealt with what was acknowledged, which it does not tell: the next answer does.
func (f *follower) settle() {
	f.t.Helper()
	_, err := f.c.GetWithoutAck(f.t.Context(), 1, client.NoWait)
	f.must(err)
}

func last(ids []int) int {
	if len(ids) == 0 {
		return 0
	}
	return ids[len(ids)-1]
}

// complete checks that the ids are 1 to n, each once and in order.
func (f *follower) complete(who string, n int) {
	f.t.Helper()
	for i, id := range f.ids {
		if id != i+1 {
			f.t.Fatalf("%s: behind %v comes %d", who, f.ids[max(0, i-3):i], id)
		}
	}
	if len(f.ids) != n {
		f.t.Errorf("%s: %d rows, want %d", who, len(f.ids), n)
	}
}

// TestEachClientItsCursor: clients of one destination whose ring is far too small for what they lag behind do not hold up each other,
// nor the sink beside them: one that reads on, one that stands still with a batch in hands and goes on when all is written, one that is away
// meanwhile and while the program is restarted, one that rolls back to batches. Each sees everything in order (I1, I2).
func TestEachClientItsCursor(t *testing.T) {
	db := testenv.MySQL(t, "mysql")
	schema := db.Database()
	db.Exec("CREATE TABLE " + schema + ".numbers (id INT PRIMARY KEY, pad VARCHAR(100))")
	name, file, address := testenv.Name(t), filepath.Join(t.TempDir(), "out.jsonl"), process.FreeAddress(t)
	config := fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q } }
canal: { listen: %q, user: canal, password: canal }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.*"]
    ring: { events: 128 }
    detach_after: 50ms
    sinks:
      - name: file
        file: { path: %q, values_only: true }
`, filepath.Join(t.TempDir(), "meta"), address, name, db.Addr, db.ReplUser, db.ReplPassword, schema, file)
	child := process.Start(t, config)
	child.AwaitReady()
	written := 0
	write := func(transactions int) {
		for range transactions {
			var rows []string
			for range perTransaction {
				written++
				rows = append(rows, fmt.Sprintf("(%d,'%s')", written, strings.Repeat("x", written%100)))
			}
			db.Exec("INSERT INTO " + schema + ".numbers VALUES " + strings.Join(rows, ","))
		}
	}
	quick, still, away, back := follow(t, address, name, 1), follow(t, address, name, 2), follow(t, address, name, 3), follow(t, address, name, 4)

	write(20)
	quick.to(written)
	away.to(written)
	f := away
	f.must(f.c.Disconnect(t.Context()))
	held, ids := still.get(1)
	still.add(ids)

	// Rolling back to a batch gives it and what follows again, and leaves the one before as it is.
	one, ones := back.get(1)
	two, twos := back.get(1)
	_, threes := back.get(1)
	back.must(back.c.RollbackTo(t.Context(), two))
	four, again := back.get(2)
	if want := slices.Concat(twos, threes); four == two || len(again) == 0 || !slices.Equal(again[:min(len(again), len(want))], want[:min(len(again), len(want))]) {
		t.Errorf("batch %d after rolling back to %d: %v, want %v", four, two, again, want)
	}
	back.must(back.c.Ack(t.Context(), one))
	back.must(back.c.Ack(t.Context(), four))
	back.add(slices.Concat(ones, again))

	for range 40 { // some ten times what the ring holds
		write(10)
		quick.to(written)
	}
	back.to(written)
	still.must(still.c.Ack(t.Context(), held))
	still.to(written)

	// The program is restarted; then everybody goes on where it was, the one that was away too, while more is written.
	for _, f := range []*follower{quick, still, back} {
		f.settle()
	}
	child.Stop()
	child = process.Start(t, config)
	child.AwaitReady()
	for _, f := range []*follower{away, quick, still, back} {
		f.connect() // and subscribes again with its filter
	}
	write(100)
	for _, f := range []*follower{quick, away, back, still} {
		f.to(written)
	}
	quick.complete("one that reads on", written)
	still.complete("one that stood still", written)
	away.complete("one that was away", written)
	back.complete("one that rolled back", written)
	rows := 0
	child.Await("the sink", patience, func(*admin.Report) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rows = bytes.Count(text, []byte(`"table":"numbers"`))
		return rows >= written
	})
	child.Stop()
	if rows != written {
		t.Errorf("the sink has %d rows, want %d", rows, written)
	}
}
