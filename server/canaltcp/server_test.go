package canaltcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canalview"
)

func TestMain(m *testing.M) { leak.Main(m) }

// history is a source of transactions of one row each, numbered from 1.
type history struct {
	table, other *event.Table
	statements   map[int64]string // by transaction: in the place of its row

	mu   sync.Mutex
	n    int64
	more chan struct{} // closed when n rises
	err  error
}

func newHistory(t testing.TB) *history {
	h := &history{table: codectest.Shop(t), more: make(chan struct{})}
	other := *codectest.Shop(t)
	other.Name = "other"
	h.other = codectest.Compile(t, &other)
	return h
}

// write adds transactions; every second one is of the other table.
func (h *history) write(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n += n
	close(h.more)
	h.more = make(chan struct{})
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	close(h.more)
	h.more = make(chan struct{})
}

func (h *history) Start(context.Context) (event.Cursor, error) {
	return event.Cursor{Position: event.Position{File: "f", Offset: 4}}, nil
}

func (h *history) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	for done := from.Ordinal / 2; ; {
		h.mu.Lock()
		n, more, err := h.n, h.more, h.err
		h.mu.Unlock()
		if err != nil {
			return err
		}
		for ; done < n; done++ {
			if err := put(ctx, h.transaction(done)); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *history) transaction(n int64) []*event.Event {
	txn := *codectest.Txn
	txn.GTID.Seq = uint64(n + 1)
	at := uint64(100 * (n + 1))
	tab := h.table
	if n%2 == 1 {
		tab = h.other
	}
	rows := codectest.Event(tab, nil, []codectest.Cell{codectest.V(codectest.Le(n+1, 4)), codectest.V([]byte("pen")), codectest.V(codectest.Le(1, 4)), codectest.Null})
	rows.Ordinal, rows.Txn, rows.File, rows.Start, rows.Next, rows.Size, rows.Last = 2*n+1, &txn, "f", at+10, at+20, 500, true
	if sql, ok := h.statements[n]; ok {
		rows = codectest.DDL("shop", sql)
		rows.Ordinal, rows.Txn, rows.File, rows.Start, rows.Next, rows.Size = 2*n+1, &txn, "f", at+10, at+20, 500
	}
	return []*event.Event{
		{Kind: event.Begin, Txn: &txn, File: "f", Start: at, Next: at + 10, Size: 100},
		rows,
		{Kind: event.End, Txn: &txn, File: "f", Start: at + 20, Next: at + 30, Ordinal: 2*n + 2, Index: 1, XID: uint64(n), Size: 100},
	}
}

type rig struct {
	t       testing.TB
	h       *history
	s       *server.Server
	tcp     *Server
	address string
}

func newEncoder(t testing.TB) *canalpb.Codec {
	t.Helper()
	keys, err := canaljson.New(canaljson.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := canalpb.New(canalpb.Options{}, keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{t: t, h: newHistory(t), s: server.New(server.Options{SaveInterval: time.Second})}
	o.Upstream = r.s
	if o.Encoder == nil {
		o.Encoder = newEncoder(t)
	}
	var err error
	r.tcp, err = New(o)
	r.must(err)
	r.must(r.s.AddDestination("shop", r.h, server.DestinationOptions{}))
	r.must(r.s.Start(t.Context(), "shop"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.tcp.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n := r.tcp.Status().Connections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if err := r.s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) client(id int16, user, password string) *client.TCP {
	r.t.Helper()
	c, err := client.NewTCP(client.TCPOptions{Address: r.address, Destination: "shop", ClientID: id, User: user, Password: password})
	r.must(err)
	r.t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c
}

func (r *rig) connect(id int16, filter string) *client.TCP {
	r.t.Helper()
	c := r.client(id, "", "")
	r.must(c.Connect(r.t.Context()))
	r.must(c.Subscribe(r.t.Context(), filter))
	return c
}

// ids are the rows of a message.
func (r *rig) ids(m *client.Message) (ids []string) {
	r.t.Helper()
	for _, raw := range m.Entries {
		e, err := client.ParseEntry(raw)
		r.must(err)
		if e.Type != client.RowData {
			continue
		}
		c, err := client.ParseRowChange(e.Store)
		r.must(err)
		for _, row := range c.Rows {
			ids = append(ids, row.After[0].Value)
		}
	}
	return ids
}

// collect gets and acknowledges until n rows are there.
func (r *rig) collect(c client.Connector, n int) (ids []string) {
	r.t.Helper()
	for len(ids) < n {
		m, err := c.Get(r.t.Context(), 1, client.Wait(50*time.Millisecond))
		r.must(err)
		ids = append(ids, r.ids(m)...)
	}
	return ids
}

func sequence(from, to, step int) (ids []string) {
	for i := from; i <= to; i += step {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestConsume: two clients with filters of their own see all that is theirs, in order, each with its own cursor.
func TestConsume(t *testing.T) {
	r := newRig(t, Options{})
	a, b := r.connect(1001, ""), r.connect(1002, `shop\.other`)
	r.h.write(100)
	equal(t, "all tables", r.collect(a, 100), sequence(1, 100, 1))
	equal(t, "one table", r.collect(b, 50), sequence(2, 100, 2))
	for {
		m, err := a.Get(t.Context(), 0, client.NoWait)
		r.must(err)
		if m.ID == client.NoBatch {
			if len(m.Entries) != 0 {
				t.Errorf("no batch has %d entries", len(m.Entries))
			}
			break
		}
		equal(t, "behind the last row", r.ids(m), nil) // ends of transactions
	}
}

// named are the tables of one name.
type named string

func (n named) Match(_, table string) bool { return table == string(n) }

// TestFilters: a client sees the statements about its tables; one without a filter sees what the server says; of what
// it does not see nothing is left but a last empty transaction.
func TestFilters(t *testing.T) {
	r := newRig(t, Options{Unfiltered: func(destination string) canalview.Tables {
		if destination != "shop" {
			t.Errorf("asked for destination %q", destination)
		}
		return named("other")
	}})
	r.h.statements = map[int64]string{4: "ALTER TABLE item ADD c INT", 5: "ALTER TABLE other ADD c INT", 6: "CREATE DATABASE d"}
	a, b, c := r.connect(1001, ""), r.connect(1002, `shop\.item`), r.connect(1003, `.*\..*`)
	r.h.write(20)
	for _, want := range []struct {
		c    client.Connector
		ids  []string
		sqls string
	}{
		{a, []string{"2", "4", "8", "10", "12", "14", "16", "18", "20"}, "ALTER TABLE other ADD c INT;CREATE DATABASE d"},
		{b, []string{"1", "3", "9", "11", "13", "15", "17", "19"}, "ALTER TABLE item ADD c INT;CREATE DATABASE d"},
		{c, []string{"1", "2", "3", "4", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20"}, "ALTER TABLE item ADD c INT;ALTER TABLE other ADD c INT;CREATE DATABASE d"},
	} {
		var ids, sqls []string
		for len(ids) < len(want.ids) {
			m, err := want.c.Get(t.Context(), 100, client.Wait(50*time.Millisecond))
			r.must(err)
			ids = append(ids, r.ids(m)...)
			ends, rows := 0, 0
			for _, raw := range m.Entries {
				e, err := client.ParseEntry(raw)
				r.must(err)
				switch e.Type {
				case client.TransactionEnd:
					ends++
				case client.RowData:
					rows++
					change, err := client.ParseRowChange(e.Store)
					r.must(err)
					if change.DDL {
						sqls = append(sqls, change.SQL)
					}
				}
			}
			if ends > max(rows, 1) {
				t.Errorf("%d transactions with %d changes", ends, rows)
			}
		}
		equal(t, "rows", ids, want.ids)
		if got := strings.Join(sqls, ";"); got != want.sqls {
			t.Errorf("statements %s, want %s", got, want.sqls)
		}
	}
}

// TestRollback: what was not acknowledged comes again, after a rollback and after a lost connection (I1, I2).
func TestRollback(t *testing.T) {
	r := newRig(t, Options{MemoryUnit: -1})
	r.h.write(10)
	c := r.connect(1001, "")
	get := func(n int) *client.Message {
		t.Helper()
		m, err := c.GetWithoutAck(t.Context(), 3*n, client.WaitFull)
		r.must(err)
		return m
	}
	one, two, three := get(1), get(1), get(1)
	equal(t, "third", r.ids(three), []string{"3"})
	r.must(c.Ack(t.Context(), one.ID))
	r.must(c.RollbackTo(t.Context(), three.ID))
	again := get(1)
	equal(t, "third again", r.ids(again), []string{"3"})
	if again.ID == three.ID {
		t.Error("a batch id is used again")
	}
	r.must(c.Ack(t.Context(), two.ID))
	r.must(c.Rollback(t.Context()))
	equal(t, "after a rollback", r.ids(get(2)), []string{"3", "4"})
	// Without a word: the connection is lost.
	other := r.client(1001, "", "")
	r.must(other.Connect(t.Context()))
	m, err := other.GetWithoutAck(t.Context(), 6, client.WaitFull) // the subscription is taken up with its filter
	r.must(err)
	equal(t, "another connection", r.ids(m), []string{"3", "4"})
	r.must(other.Unsubscribe(t.Context()))
	if _, err := other.GetWithoutAck(t.Context(), 1, client.NoWait); !errors.Is(err, client.ErrRefused) {
		t.Errorf("a get after unsubscribing: %v", err)
	}
}

// TestDisconnect: what was acknowledged before is not had again by the same client's next connection (I2).
func TestDisconnect(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(300)
	c := r.connect(1001, "")
	for want := 1; want <= 300; {
		m, err := c.GetWithoutAck(t.Context(), 4, client.Wait(time.Millisecond))
		r.must(err)
		ids := r.ids(m)
		equal(t, "rows", ids, sequence(want, want+len(ids)-1, 1))
		want += len(ids)
		r.must(c.Ack(t.Context(), m.ID))
		if len(ids) > 0 {
			if e, err := client.ParseEntry(m.Entries[len(m.Entries)-1]); err != nil || e.Type != client.TransactionEnd {
				want-- // a transaction that is acknowledged in part comes again whole
			}
			r.must(c.Disconnect(t.Context()))
			r.must(c.Connect(t.Context()))
			if want%3 == 0 {
				_, err = c.GetWithoutAck(t.Context(), 1, client.NoWait) // is rolled back
				r.must(err)
				r.must(c.Disconnect(t.Context()))
				r.must(c.Connect(t.Context()))
			}
		}
	}
}

// TestWrongAck: a failed ack is not answered, for the answer would be taken for that of the next
// get; the connection ends, and nothing is acknowledged (I1).
func TestWrongAck(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(4)
	for _, wrong := range []int64{999, 0, -5} {
		c := r.connect(1001, "")
		m, err := c.GetWithoutAck(t.Context(), 1, client.WaitFull)
		r.must(err)
		if ids := r.ids(m); ids[0] != "1" {
			t.Errorf("begins with %v", ids)
		}
		r.must(c.Ack(t.Context(), wrong))
		if m, err := c.GetWithoutAck(t.Context(), 1, client.NoWait); !errors.Is(err, client.ErrNotConnected) {
			t.Errorf("ack of %d: the next get gives %v, %v", wrong, m, err)
		}
	}
	c := r.connect(1001, "")
	r.must(c.Ack(t.Context(), client.NoBatch)) // what clients send for an empty batch
	r.must(c.RollbackTo(t.Context(), client.NoBatch))
	if _, err := c.GetWithoutAck(t.Context(), 1, client.NoWait); err != nil {
		t.Errorf("ack and rollback of no batch: %v", err)
	}
}

// broken cannot write entries while it is.
type broken struct {
	Encoder
	is atomic.Bool
}

func (b *broken) AppendEntry(dst []byte, e *event.Event) ([]byte, error) {
	if b.is.Load() {
		return nil, errors.New("a row that cannot be read")
	}
	return b.Encoder.AppendEntry(dst, e)
}

// TestBatchSize: what a batch's size counts is what the client gets, however small its rows are in the log; only the last entry may pass
// the limit.
func TestBatchSize(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(2000)
	c := r.connect(1001, "")
	for n := 0; n < 2000; {
		m, err := c.Get(t.Context(), 20, client.WaitFull)
		r.must(err)
		size := 0
		for _, e := range m.Entries {
			size += len(e)
		}
		if size < 10<<10 || size > 25<<10 {
			t.Fatalf("%d entries of %d bytes, asked for 20 KiB", len(m.Entries), size)
		}
		if n += len(r.ids(m)); n > 1900 {
			break // no full batch may be left
		}
	}
}

// TestAutoAck: a get that acknowledges what it hands out does not do so with what cannot be written (I3), nor past what is not acknowledged.
func TestAutoAck(t *testing.T) {
	b := &broken{Encoder: newEncoder(t)}
	r := newRig(t, Options{Encoder: b})
	r.h.write(4)
	get := func(n net.Conn) (typ int, m *client.Message) {
		t.Helper()
		r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 1, 4, 100, 6, 1)
		typ, body, err := canalwire.ReadPacket(n, maxRequest)
		r.must(err)
		m = &client.Message{}
		r.must(canalwire.Fields(body, func(f canalwire.Field) error {
			if f.Number == 2 {
				m.Entries = append(m.Entries, f.Bytes)
			}
			return nil
		}))
		return typ, m
	}
	login := func() net.Conn {
		t.Helper()
		n := r.dial()
		r.send(n, canalwire.Authentication, 5, "shop", 6, "7")
		_, body, err := canalwire.ReadPacket(n, maxRequest)
		r.must(err)
		if len(body) > 0 {
			t.Fatalf("login: %q", body)
		}
		return n
	}
	n := login()
	b.is.Store(true)
	r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 1, 4, 0, 6, 1)
	closed(t, n)
	b.is.Store(false)
	n = login()
	var ids []string
	for len(ids) < 4 {
		typ, m := get(n)
		if typ != canalwire.Messages {
			t.Fatalf("answer of type %d", typ)
		}
		ids = append(ids, r.ids(m)...)
	}
	equal(t, "rows", ids, sequence(1, 4, 1))
	r.h.write(10)
	r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 1, 4, 0) // outstanding
	_, _, err := canalwire.ReadPacket(n, maxRequest)
	r.must(err)
	if typ, _ := get(n); typ != canalwire.Ack {
		t.Errorf("while a batch is outstanding the answer is of type %d", typ)
	}
	r.send(n, canalwire.ClientRollback, 1, "shop", 2, "7")
	for ids = nil; len(ids) < 10; {
		_, m := get(n)
		ids = append(ids, r.ids(m)...)
	}
	equal(t, "rows after a rollback", ids, sequence(5, 14, 1))
}

// TestOneClient: a client id is a number, however it is written.
func TestOneClient(t *testing.T) {
	r := newRig(t, Options{})
	n := r.dial()
	r.send(n, canalwire.Authentication)
	_, _, err := canalwire.ReadPacket(n, maxRequest)
	r.must(err)
	for _, id := range []string{"7", "+7", "007", "-0", "0"} {
		r.send(n, canalwire.Subscription, 1, "shop", 2, id)
		if _, body, err := canalwire.ReadPacket(n, maxRequest); err != nil || len(body) > 0 {
			t.Fatalf("%s: %q, %v", id, body, err)
		}
	}
	all, err := r.s.ListSubscriptions(t.Context(), "shop")
	r.must(err)
	if len(all) != 2 || all[0].Identity.Client != "0" || all[1].Identity.Client != "7" {
		t.Errorf("subscriptions %v", all)
	}
}

func TestLogin(t *testing.T) {
	for _, c := range []struct {
		name           string
		o              Options
		user, password string
		clear          bool
		want           bool
	}{
		{"nobody asks", Options{}, "", "", false, true},
		{"nobody asks, and somebody answers", Options{}, "canal", "x", false, true},
		{"right", Options{User: "canal", Password: "secret"}, "canal", "secret", false, true},
		{"hashed in the configuration", Options{User: "canal", Password: canalwire.HashPassword("secret")}, "canal", "secret", false, true},
		{"wrong password", Options{User: "canal", Password: "secret"}, "canal", "Secret", false, false},
		{"wrong user", Options{User: "canal", Password: "secret"}, "root", "secret", false, false},
		{"nothing", Options{User: "canal", Password: "secret"}, "", "", false, false},
		{"clear text, off", Options{User: "canal", Password: "secret"}, "canal", "secret", true, false},
		{"clear text, on", Options{User: "canal", Password: "secret", AllowClearText: true}, "canal", "secret", true, true},
		{"clear text, wrong", Options{User: "canal", Password: "secret", AllowClearText: true}, "canal", "secret ", true, false},
		{"scramble where clear text is on", Options{User: "canal", Password: "secret", AllowClearText: true}, "canal", "secret", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.o)
			if !c.clear {
				err := r.client(1001, c.user, c.password).Connect(t.Context())
				if (err == nil) != c.want || err != nil && !errors.Is(err, client.ErrRefused) {
					t.Errorf("%v", err)
				}
				return
			}
			n := r.dial()
			r.send(n, canalwire.Authentication, 1, c.user, 2, c.password)
			_, body, err := canalwire.ReadPacket(n, maxRequest)
			r.must(err)
			if ok := len(body) == 0; ok != c.want {
				t.Errorf("answer %q", body)
			}
			if bytes.Contains(body, []byte(c.password)) {
				t.Error("the answer holds the password")
			}
			if !c.want {
				closed(t, n)
			}
		})
	}
	for _, o := range []Options{{User: "canal"}, {Password: "x"}} {
		o.Upstream, o.Encoder = (*server.Server)(nil), &canalpb.Codec{}
		if _, err := New(o); err == nil {
			t.Errorf("accepted: user %q, password %q", o.User, o.Password)
		}
	}
}

// dial connects and reads the handshake.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	n, err := net.Dial("tcp", r.address)
	r.must(err)
	r.t.Cleanup(func() { _ = n.Close() })
	r.must(n.SetDeadline(time.Now().Add(time.Minute)))
	typ, body, err := canalwire.ReadPacket(n, maxRequest)
	r.must(err)
	if typ != canalwire.Handshake || len(body) == 0 {
		r.t.Fatalf("greeted by type %d, %q", typ, body)
	}
	return n
}

// send sends a packet of fields: a number and its value, a string or a number.
func (r *rig) send(n net.Conn, typ int, fields ...any) {
	r.t.Helper()
	var body []byte
	for i := 0; i < len(fields); i += 2 {
		tag := byte(fields[i].(int)) << 3
		switch v := fields[i+1].(type) {
		case string:
			body = append(append(body, tag|2, byte(len(v))), v...)
		case int:
			body = append(body, tag, byte(v))
		}
	}
	_, err := n.Write(canalwire.AppendPacket(nil, typ, false, body))
	r.must(err)
}

func closed(t *testing.T, n net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(n); len(b) > 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("instead of the end came %q, %v", b, err)
	}
}

// TestHabits: what the clients of other languages do.
func TestHabits(t *testing.T) {
	r := newRig(t, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r.h.write(3)
	n := r.dial()
	r.send(n, canalwire.Authentication, 1, "", 2, "", 5, "shop", 6, "7", 7, `shop\..*`) // subscribes with the login
	answer := func(want int) []byte {
		t.Helper()
		typ, body, err := canalwire.ReadPacket(n, maxRequest)
		r.must(err)
		if typ != want {
			t.Fatalf("answer of type %d (%q), want %d", typ, body, want)
		}
		return body
	}
	if b := answer(canalwire.Ack); len(b) != 0 {
		t.Fatalf("login: %q", b)
	}
	// A rollback before the subscription of another client is ignored, and not answered.
	r.send(n, canalwire.ClientRollback, 1, "shop", 2, "8", 3, 0)
	r.send(n, canalwire.ClientAck, 1, "shop", 2, "7", 3, 0x7f)
	closed(t, n)

	n = r.dial()
	r.send(n, canalwire.Authentication)
	answer(canalwire.Ack)
	r.send(n, canalwire.ClientRollback, 1, "shop", 2, "7") // rolls back before it subscribes
	r.send(n, canalwire.Subscription, 1, "shop", 2, "7", 7, "")
	if b := answer(canalwire.Ack); len(b) != 0 {
		t.Fatalf("subscription: %q", b)
	}
	// No timeout, no unit: what there is, once it is read.
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 100)
		b := answer(canalwire.Messages)
		if bytes.Contains(b, []byte("item")) {
			break
		}
		if time.Since(start) > 5*time.Minute {
			t.Fatalf("messages: %q", b)
		}
	}
	for _, c := range []struct {
		what   string
		typ    int
		fields []any
	}{
		{"no destination", canalwire.Subscription, []any{2, "7"}},
		{"no client", canalwire.Get, []any{1, "shop"}},
		{"a client id that is no number", canalwire.Subscription, []any{1, "shop", 2, "x"}},
		{"a client id that is too large", canalwire.Subscription, []any{1, "shop", 2, "40000"}},
		{"an unknown destination", canalwire.Subscription, []any{1, "none", 2, "7"}},
		{"a get from one", canalwire.Get, []any{1, "none", 2, "7"}},
		{"a get without a subscription", canalwire.Get, []any{1, "shop", 2, "99"}},
		{"a destination that is no text", canalwire.Subscription, []any{1, "\xff", 2, "7", 7, "("}},
		{"a filter that cannot be read", canalwire.Subscription, []any{1, "shop", 2, "7", 7, "("}},
		{"a heartbeat", 11, nil},
		{"a packet type that is none", 99, nil},
	} {
		r.send(n, c.typ, c.fields...)
		if b := answer(canalwire.Ack); len(b) == 0 {
			t.Errorf("%s is accepted", c.what)
		} else if fields, err := codectest.ParseFields(b); err != nil || !utf8.ValidString(fields.Text(2)) {
			t.Errorf("%s: %q (%v)", c.what, b, err)
		}
	}
	r.send(n, canalwire.Get, 1, "shop", 2, "7", 4, 1, 5, 2)
	answer(canalwire.Messages)
}

// TestUnsentBatch: what a connection that is lost has not got comes first to the one that follows it, although the two overlap.
func TestUnsentBatch(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(30)
	p := r.servePipes()
	lost := p.dial(t)
	buf := make([]byte, 1<<20)
	send := func(typ int, fields ...field) {
		t.Helper()
		if _, err := lost.Write(framed(typ, message(fields...))); err != nil {
			t.Fatal(err)
		}
	}
	me := []field{{1, "shop"}, {2, "1001"}}
	whole(t, lost, buf)
	send(canalwire.Authentication, field{1, "x"})
	whole(t, lost, buf)
	send(canalwire.Subscription, me...)
	whole(t, lost, buf)
	next := r.connect(1001, "") // rolls back what was got before
	outstanding := func() int {
		ids, err := r.s.ListBatchIDs(t.Context(), server.Identity{Destination: "shop", Client: "1001"})
		r.must(err)
		return len(ids)
	}
	send(canalwire.Get, append(me, field{3, 2}, field{4, 0})...) // and nobody reads the answer
	await := func(want bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); (outstanding() > 0) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d batches are outstanding", outstanding())
			}
		}
	}
	await(true)
	_ = lost.Close()
	await(false)
	equal(t, "the connection that follows", r.collect(next, 30), sequence(1, 30, 1))
}

