//go:build integration

package pulsar

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// redirects is a log that counts the lookups that the wire producer was told to repeat elsewhere.
type redirects struct{ n atomic.Int64 }

func (r *redirects) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "a lookup is redirected") {
		r.n.Add(1)
	}
	return len(line), nil
}

// long is for waits in which a broker may have to start.
func long(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// ask makes an admin call that a broker may answer later: a topic that moves has no holder for a moment.
func ask(t testing.TB, method, url, body string) string {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	for ctx := long(t); ; {
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		var text []byte
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			text, err = io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil && res.StatusCode < 300 {
				return string(text)
			}
			if err == nil && res.StatusCode < 500 && res.StatusCode != http.StatusNotFound {
				t.Fatalf("%s %s: %s %s", method, url, res.Status, text)
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s %s: %v %s", method, url, err, text)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// mover takes topics, each the only one of its namespace, from broker to broker.
type mover struct {
	c *testenv.PulsarCluster
}

const wholeBundle = "0x00000000_0xffffffff"

// topic makes a namespace of one bundle and returns the name of a topic in it.
func (m mover) topic(t testing.TB, name string) string {
	t.Helper()
	ns := "public/" + testenv.Name(t) + name
	ask(t, http.MethodPut, m.c.Brokers[0].AdminURL+"/admin/v2/namespaces/"+ns, `{"bundles":{"numBundles":1}}`)
	return "persistent://" + ns + "/" + name
}

// holder returns the number of the broker that serves a topic, as the broker via says.
func (m mover) holder(t testing.TB, via int, topic string) int {
	t.Helper()
	for ctx := long(t); ; {
		text := ask(t, http.MethodGet, m.c.Brokers[via].AdminURL+"/lookup/v2/topic/"+strings.Replace(topic, "://", "/", 1), "")
		var at struct{ BrokerURL string }
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			t.Fatal(err, text)
		}
		for i, b := range m.c.Brokers {
			if b.URL == at.BrokerURL {
				return i
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("nobody serves %s: %s", topic, text)
		}
	}
}

// unload lets a topic go: to the broker to, or (-1) to whom the brokers choose.
func (m mover) unload(t testing.TB, topic string, to int) {
	t.Helper()
	ns := topic[len("persistent://"):strings.LastIndexByte(topic, '/')]
	url := m.c.Brokers[0].AdminURL + "/admin/v2/namespaces/" + ns + "/" + wholeBundle + "/unload"
	if to >= 0 {
		_, at, _ := strings.Cut(m.c.Brokers[to].AdminURL, "://")
		url += "?destinationBroker=" + at
	}
	ask(t, http.MethodPut, url, "")
}

// TestMovingTopics proves I1, I4, I5 and I7 on a cluster of two brokers: topics are found through either of them,
// are moved and unloaded while messages come, and lose their broker, or where it stores, to a SIGKILL; so do those who send. 0 lost, 0 doubled, 0 reordered.
func TestMovingTopics(t *testing.T) {
	t.Parallel()
	rounds, seed := 6, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := testenv.NewPulsarCluster(t, 2)
	m := mover{c}

	// Of a topic that nobody has, one of the two does not know: it sends who asks to the other.
	var r redirects
	for i, b := range c.Brokers {
		topic := m.topic(t, strconv.Itoa(i))
		o := options(b, kinds[1], "redirected")
		o.Logger = slog.New(slog.NewTextHandler(&r, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := open(t, o)
		send(t, s, topic, 1, 50)
		m.unload(t, topic, -1)
		send(t, s, topic, 51, 100)
		sinktest.CheckExact(t, "redirected", read(t, testClient(t, b), topic), sequences(1, 100))
		if err := s.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if r.n.Load() == 0 {
		t.Error("no lookup was redirected")
	}

	type sender struct {
		kind
		topic, dir string
		at         testenv.PulsarBroker // whom it asks first
		child      *child
		number     int
	}
	var all []*sender
	run := func(s *sender, total int64) {
		t.Helper()
		pause := 200 * time.Millisecond // what counts here is the moves, not the messages
		if total > 0 {
			pause = 8 * time.Millisecond
		}
		s.child = startChild(t, &s.at, s.kind, s.topic, s.dir, s.number, total, pause)
		s.number++
	}
	for i, k := range kinds {
		s := &sender{kind: k, topic: m.topic(t, k.name), dir: t.TempDir()}
		first, second := c.Brokers[i%2], c.Brokers[1-i%2]
		s.at = testenv.PulsarBroker{URL: first.URL + "," + strings.TrimPrefix(second.URL, "pulsar://"), AdminURL: first.AdminURL}
		run(s, 0)
		all = append(all, s)
	}
	// progress waits until each of them has had more confirmed than before.
	progress := func() {
		t.Helper()
		for _, s := range all {
			before, _ := cursorOf(s.dir)
			for ctx := long(t); ; time.Sleep(20 * time.Millisecond) {
				if now, _ := cursorOf(s.dir); now > before+200 {
					break
				}
				if ctx.Err() != nil {
					text, _ := os.ReadFile(s.child.log)
					t.Fatalf("%s stands still at %d\n%.3000s", s.name, before, text)
				}
			}
		}
	}
	progress()
	var moved, unloaded, dead, killed, bookies int
	for i := range rounds {
		switch i % 6 {
		case 0, 5:
			for _, s := range all {
				at := m.holder(t, 0, s.topic)
				m.unload(t, s.topic, 1-at)
				if m.holder(t, at, s.topic) != at {
					moved++
				}
			}
		case 1:
			for _, s := range all {
				m.unload(t, s.topic, -1)
				unloaded++
			}
		case 2:
			for _, s := range all {
				s.child.kill(t)
				killed++
				run(s, 0)
			}
		case 3:
			b := c.Brokers[m.holder(t, 0, all[rng.IntN(len(all))].topic)]
			b.Kill()
			dead++
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			if rng.IntN(2) == 0 { // else it comes back before its topics have been taken over
				progress()
			}
			b.Restart()
		case 4: // brokers cannot tell what is stored: retries are no duplicates of what has failed
			if bookies++; bookies%2 == 1 {
				c.Bookie.Kill()
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
				c.Bookie.Restart()
			} else {
				c.Bookie.Pause()
				time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
				c.Bookie.Resume()
			}
		}
		progress()
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	if moved == 0 {
		t.Error("no topic has moved")
	}
	messages, totals := 0, map[*sender]int64{}
	for _, s := range all {
		s.child.kill(t)
		total := int64(1)
		for _, stored := range read(t, testClient(t, c.Brokers[0]), s.topic) {
			total = max(total, sinktest.Seq(&stored)+3000) // above what a dead child may have left in a socket
		}
		run(s, total)
		totals[s] = total
		messages += int(total)
	}
	for _, s := range all {
		if err := s.child.cmd.Wait(); err != nil {
			text, _ := os.ReadFile(s.child.log)
			t.Fatalf("the last child: %v\n%.3000s", err, text)
		}
		sinktest.CheckExact(t, s.name, read(t, testClient(t, c.Brokers[1]), s.topic), sequences(1, int(totals[s])))
	}
	t.Logf("%d topics moved, %d unloaded, %d brokers and %d senders killed, %d times without bookie; %d messages: 0 lost, 0 doubled, 0 reordered; %d lookups redirected before",
		moved, unloaded, dead, killed, bookies, messages, r.n.Load())
}
