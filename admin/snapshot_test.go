package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// clerk writes down what is ordered.
type clerk struct {
	orders []string
	err    error
}

func (c *clerk) StartSnapshot(_ context.Context, destination string, o SnapshotOrder) (string, error) {
	c.orders = append(c.orders, fmt.Sprint("start ", destination, " ", o.Sinks, o.Tables, o.Where))
	return "id-1", c.err
}

func (c *clerk) CancelSnapshot(_ context.Context, destination, id string) error {
	c.orders = append(c.orders, "cancel "+destination+" "+id)
	return c.err
}

func TestSnapshots(t *testing.T) {
	to := new(clerk)
	report := Report{Destinations: []Destination{
		{Name: "shop", Snapshot: &Snapshot{State: "reading", Table: "shop.item", Tables: 5, Done: 3, Rows: 7, Chunks: 2, Bytes: 99, Queue: []SnapshotOrder{{ID: "id-1"}, {ID: "id-2"}}}},
		{Name: "stuck", Connected: true, Snapshot: &Snapshot{State: "failing", Error: "no SELECT"}},
		{Name: "away"},
	}}
	s, err := Listen("127.0.0.1:0", func() Report { return report }, to, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	base := "http://" + s.Addr()
	ask := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		q, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			if header[i] == "Host" {
				q.Host = header[i+1]
			}
			q.Header.Set(header[i], header[i+1])
		}
		r, err := c.Do(q)
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
	const shop = "/api/destinations/shop/snapshot"
	for name, x := range map[string]struct {
		method, path, body string
		header             []string
		err                error
		code               int
		order              string // "": none
	}{
		"start":         {"POST", shop, `{"tables":["a.*"],"where":{"a.b":"x > 1"},"sinks":["out"]}`, nil, nil, 202, "start shop [out] [a.*] map[a.b:x > 1]"},
		"of all":        {"POST", shop, `{}`, nil, nil, 202, "start shop [] [] map[]"},
		"escaped name":  {"POST", "/api/destinations/a%2Fb/snapshot", `{}`, nil, nil, 202, "start a/b [] [] map[]"},
		"cancel":        {"POST", shop + "/cancel", `{"id":"id-1"}`, nil, nil, 200, "cancel shop id-1"},
		"cancel all":    {"POST", shop + "/cancel", `{}`, nil, nil, 200, "cancel shop "},
		"unknown":       {"POST", shop, `{}`, nil, fmt.Errorf("x: %w", ErrUnknown), 404, "start shop [] [] map[]"},
		"elsewhere":     {"POST", shop + "/cancel", `{}`, nil, ErrElsewhere, 409, "cancel shop "},
		"refused":       {"POST", shop, `{}`, nil, ErrOrder, 400, "start shop [] [] map[]"},
		"store away":    {"POST", shop, `{}`, nil, errors.New("away"), 503, "start shop [] [] map[]"},
		"no JSON":       {"POST", shop, `tables`, nil, nil, 400, ""},
		"two":           {"POST", shop, `{}{}`, nil, nil, 400, ""},
		"nothing":       {"POST", shop, ``, nil, nil, 400, ""},
		"unknown key":   {"POST", shop, `{"table":["a.*"]}`, nil, nil, 400, ""},
		"too long":      {"POST", shop, `{"tables":["` + strings.Repeat("a", maxOrder) + `"]}`, nil, nil, 413, ""},
		"null":          {"POST", shop, `null`, nil, nil, 400, ""},
		"cancel null":   {"POST", shop + "/cancel", ` null`, nil, nil, 400, ""},
		"no object":     {"POST", shop, `[]`, nil, nil, 400, ""},
		"method":        {"PUT", shop, `{}`, nil, nil, 405, ""},
		"cancel, get":   {"GET", shop + "/cancel", ``, nil, nil, 405, ""},
		"path":          {"POST", shop + "s", `{}`, nil, nil, 404, ""},
		"same site":     {"POST", shop, `{}`, []string{"Sec-Fetch-Site", "same-site", "Origin", base}, nil, 403, ""},
		"same origin":   {"POST", shop, `{}`, []string{"Sec-Fetch-Site", "same-origin", "Origin", base}, nil, 202, "start shop [] [] map[]"},
		"other name":    {"POST", shop, `{}`, []string{"Host", "evil.example:8088", "Origin", "http://evil.example:8088", "Sec-Fetch-Site", "same-origin"}, nil, 403, ""},
		"name alone":    {"POST", shop + "/cancel", `{}`, []string{"Host", "evil.example"}, nil, 403, ""},
		"localhost":     {"POST", shop, `{}`, []string{"Host", "LOCALHOST:8088"}, nil, 202, "start shop [] [] map[]"},
		"IPv6":          {"POST", shop, `{}`, []string{"Host", "[::1]:8088"}, nil, 202, "start shop [] [] map[]"},
		"name, status":  {"GET", shop, ``, []string{"Host", "monitored.example"}, nil, 200, ""},
		"form":          {"POST", shop, `{}`, []string{"Content-Type", "text/plain"}, nil, 400, ""},
		"other origin":  {"POST", shop, `{}`, []string{"Origin", "http://elsewhere.example"}, nil, 403, ""},
		"other site":    {"POST", shop, `{}`, []string{"Sec-Fetch-Site", "cross-site"}, nil, 403, ""},
		"status":        {"GET", shop, ``, nil, nil, 200, ""},
		"status, none":  {"GET", "/api/destinations/nosuch/snapshot", ``, nil, nil, 404, ""},
		"status, other": {"GET", "/api/destinations/away/snapshot", ``, nil, nil, 409, ""},
	} {
		to.orders, to.err = nil, x.err
		code, body := ask(x.method, x.path, x.body, x.header...)
		if got := strings.Join(to.orders, ", "); code != x.code || got != x.order {
			t.Errorf("%s: code %d, order %q, not %d and %q: %s", name, code, got, x.code, x.order, body)
		}
		var a Answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || code >= 300 && a.Error == "" {
			t.Errorf("%s: %v: %s", name, err, body)
		}
		if x.err != nil && !strings.Contains(body, x.err.Error()) {
			t.Errorf("%s: the answer does not say %v: %s", name, x.err, body)
		}
	}
	if _, body := ask("GET", shop, ""); !strings.Contains(body, `"table": "shop.item"`) || !strings.Contains(body, `"id": "id-2"`) {
		t.Errorf("status %s", body)
	}
	_, metrics := ask("GET", "/metrics", "")
	for _, want := range []string{
		`binlogmq_snapshot_rows{destination="shop"} 7`, `binlogmq_snapshot_queue{destination="shop"} 2`, `binlogmq_snapshot_pending_bytes{destination="shop"} 99`,
		`binlogmq_snapshot_pending_chunks{destination="shop"} 2`, `binlogmq_snapshot_tables{destination="shop"} 5`, `binlogmq_snapshot_tables_done{destination="shop"} 3`, `binlogmq_snapshot_up{destination="shop"} 1`, `binlogmq_snapshot_up{destination="stuck"} 0`, `binlogmq_destination_up{destination="stuck"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s in\n%s", want, metrics)
		}
	}
	if strings.Contains(metrics, `binlogmq_snapshot_up{destination="away"}`) {
		t.Error("snapshots of another process are shown")
	}
	if code, _ := ask("GET", "/healthz", ""); code != 503 {
		t.Errorf("a snapshot that cannot go on: healthz %d", code)
	}
	report.Destinations = report.Destinations[1:2]
	if code, _ := ask("GET", "/readyz", ""); code != 200 {
		t.Errorf("a snapshot that cannot go on: readyz %d", code)
	}
}

func TestKnownHosts(t *testing.T) {
	for _, c := range []struct {
		host, own string
		want      bool
	}{
		{"db1:8088", "db1", true}, {"DB1", "db1", true}, {"db1.evil.example:8088", "db1", false}, {"", "", false}, {"10.0.0.1", "", true}, {"[fe80::1%25eth0]:1", "", true}, {"localhost.evil.example", "", false}, {"127.0.0.1.evil.example:1", "127.0.0.1", false},
	} {
		if got := known(c.host, c.own); got != c.want {
			t.Errorf("%q at %q: %t", c.host, c.own, got)
		}
	}
}