// TestGone: a client that leaves while its get waits is let go at once, and holds nobody up.
func TestGone(t *testing.T) {
	r := newRig(t, Options{})
	c := r.connect(1001, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.GetWithoutAck(ctx, 0, client.WaitFull)
		done <- err
	}()
	for r.tcp.Status().Requests < 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the get ended with %v", err)
	}
	for {
		status := r.s.Status()[0]
		if len(status.Subscriptions) == 0 && r.tcp.Status().Connections == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// holding returns a connection of client 7 with a batch that it has not acknowledged, and the batch's id.
func (r *rig) holding() (n net.Conn, id int) {
	r.t.Helper()
	n = r.dial()
	r.send(n, canalwire.Authentication, 5, "shop", 6, "7")
	_, _, err := canalwire.ReadPacket(n, maxRequest)
	r.must(err)
	r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 1, 4, 0)
	_, body, err := canalwire.ReadPacket(n, maxRequest)
	r.must(err)
	r.must(canalwire.Fields(body, func(f canalwire.Field) error {
		if f.Number == 1 {
			id = int(f.Varint)
		}
		return nil
	}))
	return n, id
}

// ended waits until the server has no connection.
func (r *rig) ended() {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); r.tcp.Status().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("a connection is left whose client has gone")
		}
	}
}

