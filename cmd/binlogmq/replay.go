package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// After a crash, messages beyond the cursor may be stored. They are recognised only when they are sent again under
// the recipe, numbers and partitions that they had (I5). So where the configuration or a topic's
// partitions changed meanwhile, the old pipeline runs first: beside the new one, until it has provably
// passed all that was sent; then it stops in order and the new one begins a new epoch.
//
// The numbers of a destination count what its tables capture. If that changed, all sinks that still count the old way are
// brought to one and the same place first.

// saved is what the cursor of a sink says before it starts.
type saved struct {
	cursor event.Cursor
	state  *bridge.State
	recipe *bridge.Recipe // nil: none that can be read; why says the reason
	why    error
}

// inside tells whether a part of a transaction is done, behind the cursor or further on.
func (v *saved) inside() bool {
	return v.cursor.Progress > 0 || v.cursor.Done != nil && len(v.cursor.Done.Parts) > 0
}

// otherwise returns an error if the sink stands inside a transaction whose row changes may have been counted otherwise by another version. Servers that do
// not tell upper from lower case need tables with capitals for that.
func (v *saved) otherwise(d *config.Destination) error {
	capitals := slices.ContainsFunc(d.Tables, func(p string) bool { return strings.ToLower(p) != p })
	if !errors.Is(v.why, bridge.ErrRule) || !v.inside() || !capitals {
		return nil
	}
	return fmt.Errorf("the cursor stands inside a transaction, whose row changes this version may count otherwise, since tables names capitals: %w; "+
		"run the version that sent it until the sink has stopped in order (SIGTERM) between transactions, then upgrade; or set a new position with: binlogmq cursor set", v.why)
}

