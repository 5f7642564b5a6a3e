package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
)

var ctx = context.Background()

func id(client string) Identity { return Identity{Destination: "shop", Client: client} }

// faulty is a store that can be told to refuse, to wait, and to remember.
type faulty struct {
	meta.Memory
	mu    sync.Mutex
	err   error
	saves int
	onto  func(Identity, *meta.Record)
}

func (f *faulty) Save(ctx context.Context, id Identity, r *meta.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saves++
	if f.err != nil {
		return f.err
	}
	if f.onto != nil {
		f.onto(id, r)
	}
	return f.Memory.Save(ctx, id, r)
}

func (f *faulty) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saves
}

type rig struct {
	t *testing.T
	h *history
	m *faulty
	s *Server
}

func newRig(t *testing.T, o Options) *rig {
	r := &rig{t: t, h: newHistory(true), m: &faulty{}}
	if o.Meta == nil {
		o.Meta = r.m
	}
	if o.SaveInterval == 0 {
		o.SaveInterval = time.Second
	}
	r.s = New(o)
	t.Cleanup(func() { r.s.Stop(ctx) })
	r.must(r.s.AddDestination("shop", r.h, DestinationOptions{}))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) subscribe(client, filter string, o ...SubscribeOption) *Client {
	r.t.Helper()
	c := r.s.Client(id(client))
	r.must(c.Subscribe(ctx, filter, o...))
	return c
}

func (r *rig) start() {
	r.t.Helper()
	r.must(r.s.Start(ctx, "shop"))
}

func (r *rig) get(c *Client, size Size, w Wait) *Batch {
	r.t.Helper()
	b, err := c.GetWithoutAck(ctx, size, w)
	r.must(err)
	return b
}

func (r *rig) status() DestinationStatus { return r.s.Status()[0] }

func (r *rig) sub(client string) SubscriptionStatus {
	r.t.Helper()
	for _, s := range r.status().Subscriptions {
		if s.Identity.Client == client {
			return s
		}
	}
	r.t.Fatalf("%s is not connected", client)
	return SubscriptionStatus{}
}

func describeBatch(b *Batch) string {
	var ev []string
	for _, e := range b.Events {
		ev = append(ev, describe(e))
	}
	return strings.Join(ev, ", ")
}

// oneRow writes n transactions of one row each.
func (r *rig) oneRow(n int) {
	r.h.do(func() {
		for range n {
			r.h.begin()
			r.h.rows(0, 1, 100)
			r.h.end()
		}
	})
}

// follow gets and acknowledges until the history's end, checking each batch.
func (r *rig) follow(c *Client, w *follower) {
	r.t.Helper()
	for {
		cur, err := c.Cursor(ctx)
		r.must(err)
		if cur.Last() == r.h.total() {
			return
		}
		b := r.get(c, Size{Events: 7}, WaitAny)
		r.must(w.took(b))
		r.must(c.Ack(ctx, b.ID, nil))
		w.ack()
		cur, err = c.Cursor(ctx)
		r.must(err)
		r.must(w.agrees(cur))
	}
}

