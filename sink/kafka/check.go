package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

const (
	operationRead        = 3        // AclOperation.READ, a bit in authorized operations
	operationWrite       = 4        // AclOperation.WRITE
	operationsUnknown    = -1 << 31 // the broker does not say
	shortRetention       = 1 * time.Hour
	configMaxMessage     = "max.message.bytes"
	configMinISR         = "min.insync.replicas"
	configRetention      = "retention.ms"
	configRetentionBytes = "retention.bytes"
	configUnclean        = "unclean.leader.election.enable"
	configCleanup        = "cleanup.policy"
)

// Check looks at the brokers, our rights and the topics that Partitions was
// asked for. It changes nothing.
func (s *Sink) Check(ctx context.Context) []sink.Finding {
	s.mu.Lock()
	var topics []string
	for name := range s.topics {
		topics = append(topics, name)
	}
	s.mu.Unlock()
	return s.CheckTopics(ctx, topics...)
}

// CheckTopics is Check for these topics, whether they exist or are to be created.
// It may run at any time, beside all other methods but Close.
func (s *Sink) CheckTopics(ctx context.Context, topics ...string) []sink.Finding {
	topics = slices.Clone(topics)
	slices.Sort(topics)
	topics = slices.Compact(topics)
	c := &checker{s: s, ctx: ctx}
	if !c.brokers() {
		return c.found
	}
	c.producerID()
	if c.s.tally != nil {
		c.transactions()
		c.forgetful()
		topics = append(topics, c.s.cursorTopic())
	}
	var ask []string
	for _, name := range topics {
		if err := checkTopicName(name); err != nil {
			c.add(sink.SeverityError, "topic "+name, err.Error(), "change the sink's topic template")
			continue
		}
		ask = append(ask, name)
	}
	if ask == nil {
		ask = []string{} // none; a null list would mean all
	}
	res, err := askMetadata(ctx, s.admin, ask)
	if err != nil {
		c.add(sink.SeverityError, c.cluster(), "its metadata cannot be read: "+err.Error(), "")
		return c.found
	}
	for i := range res.Topics {
		c.topic(res, &res.Topics[i])
	}
	return c.found
}

func askMetadata(ctx context.Context, t *control, topics []string) (*metadata.Response, error) {
	return ask[*metadata.Response](ctx, t, &metadata.Request{TopicNames: topics, IncludeTopicAuthorizedOperations: true})
}

type checker struct {
	s     *Sink
	ctx   context.Context
	found []sink.Finding
	level int16 // of metadata.version, the highest of the brokers; 0: not known
}

func (c *checker) add(severity, where, what, remedy string) {
	c.found = append(c.found, sink.Finding{Severity: severity, What: what, Where: where, Remedy: remedy})
}

func (c *checker) cluster() string { return "Kafka at " + strings.Join(c.s.o.Brokers, ",") }

func (c *checker) tool(name, args string) string {
	return name + " --bootstrap-server " + c.s.o.Brokers[0] + " " + args
}

// brokers connects to every configured address.
func (c *checker) brokers() (any bool) {
	type fault struct {
		addr string
		err  error
	}
	var faults []fault
	for _, addr := range c.s.o.Brokers {
		conn, err := c.s.dial.dial(c.ctx, addr)
		if err == nil {
			_, err = conn.version(produceKey, c.s.minProduceVersion(), maxProduceVersion)
			if err == nil && c.s.alive != nil {
				_, err = conn.version(fetchKey, fetchVersion, fetchVersion)
			}
			if err == nil && c.s.tally != nil {
				ctx, cancel := context.WithTimeout(c.ctx, c.s.o.RequestTimeout)
				if level, e := conn.metadataLevel(ctx); e == nil {
					c.level = max(c.level, level)
				}
				cancel()
			}
			conn.Close()
		}
		if err != nil {
			faults = append(faults, fault{addr, err})
			continue
		}
		any = true
	}
	severity := sink.SeverityWarning
	if !any {
		severity = sink.SeverityError
	}
	for _, f := range faults {
		remedy := "start the broker, or correct the sink's brokers or tls"
		var auth *AuthError
		if errors.As(f.err, &auth) {
			remedy = "correct the sink's sasl settings, or create the user: " + c.tool("kafka-configs.sh", "--alter --add-config 'SCRAM-SHA-512=[password=...]' --entity-type users --entity-name NAME")
		}
		c.add(severity, "broker "+f.addr, f.err.Error(), remedy)
	}
	return any
}

