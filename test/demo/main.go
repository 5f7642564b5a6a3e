package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
)

const (
	clerks       = 4
	oneshotWork  = 400 // transactions a clerk
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	stallTimeout = time.Minute     // without a message while some are missing
	quietTime    = 2 * time.Second // no message for so long after the end: none follows
)

func main() {
	addresses := flag.String("addresses", "", "file of lines 'mysql DSN', 'kafka HOST:PORT', 'pulsar URL ADMIN-URL'")
	dir := flag.String("dir", "", "folder for the configuration, the cursors and the log")
	binary := flag.String("binary", "bin/binlogmq", "the program to show")
	oneshot := flag.Bool("oneshot", false, "commit a fixed amount of work, check, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addresses, *dir, *binary, *oneshot); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addresses, dir, binary string, oneshot bool) error {
	s, err := readAddresses(addresses)
	if err != nil {
		return err
	}
	if s.Admin, err = freeAddress(); err != nil {
		return err
	}
	s.Dir = filepath.Join(dir, "cursors")

	clerk0, err := client.Connect(s.MySQL, "root", "", "")
	if err != nil {
		return fmt.Errorf("connecting to MySQL: %w", err)
	}
	defer clerk0.Close()
	for _, statement := range schema {
		if _, err := clerk0.Execute(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}

	// The consumers outlive the stop signal: they still receive what is on its way then.
	reading, stopReading := context.WithCancel(context.Background())
	kafka, pulsar := newInbox("kafka", "canal-json"), newInbox("pulsar", "maxwell")
	waitKafka, err := readKafka(reading, s.Kafka, kafka)
	if err != nil {
		stopReading()
		return err
	}
	defer func() { stopReading(); waitKafka() }()
	waitPulsar, err := readPulsar(reading, s.PulsarURL, s.PulsarAdmin, pulsar)
	if err != nil {
		return err
	}
	defer func() { stopReading(); waitPulsar() }()

	program, err := start(s, dir, binary)
	if err != nil {
		return err
	}
	defer program.kill()
	if err := program.awaitReady(ctx, s.Admin); err != nil {
		return err
	}
	fmt.Println("demo: binlogmq runs; the shop opens. Ctrl-C ends it.")

	committed := newHistory()
	if err := trade(ctx, s.MySQL, committed, oneshot, program, kafka, pulsar); err != nil {
		return err
	}
	arrived := awaitAll(committed, program, kafka, pulsar)
	// In order: what it has accepted it still delivers. Then nothing more may come.
	if err := errors.Join(arrived, program.stop()); err != nil {
		program.printLog()
		return err
	}
	awaitQuiet(kafka, pulsar)
	printCounts(committed, kafka, pulsar)
	for _, b := range []*inbox{kafka, pulsar} {
		if err := b.compare(committed); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	fmt.Printf("demo: each of the %d committed row changes arrived exactly once and in order of its key, in Kafka and in Pulsar\n", committed.total())
	return nil
}

func readAddresses(path string) (s settings, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 2 && words[0] == "mysql":
			_, address, _ := strings.Cut(words[1], "(")
			s.MySQL, _, _ = strings.Cut(address, ")")
		case len(words) == 2 && words[0] == "kafka":
			s.Kafka = words[1]
		case len(words) == 3 && words[0] == "pulsar":
			s.PulsarURL, s.PulsarAdmin = words[1], words[2]
		}
	}
	if s.MySQL == "" || s.Kafka == "" || s.PulsarAdmin == "" {
		return s, fmt.Errorf("%s does not name a mysql, a kafka and a pulsar", path)
	}
	return s, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// trade lets the clerks work: a fixed amount, or leisurely until ctx ends.
func trade(ctx context.Context, mysql string, committed *history, oneshot bool, program *child, inboxes ...*inbox) error {
	amount, pause := oneshotWork, func(context.Context) {}
	if !oneshot {
		amount = 1 << 30
		pause = func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(100+rand.IntN(600)) * time.Millisecond):
			}
		}
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &shop{committed: committed}
	results := make(chan error, clerks)
	for i := range clerks {
		go func() { results <- s.employ(working, mysql, uint64(i), amount, pause) }()
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	var first error
	for left := clerks; left > 0; {
		select {
		case err := <-results:
			left--
			if err != nil && first == nil {
				first = err
				cancel()
			}
		case <-program.done:
			if first == nil {
				first = errors.New("binlogmq has ended")
				program.printLog()
			}
			cancel()
			for ; left > 0; left-- {
				<-results
			}
		case <-tick.C:
			printLine(committed, inboxes...)
		}
	}
	return first
}

func (s *shop) employ(ctx context.Context, mysql string, number uint64, amount int, pause func(context.Context)) error {
	conn, err := client.Connect(mysql, "root", "", "")
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &clerk{shop: s, conn: conn, rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), number))}
	return c.work(ctx, amount, pause)
}

