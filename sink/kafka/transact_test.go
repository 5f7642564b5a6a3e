package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/binlogmq/binlogmq/sink"
)

func committed(t *testing.T, brokers []string, topic string, parts int32) (out []*kgo.Record) {
	t.Helper()
	for p := range parts {
		for _, r := range readCommittedPartition(t, brokers, topic, p) {
			out = append(out, &kgo.Record{Partition: p, Key: r.Key, Value: r.Value})
		}
	}
	return out
}

// transactions cuts messages into source transactions of some messages each.
func transactions(rnd *rand.Rand, msgs []sink.Message) {
	left := 0
	for i := range msgs {
		if left == 0 {
			left = 1 + rnd.IntN(20)
		}
		left--
		msgs[i].More = left > 0
	}
}

// I2, I5, I7: sinks that end at any instant, whatever fails on the way, and are followed by another one that replays from an
// older cursor: who reads committed only finds each message once, in order.
func TestTransactionalReplays(t *testing.T) {
	keys := func(k ...kmsg.Key) []kmsg.Key { return k }
	for _, c := range []struct {
		name   string
		faults []kfake.Fault
		moves  bool
		cut    int64
	}{
		{name: "nothing fails"},
		{name: "concurrent transactions", faults: []kfake.Fault{
			{Keys: keys(kmsg.AddPartitionsToTxn), Err: kerr.ConcurrentTransactions, Count: 60},
			{Keys: keys(kmsg.EndTxn, kmsg.InitProducerID), Err: kerr.ConcurrentTransactions, Count: 10},
		}},
		{name: "the coordinator moves", faults: []kfake.Fault{
			{Keys: keys(kmsg.AddPartitionsToTxn), Err: kerr.NotCoordinator, Count: 8}, {Keys: keys(kmsg.EndTxn), Err: kerr.CoordinatorLoadInProgress, Count: 8},
			{Keys: keys(kmsg.InitProducerID, kmsg.FindCoordinator), Err: kerr.CoordinatorNotAvailable, Count: 4},
		}},
		{name: "the epoch is refused", faults: []kfake.Fault{
			{Keys: keys(kmsg.Produce), Err: kerr.InvalidProducerEpoch, Count: 2}, {Keys: keys(kmsg.EndTxn), Err: kerr.ProducerFenced, Count: 2},
			{Keys: keys(kmsg.AddPartitionsToTxn), Err: kerr.InvalidTxnState, Count: 2},
		}},
		{name: "replicas are missing", faults: []kfake.Fault{
			{Keys: keys(kmsg.Produce), Err: kerr.NotEnoughReplicas, Count: 10}, {Keys: keys(kmsg.Produce), Err: kerr.NotEnoughReplicasAfterAppend, Count: 8},
		}},
		{name: "leaders move", moves: true},
		{name: "answers are lost", cut: 23},
		{name: "all at once", moves: true, cut: 60, faults: []kfake.Fault{
			{Keys: keys(kmsg.EndTxn), Err: kerr.NotCoordinator, Count: 5}, {Keys: keys(kmsg.Produce), Err: kerr.NotLeaderForPartition, Count: 10},
			{Keys: keys(kmsg.AddPartitionsToTxn), Err: kerr.ConcurrentTransactions, Count: 30},
		}},
	} {
		for _, inflight := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/%d in flight", c.name, inflight), func(t *testing.T) {
				t.Parallel()
				var cut cutter
				cl := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "shop"), kfake.ListenFn(cut.listen))
				var h *kfake.FaultHandle
				if c.faults != nil {
					h = cl.Fault(c.faults...)
				}
				cut.every.Store(c.cut)
				o := Options{Brokers: cl.ListenAddrs(), BatchBytes: 2000, RequestsInFlight: inflight, CommitInterval: 3 * time.Millisecond, RequestTimeout: 5 * time.Second}
				const total = 3000
				r := replayer{o: o, topic: "shop", parts: 6, total: total, seed: uint64(inflight)}
				if err := r.run(t, func(rnd *rand.Rand) {
					if c.moves {
						cl.ShufflePartitionLeaders()
					}
				}); err != nil {
					t.Fatal(err)
				}
				cut.every.Store(0)
				if h != nil {
					h.Remove()
				}
				if c.cut > 0 && cut.cuts.Load() == 0 {
					t.Error("no connection was cut")
				}
				verify(t, committed(t, cl.ListenAddrs(), "shop", 6), total)
			})
		}
	}
}

