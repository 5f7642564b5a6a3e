package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/server/canaltcp"
)

// clientOf names a sink's subscription.
func clientOf(destination, sink string) meta.Identity {
	return meta.Identity{Destination: destination, Client: sinkPrefix + sink}
}

// sinkPrefix begins the client ids of sinks. Those of Canal's clients are numbers.
const sinkPrefix = "sink-"

func filterText(s *config.Sink) string { return strings.Join(s.Tables, ",") }

// program is everything that runs.
type program struct {
	cfg     *config.Config
	log     *slog.Logger
	started time.Time
	store   metaStore
	server  *server.Server
	seats   []*seat
	admin   *admin.Server
	canal   *canaltcp.Server // nil unless configured

	governor *governor // of the garbage collector
}

// patient is how sinks subscribe. A ZooKeeper that is away comes back by itself; a directory in which nothing can be written wants
// somebody who is told at once.
func (p *program) patient() []server.SubscribeOption {
	if p.cfg.Meta.ZooKeeper == nil {
		return nil
	}
	return []server.SubscribeOption{server.UntilSaved()}
}

// destination is what runs of a destination while this process owns it.
type destination struct {
	cfg       *config.Destination
	lease     meta.Lease
	skips     map[event.GTID]int64 // transactions that are passed over
	history   *schema.History      // of its tables
	snapshots *snapshot.Log        // of its tables
	connector *connector.Connector
	sinks     []*sinkPart
	failure         // why it could not begin
	lost      error // why the lease ended before its time; set at the end

	gone      error        // why the one before could not go on from its position; nil: it could
	relocated atomic.Int64 // how often that was so, or was found at the start
	successor *destination // what took its place under the same lease

	mu    sync.Mutex
	again context.CancelCauseFunc // lets it begin anew
}

type sinkPart struct {
	cfg     *config.Sink
	client  *server.Client
	owner   func() error // nil error while this process owns the destination
	sink    publisher
	bridge  *bridge.Bridge
	former  atomic.Pointer[replaying] // what the sink runs as while it finishes what was begun under another configuration
	failure                           // why the bridge has ended
}

// current returns the bridge that runs, and the server that feeds it if that is not the program's.
func (s *sinkPart) current() (*bridge.Bridge, *server.Server) {
	if r := s.former.Load(); r != nil {
		return r.bridge, r.server
	}
	return s.bridge, nil
}

// failure remembers why a part has ended. It is safe for concurrent use.
type failure struct {
	mu  sync.Mutex
	err error
}

func (f *failure) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failure) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func runCommand(soft, hard context.Context, args []string, out, errs io.Writer) error {
	f, path := flags("run")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	p := &program{cfg: cfg, log: newLogger(cfg.Log, errs), started: time.Now(), governor: newGovernor(cfg)}
	defer p.governor.stop()
	p.log.Info("binlogmq starts", "version", versionText(), "destinations", len(cfg.Destinations))
	err = p.run(soft, hard)
	switch {
	case err != nil:
		p.log.Error("binlogmq ends", "error", oneLine(err))
		return errReported
	default:
		p.log.Info("binlogmq ends")
	}
	return nil
}

// run builds the parts in order, lets them run, and stops them in reverse.
func (p *program) run(soft, hard context.Context) (err error) {
	if p.store, err = openStore(p.cfg, p.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.store.Close()) }()
	p.server = server.New(server.Options{Meta: p.store, Logger: p.log, SaveInterval: p.cfg.Meta.SaveInterval.Value()})
	defer func() {
		save, cancel := context.WithTimeout(context.WithoutCancel(hard), 5*time.Second)
		defer cancel()
		err = errors.Join(err, p.server.Stop(save))
	}()
	first, err := p.assemble(soft)
	if err != nil {
		return err
	}
	if p.cfg.Admin.Listen != "" {
		if p.admin, err = admin.Listen(p.cfg.Admin.Listen, p.report, p, p.log); err != nil {
			p.dismissAll(hard, first)
			return err
		}
		p.log.Info("health, metrics and orders for snapshots are served", "address", p.admin.Addr())
		defer func() { err = errors.Join(err, p.admin.Close(hard)) }()
	}

	serving, stopServing := context.WithCancel(soft)
	canal, err := p.serveCanal(serving)
	if err != nil {
		stopServing()
		p.dismissAll(hard, first)
		return err
	}
	err = p.publish(soft, hard, first)
	stopServing()
	if canal != nil {
		err = errors.Join(err, <-canal)
	}
	return err
}

