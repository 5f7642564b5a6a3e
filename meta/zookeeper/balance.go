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
)

// DefaultRebalanceDelay is how long the processes must be the same before a destination that runs is moved.
const DefaultRebalanceDelay = 10 * time.Second

// balance takes part in sharing the destinations out among the processes. Each process says in a node of its own
// what it would take, reads who owns what, and reckons with share, as all others do.
type balance struct {
	s     *Store
	wake  chan struct{}
	ended chan struct{}

	mu       sync.Mutex
	turns    map[string]bool      // destinations that this process is to take now
	by       map[string]owner     // who owns the others
	changed  chan struct{}        // closed when turns or by change
	declined map[string]bool      // for good
	released map[string]bool      // by an operator; true: another process has had it since
	unowned  map[string]time.Time // since when

	// Of the loop alone.
	members string    // what it has seen of them
	since   time.Time // when that changed
	told    string
	missed  bool // ZooKeeper did not answer the last time
}

func newBalance(s *Store) *balance {
	return &balance{
		s: s, wake: s.hub.listener(), ended: make(chan struct{}), changed: make(chan struct{}),
		turns: map[string]bool{}, by: map[string]owner{}, declined: map[string]bool{}, released: map[string]bool{}, unowned: map[string]time.Time{},
	}
}

// Decline says that this process does not take the destination any more: others shall.
func (s *Store) Decline(destination string) {
	if b := s.balance; b != nil {
		b.mu.Lock()
		b.declined[destination] = true
		b.mu.Unlock()
		poke(b.wake)
	}
}

// release gives a destination up by an operator's order: until another process has had it, or none takes it, this one does not.
func (s *Store) release(l *lease, why string) {
	if b := s.balance; b != nil {
		b.mu.Lock()
		b.released[l.destination] = false
		b.turns[l.destination] = false
		b.mu.Unlock()
		poke(b.wake)
	}
	l.ask(why)
}

// turn says whether the destination is this process's to take, else who owns it; changed is closed when that may have changed.
func (b *balance) turn(destination string) (mine bool, by owner, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns[destination], b.by[destination], b.changed
}

func (b *balance) run(ctx context.Context) {
	defer close(b.ended)
	for {
		err := b.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			b.told, b.missed = "", false
		case b.told == err.Error():
		case away(err) && !b.missed:
			b.missed = true // at a start the connection takes a moment
		case away(err):
			b.told = err.Error()
			b.s.log.Warn("no destination can be taken yet", "error", b.s.explain(err, b.s.opt.Root))
		default:
			b.told = err.Error()
			b.s.log.Error("the destinations cannot be shared out", "error", err)
		}
		pause := b.s.opt.SessionTimeout / 4
		if left := b.s.opt.RebalanceDelay - time.Since(b.since); left > 0 {
			pause = min(pause, left+time.Millisecond)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-b.wake:
			t.Stop()
		}
	}
}

