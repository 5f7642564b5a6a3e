package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// cursorSkip lets a destination pass over one transaction that it cannot publish.
//
// The transaction keeps its numbers: those that it has, or, if it cannot be read to its end, as many as its readable part
// took and one for its end. So all numbers behind it are the same in each replay, whoever reads (I5). What of it was
// published before the fault stays published; nothing after it can have been, which the command makes sure of.
func cursorSkip(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (err error) {
	f, path := flags("cursor skip")
	name := f.String("destination", "", "")
	text := f.String("gtid", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	gtid, err := event.ParseGTID(*text)
	if err != nil {
		return usageError{fmt.Errorf("cursor skip: --gtid: %w; errors name the transaction's GTID. Without GTIDs move the cursor behind it: binlogmq cursor set", err)}
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
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
	records := map[meta.Identity]*meta.Record{}
	var from *event.Cursor // the oldest that has not passed it
	for _, id := range ids {
		r, err := store.Load(ctx, id)
		if err != nil {
			return err
		}
		records[id] = r
		if r.Cursor.Position.GTIDs.Contains(gtid) {
			continue
		}
		if err := unsentBehind(id, r); err != nil {
			return err
		}
		if from == nil || r.Cursor.Ordinal < from.Ordinal {
			c := r.Cursor
			from = &c
		}
	}
	if from == nil {
		return fmt.Errorf("cursor skip: no cursor of destination %s lies before %s: there is nothing to skip", d.Name, gtid)
	}
	most := int64(0) // done within the transaction
	for _, r := range records {
		most = max(most, r.Cursor.Last())
	}
	skips := skipsOf(records)
	log := newLogger(config.Log{Level: "error", Format: cfg.Log.Format}, errs)
	n, err := measure(ctx, d, known{history: newHistory(store, d.Name), snapshots: newSnapshots(store, d.Name)}, *from, gtid, skips, most, log)
	if err != nil {
		return err
	}
	skip := meta.Skip{GTID: gtid.String(), Ordinals: n}
	fmt.Fprintf(out, "destination %s passes over transaction %s (%d ordinals) when it comes to it.\n", d.Name, gtid, n)
	fmt.Fprint(out, "Its changes that are not published yet never will be; those that are stay. Repair what consumers need of it by hand.\n")
	if err := confirm("cursor skip", *yes, in, out); err != nil {
		return err
	}
	for _, id := range ids {
		r := records[id]
		// Those that lie behind a cursor are kept until all have passed: the oldest reader still meets them.
		r.Skips = slices.Clone(skips)
		if !hasSkip(r, skip) {
			r.Skips = append(r.Skips, skip)
		}
		if err := store.Save(ctx, id, r); err != nil {
			return fmt.Errorf("%w; repeat the command: a skip holds when all cursors of the destination have it", err)
		}
	}
	fmt.Fprintln(out, "done; start binlogmq again")
	return nil
}

// unsentBehind makes sure that nothing was sent behind the cursor: what is stored there would be compared with a replay that
// lacks the transaction.
func unsentBehind(id meta.Identity, r *meta.Record) error {
	st, err := bridge.ParseState(r.Cursor.State)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if st == nil || st.Clean || st.Fingerprint == bridge.MovedFingerprint {
		return nil
	}
	return fmt.Errorf("%s did not stop in order: messages behind its cursor may be stored. Start binlogmq once with the same configuration, let it come to the "+
		"error that asks for the skip, stop it (SIGTERM), and repeat the command", id)
}

func hasSkip(r *meta.Record, k meta.Skip) bool { return slices.Contains(r.Skips, k) }

// orders writes skips as a connector takes them.
func orders(skips []meta.Skip) map[event.GTID]int64 {
	m := make(map[event.GTID]int64, len(skips))
	for _, k := range skips {
		if g, err := event.ParseGTID(k.GTID); err == nil { // as every record's
			m[g] = k.Ordinals
		}
	}
	return m
}

// skipsOf joins the skips of records, but for those that all cursors have passed.
func skipsOf(records map[meta.Identity]*meta.Record) []meta.Skip {
	var all []meta.Skip
	for _, r := range records {
		for _, k := range r.Skips {
			g, err := event.ParseGTID(k.GTID)
			ahead := err != nil
			for _, o := range records {
				ahead = ahead || !o.Cursor.Position.GTIDs.Contains(g)
			}
			if ahead && !slices.Contains(all, k) {
				all = append(all, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b meta.Skip) int {
		return cmp.Or(cmp.Compare(a.GTID, b.GTID), cmp.Compare(a.Ordinals, b.Ordinals))
	})
	return all
}

// Why a reading ends.
var (
	errFound    = errors.New("found")
	errNotFound = errors.New("the source's log, from the oldest cursor on, does not hold the transaction")
)

// measure returns how many ordinals the transaction takes. It reads from a cursor; most is the highest number that is done.
func measure(ctx context.Context, d *config.Destination, k known, from event.Cursor, gtid event.GTID, skips []meta.Skip, most int64, log *slog.Logger) (int64, error) {
	base, high, n, err := readTo(ctx, d, k, from, gtid, skips, log)
	if err != nil || n > 0 {
		return n, err
	}
	// It cannot be read to its end, so nobody's cursor lies behind it: what is done and what can be read of it keep their
	// numbers, and its end takes the next. The reader must meet it right there.
	n = max(high, most) - base + 1
	skips = append(slices.Clone(skips), meta.Skip{GTID: gtid.String(), Ordinals: n})
	at, _, got, err := readTo(ctx, d, k, from, gtid, skips, log)
	switch {
	case err != nil:
		return 0, err
	case got == 0 || at != base:
		return 0, fmt.Errorf("cursor skip: reading stops before it comes to transaction %s: the error that the log names has another one", gtid)
	}
	return n, nil
}

// readTo reads until the transaction ends and returns its number of ordinals; 0 if reading stopped with an error before. base is the
// last transaction end before, or before the fault, and high the highest number read.
func readTo(ctx context.Context, d *config.Destination, k known, from event.Cursor, gtid event.GTID, skips []meta.Skip, log *slog.Logger) (base, high, n int64, err error) {
	k.skips = orders(skips)
	src, err := newReader(d, k, log, skipReader)
	if err != nil {
		return 0, 0, 0, err
	}
	end, err := src.End(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	base, high = from.Ordinal, from.Ordinal
	passed := from.Position.GTIDs.Clone()
	err = readUpTo(ctx, src, event.Cursor{Position: from.Position, Ordinal: from.Ordinal}, end, func(events []*event.Event) error {
		for _, e := range events {
			switch e.Kind {
			case event.Rows:
				high = e.Ordinal + int64(e.Rows) - 1
			case event.DDL:
				high = e.Ordinal
			case event.End:
				if e.Txn.GTID == gtid {
					n = e.Ordinal - base
					return errFound
				}
				base, high = e.Ordinal, e.Ordinal
				if passed.Add(e.Txn.GTID); passed.Contains(gtid) { // the domain of a MariaDB has come past it
					return errNotFound
				}
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return base, high, n, nil
	case ctx.Err() != nil:
		return 0, 0, 0, ctx.Err()
	case errors.Is(err, errNotFound), errors.Is(err, errLogEnds):
		return 0, 0, 0, fmt.Errorf("cursor skip: destination %s: %w (%s)", d.Name, errNotFound, gtid)
	}
	return base, high, 0, nil // with the error that the skip is for
}

// errLogEnds: all is read up to the end that was given.
var errLogEnds = errors.New("the source's log ends")

// readUpTo reads until put returns an error, which it returns then; until all before the end is handed on, which is errLogEnds; or until reading fails.
func readUpTo(ctx context.Context, src *connector.Connector, from event.Cursor, end event.Position, put func([]*event.Event) error) error {
	read, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var watch sync.WaitGroup
	watch.Go(func() { // the log may end without what put looks for
		t := time.NewTicker(skipPeriod)
		defer t.Stop()
		for ended := 0; ended < 2; { // what is read is handed on by then
			select {
			case <-read.Done():
				return
			case <-t.C:
			}
			st := src.Status()
			if at := (event.Position{File: st.File, Offset: st.Offset, ServerUUID: st.ServerUUID}); at.Reached(&end) {
				ended++
			}
		}
		stop(errLogEnds)
	})
	var enough error
	err := src.Read(read, from, func(_ context.Context, events []*event.Event) error {
		enough = put(events)
		return enough
	})
	ended := errors.Is(context.Cause(read), errLogEnds)
	stop(nil)
	watch.Wait()
	switch {
	case enough != nil:
		return enough
	case ended:
		return errLogEnds
	}
	return err
}

const (
	skipReader = 100 // tells the command's reader apart at the source
	skipPeriod = 200 * time.Millisecond
)
