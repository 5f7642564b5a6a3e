package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
	"github.com/binlogmq/binlogmq/sink"
)

// patience is how long a test waits for what must happen; only a hang uses it up.
const patience = 5 * time.Minute

// watch is a Client that checks each acknowledgement: I1.
type watch struct {
	Client
	t    testing.TB
	h    *history
	sink *faultSink
	mu   sync.Mutex
	last map[int64]int64 // batch id -> highest ordinal in it
	acks []int64         // highest ordinals acknowledged, in order
	gets func() error    // may make a get fail
	subs bool            // key changes are split; set before the bridge runs
}

func (w *watch) GetWithoutAck(ctx context.Context, size server.Size, wait server.Wait) (*server.Batch, error) {
	w.mu.Lock()
	gets := w.gets
	w.mu.Unlock()
	if gets != nil {
		if err := gets(); err != nil {
			return nil, err
		}
	}
	b, err := w.Client.GetWithoutAck(ctx, size, wait)
	if err == nil && len(b.Events) > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range b.Events {
			if e.Ordinal > 0 {
				w.last[b.ID] = e.Ordinal
				if e.Kind == event.Rows {
					w.last[b.ID] += int64(e.Rows) - 1
				}
			}
		}
	}
	return b, err
}

func (w *watch) Ack(ctx context.Context, id int64, state []byte) error {
	cursor, err := w.Client.Cursor(ctx)
	if err != nil {
		return err
	}
	st, err := ParseState(cursor.State) // saved before the first message: I5
	if err != nil || st == nil {
		w.t.Errorf("batch %d is acknowledged with state %q: %v", id, state, err)
		return errors.New("no state")
	}
	w.mu.Lock()
	last := w.last[id]
	w.acks = append(w.acks, last)
	w.mu.Unlock()
	w.sink.mu.Lock()
	for _, m := range w.h.want {
		if m.ordinal > cursor.Last() && m.ordinal <= last && (w.subs || m.sub == 0) && w.sink.confirmed[number{m.ordinal + st.Offset, m.sub}] == 0 {
			w.t.Errorf("I1: batch %d to ordinal %d is acknowledged, but message %d.%d is not confirmed", id, last, m.ordinal, m.sub)
		}
	}
	w.sink.mu.Unlock()
	return w.Client.Ack(ctx, id, state)
}

func (w *watch) acked() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.acks) == 0 {
		return 0
	}
	return slices.Max(w.acks)
}

func (w *watch) setGets(f func() error) {
	w.mu.Lock()
	w.gets = f
	w.mu.Unlock()
}

// store is one life's access to a meta store: when it is killed it saves nothing any more.
type store struct {
	*meta.Memory
	mu   sync.Mutex
	dead bool
}

func (s *store) Save(ctx context.Context, id meta.Identity, r *meta.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errors.New("killed")
	}
	return s.Memory.Save(ctx, id, r)
}

func (s *store) kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
}

// rig is one life of the process: a server, one subscription, one bridge.
type rig struct {
	t      testing.TB
	server *server.Server
	client *watch
	bridge *Bridge
	result chan error
	cancel context.CancelFunc
}

var testID = server.Identity{Destination: "d", Client: "sink-s"}

func start(t testing.TB, h *history, m meta.Store, s *faultSink, save time.Duration, change func(*Options)) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, result: make(chan error, 1)}
	r.server = server.New(server.Options{Meta: m, SaveInterval: save, DestinationOptions: server.DestinationOptions{RingEvents: 64}})
	if err := r.server.AddDestination("d", h, server.DestinationOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Subscribe(ctx, testID, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	r.client = &watch{Client: r.server.Client(testID), t: t, h: h, sink: s, last: map[int64]int64{}}
	r.bridge = testBridge(t, func(o *Options) {
		o.Client, o.Sink = r.client, s
		o.BatchEvents = 7
		o.WindowBatches = 8
		o.DrainTimeout = patience
		if change != nil {
			change(o)
		}
	})
	r.client.subs = r.bridge.o.KeyChange == SplitKeyChange && r.bridge.o.Oversize == StopOversize // else a sub-index counts parts too
	run, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	go func() { r.result <- r.bridge.Run(run) }()
	return r
}

// wait waits until the ordinal is acknowledged.
func (r *rig) wait(ordinal int64) {
	r.t.Helper()
	until(r.t, func() bool { return r.bridge.Status().Acked >= ordinal }, func() string { return fmt.Sprintf("ordinal %d acknowledged: %+v", ordinal, r.bridge.Status()) })
}

func until(t testing.TB, ok func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what())
		}
	}
}