// look sees how things stand and decides.
func (b *balance) look(ctx context.Context) error {
	session := b.s.conn.SessionID()
	if err := b.join(ctx, session); err != nil {
		return err
	}
	members, err := b.s.readMembers(ctx)
	if err != nil {
		return err
	}
	owners, names, err := b.s.readOwners(ctx, allDestinations(members, b.s.opt.Destinations))
	if err != nil {
		return err
	}
	if text := fmt.Sprint(members); text != b.members {
		b.members, b.since = text, time.Now()
	}
	targets := share(members, owners)
	b.decide(session, targets, owners, names)
	b.move(session, targets, owners)
	for d, owner := range owners {
		if owner == session && targets[d] != session {
			if err := b.s.clean(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// join keeps this process's node.
func (b *balance) join(ctx context.Context, session int64) error {
	if session == 0 {
		return zk.ErrNoServer
	}
	s := b.s
	if err := s.ensure(ctx, s.nodes(), s.acl); err != nil {
		return err
	}
	d := memberData{Node: s.opt.Node, Weight: s.opt.Weight, Destinations: []string{}}
	b.mu.Lock()
	for _, name := range s.opt.Destinations {
		if _, released := b.released[name]; !released && !b.declined[name] {
			d.Destinations = append(d.Destinations, name)
		}
	}
	b.mu.Unlock()
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	at := s.nodes() + "/" + strconv.FormatUint(uint64(session), 16)
	n, _, err := s.watched(ctx, at)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		_, err = call(ctx, s, func() (string, error) { return s.conn.Create(at, text, zk.FlagEphemeral, s.acl) })
		if errors.Is(err, zk.ErrNodeExists) { // an answer was lost
			err = nil
			poke(b.wake)
		}
	case err == nil && string(n.data) != string(text):
		_, err = call(ctx, s, func() (*zk.Stat, error) { return s.conn.Set(at, text, -1) })
	}
	if err != nil {
		return s.explain(err, at)
	}
	return nil
}

// readMembers reads the nodes of all processes.
func (s *Store) readMembers(ctx context.Context) (members []member, err error) {
	names, err := s.watchedChildren(ctx, s.nodes())
	if err != nil {
		return nil, s.explain(err, s.nodes())
	}
	slices.Sort(names)
	for _, name := range names {
		at := s.nodes() + "/" + name
		n, _, err := s.watched(ctx, at)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, s.explain(err, at)
		}
		m, err := parseMember(n.data)
		if err != nil || n.stat.EphemeralOwner == 0 {
			s.log.Warn("not the node of a process; delete it", "node", at, "error", err)
			continue
		}
		m.session = n.stat.EphemeralOwner
		members = append(members, m)
	}
	return members, nil
}

// allDestinations names what any member or this process would take, each once. All processes must know who owns all of these: with the
// owners of its own alone one with another list of destinations would reckon otherwise than the others.
func allDestinations(members []member, own []string) []string {
	all := slices.Clone(own)
	for i := range members {
		all = slices.AppendSeq(all, maps.Keys(members[i].destinations))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readOwners reads whose session owns each of the destinations, and how it names itself.
func (s *Store) readOwners(ctx context.Context, destinations []string) (sessions map[string]int64, owners map[string]owner, err error) {
	sessions, owners = map[string]int64{}, map[string]owner{}
	for _, d := range destinations {
		n, _, err := s.watched(ctx, s.owner(d))
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, nil, s.explain(err, s.owner(d))
		}
		sessions[d], owners[d] = n.stat.EphemeralOwner, parseOwner(n.data)
	}
	return sessions, owners, nil
}

// decide notes what this process is to take.
func (b *balance) decide(session int64, targets, owners map[string]int64, names map[string]owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	turns := map[string]bool{}
	by := map[string]owner{}
	for _, d := range b.s.opt.Destinations {
		owner, owned := owners[d]
		ours := owned && owner == session
		had, released := b.released[d]
		switch {
		case !owned && b.unowned[d].IsZero():
			b.unowned[d] = time.Now()
		case owned:
			delete(b.unowned, d)
		}
		if owned && !ours {
			by[d] = names[d]
			if released {
				b.released[d] = true
			}
			continue
		}
		// Whoever should have it may be frozen, or wait for something: better here than nowhere.
		late := !owned && time.Since(b.unowned[d]) >= b.s.opt.SessionTimeout
		if released && !ours && (had || late) {
			delete(b.released, d)
			released = false
			poke(b.wake) // join
		}
		turns[d] = !released && (targets[d] == session || late && !b.declined[d])
	}
	if fmt.Sprint(turns, by) != fmt.Sprint(b.turns, b.by) {
		b.turns, b.by = turns, by
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// move asks for one destination that another process should have, once nothing else is in motion.
func (b *balance) move(session int64, targets, owners map[string]int64) {
	if time.Since(b.since) < b.s.opt.RebalanceDelay {
		return
	}
	for d := range targets {
		if _, owned := owners[d]; !owned && slices.Contains(b.s.opt.Destinations, d) {
			return
		}
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	var first *lease
	for d, l := range b.s.leases {
		if l.isAsked() {
			return
		}
		target, some := targets[d]
		if some && target != session && owners[d] == session && (first == nil || d < first.destination) {
			first = l
		}
	}
	if first != nil {
		first.ask("another process has less to do for its weight")
	}
}
