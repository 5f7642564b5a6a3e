package connector

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// readGuard is the reading side of a dump connection. The deadline runs while we
// wait for bytes and at no other time: back-pressure must not look like a lost link.
type readGuard struct {
	nc      net.Conn
	timeout time.Duration
	ctx     context.Context
	n       *counter
	idle    func() error // called before waiting, and whenever wake is called meanwhile; nil: never
}

func (g *readGuard) Read(p []byte) (int, error) {
	until := time.Now().Add(g.timeout)
	for {
		_ = g.nc.SetReadDeadline(until)
		if err := g.ctx.Err(); err != nil { // after the deadline is set, as its end sets another one
			return 0, err
		}
		if g.idle != nil { // so does wake
			if err := g.idle(); err != nil {
				return 0, err
			}
		}
		n, err := g.nc.Read(p)
		g.n.add(n)
		if !errors.Is(err, os.ErrDeadlineExceeded) || g.ctx.Err() != nil {
			return n, err
		}
		if n == 0 && g.idle != nil && time.Now().Before(until) {
			continue // woken
		}
		return n, fmt.Errorf("%s has sent nothing for %v, not even a heartbeat: check the network and whether the server works: %w", g.nc.RemoteAddr(), g.timeout, err)
	}
}

// wake ends the wait for bytes, without any harm. It may be called from any goroutine.
func (g *readGuard) wake() { _ = g.nc.SetReadDeadline(time.Unix(1, 0)) }

// dump turns the session into a dump connection that begins behind pos, and
// returns its stream. By file and offset it begins at an offset below 4 GiB.
func (c *Connector) dump(ctx context.Context, s *session, sv *server, id identity, pos event.Position) error {
	ns := c.opt.Heartbeat.Nanoseconds()
	statements := []string{
		// The server verifies nothing: ask for checksums and verify them here.
		"SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32'",
		fmt.Sprintf("SET @source_heartbeat_period=%d, @master_heartbeat_period=%d", ns, ns),
		fmt.Sprintf("SET @replica_uuid='%s', @slave_uuid='%s'", id.uuid, id.uuid),
		// A full ring stops our reading for longer than the usual minute.
		"SET SESSION net_write_timeout=86400, net_read_timeout=86400",
	}
	if sv.mariaDB {
		statements = append(statements, "SET @mariadb_slave_capability=4")
		if !pos.GTIDs.IsEmpty() {
			statements = append(statements,
				"SET @slave_connect_state='"+pos.GTIDs.ConnectState()+"'",
				"SET @slave_gtid_strict_mode=1", "SET @slave_gtid_ignore_duplicates=0")
		}
	}
	for _, q := range statements {
		if _, err := s.query(ctx, q); err != nil {
			return err
		}
	}
	nc := s.conn.Conn.Conn
	_ = nc.SetDeadline(time.Now().Add(c.opt.DialTimeout))
	defer func() { _ = nc.SetWriteDeadline(time.Time{}) }()
	if err := s.register(id); err != nil {
		return fmt.Errorf("%s: %w: %w", s.addr, errRegister, err)
	}
	s.conn.ResetSequence()
	var cmd []byte
	if sv.mariaDB || pos.GTIDs.IsEmpty() {
		file, offset := pos.File, pos.Offset
		if sv.mariaDB && !pos.GTIDs.IsEmpty() {
			file, offset = "", 4 // @slave_connect_state tells
		}
		if offset > math.MaxUint32 {
			return fmt.Errorf("offset %d does not fit into the dump command", offset)
		}
		cmd = append(make([]byte, 4, 64), mysql.COM_BINLOG_DUMP)
		cmd = binary.LittleEndian.AppendUint32(cmd, uint32(offset))
		cmd = binary.LittleEndian.AppendUint16(cmd, flagAnnotateOrHeartbeatV2)
		cmd = binary.LittleEndian.AppendUint32(cmd, id.serverID)
		cmd = append(cmd, file...)
	} else {
		set, _ := pos.GTIDs.AppendBinary(nil)
		cmd = append(make([]byte, 4, 64+len(set)), mysql.COM_BINLOG_DUMP_GTID)
		cmd = binary.LittleEndian.AppendUint16(cmd, flagAnnotateOrHeartbeatV2)
		cmd = binary.LittleEndian.AppendUint32(cmd, id.serverID)
		cmd = binary.LittleEndian.AppendUint32(cmd, 0) // no file name
		cmd = binary.LittleEndian.AppendUint64(cmd, 4)
		cmd = binary.LittleEndian.AppendUint32(cmd, uint32(len(set)))
		cmd = append(cmd, set...)
	}
	if err := s.conn.WritePacket(cmd); err != nil {
		return fmt.Errorf("%s: asking for the binlog: %w", s.addr, err)
	}
	return nil
}

// flagAnnotateOrHeartbeatV2 is, of the dump command's flags, MariaDB's
// BINLOG_SEND_ANNOTATE_ROWS_EVENT (without those events offsets could not be counted while
// LogPos is 0) and MySQL's USE_HEARTBEAT_EVENT_V2 (its offsets have 64 bits).
const flagAnnotateOrHeartbeatV2 = 0x02

// register announces us as a replica: SHOW REPLICAS lists us then. The user
// and the password that the command has room for stay empty: every user with REPLICATION SLAVE could read them.
func (s *session) register(id identity) error {
	cmd := append(make([]byte, 4, 128), mysql.COM_REGISTER_SLAVE)
	cmd = binary.LittleEndian.AppendUint32(cmd, id.serverID)
	cmd = append(cmd, byte(len(id.host)))
	cmd = append(cmd, id.host...)
	cmd = append(cmd, 0, 0) // user, password
	cmd = binary.LittleEndian.AppendUint16(cmd, 0)
	cmd = binary.LittleEndian.AppendUint32(cmd, 0)
	cmd = binary.LittleEndian.AppendUint32(cmd, 0)
	s.conn.ResetSequence()
	if err := s.conn.WritePacket(cmd); err != nil {
		return err
	}
	_, err := s.conn.ReadOKPacket()
	return err
}

// stream returns the event stream of a session on which dump has been called.
func (c *Connector) stream(ctx context.Context, s *session, n *counter) *binlog.Stream {
	return c.framed(c.guard(ctx, s, n))
}

func (c *Connector) guard(ctx context.Context, s *session, n *counter) *readGuard {
	return &readGuard{nc: s.conn.Conn.Conn, timeout: c.opt.ReadTimeout, ctx: ctx, n: n}
}

func (c *Connector) framed(g *readGuard) *binlog.Stream {
	st := binlog.NewStream(g)
	st.Limit(c.opt.MaxEvent)
	st.OnLarge(c.onLarge)
	return st
}
