//go:build integration

package pulsar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// TestTwoBrokers sends to a cluster of two brokers through either of them: topics lie at the other one, and move to and fro under load.
func TestTwoBrokers(t *testing.T) {
	t.Parallel()
	// Without the topics that hold topics' policies, which would move too.
	p := testenv.NewPulsarPair(t, "topicLevelPoliciesEnabled=false", "systemTopicEnabled=false")
	c := testClient(t, p.PulsarBroker)
	ns := "public/" + testenv.Name(t)
	rest(t, p.PulsarBroker, http.MethodPut, "namespaces/"+ns, `{"bundles":{"numBundles":4}}`)
	keep(t, p.PulsarBroker, ns, false)
	holder := func(topic string) string {
		t.Helper()
		res, err := http.Get(p.AdminURL + "/lookup/v2/topic/" + strings.Replace(topic, "://", "/", 1))
		if err != nil {
			t.Fatal(err)
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer res.Body.Close()
		var at struct{ BrokerURL string }
		if err := json.NewDecoder(res.Body).Decode(&at); err != nil {
			t.Fatal(err)
		}
		return at.BrokerURL
	}
	bundle := func(topic string) (name string) {
		t.Helper()
		res, err := http.Get(p.AdminURL + "/lookup/v2/topic/" + strings.Replace(topic, "://", "/", 1) + "/bundle")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := fmt.Fscan(res.Body, &name); err != nil {
			t.Fatal(err)
		}
		return strings.Trim(name, `"`)
	}
	// move takes the topic's bundle to the other broker.
	move := func(topic string) (from, to string) {
		t.Helper()
		from = holder(topic)
		to = p.SecondAdmin
		if from == p.Second {
			to = p.AdminURL
		}
		_, to, _ = strings.Cut(to, "://")
		rest(t, p.PulsarBroker, http.MethodPut, "namespaces/"+ns+"/"+bundle(topic)+"/unload?destinationBroker="+to, "")
		return from, holder(topic)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for i, url := range []string{p.Second, p.URL} {
				name := fmt.Sprintf("%s-%d", k.name, i)
				topic := "persistent://" + ns + "/" + name
				o := options(p.PulsarBroker, k, name)
				o.URL = url
				s := open(t, o)
				send(t, s, topic, 1, 10)
				if holder(topic) == url { // a lookup that is redirected, or points elsewhere
					move(topic)
				}
				sent := make(chan struct{})
				const total = 1500
				go func() {
					defer close(sent)
					for first := int64(11); first <= total; first += 50 {
						send(t, s, topic, first, min(first+49, total))
						time.Sleep(10 * time.Millisecond)
					}
				}()
				moved := 0
				for range 2 {
					time.Sleep(150 * time.Millisecond)
					if from, to := move(topic); from != to {
						moved++
					}
				}
				<-sent
				if moved == 0 {
					t.Error("the topic never moved")
				}
				t.Logf("moved %d times, %d retries", moved, s.Status().Retries)
				sinktest.CheckExact(t, name, read(t, c, topic), sequences(1, total))

				if i > 0 {
					continue
				}
				// Partitions lie at both brokers; those that are added later are not used in this life.
				many := topic + "-many"
				full, _ := parseTopic(many)
				rest(t, p.PulsarBroker, http.MethodPut, full.path()+"/partitions", "4")
				if n, err := s.Partitions(within(t), many); err != nil || n != 4 {
					t.Fatal(n, err)
				}
				publish := func(first int64) {
					t.Helper()
					r := sinktest.NewRecorder(nil)
					msgs := make([]sink.Message, 0, 160)
					for i := range 160 {
						msgs = append(msgs, sinktest.Messages(r, many, int32(i%4), first+int64(i), 1)...)
					}
					if _, err := s.Publish(within(t), msgs); err != nil {
						t.Fatal(err)
					}
					if err := s.Flush(within(t)); err != nil {
						t.Fatal(err)
					}
					if _, failed := r.Count(); failed > 0 {
						t.Fatal(s.Status().Err)
					}
				}
				publish(1)
				rest(t, p.PulsarBroker, http.MethodPost, full.path()+"/partitions", "6")
				publish(161)
				if n, err := s.Partitions(within(t), many); err != nil || n != 4 {
					t.Errorf("%d partitions, %v", n, err)
				}
				at := map[string]bool{}
				for i := range 4 {
					part := fmt.Sprintf("%s-partition-%d", many, i)
					at[holder(part)] = true
					if got := read(t, c, part); len(got) != 80 {
						t.Errorf("%s has %d messages", part, len(got))
					}
				}
				t.Logf("partitions at %d brokers", len(at))
			}
		})
	}
}
