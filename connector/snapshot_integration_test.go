//go:build integration

package connector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

// snapshotWriter changes rows of a table all the time. Each change has a version of its own, so that an old row cannot look like a new one.
type snapshotWriter struct {
	t       *testing.T
	s       *testenv.Server
	db      string
	dies    bool // the server does, now and then
	conn    *client.Conn
	rnd     *rand.Rand
	ids     []int // that are there and may be touched
	next    int   // a key that was never used
	version int
	keep    int // multiples of it are never touched
	of, no  int // its keys have this remainder when divided by how many writers there are
	log     *snapshot.Log
}

func (w *snapshotWriter) do(sql string) {
	_, err := w.conn.Execute(sql)
	if err == nil {
		return
	}
	if !w.dies {
		w.t.Errorf("%s: %v", sql, err)
		return
	}
	// Nobody knows what was committed.
	for until := time.Now().Add(4 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		_ = w.conn.Close()
		c, err := client.Connect(w.s.Addr, w.s.User, w.s.Password, w.db)
		if err != nil {
			continue
		}
		w.conn = c
		r, err := c.Execute(fmt.Sprintf("SELECT id FROM t WHERE id%%%d<>0 AND id%%%d=%d", w.keep, w.of, w.no))
		if err != nil {
			continue
		}
		w.ids = nil
		for i := range r.RowNumber() {
			id, _ := r.GetInt(i, 0)
			w.ids = append(w.ids, int(id))
		}
		return
	}
	w.t.Errorf("the server is not back")
}

// fresh returns a key that no row has: one below all that are untouched, in between, or above all.
func (w *snapshotWriter) fresh() int {
	for {
		id := w.rnd.IntN(w.next + 200)
		if id%w.keep != 0 && id%w.of == w.no && !slices.Contains(w.ids, id) {
			w.next = max(w.next, id)
			return id
		}
	}
}

// pick chooses a row, mostly one of those that are read next.
func (w *snapshotWriter) pick() int {
	least := -1
	if p := w.log.Status().Progress; p != nil && len(p.Last) == 2 && w.rnd.IntN(4) > 0 {
		least, _ = strconv.Atoi(p.Last[1])
	}
	i := 0
	for range 50 {
		if i = w.rnd.IntN(max(1, len(w.ids))); least < 0 || len(w.ids) == 0 || w.ids[i] > least && w.ids[i] < least+100 {
			break
		}
	}
	return i
}

// change makes one change.
func (w *snapshotWriter) change() {
	w.version += w.of
	i := w.pick()
	switch n := w.rnd.IntN(10); {
	case n < 2 || len(w.ids) < 10:
		id := w.fresh()
		w.do(fmt.Sprintf("INSERT INTO t (k, id, v, pad) VALUES ('k%06d', %d, %d, REPEAT('p', 50))", id, id, w.version))
		w.ids = append(w.ids, id)
	case n < 4:
		w.do(fmt.Sprintf("DELETE FROM t WHERE k='k%06d' AND id=%d", w.ids[i], w.ids[i]))
		w.ids = slices.Delete(w.ids, i, i+1)
	case n < 6:
		id := w.fresh()
		w.do(fmt.Sprintf("UPDATE t SET k='k%06d', id=%d, v=%d WHERE k='k%06d' AND id=%d", id, id, w.version, w.ids[i], w.ids[i]))
		w.ids[i] = id
	default:
		w.do(fmt.Sprintf("UPDATE t SET v=%d WHERE k='k%06d' AND id=%d", w.version, w.ids[i], w.ids[i]))
	}
}

// run changes rows until stop is closed, in transactions of one to six changes.
func (w *snapshotWriter) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n := w.rnd.IntN(6)
		if n > 0 {
			w.do("BEGIN")
		}
		for range n + 1 {
			w.change()
		}
		if n > 0 {
			w.do("COMMIT")
		}
		time.Sleep(time.Duration(w.rnd.IntN(3)) * time.Millisecond)
	}
}

