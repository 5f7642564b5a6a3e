package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/sink"
)

// Run runs the whole suite. While it runs a second completion of a message
// panics.
func Run(t *testing.T, h Harness) {
	before := sink.OnSecondCompletion
	sink.OnSecondCompletion = func(m *sink.Message) {
		panic(fmt.Sprintf("sinktest: message %d of topic %s was done twice", m.Sequence, m.Topic))
	}
	t.Cleanup(func() { sink.OnSecondCompletion = before })
	if h.Topics == 0 {
		h.Topics = 20
	}
	type test struct {
		name string
		run  func(t *testing.T, h *Harness)
	}
	tests := []test{
		{"order", testOrder},
		{"content", testContent},
		{"durable before done", testDurable},
		{"buffers are free after done", testBuffers},
		{"many topics", testManyTopics},
		{"partitions", testPartitions},
		{"flush", testFlush},
		{"bounds", testBounds},
		{"message above the bound", testAboveBound},
		{"reset", testReset},
		{"close", testClose},
		{"restart", testRestart},
		{"cancelled context", testCancelled},
	}
	if h.Refuse != nil {
		tests = append(tests, test{"refused message", testRefused})
	}
	if h.Stall != nil {
		tests = append(tests, test{"stalled", testStalled}, test{"reset while stalled", testStalledReset}, test{"close while stalled", testStalledClose})
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			ignore := append([]goleak.Option{goleak.IgnoreCurrent()}, h.Leaks...)
			c.run(t, &h)
			if !t.Failed() {
				if err := leak.Find(ignore...); err != nil {
					t.Errorf("goroutines outlive the sink: %v", err)
				}
			}
		})
	}
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (h *Harness) open(t testing.TB, b Bounds) (sink.Sink, func()) {
	t.Helper()
	s := h.Open(t, b)
	closed := false
	end := func() {
		if closed {
			return
		}
		closed = true
		if err := s.Close(limit(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.Cleanup(end) // where a test has failed
	return s, end
}

func partitions(t testing.TB, s sink.Sink, topic string, want int32) {
	t.Helper()
	n, err := s.Partitions(limit(t), topic)
	if err != nil {
		t.Fatalf("Partitions(%s): %v", topic, err)
	}
	if n != want {
		t.Fatalf("Partitions(%s) = %d, want %d", topic, n, want)
	}
}

func publish(t testing.TB, s sink.Sink, msgs []sink.Message) {
	t.Helper()
	n, err := s.Publish(limit(t), msgs)
	if err != nil || n != len(msgs) {
		t.Fatalf("Publish accepted %d of %d messages: %v", n, len(msgs), err)
	}
}

func flush(t testing.TB, s sink.Sink) {
	t.Helper()
	if err := s.Flush(limit(t)); err != nil {
		t.Fatalf("Flush: %v (status: %v)", err, s.Status().Err)
	}
}

// allDone checks that each message was done once, and without an error if clean.
func allDone(t testing.TB, r *Recorder, clean bool, batches ...[]sink.Message) {
	t.Helper()
	for _, msgs := range batches {
		for i := range msgs {
			times, err := r.Result(&msgs[i])
			if times != 1 {
				t.Fatalf("message %d of %s was done %d times, want once", msgs[i].Sequence, msgs[i].Topic, times)
			}
			if clean && err != nil {
				t.Fatalf("message %d of %s: %v", msgs[i].Sequence, msgs[i].Topic, err)
			}
		}
	}
}

func idle(t testing.TB, s sink.Sink) {
	t.Helper()
	st := s.Status()
	for ctx := limit(t); st.Err != nil && ctx.Err() == nil; st = s.Status() { // it may heal with the next look at the brokers
		time.Sleep(time.Millisecond)
	}
	if st.InFlight != 0 || st.Bytes != 0 || st.Err != nil {
		t.Fatalf("status of an idle sink: %d messages, %d bytes in flight, error %v", st.InFlight, st.Bytes, st.Err)
	}
}

func span(first int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = first + int64(i)
	}
	return out
}

// I4: messages of a lane are stored in the order published, each once.
func testOrder(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, h.Partitions)
	partitions(t, s, topic, h.Partitions)
	r := NewRecorder(nil)
	rng := rand.New(rand.NewSource(1))
	want := make([][]int64, h.Partitions)
	var all [][]sink.Message
	seq := int64(1)
	for seq <= 3000 {
		msgs := make([]sink.Message, 1+rng.Intn(200))
		for i := range msgs {
			p := rng.Int31n(h.Partitions)
			Fill(&msgs[i], r, topic, p, seq)
			want[p] = append(want[p], seq)
			seq += 1 + rng.Int63n(3) // gaps are normal
		}
		publish(t, s, msgs)
		all = append(all, msgs)
	}
	flush(t, s)
	allDone(t, r, true, all...)
	idle(t, s)
	for p := range want {
		CheckExact(t, fmt.Sprintf("partition %d", p), h.Read(t, topic, int32(p)), want[p])
	}
	end()
	allDone(t, r, true, all...)
}

func testContent(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	long := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	type content struct {
		name       string
		key, value []byte
		headers    []sink.Header
	}
	table := []content{
		{"plain", []byte("1"), []byte(`{"a":1}`), nil},
		{"no key", nil, []byte("v"), nil},
		{"tombstone", []byte("2"), nil, nil},
		{"tombstone without key", nil, nil, nil},
		{"empty value", []byte("3"), []byte{}, nil},
		{"UTF-8", []byte("ключ-鍵-🗝"), []byte(`{"名前":"naïve 🦀"}`), []sink.Header{{Name: "名", Value: []byte("値 ü 🦀")}}},
		{"empty header", []byte("4"), []byte("v"), []sink.Header{{Name: "e", Value: []byte{}}}},
		{"control characters", []byte("a\x00b\n\"\\"), []byte("line\nfeed\r\ttab\x00nul"), []sink.Header{{Name: "h", Value: []byte("a\nb\"\\\x00")}}},
		{"any bytes", []byte("5"), []byte{0xff, 0xfe, 0x00, 0x80, '{'}, nil},
		{"JSON with blanks", []byte(`{"id": 6}`), []byte("{ \"a\" : [1, 2.50, 1e3, \"\\u0041\"] }"), nil},
		{"number beyond float64", []byte("7"), []byte(`{"n":12345678901234567890.123456789,"n":1}`), nil},
		{"long", []byte("8"), long, []sink.Header{{Name: "long", Value: long[:4000]}}},
		{"many headers", []byte("9"), []byte("v"), manyHeaders(40)},
	}
	if h.EmptyKey {
		table = append(table, content{"empty key", []byte{}, []byte("v"), nil})
	}
	r := NewRecorder(nil)
	msgs := make([]sink.Message, len(table))
	for i := range table {
		m := &msgs[i]
		Fill(m, r, topic, 0, int64(i+1))
		m.Key, m.Value = table[i].key, table[i].value
		m.Headers = append([]sink.Header{{Name: SeqHeader, Value: []byte(strconv.Itoa(i + 1))}}, table[i].headers...)
	}
	publish(t, s, msgs)
	flush(t, s)
	allDone(t, r, true, msgs)
	stored := h.Read(t, topic, 0)
	CheckExact(t, "content", stored, span(1, len(table)))
	for i := range table {
		c, got := &table[i], &stored[i]
		if (got.Key == nil) != (c.key == nil) || !bytes.Equal(got.Key, c.key) {
			t.Errorf("%s: key is %q (nil: %t), want %q (nil: %t)", c.name, got.Key, got.Key == nil, c.key, c.key == nil)
		}
		if (got.Value == nil) != (c.value == nil) || !bytes.Equal(got.Value, c.value) {
			t.Errorf("%s: value is %.80q (nil: %t), want %.80q (nil: %t)", c.name, got.Value, got.Value == nil, c.value, c.value == nil)
		}
		if want, have := headerMap(msgs[i].Headers), headerMap(got.Headers); len(got.Headers) != len(want) || fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s: headers are %.200q, want %.200q", c.name, have, want)
		}
	}
	end()
}

