package connector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// scanSlot is added to a reader's slot for the connection with which it looks for statements elsewhere in the log.
const scanSlot = 1 << 17

// ddl tells how the server's statements are read.
func (sv *server) ddl() ddl.Server {
	page, _ := strconv.ParseUint(sv.vars["innodb_page_size"], 10, 32)
	return ddl.Server{
		MariaDB: sv.mariaDB, Version: ddl.ParseVersion(sv.version), Caseless: sv.caseless(),
		InnoDB: strings.EqualFold(sv.vars["default_storage_engine"], "InnoDB"), LongKeys: page >= 16<<10,
	}
}

// caseless reports whether the server compares names of databases and tables without regard to case.
func (sv *server) caseless() bool {
	lower := sv.vars["lower_case_table_names"]
	return lower == "1" || lower == "2"
}

// tables is the filter of captured tables, which compares names as the server does.
func (c *Connector) tables(sv *server) *tablefilter.Filter {
	return c.opt.Tables.For(sv.caseless())
}

// names finds what a reader's tables are called. It implements schema.Source.
type names struct {
	ctx      context.Context
	r        *reader
	cat      *catalog
	sv       *server
	addr     string
	charsets map[uint32]string
	at       event.Position // how far the last scan has come, in transaction ends
}

// tap hears of statements in a log that is only looked through.
type tap struct {
	tell func(*binlog.Statement) error
}

func (tap) Table(*binlog.TableMap) (*event.Table, error) { return nil, nil }

func (t tap) Changed(st *binlog.Statement) error { return t.tell(st) }

// Here implements schema.Source.
func (n *names) Here() (event.Position, error) {
	if err := n.r.flush(n.ctx); err != nil {
		return event.Position{}, err
	}
	return n.r.last, nil
}

// Describe implements schema.Source.
func (n *names) Describe(t ddl.Name) (*ddl.Table, event.Position, error) {
	all, upto, err := n.cat.tables(n.r.hideGTIDs, n.scope, &t, n.touched)
	if refused(err) {
		return nil, upto, fmt.Errorf("%w: %w", schema.ErrNoTable, err)
	}
	if err != nil {
		return nil, upto, err
	}
	if d := all[t]; d != nil {
		return d, upto, nil
	}
	return nil, upto, schema.ErrNoTable
}

func (n *names) scope(name string) bool { return n.r.c.tables(n.sv).MatchSchema(name) }

// listed is ddl.Tables for finding out which of some tables a statement touches.
type listed map[ddl.Name]*ddl.Table

func (listed) Lookup(ddl.Name) (ddl.State, *ddl.Table) { return ddl.Unknown, nil }

func (l listed) Names(schema string) (out []ddl.Name) {
	for n := range l {
		if n.Table != "" && (schema == "" || n.Schema == schema) {
			out = append(out, n)
		}
	}
	return out
}

// touched returns the tables and databases that statements between two places may have changed. all are those that may be
// meant where a statement cannot be read.
func (n *names) touched(from, to event.Position, all map[ddl.Name]*ddl.Table) (map[ddl.Name]bool, error) {
	found := map[ddl.Name]bool{}
	err := n.Scan(from, to, func(st *binlog.Statement) {
		for _, t := range ddl.Touched(schema.StatementOf(st, n.charsets), n.sv.ddl(), listed(all)) {
			found[t] = true
		}
	})
	return found, err
}

// Scan implements schema.Source.
func (n *names) Scan(from, to event.Position, tell func(*binlog.Statement)) error {
	return n.scan(from, to, func(st *binlog.Statement) error {
		tell(st)
		return nil
	})
}

