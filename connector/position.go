package connector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// checkServer makes sure that the position means something on this server.
func (r *reader) checkServer(ctx context.Context, s *session, sv *server) error {
	c := r.c
	pos := &r.last
	r.passed = false
	if pos.GTIDs.IsEmpty() {
		return r.checkFile(ctx, s, sv)
	}
	if pos.GTIDs.IsMariaDB() != sv.mariaDB {
		return c.stop("the position "+pos.GTIDs.String()+" is of the other kind of server than the source", "point the address to the right server", nil)
	}
	if sv.mariaDB {
		var err error
		r.passed, err = c.checkReset(ctx, s, sv, pos) // the dump thread looks for each domain's transaction in strict mode
		return err
	}
	if !sv.gtid {
		return c.stop("the position is a GTID set, but gtid_mode is "+sv.vars["gtid_mode"]+" on the source",
			"switch GTIDs on at the source (binlogmq check names the steps), or set a position by file and offset with: binlogmq cursor set", nil)
	}
	purged, err := s.gtidVariable(ctx, "gtid_purged")
	if err != nil {
		return err
	}
	if lost := purged.Subtract(pos.GTIDs); !lost.IsEmpty() {
		return c.gone(event.ErrPurged, "the source has purged transactions that have not been read yet: "+lost.String(), purgedRemedy, nil)
	}
	executed, err := s.gtidVariable(ctx, "gtid_executed")
	if err != nil {
		return err
	}
	if err := c.lacks(s, pos.GTIDs.Subtract(executed), &r.ahead); err != nil {
		return err
	}
	_, err = c.checkReset(ctx, s, sv, pos)
	return err
}