func manyHeaders(n int) []sink.Header {
	hs := make([]sink.Header, n)
	for i := range hs {
		hs[i] = sink.Header{Name: "h" + strconv.Itoa(i), Value: []byte(strconv.Itoa(i * i))}
	}
	return hs
}

func headerMap(hs []sink.Header) map[string]string {
	m := make(map[string]string, len(hs))
	for i := range hs {
		m[hs[i].Name] = string(hs[i].Value)
	}
	return m
}

// I1: a message is done only when a reader can find it.
func testDurable(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	r := NewRecorder(nil)
	var all [][]sink.Message
	published := 0
	for round := range 8 {
		msgs := Messages(r, topic, 0, int64(published+1), 1+round*20)
		publish(t, s, msgs)
		all = append(all, msgs)
		published += len(msgs)
		if err := r.Wait(limit(t), published-len(msgs)/2); err != nil {
			t.Fatal(err)
		}
		done, _ := r.Count()
		stored := h.Read(t, topic, 0)
		if len(stored) < done {
			t.Fatalf("%d messages are done but only %d can be read", done, len(stored))
		}
		CheckExact(t, "durable", stored, span(1, len(stored)))
	}
	flush(t, s)
	allDone(t, r, true, all...)
	CheckExact(t, "durable", h.Read(t, topic, 0), span(1, published))
	end()
}