// replayer publishes messages 0..total-1 through many sinks, each of which ends at some instant.
type replayer struct {
	o     Options
	topic string
	parts int32
	total int
	seed  uint64
}

func (r *replayer) run(t *testing.T, between func(*rand.Rand)) error {
	rnd := rand.New(rand.NewPCG(2, r.seed))
	ctx := ctxFor(t, patience)
	cursors := []saved{{}}
	all := numbered(nil, r.topic, r.parts, 0, r.total)
	transactions(rnd, all)
	for life := 0; ; life++ {
		from := cursors[max(0, len(cursors)-1-rnd.IntN(4))]
		s := newTransactional(t, r.o, from.state, sink.Same)
		if from.at == 0 { // as the owner does before it publishes
			cursors[0].state = s.AppendState(nil)
		}
		at := from.at
		last := life > 40
		for at < r.total && (last || rnd.IntN(12) > 0) {
			n, err := r.session(ctx, s, rnd, all, at, last)
			if permanent(err) {
				return err
			}
			if at += n; err != nil {
				if err := s.Reset(ctx); err != nil {
					return err
				}
			}
		}
		if err := s.Close(ctx); err != nil {
			return err
		}
		if at == r.total {
			return nil
		}
		cursors = append(cursors, saved{at, s.AppendState(nil)})
		between(rnd)
	}
}

// session publishes from message at on until something fails or some are published, and acknowledges what is done. It returns how many are.
func (r *replayer) session(ctx context.Context, s *Sink, rnd *rand.Rand, all []sink.Message, at int, last bool) (int, error) {
	var f fates
	var err error
	next := at
	var marks []saved
	for next < r.total && err == nil && (last || rnd.IntN(8) > 0) {
		n := min(1+rnd.IntN(150), r.total-next)
		msgs := numbered(&f, r.topic, r.parts, next, n)
		for i := range msgs {
			msgs[i].More = all[next+i].More
		}
		if n, err = s.Publish(ctx, msgs); n > 0 {
			next += n
			marks = append(marks, saved{at: next, state: fmt.Append(nil, s.Mark())})
		}
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
	}
	if err == nil {
		err = s.Flush(ctx)
	}
	var acked int
	for _, m := range marks { // the owner acknowledges whole batches only
		for k := at + acked; k < m.at; k++ {
			f.mu.Lock()
			e, ok := f.of[int64(k)]
			f.mu.Unlock()
			if !ok || e != nil {
				if err == nil {
					err = errors.Join(e, errors.New("not done"))
				}
				return acked, err
			}
		}
		var mark int64
		if _, err := fmt.Sscan(string(m.state), &mark); err != nil {
			return acked, err
		}
		s.Acknowledge(mark)
		acked = m.at - at
	}
	return acked, err
}

// The skipping of what the cursor record covers matters: without it messages are doubled.
func TestTransactionalGuardMatters(t *testing.T) {
	for without, want := range map[guard]int{nothing: 20, skipping: 30} {
		cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
		o := Options{Brokers: cl.ListenAddrs(), CommitInterval: -1, without: without}
		s := newTransactional(t, o, nil, sink.Same)
		state := s.AppendState(nil)
		if err := firstError(t, s, "shop", 1, 0, 10); err != nil {
			t.Fatal(err)
		}
		if err := firstError(t, newTransactional(t, o, state, sink.Same), "shop", 1, 0, 20); err != nil {
			t.Fatal(err)
		}
		if n := len(committed(t, cl.ListenAddrs(), "shop", 1)); n != want {
			t.Errorf("guard %d: %d messages visible, want %d", without, n, want)
		}
	}
}

