//go:build integration

package operations

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// kafkaRows counts the records of a topic.
func kafkaRows(t *testing.T, k *testenv.KafkaCluster, topic string) int64 {
	t.Helper()
	ends, err := k.Admin().ListEndOffsets(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func kafkaSink(k *testenv.KafkaCluster, topic, topics string) string {
	return fmt.Sprintf("kafka: { brokers: [%q], request_timeout: 2s, topics: { %s } }\n        topic: %q", k.Bootstrap[0], topics, topic)
}

func pulsarSink(b *testenv.PulsarBroker, topic, topics string) string {
	return fmt.Sprintf("pulsar: { url: %q, admin_url: %q, topics: { %s } }\n        topic: %q", b.URL, b.AdminURL, topics, topic)
}

// TestKafkaFaults proves that what Kafka refuses or does not answer is shown and lost by nobody.
func TestKafkaFaults(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	t.Run("missing topic", func(t *testing.T) {
		k := testenv.Kafka(t)
		s := newSetup(t, db)
		table := s.table(t, db)
		topic := testenv.Name(t)
		s.sink = kafkaSink(k, topic, "create: false")
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		red(t, p, patience, topic, "does not exist", "kafka-topics.sh", "--create")
		quiet(t, p, 3*time.Second, 6)
		k.CreateTopic(topic, 1)
		green(t, p)
		p.Stop()
		neat(t, p.Log())
		if n := kafkaRows(t, k, topic); n != 1 {
			t.Errorf("%d records", n)
		}
	})
	t.Run("oversize row", func(t *testing.T) {
		k := testenv.Kafka(t)
		topic := k.Topic(1, "max.message.bytes=100000")
		s := newSetup(t, db)
		table := s.table(t, db)
		s.sink = strings.Replace(kafkaSink(k, topic, "create: false"), "request_timeout: 2s, ", "", 1) // on a busy machine more would be said than that
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		db.Exec("INSERT INTO " + table + " VALUES (2, REPEAT('x', 200000))")
		db.Exec("INSERT INTO " + table + " VALUES (3, 'c')")
		// What comes before the row is published, then the sink stops: it does not try again and again.
		s.refusal(t, p.Wait(patience), p.Log(), "stopped at table "+table, "position ", topic, "larger than the topic allows", "kafka-configs.sh", "max.message.bytes=", "remedy")
		if n := kafkaRows(t, k, topic); n != 1 {
			t.Errorf("%d records, not the one before the large row", n)
		}
		_, err := k.Admin().AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: ref("1000000")}}, topic)
		if err != nil {
			t.Fatal(err)
		}
		p = process.Start(t, s.text())
		green(t, p)
		p.Stop()
		neat(t, p.Log())
		if n := kafkaRows(t, k, topic); n != 3 {
			t.Errorf("%d records", n)
		}
	})
	// A broker of its own, which dies at the start, in the middle and at the end.
	t.Run("dead broker", func(t *testing.T) {
		k := testenv.NewKafka(t, 1)
		s := newSetup(t, db)
		table := s.table(t, db)
		topic := k.Topic(1)
		s.sink = kafkaSink(k, topic, "create: false")
		deadBroker(t, db, s, table, k.Bootstrap[0], func() { k.Kill(1) }, func() { k.Restart(1) })
		if n := kafkaRows(t, k, topic); n < 2 || n > 3 { // b may be repeated
			t.Errorf("%d records", n)
		}
		before := kafkaRows(t, k, topic)
		want := frozenBroker(t, db, s, table, "("+k.Bootstrap[0]+") has not answered", func() { k.Pause(1) }, func() { k.Resume(1) })
		if n := kafkaRows(t, k, topic) - before; n != int64(want) {
			t.Errorf("%d records of %d around a broker that stood still", n, want)
		}
	})
}

func ref(s string) *string { return &s }

// deadBroker runs the program while its broker is dead at the start, dies in the middle, and is dead when the
// program is told to stop.
func deadBroker(t *testing.T, db *testenv.Server, s *setup, table, address string, kill, restart func()) {
	t.Helper()
	kill()
	p := process.Start(t, strings.Replace(s.text(), "stop_timeout: 5s", "stop_timeout: 100s", 1))
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
	red(t, p, patience, address, "check")
	quiet(t, p, 3*time.Second, 8)
	// Lag is true: it grows while nothing is confirmed.
	before := -1.0
	p.Await("a growing lag", patience, func(r *admin.Report) bool {
		if before < 0 {
			before = r.Destinations[0].LagSeconds
		}
		return r.Destinations[0].LagSeconds > before+1
	})
	restart()
	green(t, p)
	kill()
	db.Exec("INSERT INTO " + table + " VALUES (2, 'b')")
	red(t, p, patience, address, "check")

	// The first signal waits for stop_timeout at most, the second ends it at once.
	begun := time.Now()
	p.Signal(terminate)
	time.Sleep(time.Second)
	p.Await("the end", patience, func(*admin.Report) bool { return true }) // the first signal waits
	p.Signal(terminate)
	if code := p.Wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if d := time.Since(begun); d > 80*time.Second {
		t.Errorf("two signals took %v, like one", d)
	}
	holds(t, "the log", p.Log(), "sent again at the next start")
	neat(t, p.Log())

	// It did not stop in order: it asks the broker how things stand before it reads.
	p = process.Start(t, s.text())
	red(t, p, patience, address, "check")
	p.Signal(terminate)
	if code := p.Wait(patience); code != 0 { // stop_timeout is 5 s
		t.Errorf("exit code %d", code)
	}
	neat(t, p.Log())

	restart()
	p = process.Start(t, s.text())
	p.AwaitReady()
	p.Await("the last row", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages > 0 })
	green(t, p)
	p.Stop()
}

