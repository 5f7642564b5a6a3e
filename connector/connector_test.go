package connector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
)

func newUnit(t *testing.T) *Connector {
	t.Helper()
	c, err := New(Options{Destination: "shop", Addresses: []string{"127.0.0.1:1"}, User: "u", Password: "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNew(t *testing.T) {
	_, err := New(Options{SchemaFrom: "x", Start: "yesterday"})
	for _, want := range []string{"no name", "no address", "schema source", "start:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	c := newUnit(t)
	if c.opt.Start != "latest" || c.opt.ReadTimeout != 3*c.opt.Heartbeat || c.opt.Heartbeat <= 0 {
		t.Errorf("%+v", c.opt)
	}
}

func TestParseStart(t *testing.T) {
	for text, want := range map[string]startKind{
		"latest": startLatest, "earliest": startEarliest, "gtid:0-1-2": startGTIDs, "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:1": startGTIDs,
		"binlog.000001:4": startFile, "mysql-bin.000123:99999999999": startFile, "2026-01-31T12:00:00Z": startTime, "2026-01-31T12:00:00.5+02:00": startTime,
	} {
		if at, err := parseStart(text); err != nil || at.kind != want {
			t.Errorf("%q: %+v, %v", text, at, err)
		}
	}
	for _, text := range []string{"", "now", "gtid:", "gtid:x", "gtid:0-1-2,3e11fa47-71ca-11e1-9e33-c80aa9429562:1", "binlog.000001", "binlog.000001:3", "binlog:4", ".:4", "binlog.x1:4", "2026-01-31", "binlog.000001:-4"} {
		if at, err := parseStart(text); err == nil {
			t.Errorf("%q: %+v", text, at)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add("binlog.000001:4")
	f.Fuzz(func(t *testing.T, s string) { _, _ = parseStart(s) })
}

// Restarts keep the identity; readers, destinations and hosts differ.
func TestIdentity(t *testing.T) {
	a, b := newUnit(t), newUnit(t)
	if a.identity(0) != b.identity(0) {
		t.Error("another identity after a restart")
	}
	seen := map[uint32]string{}
	uuids := map[string]bool{}
	for _, dest := range []string{"shop", "shop2"} {
		for _, host := range []string{"h1", "h2"} {
			c := newUnit(t)
			c.opt.Destination, c.host = dest, host
			for slot := range 10 {
				id := c.identity(slot)
				name := fmt.Sprint(dest, host, slot)
				if seen[id.serverID] != "" || uuids[id.uuid] {
					t.Errorf("%s has the identity of %s", name, seen[id.serverID])
				}
				seen[id.serverID], uuids[id.uuid] = name, true
				if u, err := event.ParseUUID(id.uuid); err != nil || u[6]>>4 != 5 || id.serverID < 1<<31 || len(id.host) > 60 {
					t.Errorf("%+v, %v", id, err)
				}
			}
		}
	}
	a.opt.ServerID = 77
	if a.identity(0).serverID != 77 || a.identity(1).serverID == 77 {
		t.Error("a configured server id belongs to the first reader")
	}
}

// TestAwayRemedies: what is retried for ever says what to do, and where TLS fails that the network is not to blame.
func TestAwayRemedies(t *testing.T) {
	c := newUnit(t)
	for _, x := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "check address, port"},
		{&net.DNSError{Err: "no such host"}, "check address, port"},
		{fmt.Errorf("writeAuthHandshake: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), "check source.tls (ca, server_name"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(116)}, "check source.tls (ca, server_name"},
		{errors.New("the MySQL Server does not support TLS required by the client"), "check source.tls (ca, server_name"},
	} {
		var away *awayError
		if err := c.judge(x.err); !errors.As(err, &away) || !strings.Contains(err.Error(), "it is tried again: "+x.want) || !errors.Is(err, x.err) {
			t.Errorf("%v: %v, want %q", x.err, err, x.want)
		}
	}
}

// TestInsideAnEvent: what the source says of an offset that somebody has mistaken is no matter of packets alone.
func TestInsideAnEvent(t *testing.T) {
	err := newUnit(t).judge(&binlog.ServerError{Code: 1236, Message: "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; the first event 'binlog.000001' at 5"})
	var stop *StopError
	if !errors.As(err, &stop) || !strings.Contains(stop.Remedy, "name one where a transaction ends") {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	c := newUnit(t)
	stops := func(err error) string {
		var stop *StopError
		if errors.As(c.judge(err), &stop) {
			if stop.Remedy == "" {
				t.Errorf("no remedy: %v", stop)
			}
			return stop.What
		}
		return ""
	}
	dump := func(code uint16, text string) error {
		return fmt.Errorf("x: %w", &binlog.ServerError{Code: code, Message: text})
	}
	for _, x := range []struct {
		err  error
		want string // "": retried
	}{
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, ""},
		{context.DeadlineExceeded, ""},
		{binlog.ErrStreamEnd, ""},
		{mysql.NewDefaultError(mysql.ER_CON_COUNT_ERROR), ""},
		{mysql.NewDefaultError(mysql.ER_SERVER_SHUTDOWN), ""},
		{fmt.Errorf("connecting: %w", mysql.NewError(mysql.ER_ACCESS_DENIED_ERROR, "Access denied")), "refuses the login"},
		{mysql.NewError(mysql.ER_HOST_NOT_PRIVILEGED, "Host"), "no account"},
		{mysql.NewError(mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, "you need REPLICATION SLAVE"), "lacks a privilege"},
		{dump(1236, "Could not find first log file name in binary log index file"), "purged"},
		{dump(1236, "Cannot replicate because the source purged required binary logs."), "purged"},
		{dump(1236, "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog"), "does not have the position"},
		{dump(1236, "Client requested source to start replication from position > file size"), "cannot send"},
		{dump(1236, "Binary log is not open"), "binary log is off"},
		{dump(1236, "A replica with the same server_uuid/server_id as this replica has connected to the source"), ""},
		{dump(4052, "A slave with the same server_id is already connected"), ""},
		{c.stop("x", "y", nil), "x"},
	} {
		if got := stops(x.err); (got == "") != (x.want == "") || !strings.Contains(got, x.want) {
			t.Errorf("%v: %q, want %q", x.err, got, x.want)
		}
	}
	if c.judge(nil) != nil {
		t.Error("nil is judged an error")
	}
}

// Three evictions in ten minutes are another process, one is a restart of ours.
func TestEvictions(t *testing.T) {
	r := &reader{c: newUnit(t), id: newUnit(t).identity(0)}
	err := &binlog.ServerError{Code: errSameID, Message: "same id"}
	var stop *StopError
	for i := range 3 {
		if got := r.judge(err); errors.As(got, &stop) != (i == 2) {
			t.Errorf("eviction %d: %v", i, got)
		}
	}
	r.evictions = []time.Time{time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)}
	if got := r.judge(err); errors.As(got, &stop) {
		t.Errorf("old evictions count: %v", got)
	}
	for i := range 3 {
		if got := r.judge(binlog.ErrChecksum); errors.As(got, &stop) != (i == 2) {
			t.Errorf("damage %d: %v", i, got)
		}
	}
}

// The transaction that was open when the link broke comes again: what was put is skipped, once it is proven the same (D2).
func TestReplayOfOpenTransaction(t *testing.T) {
	txn := func(seq uint64, uuid string) *event.Txn {
		return &event.Txn{GTID: event.GTID{SID: [16]byte{1}, Seq: seq}, File: "binlog.000001", Start: 100 * seq, ServerUUID: uuid}
	}
	rows := func(x *event.Txn, ordinal int64, n uint32) *event.Event {
		return &event.Event{Kind: event.Rows, Op: event.Insert, Ordinal: ordinal, Rows: n, Txn: x}
	}
	begin := func(x *event.Txn) *event.Event { return &event.Event{Kind: event.Begin, Txn: x} }
	end := func(x *event.Txn, ordinal int64) *event.Event {
		return &event.Event{Kind: event.End, Ordinal: ordinal, Txn: x}
	}
	a := txn(7, "u")
	for name, c := range map[string]struct {
		again []*event.Event
		want  string // ordinals that pass, or part of the error
	}{
		"same":            {[]*event.Event{begin(a), rows(a, 11, 2), rows(a, 13, 3), rows(a, 16, 1), end(a, 17)}, "16 17"},
		"nothing more":    {[]*event.Event{begin(a), rows(a, 11, 2), rows(a, 13, 3), end(a, 16)}, "16"},
		"another GTID":    {[]*event.Event{begin(txn(8, "u"))}, "is gone"},
		"another server":  {[]*event.Event{begin(txn(7, "v"))}, "another server"},
		"shorter":         {[]*event.Event{begin(a), rows(a, 11, 2), end(a, 13)}, "other row changes"},
		"other borders":   {[]*event.Event{begin(a), rows(a, 11, 9)}, "other row changes"},
		"DDL in between":  {[]*event.Event{begin(a), rows(a, 11, 2), {Kind: event.DDL, Ordinal: 13, Txn: a}, rows(a, 14, 3), end(a, 17)}, "other row changes"},
		"no GTID, moved":  {[]*event.Event{begin(&event.Txn{File: "binlog.000001", Start: 701, ServerUUID: "u"})}, "is gone"},
		"GTID disappears": {[]*event.Event{begin(&event.Txn{File: "binlog.000001", Start: 700, ServerUUID: "u"})}, "is gone"},
	} {
		r := &reader{c: newUnit(t), history: schema.NewHistory(nil), put: func(context.Context, []*event.Event) error { return nil }, ordinal: 10, done: 10}
		for _, e := range []*event.Event{begin(a), rows(a, 11, 2), rows(a, 13, 3)} {
			if err := r.emit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.flush(t.Context()); err != nil || r.done != 15 || r.ordinal != 10 || r.open == nil {
			t.Fatalf("%v, %+v", err, r)
		}
		r.replay = true
		got := ""
		for _, e := range c.again {
			if err := r.emit(t.Context(), e); err != nil {
				got = err.Error()
				break
			}
		}
		if got == "" {
			for _, e := range r.batch {
				got = strings.TrimSpace(fmt.Sprint(got, " ", e.Ordinal))
			}
		}
		if !strings.Contains(got, c.want) || !strings.Contains(c.want, " ") && got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	st := &status{files: []logFile{{"b.000001", 100}, {"b.000002", 200}, {"b.000003", 300}}}
	for _, c := range []struct {
		file   string
		at     uint64
		source string
		end    uint64
		bytes  uint64
		behind bool
	}{
		{"", 0, "", 0, 0, false}, {"b.000003", 50, "b.000003", 60, 10, true}, {"b.000003", 60, "b.000003", 60, 0, false}, {"b.000003", 70, "b.000003", 60, 0, false},
		{"b.000001", 40, "b.000003", 60, 60 + 200 + 60, true}, {"b.000002", 200, "b.000003", 60, 60, true}, {"b.000004", 4, "b.000003", 60, 0, false},
	} {
		st.s.File, st.s.Offset, st.s.SourceFile, st.s.SourceAt = c.file, c.at, c.source, c.end
		if n, behind := st.distance(); n != c.bytes || behind != c.behind {
			t.Errorf("%+v: %d, %v", c, n, behind)
		}
	}
}

// A source that is down is asked again, by no more goroutines than the first time; the context ends it; no secret is in the error.
func TestSourceDown(t *testing.T) {
	const addr = "127.0.0.1:1"
	c := newUnit(t)
	c.opt.Addresses = []string{addr}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- c.Read(ctx, event.Cursor{}, func(context.Context, []*event.Event) error { return nil })
	}()
	attempts := func(n int64) {
		for c.Status().Reconnects < n {
			time.Sleep(10 * time.Millisecond)
		}
	}
	attempts(2)
	goroutines := runtime.NumGoroutine()
	attempts(5)
	for deadline := time.Now().Add(5 * time.Minute); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines after 2 attempts, %d after 5", goroutines, runtime.NumGoroutine())
		}
	}
	if st := c.Status(); st.Connected || st.Err == nil || strings.Contains(st.Err.Error(), "hunter2") || !strings.Contains(st.Err.Error(), addr) {
		t.Errorf("%+v", st)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	found := c.Check(t.Context())
	if len(found) != 1 || found[0].Severity != Error || found[0].Remedy == "" {
		t.Errorf("%+v", found)
	}
}

// A server that accepts and says nothing does not hold us for ever.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newUnit(t)
	c.opt.Addresses, c.opt.DialTimeout = []string{l.Addr().String()}, 50*time.Millisecond
	if _, _, err := c.connect(t.Context()); err == nil {
		t.Error("connected")
	}
}

// small is a schema.Keeper that takes nothing.
type small struct{ asked int }

func (*small) Load(context.Context) ([]byte, error) { return nil, nil }

func (k *small) Save(context.Context, []byte) error {
	k.asked++
	return &StopError{What: "it does not fit", Remedy: "have less", Err: schema.ErrTooLarge}
}

func (*small) Cursors(context.Context) ([]event.Position, error) { return nil, nil }

// I6, I9: a history that cannot be saved stops a source whose rows have no names; one whose log has them goes on without.
func TestHistoryTooLarge(t *testing.T) {
	for _, full := range []bool{false, true} {
		k := &small{}
		r := &reader{c: newUnit(t), history: schema.NewHistory(k), full: full, put: func(context.Context, []*event.Event) error { return nil }}
		place := event.Position{File: "binlog.000001", Offset: 4, ServerUUID: "s"}
		none := schema.Opening{Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) { return nil, place, nil }}
		if _, err := r.history.Open(place, schema.ViewOptions{}, none); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r.batch = []*event.Event{{Kind: event.End, Txn: &event.Txn{}}}
			err := r.flush(t.Context())
			var stop *StopError
			if full && err != nil || !full && (!errors.As(err, &stop) || stop.Destination != "shop" || stop.Remedy == "") {
				t.Errorf("full metadata %v: %v", full, err)
			}
			r.history.Forget(ddl.Name{Schema: "shop", Table: "t"}) // there is something to be saved again
		}
		if full && k.asked != 1 {
			t.Errorf("it is tried %d times", k.asked)
		}
	}
}

// I5: one that tells which rows are passed over is needed in any case.
func TestHistoryTooLargeWithPassedRows(t *testing.T) {
	r := &reader{c: newUnit(t), history: schema.NewHistory(&small{}), full: true, put: func(context.Context, []*event.Event) error {
		t.Error("rows are handed on")
		return nil
	}}
	if _, err := r.history.Adopt([]byte(`{"format":1,"tables":[],"passed_over":[{"schema":"shop","table":"t","definition":"d","from":{"file":"binlog.000001","offset":4,"gtids":"","server_uuid":"s"}}]}`)); err != nil {
		t.Fatal(err)
	}
	r.batch = []*event.Event{{Kind: event.End, Txn: &event.Txn{}}}
	var stop *StopError
	if err := r.flush(t.Context()); !errors.As(err, &stop) {
		t.Error(err)
	}
}

// noRoom is a schema.Keeper that cannot save for want of room.
type noRoom struct{ small }

func (*noRoom) Save(context.Context, []byte) error { return errors.New("no space left on device") }

// A history that cannot be saved is told once, and not as a fault of the source; one of the source beside it is told, too.
func TestHistoryNotSaved(t *testing.T) {
	r := &reader{c: newUnit(t), history: schema.NewHistory(&noRoom{}), put: func(context.Context, []*event.Event) error {
		t.Error("rows are handed on before what they were decoded with is saved") // I6
		return nil
	}}
	place := event.Position{File: "binlog.000001", Offset: 4, ServerUUID: "s"}
	none := schema.Opening{Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) { return nil, place, nil }}
	if _, err := r.history.Open(place, schema.ViewOptions{}, none); err != nil {
		t.Fatal(err)
	}
	r.batch = []*event.Event{{Kind: event.End, Txn: &event.Txn{}}}
	for name, fault := range map[string]error{"while reading": r.flush(t.Context()), "at the end": errors.New("the source closed the connection")} {
		err := r.judge(r.finish(t.Context(), fault))
		if n := strings.Count(fmt.Sprint(err), "no space left"); n != 1 || !strings.Contains(interruption(err), "cannot be saved") || strings.Contains(interruption(err), "source") {
			t.Errorf("%s: %v (%s)", name, err, interruption(err))
		}
		if !errors.Is(err, fault) {
			t.Errorf("%s: %v lacks %v", name, err, fault)
		}
	}
	if got := interruption(errors.New("broken pipe")); got != "lost the source; reconnecting" {
		t.Error(got)
	}
}
