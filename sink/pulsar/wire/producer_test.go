package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv/lockedbuf"
	"github.com/binlogmq/binlogmq/sink"
)

const topic = "persistent://public/default/t"

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// recorder remembers receipts and checks their order.
type recorder struct {
	mu     sync.Mutex
	change chan struct{}
	ids    []int64
	dups   int
	failID int64
	err    error
}

func newRecorder() *recorder { return &recorder{change: make(chan struct{}, 1), failID: -2} }

func (r *recorder) Receipt(id int64, duplicate bool, err error) {
	r.mu.Lock()
	switch {
	case err != nil:
		r.failID, r.err = id, err
	case r.err != nil:
		panic("a receipt after the failure")
	case len(r.ids) > 0 && id <= r.ids[len(r.ids)-1]:
		panic(fmt.Sprintf("a receipt for %d after %d", id, r.ids[len(r.ids)-1]))
	default:
		r.ids = append(r.ids, id)
		if duplicate {
			r.dups++
		}
	}
	r.mu.Unlock()
	select {
	case r.change <- struct{}{}:
	default:
	}
}

func (r *recorder) state() (last int64, dups int, failID int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last = -1
	if n := len(r.ids); n > 0 {
		last = r.ids[n-1]
	}
	return last, r.dups, r.failID, r.err
}

// wait returns when id has its receipt.
func (r *recorder) wait(t testing.TB, id int64) {
	t.Helper()
	ctx := within(t)
	for {
		last, _, _, err := r.state()
		if err != nil {
			t.Fatal(err)
		}
		if last >= id {
			return
		}
		select {
		case <-r.change:
		case <-ctx.Done():
			t.Fatalf("no receipt for %d, the last one is %d", id, last)
		}
	}
}

func (r *recorder) failure(t testing.TB) (int64, error) {
	t.Helper()
	ctx := within(t)
	for {
		if _, _, id, err := r.state(); err != nil {
			return id, err
		}
		select {
		case <-r.change:
		case <-ctx.Done():
			t.Fatal("it does not fail")
		}
	}
}

type session struct {
	c   *Client
	p   *Producer
	r   *recorder
	enc Encoder
}

func (s *session) close() {
	s.p.Close()
	s.c.Close()
}

// kill ends the session as a dying process does: the connections break, nothing is closed in order.
func (s *session) kill() {
	s.c.Close()
	s.p.Close()
}

