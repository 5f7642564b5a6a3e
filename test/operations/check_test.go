//go:build integration

package operations

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// statements returns the SQL that check printed.
func statements(out string) (list []string) {
	for line := range strings.Lines(out) {
		if q, ok := strings.CutPrefix(strings.TrimSpace(line), "-> "); ok && strings.HasSuffix(q, ";") {
			list = append(list, strings.TrimSuffix(q, ";"))
		}
	}
	return list
}

// TestCheckMends proves that check lists every fault at once and that the statements it prints, run as they are, mend them all.
func TestCheckMends(t *testing.T) {
	for kind, bad := range map[string]struct {
		options []string
		faults  []string
		wants   []string
	}{
		"mysql": {
			options: []string{"--gtid-mode=OFF", "--binlog-row-metadata=MINIMAL", "--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-checksum=NONE", "--binlog-expire-logs-seconds=3600"},
			wants: []string{"binlog_format is MIXED", "binlog_row_metadata is \"MINIMAL\"", "binlog_row_image is MINIMAL", "binlog_checksum is NONE",
				"purged after 0.0 days", "sync_binlog is 0", "innodb_flush_log_at_trx_commit is 2", "gtid_mode is OFF", "may not ask for the binlog's position", "may not read the binlog", "may not see the tables"},
		},
		"mariadb": {
			options: []string{"--binlog-row-metadata=NO_LOG", "--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-checksum=NONE", "--expire-logs-days=1"},
			wants: []string{"binlog_format is MIXED", "binlog_row_metadata is \"NO_LOG\"", "binlog_row_image is MINIMAL", "binlog_checksum is NONE",
				"purged after 1.0 days", "sync_binlog is 0", "innodb_flush_log_at_trx_commit is 2", "may not ask for the binlog's position", "may not read the binlog", "may not see the tables"},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := testenv.NewMySQL(t, kind, bad.options...)
			s := newSetup(t, db)
			s.table(t, db)
			s.user, s.password, s.start = user(db), secret, "snapshot"
			file := s.file(t)
			r := command(t, patience, "", "check", "-c", file)
			if _, err := os.Stat(s.lines); err == nil {
				t.Error("check leaves a file behind")
			}
			if r.code != 1 {
				t.Errorf("exit code %d", r.code)
			}
			database, _, _ := strings.Cut(s.tables, ".") // for which alone SELECT is granted, which has to do
			holds(t, "check", r.out, append(bad.wants, "GRANT SELECT ON `"+database+"`.* TO ", "no table of database "+database+" can be seen")...)
			neat(t, r.out+r.errs)
			t.Logf("%s%s", r.out, r.errs)
			for range 3 { // some faults show only when others are mended
				list := statements(r.out)
				if len(list) == 0 {
					break
				}
				for _, q := range list {
					db.Exec(q)
				}
				r = command(t, patience, "", "check", "-c", file)
			}
			if r.code != 0 || !strings.Contains(r.out, "\n0 errors, 0 warnings\n") {
				t.Errorf("after all that it printed was run, check ends with %d and prints\n%s%s", r.code, r.out, r.errs)
			}
			holds(t, "check", r.out, "1 table can be read for snapshots")
			neat(t, r.out+r.errs)

			// It runs beside the program, which it does not disturb.
			p := process.Start(t, strings.Replace(s.text(), "password:", "heartbeat: 30s, password:", 1)) // however busy the machine is
			p.AwaitReady()
			if r := command(t, patience, "", "check", "-c", file); r.code != 0 {
				t.Errorf("beside the program: %d\n%s%s", r.code, r.out, r.errs)
			}
			if kind == "mysql" { // whose list of replicas check may see
				list := db.Query("SHOW REPLICAS")
				for begin := time.Now(); len(list) != 1 && time.Since(begin) < patience; list = db.Query("SHOW REPLICAS") { // a check's own entry goes with its connection
					time.Sleep(50 * time.Millisecond)
				}
				if len(list) != 1 {
					t.Fatalf("replicas beside the program: %v", list)
				}
				clash := writeFile(t, strings.Replace(s.text(), "password:", "server_id: "+list[0][0]+", password:", 1))
				for range 2 { // what check does must not hide it from the next one
					r := command(t, patience, "", "check", "-c", clash)
					holds(t, "check with the program's server id", r.out, "our server id "+list[0][0]+" is in use by another replica", "source.server_id")
				}
			}
			p.Await("green health", patience, func(rep *admin.Report) bool {
				if n := rep.Destinations[0].Reconnects; n != 0 {
					t.Fatalf("check disturbed the program, which has connected again %d times", n)
				}
				return rep.Healthy()
			})
			p.Stop()
		})
	}
}