// stopAfter ends the life in order when n messages more than from are stored, however late the test comes to see it. What is on its way
// then is stored too.
func (r *rig) stopAfter(s *faultSink, from, n int) error {
	r.t.Helper()
	until(r.t, func() bool { return s.now() >= from+n }, func() string { return "progress" })
	r.cancel()
	until(r.t, func() bool { return r.bridge.Status().State >= Draining }, func() string { return "draining" })
	s.set(func() { s.halt = 0 })
	return r.stop()
}

// stop ends the life in order.
func (r *rig) stop() error {
	r.t.Helper()
	r.cancel()
	err := <-r.result
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if serr := r.server.Stop(ctx); serr != nil {
		r.t.Error(serr)
	}
	return err
}

// kill ends the life at once: nothing is drained, acknowledged or saved any more.
func (r *rig) kill(m *store) {
	m.kill()
	r.bridge.cutNow()
	r.cancel()
	<-r.result
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.server.Stop(ctx)
}

// checkLog holds what the broker has against what it should have, modulo replays.
func checkLog(t *testing.T, h *history, s *faultSink, parts int32) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := map[lane][]number{}
	byNumber := map[number]want{}
	for _, w := range h.want {
		l := lane{w.topic, 0}
		if w.part != "" {
			l.part = sink.Partition([]byte(w.part), parts)
		}
		n := number{w.ordinal, w.sub}
		lanes[l] = append(lanes[l], n)
		byNumber[n] = w
	}
	next := map[lane]int{}   // how far the lane has come
	cursor := map[lane]int{} // where the lane is in a replay
	for _, r := range s.log {
		l, n := lane{r.topic, r.part}, number{r.seq, r.sub}
		w, ok := byNumber[n]
		if !ok || r.topic != w.topic || string(r.key) != w.key || string(r.value) != w.value {
			t.Fatalf("I5: message %v, want %+v", r, w)
		}
		i, ok := slices.BinarySearchFunc(lanes[l], n, func(a, b number) int {
			if a.seq != b.seq {
				return int(a.seq - b.seq)
			}
			return int(a.sub) - int(b.sub)
		})
		switch {
		case !ok:
			t.Fatalf("I5: message %v is in the wrong partition", r)
		case i > next[l]:
			t.Fatalf("I4: message %v comes before message %v of its lane", r, lanes[l][next[l]])
		case i == next[l]:
			next[l]++
		case i > cursor[l]:
			// A replay may leave nothing out between what it repeats.
			t.Fatalf("I4: the replay in lane %v jumps from message %v to %v", l, lanes[l][cursor[l]], n)
		}
		cursor[l] = i + 1
	}
	for l, all := range lanes {
		if next[l] != len(all) {
			t.Errorf("I7: lane %v has %d of %d messages", l, next[l], len(all))
		}
	}
	for l := range maps.Keys(next) {
		if _, ok := lanes[l]; !ok {
			t.Errorf("lane %v should be empty", l)
		}
	}
}

