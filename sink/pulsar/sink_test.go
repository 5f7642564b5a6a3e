package pulsar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

func seqRange(first int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = first + int64(i)
	}
	return out
}

func on(id int64, what fate) func(*entry) fate {
	return func(e *entry) fate {
		if e.id>>subIndexBits == id {
			return what
		}
		return normal
	}
}

// I3, I4: whatever goes wrong with one message, the session ends, and after a
// reset the replay stores each message once, in order.
func TestFaultsEndTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		what fate
		want string
	}{
		"error":        {failed, "injected"},
		"out of order": {outOfOrder, "out of order"},
		"twice":        {twice, "out of order"},
		"no receipt":   {lostReceipt, "no receipt for the message of sequence 50"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			s := opened(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
			cl.set(func() { cl.fate = on(50, c.what) })
			r := sinktest.NewRecorder(nil)
			msgs := sinktest.Messages(r, topic, 0, 1, 100)
			n, err := s.Publish(limit(t), msgs)
			if err := r.Wait(limit(t), n); err != nil {
				t.Fatal(err)
			}
			last := s.Status().Err
			if last == nil || !strings.Contains(last.Error(), c.want) {
				t.Fatalf("status %v, Publish %v; want %q", last, err, c.want)
			}
			if _, failed := r.Count(); failed == 0 && n == len(msgs) {
				t.Fatal("nothing failed")
			}
			if n, err := s.Publish(limit(t), sinktest.Messages(r, topic, 0, 200, 1)); n != 0 || err == nil {
				t.Fatal("a failed session takes messages")
			}
			cl.set(func() { cl.fate = nil })
			if err := s.Reset(limit(t)); err != nil {
				t.Fatal(err)
			}
			again := sinktest.Messages(sinktest.NewRecorder(nil), topic, 0, 1, 150)
			if _, err := s.Publish(limit(t), again); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(limit(t)); err != nil {
				t.Fatal(err)
			}
			sinktest.CheckExact(t, name, cl.read(topic), seqRange(1, 150))
			if s.Duplicates() == 0 {
				t.Error("no duplicate: this test shows nothing")
			}
		})
	}
}

// I3: nothing follows a message that is larger than all before it until it is
// confirmed, so a refusal costs nothing.
func TestLargerMessagesGoAlone(t *testing.T) {
	cl := newCluster()
	s := opened(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
	large := map[int64]bool{1: true, 40: true, 41: true, 80: true}
	inFlight, worst := 0, 0
	cl.set(func() {
		cl.fate = func(e *entry) fate {
			n := s.current
			n.mu.Lock()
			l := n.lanes[laneKey{topic, 0}]
			n.mu.Unlock()
			l.mu.Lock()
			inFlight = l.sent
			l.mu.Unlock()
			if large[e.id>>subIndexBits] {
				worst = max(worst, inFlight)
			}
			if e.id>>subIndexBits == 80 {
				return refused
			}
			return normal
		}
	})
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 1, 100)
	for i := range msgs {
		msgs[i].Key = []byte("k")
		msgs[i].Value = []byte(strings.Repeat("x", 20))
		if large[int64(i+1)] {
			msgs[i].Value = []byte(strings.Repeat("x", 30+i))
		}
	}
	resume := cl.pause() // or the session may have ended while it is under way
	if _, err := s.Publish(limit(t), msgs); err != nil {
		t.Fatal(err)
	}
	resume()
	if err := r.Wait(limit(t), 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "Exceed maximum message size") || !strings.Contains(err.Error(), "sequence 80") {
		t.Fatal(err)
	}
	if worst != 1 {
		t.Errorf("a large message had %d others beside it", worst-1)
	}
	sinktest.CheckExact(t, "before", cl.read(topic), seqRange(1, 79))
	cl.set(func() { cl.fate = nil; cl.said = "" })
	if err := s.Reset(limit(t)); err != nil {
		t.Fatal(err)
	}
	again := sinktest.Messages(sinktest.NewRecorder(nil), topic, 0, 80, 21)
	if _, err := s.Publish(limit(t), again); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	sinktest.CheckExact(t, "after", cl.read(topic), seqRange(1, 100))
}

