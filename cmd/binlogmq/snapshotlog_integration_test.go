//go:build integration

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/meta/zookeeper"
)

func TestSnapshotsInZooKeeperI5I7(t *testing.T) {
	z := testenv.ZooKeeper(t)
	root := fmt.Sprintf("/binlogmq-test/snapshots-%d", time.Now().UnixNano())
	open := func() metaStore {
		s, err := zookeeper.Open(zookeeper.Options{Servers: z.Servers, SessionTimeout: 10 * time.Second, Root: root})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dir := t.TempDir()
	testSnapshotsIn(t, open, func() metaStore { return opened(t, dir) })
}
