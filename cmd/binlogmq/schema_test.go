package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/schema"
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
