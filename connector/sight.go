package connector

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// sight is what an account may read. information_schema does not list what it may not see, so that only this tells whether all is listed.
type sight struct {
	all              bool // but what is revoked
	granted, revoked []tablefilter.Range
	literal          bool // % and _ in names of databases stand for themselves
	caseless         bool
}

// grantLine takes a line of SHOW GRANTS that is about tables apart.
var grantLine = regexp.MustCompile("^(GRANT|REVOKE) (.*?) ON (?:TABLE )?(\\*|`(?:[^`]|``)+`)\\.(\\*|`(?:[^`]|``)+`) (?:TO|FROM) ")

var (
	grantColumns = regexp.MustCompile(`\([^)]*\)`)
	grantSelect  = regexp.MustCompile(`(?:^|,) ?(?:SELECT|ALL|ALL PRIVILEGES)(?:,|$)`)
)

// add reads a line of SHOW GRANTS. What is granted for columns only does not count: such a table is not read as a whole.
func (s *sight) add(line string) {
	m := grantLine.FindStringSubmatch(line)
	if m == nil || !grantSelect.MatchString(grantColumns.ReplaceAllString(m[2], "()")) {
		return
	}
	name := func(quoted string) string {
		quoted = strings.ReplaceAll(strings.Trim(quoted, "`"), "``", "`")
		if s.caseless {
			quoted = strings.ToLower(quoted)
		}
		return quoted
	}
	switch {
	case m[1] == "REVOKE": // from what is granted everywhere
		s.revoked = append(s.revoked, tablefilter.One(name(m[3]), ""))
	case m[3] == "*":
		s.all = true
	case m[4] != "*":
		s.granted = append(s.granted, tablefilter.One(name(m[3]), name(m[4])))
	case s.literal:
		s.granted = append(s.granted, tablefilter.One(name(m[3]), ""))
	default:
		s.granted = append(s.granted, tablefilter.LikeSchema(name(m[3])))
	}
}

// sees tells whether all tables of a range may be read.
func (s *sight) sees(r tablefilter.Range) bool {
	if slices.ContainsFunc(s.granted, r.Within) {
		return true
	}
	return s.all && !slices.ContainsFunc(s.revoked, r.Meets)
}

// unseen returns what patterns of both filters take in and the account may not read, as it would be granted.
func (s *sight) unseen(captured, wanted *tablefilter.Filter, account string) (grants []string) {
	add := func(r tablefilter.Range) {
		schema, table := r.Names()
		on := "*.*"
		switch like := r.SchemaLike(); {
		case tablefilter.IsSystem(schema):
			return // snapshots do not read these
		case schema != "" && table != "":
			on = snapshot.Quote(schema) + "." + snapshot.Quote(table)
		case schema != "":
			on = snapshot.Quote(schema) + ".*"
		case like != "%" && !s.literal && !strings.ContainsRune(like, '`'):
			on = "`" + like + "`.*"
		}
		if g := "GRANT SELECT ON " + on + " TO " + account; !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	for _, c := range captured.Ranges() {
		for _, w := range wanted.Ranges() {
			switch {
			case !c.Meets(w) || s.sees(c) || s.sees(w):
			case w.Within(c):
				add(w)
			default:
				add(c)
			}
		}
	}
	return grants
}

// sight asks the server what the account may read. What it may by roles counts where they are active, as only those count for a SELECT.
func (s *session) sight(ctx context.Context, sv *server) (*sight, error) {
	out := &sight{caseless: sv.caseless()}
	r, err := s.query(ctx, "SHOW VARIABLES LIKE 'partial\\_revokes'")
	if err != nil {
		return nil, err
	}
	out.literal = r.rows() > 0 && r.text(0, 1) == "ON"
	for _, q := range []string{"SHOW GRANTS", "SHOW GRANTS FOR PUBLIC"} {
		r, err := s.query(ctx, q)
		if q != "SHOW GRANTS" && serverCode(err) != 0 {
			break // it knows no PUBLIC, or this one has got nothing
		}
		if err != nil {
			return nil, err
		}
		for i := range r.rows() {
			out.add(r.text(i, 0))
		}
		if !sv.mariaDB {
			break
		}
	}
	return out, nil
}
