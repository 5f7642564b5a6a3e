package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/testenv/lockedbuf"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/sink"
)

// stubCodec is textCodec with stubs of a fixed size.
type stubCodec struct{ textCodec }

func (c *stubCodec) AppendStub(dst []byte, r *event.Row, _ []int, room int) ([]byte, error) {
	return codec.Fits(fmt.Appendf(dst, "stub of %s %d", r.Op, r.Ordinal), len(dst), room)
}

func (c *stubCodec) AppendDDLStub(dst []byte, e *event.Event, room int) ([]byte, error) {
	return codec.Fits(append(dst, "stub of ddl"...), len(dst), room)
}

// limitSink is a faultSink whose topics have a limit, and whose broker may have another.
type limitSink struct {
	*faultSink
	limit   atomic.Int64 // that it tells
	large   atomic.Int64 // that it holds messages to; 0: none
	refused atomic.Int64
	publish atomic.Int64
}

func (s *limitSink) MessageLimit(context.Context, string) (int, error) {
	return int(s.limit.Load()), nil
}

func (s *limitSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	s.publish.Add(1)
	for i := range msgs {
		if large := s.large.Load(); large > 0 && int64(msgs[i].Framed()) > large {
			n, err := s.faultSink.Publish(ctx, msgs[:i])
			if err != nil {
				return n, err
			}
			s.refused.Add(1)
			err = sink.TooLarge(&msgs[i], fmt.Errorf("topic %s: the broker takes %d bytes", msgs[i].Topic, large))
			s.set(func() { s.abort(err) })
			return i, err
		}
	}
	return s.faultSink.Publish(ctx, msgs)
}

// oversize are options of a bridge whose limit is so many bytes.
func oversize(how Oversize, limit int) func(*Options) {
	return func(o *Options) {
		o.Codec, o.Oversize, o.MaxMessageBytes = &stubCodec{}, how, limit
		if how == DeadLetterOversize {
			o.DeadLetterTopic = "{schema}.{table}.large"
		}
	}
}

// joined are messages with the parts put together as a consumer does, and how many parts there were.
func joined(t *testing.T, rs []*record, limit int) (out []*record, parts int) {
	t.Helper()
	var whole *record
	var have, of int
	for _, r := range rs {
		size := len(r.key) + len(r.value) + frameOf(r)
		if size > limit {
			t.Fatalf("%d bytes, the limit is %d: %v", size, limit, r)
		}
		text, ok := r.headers[partHeader]
		if !ok {
			if whole != nil {
				t.Fatalf("%v comes between parts", r)
			}
			out = append(out, r)
			continue
		}
		var k, n int
		if _, err := fmt.Sscanf(text, "%d/%d", &k, &n); err != nil || k < 1 || k > n || n < 2 {
			t.Fatalf("part %q: %v", text, err)
		}
		parts++
		switch {
		case whole == nil && k == 1:
			c := *r
			c.value = bytes.Clone(r.value)
			whole, have, of = &c, 1, n
		case whole != nil && k == have+1 && n == of && whole.seq == r.seq && bytes.Equal(whole.key, r.key) && whole.topic == r.topic && whole.part == r.part:
			whole.value = append(whole.value, r.value...)
			have++
		default:
			t.Fatalf("part %s of %v after %d/%d of %v", text, r, have, of, whole)
		}
		if have == of {
			out, whole = append(out, whole), nil
		}
	}
	if whole != nil {
		t.Fatalf("%d of %d parts: %v", have, of, whole)
	}
	return out, parts
}

// consecutive holds the sub-indexes of each change's messages to be 0, 1, 2, ...
func consecutive(t *testing.T, rs []*record) {
	t.Helper()
	for i, r := range rs {
		if i > 0 && rs[i-1].seq == r.seq {
			if rs[i-1].sub+1 != r.sub {
				t.Fatalf("I5: %v follows %v", r, rs[i-1])
			}
		} else if r.sub != 0 {
			t.Fatalf("I5: %v comes first of its change", r)
		}
	}
}

