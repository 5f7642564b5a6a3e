package pulsar

import (
	"context"
	"fmt"
	"net/http"
)

// The helper topic of the deduplication test, one in each namespace.
const dedupTestTopic = "binlogmq-deduplication-test"

// create is asked when the broker knows no partitions of a topic: it may be one
// without, or not exist. missing is the broker's error, if it said so.
func (s *Sink) create(ctx context.Context, back backend, name topicName, missing error) (int, error) {
	want := max(s.opt.Topics.Partitions, 1)
	if s.admin == nil {
		if missing != nil {
			return 0, &refusal{fmt.Sprintf("pulsar: topic %s does not exist, and the broker may not create it: %s, or set allowAutoTopicCreation=true in the broker (%v)", name.full, createCommand(name, want), missing)}
		}
		return 0, nil // it exists without partitions, or comes into being with its producer
	}
	exists, partitions, err := s.admin.lookup(ctx, name)
	if err != nil || exists {
		return partitions, err
	}
	if !s.opt.Topics.Create {
		return 0, &refusal{fmt.Sprintf("pulsar: topic %s does not exist and topics.create is false: %s, or set topics.create to true", name.full, createCommand(name, want))}
	}
	if err := s.admin.create(ctx, name, want); err != nil {
		switch {
		case isStatus(err, http.StatusUnauthorized), isStatus(err, http.StatusForbidden):
			return 0, &refusal{fmt.Sprintf("pulsar: topic %s does not exist and we may not create it: %s, or allow the token's role to (%v)", name.full, createCommand(name, want), err)}
		case isStatus(err, http.StatusNotFound):
			return 0, &refusal{fmt.Sprintf("pulsar: topic %s cannot be created: pulsar-admin namespaces create %s (%v)", name.full, name.namespace, err)}
		}
		return 0, err
	}
	s.opt.Logger.Info("pulsar: created topic", "topic", name.full, "partitions", want)
	if want > 1 {
		return int(want), nil
	}
	return 0, nil
}

func createCommand(name topicName, partitions int32) string {
	if partitions > 1 {
		return fmt.Sprintf("pulsar-admin topics create-partitioned-topic -p %d %s", partitions, name.full)
	}
	return "pulsar-admin topics create " + name.full
}

// topicLimit returns the topic's own limit on the size of an entry, 0 if there is
// none or it cannot be known.
func (s *Sink) topicLimit(ctx context.Context, name topicName) int {
	if s.admin == nil {
		return 0
	}
	size, err := s.admin.maxMessageSize(ctx, name)
	if err != nil {
		s.opt.Logger.Debug("pulsar: the topic's maxMessageSize cannot be read", "topic", name.full, "error", err)
		return 0
	}
	return size
}

// deduplicated makes sure that the broker deduplicates in the namespace, by
// trying. The answer is kept for the sink's life.
func (s *Sink) deduplicated(ctx context.Context, back backend, namespace string) error {
	s.mu.Lock()
	_, known := s.checked[namespace]
	s.mu.Unlock()
	if known {
		return nil
	}
	s.checking.Lock()
	defer s.checking.Unlock()
	s.mu.Lock()
	_, known = s.checked[namespace]
	s.mu.Unlock()
	if known {
		return nil
	}
	topic := "persistent://" + namespace + "/" + dedupTestTopic
	on, err := back.deduplicates(ctx, topic)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !s.opt.WithoutDeduplication:
		return fmt.Errorf("pulsar: cannot test whether deduplication is on by sending to %s (or set require_deduplication to false): %w", topic, err)
	case err != nil || !on:
		off := dedupOff(namespace)
		if !s.opt.WithoutDeduplication {
			return &refusal{off}
		}
		if err != nil {
			off = fmt.Sprintf("pulsar: cannot test whether deduplication is on in namespace %s: %v", namespace, err)
		}
		s.opt.Logger.Warn(off + "; going on AT LEAST ONCE, as configured: messages may be stored twice")
	}
	s.mu.Lock()
	s.checked[namespace] = on
	s.mu.Unlock()
	s.warnOfRetention(ctx, namespace)
	return nil
}

// deduplicatedStill is deduplicated for a broker that has forgotten, maybe because it was told to deduplicate no more.
func (s *Sink) deduplicatedStill(ctx context.Context, back backend, namespace string) error {
	s.mu.Lock()
	delete(s.checked, namespace)
	s.mu.Unlock()
	return s.deduplicated(ctx, back, namespace)
}

// warnOfRetention says once for each namespace when topics lose what no subscription holds.
func (s *Sink) warnOfRetention(ctx context.Context, namespace string) {
	if s.admin == nil {
		return
	}
	keep, err := s.admin.retention(ctx, topicName{namespace: namespace, local: dedupTestTopic})
	if err == nil && keep.Minutes == 0 && keep.MB == 0 {
		s.opt.Logger.Warn("pulsar: retention is 0: a topic without subscription loses its messages, and when unused it is deleted with what the broker remembers for deduplication; "+
			"run pulsar-admin namespaces set-retention NAMESPACE --time 7d --size -1, or let each consumer subscribe before the first message", "namespace", namespace)
	}
}

func dedupOff(namespace string) string {
	return fmt.Sprintf("pulsar: deduplication is off in namespace %s, so messages could be stored twice: turn it on with `%s`, or accept that with require_deduplication: false", namespace, dedupCommand(namespace))
}

func dedupCommand(namespace string) string {
	return "pulsar-admin namespaces set-deduplication " + namespace + " --enable"
}
