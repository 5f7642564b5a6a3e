package connector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// fakeTables is a rowSource whose tables hold numbers, and the window of it. Each method fails as its list of errors says, first to last.
type fakeTables struct {
	t   *testing.T
	log *snapshot.Log

	mu      sync.Mutex
	rows    map[ddl.Name][]int
	key     map[ddl.Name]string // kind of key; "none": none
	fail    map[string][]error  // by method
	queries []chunkQuery
	got     map[ddl.Name][]int // what was inserted
	drop    map[int]bool       // rows that the stream has shown
	ordinal int64
	grants  []string            // that the account lacks
	before  func(q *chunkQuery) // called at each read
	atEnd   func()              // called when everything seems to be read
}

func newFakeTables(t *testing.T) *fakeTables {
	return &fakeTables{
		t: t, log: snapshot.NewLog(nil), rows: map[ddl.Name][]int{}, key: map[ddl.Name]string{}, fail: map[string][]error{},
		got: map[ddl.Name][]int{}, drop: map[int]bool{},
	}
}

func (f *fakeTables) failure(method string) error {
	if len(f.fail[method]) == 0 {
		return nil
	}
	err := f.fail[method][0]
	f.fail[method] = f.fail[method][1:]
	return err
}

func (f *fakeTables) tables(_ context.Context, match func(bool) *tablefilter.Filter) (all []ddl.Name, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("tables"); err != nil {
		return nil, err
	}
	for n := range f.rows {
		if match(false).Match(n.Schema, n.Table) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b ddl.Name) int {
		return slices.Compare([]string{a.Schema, a.Table}, []string{b.Schema, b.Table})
	})
	return all, nil
}

func (f *fakeTables) unseen(context.Context, func(bool) *tablefilter.Filter) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grants, f.failure("unseen")
}

func numberTable(n ddl.Name) *event.Table {
	t := &event.Table{Schema: n.Schema, Name: n.Table, Columns: []event.Column{{Name: "id", Type: event.TypeLong}}, Key: []int{0}}
	if err := t.Compile(); err != nil {
		panic(err)
	}
	return t
}

func (f *fakeTables) read(_ context.Context, _ event.Position, q chunkQuery) (*chunkRead, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		f.before(&q)
	}
	f.queries = append(f.queries, q)
	if err := f.failure("read"); err != nil {
		return nil, err
	}
	all, there := f.rows[q.table]
	got := &chunkRead{gone: !there, keyed: f.key[q.table] != "none", table: numberTable(q.table), server: 1, time: 1}
	if !there {
		return got, nil
	}
	least, most, n := 0, 1<<30, len(all)
	if got.keyed {
		n = q.rows
		got.key = []string{"id " + f.key[q.table]}
		if got.begun = q.key != nil && !slices.Equal(q.key, got.key); got.begun {
			q.last, q.most = nil, nil
		}
		if q.last != nil {
			least, _ = strconv.Atoi(q.last[0])
		}
		if q.most == nil && len(all) > 0 {
			q.most = []string{strconv.Itoa(slices.Max(all))}
		}
		if q.most != nil {
			most, _ = strconv.Atoi(q.most[0])
		}
		got.last, got.most = q.last, q.most
	}
	got.end = true
	for _, id := range all {
		if id <= least || id > most {
			continue
		}
		if n--; n < 0 {
			got.end = false
			break
		}
		got.rows = append(got.rows, []byte{0, byte(id), byte(id >> 8), byte(id >> 16), 0})
		got.bytes += 5
		got.last = []string{strconv.Itoa(id)}
	}
	return got, nil
}

func (f *fakeTables) end(context.Context, event.Position) (event.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.atEnd != nil {
		f.atEnd()
	}
	return event.Position{ServerUUID: "1"}, f.failure("end")
}

func (f *fakeTables) open(context.Context, ddl.Name) (event.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return event.Position{ServerUUID: "1"}, f.failure("open")
}

