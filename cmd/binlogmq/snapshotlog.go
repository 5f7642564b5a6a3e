package main

import (
	"context"
	"errors"

	"github.com/binlogmq/binlogmq/connector"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/meta"
)

// snapshotKeeper keeps the snapshots of one destination.
type snapshotKeeper struct {
	store       historyStore
	destination string
}

func newSnapshots(s historyStore, destination string) *snapshot.Log {
	return snapshot.NewLog(&snapshotKeeper{s, destination})
}

// Destination implements snapshot.Keeper.
func (k *snapshotKeeper) Destination() string { return k.destination }

// Load implements snapshot.Keeper.
func (k *snapshotKeeper) Load(ctx context.Context, name string) ([]byte, error) {
	data, err := k.store.LoadDocument(ctx, k.destination, name)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, nil
	case errors.Is(err, meta.ErrDamaged):
		return nil, snapshot.Damaged(k.destination, name, err)
	}
	return data, err
}

// Save implements snapshot.Keeper.
func (k *snapshotKeeper) Save(ctx context.Context, name string, data []byte) error {
	err := k.store.SaveDocument(ctx, k.destination, name, data)
	if errors.Is(err, meta.ErrTooLarge) {
		err = &connector.StopError{Destination: k.destination, What: "the state of its snapshots cannot be saved",
			Remedy: "order snapshots of fewer tables at a time, or keep cursors in files (meta.file)", Err: err}
	}
	return err
}

// Cursors implements snapshot.Keeper. Those of sinks that are not configured any more count, too, as new subscriptions begin where the last cursor stands.
func (k *snapshotKeeper) Cursors(ctx context.Context) (map[string]int64, error) {
	ids, err := k.store.List(ctx, k.destination)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, id := range ids {
		r, err := k.store.Load(ctx, id)
		switch {
		case errors.Is(err, meta.ErrNotFound):
		case errors.Is(err, meta.ErrDamaged): // nobody knows where it stands, and it is there
			all[id.Client] = 0
		case err != nil:
			return nil, err
		default:
			all[id.Client] = r.Cursor.Ordinal
		}
	}
	return all, nil
}