func (r *rig) follower(at int64) *follower {
	w := &follower{h: r.h, wants: func(*event.Table) bool { return true }}
	w.reconnect(r.h.cursor(at), false)
	return w
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a, b := r.subscribe("a", ""), r.subscribe("b", "")
		r.start()
		synctest.Wait()

		if x := r.get(a, Size{}, NoWait); x.ID != NoBatch {
			t.Fatalf("batch %d of nothing", x.ID)
		}
		// WaitAtMost: what is there when the time is over.
		begun := time.Now()
		if x := r.get(a, Size{Events: 5}, WaitAtMost(time.Minute)); x.ID != NoBatch || time.Since(begun) != time.Minute {
			t.Fatalf("batch %d after %s", x.ID, time.Since(begun))
		}
		go func() {
			time.Sleep(time.Second)
			r.oneRow(1)
		}()
		begun = time.Now()
		x := r.get(a, Size{Events: 5}, WaitAtMost(time.Minute))
		if len(x.Events) != 3 || time.Since(begun) != time.Minute {
			t.Fatalf("%d events after %s", len(x.Events), time.Since(begun))
		}
		// WaitFull: as many as asked for. Meanwhile other calls go on.
		full := make(chan *Batch)
		go func() { full <- r.get(a, Size{Events: 5}, WaitFull) }()
		synctest.Wait()
		if err := a.Ack(ctx, x.ID, nil); err != nil {
			t.Fatal(err)
		}
		if y := r.get(b, Size{}, WaitAny); len(y.Events) != 3 {
			t.Fatalf("%d events", len(y.Events))
		}
		r.must(b.Rollback(ctx))
		r.oneRow(1)
		synctest.Wait()
		select {
		case y := <-full:
			t.Fatalf("batch of %d events although 5 were asked for", len(y.Events))
		default:
		}
		r.oneRow(1)
		if y := <-full; len(y.Events) != 5 {
			t.Fatalf("%d events", len(y.Events))
		}
		// A get that waits follows a rollback made meanwhile.
		r.must(a.Rollback(ctx))
		go func() { full <- r.get(a, Size{Events: 8}, WaitFull) }()
		synctest.Wait()
		y := r.get(a, Size{Events: 1}, WaitAny)
		r.must(a.RollbackTo(ctx, y.ID))
		r.oneRow(1)
		if y := <-full; len(y.Events) != 8 || y.Events[0].Kind != event.Begin || y.Events[1].Ordinal != 3 {
			t.Fatalf("got %s", describeBatch(y))
		}
		// The context ends a wait.
		c, cancel := context.WithCancel(ctx)
		go cancel()
		if _, err := b.GetWithoutAck(c, Size{Events: 1000}, WaitFull); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		// So does Disconnect.
		done := make(chan error)
		go func() {
			_, err := b.GetWithoutAck(ctx, Size{Events: 1000}, WaitFull)
			done <- err
		}()
		synctest.Wait()
		r.must(b.Disconnect(ctx))
		if err := <-done; !errors.Is(err, ErrNotSubscribed) {
			t.Fatal(err)
		}
	})
}

// A full batch larger than the ring: what fills the ring has to do.
func TestWaitFullRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 10}})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(20)
		if b := r.get(a, Size{Events: 100}, WaitFull); len(b.Events) != 10 {
			t.Fatalf("%d events", len(b.Events))
		}
	})
}

func TestGetWithAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(2)
		b, err := a.Get(ctx, Size{Events: 3}, WaitFull)
		r.must(err)
		if c, _ := a.Cursor(ctx); c.Last() != 2 || len(b.Events) != 3 {
			t.Fatalf("cursor %d after %s", c.Last(), describeBatch(b))
		}
		r.get(a, Size{Events: 1}, WaitAny)
		if _, err := a.Get(ctx, Size{}, NoWait); !errors.Is(err, ErrOutstanding) {
			t.Fatal(err)
		}
	})
}

// A dead subscription does not stop the other; memory stays bounded; when it lives again it
// catches up on its own and comes back to the ring.
func TestLaggard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 50, DetachAfter: 3 * time.Second}})
		fast, slow := r.subscribe("fast", ""), r.subscribe("slow", "")
		r.start()
		rng := rand.New(rand.NewPCG(1, 1))
		r.h.write(rng, 500)
		held := r.get(slow, Size{Events: 5}, WaitAny) // and then its broker dies
		sw := r.follower(0)
		r.must(sw.took(held))

		begun := time.Now()
		r.follow(fast, r.follower(0))
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("the other one was held up for %s", d)
		}
		st := r.sub("slow")
		if st.Feed != FeedOwn || st.Detached != 1 || st.RingEvents > 50 || r.status().RingEvents > 50 || st.Batches != 1 || st.Lag < 100 {
			t.Errorf("slow: %+v", st)
		}
		if r.h.count(&r.h.reads) != 1 {
			t.Errorf("%d readers although nobody asked for more", r.h.count(&r.h.reads))
		}
		// Outstanding batches are still its own.
		r.must(slow.Ack(ctx, held.ID, []byte("state")))
		sw.ack()
		done := make(chan struct{})
		go func() { // meanwhile the other goes on
			defer close(done)
			for range 20 {
				r.h.write(rng, 3)
				time.Sleep(time.Second)
			}
		}()
		go func() {
			for {
				b, err := fast.GetWithoutAck(ctx, Size{}, WaitAny)
				if err != nil {
					return
				}
				r.must(fast.Ack(ctx, b.ID, nil))
			}
		}()
		r.follow(slow, sw)
		<-done
		r.follow(slow, sw)
		synctest.Wait()
		if st := r.sub("slow"); st.Feed != FeedRing || string(st.Cursor.State) != "state" || st.Lag != 0 {
			t.Errorf("slow: %+v", st)
		}
		if r.h.count(&r.h.live) != 1 || r.h.count(&r.h.most) > 2 {
			t.Errorf("%d readers run, %d did at most", r.h.count(&r.h.live), r.h.count(&r.h.most))
		}
	})
}

