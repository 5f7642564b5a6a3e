package pulsar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// I3, I9: what a look at a topic's end shows is what is there, and of what it left out nothing is claimed to be missing.
func TestProof(t *testing.T) {
	if (*proof)(nil).shows(0) || (&proof{}).shows(0) {
		t.Error("nothing was seen, and shows something")
	}
	if !(&proof{blind: true}).shows(7) {
		t.Error("a broker that is taken at its word is not believed")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		keep := 1 + rng.IntN(30)
		held := map[int64]bool{}
		p := &proof{}
		next, spans := rng.Int64N(5), rng.IntN(100)
		for range spans {
			s := span{next, next + rng.Int64N(4)}
			p.add(s, keep)
			for id := s.first; id <= s.last; id++ {
				held[id] = true
			}
			if next = s.last + 1 + rng.Int64N(3); rng.IntN(10) == 0 {
				next = max(0, next-5) // a topic without deduplication
			}
		}
		p.settle()
		if len(p.spans) > 2*keep || len(p.spans) < min(keep, spans) || p.cut != (spans > 2*keep) {
			t.Fatalf("%d of %d spans are kept, %v", len(p.spans), spans, p.cut)
		}
		for id := range next + 5 {
			if p.shows(id) != held[id] && (!p.cut || id >= p.oldest() && p.shows(id)) {
				t.Fatalf("%d is shown: %v; %+v", id, p.shows(id), p)
			}
		}
		for id := range next + 5 { // what is not asked any more is forgotten
			if !p.shows(id) {
				continue
			}
			q := *p
			q.behind(id)
			for later := id; later < next+5; later++ {
				if q.shows(later) != p.shows(later) {
					t.Fatalf("behind %d, %d is shown: %v; %+v", id, later, q.shows(later), p)
				}
			}
		}
	}
}

// I3: a process that is killed in the instant in which a message is refused that later ones have overtaken has saved nothing of it. The
// topic's end tells its successor, which takes it for lost, and nothing else. A link that is lost then is the same.
func TestKilledAtARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		gone    int   // of the topic's oldest messages
		from    int64 // cursor
		scan    error // of reading
		refused int64 // 0: none
		loud    bool
	}{
		"nothing was refused":                  {0, 15, nil, 0, false},
		"refused":                              {0, 15, nil, 50, true},
		"refused, and the rest is trimmed":     {30, 45, nil, 50, true},
		"the next one, and the rest trimmed":   {60, 45, nil, 50, false}, // nobody knows
		"the first after what was confirmed":   {0, 15, nil, 40, true},
		"all is trimmed":                       {200, 15, nil, 50, false},
		"no right to read":                     {0, 15, &wire.Error{Code: wire.CodeAuthorization, Message: "no"}, 50, false},
		"reading is not allowed":               {0, 15, &wire.Error{Code: wire.CodeNotAllowed, Message: "no"}, 50, false},
		"no right to read, nothing is missing": {0, 15, &wire.Error{Code: wire.CodeAuthorization, Message: "no"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster()
			s := newFake(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
			r := sinktest.NewRecorder(nil)
			if _, err := s.Publish(limit(t), alike(r, 10, 30, "v")); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(limit(t)); err != nil {
				t.Fatal(err)
			}
			state := s.AppendState(nil)
			cl.set(func() { cl.fate = on(c.refused, refused) })
			together(t, cl, s, alike(r, 40, 60, "v"))
			if err := s.Close(limit(t)); err != nil {
				t.Fatal(err)
			}
			cl.set(func() {
				cl.fate, cl.said, cl.scan = nil, "", c.scan
				ids := &cl.topic(topic).ids
				*ids = (*ids)[min(c.gone, len(*ids)):]
			})
			for again := range 2 {
				s = newFake(t, cl, nil)
				r = sinktest.NewRecorder(nil)
				if _, err := s.Restore(limit(t), state, sink.Same); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Publish(limit(t), alike(r, c.from, 150-int(c.from), "v")); err != nil && !c.loud {
					t.Fatal(err)
				}
				settled(s)
				err := s.Status().Err
				state = s.AppendState(nil)
				_, failed := r.Count()
				if notes := s.Notes(); c.loud != (notes > 0) && again == 0 {
					t.Errorf("%d notes", notes)
				}
				if cerr := s.Close(limit(t)); cerr != nil {
					t.Fatal(cerr)
				}
				if c.loud != (failed > 0) || c.loud && !strings.Contains(err.Error(), "may have been refused") {
					t.Fatalf("%d have failed: %v", failed, err)
				}
				if !c.loud {
					break
				}
				t.Log(err)
			}
		})
	}
}

