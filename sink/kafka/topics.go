package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/binlogmq/binlogmq/internal/retry"
)

// ErrNoTopic is in the chain of Partitions' error when a topic is missing and
// the sink is not configured to create it.
var ErrNoTopic = errors.New("the topic does not exist")

// patienceForNew is how often a missing topic is asked for again, which takes up to
// a third of a second: brokers learn of new topics one after the other.
const patienceForNew = 6

// resourceTopic is the kind of a topic in DescribeConfigs.
const resourceTopic = 2

// Partitions implements sink.Sink.
func (s *Sink) Partitions(ctx context.Context, name string) (int32, error) {
	t, err := s.topic(ctx, name)
	if err != nil {
		return 0, err
	}
	return t.partitions, nil
}

// topic returns what is known of a topic, and learns it first if need be.
func (s *Sink) topic(ctx context.Context, name string) (*topic, error) {
	s.mu.Lock()
	t, closed := s.topics[name], s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if t != nil {
		return t, nil
	}
	if err := checkTopicName(name); err != nil {
		return nil, err
	}
	created := false
	for n := 1; ; n++ {
		t, err := s.learnTopic(ctx, name, &created)
		if errors.Is(err, ErrNoTopic) && n <= patienceForNew {
			err = again(err)
		}
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if known := s.topics[name]; known != nil { // another goroutine was first
				return known, nil
			}
			s.topics[name] = t
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
		}
		var again *againError
		if !errors.As(err, &again) || errors.Is(err, errClosed) {
			return nil, err
		}
		if n&(n-1) == 0 && n > patienceForNew {
			s.o.Logger.Warn("kafka: asking for a topic: will be repeated", "topic", name, "attempt", n, "error", err)
		}
		if end := retry.Sleep(ctx, backoff(n)); end != nil {
			return nil, fmt.Errorf("%w (last error: %w)", end, err)
		}
	}
}

// checkTopicName applies the broker's rule (org.apache.kafka.common.internals.Topic),
// so that a bad template shows at once.
func checkTopicName(name string) error {
	ok := len(name) > 0 && len(name) <= 249 && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("kafka: topic %q: not a valid name: Kafka allows up to 249 of a-z A-Z 0-9 . _ -; change the topic template", name)
	}
	return nil
}

// againError marks an error after which asking again makes sense.
type againError struct{ error }

func (e *againError) Unwrap() error { return e.error }

func again(err error) error { return &againError{err} }

func (s *Sink) learnTopic(ctx context.Context, name string, created *bool) (*topic, error) {
	res, err := ask[*metadata.Response](ctx, s.admin, &metadata.Request{TopicNames: []string{name}})
	if err != nil {
		return nil, again(err)
	}
	i := slices.IndexFunc(res.Topics, func(t metadata.ResponseTopic) bool { return t.Name == name })
	if i < 0 {
		return nil, again(topicError(name, errors.New("the broker's answer does not name it")))
	}
	switch m := &res.Topics[i]; {
	case m.ErrorCode == codeUnknownTopic && *created:
		return nil, again(topicError(name, errors.New("was created, but is not known everywhere yet")))
	case m.ErrorCode == codeUnknownTopic:
		if !s.o.Topics.Create {
			return nil, fmt.Errorf("kafka: %w: %s; create it: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions N --replication-factor R, or let the sink do it (topics: create: true)",
				ErrNoTopic, name, s.o.Brokers[0], name)
		}
		if err := s.createTopic(ctx, res, name); err != nil {
			return nil, err
		}
		*created = true
		return nil, again(topicError(name, errors.New("was just created")))
	case m.ErrorCode == codeTopicNotAuthorized:
		return nil, topicError(name, fmt.Errorf("%w; allow WRITE: kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation Write --topic %s",
			&Error{Code: m.ErrorCode}, s.o.Brokers[0], name))
	case m.ErrorCode != codeNoError && m.ErrorCode != codeLeaderNotAvailable:
		err := topicError(name, &Error{Code: m.ErrorCode})
		if retriable(m.ErrorCode) {
			return nil, again(err)
		}
		return nil, err
	case len(m.Partitions) == 0:
		return nil, again(topicError(name, errors.New("shows no partitions yet")))
	default:
		t := &topic{name: name, partitions: int32(len(m.Partitions)), batchBytes: s.o.BatchBytes}
		if s.o.Delivery == AtLeastOnce {
			t.confirmed = make([]mark, t.partitions)
		}
		if s.book != nil {
			if err := s.account(ctx, t); err != nil {
				return nil, err
			}
		}
		conf, err := s.describeTopic(ctx, name, configMaxMessage)
		var code *Error
		if err != nil && !errors.As(err, &code) {
			return nil, again(err)
		}
		// Not allowed to look: then the broker tells by refusing what is too large.
		if n, err := strconv.Atoi(conf[configMaxMessage]); err == nil && n > 0 {
			t.limit = n
			t.batchBytes = min(t.batchBytes, n)
		}
		return t, nil
	}
}