// frameOf is what sink.Message.Framed adds to key and value.
func frameOf(r *record) int {
	m := sink.Message{}
	for name, v := range r.headers {
		m.Headers = append(m.Headers, sink.Header{Name: name, Value: []byte(v)})
	}
	return m.Framed()
}

// TestSplitI5: parts put together are the messages that there would be without a limit, at any limit; none is above it,
// they have one key and one lane, and their sub-indexes follow each other, key changes and tombstones included.
func TestSplitI5(t *testing.T) {
	total := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := randomHistory(t, rng, 20)
		tombstones := func(o *Options) { o.Tombstones = seed%2 == 0; o.Codec = &stubCodec{} }
		want, err := encodeAll(t, testBridge(t, tombstones), h.events)
		if err != nil {
			t.Fatal(err)
		}
		limit := 300 + rng.IntN(100)
		b := testBridge(t, func(o *Options) { oversize(SplitOversize, limit)(o); tombstones(o) })
		rs, err := encodeAll(t, b, h.events)
		if err != nil {
			t.Fatal(err)
		}
		consecutive(t, rs)
		got, parts := joined(t, rs, limit)
		total += parts
		if len(got) != len(want) {
			t.Fatalf("%d messages, not %d", len(got), len(want))
		}
		splits := 0
		for i := range got {
			g, w := got[i], want[i]
			if _, ok := g.headers[partHeader]; ok {
				splits++
			}
			if g.seq != w.seq || g.topic != w.topic || g.part != w.part || !bytes.Equal(g.key, w.key) || !bytes.Equal(g.value, w.value) || (g.value == nil) != (w.value == nil) ||
				g.headers["gtid"] != w.headers["gtid"] || g.headers["snapshot"] != w.headers["snapshot"] || g.headers["row"] != w.headers["row"] || g.headers["seq"] != w.headers["seq"] {
				t.Fatalf("%v, not %v", g, w)
			}
		}
		if n := b.Status().Splits; n != int64(splits) {
			t.Errorf("%d counted, %d split", n, splits)
		}
		again, err := encodeAll(t, b, h.events)
		if err != nil || strings.Join(lines(again), "\n") != strings.Join(lines(rs), "\n") {
			t.Fatalf("I5: another time other messages (%v)", err)
		}
	}
	if total < 300 {
		t.Errorf("only %d parts", total)
	}
}