func one(owner sink.Owner, seq int, more bool) []sink.Message {
	m := numbered(owner, "shop", 1, seq, 1)
	m[0].More = more
	return m
}

// A commit never cuts a source transaction, unless the owner presses, flushes, or it is too large: then it is counted.
func TestCommitsAtTransactionEnds(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	ctx := ctxFor(t, patience)
	s := newTransactional(t, Options{Brokers: cl.ListenAddrs(), CommitInterval: time.Millisecond, MaxTransactionBytes: 4000}, nil, sink.Same)
	var f fates
	seq := 0
	publish := func(more bool) {
		t.Helper()
		if _, err := s.Publish(ctx, one(&f, seq, more)); err != nil {
			t.Fatal(err)
		}
		seq++
	}
	done := func(n int, spread int64) {
		t.Helper()
		for ctx.Err() == nil {
			if ok, errs := f.count(); ok >= n && s.Status().Spread >= spread || len(errs) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		if ok, errs := f.count(); ok != n || len(errs) > 0 || s.Status().Spread != spread {
			t.Fatalf("%d done, want %d; errors %v, %d spread, want %d", ok, n, errs, s.Status().Spread, spread)
		}
		if got := len(readCommittedPartition(t, cl.ListenAddrs(), "shop", 0)); got != n {
			t.Fatalf("%d visible, want %d", got, n)
		}
	}
	still := func(n int) {
		t.Helper()
		time.Sleep(50 * time.Millisecond)
		if ok, _ := f.count(); ok != n {
			t.Fatalf("%d done in the midst of a transaction, want %d", ok, n)
		}
	}
	publish(false)
	done(1, 0)
	for range 10 {
		publish(true)
	}
	still(1)
	publish(false)
	done(12, 0)
	publish(true)
	still(12)
	s.EndTransaction() // what followed it yields no message
	done(13, 0)
	publish(true)
	s.Yield()
	done(14, 1)
	publish(true)
	s.Yield()
	done(15, 1) // the same transaction
	publish(false)
	done(16, 1)
	publish(true)
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	done(17, 2)
	s.EndTransaction()
	for range 500 { // about 15 bytes each
		publish(true)
	}
	for ok, _ := f.count(); (ok < 100 || s.Status().Spread < 3) && ctx.Err() == nil; ok, _ = f.count() {
		time.Sleep(time.Millisecond)
	}
	if n := s.Status().Spread; n != 3 {
		t.Errorf("%d spread", n)
	}
	publish(false)
	done(518, 3)
	publish(false)
	publish(true) // never ends
	if err := s.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	if ok, errs := f.count(); ok != 519 || len(errs) != 1 || !errors.Is(errs[0], sink.ErrReset) {
		t.Errorf("after Finish %d done, errors %v", ok, errs)
	}
	if got := len(readCommittedPartition(t, cl.ListenAddrs(), "shop", 0)); got != 519 {
		t.Errorf("%d visible after Finish", got)
	}
	if n := s.Status().Commits; n < 8 {
		t.Errorf("%d commits", n)
	}
}

// A transaction that does not end is spread after half of its timeout.
func TestSlowTransactionIsSpread(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	ctx := ctxFor(t, patience)
	s := newTransactional(t, Options{Brokers: cl.ListenAddrs(), CommitInterval: time.Millisecond, TransactionTimeout: 5 * time.Second}, nil, sink.Same)
	var f fates
	if _, err := s.Publish(ctx, one(&f, 0, true)); err != nil {
		t.Fatal(err)
	}
	for ok, _ := f.count(); (ok < 1 || s.Status().Spread < 1) && ctx.Err() == nil; ok, _ = f.count() {
		time.Sleep(time.Millisecond)
	}
	if n := s.Status().Spread; n != 1 {
		t.Errorf("%d spread", n)
	}
}

// I8: the successor writes, and the one before stops with an error that says why, also when it wakes up late.
func TestSuccessorFences(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	ctx := ctxFor(t, patience)
	old := newTransactional(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same)
	if err := firstError(t, old, "shop", 1, 0, 10); err != nil {
		t.Fatal(err)
	}
	young := newTransactional(t, Options{Brokers: cl.ListenAddrs()}, old.AppendState(nil), sink.Same)
	if err := firstError(t, young, "shop", 1, 0, 20); err != nil { // ten of which are there
		t.Fatal(err)
	}
	err := firstError(t, old, "shop", 1, 10, 10)
	if err == nil || permanent(err) && !errors.Is(err, ErrFencedOut) {
		t.Fatalf("the old one goes on: %v", err)
	}
	if err := old.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if err = firstError(t, old, "shop", 1, 10, 10); !errors.Is(err, ErrFencedOut) || !permanent(err) || !strings.Contains(err.Error(), "test/shop/out") {
		t.Errorf("after a reset: %v", err)
	}
	if err := firstError(t, young, "shop", 1, 20, 10); err != nil {
		t.Errorf("the successor was fenced: %v", err)
	}
	verify(t, committed(t, cl.ListenAddrs(), "shop", 1), 30)
}

func restored(t *testing.T, o Options, state []byte, how sink.Continuation) (*Sink, bool, error) {
	t.Helper()
	o.Delivery, o.Topics.Create = Transactional, true
	o.Deployment, o.Destination, o.Sink = "test", "shop", "out"
	s := newSink(t, o)
	fresh, err := s.Restore(ctxFor(t, patience), state, how)
	return s, fresh, err
}

// I2: the cursor record is the truth; one that lies behind what was acknowledged, a newer generation and a changed
// configuration before all is acknowledged stop the sink.
func TestTransactionalRestore(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	o := Options{Brokers: cl.ListenAddrs()}
	s := newTransactional(t, o, nil, sink.Same)
	first := s.AppendState(nil)
	if err := firstError(t, s, "shop", 1, 0, 10); err != nil {
		t.Fatal(err)
	}
	mark := s.Mark()
	if err := firstError(t, s, "shop", 1, 10, 10); err != nil {
		t.Fatal(err)
	}
	s.Acknowledge(mark)
	half := s.AppendState(nil)
	s.Acknowledge(s.Mark())
	whole := s.AppendState(nil)

	_, fresh, err := restored(t, o, half, sink.Same)
	if err != nil || fresh {
		t.Fatal(fresh, err)
	}
	if _, _, err := restored(t, o, half, sink.Changed); !errors.Is(err, ErrNotDrained) || !permanent(err) {
		t.Errorf("changed with messages committed and not acknowledged: %v", err)
	}
	settled := func(state []byte, want error) {
		t.Helper()
		o.Delivery, o.Topics.Create, o.Deployment, o.Destination, o.Sink = Transactional, true, "test", "shop", "out"
		k := newSink(t, o)
		if err := k.Settled(ctxFor(t, patience), state); !k.KeepsRecord() || !errors.Is(err, want) || (want != nil) != permanent(err) {
			t.Errorf("state %s: %v, want %v", state, err, want)
		}
	}
	settled(first, ErrNotAcknowledged)
	settled(half, ErrNotAcknowledged)
	settled(whole, nil)
	settled(nil, nil)
	settled([]byte("{"), errState)
	replay, _, err := restored(t, o, first, sink.Same)
	if err != nil {
		t.Fatal(err)
	}
	passed, err := replay.Replayed(ctxFor(t, patience))
	if err != nil || passed() {
		t.Fatalf("replayed before it began: %v", err)
	}
	if err := firstError(t, replay, "shop", 1, 0, 20); err != nil {
		t.Fatal(err)
	}
	replay.Acknowledge(replay.Mark())
	if !passed() {
		t.Error("not replayed at the end")
	}
	verify(t, committed(t, cl.ListenAddrs(), "shop", 1), 20)

	var ahead tenure
	if err := json.Unmarshal(whole, &ahead); err != nil {
		t.Fatal(err)
	}
	*ahead.Sequence += 5
	b, err := json.Marshal(&ahead)
	if err != nil {
		t.Fatal(err)
	}
	settled(b, ErrCursorBehind)
	if _, _, err := restored(t, o, b, sink.Same); !errors.Is(err, ErrCursorBehind) || !permanent(err) {
		t.Errorf("acknowledged beyond what is committed: %v", err)
	}
	young, fresh, err := restored(t, o, whole, sink.Changed)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	if err := firstError(t, young, "shop", 1, 20, 10); err != nil {
		t.Fatal(err)
	}
	settled(whole, ErrSuperseded)
	if _, _, err := restored(t, o, whole, sink.Same); !errors.Is(err, ErrSuperseded) || !permanent(err) {
		t.Errorf("a cursor of an older generation: %v", err)
	}
	for _, bad := range []string{`{"transactional":9}`, `{`, `{"transactional":1,"generation":0}`} {
		if _, _, err := restored(t, o, []byte(bad), sink.Same); !permanent(err) {
			t.Errorf("state %s: %v", bad, err)
		}
		if _, fresh, err := restored(t, o, []byte(bad), sink.Moved); err != nil || !fresh {
			t.Errorf("state %s, moved: %t, %v", bad, fresh, err)
		}
	}
	// Another kind of delivery begins anew, both ways.
	seq := newSequenced(t, o, whole, sink.Same)
	if _, fresh, err := restored(t, o, seq.AppendState(nil), sink.Same); err != nil || !fresh {
		t.Errorf("the state of sequenced delivery: %t, %v", fresh, err)
	}
	verify(t, committed(t, cl.ListenAddrs(), "shop", 1), 30)
}

// I7: whatever else lies in a part of the log, the last committed record is found, or it is said that it may lie before.
func TestCursorScan(t *testing.T) {
	type step struct {
		producer int64
		seq      int64 // of a record; 0: the end of the transaction
		commit   bool
	}
	record := func(producer, seq int64) step { return step{producer: producer, seq: seq} }
	commit, abort := func(producer int64) step { return step{producer: producer, commit: true} }, func(producer int64) step { return step{producer: producer} }
	for name, c := range map[string]struct {
		steps  []step
		want   int64 // 0: none
		unsure bool
	}{
		"nothing":                            {nil, 0, false},
		"committed":                          {[]step{record(1, 5), commit(1)}, 5, false},
		"aborted":                            {[]step{record(1, 5), commit(1), record(1, 6), abort(1)}, 5, false},
		"open":                               {[]step{record(1, 5), commit(1), record(1, 6)}, 5, false},
		"the last of one":                    {[]step{record(1, 5), record(1, 6), commit(1)}, 6, false},
		"the last to commit":                 {[]step{record(1, 5), record(2, 6), commit(2), commit(1)}, 5, false},
		"begun before":                       {[]step{record(1, 5), commit(1), commit(2)}, 5, true},
		"begun before, and one after":        {[]step{commit(2), record(1, 5), commit(1)}, 5, false},
		"only what began before":             {[]step{commit(1)}, 0, true},
		"a marker twice":                     {[]step{record(1, 5), commit(1), commit(1)}, 5, false},
		"a marker twice, long after":         {[]step{record(1, 5), commit(1), record(2, 6), commit(2), commit(1)}, 6, false},
		"a marker twice, of what was before": {[]step{commit(1), commit(1)}, 0, true},
		"an end twice":                       {[]step{record(1, 5), commit(1), record(1, 6), abort(1), abort(1)}, 5, false},
	} {
		scan := newCursorScan()
		for _, s := range c.steps {
			if s.seq > 0 {
				scan.record(s.producer, fmt.Appendf(nil, `{"v":1,"generation":1,"sequence":%d}`, s.seq))
			} else if err := scan.end(s.producer, s.commit); err != nil {
				t.Fatal(err)
			}
		}
		got := int64(0)
		if scan.found {
			got = *scan.rec.Sequence
		}
		if got != c.want || scan.unsure != c.unsure {
			t.Errorf("%s: sequence %d, unsure %t; want %d, %t", name, got, scan.unsure, c.want, c.unsure)
		}
	}
}

// The search finds the last committed record wherever it lies, and never an aborted one.
func TestCursorIsFound(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	ctx := ctxFor(t, patience)
	s := newTransactional(t, Options{Brokers: cl.ListenAddrs(), CommitInterval: -1}, nil, sink.Same)
	for i := range 5 {
		if err := firstError(t, s, "shop", 1, i, 1); err != nil {
			t.Fatal(err)
		}
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(cl.ListenAddrs()...), kgo.TransactionalID("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i := range 700 { // of others, aborted: beyond the first spans
		if err := other.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := other.ProduceSync(ctx, &kgo.Record{Topic: s.cursorTopic(), Key: cursorKey, Value: fmt.Appendf(nil, "{%d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := other.EndTransaction(ctx, kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
	}
	rec, found, err := s.readCursor(ctx, true)
	if err != nil || !found || rec.Sequence == nil || *rec.Sequence != 4 {
		t.Fatalf("%+v, %t, %v", rec, found, err)
	}
	if err := firstError(t, s, "shop", 1, 5, 1); err != nil {
		t.Fatal(err)
	}
	if rec, _, err = s.readCursor(ctx, true); err != nil || *rec.Sequence != 5 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A transaction that nobody ends shows in the health of whoever writes to the topic, and stops who must read the cursor.
func TestHangingTransaction(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "shop"))
	ctx := ctxFor(t, patience)
	o := Options{Brokers: cl.ListenAddrs(), watchEvery: 10 * time.Millisecond, hangAfter: 50 * time.Millisecond}
	s := newTransactional(t, o, nil, sink.Same)
	if err := firstError(t, s, "shop", 2, 0, 10); err != nil {
		t.Fatal(err)
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(cl.ListenAddrs()...), kgo.TransactionalID("other"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"shop", s.cursorTopic()} {
		if err := other.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for s.Status().Hanging != 2 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	err = s.Status().Err
	for err == nil && ctx.Err() == nil { // a moment later
		time.Sleep(time.Millisecond)
		err = s.Status().Err
	}
	if !errors.Is(err, ErrHanging) || !strings.Contains(err.Error(), "find-hanging") {
		t.Errorf("status %v", err)
	}
	o.disagreeAfter = 100 * time.Millisecond
	if _, _, err := restored(t, o, s.AppendState(nil), sink.Same); !errors.Is(err, ErrHanging) || !permanent(err) {
		t.Errorf("restored with an undecided cursor: %v", err)
	}
	if err := other.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	for s.Status().Hanging != 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// Our own transaction that waits for its end is none that hangs.
func TestOwnTransactionDoesNotHang(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	ctx := ctxFor(t, patience)
	s := newTransactional(t, Options{Brokers: cl.ListenAddrs(), watchEvery: 5 * time.Millisecond, hangAfter: 20 * time.Millisecond}, nil, sink.Same)
	var f fates
	if _, err := s.Publish(ctx, one(&f, 0, true)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		time.Sleep(2 * time.Millisecond)
		if n := s.Status().Hanging; n > 0 {
			t.Fatalf("%d partitions hang", n)
		}
	}
}

// The cursor topic is made as it must be, and refused otherwise.
func TestCursorTopic(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "binlogmq.test.shop.out.cursor"))
	if _, _, err := restored(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same); !permanent(err) || !strings.Contains(err.Error(), "2 partitions") {
		t.Errorf("two partitions: %v", err)
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		if _, err := c.DeleteTopics(ctx, "binlogmq.test.shop.out.cursor"); err != nil {
			return err
		}
		_, err := c.CreateTopic(ctx, 1, 1, nil, "binlogmq.test.shop.out.cursor")
		return err
	})
	if _, _, err := restored(t, Options{Brokers: cl.ListenAddrs()}, nil, sink.Same); !permanent(err) || !strings.Contains(err.Error(), "cleanup.policy") {
		t.Errorf("not compacted: %v", err)
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		_, err := c.DeleteTopics(ctx, "binlogmq.test.shop.out.cursor")
		return err
	})
	s := newTransactional(t, Options{Brokers: cl.ListenAddrs(), Topics: Topics{Partitions: 7}}, nil, sink.Same)
	conf, err := s.describeTopic(ctxFor(t, patience), s.cursorTopic(), configCleanup)
	if err != nil || conf[configCleanup] != "compact" {
		t.Errorf("%v, %v", conf, err)
	}
}

// Check names what transactional delivery needs.
func TestTransactionalCheck(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "shop"))
	o := Options{Brokers: cl.ListenAddrs(), Delivery: Transactional, Deployment: "test", Destination: "shop", Sink: "out", Topics: Topics{Create: true}}
	s := newSink(t, o)
	found := fmt.Sprintf("%+v", s.CheckTopics(ctxFor(t, patience), "shop"))
	if strings.Count(found, "delivery: transactional with replication factor 1") != 2 { // the topic, and the cursor's that is to be created
		t.Errorf("findings %s", found)
	}
	for level, warns := range map[int16]bool{kafka43 - 1: false, kafka43: true, kafka44: true, kafka44 + 1: false, 0: false} {
		k := &checker{s: s, level: level}
		if k.forgetful(); (len(k.found) == 1 && k.found[0].Severity == sink.SeverityWarning) != warns {
			t.Errorf("level %d: %+v", level, k.found)
		}
		// With room for one broker to end there is nothing to say of a topic, with one replica there is, whatever the release.
		k.found = nil
		k.frail("topic shop", 3, 2, "")
		k.frail("topic shop", 3, 0, "")
		k.frail("topic shop", 0, 0, "")
		if len(k.found) > 0 {
			t.Errorf("level %d: %+v", level, k.found)
		}
		k.frail("topic shop", 3, 1, "do this")
		k.frail("topic shop", 1, 0, "do this")
		if len(k.found) != 2 || !strings.HasPrefix(k.found[0].Remedy, "do this\n") || strings.Contains(k.found[1].What, "min.insync") {
			t.Errorf("level %d: %+v", level, k.found)
		}
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		_, err := c.CreateTopic(ctx, 1, 1, nil, s.cursorTopic())
		return err
	})
	h := cl.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	found = fmt.Sprintf("%+v", s.CheckTopics(ctxFor(t, patience), "shop"))
	h.Remove()
	for _, part := range []string{"cleanup.policy=", "--transactional-id test/shop/out"} {
		if !strings.Contains(found, part) {
			t.Errorf("%q is not in %s", part, found)
		}
	}
}