func client(t testing.TB, b *broker, edit ...func(*Options)) *Client {
	t.Helper()
	o := Options{URL: b.url(), Logger: slog.New(slog.DiscardHandler), OperationTimeout: time.Minute}
	for _, f := range edit {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t testing.TB, b *broker, edit func(*ProducerOptions)) *session {
	t.Helper()
	s := &session{c: client(t, b), r: newRecorder()}
	o := ProducerOptions{Topic: topic, Name: "a/b/c", Access: Exclusive, Takeover: yes, Deduplicates: true}
	if edit != nil {
		edit(&o)
	}
	s.enc.Batching = o.Batching
	var err error
	for {
		if s.p, err = s.c.Open(within(t), o, s.r); err == nil {
			return s
		}
		if !strings.Contains(err.Error(), "reset by peer") && !errors.Is(err, errMalformed) && Code(err) != codeOfOurOwn {
			t.Fatal(err)
		}
	}
}

func yes() bool { return true }

func batched(o *ProducerOptions) { o.Batching = true }

func (s *session) send(first, last int64) {
	for id := first; id <= last; id++ {
		var m Message
		s.enc.Encode(&m, id, &sink.Message{Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", id), Time: id})
		s.p.Send(m)
	}
}

// sendAtOnce is send, but the messages line up while the producer is away, so that it finds them all when it comes back.
func (s *session) sendAtOnce(b *broker, first, last int64) {
	b.set(func() {
		b.producing = func(uint64) *Error { return &Error{Code: CodeProducerBusy, Message: "not now"} }
	})
	b.cut()
	s.send(first, last)
	b.set(func() { b.producing = nil })
}

func checkIDs(t testing.TB, got []int64, first, last int64) {
	t.Helper()
	want := first
	for i, id := range got {
		if id != want {
			t.Fatalf("message %d is id %d, want %d", i, id, want)
		}
		want++
	}
	if want != last+1 {
		t.Fatalf("stored up to %d, want %d", want-1, last)
	}
}

// both runs a test without and with batches.
func both(t *testing.T, f func(t *testing.T, edit func(*ProducerOptions))) {
	t.Run("unbatched", func(t *testing.T) { f(t, nil) })
	t.Run("batched", func(t *testing.T) { f(t, batched) })
}

// I4: everything is stored once, in order, whatever the compression.
func TestOrderAndCompression(t *testing.T) {
	for _, codec := range []string{"none", "lz4", "zlib", "zstd", "snappy"} {
		both(t, func(t *testing.T, edit func(*ProducerOptions)) {
			b := newBroker(t)
			s := start(t, b, func(o *ProducerOptions) {
				o.Compression = codec
				if edit != nil {
					edit(o)
				}
			})
			defer s.close()
			s.sendAtOnce(b, 1, 3000)
			s.r.wait(t, 3000)
			checkIDs(t, b.ids(topic), 1, 3000)
			shrunk := 0
			for _, e := range b.entries(topic) {
				for i, id := range e.ids {
					if e.payloads[i] != fmt.Sprintf("value %d", id) {
						t.Fatalf("%s: %q", codec, e.payloads[i])
					}
				}
				if e.meta.uint(8) != 0 {
					shrunk++
				}
			}
			if s.enc.Batching && codec != "none" && shrunk == 0 {
				t.Error("no batch was compressed")
			}
			if n := len(b.entries(topic)); s.enc.Batching && n > 1500 {
				t.Errorf("%d entries: batches do not form", n)
			}
		})
	}
}

func TestContent(t *testing.T) {
	b := newBroker(t)
	s := start(t, b, nil)
	defer s.close()
	src := sink.Message{Key: []byte("k"), Value: nil, Time: 77, Headers: []sink.Header{{Name: "a", Value: []byte("1")}, {Name: "名", Value: nil}}}
	var m Message
	s.enc.Encode(&m, 5, &src)
	if got := headers(m.data[:m.meta]); len(got) != 2 || got["a"] != "1" || got["名"] != "" {
		t.Errorf("headers are %v", got)
	}
	s.p.Send(m)
	s.enc.Encode(&m, 6, &sink.Message{Key: []byte{0xff, 0x00}, Value: []byte{}})
	s.p.Send(m)
	s.r.wait(t, 6)
	es := b.entries(topic)
	if e := es[0]; string(e.meta.bytes(6)) != "k" || e.meta.uint(12) != 77 || e.meta.uint(25) != 1 || e.payloads[0] != "" {
		t.Errorf("%+v", e.meta)
	}
	if e := es[1]; string(e.meta.bytes(6)) != "/wA=" || e.meta.uint(17) != 1 || e.meta.uint(25) != 0 {
		t.Errorf("%+v", e.meta)
	}
}

// I4, I7: what was cut off is asked for, and sent again from there.
func TestFaultsAreMended(t *testing.T) {
	for name, what := range map[string]fate{"cut before": cutBefore, "cut after": cutAfter, "ledger fails": fails, "closed": closes, "wrong receipt": swapped} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, edit func(*ProducerOptions)) {
				b := newBroker(t)
				s := start(t, b, edit)
				defer s.close()
				hit := 0
				b.set(func() {
					b.jitter = true
					b.fate = func(e *fakeEntry) fate {
						if e.last >= int64(100*(hit+1)) && hit < 4 {
							hit++
							return what
						}
						return normal
					}
				})
				for id := int64(0); id < 1000; id += 250 { // as one batch they would meet one fault
					s.send(id+1, id+250)
					s.r.wait(t, id+250)
				}
				checkIDs(t, b.ids(topic), 1, 1000)
				if hit < 2 {
					t.Error("no fault happened")
				}
			})
		})
	}
}

