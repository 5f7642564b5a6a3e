package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

// historyStore is a store that keeps schema histories beside cursors.
type historyStore interface {
	meta.Store
	meta.Documents
}

// keeper keeps the schema history of one destination.
type keeper struct {
	store       historyStore
	destination string
}

func newHistory(s historyStore, destination string) *schema.History {
	return schema.NewHistory(&keeper{s, destination})
}

// Load implements schema.Keeper.
func (k *keeper) Load(ctx context.Context) ([]byte, error) {
	data, err := k.store.LoadDocument(ctx, k.destination, meta.SchemaHistory)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, nil
	case errors.Is(err, meta.ErrDamaged):
		return nil, &connector.StopError{Destination: k.destination, What: "the saved schema history cannot be used",
			Remedy: "restore it from a backup, or have it made anew with: binlogmq schema forget", Err: err}
	}
	return data, err
}

// Save implements schema.Keeper.
func (k *keeper) Save(ctx context.Context, data []byte) error {
	err := k.store.SaveDocument(ctx, k.destination, meta.SchemaHistory, data)
	if errors.Is(err, meta.ErrTooLarge) {
		err = &connector.StopError{Destination: k.destination, What: "the schema history cannot be saved",
			Remedy: "narrow the destination's tables down to fewer databases, set binlog_row_metadata=FULL on the source, or keep cursors in files (meta.file)", Err: fmt.Errorf("%w: %w", schema.ErrTooLarge, err)}
	}
	return err
}

// Cursors implements schema.Keeper.
func (k *keeper) Cursors(ctx context.Context) ([]event.Position, error) {
	ids, err := k.store.List(ctx, k.destination)
	if err != nil {
		return nil, err
	}
	var all []event.Position
	for _, id := range ids {
		r, err := k.store.Load(ctx, id)
		if errors.Is(err, meta.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r.Cursor.Position)
	}
	return all, nil
}

// forgetHistory drops what is known of a destination's tables, as its log is another one now (I6). h, which may be nil, is what is
// loaded of it; nobody may be reading.
func forgetHistory(ctx context.Context, s historyStore, destination string, h *schema.History) error {
	if err := s.SaveDocument(ctx, destination, meta.SchemaHistory, nil); err != nil {
		return err
	}
	if h != nil {
		h.Forget(ddl.Name{})
	}
	return nil
}

func schemaCommand(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "show":
			return schemaShow(ctx, args[1:], out)
		case "forget":
			return schemaForget(ctx, args[1:], in, out)
		}
	}
	return usageError{fmt.Errorf("schema: show or forget is needed\n%s", usage)}
}

// schemaShow lists what is known of tables. It works beside the running program, and shows what is saved.
func schemaShow(ctx context.Context, args []string, out io.Writer) (err error) {
	f, path := flags("schema show")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	if err != nil {
		return usageError{err}
	}
	s, closeIt, err := lookStore(cfg)
	if err != nil || s == nil {
		return err
	}
	defer func() {
		err = looked(cfg, err)
		_ = closeIt()
	}()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	docs, ok := s.(historyStore)
	if !ok {
		return nil
	}
	for i := range cfg.Destinations {
		name := cfg.Destinations[i].Name
		h := newHistory(docs, name)
		if err := h.Load(ctx); err != nil {
			return err
		}
		tables, at, read := h.Tables()
		fmt.Fprintf(out, "%s: definitions of %s, statements up to %s\n", name, placeText(&at), placeText(&read))
		for _, t := range tables {
			state := fmt.Sprintf("%d columns", t.Columns)
			switch t.State {
			case ddl.Absent:
				state = "dropped"
			case ddl.Unknown:
				state = "not known, looked up when a row of it comes"
			}
			if t.Passed {
				state += ", rows that could not be read are passed over (on_table_error)"
			}
			fmt.Fprintf(out, "  %s: %s; versions since: %d\n", t.Name, state, t.Versions)
		}
	}
	return nil
}

func placeText(p *event.Position) string {
	if p.File == "" && p.GTIDs.IsEmpty() {
		return "nowhere yet"
	}
	return fmt.Sprintf("%s:%d", p.File, p.Offset)
}

// schemaForget has definitions looked up again when a row comes that needs them.
func schemaForget(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	f, path := flags("schema forget")
	destination := f.String("destination", "", "")
	table := f.String("table", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *destination)
	if err != nil {
		return err
	}
	var name ddl.Name
	if *table != "" {
		var ok bool
		if name.Schema, name.Table, ok = strings.Cut(*table, "."); !ok || name.Schema == "" || name.Table == "" {
			return usageError{fmt.Errorf("schema forget: --table %q is not SCHEMA.TABLE", *table)}
		}
	}
	s, free, err := takeStore(ctx, cfg, d.Name)
	if err != nil {
		return err
	}
	defer func() { _ = free() }()
	what := "every definition"
	if *table != "" {
		what = "what is known of table " + *table
	}
	fmt.Fprintf(out, "destination %s forgets %s and looks it up in information_schema, as it is then, when a row comes that needs it.\n", d.Name, what)
	fmt.Fprint(out, "Where the table was altered by statements that the log does not hold, make sure that its present columns are those of the rows to be read.\n")
	h := newHistory(s, d.Name)
	unusable := h.Load(ctx)
	if unusable != nil && *table != "" {
		return unusable
	}
	if unusable != nil {
		fmt.Fprintf(out, "%v\n", unusable)
	}
	passed, _ := h.PassesOver(name)
	switch {
	case passed && *table != "":
		fmt.Fprint(out, "Rows of it that could not be read have been passed over, and stay so where they are read again. Those that come from now on are read: binlogmq must have been stopped in order (SIGTERM), "+
			"or rows that it has passed over last may come as messages between others that are stored already.\n")
	case passed || unusable != nil && *table == "":
		fmt.Fprint(out, "It is forgotten, too, which rows that could not be read have been passed over (on_table_error). Where a sink's cursor stands before such rows they come as messages between others "+
			"that may be stored already, which exact delivery takes for those: do this only when every sink has come behind them, or gets a new life (cursor set, cursor new-life).\n")
	}
	if err := confirm("schema forget", *yes, in, out); err != nil {
		return err
	}
	if *table == "" {
		return s.SaveDocument(ctx, d.Name, meta.SchemaHistory, nil)
	}
	if !h.Forget(name) {
		return fmt.Errorf("schema forget: nothing is known of table %s; schema show lists the names", *table)
	}
	if _, still := h.PassesOver(name); still {
		return fmt.Errorf("schema forget: rows of table %s have been passed over behind the place up to which the history is saved, as binlogmq was not stopped in order: start it, stop it with SIGTERM, and repeat the command", *table)
	}
	return h.Save(ctx, event.Position{})
}
