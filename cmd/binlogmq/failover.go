package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/sink"
)

// The numbers of a destination count what lies in the log of one server. Another server may hold the same transactions in another
// order, and others between them. Cursors that stand at several places of the old log have no common numbers in the new one, so before
// anything is read there they are put to one place: what all have done. What one of them has done beyond is kept in its cursor and not
// handed out to it again. I7: each record is written whole, and from any mixture of old and new ones the next start comes to the same.

// standing is a subscription whose cursor counts for where a destination begins.
type standing struct {
	id     meta.Identity
	record *meta.Record
	part   *sinkPart     // nil: of a client of Canal's protocol
	state  *bridge.State // nil: none
	acked  event.GTIDSet // whole transactions, wherever they lie
	parts  []event.Part  // and of those only the beginning
	chunk  bool          // the cursor stands inside a chunk of a snapshot, which is read again
	err    error         // why state cannot be read
}

// prepare is the destination's server.DestinationOptions.Prepare.
func (p *program) prepare(ctx context.Context, d *destination) error {
	end, err := d.connector.End(ctx)
	if err != nil {
		return err
	}
	all, err := p.standings(ctx, d)
	if err != nil {
		return err
	}
	lost := d.gone
	if lost == nil && foreign(all, end.ServerUUID) {
		first, err := d.connector.Earliest(ctx)
		if err != nil {
			return err
		}
		all = p.reachable(all, first)
		if elsewhere(all, end.ServerUUID) {
			if lost, err = p.gather(ctx, d, end, all); err != nil {
				return err
			}
		}
		if lost != nil { // that took its time, and what had to come came meanwhile, perhaps
			server := end.ServerUUID
			if end, err = d.connector.End(ctx); err != nil {
				return err
			}
			if end.ServerUUID != server {
				return fmt.Errorf("destination %s: %w: %s, not %s as a moment ago", d.cfg.Name, event.ErrAnotherServer, end.ServerUUID, server)
			}
		}
	}
	if lost != nil {
		if err := p.relocate(ctx, d, end, all, lost); err != nil {
			return err
		}
		d.relocated.Add(1)
	} else if err := d.lacking(ctx, all); err != nil {
		return err
	}
	return p.orderFirst(ctx, d)
}

// lacking returns an error if a cursor stands before rows of a snapshot that all cursors had passed, so that they were deleted: what is read from there
// on would get other numbers than it had (I5). Only a cursor that was brought back by hand does.
func (d *destination) lacking(ctx context.Context, all []*standing) error {
	if err := d.snapshots.Load(ctx); err != nil {
		return err
	}
	for _, v := range all {
		if d.snapshots.Lacks(v.record.Cursor.Ordinal) {
			return &connector.StopError{Destination: d.cfg.Name, What: fmt.Sprintf("the cursor of %s stands before rows of a snapshot that are deleted, as all cursors had passed them", v.id),
				Remedy: "restore its documents from the backup of which the cursor is, or begin at that place with new numbers: binlogmq cursor set"}
		}
	}
	return nil
}

// standings loads the cursors of the destination's sinks and clients.
func (p *program) standings(ctx context.Context, d *destination) (all []*standing, err error) {
	ids, err := p.store.List(ctx, d.cfg.Name)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		v := &standing{id: id}
		if strings.HasPrefix(id.Client, sinkPrefix) {
			i := slices.IndexFunc(d.sinks, func(s *sinkPart) bool { return s.client.Identity() == id })
			if i < 0 {
				continue // not configured any more
			}
			v.part = d.sinks[i]
		}
		v.record, err = p.store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) || errors.Is(err, meta.ErrDamaged) {
			continue // whoever needs it says so
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if v.part != nil {
			if v.state, err = bridge.ParseState(v.record.Cursor.State); err != nil {
				v.err = fmt.Errorf("%s: %w", id, err) // its own bridge says so; here it matters only where the cursors must be moved
			}
		}
		if c := &v.record.Cursor; c.Progress > 0 && c.Open.IsZero() {
			if v.chunk, err = d.snapshots.Holds(ctx, c.Ordinal); err != nil {
				return nil, err
			}
		}
		v.count()
		all = append(all, v)
	}
	return all, nil
}

