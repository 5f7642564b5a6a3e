package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

func cursorCommand(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("cursor: show, set, skip, new-life, forget, export, import or import-canal is needed\n%s", usage)}
	}
	switch args[0] {
	case "show":
		return cursorShow(ctx, args[1:], out)
	case "set":
		return cursorSet(ctx, args[1:], in, out, errs)
	case "skip":
		return cursorSkip(ctx, args[1:], in, out, errs)
	case "export":
		return cursorExport(ctx, args[1:], out)
	case "import":
		return cursorImport(ctx, args[1:], in, out)
	case "import-canal":
		return cursorImportCanal(ctx, args[1:], in, out, errs)
	case "new-life":
		return cursorNewLife(ctx, args[1:], in, out)
	case "forget":
		return cursorForget(ctx, args[1:], in, out)
	}
	return usageError{fmt.Errorf("cursor: unknown %q; show, set, skip, new-life, forget, export, import or import-canal is needed\n%s", args[0], usage)}
}

func cursorShow(ctx context.Context, args []string, out io.Writer) error {
	f, path := flags("cursor show")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	n, err := eachRecord(ctx, cfg, "", func(id meta.Identity, r *meta.Record) error {
		showRecord(out, cfg, id, r)
		return nil
	})
	if err == nil && n == 0 {
		fmt.Fprintf(out, "no cursor is saved in %s\n", storeText(cfg))
	}
	return err
}

// eachRecord calls do with each saved record of one destination, or of all, and returns how many there are. It takes no
// lock and no lease: it works beside the running program. What is damaged is passed over, and told at the end.
func eachRecord(ctx context.Context, cfg *config.Config, destination string, do func(meta.Identity, *meta.Record) error) (n int, err error) {
	store, done, err := lookStore(cfg)
	if err != nil || store == nil {
		return 0, err
	}
	defer func() { err = errors.Join(looked(cfg, err), done()) }()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ids, err := store.List(ctx, destination)
	if err != nil {
		return 0, err
	}
	var damaged []error
	for _, id := range ids {
		r, err := store.Load(ctx, id)
		if errors.Is(err, meta.ErrDamaged) {
			damaged = append(damaged, err)
			continue
		}
		if err == nil {
			err = do(id, r)
		}
		if err != nil {
			return n, errors.Join(append(damaged, err)...)
		}
		n++
	}
	return n, errors.Join(damaged...)
}

// confirm asks before something is changed, unless yes says so already.
func confirm(command string, yes bool, in io.Reader, out io.Writer) error {
	if yes {
		return nil
	}
	fmt.Fprint(out, "Type yes to go on: ")
	line, _ := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(line) != "yes" {
		return fmt.Errorf("%s: nothing was changed", command)
	}
	return nil
}

func showRecord(out io.Writer, cfg *config.Config, id meta.Identity, r *meta.Record) {
	c := &r.Cursor
	fmt.Fprintf(out, "%s\n", id)
	if !configured(cfg, id) {
		fmt.Fprintf(out, "  note        not in this configuration\n")
	}
	if c.Position.File != "" || c.Position.GTIDs.IsEmpty() {
		fmt.Fprintf(out, "  position    %s:%d\n", c.Position.File, c.Position.Offset)
	}
	if !c.Position.GTIDs.IsEmpty() {
		fmt.Fprintf(out, "  gtids       %s\n", c.Position.GTIDs)
	}
	fmt.Fprintf(out, "  server      %s\n", c.Position.ServerUUID)
	fmt.Fprintf(out, "  ordinal     %d\n", c.Ordinal)
	if c.Progress > 0 {
		fmt.Fprintf(out, "  progress    %d in the next transaction\n", c.Progress)
		if !c.Open.IsZero() {
			fmt.Fprintf(out, "  which is    %s\n", c.Open)
		}
	}
	if c.Done != nil {
		fmt.Fprintf(out, "  done        %s\n", c.Done.GTIDs)
		for _, part := range c.Done.Parts {
			fmt.Fprintf(out, "  done        %d in transaction %s\n", part.Ordinals, part.GTID)
		}
	}
	if s, err := bridge.ParseState(c.State); err != nil {
		fmt.Fprintf(out, "  state       %v\n", err)
	} else if s != nil {
		fmt.Fprintf(out, "  epoch       %d\n  offset      %d\n", s.Epoch, s.Offset)
		showState(out, s)
	}
	for _, k := range r.Skips {
		fmt.Fprintf(out, "  skips       %s (%d ordinals)\n", k.GTID, k.Ordinals)
	}
	if r.Filter != "" {
		fmt.Fprintf(out, "  filter      %s\n", r.Filter)
	}
	fmt.Fprintf(out, "  saved       %s\n", r.SavedAt.UTC().Format(time.RFC3339))
}

func configured(cfg *config.Config, id meta.Identity) bool {
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		for j := range d.Sinks {
			if clientOf(d.Name, d.Sinks[j].Name) == id {
				return true
			}
		}
	}
	return false
}