// When nobody moves, nothing is detached: everything waits, and goes on.
func TestAllStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 50}})
		a, b := r.subscribe("a", ""), r.subscribe("b", "")
		r.start()
		r.h.write(rand.New(rand.NewPCG(1, 1)), 200)
		time.Sleep(time.Hour)
		st := r.status()
		if st.RingEvents != 50 || st.FullSince.IsZero() || st.Subscriptions[0].Feed != FeedRing || st.Subscriptions[1].Feed != FeedRing {
			t.Fatalf("%+v", st)
		}
		var wg sync.WaitGroup
		for _, c := range []*Client{a, b} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r.follow(c, r.follower(0))
			}()
		}
		wg.Wait()
		if r.h.count(&r.h.reads) != 1 || r.h.count(&r.h.live) != 1 {
			t.Errorf("%d readers were started, %d run", r.h.count(&r.h.reads), r.h.count(&r.h.live))
		}
	})
}

// However long everybody has stood still: the one who moves first is not held up by the others.
func TestFirstToMove(t *testing.T) {
	for name, late := range map[string]bool{"connected": false, "comes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 50, DetachAfter: time.Second}})
				r.subscribe("stuck", "")
				var moves *Client
				if !late {
					moves = r.subscribe("moves", "")
				}
				r.start()
				r.h.write(rand.New(rand.NewPCG(1, 1)), 200)
				time.Sleep(time.Hour)
				at := int64(0)
				if late { // behind all that the ring holds
					at = r.h.total()
					r.must(r.m.Memory.Save(ctx, id("moves"), &meta.Record{Cursor: r.h.cursor(at)}))
					moves = r.subscribe("moves", "")
					r.h.write(rand.New(rand.NewPCG(1, 2)), 50)
				}
				if st := r.sub("stuck"); st.Feed != FeedRing {
					t.Fatalf("%+v", st)
				}
				begun := time.Now()
				r.follow(moves, r.follower(at))
				if d := time.Since(begun); d != time.Second {
					t.Errorf("held up for %v", d)
				}
				if st := r.sub("stuck"); st.Feed == FeedRing || st.Detached != 1 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// One that held another up, and let it go on in time, has all the time again when it does so later.
func TestHeldUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 50, DetachAfter: time.Second}})
		fast, slow := r.subscribe("fast", ""), r.subscribe("slow", "")
		r.start()
		r.h.write(rand.New(rand.NewPCG(1, 1)), 500)
		fw, sw := r.follower(0), r.follower(0)
		some := func(c *Client, w *follower, n int) {
			b := r.get(c, Size{Events: n}, WaitAny)
			r.must(w.took(b))
			r.must(c.Ack(ctx, b.ID, nil))
			w.ack()
		}
		all := func() { // that the ring holds
			synctest.Wait()
			for r.sub("fast").Lag > 0 {
				some(fast, fw, 1000)
				synctest.Wait()
			}
		}
		all()
		time.Sleep(time.Second / 2)
		some(slow, sw, 12) // less than half
		synctest.Wait()
		if st := r.sub("fast"); st.Lag == 0 {
			t.Fatalf("%+v", st)
		}
		time.Sleep(time.Hour)
		all()
		time.Sleep(time.Second / 2)
		if st := r.sub("slow"); st.Feed != FeedRing {
			t.Fatalf("%+v", st)
		}
		time.Sleep(time.Second)
		if st := r.sub("slow"); st.Feed == FeedRing || st.Detached != 1 {
			t.Fatalf("%+v", st)
		}
	})
}

