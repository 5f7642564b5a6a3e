package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/binlogmq/binlogmq/meta"
)

var _ meta.Documents = (*Store)(nil)

func (s *Store) document(destination, name string) (meta.Identity, string, error) {
	id := meta.Identity{Destination: destination, Client: name}
	return id, s.dir(destination) + "/document-" + meta.Escape(name), id.Validate()
}

// LoadDocument implements meta.Documents. It waits while ZooKeeper is away.
func (s *Store) LoadDocument(ctx context.Context, destination, name string) ([]byte, error) {
	_, at, err := s.document(destination, name)
	if err != nil {
		return nil, err
	}
	var n node
	err = s.retry(ctx, func() (err error) {
		n, err = s.get(ctx, at)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, fmt.Errorf("%s of %s: %w", name, destination, meta.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, destination, s.explain(err, at))
	}
	data, err := unpack(n.data)
	if err == nil {
		data, err = meta.DecodeDocument(destination, name, data)
	}
	if err != nil {
		return nil, fmt.Errorf("ZooKeeper node %s cannot be used: %w: %w", at, meta.ErrDamaged, err)
	}
	return data, nil
}

// SaveDocument implements meta.Documents. It is refused with meta.ErrFenced unless this process holds the destination's lease.
func (s *Store) SaveDocument(ctx context.Context, destination, name string, data []byte) error {
	id, at, err := s.document(destination, name)
	if err != nil {
		return err
	}
	if data == nil {
		if err = s.conditional(ctx, id, []any{&zk.DeleteRequest{Path: at, Version: -1}}); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("%s of %s not deleted: %w", name, destination, s.explain(err, at))
		}
		return nil
	}
	out, err := meta.EncodeDocument(destination, name, data)
	if err != nil {
		return err
	}
	size := len(out)
	if out, err = pack(out); err != nil {
		return fmt.Errorf("%s of %s, %d bytes, does not fit a ZooKeeper node: %w", name, destination, size, meta.ErrTooLarge)
	}
	set := []any{&zk.SetDataRequest{Path: at, Data: out, Version: -1}}
	err = s.conditional(ctx, id, set)
	if errors.Is(err, zk.ErrNoNode) {
		err = s.conditional(ctx, id, []any{&zk.CreateRequest{Path: at, Data: out, Acl: s.acl}})
		if errors.Is(err, zk.ErrNodeExists) { // the answer to an earlier try was lost
			err = s.conditional(ctx, id, set)
		}
	}
	if err != nil {
		return fmt.Errorf("%s of %s not saved: %w", name, destination, s.explain(err, at))
	}
	return nil
}
