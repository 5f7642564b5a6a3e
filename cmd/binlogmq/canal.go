package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/codec/canaljson"
	"github.com/binlogmq/binlogmq/codec/canalpb"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canaltcp"
	"github.com/binlogmq/binlogmq/server/canalview"
)

// newCanalEncoder makes what writes Canal's entries, and messages of the codec canal-protobuf.
func newCanalEncoder(enum string, zone *time.Location) (*canalpb.Codec, error) {
	keys, err := canaljson.New(canaljson.Options{Enum: enum, Location: zone})
	if err != nil {
		return nil, err
	}
	return canalpb.New(canalpb.Options{Enum: enum, Location: zone}, keys)
}

// serveCanal lets Canal's clients in until ctx ends. The channel gives the result when the last of them has gone; it is nil
// where Canal's protocol is not configured.
func (p *program) serveCanal(ctx context.Context) (<-chan error, error) {
	k := p.cfg.Canal
	if k == nil {
		return nil, nil
	}
	fail := func(err error) (<-chan error, error) { return nil, fmt.Errorf("canal: %w", err) }
	zone, err := time.LoadLocation(k.TimeZone)
	if err != nil {
		return fail(err)
	}
	encoder, err := newCanalEncoder(k.Enum, zone)
	if err != nil {
		return fail(err)
	}
	tls, err := k.TLS.Server()
	if err != nil {
		return fail(err)
	}
	unfiltered := map[string]canalview.Tables{}
	for i := range p.cfg.Destinations {
		d := &p.cfg.Destinations[i]
		if list := p.cfg.ClientTables(d); list != nil {
			if unfiltered[d.Name], err = tablefilter.New(list); err != nil {
				return fail(err)
			}
		}
	}
	unit := int64(canaltcp.DefaultMemoryUnit)
	if k.Batch == "events" {
		unit = -1
	}
	if p.canal, err = canaltcp.New(canaltcp.Options{
		Upstream: p.server, Encoder: encoder, Logger: p.log, TLS: tls, User: k.User, Password: k.Password.Reveal(), AllowClearText: k.AllowClearText,
		MaxConnections: k.MaxConnections, Memory: int64(k.Memory), IdleTimeout: k.IdleTimeout.Value(), MemoryUnit: unit,
		Unfiltered: func(destination string) canalview.Tables { return unfiltered[destination] },
	}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", k.Listen)
	if err != nil {
		return fail(fmt.Errorf("listen: %w; set canal.listen to an address that is free, or stop what holds it", err))
	}
	p.log.Info("Canal's protocol is served", "address", l.Addr().String(), "filter", k.Filter)
	done := make(chan error, 1)
	go func() { done <- p.canal.Serve(ctx, l) }()
	return done, nil
}

// reportClients shows the connected subscriptions that are no sinks: those of Canal's clients.
func reportClients(now time.Time, st server.DestinationStatus) (clients []admin.Sink) {
	for i := range st.Subscriptions {
		sub := &st.Subscriptions[i]
		if strings.HasPrefix(sub.Identity.Client, sinkPrefix) {
			continue
		}
		out := admin.Sink{Name: sub.Identity.Client, Kind: "canal", State: "connected", Rows: sub.Rows}
		reportSubscription(&out, now, sub)
		if err := errors.Join(sub.Err, sub.SaveErr); err != nil {
			out.Error = oneLine(err)
		}
		clients = append(clients, out)
	}
	slices.SortFunc(clients, func(a, b admin.Sink) int { return strings.Compare(a.Name, b.Name) })
	return clients
}
