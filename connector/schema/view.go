package schema

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// ErrNoTable is returned by a Source that can tell that the table is not
// there or may not be looked at.
var ErrNoTable = errors.New("the table is gone or may not be looked at")

// Source answers the questions of a [View].
type Source interface {
	// Here returns the last transaction end before what is being read.
	Here() (event.Position, error)

	// Describe returns the table as information_schema shows it, and a place in the log up to which that holds. It fails with ErrNoTable
	// (wrapped or not) when asking again would not help; any other error means that nobody knows.
	Describe(ddl.Name) (*ddl.Table, event.Position, error)

	// Scan tells of every DDL statement that is logged between two places, in order.
	Scan(from, to event.Position, tell func(*binlog.Statement)) error
}

// View is a history as one reader sees it at the place where it is. Not for concurrent use.
type View struct {
	h        *History
	src      Source
	srv      ddl.Server
	scope    func(schema string) bool
	charsets map[uint32]string
	log      *slog.Logger
	nameless bool

	start  event.Position
	behind bool                  // the reader may stand before the place where base was read
	ahead  map[ddl.Name]int      // statements that touch a table between the reader and that place; nil: not known
	cur    map[ddl.Name]*version // nil: none
	said   string                // the last statement, by placeOf
}

// ViewOptions are those of a View.
type ViewOptions struct {
	Source   Source
	Server   ddl.Server
	Scope    func(schema string) bool // schemas that are followed; nil: all
	Charsets map[uint32]string        // collation id -> character set, as the server has them
	Logger   *slog.Logger             // nil: nothing is logged

	// Nameless: the log has no column names, so that rows need definitions that are proven.
	Nameless bool
}

// View returns what a reader sees that starts at a transaction end.
func (h *History) View(start event.Position, o ViewOptions) *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &View{h: h, src: o.Source, srv: o.Server, scope: o.Scope, charsets: o.Charsets, log: o.Logger, nameless: o.Nameless, start: start, cur: map[ddl.Name]*version{}}
	v.start.GTIDs = start.GTIDs.Clone()
	v.behind = h.known && !start.Reached(&h.at)
	if v.scope == nil {
		v.scope = func(string) bool { return true }
	}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	return v
}

// at returns the version that holds for a name; nil: what base says. h.mu is held.
func (v *View) at(n ddl.Name) *version {
	if x, ok := v.cur[n]; ok {
		return x
	}
	var x *version
	for _, y := range v.h.lists[n] {
		if y.within(&v.start) {
			x = y
		}
	}
	v.cur[n] = x
	return x
}

// Lookup implements ddl.Tables. h.mu is held.
func (v *View) Lookup(n ddl.Name) (ddl.State, *ddl.Table) {
	if !v.h.known || !v.follows(n.Schema) {
		return ddl.Unknown, nil
	}
	if x := v.at(n); x != nil {
		return x.State, x.Def
	}
	if v.behind && (v.ahead == nil || v.ahead[n] > 0) {
		return ddl.Unknown, nil
	}
	if t, ok := v.h.base[n]; ok {
		return ddl.Known, t
	}
	// I6: that a table is not there is known only where its database has been looked at, or was made or dropped in the log since. Other
	// databases may have come into the scope after base was read.
	if n.Table != "" {
		if s, _ := v.Lookup(ddl.Name{Schema: n.Schema}); s != ddl.Unknown {
			return ddl.Absent, nil
		}
	}
	return ddl.Unknown, nil
}

// follows reports whether statements about a schema are kept: it is captured, or any reader of the destination has followed it. h.mu is held.
func (v *View) follows(schema string) bool {
	n := ddl.Name{Schema: schema}
	return v.scope(schema) || v.h.base[n] != nil || len(v.h.lists[n]) > 0
}

