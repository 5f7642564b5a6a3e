package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/meta"
)

// owner is what the owner node says. Only people and error messages read it.
type owner struct {
	Node  string    `json:"node"`
	Epoch int64     `json:"epoch"`
	Since time.Time `json:"since"`
}

// lease is one tenure.
type lease struct {
	s           *Store
	destination string
	epoch       int64
	version     int32        // of the epoch node; the owner node has version 0
	proved      atomic.Int64 // elapsed() when the last proof was sent
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu    sync.Mutex
	err   error
	lost  chan struct{} // closed with err
	asked chan struct{} // closed when another process shall have it
}

var errReleased = fmt.Errorf("%w, or will: this process has given it up", meta.ErrFenced)

// Err implements meta.Lease. I8: the first thing asked before anything is sent or saved.
func (l *lease) Err() error {
	if left := l.left(); left <= 0 {
		l.lose(fmt.Errorf("%w, or may by now: the lease (epoch %d) was proven last %v ago and lasts %v; it is taken anew when ZooKeeper answers",
			meta.ErrFenced, l.epoch, (l.s.hold() - left).Round(time.Millisecond), l.s.hold()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// left is for how long the lease lasts without another proof.
func (l *lease) left() time.Duration {
	return l.s.hold() - (elapsed() - time.Duration(l.proved.Load()))
}

// Lost implements meta.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Asked implements meta.Lease.
func (l *lease) Asked() <-chan struct{} { return l.asked }

// ask tells whoever holds the lease to give it up in good order.
func (l *lease) ask(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.asked:
		return
	default:
	}
	close(l.asked)
	l.s.log.Info("the destination is handed over", "destination", l.destination, "epoch", l.epoch, "reason", why)
}

func (l *lease) isAsked() bool {
	select {
	case <-l.asked:
		return true
	default:
		return false
	}
}

// Epoch implements meta.Lease.
func (l *lease) Epoch() int64 { return l.epoch }

// lose ends the tenure. The first reason stays.
func (l *lease) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	close(l.lost)
	l.cancel()
	if !errors.Is(err, errReleased) {
		l.s.log.Error("the lease is lost; the destination is stopped here", "destination", l.destination, "epoch", l.epoch, "error", err)
	}
}

// prove notes a proof that was sent at the given time.
func (l *lease) prove(sent time.Duration) {
	for {
		old := l.proved.Load()
		if int64(sent) <= old || l.proved.CompareAndSwap(old, int64(sent)) {
			return
		}
	}
}

// do carries out ops if the tenure lasts, which it proves by that. A refusal of ops themselves is returned as it is.
func (l *lease) do(ctx context.Context, ops []any) error {
	if err := l.Err(); err != nil {
		return err
	}
	sent := elapsed()
	failed, err := l.s.multi(ctx, append([]any{
		&zk.CheckVersionRequest{Path: l.s.owner(l.destination), Version: 0},
		&zk.CheckVersionRequest{Path: l.s.epoch(l.destination), Version: l.version},
	}, ops...)...)
	switch {
	case err == nil, failed >= 2:
		l.prove(sent)
		return err
	case failed >= 0: // I8
		l.lose(fmt.Errorf("%w: ZooKeeper refused the lease of epoch %d: %w", meta.ErrFenced, l.epoch, err))
		return l.Err()
	}
	return err
}

// beat proves the lease at intervals.
func (l *lease) beat(ctx context.Context) {
	defer l.wg.Done()
	pause := l.s.hold() / 4 // S/6
	for {
		if l.s.sleep(ctx, pause) != nil {
			return
		}
		pause = l.s.hold() / 4
		if err := l.do(ctx, nil); err != nil {
			pause /= 4 // away: the client is looking for another server
		}
	}
}

// watch ends the tenure when it can no longer be proven.
func (l *lease) watch(ctx context.Context) {
	defer l.wg.Done()
	for l.Err() == nil {
		if l.s.sleep(ctx, max(l.left(), time.Millisecond)) != nil {
			return
		}
	}
}

// Release implements meta.Lease.
func (l *lease) Release(ctx context.Context) error {
	if v := l.s.canal; v != nil && l.Err() == nil {
		short, cancel := context.WithTimeout(ctx, l.s.hold()/4)
		v.writeCursors(short, l.destination) // the last ones; nobody else waits for them
		cancel()
	}
	l.lose(errReleased)
	l.wg.Wait()
	l.s.mu.Lock()
	if l.s.leases[l.destination] == l {
		delete(l.s.leases, l.destination)
	}
	l.s.mu.Unlock()
	if v := l.s.canal; v != nil {
		v.hide(ctx, l)
	}
	at := l.s.owner(l.destination)
	// The epoch keeps this from touching a later owner.
	_, err := l.s.multi(ctx,
		&zk.CheckVersionRequest{Path: l.s.epoch(l.destination), Version: l.version},
		&zk.DeleteRequest{Path: at, Version: 0})
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil
	}
	return fmt.Errorf("destination %s: its lease lasts until the session expires: %w", l.destination, l.s.explain(err, at))
}

// Acquire implements meta.Owners. It waits for another owner, for this process's turn where it shares destinations with
// others, and while ZooKeeper is away.
func (s *Store) Acquire(ctx context.Context, destination string) (meta.Lease, error) {
	told := ""
	waiting := func(by string, epoch int64) {
		if told != by {
			s.log.Info("another process owns the destination; waiting for it", "destination", destination, "owner", by, "epoch", epoch)
			told = by
		}
	}
	for {
		var turned <-chan struct{}
		if s.balance != nil {
			mine, by, changed := s.balance.turn(destination)
			if !mine {
				if by.Node != "" {
					waiting(by.Node, by.Epoch)
				}
				if err := s.await(ctx, changed, nil); err != nil {
					return nil, err
				}
				continue
			}
			turned = changed
		}
		l, changed, err := s.try(ctx, destination)
		if err == nil {
			return l, nil
		}
		var owned *meta.OwnedError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &owned):
			waiting(owned.Owner, owned.Epoch)
			if err := s.await(ctx, changed, turned); err != nil {
				return nil, err
			}
		case away(err), errors.Is(err, errLater):
			if told != err.Error() {
				s.log.Warn("the destination cannot be taken yet", "destination", destination, "error", err)
				told = err.Error()
			}
			if err := s.sleep(ctx, s.opt.SessionTimeout/20); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("destination %s: %w", destination, err)
		}
	}
}

