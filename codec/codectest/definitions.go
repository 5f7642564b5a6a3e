package codectest

import (
	"context"
	"errors"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/event"
)

// nobody is a schema.Source that knows nothing.
type nobody struct{}

func (nobody) Here() (event.Position, error) { return event.Position{}, errors.New("nobody knows") }

func (nobody) Describe(ddl.Name) (*ddl.Table, event.Position, error) {
	return nil, event.Position{}, errors.New("nobody knows")
}

func (nobody) Scan(_, _ event.Position, _ func(*binlog.Statement)) error {
	return errors.New("nobody knows")
}

// kept is a schema.Keeper that keeps nothing.
type kept struct{}

func (kept) Load(context.Context) ([]byte, error) { return nil, nil }

func (kept) Save(context.Context, []byte) error { return nil }

func (kept) Cursors(context.Context) ([]event.Position, error) { return nil, nil }

// Statements returns the DDL events of statements in a database of a MySQL, which is empty before the first and is followed by a schema history:
// they know tables' definitions.
func Statements(t testing.TB, database string, statements ...string) []*event.Event {
	t.Helper()
	start := event.Position{File: "binlog.000007", Offset: 4, ServerUUID: Txn.ServerUUID}
	view, err := schema.NewHistory(kept{}).Open(start, schema.ViewOptions{Source: nobody{}, Server: ddl.Server{Version: 90700}}, schema.Opening{
		Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) {
			return map[ddl.Name]*ddl.Table{{Schema: database}: {Charset: "utf8mb4"}}, start, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []*event.Event
	for i, sql := range statements {
		e := DDL(database, sql)
		at := uint64(i+1) * 1000
		st := &binlog.Statement{Text: e.Raw, Schema: []byte(database), ServerUUID: start.ServerUUID, File: start.File, Start: at, Next: at + 1000}
		if err := view.Changed(st); err != nil {
			t.Fatal(err)
		}
		e.Stmt.Defined = st.Defined
		out = append(out, e)
	}
	return out
}
