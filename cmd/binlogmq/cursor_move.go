package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// exportVersion is the version of what cursor export writes.
const exportVersion = 1

// exported is what cursor export writes and cursor import reads: each record as the stores keep it, with its
// checksum. States hold what sinks know of their brokers, Kafka lives among it.
type exported struct {
	Version   int               `json:"binlogmq_cursors"`
	Records   []json.RawMessage `json:"records"`
	Snapshots []exportedLog     `json:"snapshots,omitempty"`

	// Histories are those of tables of which rows are passed over: read again at another machine these could be read by then (I5). Others are made anew there.
	Histories []exportedHistory `json:"schema_histories,omitempty"`
}

type exportedHistory struct {
	Destination string          `json:"destination"`
	History     json.RawMessage `json:"history"`
}

// exportedLog is what is known of a destination's snapshots: without the chunks that the cursors have not passed they would not come to their numbers.
type exportedLog struct {
	Destination string              `json:"destination"`
	Documents   []snapshot.Document `json:"documents"`
}

// cursorExport writes all that is saved of one destination, or of all, as JSON.
func cursorExport(ctx context.Context, args []string, out io.Writer) error {
	f, path := flags("cursor export")
	name := f.String("destination", "", "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	all := exported{Version: exportVersion}
	for tries := 0; ; tries++ { // the destination may be running
		all.Snapshots, err = exportSnapshots(ctx, cfg, *name)
		if err != nil {
			return err
		}
		all.Records = []json.RawMessage{}
		if _, err := eachRecord(ctx, cfg, *name, func(id meta.Identity, r *meta.Record) error {
			b, err := meta.EncodeRecord(id, r)
			all.Records = append(all.Records, b)
			return err
		}); err != nil {
			return err
		}
		again, err := exportSnapshots(ctx, cfg, *name)
		if err != nil {
			return err
		}
		if all.Histories, err = exportHistories(ctx, cfg, *name); err != nil { // behind the cursors: it is saved before they advance
			return err
		}
		if reflect.DeepEqual(again, all.Snapshots) {
			break
		}
		if tries == maxExports {
			return errors.New("cursor export: snapshots are being read, and what is saved of them changes all the time: repeat the command, or stop binlogmq first")
		}
	}
	if len(all.Records) == 0 {
		of := ""
		if *name != "" {
			of = " of destination " + *name
		}
		return fmt.Errorf("cursor export: nothing is saved%s in %s", of, storeText(cfg))
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(&all)
}

// maxExports is how often reading is repeated because something has changed meanwhile.
const maxExports = 10

// exportSnapshots returns what is saved of the snapshots of one destination, or of all.
func exportSnapshots(ctx context.Context, cfg *config.Config, destination string) (all []exportedLog, err error) {
	err = eachSaved(ctx, cfg, destination, func(ctx context.Context, docs historyStore, name string) error {
		k := &snapshotKeeper{docs, name}
		list, err := snapshot.Export(ctx, k)
		for tries := 0; errors.Is(err, snapshot.ErrDamaged) && tries < maxExports; tries++ { // or deleted meanwhile
			list, err = snapshot.Export(ctx, k)
		}
		if err == nil && len(list) > 0 {
			all = append(all, exportedLog{name, list})
		}
		return err
	})
	return all, err
}

// exportHistories returns the schema histories of one destination, or of all, that tell which rows are passed over.
func exportHistories(ctx context.Context, cfg *config.Config, destination string) (all []exportedHistory, err error) {
	err = eachSaved(ctx, cfg, destination, func(ctx context.Context, docs historyStore, name string) error {
		data, err := (&keeper{docs, name}).Load(ctx)
		if err != nil || data == nil {
			return err
		}
		some, err := schema.NewHistory(nil).Adopt(data)
		if err != nil {
			return fmt.Errorf("the schema history of destination %s cannot be used: %w", name, err)
		}
		if some {
			all = append(all, exportedHistory{name, data})
		}
		return nil
	})
	return all, err
}

// eachSaved calls f for one destination, or for all, of which cursors are saved in a store that keeps documents beside them.
func eachSaved(ctx context.Context, cfg *config.Config, destination string, f func(ctx context.Context, docs historyStore, name string) error) (err error) {
	store, done, err := lookStore(cfg)
	if err != nil || store == nil {
		return err
	}
	defer func() { err = errors.Join(looked(cfg, err), done()) }()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	docs, ok := store.(historyStore)
	if !ok {
		return nil
	}
	ids, err := store.List(ctx, destination)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if i > 0 && ids[i-1].Destination == id.Destination {
			continue
		}
		if err := f(ctx, docs, id.Destination); err != nil {
			return err
		}
	}
	return nil
}

// cursorImport puts exported records into the configured store.
func cursorImport(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	f, path := flags("cursor import")
	name := f.String("destination", "", "")
	from := f.String("from", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	if *from == "" {
		return usageError{errors.New("cursor import: --from is needed: a file that cursor export wrote")}
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	data, err := os.ReadFile(*from)
	if err != nil {
		return fmt.Errorf("cursor import: %w", err)
	}
	all, err := readExport(data)
	if err != nil {
		return fmt.Errorf("cursor import: %s: %w", *from, err)
	}
	ids := all.ids
	if *name != "" {
		ids = slices.DeleteFunc(ids, func(id meta.Identity) bool { return id.Destination != *name })
	}
	if len(ids) == 0 {
		return fmt.Errorf("cursor import: %s holds no cursor of destination %q", *from, *name)
	}
	for len(ids) > 0 {
		n := slices.IndexFunc(ids, func(id meta.Identity) bool { return id.Destination != ids[0].Destination })
		if n < 0 {
			n = len(ids)
		}
		if err := importDestination(ctx, cfg, ids[:n], all, *yes, in, out); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// importDestination puts the records of ids, which are of one destination, into the store, with what goes along with them.
func importDestination(ctx context.Context, cfg *config.Config, ids []meta.Identity, all *imported, yes bool, in io.Reader, out io.Writer) (err error) {
	destination, records := ids[0].Destination, all.records
	store, free, err := takeStore(ctx, cfg, destination)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	for _, id := range ids {
		r := records[id]
		fmt.Fprintf(out, "%s goes to %s, ordinal %d\n", id, positionText(r.Cursor.Position), r.Cursor.Last())
		old, err := store.Load(ctx, id)
		switch {
		case err == nil:
			fmt.Fprintf(out, "  in place of %s, ordinal %d\n", positionText(old.Cursor.Position), old.Cursor.Last())
			if n := old.Cursor.Last() - r.Cursor.Last(); n > 0 {
				fmt.Fprintf(out, "  which is %d ordinals back: what was published since is read again, and recognised only where the sink's delivery is exact\n", n)
			}
		case !errors.Is(err, meta.ErrNotFound) && !errors.Is(err, meta.ErrDamaged):
			return err
		}
	}
	fmt.Fprintf(out, "Binlogmq must not run any more where the cursors come from: two that publish one destination from two stores do not know of each other.\n")
	if err := confirm("cursor import", yes, in, out); err != nil {
		return err
	}
	oldest := records[ids[0]].Cursor.Ordinal
	for _, id := range ids {
		oldest = min(oldest, records[id].Cursor.Ordinal)
	}
	if err := newSnapshots(store, destination).Import(ctx, all.snapshots[destination], oldest); err != nil {
		return fmt.Errorf("cursor import: %w", err)
	}
	if history := all.histories[destination]; history != nil {
		h := newHistory(store, destination)
		if err := h.Load(ctx); err != nil {
			return err
		}
		if _, err := h.Adopt(history); err != nil {
			return fmt.Errorf("cursor import: the schema history of destination %s: %w", destination, err)
		}
		if err := h.Save(ctx, event.Position{}); err != nil {
			return err
		}
		fmt.Fprintf(out, "rows of tables that could not be read stay passed over: binlogmq schema show lists the tables\n")
	}
	for _, id := range ids {
		if err := store.Save(ctx, id, records[id]); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d cursors are imported into %s\n", len(ids), storeText(cfg))
	return nil
}

// imported is what cursor export wrote, looked through.
type imported struct {
	ids       []meta.Identity // sorted
	records   map[meta.Identity]*meta.Record
	snapshots map[string][]snapshot.Document // by destination
	histories map[string][]byte              // by destination
}

// readExport reads what cursor export wrote.
func readExport(data []byte) (*imported, error) {
	var all exported
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("not what cursor export writes: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the cursors")
	}
	if all.Version != exportVersion {
		return nil, fmt.Errorf("format version %d is not known, only %d", all.Version, exportVersion)
	}
	m := &imported{records: map[meta.Identity]*meta.Record{}, snapshots: map[string][]snapshot.Document{}, histories: map[string][]byte{}}
	for i, raw := range all.Records {
		id, r, err := meta.DecodeRecord(raw)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", i+1, err)
		}
		if m.records[id] != nil {
			return nil, fmt.Errorf("record %d: %s comes twice", i+1, id)
		}
		m.ids = append(m.ids, id)
		m.records[id] = r
	}
	meta.SortIdentities(m.ids)
	for _, l := range all.Snapshots {
		if m.snapshots[l.Destination] != nil {
			return nil, fmt.Errorf("the snapshots of destination %s come twice", l.Destination)
		}
		m.snapshots[l.Destination] = l.Documents
	}
	for _, h := range all.Histories {
		if m.histories[h.Destination] != nil {
			return nil, fmt.Errorf("the schema history of destination %s comes twice", h.Destination)
		}
		if _, err := schema.NewHistory(nil).Adopt(h.History); err != nil {
			return nil, fmt.Errorf("the schema history of destination %s: %w", h.Destination, err)
		}
		m.histories[h.Destination] = h.History
	}
	return m, nil
}
