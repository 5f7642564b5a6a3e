//go:build integration

package operations

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// special is a secret that encodings change.
const special = "S3cr3t-/+ü%&=\"'"

// hides proves that a text holds a secret in no form.
func hides(t *testing.T, what, text string) {
	t.Helper()
	json := strings.ReplaceAll(special, `"`, `\"`)
	for _, form := range []string{special, json, url.QueryEscape(special), url.PathEscape(special), strings.ReplaceAll(special, "'", "''"),
		base64.StdEncoding.EncodeToString([]byte(special)), base64.URLEncoding.EncodeToString([]byte(special)), hex.EncodeToString([]byte(special)), "S3cr3t", "Uzw3", "53336372"} {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the secret as %s", what, form)
		}
	}
}

// TestSecretsStayHidden: passwords and tokens are in no log of any level, in no answer of the admin address, in nothing that a command prints and in no
// file that is written, while everything works, while nothing does, and where they are wrong.
func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t, "mysql")
	name := "u" + fmt.Sprint(time.Now().UnixNano())
	db.Exec(fmt.Sprintf("CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", name, strings.ReplaceAll(special, "'", "''")))
	db.Exec(fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO '%s'@'127.0.0.1'", name))
	t.Cleanup(func() { db.Exec(fmt.Sprintf("DROP USER '%s'@'127.0.0.1'", name)) })
	s := newSetup(t, db)
	table := s.table(t, db)
	s.user, s.password = name, special
	s.top = fmt.Sprintf("log: { level: debug }\ncanal: { listen: %q, user: canal, password: %q }", process.FreeAddress(t), special)
	kafka, pulsar := testenv.Kafka(t), testenv.Pulsar(t)
	config := s.text() + fmt.Sprintf(`      - name: no-kafka
        kafka: { brokers: ["127.0.0.1:1"], request_timeout: 1s, sasl: { mechanism: scram-sha-512, user: k, password: %[1]q } }
      - name: refused-kafka
        kafka: { brokers: [%[2]q], request_timeout: 1s, sasl: { mechanism: plain, user: k, password: %[1]q } }
      - name: no-pulsar
        pulsar: { url: "pulsar://127.0.0.1:1", token: %[1]q, watchdog: 1s }
      - name: client-pulsar
        pulsar: { url: %[3]q, admin_url: "http://127.0.0.1:1", token: %[1]q, producer: client, watchdog: 1s }
        topic: "persistent://public/default/{schema}.{table}"
`, special, kafka.Bootstrap[0], pulsar.URL)
	p := process.Start(t, config)
	p.AwaitReady()
	db.Exec("INSERT INTO " + table + " VALUES (1, 'a')")
	p.Await("the row, and faults of the sinks that have nowhere to go", patience, func(r *admin.Report) bool {
		sinks := r.Destinations[0].Sinks
		return len(sinks) == 5 && sinks[0].Messages >= 1 && !sinks[1].Healthy() && !sinks[2].Healthy() && !sinks[3].Healthy()
	})
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/", "/config", "/debug/pprof/", "/debug/vars", "/metrics/../config", "/api/v1/x/config"} {
		r, err := asks.Get("http://" + p.Admin() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		hides(t, path, string(text))
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	hides(t, "the command line", string(line))
	for _, args := range [][]string{{"check"}, {"cursor", "show"}, {"schema", "show"}} {
		r := command(t, patience, "", append(args, "-c", writeFile(t, config))...)
		hides(t, strings.Join(args, " "), r.out+r.errs)
	}
	p.Signal(terminate)
	p.Wait(patience)
	hides(t, "the log", p.Log())
	files, err := os.ReadDir(s.meta)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(s.meta + "/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		hides(t, f.Name(), string(text))
	}
	// Refused by the source, too.
	s.user = "nobody"
	r := command(t, patience, "", "run", "-c", s.file(t))
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	hides(t, "the refusal", r.out+r.errs)
	// And where the configuration is none.
	for _, change := range [][2]string{{"password: ", "passwort: "}, {"stop_timeout: 5s", "stop_timeout: [5"}, {"save_interval: 100ms", "save_interval: never"}} {
		r := command(t, patience, "", "check", "-c", writeFile(t, strings.Replace(config, change[0], change[1], 1)))
		if r.code != 2 {
			t.Errorf("%v: exit code %d", change, r.code)
		}
		hides(t, change[1], r.out+r.errs)
	}
}