// TestStubs: a stub has the number, key and headers of its message and the sum of its value; with dead letters the whole value
// follows in another topic, in parts if it must.
func TestStubs(t *testing.T) {
	const limit = 420
	for _, how := range []Oversize{StubOversize, DeadLetterOversize} {
		for _, deadLimit := range []int64{300, 420, 100_000} {
			h := &history{offset: 4}
			h.begin()
			keyed := testTable(t, "a", true)
			big := strings.Repeat("x", 250)
			h.rows(keyed, change{nil, &testRow{1, big, 0}}, change{nil, &testRow{2, "small", 0}})
			h.rows(keyed, change{&testRow{1, big, 0}, &testRow{3, big, 1}})
			h.rows(keyed, change{&testRow{3, big, 0}, nil})
			h.ddl("alter table a "+strings.Repeat("y", 400), "ddl")
			h.end()
			h.chunk(keyed, &testRow{4, big, 0}, &testRow{5, "small", 0})
			fs := newFaultSink(1, 0)
			s := &limitSink{faultSink: fs}
			s.limit.Store(deadLimit)
			change := func(o *Options) { oversize(how, limit)(o); o.Tombstones = true; o.Sink = s }
			b := testBridge(t, change)
			want, err := encodeAll(t, testBridge(t, func(o *Options) { o.Tombstones = true }), h.events)
			if err != nil {
				t.Fatal(err)
			}
			got, err := encodeAll(t, b, h.events)
			if err != nil {
				t.Fatal(err)
			}
			var letters, inPlace []*record
			consecutive(t, got)
			for _, r := range got {
				if strings.HasSuffix(r.topic, ".large") {
					letters = append(letters, r)
				} else {
					inPlace = append(inPlace, r)
				}
			}
			stubs, dead := 0, 0
			if len(inPlace) != len(want) {
				t.Fatalf("%v", lines(inPlace))
			}
			letters, _ = joined(t, letters, max(int(deadLimit), limit))
			for i, r := range inPlace {
				w := want[i]
				if r.seq != w.seq || r.topic != w.topic || r.part != w.part || !bytes.Equal(r.key, w.key) || r.headers["seq"] != w.headers["seq"] {
					t.Fatalf("%v, not %v", r, w)
				}
				sum, isStub := r.headers[stubHeader]
				if !isStub {
					if !bytes.Equal(r.value, w.value) {
						t.Errorf("%v, not %v", r, w)
					}
					continue
				}
				stubs++
				if sum != string(codec.AppendSum(nil, w.value)) || !json.Valid([]byte(sum)) || !strings.HasPrefix(string(r.value), "stub of ") {
					t.Errorf("%v with sum %s", r, sum)
				}
				if how == DeadLetterOversize && w.topic != "ddl" {
					if l := letters[dead]; l.seq != r.seq || !bytes.Equal(l.key, r.key) || !bytes.Equal(l.value, w.value) || l.topic != w.topic+".large" || l.headers["gtid"] != w.headers["gtid"] || l.headers["snapshot"] != w.headers["snapshot"] {
						t.Errorf("dead letter %v of %v", l, w)
					}
					dead++
				}
			}
			if stubs != 6 || dead != len(letters) || how == DeadLetterOversize && dead != 5 {
				t.Errorf("%s: %d stubs, %d dead letters of %d", how, stubs, dead, len(letters))
			}
			if st := b.Status(); st.Stubs+st.DeadLetters != 6 || st.DeadLetters != int64(dead) {
				t.Errorf("counted %+v", st)
			}
			if err := fs.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestTooLargeI3: what no choice makes small enough stops, with an error that names table, key, size, limit, position and
// remedy; what comes before is encoded.
func TestTooLargeI3(t *testing.T) {
	keyed := testTable(t, "a", true)
	for _, c := range []struct {
		name  string
		how   Oversize
		limit int
		lack  string
	}{
		{"stop", StopOversize, 300, "set oversize"},
		{"no room for a part", SplitOversize, 230, "key and headers leave"},
		{"no room for a stub", StubOversize, 240, "its stub cannot be made"},
	} {
		h := &history{offset: 4}
		h.begin()
		h.rows(keyed, change{nil, &testRow{1, "", 0}}, change{nil, &testRow{2, strings.Repeat("x", 250), 0}})
		h.end()
		var log lockedbuf.Buffer
		b := testBridge(t, func(o *Options) {
			oversize(c.how, c.limit)(o)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		got, err := encodeAll(t, b, h.events)
		var stop *StopError
		if !errors.As(err, &stop) || len(got) != 1 {
			t.Fatalf("%s: %v, %v", c.name, lines(got), err)
		}
		text := b.final(err).Error()
		for _, part := range []string{"table shop.a", `key "a/2"`, "larger than the limit", fmt.Sprint("limit is ", c.limit), "position log.1:", "remedy: ", c.lack} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is not in: %s", c.name, part, text)
			}
		}
		if c.how != StopOversize && !strings.Contains(log.String(), "table=shop.a") {
			t.Errorf("%s: not in the log: %s", c.name, log.String())
		}
	}
	// More parts than a sequence id has room for.
	h := &history{offset: 4}
	h.begin()
	h.ddl("alter table a "+strings.Repeat("y", 100_000), "ddl")
	h.end()
	b := testBridge(t, oversize(SplitOversize, 281))
	if _, err := encodeAll(t, b, h.events); err == nil || !strings.Contains(err.Error(), "at most 1024 messages") {
		t.Errorf("error %v", err)
	}
	if key := keyText([]byte(strings.Repeat("k", 100))); len(key) > 80 || !strings.HasSuffix(key, "...") {
		t.Errorf("a long key is shown as %s", key)
	}
}

// TestLimitIsKeptI5: killed again and again while the topics' limits change, the program cuts every row as it did the first time:
// each number has one content. A broker that has come to take less stops the sink.
func TestLimitIsKeptI5(t *testing.T) {
	for _, how := range []Oversize{SplitOversize, StubOversize, DeadLetterOversize} {
		t.Run(how.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(how)))
			h := wideHistory(t, rng, 300)
			mem := &meta.Memory{}
			fs := newFaultSink(3, 150)
			s := &limitSink{faultSink: fs}
			const limit = 450
			s.limit.Store(limit)
			change := func(o *Options) { oversize(how, 0)(o); o.Sink = s }
			var last State
			for life := 0; ; life++ {
				st := &store{Memory: mem}
				r := start(t, h, st, fs, 0, func(o *Options) { change(o); o.KeyChange = SplitKeyChange })
				if life == 12 {
					r.wait(h.ord)
					if err := r.stop(); err != nil {
						t.Fatal(err)
					}
					last = r.bridge.saved
					break
				}
				at := fs.now()
				until(t, func() bool { return fs.now() > at+20 || r.bridge.Status().Acked >= h.ord }, func() string { return "messages" })
				r.kill(st)
				s.limit.Store(int64([]int{200, 1000, 0, 331}[rng.IntN(4)]))
			}
			if last.Epoch != 1 || len(last.Limits) < 3 {
				t.Errorf("state %+v", last)
			}
			for topic, was := range last.Limits {
				if was != limit {
					t.Errorf("I5: topic %s has limit %d in the state", topic, was)
				}
			}
			if err := fs.Close(context.Background()); err != nil {
				t.Error(err)
			}
			first := map[string]*record{}
			var all []*record
			for _, r := range fs.log {
				id := fmt.Sprintf("%s %d.%d", r.topic, r.seq, r.sub)
				if was := first[id]; was == nil {
					first[id] = r
					all = append(all, r)
				} else if was.String() != r.String() || was.headers[partHeader] != r.headers[partHeader] || was.headers[stubHeader] != r.headers[stubHeader] {
					t.Fatalf("I5: message %s is first %v, then %v", id, was, r)
				}
			}
			slices.SortFunc(all, func(a, b *record) int {
				return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.seq, b.seq), cmp.Compare(a.sub, b.sub))
			})
			whole, parts := joined(t, all, limit)
			values := map[string]string{}
			stubs := 0
			for _, r := range whole {
				if r.headers[stubHeader] != "" {
					stubs++
					if how == StubOversize {
						values[fmt.Sprint(r.seq, string(r.key))] = ""
					}
					continue
				}
				values[fmt.Sprint(r.seq, string(r.key))] = string(r.value)
			}
			for _, w := range h.want {
				if got, ok := values[fmt.Sprint(w.ordinal, w.key)]; !ok || got != w.value && got != "" {
					t.Fatalf("change %d, key %s: %q, not %q", w.ordinal, w.key, got, w.value)
				}
			}
			if stubs+parts < 100 {
				t.Errorf("%d stubs, %d parts", stubs, parts)
			}
		})
	}
}

