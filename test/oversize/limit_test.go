//go:build integration

package oversize

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// limitKafka gives a topic another limit.
func limitKafka(t testing.TB, k *testenv.KafkaCluster, topic string, size int) {
	t.Helper()
	text := fmt.Sprint(size)
	if _, err := k.Admin().AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &text}}, topic); err != nil {
		t.Fatal(err)
	}
}

// limitPulsar gives a topic a limit of its own, and loads it with that.
func limitPulsar(t testing.TB, b *testenv.PulsarBroker, topic string, size int) {
	t.Helper()
	path := b.AdminURL + "/admin/v2/" + strings.Replace(topic, "://", "/", 1)
	call := func(method, url, body string) string {
		for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
			req, err := http.NewRequest(method, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 200)
			n, _ := res.Body.Read(answer)
			res.Body.Close()
			if res.StatusCode < 300 {
				return string(answer[:n])
			}
			if res.StatusCode < 500 || time.Now().After(end) { // which a broker says whose store is busy
				t.Fatalf("%s %s: %s %s", method, url, res.Status, answer[:n])
			}
		}
	}
	call(http.MethodPost, path+"/maxMessageSize", fmt.Sprint(size))
	for end := time.Now().Add(patience); call(http.MethodGet, path+"/maxMessageSize?applied=true", "") != fmt.Sprint(size); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the broker does not apply the limit")
		}
	}
	call(http.MethodPut, path+"/unload", "")
}

// TestLimitLowered proves I3 and I5 where brokers come to take less than they did: batches get smaller, a message that is
// too large by itself stops each sink before it with an error that says which and why, without a loop; once the limit is what
// it was, everything arrives once, in order, and cut as before.
func TestLimitLowered(t *testing.T) {
	db, k := testenv.MySQL(t, "mysql"), testenv.Kafka(t)
	b := testenv.NewPulsar(t, "topicLevelPoliciesEnabled=true", "brokerDeduplicationEnabled=true", "brokerDeleteInactiveTopicsEnabled=false", "defaultRetentionSizeInMB=-1", "defaultRetentionTimeInMinutes=-1")
	s := newSource(t, db)
	name := testenv.Name(t)
	ptopic := "persistent://public/default/" + name
	outlets := []*outlet{
		{name: "kafka", how: "split", codec: "maxwell", sink: fmt.Sprintf("kafka: { brokers: [%s], topics: { partitions: 1 } }", quoted(k.Bootstrap)), cluster: k, topic: name + ".kafka"},
		{name: "wire", how: "split", codec: "maxwell", sink: fmt.Sprintf("pulsar: { url: %q, producer: wire, batching: true, max_message_bytes: 2MiB }", b.URL), broker: b, topic: ptopic + ".wire"},
		{name: "client", how: "stub", codec: "canal-json", sink: fmt.Sprintf("pulsar: { url: %q, producer: client, max_message_bytes: 2MiB }", b.URL), broker: b, topic: ptopic + ".client"},
	}
	config := begin(t, s, outlets)
	p := process.Start(t, config)
	p.AwaitReady()
	s.put(1, 2_500_000, 1000) // cut by each of them
	settle(t, p, s)

	for _, o := range outlets {
		if o.cluster != nil {
			limitKafka(t, k, o.topic, 300_000)
		} else {
			limitPulsar(t, b, o.topic, 300_000)
		}
	}
	conn := db.Connect("")
	if err := conn.Begin(); err != nil { // many at once, of which one batch would be too large now
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := conn.Execute(fmt.Sprintf("INSERT INTO %s VALUES (%d,1,REPEAT('b',20000),'')", s.name, 100+i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Commit(); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		s.remember(100 + i)
	}
	// Below the limit that was, above the one that is; a broker may take a moment to keep to it.
	for ended, end := false, time.Now().Add(patience); !ended && time.Now().Before(end); {
		s.put(2, 700_000, 1000)
		s.put(3, 1000, 1000)
		select {
		case <-p.Ended():
			ended = true
		case <-time.After(5 * time.Second):
		}
	}
	code := p.Wait(patience)
	log := p.Log()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, o := range outlets {
		stops := 0
		for line := range strings.Lines(log) {
			if strings.Contains(line, "sink="+o.name) && strings.Contains(line, "stopped at table "+s.name) && strings.Contains(line, "larger than the topic allows") &&
				strings.Contains(line, "position ") && strings.Contains(line, "remedy: ") {
				stops++
			}
		}
		if stops == 0 {
			t.Errorf("%s: its stop is not in the log", o.name)
		}
		// Everything before the row is there, and nothing after it.
		rows := map[int]int{}
		msgs, _ := join(t, o.read(t, o.topic), false)
		for _, m := range msgs {
			rows[parse(t, o.codec, m.Value).id]++
		}
		if len(msgs) < 41 || rows[2] >= len(s.rows[2]) || rows[3] != rows[2] {
			t.Errorf("%s: %d messages, %d and %d of %d rows", o.name, len(msgs), rows[2], rows[3], len(s.rows[2]))
		}
	}
	// What a loop would say, it would say again and again; the backoff says a thing at its 1st, 2nd, 4th ... repetition.
	if n := strings.Count(log, "\n"); n > 150 {
		t.Errorf("%d lines of log", n)
	}

	for _, o := range outlets {
		if o.cluster != nil {
			limitKafka(t, k, o.topic, 1048588)
		} else {
			limitPulsar(t, b, o.topic, 4<<20)
		}
	}
	p = process.Start(t, config)
	s.put(1, 2_000_000, 1000)
	settle(t, p, s)
	p.Stop()
	for _, o := range outlets {
		stubs, parts := s.compare(o, o.read(t, o.topic), false)
		t.Logf("%s: %d stubs, %d parts", o.name, stubs, parts)
		if stubs+parts < 2 {
			t.Errorf("%s: %d stubs, %d parts", o.name, stubs, parts)
		}
	}
}