// assemble makes a seat for each destination, and builds those that this process owns anyway, so that what is wrong with
// their parts shows at once.
func (p *program) assemble(ctx context.Context) (first []*destination, err error) {
	defer func() {
		if err != nil {
			p.dismissAll(ctx, first)
		}
	}()
	for i := range p.cfg.Destinations {
		s := &seat{cfg: &p.cfg.Destinations[i]}
		p.seats = append(p.seats, s)
		first = append(first, nil)
		if p.cfg.Meta.ZooKeeper != nil {
			continue
		}
		lease, err := p.store.Acquire(ctx, s.cfg.Name)
		if err != nil {
			return first, err
		}
		if first[i], err = p.build(ctx, s, lease); err != nil {
			return first, err
		}
		s.begin(first[i]) // or it would show as a standby until it runs
	}
	return first, nil
}

func (p *program) dismissAll(ctx context.Context, all []*destination) {
	for _, d := range all {
		if d != nil {
			_ = p.dismiss(ctx, d) // nothing has moved
		}
	}
}

// parts makes the parts of a destination; nothing connects yet.
func (p *program) parts(d *destination) error {
	c, err := newConnector(d.cfg, known{d.history, d.snapshots, d.skips}, p.log)
	if err != nil {
		return err
	}
	c.OnLarge(p.governor.large(d.cfg.RowFactor()))
	d.connector = c
	for j := range d.cfg.Sinks {
		s := &sinkPart{cfg: &d.cfg.Sinks[j], client: p.server.Client(clientOf(d.cfg.Name, d.cfg.Sinks[j].Name)), owner: d.lease.Err}
		if s.sink, err = newSink(p.cfg.Deployment, d.cfg.Name, s.cfg, s.owner, p.log); err != nil {
			return err
		}
		d.sinks = append(d.sinks, s)
		o, err := bridgeOptions(d.cfg, s.cfg, s.client, s.sink, p.cfg.StopTimeout.Value(), p.log)
		if err != nil {
			return err
		}
		o.Owner = s.owner
		o.SourceEnd = c.End
		if s.bridge, err = bridge.New(o); err != nil {
			return fmt.Errorf("destination %s, sink %s: %w", d.cfg.Name, s.cfg.Name, err)
		}
	}
	// From here on clients come in, for whom prepare may have to know the sinks.
	o := serverOptions(d.cfg)
	o.Prepare = func(ctx context.Context) error { return p.prepare(ctx, d) }
	o.Failed = d.notify
	return p.server.AddDestination(d.cfg.Name, c, o)
}

