package metatest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/meta"
)

// Shared is a store that a process runs on.
type Shared interface {
	meta.Store
	meta.Owners
}

// hold takes the leases of the identities' destinations, as a program does before it saves.
func hold(t *testing.T, s meta.Store, ids []meta.Identity) {
	t.Helper()
	owners, ok := s.(meta.Owners)
	if !ok {
		return
	}
	held := map[string]bool{}
	for _, id := range ids {
		if held[id.Destination] {
			continue
		}
		held[id.Destination] = true
		l, err := owners.TryAcquire(context.Background(), id.Destination)
		if err != nil {
			t.Fatalf("lease of %s: %v", id.Destination, err)
		}
		if err := l.Err(); err != nil {
			t.Fatalf("lease of %s: %v", id.Destination, err)
		}
	}
}

// RunLeases tests the leases of two processes on the same, at first empty, store. Each call of open is another process.
func RunLeases(t *testing.T, open func(t *testing.T) Shared) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	a, b := open(t), open(t)
	id := meta.Identity{Destination: "shop", Client: "sink-orders"}
	rng := rand.New(rand.NewPCG(5, 6))
	first, second := randomRecord(rng), randomRecord(rng)

	// I8: without a lease nothing is saved.
	if err := a.Save(ctx, id, first); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved without a lease: %v", err)
	}
	if err := a.Delete(ctx, id); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("deleted without a lease: %v", err)
	}
	la, err := a.Acquire(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Save(ctx, id, first); err != nil {
		t.Fatal(err)
	}
	var owned *meta.OwnedError
	if _, err := b.TryAcquire(ctx, "shop"); !errors.As(err, &owned) || owned.Epoch != la.Epoch() || owned.Owner == "" || owned.Since.IsZero() {
		t.Fatalf("another owner's destination: %v, %+v", err, owned)
	}
	if err := b.Save(ctx, id, second); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved on another owner's destination: %v", err)
	}
	if _, err := a.TryAcquire(ctx, "shop"); err == nil {
		t.Fatal("the same lease twice")
	}
	other, err := b.TryAcquire(ctx, "shop2") // another destination is nobody's
	if err != nil {
		t.Fatal(err)
	}

	// One that waits gets it when it is released.
	type result struct {
		l   meta.Lease
		err error
	}
	got := make(chan result, 1)
	go func() {
		l, err := b.Acquire(ctx, "shop")
		got <- result{l, err}
	}()
	select {
	case r := <-got:
		t.Fatalf("two owners: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := la.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := la.Err(); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("a released lease: %v", err)
	}
	<-la.Lost()
	if err := a.Save(ctx, id, second); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved after the release: %v", err)
	}
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.l.Epoch() <= la.Epoch() {
		t.Fatalf("epoch %d after %d", r.l.Epoch(), la.Epoch())
	}
	check(t, b, map[meta.Identity]*meta.Record{id: first}) // it stands where the first owner left it
	if err := b.Save(ctx, id, second); err != nil {
		t.Fatal(err)
	}
	if err := a.Save(ctx, id, first); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved in the next owner's epoch: %v", err)
	}
	if err := la.Release(ctx); err != nil { // again, and late: it takes nothing from the next owner
		t.Fatal(err)
	}
	if err := r.l.Err(); err != nil {
		t.Fatal(err)
	}
	check(t, a, map[meta.Identity]*meta.Record{id: second})

	// Waiting ends with its context.
	short, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	if _, err := a.Acquire(short, "shop"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("acquire after its context: %v", err)
	}
	if err := errors.Join(r.l.Release(ctx), other.Release(ctx)); err != nil {
		t.Fatal(err)
	}
	l, err := a.TryAcquire(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	if l.Epoch() <= r.l.Epoch() {
		t.Fatalf("epoch %d after %d", l.Epoch(), r.l.Epoch())
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.TryAcquire(ctx, "bad\x00name"); err == nil {
		t.Error("a bad name has a lease")
	}
}
