package binlog

import (
	"bytes"
	"math/bits"
	"strconv"
	"strings"

	"github.com/binlogmq/binlogmq/event"
)

// FormatDescription is the body of a FORMAT_DESCRIPTION event.
type FormatDescription struct {
	ServerVersion string
	Created       uint32 // time of the server's start if this file is its first, else 0

	checksum    byte
	hasChecksum bool
	postHeader  []byte
}

// ParseFormatDescription parses the body, which must still have its checksum.
func ParseFormatDescription(body []byte) (*FormatDescription, error) {
	c := cursor{b: body}
	version := c.u16()
	name := c.take(50)
	f := &FormatDescription{Created: c.u32()}
	headerLen := c.u8()
	if c.bad {
		return nil, short("format description", len(body))
	}
	if version != 4 || headerLen != HeaderSize {
		return nil, malformed("format description: binlog version %d with headers of %d bytes; only version 4 of MySQL 5.0 and later is read", version, headerLen)
	}
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	f.ServerVersion = string(name)
	rest := c.b
	if f.hasChecksum = knowsChecksum(f.ServerVersion); f.hasChecksum {
		if len(rest) < 5 {
			return nil, short("format description", len(body))
		}
		f.checksum = rest[len(rest)-5]
		rest = rest[:len(rest)-5]
		if f.checksum > checksumCRC32 {
			return nil, malformed("format description: checksum algorithm %d", f.checksum)
		}
	}
	f.postHeader = rest
	for t, want := range map[EventType]byte{TypeTableMap: 8, TypeWriteRowsV1: 8, TypeUpdateRowsV1: 8, TypeDeleteRowsV1: 8, TypeWriteRows: 10, TypeQuery: 13} {
		if int(t) <= len(rest) && rest[t-1] != want && rest[t-1] != 0 { // 0: the server does not write it
			return nil, malformed("format description: %v events have a post-header of %d bytes instead of %d", t, rest[t-1], want)
		}
	}
	return f, nil
}

// knowsChecksum reports whether a server of this version writes the checksum
// algorithm: MySQL from 5.6.1, MariaDB from 5.3.
func knowsChecksum(version string) bool {
	var v [3]int
	rest := version
	for i := range v {
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		v[i], _ = strconv.Atoi(rest[:n])
		if rest = rest[n:]; !strings.HasPrefix(rest, ".") {
			break
		}
		rest = rest[1:]
	}
	if strings.Contains(version, "MariaDB") && v[0] == 5 && v[1] >= 3 {
		return true
	}
	return v[0] > 5 || v[0] == 5 && (v[1] > 6 || v[1] == 6 && v[2] >= 1)
}

// ParseRotate parses the body of a ROTATE event: the next file and the offset
// of its next event.
func ParseRotate(body []byte) (file string, offset uint64, err error) {
	c := cursor{b: body}
	offset = c.u64()
	if c.bad || len(c.b) == 0 || len(c.b) > 512 {
		return "", 0, short("rotate event", len(body))
	}
	// The name ends in its number: checksum bytes taken for a part of it would show.
	for _, x := range c.b {
		if x < 0x20 || x == 0x7f {
			return "", 0, malformed("rotate event: file name %q", c.b)
		}
	}
	i := bytes.LastIndexByte(c.b, '.')
	if i < 0 || i == len(c.b)-1 || len(bytes.Trim(c.b[i+1:], "0123456789")) > 0 {
		return "", 0, malformed("rotate event: file name %q does not end in a number", c.b)
	}
	if offset < 4 {
		return "", 0, malformed("rotate event: offset %d", offset)
	}
	return string(c.b), offset, nil
}

// GTIDEvent is a GTID, ANONYMOUS_GTID or GTID_TAGGED event of MySQL.
type GTIDEvent struct {
	GTID     event.GTID // zero when anonymous
	Commit   int64      // time of the commit on this server, microseconds since 1970 UTC; 0 when the log does not say
	Original int64      // the same on the server that committed it first
}