// wideHistory makes n transactions of rows, some of which are larger than others.
func wideHistory(t testing.TB, rng *rand.Rand, n int) *history {
	h := &history{offset: 4}
	tables := []*event.Table{testTable(t, "a", true), testTable(t, "b", false), testTable(t, "c", true)}
	serial := int64(0)
	row := func() *testRow {
		serial++
		return &testRow{rng.Int64N(20), strings.Repeat("x", rng.IntN(250)), serial}
	}
	for range n {
		h.begin()
		for range 1 + rng.IntN(4) {
			c := change{row(), row()}
			switch rng.IntN(3) {
			case 0:
				c.before = nil
			case 1:
				c.after = nil
			}
			h.rows(tables[rng.IntN(len(tables))], c)
		}
		h.end()
	}
	return h
}

// TestBrokerRefusesI3: a message that the broker turns out not to take stops the sink before it, whatever was chosen, once everything
// before it is stored; it is not offered again and again. When the broker takes it, the sink goes on there.
func TestBrokerRefusesI3(t *testing.T) {
	for _, how := range []Oversize{StopOversize, SplitOversize} {
		h := randomHistory(t, rand.New(rand.NewPCG(9, 9)), 150)
		bad := int64(0)
		h.begin()
		h.rows(testTable(t, "a", true), change{nil, &testRow{1, "x", 1}}, change{nil, &testRow{2, strings.Repeat("z", 200), 1}}, change{nil, &testRow{3, "x", 1}})
		bad = h.ord - 1
		h.end()
		fs := newFaultSink(1, 0)
		s := &limitSink{faultSink: fs}
		s.limit.Store(1000)
		s.large.Store(390)
		m := &meta.Memory{}
		r := start(t, h, m, fs, 0, func(o *Options) { oversize(how, 0)(o); o.Sink = s })
		var stop *StopError
		err := <-r.result
		var large *sink.TooLargeError
		if !errors.As(err, &stop) || !errors.As(err, &large) || stop.Table != "shop.a" || !strings.Contains(stop.Position, "log.1:") || !strings.Contains(err.Error(), "the broker takes 390 bytes") {
			t.Fatalf("Run returned %v", err)
		}
		if n := s.refused.Load(); n != 1 {
			t.Errorf("the message was offered %d times", n)
		}
		fs.mu.Lock()
		for _, w := range h.want {
			if before := w.ordinal < bad; before != (fs.confirmed[number{w.ordinal, w.sub}] > 0) {
				t.Errorf("message %d.%d confirmed: %v; the refused one is %d", w.ordinal, w.sub, !before, bad)
			}
		}
		fs.mu.Unlock()
		r.result <- nil
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		s.large.Store(0)
		r = start(t, h, m, fs, 0, func(o *Options) { oversize(how, 0)(o); o.Sink = s })
		r.wait(h.ord)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		checkLog(t, h, fs, 3)
		if err := fs.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// lateSink accepts everything and learns only then that the broker does not take a message, as Kafka's does.
type lateSink struct {
	*countSink
	large int
}

func (s *lateSink) Publish(ctx context.Context, msgs []sink.Message) (int, error) {
	for i := range msgs {
		if msgs[i].Framed() <= s.large {
			continue
		}
		n, err := s.countSink.Publish(ctx, msgs[:i])
		if err == nil {
			err = s.Flush(ctx)
		}
		if err != nil {
			return n, err
		}
		s.set(func() { s.stalled = true })
		n, err = s.countSink.Publish(ctx, msgs[i:])
		s.set(func() {
			s.stalled = false
			s.failed = sink.TooLarge(&msgs[i], errors.New("the broker takes no such message"))
			rest := s.queue
			s.queue = nil
			for _, m := range rest {
				s.done(m, s.failed)
			}
		})
		return i + n, err
	}
	return s.countSink.Publish(ctx, msgs)
}

// TestRefusedCountsNothingI2: the state that is saved when a refused message has stopped a sink counts what the broker has, and not what
// was on its way behind that.
func TestRefusedCountsNothingI2(t *testing.T) {
	h := &history{offset: 4}
	keyed := testTable(t, "a", true)
	for i := range int64(20) {
		h.begin()
		v := "x"
		if i == 12 {
			v = strings.Repeat("z", 200)
		}
		h.rows(keyed, change{nil, &testRow{i, v, i}})
		h.end()
	}
	for _, batch := range []int{1, 3, 100} {
		fs := newFaultSink(1, 0)
		s := &lateSink{&countSink{faultSink: fs}, 390}
		r := start(t, h, &meta.Memory{}, fs, 0, func(o *Options) { o.Sink, o.BatchEvents = s, batch })
		err := <-r.result
		var large *sink.TooLargeError
		if !errors.As(err, &large) {
			t.Fatalf("Run returned %v", err)
		}
		s.countSink.mu.Lock()
		if s.acked != 12 {
			t.Errorf("batches of %d: %d messages count as acknowledged, 12 are stored", batch, s.acked)
		}
		s.countSink.mu.Unlock()
		r.result <- nil
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if err := fs.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestOversizeOptions: what cannot work is refused at once.
func TestOversizeOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"needs max message bytes": func(o *Options) { o.Oversize = SplitOversize },
		"writes no stubs":         func(o *Options) { oversize(StubOversize, 1000)(o); o.Codec = &textCodec{} },
		"used with oversize":      func(o *Options) { o.DeadLetterTopic = "x" },
		"another than topic":      func(o *Options) { oversize(DeadLetterOversize, 1000)(o); o.DeadLetterTopic = o.Topic },
		"unknown choice":          func(o *Options) { oversize(9, 1000)(o) },
		"not be negative":         func(o *Options) { o.MaxMessageBytes = -1 },
		"unknown field":           func(o *Options) { oversize(DeadLetterOversize, 1000)(o); o.DeadLetterTopic = "{x}" },
	} {
		if _, err := New(testOptions(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	for _, o := range []Oversize{StopOversize, StubOversize, SplitOversize, DeadLetterOversize} {
		if got, err := ParseOversize(o.String()); got != o || err != nil {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	// I3: without a limit nothing can be decided.
	s := &limitSink{faultSink: newFaultSink(1, 0)}
	b := testBridge(t, func(o *Options) { oversize(SplitOversize, 0)(o); o.Sink = s })
	var stop *StopError
	if _, err := b.pinLimit(context.Background(), s, "t"); !errors.As(err, &stop) || !strings.Contains(stop.Remedy, "max_message_bytes") {
		t.Errorf("error %v", err)
	}
	// Two tables, one of them named as the other's dead letters.
	b = testBridge(t, func(o *Options) {
		oversize(DeadLetterOversize, 1000)(o)
		o.Topic, o.DeadLetterTopic = "{table}", "large"
	})
	b.saved = *(&State{}).clone()
	if _, err := b.planner().of(context.Background(), testTable(t, "large", true)); !errors.As(err, &stop) || !strings.Contains(err.Error(), "dead_letter_topic") {
		t.Errorf("error %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestOversizeTablesI3: what a statement is about leaves room for the statement itself in each of its messages.
func TestOversizeTablesI3(t *testing.T) {
	sql := "DROP TABLE a"
	for i := range 3000 {
		sql += fmt.Sprintf(", table_%d", i)
	}
	h := &history{offset: 4}
	h.begin()
	h.ddl(sql, "ddl")
	h.end()
	for _, how := range []Oversize{SplitOversize, StubOversize, DeadLetterOversize} {
		for _, limit := range []int{1000, 16 << 10, 20 << 10} {
			got, err := encodeAll(t, testBridge(t, func(o *Options) {
				oversize(how, limit)(o)
				o.Headers = nil
			}), h.events)
			if err != nil || len(got) == 0 || how == SplitOversize && len(got) < 2 {
				t.Errorf("%s, limit %d: %d messages, %v", how, limit, len(got), err)
			}
			for _, r := range got {
				if list := r.headers["tables"]; len(list) > limit/4+30 || len(list) < limit/8 && limit > 1000 || !strings.HasSuffix(list, `,{"action":"unknown"}]`) {
					t.Errorf("%s, limit %d: %d bytes of tables", how, limit, len(list))
				}
			}
		}
	}
}