// Names implements ddl.Tables. h.mu is held.
func (v *View) Names(schema string) []ddl.Name {
	var out []ddl.Name
	for n := range v.all() {
		if (schema == "" || n.Schema == schema) && n.Table != "" {
			if s, _ := v.Lookup(n); s != ddl.Absent {
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

// all returns every name of which something is known.
func (v *View) all() map[ddl.Name]bool {
	m := make(map[ddl.Name]bool, len(v.h.base)+len(v.h.lists))
	for n := range v.h.base {
		m[n] = true
	}
	for n := range v.h.lists {
		m[n] = true
	}
	return m
}

// nameless is ddl.Tables for finding out which tables a statement touches, whatever they were.
type nameless struct{ v *View }

func (t nameless) Lookup(n ddl.Name) (ddl.State, *ddl.Table) { return ddl.Unknown, nil }

func (t nameless) Names(schema string) []ddl.Name {
	var out []ddl.Name
	for n := range t.v.all() {
		if (schema == "" || n.Schema == schema) && n.Table != "" {
			out = append(out, n)
		}
	}
	return out
}

// StatementOf returns a logged statement as package ddl reads it. charsets names the sets of the source's collations.
func StatementOf(st *binlog.Statement, charsets map[uint32]string) *ddl.Statement {
	return &ddl.Statement{
		Text: strings.ToValidUTF8(string(st.Text), "\uFFFD"), Schema: string(st.Schema), SQLMode: st.SQLMode, Charset: charsets[uint32(st.Collation)],
		Connection: charsets[uint32(st.Connection)], Version: st.Version, Temporary: st.Temporary, Error: st.Error,
	}
}

func (v *View) statement(st *binlog.Statement) *ddl.Statement { return StatementOf(st, v.charsets) }

// touched returns the tables and databases that a statement may change.
func (v *View) touched(st *binlog.Statement) []ddl.Name {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return ddl.Touched(v.statement(st), v.srv, nameless{v})
}

// pass notes whether the reader has come to the place where base was read.
func (v *View) pass() error {
	if !v.behind {
		return nil
	}
	here, err := v.src.Here()
	if err != nil {
		return err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	v.behind = !here.Reached(&v.h.at)
	return nil
}

// Changed takes a statement that the reader has come to. What it makes of tables is found in the history if
// any reader has been there before, else it is added (I5).
func (v *View) Changed(st *binlog.Statement) error {
	if err := v.pass(); err != nil {
		return err
	}
	if err := v.ends(st); err != nil {
		return err
	}
	if err := v.prepare(st); err != nil {
		return err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	if !v.h.known {
		return nil
	}
	place := placeOf(st.GTID, st.ServerUUID, st.File, st.Start)
	if old := v.h.places[place]; len(old) > 0 {
		for _, x := range old {
			v.cur[x.name()] = x
		}
	} else {
		for _, c := range ddl.Apply(v.statement(st), v.srv, v) {
			v.add(st, &c)
		}
	}
	st.Defined = v.defined(v.h.places[place])
	if v.behind && v.ahead != nil {
		for _, n := range ddl.Touched(v.statement(st), v.srv, nameless{v}) {
			v.ahead[n] = max(v.ahead[n]-1, 0)
			// Between here and the place where base was read nothing changes the table: what base says is so.
			if x := v.cur[n]; v.ahead[n] == 0 && x != nil && x.State == ddl.Unknown {
				v.settle(x)
			}
		}
	}
	return nil
}

// prepare finds out what was before a statement if rows will depend on what it makes of that: a new table has the character set of its database.
func (v *View) prepare(st *binlog.Statement) error {
	if !v.nameless || !v.behind || v.ahead != nil {
		return nil
	}
	followed := func(n ddl.Name) bool {
		v.h.mu.Lock()
		defer v.h.mu.Unlock()
		return v.follows(n.Schema)
	}
	if !slices.ContainsFunc(v.touched(st), followed) {
		return nil
	}
	here, err := v.src.Here()
	if err != nil {
		return err
	}
	return v.lookAhead(here)
}

// settle makes what base says of an unknown version. h.mu is held.
func (v *View) settle(x *version) {
	if t, ok := v.h.base[x.name()]; ok {
		x.State, x.Def = ddl.Known, t
		v.h.changes++
	}
}

// add adds what a statement made of a table. h.mu is held.
func (v *View) add(st *binlog.Statement, c *ddl.Change) {
	if !v.follows(c.Name.Schema) {
		return
	}
	before := v.at(c.Name)
	if s, _ := v.Lookup(c.Name); s == ddl.Absent && c.State == ddl.Absent {
		return
	}
	x := &version{
		Schema: c.Name.Schema, Table: c.Name.Table, GTID: st.GTID, Server: st.ServerUUID, File: st.File, Start: st.Start, End: st.Next,
		State: c.State, Def: c.Table, Late: c.State == ddl.Unknown,
	}
	if s, _ := v.Lookup(c.Name); s == ddl.Known {
		x.Before = before == nil || !before.Looked && !before.Late
	}
	if x.State != ddl.Known {
		x.Def = nil
	}
	v.insert(x, before)
	v.h.places[x.place()] = append(v.h.places[x.place()], x)
	if x.State == ddl.Unknown && c.Name.Table != "" {
		v.log.Debug("a statement leaves a table's definition to be looked up", "table", c.Name.String(), "file", st.File, "offset", st.Start)
	}
}

// insert puts a version behind another one, which may be nil, and makes it the present one. h.mu is held.
func (v *View) insert(x, before *version) {
	n := x.name()
	list := v.h.lists[n]
	i := 0
	if before != nil {
		i = slices.Index(list, before) + 1
	}
	v.h.lists[n] = slices.Insert(list, i, x)
	v.cur[n] = x
	v.h.added++
	v.h.changes++
}

// found takes over what was looked up for a reader that stood here or before, and behind the same statement. h.mu is held.
func (v *View) found(n ddl.Name, here *event.Position) *version {
	x := v.at(n)
	list := v.h.lists[n]
	for i := slices.Index(list, x) + 1; i < len(list) && list[i].Looked && list[i].within(here); i++ {
		x = list[i]
		v.cur[n] = x
	}
	return x
}

// def returns what is known of a table where the reader stands; which tells one definition from another.
func (v *View) def(n ddl.Name) (state ddl.State, t *ddl.Table) {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return v.Lookup(n)
}

// enrichment returns a definition for a table that the log itself describes, nil if there is none.
// It is the same in each replay, not proven to be of this place.
func (v *View) enrichment(n ddl.Name) (*ddl.Table, error) {
	v.h.mu.Lock()
	x := v.at(n)
	base := v.h.base[n]
	v.h.mu.Unlock()
	switch {
	case x != nil && x.Def != nil:
		return x.Def, nil
	case x == nil && base != nil:
		return base, nil
	}
	here, err := v.src.Here()
	if err != nil {
		return nil, err
	}
	v.h.mu.Lock()
	x = v.found(n, &here)
	v.h.mu.Unlock()
	if x != nil && x.Def != nil {
		return x.Def, nil
	}
	t, _, err := v.src.Describe(n)
	if err != nil {
		if errors.Is(err, ErrNoTable) {
			return nil, nil
		}
		return nil, err
	}
	v.remember(n, t, ddl.Unknown, &here)
	return t, nil
}

// remember makes a definition that was looked up part of the history: as Known where it is proven, else as Unknown.
func (v *View) remember(n ddl.Name, t *ddl.Table, state ddl.State, here *event.Position) {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	if !v.h.known || !v.follows(n.Schema) {
		return
	}
	x := v.at(n)
	if x != nil && x.State == ddl.Unknown && (!x.Looked || state == ddl.Unknown) {
		x.State, x.Def = state, t
		v.h.changes++
		return
	}
	// I6: it holds from here on, not where base was read.
	v.insert(&version{Schema: n.Schema, Table: n.Table, Server: here.ServerUUID, File: here.File, Start: here.Offset, End: here.Offset, State: state, Def: t, Looked: true}, x)
}

// resolve finds the definition of a table that the log names but the history does not know, if it can be proven that it holds
// where the reader stands (I6). agree tells why it cannot be that of the log.
func (v *View) resolve(n ddl.Name, remedy string, agree func(*ddl.Table) error) (*ddl.Table, error) {
	here, err := v.src.Here()
	if err != nil {
		return nil, err
	}
	if err := v.pass(); err != nil {
		return nil, err
	}
	if v.behind && v.ahead == nil {
		if err := v.lookAhead(here); err != nil {
			return nil, err
		}
	}
	v.h.mu.Lock()
	v.found(n, &here)
	v.h.mu.Unlock()
	if s, t := v.def(n); s == ddl.Known {
		return t, agree(t)
	}
	t, upto, err := v.src.Describe(n)
	if err != nil {
		if errors.Is(err, ErrNoTable) {
			return nil, stop("the log has no column names and no definition of the table is known", "grant SELECT on it; "+remedy, err)
		}
		return nil, err
	}
	place, own := "", ""
	v.h.mu.Lock()
	if x := v.at(n); x != nil && !x.Looked {
		own = x.place()
	}
	v.h.mu.Unlock()
	if !here.Reached(&upto) {
		err = v.src.Scan(here, upto, func(st *binlog.Statement) {
			if p := placeOf(st.GTID, st.ServerUUID, st.File, st.Start); p != own && slices.Contains(v.touched(st), n) {
				place = fmt.Sprintf("%s:%d", st.File, st.Start)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if place != "" {
		return nil, stop("the log has no column names, and the table was altered again after these rows (at "+place+") before anybody looked at it", remedy, nil)
	}
	if err := agree(t); err != nil {
		return nil, err
	}
	v.remember(n, t, ddl.Known, &here)
	return t, nil
}

// lookAhead counts the statements between the reader and the place where base was read.
func (v *View) lookAhead(here event.Position) error {
	v.h.mu.Lock()
	to := v.h.at
	v.h.mu.Unlock()
	v.log.Info("looking ahead in the log for statements that altered tables before their definitions were read", "from_file", here.File, "from", here.Offset, "file", to.File, "offset", to.Offset)
	ahead := map[ddl.Name]int{}
	err := v.src.Scan(here, to, func(st *binlog.Statement) {
		for _, n := range v.touched(st) {
			ahead[n]++
		}
	})
	if err != nil {
		return err
	}
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	v.ahead = ahead
	for n, x := range maps.All(v.cur) {
		if x != nil && x.State == ddl.Unknown && ahead[n] == 0 {
			v.settle(x)
		}
	}
	return nil
}

// ErrNoGap is returned by Opening.Gap when the statements cannot be read any more.
var ErrNoGap = errors.New("the statements since the schema history was saved are gone")

// Opening is what a reader does to bring a history up to where it starts.
type Opening struct {
	// Gap tells of every statement between a place and the reader's start. It fails with ErrNoGap where they are gone.
	Gap func(from event.Position, tell func(*binlog.Statement) error) error

	// Here returns how far Gap has come, in transaction ends.
	Here func() event.Position

	// Holds tells whether the log still is the one that has this place. nil: it is.
	Holds func(event.Position) (bool, error)

	// Begin reads all definitions, with a place up to which they hold; none where each is to be looked up when it is needed.
	Begin func() (map[ddl.Name]*ddl.Table, event.Position, error)
}

// looking is the Source of a view that only looks at statements.
type looking struct {
	Source
	here func() event.Position
}

func (l looking) Here() (event.Position, error) { return l.here(), nil }

// Open brings the history up to start, if need be by making it anew, and returns what a reader sees there.
func (h *History) Open(start event.Position, o ViewOptions, op Opening) (*View, error) {
	h.opening.Lock()
	defer h.opening.Unlock()
	cover := h.covers(&start, o.Server)
	if cover != coverNothing && op.Holds != nil {
		// I6: a log that was begun anew tells of other statements at the same places.
		for _, p := range h.reach() {
			held, err := op.Holds(p)
			if err != nil {
				return nil, err
			}
			if !held {
				cover = coverNothing
				break
			}
		}
	}
	switch cover {
	case coverAll:
		return h.View(start, o), nil
	case coverGap:
		h.mu.Lock()
		from := h.read
		from.GTIDs = h.read.GTIDs.Clone()
		h.mu.Unlock()
		look := o
		look.Source, look.Nameless = looking{o.Source, op.Here}, false // the log is being read already
		err := op.Gap(from, h.View(from, look).Changed)
		if err == nil {
			h.Advance(start)
			return h.View(start, o), nil
		}
		if !errors.Is(err, ErrNoGap) {
			return nil, err
		}
	}
	base, at, err := op.Begin()
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = map[ddl.Name]*ddl.Table{}
	}
	h.begin(o.Server, start, at, base)
	return h.View(start, o), nil
}