func (f *fakeTables) insert(ctx context.Context, c *candidate) (dropped int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("insert"); err != nil {
		return 0, err
	}
	var ids []int
	for _, raw := range c.rows {
		id := int(raw[1]) | int(raw[2])<<8 | int(raw[3])<<16
		if f.drop[id] {
			dropped++
			continue
		}
		ids = append(ids, id)
		c.chunk.Parts = append(c.chunk.Parts, snapshot.Part{Rows: 1, Raw: raw})
	}
	if len(ids) == 0 {
		return dropped, nil
	}
	f.ordinal += 10
	c.chunk.Ordinal, c.chunk.Counts, c.chunk.Table = f.ordinal, "x", c.table
	f.ordinal += c.chunk.Rows() + 1
	c.chunk.End = f.ordinal
	c.chunk.After.Rows = c.chunk.Before.Rows + c.chunk.Rows()
	if err := f.log.Append(ctx, c.chunk); err != nil {
		return 0, err
	}
	n := ddl.Name{Schema: c.table.Schema, Table: c.table.Name}
	f.got[n] = append(f.got[n], ids...)
	return dropped, nil
}

// close is that of the window and of the source.
func (f *fakeTables) close() {}

func upTo(n int) (ids []int) {
	for i := 1; i <= n; i++ {
		ids = append(ids, i)
	}
	return ids
}

func shop(table string) ddl.Name { return ddl.Name{Schema: "shop", Table: table} }

// driver returns a driver of the tables, with a request ordered.
func (f *fakeTables) driver(req snapshot.Request, opt SnapshotOptions) *snapshotDriver {
	f.t.Helper()
	c, err := New(Options{
		Destination: "d", Addresses: []string{"127.0.0.1:1"}, Snapshots: f.log, Snapshot: opt, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	c.state.update(func(s *Status) { s.ServerUUID = "1" })
	if req.ID != "" {
		if err := f.log.Order(f.t.Context(), req); err != nil {
			f.t.Fatal(err)
		}
	}
	return newSnapshotDriver(c, f, f)
}

// finished drives until nothing is ordered.
func (f *fakeTables) finished(d *snapshotDriver) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Minute)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.drive(ctx)
	}()
	for ctx.Err() == nil {
		if d.current() == "" {
			cancel()
			<-over
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	<-over
	f.t.Fatalf("the snapshot does not end: %+v", d.c.Status().Snapshot)
}

func (f *fakeTables) want(table string, ids []int) {
	f.t.Helper()
	if !slices.Equal(f.got[shop(table)], ids) {
		f.t.Errorf("table %s: %d rows came, want %d: %v", table, len(f.got[shop(table)]), len(ids), f.got[shop(table)])
	}
}

func TestSnapshotReadsEveryRowOnce(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")], f.rows[shop("b")], f.rows[shop("z")] = upTo(1000), upTo(7), nil
	f.rows[shop("whole")], f.key[shop("whole")] = upTo(50), "none"
	f.rows[ddl.Name{Schema: "other", Table: "x"}] = upTo(3)
	f.drop[5], f.drop[999] = true, true
	transient := &mysql.MyError{Code: mysql.ER_LOCK_WAIT_TIMEOUT, Message: "timeout"}
	f.fail["read"] = []error{errors.New("the link is cut"), nil, transient, nil, fmt.Errorf("x: %w", errSlow)}
	f.fail["insert"] = []error{nil, errDisturbed, errDisturbed}
	f.fail["tables"] = []error{errors.New("not yet")}
	d := f.driver(snapshot.Request{ID: "1", Tables: []string{"shop.*"}, Clients: []string{"k"}}, SnapshotOptions{ChunkRows: 100})
	f.finished(d)
	rest := slices.DeleteFunc(upTo(1000), func(id int) bool { return f.drop[id] })
	f.want("a", rest)
	f.want("b", []int{1, 2, 3, 4, 6, 7})
	f.want("whole", slices.DeleteFunc(upTo(50), func(id int) bool { return f.drop[id] }))
	if len(f.got) != 3 {
		t.Errorf("rows of %d tables came", len(f.got))
	}
	e := f.log.Status().Ended
	if len(e) != 1 || e[0].Cancelled || e[0].Rows != int64(len(rest)+6+49) || e[0].Tables != 4 {
		t.Errorf("ended: %+v", e)
	}
	if s := d.c.Status().Snapshot; s.State != SnapshotNone || s.Request != "" || s.PendingChunks == 0 {
		t.Errorf("status: %+v", s)
	}
}

func TestSnapshotChunkSizes(t *testing.T) {
	for {
		f := newFakeTables(t)
		f.rows[shop("a")] = upTo(3000)
		begin := time.Now()
		f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 800}))
		f.want("a", upTo(3000))
		var sizes []int
		for _, q := range f.queries {
			sizes = append(sizes, q.rows)
		}
		if slices.Equal(sizes, []int{256, 512, 800, 800, 800}) {
			break
		}
		if time.Since(begin) < minStatement/2 { // or the machine stood still, and a chunk was taken for slow
			t.Fatalf("chunks of %v rows", sizes)
		}
	}
	r := &tableRun{rows: 1000, limit: minStatement}
	r.size(&chunkRead{rows: make([][]byte, 1000), bytes: 10_000_000}, 0, &SnapshotOptions{ChunkBytes: 500_000, ChunkRows: 8192})
	if r.rows != 51 {
		t.Errorf("%d rows of 10 kB", r.rows)
	}
	r.slow()
	r.slow()
	if r.rows != 3 || r.limit != 4*minStatement {
		t.Errorf("after two slow statements: %d rows in %v", r.rows, r.limit)
	}
}

