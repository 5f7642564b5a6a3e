package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/internal/condition"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// newRequest is an order for a snapshot of what the configuration says, with an id that no other has.
func newRequest(d *config.Destination, reason string, clients []string) snapshot.Request {
	now := time.Now().UTC()
	name := map[string]string{snapshot.ReasonStart: "start", snapshot.ReasonLost: "lost"}[reason]
	if name == "" {
		name = "ordered"
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // which never fails
	return snapshot.Request{
		ID: fmt.Sprintf("%s-%s-%x", name, now.Format("20060102T150405Z"), salt), Clients: clients, Tables: d.Snapshot.Tables, Where: d.Snapshot.Where, Reason: reason, At: now,
	}
}

// requestOf is what somebody orders: where the order says nothing, what the configuration does. Errors are admin.ErrOrder.
func requestOf(d *config.Destination, o *admin.SnapshotOrder) (snapshot.Request, error) {
	fail := func(format string, args ...any) (snapshot.Request, error) {
		return snapshot.Request{}, fmt.Errorf("destination %s: %w: %w", d.Name, admin.ErrOrder, fmt.Errorf(format, args...))
	}
	if o.ID != "" || o.Reason != "" || o.At != "" {
		return fail("id, reason and at are given by the program")
	}
	var clients []string
	for _, name := range o.Sinks {
		if !slices.ContainsFunc(d.Sinks, func(s config.Sink) bool { return s.Name == name }) {
			return fail("there is no sink %q", name)
		}
		clients = append(clients, clientOf(d.Name, name).Client)
	}
	if err := tablefilter.Check(o.Tables); err != nil {
		return fail("%w", err)
	}
	wanted, err := tablefilter.New(o.Tables)
	if err != nil {
		return fail("%w", err)
	}
	if err := condition.CheckAll(o.Where); err != nil {
		return fail("%w", err)
	}
	r := newRequest(d, snapshot.ReasonOrdered, clients)
	if len(o.Tables) > 0 {
		r.Tables = o.Tables
	} else if wanted, err = tablefilter.New(d.Snapshot.Tables); err != nil {
		return fail("%w", err)
	}
	if err := within(d, o, wanted); err != nil {
		return fail("%w", err)
	}
	if len(o.Where) > 0 {
		where := maps.Clone(r.Where)
		if where == nil {
			where = map[string]string{}
		}
		maps.Copy(where, o.Where)
		r.Where = where
	}
	return r, nil
}

// within tells what of an order cannot mean any table, whichever there are.
func within(d *config.Destination, o *admin.SnapshotOrder, wanted *tablefilter.Filter) error {
	captured, err := tablefilter.New(d.Tables)
	if err != nil {
		return err
	}
	if out := captured.Outside(o.Tables); len(out) > 0 {
		return fmt.Errorf("%s is not in the destination's tables, %s: add it there and restart first", strings.Join(out, ", "), patternsText(captured))
	}
	for _, table := range slices.Sorted(maps.Keys(o.Where)) {
		if !wanted.MayTakeNamed(table) {
			return fmt.Errorf("the condition for %s is for a table that the snapshot does not read, as its tables are %s", table, patternsText(wanted))
		}
		if !captured.MayTakeNamed(table) {
			return fmt.Errorf("the condition for %s is for a table that is not in the destination's tables: add it there and restart first", table)
		}
	}
	return nil
}

func patternsText(f *tablefilter.Filter) string {
	if p := f.Patterns(); len(p) > 0 {
		return strings.Join(p, ", ")
	}
	return "all"
}

// orderFirst orders what start: snapshot promises to whoever has no cursor yet. It runs before the first cursor is saved, so a crash anywhere
// leaves either the order or somebody without a cursor (I7).
func (p *program) orderFirst(ctx context.Context, d *destination) error {
	if d.cfg.Start != config.StartSnapshot {
		return nil
	}
	ids, err := p.store.List(ctx, d.cfg.Name)
	if err != nil {
		return err
	}
	var clients []string
	if len(ids) > 0 {
		for i := range d.cfg.Sinks {
			if id := clientOf(d.cfg.Name, d.cfg.Sinks[i].Name); !slices.Contains(ids, id) {
				clients = append(clients, id.Client)
			}
		}
		if len(clients) == 0 {
			return nil
		}
	}
	return p.order(ctx, d, snapshot.ReasonStart, clients)
}

// order orders a snapshot for some subscriptions, or for all, unless one is ordered that was not begun. It takes the place of those that
// the program has ordered before for no others: what they have left is in this one.
func (p *program) order(ctx context.Context, d *destination, reason string, clients []string) error {
	if err := d.snapshots.Load(ctx); err != nil {
		return err
	}
	r := newRequest(d.cfg, reason, clients)
	st := d.snapshots.Status()
	var former []string
	for i, q := range st.Queue {
		begun := i == 0 && st.Progress.Begun()
		switch {
		case q.Reason == snapshot.ReasonOrdered || !slices.Equal(q.Tables, r.Tables) || !maps.Equal(q.Where, r.Where):
		case q.Reason == reason && covers(q.Clients, clients) && !begun:
			return nil // by a process that was killed before the cursors were saved
		case covers(clients, q.Clients):
			former = append(former, q.ID)
		}
	}
	if err := d.snapshots.Order(ctx, r); err != nil {
		return err
	}
	p.log.Info("a snapshot is ordered", "destination", d.cfg.Name, "id", r.ID, "reason", reason, "subscriptions", subscriptionsText(clients))
	for _, id := range former {
		if err := d.snapshots.Cancel(ctx, id); err != nil {
			return err
		}
		p.log.Info("a snapshot is given up for it", "destination", d.cfg.Name, "id", id)
	}
	return nil
}

// covers tells whether a snapshot for the clients a, all if there are none, is one for the clients b.
func covers(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == 0
	}
	return !slices.ContainsFunc(b, func(c string) bool { return !slices.Contains(a, c) })
}

