package connector

import (
	"log/slog"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/schema"
)

// unreadEvery is how often a table whose rows are passed over is told of in the log; the counter has each of them.
const unreadEvery = time.Second

// maxTold bounds the tables of which it is remembered when they were told of last (I9).
const maxTold = 1024

// toldOf is what has not been told yet of a table, and the last event of it.
type toldOf struct {
	at     time.Time
	events int64
	rows   int64
	last   binlog.Unread
}

// unreadRows tells of rows that are passed over. Not for concurrent use.
type unreadRows struct {
	log  *slog.Logger
	told map[string]*toldOf
}

// take takes a rows event that is passed over.
func (w *unreadRows) take(u *binlog.Unread) {
	name := u.Schema + "." + u.Table
	t := w.told[name]
	if t == nil {
		if len(w.told) >= maxTold {
			w.rest()
		}
		t = &toldOf{}
		w.told[name] = t
	}
	t.events++
	t.rows += int64(u.Rows)
	t.last = *u
	if time.Since(t.at) >= unreadEvery {
		w.tell(name, t)
	}
}

func (w *unreadRows) tell(name string, t *toldOf) {
	u := &t.last
	w.log.Warn("rows of a table that cannot be read are passed over (on_table_error; also those that could not be read when they came first): they are not published", "table", name, "rows", t.rows, "events", t.events,
		"why", u.Why.Reason(), "file", u.File, "offset", u.Start, "gtid", u.GTID.String())
	*t = toldOf{at: time.Now()}
}

// due tells what has waited long enough (I3: the last of a burst, too).
func (w *unreadRows) due() {
	for name, t := range w.told {
		if t.events > 0 && time.Since(t.at) >= unreadEvery {
			w.tell(name, t)
		}
	}
}

// rest tells all that is left, and forgets the tables.
func (w *unreadRows) rest() {
	for name, t := range w.told {
		if t.events > 0 {
			w.tell(name, t)
		}
	}
	clear(w.told)
}

// unread returns what becomes of rows of tables that cannot be described. I5: what has been decided holds whatever is configured now.
func (r *reader) unread(b *schema.Builder) *binlog.UnreadOptions {
	o := &binlog.UnreadOptions{Decided: b.Decided, Tell: func(u *binlog.Unread) {
		if r.main {
			r.c.state.update(func(s *Status) { s.Unread += int64(u.Rows) })
		}
		r.passing.take(u)
	}}
	if r.c.opt.PassTables {
		o.Decide = b.Decide
	}
	return o
}
