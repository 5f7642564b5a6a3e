//go:build integration

package pulsar

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// I3, I7: after a crash the ends of topics tell what is stored of that which has no receipt, through ledgers that were closed, under the
// messages of others, and for each compression. What was never stored though later messages were is not taken for it.
func TestLook(t *testing.T) { each(t, looks) }

func looks(t *testing.T, k kind) {
	b, ns := retained(t)
	c := testClient(t, b)
	o := options(b, k, "look")
	beside := func(topic string, n int) { // others send while we are away, in batches
		p, err := c.CreateProducer(pulsarclient.ProducerOptions{Topic: topic, CompressionType: pulsarclient.ZSTD, BatchingMaxMessages: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range n {
			p.SendAsync(within(t), &pulsarclient.ProducerMessage{Payload: []byte("x"), Properties: map[string]string{"seq": "0"}}, func(pulsarclient.MessageID, *pulsarclient.ProducerMessage, error) {})
		}
		if err := p.FlushWithCtx(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	for i, compression := range []string{"none", "lz4", "zlib", "zstd", "snappy"} {
		o.Compression = compression
		for _, gap := range []bool{false, true} {
			topic := fmt.Sprintf("persistent://%s/%s-%v", ns, compression, gap)
			first, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			send(t, first, topic, 1, 40)
			state := first.AppendState(nil)
			send(t, first, topic, 41, 50)
			if gap { // 51 is what a broker has refused
				send(t, first, topic, 52, 60)
			} else {
				send(t, first, topic, 51, 60)
			}
			if i == 1 {
				unload(t, b, topic) // a ledger ends
			}
			send(t, first, topic, 61, 100)
			if err := first.Close(within(t)); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				beside(topic, 300)
			}
			if i > 2 { // more than is read first, in a ledger of its own
				unload(t, b, topic)
				beside(topic, 2*lookNear+500)
			}
			s := resume(t, o, state)
			if !gap {
				send(t, s, topic, 11, 150)
				if s.Duplicates() < 90 {
					t.Errorf("%s: %d duplicates", topic, s.Duplicates())
				}
				sinktest.CheckExact(t, topic, ours(t, b, topic), sequences(1, 150))
				continue
			}
			r := sinktest.NewRecorder(nil)
			msgs := sinktest.Messages(r, topic, 0, 11, 140)
			n, _ := s.Publish(within(t), msgs)
			if err := r.Wait(within(t), n); err != nil {
				t.Fatalf("%v; %v", err, s.Status().Err)
			}
			for i := range msgs[:n] {
				if _, err := r.Result(&msgs[i]); (err == nil) != (msgs[i].Sequence < 51) {
					t.Fatalf("%s: sequence %d: %v", topic, msgs[i].Sequence, err)
				}
			}
			if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "sequence 51,") || !strings.Contains(err.Error(), "the topic does not hold it") {
				t.Fatalf("%s: %v", topic, err)
			}
		}
	}
}

// ours returns our messages in a topic. Those of others have a property seq of 0.
func ours(t testing.TB, b *testenv.PulsarBroker, topic string) (out []sinktest.Stored) {
	t.Helper()
	for _, m := range read(t, testClient(t, b), topic) {
		if sinktest.Seq(&m) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// refusalVariable tells a child of TestRefusedAndRestarted what to do: URL, topic, producer, batching, folder.
const refusalVariable = "BINLOGMQ_TEST_PULSAR_REFUSAL"

// dies is a log whose process dies when a session fails, before anybody can save anything of that.
type dies struct {
	slog.Handler
	armed *atomic.Bool
}

func (d dies) WithAttrs(attrs []slog.Attr) slog.Handler {
	return dies{d.Handler.WithAttrs(attrs), d.armed}
}

func (d dies) Handle(ctx context.Context, r slog.Record) error {
	err := d.Handler.Handle(ctx, r)
	if d.armed.Load() && strings.Contains(r.Message, "the session has failed") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return err
}

func touch(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func await(t testing.TB, dir, name string, over <-chan struct{}) {
	t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return
		}
		select {
		case <-over:
			t.Fatalf("the other process does not write %s", name)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// refusable are messages of which sequence 12 is as large as one that has passed, so it does not go alone.
func refusable(topic string, first int64, n int) (*sinktest.Recorder, []sink.Message) {
	r := sinktest.NewRecorder(nil)
	msgs := sinktest.Messages(r, topic, 0, first, n)
	for i := range msgs {
		switch msgs[i].Sequence {
		case 5:
			msgs[i].Value = []byte(`"` + strings.Repeat("x", 61_000) + `"`)
		case 12:
			msgs[i].Value = []byte(`"` + strings.Repeat("x", 60_000) + `"`)
		}
	}
	return r, msgs
}

// TestRefusalChild is killed by itself in the instant of a refusal. In a run of its own it does nothing.
func TestRefusalChild(t *testing.T) {
	args := strings.Split(os.Getenv(refusalVariable), " ")
	if len(args) != 5 {
		return
	}
	topic, dir := args[1], args[4]
	log := dies{slog.NewTextHandler(os.Stderr, nil), new(atomic.Bool)}
	s := open(t, Options{URL: args[0], Deployment: "test", Destination: "shop", Sink: "killed", Topics: Topics{Create: true},
		Producer: args[2], Batching: args[3] == "true", Logger: slog.New(log)})
	_, msgs := refusable(topic, 1, 10)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{}) // the parent ends it
	touch(t, dir, "large", nil)
	await(t, dir, "lowered", over)
	send(t, s, topic, 11, 11) // it is connected again
	log.armed.Store(true)
	touch(t, dir, "state", s.AppendState(nil))
	await(t, dir, "go", over)
	_, msgs = refusable(topic, 12, 189)
	if _, err := s.Publish(within(t), msgs); err != nil {
		t.Fatal(err)
	}
	touch(t, dir, "sent", nil)
	<-over
}

// untilOvertaken repeats a trial until what was refused was overtaken: what follows it is on its way, but goes down with the link if the
// kernel finds answers in it that nobody has read. A batch that is larger than any before goes alone, so of batches nothing is demanded.
func untilOvertaken(t *testing.T, k kind, trial func(i int) bool) {
	t.Helper()
	for i := range 20 {
		if trial(i) {
			return
		}
		if t.Log("it was not overtaken"); k.batching {
			return
		}
	}
	t.Fatal("it was never overtaken, so nothing is proven")
}

// refusedAndKilled is refusedAndRestarted where nothing of the refusal is saved. It tells whether the message was overtaken.
func refusedAndKilled(t *testing.T, b *testenv.PulsarBroker, k kind, i int) bool {
	topic, dir := fmt.Sprintf("%s-killed-%s-%d", b.Topic(), k.name, i), t.TempDir()
	name, _ := parseTopic(topic)
	rest(t, b, http.MethodPut, name.path(), "")
	cmd := exec.Command(os.Args[0], "-test.run=^TestRefusalChild$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), refusalVariable+"="+strings.Join([]string{b.URL, topic, k.producer, strconv.FormatBool(k.batching), dir}, " "))
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait()
	}()
	defer func() {
		_ = cmd.Process.Kill() // it may be dead
		<-over
		if t.Failed() {
			t.Logf("%.5000s", text.String())
		}
	}()
	await(t, dir, "large", over)
	limitTo(t, b, name, 20_000)
	touch(t, dir, "lowered", nil)
	await(t, dir, "state", over)
	b.Pause() // so that all are on their way
	touch(t, dir, "go", nil)
	await(t, dir, "sent", over)
	b.Resume()
	select {
	case <-over:
	case <-within(t).Done():
		t.Fatal("the child lives")
	}
	if cmd.ProcessState.Exited() {
		t.Fatal("the child was not killed")
	}
	limitTo(t, b, name, 1_000_000)

	state, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	o := options(b, k, "killed")
	o.AdminURL = "" // the limit shows only by refusing
	overtaken := false
	for _, m := range read(t, testClient(t, b), topic) {
		overtaken = overtaken || sinktest.Seq(&m) > 12
	}
	s := resume(t, o, state)
	r, msgs := refusable(topic, 12, 189)
	n, _ := s.Publish(within(t), msgs)
	if err := r.Wait(within(t), n); err != nil {
		t.Fatal(err)
	}
	if !overtaken {
		sinktest.CheckExact(t, "killed", read(t, testClient(t, b), topic), sequences(1, 200))
		return false
	}
	err = s.Status().Err
	if done, failed := r.Count(); done != failed || err == nil || !strings.Contains(err.Error(), "sequence 12,") || !strings.Contains(err.Error(), "the topic does not hold it") {
		t.Fatalf("%d of %d have failed: %v", failed, done, err)
	}
	t.Log(err)
	return true
}