// TestCheckListsEverything: faults of several servers and brokers come in one run, each at its place.
func TestCheckListsEverything(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	k, b := testenv.Kafka(t), testenv.Pulsar(t)
	text := fmt.Sprintf(`
meta: { file: { directory: /dev/null/meta } }
destinations:
  - name: away
    source: { address: "127.0.0.1:1", user: u, password: %q }
    sinks:
      - name: dead-kafka
        kafka: { brokers: ["127.0.0.1:2"] }
      - name: dead-pulsar
        pulsar: { url: "pulsar://127.0.0.1:3", admin_url: "http://127.0.0.1:4" }
      - name: no-folder
        file: { path: /no/such/folder/lines }
  - name: refused
    source: { address: %q, user: repl, password: %q }
    sinks:
      - name: no-kafka-topic
        kafka: { brokers: [%q], topics: { create: false } }
        topic: no-such-topic
      - name: no-pulsar-topic
        pulsar: { url: %q, admin_url: %q, topics: { create: false } }
        topic: "persistent://public/default/no-such-topic"
`, secret, db.Addr, secret, k.Bootstrap[0], b.URL, b.AdminURL)
	begun := time.Now()
	r := command(t, patience, "", "check", "-c", writeFile(t, text))
	t.Logf("%v\n%s%s", time.Since(begun), r.out, r.errs)
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	neat(t, r.out+r.errs)
	holds(t, "check", r.out,
		"/dev/null", "meta.file.directory",
		"source 127.0.0.1:1", "connection refused", "check address, port, firewall",
		"sink dead-kafka (kafka)", "127.0.0.1:2", "start the broker",
		"sink dead-pulsar (pulsar)", "127.0.0.1:3", "check url",
		"sink no-folder (file)", "/no/such/folder",
		"refuses the login of user repl",
		"topic no-such-topic", "kafka-topics.sh", "--create --topic no-such-topic",
		"persistent://public/default/no-such-topic", "pulsar-admin topics create persistent://public/default/no-such-topic")
	for line := range strings.Lines(r.out) {
		if strings.Contains(line, "ERROR") && strings.Contains(line, "level=") {
			t.Errorf("the log stands in the output: %s", line)
		}
	}
}

// TestCheckIsBounded: servers that accept connections and never answer do not hold it up for long.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	s := newSetup(t, nil)
	s.address, s.user, s.password = l.Addr().String(), "repl", secret
	s.sink = fmt.Sprintf("kafka: { brokers: [%q], request_timeout: 2s }\n      - name: p\n        pulsar: { url: \"pulsar://%s\", admin_url: \"http://%s\" }", l.Addr(), l.Addr(), l.Addr())
	text := strings.Replace(s.text(), "password:", "dial_timeout: 2s, password:", 1)
	begun := time.Now()
	r := command(t, patience, "", "check", "-c", writeFile(t, text))
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	t.Logf("%v\n%s%s", time.Since(begun), r.out, r.errs)
	if d := time.Since(begun); d > 2*time.Minute { // three parts of 30 s
		t.Errorf("it took %v", d)
	}
	neat(t, r.out+r.errs)
	holds(t, "check", r.out, "source "+s.address, "sink out (kafka)", "sink p (pulsar)", "errors")
}
