package connector

import (
	"context"
	"io"
	"math"
	"slices"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// rereadSlot is added to a reader's slot for the connection with which it reads prepared transactions again, beside
// its stream.
const rereadSlot = 1 << 16

// prepared reads XA transactions again whose rows lie before the place where they commit. Those that were prepared before its
// reader began are looked for from there backward, so that no saved position needs to tell of them.
type prepared struct {
	ctx  context.Context
	c    *Connector
	addr string
	sv   *server
	id   identity

	scanned string                     // oldest file that has been looked through
	places  map[string]binlog.Prepared // what was found there, by id
}

// read implements [binlog.Reread].
func (p *prepared) read(x *binlog.Prepared, feed func(*binlog.Raw) (bool, error)) (bool, error) {
	if x.File == "" {
		found, err := p.find(x)
		if err != nil || !found {
			return false, err
		}
	}
	s, err := p.c.dial(p.ctx, p.addr)
	if err != nil {
		return false, err
	}
	defer s.close()
	from := event.Position{File: x.File, Offset: x.Start}
	if x.Start > math.MaxUint32 {
		from.Offset = 4 // the dump command has 32 bits
	}
	if err := p.c.dump(p.ctx, s, p.sv, p.id, from); err != nil {
		return false, err
	}
	stop := context.AfterFunc(p.ctx, func() { _ = s.conn.Conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	stream := p.c.stream(p.ctx, s, &p.c.state.bytes)
	if from.Offset != x.Start {
		if err := p.c.skipTo(stream, x.File, x.Start); err != nil {
			return false, err
		}
	}
	for {
		raw, err := stream.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return false, err
		}
		if done, err := feed(&raw); err != nil || done {
			return err == nil, err
		}
	}
}

// find completes x by its place. It looks through the files from the newest that matters to the oldest, each once.
func (p *prepared) find(x *binlog.Prepared) (bool, error) {
	s, err := p.c.dial(p.ctx, p.addr)
	if err != nil {
		return false, err
	}
	defer s.close()
	files, err := s.binlogs(p.ctx)
	if err != nil {
		return false, err
	}
	for {
		if at, ok := p.places[x.XID]; ok {
			delete(p.places, x.XID)
			x.File, x.Start = at.File, at.Start
			return true, nil
		}
		file, before := x.BeforeFile, x.Before
		if p.scanned != "" {
			i := slices.IndexFunc(files, func(f logFile) bool { return f.name == p.scanned })
			if i <= 0 {
				return false, nil
			}
			file, before = files[i-1].name, math.MaxUint64
		}
		p.c.log.Info("looking for XA transactions that were prepared before this reader began", "xid", x.XID, "file", file)
		if err := p.look(file, before); err != nil {
			return false, err
		}
		p.scanned = file
	}
}

// look notes what is prepared in a file, before an offset, and not ended there.
func (p *prepared) look(file string, before uint64) error {
	k, err := p.c.scan(p.ctx, p.addr, p.sv, p.id, file)
	if err != nil {
		return err
	}
	defer k.close()
	for {
		if at, offset := k.m.Position(); at != file || offset >= before {
			break
		}
		if _, err := k.next(file, before); err != nil {
			return err
		}
	}
	if p.places == nil {
		p.places = map[string]binlog.Prepared{}
	}
	for _, x := range k.m.Prepared() {
		if _, newer := p.places[x.XID]; !newer {
			p.places[x.XID] = x
		}
	}
	return nil
}
