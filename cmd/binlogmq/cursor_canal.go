package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalfilter"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/meta/zookeeper"
)

// cursorImportCanal lets the clients of a Canal, or one sink in the place of its client, go on where that Canal has left them.
//
// Canal names the event that a client has acknowledged last. It is looked up in the source's log, where it must be the very same. All cursors of a destination share one
// numbering, so the log is read from the first to the last of the places, and of the cursors that there are, and what is captured is counted.
func cursorImportCanal(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (err error) {
	f, path := flags("cursor import-canal")
	name := f.String("destination", "", "")
	from := f.String("from", "", "")
	servers := f.String("zookeeper", "", "")
	theirs := f.String("canal-destination", "", "")
	only := f.String("clients", "", "")
	sink := f.String("sink", "", "")
	yes := f.Bool("yes", false, "")
	if err := parse(f, path, args); err != nil {
		return err
	}
	cfg, d, err := load(f.Name(), *path, *name)
	if err != nil {
		return err
	}
	if *from != "" && *servers != "" {
		return usageError{errors.New("cursor import-canal: either --from or --zookeeper")}
	}
	if *sink != "" && !slices.ContainsFunc(d.Sinks, func(s config.Sink) bool { return s.Name == *sink }) {
		return usageError{fmt.Errorf("cursor import-canal: destination %s has no sink %q", d.Name, *sink)}
	}
	clients, where, err := readCanal(ctx, cfg, cmp.Or(*theirs, d.Name), *from, *servers)
	if err == nil {
		clients, err = pickClients(clients, *only, where)
	}
	if err == nil && *sink != "" && len(clients) > 1 {
		err = fmt.Errorf("%s has the cursors of %d clients: name the one in whose place the sink goes on: --clients", where, len(clients))
	}
	if err != nil {
		return fmt.Errorf("cursor import-canal: %w", err)
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
	var places []*place
	for _, id := range ids {
		if records[id], err = store.Load(ctx, id); err != nil {
			return err
		}
		places = append(places, &place{id: id, at: records[id].Cursor.Position, known: true, ordinal: records[id].Cursor.Ordinal})
	}
	log := newLogger(config.Log{Level: "error", Format: cfg.Log.Format}, errs)
	src, err := newReader(d, known{history: newHistory(store, d.Name), skips: orders(skipsOf(records))}, log, skipReader)
	if err != nil {
		return err
	}
	snapshots := newSnapshots(store, d.Name)
	if _, err := snapshots.Floor(ctx); err != nil {
		return err
	}
	if n, _ := snapshots.Pending(); n > 0 {
		return fmt.Errorf("cursor import-canal: destination %s: %d chunks of a snapshot stand in the stream between its cursors: run binlogmq until binlogmq snapshot status shows none, stop it, then repeat", d.Name, n)
	}
	var moved []*place
	for _, c := range clients {
		p := &place{id: meta.Identity{Destination: d.Name, Client: strconv.Itoa(int(c.ID))}, filter: c.Filter}
		if *sink != "" {
			p.id, p.filter = clientOf(d.Name, *sink), ""
		}
		if records[p.id] != nil {
			fmt.Fprintf(out, "%s has a cursor here, and is left where it is\n", p.id)
			continue
		}
		if p.at, err = locate(ctx, src, &c.Cursor); err != nil {
			return fmt.Errorf("cursor import-canal: client %d: %w. To leave it out name the others: --clients", c.ID, err)
		}
		fmt.Fprintf(out, "%s goes on at %s (Canal: %s:%d)\n", p.id, positionText(p.at), c.Cursor.File, c.Cursor.Offset)
		if _, err := canalfilter.New(p.filter); err != nil {
			fmt.Fprintf(out, "  its filter cannot be read here: %v; the client must subscribe with another one\n", err)
			p.filter = ""
		}
		places, moved = append(places, p), append(moved, p)
	}
	if len(moved) == 0 {
		return errors.New("cursor import-canal: there is nothing to import")
	}
	if err := count(ctx, src, comparable(d, places, moved[0].at.ServerUUID, out)); err != nil {
		return fmt.Errorf("cursor import-canal: destination %s: %w", d.Name, err)
	}
	for _, p := range moved {
		if snapshots.Lacks(p.ordinal) {
			return fmt.Errorf("cursor import-canal: destination %s: before its cursors stood rows of a snapshot, which are deleted, and %s is to go on before them: move all its cursors there first: binlogmq cursor set --at %s:%d", d.Name, p.id, p.at.File, p.at.Offset)
		}
	}
	if *from != "" {
		fmt.Fprintf(out, "Canal must not serve these clients any more: it would go on beside binlogmq.\n")
	}
	if err := confirm("cursor import-canal", *yes, in, out); err != nil {
		return err
	}
	for _, p := range moved {
		r := &meta.Record{Cursor: event.Cursor{Position: p.at, Ordinal: p.ordinal}, Filter: p.filter, SavedAt: time.Now(), Skips: skipsOf(records)}
		if err := store.Save(ctx, p.id, r); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d cursors are imported into %s\n", len(moved), storeText(cfg))
	return nil
}

// readCanal reads what a Canal has left of a destination's clients: in a file meta.dat, or in ZooKeeper.
func readCanal(ctx context.Context, cfg *config.Config, destination, from, servers string) (clients []canalzk.ClientData, where string, err error) {
	if from != "" {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, "", err
		}
		of, clients, err := canalzk.ParseMetaFile(data)
		if err == nil && of != destination {
			err = fmt.Errorf("it is of Canal's destination %q, not %q: --canal-destination", of, destination)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", from, err)
		}
		return clients, from, nil
	}
	root := canalzk.Root
	if k := cfg.Canal; k != nil && k.ZooKeeperRoot != "off" {
		root = cmp.Or(k.ZooKeeperRoot, root)
	}
	var store *zookeeper.Store
	switch {
	case servers != "":
		store, err = zookeeper.Open(zookeeper.Options{Servers: strings.Split(servers, ",")})
	case cfg.Meta.ZooKeeper != nil:
		var opened metaStore
		if opened, err = openZooKeeper(cfg, slog.New(slog.DiscardHandler), func(*zookeeper.Options) {}); err == nil {
			store = opened.(*zookeeper.Store)
		}
	default:
		return nil, "", errors.New("--zookeeper HOST:PORT,... or --from conf/DESTINATION/meta.dat is needed: where Canal has kept its cursors")
	}
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	clients, running, err := store.CanalClients(ctx, root, destination)
	if err = errors.Join(err, store.Close()); err != nil {
		return nil, "", err
	}
	where = "ZooKeeper's " + canalzk.Destination(root, destination)
	if running != "" {
		return nil, "", fmt.Errorf("%s/running says that a server at %s serves the destination: stop it first, since its clients move on", where, running)
	}
	return clients, where, nil
}

// pickClients keeps the clients that are named, all if none is.
func pickClients(clients []canalzk.ClientData, only, where string) ([]canalzk.ClientData, error) {
	if len(clients) == 0 {
		return nil, fmt.Errorf("%s has no cursor of a client", where)
	}
	if only == "" {
		return clients, nil
	}
	var out []canalzk.ClientData
	for _, text := range strings.Split(only, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 16)
		if err != nil {
			return nil, usageError{fmt.Errorf("--clients: %q is no client id", text)}
		}
		i := slices.IndexFunc(clients, func(c canalzk.ClientData) bool { return c.ID == int16(id) })
		if i < 0 {
			return nil, fmt.Errorf("%s has no cursor of client %d", where, id)
		}
		out = append(out, clients[i])
	}
	return out, nil
}

// locate finds the event that Canal names in the source's log.
func locate(ctx context.Context, src *connector.Connector, c *canalzk.CursorData) (event.Position, error) {
	seconds := c.Timestamp.Unix()
	if c.ServerID < 1 || c.ServerID > math.MaxUint32 || seconds < 1 || seconds > math.MaxUint32 || c.File == "" {
		return event.Position{}, fmt.Errorf("the cursor %s:%d does not say of which event it is (serverId %d, timestamp %d), so it cannot be compared with the source's log; "+
			"if you know the place, use: binlogmq cursor set --at FILE:OFFSET", c.File, c.Offset, c.ServerID, c.Timestamp.UnixMilli())
	}
	return src.Locate(ctx, connector.Mark{File: c.File, Offset: uint64(c.Offset), Time: uint32(seconds), ServerID: uint32(c.ServerID)})
}

// place is where a subscription stands in the source's log, or is to.
type place struct {
	id      meta.Identity
	filter  string
	at      event.Position // a transaction end
	known   bool           // that it has this ordinal
	ordinal int64
}

// comparable leaves out cursors that nobody brings to this server any more: those of sinks that are not configured, and of clients that
// have not come since another server answered.
func comparable(d *config.Destination, places []*place, server string, out io.Writer) []*place {
	return slices.DeleteFunc(slices.Clone(places), func(p *place) bool {
		why := ""
		switch isSink := strings.HasPrefix(p.id.Client, sinkPrefix); {
		case !p.known:
		case isSink && !slices.ContainsFunc(d.Sinks, func(s config.Sink) bool { return clientOf(d.Name, s.Name) == p.id }):
			why = "it is of a sink that is not configured"
		case !isSink && p.at.ServerUUID != server:
			why = "its client has not come since another server answered"
		}
		if why != "" {
			fmt.Fprintf(out, "the cursor of %s is left out of account: %s\n", p.id, why)
		}
		return why != ""
	})
}

// compare orders places of one server.
func (p *place) compare(file string, offset uint64) int {
	return cmp.Or(cmp.Compare(event.FileNumber(p.at.File), event.FileNumber(file)), cmp.Compare(p.at.Offset, offset))
}

// count numbers the places by reading from the first one to the last. Those that are known tell where the numbering begins. Places between which no
// transaction lies become the same.
func count(ctx context.Context, src *connector.Connector, places []*place) error {
	slices.SortStableFunc(places, func(a, b *place) int {
		if c := a.compare(b.at.File, b.at.Offset); c != 0 || a.known == b.known {
			return c
		}
		if a.known {
			return -1
		}
		return 1
	})
	for _, p := range places {
		if p.at.ServerUUID != places[0].at.ServerUUID || p.at.File == "" {
			return fmt.Errorf("the cursor of %s was made on another server (%s) or says no place in its log, so nothing tells what lies between: run binlogmq on this source until it is saved anew, then repeat", p.id, positionText(p.at))
		}
	}
	if slices.ContainsFunc(places, func(p *place) bool { return p.known && p.at.GTIDs.IsEmpty() }) {
		for _, p := range places { // the destination goes by file and offset
			p.at.GTIDs = event.GTIDSet{}
		}
	}
	counted := make([]int64, len(places)) // from the first place on
	begin := event.Cursor{Position: places[0].at}
	last := begin
	last.Position.GTIDs = last.Position.GTIDs.Clone()
	next := 0
	// pass notes the places up to one in the log, before which the last transaction end lies.
	pass := func(file string, offset uint64) {
		for ; next < len(places) && places[next].compare(file, offset) <= 0; next++ {
			counted[next] = last.Ordinal
			if !places[next].known {
				places[next].at = last.Position
				places[next].at.GTIDs = last.Position.GTIDs.Clone()
			}
		}
	}
	pass(last.Position.File, last.Position.Offset)
	if next < len(places) {
		err := readUpTo(ctx, src, begin, places[len(places)-1].at, func(events []*event.Event) error {
			for _, e := range events {
				switch e.Kind {
				case event.Begin:
					pass(e.Txn.File, e.Txn.Start) // behind a file's head
				case event.End:
					if next < len(places) && places[next].compare(e.File, e.Next) < 0 {
						return fmt.Errorf("no transaction ends at %s:%d, where the cursor of %s stands", places[next].at.File, places[next].at.Offset, places[next].id)
					}
					p := &last.Position
					p.File, p.Offset, p.ServerUUID, last.Ordinal = e.File, e.Next, e.Txn.ServerUUID, e.Ordinal
					p.GTIDs.Add(e.Txn.GTID)
					if pass(e.File, e.Next); next == len(places) {
						return errFound
					}
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, errLogEnds):
			pass(places[len(places)-1].at.File, places[len(places)-1].at.Offset)
		case err != nil && !errors.Is(err, errFound):
			return err
		}
	}
	return number(places, counted)
}

// number gives places that have been counted their ordinals. All that are known must agree about where the counting began.
func number(places []*place, counted []int64) error {
	shift, fixed := int64(0), (*place)(nil)
	for i, p := range places {
		if !p.known {
			continue
		}
		s := p.ordinal - counted[i]
		if fixed != nil && s != shift {
			return fmt.Errorf("between the cursors of %s and %s the log holds another number of changes than when they were saved: the configuration has changed since. "+
				"Run binlogmq with it until both are saved anew, stop it, then repeat", fixed.id, p.id)
		}
		shift, fixed = s, p
	}
	for i, p := range places {
		if !p.known {
			p.ordinal = counted[i] + shift
		}
		if p.ordinal < 0 {
			return fmt.Errorf("%s is to go on before the place where binlogmq has begun to read the destination: what lies between has no numbers. "+
				"Move all its cursors there first, which publishes again what lies behind: binlogmq cursor set --at %s:%d", p.id, p.at.File, p.at.Offset)
		}
	}
	return nil
}