// The number of catch-up readers is limited; one whose subscription stands still gives its place back.
func TestCatchUpLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{DestinationOptions: DestinationOptions{RingEvents: 40, CatchUpReaders: 1, DetachAfter: time.Second}})
		r.h.write(rand.New(rand.NewPCG(1, 1)), 300)
		first := r.subscribe("first", "")
		r.start()
		r.follow(first, r.follower(0))
		for _, c := range []string{"b", "c", "d"} {
			r.must(r.m.Memory.Save(ctx, id(c), &meta.Record{Cursor: r.h.cursor(0)}))
		}
		b, c, d := r.subscribe("b", ""), r.subscribe("c", ""), r.subscribe("d", "")
		r.get(b, Size{Events: 1}, WaitAny) // b has the reader and stops
		if st := r.sub("b"); st.Feed != FeedCatchUp {
			t.Fatalf("b: %+v", st)
		}
		var wg sync.WaitGroup
		for _, x := range []*Client{c, d} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r.follow(x, r.follower(0))
			}()
		}
		synctest.Wait()
		if c, d := r.sub("c"), r.sub("d"); c.Feed != FeedQueued || d.Feed != FeedQueued {
			t.Errorf("c %s, d %s", c.Feed, d.Feed)
		}
		wg.Wait()
		if r.h.count(&r.h.most) > 2+1 { // the main one, one catch-up reader, and one that is just ending
			t.Errorf("%d readers at once", r.h.count(&r.h.most))
		}
		r.must(b.Rollback(ctx))
		w := r.follower(0)
		w.lastID = 1
		r.follow(b, w)
		if st := r.sub("b"); st.Feed != FeedRing {
			t.Errorf("b: %+v", st)
		}
	})
}

// A reader that stops with an error: what was read is handed out, then the error; Restart goes on.
func TestSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(2)
		synctest.Wait()
		boom := errors.New("statement-format DML in shop.t")
		r.h.do(func() { r.h.fail = boom })
		synctest.Wait()
		if st := r.status(); st.State != Failed || !errors.Is(st.Err, boom) {
			t.Fatalf("%+v", st)
		}
		w := r.follower(0)
		b := r.get(a, Size{}, WaitFull)
		r.must(w.took(b))
		var de *DestinationError
		for _, wait := range []Wait{NoWait, WaitAny, WaitFull, WaitAtMost(time.Hour)} {
			if _, err := a.GetWithoutAck(ctx, Size{}, wait); !errors.Is(err, boom) || !errors.As(err, &de) || de.Destination != "shop" {
				t.Fatal(err)
			}
		}
		r.must(a.Ack(ctx, b.ID, nil))
		w.ack()
		r.h.do(func() { r.h.fail = nil })
		r.must(r.s.Restart(ctx, "shop"))
		r.oneRow(2)
		r.follow(a, w)
		if st := r.status(); st.State != Reading || st.Err != nil {
			t.Fatalf("%+v", st)
		}
	})
}

// Cursors are saved while they move, every SaveInterval, and at Stop.
func TestSaveInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SaveInterval: time.Second})
		a := r.subscribe("a", "")
		r.start()
		before := r.m.count()
		r.oneRow(100)
		synctest.Wait() // or a batch may hold less
		for range 50 {
			b := r.get(a, Size{Events: 3}, WaitFull)
			r.must(a.Ack(ctx, b.ID, []byte("s")))
		}
		time.Sleep(time.Second + time.Millisecond)
		if n := r.m.count() - before; n != 1 {
			t.Errorf("%d saves", n)
		}
		if st := r.sub("a"); st.Saved != st.Cursor.Last() || !st.SavedAt.Equal(time.Now().Add(-time.Millisecond)) {
			t.Errorf("%+v", st)
		}
		time.Sleep(time.Hour)
		if n := r.m.count() - before; n != 1 {
			t.Errorf("%d saves although nothing moved", n)
		}
		b := r.get(a, Size{Events: 3}, WaitFull)
		r.must(a.Ack(ctx, b.ID, []byte("last")))
		r.must(r.s.Stop(ctx))
		rec, err := r.m.Load(ctx, id("a"))
		if err != nil || rec.Cursor.Last() != 102 || string(rec.Cursor.State) != "last" || rec.BatchFloor != b.ID {
			t.Errorf("%+v, %v", rec, err)
		}
		if _, err := a.GetWithoutAck(ctx, Size{}, WaitAny); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