// count collects what is acknowledged.
func (v *standing) count() {
	c := &v.record.Cursor
	v.acked = c.Position.GTIDs.Clone()
	if c.Done != nil {
		v.acked = v.acked.Union(c.Done.GTIDs)
		v.parts = slices.Clone(c.Done.Parts)
	}
	if c.Progress > 0 && !v.chunk && (v.part != nil || !c.Open.IsZero()) { // a client gets the transaction from its start anyway
		v.parts = append(v.parts, event.Part{GTID: c.Open, Ordinals: c.Progress})
	}
	// Of a transaction that was begun a second time the larger part counts.
	slices.SortStableFunc(v.parts, func(a, b event.Part) int { return int(min(max(b.Ordinals-a.Ordinals, -1), 1)) })
	var kept []event.Part
	for _, part := range v.parts {
		if (part.GTID.IsZero() || !v.acked.Contains(part.GTID)) && !slices.ContainsFunc(kept, func(k event.Part) bool { return k.GTID == part.GTID }) {
			kept = append(kept, part)
		}
	}
	v.parts = kept
}

// foreign tells whether a cursor was made in the log of another server.
func foreign(all []*standing, server string) bool {
	return slices.ContainsFunc(all, func(v *standing) bool {
		at := v.record.Cursor.Position.ServerUUID
		return at != "" && at != server || v.state != nil && v.state.Reconciling != nil && v.state.Reconciling.End != nil && v.state.Reconciling.End.ServerUUID != server
	})
}

// reachable leaves out the clients of Canal's protocol that have not read what this server has purged: one that connected once and was
// never unsubscribed must not hold the others back, nor stop them. It is told when it comes back. first is the first place of the log.
func (p *program) reachable(all []*standing, first event.Position) []*standing {
	return slices.DeleteFunc(slices.Clone(all), func(v *standing) bool {
		at := v.record.Cursor.Position.GTIDs
		purged := !first.GTIDs.Subtract(at).IsEmpty()
		if first.GTIDs.IsMariaDB() {
			purged = at.Behind(first.GTIDs)
		}
		if v.part != nil || !purged {
			return false
		}
		p.log.Warn("another server answers, which has purged what a client has not read yet; its cursor stays where it is, and the client is told when it connects",
			"client", v.id.String(), "server_uuid", first.ServerUUID, "saved_at", v.record.SavedAt)
		return true
	})
}

// elsewhere tells whether a cursor was made in the log of another server. Without GTIDs the reader says what that means.
func elsewhere(all []*standing, server string) bool {
	return foreign(all, server) && !slices.ContainsFunc(all, func(v *standing) bool { return v.record.Cursor.Position.GTIDs.IsEmpty() })
}

