//go:build integration

package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-zookeeper/zk"
	"github.com/rs/zerolog"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server/metatest"
)

// session is short where a test waits for its end. Where none does, longer is what a busy machine needs.
const (
	session = 4 * time.Second
	longer  = 10 * time.Second
)

// root is a path that no other test uses.
func root(t *testing.T) string {
	return fmt.Sprintf("/binlogmq-test/%s-%d", meta.Escape(t.Name()), time.Now().UnixNano())
}

func open(t *testing.T, root string, servers ...string) *Store {
	t.Helper()
	return openFor(t, session, root, servers...)
}

func openFor(t *testing.T, timeout time.Duration, root string, servers ...string) *Store {
	t.Helper()
	s, err := Open(Options{Servers: servers, SessionTimeout: timeout, Root: root, Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func suite(t *testing.T, servers []string) {
	at := root(t)
	metatest.Run(t, true, func(t *testing.T) (meta.Store, func()) {
		s, err := Open(Options{Servers: servers, SessionTimeout: longer, Root: at})
		if err != nil {
			t.Fatal(err)
		}
		return s, func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("leases", func(t *testing.T) {
		at := root(t)
		metatest.RunLeases(t, func(t *testing.T) metatest.Shared { return openFor(t, longer, at, servers...) })
	})
}

func TestSuite(t *testing.T) { suite(t, testenv.ZooKeeper(t).Servers) }

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

var shop = meta.Identity{Destination: "shop", Client: "sink-orders"}

func record(ordinal int64, state int) *meta.Record {
	r := &meta.Record{Cursor: event.Cursor{Position: event.Position{File: "binlog.000001", Offset: 4}, Ordinal: ordinal}, SavedAt: time.Unix(1_700_000_000, 0)}
	rng := rand.New(rand.NewPCG(uint64(ordinal), 1))
	for range state {
		r.Cursor.State = append(r.Cursor.State, byte(rng.Uint32()))
	}
	return r
}

func acquire(t *testing.T, s *Store) meta.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	l, err := s.Acquire(ctx, shop.Destination)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// acquireAndSave acquires until the record is saved, too: a busy machine may cost a lease that was just acquired.
func acquireAndSave(t *testing.T, s *Store, r *meta.Record) meta.Lease {
	t.Helper()
	var l meta.Lease
	await(t, "a save", func() bool {
		l = acquire(t, s)
		err := s.Save(context.Background(), shop, r)
		if err == nil {
			return true
		}
		if !errors.Is(err, meta.ErrFenced) && !away(err) {
			t.Fatal(err)
		}
		t.Log(err)
		release(t, l)
		return false
	})
	return l
}

// release releases a lease. One that is lost by then, as a busy machine may lose it, need not reach ZooKeeper.
func release(t *testing.T, l meta.Lease) {
	t.Helper()
	lost := l.Err()
	if err := l.Release(context.Background()); lost != nil || away(err) {
		t.Log(lost, err)
	} else if err != nil {
		t.Error(err)
	}
}

// I8: an owner that is cut off from ZooKeeper alone stops before anybody else can own the destination, and saves nothing.
func TestPartition(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		partition(t, func(p *toxiproxy.Proxy) error { p.Stop(); return nil }, (*toxiproxy.Proxy).Start)
	})
	t.Run("silent", func(t *testing.T) {
		const hole = `{"name": "hole", "type": "timeout", "stream": "%s", "attributes": {"timeout": 0}}`
		partition(t, func(p *toxiproxy.Proxy) error {
			_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(hole, "upstream")))
			return err
		}, func(p *toxiproxy.Proxy) error { return p.Toxics.RemoveToxic(context.Background(), "hole") })
	})
}

func partition(t *testing.T, cut, mend func(*toxiproxy.Proxy) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	z := testenv.ZooKeeper(t)
	log := zerolog.New(io.Discard)
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log), "zookeeper", "127.0.0.1:0", z.Servers[0])
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	at := root(t)
	a, b := open(t, at, proxy.Listen), openFor(t, longer, at, z.Servers...)
	la := acquireAndSave(t, a, record(1, 0))
	type taken struct {
		l   meta.Lease
		at  time.Duration
		err error
	}
	got := make(chan taken, 1)
	go func() {
		l, err := b.Acquire(ctx, shop.Destination)
		got <- taken{l, elapsed(), err}
	}()
	if err := cut(proxy); err != nil {
		t.Fatal(err)
	}
	<-la.Lost()
	lost := elapsed()
	if err := la.Err(); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("lost: %v", err)
	}
	if err := a.Save(ctx, shop, record(2, 0)); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved after the loss: %v", err)
	}
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Logf("stopped %v before the next owner", r.at-lost)
	if r.at < lost {
		t.Errorf("the next owner came %v before the first one stopped", lost-r.at)
	}
	if err := b.Save(ctx, shop, record(3, 0)); err != nil {
		t.Fatal(err)
	}
	if err := mend(proxy); err != nil {
		t.Fatal(err)
	}
	if err := a.Save(ctx, shop, record(2, 0)); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved after the link came back: %v", err)
	}
	if err := la.Release(ctx); err != nil { // the link may take a moment to come back
		t.Log(err)
	}
	await(t, "the link", func() bool { return a.Status().Connected })
	if _, err := a.TryAcquire(ctx, shop.Destination); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("took another owner's destination: %v", err)
	}
	if got, err := a.Load(ctx, shop); err != nil || got.Cursor.Ordinal != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	release(t, r.l)
}