// With interval 0 nothing is acknowledged that is not saved; Ack waits while the disk is full.
func TestSaveBeforeAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &faulty{}
		h := newHistory(true)
		s := New(Options{Meta: m})
		defer s.Stop(ctx)
		r := &rig{t: t, h: h, m: m, s: s}
		r.must(s.AddDestination("shop", h, DestinationOptions{}))
		a := r.subscribe("a", "shop.a")
		r.start()
		r.oneRow(10)
		for range 5 {
			b := r.get(a, Size{Events: 3}, WaitFull)
			r.must(a.Ack(ctx, b.ID, nil))
			cur, _ := a.Cursor(ctx)
			if rec, err := m.Load(ctx, id("a")); err != nil || rec.Cursor.Last() != cur.Last() {
				t.Fatalf("saved %+v, acknowledged %d", rec, cur.Last())
			}
		}
		m.refuse(syscall.ENOSPC)
		b := r.get(a, Size{Events: 3}, WaitFull)
		c, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var se *SaveError
		if err := a.Ack(c, b.ID, nil); !errors.As(err, &se) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		b = r.get(a, Size{Events: 3}, WaitFull)
		done := make(chan error)
		go func() { done <- a.Ack(ctx, b.ID, nil) }()
		time.Sleep(time.Minute)
		if st := r.sub("a"); !errors.Is(st.SaveErr, syscall.ENOSPC) || st.Cursor.Last() != 14 || st.Saved != 10 {
			t.Fatalf("%+v", st)
		}
		m.refuse(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if st := r.sub("a"); st.SaveErr != nil || st.Saved != 14 {
			t.Fatalf("%+v", st)
		}
		// Hidden events that are acknowledged at once are saved as well.
		r.h.do(func() { r.h.begin(); r.h.rows(1, 3, 50) })
		for range 20 {
			if b := r.get(a, Size{}, NoWait); b.ID != NoBatch {
				r.must(a.Ack(ctx, b.ID, nil))
			}
			synctest.Wait()
		}
		if rec, _ := m.Load(ctx, id("a")); rec.Cursor.Last() != h.total() {
			t.Errorf("saved %d, %d are done", rec.Cursor.Last(), h.total())
		}
	})
}

// A disk that is full for a while: subscribers go on, nothing is lost.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(10)
		r.m.refuse(syscall.ENOSPC)
		w := r.follower(0)
		r.follow(a, w)
		time.Sleep(time.Hour)
		if st := r.sub("a"); st.Saved != 0 || !errors.Is(st.SaveErr, syscall.ENOSPC) {
			t.Fatalf("%+v", st)
		}
		if n := r.m.count(); n > 3600/10+20 {
			t.Errorf("%d attempts", n)
		}
		if err := r.s.Subscribe(ctx, id("b"), ""); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a first cursor that is not saved: %v", err)
		}
		// Not even leaving loses it.
		var se *SaveError
		if err := a.Disconnect(ctx); !errors.As(err, &se) {
			t.Fatal(err)
		}
		if c, err := a.Cursor(ctx); err != nil || c.Last() != r.h.total() {
			t.Fatal(c, err)
		}
		if err := a.Subscribe(ctx, ""); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		r.m.refuse(nil)
		time.Sleep(time.Minute)
		if rec, err := r.m.Load(ctx, id("a")); err != nil || rec.Cursor.Last() != r.h.total() {
			t.Fatalf("%+v, %v", rec, err)
		}
		r.must(a.Subscribe(ctx, ""))
		w.reconnect(r.h.cursor(r.h.total()), false)
		r.oneRow(5)
		r.follow(a, w)
	})
}