// snapshotModel applies events in order, and says what cannot be.
type snapshotModel struct {
	t      *testing.T
	keep   int
	rows   map[int]string // by id
	gone   map[int]bool   // the stream has deleted it
	chunks map[int]int    // how often chunks had it
	number map[int64]bool // of chunks
	faults int
}

func (m *snapshotModel) fault(format string, args ...any) {
	if m.faults++; m.faults < 20 {
		m.t.Errorf(format, args...)
	}
}

func (m *snapshotModel) row(values []event.Value) (id int, text string) {
	var all []string
	for i := range min(4, len(values)) { // columns are added meanwhile
		b, err := values[i].AppendText(nil)
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, string(b))
	}
	id, err := strconv.Atoi(all[1])
	if err != nil {
		m.t.Fatal(err)
	}
	return id, strings.Join(all, "|")
}

// apply applies an event. I4: what a chunk has of a row is what the stream has shown of it last, and what it shows next goes on from there.
func (m *snapshotModel) apply(e *event.Event) {
	if e.Kind != event.Rows || e.Table.Name != "t" {
		return
	}
	chunk := e.Txn.Snapshot
	if chunk != nil {
		m.number[chunk.Chunk] = true
	}
	var s event.Scanner
	s.Reset(e)
	for s.Next() {
		r := s.Row()
		if e.Op != event.Insert {
			id, text := m.row(r.Before)
			if was, ok := m.rows[id]; ok && was != text {
				m.fault("ordinal %d: %s of %s, but it was %s", e.Ordinal, e.Op, text, was)
			} else if m.gone[id] {
				m.fault("ordinal %d: %s of %s, which is deleted", e.Ordinal, e.Op, text)
			}
			delete(m.rows, id)
			m.gone[id] = true
		}
		if e.Op == event.Delete {
			continue
		}
		id, text := m.row(r.After)
		was, ok := m.rows[id]
		switch {
		case chunk != nil && ok && was != text:
			m.fault("ordinal %d: chunk %d has %s, and the stream has shown %s", e.Ordinal, chunk.Chunk, text, was)
		case chunk != nil && m.gone[id]:
			m.fault("ordinal %d: chunk %d has %s, which is deleted", e.Ordinal, chunk.Chunk, text)
		case chunk == nil && ok:
			m.fault("ordinal %d: %s to %s, but there is %s", e.Ordinal, e.Op, text, was)
		}
		if chunk != nil {
			m.chunks[id]++
		}
		m.rows[id] = text
		delete(m.gone, id)
	}
	if s.Err() != nil {
		m.t.Fatal(s.Err())
	}
}

// snapshotLife is how many rows the tables have that are read while they change, per server. BINLOGMQ_SNAPSHOT_ROWS makes it more.
func snapshotLife(t *testing.T) int {
	if text := os.Getenv("BINLOGMQ_SNAPSHOT_ROWS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 2000
}

// TestSnapshotOfALivingTable reads a table in small chunks while rows of it come, go, change and move, and it is altered. Applied in order the events
// give the table (I4), what nobody touched comes once (I7), and the stream is the same when it is read again (I5).
func TestSnapshotOfALivingTable(t *testing.T) {
	for _, kind := range testenv.Kinds {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			total := snapshotLife(t)
			if kind == "mysql56" {
				total /= 8 // each chunk waits for what the log has to show
			}
			readLivingTable(t, s, livingTable{total: total}, func(db string) {
				s.Exec("ALTER TABLE " + db + ".t ADD x INT DEFAULT 7")
			})
		})
	}
}

// I7: nor does it lose or double anything when the server dies meanwhile.
func TestSnapshotOutlivesTheServer(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.NewMySQL(t, kind)
			readLivingTable(t, s, livingTable{total: 3 * snapshotLife(t), dies: true}, func(string) {
				s.Kill()
				s.Restart()
			})
		})
	}
}

