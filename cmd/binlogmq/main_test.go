package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

func TestMain(m *testing.M) { leak.Main(m) }

// call runs the program inside the test, with a stop asked for before it begins.
func call(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var o, e bytes.Buffer
	code = run(ctx, ctx, args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

// settings writes a configuration whose source nobody serves.
func settings(t *testing.T) (path, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "meta")
	path = filepath.Join(t.TempDir(), "config.yaml")
	text := `
meta: { file: { directory: "` + dir + `" } }
destinations:
  - name: shop
    source: { address: "127.0.0.1:1", user: u, password: s3cr3t }
    sinks: [{ name: out, file: { path: "` + filepath.Join(t.TempDir(), "out") + `" } }, { name: other, file: { path: "` + filepath.Join(t.TempDir(), "other") + `" } }]
  - name: audit
    source: { address: "127.0.0.1:1", user: u, password: s3cr3t }
    sinks: [{ name: out, file: { path: "` + filepath.Join(t.TempDir(), "audit") + `" } }]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

func TestUseAndExitCodes(t *testing.T) {
	config, dir := settings(t)
	for _, c := range []struct {
		args []string
		code int
		out  string // a regular expression
		errs string
	}{
		{nil, 2, `^$`, `a command is needed\nusage: binlogmq COMMAND`},
		{[]string{"fly"}, 2, `^$`, `unknown command "fly"\nusage:`},
		{[]string{"help"}, 0, `^usage: binlogmq COMMAND`, `^$`},
		{[]string{"--help"}, 0, `^usage:`, `^$`},
		{[]string{"-h"}, 0, `^usage:`, `^$`},
		{[]string{"run", "-h"}, 0, `^usage:(?s).*\.\n$`, `^$`},
		{[]string{"version"}, 0, `^binlogmq \S+\n$`, `^$`},
		{[]string{"--version"}, 0, `^binlogmq \S+\n$`, `^$`},
		{[]string{"run"}, 2, `^$`, `run: -c FILE is needed`},
		{[]string{"run", "-c", config, "more"}, 2, `^$`, `"more" is not expected`},
		{[]string{"run", "-x"}, 2, `^$`, `run: flag provided but not defined: -x\nusage:`},
		{[]string{"check"}, 2, `^$`, `check: -c FILE is needed`},
		{[]string{"check", "-c", "/no/such/file"}, 2, `^$`, `/no/such/file`},
		{[]string{"cursor"}, 2, `^$`, `is needed\nusage:`},
		{[]string{"cursor", "drop"}, 2, `^$`, `unknown "drop"`},
		{[]string{"cursor", "show", "-c", config}, 0, `no cursor is saved in ` + regexp.QuoteMeta(dir), `^$`},
		{[]string{"cursor", "set", "-c", config}, 2, `^$`, `--at is needed: earliest, latest, gtid:SET, FILE:OFFSET or a time`},
		{[]string{"cursor", "set", "-c", config, "--at", "latest"}, 2, `^$`, `--destination is needed: one of shop, audit`},
		{[]string{"cursor", "set", "-c", config, "--at", "latest", "--destination", "shoop"}, 2, `^$`, `no destination "shoop"; there are shop, audit`},
		{[]string{"cursor", "--help"}, 0, `^usage:`, `^$`},
		{[]string{"schema", "-h"}, 0, `^usage:`, `^$`},
		{[]string{"schema"}, 2, `^$`, `show or forget is needed\nusage:`},
		{[]string{"snapshot", "-h"}, 0, `^usage:`, `^$`},
		{[]string{"snapshot"}, 2, `^$`, `start, status or cancel is needed\nusage:`},
		{[]string{"snapshot", "start", "-c", config}, 2, `^$`, `^binlogmq: snapshot start: --destination is needed`},
		{[]string{"snapshot", "start", "-c", config, "--destination", "shop", "--sinks", "nope"}, 2, `^$`, `there is no sink "nope"\n$`},
		{[]string{"snapshot", "start", "-c", config, "--destination", "shop", "--tables", "nope"}, 2, `^$`, `"nope" is not of the form schema.table`},
		{[]string{"snapshot", "start", "-c", config, "--destination", "shop", "--where", "shop.item"}, 2, `^$`, `not of the form SCHEMA.TABLE=CONDITION`},
		{[]string{"snapshot", "start", "-c", config, "--destination", "shop", "--where", "shop.item=1) OR (1"}, 2, `^$`, `closes that was not opened`},
		{[]string{"snapshot", "cancel", "-c", config}, 2, `^$`, `^binlogmq: snapshot cancel: --destination is needed`},
		{[]string{"snapshot", "status", "-c", config, "--destination", "nope"}, 2, `^$`, `no destination "nope"`},
		{[]string{"cursor", "new-life", "-c", config, "--destination", "shop"}, 2, `^$`, `--sink is needed: one of out, other\n$`},
		{[]string{"cursor", "new-life", "-c", config, "--destination", "shop", "--sink", "nope"}, 2, `^$`, `no sink "nope"; there are out, other\n$`},
		{[]string{"cursor", "forget", "-c", config, "--destination", "shop", "--of", "out"}, 2, `^$`, `--of is needed: a sink that is not configured any more`},
		{[]string{"cursor", "forget", "-c", config, "--destination", "shop", "--of", "old"}, 1, `^$`, `no cursor of "old" is saved in destination shop`},
		{[]string{"cursor", "export", "-c", config, "--destination", "shop"}, 1, `^$`, `nothing is saved of destination shop in `},
		{[]string{"cursor", "import", "-c", config, "--from", config}, 1, `^$`, `cursor import: .*config.yaml: not what cursor export writes: `},
		{[]string{"cursor", "skip", "-c", config, "--gtid", "0-1-2"}, 2, `^$`, `^binlogmq: cursor skip: --destination is needed`},
		{[]string{"schema", "forget", "-c", config}, 2, `^$`, `^binlogmq: schema forget: --destination is needed`},
		{[]string{"cursor", "set", "-c", config, "--at", "yesterday", "--destination", "shop"}, 2, `^$`, `start: "yesterday" is not known`},
		{[]string{"cursor", "set", "-c", config, "--at", "snapshot", "--destination", "shop"}, 2, `^$`, `cursor set: a snapshot is no place`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, out, errs := call(t, "", c.args...)
			if code != c.code || !regexp.MustCompile(c.out).MatchString(out) || !regexp.MustCompile(c.errs).MatchString(errs) {
				t.Errorf("exit code %d, not %d\nout: %s\nerrs: %s", code, c.code, out, errs)
			}
			if strings.Contains(out+errs, "s3cr3t") {
				t.Error("a secret is shown")
			}
		})
	}
}

// TestCannotBegin: what ends the program at the start says what, where and what to do.
func TestCannotBegin(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	path, _ := settings(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"canal", "\nmeta:", "\ncanal: { listen: \"" + taken.Addr().String() + "\" }\nmeta:", "canal: listen: .*address already in use; set canal.listen to an address that is free"},
		{"admin", "\nmeta:", "\nadmin: { listen: \"" + taken.Addr().String() + "\" }\nmeta:", "admin: listen .*address already in use; set admin.listen to an address that is free"},
		{"start", "- name: audit\n", "- name: audit\n    start: gtid:nonsense\n", "destination audit: start: GTID set: .*nonsense"},
		{"topic", "name: other,", "name: other, topic: \"{table}\", ddl_topic: \"\", dead_letter_topic: \"{table}\", oversize: dead_letter, max_message_bytes: 1KiB,", "destinations.0..sinks.1..dead_letter_topic: must be another"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			changed := strings.Replace(string(text), c.old, c.new, 1)
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil || changed == string(text) {
				t.Fatal(err, changed)
			}
			if code, out, errs := call(t, "", "run", "-c", file); code == 0 || !regexp.MustCompile(c.want).MatchString(errs) || strings.Contains(out+errs, "s3cr3t") {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
		})
	}
}

// TestShow prints every saved cursor, also what the configuration does not name.
func TestShow(t *testing.T) {
	config, dir := settings(t)
	store, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	state := &bridge.State{Version: 1, Epoch: 3, Offset: 2 << 32, Fingerprint: "x"}
	text, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	gtids, err := event.ParseGTIDSet("0-1-7")
	if err != nil {
		t.Fatal(err)
	}
	save := func(client string, c event.Cursor) {
		r := &meta.Record{Cursor: c, SavedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		if err := store.Save(context.Background(), meta.Identity{Destination: "shop", Client: client}, r); err != nil {
			t.Fatal(err)
		}
	}
	save("sink-out", event.Cursor{Position: event.Position{File: "binlog.000007", Offset: 4711, GTIDs: gtids, ServerUUID: "1"}, Ordinal: 12, Progress: 3, State: text})
	save("sink-gone", event.Cursor{Position: event.Position{File: "binlog.000001", Offset: 4}})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(t, "", "cursor", "show", "-c", config)
	want := `shop/sink-gone
  note        not in this configuration
  position    binlog.000001:4
  server      
  ordinal     0
  saved       2026-01-02T03:04:05Z
shop/sink-out
  position    binlog.000007:4711
  gtids       0-1-7
  server      1
  ordinal     12
  progress    3 in the next transaction
  epoch       3
  offset      8589934592
  stopped     not, or not in order: messages behind the cursor may be stored
  saved       2026-01-02T03:04:05Z
`
	if code != 0 || out != want || errs != "" {
		t.Errorf("exit code %d\n%s%s\nwanted\n%s", code, out, errs, want)
	}
	// Nobody waits for a sink that does not come back.
	forget := []string{"cursor", "forget", "-c", config, "--destination", "shop", "--of", "gone"}
	if code, out, errs := call(t, "no\n", forget...); code != 1 || !strings.Contains(out, "the cursor of shop/sink-gone is deleted") || !strings.Contains(errs, "nothing was changed") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, out, errs := call(t, "", append(forget, "--yes")...); code != 0 || !strings.HasSuffix(out, "done\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, out, errs := call(t, "", append(forget, "--yes")...); code != 1 || !strings.Contains(errs, "there are those of out\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// TestMove proves I5 of a cursor that is moved by hand: ordinals go on above all that any sink had, and no number is
// used again, even by a sink whose own past is lost.
func TestMove(t *testing.T) {
	ctx := context.Background()
	store := new(meta.Memory)
	id := func(client string) meta.Identity { return meta.Identity{Destination: "shop", Client: client} }
	state := &bridge.State{Version: 1, Epoch: 3, Offset: 2 << 32, Fingerprint: "x", Partitions: map[string]int32{"t": 3}}
	text, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	old := &meta.Record{Cursor: event.Cursor{Ordinal: 10, Progress: 7, State: text}, Filter: "a.*", BatchFloor: 5}
	if err := store.Save(ctx, id("sink-a"), old); err != nil {
		t.Fatal(err)
	}
	ids := []meta.Identity{id("sink-a"), id("sink-new")}
	start := event.Cursor{Position: event.Position{File: "binlog.000009", Offset: 157}}
	records, err := move(ctx, store, ids, start)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ids {
		c := records[i].Cursor
		if c.Ordinal != 17 || c.Progress != 0 || c.Position.File != "binlog.000009" || c.Position.Offset != 157 {
			t.Errorf("%s: %+v", i, c)
		}
		s, err := bridge.ParseState(c.State)
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		if s.Fingerprint != bridge.MovedFingerprint {
			t.Errorf("%s: fingerprint %s begins no new epoch", i, s.Fingerprint)
		}
		if s.Offset < 2<<32 {
			t.Errorf("%s: offset %d", i, s.Offset)
		}
	}
	if r := records[id("sink-a")]; r.Filter != "a.*" || r.BatchFloor != 5 {
		t.Errorf("what the move does not concern has changed: %+v", r)
	}
}

// TestStopSignals: what is ignored when the program begins, as below nohup, does not stop it; the end of its terminal else does.
func TestStopSignals(t *testing.T) {
	before := signal.Ignored(syscall.SIGHUP)
	if got := slices.Contains(stopSignals(), os.Signal(syscall.SIGHUP)); got == before {
		t.Errorf("SIGHUP stops: %v, ignored: %v", got, before)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if got := stopSignals(); !slices.Equal(got, []os.Signal{syscall.SIGTERM, os.Interrupt}) {
		t.Errorf("%v stop, though SIGHUP is ignored", got)
	}
}

// TestSignalsBeforeAnything: a stop that is asked for at once ends with 0, whatever is away.
func TestSignalsBeforeAnything(t *testing.T) {
	config, _ := settings(t)
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs bytes.Buffer
	done := make(chan int)
	go func() { done <- run(ctx, context.Background(), []string{"run", "-c", config}, nil, &out, &errs) }()
	cancel()
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("exit code %d: %s", code, &errs)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not end")
	}
	if strings.Contains(errs.String(), "s3cr3t") {
		t.Error("a secret is shown")
	}
}
