package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

func export(t testing.TB, ids ...meta.Identity) []byte {
	t.Helper()
	all := exported{Version: exportVersion}
	for i, id := range ids {
		b, err := meta.EncodeRecord(id, &meta.Record{Cursor: event.Cursor{Ordinal: int64(i), State: []byte("state")}, Skips: []meta.Skip{{GTID: "0-1-2", Ordinals: 3}}})
		if err != nil {
			t.Fatal(err)
		}
		all.Records = append(all.Records, b)
	}
	b, err := json.Marshal(&all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadExport(t *testing.T) {
	a, b := meta.Identity{Destination: "shop", Client: "sink-b"}, meta.Identity{Destination: "shop", Client: "sink-a"}
	all, err := readExport(export(t, a, b))
	if err != nil {
		t.Fatal(err)
	}
	ids, records := all.ids, all.records
	if len(ids) != 2 || ids[0] != b || ids[1] != a || records[b].Cursor.Ordinal != 1 || string(records[a].Cursor.State) != "state" || len(records[a].Skips) != 1 {
		t.Fatal(ids, records)
	}
	good := string(export(t, a))
	for name, bad := range map[string]string{
		"empty": "", "version": strings.Replace(good, `"binlogmq_cursors":1`, `"binlogmq_cursors":2`, 1), "twice": string(export(t, a, a)),
		"edited": strings.Replace(good, `"ordinal":0`, `"ordinal":7`, 1), "more": good + "{}", "field": strings.Replace(good, `"records"`, `"x":1,"records"`, 1),
	} {
		if bad == good {
			t.Fatal(name)
		}
		if _, err := readExport([]byte(bad)); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

func FuzzReadExport(f *testing.F) {
	f.Add(export(f, meta.Identity{Destination: "shop", Client: "sink-a"}))
	f.Add([]byte(`{"binlogmq_cursors":1,"records":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := readExport(data)
		if err != nil {
			return
		}
		for _, id := range all.ids {
			if b, err := meta.EncodeRecord(id, all.records[id]); err != nil || bytes.Contains(b, []byte{0}) {
				t.Fatalf("%s: read, but not written: %v", id, err)
			}
		}
	})
}

// I5: which rows are passed over goes along with the cursors.
func TestExportPassedOver(t *testing.T) {
	config, dir := settings(t)
	other, there := settings(t)
	open := func(dir string, f func(*file.Store)) {
		t.Helper()
		s, err := file.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		f(s)
	}
	const history = `{"format":1,"tables_at":{"file":"binlog.000001","offset":4,"gtids":"","server_uuid":"s"},"read":{"file":"binlog.000001","offset":900,"gtids":"","server_uuid":"s"},"tables":[]%s}`
	const passed = `,"passed_over":[{"schema":"shop","table":"t","definition":"d","from":{"file":"binlog.000001","offset":50,"gtids":"","server_uuid":"s"}}]`
	ctx := t.Context()
	for _, with := range []string{"", passed} {
		open(dir, func(s *file.Store) {
			if err := s.SaveDocument(ctx, "shop", meta.SchemaHistory, fmt.Appendf(nil, history, with)); err != nil {
				t.Fatal(err)
			}
			lease, err := s.TryAcquire(ctx, "shop")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lease.Release(ctx) }()
			if err := s.Save(ctx, meta.Identity{Destination: "shop", Client: "sink-orders"}, &meta.Record{}); err != nil {
				t.Fatal(err)
			}
		})
		code, out, errs := call(t, "", "cursor", "export", "-c", config)
		if code != 0 || strings.Contains(out, "schema_histories") != (with != "") {
			t.Fatal(code, out, errs)
		}
		from := filepath.Join(t.TempDir(), "cursors.json")
		if err := os.WriteFile(from, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs = call(t, "", "cursor", "import", "-c", other, "--from", from, "--yes")
		if code != 0 || strings.Contains(out, "stay passed over") != (with != "") {
			t.Fatal(code, out, errs)
		}
		open(there, func(s *file.Store) {
			h := newHistory(s, "shop")
			if err := h.Load(ctx); err != nil {
				t.Fatal(err)
			}
			if any, _ := h.PassesOver(ddl.Name{Schema: "shop", Table: "t"}); any != (with != "") {
				t.Error("what is passed over does not go along")
			}
		})
	}
}

// TestSkipsOfRecords: what all cursors have passed is forgotten, what one has not is kept.
func TestSkipsOfRecords(t *testing.T) {
	at := func(set string, skips ...meta.Skip) *meta.Record {
		g, err := event.ParseGTIDSet(set)
		if err != nil {
			t.Fatal(err)
		}
		return &meta.Record{Cursor: event.Cursor{Position: event.Position{GTIDs: g}}, Skips: skips}
	}
	x, y := meta.Skip{GTID: "0-1-5", Ordinals: 2}, meta.Skip{GTID: "0-1-8", Ordinals: 3}
	got := skipsOf(map[meta.Identity]*meta.Record{{Destination: "d", Client: "a"}: at("0-1-9", x, y), {Destination: "d", Client: "b"}: at("0-1-6", x, y)})
	if len(got) != 1 || got[0] != y {
		t.Errorf("%v", got)
	}
	if m := orders(got); len(m) != 1 || m[event.GTID{Domain: 0, Server: 1, Seq: 8}] != 3 {
		t.Errorf("%v", m)
	}
}