// TestGoneBehindItsGet: a client that gives up a get, sends something behind it and leaves is let go at once, too: else one that tries
// again and again fills the server with connections, whose gets take what the next one should get. What it has acknowledged counts.
func TestGoneBehindItsGet(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(20)
	for _, behind := range []int{canalwire.ClientRollback, canalwire.ClientAck, canalwire.Get, canalwire.Unsubscription} {
		n, id := r.holding()
		_, err := n.Write(framed(canalwire.Get, message(field{1, "shop"}, field{2, "7"}, field{3, 1 << 20}, field{4, 0}))) // never full
		r.must(err)
		r.send(n, behind, 1, "shop", 2, "7", 3, id)
		_ = n.Close()
		r.ended()
		if behind == canalwire.ClientAck {
			cursor, err := r.s.Cursor(t.Context(), server.Identity{Destination: "shop", Client: "7"})
			if err != nil || cursor.Last() == 0 {
				t.Errorf("what was acknowledged before the end is forgotten: %+v, %v", cursor, err)
			}
		}
	}
}

// TestAckBehindAnAnswerThatFails: what a client has acknowledged behind its last get counts, though that finds a batch in the instant in
// which the client leaves and nobody can have it any more.
func TestAckBehindAnAnswerThatFails(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(20)
	n, id := r.holding()
	r.must(r.tcp.memory.Acquire(t.Context(), r.tcp.most)) // the answer has to wait
	me := server.Identity{Destination: "shop", Client: "7"}
	outstanding := func(want int) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			ids, err := r.s.ListBatchIDs(t.Context(), me)
			r.must(err)
			if len(ids) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d batches are outstanding", len(ids))
			}
		}
	}
	outstanding(1)
	r.send(n, canalwire.Get, 1, "shop", 2, "7", 3, 1, 4, 0)
	outstanding(2)
	r.send(n, canalwire.ClientAck, 1, "shop", 2, "7", 3, id)
	_ = n.Close()
	r.ended()
	r.tcp.memory.Release(r.tcp.most)
	cursor, err := r.s.Cursor(t.Context(), me)
	if err != nil || cursor.Last() == 0 {
		t.Errorf("what was acknowledged is forgotten: %+v, %v", cursor, err)
	}
}