// publish runs every destination until soft ends, or until none is left. A sink or a
// destination that stops does not stop the others.
func (p *program) publish(soft, hard context.Context, first []*destination) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	for i, s := range p.seats {
		wg.Go(func() {
			err := p.sit(soft, hard, s, first[i])
			if err != nil {
				if len(p.seats) > 1 { // else the last line says it
					p.log.Error("destination has stopped", "destination", s.cfg.Name, "error", oneLine(err))
				}
				mu.Lock()
				failures = append(failures, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	// While another destination runs, one that stopped shows as red health; at
	// the end it shows in the exit code.
	return errors.Join(failures...)
}

// publishOnce runs a destination until soft ends or it stops.
func (p *program) publishOnce(soft, hard context.Context, d *destination) error {
	fail := func(err error) error {
		d.notify(err)
		if soft.Err() != nil {
			return nil
		}
		d.fail(err)
		return err
	}
	if err := p.server.Prepare(soft, d.cfg.Name); err != nil {
		return fail(err)
	}
	if err := p.replayTables(soft, hard, d); err != nil {
		return fail(err)
	}
	if err := d.connector.Recount(soft); err != nil {
		return fail(err)
	}
	late := make([]bool, len(d.sinks))
	for i, s := range d.sinks {
		v, err := p.load(soft, s)
		if err != nil {
			return fail(err)
		}
		if late[i] = v != nil && mustReplay(s, v); late[i] {
			continue // it looks at its topics first, or finishes what it did; the others do not wait
		}
		// The first subscription asks the source where to start.
		if err := s.client.Subscribe(soft, filterText(s.cfg), p.patient()...); err != nil {
			return fail(err)
		}
	}
	if err := p.server.Start(soft, d.cfg.Name); err != nil {
		return fail(err)
	}
	var wg sync.WaitGroup
	for i, s := range d.sinks {
		wg.Go(func() {
			if late[i] {
				err := p.replaySink(soft, hard, d, i)
				if err == nil && soft.Err() == nil {
					err = s.client.Subscribe(soft, filterText(s.cfg), p.patient()...)
				}
				if err != nil {
					d.notify(err)
				}
				if soft.Err() != nil {
					return
				}
				if err != nil {
					p.log.Error("the sink has stopped", "destination", d.cfg.Name, "sink", s.cfg.Name, "error", oneLine(err))
					s.fail(err)
					return
				}
			}
			// A hard stop cuts what the bridge waits for.
			defer context.AfterFunc(hard, func() { _ = s.bridge.Drain(hard) })()
			run, end := context.WithCancel(soft)
			defer end()
			watch := s.endWithoutSource(run, end)
			err := s.bridge.Run(run)
			end()
			stopped := <-watch
			switch {
			case stopped != nil:
				err = stopped // the server has logged it
			case err != nil && soft.Err() != nil: // asked to
				p.log.Warn("the sink ends", "destination", d.cfg.Name, "sink", s.cfg.Name, "error", err)
				return
			case err == nil:
				return
			}
			s.fail(err)
			// The ring must not wait for it; its cursor stays. A bridge that stopped by itself has done so.
			if err := s.client.Disconnect(hard); err != nil && !errors.Is(err, server.ErrNotSubscribed) {
				p.log.Warn("disconnecting the sink", "destination", d.cfg.Name, "sink", s.cfg.Name, "error", err)
			}
		})
	}
	wg.Wait()
	if p.canal != nil {
		<-soft.Done() // its clients go on
	}
	var errs []error
	for _, s := range d.sinks {
		// A reader that stopped is the same error for all its sinks.
		if err := s.failed(); err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// watchPeriod is how often a sink is looked at for a source that has stopped.
const watchPeriod = 200 * time.Millisecond

// endWithoutSource calls end once reading the source has stopped and everything that was read is acknowledged.
// Such a stop needs the operator: reading again by ourselves would do no good, or harm. It gives the reason, nil if ctx
// ended before.
func (s *sinkPart) endWithoutSource(ctx context.Context, end func()) <-chan error {
	out := make(chan error, 1)
	go func() {
		t := time.NewTicker(watchPeriod)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				out <- nil
				return
			case <-t.C:
			}
			b := s.bridge.Status()
			var stopped *server.DestinationError
			if errors.As(b.Err, &stopped) && b.Batches == 0 {
				out <- stopped
				end()
				return
			}
		}
	}()
	return out
}

// oneLine writes joined errors without line breaks.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (p *program) closeSinks(ctx context.Context, d *destination) {
	if d.successor != nil {
		d = d.successor
	}
	for _, s := range d.sinks {
		if err := s.sink.Close(ctx); err != nil && ctx.Err() == nil { // a second signal is no fault of the sink
			p.log.Warn("closing the sink", "destination", d.cfg.Name, "sink", s.cfg.Name, "error", err)
		}
	}
}

// report collects what health and metrics show.
func (p *program) report() admin.Report {
	r := admin.Report{Version: versionText(), Started: p.started}
	now := time.Now()
	states := map[string]server.DestinationStatus{}
	for _, s := range p.server.Status() {
		states[s.Name] = s
	}
	for _, s := range p.seats {
		r.Destinations = append(r.Destinations, p.reportSeat(now, s, states[s.cfg.Name]))
	}
	return r
}

func (d *destination) report(now time.Time, st server.DestinationStatus) admin.Destination {
	src := d.connector.Status()
	out := admin.Destination{
		Name: d.cfg.Name, State: st.State.String(), Connected: src.Connected, Position: positionText(st.Position),
		LagKnown: !src.SourceAsked.IsZero(), LagSeconds: src.Lag.Seconds(), LagBytes: int64(src.LagBytes),
		Bytes: src.Bytes, Events: src.Events, Rows: src.Rows, Reconnects: src.Reconnects, Skipped: src.Skipped, PassedDML: src.PassedDML, Unread: src.Unread, Lost: d.relocated.Load(),
		RingEvents: int64(st.RingEvents), RingBytes: st.RingBytes, RingLimit: st.MaxBytes,
	}
	out.Snapshot = reportSnapshot(d.snapshots.Status(), src.Snapshot)
	if !src.Since.IsZero() {
		out.Since = src.Since.UTC().Format(time.RFC3339)
	}
	if st.State == server.Idle && len(d.sinks) == 0 {
		out.State = admin.Waiting
	}
	// Why reading stopped holds what the source said.
	if err := cmp.Or(d.failed(), st.Err, src.Err); err != nil {
		out.Error = oneLine(err)
	}
	subs := map[string]server.SubscriptionStatus{}
	for _, s := range st.Subscriptions {
		subs[s.Identity.Client] = s
	}
	for _, s := range d.sinks {
		sub := subs[s.client.Identity().Client]
		if _, other := s.current(); other != nil {
			sub = subscription(other, s.client.Identity())
		}
		k := s.report(now, sub)
		out.LagSeconds = max(out.LagSeconds, k.LagSeconds)
		out.Sinks = append(out.Sinks, k)
	}
	for _, k := range reportClients(now, st) {
		out.LagSeconds = max(out.LagSeconds, k.LagSeconds)
		out.Sinks = append(out.Sinks, k)
	}
	return out
}

// subscription returns what a server shows of one subscription.
func subscription(s *server.Server, id meta.Identity) server.SubscriptionStatus {
	for _, d := range s.Status() {
		for _, x := range d.Subscriptions {
			if x.Identity == id {
				return x
			}
		}
	}
	return server.SubscriptionStatus{}
}

func (s *sinkPart) report(now time.Time, sub server.SubscriptionStatus) admin.Sink {
	running, _ := s.current()
	b := running.Status()
	name, _ := kind(s.cfg)
	out := admin.Sink{
		Name: s.cfg.Name, Kind: name, State: b.State.String(),
		Rows: sub.Rows, Messages: b.Messages, Bytes: b.Bytes, InFlight: b.Sink.InFlight, FlightBytes: b.Sink.Bytes,
		Retries: b.Sink.Retries, Commits: b.Sink.Commits, Spread: b.Sink.Spread, Hanging: b.Sink.Hanging, Rollbacks: b.Failures, Stubs: b.Stubs, Splits: b.Splits, DeadLetters: b.DeadLetters,
	}
	reportSubscription(&out, now, &sub)
	err := cmp.Or(s.failed(), b.Err, sub.Err)
	var stopped *server.DestinationError
	if errors.As(err, &stopped) && stopped.Client == "" {
		err = nil // the destination's own error
	}
	if err := errors.Join(err, sub.SaveErr); err != nil {
		out.Error = oneLine(err)
	}
	return out
}

// reportSubscription shows where a subscription stands.
func reportSubscription(out *admin.Sink, now time.Time, sub *server.SubscriptionStatus) {
	out.Ordinal, out.Behind = sub.Cursor.Last(), sub.Lag
	out.CatchingUp = sub.Feed == server.FeedCatchUp || sub.Feed == server.FeedQueued || sub.Feed == server.FeedOwn
	if !sub.OldestEvent.IsZero() {
		out.LagSeconds = max(0, now.Sub(sub.OldestEvent).Seconds())
	}
	if (sub.SaveErr != nil || sub.Saved < sub.Cursor.Last()) && !sub.SavedAt.IsZero() {
		out.CursorAge = now.Sub(sub.SavedAt).Seconds()
	}
}

func positionText(p event.Position) string {
	if p.File == "" && p.GTIDs.IsEmpty() {
		return ""
	}
	var s []string
	if p.File != "" {
		s = append(s, fmt.Sprintf("%s:%d", p.File, p.Offset))
	}
	if !p.GTIDs.IsEmpty() {
		s = append(s, p.GTIDs.String())
	}
	return strings.Join(s, " ")
}
