package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/zookeeper"
	"github.com/binlogmq/binlogmq/server"
)

// seat is a configured destination, whether this process owns it or not. Each time that it does, a destination is built
// anew, runs while the lease lasts, and is stopped in reverse. It is safe for concurrent use.
type seat struct {
	cfg *config.Destination

	mu    sync.Mutex
	d     *destination             // the running one, or the last; nil before the first
	last  server.DestinationStatus // how the last one ended
	owned bool                     // d runs
	lost  error                    // why d ended before its time
	failure
}

func (s *seat) begin(d *destination) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d, s.owned, s.lost, s.last = d, true, nil, server.DestinationStatus{}
}

func (s *seat) end(last server.DestinationStatus, lost error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned, s.lost, s.last = false, lost, last
}

// errHandedOver is why a destination ended that another process shall have.
var errHandedOver = errors.New("handed over to another process")

// decline lets other processes take a destination that cannot go on here.
func (p *program) decline(destination string) {
	if z, ok := p.store.(*zookeeper.Store); ok {
		z.Decline(destination)
	}
}

// sit runs the destination whenever this process owns it, until soft ends or it stops for another reason than its lease.
func (p *program) sit(soft, hard context.Context, s *seat, d *destination) error {
	for {
		if d == nil {
			lease, err := p.store.Acquire(soft, s.cfg.Name)
			if err == nil {
				d, err = p.build(soft, s, lease)
			}
			if err != nil {
				if soft.Err() != nil {
					return nil
				}
				s.fail(err)
				p.decline(s.cfg.Name)
				return err
			}
		}
		handed, err := p.hold(soft, hard, s, d)
		if soft.Err() != nil {
			return err
		}
		if d.lost == nil && !handed {
			p.decline(s.cfg.Name)
			return err
		}
		if err != nil {
			p.log.Warn("the destination was stopped here, for another process", "destination", s.cfg.Name, "error", oneLine(err))
		}
		d = nil
	}
}

// build makes the parts of a destination that this process owns; nothing connects yet. After an error the lease is given back.
func (p *program) build(ctx context.Context, s *seat, lease meta.Lease) (_ *destination, err error) {
	d := &destination{cfg: s.cfg, lease: lease, history: newHistory(p.store, s.cfg.Name), snapshots: newSnapshots(p.store, s.cfg.Name)}
	defer func() {
		if err != nil {
			p.dismiss(ctx, d)
		}
	}()
	if d.skips, err = p.skips(ctx, s.cfg.Name); err != nil {
		return nil, err
	}
	if err := p.parts(d); err != nil {
		return nil, err
	}
	return d, nil
}

// skips returns the transactions that a destination passes over. All cursors that have not passed one must have it, else
// sinks would stand at a number that others do not know.
func (p *program) skips(ctx context.Context, destination string) (map[event.GTID]int64, error) {
	ids, err := p.store.List(ctx, destination)
	if err != nil {
		return nil, err
	}
	all := map[event.GTID]int64{}
	records := make([]*meta.Record, 0, len(ids))
	for _, id := range ids {
		r, err := p.store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) || errors.Is(err, meta.ErrDamaged) {
			continue // whoever needs it says so
		}
		if err != nil {
			return nil, err
		}
		records = append(records, r)
		for _, k := range r.Skips {
			g, err := event.ParseGTID(k.GTID)
			if err != nil {
				return nil, err
			}
			all[g] = k.Ordinals
		}
	}
	for g, n := range all {
		k := meta.Skip{GTID: g.String(), Ordinals: n}
		for _, r := range records {
			if !r.Cursor.Position.GTIDs.Contains(g) && !hasSkip(r, k) {
				return nil, fmt.Errorf("destination %s: the order to skip transaction %s is not with all cursors: it was interrupted; repeat it with: binlogmq cursor skip --gtid %s", destination, g, g)
			}
		}
	}
	return all, nil
}

// hold runs a destination while its lease lasts and nobody asks for it; handed says that somebody has.
func (p *program) hold(soft, hard context.Context, s *seat, d *destination) (handed bool, err error) {
	s.begin(d)
	if z, ok := p.store.(*zookeeper.Store); ok {
		z.Show(s.cfg.Name)
	}
	run, stop := context.WithCancel(soft)
	cut, cutNow := context.WithCancel(hard)
	watched, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-d.lease.Asked(): // drains, while the lease lasts
			handed = true
			stop()
			select {
			case <-d.lease.Lost(): // I8
				cutNow()
			case <-stopped:
			}
		case <-d.lease.Lost(): // I8: nothing is waited for any more
			cutNow()
			stop()
		case <-run.Done():
		}
	}()
	err = p.publishDestination(run, cut, d)
	close(stopped)
	stop()
	<-watched
	defer cutNow()
	d.lost = d.lease.Err()

	var last server.DestinationStatus
	for _, st := range p.server.Status() {
		if st.Name == d.cfg.Name {
			last = st
		}
	}
	why := d.lost
	if why == nil && handed {
		why = errHandedOver
	}
	s.end(last, why)
	return handed, errors.Join(err, p.dismiss(cut, d))
}

// dismiss stops what is left of a destination in reverse, saves its cursors and gives its lease back.
func (p *program) dismiss(hard context.Context, d *destination) error {
	// Cursors are saved even on a hard stop: it is one write a subscription.
	save, cancel := context.WithTimeout(context.WithoutCancel(hard), 5*time.Second)
	defer cancel()
	err := p.server.RemoveDestination(save, d.cfg.Name)
	if errors.Is(err, server.ErrUnknownDestination) || d.lost != nil && errors.Is(err, meta.ErrFenced) {
		err = nil // not added yet; or the next owner goes on where the cursors were saved in time
	}
	p.closeSinks(hard, d)
	if rerr := d.lease.Release(save); rerr != nil {
		p.log.Warn("the lease is not given back", "destination", d.cfg.Name, "error", rerr)
	}
	return err
}

// report shows the destination as this process sees it.
func (p *program) reportSeat(now time.Time, s *seat, st server.DestinationStatus) admin.Destination {
	s.mu.Lock()
	d, owned, lost, last := s.d, s.owned, s.lost, s.last
	s.mu.Unlock()
	if !owned {
		st = last
	}
	out := admin.Destination{Name: s.cfg.Name, State: server.Idle.String()}
	if d != nil {
		out = d.report(now, st)
		out.Epoch = d.lease.Epoch()
	}
	out.Owner, out.Meta = owned, true
	var away error
	if z, ok := p.store.(*zookeeper.Store); ok {
		status := z.Status()
		if out.Meta = status.Connected; !out.Meta {
			away = fmt.Errorf("destination %s: ZooKeeper is away since %s; the destination is taken when it answers", s.cfg.Name, status.Since.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case s.failed() != nil:
		out.Error = oneLine(s.failed())
	case !owned && (d == nil || lost != nil):
		out.State, out.Connected, out.Since, out.LagKnown, out.Error, out.Sinks, out.Snapshot = admin.Standby, false, "", false, "", nil, nil
		if away != nil {
			out.Error = oneLine(away)
		}
	}
	return out
}