// The owner may use a message's buffers again as soon as it is done.
func testBuffers(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	r := NewRecorder(func(m *sink.Message, _ error) {
		for _, b := range [][]byte{m.Key, m.Value, m.Headers[0].Value, m.Headers[1].Value} {
			for i := range b {
				b[i] = 'X'
			}
		}
	})
	const n = 1000
	msgs := Messages(r, topic, 0, 1, n)
	for i := 0; i < n; i += 50 {
		publish(t, s, msgs[i:i+50])
	}
	flush(t, s)
	allDone(t, r, true, msgs)
	stored := h.Read(t, topic, 0)
	CheckExact(t, "buffers", stored, span(1, n))
	for i := range stored {
		if bytes.ContainsRune(stored[i].Value, 'X') || bytes.ContainsRune(stored[i].Key, 'X') {
			t.Fatalf("message %d was changed after it was done: %q", i, stored[i].Value)
		}
	}
	end()
}

func testManyTopics(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	parts := min(h.Partitions, 3)
	topics := make([]string, h.Topics)
	for i := range topics {
		topics[i] = h.NewTopic(t, parts)
		partitions(t, s, topics[i], parts)
	}
	const perLane = 20
	lanes := len(topics) * int(parts)
	r := NewRecorder(nil)
	msgs := make([]sink.Message, lanes*perLane)
	want := make([][]int64, lanes)
	for i := range msgs {
		lane := i % lanes
		Fill(&msgs[i], r, topics[lane/int(parts)], int32(lane%int(parts)), int64(i+1))
		want[lane] = append(want[lane], int64(i+1))
	}
	for i := 0; i < len(msgs); i += 97 {
		publish(t, s, msgs[i:min(i+97, len(msgs))])
	}
	flush(t, s)
	allDone(t, r, true, msgs)
	idle(t, s)
	for lane := range want {
		topic, p := topics[lane/int(parts)], int32(lane%int(parts))
		CheckExact(t, fmt.Sprintf("%s partition %d", topic, p), h.Read(t, topic, p), want[lane])
	}
	end()
}

// Partitions and Status may be called from any goroutine, and give the same.
func testPartitions(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, h.Partitions)
	other := h.NewTopic(t, 1)
	r := NewRecorder(nil)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if n, err := s.Partitions(limit(t), topic); err != nil || n != h.Partitions {
					errs <- fmt.Errorf("%d partitions, want %d: %v", n, h.Partitions, err)
					return
				}
				if st := s.Status(); st.InFlight < 0 || st.Bytes < 0 {
					errs <- fmt.Errorf("status %+v", st)
					return
				}
			}
		})
	}
	msgs := Messages(r, other, 0, 1, 300)
	partitions(t, s, other, 1)
	for i := range msgs {
		publish(t, s, msgs[i:i+1])
	}
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	flush(t, s)
	allDone(t, r, true, msgs)
	end()
}

func testFlush(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	flush(t, s) // with nothing ever published
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	publish(t, s, nil)
	flush(t, s)
	r := NewRecorder(nil)
	seq := int64(1)
	for range 5 {
		msgs := Messages(r, topic, 0, seq, 100)
		seq += 100
		publish(t, s, msgs)
		flush(t, s)
		allDone(t, r, true, msgs)
		idle(t, s)
	}
	end()
}