// I1, I7: what is skipped because the broker has pushed it is confirmed only when it is persisted, also when
// nothing follows.
func TestSkippedIsNotDoneBeforePersisted(t *testing.T) {
	both(t, func(t *testing.T, edit func(*ProducerOptions)) {
		b := newBroker(t)
		s := start(t, b, edit)
		s.send(1, 10)
		s.r.wait(t, 10)
		b.set(func() { b.hold = true })
		s.send(11, 11)
		for {
			b.mu.Lock()
			n := get(b.topic(topic).pushed, "a/b/c")
			b.mu.Unlock()
			if n == 11 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		s.kill()
		s = start(t, b, edit)
		defer s.close()
		if n := s.p.LastSequenceID(); n != 11 {
			t.Fatalf("last sequence id %d", n)
		}
		s.send(5, 11)                      // from the cursor
		time.Sleep(100 * time.Millisecond) // some probes
		if last, _, _, _ := s.r.state(); last >= 11 {
			t.Fatal("done although it is not persisted")
		}
		b.release()
		s.r.wait(t, 11)
		if _, dups, _, _ := s.r.state(); dups != 7 {
			t.Errorf("%d duplicates, want 7", dups)
		}
		s.send(12, 20)
		s.r.wait(t, 20)
		checkIDs(t, b.ids(topic), 1, 20)
	})
}

// I7: the session dies before what it skipped is persisted, and the ledger loses it: it is sent again.
func TestSkippedAndLost(t *testing.T) {
	both(t, func(t *testing.T, edit func(*ProducerOptions)) {
		b := newBroker(t)
		s := start(t, b, edit)
		s.send(1, 10)
		s.r.wait(t, 10)
		b.set(func() {
			b.hold = true
			b.fate = func(e *fakeEntry) fate { return map[bool]fate{true: fails}[e.first == 11] }
		})
		s.send(11, 15)
		for {
			b.mu.Lock()
			n := get(b.topic(topic).pushed, "a/b/c")
			b.mu.Unlock()
			if n >= 11 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		s.kill()
		s = start(t, b, edit)
		defer s.close()
		if n := s.p.LastSequenceID(); n < 11 {
			t.Fatalf("last sequence id %d", n)
		}
		s.send(9, 11)
		time.Sleep(100 * time.Millisecond) // some probes
		s.send(12, 30)
		b.set(func() { b.fate = nil })
		b.release()
		s.r.wait(t, 30)
		checkIDs(t, b.ids(topic), 1, 30)
	})
}

// I7: an entry of an older connection that reaches the ledger after the producer was opened again moves the border of what is
// stored. Nothing may follow an entry that straddles it.
func TestStragglerMovesTheBorder(t *testing.T) {
	b := newBroker(t)
	s := start(t, b, batched)
	defer s.close()
	for id := range int64(500) { // so that it knows of large batches that they pass
		var m Message
		s.enc.Encode(&m, id+1, &sink.Message{Value: make([]byte, 1024)})
		s.p.Send(m)
	}
	s.r.wait(t, 500)
	away, late := true, false
	b.set(func() {
		b.producing = func(uint64) *Error {
			if away {
				return &Error{Code: CodeProducerBusy, Message: "not now"}
			}
			return nil
		}
		b.fate = func(e *fakeEntry) fate {
			if e.first != 501 || late {
				return normal
			}
			late = true
			time.Sleep(100 * time.Millisecond) // what follows is written meanwhile
			e.topic.pushed[e.producer] = 505
			e.topic.pending = append(e.topic.pending, &fakeEntry{producer: e.producer, first: 501, last: 505, ids: []int64{501, 502, 503, 504, 505},
				topic: e.topic, lostReceipt: true})
			b.start(e.topic)
			return normal
		}
	})
	b.cut()
	s.send(501, 3500)
	b.set(func() { away = false })
	s.r.wait(t, 3500)
	checkIDs(t, b.ids(topic), 1, 3500)
	if !late {
		t.Error("no straggler came")
	}
}

// An entry that is refused alone, for no reason of its own, is sent again.
func TestRefusedAlone(t *testing.T) {
	for name, what := range map[string]fate{"unknown": unknown, "checksum": corrupt} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, edit func(*ProducerOptions)) {
				b := newBroker(t)
				s := start(t, b, edit)
				defer s.close()
				hit := 0
				b.set(func() {
					b.fate = func(e *fakeEntry) fate {
						if e.last >= 6 && hit < 3 {
							hit++
							return what
						}
						return normal
					}
				})
				for id := range int64(10) {
					s.send(id+1, id+1)
					s.r.wait(t, id+1)
				}
				checkIDs(t, b.ids(topic), 1, 10)
			})
		})
	}
}