// I8: ZooKeeper refuses what an earlier owner writes even if that one believes in its lease.
func TestBelievingOwnerIsFenced(t *testing.T) {
	ctx := context.Background()
	z := testenv.ZooKeeper(t)
	at := root(t)
	a, b := openFor(t, longer, at, z.Servers...), openFor(t, longer, at, z.Servers...)
	la := acquireAndSave(t, a, record(1, 0)).(*lease)
	// Somebody deletes the node by hand: the session lives, and so does the belief until the next proof.
	if err := b.conn.Delete(b.owner(shop.Destination), 0); err != nil {
		t.Fatal(err)
	}
	lb := acquire(t, b)
	stale := &lease{s: a, destination: la.destination, epoch: la.epoch, version: la.version, lost: make(chan struct{}), cancel: func() {}}
	stale.prove(elapsed())
	op := []any{&zk.SetDataRequest{Path: must(a.record(shop)), Data: []byte("x"), Version: -1}}
	if err := stale.do(ctx, op); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("an earlier epoch wrote: %v", err)
	}
	<-stale.Lost()
	<-la.Lost() // the next proof fails
	if r, err := b.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if err := errors.Join(la.Release(ctx), lb.Err(), lb.Release(ctx)); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Everything dies with ZooKeeper's server, even for longer than the session: the owner stops, and goes on by itself.
func TestServerAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	z := testenv.NewZooKeeper(t, 1)
	s := open(t, root(t), z.Servers...)
	l := acquireAndSave(t, s, record(1, 0))
	z.Pause(1)
	<-l.Lost()
	if err := s.Save(ctx, shop, record(2, 0)); !errors.Is(err, meta.ErrFenced) {
		t.Fatalf("saved without a provable lease: %v", err)
	}
	await(t, "the outage to show", func() bool { return !s.Status().Connected })
	z.Resume(1)
	if err := l.Release(ctx); err != nil { // the server may take a moment to come back
		t.Log(err)
	}
	again := acquire(t, s)
	if again.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", again.Epoch(), l.Epoch())
	}
	if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	release(t, again)
	release(t, acquireAndSave(t, s, record(3, 0)))
}

