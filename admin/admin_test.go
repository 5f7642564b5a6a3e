package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHealthReadyMetrics(t *testing.T) {
	var report atomic.Pointer[Report]
	set := func(connected bool, sinkErr string) {
		report.Store(&Report{Version: "v1", Destinations: []Destination{{
			Name: "shop", State: "running", Connected: connected, LagKnown: connected, LagSeconds: 1.5, Rows: 7,
			Sinks: []Sink{{Name: "orders", Kind: "kafka", Error: sinkErr, Messages: 9}},
		}}})
	}
	set(false, "")
	s, err := Listen("127.0.0.1:0", func() Report { return *report.Load() }, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	base := "http://" + s.Addr()

	if code, _ := get(t, c, base+"/readyz"); code != 503 {
		t.Errorf("not connected, readyz %d", code)
	}
	if _, body := get(t, c, base+"/metrics"); strings.Contains(body, "binlogmq_lag_seconds{") {
		t.Error("a lag that is not known must not be shown")
	}
	set(true, "")
	for _, path := range []string{"/readyz", "/healthz"} {
		if code, body := get(t, c, base+path); code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	report.Store(&Report{Destinations: []Destination{{Name: "shop", State: Standby, Meta: true, Epoch: 3}}})
	if code, body := get(t, c, base+"/readyz"); code != 200 {
		t.Errorf("standby: readyz %d %s", code, body)
	}
	if _, body := get(t, c, base+"/metrics"); !strings.Contains(body, `binlogmq_lease_owner{destination="shop"} 0`) || !strings.Contains(body, `binlogmq_lease_epoch{destination="shop"} 3`) {
		t.Errorf("standby: metrics\n%s", body)
	}
	report.Store(&Report{Destinations: []Destination{{Name: "shop", State: Waiting}}})
	if code, body := get(t, c, base+"/readyz"); code != 200 {
		t.Errorf("no client yet: readyz %d %s", code, body)
	}
	report.Store(&Report{Destinations: []Destination{{Name: "shop", State: Standby, Error: "ZooKeeper is away"}}})
	if code, _ := get(t, c, base+"/readyz"); code != 503 {
		t.Errorf("a standby without its store: readyz %d", code)
	}
	set(true, "broker down")
	if code, body := get(t, c, base+"/healthz"); code != 503 || !strings.Contains(body, "broker down") {
		t.Errorf("healthz %d %s", code, body)
	}
	_, body := get(t, c, base+"/metrics")
	for _, want := range []string{
		`binlogmq_source_rows_total{destination="shop"} 7`,
		`binlogmq_lag_seconds{destination="shop"} 1.5`,
		`binlogmq_sink_messages_total{destination="shop",kind="kafka",sink="orders"} 9`,
		`binlogmq_sink_up{destination="shop",kind="kafka",sink="orders"} 0`,
		`binlogmq_build_info{version="v1"} 1`,
		"process_cpu_seconds_total",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s in\n%s", want, body)
		}
	}
}

// What the address serves is health, metrics and snapshots: nothing else, however it is asked for.
func TestNothingElseIsServed(t *testing.T) {
	s, err := Listen("127.0.0.1:0", func() Report { return Report{} }, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, path := range []string{"/", "/config", "/api/v1/config", "/api/x/config/y", "/api/destinations", "/api/destinations/shop", "/api/destinations/shop/snapshots", "/api/destinations/shop/snapshot/start", "/healthz/config", "/healthz/", "/metrics/x", "/debug/pprof/", "/debug/vars", "/%2e%2e/config", "/healthz%2fconfig"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			q, err := http.NewRequest(method, "http://"+s.Addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if r.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %s", method, path, r.Status)
			}
		}
	}
	for _, path := range []string{"/api/destinations/shop/snapshot", "/api/destinations/shop/snapshot/cancel"} {
		q, err := http.NewRequest("DELETE", "http://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("DELETE %s: %s", path, r.Status)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		r, err := c.Post("http://"+s.Addr()+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", path, r.Status)
		}
	}
}

func TestAddressTaken(t *testing.T) {
	f := func() Report { return Report{} }
	s, err := Listen("127.0.0.1:0", f, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if _, err := Listen(s.Addr(), f, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "admin.listen") {
		t.Errorf("error %v", err)
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Metrics {
		name := m.Name
		if m.Counter {
			name += "_total"
		}
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operations.md does not describe `%s`", name)
		}
	}
}