// A clean start asks for no end of a topic, nor do new messages. What the broker does not show yet is asked for again, and nothing is
// done before.
func TestLooksAreRare(t *testing.T) {
	cl := newCluster()
	s := newFake(t, cl, nil)
	if err := publish(t, s, 1, 100); err != nil {
		t.Fatal(err)
	}
	state := s.AppendState(nil)
	old := func() []byte {
		from, err := parseState(state)
		if err != nil {
			t.Fatal(err)
		}
		from.confirmed[topic] = 50 << subIndexBits
		b := newBook()
		b.restore(from, false, false)
		return b.append(nil)
	}()
	if err := s.Close(limit(t)); err != nil {
		t.Fatal(err)
	}
	s = next(t, cl, state, sink.Same, nil)
	if err := publish(t, s, 1, 200); err != nil {
		t.Fatal(err)
	}
	if cl.scans != 0 {
		t.Errorf("%d looks in a clean start", cl.scans)
	}
	if err := s.Close(limit(t)); err != nil {
		t.Fatal(err)
	}

	cl.set(func() { cl.scan = errors.New("the topic moves") })
	s = next(t, cl, old, sink.Same, nil)
	r := sinktest.NewRecorder(nil)
	if _, err := s.Publish(limit(t), sinktest.Messages(r, topic, 0, 1, 300)); err != nil {
		t.Fatal(err)
	}
	for s.Status().Err == nil {
		time.Sleep(time.Millisecond)
	}
	if done, failed := r.Count(); done > 50 || failed > 0 || !strings.Contains(s.Status().Err.Error(), "the topic moves") {
		t.Errorf("%d are done, %d have failed: %v", done, failed, s.Status().Err)
	}
	cl.set(func() { cl.scan, cl.scans = nil, 0 })
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	healed(t, s)
	if done, failed := r.Count(); done != 300 || failed > 0 || cl.scans != 1 {
		t.Errorf("%d are done, %d have failed, %d looks: %v", done, failed, cl.scans, s.Status().Err)
	}
	sinktest.CheckExact(t, "stored", cl.read(topic), seqRange(1, 300))
}

// emits are the entries of ids from first to last.
func emits(first, last int64) (ids []int64) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

// A look goes back step by step until it has seen enough, or all. A step that fails is no reason to stay: a time by the broker's clock
// may be behind the topic's end.
func TestLookBack(t *testing.T) {
	t.Parallel()
	silent := errors.New("the broker has gone silent")
	const far = 1_060_000 // entries of a long ledger
	for name, c := range map[string]struct {
		id     int64
		ahead  time.Duration // of the last receipts that were saved
		sees   func(from wire.From) ([]int64, error)
		scans  int
		shown  bool
		failed error
	}{
		"the last ones are enough": {90, 0, func(wire.From) ([]int64, error) { return emits(50, 100), nil }, 1, true, nil},
		"by time": {40, 0, func(from wire.From) ([]int64, error) {
			if from.Entries > 0 {
				return emits(50, 100), nil
			}
			return emits(1, 100), nil
		}, 3, true, nil},
		"a time behind the end": {40, 0, func(from wire.From) ([]int64, error) {
			switch {
			case from.Entries > 0:
				return emits(50, 100), nil
			case from.Back > 0 && from.Back < lookFar:
				return nil, silent
			}
			return emits(1, 100), nil
		}, 4, true, nil},
		"times behind the end": {40, 0, func(from wire.From) ([]int64, error) {
			switch {
			case from.Entries > 0:
				return emits(50, 100), nil
			case from.Back > 0:
				return nil, silent
			}
			return emits(1, 100), nil
		}, 5, true, nil},
		"silence behind what was looked for": {40, 0, func(wire.From) ([]int64, error) { return emits(1, 60), silent }, 1, true, nil},
		"always silent":                      {40, 0, func(wire.From) ([]int64, error) { return emits(1, 30), silent }, 5, false, silent},
		"silent at last": {40, 0, func(from wire.From) ([]int64, error) {
			if from == (wire.From{}) {
				return nil, silent
			}
			return emits(50, 100), nil
		}, 5, false, silent},
		"more than is kept": {900_000, 0, func(from wire.From) ([]int64, error) {
			if from.Entries > 0 {
				return emits(far-from.Entries+1, far), nil
			}
			return emits(1, far), nil
		}, 3, true, nil},
		"a clock that was set back": {40, 3 * time.Hour, func(from wire.From) ([]int64, error) {
			switch {
			case from.Back < 0 || from.Entries == 0 && from.Back == 0:
				return nil, fmt.Errorf("back %v", from.Back)
			case from.Entries > 0:
				return emits(50, 100), nil
			}
			return emits(1, 100), nil
		}, 3, true, nil},
		"it was trimmed":   {40, 0, func(wire.From) ([]int64, error) { return emits(50, 100), nil }, 5, false, nil},
		"nothing is there": {40, 0, func(wire.From) ([]int64, error) { return nil, nil }, 5, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster()
			s := opened(t, cl, nil)
			s.book.restore(saved{seen: time.Now().Add(c.ahead).UnixMilli()}, false, false)
			cl.sees = func(_ context.Context, _ int, from wire.From, _ []int64) ([]int64, error) { return c.sees(from) }
			p, err := s.look(limit(t), fakeBackend{cl}, topic, c.id)
			if err != c.failed || cl.scans != c.scans {
				t.Fatalf("%d scans, %v", cl.scans, err)
			}
			if err == nil && (p.reaches(c.id) != c.shown || p.shows(c.id) != c.shown) {
				t.Errorf("it reaches %v and shows %v", p.reaches(c.id), p.shows(c.id))
			}
			if p != nil && len(p.spans) > 2*max(lookBehind, 2*int(s.opt.MaxInFlightMessages)) {
				t.Errorf("%d spans are kept", len(p.spans))
			}
		})
	}
}