// load reads a sink's cursor; nil: there is none, or one without state.
func (p *program) load(ctx context.Context, s *sinkPart) (*saved, error) {
	r, err := p.store.Load(ctx, s.client.Identity())
	if errors.Is(err, meta.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := bridge.ParseState(r.Cursor.State)
	if err != nil || st == nil || st.Fingerprint == bridge.MovedFingerprint {
		return nil, nil // the bridge says what is to be said
	}
	v := &saved{cursor: r.Cursor, state: st}
	v.recipe, v.why = bridge.ParseRecipe(st.Recipe)
	return v, nil
}

// replayTables brings the sinks that count other row changes than the configuration to one place: those of other tables, or of another view of
// system-versioned ones. It returns at once if there are none, or if they stand there already with nothing to be replayed.
func (p *program) replayTables(soft, hard context.Context, d *destination) error {
	var old []replaying
	needed := false
	for _, s := range d.sinks {
		v, err := p.load(soft, s)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if err := v.otherwise(d.cfg); err != nil {
			return fmt.Errorf("destination %s, sink %s: %w", d.cfg.Name, s.cfg.Name, err)
		}
		if v.recipe == nil || v.recipe.Counts(s.bridge.Recipe()) {
			continue
		}
		r := replaying{part: s, saved: v, matters: mustReplay(s, v)}
		// A part of a transaction is counted in row changes of the old tables.
		needed = needed || r.matters || v.inside() || len(old) > 0 && v.cursor.Ordinal != old[0].saved.cursor.Ordinal
		if len(old) > 0 && !old[0].saved.recipe.Counts(v.recipe) {
			return fmt.Errorf("destination %s: sinks %s and %s were last used with two other lists of tables or views of system-versioned ones (%q and %q), and their numbers cannot be compared; "+
				"start once with those of one of them and stop in order, or set a new position with: binlogmq cursor set", d.cfg.Name, old[0].part.cfg.Name, s.cfg.Name, old[0].saved.recipe.Tables, v.recipe.Tables)
		}
		old = append(old, r)
	}
	if !needed {
		return nil
	}
	return p.replay(soft, hard, d, 1, old)
}

// mustReplay says whether what is stored after the cursor would not be recognised under the new configuration.
func mustReplay(s *sinkPart, v *saved) bool {
	if v.state.Clean || v.recipe == nil {
		return false
	}
	was, err := formerSink(s.cfg, v.recipe)
	return err == nil && exact(was)
}

// replaySink lets one sink finish what it did under another recipe or with fewer partitions.
func (p *program) replaySink(soft, hard context.Context, d *destination, i int) error {
	s := d.sinks[i]
	v, err := p.load(soft, s)
	if err != nil || v == nil || !mustReplay(s, v) {
		return err
	}
	if v.state.Fingerprint == s.bridge.Fingerprint() {
		r, ok := s.sink.(sink.Recounter)
		if !ok || len(v.state.Partitions) == 0 {
			return nil
		}
		if grown, err := bridge.Grown(soft, r, v.state); err != nil || len(grown) == 0 {
			return err
		}
	}
	return p.replay(soft, hard, d, 2+i, []replaying{{part: s, saved: v, matters: true}})
}

// formerSink returns the configuration of a sink as a recipe had it. What is no part of the recipe is as it is now.
func formerSink(s *config.Sink, r *bridge.Recipe) (*config.Sink, error) {
	c := *s
	if err := identified(&c, r.Codec); err != nil {
		return nil, err
	}
	if s.Kafka != nil {
		k := *s.Kafka
		for _, how := range []string{"at_least_once", "sequenced", "transactional"} {
			if k.Delivery = how; delivery(&config.Sink{Kafka: &k}) == r.Delivery {
				break
			}
		}
		c.Kafka = &k
	}
	if delivery(&c) != r.Delivery {
		return nil, fmt.Errorf("%w: it was sent by a sink of the kind %q, which is not configured any more", bridge.ErrRecipe, r.Delivery)
	}
	return &c, nil
}

// replaying is a sink that runs as it did before.
type replaying struct {
	part    *sinkPart
	saved   *saved
	matters bool // what is stored after its cursor must be passed

	server *server.Server
	bridge *bridge.Bridge
	sink   publisher
	passed func() bool // all that was stored is acknowledged; nil: not known

	stopped error // why the bridge stopped by itself, after Run
}

// gate is a source that can be told to end behind the transaction that is being read.
type gate struct {
	*connector.Connector

	mu    sync.Mutex
	high  int64 // last ordinal handed on, of any reader
	limit int64 // readers end at the first transaction end at or behind it; -1: they do not
}

// Read implements server.Source.
func (g *gate) Read(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	return g.Connector.Read(ctx, from, g.until(from, put))
}

// ReadBeside implements server.BesideSource.
func (g *gate) ReadBeside(ctx context.Context, from event.Cursor, put func(context.Context, []*event.Event) error) error {
	return g.Connector.ReadBeside(ctx, from, g.until(from, put))
}

// until is put up to the end.
func (g *gate) until(from event.Cursor, put func(context.Context, []*event.Event) error) func(context.Context, []*event.Event) error {
	end, ended := from.Ordinal, false
	return func(ctx context.Context, events []*event.Event) error {
		if !ended {
			var open []*event.Event
			if open, ended = g.pass(events, &end); len(open) > 0 {
				if err := put(ctx, open); err != nil {
					return err
				}
			}
		}
		if ended {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

// pass returns the events before the end. end is the transaction end that the reader has handed on last.
func (g *gate) pass(events []*event.Event, end *int64) (open []*event.Event, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range events {
		last := e.Ordinal
		switch e.Kind {
		case event.Begin:
			if g.limit >= 0 && *end >= g.limit {
				return events[:i], true
			}
			last = *end + 1 // a transaction has one number at least: from here on its end is the place to end at
		case event.Rows:
			last += int64(e.Rows) - 1
		case event.End:
			*end = e.Ordinal
		}
		g.high = max(g.high, last)
	}
	return events, false
}

// close sets the limit, once: the highest ordinal handed on, and at least to least.
func (g *gate) close(least int64) (limit int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit < 0 {
		g.limit = max(least, g.high)
	}
	return g.limit
}

// replayPeriod is how often a replay is looked at.
const replayPeriod = 50 * time.Millisecond

// replay runs sinks of one destination under the recipes that their cursors hold, until everything that was sent under them is
// acknowledged and all stand at one transaction end, and stops them in order. reader tells it apart at the source from what reads at the same time.
func (p *program) replay(soft, hard context.Context, d *destination, reader int, sinks []replaying) (err error) {
	log := p.log.With("destination", d.cfg.Name)
	old := *d.cfg
	old.Tables, old.Versioned = sinks[0].saved.recipe.Tables, config.VersionedLive
	if sinks[0].saved.recipe.AllVersions {
		old.Versioned = config.VersionedRaw
	}
	src, err := newReader(&old, known{d.history, d.snapshots, d.skips}, p.log, reader)
	if err != nil {
		return err
	}
	src.OnLarge(p.governor.large(old.RowFactor()))
	g := &gate{Connector: src, limit: -1}
	srv := server.New(server.Options{Meta: p.store, Logger: p.log, SaveInterval: p.cfg.Meta.SaveInterval.Value()})
	stop := func() error {
		save, cancel := context.WithTimeout(context.WithoutCancel(hard), 5*time.Second)
		defer cancel()
		return srv.Stop(save)
	}
	defer func() {
		err = errors.Join(err, stop())
		for i := range sinks {
			sinks[i].part.former.Store(nil)
			if k := sinks[i].sink; k != nil {
				if cerr := k.Close(hard); cerr != nil && hard.Err() == nil {
					log.Warn("closing the sink", "sink", sinks[i].part.cfg.Name, "error", cerr)
				}
			}
		}
	}()
	o := serverOptions(&old)
	o.Prepare = func(context.Context) error { return nil } // the destination's own has been called
	o.Failed = d.notify
	if err := srv.AddDestination(d.cfg.Name, g, o); err != nil {
		return err
	}
	names := make([]string, len(sinks))
	for i := range sinks {
		r := &sinks[i]
		r.server = srv
		names[i] = r.part.cfg.Name
		if err := p.former(&old, src, r); err != nil {
			return err
		}
		r.part.former.Store(r)
	}
	log.Info("the configuration changed, or a topic has more partitions: first, what was done before is finished as it was begun", "sinks", names)
	for i := range sinks {
		if err := srv.Subscribe(soft, sinks[i].part.client.Identity(), sinks[i].saved.recipe.Filter, p.patient()...); err != nil {
			return err
		}
	}
	// All that a process before this one can have sent was in the log by now.
	end, err := src.End(soft)
	if err != nil {
		return err
	}
	if err := srv.Start(soft, d.cfg.Name); err != nil {
		return err
	}
	if err := p.runFormer(soft, hard, d, g, end, sinks); err != nil {
		return err
	}
	if soft.Err() != nil {
		return soft.Err()
	}
	if err := stop(); err != nil { // saves
		return err
	}
	if err := p.finished(soft, d, sinks); err != nil {
		return err
	}
	for i := range sinks {
		if e := sinks[i].stopped; e != nil {
			log.Warn("the old configuration stops here, and the new one begins", "sink", names[i], "error", e)
		}
	}
	log.Info("what was done before is finished", "sinks", names)
	return nil
}

// finished checks what a replay has left in the cursors.
func (p *program) finished(ctx context.Context, d *destination, sinks []replaying) error {
	end := int64(-1)
	for i := range sinks {
		name := sinks[i].part.cfg.Name
		v, err := p.load(ctx, sinks[i].part)
		if err != nil {
			return err
		}
		if v == nil || v.recipe == nil {
			return fmt.Errorf("destination %s, sink %s: the cursor was changed while the sink ran", d.cfg.Name, name)
		}
		switch recounted := !v.recipe.Counts(sinks[i].part.bridge.Recipe()); {
		case recounted && v.inside():
			return fmt.Errorf("destination %s, sink %s: the sink stands inside a transaction, whose row changes the new configuration (tables, system_versioned) counts otherwise: "+
				"leave both as they were and exclude the table by the sink's own tables; or set a new position with: binlogmq cursor set", d.cfg.Name, name)
		case sinks[i].matters && !v.state.Clean && sinks[i].stopped != nil:
			return fmt.Errorf("destination %s, sink %s: what was done before the change of the configuration cannot be finished, since the old configuration stops before a change behind which others may be stored (%w): "+
				"begin anew with `binlogmq cursor new-life --reconcile`, which reads what the topics hold", d.cfg.Name, name, sinks[i].stopped)
		case sinks[i].matters && !v.state.Clean, recounted && end >= 0 && v.cursor.Ordinal != end:
			return fmt.Errorf("destination %s, sink %s: what was done before the change of the configuration is not finished; start again", d.cfg.Name, name)
		}
		end = v.cursor.Ordinal
	}
	return nil
}

// former makes the sink and the bridge of a recipe.
func (p *program) former(d *config.Destination, src *connector.Connector, r *replaying) error {
	c, err := formerSink(r.part.cfg, r.saved.recipe)
	if err != nil {
		return fmt.Errorf("destination %s, sink %s: %w; run the version and the configuration that sent it until it has stopped cleanly (SIGTERM), "+
			"or begin anew with `binlogmq cursor new-life`, which may repeat messages sent after the cursor", d.Name, r.part.cfg.Name, err)
	}
	if r.sink, err = newSink(p.cfg.Deployment, d.Name, c, r.part.owner, p.log); err != nil {
		return err
	}
	o, err := bridgeOptions(d, c, r.server.Client(r.part.client.Identity()), r.sink, p.cfg.StopTimeout.Value(), p.log.With("replay", true))
	if err != nil {
		return err
	}
	o.Owner = r.part.owner
	o.SourceEnd = src.End
	if err := r.saved.recipe.Follow(&o); err != nil {
		return err
	}
	r.bridge, err = bridge.New(o)
	return err
}

// runFormer runs the bridges until all have passed what was stored, or soft ends.
func (p *program) runFormer(soft, hard context.Context, d *destination, g *gate, end event.Position, sinks []replaying) error {
	ctx, cancel := context.WithCancel(soft)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(sinks))
	ended := make([]chan struct{}, len(sinks))
	for i := range sinks {
		r := &sinks[i]
		ended[i] = make(chan struct{})
		wg.Go(func() {
			defer close(ended[i])
			defer context.AfterFunc(hard, func() { _ = r.bridge.Drain(hard) })()
			errs[i] = r.bridge.Run(ctx)
		})
		if k, ok := r.sink.(sink.Replayer); ok && r.matters {
			wg.Go(func() {
				passed, err := k.Replayed(ctx)
				if err != nil && ctx.Err() == nil {
					p.log.Warn("the sink cannot tell how far it had come; it goes on to where the source's log ended", "destination", d.cfg.Name, "sink", r.part.cfg.Name, "error", err)
				}
				g.mu.Lock()
				r.passed = passed
				g.mu.Unlock()
			})
		}
	}
	err := p.follow(ctx, d, g, end, sinks, ended)
	cancel()
	wg.Wait()
	if err != nil {
		return err
	}
	for i, e := range errs {
		var stop *bridge.StopError
		switch {
		case e == nil || soft.Err() != nil:
		case errors.As(e, &stop) && len(sinks) == 1:
			// Where the old recipe ends the old process ended too, at the latest; the state says whether all before is whole.
			sinks[i].stopped = e
		default:
			return e
		}
	}
	return nil
}

// follow watches a replay until it is done, one bridge has stopped by itself, or ctx ends.
func (p *program) follow(ctx context.Context, d *destination, g *gate, end event.Position, sinks []replaying, ended []chan struct{}) error {
	t := time.NewTicker(replayPeriod)
	defer t.Stop()
	limit := int64(-1)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for _, e := range ended {
			select {
			case <-e:
				return nil
			default:
			}
		}
		reader := g.Status() // before the server's: what it shows has been handed on
		var st server.DestinationStatus
		for _, s := range sinks[0].server.Status() {
			if s.Name == d.cfg.Name {
				st = s
			}
		}
		if st.Err != nil {
			return st.Err
		}
		cursors, most := int64(-1), int64(0) // the lowest transaction end, and the highest ordinal
		for _, s := range st.Subscriptions {
			if s.Err != nil {
				return s.Err
			}
			if cursors < 0 || s.Cursor.Ordinal < cursors {
				cursors = s.Cursor.Ordinal
			}
			most = max(most, s.Cursor.Last())
		}
		if limit < 0 {
			read := event.Position{File: reader.File, Offset: reader.Offset, ServerUUID: reader.ServerUUID}
			if (read.Reached(&end) || st.Position.Reached(&end) || passed(g, sinks)) && !comparing(sinks) {
				limit = g.close(most)
			}
			continue
		}
		if len(st.Subscriptions) == len(sinks) && cursors >= limit {
			for i := range sinks {
				sinks[i].bridge.Passed()
			}
			return nil
		}
	}
}

// comparing tells whether a sink still looks what its topics hold, which no number tells.
func comparing(sinks []replaying) bool {
	return slices.ContainsFunc(sinks, func(r replaying) bool { return r.bridge.Status().Reconciling })
}

// passed tells whether every sink that matters knows that it has passed what it had stored.
func passed(g *gate, sinks []replaying) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(sinks, func(r replaying) bool { return r.matters && (r.passed == nil || !r.passed()) })
}
