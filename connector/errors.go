package connector

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
)

// StopError is an error that needs the operator: reading again would not help.
type StopError = binlog.StopError

func (c *Connector) stop(what, remedy string, err error) *StopError {
	return &StopError{Destination: c.opt.Destination, What: what, Remedy: remedy, Err: err}
}

// classified is a stop of which those who read must know the kind: one of event's errors, which its text does not tell again.
type classified struct {
	*StopError
	class error
}

func (e *classified) Unwrap() []error { return []error{e.StopError, e.class} }

// gone is a stop because the position cannot be gone on from; class says why: event.ErrPurged or event.ErrNoPosition.
func (c *Connector) gone(class error, what, remedy string, err error) error {
	return &classified{c.stop(what, remedy, err), class}
}

const purgedRemedy = "keep its binlogs longer (binlog_expire_logs_seconds); " +
	"the changes in them are lost to the stream: compare the tables, then set a new position with: binlogmq cursor set; or choose with on_lost_position where it goes on by itself"

const largeRemedy = "raise source.max_event, and reckon with eight times as much memory, or move the cursor behind it with: binlogmq cursor set"

// errRegister is in the chain of an error of registering as a replica.
var errRegister = errors.New("registering as a replica")

// accountName is our account as GRANT wants it: as the server has told, else
// with a host to fill in.
func (c *Connector) accountName() string {
	if a := c.account.Load(); a != nil {
		return *a
	}
	return "'" + c.opt.User + "'@'HOST'"
}

// selectGrants are the statements that let us see the definitions of the tables captured, and of no others where the patterns
// name their databases.
func (c *Connector) selectGrants() (all []string) {
	for _, name := range c.opt.Tables.Schemas() {
		all = append(all, "GRANT SELECT ON "+snapshot.Quote(name)+".* TO "+c.accountName())
	}
	if len(all) == 0 {
		return []string{"GRANT SELECT ON *.* TO " + c.accountName()}
	}
	return all
}

// learnAccount asks the server which of its accounts we are.
func (c *Connector) learnAccount(ctx context.Context, s *session) {
	r, err := s.query(ctx, "SELECT CURRENT_USER()")
	if err != nil || r.rows() == 0 {
		return // it is for messages only
	}
	name := r.text(0, 0)
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		name = "'" + name[:i] + "'@'" + name[i+1:] + "'"
		c.account.Store(&name)
	}
}

// Server error numbers that the mysql package does not name or that decide here.
const (
	errMasterFatal   = 1236 // of the dump thread: its text says what
	errSameID        = 4052 // MariaDB: another replica of our server id has come
	errBinlogOff     = 1381
	errNoSuchReplica = 1198
	errInsecure      = 3159 // require_secure_transport is on
)

