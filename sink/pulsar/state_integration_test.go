//go:build integration

package pulsar

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// resume opens a sink with the state that another one left.
func resume(t testing.TB, o Options, state []byte) *Sink {
	t.Helper()
	s := open(t, o)
	if _, err := s.Restore(within(t), state, sink.Same); err != nil {
		t.Fatal(err)
	}
	return s
}

// leave sends 1..100 with a sink and closes it. The state is that of message 60.
func leave(t testing.TB, o Options, topic string) (state []byte) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, topic, 1, 60)
	state = s.AppendState(nil)
	send(t, s, topic, 61, 100)
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	return state
}

// stops publishes and resets until the sink refuses for good, and returns with what.
func stops(t testing.TB, s *Sink, topic string, first, last int64) error {
	t.Helper()
	for {
		r := sinktest.NewRecorder(nil)
		msgs := sinktest.Messages(r, topic, 0, first, int(last-first+1))
		n, err := s.Publish(within(t), msgs)
		if werr := r.Wait(within(t), n); werr != nil {
			t.Fatalf("%v; %v", werr, s.Status().Err)
		}
		if n == len(msgs) {
			if _, err = r.Result(&msgs[n-1]); err == nil {
				t.Fatal("nothing refuses")
			}
		}
		var stop *DeliveryError
		if errors.As(err, &stop) {
			t.Log(err)
			return err
		}
		if err := s.Reset(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func deduplicate(t testing.TB, b *testenv.PulsarBroker, namespace, on string) {
	t.Helper()
	rest(t, b, http.MethodPost, "namespaces/"+namespace+"/deduplication", on)
}

func unload(t testing.TB, b *testenv.PulsarBroker, topic string) {
	t.Helper()
	name, err := parseTopic(topic)
	if err != nil {
		t.Fatal(err)
	}
	rest(t, b, http.MethodPut, name.path()+"/unload", "")
}

// I3, I7: a broker whose deduplication was off for a while has forgotten us. What it stored is found in the topic.
func TestForgottenButStored(t *testing.T) { each(t, forgottenButStored) }

func forgottenButStored(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	o := options(b, k, "forgotten")
	o.Compression = "lz4"
	state := leave(t, o, topic)
	deduplicate(t, b, ns, "false")
	unload(t, b, topic)
	// A reader loads it, without deduplication.
	read(t, testClient(t, b), topic)
	deduplicate(t, b, ns, "true")
	unload(t, b, topic)
	s := resume(t, o, state)
	send(t, s, topic, 41, 200)
	sinktest.CheckExact(t, k.name, read(t, testClient(t, b), topic), sequences(1, 200))
}

// I3, I7: after an outage that is longer than the broker remembers a producer, the topics' ends tell what is stored.
func TestInactivityWindow(t *testing.T) {
	t.Parallel()
	b := testenv.NewPulsar(t, "brokerDeduplicationProducerInactivityTimeoutMinutes=1",
		"brokerDeduplicationSnapshotFrequencyInSeconds=2", "brokerDeduplicationSnapshotIntervalSeconds=1", "brokerDeduplicationEntriesInterval=10")
	opt := func(k kind) Options {
		o := options(b, k, "window")
		o.DeduplicationWindow, o.IdleTimeout = 30*time.Second, 20*time.Second
		return o
	}
	base := b.Topic()
	topic := func(k kind, what string) string { return base + "-" + what + "-" + k.name }
	var states [][]byte // saved after 60 messages of one topic and none of the other
	for _, k := range kinds {
		states = append(states, leave(t, opt(k), topic(k, "known")))
		leave(t, opt(k), topic(k, "new"))
	}
	leave(t, opt(kinds[1]), topic(kinds[1], "naive"))
	enough := time.After(80 * time.Second)

	// Snapshots are as frequent here as trimming needs.
	for _, k := range kinds {
		ns := "public/" + testenv.Name(t)
		keep(t, b, ns, true)
		topicTrimmed(t, b, ns, k)
	}
	<-enough

	for i, k := range kinds {
		s := resume(t, opt(k), states[i])
		for _, topic := range []string{topic(k, "known"), topic(k, "new")} {
			send(t, s, topic, 41, 150)
			sinktest.CheckExact(t, k.name, read(t, testClient(t, b), topic), sequences(1, 150))
		}
		if s.Duplicates() < 60+60 { // more if a link was lost
			t.Errorf("%s: %d were known to be stored", k.name, s.Duplicates())
		}
	}
	// All this shows nothing unless the broker has forgotten: who does not look at the topic stores twice.
	s := open(t, opt(kinds[1]))
	send(t, s, topic(kinds[1], "naive"), 41, 150)
	if n := len(read(t, testClient(t, b), topic(kinds[1], "naive"))); n != 100+110 {
		t.Errorf("a sink without state stored %d messages, not 210: the broker has not forgotten", n)
	}
}

// I3: a topic that is deleted and made again is loud when anything was on its way or may have been; when nothing was, what comes is
// sent to the new topic.
func TestTopicDeleted(t *testing.T) { each(t, topicDeleted) }

func topicDeleted(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	name, _ := parseTopic(topic)
	c := testClient(t, b)
	o := options(b, k, "deleted")
	s := open(t, o)
	send(t, s, topic, 1, 100)
	rest(t, b, http.MethodDelete, name.path()+"?force=true", "")
	for s.Status().Err == nil { // the broker has closed the producer
		time.Sleep(10 * time.Millisecond)
	}
	send(t, s, topic, 101, 150)
	sinktest.CheckExact(t, "idle", read(t, c, topic), sequences(101, 50))
	state := s.AppendState(nil)
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}

	rest(t, b, http.MethodDelete, name.path()+"?force=true", "")
	s = resume(t, o, state)
	if err := stops(t, s, topic, 120, 200); !errors.Is(err, ErrLostMessages) || !strings.Contains(err.Error(), topic) {
		t.Errorf("the error is %v", err)
	}
	if stored := read(t, c, topic); len(stored) > 0 {
		t.Errorf("%d messages are stored all the same", len(stored))
	}
	// As it is after `binlogmq cursor new-life`.
	if _, err := s.Restore(within(t), state, sink.Moved); err != nil {
		t.Fatal(err)
	}
	send(t, s, topic, 1000, 1100)
	sinktest.CheckExact(t, "moved", read(t, c, topic), sequences(1000, 101))

	// In mid-flight.
	ended := make(chan int64)
	go func() {
		next := int64(1101)
		defer func() { ended <- next }()
		for {
			r := sinktest.NewRecorder(nil)
			msgs := sinktest.Messages(r, topic, 0, next, 500)
			n, _ := s.Publish(within(t), msgs)
			if err := r.Wait(within(t), n); err != nil {
				t.Error(err)
				return
			}
			for i := range msgs {
				if times, err := r.Result(&msgs[i]); times != 1 || err != nil {
					return
				}
				next++
			}
		}
	}()
	time.Sleep(300 * time.Millisecond)
	rest(t, b, http.MethodDelete, name.path()+"?force=true", "")
	failed := <-ended
	if err := s.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, failed, 100)
	n, err := s.Publish(within(t), msgs)
	if err := r.Wait(within(t), n); err != nil {
		t.Fatal(err)
	}
	if n == len(msgs) {
		_, err = r.Result(&msgs[n-1])
	}
	switch {
	case err == nil: // nothing was on its way at that instant
		sinktest.CheckExact(t, "in mid-flight", read(t, c, topic), sequences(failed, 100))
	case !errors.Is(err, ErrLostMessages):
		t.Errorf("the error is %v", err)
	}
}

// A topic that takes no more messages is loud.
func TestTopicTerminated(t *testing.T) { each(t, topicTerminated) }

func topicTerminated(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	name, _ := parseTopic(topic)
	s := open(t, options(b, k, "terminated"))
	send(t, s, topic, 1, 100)
	rest(t, b, http.MethodPost, name.path()+"/terminate", "")
	for range 2 { // under an open producer, and anew
		r := sinktest.NewRecorder(nil)
		_, _ = s.Publish(within(t), sinktest.Messages(r, topic, 0, 101, 10))
		for st := s.Status(); st.Err == nil || !strings.Contains(st.Err.Error(), "takes no more messages"); st = s.Status() {
			time.Sleep(20 * time.Millisecond)
			if st.Retries > 50 {
				t.Fatalf("the status is %v", st.Err)
			}
		}
		if err := s.Reset(within(t)); err != nil {
			t.Fatal(err)
		}
		if done, failed := r.Count(); done != failed {
			t.Errorf("%d of %d messages failed", failed, done)
		}
	}
	sinktest.CheckExact(t, "terminated", read(t, testClient(t, b), topic), sequences(1, 100))
}

// topicTrimmed shows that a topic whose messages are trimmed loses nothing as long as the broker remembers them, and is loud when it does not.
func topicTrimmed(t *testing.T, b *testenv.PulsarBroker, ns string, k kind) {
	rest(t, b, http.MethodPost, "namespaces/"+ns+"/retention", `{"retentionTimeInMinutes":0,"retentionSizeInMB":0}`)
	topic := "persistent://" + ns + "/t"
	name, _ := parseTopic(topic)
	c := testClient(t, b)
	reader, err := (&Options{URL: b.URL, Logger: discard}).wireClient()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	trim := func() {
		for {
			unload(t, b, topic)
			n := 0
			if _, err := reader.Scan(within(t), topic, wire.From{}, func(*wire.Stored) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return
			}
			rest(t, b, http.MethodPost, name.path()+"/trim", "")
			time.Sleep(50 * time.Millisecond)
		}
	}
	o := options(b, k, "trimmed")
	state := leave(t, o, topic)
	trim()
	s := resume(t, o, state)
	send(t, s, topic, 41, 150)
	sinktest.CheckExact(t, "trimmed", read(t, c, topic), sequences(101, 50))
	state = s.AppendState(nil)
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	trim()
	deduplicate(t, b, ns, "false")
	trim() // which loads it
	deduplicate(t, b, ns, "true")
	unload(t, b, topic)
	if err := stops(t, resume(t, o, state), topic, 120, 200); !errors.Is(err, ErrLostMessages) {
		t.Errorf("the error is %v", err)
	}
}

// I4, I7: topics move under load.
func TestUnloaded(t *testing.T) { each(t, unloaded) }

func unloaded(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	s := open(t, options(b, k, "unloaded"))
	send(t, s, topic, 1, 10)
	sent := make(chan struct{})
	const total = 5000
	go func() {
		defer close(sent)
		for first := int64(11); first <= total; first += 100 {
			send(t, s, topic, first, min(first+99, total))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for i := range 6 {
		time.Sleep(100 * time.Millisecond)
		if i%2 == 0 {
			unload(t, b, topic)
		} else {
			rest(t, b, http.MethodPut, "namespaces/"+ns+"/unload", "")
		}
	}
	<-sent
	sinktest.CheckExact(t, k.name, read(t, testClient(t, b), topic), sequences(1, total))
}

// I3, I7: deduplication that is switched off under a running sink is noticed when it matters: at the next link.
func TestDeduplicationSwitchedOff(t *testing.T) { each(t, deduplicationSwitchedOff) }

func deduplicationSwitchedOff(t *testing.T, k kind) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	s := open(t, options(b, k, "switched"))
	send(t, s, topic, 1, 100)
	deduplicate(t, b, ns, "false")
	unload(t, b, topic)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		send(t, s, topic, 101, 200)
	}()
	for st := s.Status(); st.Err == nil || !strings.Contains(st.Err.Error(), dedupCommand(ns)); st = s.Status() {
		select {
		case <-finished:
			t.Fatal("nobody notices")
		case <-time.After(20 * time.Millisecond):
		}
	}
	deduplicate(t, b, ns, "true")
	unload(t, b, topic)
	<-finished
	sinktest.CheckExact(t, k.name, read(t, testClient(t, b), topic), sequences(1, 200))
}
