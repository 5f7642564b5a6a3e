//go:build integration

package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
)

// I3, I4, I7: a message that a lowered limit refuses while later ones are on their way is overtaken by none of them, for the broker takes a
// sequence after its predecessor only. So a process that is killed in that instant, before anything is saved, leaves nothing that
// its successor could take for stored.
func TestRefusedAndKilled(t *testing.T) {
	k := testenv.Kafka(t)
	ctx := ctxFor(t, patience)
	topic := k.Topic(2) // all goes to the first partition
	o := Options{Brokers: k.Bootstrap, RequestsInFlight: 5, BatchBytes: 1024}
	// publish waits for the fates of n messages, of which so many are to be done.
	publish := func(s *Sink, first, n, done int) {
		t.Helper()
		var f fates
		msgs := numbered(&f, topic, 1, first, n)
		for i := range msgs {
			if s := msgs[i].Sequence; s == 5 || s == 12 {
				msgs[i].Value = append(msgs[i].Value, bytes.Repeat([]byte(" "), 60_000)...)
			}
		}
		if _, err := s.Publish(ctx, msgs); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if ok, errs := f.count(); ok != done {
			t.Fatalf("%d done: %v", ok, errs)
		}
	}
	s := newSequenced(t, o, nil, sink.Same)
	if _, err := s.Partitions(ctx, topic); err != nil {
		t.Fatal(err)
	}
	publish(s, 0, 12, 12)
	s.Acknowledge(s.Mark())
	state := s.AppendState(nil)
	if err := limit(ctx, k, topic, 20000, 40_000); err != nil {
		t.Fatal(err)
	}
	publish(s, 12, 188, 0)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(readPartition(t, k.Bootstrap, topic, 0)); n != 12 {
		t.Fatalf("%d are stored", n)
	}

	if err := limit(ctx, k, topic, 1048588, 40_000); err != nil {
		t.Fatal(err)
	}
	s = newSequenced(t, o, state, sink.Same)
	if _, err := s.Partitions(ctx, topic); err != nil {
		t.Fatal(err)
	}
	publish(s, 12, 188, 188)
	for i, r := range readPartition(t, k.Bootstrap, topic, 0) {
		if string(r.Key) != fmt.Sprintf("key-%d", i) {
			t.Fatalf("record %d has %s", i, r.Key)
		}
	}
}
