package connector

import (
	"bytes"
	"context"
	"fmt"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// Mark is an event of the source's log as another program has noted it.
type Mark struct {
	File     string
	Offset   uint64 // where it starts
	Time     uint32 // of its header, seconds since 1970 UTC
	ServerID uint32 // of its header
}

// Locate returns the transaction end from which on everything is to be read by who has dealt with all before a mark: the one behind it where the mark is
// a transaction's commit, else the one before it, since of a transaction nothing may be missing. It asks again as Start does. A *StopError says that
// the log does not have that event there: it is another server's, or was purged or begun anew.
func (c *Connector) Locate(ctx context.Context, m Mark) (pos event.Position, err error) {
	slot := c.slots.take()
	defer c.slots.give(slot)
	err = c.repeat(ctx, func() error {
		pos, err = c.locate(ctx, m, c.identity(slot))
		return err
	})
	if err != nil {
		return event.Position{}, err
	}
	return pos, nil
}

func (c *Connector) locate(ctx context.Context, m Mark, id identity) (pos event.Position, err error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return pos, err
	}
	defer s.close()
	files, err := s.binlogs(ctx)
	if err != nil {
		return pos, err
	}
	if size := sizeOf(files, m.File); m.Offset < 4 || m.Offset >= size {
		return pos, c.noPlace(files, m.File, m.Offset)
	}
	k, err := c.scan(ctx, s.addr, sv, id, m.File)
	if err != nil {
		return pos, err
	}
	defer k.close()
	another := func(what string) error {
		return c.stop(fmt.Sprintf("the source's log has another event at %s:%d: %s", m.File, m.Offset, what), "point source.address to the server that was read", nil)
	}
	pos = event.Position{File: m.File, Offset: 4, ServerUUID: sv.uuid, ByFile: !sv.gtid}
	for {
		_, start := k.m.Position()
		raw, err := k.feed()
		if err != nil {
			return pos, err
		}
		file, next := k.m.Position()
		met := file == m.File && start == m.Offset && next > start
		switch {
		case file != m.File || !met && next > m.Offset:
			return pos, another("none starts there")
		case met && (raw.Time != m.Time || raw.ServerID != m.ServerID):
			return pos, another(fmt.Sprintf("of server id %d and time %d, not of %d and %d", raw.ServerID, raw.Time, m.ServerID, m.Time))
		case !met || commits(raw):
			if !k.m.Open() {
				pos.Offset = next
			}
			if k.end != nil {
				k.gtids.Add(k.end.Txn.GTID)
			}
		}
		if met {
			if sv.gtid {
				pos.GTIDs = k.gtids.Clone()
			}
			return pos, nil
		}
	}
}

// commits tells whether an event is a transaction's commit, which alone changes nothing.
func commits(raw *binlog.Raw) bool {
	switch raw.Type {
	case binlog.TypeXID:
		return true
	case binlog.TypeQuery:
		q, err := binlog.ParseQuery(raw.Type, raw.Body())
		return err == nil && bytes.EqualFold(q.Statement, []byte("COMMIT"))
	}
	return false
}
