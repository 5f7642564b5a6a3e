package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/binlogmq/binlogmq/meta"
)

// cursorForget deletes the cursor of a sink that is not configured any more, or of a client that does not come back: what is kept until all cursors have
// passed it waits for theirs, too.
func cursorForget(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	f, path := flags("cursor forget")
	name := f.String("destination", "", "")
	of := f.String("of", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	id := meta.Identity{Destination: d.Name, Client: *of}
	if id.Validate() != nil || configured(cfg, id) || configured(cfg, clientOf(d.Name, *of)) {
		return usageError{fmt.Errorf("cursor forget: --of is needed: a sink that is not configured any more, or the id of a client")}
	}
	store, free, err := takeStore(ctx, cfg, d.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	ids, err := store.List(ctx, d.Name)
	if err != nil {
		return err
	}
	if sink := clientOf(d.Name, *of); slices.Contains(ids, sink) {
		id = sink
	}
	if !slices.Contains(ids, id) {
		names := make([]string, len(ids))
		for i := range ids {
			names[i] = strings.TrimPrefix(ids[i].Client, sinkPrefix)
		}
		return fmt.Errorf("cursor forget: no cursor of %q is saved in destination %s; there are those of %s", *of, d.Name, strings.Join(names, ", "))
	}
	fmt.Fprintf(out, "the cursor of %s is deleted. Should it come back, it begins where the last of the other cursors stands.\n", id)
	if err := confirm("cursor forget", *yes, in, out); err != nil {
		return err
	}
	if err := store.Delete(ctx, id); err != nil {
		return err
	}
	fmt.Fprintln(out, "done")
	return nil
}
