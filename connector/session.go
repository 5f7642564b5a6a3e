package connector

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
)

// session is one connection to the source, for statements. Not for concurrent use.
type session struct {
	conn    *client.Conn
	addr    string
	timeout time.Duration // of one statement
}

// dial connects to addr and logs in.
func (c *Connector) dial(ctx context.Context, addr string) (*session, error) {
	return c.dialThrough(ctx, addr, func(nc net.Conn) net.Conn { return nc })
}

// dialThrough is dial, with what wrap makes of the connection.
func (c *Connector) dialThrough(ctx context.Context, addr string, wrap func(net.Conn) net.Conn) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.DialTimeout)
	defer cancel()
	var raw net.Conn
	stop := func() bool { return true }
	conn, err := client.ConnectWithDialer(ctx, "", addr, c.opt.User, c.opt.Password, "", func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		raw = nc
		// The context's end, be it its deadline, breaks the login off.
		stop = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
		return wrap(nc), nil
	}, func(cc *client.Conn) error {
		if c.opt.TLS != nil {
			t := c.opt.TLS.Clone()
			if host, _, err := net.SplitHostPort(addr); err == nil && t.ServerName == "" {
				t.ServerName = host
			}
			cc.SetTLSConfig(t)
		}
		cc.SetAttributes(map[string]string{"program_name": "binlogmq"})
		return nil
	})
	stop()
	if err != nil {
		if raw != nil {
			_ = raw.Close()
		}
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	_ = raw.SetDeadline(time.Time{})
	s := &session{conn: conn, addr: addr, timeout: 30 * time.Second}
	// The collation that the login asks for is not one that every server knows; and a server may have for all sessions that results end early (I3), or that
	// what was read first is shown for ever.
	for _, q := range []string{"SET NAMES utf8mb4", "SET SESSION sql_mode='', time_zone='+00:00', autocommit=1, completion_type=0, sql_select_limit=18446744073709551615, sql_big_selects=1"} {
		if _, err := s.query(ctx, q); err != nil {
			s.close()
			return nil, err
		}
	}
	// MySQL may be told to hide the primary keys that it makes by itself from information_schema, though the log has them. Servers that make none answer
	// that they are asked nothing.
	if _, err := s.query(ctx, "/*!80030 SET SESSION show_gipk_in_create_table_and_information_schema=ON */"); err != nil && serverCode(err) == 0 {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() {
	if s != nil && s.conn != nil {
		_ = s.conn.Close()
	}
}

// result is the rows of a statement.
type result struct{ r *mysql.Result }

func (r result) rows() int {
	if r.r == nil || r.r.Resultset == nil {
		return 0
	}
	return r.r.RowNumber()
}

// text returns a field, "" for NULL.
func (r result) text(row, col int) string {
	if col >= r.r.ColumnNumber() {
		return ""
	}
	v, _ := r.r.GetString(row, col)
	return v
}

// named returns the field of the first of these columns that exists.
func (r result) named(row int, names ...string) string {
	for _, n := range names {
		for f, i := range r.r.FieldNames {
			if strings.EqualFold(f, n) {
				return r.text(row, i)
			}
		}
	}
	return ""
}

func (r result) number(row, col int) uint64 {
	n, _ := strconv.ParseUint(r.text(row, col), 10, 64)
	return n
}

// query runs a statement. A cancelled context or a slow server makes the session unusable.
func (s *session) query(ctx context.Context, sql string) (result, error) {
	var r *mysql.Result
	err := s.within(ctx, sql, func() (err error) {
		r, err = s.conn.Execute(sql)
		return err
	})
	return result{r}, err
}

// each runs a statement and hands on the first field of each row, none of which it keeps, until more is false. The rest of the result is read all the same.
func (s *session) each(ctx context.Context, sql string, more func(text string) bool) error {
	enough := false
	return s.within(ctx, sql, func() error {
		return s.conn.ExecuteSelectStreaming(sql, &mysql.Result{}, func(row []mysql.FieldValue) error {
			enough = enough || !more(string(row[0].AsString()))
			return nil
		}, nil)
	})
}

// within calls f, which runs a statement, in the time that a statement has.
func (s *session) within(ctx context.Context, sql string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	nc := s.conn.Conn.Conn
	_ = nc.SetDeadline(time.Now().Add(s.timeout))
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	_ = nc.SetDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s.addr, firstWords(sql), err)
	}
	return nil
}

// firstWords shortens a statement for an error message.
func firstWords(sql string) string {
	if len(sql) > 60 {
		return sql[:60] + "..."
	}
	return sql
}

// literal returns text as an SQL literal that no sql_mode reads otherwise.
func literal(text string) string {
	if text == "" {
		return "''"
	}
	return "_utf8mb4 X'" + hex.EncodeToString([]byte(text)) + "'"
}

