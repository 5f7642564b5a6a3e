package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// startAt is Options.Start, parsed.
type startAt struct {
	kind   startKind
	gtids  event.GTIDSet
	file   string
	offset uint64
	time   time.Time
}

type startKind uint8

const (
	startLatest startKind = iota
	startEarliest
	startGTIDs
	startFile
	startTime
)

func parseStart(text string) (startAt, error) {
	switch text {
	case "latest":
		return startAt{kind: startLatest}, nil
	case "earliest":
		return startAt{kind: startEarliest}, nil
	}
	if set, ok := strings.CutPrefix(text, "gtid:"); ok {
		g, err := event.ParseGTIDSet(set)
		if err != nil {
			return startAt{}, fmt.Errorf("start: %w", err)
		}
		if g.IsEmpty() || g.IsMySQL() && g.IsMariaDB() {
			return startAt{}, fmt.Errorf("start: %q is no set of GTIDs of one server kind", text)
		}
		return startAt{kind: startGTIDs, gtids: g}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return startAt{kind: startTime, time: t}, nil
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		n, err := strconv.ParseUint(text[i+1:], 10, 64)
		file := text[:i]
		dot := strings.LastIndexByte(file, '.')
		if err == nil && n >= 4 && dot > 0 && dot < len(file)-1 && strings.Trim(file[dot+1:], "0123456789") == "" {
			return startAt{kind: startFile, file: file, offset: n}, nil
		}
	}
	return startAt{}, fmt.Errorf("start: %q is none of earliest, latest, gtid:SET, FILE:OFFSET, or a time like 2026-01-31T12:00:00Z", text)
}

// Start resolves Options.Start into a transaction end, with Ordinal 0 or, where there were snapshots, one above all theirs. It asks
// again for ever while the source is down (Status tells) and returns an error when its operator is
// needed, or the context's.
func (c *Connector) Start(ctx context.Context) (event.Cursor, error) {
	at, err := parseStart(c.opt.Start)
	if err != nil {
		return event.Cursor{}, err
	}
	slot := c.slots.take()
	defer c.slots.give(slot)
	pos, err := c.place(ctx, at, c.identity(slot))
	if err != nil {
		return event.Cursor{}, err
	}
	c.log.Info("start resolved", "start", c.opt.Start, "file", pos.File, "offset", pos.Offset, "gtids", pos.GTIDs.String())
	start := event.Cursor{Position: pos}
	if c.opt.Snapshots != nil { // what is left of before has no place in this numbering
		if start.Ordinal, err = c.opt.Snapshots.Floor(ctx); err != nil {
			return event.Cursor{}, c.stopOf(err)
		}
	}
	return start, nil
}

// Recount drops what is left of snapshots in another numbering, after Tables or AllVersions have changed; it is read again.
// No Connector may be reading with those of before.
func (c *Connector) Recount(ctx context.Context) error {
	if c.opt.Snapshots == nil {
		return nil
	}
	return c.stopOf(c.opt.Snapshots.Recount(ctx, c.counts()))
}

// Earliest returns the first place of the source's log, of which nothing is purged. It asks again as Start does.
func (c *Connector) Earliest(ctx context.Context) (event.Position, error) {
	return c.place(ctx, startAt{kind: startEarliest}, identity{}) // which nobody is told
}

// End returns where the source's log ends now. It asks again as Start does.
func (c *Connector) End(ctx context.Context) (event.Position, error) {
	return c.place(ctx, startAt{kind: startLatest}, identity{}) // which nobody is told
}

// place resolves a place, however long the source is away.
func (c *Connector) place(ctx context.Context, at startAt, id identity) (pos event.Position, err error) {
	err = c.repeat(ctx, func() error {
		pos, err = c.resolve(ctx, at, id)
		return err
	})
	if err != nil {
		return event.Position{}, err
	}
	return pos, nil
}