// ParseGTID parses the body of a GTID or ANONYMOUS_GTID event (types 33, 34).
func ParseGTID(t EventType, body []byte) (GTIDEvent, error) {
	c := cursor{b: body}
	var e GTIDEvent
	c.u8() // flags
	sid := c.take(16)
	gno := c.u64()
	if c.bad {
		return e, short("GTID event", len(body))
	}
	if t == TypeGTID {
		e.GTID = event.GTID{SID: [16]byte(sid), Seq: gno}
		if e.GTID.SID == [16]byte{} || gno == 0 || gno > 1<<63-2 {
			return e, malformed("GTID event: transaction %d of server %x", gno, sid)
		}
	}
	// MySQL 5.7 adds the logical clock, 8.0 commit times and more.
	if c.u8() == 2 {
		c.take(16)
		if len(c.b) >= 7 {
			e.Commit = int64(leN(c.take(7)))
			e.Original = e.Commit
			if e.Commit&(1<<55) != 0 {
				e.Commit &^= 1 << 55
				e.Original = int64(leN(c.take(7)))
				if c.bad {
					return e, short("GTID event", len(body))
				}
			}
		}
	}
	return e, nil
}

// ParseGTIDTagged parses the body of a GTID_TAGGED event (type 42), which MySQL 8.3 and later
// writes for transactions with a tag. Its format is mysql::serialization.
func ParseGTIDTagged(body []byte) (GTIDEvent, error) {
	var e GTIDEvent
	c := serial{cursor{b: body}}
	c.number() // version
	c.number() // size of the whole
	last := c.number()
	var sid [16]byte
	tag := ""
	var gno int64
	original := false
	for len(c.b) > 0 && !c.bad {
		switch id := c.number(); id {
		case 0: // flags
			c.fixed(make([]byte, 1))
		case 1:
			c.fixed(sid[:])
		case 2:
			gno = c.signed()
		case 3:
			tag = string(c.take(int(min(c.number(), 1<<10))))
		case 4, 5: // logical clock
			c.signed()
		case 6:
			e.Commit = int64(c.number())
		case 7:
			e.Original, original = int64(c.number()), true
		case 8, 9, 10, 11: // length, server versions, group commit ticket
			c.number()
		default:
			if id <= last {
				return e, malformed("tagged GTID event: unknown field %d", id)
			}
			c.b = nil // optional, from a later version, and so are all behind it
		}
	}
	if c.bad {
		return e, short("tagged GTID event", len(body))
	}
	if !original {
		e.Original = e.Commit
	}
	e.GTID = event.GTID{SID: sid, Tag: tag, Seq: uint64(gno)}
	// The set's own rules for tags hold.
	if g, err := event.ParseGTID(e.GTID.String()); err != nil || g != e.GTID || sid == [16]byte{} {
		return e, malformed("tagged GTID event: %q", e.GTID.String())
	}
	return e, nil
}

// serial reads mysql::serialization's primitives.
type serial struct{ cursor }

// number reads an integer of 1 to 9 bytes: as many low bits of the first byte
// are set as bytes follow it.
func (c *serial) number() uint64 {
	if len(c.b) == 0 {
		c.bad = true
		return 0
	}
	n := bits.TrailingZeros8(^c.b[0]) + 1
	p := c.take(n)
	if p == nil {
		return 0
	}
	if n == 9 {
		return le64(p[1:])
	}
	return leN(p) >> n
}

// signed reads an integer whose lowest bit is the sign.
func (c *serial) signed() int64 {
	u := c.number()
	if u&1 != 0 {
		return -1 - int64(u>>1)
	}
	return int64(u >> 1)
}

// fixed reads bytes that are written as one number of 1 or 2 bytes each.
func (c *serial) fixed(dst []byte) {
	for i := range dst {
		dst[i] = byte(c.number())
	}
}

// Flags of MariaDB's GTID event.
const (
	mariaStandalone  = 0x01 // no COMMIT or XID follows
	mariaGroupCommit = 0x02
	mariaDDL         = 0x20
	mariaPreparedXA  = 0x40
	mariaCompletedXA = 0x80

	mariaExtraEngine        = 0x01
	mariaExtraStartAlter    = 0x02
	mariaExtraCommitAlter   = 0x04
	mariaExtraRollbackAlter = 0x08
	mariaExtraThreadID      = 0x10
)

// MariaGTIDEvent is MariaDB's GTID event.
type MariaGTIDEvent struct {
	Domain   uint32
	Seq      uint64
	Flags    byte
	Extra    byte // 0 when absent
	ThreadID uint32
	XID      string // identifies an XA transaction: format, global and branch part
}