// unclean sends sequences 10 to 99 on a new cluster, and returns the state after 39, as a crash leaves it. 0: nothing is refused.
func unclean(t *testing.T, refuse int64) (*cluster, saved) {
	t.Helper()
	cl := newCluster()
	s := newFake(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
	if err := publish(t, s, 10, 39); err != nil {
		t.Fatal(err)
	}
	state, err := parseState(s.AppendState(nil))
	if err != nil {
		t.Fatal(err)
	}
	cl.set(func() { cl.fate = on(refuse, refused) })
	together(t, cl, s, sinktest.Messages(sinktest.NewRecorder(nil), topic, 0, 40, 60))
	if err := s.Close(limit(t)); err != nil {
		t.Fatal(err)
	}
	cl.set(func() { cl.fate, cl.said, cl.scans = nil, "", 0 })
	return cl, state
}

// restarted continues with a state and publishes 15 to last. It returns the sink, and what became of them when all are done.
func restarted(t *testing.T, cl *cluster, from saved, last int64) (*Sink, *sinktest.Recorder) {
	t.Helper()
	b := newBook()
	b.restore(from, false, false)
	s := next(t, cl, b.append(nil), sink.Same, nil)
	r := sinktest.NewRecorder(nil)
	_, _ = s.Publish(limit(t), sinktest.Messages(r, topic, 0, 15, int(last)-14)) // the session may have ended while it was under way
	settled(s)
	return s, r
}

// I3: retention may take a ledger away while it is read, and the reader goes on behind it. That is no gap. One that a second look finds
// as well is.
func TestTrimmedWhileRead(t *testing.T) {
	t.Parallel()
	between := func(ids []int64, first, last int64) (seen []int64) {
		for _, id := range ids {
			if seq := id >> subIndexBits; seq >= first && seq <= last {
				seen = append(seen, id)
			}
		}
		return seen
	}
	for name, refuse := range map[string]int64{"nothing was refused": 0, "what is there still was": 80} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, state := unclean(t, refuse)
			trimmed := 0
			cl.sees = func(_ context.Context, _ int, from wire.From, ids []int64) ([]int64, error) {
				switch {
				case from.Entries > 0 || trimmed > 0:
					return between(ids, 70, 200), nil // the last ledger
				default:
					trimmed++
					return append(between(ids, 1, 30), between(ids, 70, 200)...), nil
				}
			}
			s, r := restarted(t, cl, state, 150)
			done, failed := r.Count()
			if trimmed != 1 || (failed > 0) != (refuse > 0) || refuse == 0 && done != 136 {
				t.Fatalf("%d are done, %d have failed: %v", done, failed, s.Status().Err)
			}
			if refuse > 0 && (s.Notes() != 1 || done-failed > int(refuse)-15 || !strings.Contains(s.Status().Err.Error(), "sequence 80,")) {
				t.Errorf("%d notes, %d are done: %v", s.Notes(), done-failed, s.Status().Err)
			}
		})
	}
}