// gather puts all cursors to the place that all have reached, in the log of the server that answers now. lost is why that cannot
// be, where the configuration says what to do then.
func (p *program) gather(ctx context.Context, d *destination, end event.Position, all []*standing) (lost, err error) {
	var union event.GTIDSet
	for _, v := range all {
		if v.err != nil {
			return nil, v.err
		}
		if len(v.parts) > 0 && v.recounted() {
			return nil, fmt.Errorf("%s: the cursor stands inside a transaction, whose row changes the new configuration (tables, system_versioned) counts otherwise, and another server answers (%s, not %s): "+
				"run that of before until the sink has stopped in order (SIGTERM), then change it; or set a new position with: binlogmq cursor set", v.id, end.ServerUUID, v.record.Cursor.Position.ServerUUID)
		}
		union = union.Union(v.acked)
		for _, part := range v.parts {
			if part.GTID.IsZero() {
				return nil, fmt.Errorf("%s: the cursor stands inside a transaction and does not say in which, since an older version wrote it, and another server answers (%s, not %s): "+
					"start once with the former server and stop in order, or set a new position with: binlogmq cursor set", v.id, end.ServerUUID, v.record.Cursor.Position.ServerUUID)
			}
			union.Add(part.GTID)
		}
		if v.unfinished() {
			return nil, fmt.Errorf("%s: another server answers (%s, not %s): %w; run the configuration of before until the sink has stopped in order (SIGTERM), then change it; "+
				"or begin anew with `binlogmq cursor new-life --reconcile`", v.id, end.ServerUUID, v.record.Cursor.Position.ServerUUID, bridge.ErrUnfinished)
		}
	}
	// What was published and is not there was lost on the way to this server.
	if err := d.connector.Holds(ctx, union); err != nil {
		if d.cfg.OnLostPosition != config.LostStop && errors.Is(err, event.ErrNoPosition) {
			return err, nil
		}
		return nil, err
	}
	for _, v := range all {
		if err := v.settle(ctx); err != nil {
			return nil, fmt.Errorf("%s: another server answers (%s, not %s), which may hold what lies behind the cursor in another order: %w", v.id, end.ServerUUID, v.record.Cursor.Position.ServerUUID, err)
		}
	}
	place := event.Position{GTIDs: common(all), ServerUUID: end.ServerUUID}
	p.log.Warn("another server answers than the one that was read before: all cursors of the destination begin at one place of its log, and what they have done beyond is passed over",
		"destination", d.cfg.Name, "server_uuid", end.ServerUUID, "cursors", len(all), "gtids", place.GTIDs.String())
	return nil, p.put(ctx, d, all, place)
}

// unfinished tells whether messages may be stored that were sent under another configuration.
func (v *standing) unfinished() bool {
	if v.part == nil || v.state == nil || v.state.Clean || !exact(v.part.cfg) {
		return false
	}
	_, err := bridge.ParseRecipe(v.state.Recipe)
	return err == nil && v.state.Fingerprint != v.part.bridge.Fingerprint()
}

// settle looks whether something is stored beyond the cursor, where the sink's messages cannot be compared with what comes from another server:
// as long as there is, no cursor may leave the server that can tell what it is (I5).
func (v *standing) settle(ctx context.Context) error {
	if v.state == nil || v.part == nil || v.state.Clean || v.state.Fingerprint == bridge.MovedFingerprint {
		return nil
	}
	k, ok := v.part.sink.(sink.Settler)
	if !ok || !k.KeepsRecord() {
		return nil
	}
	if err := k.Settled(ctx, v.state.Sink); err != nil {
		return err
	}
	v.state.Clean = true
	return nil
}

// recounted tells whether the numbers inside a transaction count other row changes than the configuration.
func (v *standing) recounted() bool {
	if v.state == nil || v.part == nil {
		return false
	}
	r, err := bridge.ParseRecipe(v.state.Recipe)
	return err == nil && !r.Counts(v.part.bridge.Recipe())
}

// common returns what all have reached.
func common(all []*standing) event.GTIDSet {
	set := all[0].record.Cursor.Position.GTIDs
	for _, v := range all[1:] {
		set = set.Intersect(v.record.Cursor.Position.GTIDs)
	}
	return set.Clone()
}