func (c *checker) producerID() {
	var err error
	for n := 1; n <= 10; n++ { // a fresh broker asks for patience
		var res *initproducerid.Response
		res, err = ask[*initproducerid.Response](c.ctx, c.s.admin, &initproducerid.Request{TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1})
		if err == nil && res.ErrorCode != codeNoError {
			err = &Error{Code: res.ErrorCode}
			if !retriable(res.ErrorCode) {
				break
			}
		}
		if err == nil || retry.Sleep(c.ctx, backoff(n)) != nil {
			break
		}
	}
	var code *Error
	switch {
	case errors.As(err, &code) && code.Code == codeClusterNotAuth:
		c.add(sink.SeverityError, c.cluster(), "no producer id can be had: "+err.Error(),
			c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation Write --topic TOPIC (or --operation IdempotentWrite --cluster)"))
	case err != nil:
		c.add(sink.SeverityError, c.cluster(), "no producer id can be had: "+err.Error(), "")
	}
}

func (c *checker) topic(res *metadata.Response, t *metadata.ResponseTopic) {
	where := "topic " + t.Name
	switch t.ErrorCode {
	case codeNoError, codeLeaderNotAvailable:
	case codeUnknownTopic:
		c.missing(res, t.Name)
		return
	case codeTopicNotAuthorized:
		c.add(sink.SeverityError, where, "the sink's user may not see it", c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation Write --topic "+t.Name))
		return
	default:
		c.add(sink.SeverityError, where, (&Error{Code: t.ErrorCode}).Error(), "")
		return
	}
	if ops := t.TopicAuthorizedOperations; ops != operationsUnknown && ops != 0 && ops&(1<<operationWrite) == 0 {
		c.add(sink.SeverityError, where, "the sink's user may not write to it", c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation Write --topic "+t.Name))
	}
	if ops := t.TopicAuthorizedOperations; c.s.book != nil && ops != operationsUnknown && ops != 0 && ops&(1<<operationRead) == 0 {
		c.add(sink.SeverityWarning, where, "the sink's user may not read it: if others write to it too, delivery: sequenced stops after a crash",
			c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation Read --topic "+t.Name))
	}
	replicas, leaderless, behind := 0, 0, 0
	for _, p := range t.Partitions {
		if replicas == 0 || len(p.ReplicaNodes) < replicas {
			replicas = len(p.ReplicaNodes)
		}
		if p.LeaderID < 0 {
			leaderless++
		} else if len(p.IsrNodes) < len(p.ReplicaNodes) {
			behind++
		}
	}
	if leaderless > 0 {
		c.add(sink.SeverityError, where, fmt.Sprintf("%d of %d partitions have no leader", leaderless, len(t.Partitions)), "start the brokers that hold them")
	}
	if behind > 0 {
		c.add(sink.SeverityWarning, where, fmt.Sprintf("%d of %d partitions have replicas that are not in sync", behind, len(t.Partitions)), "start the missing brokers")
	}
	var more string // replicas that are to be had
	if replicas == 1 {
		more = c.replicate(res, t) + "\n"
		c.add(sink.SeverityWarning, where, "its replication factor is 1: confirmed messages are lost with one broker's disk", more+c.alter(t.Name, configMinISR+"=2"))
	}
	c.settings(t.Name, replicas, more)
}

// safeReplicas is the replication factor with which one broker may end without loss or a stop.
const safeReplicas = 3

// replicate returns the command that gives each of a topic's partitions enough replicas, its leader being the first of them.
func (c *checker) replicate(res *metadata.Response, t *metadata.ResponseTopic) string {
	type replicas struct {
		Topic     string  `json:"topic"`
		Partition int32   `json:"partition"`
		Replicas  []int32 `json:"replicas"`
	}
	plan := struct {
		Version    int        `json:"version"`
		Partitions []replicas `json:"partitions"`
	}{Version: 1}
	var brokers []int32
	for _, b := range res.Brokers {
		brokers = append(brokers, b.NodeID)
	}
	slices.Sort(brokers)
	for _, p := range t.Partitions {
		on := slices.Clone(p.ReplicaNodes)
		for i := range brokers { // each partition begins with another broker
			if b := brokers[(int(p.PartitionIndex)+i)%len(brokers)]; len(on) < safeReplicas && !slices.Contains(on, b) {
				on = append(on, b)
			}
		}
		plan.Partitions = append(plan.Partitions, replicas{t.Name, p.PartitionIndex, on})
	}
	if len(brokers) < safeReplicas {
		return fmt.Sprintf("the cluster has %d of the %d brokers that it takes: add the others, and run check again for the command", len(brokers), safeReplicas)
	}
	text, _ := json.Marshal(plan) // of these types it cannot fail
	return "echo '" + string(text) + "' > replicas.json\n" + c.tool("kafka-reassign-partitions.sh", "--execute --reassignment-json-file replicas.json")
}

// alter returns the command that changes a topic's settings.
func (c *checker) alter(topic, settings string) string {
	return c.tool("kafka-configs.sh", "--alter --entity-type topics --entity-name "+topic+" --add-config "+settings)
}

func (c *checker) missing(res *metadata.Response, name string) {
	where := "topic " + name
	if !c.s.o.Topics.Create {
		c.add(sink.SeverityError, where, "it does not exist, and the sink is not configured to create topics",
			c.create(res, name)+", or topics: create: true")
		return
	}
	var r *createtopics.ResponseTopic
	ans, err := c.s.askController(c.ctx, res, c.s.createRequest(name, true))
	if err == nil && len(ans.Topics) == 1 {
		r = &ans.Topics[0]
	}
	switch {
	case err != nil:
		c.add(sink.SeverityWarning, where, "whether it can be created is not known: "+err.Error(), "")
	case r != nil && r.ErrorCode == codeNoError:
		c.promised(res, where, r)
	case r != nil && r.ErrorCode == codeInvalidTopic: // by hand it cannot be made either
		c.add(sink.SeverityError, where, (&Error{r.ErrorCode, r.ErrorMessage}).Error(), otherName)
	case r != nil && r.ErrorCode != codeNoError && r.ErrorCode != codeTopicExists:
		c.add(sink.SeverityError, where, c.s.createError(name, r).Error(), c.create(res, name))
	}
}

// create returns the command that makes a topic by hand, as safe as the brokers allow.
func (c *checker) create(res *metadata.Response, name string) string {
	args := "--create --topic " + name + " --partitions N"
	if c.s.tally != nil && name == c.s.cursorTopic() {
		args = "--create --topic " + name + " --partitions 1 --config " + configCleanup + "=compact"
	}
	if len(res.Brokers) < safeReplicas {
		return c.tool("kafka-topics.sh", args+fmt.Sprintf(" --replication-factor %d", max(len(res.Brokers), 1)))
	}
	return c.tool("kafka-topics.sh", args+fmt.Sprintf(" --replication-factor %d --config %s=2", safeReplicas, configMinISR))
}

// promised warns of what a topic that is to be created would be: as configured, or by the brokers' defaults where that says nothing.
func (c *checker) promised(res *metadata.Response, where string, r *createtopics.ResponseTopic) {
	replicas, origin := int(r.ReplicationFactor), "the brokers' default.replication.factor"
	if n := int(c.s.o.Topics.ReplicationFactor); n > 0 {
		replicas, origin = n, "the sink's kafka.topics.replication_factor"
	}
	minISR, settable := int64(0), "" // not known
	for _, e := range r.Configs {
		if e.Name == configMinISR {
			minISR, _ = strconv.ParseInt(e.Value, 10, 64)
		}
	}
	if minISR == 1 {
		settable = ", and min.insync.replicas: 2 in its kafka.topics.configs"
	}
	remedy := fmt.Sprintf("set the sink's kafka.topics.replication_factor to %d%s", safeReplicas, settable)
	if len(res.Brokers) < safeReplicas {
		remedy += fmt.Sprintf(", when there are %d brokers (now %d)", safeReplicas, len(res.Brokers))
	}
	switch {
	case replicas < 1:
		c.add(sink.SeverityInfo, where, "the replication factor that it will be created with, the brokers' default, may not be seen by the sink's user",
			c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation DescribeConfigs --topic "+r.Name))
	case replicas == 1:
		c.add(sink.SeverityWarning, where, "it will be created with replication factor 1, from "+origin+": confirmed messages are lost with one broker's disk", remedy)
	case replicas > 1 && minISR == 1:
		remedy = "set min.insync.replicas: 2 in the sink's kafka.topics.configs"
		c.add(sink.SeverityWarning, where, "it will be created with min.insync.replicas 1: a message confirmed by the leader alone is lost with it", remedy)
	}
	if c.s.tally != nil {
		c.frail(where, replicas, minISR, remedy)
	}
}

// settings looks at a topic's settings. more is how to have more replicas, where there is but one.
func (c *checker) settings(name string, replicas int, more string) {
	where := "topic " + name
	conf, err := c.s.describeTopic(c.ctx, name)
	if c.s.tally != nil {
		n, _ := strconv.ParseInt(conf[configMinISR], 10, 64) // 0: not known
		c.frail(where, replicas, n, more+c.alter(name, configMinISR+"=2"))
		c.kept(name, conf)
	}
	if err != nil {
		c.add(sink.SeverityInfo, where, "its settings cannot be read ("+err.Error()+"): the size limit shows only when the broker refuses a message",
			c.tool("kafka-acls.sh", "--add --allow-principal User:NAME --operation DescribeConfigs --topic "+name))
		return
	}
	number := func(key string) (int64, bool) {
		n, err := strconv.ParseInt(conf[key], 10, 64)
		return n, err == nil
	}
	alter := func(setting string) string { return c.alter(name, setting) }
	switch n, ok := number(configMinISR); {
	case !ok:
	case int(n) > max(replicas, 1):
		c.add(sink.SeverityError, where, fmt.Sprintf("min.insync.replicas is %d, but there are %d replicas: nothing can be written", n, replicas), alter(fmt.Sprintf("%s=%d", configMinISR, max(replicas-1, 1))))
	case replicas > 1 && n == 1:
		c.add(sink.SeverityWarning, where, "min.insync.replicas is 1: a message confirmed by the leader alone is lost with it", alter(configMinISR+"=2"))
	case replicas > 1 && int(n) == replicas:
		c.add(sink.SeverityWarning, where, fmt.Sprintf("min.insync.replicas is %d of %d replicas: one broker down stops the sink", n, replicas), alter(fmt.Sprintf("%s=%d", configMinISR, replicas-1)))
	}
	if conf[configUnclean] == "true" {
		c.add(sink.SeverityWarning, where, "unclean leader election is on: confirmed messages can be lost when a broker dies", alter(configUnclean+"=false"))
	}
	deletes := strings.Contains(conf[configCleanup], "delete")
	if ms, ok := number(configRetention); ok && deletes && ms >= 0 && time.Duration(ms)*time.Millisecond < shortRetention {
		c.add(sink.SeverityWarning, where, fmt.Sprintf("messages are deleted after %v (retention.ms)", time.Duration(ms)*time.Millisecond), alter(configRetention+"=604800000"))
	}
	if n, ok := number(configRetentionBytes); ok && deletes && n >= 0 {
		c.add(sink.SeverityInfo, where, fmt.Sprintf("a partition keeps its last %d bytes only (retention.bytes)", n), "")
	}
	if strings.Contains(conf[configCleanup], "compact") && (c.s.tally == nil || name != c.s.cursorTopic()) {
		c.add(sink.SeverityInfo, where, "it is compacted: the broker refuses messages without a key", "")
	}
	if n, ok := number(configMaxMessage); ok && n < DefaultBatchBytes {
		c.add(sink.SeverityWarning, where, fmt.Sprintf("max.message.bytes is %d, less than Kafka's default: a larger row stops the sink", n), alter(configMaxMessage+"=1048588"))
	}
}