// TestAckBehindARefusal: the same, where the answer in between is a refusal.
func TestAckBehindARefusal(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(20)
	n := r.servePipes().dial(t)
	buf := make([]byte, 1<<20)
	me := []field{{1, "shop"}, {2, "7"}}
	send := func(typ int, fields ...field) {
		t.Helper()
		if _, err := n.Write(framed(typ, message(append(me[:2:2], fields...)...))); err != nil {
			t.Fatal(err)
		}
	}
	whole(t, n, buf)
	send(canalwire.Authentication, field{1, "x"})
	whole(t, n, buf)
	send(canalwire.Subscription)
	whole(t, n, buf)
	send(canalwire.Get, field{3, 1}, field{4, 0})
	whole(t, n, buf)
	id := server.Identity{Destination: "shop", Client: "7"}
	got, err := r.s.ListBatchIDs(t.Context(), id)
	r.must(err)
	if len(got) != 1 {
		t.Fatalf("%d batches are outstanding", len(got))
	}
	send(canalwire.Get, field{3, 1 << 20}, field{4, 0}) // never full
	send(99)
	send(canalwire.ClientAck, field{3, int(got[0])})
	_ = n.Close()
	r.ended()
	cursor, err := r.s.Cursor(t.Context(), id)
	if err != nil || cursor.Last() == 0 {
		t.Errorf("what was acknowledged is forgotten: %+v, %v", cursor, err)
	}
}