// I3: an entry that is refused while later ones are stored is loud, in this session and the next.
func TestRefusedAndOvertaken(t *testing.T) {
	b := newBroker(t)
	s := start(t, b, nil)
	defer s.close()
	s.send(1, 5)
	s.r.wait(t, 5)
	b.set(func() { b.fate = func(e *fakeEntry) fate { return map[bool]fate{true: corrupt}[e.first == 6] } })
	s.sendAtOnce(b, 6, 20) // or it may be refused, and sent again, before there is anything that overtakes it
	id, err := s.r.failure(t)
	if id != 6 || !Spent(err) || !strings.Contains(err.Error(), "refused the message with id 6") || !strings.Contains(err.Error(), topic) {
		t.Fatalf("id %d: %v", id, err)
	}
}

// I7: sessions that die at any time, cut links, lost receipts, and a cursor that lags: 0 lost, 0 doubled, 0 reordered.
func TestChaos(t *testing.T) {
	const total = 4000
	for seed := range uint64(3) {
		both(t, func(t *testing.T, edit func(*ProducerOptions)) {
			rng, faults := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 10))
			rarely := 15
			if edit == nil {
				rarely = 400
			}
			b := newBroker(t)
			b.set(func() {
				b.jitter = true
				b.fate = func(e *fakeEntry) fate {
					if faults.IntN(rarely) > 0 {
						return normal
					}
					return []fate{cutBefore, cutAfter, fails, closes, swapped}[faults.IntN(5)]
				}
			})
			cursor, restarts := int64(1), 0
			for cursor <= total {
				s := start(t, b, edit)
				upTo := min(total, cursor+int64(rng.IntN(600)))
				s.send(cursor, upTo)
				stop := cursor + rng.Int64N(upTo-cursor+1)
				if upTo == total {
					stop = total
				}
				s.r.wait(t, stop)
				if rng.IntN(2) == 0 {
					s.kill()
				} else {
					s.close()
				}
				restarts++
				last, _, _, _ := s.r.state()
				if last == total {
					break
				}
				cursor += rng.Int64N(max(last+2-cursor, 1)) // lags behind what is confirmed
			}
			checkIDs(t, b.ids(topic), 1, total)
			t.Logf("%d sessions, %d entries", restarts, len(b.entries(topic)))
		})
	}
}

// I3: a message that the broker does not take is named, and nothing follows it.
func TestTooLarge(t *testing.T) {
	both(t, func(t *testing.T, edit func(*ProducerOptions)) {
		b := newBroker(t)
		b.set(func() { b.maxMessage = 2000 })
		s := start(t, b, edit)
		defer s.close()
		s.send(1, 100)
		s.r.wait(t, 100)
		var m Message
		s.enc.Encode(&m, 101, &sink.Message{Value: make([]byte, 2000)})
		s.p.Send(m)
		s.send(102, 110)
		id, err := s.r.failure(t)
		if id != 101 || !Refused(err) || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), b.addr) || !strings.Contains(err.Error(), "maxMessageSize") {
			t.Fatalf("id %d: %v", id, err)
		}
		checkIDs(t, b.ids(topic), 1, 100)
	})
}