// repeat asks the source for something until it is had, or the operator is needed. Status tells why it takes long.
func (c *Connector) repeat(ctx context.Context, ask func() error) error {
	wait := minBackOff
	for {
		err := ask()
		if err == nil {
			c.state.update(func(s *Status) { s.Err = nil })
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = c.judge(err)
		c.state.update(func(s *Status) { s.Err = err })
		var stop *StopError
		if errors.As(err, &stop) {
			return err
		}
		c.log.Warn("cannot reach the source; trying again", "error", err, "in", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, maxBackOff)
	}
}

func (c *Connector) resolve(ctx context.Context, at startAt, id identity) (event.Position, error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return event.Position{}, err
	}
	defer s.close()
	switch at.kind {
	case startGTIDs:
		return c.resolveGTIDs(ctx, s, sv, at.gtids)
	case startEarliest:
		return c.earliest(ctx, s, sv)
	case startFile:
		return c.resolveFile(ctx, s, sv, id, at.file, at.offset)
	case startTime:
		return c.resolveTime(ctx, s, sv, id, at.time)
	}
	return c.latest(ctx, s, sv)
}

func (c *Connector) latest(ctx context.Context, s *session, sv *server) (event.Position, error) {
	pos := event.Position{ServerUUID: sv.uuid, ByFile: !sv.gtid}
	file, offset, executed, err := s.binlogStatus(ctx, sv)
	if err != nil {
		return pos, err
	}
	if file == "" {
		return pos, c.stop("the source's binary log is off", "set log_bin in its option file and restart it", nil)
	}
	pos.File, pos.Offset = file, offset
	switch {
	case sv.mariaDB:
		pos.GTIDs, err = s.mariaGTIDs(ctx, file, offset)
	case sv.gtid:
		pos.GTIDs, err = event.ParseGTIDSet(executed)
	}
	return pos, err
}

func (c *Connector) earliest(ctx context.Context, s *session, sv *server) (event.Position, error) {
	pos := event.Position{ServerUUID: sv.uuid, Offset: 4, ByFile: !sv.gtid}
	files, err := s.binlogs(ctx)
	if err != nil {
		return pos, err
	}
	if len(files) == 0 {
		return pos, c.stop("the source has no binlog files", "set log_bin in its option file and restart it", nil)
	}
	pos.File = files[0].name
	switch {
	case sv.mariaDB:
		pos.GTIDs, err = s.mariaGTIDs(ctx, pos.File, pos.Offset)
	case sv.gtid:
		pos.GTIDs, err = s.gtidVariable(ctx, "gtid_purged")
	}
	return pos, err
}

// mariaGTIDs asks MariaDB for the state at a place in its binlog.
func (s *session) mariaGTIDs(ctx context.Context, file string, offset uint64) (event.GTIDSet, error) {
	r, err := s.query(ctx, fmt.Sprintf("SELECT BINLOG_GTID_POS(%s, %d)", literal(file), offset))
	if err != nil || r.rows() == 0 {
		return event.GTIDSet{}, err
	}
	return event.ParseGTIDSet(r.text(0, 0))
}

func (c *Connector) resolveGTIDs(ctx context.Context, s *session, sv *server, set event.GTIDSet) (event.Position, error) {
	pos := event.Position{GTIDs: set, ServerUUID: sv.uuid}
	if set.IsMariaDB() != sv.mariaDB {
		return pos, c.stop("start: the GTID set "+set.String()+" is of the other kind of server than the source", "use @@gtid_executed of MySQL, @@gtid_binlog_pos of MariaDB", nil)
	}
	if sv.mariaDB {
		return pos, nil
	}
	if !sv.gtid {
		return pos, c.stop("start: a GTID set, but gtid_mode is "+sv.vars["gtid_mode"]+" on the source", "start by FILE:OFFSET, or switch GTIDs on there", nil)
	}
	executed, err := s.gtidVariable(ctx, "gtid_executed")
	if err != nil {
		return pos, err
	}
	if more := set.Subtract(executed); !more.IsEmpty() {
		return pos, c.stop("start: the source has not executed transactions "+more.String()+" of the GTID set", "use a part of its @@gtid_executed", nil)
	}
	purged, err := s.gtidVariable(ctx, "gtid_purged")
	if err != nil {
		return pos, err
	}
	if lost := purged.Subtract(set); !lost.IsEmpty() {
		return pos, c.stop("start: the source has purged transactions that the GTID set does not hold: "+lost.String(), "use a set that contains its @@gtid_purged", nil)
	}
	return pos, nil
}

