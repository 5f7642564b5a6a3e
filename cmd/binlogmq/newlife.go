package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/sink/kafka"
)

// cursorNewLife lets one sink begin anew at its cursor, with numbers never used.
func cursorNewLife(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	f, path := flags("cursor new-life")
	name := f.String("destination", "", "")
	sinkName := f.String("sink", "", "")
	yes := f.Bool("yes", false, "")
	reconcile := f.Bool("reconcile", false, "")
	since := f.String("since", "", "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	from, err := parseSince("cursor new-life", *reconcile, *since)
	if err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	var names []string
	for i := range d.Sinks {
		names = append(names, d.Sinks[i].Name)
	}
	if *sinkName == "" && len(names) == 1 {
		*sinkName = names[0]
	}
	id := clientOf(d.Name, *sinkName)
	if !configured(cfg, id) {
		if *sinkName != "" {
			return usageError{fmt.Errorf("cursor new-life: no sink %q; there are %s", *sinkName, strings.Join(names, ", "))}
		}
		return usageError{fmt.Errorf("cursor new-life: --sink is needed: one of %s", strings.Join(names, ", "))}
	}
	store, free, err := takeStore(ctx, cfg, d.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	r, err := store.Load(ctx, id)
	if err != nil {
		return err
	}
	state, err := bridge.ParseState(r.Cursor.State)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if state == nil {
		state = bridge.NewState(time.Now())
	}
	if *reconcile {
		state.Reconcile(from)
	} else {
		state.Moved()
	}
	if r.Cursor.State, err = state.Encode(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s begins a new life at %s.\n", id, positionText(r.Cursor.Position))
	if *reconcile {
		fmt.Fprint(out, reconcileText)
	} else {
		fmt.Fprint(out, "What was sent after that position and is stored already is sent again, under new numbers: consumers see it twice. After a clean stop that is nothing.\n")
	}
	if err := confirm("cursor new-life", *yes, in, out); err != nil {
		return err
	}
	if err := store.Save(ctx, id, r); err != nil {
		return err
	}
	fmt.Fprintln(out, "done; start binlogmq again")
	return nil
}

// reconcileText says what a comparison costs.
const reconcileText = "The next start reads what the topics hold (the right to read is needed, and the headers gtid and row on every message), and sends only what is not there. " +
	"Of the messages read, 64 MiB of GTIDs and row numbers are kept in memory at most. Only this sink may write to the topics: what others have sent of the same transactions counts as sent.\n"

// parseSince reads --since: where reading the topics begins. The zero time stands for the place that the cursor knows.
func parseSince(command string, reconcile bool, text string) (time.Time, error) {
	switch {
	case text == "":
		return time.Time{}, nil
	case !reconcile:
		return time.Time{}, usageError{fmt.Errorf("%s: --since goes with --reconcile", command)}
	case text == "begin":
		return time.UnixMilli(1), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("%s: --since %q is neither begin nor a time such as 2026-01-31T12:00:00Z", command, text)}
	}
	return t, nil
}

// reconcileMoved lets the sinks of moved cursors compare what their topics hold: all of it, unless from says otherwise, as
// the old cursors say nothing of what lies behind the new ones.
func reconcileMoved(records map[meta.Identity]*meta.Record, from time.Time) error {
	if from.IsZero() {
		from = time.UnixMilli(1)
	}
	for id, r := range records {
		state, err := bridge.ParseState(r.Cursor.State)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		state.Reconcile(from)
		if r.Cursor.State, err = state.Encode(); err != nil {
			return err
		}
	}
	return nil
}

// showState shows what of a sink's state tells how its next start goes on.
func showState(out io.Writer, s *bridge.State) {
	if recipe, err := bridge.ParseRecipe(s.Recipe); err == nil && recipe.Delivery == "kafka "+kafka.Sequenced && len(s.Sink) > 0 {
		if life, err := kafka.Describe(s.Sink); err != nil {
			fmt.Fprintf(out, "  life        %v\n", err)
		} else {
			fmt.Fprintf(out, "  life        %s\n", life)
		}
	}
	switch {
	case s.Fingerprint == bridge.MovedFingerprint:
		fmt.Fprintf(out, "  stopped     begins a new epoch at its next start\n")
	case s.Clean:
		fmt.Fprintf(out, "  stopped     in order: nothing is stored behind the cursor\n")
	default:
		fmt.Fprintf(out, "  stopped     not, or not in order: messages behind the cursor may be stored\n")
	}
	if s.Reconciling != nil {
		fmt.Fprintf(out, "  compares    what it sends with what its topics hold\n")
	}
}