// I3: a topic's limit may be lowered while we run, so a large message goes alone although larger ones have passed: refused, it has not
// been overtaken, and is sent once it fits.
func TestALargeMessageIsNotOvertaken(t *testing.T) {
	cl := newCluster()
	s := opened(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 1, 60)
	msgs[4].Value, msgs[29].Value = make([]byte, 2*alwaysAlone), make([]byte, alwaysAlone+1)
	if _, err := s.Publish(limit(t), msgs[:20]); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	cl.set(func() { cl.fate = on(30, refused) })
	together(t, cl, s, msgs[20:])
	if s.Status().Err == nil {
		t.Fatal("the refusal is not told")
	}
	cl.set(func() { cl.fate = nil; cl.said = "" })
	if err := s.Reset(limit(t)); err != nil {
		t.Fatal(err)
	}
	again := sinktest.Messages(r, topic, 0, 21, 40)
	again[9].Value = msgs[29].Value
	if _, err := s.Publish(limit(t), again); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	healed(t, s)
	sinktest.CheckExact(t, "stored", cl.read(topic), seqRange(1, 60))
}

// healed waits until the status shows no error. All may be done before: it is looked at from time to time only.
func healed(t testing.TB, s *Sink) {
	t.Helper()
	for ctx := limit(t); s.Status().Err != nil; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("status: %v", s.Status().Err)
		}
	}
}