func TestSnapshotGoesOnWhereItEnded(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")], f.rows[shop("b")] = upTo(1000), upTo(10)
	ctx, cancel := context.WithCancel(t.Context())
	f.before = func(*chunkQuery) {
		if len(f.queries) == 3 {
			cancel()
		}
	}
	f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 100}).drive(ctx)
	f.before = nil
	if n := len(f.got[shop("a")]); n == 0 || n == 1000 {
		t.Fatalf("%d rows came before the end", n)
	}
	f.finished(f.driver(snapshot.Request{}, SnapshotOptions{ChunkRows: 100}))
	f.want("a", upTo(1000))
	f.want("b", upTo(10))
}

// What becomes greater than the greatest key comes through the stream.
func TestSnapshotEndsAtTheGreatestKey(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")] = upTo(300)
	f.before = func(*chunkQuery) { f.rows[shop("a")] = append(f.rows[shop("a")], len(f.rows[shop("a")])+1) }
	f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 50}))
	f.want("a", upTo(301))
}

func TestSnapshotTablesChange(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")], f.rows[shop("b")], f.rows[shop("c")] = upTo(100), upTo(100), upTo(100)
	f.before = func(q *chunkQuery) {
		switch {
		case q.table == shop("a") && q.last != nil && f.key[shop("a")] == "":
			f.key[shop("a")] = "another" // its order is another one: it is begun again
		case q.table == shop("b") && q.last != nil:
			delete(f.rows, shop("b")) // dropped in the middle
		case q.table == shop("c") && len(f.rows) == 2:
			f.rows[shop("Renamed")] = upTo(5) // has come, before what is read
		}
	}
	f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 40}))
	f.want("a", append(upTo(40), upTo(100)...))
	f.want("b", upTo(40))
	f.want("c", upTo(100))
	f.want("Renamed", upTo(5))
}

// again says that the stream has shown how tables got other rows.
func (f *fakeTables) again(tables ...string) {
	f.t.Helper()
	var all []snapshot.Table
	for _, name := range tables {
		all = append(all, snapshot.Table{Schema: "shop", Name: name})
	}
	if err := f.log.Again(f.t.Context(), "1", all, len(all) == 0); err != nil {
		f.t.Error(err)
	}
}

