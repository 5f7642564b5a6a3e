package client

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func encoder(t testing.TB) *canalpb.Codec {
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

// TestParse reads back what the server writes.
func TestParse(t *testing.T) {
	c, tab := encoder(t), codectest.Shop(t)
	v := codectest.V
	before := []codectest.Cell{v(codectest.Le(7, 4)), v([]byte("pen")), v(codectest.Le(5, 4)), codectest.Null}
	after := []codectest.Cell{v(codectest.Le(7, 4)), v([]byte("pen")), v(codectest.Le(6, 4)), v([]byte("x"))}
	raw, err := c.AppendEntry(nil, codectest.Event(tab, before, after))
	if err != nil {
		t.Fatal(err)
	}
	e, err := ParseEntry(raw)
	if err != nil {
		t.Fatal(err)
	}
	h := e.Header
	if e.Type != RowData || h.Schema != "shop" || h.Table != "item" || h.EventType != Update || h.GTID == "" || h.File != "binlog.000007" ||
		h.Props["rowsCount"] != "1" || h.Props["curtGtid"] != h.GTID || h.ServerID == 0 && h.Offset == 0 {
		t.Errorf("entry %+v", e)
	}
	r, err := ParseRowChange(e.Store)
	if err != nil {
		t.Fatal(err)
	}
	column := func(i, typ int, name, mysql string) Column {
		return Column{Index: i, SQLType: typ, Name: name, MySQLType: mysql, Key: i == 0}
	}
	id, name, qty, note := column(0, 4, "id", "int"), column(1, 12, "name", "varchar(20)"), column(2, -5, "qty", "int unsigned"), column(3, 2005, "note", "text")
	id.Value, name.Value, qty.Value, note.Null = "7", "pen", "5", true
	want := Row{Before: []Column{id, name, qty, note}}
	qty.Value, qty.Updated, note.Null, note.Value, note.Updated = "6", true, false, "x", true
	want.After = []Column{id, name, qty, note}
	if r.EventType != Update || r.DDL || len(r.Rows) != 1 || !reflect.DeepEqual(r.Rows[0], want) {
		t.Errorf("row change\n%+v, want\n%+v", r.Rows, want)
	}

	raw, err = c.AppendEntry(nil, codectest.DDL("shop", "ALTER TABLE item ADD c INT"))
	if err != nil {
		t.Fatal(err)
	}
	if e, err = ParseEntry(raw); err != nil {
		t.Fatal(err)
	}
	if r, err = ParseRowChange(e.Store); err != nil || !r.DDL || r.EventType != Alter || r.SQL != "ALTER TABLE item ADD c INT" || r.DDLSchema != "shop" || e.Header.Table != "item" {
		t.Errorf("statement %+v of %+v (%v)", r, e.Header, err)
	}
	raw, err = c.AppendEntry(nil, &event.Event{Kind: event.End, Txn: codectest.Txn})
	if err != nil {
		t.Fatal(err)
	}
	if e, err = ParseEntry(raw); err != nil || e.Type != TransactionEnd {
		t.Errorf("end %+v (%v)", e, err)
	}
}

func FuzzParse(f *testing.F) {
	raw, err := encoder(f).AppendEntry(nil, codectest.DDL("shop", "CREATE TABLE t (id INT)"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte{0x0a, 0x80})
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if e, err := ParseEntry(raw); err == nil {
			_, _ = ParseRowChange(e.Store)
		}
		_, _ = ParseRowChange(raw)
	})
}

// TestForeignServer: what is not Canal's protocol, or is cut short, is an error and never more than that.
func TestForeignServer(t *testing.T) {
	seed := canalwire.AppendPacket(nil, canalwire.Handshake, true, []byte("\x12\x08\x01\x02\x03\x04\x05\x06\x07\x08"))
	for name, answer := range map[string][]byte{
		"nothing":               nil,
		"another protocol":      []byte("SSH-2.0-OpenSSH_9.7\r\n"),
		"an early answer":       canalwire.AppendPacket(nil, canalwire.Ack, false, nil),
		"half a packet":         seed[:7],
		"no answer to a login":  seed,
		"another answer to it":  append(append([]byte(nil), seed...), canalwire.AppendPacket(nil, canalwire.Messages, false, nil)...),
		"a refusal":             append(append([]byte(nil), seed...), canalwire.AppendPacket(nil, canalwire.Ack, false, []byte("\x08\x90\x03\x12\x02no"))...),
		"an ack that is broken": append(append([]byte(nil), seed...), canalwire.AppendPacket(nil, canalwire.Ack, false, []byte{0x12, 0xff})...),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				n, err := l.Accept()
				if err != nil {
					return
				}
				defer n.Close()
				_, _ = n.Write(answer)
				_ = n.(*net.TCPConn).CloseWrite()
				_ = n.SetReadDeadline(time.Now().Add(time.Minute))
				_, _ = n.Read(make([]byte, 1000)) // the login, or the end
			}()
			defer func() { _ = l.Close(); <-done }()
			c, err := NewTCP(TCPOptions{Address: l.Addr().String(), Destination: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Connect(t.Context()); err == nil {
				t.Error("connected")
			} else if refused := name == "a refusal"; refused != errors.Is(err, ErrRefused) {
				t.Error(err)
			}
			if _, err := c.GetWithoutAck(t.Context(), 0, NoWait); !errors.Is(err, ErrNotConnected) {
				t.Errorf("a get without a connection: %v", err)
			}
			if err := c.Disconnect(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := NewTCP(TCPOptions{Address: "h:1"}); err == nil {
		t.Error("accepted without a destination")
	}
}
