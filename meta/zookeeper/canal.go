package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/meta"
)

// Canal says how Canal's own cluster clients find this process: by the nodes that Canal keeps.
type Canal struct {
	Root    string            // canalzk.Root for clients that know no other
	Address string            // host:port of Canal's protocol here; see canalzk.CheckAddress
	Sources map[string]string // destinations that this process may serve, and host:port of the database of each
}

// canalView keeps Canal's nodes. They are a view: what they say is written after it has happened, nothing is decided by them
// but an operator's release, and they are written only by whoever has the lease and the running node.
type canalView struct {
	s     *Store
	o     Canal
	open  []zk.ACL // Canal's clients do not authenticate
	wake  chan struct{}
	moved chan struct{} // told of cursors
	ended chan struct{}

	mu      sync.Mutex
	shown   map[string]*lease              // destinations that this process serves
	cursors map[meta.Identity]*meta.Record // to be written; nil: to be deleted

	work  chan struct{}          // holds one token, which is taken while nodes are written; guards what follows
	ours  map[string]*lease      // destinations whose running node is ours
	taken map[meta.Identity]bool // clients whose nodes are ours
	since map[string]time.Time   // by path: since when another process lists our address
	told  map[string]string      // by path: the last warning
}

func newCanalView(s *Store, o Canal) *canalView {
	v := &canalView{
		s: s, work: make(chan struct{}, 1), o: o, open: zk.WorldACL(zk.PermAll), wake: s.hub.listener(), moved: make(chan struct{}, 1), ended: make(chan struct{}),
		ours: map[string]*lease{}, shown: map[string]*lease{}, cursors: map[meta.Identity]*meta.Record{}, taken: map[meta.Identity]bool{}, since: map[string]time.Time{}, told: map[string]string{},
	}
	v.work <- struct{}{}
	return v
}

// begin takes the right to write, unless ctx ends first.
func (v *canalView) begin(ctx context.Context) bool {
	select {
	case <-v.work:
		return true
	case <-ctx.Done():
		return false
	}
}

func (v *canalView) end() { v.work <- struct{}{} }

// Show tells Canal's clients that this process, which has the lease, serves the destination. Release ends it.
func (s *Store) Show(destination string) {
	s.mu.Lock()
	l := s.leases[destination]
	s.mu.Unlock()
	if v := s.canal; v != nil && l != nil {
		v.mu.Lock()
		v.shown[destination] = l
		v.drop(destination)
		v.mu.Unlock()
		poke(v.wake)
	}
}

// drop forgets cursors that were not written: those of an earlier lease are old. mu is held.
func (v *canalView) drop(destination string) {
	for id := range v.cursors {
		if id.Destination == destination {
			delete(v.cursors, id)
		}
	}
}

// hide takes the running node away before the lease is given back, so that the next owner finds its place free.
func (v *canalView) hide(ctx context.Context, l *lease) {
	v.mu.Lock()
	was := v.shown[l.destination] == l
	if was {
		delete(v.shown, l.destination)
		v.drop(l.destination)
	}
	v.mu.Unlock()
	if !was {
		return
	}
	if err := v.remove(ctx, l.destination); err != nil {
		poke(v.wake) // again
	}
}