// put saves the cursors at a place, above all numbers that they had, with what they have acknowledged beyond it.
func (p *program) put(ctx context.Context, d *destination, all []*standing, place event.Position) error {
	ordinal, err := d.snapshots.Rewind(ctx)
	if err != nil {
		return err
	}
	var skips []meta.Skip // whoever had passed a transaction comes to it again
	for _, v := range all {
		ordinal = max(ordinal, v.record.Cursor.Last())
		for _, k := range v.record.Skips {
			if !slices.Contains(skips, k) {
				skips = append(skips, k)
			}
		}
	}
	for _, v := range all {
		c := &v.record.Cursor
		if v.state != nil {
			r, reads := v.part.sink.(sink.Reader)
			v.state.Elsewhere(c.Last(), exact(v.part.cfg), reads && r.KeepsReadable())
			text, err := v.state.Encode()
			if err != nil {
				return fmt.Errorf("%s: %w", v.id, err)
			}
			c.State = text
		}
		c.Position, c.Ordinal, c.Progress, c.Open, c.Done = place, ordinal, 0, event.GTID{}, nil
		c.Position.GTIDs = place.GTIDs.Clone()
		done := event.Done{GTIDs: v.acked.Subtract(place.GTIDs)}
		for _, part := range v.parts {
			if !place.GTIDs.Contains(part.GTID) && !done.GTIDs.Contains(part.GTID) {
				done.Parts = append(done.Parts, part)
			}
		}
		if !done.GTIDs.IsEmpty() || len(done.Parts) > 0 {
			c.Done = &done
		}
		v.record.Skips, v.record.SavedAt = skips, time.Now()
		if err := p.persist(ctx, d, v.id, v.record); err != nil {
			return err
		}
	}
	return d.snapshots.Rewound(ctx)
}

// persist saves a record, however long ZooKeeper is away, while the lease lasts.
func (p *program) persist(ctx context.Context, d *destination, id meta.Identity, r *meta.Record) error {
	told := false
	for wait := minRestart; ; wait = min(2*wait, maxRestart) {
		err := p.store.Save(ctx, id, r)
		if err == nil || errors.Is(err, meta.ErrFenced) || ctx.Err() != nil || p.cfg.Meta.ZooKeeper == nil { // I8: only by the owner
			return err
		}
		if !told {
			told = true
			p.log.Error("cursor cannot be saved; trying on", "destination", id.Destination, "client", id.Client, "error", oneLine(err))
		}
		select {
		case <-ctx.Done():
			return err
		case <-d.lease.Lost():
			return errors.Join(d.lease.Err(), err)
		case <-time.After(wait):
		}
	}
}

// relocate does what the configuration says of a position that the source does not have.
func (p *program) relocate(ctx context.Context, d *destination, end event.Position, all []*standing, why error) error {
	first, err := d.connector.Earliest(ctx)
	if err != nil {
		return err
	}
	if !errors.Is(why, event.ErrPurged) {
		if err := forgetHistory(ctx, p.store, d.cfg.Name, d.history); err != nil {
			return err
		}
	}
	return p.relocateTo(ctx, d, first, end, all, why)
}

// relocateTo is relocate for a log from first to end.
func (p *program) relocateTo(ctx context.Context, d *destination, first, end event.Position, all []*standing, why error) error {
	to, policy, purged := end, d.cfg.OnLostPosition, errors.Is(why, event.ErrPurged)
	if policy == config.LostEarliest {
		to = first
	}
	known, another := true, true // GTIDs tell what is done; the log is another server's
	for _, v := range all {
		if v.err != nil {
			return v.err
		}
		known = known && !v.record.Cursor.Position.GTIDs.IsEmpty()
		another = another && v.record.Cursor.Position.ServerUUID != end.ServerUUID
	}
	// A log that this server began anew gives other transactions the numbers of before, and MariaDB's number every history alike.
	known = known && len(all) > 0 && (purged || another && !end.GTIDs.IsMariaDB())
	place := event.Position{ServerUUID: end.ServerUUID}
	if known {
		if place.GTIDs = common(all); !purged {
			place.GTIDs = place.GTIDs.Intersect(end.GTIDs)
		}
		place.GTIDs = place.GTIDs.Union(first.GTIDs)
		known = !place.GTIDs.IsEmpty() // else there would be no place at all
	}
	p.log.Warn("the position is lost, and the destination goes on where on_lost_position says", "destination", d.cfg.Name, "on_lost_position", policy,
		"reason", oneLine(why), "file", to.File, "offset", to.Offset, "gtids", to.GTIDs.String(), "done_is_known", known)
	if !known {
		ids := make([]meta.Identity, len(all))
		for i, v := range all {
			ids[i] = v.id
		}
		if policy == config.LostSnapshot {
			if err := p.order(ctx, d, snapshot.ReasonLost, nil); err != nil {
				return err
			}
		}
		above, err := d.snapshots.Rewind(ctx)
		if err != nil {
			return err
		}
		records, err := move(ctx, p.store, ids, event.Cursor{Position: to, Ordinal: above})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := p.persist(ctx, d, id, records[id]); err != nil {
				return err
			}
		}
		return d.snapshots.Rewound(ctx)
	}
	latest := policy == config.LostLatest || policy == config.LostSnapshot
	everyone := true
	var losers []string
	for _, v := range all {
		if !purged { // not what is lacking: another transaction may get its number one day
			v.acked = v.acked.Intersect(end.GTIDs)
			v.parts = slices.DeleteFunc(v.parts, func(part event.Part) bool { return !end.GTIDs.Contains(part.GTID) })
		}
		missing := first.GTIDs.Subtract(v.acked)
		if missing.IsEmpty() && purged {
			everyone = false
			continue // it has done what is purged
		}
		p.log.Warn("a subscription has lost what lies between", "subscription", v.id.String(), "missing", missing.String())
		losers = append(losers, v.id.Client)
		if latest {
			v.acked, v.parts = end.GTIDs.Clone(), nil
		}
	}
	if latest && everyone {
		place.GTIDs, losers = end.GTIDs.Clone(), nil
	}
	// Before the cursors are saved, as a crash in between must find the position lost still.
	if policy == config.LostSnapshot && (everyone || len(losers) > 0) {
		if err := p.order(ctx, d, snapshot.ReasonLost, losers); err != nil {
			return err
		}
	}
	return p.put(ctx, d, all, place)
}