// I3: a batch that a topic's own limit refuses is cut smaller; nothing is lost by it.
func TestTopicLimitCutsBatches(t *testing.T) {
	b := newBroker(t)
	b.set(func() { b.limit = 300 })
	s := start(t, b, batched)
	defer s.close()
	s.send(1, 2000)
	s.r.wait(t, 2000)
	checkIDs(t, b.ids(topic), 1, 2000)
	var m Message
	s.enc.Encode(&m, 2001, &sink.Message{Value: make([]byte, 400)})
	s.p.Send(m)
	s.send(2002, 2010)
	id, err := s.r.failure(t)
	if id != 2001 || !Refused(err) {
		t.Fatalf("id %d: %v", id, err)
	}
	checkIDs(t, b.ids(topic), 1, 2000)
}

// I3: a limit that is lowered below what has passed.
func TestTopicLimitLowered(t *testing.T) {
	both(t, func(t *testing.T, edit func(*ProducerOptions)) {
		b := newBroker(t)
		s := start(t, b, edit)
		defer s.close()
		s.send(1, 1000)
		s.r.wait(t, 1000)
		b.set(func() { b.limit = 20 })
		s.send(1001, 1100)
		if _, err := s.r.failure(t); !Refused(err) || !strings.Contains(err.Error(), "set-max-message-size") {
			t.Fatal(err)
		}
		checkIDs(t, b.ids(topic), 1, 1000)
	})
}

// I8: who has been taken over from does not take back.
func TestTakeover(t *testing.T) {
	b := newBroker(t)
	asked := 0
	old := start(t, b, func(o *ProducerOptions) { o.Takeover = func() bool { asked++; return false } })
	defer old.close()
	old.send(1, 10)
	old.r.wait(t, 10)
	polite := client(t, b)
	defer polite.Close()
	o := ProducerOptions{Topic: topic, Name: "a/b/c", Access: Exclusive}
	if _, err := polite.Open(within(t), o, newRecorder()); Code(err) != CodeProducerFenced || displaced(err) {
		t.Fatalf("without takeover: %v", err)
	}
	o.Name, o.Takeover = "somebody/else", yes
	if _, err := polite.Open(within(t), o, newRecorder()); Code(err) != CodeProducerFenced {
		t.Fatalf("another name takes over: %v", err)
	}
	next := start(t, b, nil)
	defer next.close()
	next.send(8, 20)
	next.r.wait(t, 20)
	old.send(11, 30)
	if _, err := old.r.failure(t); Code(err) != CodeProducerFenced || asked == 0 {
		t.Fatal(err)
	}
	next.send(21, 30)
	next.r.wait(t, 30)
	checkIDs(t, b.ids(topic), 1, 30)
	// One that comes back after the other has gone learns it by the epoch.
	next.close()
	late := start(t, b, nil)
	defer late.close()
	b.set(func() { // its place is free at once, or it might still find a ghost of its own there, which it may take over
		b.topic(topic).epoch++
		b.closeProducer(b.topic(topic).holder)
	})
	b.cut()
	if _, err := late.r.failure(t); !displaced(err) {
		t.Fatal(err)
	}
}

// A connection that the broker has not noticed to be dead is our own: its place is taken back.
func TestOwnGhost(t *testing.T) {
	both(t, func(t *testing.T, edit func(*ProducerOptions)) {
		b := newBroker(t)
		s := start(t, b, edit)
		defer s.close()
		s.send(1, 10)
		s.r.wait(t, 10)
		// The broker keeps a ghost with our epoch while our connection ends.
		b.mu.Lock()
		ft := b.topic(topic)
		ghost := *ft.holder
		ft.holder = &ghost
		b.mu.Unlock()
		b.cut()
		s.send(11, 20)
		s.r.wait(t, 20)
		checkIDs(t, b.ids(topic), 1, 20)
	})
}