// await waits for a change, or long enough to look again.
func (s *Store) await(ctx context.Context, one, other <-chan struct{}) error {
	t := time.NewTimer(s.opt.SessionTimeout)
	defer t.Stop()
	select {
	case <-one:
	case <-other:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.quit:
		return errClosed
	}
	return nil
}

// TryAcquire implements meta.Owners. It waits while ZooKeeper is away.
func (s *Store) TryAcquire(ctx context.Context, destination string) (meta.Lease, error) {
	for {
		l, _, err := s.try(ctx, destination)
		if err == nil {
			return l, nil
		}
		if !away(err) && !errors.Is(err, errLater) {
			return nil, err
		}
		if serr := s.sleep(ctx, s.opt.SessionTimeout/20); serr != nil {
			return nil, fmt.Errorf("destination %s: %w (%w)", destination, err, serr)
		}
	}
}

// errLater: somebody else was quicker in a part of it; the next try sees what has become.
var errLater = errors.New("the owner is changing")

// try takes the destination if nobody has it; else changed is closed or told when that may have changed.
func (s *Store) try(ctx context.Context, destination string) (_ *lease, changed <-chan struct{}, err error) {
	if err := (meta.Identity{Destination: destination, Client: "x"}).Validate(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	held := s.leases[destination]
	s.taking[destination] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.taking, destination)
	}()
	if held != nil {
		return nil, nil, errors.New("this process has its lease already, or has not released it: report this as a fault")
	}
	if err := s.authenticate(ctx); err != nil {
		return nil, nil, s.explain(err, s.opt.Root)
	}
	if err := s.ensure(ctx, s.subscriptions(destination), s.acl); err != nil {
		return nil, nil, err
	}
	ownerAt, epochAt := s.owner(destination), s.epoch(destination)
	last, err := s.get(ctx, epochAt)
	if errors.Is(err, zk.ErrNoNode) {
		_, err = call(ctx, s, func() (string, error) { return s.conn.Create(epochAt, []byte("0"), 0, s.acl) })
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			last, err = s.get(ctx, epochAt)
		}
	}
	if err != nil {
		return nil, nil, s.explain(err, epochAt)
	}
	n, err := strconv.ParseInt(string(last.data), 10, 64)
	if err != nil || n < 0 {
		return nil, nil, fmt.Errorf("ZooKeeper node %s holds %.40q, not a number of owners; put back the highest epoch that the logs name", epochAt, last.data)
	}
	l := &lease{s: s, destination: destination, epoch: n + 1, version: last.stat.Version + 1, lost: make(chan struct{}), asked: make(chan struct{})}
	text, err := json.Marshal(owner{Node: s.opt.Node, Epoch: l.epoch, Since: time.Now().UTC()})
	if err != nil {
		return nil, nil, err
	}
	sent := elapsed()
	failed, err := s.multi(ctx,
		&zk.CreateRequest{Path: ownerAt, Data: text, Acl: s.acl, Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: epochAt, Data: strconv.AppendInt(nil, l.epoch, 10), Version: last.stat.Version})
	switch {
	case err == nil:
		ctx, cancel := context.WithCancel(context.Background())
		l.cancel = cancel
		l.prove(sent)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			cancel()
			return nil, nil, errClosed
		}
		s.leases[destination] = l
		l.wg.Add(2)
		go l.beat(ctx)
		go l.watch(ctx)
		s.hub.pokeAll()
		s.log.Info("this process owns the destination", "destination", destination, "epoch", l.epoch)
		return l, nil, nil
	case failed == 1 && errors.Is(err, zk.ErrBadVersion):
		return nil, nil, errLater
	case failed == 0 && errors.Is(err, zk.ErrNodeExists):
		return s.look(ctx, destination, last.stat.Version)
	}
	return nil, nil, s.explain(err, ownerAt)
}