// remove deletes the running node if it is this session's.
func (v *canalView) remove(ctx context.Context, destination string) error {
	at := canalzk.Running(v.o.Root, destination)
	n, err := v.s.get(ctx, at)
	if err == nil && n.stat.EphemeralOwner == v.s.conn.SessionID() {
		_, err = call(ctx, v.s, func() (struct{}, error) { return struct{}{}, v.s.conn.Delete(at, n.stat.Version) })
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// clientID says whether the client is one of Canal's, whose names are numbers.
func clientID(id meta.Identity) (int16, bool) {
	n, err := strconv.ParseInt(id.Client, 10, 16)
	return int16(n), err == nil
}

// saved notes what was saved of a client, nil when it was deleted.
func (v *canalView) saved(id meta.Identity, r *meta.Record) {
	if _, ok := clientID(id); !ok {
		return
	}
	if r != nil {
		r = r.Clone()
	}
	v.mu.Lock()
	v.cursors[id] = r
	v.mu.Unlock()
	poke(v.moved)
}

func (v *canalView) run(ctx context.Context) {
	defer close(v.ended)
	t := time.NewTicker(v.s.opt.SessionTimeout / 4)
	defer t.Stop()
	v.sync(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			v.sync(ctx)
		case <-v.wake:
			v.sync(ctx)
		case <-v.moved:
		}
		v.writeCursors(ctx, "")
	}
}

// warn tells what is wrong with a node, once; nil: nothing any more.
func (v *canalView) warn(at string, err error) {
	text := ""
	if err != nil && !away(err) && !errors.Is(err, meta.ErrFenced) && !errors.Is(err, context.Canceled) {
		text = err.Error()
	}
	if text != "" && v.told[at] != text {
		v.s.log.Warn("Canal's nodes in ZooKeeper", "node", at, "error", err)
	}
	v.told[at] = text
}

// sync makes the nodes as they should be.
func (v *canalView) sync(ctx context.Context) {
	if v.s.conn.SessionID() == 0 || !v.begin(ctx) {
		return
	}
	defer v.end()
	text := canalzk.RunningData{Active: true, Address: v.o.Address}.Encode()
	at := canalzk.Cluster(v.o.Root)
	v.warn(at, v.list(ctx, at))
	for _, d := range slices.Sorted(maps.Keys(v.o.Sources)) {
		at := canalzk.DestinationCluster(v.o.Root, d)
		v.warn(at, v.list(ctx, at))
		v.mu.Lock()
		l := v.shown[d]
		v.mu.Unlock()
		at = canalzk.Running(v.o.Root, d)
		ours, err := v.running(ctx, d, l, text)
		v.warn(at, err)
		if delete(v.ours, d); ours {
			v.ours[d] = l
		}
	}
}

// list puts this process on a list of servers.
func (v *canalView) list(ctx context.Context, dir string) error {
	s := v.s
	if err := s.ensure(ctx, dir, v.open); err != nil {
		return err
	}
	at := dir + "/" + v.o.Address
	n, _, err := s.watched(ctx, at)
	if errors.Is(err, zk.ErrNoNode) {
		_, err = call(ctx, s, func() (string, error) { return s.conn.Create(at, nil, zk.FlagEphemeral, v.open) })
		if errors.Is(err, zk.ErrNodeExists) {
			return nil // the next look says whose
		}
		if errors.Is(err, zk.ErrNoNode) { // somebody has deleted the directory
			s.mu.Lock()
			delete(s.made, dir)
			s.mu.Unlock()
			poke(v.wake)
			return nil
		}
		return err
	}
	if err != nil || n.stat.EphemeralOwner == s.conn.SessionID() {
		delete(v.since, at)
		return err
	}
	// Usually this process's own node, of the session before it was killed.
	if v.since[at].IsZero() {
		v.since[at] = time.Now()
	}
	if time.Since(v.since[at]) > 2*s.opt.SessionTimeout {
		return fmt.Errorf("another process lists %s too: give each its own canal.advertise", v.o.Address)
	}
	return nil
}

// running keeps the running node of a destination that this process serves, and removes it where it does not.
func (v *canalView) running(ctx context.Context, destination string, l *lease, text []byte) (ours bool, err error) {
	s, at := v.s, canalzk.Running(v.o.Root, destination)
	n, _, err := s.watched(ctx, at)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if l == nil || l.isAsked() || l.Err() != nil {
			return false, nil
		}
		err = l.do(ctx, []any{&zk.CreateRequest{Path: at, Data: text, Acl: v.open, Flags: zk.FlagEphemeral}})
		if errors.Is(err, zk.ErrNodeExists) {
			return false, nil // the watch tells
		}
		return err == nil, err
	case err != nil:
		return false, err
	case n.stat.EphemeralOwner != s.conn.SessionID():
		if l == nil {
			return false, nil
		}
		r, _ := canalzk.ParseRunning(n.data)
		return false, fmt.Errorf("another server, at %q, says that it serves destination %s, and Canal's cluster clients go there; "+
			"they come here when it ends. Stop it, or give this process another canal.zookeeper_root or none", r.Address, destination)
	case l == nil || l.Err() != nil:
		return false, v.remove(ctx, destination)
	}
	r, err := canalzk.ParseRunning(n.data)
	switch {
	case err != nil:
		return true, fmt.Errorf("cannot be read, %q: %w", n.data, err)
	case !r.Active && !l.isAsked(): // as with Canal
		s.release(l, `an operator has set "active" to false in `+at)
	case r.Active && r.Address != v.o.Address:
		_, err = call(ctx, s, func() (*zk.Stat, error) { return s.conn.Set(at, text, n.stat.Version) })
	}
	return true, err
}

