package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// Kinds lists the database servers that [MySQL] and [NewMySQL] can start, the current ones first.
var Kinds = []string{"mysql", "mariadb", "mariadb11", "mariadb114", "mariadb102", "mysql56"}

// Server is a MySQL or MariaDB server. Its methods end the test at the first error, so they belong to the
// test's own goroutine.
type Server struct {
	Kind         string
	Addr         string // host:port
	User         string // has all privileges
	Password     string
	ReplUser     string // REPLICATION SLAVE, REPLICATION CLIENT, RELOAD and SELECT on everything
	ReplPassword string
	Dir          string // folder of the server (my.cnf, error.log, data/); empty when somebody else runs it

	t    testing.TB
	own  bool
	conn *client.Conn
}

// MySQL returns the shared server of a kind: mysql (9.7), mariadb (10.11), mariadb11 (11.8), mariadb114 (11.4), mariadb102 (10.2)
// or mysql56 (5.6). GTIDs are on, rows are logged with binlog_row_metadata=FULL where the server knows it.
func MySQL(t testing.TB, kind string) *Server {
	t.Helper()
	if at := os.Getenv("BINLOGMQ_TEST_" + strings.ToUpper(kind)); at != "" {
		account, addr, ok := cutLast(at, "@")
		if !ok {
			t.Fatalf("BINLOGMQ_TEST_%s: want user:password@host:port", strings.ToUpper(kind))
		}
		s := newServer(t, kind, addr)
		s.User, s.Password, _ = strings.Cut(account, ":")
		if repl := os.Getenv("BINLOGMQ_TEST_REPL"); repl != "" {
			s.ReplUser, s.ReplPassword, _ = strings.Cut(repl, ":")
		}
		return s
	}
	dsn, dir := shared(t, kind, "mysql.sh", func(dir string) []string { return []string{"start", kind, "0", dir} })
	s := newServer(t, kind, addrOf(dsn))
	s.Dir = dir
	return s
}

// NewMySQL starts a server of a kind for t alone. Options are the server's own, such as "--gtid-mode=OFF",
// and come after those that the scripts set.
func NewMySQL(t testing.TB, kind string, options ...string) *Server {
	t.Helper()
	dir := private(t, kind, "mysql.sh")
	dsn, err := run(nil, "mysql.sh", append([]string{"start", kind, "0", dir}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, kind, addrOf(dsn))
	s.Dir, s.own = dir, true
	return s
}

func newServer(t testing.TB, kind, addr string) *Server {
	s := &Server{Kind: kind, Addr: addr, User: "root", ReplUser: "repl", ReplPassword: "repl", t: t}
	t.Cleanup(s.disconnect)
	return s
}

// addrOf takes the address out of user@tcp(host:port)/.
func addrOf(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "(")
	addr, _, _ := strings.Cut(rest, ")")
	return addr
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// MariaDB tells whether the server is one.
func (s *Server) MariaDB() bool { return strings.HasPrefix(s.Kind, "mariadb") }

// RowMetadata tells whether the server logs column names (binlog_row_metadata).
func (s *Server) RowMetadata() bool { return s.Kind != "mysql56" && s.Kind != "mariadb102" }

// CAFile is the certificate that the server's own one is signed with. Only kind mysql makes
// certificates by itself.
func (s *Server) CAFile() string { return filepath.Join(s.Dir, "data", "ca.pem") }

// Connect opens a connection as the user with all privileges. The caller may close it; the end of the test does.
func (s *Server) Connect(database string) *client.Conn {
	s.t.Helper()
	c, err := client.Connect(s.Addr, s.User, s.Password, database)
	if err != nil {
		s.t.Fatalf("connecting to %s at %s: %v", s.Kind, s.Addr, err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Exec runs one statement as the user with all privileges, on a connection that is kept between calls.
func (s *Server) Exec(statement string, args ...any) *mysql.Result {
	s.t.Helper()
	if s.conn == nil {
		s.conn = s.Connect("")
	}
	r, err := s.conn.Execute(statement, args...)
	if err != nil {
		s.t.Fatalf("%s: %.200s: %v", s.Kind, statement, err)
	}
	return r
}

// Query runs one statement and returns its rows as text, NULL as "NULL".
func (s *Server) Query(statement string, args ...any) [][]string {
	s.t.Helper()
	r := s.Exec(statement, args...)
	defer r.Close()
	if r.Resultset == nil {
		return nil
	}
	rows := make([][]string, r.RowNumber())
	for i := range rows {
		rows[i] = make([]string, r.ColumnNumber())
		for j := range rows[i] {
			null, err := r.IsNull(i, j)
			if err != nil {
				s.t.Fatal(err)
			}
			rows[i][j] = "NULL"
			if !null {
				text, err := r.GetString(i, j)
				if err != nil {
					s.t.Fatal(err)
				}
				rows[i][j] = strings.Clone(text) // it lies in memory that Close gives back
			}
		}
	}
	return rows
}

// LogEnd returns where the server's binlog ends.
func (s *Server) LogEnd() (file string, offset int64) {
	s.t.Helper()
	show := "SHOW MASTER STATUS"
	if s.Kind == "mysql" {
		show = "SHOW BINARY LOG STATUS"
	}
	row := s.Query(show)[0]
	offset, err := strconv.ParseInt(row[1], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return row[0], offset
}

// Database creates a database of t's own and returns its name; it is dropped when the test ends.
func (s *Server) Database() string {
	s.t.Helper()
	name := Name(s.t)
	s.Exec("CREATE DATABASE " + name)
	if !s.own {
		s.t.Cleanup(func() {
			if c, err := client.Connect(s.Addr, s.User, s.Password, ""); err == nil {
				_, _ = c.Execute("DROP DATABASE IF EXISTS " + name)
				_ = c.Close()
			}
		})
	}
	return name
}

// KillDumps ends the binlog dump threads of ReplUser, as a cut link would, and returns how many there were.
func (s *Server) KillDumps() (killed int) {
	s.t.Helper()
	for _, row := range s.Query("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND user='" + s.ReplUser + "'") {
		if _, err := s.conn.Execute("KILL " + row[0]); err == nil { // it may have gone
			killed++
		}
	}
	return killed
}

func (s *Server) disconnect() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// Kill ends a server of t's own with SIGKILL; Restart starts it again with its data.
func (s *Server) Kill() { s.t.Helper(); s.control("kill") }

// Stop shuts a server of t's own down in order.
func (s *Server) Stop() { s.t.Helper(); s.control("stop") }

// Restart stops a server of t's own if it runs and starts it with its data; without options with those that it had.
func (s *Server) Restart(options ...string) { s.t.Helper(); s.control("restart", options...) }

// Pause stops the server's process where it is (SIGSTOP): connections stay open and nothing answers.
func (s *Server) Pause() { s.t.Helper(); s.control("pause") }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.t.Helper(); s.control("resume") }

func (s *Server) control(verb string, args ...string) {
	s.t.Helper()
	if verb != "resume" {
		s.disconnect()
	}
	control(s.t, s.own, nil, "mysql.sh", verb, s.Dir, args...)
}