// I3: an id that is noted as refused, or as left without receipt, is compared with the topic when the broker calls it a duplicate.
func TestSuspectsAreLookedAt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse, suspect int64
		gone            int // of the topic's oldest messages
		scan            error
		loud            bool
	}{
		"it is stored":               {0, 50, 0, nil, false},
		"the first one is":           {0, 40, 0, nil, false},
		"it was refused":             {50, 50, 0, nil, true},
		"another one was refused":    {60, 50, 0, nil, true},
		"it was trimmed":             {0, 50, 60, nil, true}, // nobody knows
		"it cannot be seen":          {0, 50, 0, &wire.Error{Code: wire.CodeAuthorization, Message: "no"}, true},
		"and comes behind such ones": {0, 99, 0, &wire.Error{Code: wire.CodeNotAllowed, Message: "no"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, state := unclean(t, c.refuse)
			cl.set(func() {
				cl.scan = c.scan
				ids := &cl.topic(topic).ids
				*ids = (*ids)[c.gone:]
			})
			state.suspects = map[string]int64{topic: c.suspect << subIndexBits}
			s, r := restarted(t, cl, state, 150)
			done, failed := r.Count()
			if c.loud != (failed > 0) || c.loud && !strings.Contains(s.Status().Err.Error(), "may have been refused") || !c.loud && done != 136 {
				t.Fatalf("%d are done, %d have failed: %v", done, failed, s.Status().Err)
			}
			if seen := c.gone == 0 && c.scan == nil; c.loud && c.refuse != 60 && seen == strings.Contains(s.Status().Err.Error(), leftBehind) {
				t.Errorf("seen: %v; %v", seen, s.Status().Err)
			}
			from, err := parseState(s.AppendState(nil))
			if err != nil || c.loud != (len(from.suspects) > 0) {
				t.Errorf("suspects %v, %v", from.suspects, err)
			}
		})
	}
}

// I3: what was refused is noted if something was sent behind it, not if what was sent before waits for a look.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		cl, state := unclean(t, 0)
		asked := make(chan struct{})
		var once sync.Once
		cl.sees = func(ctx context.Context, scans int, _ wire.From, ids []int64) ([]int64, error) {
			if scans == 1 {
				return ids[:60], nil // up to 69
			}
			once.Do(func() { close(asked) })
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := newBook()
		b.restore(state, false, false)
		s := next(t, cl, b.append(nil), sink.Same, nil)
		r := sinktest.NewRecorder(nil)
		if _, err := s.Publish(limit(t), alike(r, 40, 60, "large")); err != nil {
			t.Fatal(err)
		}
		<-asked // their receipts wait
		more := 1
		if behind {
			more = 10
		}
		cl.set(func() { cl.fate = on(100, denied) })
		together(t, cl, s, alike(r, 100, more, "v"))
		if _, failed := r.Count(); failed == 0 {
			t.Fatal("it was not refused")
		}
		from, err := parseState(s.AppendState(nil))
		if id, noted := from.suspects[topic]; err != nil || noted != behind || noted && id>>subIndexBits != 100 {
			t.Errorf("with something behind it (%v), suspects are %v, %v", behind, from.suspects, err)
		}
	}
}

// A topic that has as many consumers as it may have is looked at when it has one less. If it never has, that is like a topic that may
// not be read.
func TestBusyTopic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse int64
		busy   int // looks
		loud   bool
	}{
		"for a while":             {50, 3, true},
		"for good":                {50, 1 << 30, false},
		"and nothing was refused": {0, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, state := unclean(t, c.refuse)
			cl.sees = func(_ context.Context, scans int, _ wire.From, ids []int64) ([]int64, error) {
				if scans <= c.busy {
					return nil, &wire.Error{Code: wire.CodeConsumerBusy, Message: "Topic reached max consumers limit"}
				}
				return ids, nil
			}
			s, r := restarted(t, cl, state, 150)
			if done, failed := r.Count(); c.loud != (failed > 0) || !c.loud && done != 136 {
				t.Errorf("%d are done, %d have failed: %v", done, failed, s.Status().Err)
			}
			if cl.scans < min(c.busy, busyLooks) {
				t.Errorf("%d scans", cl.scans)
			}
		})
	}
}

// A look that lasts shows.
func TestLongLook(t *testing.T) {
	t.Parallel()
	cl, state := unclean(t, 0)
	b := newBook()
	b.restore(state, false, false)
	seen := make(chan struct{})
	cl.sees = func(ctx context.Context, _ int, _ wire.From, ids []int64) ([]int64, error) {
		select {
		case <-seen:
			return ids, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s := next(t, cl, b.append(nil), sink.Same, nil)
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 15, 136)
	if _, err := s.Publish(limit(t), msgs); err != nil {
		t.Fatal(err)
	}
	for ctx := limit(t); s.Status().Err == nil || !strings.Contains(s.Status().Err.Error(), "the end of the topic is being read"); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal(s.Status().Err)
		}
	}
	close(seen)
	if err := r.Wait(limit(t), len(msgs)); err != nil {
		t.Fatal(err)
	}
	if _, failed := r.Count(); failed > 0 {
		t.Error(s.Status().Err)
	}
	for ctx := limit(t); s.Status().Err != nil; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal(s.Status().Err)
		}
	}
}