// scan is a walk over the transactions of a binlog that captures nothing.
type scan struct {
	c       *Connector
	m       *binlog.Machine
	stream  *binlog.Stream
	session *session
	stop    func() bool

	gtids event.GTIDSet // at the last transaction end
	head  bool          // gtids are known
	end   *event.Event  // last transaction end; nil before the first
	began uint32        // time at which the current file was begun
}

func (c *Connector) scan(ctx context.Context, addr string, sv *server, id identity, file string) (*scan, error) {
	s, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	pos := event.Position{File: file, Offset: 4}
	if err := c.dump(ctx, s, sv, id, pos); err != nil {
		s.close()
		return nil, err
	}
	k := &scan{c: c, session: s, stream: c.stream(ctx, s, nil)}
	k.stop = context.AfterFunc(ctx, func() { _ = s.conn.Conn.Conn.SetDeadline(time.Unix(1, 0)) })
	k.m = c.scanner(pos, func(e *event.Event) error {
		if e.Kind == event.End {
			k.end = e
		}
		return nil
	})
	return k, nil
}

// scanner returns a machine that captures nothing.
func (c *Connector) scanner(pos event.Position, emit func(*event.Event) error) *binlog.Machine {
	return binlog.NewMachine(binlog.Options{
		Destination: c.opt.Destination, Match: func(string, string) bool { return false }, Emit: emit, Scan: true, Position: pos,
	})
}

func (k *scan) close() {
	k.stop()
	k.m.Close()
	k.session.close()
}

// feed reads one event, which lasts until the next. end is set if a transaction ends with it, and gtids if it tells them.
func (k *scan) feed() (*binlog.Raw, error) {
	k.end = nil
	raw, err := k.stream.Next()
	if err != nil {
		return nil, err
	}
	if err := k.m.Feed(&raw); err != nil {
		return nil, err
	}
	if raw.Type == binlog.TypeFormatDescription {
		k.began = raw.Time
	}
	if !headOf(&raw) {
		return &raw, nil
	}
	k.head = true
	if raw.Type == binlog.TypePreviousGTIDs {
		k.gtids, err = event.DecodeGTIDSet(raw.Body())
	} else {
		k.gtids, err = binlog.ParseMariaGTIDList(raw.Body())
	}
	return &raw, err
}

// headOf tells whether the event says which transactions lie before its file.
func headOf(raw *binlog.Raw) bool {
	return raw.Type == binlog.TypePreviousGTIDs || raw.Type == binlog.TypeMariaGTIDList && raw.Flags&binlog.FlagArtificial == 0
}

// next reads up to the next transaction end, which it returns, or up to the
// next head of a file or the place file:offset between transactions, for which it returns nil. A place before the head of the first
// file counts as reached there, since what lies before it is known then only.
func (k *scan) next(file string, offset uint64) (*event.Event, error) {
	for {
		raw, err := k.feed()
		if err != nil {
			return nil, err
		}
		if headOf(raw) {
			return nil, nil
		}
		if k.end != nil {
			k.gtids.Add(k.end.Txn.GTID)
			return k.end, nil
		}
		if at, o := k.m.Position(); k.head && at == file && o == offset && !k.m.Open() {
			return nil, nil
		}
	}
}

// gtidsAt returns the transactions that lie before a transaction end.
func (c *Connector) gtidsAt(ctx context.Context, s *session, sv *server, id identity, file string, offset uint64) (event.GTIDSet, error) {
	pos, err := c.resolveFile(ctx, s, sv, id, file, offset)
	return pos.GTIDs, err
}

