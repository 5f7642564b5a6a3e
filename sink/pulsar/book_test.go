package pulsar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

func TestState(t *testing.T) {
	b := newBook()
	want := map[string]int64{}
	for i := range 300 {
		name := fmt.Sprintf("persistent://public/default/shop.table%d-partition-%d", i/3*7919%1000, i%3)
		b.confirm(b.account(name), int64(i)<<30)
		want[name] = int64(i) << 30
	}
	b.account("unused")
	state := b.append(nil)
	if len(state) > 300*24 {
		t.Errorf("%d bytes for 300 topics", len(state))
	}
	from, err := parseState(state)
	if err != nil || time.Since(time.UnixMilli(from.seen)) > time.Minute {
		t.Fatal(from.seen, err)
	}
	got := from.confirmed
	for name, id := range want {
		if got[name] != id {
			t.Errorf("%s: %d, want %d", name, got[name], id)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d accounts", len(got))
	}
	for n := range state {
		if _, err := parseState(state[:n]); !errors.Is(err, ErrBadState) {
			t.Fatalf("%d bytes of %d: %v", n, len(state), err)
		}
	}
	b.restore(from, false, false)
	if again := b.append(nil); string(again) != string(state) {
		t.Error("a restored state differs")
	}

	// I3: what may have been refused is saved too, also of a topic of which nothing is confirmed.
	b.account("unused").suspect.Store(7)
	b.account("persistent://public/default/shop.table0-partition-0").suspect.Store(1 << 40)
	state = b.append([]byte("before"))[len("before"):]
	if from, err = parseState(state); err != nil || len(from.confirmed) != len(want) || len(from.suspects) != 2 {
		t.Fatal(len(from.confirmed), from.suspects, err)
	}
	for n := range state {
		if _, err := parseState(state[:n]); !errors.Is(err, ErrBadState) {
			t.Fatalf("%d bytes of %d: %v", n, len(state), err)
		}
	}
	b = newBook()
	b.restore(from, false, false)
	if id := b.account("unused").suspect.Load(); id != 7 {
		t.Error(id)
	}
	if again := b.append(nil); string(again) != string(state) {
		t.Error("a restored state differs")
	}
}

func FuzzParseState(f *testing.F) {
	b := newBook()
	b.confirm(b.account("persistent://a/b/c"), 5)
	b.confirm(b.account("persistent://a/b/d"), 0)
	f.Add(b.append(nil))
	f.Add([]byte{stateVersion, 0, 0})
	b.account("persistent://a/b/d").suspect.Store(1)
	f.Add(b.append(nil))
	f.Fuzz(func(t *testing.T, state []byte) {
		from, err := parseState(state)
		if err != nil {
			return
		}
		b := newBook()
		b.restore(from, false, false)
		again, err := parseState(b.append(nil))
		if err != nil || len(again.confirmed) > len(from.confirmed) || len(again.suspects) > len(from.suspects) {
			t.Fatal(err, again, from)
		}
	})
}

// next opens another sink on the cluster with what the one before has saved.
func next(t *testing.T, c *cluster, state []byte, how sink.Continuation, change func(*Options)) *Sink {
	t.Helper()
	s := opened(t, c, change)
	if fresh, err := s.Restore(limit(t), state, how); err != nil || fresh {
		t.Fatal(fresh, err)
	}
	return s
}

// publish publishes first..last and returns the error that the last of them is done with.
func publish(t *testing.T, s *Sink, first, last int64) error {
	t.Helper()
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, first, int(last-first+1))
	n, err := s.Publish(limit(t), msgs)
	if werr := r.Wait(limit(t), n); werr != nil {
		t.Fatal(werr)
	}
	if n > 0 {
		_, err = r.Result(&msgs[n-1])
	}
	return err
}