// I8: once the store says that another process owns the destination, nothing is handed out or saved.
func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(10)
		b1, b2 := r.get(a, Size{Events: 3}, WaitFull), r.get(a, Size{Events: 3}, WaitFull)
		r.m.refuse(fmt.Errorf("epoch 7: %w", meta.ErrFenced))
		r.must(a.Ack(ctx, b1.ID, nil))
		time.Sleep(2 * time.Second)
		n := r.m.count()
		if err := a.Ack(ctx, b2.ID, nil); !errors.Is(err, meta.ErrFenced) {
			t.Error(err)
		}
		if _, err := a.GetWithoutAck(ctx, Size{}, NoWait); !errors.Is(err, meta.ErrFenced) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if st := r.status(); st.State != Failed || r.h.count(&r.h.live) != 0 || r.m.count() != n {
			t.Errorf("%+v, %d readers, %d saves", st, r.h.count(&r.h.live), r.m.count()-n)
		}
		// Nor by who leaves.
		if err := a.Disconnect(ctx); !errors.Is(err, meta.ErrFenced) {
			t.Error(err)
		}
		if r.m.count() != n {
			t.Error("saved when its subscriber left")
		}
		r.must(r.s.Stop(ctx))
		if r.m.count() != n {
			t.Error("saved at stop")
		}
	})
}

// Batch ids rise and are never used twice, whether the server stops in order or not.
func TestBatchIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, h := &faulty{}, newHistory(true)
		seen := map[int64]bool{}
		var last int64
		for round := range 6 {
			s := New(Options{Meta: m, SaveInterval: time.Second})
			r := &rig{t: t, h: h, m: m, s: s}
			r.must(s.AddDestination("shop", h, DestinationOptions{}))
			a := r.subscribe("a", "")
			r.start()
			r.oneRow(50)
			for range 20 {
				b := r.get(a, Size{Events: 1}, WaitAny)
				if seen[b.ID] || b.ID <= last {
					t.Fatalf("round %d: id %d after %d", round, b.ID, last)
				}
				seen[b.ID], last = true, b.ID
			}
			if ids, err := a.ListBatchIDs(ctx); err != nil || len(ids) != 20 || ids[19] != last {
				t.Fatal(ids, err)
			}
			if round%2 == 0 {
				m.refuse(errors.New("killed")) // what is saved last is from before
			}
			s.Stop(ctx)
			m.refuse(nil)
		}
		if last > 10*idBlock {
			t.Errorf("id %d after %d batches", last, len(seen))
		}

		// Ids that are used up are reserved anew, or the get says why not.
		s := New(Options{Meta: m, SaveInterval: time.Second})
		defer s.Stop(ctx)
		r := &rig{t: t, h: h, m: m, s: s}
		r.must(s.AddDestination("shop", h, DestinationOptions{}))
		a := r.subscribe("a", "")
		r.start()
		d, _ := s.destination("shop")
		d.mu.Lock()
		d.subs["a"].nextID = d.subs["a"].floor + 1
		d.mu.Unlock()
		m.refuse(syscall.ENOSPC)
		if _, err := a.GetWithoutAck(ctx, Size{}, WaitAny); !errors.Is(err, ErrBatchIDs) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		m.refuse(nil)
		if b := r.get(a, Size{}, WaitAny); b.ID <= last {
			t.Fatal(b.ID)
		}
	})
}