// awaitAll waits until as many row changes have arrived as were committed.
func awaitAll(committed *history, program *child, inboxes ...*inbox) error {
	want, before, progress := committed.total(), -1, time.Now()
	for {
		got, least := 0, want
		for _, b := range inboxes {
			if err := b.failure(); err != nil {
				return err
			}
			n := b.total()
			got, least = got+n, min(least, n)
		}
		if least >= want {
			return nil
		}
		if got != before {
			before, progress = got, time.Now()
		}
		select {
		case <-program.done:
			return errors.New("binlogmq has ended while rows were missing")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(progress) > stallTimeout {
			printCounts(committed, inboxes...)
			return fmt.Errorf("no message for %v while row changes are missing", stallTimeout)
		}
	}
}

// awaitQuiet returns when no message has come for a while.
func awaitQuiet(inboxes ...*inbox) {
	for before, since := -1, time.Now(); time.Since(since) < quietTime; time.Sleep(50 * time.Millisecond) {
		now := 0
		for _, b := range inboxes {
			for _, table := range tables {
				_, messages := b.received(table)
				now += messages
			}
		}
		if now != before {
			before, since = now, time.Now()
		}
	}
}

func printLine(committed *history, inboxes ...*inbox) {
	fmt.Printf("demo: %d row changes committed", committed.total())
	for _, b := range inboxes {
		fmt.Printf(", %d in %s", b.total(), b.name)
	}
	fmt.Println()
}

func printCounts(committed *history, inboxes ...*inbox) {
	fmt.Printf("\n%-12s %10s", "row changes", "committed")
	for _, b := range inboxes {
		fmt.Printf(" %22s", "received from "+b.name)
	}
	fmt.Println()
	for _, table := range tables {
		fmt.Printf("%-12s %10d", table, committed.of(table))
		for _, b := range inboxes {
			rows, messages := b.received(table)
			fmt.Printf(" %22s", fmt.Sprintf("%d in %d messages", rows, messages))
		}
		fmt.Println()
	}
	fmt.Printf("%-12s %10d", "all", committed.total())
	for _, b := range inboxes {
		fmt.Printf(" %22d", b.total())
	}
	fmt.Print("\n(a change of the primary key travels as two messages: the old key ends, the new one begins)\n\n")
}

// child is the running binlogmq.
type child struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // why, set before done is closed
}

func start(s settings, dir, binary string) (*child, error) {
	text, err := s.config()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	fmt.Printf("demo: %s run -c %s, which holds:\n\n%s\n", binary, file, text)
	c := &child{log: filepath.Join(dir, "binlogmq.log"), done: make(chan struct{})}
	out, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.cmd = exec.Command(binary, "run", "-c", file)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	// A group of its own: Ctrl-C at the terminal is for the demo, which stops the program when it is done with it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, os.WriteFile(filepath.Join(dir, "binlogmq.pid"), fmt.Append(nil, c.cmd.Process.Pid), 0o644)
}

func (c *child) awaitReady(ctx context.Context, address string) error {
	deadline := time.Now().Add(startTimeout)
	for {
		if answer, err := http.Get("http://" + address + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			c.printLog()
			return fmt.Errorf("binlogmq did not start: %w", c.err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			c.printLog()
			return fmt.Errorf("binlogmq is not ready after %v", startTimeout)
		}
	}
}

// stop asks the program to end in order; ending otherwise is an error.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended: then c.err tells
	select {
	case <-c.done:
		if c.err != nil {
			return fmt.Errorf("binlogmq: %w", c.err)
		}
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("binlogmq did not stop within %v", stopTimeout)
	}
}

// kill ends the program however it stands.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.done
}

func (c *child) printLog() {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	fmt.Fprintf(os.Stderr, "demo: the last that binlogmq said:\n%s\n", strings.Join(lines[max(0, len(lines)-20):], "\n"))
}