// TestFaultsI1I2I4I5 runs random histories into a broker that fails in every allowed way: every row arrives once in the
// order of its lane modulo replays, replays bear the same numbers, and nothing is acknowledged that is not confirmed.
func TestFaultsI1I2I4I5(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	failures := int64(0)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := randomHistory(t, rng, 100)
		s := newFaultSink(seed, []int{0, 500, 200, 100}[seed%4])
		s.inline = seed%3 == 0
		s.topicErr = []int{0, 5}[seed/2%2]
		r := start(t, h, &meta.Memory{}, s, 0, func(o *Options) {
			o.Workers = int(seed%4) - 1
			o.WindowBatches = 1 + rng.IntN(10)
			o.BatchEvents = 1 + rng.IntN(15)
		})
		r.wait(h.ord)
		if err := r.stop(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for i := 1; i < len(r.client.acks); i++ {
			if r.client.acks[i] != 0 && r.client.acks[i] < r.client.acks[i-1] {
				t.Errorf("I2: ordinal %d acknowledged after %d", r.client.acks[i], r.client.acks[i-1])
			}
		}
		st := r.bridge.Status()
		failures += st.Failures
		if st.State != Stopped || st.Err != nil || st.Acked != h.ord || st.Slabs != 0 || st.Window != 0 || st.Bugs != 0 || st.Epoch != 1 {
			t.Errorf("seed %d: status at the end: %+v", seed, st)
		}
		checkLog(t, h, s, 3)
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if failures < 10 {
		t.Errorf("only %d failures: the test tests nothing", failures)
	}
}

// TestKillsI7 kills the process again and again at random moments: the next life begins at the saved cursor, loses
// nothing and gives every message its old number.
func TestKillsI7(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 4))
		h := randomHistory(t, rng, 120)
		disk := &meta.Memory{}
		save := []time.Duration{0, time.Hour, 5 * time.Millisecond}[seed%3]
		s := newFaultSink(seed, 300)
		kills := 0
		for {
			m := &store{Memory: disk}
			r := start(t, h, m, s, save, nil)
			if kills == 12 {
				r.wait(h.ord)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				break // I7
			}
			stop := s.now() + rng.IntN(60)
			until(t, func() bool { return s.now() >= stop || r.bridge.Status().Acked >= h.ord }, func() string { return "progress" })
			if save == time.Hour && rng.IntN(2) == 0 { // a stop in order, for without any save nothing would ever advance
				if err := r.stop(); err != nil && !errors.Is(err, ErrDrain) {
					t.Error(err)
				}
			} else {
				r.kill(m)
			}
			kills++
			// What the dead process had on its way is stored or not; nobody listens.
			if err := s.Reset(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		checkLog(t, h, s, 3)
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// now is how many messages were stored.
func (s *faultSink) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// TestStopI3: a row that cannot be encoded stops this sink before it, with everything earlier sent and acknowledged, an error
// that says what and where, and the cursor kept; when the cause is gone the sink goes on there.
func TestStopI3(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	h := randomHistory(t, rng, 60)
	bad := h.want[len(h.want)/2].ordinal
	m := &meta.Memory{}
	s := newFaultSink(1, 0)
	r := start(t, h, m, s, 0, func(o *Options) {
		o.BatchEvents = 1
		o.Codec = &textCodec{fail: func(r *event.Row) error {
			if r.Ordinal == bad {
				return errors.New("this cannot be said in text")
			}
			return nil
		}}
	})
	err := <-r.result
	var stop *StopError
	if !errors.As(err, &stop) {
		t.Fatalf("Run returned %v", err)
	}
	for _, want := range []string{"destination d", "sink s", "table shop.", "position log.1:", "cannot be said", "remedy:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	st := r.bridge.Status()
	if st.State != Stopped || st.Err == nil {
		t.Errorf("status %+v", st)
	}
	first := bad
	for _, e := range h.events { // the event that holds the row: the batch
		if e.Kind == event.Rows && e.Ordinal <= bad && bad < e.Ordinal+int64(e.Rows) {
			first = e.Ordinal
		}
	}
	if got := r.client.acked(); got != first-1 {
		t.Errorf("acknowledged to %d, want %d: all before the bad event", got, first-1)
	}
	subs, lerr := r.server.ListSubscriptions(context.Background(), "d")
	if lerr != nil || len(subs) != 1 || subs[0].Connected {
		t.Errorf("subscriptions after the stop: %+v, %v", subs, lerr)
	}
	r.result <- nil
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	r = start(t, h, m, s, 0, nil)
	r.wait(h.ord)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	checkLog(t, h, s, 3)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestStopSendsWhatComesBeforeI3: of the batch and the event that hold a row that cannot be encoded, everything before
// that row is sent, and nothing of the row: else it would be lost to whoever moves the cursor behind the row.
func TestStopSendsWhatComesBeforeI3(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(7, 7)), 200)
	split := 0
	for i, w := range h.want { // a key change of the last part, whose second half fails
		if w.sub == 1 && i < len(h.want)-20 {
			split = i
		}
	}
	bad := h.want[split].ordinal
	s := newFaultSink(1, 0)
	r := start(t, h, &meta.Memory{}, s, 0, func(o *Options) {
		o.Codec = &textCodec{fail: func(r *event.Row) error {
			if r.Ordinal == bad && r.Op == event.Insert {
				return errors.New("this cannot be said in text")
			}
			return nil
		}}
	})
	var stop *StopError
	if err := <-r.result; !errors.As(err, &stop) {
		t.Fatalf("Run returned %v", err)
	}
	s.mu.Lock()
	for _, w := range h.want {
		n := s.confirmed[number{w.ordinal, w.sub}]
		if before := w.ordinal < bad; before != (n > 0) {
			t.Errorf("message %d.%d confirmed %d times; the bad row is %d", w.ordinal, w.sub, n, bad)
		}
	}
	s.mu.Unlock()
	r.result <- nil
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestOutageI9: while the broker is away nothing is lost, the window stays in its bounds, and it goes on by itself.
func TestOutageI9(t *testing.T) {
	for name, bound := range map[string]struct{ batches, bytes, most int }{"batches": {4, 1 << 30, 4}, "bytes": {1 << 20, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(6, 6))
			h := randomHistory(t, rng, 120)
			s := newFaultSink(1, 0)
			s.limit = 1
			s.set(func() { s.stalled = true })
			r := start(t, h, &meta.Memory{}, s, 0, func(o *Options) {
				o.WindowBatches, o.WindowBytes, o.BatchEvents = bound.batches, int64(bound.bytes), 7
			})
			until(t, func() bool { return s.Status().InFlight == 1 }, func() string { return "sink full" })
			for range 50 {
				if st := r.bridge.Status(); st.Batches > bound.most || st.Acked != 0 || st.State != Running {
					t.Fatalf("status %+v", st)
				}
				time.Sleep(time.Millisecond)
			}
			s.set(func() { s.stalled = false })
			r.wait(h.ord)
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			checkLog(t, h, s, 3)
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeadBrokerDoesNotStopOthers: of two sinks of one destination one gets no confirmation at all.
func TestDeadBrokerDoesNotStopOthers(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(11, 11)), 100)
	dead, alive := newFaultSink(1, 0), newFaultSink(2, 0)
	dead.set(func() { dead.stalled = true })
	ctx := context.Background()
	srv := server.New(server.Options{DestinationOptions: server.DestinationOptions{RingEvents: 32, DetachAfter: time.Millisecond}})
	if err := srv.AddDestination("d", h, server.DestinationOptions{}); err != nil {
		t.Fatal(err)
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	var bridges []*Bridge
	for i, s := range []*faultSink{dead, alive} {
		id := server.Identity{Destination: "d", Client: fmt.Sprintf("sink-%d", i)}
		if err := srv.Subscribe(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
		bridges = append(bridges, testBridge(t, func(o *Options) { o.Client, o.Sink, o.BatchEvents = srv.Client(id), s, 7 }))
	}
	if err := srv.Start(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, b := range bridges {
		wg.Go(func() { _ = b.Run(run) })
	}
	until(t, func() bool { return bridges[1].Status().Acked == h.ord }, func() string { return "the living sink's end" })
	if st := bridges[0].Status(); st.Acked > h.want[0].ordinal {
		t.Errorf("the dead sink's status: %+v", st)
	}
	dead.set(func() { dead.stalled = false })
	until(t, func() bool { return bridges[0].Status().Acked == h.ord }, func() string { return "the other sink's end" })
	cancel()
	wg.Wait()
	stop, cancelStop := context.WithTimeout(ctx, patience)
	defer cancelStop()
	if err := srv.Stop(stop); err != nil {
		t.Error(err)
	}
	for _, s := range []*faultSink{dead, alive} {
		checkLog(t, h, s, 3)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

type refusal struct{}

func (refusal) Error() string   { return "larger than the broker takes" }
func (refusal) Permanent() bool { return true }

// TestPermanentSinkErrorI3: an error that the sink marks as one that no retry mends stops the subscription; any other is retried.
func TestPermanentSinkErrorI3(t *testing.T) {
	b := testBridge(t, nil)
	var stop *StopError
	if err := b.final(fmt.Errorf("publish: %w", refusal{})); !errors.As(err, &stop) || !errors.As(err, &refusal{}) || stop.Remedy == "" {
		t.Errorf("marked: %v", err)
	}
	for _, err := range []error{errors.New("link lost"), sink.ErrReset, context.DeadlineExceeded, &server.DestinationError{Err: errors.New("no link")}, nil} {
		if got := b.final(err); got != nil {
			t.Errorf("%v: final as %v", err, got)
		}
	}
	for _, err := range []error{server.ErrStopped, server.ErrNotSubscribed, fmt.Errorf("save: %w", meta.ErrFenced)} {
		if got := b.final(err); !errors.As(got, &stop) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestDrain: a stop waits for confirmations until its deadline and says when that was over.
func TestDrain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	h := randomHistory(t, rng, 40)
	m := &meta.Memory{}
	s := newFaultSink(1, 0)
	s.limit = 10
	s.set(func() { s.stalled = true })
	r := start(t, h, m, s, 0, nil)
	until(t, func() bool { return s.Status().InFlight == 10 }, func() string { return "sink full" })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.bridge.Drain(ctx); !errors.Is(err, ErrDrain) {
		t.Errorf("Drain of a dead broker: %v", err)
	}
	if err := r.stop(); !errors.Is(err, ErrDrain) {
		t.Errorf("Run: %v", err)
	}
	if err := s.Reset(context.Background()); err != nil {
		t.Error(err)
	}
	s.set(func() { s.stalled = false })
	r = start(t, h, m, s, 0, nil)
	until(t, func() bool { return s.now() > 5 }, func() string { return "progress" })
	if err := r.bridge.Drain(context.Background()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	if st := r.bridge.Status(); st.Slabs != 0 || st.State != Stopped {
		t.Errorf("status after Drain: %+v", st)
	}
	if s.Status().InFlight != 0 {
		t.Error("messages on their way after Drain")
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	r = start(t, h, m, s, 0, nil)
	r.wait(h.ord)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	checkLog(t, h, s, 3)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestGetErrors: a server that gives nothing turns the bridge red and disturbs no message on its way.
func TestGetErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	h := randomHistory(t, rng, 40)
	s := newFaultSink(1, 0)
	r := start(t, h, &meta.Memory{}, s, 0, nil)
	red := make(chan struct{})
	r.client.setGets(func() error {
		select {
		case <-red:
			return nil
		default:
			return errors.New("no binlog")
		}
	})
	until(t, func() bool {
		err := r.bridge.Status().Err
		return r.client.acked() == h.ord || err != nil && strings.Contains(err.Error(), "no binlog")
	},
		func() string { return "red" })
	close(red)
	r.wait(h.ord)
	until(t, func() bool { return r.bridge.Status().Err == nil }, func() string { return "healthy" })
	if st := r.bridge.Status(); st.Failures != 0 {
		t.Errorf("status %+v", st)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	checkLog(t, h, s, 3)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// offsets returns the offsets that the stored messages bear, in the order of their first use.
func offsets(h *history, s *faultSink) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int64
	for _, r := range s.log {
		o := r.seq / epochStride * epochStride
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// TestNewEpochI5: with another configuration, or another number of partitions, no number is used
// again; with the same the numbers go on.
func TestNewEpochI5(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	h := randomHistory(t, rng, 800)
	m := &meta.Memory{}
	s := newFaultSink(1, 0)
	last := func() int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.log[len(s.log)-1].seq
	}
	var highest int64
	for i, c := range []struct {
		change func(*Options)
		parts  int32
		epoch  int64
	}{
		{nil, 3, 1},
		{nil, 3, 1},
		{func(o *Options) { o.KeyChange = UpdateKeyChange }, 3, 2},
		{func(o *Options) { o.KeyChange = UpdateKeyChange; o.Workers = -1 }, 3, 2},
		{func(o *Options) { o.KeyChange = UpdateKeyChange }, 5, 3},
		{nil, 5, 4},
	} {
		from := s.now()
		s.set(func() {
			s.limit, s.halt = 50, from+40 // or a slow test would find that everything is sent, and nothing left for the next steps
			for _, topic := range []string{"shop.a", "shop.b", "shop.c", "ddl"} {
				s.parts[topic] = c.parts
			}
		})
		r := start(t, h, m, s, 0, c.change)
		// A stop may find the bridge between two sessions, as a topic turns out to have another number of partitions.
		if err := r.stopAfter(s, from, 40); err != nil && !(i >= 4 && errors.Is(err, ErrDrain)) {
			t.Fatal(err)
		}
		// Several topics with another count may each begin an epoch.
		st := r.bridge.Status()
		if st.Epoch < c.epoch || i < 4 && st.Epoch != c.epoch {
			t.Errorf("step %d: epoch %d, want %d", i, st.Epoch, c.epoch)
		}
		if st.Offset != (st.Epoch-1)*epochStride {
			t.Errorf("step %d: offset %d in epoch %d", i, st.Offset, st.Epoch)
		}
		if i == 1 && st.Epochs != 0 {
			t.Errorf("a new epoch without a change")
		}
		s.mu.Lock()
		for _, rec := range s.log[from:] {
			if i >= 2 && rec.seq <= highest && rec.seq/epochStride+1 == st.Epoch && i != 3 && i != 1 {
				t.Errorf("step %d: number %d used again", i, rec.seq)
			}
			if rec.part >= c.parts {
				t.Errorf("step %d: partition %d of %d", i, rec.part, c.parts)
			}
		}
		s.mu.Unlock()
		highest = max(highest, last())
	}
	if got := offsets(h, s); len(got) < 4 || !slices.IsSorted(got) {
		t.Errorf("offsets %v", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestEpochSavedBeforeUseI5: a process that is killed after it sent messages of a new epoch and before it acknowledged any leaves the
// epoch and the numbers of partitions behind; the next one, configured differently again, uses none of its numbers.
func TestEpochSavedBeforeUseI5(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(10, 10)), 60)
	disk := &meta.Memory{}
	s := newFaultSink(1, 0)
	numbers := map[number]string{}
	for i, change := range []func(*Options){
		nil,
		func(o *Options) { o.CodecID = "other" },
		func(o *Options) { o.CodecID = "third" },
		func(o *Options) { o.CodecID = "fourth" },
	} {
		m := &store{Memory: disk}
		s.set(func() { s.limit = 30 })
		from := s.now()
		r := start(t, h, m, s, time.Hour, change)
		until(t, func() bool { return s.now() > from+10 }, func() string { return "progress" })
		r.kill(m)
		if err := s.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		saved, err := disk.Load(context.Background(), testID)
		if err != nil {
			t.Fatal(err)
		}
		st, err := ParseState(saved.Cursor.State)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		for _, rec := range s.log[from:] {
			if st.Partitions[rec.topic] != 3 {
				t.Errorf("messages were sent to %s before its number of partitions was saved: %v", rec.topic, st.Partitions)
			}
			n, by := number{rec.seq, rec.sub}, fmt.Sprint(i)
			if was, ok := numbers[n]; ok && was != by {
				t.Errorf("number %v of configuration %s is used by %s", n, was, by)
			}
			numbers[n] = by
		}
		s.mu.Unlock()
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestDamagedStateI3: a state that cannot be read stops the sink instead of starting its numbers anew.
func TestDamagedStateI3(t *testing.T) {
	b := testBridge(t, func(o *Options) { o.Client = stateClient{state: []byte(`{"v":99}`)} })
	var stop *StopError
	if err := b.Run(context.Background()); !errors.As(err, &stop) || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("Run: %v", err)
	}
	if err := b.Run(context.Background()); err == nil {
		t.Error("a second Run is accepted")
	}
}

type stateClient struct {
	fakeClient
	state []byte
}

func (c stateClient) Cursor(context.Context) (event.Cursor, error) {
	return event.Cursor{State: c.state}, nil
}