// I3: a message that was refused while others behind it were stored cannot be
// sent any more under its id; that is told, and never taken for stored.
func TestARefusedMessageThatWasOvertaken(t *testing.T) {
	cl := newCluster()
	s := opened(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
	cl.set(func() { cl.fate = on(50, refused) }) // a limit that was lowered below what had passed
	r := sinktest.NewRecorder(nil)
	if _, err := s.Publish(limit(t), alike(r, 10, 30, "v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	together(t, cl, s, alike(r, 40, 60, "v"))
	cl.set(func() { cl.fate = nil; cl.said = "" })
	for range 2 { // it stays so
		if err := s.Reset(limit(t)); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Publish(limit(t), alike(r, 40, 60, "v")); err != nil && n < 11 { // the session may have ended while it was under way
			t.Fatal(err)
		}
		settled(s)
		if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "may have been refused") || !strings.Contains(err.Error(), "sequence 50") {
			t.Fatal(err)
		}
	}

	// Nor does a restart take it for stored.
	state := s.AppendState(nil)
	if err := s.Close(limit(t)); err != nil {
		t.Fatal(err)
	}
	s = next(t, cl, state, sink.Same, nil)
	if n, err := s.Publish(limit(t), alike(r, 50, 50, "v")); err != nil && n < 1 { // as above
		t.Fatal(err)
	}
	settled(s)
	if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "may have been refused") || !strings.Contains(err.Error(), "sequence 50") {
		t.Fatal(err)
	}
	// Where the numbers are others, it is sent under another.
	if _, err := s.Restore(limit(t), s.AppendState(nil), sink.Changed); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(limit(t), alike(r, 1050, 10, "v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	healed(t, s)
	if from, err := parseState(s.AppendState(nil)); err != nil || len(from.suspects) > 0 {
		t.Fatal(from.suspects, err)
	}
}

// An outage is sat out, however long: the watchdog is for brokers that answer.
func TestOutageIsSatOut(t *testing.T) {
	cl := newCluster()
	s := opened(t, cl, func(o *Options) { o.WatchdogTimeout = time.Second })
	r := sinktest.NewRecorder(nil)
	if _, err := s.Publish(limit(t), sinktest.Messages(r, topic, 0, 1, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	resume := cl.pause()
	if _, err := s.Publish(limit(t), sinktest.Messages(r, topic, 0, 11, 10)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if _, failed := r.Count(); failed > 0 {
		t.Fatal(s.Status().Err)
	}
	resume()
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	if _, failed := r.Count(); failed > 0 {
		t.Fatal(s.Status().Err)
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sink.Message)
		want   string
	}{
		"sequence below 0":   {func(m *sink.Message) { m.Sequence = -1 }, "not between 0 and"},
		"sequence too large": {func(m *sink.Message) { m.Sequence = maxSequence + 1 }, "not between 0 and"},
		"sequence again":     {func(m *sink.Message) { m.Sequence = 9 }, "does not rise"},
		"sub-index":          {func(m *sink.Message) { m.SubIndex = 1024 }, "more than 1024 messages"},
		"too large":          {func(m *sink.Message) { m.Value = make([]byte, DefaultMaxMessageBytes) }, "the limit is 5232640"},
		"key":                {func(m *sink.Message) { m.Key = []byte{0xff} }, "key is not UTF-8"},
		"header":             {func(m *sink.Message) { m.Headers[0].Value = []byte{0xff} }, `header "seq" is not UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			s := opened(t, cl, nil)
			r := sinktest.NewRecorder(nil)
			msgs := sinktest.Messages(r, topic, 0, 1, 10)
			c.change(&msgs[9])
			n, err := s.Publish(limit(t), msgs)
			if n != 9 || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), topic) {
				t.Fatalf("%d, %v; want %q", n, err, c.want)
			}
			if name == "too large" != errors.Is(err, ErrTooLarge) {
				t.Error("ErrTooLarge")
			}
			if err := s.Flush(limit(t)); err != nil { // what came before goes on
				t.Fatal(err)
			}
			sinktest.CheckExact(t, name, cl.read(topic), seqRange(1, 9))
		})
	}
	cl := newCluster()
	s := opened(t, cl, nil)
	m := sinktest.Messages(sinktest.NewRecorder(nil), topic, 0, maxSequence, 1)
	m[0].SubIndex = maxSubIndex
	if _, err := s.Publish(limit(t), m); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	if last := cl.topics[topic].last; last != 1<<63-1 {
		t.Errorf("the largest id is %d", last)
	}
}

// I5: messages of one change have ids of their own, in order.
func TestSubIndexes(t *testing.T) {
	cl := newCluster()
	s := opened(t, cl, nil)
	r := sinktest.NewRecorder(nil)
	msgs := make([]sink.Message, 30)
	for i := range msgs {
		sinktest.Fill(&msgs[i], r, topic, -1, int64(i/3))
		msgs[i].SubIndex = uint16(i % 3)
	}
	if _, err := s.Publish(limit(t), msgs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	if got := len(cl.read(topic)); got != 30 || s.Duplicates() != 0 {
		t.Fatalf("%d stored, %d duplicates", got, s.Duplicates())
	}
}

// Conditions that a person mends are waited for, with the remedy in the status.
func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(*cluster)
		want       string
	}{
		"away":      {func(c *cluster) { c.away = errors.New("connection refused") }, func(c *cluster) { c.away = nil }, "connection refused"},
		"fenced":    {func(c *cluster) { c.topic(topic).held = true }, func(c *cluster) { c.topic(topic).held = false }, "held by another producer, or by an older connection"},
		"no dedup":  {func(c *cluster) { c.dedupOff = true }, func(c *cluster) { c.dedupOff = false }, "pulsar-admin namespaces set-deduplication public/default --enable"},
		"token":     {func(c *cluster) { c.openError = errors.New("AuthorizationError") }, func(c *cluster) { c.openError = nil }, "check the token"},
		"no topic":  {func(c *cluster) { c.openError = errors.New("TopicNotFound") }, func(c *cluster) { c.openError = nil }, "allowAutoTopicCreation"},
		"terminate": {func(c *cluster) { c.openError = errors.New("TopicTerminatedError") }, func(c *cluster) { c.openError = nil }, "terminated"},
		"quota":     {func(c *cluster) { c.openError = errors.New("ProducerBlockedQuotaExceededError") }, func(c *cluster) { c.openError = nil }, "set-backlog-quota"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			c.begin(cl)
			s := opened(t, cl, nil)
			r := sinktest.NewRecorder(nil)
			if _, err := s.Publish(limit(t), sinktest.Messages(r, topic, 0, 1, 5)); err != nil {
				t.Fatal(err)
			}
			for s.Status().Err == nil {
				time.Sleep(time.Millisecond)
			}
			if err := s.Status().Err; !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if done, _ := r.Count(); done > 0 {
				t.Fatal("done")
			}
			cl.set(func() { c.end(cl) })
			if err := s.Flush(limit(t)); err != nil {
				t.Fatal(err)
			}
			healed(t, s)
			sinktest.CheckExact(t, name, cl.read(topic), seqRange(1, 5))
		})
	}
	if text := advice("ProducerFenced", "a/b/c", 2*time.Minute); !strings.Contains(text, `another process that runs with the same deployment, destination and sink names ("a/b/c")`) {
		t.Error(text)
	}
	cl := newCluster()
	cl.dedupOff = true
	s := opened(t, cl, func(o *Options) { o.WithoutDeduplication = true })
	if _, err := s.Publish(limit(t), sinktest.Messages(sinktest.NewRecorder(nil), topic, 0, 1, 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionNumbers(t *testing.T) {
	cl := newCluster()
	cl.partitioned[topic] = 2
	s := opened(t, cl, nil)
	r := sinktest.NewRecorder(nil)
	if _, err := s.Publish(limit(t), sinktest.Messages(r, topic, 2, 1, 1)); err != nil {
		t.Fatal(err)
	}
	for s.Status().Err == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.Status().Err; !strings.Contains(err.Error(), "has no partition 2: it has 2") {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	good := Options{URL: "pulsar://a:6650,b:6650", Deployment: "production", Destination: "shop", Sink: "orders"}
	for _, c := range []struct {
		change func(*Options)
		want   string // "" is good
	}{
		{func(o *Options) {}, ""},
		{func(o *Options) { o.URL = "pulsar+ssl://a:6651/"; o.TLS = &tls.Config{} }, ""},
		{func(o *Options) { o.AdminURL = "https://a:8443"; o.TLS = &tls.Config{} }, ""},
		{func(o *Options) { o.URL = "" }, "url: is missing"},
		{func(o *Options) { o.URL = "http://a" }, "must begin with pulsar://"},
		{func(o *Options) { o.URL = "pulsar://" }, `"" is not HOST:PORT`},
		{func(o *Options) { o.URL = "pulsar://a:x" }, `"a:x" is not HOST:PORT`},
		{func(o *Options) { o.URL = "pulsar://u:p@a" }, "must hold no user"},
		{func(o *Options) { o.TLS = &tls.Config{} }, "write pulsar+ssl://"},
		{func(o *Options) { o.AdminURL = "a:8080" }, "admin_url: must be http://"},
		{func(o *Options) { o.Token = "a b" }, "token: contains blanks"},
		{func(o *Options) { o.Deployment = "" }, "deployment: is missing"},
		{func(o *Options) { o.Destination = "a/b" }, "must not contain a slash"},
		{func(o *Options) { o.Sink = "" }, "sink: is missing"},
		{func(o *Options) { o.Topics = Topics{Create: true, Partitions: 4} }, "through admin_url"},
		{func(o *Options) { o.Topics.Partitions = -1 }, "must not be negative"},
		{func(o *Options) { o.Compression = "gzip" }, `unknown value "gzip"`},
		{func(o *Options) { o.MaxInFlightBytes = -1 }, "bounds must not be negative"},
		{func(o *Options) { o.WatchdogTimeout = time.Millisecond }, "watchdog: 1ms is less than 1 s"},
	} {
		o := good
		c.change(&o)
		s, err := New(o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v; want %q", err, c.want)
		}
		if err == nil {
			if err := s.Close(limit(t)); err != nil {
				t.Error(err)
			}
		} else if o.Token != "" && strings.Contains(err.Error(), o.Token) {
			t.Error("the token is shown")
		}
	}
	_, err := New(Options{Token: "a b"})
	if n := strings.Count(err.Error(), "pulsar: "); n != 5 {
		t.Errorf("%d faults are reported at once, want 5: %v", n, err)
	}
}

func TestTopicNames(t *testing.T) {
	for in, want := range map[string]string{
		"orders":                        "persistent://public/default/orders",
		"a/b/orders":                    "persistent://a/b/orders",
		"persistent://a/b/shop.orders":  "persistent://a/b/shop.orders",
		"non-persistent://a/b/c":        "",
		"a/b":                           "",
		"persistent://a/b":              "",
		"persistent://a/b/c/d":          "",
		"persistent://a//c":             "",
		"persistent://a/b/c-partition-": "",
		"x-partition-0":                 "",
		"a b":                           "",
		"":                              "",
	} {
		got, err := parseTopic(in)
		if got.full != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got.full, err, want)
		}
	}
}

func TestWireSize(t *testing.T) {
	small := &sink.Message{Value: []byte("v")}
	for name, larger := range map[string]*sink.Message{
		"value":  {Value: []byte("vv")},
		"key":    {Value: []byte("v"), Key: []byte("k")},
		"header": {Value: []byte("v"), Headers: []sink.Header{{Name: "n"}}},
	} {
		if wireSize(larger, 1) <= wireSize(small, 1) {
			t.Errorf("%s adds nothing", name)
		}
	}
	if d := wireSize(small, 1<<40) - wireSize(small, 1<<20); d != 3 {
		t.Errorf("a longer id adds %d bytes, want 3", d)
	}
}

func BenchmarkPublish(b *testing.B) {
	cl := newCluster()
	s := opened(b, cl, nil)
	b.ReportAllocs()
	value := []byte(fmt.Sprintf("%250d", 1))
	headers := []sink.Header{{Name: "seq", Value: []byte("123456789")}}
	const size = 500
	for n := 0; n < b.N; n += size {
		msgs := make([]sink.Message, size)
		for i := range msgs {
			m := &msgs[i]
			m.Topic, m.Sequence, m.Key, m.Value, m.Headers, m.Owner = topic, int64(n+i), value[:8], value, headers, nobody{}
		}
		if _, err := s.Publish(limit(b), msgs); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(limit(b)); err != nil {
		b.Fatal(err)
	}
}

type nobody struct{}

func (nobody) MessageDone(*sink.Message, error) {}