// ParseMariaGTID parses the body of MariaDB's GTID event (type 162), padded or not.
func ParseMariaGTID(body []byte) (MariaGTIDEvent, error) {
	c := cursor{b: body}
	e := MariaGTIDEvent{Seq: c.u64(), Domain: c.u32(), Flags: c.u8()}
	if e.Flags&mariaGroupCommit != 0 {
		c.u64()
	}
	if e.Flags&(mariaPreparedXA|mariaCompletedXA) != 0 {
		format := c.u32()
		g, b := c.u8(), c.u8()
		data := c.take(int(g) + int(b))
		e.XID = xidText(uint64(format), data, int(g))
	}
	if !c.bad && len(c.b) > 0 {
		e.Extra = c.u8()
		if e.Extra&mariaExtraEngine != 0 {
			c.u8()
		}
		if e.Extra&(mariaExtraCommitAlter|mariaExtraRollbackAlter) != 0 {
			c.u64()
		}
		if e.Extra&mariaExtraThreadID != 0 {
			e.ThreadID = c.u32()
		}
	}
	if c.bad {
		return e, short("GTID event", len(body))
	}
	if e.Seq == 0 {
		return e, malformed("GTID event: number 0")
	}
	return e, nil
}

func xidText(format uint64, data []byte, gtrid int) string {
	if data == nil {
		return ""
	}
	return "X'" + hexText(data[:gtrid]) + "',X'" + hexText(data[gtrid:]) + "'," + strconv.FormatUint(format, 10)
}

func hexText(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, x := range b {
		s.WriteByte(digits[x>>4])
		s.WriteByte(digits[x&15])
	}
	return s.String()
}

// ParseMariaGTIDList parses the body of a GTID_LIST event (type 163): the state
// at the start of a file.
func ParseMariaGTIDList(body []byte) (event.GTIDSet, error) {
	c := cursor{b: body}
	var s event.GTIDSet
	for n := c.u32() & (1<<28 - 1); n > 0 && !c.bad; n-- {
		g := event.GTID{Domain: c.u32(), Server: c.u32(), Seq: c.u64()}
		if !c.bad && g.Seq > 0 {
			s.Add(g)
		}
	}
	if c.bad {
		return event.GTIDSet{}, short("GTID list", len(body))
	}
	return s, nil
}

// Query is a QUERY event. Its slices share the event's memory.
type Query struct {
	ThreadID  uint32
	ErrorCode uint16
	Schema    []byte
	Statement []byte
	Micros    uint32 // fraction of the event's time; 0 when the log does not say
	Charset   uint16 // collation id of the client that sent the statement; 0 when the log does not say
	SQLMode   uint64 // of the session; 0 when the log does not say

	ServerCollation uint16 // id of the server's default collation; 0 when the log does not say
	Connection      uint16 // id of the collation of the statement's texts, to which the server has converted them; 0 when the log does not say

	// Databases are those whose tables the statement may write to, triggers and functions included, each with a NUL
	// behind it: MySQL lists them from 5.6 on.
	Databases []byte
	Unlisted  bool // MySQL: they are too many to be listed, or foreign keys refer to the table
}

// ParseQuery parses the body of a QUERY event (type 2), of MariaDB's
// QUERY_COMPRESSED event (type 165), whose statement is then memory of its own, or of an EXECUTE_LOAD_QUERY event (type 18).
func ParseQuery(t EventType, body []byte) (Query, error) {
	c := cursor{b: body}
	q := Query{ThreadID: c.u32()}
	c.u32() // duration
	schema := int(c.u8())
	q.ErrorCode = c.u16()
	size := int(c.u16())
	if t == TypeExecuteLoadQuery {
		c.take(13) // where the file and its name are
	}
	vars := c.take(size)
	q.Schema = c.take(schema)
	c.u8()
	if c.bad {
		return q, short("query event", len(body))
	}
	q.statusVars(vars)
	q.Statement = c.b
	if t == TypeQueryCompressed {
		var err error
		if q.Statement, err = inflate(c.b); err != nil {
			return q, err
		}
	}
	return q, nil
}

