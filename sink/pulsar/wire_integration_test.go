//go:build integration

package pulsar

import (
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// I8: a successor takes the topic over at once; who lost it sends nothing, does not take it
// back, and goes on when the successor has gone.
func TestWireTakeover(t *testing.T) {
	b, ns := retained(t)
	topic := "persistent://" + ns + "/t"
	o := options(b, kinds[2], "takeover")
	old, next := open(t, o), open(t, o)
	send(t, old, topic, 1, 10)
	if _, err := next.Partitions(within(t), topic); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	send(t, next, topic, 8, 20)
	t.Logf("taken over, tested for deduplication and sent in %s", time.Since(begun).Round(time.Millisecond))

	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, 11, 20)
	n, _ := old.Publish(within(t), msgs)
	if err := r.Wait(within(t), n); err != nil {
		t.Fatal(err)
	}
	if _, failed := r.Count(); failed != n {
		t.Errorf("%d of %d messages failed", failed, n)
	}
	if err := old.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	r = sinktest.NewRecorder(nil)
	msgs = sinktest.Messages(r, topic, 0, 11, 30)
	if _, err := old.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	retries := old.Status().Retries
	for old.Status().Retries < retries+3 {
		time.Sleep(10 * time.Millisecond)
	}
	shows(t, old, "held by")
	send(t, next, topic, 21, 30)
	if done, _ := r.Count(); done != 0 {
		t.Errorf("%d messages done by the one that lost the topic", done)
	}
	if err := next.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := old.Flush(within(t)); err != nil {
		t.Fatalf("%v; %v", err, old.Status().Err)
	}
	sinktest.CheckExact(t, "takeover", read(t, testClient(t, b), topic), sequences(1, 40))
	if _, err := old.Publish(within(t), []sink.Message{}); err != nil {
		t.Error(err)
	}
	healed(t, old)
}