// I3: a broker that remembers less than it has confirmed is loud.
func TestForgotten(t *testing.T) {
	b := newBroker(t)
	s := start(t, b, nil)
	defer s.close()
	s.send(1, 10)
	s.r.wait(t, 10)
	b.set(func() { delete(b.topics, topic) })
	b.cut()
	_, err := s.r.failure(t)
	if !strings.Contains(err.Error(), "has forgotten") || !strings.Contains(err.Error(), topic) {
		t.Fatal(err)
	}
}

func TestFinalErrors(t *testing.T) {
	for name, c := range map[string]struct {
		what fate
		code int
	}{"terminated": {terminated, CodeTopicTerminated}, "checksum": {corrupt, CodeChecksum}} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			s := start(t, b, nil)
			defer s.close()
			s.send(1, 5)
			s.r.wait(t, 5)
			b.set(func() { b.fate = func(*fakeEntry) fate { return c.what } })
			s.send(6, 6)
			id, err := s.r.failure(t)
			if id != 6 || Code(err) != c.code || !strings.Contains(err.Error(), codeNames[c.code]) {
				t.Fatalf("id %d: %v", id, err)
			}
		})
	}
}

// Redirects are followed, behind a proxy through the service's own address.
func TestLookup(t *testing.T) {
	b := newBroker(t)
	b.set(func() {
		b.lookup = func(_ string, authoritative bool) (bool, bool, string) {
			if !authoritative {
				return true, true, "broker-7.internal:6650"
			}
			return false, true, "broker-8.internal:6650"
		}
	})
	s := start(t, b, nil)
	defer s.close()
	s.send(1, 10)
	s.r.wait(t, 10)
	b.mu.Lock()
	var seen []string
	for _, c := range b.connects {
		seen = append(seen, string(c.bytes(6)))
	}
	b.mu.Unlock()
	if !slices.Equal(seen, []string{"", "broker-7.internal:6650", "broker-8.internal:6650"}) {
		t.Errorf("connections to %q", seen)
	}

	b2 := newBroker(t)
	b2.set(func() {
		b2.lookup = func(string, bool) (bool, bool, string) { return true, false, b2.addr }
	})
	c := client(t, b2)
	defer c.Close()
	if _, err := c.Open(within(t), ProducerOptions{Topic: topic, Name: "n"}, newRecorder()); err == nil || !strings.Contains(err.Error(), "redirected too often") {
		t.Errorf("redirected for ever: %v", err)
	}
}

func TestPartitionsAndHosts(t *testing.T) {
	b := newBroker(t)
	b.set(func() { b.partitions[topic] = 7 })
	c := client(t, b, func(o *Options) { o.URL = "pulsar://127.0.0.1:1," + b.addr })
	defer c.Close()
	if n, err := c.Partitions(within(t), topic); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := c.Partitions(within(t), "persistent://a/b/c"); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	away := client(t, b, func(o *Options) { o.URL = "pulsar://127.0.0.1:1" })
	defer away.Close()
	if _, err := away.Partitions(within(t), topic); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a broker that is away: %v", err)
	}
}

func TestAuthentication(t *testing.T) {
	b := newBroker(t)
	b.set(func() { b.token, b.challenge = "secret-token", true })
	c := client(t, b, func(o *Options) { o.Token = "secret-token" })
	defer c.Close()
	if _, err := c.Partitions(within(t), topic); err != nil {
		t.Fatal(err)
	}
	c2 := client(t, b, func(o *Options) { o.Token = "wrong-token" })
	defer c2.Close()
	_, err := c2.Partitions(within(t), topic)
	if Code(err) != CodeAuthentication || strings.Contains(err.Error(), "wrong-token") {
		t.Fatal(err)
	}
}

// A broker that has gone silent is left, and found again.
func TestKeepAlive(t *testing.T) {
	// Where the machine has much else to do an answer may come late. Then it is given more time.
	for keepAlive := 50 * time.Millisecond; !keepsAlive(t, keepAlive); keepAlive *= 4 {
		if keepAlive > 10*time.Second {
			t.Fatal("a broker that answers is left")
		}
	}
}

