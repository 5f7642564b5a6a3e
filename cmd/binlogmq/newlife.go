package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
)

// cursorNewLife lets one sink begin anew at its cursor, with numbers never used.
func cursorNewLife(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	f, path := flags("cursor new-life")
	name := f.String("destination", "", "")
	sinkName := f.String("sink", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	d, err := pick(cfg, *name)
	if err != nil {
		return usageError{err}
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
	state.Moved()
	if r.Cursor.State, err = state.Encode(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s begins a new life at %s.\n", id, positionText(r.Cursor.Position))
	fmt.Fprint(out, "What was sent after that position and is stored already is sent again, under new numbers: consumers see it twice. After a clean stop that is nothing.\n")
	if err := confirm("cursor new-life", *yes, in, out); err != nil {
		return err
	}
	if err := store.Save(ctx, id, r); err != nil {
		return err
	}
	fmt.Fprintln(out, "done; start binlogmq again")
	return nil
}