// Where new subscriptions begin, and that it is saved before anything else.
func TestFirstCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		if rec, err := r.m.Load(ctx, id("a")); err != nil || rec.Cursor.Ordinal != 0 || rec.Cursor.Position.Offset != 4 {
			t.Fatal(rec, err)
		}
		r.start()
		r.oneRow(10)
		r.follow(a, r.follower(0))
		b := r.get(a, Size{}, NoWait)
		if b.ID != NoBatch {
			t.Fatal(b.ID)
		}
		r.oneRow(1)
		r.must(a.Ack(ctx, r.get(a, Size{Events: 2}, WaitFull).ID, []byte("mine")))
		// Begin and row are acknowledged, the end is not: the new one begins before.
		n := r.subscribe("new", "shop.a")
		c, err := n.Cursor(ctx)
		if err != nil || c.Ordinal != 20 || c.Progress != 0 || c.State != nil || r.h.count(&r.h.starts) != 1 {
			t.Fatal(c, err, r.h.count(&r.h.starts))
		}
		r.follow(n, r.follower(20))
		// Others that are only saved count as well.
		r.must(a.Disconnect(ctx))
		r.must(n.Disconnect(ctx))
		o := r.subscribe("other", "")
		if c, _ := o.Cursor(ctx); c.Ordinal != 20 {
			t.Fatal(c)
		}
		infos, err := r.s.ListSubscriptions(ctx, "shop")
		r.must(err)
		want := []SubscriptionInfo{{id("a"), "", false}, {id("new"), "shop.a", false}, {id("other"), "", true}}
		if !slices.Equal(infos, want) {
			t.Errorf("%v", infos)
		}
		for _, w := range want {
			if info, err := r.s.Subscription(ctx, w.Identity); err != nil || info != w {
				t.Errorf("%v, %v", info, err)
			}
		}
		if _, err := r.s.Subscription(ctx, id("nobody")); !errors.Is(err, ErrNotSubscribed) {
			t.Error(err)
		}
		// Unsubscribed is forgotten.
		r.must(n.Unsubscribe(ctx))
		r.must(o.Unsubscribe(ctx))
		if infos, _ := r.s.ListSubscriptions(ctx, "shop"); len(infos) != 1 {
			t.Errorf("%v", infos)
		}
		if _, err := o.Cursor(ctx); !errors.Is(err, meta.ErrNotFound) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if _, err := r.m.Load(ctx, id("other")); !errors.Is(err, meta.ErrNotFound) {
			t.Error("saved after it was forgotten", err)
		}
	})
}

func TestResubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "shop.b")
		r.start()
		r.oneRow(2)
		got := make(chan *Batch)
		go func() { got <- r.get(a, Size{Rows: 2}, WaitFull) }()
		synctest.Wait()
		r.must(a.Subscribe(ctx, "shop.*")) // the wait goes on with the new filter
		if b := <-got; describeBatch(b) != "begin, a 1-1, end 2, begin, a 3-3" {
			t.Errorf("got %s", describeBatch(b))
		}
		time.Sleep(2 * time.Second)
		if rec, _ := r.m.Load(ctx, id("a")); rec.Filter != "shop.*" {
			t.Errorf("filter %q saved", rec.Filter)
		}
		if err := a.Subscribe(ctx, "no dot"); err == nil {
			t.Error("bad filter accepted")
		}
		b := r.subscribe("b", "whatever(", WithMatcher(matcher(func(s, t string) bool { return t == "b" })))
		r.h.do(func() { r.h.begin(); r.h.rows(0, 1, 9); r.h.rows(1, 1, 9); r.h.end() })
		if x := r.get(b, Size{Events: 7}, WaitFull); describeBatch(x) != "begin, end 2, begin, end 4, begin, b 6-6, end 7" {
			t.Errorf("got %s", describeBatch(x))
		}
	})
}

type matcher func(schema, table string) bool

