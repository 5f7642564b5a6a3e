package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/file"
)

// I3: check tells of a table that can have no topic before a row of it stops the sink.
func TestTopicsOf(t *testing.T) {
	tables := []connector.TableName{{Schema: "a.b", Table: "c"}, {Schema: "a", Table: "b.c"}, {Schema: "a", Table: "d"}, {Schema: "a", Table: "é"}, {Schema: "x", Table: "é"}}
	s := &config.Sink{Topic: "{destination}.{schema}.{table}", DDLTopic: "{destination}.ddl", Tables: []string{"a*.*"}, Kafka: &config.Kafka{}}
	topics, found := topicsOf(s, "shop", tables)
	if want := []string{"shop.a.b.c", "shop.a.d", "shop.ddl"}; !slices.Equal(topics, want) {
		t.Errorf("topics %q, want %q", topics, want)
	}
	for i, want := range []string{`table a.b.c can have no topic: topic "shop.a.b.c" is that of table "c" of schema "a.b" already`, `table a.é can have no topic: topic name "shop.a.é" contains`} {
		if i >= len(found) || !strings.Contains(found[i].What, want) || found[i].Remedy == "" {
			t.Errorf("finding %d is not %q: %+v", i, want, found)
		}
	}
	if len(found) != 2 {
		t.Errorf("%d findings", len(found))
	}
	s = &config.Sink{Topic: "{table}", DeadLetter: "{destination}.{table}.large", Tables: []string{"x.d"}, Kafka: &config.Kafka{}}
	tables = []connector.TableName{{Schema: "x", Table: "d"}}
	if topics, _ := topicsOf(s, "shop", tables); !slices.Equal(topics, []string{"d", "shop.d.large"}) {
		t.Errorf("topics with dead letters: %q", topics)
	}
}

// TestStoreDoesNotAnswer: the end of a command's patience is told as what it means, of ZooKeeper alone.
func TestStoreDoesNotAnswer(t *testing.T) {
	files := &config.Config{}
	nodes := &config.Config{Meta: config.Meta{ZooKeeper: &config.MetaZooKeeper{Servers: []string{"a:1", "b:1"}}}}
	late := fmt.Errorf("schema of shop: %w", context.DeadlineExceeded)
	if got := looked(nodes, late); !errors.Is(got, late) || !strings.HasPrefix(got.Error(), "ZooKeeper at a:1, b:1 does not answer: check meta.zookeeper (") {
		t.Error(got)
	}
	for cfg, err := range map[*config.Config]error{files: late, nodes: errors.New("damaged")} {
		if got := looked(cfg, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if looked(nodes, nil) != nil {
		t.Error("nothing became an error")
	}
}

// savedCursors makes a store with a cursor of each of these sinks of destination shop, and returns its configuration.
func savedCursors(t *testing.T, more string, sinks ...string) (path string, cfg *config.Config) {
	t.Helper()
	dir := t.TempDir()
	text := "meta: { file: { directory: " + dir + " } }\ndestinations:\n  - name: shop\n    source: { address: 127.0.0.1:1, user: u, password: p }\n" + more + "    sinks:\n"
	store, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i, name := range sinks {
		delivery := "sequenced"
		if name == "transactional" {
			delivery = name
		}
		text += "      - { name: " + name + ", kafka: { brokers: [127.0.0.1:1], delivery: " + delivery + " } }\n"
		r := &meta.Record{Cursor: event.Cursor{Ordinal: int64(i), Position: event.Position{File: "binlog.000001", Offset: uint64(1000 + i)}}}
		if err := store.Save(t.Context(), clientOf("shop", name), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Save(t.Context(), clientOf("shop", "removed"), &meta.Record{Cursor: event.Cursor{Position: event.Position{File: "binlog.000001", Offset: 4}}}); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err = config.Load(path); err != nil {
		t.Fatal(err)
	}
	return path, cfg
}

// damage makes a sink's saved cursor unreadable.
func damage(t *testing.T, cfg *config.Config, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cfg.Meta.File.Directory, "*sink-"+name+".cursor.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// I6: check tells of a cursor that the run cannot go on from, as the run would.
func TestCheckPositions(t *testing.T) {
	stop := &connector.StopError{What: "the source has purged it", Remedy: "set a new one"}
	purged := errors.Join(stop, event.ErrPurged)
	for name, c := range map[string]struct {
		more             string
		sinks            []string
		damaged          string
		known            bool
		err              error
		errors, warnings int
		want             string
	}{
		"held":           {"", []string{"a", "b"}, "", true, nil, 0, 0, "shop/sink-b can go on at binlog.000001:1001"},
		"away":           {"", []string{"a", "b"}, "", false, nil, 0, 0, ""},
		"purged":         {"", []string{"a", "b"}, "", true, purged, 2, 0, "ERROR shop/sink-a: the source has purged it\n        -> set a new one"},
		"by itself":      {"    on_lost_position: latest\n", []string{"a"}, "", true, purged, 0, 1, "or let it go on by itself, as on_lost_position: latest says"},
		"other stop":     {"    on_lost_position: latest\n", []string{"a"}, "", true, stop, 1, 0, "the source has purged it"},
		"in Kafka":       {"", []string{"transactional"}, "", true, purged, 0, 1, "the cursor topic tells"},
		"not told":       {"", []string{"a"}, "", true, errors.New("timeout"), 0, 1, "is not known: timeout"},
		"damaged beside": {"", []string{"a", "b"}, "a", true, nil, 0, 0, "shop/sink-b can go on"},
	} {
		t.Run(name, func(t *testing.T) {
			_, cfg := savedCursors(t, c.more, c.sinks...)
			if c.damaged != "" {
				damage(t, cfg, c.damaged)
			}
			var out bytes.Buffer
			k := &checker{out: &out}
			asked := 0
			err := k.positions(t.Context(), cfg, &cfg.Destinations[0], func(context.Context, event.Position) (bool, error) {
				asked++
				return c.known, c.err
			})
			if !c.known && asked != 1 {
				t.Errorf("a source that is away is asked %d times", asked)
			}
			if errors.Is(err, meta.ErrDamaged) != (c.damaged != "") || c.damaged == "" && err != nil {
				t.Error(err)
			}
			if k.errors != c.errors || k.warnings != c.warnings || !strings.Contains(out.String(), c.want) || c.want == "" && out.Len() > 0 || strings.Contains(out.String(), "removed") {
				t.Errorf("%d errors, %d warnings:\n%s", k.errors, k.warnings, &out)
			}
		})
	}
}

// A damaged cursor does not hide the others.
func TestCursorShowDamaged(t *testing.T) {
	path, cfg := savedCursors(t, "", "a", "b", "c")
	damage(t, cfg, "a")
	damage(t, cfg, "c")
	var out bytes.Buffer
	err := cursorShow(t.Context(), []string{"-c", path}, &out)
	if !errors.Is(err, meta.ErrDamaged) || !strings.Contains(err.Error(), "sink-a") || !strings.Contains(err.Error(), "sink-c") {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "shop/sink-b\n") || !strings.Contains(text, "shop/sink-removed\n") || strings.Contains(text, "no cursor") {
		t.Errorf("shown:\n%s", text)
	}
	// What is exported is whole, or nothing.
	out.Reset()
	if err := cursorExport(t.Context(), []string{"-c", path}, &out); !errors.Is(err, meta.ErrDamaged) || out.Len() > 0 {
		t.Errorf("%v:\n%s", err, &out)
	}
}