// restart is why a destination begins anew although nobody asked for it.
type restart struct{ error }

// notify is the destination's server.DestinationOptions.Failed: it has the destination begin anew if that helps.
func (d *destination) notify(err error) {
	gone := errors.Is(err, event.ErrPurged) || errors.Is(err, event.ErrNoPosition)
	if errors.Is(err, event.ErrAnotherServer) || gone && d.cfg.OnLostPosition != config.LostStop {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.again != nil {
			d.again(&restart{err})
		}
	}
}

// publishDestination runs a destination until soft ends or it stops. Where that helps it begins anew, with its cursors at a
// place in the log of the server that answers then.
func (p *program) publishDestination(soft, hard context.Context, d *destination) error {
	pause := minRestart
	for now := d; ; {
		run, again := context.WithCancelCause(soft)
		now.mu.Lock()
		now.again = again
		now.mu.Unlock()
		began := time.Now()
		err := p.publishOnce(run, hard, now)
		var why *restart
		if !errors.As(context.Cause(run), &why) || soft.Err() != nil {
			again(nil)
			return err
		}
		p.log.Warn("the destination begins anew", "destination", d.cfg.Name, "reason", oneLine(why.error), "in", pause)
		if time.Since(began) > maxRestart {
			pause = minRestart
		}
		select {
		case <-soft.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRestart)
		save, cancel := context.WithTimeout(context.WithoutCancel(hard), 5*time.Second)
		if err := p.server.RemoveDestination(save, d.cfg.Name); err != nil { // as after a kill: what is saved is gone on from
			p.log.Warn("before the destination begins anew", "destination", d.cfg.Name, "error", oneLine(err))
		}
		cancel()
		p.closeSinks(hard, now)
		next := &destination{cfg: d.cfg, lease: d.lease, skips: d.skips, history: d.history, snapshots: d.snapshots}
		next.relocated.Store(now.relocated.Load())
		if now = next; !errors.Is(why.error, event.ErrAnotherServer) {
			now.gone = why.error
		}
		d.successor = now
		if err := p.parts(now); err != nil {
			return err
		}
		for _, s := range p.seats {
			if s.cfg == d.cfg {
				s.begin(now)
			}
		}
	}
}

// Pauses between beginnings of one destination.
const (
	minRestart = 100 * time.Millisecond
	maxRestart = 15 * time.Second
)