// I3: what has got its rows from elsewhere is read again.
func TestSnapshotOfTablesThatGetOtherRows(t *testing.T) {
	second := append(upTo(3), 50, 200, 300)
	rename := func(f *fakeTables, from, to string) {
		f.rows[shop(to)] = f.rows[shop(from)]
		delete(f.rows, shop(from))
	}
	for _, c := range []struct {
		name string
		at   func(f *fakeTables, q *chunkQuery) // at each read; nil: the end
		do   func(f *fakeTables)
		want map[string][]int
	}{
		{"renamed onto one that is done", func(f *fakeTables, q *chunkQuery) {
			if q.table == shop("staging") && f.rows[shop("old")] == nil {
				rename(f, "live", "old")
				rename(f, "staging", "live")
				f.again("old", "live")
			}
		}, nil, map[string][]int{"live": append(upTo(100), second...), "old": upTo(100), "other": upTo(60), "staging": nil}},
		{"renamed onto the one that is read", func(f *fakeTables, q *chunkQuery) {
			if q.table == shop("live") && q.last != nil && f.rows[shop("old")] == nil {
				rename(f, "live", "old")
				rename(f, "staging", "live")
				f.again("old", "live")
			}
		}, nil, map[string][]int{"live": append(upTo(40), second...), "old": upTo(100), "other": upTo(60), "staging": nil}},
		{"rows come into it at its last chunk", func(f *fakeTables, q *chunkQuery) {
			if q.table == shop("live") && q.last != nil && q.last[0] == "80" && f.rows[shop("live")][0] == 1 {
				f.rows[shop("live")] = []int{90, 7000}
				f.again("live")
			}
		}, nil, map[string][]int{"live": append(upTo(80), 90, 7000), "other": upTo(60), "staging": second}},
		{"at the end", nil, func(f *fakeTables) {
			rename(f, "staging", "live")
			f.again("live")
		}, map[string][]int{"live": append(upTo(100), second...), "other": upTo(60), "staging": second}},
		{"nobody knows which", nil, func(f *fakeTables) { f.again() },
			map[string][]int{"live": append(upTo(100), upTo(100)...), "other": append(upTo(60), upTo(60)...), "staging": append(slices.Clone(second), second...)}},
		{"one that is gone", func(f *fakeTables, q *chunkQuery) {
			if q.table == shop("other") && q.last == nil && len(f.queries) < 5 {
				f.again("nowhere", "live")
			}
		}, nil, map[string][]int{"live": append(upTo(100), upTo(100)...), "other": upTo(60), "staging": second, "nowhere": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeTables(t)
			f.rows[shop("live")], f.rows[shop("other")], f.rows[shop("staging")] = upTo(100), upTo(60), slices.Clone(second)
			if c.at != nil {
				f.before = func(q *chunkQuery) { c.at(f, q) }
			}
			if c.do != nil {
				f.atEnd = func() {
					f.atEnd = nil
					c.do(f)
				}
			}
			f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 40}))
			for table, want := range c.want {
				f.want(table, want)
			}
		})
	}
}

// What is captured is another matter after a start: it is not known which tables of it are read.
func TestSnapshotOfOtherTables(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")], f.rows[shop("b")] = upTo(10), upTo(20)
	ctx, cancel := context.WithCancel(t.Context())
	f.before = func(q *chunkQuery) {
		if q.table == shop("b") {
			cancel()
		}
	}
	f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{}).drive(ctx)
	f.before = nil
	d := f.driver(snapshot.Request{}, SnapshotOptions{})
	d.c.opt.AllVersions = true
	f.finished(d)
	f.want("a", append(upTo(10), upTo(10)...))
	if got := f.got[shop("b")]; len(got) < 20 || !slices.Equal(got[len(got)-20:], upTo(20)) {
		t.Errorf("rows of b: %v", got)
	}
}

// What is saved with each chunk does not grow with the tables that are read.
func TestSnapshotOfManyTables(t *testing.T) {
	f := newFakeTables(t)
	for i := range 300 {
		f.rows[shop(fmt.Sprintf("table%03d", i))] = []int{1}
	}
	most := 0
	f.before = func(*chunkQuery) {
		text, err := json.Marshal(f.log.Status().Progress)
		if err != nil {
			t.Error(err)
		}
		most = max(most, len(text))
	}
	f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{}))
	if e := f.log.Status().Ended; len(e) != 1 || e[0].Tables != 300 || e[0].Rows != 300 || most > 300 {
		t.Errorf("progress of %d bytes, ended: %+v", most, e)
	}
}

