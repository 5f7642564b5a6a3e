//go:build integration

package pulsar

import "testing"

// underTest says which producer the tests of this package use.
var underTest struct {
	Producer string
	Batching bool
}

// TestWire runs what the client has to pass with our own producer, without and with batches.
func TestWire(t *testing.T) {
	for _, batching := range []bool{false, true} {
		name := "unbatched"
		if batching {
			name = "batched"
		}
		t.Run(name, func(t *testing.T) {
			before := underTest
			underTest.Producer, underTest.Batching = ProducerWire, batching
			defer func() { underTest = before }()
			t.Run("Conformance", TestConformance)
			t.Run("ReplayAfterRestart", TestReplayAfterRestart)
			t.Run("Fenced", TestFenced)
			t.Run("BrokerKilled", TestBrokerKilled)
			t.Run("TopicLimitUnseen", TestTopicLimitUnseen)
			t.Run("TopicLimitKnown", TestTopicLimitKnown)
			t.Run("DeduplicationOff", TestDeduplicationOff)
			t.Run("Check", TestCheck)
			t.Run("Topics", TestTopics)
			t.Run("Tokens", TestTokens)
			t.Run("BrokerAwayAtFirst", TestBrokerAwayAtFirst)
		})
	}
}

// BenchmarkBrokerWire is BenchmarkBroker with our own producer.
func BenchmarkBrokerWire(b *testing.B) {
	defer func(before bool) { underTest.Producer, underTest.Batching = "", before }(underTest.Batching)
	underTest.Producer = ProducerWire
	for _, batching := range []bool{false, true} {
		name := "unbatched"
		if batching {
			name = "batched"
		}
		b.Run(name, func(b *testing.B) {
			underTest.Batching = batching
			BenchmarkBroker(b)
		})
	}
}