// Three servers: the suite, then each server stops in its turn, the leader among them. The lease outlives that or is
// taken anew; no save is lost, and none is half.
func TestEnsemble(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	z := testenv.NewZooKeeper(t, 3)
	suite(t, z.Servers)
	s := open(t, root(t), z.Servers...)
	l := acquire(t, s)
	var saved int64
	for server := 1; server <= 3; server++ {
		z.Pause(server)
		for next := saved + 20; saved < next; {
			err := s.Save(ctx, shop, record(saved+1, 50<<10))
			switch {
			case err == nil:
				saved++
			case errors.Is(err, meta.ErrFenced):
				t.Logf("server %d stopped: %v", server, err)
				if err := l.Release(ctx); err != nil {
					t.Log(err)
				}
				l = acquire(t, s)
			case !away(err):
				t.Fatal(err)
			default:
				time.Sleep(20 * time.Millisecond)
			}
		}
		z.Resume(server)
		if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != saved {
			t.Fatalf("%v, %v; want ordinal %d", r, err, saved)
		}
	}
	release(t, l)
}

// A znode takes 1 MiB: what a cursor of very many partitions needs fits, and what does not is an error that leaves the
// record as it was, and the session.
func TestSizes(t *testing.T) {
	ctx := context.Background()
	z := testenv.ZooKeeper(t)
	s := openFor(t, longer, root(t), z.Servers...)
	l := acquire(t, s)
	for i, size := range []int{50 << 10, 500 << 10, 740 << 10} { // incompressible, in base 64
		r := record(int64(i+1), size)
		if err := s.Save(ctx, shop, r); err != nil {
			t.Fatalf("state of %d bytes: %v", size, err)
		}
		if got, err := s.Load(ctx, shop); err != nil || !bytes.Equal(got.Cursor.State, r.Cursor.State) {
			t.Fatalf("state of %d bytes: %v", size, err)
		}
	}
	if err := s.Save(ctx, shop, record(9, 2<<20)); err == nil || !strings.Contains(err.Error(), shop.String()) || !strings.Contains(err.Error(), "meta.file") {
		t.Fatalf("too large: %v", err)
	}
	if r, err := s.Load(ctx, shop); err != nil || r.Cursor.Ordinal != 3 {
		t.Fatalf("%v, %v", r, err)
	}
	if err := errors.Join(l.Err(), l.Release(ctx)); err != nil {
		t.Fatal(err)
	}
}

// With digest authentication only the same user gets in, and the error says what to do.
func TestAuthentication(t *testing.T) {
	ctx := context.Background()
	z := testenv.ZooKeeper(t)
	at := root(t)
	login := func(user, password string) *Store {
		s, err := Open(Options{Servers: z.Servers, SessionTimeout: longer, Root: at, User: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a := login("binlogmq", "secret")
	l := acquire(t, a)
	if err := a.Save(ctx, shop, record(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{login("", ""), login("binlogmq", "other")} {
		if _, err := s.Load(ctx, shop); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "meta.zookeeper.auth") || strings.Contains(err.Error(), "secret") {
			t.Errorf("load: %v", err)
		}
		if _, err := s.TryAcquire(ctx, shop.Destination); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("lease: %v", err)
		}
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// What cannot be read is damaged, never not there (I3).
func TestDamaged(t *testing.T) {
	ctx := context.Background()
	s := openFor(t, longer, root(t), testenv.ZooKeeper(t).Servers...)
	l := acquire(t, s)
	if err := s.Save(ctx, shop, record(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", "\x1f\x8bxx"} {
		if _, err := s.conn.Set(must(s.record(shop)), []byte(bad), -1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(ctx, shop); !errors.Is(err, meta.ErrDamaged) || !strings.Contains(err.Error(), "cursor set") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.Save(ctx, shop, record(2, 0)); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.conn.Set(s.epoch(shop.Destination), []byte("many"), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(ctx, shop.Destination); err == nil || !strings.Contains(err.Error(), "epoch") {
		t.Errorf("a damaged epoch: %v", err)
	}
}
