//go:build integration

package operations

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// asks is the client of the admin address.
var asks = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// scrape returns the values of binlogmq's metrics; where sinks bear one, the highest.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	r, err := asks.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		if i := strings.LastIndexByte(line, '}'); i >= 0 {
			value = strings.TrimSpace(line[i+1:])
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && strings.HasPrefix(name, "binlogmq_") {
			m[name] = max(m[name], v)
		}
	}
	return m
}

// answers waits until the admin address answers with these codes.
func answers(t *testing.T, base string, healthz, readyz int) {
	t.Helper()
	code := func(path string) int {
		t.Helper()
		r, err := asks.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		h, r := code("/healthz"), code("/readyz")
		if h == healthz && r == readyz {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("healthz answers %d, readyz %d; want %d, %d", h, r, healthz, readyz)
		}
	}
}

// TestEveryMetricMoves runs the program through work, an outage of the broker and one of the source, and sees
// each metric take the values that docs/operations.md promises.
func TestEveryMetricMoves(t *testing.T) {
	t.Parallel()
	db := testenv.NewMySQL(t, "mysql")
	k := testenv.NewKafka(t, 1)
	s := newSetup(t, db)
	table := s.table(t, db)
	topic := k.Topic(1)
	s.sink = kafkaSink(k, topic, "create: false")
	s.more = "ring: { bytes: 1MiB }\n    detach_after: 1s\n    snapshot: { rows_per_second: 100, chunk_bytes: 64KiB }"
	// A second sink, which goes on when the first cannot.
	text := s.text() + fmt.Sprintf("      - name: lines\n        file: { path: %q, sync: false }\n", s.lines)
	p := process.Start(t, text)
	base := "http://" + p.Admin()
	p.AwaitReady()
	p.Await("a known lag", patience, func(r *admin.Report) bool { return r.Destinations[0].LagKnown && r.Healthy() })

	lowest, highest := map[string]float64{}, map[string]float64{}
	look := func() map[string]float64 {
		m := scrape(t, base+"/metrics")
		for n, v := range m {
			if l, ok := lowest[n]; !ok || v < l {
				lowest[n] = v
			}
			highest[n] = max(highest[n], v)
		}
		return m
	}
	until := func(what string, f func(m map[string]float64) bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			m := look()
			if f(m) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("waiting for %s: %v", what, m)
			}
		}
	}
	idle := func(m map[string]float64) bool {
		return m["binlogmq_lag_seconds"] == 0 && m["binlogmq_lag_bytes"] == 0 && m["binlogmq_sink_behind"] == 0 && m["binlogmq_sink_in_flight_messages"] == 0 &&
			m["binlogmq_sink_lag_seconds"] == 0 && m["binlogmq_sink_cursor_age_seconds"] == 0 && m["binlogmq_ring_events"] == 0
	}
	until("rest at the start", idle)
	answers(t, base, 200, 200)
	db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
	until("rest after a row", func(m map[string]float64) bool { return idle(m) && m["binlogmq_sink_messages_total"] >= 1 })

	// The broker dies while more than the ring is written: the sink lags, is detached, and catches up.
	k.Kill(1)
	for i := range 40 {
		db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, REPEAT('x', 100000))", table, 10+i))
		look() // or the ring may be empty again before it is looked at
	}
	until("a growing lag", func(m map[string]float64) bool {
		return m["binlogmq_lag_seconds"] > 3 && m["binlogmq_sink_lag_seconds"] > 3 && m["binlogmq_sink_behind"] > 0 && m["binlogmq_sink_retries_total"] > 0
	})
	answers(t, base, 503, 200)
	k.Restart(1)
	until("rest after the outage", func(m map[string]float64) bool { return idle(m) && m["binlogmq_sink_messages_total"] >= 41 })

	// The source goes away.
	db.Stop()
	until("a lost source", func(m map[string]float64) bool { return m["binlogmq_source_connected"] == 0 })
	answers(t, base, 503, 503)
	db.Restart()
	until("rest after the source is back", func(m map[string]float64) bool { return idle(m) && m["binlogmq_source_connected"] == 1 })
	p.Stop()

	// Nothing was written while it was down, and nothing is: there is no lag, however old the last change is.
	time.Sleep(2 * time.Second)
	p = process.Start(t, text)
	base = "http://" + p.Admin()
	p.AwaitReady()
	until("rest after a pause", func(m map[string]float64) bool { return idle(m) && m["binlogmq_source_connected"] == 1 })
	for range 20 {
		if m := look(); m["binlogmq_lag_seconds"] != 0 || m["binlogmq_lag_bytes"] != 0 {
			t.Errorf("idle, with a lag of %v s and %v bytes", m["binlogmq_lag_seconds"], m["binlogmq_lag_bytes"])
		}
		time.Sleep(100 * time.Millisecond)
	}

	// A snapshot of two tables.
	db.Exec("CREATE TABLE " + table + "_too (id INT PRIMARY KEY)")
	db.Exec("INSERT INTO " + table + "_too VALUES (0)")
	for n := 1; n < 256; n *= 2 {
		db.Exec(fmt.Sprintf("INSERT INTO %s_too SELECT id+%d FROM %s_too", table, n, table))
	}
	until("rest before a snapshot", idle)
	// Its second table is read when it has been seen that the first one is done.
	holds := db.Connect("")
	lock := func(statement string) {
		t.Helper()
		if _, err := holds.Execute(statement); err != nil {
			t.Fatal(err)
		}
	}
	lock("LOCK TABLES " + table + "_too WRITE")
	ordered, err := asks.Post(base+"/api/destinations/"+s.name+"/snapshot", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	ordered.Body.Close()
	if ordered.StatusCode != http.StatusAccepted {
		t.Fatalf("a snapshot is answered %s", ordered.Status)
	}
	until("a snapshot that begins", func(m map[string]float64) bool { return m["binlogmq_snapshot_rows"] > 0 })
	until("its second table", func(m map[string]float64) bool { return m["binlogmq_snapshot_tables_done"] == 1 })
	lock("UNLOCK TABLES")
	until("its end", func(m map[string]float64) bool { return m["binlogmq_snapshot_queue"] == 0 })
	answers(t, base, 200, 200)
	p.Stop()

	// What does not move in such a run, and why.
	still := map[string]string{
		"binlogmq_ring_limit_bytes":        "a setting",
		"binlogmq_sink_rollbacks_total":    "sessions survive outages",
		"binlogmq_lag_bytes":               "the reader is quicker than the poll",
		"binlogmq_sink_cursor_age_seconds": "cursors are saved at once; TestFullDisk sees it grow",
		"binlogmq_sink_catching_up":        "what waits in flight may be less than the ring",
		"binlogmq_sink_up":                 "the other sink stays up",
		"binlogmq_sink_in_flight_messages": "confirmed between two looks",
		"binlogmq_sink_in_flight_bytes":    "confirmed between two looks",

		"binlogmq_lease_owner":                       "with cursors in files there is one owner ever",
		"binlogmq_lease_epoch":                       "the same",
		"binlogmq_meta_connected":                    "the same",
		"binlogmq_source_skipped_transactions_total": "no order to skip one was given",
		"binlogmq_source_passed_statements_total":    "every session logs rows",
		"binlogmq_source_unread_rows_total":          "all tables can be read",
		"binlogmq_snapshot_up":                       "the snapshot can be read",
		"binlogmq_source_lost_positions_total":       "no position is lost",
		"binlogmq_sink_commits_total":                "delivery is not transactional",
		"binlogmq_sink_spread_transactions_total":    "the same",
		"binlogmq_sink_hanging_partitions":           "the same",
		"binlogmq_sink_stubs_total":                  "no message is too large",
		"binlogmq_sink_splits_total":                 "the same",
		"binlogmq_sink_dead_letters_total":           "the same",
	}
	for _, m := range admin.Metrics {
		name := m.Name
		if m.Counter {
			name += "_total"
		}
		if _, ok := highest[name]; !ok {
			t.Errorf("%s is not exposed", name)
			continue
		}
		if highest[name] == lowest[name] && still[name] == "" {
			t.Errorf("%s stayed at %v", name, highest[name])
		}
	}
}