func (c *Connector) resolveFile(ctx context.Context, s *session, sv *server, id identity, file string, offset uint64) (event.Position, error) {
	pos := event.Position{File: file, Offset: offset, ServerUUID: sv.uuid, ByFile: !sv.gtid}
	files, err := s.binlogs(ctx)
	if err != nil {
		return pos, err
	}
	i := sort.Search(len(files), func(i int) bool { return event.FileNumber(files[i].name) >= event.FileNumber(file) })
	if i == len(files) || files[i].name != file || offset > files[i].size {
		return pos, c.noPlace(files, file, offset)
	}
	k, err := c.scan(ctx, s.addr, sv, id, file)
	if err != nil {
		return pos, err
	}
	defer k.close()
	for {
		if _, err := k.next(file, offset); err != nil {
			return pos, err
		}
		at, o := k.m.Position()
		switch {
		case at == file && o < offset:
			continue
		case at == file && o > offset && k.end != nil:
			return pos, c.stop(fmt.Sprintf("%s:%d lies inside a transaction or an event; the transaction around it ends at %d", file, offset, o),
				"use a position where a transaction ends", nil)
		}
		break
	}
	if sv.gtid {
		pos.GTIDs = k.gtids.Clone()
	}
	return pos, nil
}

// noPlace is the error of a place that the source's log does not have.
func (c *Connector) noPlace(files []logFile, file string, offset uint64) error {
	names := "none"
	if len(files) > 0 {
		names = files[0].name + " to " + files[len(files)-1].name
	}
	return c.stop(fmt.Sprintf("the source has no place %s:%d in its binlog (it has %s)", file, offset, names), "use a position that SHOW BINARY LOGS and SHOW BINLOG EVENTS show", nil)
}

// resolveTime finds the last transaction end before the first commit at or after t.
func (c *Connector) resolveTime(ctx context.Context, s *session, sv *server, id identity, t time.Time) (event.Position, error) {
	last, err := c.latest(ctx, s, sv)
	if err != nil {
		return last, err
	}
	files, err := s.binlogs(ctx)
	if err != nil {
		return last, err
	}
	var failed error
	// The first file that was begun at t or later: the place lies before its end.
	i := sort.Search(len(files), func(i int) bool {
		if failed != nil {
			return true
		}
		k, err := c.scan(ctx, s.addr, sv, id, files[i].name)
		if err != nil {
			failed = err
			return true
		}
		defer k.close()
		if _, err := k.next("", 0); err != nil {
			failed = err
		}
		return int64(k.began) >= t.Unix()
	})
	if failed != nil {
		return last, failed
	}
	if i == 0 {
		c.log.Warn("the source's binlog begins after the start time", "start", t)
		return c.earliest(ctx, s, sv)
	}
	k, err := c.scan(ctx, s.addr, sv, id, files[i-1].name)
	if err != nil {
		return last, err
	}
	defer k.close()
	pos := event.Position{File: files[i-1].name, Offset: 4, ServerUUID: sv.uuid, ByFile: !sv.gtid}
	for {
		if file, o := k.m.Position(); file == last.File && o >= last.Offset || event.FileNumber(file) > event.FileNumber(last.File) {
			return last, nil
		}
		e, err := k.next(last.File, last.Offset)
		if err != nil {
			return pos, err
		}
		if e != nil && e.Txn.Time >= t.UnixMicro() {
			return pos, nil
		}
		pos.File, pos.Offset = k.m.Position()
		if sv.gtid {
			pos.GTIDs = k.gtids.Clone()
		}
	}
}

// skipTo reads a stream from a file's start up to a transaction end that the
// dump command cannot name, as its offsets have 32 bits.
func (c *Connector) skipTo(stream *binlog.Stream, file string, offset uint64) error {
	m := c.scanner(event.Position{File: file, Offset: 4}, func(*event.Event) error { return nil })
	defer m.Close()
	for {
		raw, err := next(stream)
		if err != nil {
			return err
		}
		if err := m.Feed(&raw); err != nil {
			return err
		}
		at, o := m.Position()
		if at == file && o == offset && !m.Open() {
			return nil
		}
		if at != file || o > offset {
			return c.stop(fmt.Sprintf("no transaction ends at %s:%d", file, offset), "set a new position with: binlogmq cursor set", nil)
		}
	}
}

// next returns the next event of a dump. That there is none is an error.
func next(stream *binlog.Stream) (binlog.Raw, error) {
	raw, err := stream.Next()
	if err == io.EOF {
		err = errors.New("the source closed the connection")
	}
	return raw, err
}