func (m matcher) Match(schema, table string) bool { return m(schema, table) }

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		nobody := r.s.Client(id("nobody"))
		if _, err := nobody.GetWithoutAck(ctx, Size{}, WaitAny); !errors.Is(err, ErrNotSubscribed) {
			t.Error(err)
		}
		for _, err := range []error{nobody.Ack(ctx, 1, nil), nobody.Rollback(ctx), nobody.RollbackTo(ctx, 1), nobody.Disconnect(ctx)} {
			if !errors.Is(err, ErrNotSubscribed) {
				t.Error(err)
			}
		}
		if err := r.s.Subscribe(ctx, Identity{Destination: "none", Client: "a"}, ""); !errors.Is(err, ErrUnknownDestination) {
			t.Error(err)
		}
		if err := r.s.Subscribe(ctx, Identity{Destination: "shop", Client: "a/b"}, ""); err == nil {
			t.Error("bad name accepted")
		}
		if err := r.s.AddDestination("shop", r.h, DestinationOptions{}); err == nil {
			t.Error("added twice")
		}
		a := r.subscribe("a", "")
		r.start()
		r.oneRow(2)
		r.get(a, Size{Events: 1}, WaitAny)
		r.get(a, Size{Events: 1}, WaitAny)
		var be *BatchError
		if err := a.Ack(ctx, 2, nil); !errors.Is(err, ErrBatchOrder) || !errors.As(err, &be) || be.Oldest != 1 || be.ID != 2 {
			t.Error(err)
		}
		if err := a.Ack(ctx, 3, nil); !errors.Is(err, ErrUnknownBatch) {
			t.Error(err)
		}
		if err := a.RollbackTo(ctx, 3); !errors.Is(err, ErrUnknownBatch) || !errors.As(err, &be) || be.Op != "rollback" {
			t.Error(err)
		}
		r.must(r.s.RemoveDestination(ctx, "shop"))
		if _, err := a.GetWithoutAck(ctx, Size{}, NoWait); !errors.Is(err, ErrUnknownDestination) || r.h.count(&r.h.live) != 0 {
			t.Error(err, r.h.count(&r.h.live))
		}
		r.must(r.s.AddDestination("shop", r.h, DestinationOptions{}))
		r.must(r.s.Stop(ctx))
		if err := r.s.AddDestination("x", r.h, DestinationOptions{}); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

// Stop does not wait longer than its context for a reader that does not end.
func TestStopDeadline(t *testing.T) {
	release := make(chan struct{})
	src := stubborn{newHistory(true), release}
	m := &meta.Memory{}
	s := New(Options{Meta: m, SaveInterval: time.Second})
	if err := s.AddDestination("shop", src, DestinationOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Subscribe(ctx, id("a"), ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	// The time is over once the cursor is saved.
	c, cancel := context.WithCancel(ctx)
	go func() {
		for {
			if r, err := m.Load(ctx, id("a")); err != nil || r.BatchFloor == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := s.Stop(c); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "shop") {
		t.Errorf("%v", err)
	}
	if r, err := m.Load(ctx, id("a")); err != nil || r.BatchFloor != 0 {
		t.Errorf("not saved: %v, %v", r, err)
	}
	close(release)
}

type stubborn struct {
	*history
	release chan struct{}
}

func (s stubborn) Read(context.Context, event.Cursor, func(context.Context, []*event.Event) error) error {
	<-s.release
	return errors.New("released")
}

// Canal's clients get the transaction again that they have acknowledged in part.
func TestWholeTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		a := r.subscribe("a", "")
		r.start()
		r.h.do(func() { r.h.begin(); r.h.rows(0, 2, 10); r.h.rows(0, 3, 10); r.h.end() })
		r.must(a.Ack(ctx, r.get(a, Size{Rows: 2}, WaitFull).ID, nil))
		r.must(a.Disconnect(ctx))
		r.must(a.Subscribe(ctx, ""))
		if b := r.get(a, Size{Events: 3}, WaitFull); describeBatch(b) != "begin, a 3-5, end 6" {
			t.Errorf("got %s", describeBatch(b))
		}
		r.must(a.Disconnect(ctx))
		r.must(a.Subscribe(ctx, "", WithWholeTransaction()))
		b := r.get(a, Size{Events: 2}, WaitFull)
		if describeBatch(b) != "begin, a 1-2" {
			t.Errorf("got %s", describeBatch(b))
		}
		r.must(a.Ack(ctx, b.ID, nil))
		if c, _ := a.Cursor(ctx); c.Last() != 2 {
			t.Errorf("cursor %d", c.Last())
		}
		if b := r.get(a, Size{Events: 2}, WaitFull); describeBatch(b) != "a 3-5, end 6" {
			t.Errorf("got %s", describeBatch(b))
		}
	})
}
