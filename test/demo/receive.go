package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/binlogmq/binlogmq/test/workload"
)

const (
	kafkaPartitions  = 3
	pulsarPartitions = 2
)

// inbox is what one consumer has received. A consumer of Kafka or Pulsar fills it; nothing in here knows of binlogmq
// but the format of the values and the header sub.
type inbox struct {
	name  string // kafka or pulsar
	codec string

	mu       sync.Mutex
	steps    map[rowID][]step
	rows     map[string]int // row changes by table: a split change of a key counts once
	messages map[string]int
	err      error
	printed  map[string]int // samples by kind
	last     time.Time      // of the last sample
}

func newInbox(name, codec string) *inbox {
	return &inbox{name: name, codec: codec, steps: map[rowID][]step{}, rows: map[string]int{}, messages: map[string]int{}, printed: map[string]int{}}
}

// take notes a message and prints it if it is a good sample.
func (b *inbox) take(topic string, partition int32, key, value []byte, headers map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change, err := workload.Parse(b.codec, value)
	if err == nil {
		err = b.note(change, headers)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s: %w", topic, err)
	}
	kind := headers["sub"]
	if change != nil {
		kind += change.Table + change.Op
	}
	// Each kind of message once or twice, then one a few seconds.
	if b.printed[kind] < 1 || time.Since(b.last) > 4*time.Second {
		b.printed[kind]++
		b.last = time.Now()
		text := string(value)
		if len(text) > 900 {
			text = text[:900] + "..."
		}
		if i := strings.LastIndexByte(topic, '/'); i >= 0 {
			topic = topic[i+1:]
		}
		fmt.Printf("%-6s %s/%d  key %s  %s\n       %s\n", b.name, topic, partition, key, show(headers), text)
	}
}

func show(headers map[string]string) string {
	var parts []string
	for _, name := range []string{"seq", "sub", "gtid", "row"} {
		if v, ok := headers[name]; ok {
			parts = append(parts, name+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

func (b *inbox) note(c *workload.Change, headers map[string]string) error {
	var key []string
	for _, column := range keyColumns[c.Table] {
		v := c.Data[column]
		if v == nil {
			return fmt.Errorf("table %q without %s", c.Table, column)
		}
		key = append(key, *v)
	}
	if key == nil {
		return fmt.Errorf("table %q is not of the shop", c.Table)
	}
	if c.Data["version"] == nil {
		return fmt.Errorf("table %q without version", c.Table)
	}
	var version int
	if _, err := fmt.Sscan(*c.Data["version"], &version); err != nil {
		return err
	}
	id := rowID{c.Table, strings.Join(key, "|")}
	b.steps[id] = append(b.steps[id], step{c.Op, version})
	b.messages[c.Table]++
	if sub := headers["sub"]; sub == "" || sub == "0" {
		b.rows[c.Table]++
	}
	return nil
}

func (b *inbox) received(table string) (rows, messages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[table], b.messages[table]
}

func (b *inbox) total() (rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.rows {
		rows += n
	}
	return rows
}

// compare holds what arrived against what was committed: for each row the same steps in the same order.
func (b *inbox) compare(h *history) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	for id, want := range h.steps {
		if got := b.steps[id]; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s, key %s: committed %v, received %v", id.table, id.key, want, got)
		}
	}
	for id, got := range b.steps {
		if _, ok := h.steps[id]; !ok {
			return fmt.Errorf("%s, key %s: received %v, nothing was committed", id.table, id.key, got)
		}
	}
	return nil
}

func (b *inbox) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

func (b *inbox) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// readKafka subscribes as any consumer does and reads until ctx ends.
func readKafka(ctx context.Context, brokers string, b *inbox) (wait func(), err error) {
	var topics []string
	for _, table := range tables {
		topics = append(topics, "shop."+table)
	}
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(brokers))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	created, err := admin.CreateTopics(ctx, kafkaPartitions, 1, nil, topics...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("creating Kafka topics: %w", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(topics...), kgo.ConsumerGroup("demo"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil && ctx.Err() == nil {
				b.fail(fmt.Errorf("kafka: %w", err))
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				headers := map[string]string{}
				for _, h := range r.Headers {
					headers[h.Key] = string(h.Value)
				}
				b.take(r.Topic, r.Partition, r.Key, r.Value, headers)
			})
		}
	}()
	return func() { <-done }, nil
}

// readPulsar subscribes as any consumer does and reads until ctx ends. The subscription is made before the first
// message: Pulsar keeps nothing for those who come later, unless told to.
func readPulsar(ctx context.Context, url, admin string, b *inbox) (wait func(), err error) {
	var topics []string
	for _, table := range tables {
		topic := "shop." + table
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, admin+"/admin/v2/persistent/public/default/"+topic+"/partitions",
			strings.NewReader(fmt.Sprint(pulsarPartitions)))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, fmt.Errorf("creating a Pulsar topic: %w", err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			return nil, fmt.Errorf("creating Pulsar topic %s: %s", topic, answer.Status)
		}
		topics = append(topics, "persistent://public/default/"+topic)
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, err
	}
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topics: topics, SubscriptionName: "demo",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("subscribing at Pulsar: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		defer consumer.Close()
		for {
			m, err := consumer.Receive(ctx)
			if err != nil {
				if ctx.Err() == nil {
					b.fail(fmt.Errorf("pulsar: %w", err))
				}
				return
			}
			topic, partition := m.Topic(), int32(0)
			if i := strings.LastIndex(topic, "-partition-"); i >= 0 {
				_, _ = fmt.Sscan(topic[i+len("-partition-"):], &partition) // only shown
				topic = topic[:i]
			}
			b.take(topic, partition, []byte(m.Key()), m.Payload(), m.Properties())
			if err := consumer.Ack(m); err != nil && ctx.Err() == nil {
				b.fail(fmt.Errorf("pulsar: acknowledging: %w", err))
				return
			}
		}
	}()
	return func() { <-done }, nil
}
