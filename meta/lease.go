package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is this process's ownership of one destination (I8). It is safe for concurrent use.
type Lease interface {
	// Err returns nil while this process provably owns the destination, else an error that is
	// ErrFenced, and then for good. It costs no more than a look at a clock: ask it
	// before each connect, send round and save.
	Err() error

	// Lost is closed when Err begins to tell an error.
	Lost() <-chan struct{}

	// Asked is closed when another process shall have the destination: it is to be drained, saved and released
	// in good order, while the lease lasts. nil where nobody ever asks.
	Asked() <-chan struct{}

	// Epoch rises with each owner; 0 where there is only ever one.
	Epoch() int64

	// Release gives the destination up, so that another process can take it at
	// once. Everything that writes must have ended. It is to be called after a loss too.
	Release(ctx context.Context) error
}

// Owners hands out leases. Every Store that a program runs on is one.
type Owners interface {
	// Acquire waits until the destination is this process's. It ends with ctx, or with an
	// error that waiting does not mend.
	Acquire(ctx context.Context, destination string) (Lease, error)

	// TryAcquire is Acquire without waiting for another owner: then the error is an *OwnedError.
	TryAcquire(ctx context.Context, destination string) (Lease, error)
}

// OwnedError says that another process owns the destination.
type OwnedError struct {
	Destination string
	Owner       string    // how the owner names itself
	Epoch       int64     // of its lease
	Since       time.Time // when it took the lease; zero when not known
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("destination %s is owned by %s (epoch %d): stop that process first", e.Destination, e.Owner, e.Epoch)
}

// Unwrap returns ErrFenced.
func (e *OwnedError) Unwrap() error { return ErrFenced }

// Sole is the Lease of a store that only one process can open at a time.
type Sole struct {
	once sync.Once
	lost chan struct{}
}

var errReleased = fmt.Errorf("%w, or will: this process has given it up", ErrFenced)

// NewSole returns a lease that lasts until it is released.
func NewSole() *Sole { return &Sole{lost: make(chan struct{})} }

// Err implements Lease.
func (l *Sole) Err() error {
	select {
	case <-l.lost:
		return errReleased
	default:
		return nil
	}
}

// Lost implements Lease.
func (l *Sole) Lost() <-chan struct{} { return l.lost }

// Asked implements Lease.
func (l *Sole) Asked() <-chan struct{} { return nil }

// Epoch implements Lease.
func (l *Sole) Epoch() int64 { return 0 }

// Release implements Lease.
func (l *Sole) Release(context.Context) error {
	l.once.Do(func() { close(l.lost) })
	return nil
}

// SoleOwners is Owners for stores that only one process can open at a time. The zero value is ready.
type SoleOwners struct {
	mu   sync.Mutex
	held map[string]*Sole
}

var errHeld = errors.New("this process has its lease already: report this as a fault")

// Acquire implements Owners.
func (s *SoleOwners) Acquire(ctx context.Context, destination string) (Lease, error) {
	return s.TryAcquire(ctx, destination)
}

// TryAcquire implements Owners.
func (s *SoleOwners) TryAcquire(_ context.Context, destination string) (Lease, error) {
	if err := validDestination(destination); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.held[destination]; l != nil && l.Err() == nil {
		return nil, fmt.Errorf("destination %s: %w", destination, errHeld)
	}
	if s.held == nil {
		s.held = make(map[string]*Sole)
	}
	l := NewSole()
	s.held[destination] = l
	return l, nil
}
