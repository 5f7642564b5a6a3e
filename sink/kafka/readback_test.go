package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/binlogmq/binlogmq/sink"
)

// seqs reads back the seq headers of a partition.
func seqs(t *testing.T, s *Sink, partition int32, from sink.From) (out []string) {
	t.Helper()
	err := s.ReadBack(ctxFor(t, patience), "shop", partition, from, func(m *sink.Stored) error {
		for _, h := range m.Headers {
			if h.Name == "seq" {
				out = append(out, string(h.Value))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReadBack: a new life is told what lives before it have stored behind the offsets that the cursor knows, and nothing of its own.
func TestReadBack(t *testing.T) {
	for _, compression := range []string{"none", "zstd"} {
		cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "shop"))
		o := Options{Brokers: cl.ListenAddrs(), Compression: compression}
		s := newSequenced(t, o, nil, sink.Same)
		if err := firstError(t, s, "shop", 2, 0, 40); err != nil {
			t.Fatal(err)
		}
		s.Acknowledge(20)
		state := s.AppendState(nil)
		all, behind := 0, 0
		again := newSequenced(t, o, state, sink.Moved)
		for p := range int32(2) {
			all += len(seqs(t, again, p, sink.From{}))
			behind += len(seqs(t, again, p, sink.From{State: state}))
			if n := len(seqs(t, again, p, sink.From{Since: time.Now().Add(time.Hour)})); n != 0 {
				t.Errorf("%d messages of the future", n)
			}
		}
		if all != 40 || behind != 20 {
			t.Errorf("%s: %d messages are there, %d behind the cursor; want 40 and 20", compression, all, behind)
		}
		if err := firstError(t, again, "shop", 2, 100, 10); err != nil {
			t.Fatal(err)
		}
		mine := 0
		for p := range int32(2) {
			mine += len(seqs(t, again, p, sink.From{}))
		}
		if mine != 40 {
			t.Errorf("%s: with 10 of its own the life is told %d messages, want 40", compression, mine)
		}
		no := errors.New("enough")
		if err := again.ReadBack(ctxFor(t, patience), "shop", 0, sink.From{}, func(*sink.Stored) error { return no }); !errors.Is(err, no) {
			t.Errorf("an error of the visit: %v", err)
		}
		if err := again.ReadBack(ctxFor(t, patience), "missing", 0, sink.From{}, func(*sink.Stored) error { return no }); err != nil {
			t.Errorf("a topic that is not there holds something: %v", err)
		}
		// A topic made anew is read from its begin, whatever the cursor says.
		withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
			if _, err := c.DeleteTopics(ctx, "shop"); err != nil {
				return err
			}
			_, err := c.CreateTopic(ctx, 2, 1, nil, "shop")
			return err
		})
		other := newSequenced(t, o, nil, sink.Same)
		if err := firstError(t, other, "shop", 2, 0, 4); err != nil {
			t.Fatal(err)
		}
		third := newSequenced(t, o, state, sink.Moved)
		n := 0
		for p := range int32(2) {
			n += len(seqs(t, third, p, sink.From{State: state}))
		}
		if n != 4 {
			t.Errorf("%s: %d of 4 messages of the new topic", compression, n)
		}
	}
}

// TestReplayed: a replay has passed what was stored when all of it is acknowledged, and not before.
func TestReplayed(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(3, "shop"))
	o := Options{Brokers: cl.ListenAddrs()}
	s := newSequenced(t, o, nil, sink.Same)
	if err := firstError(t, s, "shop", 3, 0, 30); err != nil {
		t.Fatal(err)
	}
	s.Acknowledge(10)
	again := newSequenced(t, o, s.AppendState(nil), sink.Same)
	passed, err := again.Replayed(ctxFor(t, patience))
	if err != nil || passed() {
		t.Fatalf("20 messages are stored behind the cursor: %v", err)
	}
	if err := firstError(t, again, "shop", 3, 10, 20); err != nil {
		t.Fatal(err)
	}
	again.Acknowledge(again.Mark() - 1)
	if passed() {
		t.Error("one message is not acknowledged")
	}
	again.Acknowledge(again.Mark())
	if !passed() {
		t.Error("all is acknowledged")
	}
	text, err := Describe(again.AppendState(nil))
	if want := fmt.Sprintf("producer id %d, epoch 0: 30 messages acknowledged in 3 partitions of 1 topics", s.book.identity().producerID); err != nil || len(text) < len(want) || text[len(text)-len(want):] != want {
		t.Errorf("described as %q, %v; want %q", text, err, want)
	}
	withAdmin(t, cl.ListenAddrs(), func(ctx context.Context, c *kadm.Client) error {
		_, err := c.UpdatePartitions(ctx, 5, "shop")
		return err
	})
	now, err := again.Recount(ctxFor(t, patience), []string{"missing", "shop"})
	if err != nil || len(now) != 1 || now["shop"] != 5 {
		t.Errorf("recounted %v, %v", now, err)
	}
}
