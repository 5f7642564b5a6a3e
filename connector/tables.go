package connector

import (
	"context"
	"iter"
	"strings"

	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// TableName names a table of the source.
type TableName struct {
	Schema, Table string
	Caseless      bool // as event.Table's
}

// Tables lists the captured tables that exist now and that the user may see, at most so
// many of them, in the order of their names.
func (c *Connector) Tables(ctx context.Context, most int) ([]TableName, error) {
	all, sv, err := c.captured(ctx)
	if err != nil {
		return nil, err
	}
	var out []TableName
	for schema, table := range all {
		if len(out) == most {
			break
		}
		out = append(out, TableName{schema, table, sv.caseless()})
	}
	return out, nil
}

// Unmet returns the patterns of some lists, each as Options.Tables has one, that are about no captured table that exists now and that the user may see; none
// where no table is captured, of which [Connector.Check] tells.
func (c *Connector) Unmet(ctx context.Context, lists ...[]string) (patterns []string, err error) {
	all, sv, err := c.captured(ctx)
	if err != nil {
		return nil, err
	}
	for range all {
		for _, list := range lists {
			f, err := tablefilter.New(list)
			if err != nil {
				return nil, err
			}
			patterns = append(patterns, f.For(sv.caseless()).Unmet(all)...)
		}
		break
	}
	return patterns, nil
}

// captured lists the captured tables that exist now and that the user may see.
func (c *Connector) captured(ctx context.Context) (iter.Seq2[string, string], *server, error) {
	s, sv, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	s.timeout = readTimeout
	all, err := s.tableNames(ctx)
	if err != nil {
		return nil, nil, err
	}
	tables := c.tables(sv)
	return func(yield func(string, string) bool) {
		for schema, table := range all {
			if tables.Match(schema, table) && !yield(schema, table) {
				return
			}
		}
	}, sv, nil
}

// tableNames lists all tables that the user may see, by schema and name.
func (s *session) tableNames(ctx context.Context) (iter.Seq2[string, string], error) {
	r, err := s.query(ctx, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE','SYSTEM VERSIONED') ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	return func(yield func(string, string) bool) {
		for i := range r.rows() {
			if !yield(r.text(i, 0), r.text(i, 1)) {
				return
			}
		}
	}, nil
}

// tellSight warns of what the account may see of the captured tables, of which nothing fails: see tellUnmet and tellUnseen. It has a session of its own, as
// old servers take long to list many tables.
func (c *Connector) tellSight(ctx context.Context, addr string, sv *server) {
	s, err := c.dial(ctx, addr)
	if err != nil {
		return
	}
	defer s.close()
	s.timeout = readTimeout
	c.tellUnseen(ctx, s, sv)
	c.tellUnmet(ctx, s, sv)
}

// tellUnseen warns where types are taken for others: MariaDB's log tells names, but no UUID from the bytes in which it is stored. Without names
// reading stops at such tables.
func (c *Connector) tellUnseen(ctx context.Context, s *session, sv *server) {
	if !sv.mariaDB || sv.vars["binlog_row_metadata"] != "FULL" {
		return
	}
	may, err := s.sight(ctx, sv)
	if err != nil {
		return
	}
	tables := c.tables(sv)
	if grants := may.unseen(tables, tables, c.accountName()); len(grants) > 0 {
		c.log.Warn("the account may not see all that is captured: there columns of the types UUID, INET4 and INET6, which the log does not tell, are published as the bytes that are stored",
			"user", c.opt.User, "remedy", strings.Join(grants[:min(len(grants), mostNamed)], "; "))
	}
}

// tellUnmet warns where of the tables that there are none is captured: names, and what patterns are, are easily mistaken, and a destination that
// reads nothing looks as healthy as an idle one. An account that sees no table cannot know.
func (c *Connector) tellUnmet(ctx context.Context, s *session, sv *server) {
	tables := c.tables(sv)
	if captures, sees, err := c.captures(ctx, s, tables); err == nil && !captures && sees {
		c.log.Warn("no table that is there is captured: nothing is published until there is one", "tables", strings.Join(tables.Patterns(), ", "), "user", c.opt.User,
			"remedy", "look whether tables names databases and tables as they are; binlogmq check tells which pattern meets none")
	}
}

// mostViews is of how many captured names of a database it is asked at most whether they are tables: of more it is taken for granted that one is.
const mostViews = 100

// captures tells whether a table that is there is captured, and else whether the account sees any but the server's own. It asks for names only, a database at a time, for which
// no server opens tables, keeps few of them (I9), and ends with the database in which it has found one.
func (c *Connector) captures(ctx context.Context, s *session, tables *tablefilter.Filter) (captures, sees bool, err error) {
	r, err := s.query(ctx, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
	if err != nil {
		return false, false, err
	}
	const list = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA="
	for i := range r.rows() {
		schema := r.text(i, 0)
		if !tables.MatchSchema(schema) {
			continue
		}
		var names []string
		if err := s.each(ctx, list+literal(schema), func(name string) bool {
			sees = sees || !tablefilter.IsSystem(schema)
			if tables.Match(schema, name) {
				names = append(names, name)
			}
			return len(names) < mostViews
		}); err != nil {
			return false, sees, err
		}
		if len(names) == mostViews {
			return true, sees, nil
		}
		for _, name := range names {
			r, err := s.query(ctx, "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA="+literal(schema)+" AND TABLE_NAME="+literal(name)+" AND TABLE_TYPE IN ('BASE TABLE','SYSTEM VERSIONED')")
			if err != nil || r.rows() > 0 {
				return err == nil, sees, err
			}
		}
	}
	for i := 0; i < r.rows() && !sees; i++ {
		if schema := r.text(i, 0); !tables.MatchSchema(schema) && !tablefilter.IsSystem(schema) {
			found, err := s.query(ctx, list+literal(schema)+" LIMIT 1")
			if err != nil {
				return false, false, err
			}
			sees = found.rows() > 0
		}
	}
	return false, sees, nil
}
