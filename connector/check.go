package connector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// Severity tells how much a finding matters.
type Severity uint8

// The severities.
const (
	OK      Severity = iota // as it should be
	Warning                 // works, with a risk that What names
	Error                   // reading does not work
)

// String returns "ok", "warning" or "error".
func (s Severity) String() string { return [...]string{"ok", "warning", "error"}[s] }

// Finding is one thing that [Connector.Check] looked at.
type Finding struct {
	Severity Severity
	Address  string // of the source concerned
	What     string // what was found
	Remedy   string // what mends it, lines that end with ";" being statements to run; "" when nothing is to do
}

// Check looks at every address and reports all that it finds, good and bad, in
// one go. It changes nothing.
func (c *Connector) Check(ctx context.Context) []Finding {
	slot := c.slots.take()
	defer c.slots.give(slot)
	var out []Finding
	for _, addr := range c.opt.Addresses {
		k := &checker{c: c, addr: addr, id: c.identity(slot)}
		k.run(ctx)
		out = append(out, k.found...)
	}
	return out
}

// checkSlot is added to the slot of the identity under which check registers: the source lists one replica of each server id, and the entry of
// a running program, or of who has its id, must stay.
const checkSlot = 1 << 18

type checker struct {
	c     *Connector
	addr  string
	id    identity
	s     *session
	sv    *server
	found []Finding
}

func (k *checker) add(s Severity, remedy, what string, args ...any) {
	k.found = append(k.found, Finding{s, k.addr, fmt.Sprintf(what, args...), asLines(remedy)})
}

// asLines puts the statements of a remedy on lines of their own, ready to be run.
func asLines(remedy string) string {
	text := strings.TrimPrefix(remedy, "run on the source: ")
	if !strings.HasPrefix(text, "SET ") && !strings.HasPrefix(text, "GRANT ") {
		return remedy
	}
	statement, file, more := strings.Cut(text, "; and put ")
	if statement = strings.TrimSuffix(statement, ";") + ";"; more {
		statement += "\nand put " + file
	}
	return strings.ReplaceAll(statement, "; GRANT ", ";\nGRANT ")
}

// failed reports an error as judged.
func (k *checker) failed(err error) {
	var stop *StopError
	if errors.As(k.c.judge(err), &stop) {
		what := stop.What
		if stop.Err != nil {
			what += ": " + stop.Err.Error()
		}
		k.add(Error, stop.Remedy, "%s", what)
		return
	}
	k.add(Error, awayRemedy(err), "%v", err) // unlike judge's: nothing is tried again
}

func (k *checker) run(ctx context.Context) {
	s, err := k.c.dial(ctx, k.addr)
	if err != nil {
		k.failed(err)
		return
	}
	defer s.close()
	k.s = s
	if k.sv, err = s.server(ctx); err != nil {
		k.failed(err)
		return
	}
	k.add(OK, "", "connected to version %s as %s", k.sv.version, k.c.opt.User)
	k.logging()
	k.metadata()
	k.sizes()
	k.durability()
	k.gtids()
	k.privileges(ctx)
	k.tables(ctx)
	if _, err := k.c.checkIdentity(ctx, s, k.sv, k.id); err != nil && serverCode(err) == 0 {
		k.failed(err)
	}
}

func (k *checker) logging() {
	v := k.sv.vars
	if v["log_bin"] == "OFF" {
		k.add(Error, "put log_bin=binlog and a unique server_id into the server's option file and restart it", "the binary log is off")
		return
	}
	k.add(OK, "", "the binary log is on")
	if f := v["binlog_format"]; f != "" && f != "ROW" {
		k.add(Error, setGlobal(k.sv, "binlog_format", "ROW"), "binlog_format is %s: statements do not tell which rows they changed", f)
	}
	if v["server_id"] == "0" {
		k.add(Error, setGlobal(k.sv, "server_id", "1"), "server_id is 0: the server accepts no replica")
	}
	if im := v["binlog_row_image"]; im != "" && im != "FULL" {
		k.add(Warning, setGlobal(k.sv, "binlog_row_image", "FULL"), "binlog_row_image is %s: messages lack the columns that the log lacks", im)
	}
	if v["binlog_checksum"] == "NONE" {
		k.add(Warning, setGlobal(k.sv, "binlog_checksum", "CRC32"), "binlog_checksum is NONE: damaged bytes cannot be told from data")
	}
}

func (k *checker) metadata() {
	remedy := schema.FullMetadata(k.sv.mariaDB, k.sv.version)
	m := k.sv.vars["binlog_row_metadata"]
	switch {
	case m == "FULL":
		k.add(OK, "", "binlog_row_metadata is FULL: the log carries column names")
	case k.c.opt.SchemaFrom == schema.FromHistory:
		k.add(Warning, remedy, "binlog_row_metadata is %q: the log carries no column names; they come from the schema history, which stops where it cannot prove them", m)
	default:
		k.add(Error, remedy, "binlog_row_metadata is %q: the log carries no column names", m)
	}
}

// sizes compares the largest row that clients can write with the largest one that is accepted. (I9)
func (k *checker) sizes() {
	packet, err := strconv.ParseInt(k.sv.vars["max_allowed_packet"], 10, 64)
	if limit := int64(k.c.opt.MaxEvent); err == nil && limit > 0 && packet > limit {
		k.add(Warning, fmt.Sprintf("raise source.max_event to %dMiB, twice that for updates, and reckon with eight times as much memory; or lower max_allowed_packet on the source", (packet+1<<20-1)>>20),
			"max_allowed_packet is %d MiB: a row above %d MiB, the largest accepted, stops the destination", packet>>20, limit>>20)
	}
}

