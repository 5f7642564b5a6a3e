//go:build integration

package pulsar

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/sink"
	"github.com/binlogmq/binlogmq/sink/sinktest"
)

// What the parent tells its children: URL, admin URL, topic, producer, batching, folder, last message (0: no end), longest pause in ms.
const childVariable = "BINLOGMQ_TEST_PULSAR_CHILD"

// killsVariable sets the number of kills of TestKillLoop for each producer, seedVariable what its choices are made from.
const (
	killsVariable = "BINLOGMQ_TEST_PULSAR_KILLS"
	seedVariable  = "BINLOGMQ_TEST_PULSAR_SEED"
)

// progress is the owner of the child's messages: what is confirmed without a gap.
type progress struct {
	mu     sync.Mutex
	next   int64 // the first not confirmed
	failed bool
}

func (p *progress) MessageDone(m *sink.Message, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.failed = true
	case p.failed:
	case m.Sequence != p.next:
		panic(fmt.Sprintf("message %d is done, %d is not", m.Sequence, p.next))
	default:
		p.next++
	}
}

func (p *progress) state() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, p.failed
}

// cursorOf returns the number of the next message, and the sink's state that was saved with it.
func cursorOf(dir string) (next int64, state []byte) {
	text, err := os.ReadFile(filepath.Join(dir, "cursor"))
	if err != nil {
		return 1, nil
	}
	number, state, _ := bytes.Cut(text, []byte("\n"))
	next, _ = strconv.ParseInt(string(number), 10, 64)
	return max(next, 1), state
}

// TestKillChild is what TestKillLoop kills: it publishes numbered messages from a cursor
// that lags behind what is confirmed. In a run of its own it does nothing.
func TestKillChild(t *testing.T) {
	args := strings.Split(os.Getenv(childVariable), " ")
	if len(args) != 8 {
		return
	}
	pause, _ := strconv.Atoi(args[7])
	topic, dir := args[2], args[5]
	total, _ := strconv.ParseInt(args[6], 10, 64)
	o := Options{URL: args[0], AdminURL: args[1], Deployment: "test", Destination: "shop", Sink: "kill", Topics: Topics{Create: true}, Producer: args[3], Batching: args[4] == "true",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	next, state := cursorOf(dir)
	if state != nil {
		if _, err := s.Restore(ctx, state, sink.Same); err != nil {
			t.Fatal(err)
		}
	}
	p := &progress{next: next}
	begin := next
	saved, stop := make(chan struct{}), make(chan struct{})
	go func() { // the cursor moves forward only, and late
		defer close(saved)
		for cursor, first := begin, begin; ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(1+rand.IntN(20)) * time.Millisecond):
			}
			now, _ := p.state()
			if now > first {
				first = 1 << 62
				_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("ready.%d", os.Getpid())), nil, 0o644)
			}
			if lagging := now - rand.Int64N(1500); lagging > cursor {
				cursor = lagging
				name := filepath.Join(dir, fmt.Sprintf("cursor.%d", os.Getpid()))
				if os.WriteFile(name, s.AppendState(append(strconv.AppendInt(nil, cursor, 10), '\n')), 0o644) == nil {
					_ = os.Rename(name, filepath.Join(dir, "cursor"))
				}
			}
		}
	}()
	for {
		for total == 0 || next <= total {
			n := 1 + rand.Int64N(300)
			if total > 0 {
				n = min(n, total-next+1)
			}
			msgs := sinktest.Messages(p, topic, 0, next, int(n))
			accepted, err := s.Publish(ctx, msgs)
			next += int64(accepted)
			if _, failed := p.state(); failed || err != nil {
				break
			}
			time.Sleep(time.Duration(rand.IntN(pause)) * time.Millisecond)
		}
		_ = s.Flush(ctx)
		if _, failed := p.state(); !failed {
			break
		}
		if err := s.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		next, _ = p.state()
		p.mu.Lock()
		p.failed = false
		p.mu.Unlock()
	}
	close(stop)
	<-saved
	if err := s.Close(within(t)); err != nil {
		t.Fatal(err)
	}
}