// I9: what a sink holds is bounded in messages and bytes.
func testBounds(t *testing.T, h *Harness) {
	b := Bounds{Messages: 16, Bytes: 4000}
	s, end := h.open(t, b)
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	var worst sink.Status
	r := NewRecorder(nil)
	const n = 2000
	msgs := Messages(r, topic, 0, 1, n)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			st := s.Status()
			worst.InFlight, worst.Bytes = max(worst.InFlight, st.InFlight), max(worst.Bytes, st.Bytes)
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	n1, err := s.Publish(limit(t), msgs) // far more than the bound in one call
	close(stop)
	<-stopped
	if err != nil || n1 != n {
		t.Fatalf("Publish accepted %d of %d messages: %v", n1, n, err)
	}
	flush(t, s)
	allDone(t, r, true, msgs)
	CheckExact(t, "bounds", h.Read(t, topic, 0), span(1, n))
	if worst.InFlight > int64(b.Messages) || worst.Bytes > b.Bytes {
		t.Fatalf("%d messages and %d bytes were in flight, the bounds are %d and %d", worst.InFlight, worst.Bytes, b.Messages, b.Bytes)
	}
	end()
}

// I9: a message larger than the byte bound passes when nothing else is held.
func testAboveBound(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{Messages: 16, Bytes: 1000})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 1, 20)
	for i := 5; i < 10; i++ {
		msgs[i].Value = bytes.Repeat([]byte("x"), 50_000)
	}
	publish(t, s, msgs)
	flush(t, s)
	allDone(t, r, true, msgs)
	idle(t, s)
	CheckExact(t, "above the bound", h.Read(t, topic, 0), span(1, 20))
	end()
}

func (h *Harness) replayed(t testing.TB, where string, stored []Stored, want []int64) {
	t.Helper()
	if h.ExactlyOnce { // I5, I7
		CheckExact(t, where, stored, want)
	} else {
		CheckAtLeastOnce(t, where, stored, want)
	}
}

