package kafka

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestConfirmedMessagesAreNotStoredAgain: a message that cannot be sent ends session after session, each of which gets
// everything behind the last acknowledgement again. What the broker has confirmed meanwhile is not stored once more by
// each of them, and all is in order (I4) once the message can be sent.
func TestConfirmedMessagesAreNotStoredAgain(t *testing.T) {
	cl := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "other"))
	if err := cl.CreateTopic("shop", 2, map[string]string{"max.message.bytes": "5000"}); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, Options{Brokers: cl.ListenAddrs()})
	ctx := ctxFor(t, patience)
	for _, topic := range []string{"shop", "other"} {
		if _, err := s.Partitions(ctx, topic); err != nil {
			t.Fatal(err)
		}
	}
	round := func(large int) error {
		var f, g fates
		msgs, others := numbered(&f, "shop", 2, 0, 10), numbered(&g, "other", 2, 0, 10)
		msgs[6].Value = append(bytes.Repeat([]byte("0"), large), '6')
		if _, err := s.Publish(ctx, others); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Publish(ctx, msgs) // fails when the large one has failed by now
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		return f.of[6]
	}
	for range 4 {
		if err := round(6000); !errors.Is(err, ErrRecordTooLarge) {
			t.Fatalf("error %v", err)
		}
		if err := s.Reset(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := round(0); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"shop", "other"} {
		verify(t, readAll(t, cl.ListenAddrs(), topic, 10), 10)
	}
}
