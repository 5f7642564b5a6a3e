//go:build integration

package testenv

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMySQLKinds(t *testing.T) {
	t.Parallel()
	versions := map[string]string{"mysql": "9.", "mariadb": "10.11.", "mariadb11": "11.8.", "mariadb114": "11.4.", "mariadb102": "10.2.", "mysql56": "5.6."}
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := MySQL(t, kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".a (id INT PRIMARY KEY, b VARCHAR(9) NULL)")
			s.Exec("INSERT INTO "+db+".a VALUES (?, ?), (2, NULL)", 1, "x")
			rows := s.Query("SELECT id, b, @@version, @@server_id > 0, @@log_bin FROM " + db + ".a ORDER BY id")
			if len(rows) != 2 || rows[0][1] != "x" || rows[1][1] != "NULL" || !strings.HasPrefix(rows[0][2], versions[kind]) || rows[0][3] != "1" || rows[0][4] != "1" {
				t.Errorf("unexpected rows: %q", rows)
			}
			if s.RowMetadata() {
				if rows := s.Query("SELECT @@binlog_row_metadata"); rows[0][0] != "FULL" {
					t.Errorf("binlog_row_metadata: %q", rows)
				}
			}
			if again := MySQL(t, kind); again.Addr != s.Addr {
				t.Errorf("the shared server moved from %s to %s", s.Addr, again.Addr)
			}
			repl := *s
			repl.User, repl.Password, repl.conn = s.ReplUser, s.ReplPassword, nil
			repl.Query("SELECT * FROM " + db + ".a")
			repl.disconnect()
		})
	}
}

func TestPrivateMySQLSurvivesKill(t *testing.T) {
	t.Parallel()
	s := NewMySQL(t, "mariadb11", "--max-connections=77")
	s.Exec("CREATE DATABASE kept")
	s.Kill()
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		c.Close()
		t.Error("a killed server still listens")
	}
	s.Restart()
	s.Pause()
	s.Resume()
	if rows := s.Query("SHOW DATABASES LIKE 'kept'"); len(rows) != 1 {
		t.Error("the restarted server lost its data")
	}
	if rows := s.Query("SELECT @@max_connections"); rows[0][0] != "77" {
		t.Errorf("the option is lost: %q", rows)
	}
}

func TestKafkaLeaderMoves(t *testing.T) {
	t.Parallel()
	if shared := Kafka(t); len(shared.Topic(2)) == 0 || shared.Leader(shared.Topic(1), 0) != 1 {
		t.Error("the shared broker does not lead its topics")
	}
	k := NewKafka(t, 3)
	topic := k.Topic(1)
	to := k.Leader(topic, 0)%3 + 1
	k.MoveLeader(topic, 0, to)
	if got := k.Leader(topic, 0); got != to {
		t.Errorf("leader is %d, want %d", got, to)
	}
	k.Kill(to)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if got := k.Leader(topic, 0); got != to && got > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no other broker took over from a dead leader")
		}
	}
	k.Restart(to)
}

func TestPulsarRestarts(t *testing.T) {
	t.Parallel()
	if p := Pulsar(t); !strings.HasPrefix(p.URL, "pulsar://") || !strings.HasPrefix(p.AdminURL, "http://") {
		t.Errorf("addresses: %q %q", p.URL, p.AdminURL)
	}
	p := NewPulsar(t, "maxMessageSize=1000000")
	p.Kill()
	p.Restart()
	p.Pause()
	p.Resume()
}

func TestZooKeeperEnsemble(t *testing.T) {
	t.Parallel()
	if z := ZooKeeper(t); len(z.Servers) != 1 {
		t.Errorf("servers: %q", z.Servers)
	}
	z := NewZooKeeper(t, 3)
	z.Kill(2)
	z.Start()
}

// A server that does not start says why, in its own words.
func TestFailureShowsTheServersLastLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broken")
	defer func() { _, _ = run(nil, "mysql.sh", "wipe", dir) }()
	_, err := run(nil, "mysql.sh", "start", "mysql", "0", dir, "--no-such-option=1")
	if err == nil || !strings.Contains(err.Error(), "unknown variable 'no-such-option=1'") {
		t.Errorf("want the server's own words, got: %v", err)
	}
}

// What the shared servers hold open must not be this process's: a test run would never end.
func TestServersKeepNothingOfTheCaller(t *testing.T) {
	home, err := root()
	if err != nil {
		t.Fatal(err)
	}
	Kafka(t)
	out, err := exec.Command(filepath.Join(home, "testenv", "servers.sh"), "status").Output()
	if err != nil || !bytes.Contains(out, []byte("shared/kafka: up")) {
		t.Fatalf("status: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(home, "testenv", "lib.sh")); err != nil {
		t.Error(err)
	}
}