// tableName quotes the name of a table.
func tableName(n ddl.Name) string { return snapshot.Quote(n.Schema) + "." + snapshot.Quote(n.Table) }

// serverCode returns the server's error number, 0 if err is none of a server.
func serverCode(err error) uint16 {
	var e *mysql.MyError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// server is what must be known of a source before reading it.
type server struct {
	vars    map[string]string
	mariaDB bool
	version string
	uuid    string // MariaDB: its server id
	id      uint32
	gtid    bool // positions by GTID
}

var wantedVariables = []string{
	"version", "server_id", "server_uuid", "gtid_mode", "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_checksum",
	"binlog_expire_logs_seconds", "expire_logs_days", "sync_binlog", "innodb_flush_log_at_trx_commit", "gtid_strict_mode",
	"log_slave_updates", "log_replica_updates", "max_allowed_packet", "lower_case_table_names", "default_storage_engine", "innodb_page_size", "hostname", "port",
}

func (s *session) server(ctx context.Context) (*server, error) {
	r, err := s.query(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(wantedVariables, "','")+"')")
	if err != nil {
		return nil, err
	}
	sv := &server{vars: make(map[string]string, r.rows())}
	for i := range r.rows() {
		sv.vars[strings.ToLower(r.text(i, 0))] = r.text(i, 1)
	}
	sv.version = sv.vars["version"]
	sv.mariaDB = strings.Contains(strings.ToLower(sv.version), "mariadb")
	id, _ := strconv.ParseUint(sv.vars["server_id"], 10, 32)
	sv.id = uint32(id)
	if sv.mariaDB {
		sv.uuid, sv.gtid = sv.vars["server_id"], true
	} else {
		sv.uuid, sv.gtid = sv.vars["server_uuid"], sv.vars["gtid_mode"] == "ON"
	}
	if sv.version == "" || sv.uuid == "" && !sv.mariaDB {
		return nil, fmt.Errorf("%s: the server shows neither version nor UUID", s.addr)
	}
	return sv, nil
}

// is tells whether both are one server, which behind one address need not be so. On MariaDB, which has no UUID, several may have one id.
func (sv *server) is(other *server) bool {
	return sv.mariaDB == other.mariaDB && sv.uuid == other.uuid && sv.id == other.id && sv.vars["hostname"] == other.vars["hostname"] && sv.vars["port"] == other.vars["port"]
}

// gtidVariable reads a global variable that holds a GTID set.
func (s *session) gtidVariable(ctx context.Context, name string) (event.GTIDSet, error) {
	r, err := s.query(ctx, "SELECT @@GLOBAL."+name)
	if err != nil {
		return event.GTIDSet{}, err
	}
	if r.rows() == 0 {
		return event.GTIDSet{}, nil
	}
	return event.ParseGTIDSet(r.text(0, 0))
}

// binlogStatus returns the end of the source's binlog and, on MySQL, the transactions executed there.
func (s *session) binlogStatus(ctx context.Context, sv *server) (file string, offset uint64, executed string, err error) {
	statements := []string{"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"} // MySQL from 8.2, all others
	if sv.mariaDB {
		statements[0], statements[1] = statements[1], "SHOW BINLOG STATUS"
	}
	var r result
	for _, q := range statements {
		if r, err = s.query(ctx, q); err == nil || serverCode(err) != mysql.ER_PARSE_ERROR {
			break
		}
	}
	if err != nil {
		return "", 0, "", err
	}
	if r.rows() == 0 {
		return "", 0, "", nil
	}
	return r.text(0, 0), r.number(0, 1), r.named(0, "Executed_Gtid_Set"), nil
}

// logFile is one file of the source's binlog.
type logFile struct {
	name string
	size uint64
}

func (s *session) binlogs(ctx context.Context) ([]logFile, error) {
	r, err := s.query(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, err
	}
	var out []logFile
	for i := range r.rows() {
		out = append(out, logFile{r.text(i, 0), r.number(i, 1)})
	}
	return out, nil
}

// charsets reads which character set each collation id belongs to.
func (s *session) charsets(ctx context.Context, sv *server) (map[uint32]string, error) {
	q := "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
	if sv.mariaDB {
		// COLLATIONS.ID is NULL for the collations that belong to several sets.
		q = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
	}
	r, err := s.query(ctx, q)
	if err != nil && sv.mariaDB { // before 10.10 the table has no ID
		r, err = s.query(ctx, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
	}
	if err != nil {
		return nil, err
	}
	m := make(map[uint32]string, r.rows())
	for i := range r.rows() {
		if id := r.number(i, 0); id != 0 {
			m[uint32(id)] = r.text(i, 1)
		}
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s: information_schema lists no collations", s.addr)
	}
	return m, nil
}
