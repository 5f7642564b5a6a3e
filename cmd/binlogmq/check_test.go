package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
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