func (n *names) scan(from, to event.Position, tell func(*binlog.Statement) error) error {
	if from.Reached(&to) {
		return nil
	}
	c, ctx := n.r.c, n.ctx
	s, err := c.dial(ctx, n.addr)
	if err != nil {
		return err
	}
	defer s.close()
	end, err := c.latest(ctx, s, n.sv)
	if err != nil {
		return err
	}
	reached := end.Reached(&to)
	if !reached && !to.GTIDs.IsEmpty() {
		has, part, err := s.done(ctx, n.sv, to.GTIDs)
		if err != nil {
			return err
		}
		reached = has.ContainsSet(part)
	}
	if !reached { // else we would wait for what may never come
		return fmt.Errorf("%s: the log ends at %s:%d (%s), before %s:%d (%s), up to which statements are looked for", n.addr, end.File, end.Offset, end.GTIDs.String(), to.File, to.Offset, to.GTIDs.String())
	}
	n.at = from
	at := &n.at
	at.GTIDs = from.GTIDs.Clone()
	begin := n.at
	if begin.GTIDs.IsEmpty() && begin.Offset > math.MaxUint32 {
		begin.Offset = 4 // the dump command has 32 bits
	}
	if err := c.dump(ctx, s, n.sv, c.identity(scanSlot+n.r.id.slot), begin); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	stream := c.stream(ctx, s, &c.state.bytes)
	if begin.Offset != at.Offset {
		if err := c.skipTo(stream, at.File, at.Offset); err != nil {
			return err
		}
	}
	m := binlog.NewMachine(binlog.Options{
		Destination: c.opt.Destination, ServerUUID: n.sv.uuid, Server: n.sv.ddl(), Charsets: n.charsets, Match: func(string, string) bool { return false }, Scan: true,
		Tables: tap{tell}, HideGTIDs: n.r.hideGTIDs, Position: n.at, MaxEvent: c.opt.MaxEvent, OnLarge: c.onLarge,
		Emit: func(e *event.Event) error {
			if e.Kind == event.End {
				at.GTIDs.Add(e.Txn.GTID)
			}
			return nil
		},
	})
	defer m.Close()
	for {
		raw, err := next(stream)
		if err != nil {
			return err
		}
		if err := m.Feed(&raw); err != nil {
			return err
		}
		if m.Open() {
			continue
		}
		at.ServerUUID = n.sv.uuid
		at.File, at.Offset = m.Position()
		if at.Reached(&to) {
			return nil
		}
	}
}

// view returns the schema history as this reader sees it, complete up to where it starts.
func (n *names) view() (*schema.View, error) {
	r := n.r
	h := r.history
	if err := h.Load(n.ctx); err != nil {
		return nil, r.c.stopOf(err)
	}
	if kept := r.c.opt.History; kept != nil && kept != h { // I5
		if err := kept.Load(n.ctx); err != nil {
			return nil, r.c.stopOf(err)
		}
		if any, _ := kept.PassesOver(ddl.Name{}); any {
			return nil, r.c.stop("rows have been passed over (on_table_error), which only the schema history tells, and schema: log does without it",
				"set schema: history again; or, if every sink stands behind those rows, stop in order and run: binlogmq schema forget", nil)
		}
	}
	o := schema.ViewOptions{Source: n, Server: n.sv.ddl(), Scope: n.scope, Charsets: n.charsets, Logger: r.c.log, Nameless: !r.full}
	v, err := h.Open(r.last, o, schema.Opening{
		Here:  func() event.Position { return n.at },
		Holds: n.holds,
		Gap: func(from event.Position, tell func(*binlog.Statement) error) error {
			err := n.scan(from, r.last, tell)
			var stop *StopError
			if errors.As(r.c.judge(err), &stop) {
				r.c.log.Warn("statements since the schema history was saved cannot be read; it is made anew", "error", err)
				return schema.ErrNoGap
			}
			return err
		},
		Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) {
			if r.c.opt.SchemaFrom == schema.FromLog {
				return nil, r.last, nil // looked up when a row comes, for what the log does not tell
			}
			all, at, err := n.cat.tables(r.hideGTIDs, n.scope, nil, n.touched)
			if r.full && errors.Is(err, schema.ErrTooLarge) {
				r.c.log.Warn("there are more tables than are read at once; what the log does not tell of a table is looked up when a row of it comes", "error", err)
				return nil, r.last, nil
			}
			if err == nil {
				r.c.log.Info("table definitions are read", "tables", len(all), "file", at.File, "offset", at.Offset, "gtids", at.GTIDs.String())
			}
			return all, at, err
		},
	})
	return v, r.c.stopOf(err)
}

// holds tells whether the log has a place of the schema history. It is not the log of before when it ends earlier, when
// transactions are missing, or when no event begins there.
func (n *names) holds(p event.Position) (held bool, err error) {
	err = n.cat.ask(func(s *session) (err error) {
		held, err = n.r.c.holds(n.ctx, s, n.sv, &p)
		return err
	})
	if err == nil && !held {
		n.r.c.log.Warn("the source's log does not have the place up to which the schema history reaches, as it was begun anew or is another server's: the history is made anew",
			"file", p.File, "offset", p.Offset, "gtids", p.GTIDs.String())
	}
	return held, err
}

// stopOf gives a stop the destination's name.
func (c *Connector) stopOf(err error) error {
	var stop *StopError
	if errors.As(err, &stop) && stop.Destination == "" {
		return c.stop(stop.What, stop.Remedy, stop.Err)
	}
	return err
}
