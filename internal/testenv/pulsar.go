package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// PulsarBroker is a Pulsar standalone broker. Its methods end the test at the first error, so they belong
// to the test's own goroutine.
type PulsarBroker struct {
	URL      string // pulsar://host:port
	AdminURL string // http://host:port
	Dir      string // folder of the broker (server.log, standalone.conf); empty when somebody else runs it

	t   testing.TB
	own bool
	env []string // for calls of the script
}

// Pulsar returns the shared broker: Pulsar 4.0, deduplication on, no authentication.
func Pulsar(t testing.TB) *PulsarBroker {
	t.Helper()
	if at := os.Getenv("BINLOGMQ_TEST_PULSAR"); at != "" {
		url, admin, _ := strings.Cut(at, " ")
		return &PulsarBroker{URL: url, AdminURL: admin, t: t}
	}
	line, dir := shared(t, "pulsar", "pulsar.sh", func(dir string) []string { return []string{"start", "0", "0", dir} })
	url, admin, _ := strings.Cut(line, " ")
	return &PulsarBroker{URL: url, AdminURL: admin, Dir: dir, t: t}
}

// NewPulsar starts a broker for t alone. Settings are lines of standalone.conf, such as "maxMessageSize=1000000".
func NewPulsar(t testing.TB, settings ...string) *PulsarBroker {
	t.Helper()
	return startPulsar(t, nil, settings...)
}

func startPulsar(t testing.TB, env []string, settings ...string) *PulsarBroker {
	t.Helper()
	dir := private(t, "pulsar", "pulsar.sh")
	line, err := run(env, "pulsar.sh", append([]string{"start", "0", "0", dir}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	url, admin, _ := strings.Cut(line, " ")
	return &PulsarBroker{URL: url, AdminURL: admin, Dir: dir, t: t, own: true, env: env}
}

// Proxy starts Pulsar's proxy before a broker of this machine's, for the test of p alone. What it returns is asked and controlled
// as a broker; its topics are those of p.
func (p *PulsarBroker) Proxy() *PulsarBroker {
	p.t.Helper()
	if p.Dir == "" {
		p.t.Fatal("the proxy needs a broker that testenv has started")
	}
	dir := private(p.t, "pulsar-proxy", "pulsar.sh")
	line, err := run(nil, "pulsar.sh", "proxy", "0", "0", dir, p.Dir)
	if err != nil {
		p.t.Fatal(err)
	}
	url, admin, _ := strings.Cut(line, " ")
	return &PulsarBroker{URL: url, AdminURL: admin, Dir: dir, t: p.t, own: true}
}

// PulsarCluster is several brokers that share one bookie, and a ZooKeeper for their metadata: topics move between them.
type PulsarCluster struct {
	URL     string          // of all brokers
	Brokers []*PulsarBroker // each with its own URL; Topic of any of them names the same topics
	Bookie  *PulsarBroker   // which stores what they confirm; it has no URL
}

// NewPulsarCluster starts a cluster for t alone. Settings are lines of each broker's broker.conf. Nothing
// moves by itself, and a broker that is killed gives its topics up within some seconds.
func NewPulsarCluster(t testing.TB, brokers int, settings ...string) *PulsarCluster {
	t.Helper()
	zookeeper := NewZooKeeper(t, 1)
	dir := private(t, "pulsar-cluster", "pulsar.sh")
	if _, err := run(nil, "pulsar.sh", append([]string{"cluster", strconv.Itoa(brokers), zookeeper.Servers[0], dir}, settings...)...); err != nil {
		t.Fatal(err)
	}
	c := &PulsarCluster{URL: "pulsar://", Bookie: &PulsarBroker{Dir: filepath.Join(dir, "bookie"), t: t, own: true}}
	for i := range brokers {
		b := &PulsarBroker{Dir: filepath.Join(dir, strconv.Itoa(i+1)), t: t, own: true}
		urls, err := os.ReadFile(filepath.Join(b.Dir, "urls"))
		if err != nil {
			t.Fatal(err)
		}
		b.URL, b.AdminURL, _ = strings.Cut(strings.TrimSpace(string(urls)), " ")
		if i > 0 {
			c.URL += ","
		}
		c.URL += strings.TrimPrefix(b.URL, "pulsar://")
		c.Brokers = append(c.Brokers, b)
	}
	return c
}

// Topic returns the full name of a topic of t's own in public/default. It does not create it.
func (p *PulsarBroker) Topic() string { return "persistent://public/default/" + Name(p.t) }

// Kill ends a broker of t's own with SIGKILL; Restart starts it again with its data.
func (p *PulsarBroker) Kill() { p.t.Helper(); p.control("kill") }

// Stop shuts a broker of t's own down in order.
func (p *PulsarBroker) Stop() { p.t.Helper(); p.control("stop") }

// Restart stops a broker of t's own if it runs and starts it with its data.
func (p *PulsarBroker) Restart() { p.t.Helper(); p.control("restart") }

// Pause stops the broker's process where it is (SIGSTOP): connections stay open and nothing answers.
func (p *PulsarBroker) Pause() { p.t.Helper(); p.control("pause") }

// Resume lets a paused broker go on.
func (p *PulsarBroker) Resume() { p.t.Helper(); p.control("resume") }

func (p *PulsarBroker) control(verb string) {
	p.t.Helper()
	control(p.t, p.own, p.env, "pulsar.sh", verb, p.Dir)
}
