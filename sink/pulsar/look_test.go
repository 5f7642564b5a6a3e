package pulsar

import (
	"errors"
	"math/rand/v2"
	"strings"
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
			same := func(first int64, n int) []sink.Message {
				msgs := sinktest.Messages(r, topic, 0, first, n)
				for i := range msgs {
					msgs[i].Key, msgs[i].Value, msgs[i].Headers = []byte("k"), []byte("v"), msgs[i].Headers[:1]
				}
				return msgs
			}
			if _, err := s.Publish(limit(t), same(10, 30)); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(limit(t)); err != nil {
				t.Fatal(err)
			}
			state := s.AppendState(nil)
			cl.set(func() { cl.fate = on(c.refused, refused) })
			resume := cl.pause() // or the receipts may keep pace
			if _, err := s.Publish(limit(t), same(40, 60)); err != nil {
				t.Fatal(err)
			}
			resume()
			for s.Status().InFlight > 0 {
				time.Sleep(time.Millisecond)
			}
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
				if _, err := s.Publish(limit(t), same(c.from, 150-int(c.from))); err != nil && !c.loud {
					t.Fatal(err)
				}
				for s.Status().InFlight > 0 {
					time.Sleep(time.Millisecond)
				}
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
	if done, failed := r.Count(); done != 300 || failed > 0 || s.Status().Err != nil || cl.scans != 1 {
		t.Errorf("%d are done, %d have failed, %d looks: %v", done, failed, cl.scans, s.Status().Err)
	}
	sinktest.CheckExact(t, "stored", cl.read(topic), seqRange(1, 300))
}