// cursorSet moves all cursors of a destination: they share one numbering, so
// one alone cannot be moved to a place whose number is not known.
func cursorSet(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (err error) {
	f, path := flags("cursor set")
	name := f.String("destination", "", "")
	at := f.String("at", "", "")
	yes := f.Bool("yes", false, "")
	reconcile := f.Bool("reconcile", false, "")
	since := f.String("since", "", "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	from, err := parseSince("cursor set", *reconcile, *since)
	if err != nil {
		return err
	}
	if *at == "" {
		return usageError{errors.New("cursor set: --at is needed: earliest, latest, gtid:SET, FILE:OFFSET or a time")}
	}
	if *at == config.StartSnapshot {
		return usageError{errors.New("cursor set: a snapshot is no place: set --at latest, and order one with: binlogmq snapshot start")}
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	d.Start = *at
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	store, free, err := takeStore(ctx, cfg, d.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()

	src, err := newConnector(d, known{}, newLogger(config.Log{Level: "warn", Format: cfg.Log.Format}, errs))
	if err != nil {
		return err
	}
	start, err := src.Start(ctx)
	if err != nil {
		return fmt.Errorf("cursor set: %w", err)
	}
	ids, err := store.List(ctx, d.Name)
	if err != nil {
		return err
	}
	for j := range d.Sinks {
		if id := clientOf(d.Name, d.Sinks[j].Name); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	another, err := lostAny(ctx, store, ids, src.Keeps)
	if err != nil {
		return fmt.Errorf("cursor set: %w", err)
	}
	records, err := move(ctx, store, ids, start)
	if err != nil {
		return err
	}
	if another {
		fmt.Fprintf(out, "The source's log does not have the position of before: what is known of the tables of %s is forgotten and read anew.\n", d.Name)
	}
	for _, id := range ids {
		fmt.Fprintf(out, "%s goes to %s\n", id, positionText(records[id].Cursor.Position))
	}
	if *reconcile {
		if err := reconcileMoved(records, from); err != nil {
			return err
		}
		fmt.Fprint(out, "What lies before the new position and is not published yet will never be.\n"+reconcileText)
	} else {
		fmt.Fprint(out, "What lies before the new position and is not published yet will never be; what lies behind it is published, again if it was before.\n"+
			"The sinks begin a new epoch, with numbers never used: brokers recognise no repetition across this move.\n")
	}
	if err := confirm("cursor set", *yes, in, out); err != nil {
		return err
	}
	if another {
		if err := forgetHistory(ctx, store, d.Name, nil); err != nil {
			return err
		}
	}
	snapshots := newSnapshots(store, d.Name)
	forget := func(err error) error {
		if !errors.Is(err, snapshot.ErrDamaged) {
			return err
		}
		fmt.Fprintf(out, "%v. They are forgotten now\n", err)
		return snapshots.Reset(ctx)
	}
	above, err := snapshots.Rewind(ctx)
	if err := forget(err); err != nil {
		return err
	}
	for _, id := range ids {
		c := &records[id].Cursor
		c.Ordinal = max(c.Ordinal, above)
		if err := store.Save(ctx, id, records[id]); err != nil {
			return err
		}
	}
	if err := forget(snapshots.Rewound(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d cursors are moved\n", len(ids))
	return nil
}

// lostAny tells whether the log does not have a place where a cursor stands. keeps asks the source.
func lostAny(ctx context.Context, store meta.Store, ids []meta.Identity, keeps func(context.Context, event.Position) (bool, error)) (bool, error) {
	for _, id := range ids {
		r, err := store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) || errors.Is(err, meta.ErrDamaged) {
			continue
		}
		if err != nil {
			return false, err
		}
		p := r.Cursor.Position
		if p.File == "" && p.GTIDs.IsEmpty() {
			continue
		}
		if held, err := keeps(ctx, p); err != nil || !held {
			return err == nil, err
		}
	}
	return false, nil
}

// load reads the configuration at path, and the destination of that name in it. Errors are the command's usage.
func load(command, path, name string) (*config.Config, *config.Destination, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, nil, usageError{err}
	}
	d, err := pick(cfg, name)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("%s: %w", command, err)}
	}
	return cfg, d, nil
}

func pick(cfg *config.Config, name string) (*config.Destination, error) {
	var names []string
	for i := range cfg.Destinations {
		d := &cfg.Destinations[i]
		if d.Name == name || name == "" && len(cfg.Destinations) == 1 {
			return d, nil
		}
		names = append(names, d.Name)
	}
	if name == "" {
		return nil, fmt.Errorf("--destination is needed: one of %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no destination %q; there are %s", name, strings.Join(names, ", "))
}

// move makes the records of all subscriptions of a destination at a new
// position: one ordinal above all that they had, and a new epoch for each.
func move(ctx context.Context, store meta.Store, ids []meta.Identity, start event.Cursor) (map[meta.Identity]*meta.Record, error) {
	records := make(map[meta.Identity]*meta.Record, len(ids))
	for _, id := range ids {
		r, err := store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) || errors.Is(err, meta.ErrDamaged) {
			r = new(meta.Record)
		} else if err != nil {
			return nil, err
		}
		records[id] = r
		start.Ordinal = max(start.Ordinal, r.Cursor.Last())
	}
	for _, id := range ids {
		r := records[id]
		state, err := bridge.ParseState(r.Cursor.State)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		r.Cursor = event.Cursor{Position: start.Position, Ordinal: start.Ordinal}
		r.Cursor.Position.GTIDs = start.Position.GTIDs.Clone()
		r.SavedAt = time.Now()
		if state == nil {
			state = bridge.NewState(time.Now())
		}
		state.Moved()
		r.Skips = nil // those behind the new position would be counted anew
		if r.Cursor.State, err = state.Encode(); err != nil {
			return nil, err
		}
	}
	return records, nil
}