// I3, I7: a restarted sink sends nothing that was confirmed, and a broker that remembers less than was confirmed is
// gone on with only where the topic shows what is stored.
func TestForgottenBroker(t *testing.T) {
	const full = "persistent://public/default/t"
	id := func(sequence int64) int64 { return sequence << subIndexBits }
	old := func(state []byte) []byte { // the same, saved long ago
		from, err := parseState(state)
		if err != nil {
			t.Fatal(err)
		}
		from.seen = time.Now().Add(-DefaultDeduplicationWindow - time.Minute).UnixMilli()
		b := newBook()
		b.restore(from, false, false)
		return b.append(nil)
	}
	empty := old(newBook().append(nil))
	for name, c := range map[string]struct {
		confirmed int64 // by the first sink
		last, end int64 // what the broker remembers then, and the topic holds
		state     func([]byte) []byte
		how       sink.Continuation
		want      error
		stored    []int64 // besides what the first sink stored
		tails     int
	}{
		"remembers":                 {20, id(20), -1, nil, sink.Same, nil, seqRange(21, 20), 0},
		"remembers after long":      {20, id(20), -1, old, sink.Same, nil, seqRange(21, 20), 0},
		"remembers more":            {20, id(25), -1, nil, sink.Same, nil, seqRange(26, 15), 0},
		"forgot, topic has it":      {20, -1, id(25), nil, sink.Same, nil, seqRange(26, 15), 1},
		"forgot some, topic has it": {20, id(3), id(20), nil, sink.Same, nil, seqRange(21, 20), 1},
		"forgot, topic is empty":    {20, -1, -1, nil, sink.Same, ErrLostMessages, nil, 1},
		"forgot, topic has less":    {20, -1, id(19), nil, sink.Changed, ErrLostMessages, nil, 1},
		"forgot, cursor moved":      {20, -1, -1, nil, sink.Moved, nil, seqRange(1, 40), 0},
		"unknown topic, long ago":   {0, -1, id(7), func([]byte) []byte { return empty }, sink.Same, nil, seqRange(8, 33), 1},
		"new topic, long ago":       {0, -1, -1, func([]byte) []byte { return empty }, sink.Same, nil, seqRange(1, 40), 1},
		"new topic":                 {0, -1, id(7), func([]byte) []byte { return newBook().append(nil) }, sink.Same, nil, nil, 1},
		"no cursor":                 {20, id(20), id(20), func([]byte) []byte { return nil }, sink.Same, ErrNoCursor, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "new topic" {
				c.state = func([]byte) []byte { // saved now
					b := newBook()
					b.active.Store(true)
					return b.append(nil)
				}
				c.stored, c.tails = seqRange(1, 40), 0
			}
			cl := newCluster()
			first := opened(t, cl, nil)
			if c.confirmed > 0 {
				if err := publish(t, first, 1, c.confirmed); err != nil {
					t.Fatal(err)
				}
			}
			state := first.AppendState(nil)
			if err := first.Close(limit(t)); err != nil {
				t.Fatal(err)
			}
			if c.state != nil {
				state = c.state(state)
			}
			cl.set(func() {
				cl.topic(full).last, cl.end = c.last, c.end
				cl.topic(full).stored, cl.topic(full).ids = nil, nil
				for i := id(1); i <= max(c.last, c.end); i += id(1) {
					cl.topic(full).ids = append(cl.topic(full).ids, i)
				}
			})
			s := next(t, cl, state, c.how, nil)
			err := publish(t, s, 1, 40)
			if !errors.Is(err, c.want) {
				t.Fatalf("the error is %v, want %v", err, c.want)
			}
			if c.want != nil {
				var stop interface{ Permanent() bool }
				if !errors.As(err, &stop) || !stop.Permanent() || !strings.Contains(err.Error(), full) || !strings.Contains(err.Error(), "; ") {
					t.Errorf("the error is %v", err)
				}
			}
			sinktest.CheckExact(t, name, cl.read(full), c.stored)
			if cl.tails != c.tails {
				t.Errorf("the topic's end was read %d times, want %d", cl.tails, c.tails)
			}
		})
	}
}

func TestBadState(t *testing.T) {
	s := opened(t, newCluster(), nil)
	_, err := s.Restore(limit(t), []byte("nonsense"), sink.Same)
	if !errors.Is(err, ErrBadState) || !strings.Contains(err.Error(), "new-life") {
		t.Error(err)
	}
	if _, err := s.Restore(limit(t), []byte("nonsense"), sink.Moved); err != nil {
		t.Error(err)
	}
}

// Lanes that nothing is sent to are closed, earlier if there are too many, and opened again without harm, even where the
// broker has deleted the topic meanwhile.
func TestIdleLanes(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"idle":     func(o *Options) { o.IdleTimeout = time.Second },
		"too many": func(o *Options) { o.MaxProducers = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			s := opened(t, c, change)
			const lanes = 10
			send := func(first int64) {
				t.Helper()
				r := sinktest.NewRecorder(nil)
				var msgs []sink.Message
				for i := range lanes {
					msgs = append(msgs, sinktest.Messages(r, fmt.Sprint(topic, i), 0, first, 5)...)
				}
				if _, err := s.Publish(limit(t), msgs); err != nil {
					t.Fatal(err)
				}
				if err := r.Wait(limit(t), len(msgs)); err != nil {
					t.Fatal(err)
				}
				if _, failed := r.Count(); failed > 0 {
					t.Fatal(s.Status().Err)
				}
			}
			held := func() (n int) {
				c.set(func() {
					for _, tp := range c.topics {
						if tp.held {
							n++
						}
					}
				})
				return n
			}
			send(1)
			for want := map[string]int{"idle": 0, "too many": 3}[name]; held() != want; {
				time.Sleep(10 * time.Millisecond)
			}
			send(6)
			for held() > 3 {
				time.Sleep(10 * time.Millisecond)
			}
			c.set(func() { // the broker deletes what has no producer
				for _, tp := range c.topics {
					if !tp.held {
						tp.last = -1
					}
				}
			})
			send(11)
			for i := range lanes {
				sinktest.CheckExact(t, name, c.read(fmt.Sprint(topic, i)), seqRange(1, 15))
			}
			if err := s.Reset(limit(t)); err != nil {
				t.Fatal(err)
			}
			send(11) // confirmed before: none is stored again
			for i := range lanes {
				sinktest.CheckExact(t, name, c.read(fmt.Sprint(topic, i)), seqRange(1, 15))
			}
		})
	}
}

// I8: nothing is opened for a process that is not the owner.
func TestOwnerIsAsked(t *testing.T) {
	o := Options{URL: "pulsar://localhost", Deployment: "a", Destination: "b", Sink: "c", Logger: discard, Owner: func() error { return context.Canceled }}
	o, err := o.normalize()
	if err != nil {
		t.Fatal(err)
	}
	s := &Sink{opt: o}
	c, err := o.wireClient()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Open(limit(t), s.exclusive(topic), make(fateOf, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestExplainSaysItOnce: an error in another one does not say again of whom it is, and is found in it.
func TestExplainSaysItOnce(t *testing.T) {
	cause := errors.New("it said no")
	err := explain(fmt.Errorf("pulsar: cannot test it: %w", cause), "topic orders partition 0", "a", "", 0)
	if !errors.Is(err, cause) || strings.Count(err.Error(), "pulsar: ") != 1 || !strings.Contains(err.Error(), "cannot open: cannot test it: it said no") {
		t.Errorf("got %q", err)
	}
}