// judge decides whether an error of the source ends Read (then it becomes a *StopError) or is
// retried for ever (then it is returned as it is). It is the only place that decides so.
func (c *Connector) judge(err error) error {
	var stop *StopError
	if err == nil || errors.As(err, &stop) {
		return err
	}
	var large *binlog.TooLargeError
	if errors.As(err, &large) {
		return c.stop("the log holds more than may be kept in memory", largeRemedy, err)
	}
	code, message := serverCode(err), err.Error()
	var se *binlog.ServerError
	if errors.As(err, &se) {
		code, message = se.Code, se.Message
	}
	grants := "run on the source: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO " + c.accountName() + "; " + strings.Join(c.selectGrants(), "; ")
	if errors.Is(err, errRegister) && code == mysql.ER_ACCESS_DENIED_ERROR {
		// The login was taken; it is the privilege that is missing.
		return c.stop("user "+c.opt.User+" may not read the binlog", grants, err)
	}
	switch code {
	case mysql.ER_ACCESS_DENIED_ERROR, 1698, 1862, 3118: // wrong, no, expired password; account locked
		remedy := "check user, password and host of the account"
		if c.opt.TLS == nil {
			remedy += ", and whether it must encrypt (REQUIRE SSL): source.tls"
		}
		return c.stop("the source refuses the login of user "+c.opt.User, remedy, err)
	case errInsecure:
		return c.stop("the source takes encrypted connections only", "set source.tls, with ca where its certificate is signed by an authority of your own", err)
	case mysql.ER_HOST_NOT_PRIVILEGED:
		return c.stop("the source has no account for user "+c.opt.User+" from this host", "create one, or correct its host part", err)
	case mysql.ER_HOST_IS_BLOCKED:
		return c.stop("the source has blocked this host after too many failed connections", "run on the source: FLUSH HOSTS (TRUNCATE TABLE performance_schema.host_cache)", err)
	case mysql.ER_DBACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR, mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR:
		return c.stop("user "+c.opt.User+" lacks a privilege on the source", grants, err)
	case errBinlogOff:
		return c.stop("the source's binary log is off", "set log_bin in its option file and restart it", err)
	case errMasterFatal:
		switch {
		case evicted(err):
			return err
		case strings.Contains(message, "purged"), strings.Contains(message, "Could not find first log file"), strings.Contains(message, "could not find"):
			return c.gone(event.ErrPurged, "the source has purged binlogs that have not been read yet", purgedRemedy, err)
		case strings.Contains(message, "not in the master's binlog"), strings.Contains(message, "impossible position"), strings.Contains(message, "exceeds"):
			return c.gone(event.ErrNoPosition, "the source does not have the position from which reading goes on: it lost transactions or is another server",
				"point the address to the right server, or compare the tables and set a new position with: binlogmq cursor set", err)
		case strings.Contains(message, "AUTO_POSITION = 1"):
			return c.stop("the source's log goes on with transactions without GTIDs: its gtid_mode was switched",
				"they can be read by file and offset only: set a position where the last transaction with a GTID ends, by FILE:OFFSET, with: binlogmq cursor set", err)
		case strings.Contains(message, "Cannot replicate anonymous transaction"):
			return c.stop("the source does not send transactions without GTIDs that have not been read yet, as its gtid_mode is ON",
				"run on the source: SET GLOBAL gtid_mode=ON_PERMISSIVE, and set it back to ON when they are read; or set a position behind them with: binlogmq cursor set", err)
		case strings.Contains(message, "Cannot replicate GTID-transaction"):
			return c.stop("the source does not send transactions with GTIDs that have not been read yet, as its gtid_mode is OFF",
				"run on the source: SET GLOBAL gtid_mode=OFF_PERMISSIVE, and set it back to OFF when they are read; or set a position behind them with: binlogmq cursor set", err)
		case strings.Contains(message, "Binary log is not open"):
			return c.stop("the source's binary log is off", "set log_bin in its option file and restart it", err)
		}
		if strings.Contains(message, "max_allowed_packet") { // what a place inside an event looks like to the source
			return c.stop("the source cannot send its binlog", "if the place was given by file and offset, name one where a transaction ends (SHOW BINLOG EVENTS); else raise max_allowed_packet on the source", err)
		}
		return c.stop("the source cannot send its binlog", "see the source's error log", err)
	}
	var dial *net.OpError
	var lookup *net.DNSError
	if errors.As(err, &lookup) || errors.As(err, &dial) && dial.Op == "dial" || encrypting(err) {
		return &awayError{err}
	}
	return err
}

// awayError is an error of the network, which is retried for ever.
type awayError struct{ err error }

func (e *awayError) Error() string {
	return "the source cannot be reached: " + e.err.Error() + "; it is tried again: " + awayRemedy(e.err)
}

func (e *awayError) Unwrap() error { return e.err }

// awayRemedy says what to do about a server that cannot be talked to.
func awayRemedy(err error) string {
	if encrypting(err) {
		return "check source.tls (ca, server_name, cert and key) and the server's certificate"
	}
	return "check address, port, firewall and whether the server runs"
}

// encrypting reports whether TLS has failed, by the words of Go's package and of go-mysql.
func encrypting(err error) bool {
	text := err.Error()
	return strings.Contains(text, "tls: ") || strings.Contains(text, "does not support TLS")
}

// evicted reports whether the source cut the stream because another replica
// with our server id or UUID has connected.
func evicted(err error) bool {
	var se *binlog.ServerError
	if !errors.As(err, &se) {
		return false
	}
	return se.Code == errSameID || se.Code == errMasterFatal && strings.Contains(se.Message, "same server_uuid/server_id")
}
