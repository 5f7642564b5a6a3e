package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

// I6: the operator sees what is known of tables, and has it looked up again, of one table or of all.
func TestSchemaCommands(t *testing.T) {
	config, dir := settings(t)
	if code, out, errs := call(t, "", "schema", "show", "-c", config); code != 0 || out != "" {
		t.Errorf("without a store: %d %s %s", code, out, errs)
	}
	const history = `{"format":1,"tables_at":{"file":"binlog.000001","offset":4,"gtids":"","server_uuid":"s"},"read":{"file":"binlog.000002","offset":900,"gtids":"","server_uuid":"s"},` +
		`"tables":[{"schema":"shop","definition":{"charset":"utf8mb4"}},{"schema":"shop","table":"t","definition":{"columns":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}},` +
		`{"schema":"shop","table":"u","definition":{"columns":[{"name":"x","type":"int"}]}}],` +
		`"versions":[{"schema":"shop","table":"u","server":"s","file":"binlog.000001","start":100,"end":200,"state":0}]}`
	save := func(data string) {
		t.Helper()
		s, err := file.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if err := s.SaveDocument(t.Context(), "shop", meta.SchemaHistory, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	save(history)
	expect := func(code int, words string, args ...string) {
		t.Helper()
		got, out, errs := call(t, "", append(args, "-c", config)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("%v: exit code %d, %s%s; want %q", args, got, out, errs, words)
		}
	}
	expect(0, "shop: definitions of binlog.000001:4, statements up to binlog.000002:900\n  shop.t: 2 columns; versions since: 0\n  shop.u: dropped; versions since: 1\naudit: definitions of nowhere yet", "schema", "show")
	expect(2, "is not SCHEMA.TABLE", "schema", "forget", "--destination", "shop", "--table", "t")
	expect(1, "nothing is known of table shop.x", "schema", "forget", "--destination", "shop", "--table", "shop.x", "--yes")
	expect(1, "", "schema", "forget", "--destination", "shop", "--table", "shop.t") // nobody confirms it
	expect(0, "forgets what is known of table shop.t", "schema", "forget", "--destination", "shop", "--table", "shop.t", "--yes")
	if _, out, _ := call(t, "", "schema", "show", "-c", config); strings.Contains(out, "shop.t") || !strings.Contains(out, "shop.u") {
		t.Errorf("after it was forgotten: %s", out)
	}
	// I5: what was passed over stays so, and the operator learns what it means to forget that.
	passed := strings.Replace(history, `"versions":`, `"passed_over":[{"schema":"shop","table":"t","definition":"d","from":{"file":"binlog.000001","offset":50,"gtids":"","server_uuid":"s"}}],"versions":`, 1)
	save(strings.Replace(passed, `"binlog.000001","offset":50`, `"binlog.000003","offset":50`, 1))
	expect(1, "was not stopped in order", "schema", "forget", "--destination", "shop", "--table", "shop.t", "--yes")
	save(passed)
	expect(0, "shop.t: 2 columns, rows that could not be read are passed over", "schema", "show")
	expect(1, "do this only when every sink has come behind them", "schema", "forget", "--destination", "shop")
	expect(0, "stay so where they are read again", "schema", "forget", "--destination", "shop", "--table", "shop.t", "--yes")
	save(`{"format":99}`)
	expect(1, "the saved schema history cannot be used", "schema", "show")
	expect(0, "forgets every definition", "schema", "forget", "--destination", "shop", "--yes")
	expect(0, "shop: definitions of nowhere yet", "schema", "show")
	expect(2, "show or forget is needed", "schema")
}

// narrow is a store whose documents must be small.
type narrow struct{ historyStore }

func (narrow) SaveDocument(context.Context, string, string, []byte) error {
	return fmt.Errorf("it does not fit: %w", meta.ErrTooLarge)
}

// A history that the store does not take is told with a remedy, and its reader knows what it is.
func TestHistoryStoreTooSmall(t *testing.T) {
	err := (&keeper{narrow{}, "shop"}).Save(t.Context(), []byte("{}"))
	var stop *connector.StopError
	if !errors.As(err, &stop) || stop.Destination != "shop" || stop.Remedy == "" || !errors.Is(err, schema.ErrTooLarge) {
		t.Error(err)
	}
}

// I6: what was known of the tables does not answer for a log that does not have a cursor's place.
func TestHistoryOfAnotherLogIsForgotten(t *testing.T) {
	store, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ctx := t.Context()
	lease, err := store.TryAcquire(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }()
	ids := []meta.Identity{{Destination: "shop", Client: "1001"}, {Destination: "shop", Client: "1002"}, {Destination: "shop", Client: "1003"}}
	for i, id := range ids[:2] {
		if err := store.Save(ctx, id, &meta.Record{Cursor: event.Cursor{Position: event.Position{File: "binlog.000001", Offset: uint64(100 + 100*i), ServerUUID: "s"}}}); err != nil {
			t.Fatal(err)
		}
	}
	away := errors.New("away")
	for end, want := range map[uint64]bool{100: true, 200: false} {
		another, err := lostAny(ctx, store, ids, func(_ context.Context, p event.Position) (bool, error) { return p.Offset <= end, nil })
		if err != nil || another != want {
			t.Errorf("a log of %d bytes: %v, %v", end, another, err)
		}
	}
	if _, err := lostAny(ctx, store, ids, func(context.Context, event.Position) (bool, error) { return false, away }); !errors.Is(err, away) {
		t.Error(err)
	}
	if err := store.SaveDocument(ctx, "shop", meta.SchemaHistory, []byte(`{"format":99}`)); err != nil {
		t.Fatal(err)
	}
	h := newHistory(store, "shop")
	if err := forgetHistory(ctx, store, "shop", h); err != nil {
		t.Fatal(err)
	}
	if err := h.Load(ctx); err != nil {
		t.Error(err)
	}
	if err := newHistory(store, "shop").Load(ctx); err != nil {
		t.Error(err)
	}
}
