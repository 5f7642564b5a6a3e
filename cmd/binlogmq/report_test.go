package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/server"
)

// TestNoStandbyWithoutOthers: with cursors in files nobody else can own a destination, so from the first report on it is no
// standby, which would be ready, and shows its sinks.
func TestNoStandbyWithoutOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("meta: {file: {directory: %q}}\ndestinations:\n  - name: shop\n    source: {address: \"127.0.0.1:1\", user: u, password: p}\n    sinks: [{name: out, file: {path: %q}}]\n",
		filepath.Join(dir, "meta"), filepath.Join(dir, "out"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cfg: cfg, log: slog.New(slog.DiscardHandler), governor: newGovernor(cfg)}
	defer p.governor.stop()
	if p.store, err = openStore(cfg, p.log); err != nil {
		t.Fatal(err)
	}
	defer p.store.Close()
	p.server = server.New(server.Options{Meta: p.store})
	defer p.server.Stop(t.Context())
	all, err := p.assemble(t.Context())
	defer p.dismissAll(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	r := p.report()
	if d := r.Destinations[0]; d.State == admin.Standby || !d.Owner || len(d.Sinks) != 1 || r.Ready() {
		t.Errorf("ready %v: %+v", r.Ready(), d)
	}
}