func FuzzMetadataLevel(f *testing.F) {
	res := kmsg.NewPtrApiVersionsResponse()
	res.Version = 3
	k := kmsg.NewApiVersionsResponseApiKey()
	k.MaxVersion = 5
	res.ApiKeys = append(res.ApiKeys, k, k)
	for _, name := range []string{"kraft.version", metadataFeature} {
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MaxVersion = name, 33
		res.SupportedFeatures = append(res.SupportedFeatures, s)
	}
	whole := res.AppendTo(nil)
	if n, err := parseMetadataLevel(whole); n != 33 || err != nil {
		f.Fatalf("level %d, %v", n, err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		parseMetadataLevel(b) //nolint:errcheck // must not panic
	})
}

func FuzzCursorRecord(f *testing.F) {
	y := newTally()
	y.tenure.Generation = 3
	m := y.record("cursor", mark{7, 1, true})
	raw, _, err := appendBatch(nil, batchParams{transactional: true}, []entry{newEntry(m, 0)}, mustCompressor(f, "none", 0), nil)
	if err != nil {
		f.Fatal(err)
	}
	key, value, found, control, err := record(raw)
	if rec, e := parseCursor(value); err != nil || e != nil || !found || control || string(key) != "cursor" || rec.mark() != (mark{7, 1, true}) || rec.Generation != 3 || rec.Owner != y.owner {
		f.Fatalf("%q %q %t %t %v", key, value, found, control, err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > batchAttrAt+1 && b[batchAttrAt+1]&7 != 0 {
			return
		}
		_, value, _, _, err := record(b)
		if err == nil {
			parseCursor(value) //nolint:errcheck // must not panic
		}
		parseTenure(b) //nolint:errcheck // must not panic
	})
}