// Where nothing tells when tables show what the log has, it is waited for.
func TestSnapshotWithoutGTIDs(t *testing.T) {
	t.Parallel()
	s := testenv.NewMySQL(t, "mysql", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
	readLivingTable(t, s, livingTable{total: 150}, func(string) {})
}

// I5: readers that catch up while the main one is slow, and come to the place of a chunk before it does, give the same numbers as it.
func TestSnapshotBesideOtherReaders(t *testing.T) {
	readLivingTable(t, testenv.MySQL(t, "mysql"), livingTable{total: 3 * snapshotLife(t), beside: true}, func(string) {})
}

// livingTable is a table that changes while it is read.
type livingTable struct {
	total  int  // rows at the beginning
	dies   bool // the server does
	beside bool // others read the stream as well, and the main reader is slow
}

// readBeside has readers begin again and again until stop is closed, each for some transactions, and returns what each has read. It sends
// into begun for each that has read something.
func readBeside(t *testing.T, c *Connector, from event.Cursor, rnd *rand.Rand, stop <-chan struct{}, begun chan<- struct{}) (all [][]*event.Event) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-stop
		cancel()
	}()
	for {
		var read []*event.Event
		ends := 1 + rnd.IntN(1500)
		err := c.ReadBeside(ctx, from, func(_ context.Context, events []*event.Event) error {
			if len(read) == 0 {
				select {
				case begun <- struct{}{}:
				default:
				}
			}
			for _, e := range events {
				read = append(read, e)
				if e.Kind == event.End {
					ends--
				}
			}
			if ends <= 0 {
				return errEnough
			}
			return nil
		})
		all = append(all, read)
		if ctx.Err() != nil {
			return all
		}
		if !errors.Is(err, errEnough) {
			t.Errorf("ReadBeside ended: %v", err)
			return all
		}
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
	}
}