func TestSnapshotIsCancelled(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")], f.rows[shop("b")] = upTo(1000), upTo(10)
	d := f.driver(snapshot.Request{ID: "1", Tables: []string{"shop.a"}}, SnapshotOptions{ChunkRows: 10})
	if err := f.log.Order(t.Context(), snapshot.Request{ID: "2", Tables: []string{"shop.b"}}); err != nil {
		t.Fatal(err)
	}
	f.before = func(*chunkQuery) {
		if len(f.queries) == 5 {
			if err := f.log.Cancel(t.Context(), "1"); err != nil {
				t.Error(err)
			}
		}
	}
	f.finished(d)
	if n := len(f.got[shop("a")]); n == 0 || n > 60 {
		t.Errorf("%d rows of a came", n)
	}
	f.want("b", upTo(10))
	if e := f.log.Status().Ended; len(e) != 2 || !e[0].Cancelled || e[1].Cancelled {
		t.Errorf("ended: %+v", e)
	}
}

// await waits until the status is as it should be.
func await(t *testing.T, d *snapshotDriver, is func(Snapshot) bool) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if is(d.c.Status().Snapshot) {
			return
		}
	}
	t.Fatalf("status: %+v", d.c.Status().Snapshot)
}

func TestSnapshotWaitsForTheOperator(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")] = upTo(10)
	d := f.driver(snapshot.Request{ID: "1", Reason: snapshot.ReasonOrdered}, SnapshotOptions{})
	f.fail["read"] = []error{d.c.unreadable(shop("a"), errors.New("no"))}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.drive(ctx) })
	await(t, d, func(s Snapshot) bool {
		var stop *StopError
		return s.State == SnapshotFailing && errors.As(s.Err, &stop) && s.Request == "1" && s.Reason == "ordered" && s.Table == "shop.a" && s.Tables == 1
	})
	// Cancelling it ends the wait.
	if err := f.log.Cancel(ctx, "1"); err != nil {
		t.Fatal(err)
	}
	await(t, d, func(s Snapshot) bool { return s.State == SnapshotNone && s.Err == nil })
	cancel()
	wg.Wait()
}

// I9: what subscriptions have not acknowledged is bounded.
func TestSnapshotWaitsForSubscriptions(t *testing.T) {
	f := newFakeTables(t)
	f.rows[shop("a")] = upTo(1000)
	d := f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 50, MaxPending: 3000})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.drive(ctx) })
	await(t, d, func(s Snapshot) bool {
		return s.State == SnapshotWaiting && s.PendingBytes >= 3000 && s.PendingChunks > 0
	})
	cancel()
	wg.Wait()
	if n := len(f.got[shop("a")]); n == 0 || n >= 500 {
		t.Errorf("%d rows came", n)
	}

	// When nobody gets on, it is told who does not.
	f.log = snapshot.NewLog(&standing{cursors: map[string]int64{"quick": 1 << 40, "sink-gone": 0}})
	d = f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{ChunkRows: 50, MaxPending: 3000})
	d.patience = 0
	ctx, cancel = context.WithCancel(t.Context())
	wg.Go(func() { d.drive(ctx) })
	await(t, d, func(s Snapshot) bool {
		return s.State == SnapshotWaiting && s.Err != nil && strings.Contains(s.Err.Error(), `"sink-gone"`) && strings.Contains(s.Err.Error(), "cursor forget --of sink-gone")
	})
	cancel()
	wg.Wait()
}

// standing is a Keeper with cursors.
type standing struct {
	docs    sync.Map
	cursors map[string]int64
}

func (s *standing) Destination() string { return "d" }

func (s *standing) Load(_ context.Context, name string) ([]byte, error) {
	data, _ := s.docs.Load(name)
	b, _ := data.([]byte)
	return b, nil
}

func (s *standing) Save(_ context.Context, name string, data []byte) error {
	s.docs.Store(name, data)
	return nil
}

func (s *standing) Cursors(context.Context) (map[string]int64, error) { return s.cursors, nil }

func TestSnapshotThrottle(t *testing.T) {
	d := newFakeTables(t).driver(snapshot.Request{}, SnapshotOptions{RowsPerSecond: 100})
	now := time.Now()
	d.throttle(50, now)
	if wait := d.next.Sub(now); wait != 500*time.Millisecond {
		t.Errorf("50 of 100 rows a second: %v", wait)
	}

	// No chunk has more, be it the first one of a table, and what is read again counts, too.
	if d.opt.ChunkRows != 100 {
		t.Errorf("chunks of %d rows", d.opt.ChunkRows)
	}
	f := newFakeTables(t)
	f.rows[shop("a")] = upTo(3)
	f.fail["insert"] = []error{errDisturbed}
	begin := time.Now()
	f.finished(f.driver(snapshot.Request{ID: "1"}, SnapshotOptions{RowsPerSecond: 20, ChunkRows: 2}))
	f.want("a", upTo(3))
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("5 rows, of which 4 were read before the last, took %v", took)
	}
}