// keepsAlive tells whether a broker was kept that answered; one that answers no more is left in any case.
func keepsAlive(t *testing.T, keepAlive time.Duration) bool {
	b := newBroker(t)
	r := newRecorder()
	var log lockedbuf.Buffer
	c := client(t, b, func(o *Options) {
		o.KeepAlive, o.OperationTimeout = keepAlive, max(time.Second, 4*keepAlive)
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	defer c.Close()
	p, err := c.Open(within(t), ProducerOptions{Topic: topic, Name: "n", Access: Exclusive}, r)
	if err != nil {
		t.Log(err)
		return false
	}
	defer p.Close()
	arrives := func(id int64) bool {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if last, _, _, err := r.state(); err != nil {
				t.Fatal(err)
			} else if last >= id {
				return true
			}
		}
		t.Logf("no receipt for %d with a keep-alive of %v", id, keepAlive)
		return false
	}
	p.Send(NewMessage(1, []byte("x")))
	if !arrives(1) {
		return false
	}
	time.Sleep(6 * keepAlive) // pings are answered
	b.mu.Lock()
	n := len(b.connects)
	b.mute = true
	b.mu.Unlock()
	if n != 1 {
		t.Logf("%d connections with a keep-alive of %v", n, keepAlive)
		return false
	}
	p.Send(NewMessage(2, []byte("x")))
	for ctx := within(t); !strings.Contains(log.String(), "silent"); time.Sleep(time.Millisecond) { // by a later complaint the last one no longer says it
		if ctx.Err() != nil {
			t.Fatal("a broker that has gone silent is not left")
		}
	}
	if c.Complaint() == "" {
		t.Error("no trouble is told")
	}
	b.set(func() { b.mute = false })
	if !arrives(2) {
		return false
	}
	checkIDs(t, b.ids(topic), 1, 2)
	return true
}

// Without deduplication everything that has no receipt is sent again.
func TestWithoutDeduplication(t *testing.T) {
	b := newBroker(t)
	b.set(func() {
		b.noDedup = true
		b.fate = func(e *fakeEntry) fate {
			if e.first == 5 && len(b.topic(topic).stored) < 8 {
				return cutAfter
			}
			return normal
		}
	})
	s := start(t, b, func(o *ProducerOptions) { o.Deduplicates = false })
	defer s.close()
	s.send(1, 20)
	s.r.wait(t, 20)
	ids := b.ids(topic)
	slices.Sort(ids)
	checkIDs(t, slices.Compact(ids), 1, 20)
}

// Closing lets the name go, waits for what is on its way, and ends while a broker says nothing.
func TestClose(t *testing.T) {
	b := newBroker(t)
	b.set(func() { b.jitter = true })
	s := start(t, b, nil)
	s.send(1, 50)
	s.r.wait(t, 1)
	s.close()
	b.mu.Lock()
	if b.topic(topic).holder != nil {
		t.Error("the name is held")
	}
	b.mu.Unlock()
	s.p.Send(NewMessage(99, nil)) // does nothing
	s.p.Close()
	if _, err := s.c.Partitions(within(t), topic); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}

func TestNew(t *testing.T) {
	for _, url := range []string{"", "http://x", "pulsar://", "pulsar://a/b", "pulsar+ssl://u@h:1"} {
		if _, err := New(Options{URL: url}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	c, err := New(Options{URL: "pulsar+ssl://a,[::1]:7,b:8/"})
	if err != nil || !slices.Equal(c.hosts, []string{"a:6651", "[::1]:7", "b:8"}) {
		t.Errorf("%v, %v", c, err)
	}
	c.Close()
	if _, err := c.Open(context.Background(), ProducerOptions{Compression: "rar"}, nil); err == nil {
		t.Error("an unknown compression is accepted")
	}
}

// displaced tells that another producer has had the topic since we had it: what holds it is no ghost of our own.
func displaced(err error) bool {
	return Code(err) == CodeProducerFenced && strings.Contains(err.Error(), "opic epoch has already moved") // AbstractTopic.incrementTopicEpochIfNeeded
}