// readLivingTable has during called in the middle.
func readLivingTable(t *testing.T, s *testenv.Server, l livingTable, during func(db string)) {
	const keep = 10
	total, dies := l.total, l.dies
	db := s.Database()
	s.Exec("USE " + db)
	s.Exec("CREATE TABLE t (k VARCHAR(20) CHARACTER SET utf8mb4, id INT, v INT, pad VARCHAR(100), PRIMARY KEY (k, id))")
	s.Exec("CREATE TABLE keyless (a INT, b INT)")
	s.Exec("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM")
	s.Exec("INSERT INTO keyless VALUES (1, 1), (2, 2), (2, 2)")
	s.Exec("INSERT INTO plain VALUES (1), (2), (3)")
	log := snapshot.NewLog(nil)
	var writers [3]*snapshotWriter
	for i := range writers {
		writers[i] = &snapshotWriter{
			t: t, s: s, db: db, dies: dies, conn: s.Connect(db), rnd: rand.New(rand.NewPCG(uint64(i), uint64(len(s.Kind)))), next: total, keep: keep, of: len(writers), no: i, version: i, log: log,
		}
	}
	for ids := range slices.Chunk(slices.Collect(func(yield func(int) bool) {
		for id := 0; id < total && yield(id); id++ {
		}
	}), 500) {
		var values []string
		for _, id := range ids {
			values = append(values, fmt.Sprintf("('k%06d', %d, 0, 'x')", id, id))
			if w := writers[id%len(writers)]; id%keep != 0 {
				w.ids = append(w.ids, id)
			}
		}
		s.Exec("INSERT INTO t VALUES " + strings.Join(values, ","))
	}
	history := schema.NewHistory(nil)
	connect := func() *Connector {
		return newConnectorWith(t, s, func(o *Options) {
			o.Start, o.History, o.Snapshots, o.Snapshot = "latest", history, log, SnapshotOptions{ChunkRows: 50}
		}, db+".*")
	}
	c := connect()
	from := start(t, c)
	req := snapshot.Request{ID: "first", Reason: snapshot.ReasonOrdered, Clients: []string{"one"}}
	if err := log.Order(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	begun := make(chan struct{}, 3) // full when as many readers beside the main one have read something
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() { w.run(stop) })
	}
	wg.Go(func() {
		over := func() bool {
			return t.Failed() || len(log.Status().Ended) > 0 && (!l.beside || len(begun) == cap(begun))
		}
		for until := time.Now().Add(4 * time.Minute); time.Now().Before(until) && !over(); time.Sleep(10 * time.Millisecond) {
		}
		close(stop)
	})
	var beside [][]*event.Event
	done := marker("done_")
	slow := done
	if l.beside {
		rnd := rand.New(rand.NewPCG(7, 7))
		wg.Go(func() { beside = readBeside(t, c, from, rand.New(rand.NewPCG(8, 8)), stop, begun) })
		slow = func(e *event.Event) bool {
			if e.Kind == event.End && rnd.IntN(60) == 0 {
				time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
			}
			return done(e)
		}
	}
	// What happens in the middle, and what is done at the end, uses the test's server, which belongs to this goroutine.
	over := make(chan []*event.Event, 1)
	go func() {
		defer close(over)
		if all, err := collect(t.Context(), c, from, slow); err == nil {
			over <- all
		} else {
			t.Errorf("Read ended: %v", err)
		}
	}()
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if p := log.Status().Progress; p == nil || len(p.Last) > 0 {
			break
		}
	}
	during(db)
	wg.Wait()
	// Where nothing is written any more the slowest machine comes to the end.
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until) && len(log.Status().Ended) == 0 && !t.Failed(); time.Sleep(10 * time.Millisecond) {
	}
	s.Exec("CREATE TABLE " + db + ".done_ (id INT)")
	all := <-over
	numbered(t, all, from.Ordinal+1)
	if e := log.Status().Ended; len(e) != 1 || e[0].Cancelled || e[0].Tables != 3 {
		t.Fatalf("the snapshot has not ended: %+v", log.Status())
	}

	m := &snapshotModel{t: t, keep: keep, rows: map[int]string{}, gone: map[int]bool{}, chunks: map[int]int{}, number: map[int64]bool{}}
	others := map[string]int{}
	for _, e := range all {
		m.apply(e)
		if e.Kind == event.Rows && e.Txn.Snapshot != nil {
			if e.Txn.Snapshot.ID != "first" || !slices.Equal(e.Txn.Snapshot.Clients, req.Clients) || !e.Txn.GTID.IsZero() {
				t.Fatalf("%+v", e.Txn)
			}
			others[e.Table.Name] += int(e.Rows)
		}
	}
	want := map[int]string{}
	for _, row := range s.Query("SELECT k, id, v, pad FROM " + db + ".t") {
		id, _ := strconv.Atoi(row[1])
		want[id] = strings.Join(row, "|")
	}
	if !maps.Equal(m.rows, want) {
		t.Errorf("the events give %d rows, the table has %d", len(m.rows), len(want))
		for id := range want {
			if m.rows[id] != want[id] {
				m.fault("row %d: %q, want %q", id, m.rows[id], want[id])
			}
		}
	}
	for id := 0; id < total; id += keep {
		if m.chunks[id] != 1 {
			m.fault("row %d, which nobody touched, came %d times", id, m.chunks[id])
		}
	}
	if others["keyless"] != 3 || others["plain"] != 3 {
		t.Errorf("rows of tables: %v", others)
	}
	if len(m.number) < max(1, total/keep/50) { // at the least: of rows that are changed meanwhile many are not in chunks
		t.Errorf("%d chunks", len(m.number))
	}
	changes := 0
	for _, w := range writers {
		changes += w.version / w.of
	}
	t.Logf("%d changes of rows while %d chunks of %d rows were read", changes, len(m.number), others["t"])

	ahead := 0
	for i, read := range beside {
		a, b := transcript(t, all), transcript(t, read)
		for k := range b {
			if len(a) == 0 {
				t.Fatal("the main reader has read nothing")
			}
			if k >= len(a) || a[k] != b[k] {
				t.Fatalf("reader %d beside the main one, event %d is\n%s\nwant\n%s", i, k, b[k], a[min(k, len(a)-1)])
			}
		}
		if len(b) > 0 {
			ahead++
		}
	}
	if l.beside {
		if ahead < cap(begun) {
			t.Errorf("%d of %d readers beside the main one have read anything", ahead, len(beside))
		}
		t.Logf("%d of %d readers beside the main one have read something", ahead, len(beside))
	}

	// I5: the same again, chunks included.
	again := readUntil(t, connect(), from, marker("done_"))
	if a, b := transcript(t, all), transcript(t, again); !slices.Equal(a, b) {
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("read again, event %d is\n%s\nwant\n%s", i, b[i], a[i])
			}
		}
		t.Fatalf("read again there are %d events, want %d", len(b), len(a))
	}
}