// Reset leaves nothing on its way, no completion follows it, and the same
// messages can be sent again.
func testReset(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	if err := s.Reset(limit(t)); err != nil { // before anything
		t.Fatalf("Reset: %v", err)
	}
	partitions(t, s, topic, 1)
	first, n := int64(1), 0
	for _, size := range []int{1, 500, 37} {
		n += size
		r := NewRecorder(nil)
		msgs := Messages(r, topic, 0, first, n) // all since first again: nothing was acknowledged
		publish(t, s, msgs)
		if err := s.Reset(limit(t)); err != nil {
			t.Fatalf("Reset: %v", err)
		}
		allDone(t, r, false, msgs)
		for i := range msgs {
			if _, err := r.Result(&msgs[i]); err != nil && !errors.Is(err, sink.ErrReset) {
				t.Fatalf("message %d: %v, want nil or ErrReset", i, err)
			}
		}
		idle(t, s)
		if err := s.Reset(limit(t)); err != nil { // of a session with nothing in it
			t.Fatalf("Reset: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // room for a late completion: it would panic
		allDone(t, r, false, msgs)
	}
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, first, n+10)
	publish(t, s, msgs)
	flush(t, s)
	allDone(t, r, true, msgs)
	h.replayed(t, "reset", h.Read(t, topic, 0), span(first, n+10))
	end()
}

func testClose(t *testing.T, h *Harness) {
	s, _ := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 1, 300)
	publish(t, s, msgs)
	for range 3 {
		if err := s.Close(limit(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
		allDone(t, r, false, msgs)
	}
	late := Messages(r, topic, 0, 301, 3)
	if n, err := s.Publish(limit(t), late); n != 0 || err == nil {
		t.Fatalf("Publish after Close accepted %d messages, error %v", n, err)
	}
	if done, _ := r.Count(); done != len(msgs) {
		t.Fatalf("%d completions for %d accepted messages", done, len(msgs))
	}
	if err := s.Reset(limit(t)); err == nil {
		t.Fatal("Reset after Close gives no error")
	}
	if st := s.Status(); st.InFlight != 0 || st.Bytes != 0 {
		t.Fatalf("status after Close: %+v", st)
	}
	// A sink that was never used closes too.
	s2, end := h.open(t, Bounds{})
	_ = s2
	end()
}

// I5, I7: a successor sends everything since the cursor again.
func testRestart(t *testing.T, h *Harness) {
	topic := h.NewTopic(t, h.Partitions)
	rng := rand.New(rand.NewSource(2))
	const n = 1500
	want := make([][]int64, h.Partitions)
	place := make([]int32, n)
	for i := range place {
		place[i] = rng.Int31n(h.Partitions)
		want[place[i]] = append(want[place[i]], int64(i+1))
	}
	cursor := 0 // messages before it are acknowledged
	for cursor < n {
		s, end := h.open(t, Bounds{})
		partitions(t, s, topic, h.Partitions)
		r := NewRecorder(nil)
		upTo := min(n, cursor+200+rng.Intn(400))
		msgs := make([]sink.Message, upTo-cursor)
		for i := range msgs {
			Fill(&msgs[i], r, topic, place[cursor+i], int64(cursor+i+1))
		}
		st, stateful := s.(sink.Stateful)
		stateful = stateful && st.KeepsState()
		mark := int64(0)
		if stateful {
			mark = st.Mark()
		}
		publish(t, s, msgs)
		if upTo == n {
			flush(t, s)
		} else if err := r.Wait(limit(t), rng.Intn(len(msgs)/2)); err != nil { // else a sink that closes at once makes no progress
			t.Fatal(err)
		}
		end()
		allDone(t, r, upTo == n, msgs)
		done := 0
		for done < len(msgs) {
			if _, err := r.Result(&msgs[done]); err != nil {
				break
			}
			done++
		}
		if upTo < n {
			done = rng.Intn(done + 1) // a cursor lags behind what is confirmed
		}
		cursor += done
		if stateful {
			st.Acknowledge(mark + int64(done)) // the next sink is given what this one now says
		}
	}
	for p := range want {
		h.replayed(t, fmt.Sprintf("partition %d", p), h.Read(t, topic, int32(p)), want[p])
	}
}

func testCancelled(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Partitions(ctx, h.NewTopic(t, 1)); err == nil {
		t.Error("Partitions of an unknown topic takes no notice of a cancelled context")
	}
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 1, 100)
	n, err := s.Publish(ctx, msgs)
	if n < len(msgs) && !errors.Is(err, context.Canceled) {
		t.Fatalf("Publish under a cancelled context accepted %d of %d: %v", n, len(msgs), err)
	}
	flush(t, s)
	if done, _ := r.Count(); done != n {
		t.Fatalf("%d messages accepted, %d done", n, done)
	}
	allDone(t, r, true, msgs[:n])
	// What was not accepted may be published again: the session lives.
	publish(t, s, msgs[n:])
	flush(t, s)
	allDone(t, r, true, msgs)
	CheckExact(t, "cancelled", h.Read(t, topic, 0), span(1, len(msgs)))
	end()
}

// I3: a message that can never be sent is named; nothing after it is stored,
// and the sink refuses more until it is reset.
func testRefused(t *testing.T, h *Harness) {
	s, end := h.open(t, Bounds{})
	topic := h.NewTopic(t, 1)
	partitions(t, s, topic, 1)
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 1, 10)
	msgs[5].Key = []byte("the-refused-key")
	h.Refuse(&msgs[5])
	n, err := s.Publish(limit(t), msgs)
	if n > 5 {
		if werr := r.Wait(limit(t), n); werr != nil {
			t.Fatal(werr)
		}
		_, err = r.Result(&msgs[5])
	}
	if err == nil {
		t.Fatal("a message that must be refused was taken")
	}
	if !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "the-refused-key") {
		t.Errorf("the error names not both topic and key: %v", err)
	}
	if s.Status().Err == nil {
		t.Error("the status of a failed session shows no error")
	}
	if n2, err := s.Publish(limit(t), Messages(r, topic, 0, 100, 1)); n2 != 0 || err == nil {
		t.Errorf("Publish after a failure accepted %d messages, error %v", n2, err)
	}
	if err := s.Reset(limit(t)); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	allDone(t, r, false, msgs[:n])
	for i := 5; i < n; i++ {
		if _, err := r.Result(&msgs[i]); err == nil {
			t.Errorf("message %d is done without error behind a refused one", i)
		}
	}
	again := Messages(NewRecorder(nil), topic, 0, 1, 5)
	publish(t, s, again)
	rest := Messages(NewRecorder(nil), topic, 0, 7, 5)
	publish(t, s, rest)
	flush(t, s)
	idle(t, s)
	want := append(span(1, 5), span(7, 5)...)
	h.replayed(t, "refused", h.Read(t, topic, 0), want)
	end()
}

