//go:build integration

package pulsar

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

func sequences(first int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = first + int64(i)
	}
	return out
}

// send publishes and resets as a bridge does, until all of first..last is confirmed.
func send(t testing.TB, s *Sink, topic string, first, last int64) {
	t.Helper()
	for first <= last {
		r := sinktest.NewRecorder(nil)
		msgs := sinktest.Messages(r, topic, 0, first, int(last-first+1))
		n, err := s.Publish(within(t), msgs)
		if err == nil {
			if err := s.Flush(within(t)); err != nil {
				t.Fatalf("Flush: %v; status: %v", err, s.Status().Err)
			}
		}
		good := 0
		for ; good < n; good++ {
			if times, derr := r.Result(&msgs[good]); derr != nil || times == 0 {
				break
			}
		}
		first += int64(good)
		if first <= last {
			err := s.Status().Err
			t.Logf("reset at %d: %.300v", first, err)
			var stop *DeliveryError
			if errors.As(err, &stop) {
				t.Fatal("it stops for good")
			}
			if err := s.Reset(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// retained returns the shared broker with retention in a namespace of t's own.
func retained(t testing.TB) (b *testenv.PulsarBroker, namespace string) {
	b = testenv.Pulsar(t)
	namespace = "public/" + testenv.Name(t)
	keep(t, b, namespace, true)
	return b, namespace
}

// I5, I7: a process that starts again with an older cursor stores nothing twice
// and loses nothing, whenever it was cut off.
func TestReplayAfterRestart(t *testing.T) { each(t, replayAfterRestart) }

func replayAfterRestart(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	rng := rand.New(rand.NewSource(3))
	const total = 6000
	cursor := int64(1)
	duplicates := int64(0)
	for cursor <= total {
		s, err := New(options(b, k, "replay"))
		if err != nil {
			t.Fatal(err)
		}
		r := sinktest.NewRecorder(nil)
		msgs := sinktest.Messages(r, topic, 0, cursor, min(1000, total-int(cursor)+1))
		if _, err := s.Publish(within(t), msgs); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(within(t), 1+rng.Intn(len(msgs))); err != nil {
			t.Fatal(err)
		}
		// Cut off in mid-flight; what the client still sends is what a dying process does.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
		if err := s.Close(within(t)); err != nil {
			t.Fatal(err)
		}
		done := 0
		for done < len(msgs) {
			if times, err := r.Result(&msgs[done]); times != 1 {
				t.Fatalf("message %d was done %d times", done, times)
			} else if err != nil {
				break
			}
			done++
		}
		duplicates += s.Duplicates()
		if cursor+int64(done) > total {
			cursor = total + 1
		} else {
			cursor += int64(rng.Intn(done + 1))
		}
	}
	if duplicates == 0 {
		t.Error("no message was sent twice: this test shows nothing")
	}
	sinktest.CheckExact(t, "replay", read(t, testClient(t, b), topic), sequences(1, total))
}

// I8: another producer on the topic is waited for, and what it is is said.
func TestFenced(t *testing.T) { each(t, fenced) }

func fenced(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	c := testClient(t, b)
	other, err := c.CreateProducer(pulsarclient.ProducerOptions{Topic: topic, Name: "somebody-else", ProducerAccessMode: pulsarclient.ProducerAccessModeExclusive})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, options(b, k, "fenced"))
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 1, 10)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	for s.Status().Retries < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	shows(t, s, "somebody-else", "held by another producer")
	if done, _ := r.Count(); done != 0 {
		t.Fatal("done while fenced")
	}
	other.Close()
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	healed(t, s)
	sinktest.CheckExact(t, "fenced", read(t, c, topic), sequences(1, 10))
}

func TestBrokerKilled(t *testing.T) {
	b := testenv.NewPulsar(t)
	outages(t, b, b)
}

// Behind Pulsar's own proxy look-ups name a broker that is reached through the proxy only.
func TestProxyKilled(t *testing.T) {
	b := testenv.Pulsar(t)
	outages(t, b, b.Proxy())
}

// outages proves I4 and I7 where a broker, or the proxy before it, is killed and started again under load; then it is away from the
// start of a sink. All producers at once.
func outages(t *testing.T, b, killed *testenv.PulsarBroker) {
	const total = 20000
	base := b.Topic()
	topicOf := func(k kind) string { return base + "-" + k.name }
	var sinks []*Sink
	for _, k := range kinds {
		s := open(t, options(killed, k, "killed"))
		send(t, s, topicOf(k), 1, 100)
		sinks = append(sinks, s)
	}
	var sent sync.WaitGroup
	for i, k := range kinds {
		sent.Go(func() {
			for first := int64(101); first <= total; first += 1000 { // it takes a while, whatever the producer
				send(t, sinks[i], topicOf(k), first, min(first+999, total))
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for round := range 2 {
		time.Sleep(time.Duration(200+100*round) * time.Millisecond)
		killed.Kill()
		for _, s := range sinks {
			for st := s.Status(); st.InFlight > 0 && st.Err == nil; st = s.Status() {
				time.Sleep(20 * time.Millisecond)
			}
			if st := s.Status(); st.InFlight > DefaultMaxInFlightMessages {
				t.Errorf("%d in flight", st.InFlight) // I9
			}
		}
		killed.Restart()
	}
	sent.Wait()
	if t.Failed() {
		return
	}
	for i, k := range kinds {
		healed(t, sinks[i])
		sinktest.CheckExact(t, k.name, read(t, testClient(t, b), topicOf(k)), sequences(1, total))
	}

	// With the broker away from the start nothing fails; all is sent when it comes.
	killed.Kill()
	recorders := make([]*sinktest.Recorder, len(kinds))
	for i, k := range kinds {
		o := options(killed, k, "away")
		o.AdminURL = ""
		s := open(t, o)
		sinks[i], recorders[i] = s, sinktest.NewRecorder(nil)
		if _, err := s.Publish(within(t), sinktest.Messages(recorders[i], topicOf(k)+"-away", 0, 1, 100)); err != nil {
			t.Fatal(err)
		}
		for s.Status().Err == nil {
			time.Sleep(20 * time.Millisecond)
		}
		t.Log(s.Status().Err)
	}
	killed.Restart()
	for i, k := range kinds {
		if err := sinks[i].Flush(within(t)); err != nil {
			t.Fatal(err)
		}
		if _, failed := recorders[i].Count(); failed > 0 {
			t.Fatalf("%d failed", failed)
		}
		sinktest.CheckExact(t, "away", read(t, testClient(t, b), topicOf(k)+"-away"), sequences(1, 100))
		healed(t, sinks[i])
	}
}

// I3: a topic whose own size limit refuses a message is loud, and keeps being
// so: nothing that follows is stored, so nothing is lost when the limit is raised.
func TestTopicLimitUnseen(t *testing.T) { each(t, topicLimitUnseen) }

func topicLimitUnseen(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	name, _ := parseTopic(topic)
	o := options(b, k, "limit")
	o.AdminURL = "" // it would be known before
	o.WatchdogTimeout = 4 * time.Second
	s := open(t, o)
	send(t, s, topic, 1, 20)
	limitTo(t, b, name, 1000)
	c := testClient(t, b)

	publish := func() (int, *sinktest.Recorder, []sink.Message) {
		r := sinktest.NewRecorder(nil)
		msgs := sinktest.Messages(r, topic, 0, 21, 20)
		msgs[5].Key, msgs[5].Value = []byte("huge"), []byte(`"`+strings.Repeat("x", 2000)+`"`)
		n, err := s.Publish(within(t), msgs)
		for n == 0 && err != nil { // on a slow machine the unloading may have ended the session
			if err := s.Reset(within(t)); err != nil {
				t.Fatal(err)
			}
			n, err = s.Publish(within(t), msgs)
		}
		if n != len(msgs) {
			t.Fatalf("%d accepted, %v", n, err)
		}
		return n, r, msgs
	}
	for refused, tries := 0, 0; refused < 2; tries++ {
		n, r, msgs := publish()
		if err := r.Wait(within(t), n); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Result(&msgs[4]); err != nil {
			// The unloading may end a session, and a topic that was just loaded may remember less than was confirmed.
			if tries == 10 {
				t.Fatalf("a message before the large one: %v", err)
			}
			t.Log(err)
			if err := s.Reset(within(t)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		refused++
		_, err := r.Result(&msgs[5])
		if err == nil || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "huge") || !strings.Contains(err.Error(), "Exceed maximum message size") {
			t.Fatalf("the error is %v", err)
		}
		t.Log(err)
		sinktest.CheckExact(t, "limit", read(t, c, topic), sequences(1, 25))
		if err := s.Reset(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	rest(t, b, http.MethodDelete, name.path()+"/maxMessageSize", "")
	for {
		n, r, msgs := publish()
		if err := r.Wait(within(t), n); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Result(&msgs[19]); err == nil {
			break
		}
		if err := s.Reset(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	sinktest.CheckExact(t, "limit", read(t, c, topic), sequences(1, 40))
}

// I3: a message that a lowered limit refuses although larger ones have passed may be overtaken by what follows. When the limit is
// raised again, a restart sends it, or says that it cannot: it is never taken for stored.
func TestRefusedAndRestarted(t *testing.T) {
	t.Parallel()
	b := testenv.NewPulsar(t)
	for _, k := range kinds { // the broker stands still at times, so they take turns
		t.Run(k.name, func(t *testing.T) {
			untilOvertaken(t, k, func(i int) bool { return refusedAndRestarted(t, b, k, i) })
		})
		t.Run(k.name+" killed", func(t *testing.T) {
			untilOvertaken(t, k, func(i int) bool { return refusedAndKilled(t, b, k, i) })
		})
	}
}

// refusedAndRestarted tells whether the message was overtaken.
func refusedAndRestarted(t *testing.T, b *testenv.PulsarBroker, k kind, i int) bool {
	topic := fmt.Sprintf("%s-%s-%d", b.Topic(), k.name, i)
	name, _ := parseTopic(topic)
	rest(t, b, http.MethodPut, name.path(), "")
	o := options(b, k, "refused")
	o.AdminURL = "" // the limit shows only by refusing
	s := open(t, o)
	_, msgs := refusable(topic, 1, 10)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	limitTo(t, b, name, 20_000)
	send(t, s, topic, 11, 11) // it is connected again
	b.Pause()                 // so that all are on their way
	r, msgs := refusable(topic, 12, 189)
	n, err := s.Publish(within(t), msgs)
	b.Resume()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(within(t), n); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Result(&msgs[0]); err == nil {
		t.Fatal("the broker has not refused it")
	}
	state := s.AppendState(nil)
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	limitTo(t, b, name, 1_000_000)

	s = open(t, o)
	if _, err := s.Restore(within(t), state, sink.Same); err != nil {
		t.Fatal(err)
	}
	r, msgs = refusable(topic, 12, 189)
	n, _ = s.Publish(within(t), msgs)
	if err := r.Wait(within(t), n); err != nil {
		t.Fatal(err)
	}
	if _, failed := r.Count(); failed > 0 {
		err := s.Status().Err
		if err == nil || !strings.Contains(err.Error(), "may have been refused") || !strings.Contains(err.Error(), "sequence 12,") {
			t.Fatal(err)
		}
		t.Log(err)
		return true
	}
	sinktest.CheckExact(t, "refused", read(t, testClient(t, b), topic), sequences(1, 200))
	return false
}

// limitTo gives the topic a limit of its own, which it has when the call returns.
func limitTo(t testing.TB, b *testenv.PulsarBroker, name topicName, size int) {
	t.Helper()
	rest(t, b, http.MethodPost, name.path()+"/maxMessageSize", strconv.Itoa(size))
	a := newAdmin(&Options{AdminURL: b.AdminURL})
	defer a.close()
	for {
		if got, err := a.maxMessageSize(within(t), name); err == nil && got == size {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	rest(t, b, http.MethodPut, name.path()+"/unload", "") // it is loaded with its policies
}

// With an admin URL the topic's limit is known, and the message refused in order.
func TestTopicLimitKnown(t *testing.T) { each(t, topicLimitKnown) }

func topicLimitKnown(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	name, _ := parseTopic(topic)
	rest(t, b, http.MethodPut, name.path(), "")
	limitTo(t, b, name, 1000)
	s := open(t, options(b, k, "limit"))
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 1, 10)
	msgs[5].Value = []byte(`"` + strings.Repeat("x", 2000) + `"`)
	n, err := s.Publish(within(t), msgs)
	if n > 5 {
		if werr := r.Wait(within(t), n); werr != nil {
			t.Fatal(werr)
		}
		_, err = r.Result(&msgs[5])
	}
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), topic) {
		t.Fatalf("the error is %v", err)
	}
	// What was accepted before it may have ended with the session, of unknown fate: it is sent again.
	if err := s.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	send(t, s, topic, 1, 5)
	sinktest.CheckExact(t, "limit", read(t, testClient(t, b), topic), sequences(1, 5))
}

func TestDeduplicationOff(t *testing.T) { each(t, deduplicationOff) }

func deduplicationOff(t *testing.T, k kind) {
	b := testenv.Pulsar(t)
	ns := "public/" + testenv.Name(t)
	keep(t, b, ns, true)
	rest(t, b, http.MethodPost, "namespaces/"+ns+"/deduplication", "false")
	topic := "persistent://" + ns + "/t"
	o := options(b, k, "off")
	o.CheckTopics = []string{topic}
	s := open(t, o)
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 1, 10)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	command := "pulsar-admin namespaces set-deduplication " + ns + " --enable"
	shows(t, s, command)
	if done, _ := r.Count(); done != 0 {
		t.Fatal("done without deduplication")
	}
	found := false
	for _, f := range s.Check(within(t)) {
		t.Logf("%+v", f)
		found = found || f.Severity == sink.SeverityError && f.Remedy == command
	}
	if !found {
		t.Error("Check does not say so")
	}
	// It goes on by itself once that is mended.
	rest(t, b, http.MethodPost, "namespaces/"+ns+"/deduplication", "true")
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}

	rest(t, b, http.MethodPost, "namespaces/"+ns+"/deduplication", "false")
	o.Sink, o.WithoutDeduplication = "off2", true
	s2 := open(t, o)
	send(t, s2, "persistent://"+ns+"/t2", 1, 10)
}

func TestCheck(t *testing.T) { each(t, check) }

func check(t *testing.T, k kind) {
	b, ns := retained(t)
	o := options(b, k, "check")
	o.CheckTopics = []string{"persistent://" + ns + "/{table}", "persistent://public/no-such-namespace/t"}
	s := open(t, o)
	got := s.Check(within(t))
	bad := 0
	for _, f := range got {
		t.Logf("%+v", f)
		if strings.Contains(f.Where, ns) {
			t.Errorf("nothing is wrong with %s", ns)
		}
		if f.Severity == sink.SeverityError {
			bad++
		}
	}
	if bad == 0 {
		t.Error("the missing namespace was not found")
	}
	o.URL = "pulsar://127.0.0.1:1"
	s = open(t, o)
	got = s.Check(within(t))
	if len(got) == 0 || got[0].Severity != sink.SeverityError {
		t.Errorf("a broker that is away: %+v", got)
	}
}

// A missing topic is created with its partitions, and one that exists keeps its own.
func TestTopics(t *testing.T) { each(t, topics) }

func topics(t *testing.T, k kind) {
	b, ns := retained(t)
	o := options(b, k, "topics")
	o.Topics.Partitions = 3
	s := open(t, o)
	name, _ := parseTopic("persistent://" + ns + "/five")
	rest(t, b, http.MethodPut, name.path()+"/partitions", "5")
	plain, _ := parseTopic("persistent://" + ns + "/plain")
	rest(t, b, http.MethodPut, plain.path(), "")
	for topic, want := range map[string]int32{"new": 3, "five": 5, "plain": 1} {
		topic = "persistent://" + ns + "/" + topic
		for range 2 {
			if n, err := s.Partitions(within(t), topic); err != nil || n != want {
				t.Errorf("Partitions(%s) = %d, %v; want %d", topic, n, err, want)
			}
		}
	}
	// I5: pinned.
	rest(t, b, http.MethodPost, name.path()+"/partitions", "7")
	if n, err := s.Partitions(within(t), name.full); err != nil || n != 5 {
		t.Errorf("Partitions = %d, %v after a change", n, err)
	}
	o.Topics.Create = false
	s = open(t, o)
	if _, err := s.Partitions(within(t), "persistent://"+ns+"/missing"); err == nil || !strings.Contains(err.Error(), "create-partitioned-topic -p 3") {
		t.Errorf("a missing topic: %v", err)
	}
}
