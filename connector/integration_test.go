//go:build integration

package connector

import (
	"log/slog"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/internal/testenv"
)

func newConnector(t *testing.T, s *testenv.Server, start string, tables ...string) *Connector {
	t.Helper()
	return newConnectorWith(t, s, func(o *Options) { o.Start = start }, tables...)
}

func newConnectorWith(t *testing.T, s *testenv.Server, change func(*Options), tables ...string) *Connector {
	t.Helper()
	f, err := tablefilter.New(tables)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Destination: testenv.Name(t), Addresses: []string{s.Addr}, User: s.ReplUser, Password: s.ReplPassword, Tables: f,
		Heartbeat: time.Second, PollPeriod: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	change(&o)
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