type child struct {
	cmd *exec.Cmd
	log string
}

func startChild(t *testing.T, b *testenv.PulsarBroker, k kind, topic, dir string, number int, total int64, pause time.Duration) *child {
	t.Helper()
	log := filepath.Join(dir, fmt.Sprintf("child-%d.log", number))
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.timeout=40m")
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join([]string{b.URL, b.AdminURL, topic, k.producer, strconv.FormatBool(k.batching), dir, strconv.FormatInt(total, 10),
		strconv.FormatInt(pause.Milliseconds(), 10)}, " "))
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, log}
}

// live lets the child run: mostly until it has sent something, and a random time.
func (c *child) live(rng *rand.Rand) {
	limit, early := time.Now().Add(20*time.Second), rng.IntN(5) == 0
	for !early && time.Now().Before(limit) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(c.log), fmt.Sprintf("ready.%d", c.cmd.Process.Pid))); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

func (c *child) kill(t *testing.T) {
	t.Helper()
	c.signal(syscall.SIGKILL)
	err := c.cmd.Wait()
	if c.cmd.ProcessState.Exited() {
		text, _ := os.ReadFile(c.log)
		t.Errorf("a child ended by itself: %v\n%.3000s", err, text)
	}
}

// TestKillLoop proves I1, I4, I5 and I7 on a real broker: a process that publishes is killed at any time, with
// a broker that stands still or dies around it; some are only paused while a successor takes over, and
// wake up beside it (I8). 0 lost, 0 doubled, 0 reordered.
func TestKillLoop(t *testing.T) {
	kills, seed := 6, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		kills = n
	}
	if n, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	b := testenv.NewPulsar(t)
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) { killLoop(t, b, k, kills, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
}

func killLoop(t *testing.T, b *testenv.PulsarBroker, k kind, kills int, rng *rand.Rand) {
	topic := b.Topic() + "-" + k.name
	dir := t.TempDir()
	var paused, dead, zombies int
	for i := range kills {
		c := startChild(t, b, k, topic, dir, i, 0, 8*time.Millisecond)
		c.live(rng)
		switch what := rng.IntN(12); {
		case what < 3: // the broker stands still around the kill
			paused++
			b.Pause()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			c.kill(t)
			b.Resume()
		case what < 5:
			zombies++
			c.signal(syscall.SIGSTOP)
			next := startChild(t, b, k, topic, dir, 10000+i, 0, 8*time.Millisecond)
			next.live(rng)
			c.signal(syscall.SIGCONT)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			next.kill(t)
			c.kill(t)
		case i%10 == 9: // the broker dies, with or before the child
			dead++
			b.Kill()
			if rng.IntN(2) == 0 {
				c.kill(t)
				b.Restart()
			} else {
				b.Restart()
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				c.kill(t)
			}
		default:
			c.kill(t)
		}
	}
	if n, _ := cursorOf(dir); n <= 1 { // no child had the time for it
		c := startChild(t, b, k, topic, dir, 99998, 0, 8*time.Millisecond)
		for ctx := within(t); n <= 1; n, _ = cursorOf(dir) {
			if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
				t.Fatal("the cursor does not move")
			}
		}
		c.kill(t)
	}
	stored := read(t, testClient(t, b), topic)
	total := int64(20_000)
	for i := range stored {
		total = max(total, sinktest.Seq(&stored[i])+20_000) // above what a dead child may have left in a socket
	}
	last := startChild(t, b, k, topic, dir, 99999, total, 8*time.Millisecond)
	if err := last.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(last.log)
		t.Fatalf("the last child: %v\n%.3000s", err, text)
	}
	sinktest.CheckExact(t, "killed", read(t, testClient(t, b), topic), sequences(1, int(total)))
	t.Logf("%d kills, of these %d with the broker standing still, %d with the broker killed; %d woken beside a successor; %d messages: 0 lost, 0 doubled, 0 reordered",
		kills, paused, dead, zombies, total)
}