// I3: tables that get the rows of others, which were not read under that name, are read again.
func TestSnapshotOfTablesThatAreExchanged(t *testing.T) {
	for _, kind := range []string{"mysql", "mysql56", "mariadb11"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.MySQL(t, kind)
			db := s.Database()
			s.Exec("USE " + db)
			s.Exec("CREATE TABLE a_live (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE b_parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 1")
			s.Exec("CREATE TABLE c_held (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE x_parted (id INT PRIMARY KEY)")
			s.Exec("CREATE TABLE x_staging (id INT PRIMARY KEY)")
			s.Exec("INSERT INTO a_live VALUES (1), (2)")
			s.Exec("INSERT INTO b_parts VALUES (3), (4)")
			s.Exec("INSERT INTO c_held VALUES (5)")
			s.Exec("INSERT INTO x_parted VALUES (13), (14)")
			s.Exec("INSERT INTO x_staging VALUES (11), (12)")
			log := snapshot.NewLog(nil)
			c := newConnectorWith(t, s, func(o *Options) { o.Start, o.Snapshots = "latest", log }, db+".*", "!"+db+".x_*")
			from := start(t, c)
			if err := log.Order(t.Context(), snapshot.Request{ID: "first"}); err != nil {
				t.Fatal(err)
			}
			hold := s.Connect(db)
			if _, err := hold.Execute("LOCK TABLES c_held WRITE"); err != nil {
				t.Fatal(err)
			}
			over := make(chan []*event.Event, 1)
			go func() {
				defer close(over)
				all, err := collect(t.Context(), c, from, marker("done_"))
				if err != nil {
					t.Errorf("Read ended: %v", err)
				}
				over <- all
			}()
			for until := time.Now().Add(4 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if p := log.Status().Progress; p != nil && p.Upto != nil && p.Upto.Name == "b_parts" {
					break
				}
				if time.Now().After(until) {
					t.Fatalf("%+v", log.Status())
				}
			}
			s.Exec("RENAME TABLE a_live TO x_old, x_staging TO a_live")
			s.Exec("ALTER TABLE b_parts EXCHANGE PARTITION p0 WITH TABLE x_parted")
			if _, err := hold.Execute("UNLOCK TABLES"); err != nil {
				t.Fatal(err)
			}
			for until := time.Now().Add(4 * time.Minute); len(log.Status().Ended) == 0 && time.Now().Before(until); {
				time.Sleep(10 * time.Millisecond)
			}
			s.Exec("CREATE TABLE " + db + ".done_ (id INT)")
			got := map[string][]int{}
			for _, e := range <-over {
				var scan event.Scanner
				for scan.Reset(e); e.Kind == event.Rows && scan.Next(); {
					text, err := scan.Row().After[0].AppendText(nil)
					if err != nil {
						t.Fatal(err)
					}
					id, _ := strconv.Atoi(string(text))
					got[e.Table.Name] = append(got[e.Table.Name], id)
				}
			}
			want := map[string][]int{"a_live": {1, 2, 11, 12}, "b_parts": {3, 4, 13, 14}, "c_held": {5}}
			if !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("rows %v, want %v", got, want)
			}
		})
	}
}

// collect is readUntil for any goroutine.
func collect(ctx context.Context, c *Connector, from event.Cursor, enough func(*event.Event) bool) (all []*event.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	err = c.Read(ctx, from, func(_ context.Context, es []*event.Event) error {
		for _, e := range es {
			if all = append(all, e); enough(e) {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return all, err
}