func subscriptionsText(clients []string) string {
	if len(clients) == 0 {
		return "all"
	}
	return strings.Join(clients, ", ")
}

// owned returns a destination that this process runs. Its errors are admin's.
func (p *program) owned(name string) (*destination, error) {
	for _, s := range p.seats {
		if s.cfg.Name != name {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.d == nil || !s.owned {
			return nil, fmt.Errorf("destination %s: %w: ask the one that owns it", name, admin.ErrElsewhere)
		}
		return s.d, nil
	}
	return nil, fmt.Errorf("destination %q: %w", name, admin.ErrUnknown)
}

// StartSnapshot implements [admin.Snapshots].
func (p *program) StartSnapshot(ctx context.Context, destination string, o admin.SnapshotOrder) (string, error) {
	d, err := p.owned(destination)
	if err != nil {
		return "", err
	}
	r, err := requestOf(d.cfg, &o)
	if err != nil {
		return "", err
	}
	return r.ID, d.snapshots.Order(ctx, r)
}

var errNoneOrdered = errors.New("no snapshot is ordered")

// CancelSnapshot implements [admin.Snapshots].
func (p *program) CancelSnapshot(ctx context.Context, destination, id string) error {
	d, err := p.owned(destination)
	if err != nil {
		return err
	}
	if err := d.snapshots.Load(ctx); err != nil {
		return err
	}
	switch q := d.snapshots.Status().Queue; {
	case len(q) == 0 && id == "":
		return fmt.Errorf("destination %s: %w: %w", destination, admin.ErrUnknown, errNoneOrdered)
	case id != "" && !slices.ContainsFunc(q, func(r snapshot.Request) bool { return r.ID == id }):
		return fmt.Errorf("destination %s, snapshot %q: %w: it is not ordered, or not any more", destination, id, admin.ErrUnknown)
	}
	return d.snapshots.Cancel(ctx, id)
}

// reportSnapshot shows what is ordered, and what comes of it.
func reportSnapshot(st snapshot.Status, at connector.Snapshot) *admin.Snapshot {
	out := &admin.Snapshot{
		State: at.State.String(), Table: at.Table, Tables: int64(at.Tables),
		Chunks: int64(st.Chunks), Bytes: st.Bytes, Queue: []admin.SnapshotOrder{}, Waits: strings.TrimPrefix(st.Waits, sinkPrefix),
	}
	if p := st.Progress; p != nil { // which is more than the reader knows before it has begun
		out.Rows, out.Done = p.Rows, p.Done
	}
	for _, e := range slices.Backward(st.Ended) {
		if !e.Cancelled {
			out.Finished = e.Request.ID
			break
		}
	}
	if !at.Since.IsZero() {
		out.Since = at.Since.UTC().Format(time.RFC3339)
	}
	out.Warning = strings.Join(strings.Fields(at.Warning), " ")
	if at.Err != nil {
		out.Error = oneLine(at.Err)
	}
	for _, r := range st.Queue {
		q := admin.SnapshotOrder{ID: r.ID, Reason: r.Reason, Tables: r.Tables, Where: r.Where, At: r.At.UTC().Format(time.RFC3339)}
		for _, c := range r.Clients {
			q.Sinks = append(q.Sinks, strings.TrimPrefix(c, sinkPrefix))
		}
		out.Queue = append(out.Queue, q)
	}
	return out
}
