package testenv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// adminTimeout bounds one administrative request to a broker, its retries included.
const adminTimeout = 5 * time.Minute

// KafkaCluster is a Kafka cluster of one or more brokers, numbered from 1. Its methods end the test at
// the first error, so they belong to the test's own goroutine.
type KafkaCluster struct {
	Bootstrap []string // host:port of each broker
	Dir       string   // folder of the cluster (ID/server.log, ID/data); empty when somebody else runs it

	t   testing.TB
	own bool
}

// Kafka returns the shared cluster: one broker, Kafka 4, KRaft, no authentication.
func Kafka(t testing.TB) *KafkaCluster {
	t.Helper()
	if at := os.Getenv("BINLOGMQ_TEST_KAFKA"); at != "" {
		return &KafkaCluster{Bootstrap: strings.Split(at, ","), t: t}
	}
	line, dir := shared(t, "kafka", "kafka.sh", func(dir string) []string { return []string{"start", "0", dir} })
	return &KafkaCluster{Bootstrap: strings.Split(line, ","), Dir: dir, t: t}
}

// NewKafka starts a cluster for t alone. Settings are lines of server.properties, such as "message.max.bytes=2000000".
func NewKafka(t testing.TB, brokers int, settings ...string) *KafkaCluster {
	t.Helper()
	dir := private(t, "kafka", "kafka.sh")
	args := append([]string{"start", "0", dir, "--brokers", strconv.Itoa(brokers), "--"}, settings...)
	line, err := run(nil, "kafka.sh", args...)
	if err != nil {
		t.Fatal(err)
	}
	return &KafkaCluster{Bootstrap: strings.Split(line, ","), Dir: dir, t: t, own: true}
}

// Admin returns a client for administrative requests, closed when the test ends.
func (k *KafkaCluster) Admin() *kadm.Client {
	k.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// with calls f with a client that lives as long as the call.
func (k *KafkaCluster) with(f func(ctx context.Context, c *kadm.Client) error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		k.t.Fatal(err)
	}
	defer c.Close()
	if err := f(ctx, kadm.NewClient(c)); err != nil {
		k.t.Fatalf("kafka at %s: %v", strings.Join(k.Bootstrap, ","), err)
	}
}

// Topic creates a topic with a name of t's own. Copies of each partition are as many as the cluster has brokers, at
// most three. Configs are lines such as "retention.ms=1000".
func (k *KafkaCluster) Topic(partitions int, configs ...string) string {
	k.t.Helper()
	name := Name(k.t)
	k.CreateTopic(name, partitions, configs...)
	return name
}

// CreateTopic creates a topic as [KafkaCluster.Topic] does, with the name given.
func (k *KafkaCluster) CreateTopic(name string, partitions int, configs ...string) {
	k.t.Helper()
	settings := map[string]*string{}
	for _, line := range configs {
		key, value, _ := strings.Cut(line, "=")
		settings[key] = &value
	}
	k.with(func(ctx context.Context, c *kadm.Client) error {
		for again := false; ; again = true {
			_, err := c.CreateTopic(ctx, int32(partitions), int16(min(len(k.Bootstrap), 3)), settings, name)
			switch {
			case again && errors.Is(err, kerr.TopicAlreadyExists):
				return nil
			// A broker that had no time for its heartbeat takes no copies for a moment.
			case !errors.Is(err, kerr.InvalidReplicationFactor) && !errors.Is(err, kerr.RequestTimedOut) || ctx.Err() != nil:
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// Leader returns the broker that leads a partition, -1 when none does.
func (k *KafkaCluster) Leader(topic string, partition int32) int {
	k.t.Helper()
	leader := -1
	k.with(func(ctx context.Context, c *kadm.Client) error {
		d, err := partitionOf(ctx, c, topic, partition)
		leader = int(d.Leader)
		return err
	})
	return leader
}

// partitionOf asks until a broker knows the topic: one that was just created is news to some of them.
func partitionOf(ctx context.Context, c *kadm.Client, topic string, partition int32) (kadm.PartitionDetail, error) {
	for {
		topics, err := c.ListTopics(ctx, topic)
		if err == nil {
			err = topics[topic].Err
		}
		d, there := topics[topic].Partitions[partition]
		switch {
		case err == nil && there:
			return d, nil
		case err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable):
			return kadm.PartitionDetail{Leader: -1}, err
		}
		select {
		case <-ctx.Done():
			return kadm.PartitionDetail{Leader: -1}, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// MoveLeader makes a broker, which must hold a copy, the leader of a partition, and returns when it is.
func (k *KafkaCluster) MoveLeader(topic string, partition int32, broker int) {
	k.t.Helper()
	k.with(func(ctx context.Context, c *kadm.Client) error {
		d, err := partitionOf(ctx, c, topic, partition)
		if err != nil {
			return err
		}
		replicas := slices.Clone(d.Replicas)
		slices.SortStableFunc(replicas, func(a, b int32) int {
			switch int32(broker) {
			case a:
				return -1
			case b:
				return 1
			}
			return 0
		})
		var plan kadm.AlterPartitionAssignmentsReq
		plan.Assign(topic, partition, replicas)
		if _, err := c.AlterPartitionAssignments(ctx, plan); err != nil {
			return err
		}
		for {
			var which kadm.TopicsSet
			which.Add(topic, partition)
			if _, err := c.ElectLeaders(ctx, kadm.ElectPreferredReplica, which); err != nil {
				return err
			}
			d, err := partitionOf(ctx, c, topic, partition)
			if err != nil {
				return err
			}
			if d.Leader == int32(broker) {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// Kill ends a broker of t's own cluster with SIGKILL; Restart starts it again with its data.
func (k *KafkaCluster) Kill(broker int) { k.t.Helper(); k.control("kill", broker) }

// Stop shuts a broker of t's own cluster down in order.
func (k *KafkaCluster) Stop(broker int) { k.t.Helper(); k.control("stop", broker) }

// Restart stops a broker of t's own cluster if it runs and starts it with its data.
func (k *KafkaCluster) Restart(broker int) { k.t.Helper(); k.control("restart", broker) }

// Pause stops the broker's process where it is (SIGSTOP): connections stay open and nothing answers.
func (k *KafkaCluster) Pause(broker int) { k.t.Helper(); k.control("pause", broker) }

// Resume lets a paused broker go on.
func (k *KafkaCluster) Resume(broker int) { k.t.Helper(); k.control("resume", broker) }

func (k *KafkaCluster) control(verb string, broker int) {
	k.t.Helper()
	control(k.t, k.own, nil, "kafka.sh", verb, k.Dir, strconv.Itoa(broker))
}

// LogDir is the folder of a broker's partitions, each in a folder TOPIC-PARTITION.
func (k *KafkaCluster) LogDir(broker int) string {
	return filepath.Join(k.Dir, strconv.Itoa(broker), "data")
}