// blocked publishes until the bound is reached under a stalled system and
// returns the messages that were accepted.
func blocked(t *testing.T, s sink.Sink, b Bounds, msgs []sink.Message) int {
	t.Helper()
	var n int
	var err error
	for n == 0 && (err == nil || errors.Is(err, context.DeadlineExceeded)) { // on a busy machine the time may be over before it begins
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		n, err = s.Publish(ctx, msgs)
		cancel()
	}
	if n == len(msgs) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Publish into a stalled system accepted %d of %d messages, error %v; want it to block", n, len(msgs), err)
	}
	if st := s.Status(); st.InFlight > int64(b.Messages) || st.Bytes > b.Bytes {
		t.Fatalf("%d messages and %d bytes are in flight, the bounds are %d and %d", st.InFlight, st.Bytes, b.Messages, b.Bytes)
	}
	return n
}

// warm opens the lane and sends a few messages, as a stall in the middle needs it.
func warm(t *testing.T, s sink.Sink, topic string) {
	t.Helper()
	partitions(t, s, topic, 1)
	publish(t, s, Messages(NewRecorder(nil), topic, 0, 1, 10))
	flush(t, s)
	if st, ok := s.(sink.Stateful); ok && st.KeepsState() {
		st.Acknowledge(st.Mark()) // they are not published again after a Reset
	}
}

// I9: a system that confirms nothing blocks the publisher, and nothing is lost.
func testStalled(t *testing.T, h *Harness) {
	b := Bounds{Messages: 500, Bytes: 1 << 20}
	s, end := h.open(t, b)
	topic := h.NewTopic(t, 1)
	warm(t, s, topic)
	resume := h.Stall(t)
	resumed := false
	defer func() {
		if !resumed {
			resume()
		}
	}()
	const total = 3000
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 11, total)
	n := blocked(t, s, b, msgs)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Flush of a stalled sink: %v", err)
	}
	resume()
	resumed = true
	publish(t, s, msgs[n:])
	flush(t, s)
	allDone(t, r, true, msgs)
	h.replayed(t, "stalled", h.Read(t, topic, 0), span(1, total+10))
	end()
}

// Reset under a stalled system does not wait for it for ever: it ends with its
// context at the latest, and once it has succeeded all is done.
func testStalledReset(t *testing.T, h *Harness) {
	b := Bounds{Messages: 500, Bytes: 1 << 20}
	s, end := h.open(t, b)
	topic := h.NewTopic(t, 1)
	warm(t, s, topic)
	resume := h.Stall(t)
	r := NewRecorder(nil)
	const total = 3000
	msgs := Messages(r, topic, 0, 11, total)
	n := blocked(t, s, b, msgs)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	err := s.Reset(ctx)
	cancel()
	if err == nil {
		allDone(t, r, false, msgs[:n])
	}
	resume()
	if err := s.Reset(limit(t)); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	allDone(t, r, false, msgs[:n])
	again := Messages(NewRecorder(nil), topic, 0, 11, total)
	publish(t, s, again)
	flush(t, s)
	h.replayed(t, "reset while stalled", h.Read(t, topic, 0), span(1, total+10))
	end()
}

func testStalledClose(t *testing.T, h *Harness) {
	b := Bounds{Messages: 500, Bytes: 1 << 20}
	s, end := h.open(t, b)
	topic := h.NewTopic(t, 1)
	warm(t, s, topic)
	resume := h.Stall(t)
	r := NewRecorder(nil)
	msgs := Messages(r, topic, 0, 11, 3000)
	n := blocked(t, s, b, msgs)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	_ = s.Close(ctx) // may run out of time
	cancel()
	resume()
	end()
	if err := r.Wait(limit(t), n); err != nil {
		t.Fatal(err)
	}
	allDone(t, r, false, msgs[:n])
}
