package pulsar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/pulsar/wire"
)

// Check looks at the cluster before the sink runs: is it reachable, may we
// produce, does it deduplicate, and do topics keep what is sent to them. It
// sends two messages to a helper topic in each namespace, and may run at any
// time. Without AdminURL it can see less, and says so.
func (s *Sink) Check(ctx context.Context) []sink.Finding {
	var found []sink.Finding
	add := func(severity, where, remedy, format string, args ...any) {
		found = append(found, sink.Finding{Severity: severity, What: strings.TrimPrefix(fmt.Sprintf(format, args...), "pulsar: "), Where: where, Remedy: remedy})
	}
	if s.opt.Token != "" && strings.HasPrefix(s.opt.URL, "pulsar://") {
		add(sink.SeverityWarning, s.opt.URL, "use pulsar+ssl:// and a port with TLS", "the token travels unencrypted")
	}
	var namespaces []string
	var topics []topicName
	seen := map[string]bool{}
	hints := s.opt.CheckTopics
	if len(hints) == 0 {
		hints = []string{"persistent://public/default/{table}"}
	}
	for _, hint := range hints {
		name, err := parseTopic(hint)
		if err != nil {
			add(sink.SeverityError, hint, "", "%v", err)
			continue
		}
		if strings.ContainsAny(name.namespace, "{}") {
			add(sink.SeverityInfo, hint, "", "the namespace depends on the row, so it cannot be looked at")
			continue
		}
		if !seen[name.namespace] {
			seen[name.namespace] = true
			namespaces = append(namespaces, name.namespace)
		}
		if !strings.ContainsAny(name.local, "{}") {
			topics = append(topics, name)
		}
	}

	back, err := s.connect()
	if err != nil {
		add(sink.SeverityError, s.opt.URL, "", "%v", err)
		return found
	}
	defer back.close()
	for _, ns := range namespaces {
		topic := "persistent://" + ns + "/" + dedupTestTopic
		if _, err := back.partitions(ctx, topic); err != nil {
			text := err.Error() + quoted(back.complaint())
			remedy := "check url, tls and that the broker runs and listens there"
			switch {
			case strings.Contains(text, "uthenti") || strings.Contains(text, "uthoriz"):
				remedy = "check the token; pulsar-admin namespaces grant-permission " + ns + " --role ROLE --actions produce"
			case isMissing(err):
				remedy = "pulsar-admin namespaces create " + ns + "; or where topics are not created by themselves: pulsar-admin topics create " + topic
			}
			add(sink.SeverityError, s.opt.URL+" "+ns, remedy, "the broker gives no access: %s", text)
			continue
		}
		on, err := s.tryDedup(ctx, back, topic)
		severity := sink.SeverityError
		if s.opt.WithoutDeduplication {
			severity = sink.SeverityWarning
		}
		switch {
		case err != nil:
			remedy := "pulsar-admin namespaces grant-permission " + ns + " --role ROLE --actions produce; pulsar-admin topics create " + topic
			if errors.Is(err, context.DeadlineExceeded) {
				remedy = "the broker is slow or overloaded: look at its log, then check again"
			}
			add(severity, topic, remedy, "cannot produce, so it is not known whether deduplication is on: %v%s", err, quoted(back.complaint()))
		case !on:
			add(severity, ns, dedupCommand(ns), "deduplication is off: messages could be stored twice")
		}
		if err == nil {
			if err := back.scan(ctx, topic, wire.From{Entries: 1}, func(*wire.Stored) error { return nil }); mayNotRead(err) || mayReadLater(err) {
				add(sink.SeverityWarning, ns, readRemedy(err, ns),
					"we may not consume, so after a crash it cannot be seen what the topics hold, and the broker is taken at its word: %v", err)
			}
		}
	}
	if s.admin == nil {
		add(sink.SeverityInfo, s.opt.URL, "set admin_url to http://BROKER:8080", "without admin_url neither retention nor the topics' own limits can be looked at, and topics with several partitions cannot be created")
		return found
	}
	for _, ns := range namespaces {
		s.checkNamespace(ctx, ns, add)
	}
	for _, name := range topics {
		s.checkTopic(ctx, name, add)
	}
	return found
}

// tryDedup repeats the test while an older connection of ours holds the name.
func (s *Sink) tryDedup(ctx context.Context, back backend, topic string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for wait := (backoff{}); ; {
		on, err := back.deduplicates(ctx, topic)
		if err == nil || !isFenced(err.Error()) || !wait.sleep(ctx) {
			return on, err
		}
	}
}

type adder func(severity, where, remedy, format string, args ...any)

// A topic that does not exist yet has the policies of its namespace, which the
// helper topic shows as they apply.
func (s *Sink) checkNamespace(ctx context.Context, ns string, add adder) {
	if err := s.admin.namespace(ctx, ns); err != nil {
		severity := sink.SeverityWarning
		var answer *status
		if errors.As(err, &answer) && answer.code == 404 {
			severity = sink.SeverityError
		}
		add(severity, ns, "check admin_url and the token's rights; pulsar-admin namespaces create "+ns, "%v", err)
		return
	}
	helper := topicName{namespace: ns, local: dedupTestTopic, full: "persistent://" + ns + "/" + dedupTestTopic}
	keep, err := s.admin.retention(ctx, helper)
	if err != nil {
		add(sink.SeverityInfo, ns, "", "retention cannot be read: %v", err)
		return
	}
	if keep.Minutes == 0 && keep.MB == 0 {
		add(sink.SeverityWarning, ns, "pulsar-admin namespaces set-retention "+ns+" --time 7d --size -1; or let each consumer subscribe before the first message",
			"retention is 0: messages of a topic without subscription vanish, and an unused topic is deleted with what the broker remembers for deduplication")
	}
}

func (s *Sink) checkTopic(ctx context.Context, name topicName, add adder) {
	exists, partitions, err := s.admin.lookup(ctx, name)
	switch {
	case err != nil:
		add(sink.SeverityWarning, name.full, "check the token's rights", "%v", err)
		return
	case !exists && !s.opt.Topics.Create:
		add(sink.SeverityError, name.full, createCommand(name, max(s.opt.Topics.Partitions, 1)), "the topic does not exist and topics.create is false")
		return
	case !exists:
		return
	case s.opt.Topics.Partitions > 1 && int32(partitions) != s.opt.Topics.Partitions:
		add(sink.SeverityWarning, name.full, "", "the topic has %d partitions, topics.partitions says %d: the topic's own number is used", partitions, s.opt.Topics.Partitions)
	}
	if size, err := s.admin.maxMessageSize(ctx, name); err == nil && size > 0 && size < s.opt.MaxMessageBytes {
		add(sink.SeverityWarning, name.full, "pulsar-admin topicPolicies remove-max-message-size "+name.full, "the topic takes messages up to %d bytes only; a larger row stops the sink", size)
	}
	first := name
	if partitions > 0 {
		first.local += "-partition-0"
	}
	keep, err := s.admin.retention(ctx, name)
	if err != nil || keep.Minutes != 0 || keep.MB != 0 {
		return
	}
	if subs, err := s.admin.subscriptions(ctx, first); err == nil && len(subs) == 0 {
		add(sink.SeverityWarning, name.full, "pulsar-admin topics create-subscription -s NAME "+name.full+"; or set a retention",
			"retention is 0 and there is no subscription: what is sent now can vanish before anybody reads it")
	}
}