// statusVars picks what we want of a QUERY event's status variables. They have
// no lengths of their own: an unknown one hides all behind it.
func (q *Query) statusVars(b []byte) {
	c := cursor{b: b}
	for len(c.b) > 0 && !c.bad {
		switch c.u8() {
		case 0, 3, 10: // flags, auto_increment, master data written
			c.take(4)
		case 1:
			if mode := c.u64(); !c.bad {
				q.SQLMode = mode
			}
		case 9, 17: // tables for update, DDL's transaction number
			c.take(8)
		case 2: // catalog with a NUL
			c.take(int(c.u8()) + 1)
		case 4:
			charset := c.u16()
			connection := c.u16()
			server := c.u16()
			if !c.bad {
				q.Charset, q.Connection, q.ServerCollation = charset, connection, server
			}
		case 5, 6: // time zone, catalog
			c.take(int(c.u8()))
		case 7, 8, 18: // lc_time_names, database's collation, default collation for utf8mb4
			c.take(2)
		case 11: // invoker
			c.take(int(c.u8()))
			c.take(int(c.u8()))
		case 12: // databases touched; 254: too many, or some that cascades reach
			if n := c.u8(); n == 254 {
				q.Unlisted = true
			} else {
				all := c.b
				for ; n > 0 && !c.bad; n-- {
					i := bytes.IndexByte(c.b, 0)
					c.take(i + 1)
					c.bad = c.bad || i < 0
				}
				if !c.bad {
					q.Databases = all[:len(all)-len(c.b)]
				}
			}
		case 13, 128: // microseconds, MySQL's and MariaDB's code
			if p := c.take(3); p != nil {
				q.Micros = uint32(leN(p)) % 1e6
			}
		case 16, 19, 20: // explicit_defaults_for_timestamp, sql_require_primary_key, default_table_encryption
			c.take(1)
		case 129: // MariaDB: XID
			c.take(8)
		case 130: // MariaDB: a part of a two-phase ALTER, with the number of its START if it is the other one
			if c.u8()&(mariaExtraCommitAlter|mariaExtraRollbackAlter) != 0 {
				c.take(8)
			}
		case 131: // MariaDB: the session's default collations of character sets
			c.take(4 * int(c.u8()))
		default:
			return
		}
	}
}

// ParseXID parses the body of an XID event.
func ParseXID(body []byte) (uint64, error) {
	c := cursor{b: body}
	x := c.u64()
	if c.bad {
		return 0, short("XID event", len(body))
	}
	return x, nil
}

// XAPrepare is the body of an XA_PREPARE event (type 38).
type XAPrepare struct {
	OnePhase bool
	XID      string // as in the statement: X'global',X'branch',format
}

// ParseXAPrepare parses the body of an XA_PREPARE event.
func ParseXAPrepare(body []byte) (XAPrepare, error) {
	c := cursor{b: body}
	x := XAPrepare{OnePhase: c.u8() != 0}
	format, g, b := c.u32(), c.u32(), c.u32()
	if g > 64 || b > 64 {
		return x, malformed("XA prepare event: id of %d and %d bytes", g, b)
	}
	data := c.take(int(g + b))
	if c.bad {
		return x, short("XA prepare event", len(body))
	}
	x.XID = xidText(uint64(format), data, int(g))
	return x, nil
}

// ParseHeartbeat parses a HEARTBEAT event of version 1 (type 27): the file and
// the 64-bit offset that the sender has reached; wide tells that the offset is not
// only the low 32 bits.
func ParseHeartbeat(h *Header, body []byte) (file string, offset uint64, wide bool, err error) {
	c := cursor{b: body}
	offset = uint64(h.LogPos)
	if h.Flags&0x1 != 0 && h.LogPos == 0 && len(body) > 8 {
		// MariaDB: a sub-header with the offset once it needs more than 32 bits.
		offset, wide = c.u64(), true
	}
	if len(c.b) == 0 || len(c.b) > 512 {
		return "", 0, false, short("heartbeat", len(body))
	}
	return string(c.b), offset, wide, nil
}

// ParseHeartbeatV2 parses a HEARTBEAT event of version 2 (type 41).
func ParseHeartbeatV2(body []byte) (file string, offset uint64, err error) {
	c := cursor{b: body}
	for !c.bad {
		f := c.u8()
		if f == 0 && !c.bad {
			if file == "" {
				return "", 0, malformed("heartbeat without a file name")
			}
			return file, offset, nil
		}
		v := c.bytes()
		switch f {
		case 1:
			file = string(v[:min(len(v), 512)])
		case 2:
			p := cursor{b: v}
			offset = p.packed()
			c.bad = c.bad || p.bad
		}
	}
	return "", 0, short("heartbeat", len(body))
}

// ParseIncident returns what an INCIDENT event (type 26) says.
func ParseIncident(body []byte) (code uint16, message string) {
	c := cursor{b: body}
	code = c.u16()
	return code, strings.ToValidUTF8(string(c.take(int(c.u8()))), "?")
}
