package connector

import (
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/schema"
)

// unreadEvery is how often a table whose rows are passed over is told of in the log; the counter has each of them.
const unreadEvery = time.Second

// maxTold bounds the tables of which it is remembered when they were told of last (I9).
const maxTold = 1024

// toldOf is what has not been told yet of a table.
type toldOf struct {
	at     time.Time
	events int64
	rows   int64
}

// unread returns what becomes of rows of tables that cannot be described; nil where they end reading.
func (r *reader) unread(b *schema.Builder) *binlog.UnreadOptions {
	if !r.c.opt.PassTables {
		return nil
	}
	told := map[string]*toldOf{}
	return &binlog.UnreadOptions{Decided: b.Decided, Decide: b.Decide, Tell: func(u *binlog.Unread) {
		if r.main {
			r.c.state.update(func(s *Status) { s.Unread += int64(u.Rows) })
		}
		name := u.Schema + "." + u.Table
		t := told[name]
		if t == nil {
			if len(told) >= maxTold {
				clear(told)
			}
			t = &toldOf{}
			told[name] = t
		}
		t.events++
		t.rows += int64(u.Rows)
		if time.Since(t.at) < unreadEvery {
			return
		}
		r.c.log.Warn("rows of a table that cannot be read are passed over, as on_table_error says: they are not published", "table", name, "rows", t.rows, "events", t.events,
			"why", u.Why.Reason(), "file", u.File, "offset", u.Start, "gtid", u.GTID.String())
		*t = toldOf{at: time.Now()}
	}}
}
