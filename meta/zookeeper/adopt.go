package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/meta"
)

// CanalClients reads what Canal's nodes below root say of a destination's clients. running is the address of the server that serves it now;
// "": none does.
func (s *Store) CanalClients(ctx context.Context, root, destination string) (clients []canalzk.ClientData, running string, err error) {
	read := func(at string) (n node, there bool, err error) {
		err = s.retry(ctx, func() (err error) {
			n, err = s.get(ctx, at)
			return err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return n, false, nil
		}
		if err != nil {
			return n, false, s.explain(err, at)
		}
		return n, true, nil
	}
	names, err := s.children(ctx, canalzk.Destination(root, destination))
	if err != nil {
		return nil, "", err
	}
	if n, there, err := read(canalzk.Running(root, destination)); err != nil {
		return nil, "", err
	} else if there {
		r, _ := canalzk.ParseRunning(n.data)
		running = fmt.Sprintf("%q", r.Address)
	}
	for _, name := range names {
		id, ok := clientID(meta.Identity{Client: name})
		if !ok {
			continue
		}
		at := canalzk.Cursor(root, destination, id)
		n, there, err := read(at)
		if err != nil {
			return nil, "", err
		}
		if !there || len(n.data) == 0 { // it has subscribed, and never got anything
			continue
		}
		c := canalzk.ClientData{ID: id}
		if c.Cursor, err = canalzk.ParseCursor(n.data); err != nil {
			return nil, "", fmt.Errorf("ZooKeeper node %s cannot be read: %w", at, err)
		}
		if n, _, err = read(canalzk.Filter(root, destination, id)); err != nil {
			return nil, "", err
		}
		c.Filter = string(n.data)
		clients = append(clients, c)
	}
	return clients, running, nil
}

// left is the error of a client of which nothing is saved although a Canal has left its cursor: to begin at the end of the log would leave out
// what lies between, without a word (I3).
func (v *canalView) left(ctx context.Context, id meta.Identity) error {
	n, ok := clientID(id)
	if _, served := v.o.Sources[id.Destination]; !ok || !served {
		return nil
	}
	mark := v.s.dir(id.Destination) + "/canal/" + meta.Escape(id.Client)
	if _, err := v.s.get(ctx, mark); !errors.Is(err, zk.ErrNoNode) {
		return err // its nodes are ours
	}
	at := canalzk.Cursor(v.o.Root, id.Destination, n)
	was, err := v.s.get(ctx, at)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	if c, err := canalzk.ParseCursor(was.data); err == nil && c.ServerID != 0 { // else it is of an earlier installation of ours, or says nothing
		return fmt.Errorf("Canal has left the cursor of %s at %s:%d (of %s), and none is saved here: take it over with: binlogmq cursor import-canal; "+
			"or delete the ZooKeeper node %s, and the client begins as one that is new", id, c.File, c.Offset, c.Timestamp.UTC().Format(time.RFC3339), at)
	}
	return nil
}