// TestSubscriptionLost: where a client has not ended its subscription itself, a get is not answered by an ack, which some clients do not
// survive; the connection ends, and with the next one all goes on.
func TestSubscriptionLost(t *testing.T) {
	r := newRig(t, Options{})
	r.h.write(4)
	lost := func(c *client.TCP) {
		t.Helper()
		if _, err := c.GetWithoutAck(t.Context(), 1, client.NoWait); !errors.Is(err, client.ErrNotConnected) {
			t.Errorf("the get gives %v", err)
		}
	}
	c := r.connect(1001, "")
	r.must(r.s.RemoveDestination(t.Context(), "shop"))
	r.must(r.s.AddDestination("shop", r.h, server.DestinationOptions{}))
	r.must(r.s.Start(t.Context(), "shop"))
	lost(c)
	r.must(c.Connect(t.Context()))
	equal(t, "when the destination is back", r.collect(c, 4), sequence(1, 4, 1))

	r.must(r.connect(1001, "").Unsubscribe(t.Context()))
	lost(c)
	c = r.connect(1001, "")
	r.must(c.Unsubscribe(t.Context()))
	if _, err := c.GetWithoutAck(t.Context(), 1, client.NoWait); !errors.Is(err, client.ErrRefused) {
		t.Errorf("a get behind an unsubscription gives %v", err)
	}
	r.must(c.Subscribe(t.Context(), ""))
	if _, err := c.GetWithoutAck(t.Context(), 1, client.NoWait); err != nil {
		t.Error(err)
	}
}

