package testenv

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// ZooKeeperEnsemble is one ZooKeeper server or three, numbered from 1. Its methods end the test at the first
// error, so they belong to the test's own goroutine.
type ZooKeeperEnsemble struct {
	Servers []string // host:port of each
	Dir     string   // folder of the servers (N/server.log); empty when somebody else runs them

	t        testing.TB
	own      bool
	settings []string
}

// ZooKeeper returns the shared server.
func ZooKeeper(t testing.TB) *ZooKeeperEnsemble {
	t.Helper()
	if at := os.Getenv("BINLOGMQ_TEST_ZOOKEEPER"); at != "" {
		return &ZooKeeperEnsemble{Servers: strings.Split(at, ","), t: t}
	}
	line, dir := shared(t, "zookeeper", "zookeeper.sh", func(dir string) []string { return []string{"start", "0", dir} })
	return &ZooKeeperEnsemble{Servers: strings.Split(line, ","), Dir: dir, t: t}
}

// NewZooKeeper starts one server or three for t alone. Settings are lines of zoo.cfg.
func NewZooKeeper(t testing.TB, servers int, settings ...string) *ZooKeeperEnsemble {
	t.Helper()
	dir := private(t, "zookeeper", "zookeeper.sh")
	ports := strings.TrimSuffix(strings.Repeat("0,", servers), ",")
	line, err := run(nil, "zookeeper.sh", append([]string{"start", ports, dir}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &ZooKeeperEnsemble{Servers: strings.Split(line, ","), Dir: dir, t: t, own: true, settings: settings}
}

// Kill ends a server of t's own with SIGKILL.
func (z *ZooKeeperEnsemble) Kill(server int) { z.t.Helper(); z.control("kill", server) }

// Start starts those servers of t's own that do not run, with their data.
func (z *ZooKeeperEnsemble) Start() {
	z.t.Helper()
	ports := strings.TrimSuffix(strings.Repeat("0,", len(z.Servers)), ",")
	if !z.own {
		z.t.Fatal("start of a server that is not this test's own: start one with testenv.NewZooKeeper")
	}
	if _, err := run(nil, "zookeeper.sh", append([]string{"start", ports, z.Dir}, z.settings...)...); err != nil {
		z.t.Fatal(err)
	}
}

// Pause stops the server's process where it is (SIGSTOP).
func (z *ZooKeeperEnsemble) Pause(server int) { z.t.Helper(); z.control("pause", server) }

// Resume lets a paused server go on.
func (z *ZooKeeperEnsemble) Resume(server int) { z.t.Helper(); z.control("resume", server) }

func (z *ZooKeeperEnsemble) control(verb string, server int) {
	z.t.Helper()
	control(z.t, z.own, nil, "zookeeper.sh", verb, z.Dir, strconv.Itoa(server))
}