// pulsarRows counts the messages of a topic that is not partitioned.
func pulsarRows(t *testing.T, b *testenv.PulsarBroker, topic string) (n int) {
	t.Helper()
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for r.HasNext() {
		if _, err := r.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestPulsarFaults is TestKafkaFaults with Pulsar.
func TestPulsarFaults(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	t.Run("missing topic", func(t *testing.T) {
		b := testenv.Pulsar(t)
		s := newSetup(t, db)
		s.name = testenv.Name(t)
		table := s.table(t, db)
		topic := b.Topic()
		s.sink = pulsarSink(b, topic, "create: false")
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		red(t, p, patience, topic, "does not exist", "pulsar-admin topics create")
		quiet(t, p, 3*time.Second, 6)
		p.Stop()
		neat(t, p.Log())
		s.sink = pulsarSink(b, topic, "create: true")
		p = process.Start(t, s.text())
		p.AwaitReady()
		green(t, p)
		p.Stop()
		if n := pulsarRows(t, b, topic); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("oversize row", func(t *testing.T) {
		b := testenv.Pulsar(t)
		s := newSetup(t, db)
		s.name = testenv.Name(t)
		table := s.table(t, db)
		topic := b.Topic()
		s.sink = pulsarSink(b, topic, "create: true")
		p := process.Start(t, s.text())
		p.AwaitReady()
		db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
		db.Exec("INSERT INTO " + table + " VALUES (2, REPEAT('x', 6000000))")
		s.refusal(t, p.Wait(patience), p.Log(), "stopped at table "+table, "position ", topic, "larger than the topic allows", "maxMessageSize", "remedy")
		if n := pulsarRows(t, b, topic); n != 1 {
			t.Errorf("%d messages, not the one before the large row", n)
		}
	})
	t.Run("dead broker", func(t *testing.T) {
		b := testenv.NewPulsar(t)
		s := newSetup(t, db)
		s.name = testenv.Name(t)
		table := s.table(t, db)
		topic := b.Topic()
		s.sink = pulsarSink(b, topic, "create: true")
		deadBroker(t, db, s, table, strings.TrimPrefix(b.URL, "pulsar://"), b.Kill, b.Restart)
		if n := pulsarRows(t, b, topic); n != 2 {
			t.Errorf("%d messages", n)
		}
		want := 2 + frozenBroker(t, db, s, table, "waiting for the broker: check that it runs", b.Pause, b.Resume)
		if n := pulsarRows(t, b, topic); n != want {
			t.Errorf("%d messages of %d around a broker that stood still", n, want)
		}
	})
}

// frozenBroker runs the program while its broker takes requests and answers none: health says so, and all goes on by itself. It returns how many rows
// were inserted.
func frozenBroker(t *testing.T, db *testenv.Server, s *setup, table, text string, pause, resume func()) (rows int) {
	t.Helper()
	p := process.Start(t, s.text())
	p.AwaitReady()
	insert := func() {
		rows++
		db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'a')", table, 10+rows))
	}
	insert()
	p.Await("the row before", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages > 0 })
	pause()
	insert()
	p.Await("red health", patience, func(r *admin.Report) bool {
		if k := &r.Destinations[0].Sinks[0]; k.Messages == int64(rows) {
			insert() // it took a moment to stand still
		}
		return !r.Healthy() && strings.Contains(faultsOf(r), text)
	})
	quiet(t, p, 3*time.Second, 8)
	resume()
	settled(t, db, p)
	p.Stop()
	neat(t, p.Log())
	return rows
}

// TestLostCursors proves that a program whose cursors are lost begins with numbers that the broker has not seen:
// Pulsar would drop all others in silence.
func TestLostCursors(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	b := testenv.Pulsar(t)
	s := newSetup(t, db)
	s.name = testenv.Name(t)
	table := s.table(t, db)
	topic := b.Topic()
	s.sink = pulsarSink(b, topic, "create: true")
	for life := range 3 {
		p := process.Start(t, s.text())
		p.AwaitReady()
		for i := range 5 - life {
			db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 'x')", table, 10*life+i))
		}
		p.Await("the rows", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Messages == int64(5-life) })
		p.Stop()
		if err := os.RemoveAll(s.meta); err != nil {
			t.Fatal(err)
		}
		if life == 1 { // the other way to begin
			moveTo(t, s, "latest")
		}
	}
	if n := pulsarRows(t, b, topic); n != 5+4+3 {
		t.Errorf("%d messages of 12", n)
	}
}