func TestSnapshotCondition(t *testing.T) {
	where := map[string]string{"shop.a": "id > 1", "Shop.B": "id > 2"}
	for _, c := range []struct {
		name     ddl.Name
		caseless bool
		want     string
	}{
		{shop("a"), false, "id > 1"}, {shop("b"), false, ""}, {shop("b"), true, "id > 2"}, {shop("c"), true, ""},
	} {
		if got := condition(where, c.name, c.caseless); got != c.want {
			t.Errorf("%v caseless %t: %q, want %q", c.name, c.caseless, got, c.want)
		}
	}
}

// I3: a condition that was ordered for a name that no table has is told.
func TestSnapshotTellsWhatMeetsNoTable(t *testing.T) {
	f := newFakeTables(t)
	d := f.driver(snapshot.Request{}, SnapshotOptions{})
	var text bytes.Buffer
	d.c.log = slog.New(slog.NewTextHandler(&text, nil))
	req := &snapshot.Request{ID: "1", Where: map[string]string{"shop.a": "id > 1", "shop.B": "id > 2", "shop.wrong": "id > 3"}}
	for _, c := range []struct {
		tables   []ddl.Name
		caseless bool
		want     []string
	}{
		{[]ddl.Name{shop("a"), shop("b")}, false, []string{"table=shop.B", "table=shop.wrong"}},
		{[]ddl.Name{shop("a"), shop("b")}, true, []string{"table=shop.wrong"}},
		{nil, false, []string{"finds no table", "table=shop.B", "table=shop.a", "table=shop.wrong"}},
	} {
		text.Reset()
		d.unmet(req, c.tables, c.caseless, "")
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%v: %s", c.tables, text.String())
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s, want %s", lines[i], want)
			}
		}
	}
}

// TestSnapshotOfWhatIsNotSeenI3: an order of the program that meets no table is not done with, and what the account may not see is told of for as long as anybody may look.
func TestSnapshotOfWhatIsNotSeenI3(t *testing.T) {
	const grant = "GRANT SELECT ON `shop`.* TO u"
	for _, reason := range []string{snapshot.ReasonStart, snapshot.ReasonLost} {
		f := newFakeTables(t)
		f.grants = []string{grant}
		d := f.driver(snapshot.Request{ID: "1", Reason: reason}, SnapshotOptions{})
		for range 2 {
			wait, err := d.turn(t.Context())
			var stop *StopError
			if !errors.As(err, &stop) || !strings.Contains(stop.Remedy, grant) || !strings.Contains(stop.Remedy, "snapshot cancel --id 1") {
				t.Fatalf("%s: %v, %v", reason, wait, err)
			}
			if wait := d.judge(err); wait != snapshotBlocked || d.c.Status().Snapshot.Err == nil || d.current() != "1" {
				t.Errorf("%s: again in %v, status %+v", reason, wait, d.c.Status().Snapshot)
			}
		}
		f.rows[shop("a")] = upTo(5) // granted, in part
		f.finished(d)
		f.want("a", upTo(5))
		if s := d.c.Status().Snapshot; s.State != SnapshotNone || s.Err != nil || !strings.Contains(s.Warning, grant) {
			t.Errorf("%s: ended with %+v", reason, s)
		}
		f.grants = nil
		if err := f.log.Order(t.Context(), snapshot.Request{ID: "2", Reason: reason}); err != nil {
			t.Fatal(err)
		}
		f.finished(d)
		if s := d.c.Status().Snapshot; s.Warning != "" {
			t.Errorf("%s: nothing is left out, but %q", reason, s.Warning)
		}
	}
	f := newFakeTables(t)
	f.finished(f.driver(snapshot.Request{ID: "1", Reason: snapshot.ReasonOrdered}, SnapshotOptions{})) // somebody looks
}