// clean removes what is left of a tenure that could not be given back though the session lives on: nobody
// else could take the destination before it ends.
func (s *Store) clean(ctx context.Context, destination string) error {
	// First, so that a tenure which begins now makes look refuse.
	last, err := s.get(ctx, s.epoch(destination))
	if err != nil {
		return s.explain(err, s.epoch(destination))
	}
	s.mu.Lock()
	used := s.leases[destination] != nil || s.taking[destination]
	s.mu.Unlock()
	if used {
		return nil
	}
	var owned *meta.OwnedError
	if _, _, err := s.look(ctx, destination, last.stat.Version); !errors.Is(err, errLater) && !errors.As(err, &owned) {
		return err
	}
	return nil
}

// look says who owns the destination. What is left of an earlier tenure of this session it removes.
func (s *Store) look(ctx context.Context, destination string, version int32) (*lease, <-chan struct{}, error) {
	at := s.owner(destination)
	n, changed, err := s.watched(ctx, at)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil, errLater
	case err != nil:
		return nil, nil, s.explain(err, at)
	case n.stat.EphemeralOwner == s.conn.SessionID():
		// An answer was lost, or a lease that could not be proven; nothing of ours writes on its strength.
		_, err := s.multi(ctx, &zk.CheckVersionRequest{Path: s.epoch(destination), Version: version}, &zk.DeleteRequest{Path: at, Version: 0})
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return nil, nil, s.explain(err, at)
		}
		return nil, nil, errLater
	}
	o := parseOwner(n.data)
	return nil, changed, &meta.OwnedError{Destination: destination, Owner: o.Node, Epoch: o.Epoch, Since: o.Since}
}

// parseOwner reads an owner's node, which is for people only.
func parseOwner(data []byte) owner {
	var o owner
	if json.Unmarshal(data, &o) != nil || o.Node == "" {
		return owner{Node: "an unknown process"}
	}
	return o
}