func (k *checker) durability() {
	v := k.sv.vars
	days, sec := v["expire_logs_days"], v["binlog_expire_logs_seconds"]
	keep := 0.0
	if n, err := strconv.ParseFloat(sec, 64); err == nil && n > 0 {
		keep = n / 86400
	} else if n, err := strconv.ParseFloat(days, 64); err == nil {
		keep = n
	}
	const week = 7
	remedy := setGlobal(k.sv, "binlog_expire_logs_seconds", "604800")
	if sec == "" {
		remedy = setGlobal(k.sv, "expire_logs_days", "7")
	}
	switch {
	case keep == 0:
		k.add(OK, "", "binlogs are kept until somebody purges them")
	case keep < week:
		k.add(Warning, remedy, "binlogs are purged after %.1f days: a longer outage loses changes", keep)
	default:
		k.add(OK, "", "binlogs are kept for %.0f days", keep)
	}
	if v["sync_binlog"] != "1" {
		k.add(Warning, setGlobal(k.sv, "sync_binlog", "1"), "sync_binlog is %s: after a crash of its machine the server may lack transactions that have been published", v["sync_binlog"])
	}
	if f := v["innodb_flush_log_at_trx_commit"]; f != "" && f != "1" {
		k.add(Warning, setGlobal(k.sv, "innodb_flush_log_at_trx_commit", "1"), "innodb_flush_log_at_trx_commit is %s: after a crash of its machine the server may lack transactions that have been published", f)
	}
}

func (k *checker) gtids() {
	if k.sv.mariaDB {
		return
	}
	if m := k.sv.vars["gtid_mode"]; m != "ON" {
		k.add(Warning, switchGTIDsOn(k.sv.version, m),
			"gtid_mode is %s: positions are file and offset, which mean nothing on another server after a failover", m)
		return
	}
	k.add(OK, "", "GTIDs are on")
}

func (k *checker) privileges(ctx context.Context) {
	k.c.learnAccount(ctx, k.s)
	grant := func(what string) string { return "GRANT " + what + " ON *.* TO " + k.c.accountName() + ";" }
	client := "REPLICATION CLIENT"
	if k.sv.mariaDB {
		client = "BINLOG MONITOR"
	}
	_, _, _, err := k.s.binlogStatus(ctx, k.sv)
	if err == nil {
		_, err = k.s.binlogs(ctx)
	}
	switch {
	case denied(err):
		k.add(Error, grant(client), "user %s may not ask for the binlog's position", k.c.opt.User)
	case err != nil && serverCode(err) != errBinlogOff:
		k.failed(err)
	}
	// The server itself tells best: register as a replica, on a connection that ends with the check.
	s, err := k.c.dial(ctx, k.addr)
	if err == nil {
		err = s.register(k.c.identity(checkSlot + k.id.slot))
		s.close()
	}
	switch {
	case denied(err):
		k.add(Error, grant("REPLICATION SLAVE"), "user %s may not read the binlog", k.c.opt.User)
	case err != nil:
		k.failed(err)
	default:
		k.add(OK, "", "user %s may read the binlog", k.c.opt.User)
	}
	r, err := k.s.query(ctx, "SHOW GRANTS")
	if err != nil {
		return
	}
	all := ""
	for i := range r.rows() {
		all += r.text(i, 0) + "\n"
	}
	if !strings.Contains(all, "SELECT") && !strings.Contains(all, "ALL PRIVILEGES") {
		sev, why := Warning, "types that the log does not tell (tinyint(1); on MariaDB UUID, INET and JSON) are published as their storage types"
		if k.c.opt.SchemaFrom == schema.FromHistory && k.sv.vars["binlog_row_metadata"] != "FULL" {
			sev, why = Error, "column names cannot be read"
		}
		k.add(sev, strings.Join(k.c.selectGrants(), ";\n")+";", "user %s may not see the tables in information_schema: %s", k.c.opt.User, why)
	}
}

// tables looks for patterns that are about no table. An account that sees none of anybody's cannot tell.
func (k *checker) tables(ctx context.Context) {
	s, err := k.c.dial(ctx, k.addr) // as a session that has taken too long cannot be used any more
	if err != nil {
		return
	}
	defer s.close()
	s.timeout = readTimeout
	all, err := s.tableNames(ctx)
	if err != nil {
		return
	}
	for schema := range all {
		if tablefilter.IsSystem(schema) {
			continue
		}
		for _, p := range k.c.tables(k.sv).Unmet(all) {
			k.add(Warning, "correct it, unless such tables are still to come, or user "+k.c.opt.User+" may not see them: * stands for any characters and ? for one, and nothing else has a meaning",
				"tables: %s is about no table that is there", p)
		}
		return
	}
}

// switchGTIDsOn returns the statements that lead a server of MySQL's from a gtid_mode to ON, which it takes one step at a time.
func switchGTIDsOn(version, mode string) string {
	set, keep := "SET PERSIST", ""
	switch v := ddl.ParseVersion(version); {
	case v < 50706: // nothing of it can be set while it runs
		return "put gtid_mode=ON, enforce_gtid_consistency=ON and log_slave_updates under [mysqld] in its option file, and restart it"
	case v < 80000:
		set, keep = "SET GLOBAL", "\nand put gtid_mode=ON and enforce_gtid_consistency=ON under [mysqld] in its option file"
	}
	steps := set + " enforce_gtid_consistency=ON;"
	for _, m := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"} {
		if mode == "ON_PERMISSIVE" && m == "OFF_PERMISSIVE" || mode == m {
			continue
		}
		steps += "\n" + set + " gtid_mode=" + m + ";"
	}
	return steps + keep
}

func denied(err error) bool {
	switch serverCode(err) {
	case mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_DBACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR:
		return true
	}
	return false
}
