package kafka

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestOwnerI8: a sink whose owner has lost the lease sends nothing more, on the connection that it has or on another, and says why.
func TestOwnerI8(t *testing.T) {
	notOwner := errors.New("the lease is lost")
	for name, connected := range map[string]bool{"connected": true, "not connected": false} {
		t.Run(name, func(t *testing.T) {
			cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
			var lost atomic.Bool
			s := newSink(t, Options{Brokers: cl.ListenAddrs(), Owner: func() error {
				if lost.Load() {
					return notOwner
				}
				return nil
			}})
			ctx := ctxFor(t, patience)
			if _, err := s.Partitions(ctx, "shop"); err != nil {
				t.Fatal(err)
			}
			sent := 0
			publish := func() (ok int, errs []error) {
				var f fates
				_, _ = s.Publish(ctx, numbered(&f, "shop", 2, sent, 10)) // fails when the session has failed by now
				if err := s.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				return f.count()
			}
			if connected {
				if ok, errs := publish(); ok != 10 {
					t.Fatalf("%d sent, %v", ok, errs)
				}
				sent = 10
			}
			lost.Store(true)
			for range 2 {
				ok, errs := publish()
				if ok != 0 || len(errs) == 0 {
					t.Fatalf("%d sent without the lease", ok)
				}
				for _, err := range errs {
					if !errors.Is(err, notOwner) {
						t.Fatal(err)
					}
				}
				if err := s.Reset(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if got := readAll(t, cl.ListenAddrs(), "shop", sent); len(got) != sent {
				t.Errorf("%d stored, %d were sent in time", len(got), sent)
			}
			lost.Store(false) // only here: a lease does not come back
			if ok, errs := publish(); ok != 10 {
				t.Fatalf("%d sent, %v", ok, errs)
			}
		})
	}
}