// TestSourceFails: when reading has stopped, a client's connection ends; it is not told that there is nothing (I3).
func TestSourceFails(t *testing.T) {
	r := newRig(t, Options{})
	c := r.connect(1001, "")
	r.h.fail(errors.New("table shop.item: unknown column type 200"))
	for {
		m, err := c.GetWithoutAck(t.Context(), 0, client.NoWait)
		if err != nil {
			if !errors.Is(err, client.ErrNotConnected) {
				t.Error(err)
			}
			return
		}
		if m.ID != client.NoBatch {
			t.Fatalf("batch %d", m.ID)
		}
	}
}

// TestLazy: a destination is read from the first subscription on.
func TestLazy(t *testing.T) {
	r := newRig(t, Options{})
	if s := r.s.Status()[0].State; s != server.Idle {
		t.Errorf("state %s without a client", s)
	}
	r.h.write(1)
	equal(t, "rows", r.collect(r.connect(1001, ""), 1), []string{"1"})
}

func TestEmbedded(t *testing.T) {
	r := newRig(t, Options{})
	b := &broken{Encoder: newEncoder(t)}
	c := client.NewEmbedded(r.s, server.Identity{Destination: "shop", Client: "5"}, b)
	if err := c.Subscribe(t.Context(), ""); !errors.Is(err, client.ErrNotConnected) {
		t.Error(err)
	}
	r.must(c.Connect(t.Context()))
	r.must(c.Subscribe(t.Context(), `shop\.item`))
	r.h.write(10)
	b.is.Store(true) // I3: what cannot be written is not passed over
	for range 2 {
		if m, err := c.Get(t.Context(), 1, client.WaitFull); err == nil {
			t.Errorf("a batch that cannot be written: %v", m)
		}
	}
	b.is.Store(false)
	equal(t, "rows", r.collect(c, 5), sequence(1, 10, 2))
	r.must(c.Disconnect(t.Context()))
	r.must(c.Connect(t.Context()))
	r.h.write(2)
	equal(t, "rows after a pause", r.collect(c, 1), []string{"11"})
	r.must(c.Unsubscribe(t.Context()))
	r.must(c.Disconnect(t.Context()))
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		timeout int64
		unit    int32
		want    server.Wait
	}{
		{-1, 2, server.NoWait}, {-1, -1, server.NoWait}, {0, 2, server.WaitFull}, {5, 2, server.WaitAtMost(5 * time.Millisecond)},
		{5, 3, server.WaitAtMost(5 * time.Second)}, {5, 6, server.WaitAtMost(120 * time.Hour)}, {5, 7, server.WaitAtMost(5 * time.Millisecond)},
		{5, -1, server.WaitAtMost(5 * time.Millisecond)}, {1 << 62, 6, server.WaitAtMost(365 * 24 * time.Hour)},
	} {
		if got := wait(c.timeout, c.unit); got != c.want {
			t.Errorf("%d of unit %d: %v, want %v", c.timeout, c.unit, got, c.want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(6, []byte("\x0a\x04shop\x12\x041001\x18\x01"))
	f.Fuzz(func(t *testing.T, typ int, b []byte) {
		if r, err := parseRequest(typ, b); err == nil {
			_, _ = identity(r.destination, r.client)
			_ = wait(r.timeout, r.unit)
		}
		_, _ = parseLogin(b)
	})
}