// CheckPosition tells whether reading can go on from a place where a cursor stands, without reading: err is the *[StopError] with which
// [Connector.Read] would end, or another error if the source did not tell. Not known: no source can be read at all, of which
// [Connector.Check] tells why. It disturbs no reader, and waits for no replica that has just been promoted.
func (c *Connector) CheckPosition(ctx context.Context, pos event.Position) (known bool, err error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return false, nil
	}
	defer s.close()
	r := &reader{c: c, last: pos, decided: true, ahead: patienceForAhead}
	r.last.GTIDs = pos.GTIDs.Clone()
	if err := r.checkServer(ctx, s, sv); err != nil {
		return true, c.judge(err)
	}
	if !sv.mariaDB || pos.GTIDs.IsEmpty() {
		return true, nil
	}
	// MariaDB's dump thread alone knows, and says so first.
	slot := c.slots.take()
	defer c.slots.give(slot)
	if err := c.dump(ctx, s, sv, c.identity(checkSlot+slot), pos); err != nil {
		return true, c.judge(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for stream := c.stream(ctx, s, new(counter)); ; {
		if raw, err := stream.Next(); err != nil || raw.Type == binlog.TypeFormatDescription {
			return true, c.judge(err)
		}
	}
}

// patienceForAhead is how many attempts may find that the source lacks what is published.
const patienceForAhead = 6

// lacks is the error of a source that does not have transactions that are published; nil if there are none. A replica that has
// been promoted may need a moment: attempts counts how often they were missing.
func (c *Connector) lacks(s *session, more event.GTIDSet, attempts *int) error {
	if more.IsEmpty() {
		*attempts = 0
		return nil
	}
	if *attempts++; *attempts > patienceForAhead {
		return c.gone(event.ErrNoPosition, "the source lacks transactions that have been published: "+more.String(),
			"it lost them in a failover or is another server: point the address to the right server, or compare the tables and set a new position with: binlogmq cursor set", nil)
	}
	return fmt.Errorf("%s: the source does not have transactions %s yet", s.addr, more.String())
}

const resetRemedy = "it was reset, or the server was replaced by another: compare the tables, then set a new position with: binlogmq cursor set; " +
	"or choose with on_lost_position where it goes on by itself"

// checkReset makes sure that the server has not begun its log anew since: then it gives numbers again that it had given
// before, and the set of GTIDs may be there although the transactions are others. File and offset of a position on this very server tell.
// All that lies before the place is done, and there a transaction ends. What follows may be done, too, on a server that was read
// before. What cannot be looked at proves nothing. On MariaDB passed tells that it was looked at: whatever the server shows of
// the log before the place is done.
func (c *Connector) checkReset(ctx context.Context, s *session, sv *server, pos *event.Position) (passed bool, err error) {
	if pos.ServerUUID != sv.uuid || pos.File == "" || strings.ContainsAny(pos.File, `'\`) {
		return false, nil
	}
	reset := func(what string) (bool, error) {
		return false, c.gone(event.ErrNoPosition, fmt.Sprintf("the source's binlog is another one than the one that was read up to %s:%d: %s", pos.File, pos.Offset, what),
			resetRemedy, nil)
	}
	files, err := s.binlogs(ctx)
	if err != nil || len(files) == 0 {
		return false, err
	}
	size := sizeOf(files, pos.File)
	switch last := files[len(files)-1].name; {
	case event.FileNumber(pos.File) > event.FileNumber(last):
		return reset("its last file is " + last)
	case size == 0: // purged since, and nothing in it is needed
		if follows, err := c.follows(ctx, s, sv, pos, files[0].name); err != nil || follows {
			return false, err
		}
		return reset("its first file is " + files[0].name + ", and what was done is not purged")
	case pos.Offset > size:
		return reset(fmt.Sprintf("the file has %d bytes", size))
	}
	// The server reads the file for it, which may take longer than a statement has: on a session of its own.
	own, err := c.dial(ctx, s.addr)
	if err != nil {
		return false, err
	}
	defer own.close()
	// I1: behind a proxy another server may answer here, whose log says nothing about this one's.
	if it, err := own.server(ctx); err != nil || !it.is(sv) {
		return false, err
	}
	if sv.mariaDB && !pos.GTIDs.IsEmpty() {
		at, err := own.mariaGTIDs(ctx, pos.File, pos.Offset)
		if err == nil && pos.GTIDs.Behind(at) {
			return reset("there it holds " + at.ConnectState() + ", and " + pos.GTIDs.ConnectState() + " is done")
		}
		passed = err == nil && !at.IsEmpty() && pos.GTIDs.ContainsSet(at)
	}
	r, err := own.query(ctx, fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d LIMIT 1", pos.File, pos.Offset))
	if serverCode(err) == mysql.ER_ERROR_WHEN_EXECUTING_COMMAND {
		// It is the error of a file that has been purged meanwhile, too.
		if files, err = own.binlogs(ctx); err != nil || sizeOf(files, pos.File) == 0 {
			return false, err
		}
		return reset("no event begins there")
	}
	if err != nil || r.rows() == 0 {
		return passed, ctx.Err()
	}
	if at, err := strconv.ParseUint(r.named(0, "Pos"), 10, 64); err == nil && at != pos.Offset { // near the start of a file MySQL shows the next event
		return reset("no event begins there")
	}
	switch kind, _, _ := strings.Cut(r.named(0, "Event_type"), "_rows"); kind {
	case "Query":
		if !pos.GTIDs.IsEmpty() || r.named(0, "Info") == "COMMIT" { // else a transaction may begin so
			return reset("there is the middle of a transaction")
		}
	case "Xid", "Annotate", "Table_map", "Write", "Update", "Delete":
		return reset("there is the middle of a transaction")
	}
	return passed, nil
}

// follows tells whether the log, of which first is the first file, goes on from a place in a file that is purged: then what was done up to there is purged, too.
func (c *Connector) follows(ctx context.Context, s *session, sv *server, pos *event.Position, first string) (bool, error) {
	if pos.GTIDs.IsEmpty() {
		return true, nil
	}
	if !sv.mariaDB {
		purged, err := s.gtidVariable(ctx, "gtid_purged")
		return err != nil || !purged.Intersect(pos.GTIDs).IsEmpty(), err
	}
	before, err := s.mariaGTIDs(ctx, first, 4)
	if err != nil {
		return false, err
	}
	if !before.IsEmpty() {
		return !before.Behind(pos.GTIDs), nil
	}
	files, err := s.binlogs(ctx) // nor does it tell of a file that is purged meanwhile
	return err != nil || len(files) == 0 || files[0].name != first, err
}

// holds tells whether the server's log has a place that was seen in it, or in that of another server by its GTIDs, and still is the same.
func (c *Connector) holds(ctx context.Context, s *session, sv *server, pos *event.Position) (bool, error) {
	if !pos.GTIDs.IsEmpty() {
		if pos.GTIDs.IsMariaDB() != sv.mariaDB {
			return false, nil
		}
		has, set, err := s.done(ctx, sv, pos.GTIDs)
		if err != nil || !has.ContainsSet(set) {
			return false, err
		}
	}
	if pos.ServerUUID == sv.uuid && pos.File != "" {
		end, err := c.latest(ctx, s, sv)
		if err != nil {
			return false, err
		}
		end.GTIDs = event.GTIDSet{}
		if !end.Reached(&event.Position{File: pos.File, Offset: pos.Offset, ServerUUID: pos.ServerUUID}) {
			return false, nil
		}
	}
	_, err := c.checkReset(ctx, s, sv, pos)
	if errors.Is(err, event.ErrNoPosition) {
		return false, nil
	}
	return err == nil, err
}

// done returns what a server has done, and what of a set that is to be compared with.
func (s *session) done(ctx context.Context, sv *server, set event.GTIDSet) (has, part event.GTIDSet, err error) {
	names := []string{"gtid_executed"}
	if sv.mariaDB {
		// The last of each domain is enough to go on from. Where a server began as a copy, only its slave position tells.
		names = []string{"gtid_binlog_state", "gtid_slave_pos"}
		set = set.LastOfDomains()
	}
	for _, name := range names {
		more, err := s.gtidVariable(ctx, name)
		if err != nil {
			return has, set, err
		}
		has = has.Union(more)
	}
	return has, set, nil
}

// Keeps tells whether the source's log still has a place that was read before: it has not when it was begun anew, lost its end, or
// is another server's that lacks the transactions.
func (c *Connector) Keeps(ctx context.Context, pos event.Position) (held bool, err error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return false, err
	}
	defer s.close()
	return c.holds(ctx, s, sv, &pos)
}

// sizeOf returns the size of a binlog file in bytes; 0: there is none of that name.
func sizeOf(files []logFile, name string) uint64 {
	for _, f := range files {
		if f.name == name {
			return f.size
		}
	}
	return 0
}

// Holds waits until the source has all these transactions, as a replica that has just been promoted may need a moment for
// the last of them. It asks again as Start does, and returns a *StopError when the source lacks them for good.
func (c *Connector) Holds(ctx context.Context, set event.GTIDSet) error {
	attempts := 0
	return c.repeat(ctx, func() error {
		s, sv, err := c.connect(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		if set.IsMariaDB() != sv.mariaDB {
			return c.gone(event.ErrNoPosition, "the position "+set.String()+" is of the other kind of server than the source", "point the address to the right server", nil)
		}
		has, part, err := s.done(ctx, sv, set)
		if err != nil {
			return err
		}
		return c.lacks(s, part.Subtract(has), &attempts)
	})
}

// checkFile checks a position by file and offset, and decides whether GTIDs
// can be used from here on.
func (r *reader) checkFile(ctx context.Context, s *session, sv *server) error {
	c := r.c
	pos := &r.last
	if pos.File == "" {
		return c.stop("the position is empty", "set one with: binlogmq cursor set", nil)
	}
	if pos.ServerUUID != "" && pos.ServerUUID != sv.uuid {
		return c.gone(event.ErrNoPosition, fmt.Sprintf("the position %s:%d is of server %s, but %s answers, where it means nothing", pos.File, pos.Offset, pos.ServerUUID, sv.uuid),
			"point the address to the right server, or switch GTIDs on, or set a new position with: binlogmq cursor set", nil)
	}
	files, err := s.binlogs(ctx)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.name == pos.File {
			found = true
			if pos.Offset > f.size {
				return c.gone(event.ErrNoPosition, fmt.Sprintf("the position %s:%d lies beyond the end of that file (%d)", pos.File, pos.Offset, f.size),
					"the log was reset, or the source lost transactions in a crash: compare the tables, then set a new position with: binlogmq cursor set", nil)
			}
		}
	}
	if !found {
		if len(files) > 0 && event.FileNumber(pos.File) > event.FileNumber(files[len(files)-1].name) {
			return c.gone(event.ErrNoPosition, fmt.Sprintf("the source does not have binlog file %s: its last one is %s", pos.File, files[len(files)-1].name), resetRemedy, nil)
		}
		return c.gone(event.ErrPurged, "the source does not have binlog file "+pos.File+" any more", purgedRemedy, nil)
	}
	if _, err := c.checkReset(ctx, s, sv, pos); err != nil {
		return err
	}
	if !sv.gtid || r.decided {
		r.hideGTIDs = r.hideGTIDs || !sv.gtid
		return nil
	}
	if pos.ByFile { // I5: the heads of files have taken numbers
		r.decided, r.hideGTIDs = true, true
		r.stayByFile(event.GTIDSet{})
		return nil
	}
	// GTIDs are on but the position has none. That is right on a server that had executed none there; on any other
	// one a set that begins here would claim that nothing came before.
	before, err := c.gtidsAt(ctx, s, sv, r.id, pos.File, pos.Offset)
	if err != nil {
		return err
	}
	r.decided = true
	if r.hideGTIDs = !before.IsEmpty(); r.hideGTIDs {
		r.stayByFile(before)
	}
	return nil
}

func (r *reader) stayByFile(before event.GTIDSet) {
	r.c.log.Warn("the saved position has no GTIDs, so this destination goes on by file and offset; to use GTIDs set its position again",
		"command", "binlogmq cursor set", "gtids", before.String())
}