// account finds or opens the topic's account in the life. The number of partitions stays
// what it was when the life began with the topic: I5.
func (s *Sink) account(ctx context.Context, t *topic) error {
	select {
	case <-s.alive:
	default:
		return topicError(t.name, errors.New("the sink has no state yet: Restore comes first"))
	}
	if t.account = s.book.account(t.name); t.account == nil {
		begins, err := s.begins(ctx, t.name, t.partitions)
		if err != nil {
			var stop *DeliveryError
			if errors.As(err, &stop) {
				return err
			}
			return again(err)
		}
		t.account = s.book.open(t.name, begins)
		return nil
	}
	n := int32(len(t.account.counters))
	switch {
	case t.partitions < n:
		return fewPartitions(t.name, n, int(t.partitions))
	case t.partitions > n:
		s.o.Logger.Warn("kafka: the topic has more partitions than when the sink began with it; the sink goes on with those until it has stopped in order once, because others would move keys",
			"topic", t.name, "partitions", t.partitions, "used", n)
		t.partitions = n
	}
	return nil
}

// describeTopic returns the topic's settings of these names, or all of them.
func (s *Sink) describeTopic(ctx context.Context, name string, settings ...string) (map[string]string, error) {
	res, err := ask[*describeconfigs.Response](ctx, s.admin, &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{ResourceType: resourceTopic, ResourceName: name, ConfigNames: settings}},
	})
	if err != nil {
		return nil, err
	}
	conf := map[string]string{}
	for _, r := range res.Resources {
		if r.ErrorCode != codeNoError {
			return nil, topicError(name, fmt.Errorf("describing it: %w", &Error{r.ErrorCode, r.ErrorMessage}))
		}
		for _, e := range r.ConfigEntries {
			conf[e.ConfigName] = e.ConfigValue
		}
	}
	return conf, nil
}

// createRequest asks to create a topic as configured.
func (s *Sink) createRequest(name string, validateOnly bool) *createtopics.Request {
	t := createtopics.RequestTopic{Name: name, NumPartitions: -1, ReplicationFactor: -1}
	if s.o.Topics.Partitions > 0 {
		t.NumPartitions = s.o.Topics.Partitions
	}
	if s.o.Topics.ReplicationFactor > 0 {
		t.ReplicationFactor = s.o.Topics.ReplicationFactor
	}
	configs := s.o.Topics.Configs
	if s.tally != nil && name == s.cursorTopic() {
		t.NumPartitions, configs = 1, cursorConfigs(configs)
	}
	for k, v := range configs {
		t.Configs = append(t.Configs, createtopics.RequestConfig{Name: k, Value: v})
	}
	slices.SortFunc(t.Configs, func(a, b createtopics.RequestConfig) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return &createtopics.Request{
		Topics:       []createtopics.RequestTopic{t},
		TimeoutMs:    int32(s.o.RequestTimeout.Milliseconds()),
		ValidateOnly: validateOnly,
	}
}

// askController sends a request to the controller that res names, which brokers
// before KRaft want. (KRaft brokers name one of themselves and forward.)
func (s *Sink) askController(ctx context.Context, res *metadata.Response, req *createtopics.Request) (*createtopics.Response, error) {
	i := slices.IndexFunc(res.Brokers, func(b metadata.ResponseBroker) bool { return b.NodeID == res.ControllerID })
	if i < 0 {
		return nil, errors.New("kafka: the cluster has no controller now")
	}
	ctl := newControl(s.dial, []string{brokerAddr(res.Brokers[i])}, s.o.RequestTimeout)
	defer ctl.close()
	return ask[*createtopics.Response](ctx, ctl, req)
}

func (s *Sink) createTopic(ctx context.Context, meta *metadata.Response, name string) error {
	res, err := s.askController(ctx, meta, s.createRequest(name, false))
	if err != nil {
		return again(err)
	}
	if len(res.Topics) != 1 {
		return again(topicError(name, errors.New("creating it: the broker's answer does not name it")))
	}
	r := &res.Topics[0]
	switch {
	case r.ErrorCode == codeNoError:
		s.o.Logger.Info("kafka: topic created", "topic", name, "partitions", r.NumPartitions, "replication_factor", r.ReplicationFactor)
		return nil
	case r.ErrorCode == codeTopicExists:
		return nil
	}
	err = s.createError(name, r)
	if retriable(r.ErrorCode) || r.ErrorCode == codeNotController {
		return again(err)
	}
	return err
}

// otherName mends a name that Kafka refuses beside those that there are: in its metrics a dot becomes an underscore.
const otherName = "change the sink's topic template, since Kafka does not tell . from _ between topic names, or keep one of the two tables out of the sink's tables"

func (s *Sink) createError(name string, r *createtopics.ResponseTopic) error {
	err := topicError(name, fmt.Errorf("creating it: %w", &Error{r.ErrorCode, r.ErrorMessage}))
	switch r.ErrorCode {
	case codeTopicNotAuthorized, codeClusterNotAuth:
		err = fmt.Errorf("%w; allow it: kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation Create --topic %s, or create the topic by hand", err, s.o.Brokers[0], name)
	case 37, 38, 40, 44: // partitions, replication factor, configuration, policy
		err = fmt.Errorf("%w; change the sink's topics settings", err)
	case codeInvalidTopic: // what the name itself says is known before: another topic has it
		err = fmt.Errorf("%w; %s", err, otherName)
	}
	return err
}