// writeCursors writes the nodes of clients that have moved, of one destination or all.
func (v *canalView) writeCursors(ctx context.Context, only string) {
	if !v.begin(ctx) {
		return
	}
	defer v.end()
	v.mu.Lock()
	moved := map[meta.Identity]*meta.Record{}
	for id, r := range v.cursors {
		if v.ours[id.Destination] != nil && (only == "" || only == id.Destination) {
			moved[id] = r
			delete(v.cursors, id)
		}
	}
	v.mu.Unlock()
	for id, r := range moved {
		l := v.ours[id.Destination]
		n, _ := clientID(id)
		var err error
		if r == nil {
			err = v.forget(ctx, id, n, l)
		} else {
			err = v.write(ctx, id, n, l, r)
		}
		if away(err) || errors.Is(err, zk.ErrNoNode) {
			v.mu.Lock()
			if _, newer := v.cursors[id]; !newer {
				v.cursors[id] = r
			}
			v.mu.Unlock()
			err = nil // tried again with the next look
		}
		v.warn(canalzk.Cursor(v.o.Root, id.Destination, n), err)
	}
}

// write writes a client's cursor and filter.
func (v *canalView) write(ctx context.Context, id meta.Identity, n int16, l *lease, r *meta.Record) error {
	if !v.taken[id] {
		if err := v.take(ctx, id, n); err != nil {
			return err
		}
	}
	p := &r.Cursor.Position
	text, err := canalzk.EncodeCursor(v.o.Sources[id.Destination], canalzk.CursorData{
		File: p.File, Offset: int64(p.Offset), GTID: p.GTIDs.String(), Timestamp: r.SavedAt,
	})
	if err != nil {
		return err
	}
	err = l.do(ctx, []any{
		&zk.CheckVersionRequest{Path: canalzk.Running(v.o.Root, id.Destination), Version: -1},
		&zk.SetDataRequest{Path: canalzk.Cursor(v.o.Root, id.Destination, n), Data: text, Version: -1},
		&zk.SetDataRequest{Path: canalzk.Filter(v.o.Root, id.Destination, n), Data: []byte(r.Filter), Version: -1},
	})
	if errors.Is(err, zk.ErrNoNode) { // somebody has deleted them
		delete(v.taken, id)
	}
	return err
}

// former is what a client's nodes held before they were ours.
type former struct {
	Cursor string    `json:"cursor"`
	Filter string    `json:"filter"`
	At     time.Time `json:"at"`
}

// take makes a client's nodes. What Canal has left there is kept in our own tree.
func (v *canalView) take(ctx context.Context, id meta.Identity, n int16) error {
	s := v.s
	own := s.dir(id.Destination) + "/canal"
	if err := s.ensure(ctx, own, s.acl); err != nil {
		return err
	}
	mark := own + "/" + meta.Escape(id.Client)
	cursor, filter := canalzk.Cursor(v.o.Root, id.Destination, n), canalzk.Filter(v.o.Root, id.Destination, n)
	_, err := s.get(ctx, mark)
	if errors.Is(err, zk.ErrNoNode) {
		f := former{At: time.Now().UTC()}
		for _, x := range []struct {
			at string
			to *string
		}{{cursor, &f.Cursor}, {filter, &f.Filter}} {
			was, err := s.get(ctx, x.at)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			*x.to = string(was.data)
		}
		text, err := json.Marshal(f)
		if err != nil {
			return err
		}
		if _, err := call(ctx, s, func() (string, error) { return s.conn.Create(mark, text, 0, s.acl) }); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return s.explain(err, mark)
		}
		if f.Cursor != "" {
			c, err := canalzk.ParseCursor([]byte(f.Cursor))
			s.log.Warn("Canal has served this client before, and its cursor is replaced by ours; what it was is kept", "destination", id.Destination, "client", id.Client,
				"file", c.File, "offset", c.Offset, "gtid", c.GTID, "filter", f.Filter, "kept", mark, "error", err)
		}
	} else if err != nil {
		return s.explain(err, mark)
	}
	if err := s.ensureAll(ctx, v.open, cursor, filter); err != nil {
		return err
	}
	v.taken[id] = true
	return nil
}

// ensureAll makes nodes and those above them, whatever was made before.
func (s *Store) ensureAll(ctx context.Context, acl []zk.ACL, all ...string) error {
	s.mu.Lock()
	for _, at := range all {
		delete(s.made, at)
	}
	s.mu.Unlock()
	for _, at := range all {
		if err := s.ensure(ctx, at, acl); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes what was kept of a client that has unsubscribed.
func (v *canalView) forget(ctx context.Context, id meta.Identity, n int16, l *lease) error {
	delete(v.taken, id)
	for _, at := range []string{
		canalzk.Cursor(v.o.Root, id.Destination, n), canalzk.Filter(v.o.Root, id.Destination, n),
		canalzk.Client(v.o.Root, id.Destination, n), // stays while the client's running node or Canal's marks are below
		v.s.dir(id.Destination) + "/canal/" + meta.Escape(id.Client),
	} {
		err := l.do(ctx, []any{&zk.DeleteRequest{Path: at, Version: -1}})
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
	return nil
}
