package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/killpoint"
)

// Keeper saves a history beside the cursors of its destination.
type Keeper interface {
	// Load returns what was saved; nil when nothing is.
	Load(ctx context.Context) ([]byte, error)

	// Save replaces what is saved; when it returns nil the data survives a crash.
	Save(ctx context.Context, data []byte) error

	// Cursors returns the places of all saved cursors.
	Cursors(ctx context.Context) ([]event.Position, error)
}

// Limits of a history.
const (
	// maxHistory bounds an encoded history, in bytes: some 300,000 columns.
	maxHistory = 48 << 20

	// compactAfter is how many versions may be added before those that no cursor needs are looked for.
	compactAfter = 256

	// historyFormat is the number of the format; a change of the fields' meaning is a new one.
	historyFormat = 1
)

// ErrTooLarge: a history takes more than is kept. Errors of a Keeper say so, too.
var ErrTooLarge = errors.New("the schema history is too large")

// History is what is known of a destination's tables at each place in its log: what information_schema
// showed at one place, and a version for each later statement that changed a table. Versions are immutable once rows
// have been decoded with them, so that every replay decodes alike (I5, I6). It is safe for concurrent use; readers
// look at it through a [View].
type History struct {
	keeper Keeper // nil: nothing outlives the process

	opening sync.Mutex // held while a reader brings it up to its start; taken before the others
	saving  sync.Mutex // held while it is saved; taken before mu

	mu     sync.Mutex
	loaded bool
	known  bool           // at, read and base are
	srv    ddl.Server     // Version is that of the server that answers now
	at     event.Position // where base was read
	read   event.Position // every statement up to here has been looked at
	base   map[ddl.Name]*ddl.Table
	lists  map[ddl.Name][]*version
	places map[string][]*version // by the statement

	decisions map[ddl.Name][]*decision // rows that are passed over; they outlive all else that is known (I5)

	added   int // versions since the last compaction
	changes int64
	saved   int64
	loose   bool // it is not saved any more
}

// version is what one statement made of one table.
type version struct {
	Schema string     `json:"schema"`
	Table  string     `json:"table,omitempty"`
	GTID   event.GTID `json:"gtid,omitzero"`
	Server string     `json:"server"`
	File   string     `json:"file"`
	Start  uint64     `json:"start"`
	End    uint64     `json:"end"`
	State  ddl.State  `json:"state"`
	Def    *ddl.Table `json:"definition,omitempty"` // of an unknown one: what was looked up without proof, for what names do not depend on

	// Looked: no statement made it; it was looked up for a reader at End.
	Looked bool `json:"looked_up,omitempty"`

	// What is told with the statement itself must be the same in each replay (I5), whatever is found out later.
	Before bool `json:"before,omitempty"` // what the table was before was known when the statement was first read
	Late   bool `json:"late,omitempty"`   // what it became was not
}

func (v *version) name() ddl.Name { return ddl.Name{Schema: v.Schema, Table: v.Table} }

func (v *version) place() string { return placeOf(v.GTID, v.Server, v.File, v.Start) }

func placeOf(g event.GTID, server, file string, start uint64) string {
	if !g.IsZero() {
		return g.String()
	}
	return fmt.Sprintf("%s %s:%d", server, file, start)
}

// within reports whether whoever stands at pos has read the statement.
func (v *version) within(pos *event.Position) bool {
	if !v.GTID.IsZero() && !pos.GTIDs.IsEmpty() {
		return pos.GTIDs.Contains(v.GTID)
	}
	return pos.Reached(&event.Position{File: v.File, Offset: v.End, ServerUUID: v.Server})
}

// NewHistory returns a History that is loaded from k when it is first used. k may be nil.
func NewHistory(k Keeper) *History {
	h := &History{keeper: k, decisions: map[ddl.Name][]*decision{}}
	h.clear()
	return h
}

func (h *History) clear() {
	h.known, h.added = false, 0
	h.at, h.read = event.Position{}, event.Position{}
	h.base = map[ddl.Name]*ddl.Table{}
	h.lists = map[ddl.Name][]*version{}
	h.places = map[string][]*version{}
}

// Load reads what is saved, once.
func (h *History) Load(ctx context.Context) error {
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loaded || h.keeper == nil {
		return nil
	}
	data, err := h.keeper.Load(ctx)
	if err != nil {
		return err
	}
	if data != nil {
		if err := h.decode(data); err != nil {
			h.clear()
			return &binlog.StopError{What: "the saved schema history cannot be used", Remedy: "restore it from a backup, or have it made anew with: binlogmq schema forget", Err: err}
		}
	}
	h.loaded = true
	return nil
}

// Save saves what has changed, and read as the place up to which every statement has been looked at. A zero read leaves that as it is.
func (h *History) Save(ctx context.Context, read event.Position) error {
	h.saving.Lock()
	defer h.saving.Unlock()
	h.mu.Lock()
	if !h.known || h.keeper == nil {
		h.mu.Unlock()
		return nil
	}
	h.advance(&read)
	if h.changes == h.saved {
		h.mu.Unlock()
		return nil
	}
	compact := h.added >= compactAfter
	h.mu.Unlock()
	var cursors []event.Position
	if compact {
		var err error
		if cursors, err = h.keeper.Cursors(ctx); err != nil {
			return fmt.Errorf("schema history: %w", err)
		}
	}
	h.mu.Lock()
	if compact {
		h.compact(cursors)
	}
	changes := h.changes
	if h.loose {
		h.saved = changes
		h.mu.Unlock()
		return nil
	}
	data, err := h.encode()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	killpoint.Hit("history.save")
	if err := h.keeper.Save(ctx, data); err != nil {
		return fmt.Errorf("schema history: %w", err)
	}
	killpoint.Hit("history.saved")
	h.mu.Lock()
	h.saved = changes
	h.mu.Unlock()
	return nil
}

// Detach has the history kept in memory only from now on. What is saved stays as it is.
func (h *History) Detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loose = true
}

// Passed drops versions that nobody needs, once there are many, of a history without a Keeper whose only reader never goes back before pos.
func (h *History) Passed(pos event.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeper == nil && h.added >= compactAfter {
		h.compact([]event.Position{pos})
	}
}

// Unsaved reports whether a version has been added since the last Save.
func (h *History) Unsaved() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changes != h.saved
}

// Advance notes that every statement up to read has been looked at.
func (h *History) Advance(read event.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(&read)
}

func (h *History) advance(read *event.Position) {
	if read.File == "" && read.GTIDs.IsEmpty() || !read.Reached(&h.read) || h.read.Reached(read) {
		return
	}
	h.read = *read
	h.read.GTIDs = read.GTIDs.Clone()
	h.changes++
}

// compact drops the versions that lie before the oldest cursor but the last of each table, which base then holds.
func (h *History) compact(cursors []event.Position) {
	h.added = 0
	h.dropDecisions(cursors)
	oldest := slices.IndexFunc(cursors, func(p event.Position) bool {
		return !slices.ContainsFunc(cursors, func(q event.Position) bool { return !q.Reached(&p) })
	})
	if oldest < 0 || !cursors[oldest].Reached(&h.at) {
		return // what base holds is not proven for all
	}
	h.at = cursors[oldest]
	passed := func(v *version) bool { return v.within(&h.at) }
	for n, list := range h.lists {
		keep := 0
		for i, v := range list {
			if passed(v) {
				keep = i
			}
		}
		if len(list) > 0 && passed(list[keep]) {
			switch v := list[keep]; v.State {
			case ddl.Known:
				h.base[n] = v.Def
				keep++
			case ddl.Absent:
				delete(h.base, n)
				keep++
			}
		}
		for _, v := range list[:keep] {
			if v.Looked {
				continue
			}
			p := v.place()
			if left := slices.DeleteFunc(h.places[p], func(x *version) bool { return x == v }); len(left) > 0 {
				h.places[p] = left
			} else {
				delete(h.places, p)
			}
		}
		if list = slices.Clone(list[keep:]); len(list) > 0 {
			h.lists[n] = list
		} else {
			delete(h.lists, n)
		}
	}
}

// covers tells how a reader that starts at pos can use the history.
func (h *History) covers(pos *event.Position, srv ddl.Server) coverage {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known || h.srv.MariaDB != srv.MariaDB || h.srv.Caseless != srv.Caseless {
		return coverNothing
	}
	h.srv = srv
	switch {
	case h.read.Reached(pos):
		return coverAll
	case pos.Reached(&h.read), comparable(pos, &h.read):
		return coverGap
	}
	return coverNothing
}

// reach returns the places that tell in which log the history is.
func (h *History) reach() []event.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, read := h.at, h.read
	at.GTIDs, read.GTIDs = at.GTIDs.Clone(), read.GTIDs.Clone()
	if at.File == read.File && at.Offset == read.Offset && at.ServerUUID == read.ServerUUID && at.GTIDs.Equal(read.GTIDs) {
		return []event.Position{read}
	}
	return []event.Position{at, read}
}

// comparable reports whether what lies between two places can be read.
func comparable(a, b *event.Position) bool {
	if !a.GTIDs.IsEmpty() && !b.GTIDs.IsEmpty() {
		return true
	}
	return a.File != "" && b.File != "" && a.ServerUUID == b.ServerUUID
}

type coverage uint8

const (
	coverNothing coverage = iota // it must be made anew
	coverGap                     // the statements between its end and the reader must be looked at
	coverAll
)

// begin starts a history with what information_schema showed at a place, for a reader that stands at pos.
func (h *History) begin(srv ddl.Server, pos, at event.Position, base map[ddl.Name]*ddl.Table) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear()
	h.known, h.loaded = true, true
	h.srv, h.at, h.read, h.base = srv, at, pos, base
	h.read.GTIDs = pos.GTIDs.Clone()
	h.changes++
}

// Forget makes what is known of a table, or of all if it is the zero Name, to be looked up again.
func (h *History) Forget(n ddl.Name) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
	if n == (ddl.Name{}) {
		h.clear()
		clear(h.decisions)
		h.loaded = true // what is saved does not come back
		return true
	}
	there := h.forget(n) || len(h.decisions[n]) > 0
	h.endDecisions(n)
	return there
}

// forget makes what is known of a table to be looked up again. h.mu is held.
func (h *History) forget(n ddl.Name) bool {
	_, there := h.base[n]
	there = there || len(h.lists[n]) > 0
	delete(h.base, n)
	for _, v := range h.lists[n] {
		v.State, v.Def, v.Late = ddl.Unknown, nil, true
	}
	return there
}

// ---- the saved form

type savedHistory struct {
	Format   int          `json:"format"`
	MariaDB  bool         `json:"mariadb,omitempty"`
	Caseless bool         `json:"caseless,omitempty"`
	At       savedPlace   `json:"tables_at"`
	Read     savedPlace   `json:"read"`
	Tables   []savedTable `json:"tables"`
	Versions []*version   `json:"versions,omitempty"`

	Passed []*decision `json:"passed_over,omitempty"`
}

type savedPlace struct {
	File       string        `json:"file"`
	Offset     uint64        `json:"offset"`
	GTIDs      event.GTIDSet `json:"gtids"`
	ServerUUID string        `json:"server_uuid"`
}

func (p *savedPlace) position() event.Position {
	return event.Position{File: p.File, Offset: p.Offset, GTIDs: p.GTIDs, ServerUUID: p.ServerUUID}
}

type savedTable struct {
	Schema string     `json:"schema"`
	Table  string     `json:"table,omitempty"`
	Def    *ddl.Table `json:"definition"`
}

func compareNames(a, b ddl.Name) int {
	return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Table, b.Table))
}

// encode writes the history as JSON.
func (h *History) encode() ([]byte, error) {
	s := savedHistory{Format: historyFormat, MariaDB: h.srv.MariaDB, Caseless: h.srv.Caseless, At: saved(&h.at), Read: saved(&h.read), Tables: []savedTable{}}
	for _, n := range slices.SortedFunc(maps.Keys(h.base), compareNames) {
		s.Tables = append(s.Tables, savedTable{n.Schema, n.Table, h.base[n]})
	}
	for _, n := range slices.SortedFunc(maps.Keys(h.lists), compareNames) {
		s.Versions = append(s.Versions, h.lists[n]...)
	}
	for _, n := range slices.SortedFunc(maps.Keys(h.decisions), compareNames) {
		s.Passed = append(s.Passed, h.decisions[n]...)
	}
	data, err := json.Marshal(&s)
	if err == nil && len(data) > maxHistory {
		err = &binlog.StopError{What: fmt.Sprintf("the schema history takes %d bytes, %d are allowed", len(data), maxHistory),
			Remedy: "narrow the destination's tables down to fewer databases, set binlog_row_metadata=FULL on the source, or let cursors that lag behind advance", Err: ErrTooLarge}
	}
	return data, err
}

// decode reads what encode wrote. Anything else is an error (I3).
func (h *History) decode(data []byte) error {
	var s savedHistory
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.Format != historyFormat {
		return fmt.Errorf("format %d is not known, only %d", s.Format, historyFormat)
	}
	h.clear()
	valid := func(state ddl.State, t *ddl.Table) bool {
		return state <= ddl.Unknown && (state == ddl.Unknown || (t != nil) == (state == ddl.Known)) && (t == nil || len(t.Columns) <= 4096)
	}
	var stale []ddl.Name
	for _, t := range s.Tables {
		if t.Schema == "" || !valid(ddl.Known, t.Def) {
			return fmt.Errorf("table %q.%q makes no sense", t.Schema, t.Table)
		}
		n := ddl.Name{Schema: t.Schema, Table: t.Table}
		if h.base[n] = t.Def; !rowEnd(t.Def) {
			stale = append(stale, n)
		}
	}
	for _, v := range s.Versions {
		if v == nil || v.Schema == "" || !valid(v.State, v.Def) {
			return errors.New("a version makes no sense")
		}
		if v.Def != nil && !rowEnd(v.Def) {
			stale = append(stale, v.name())
		}
		h.lists[v.name()] = append(h.lists[v.name()], v)
		if !v.Looked {
			h.places[v.place()] = append(h.places[v.place()], v)
		}
	}
	decisions := map[ddl.Name][]*decision{}
	for _, d := range s.Passed {
		if d == nil || d.Schema == "" || d.Table == "" || d.Definition == "" {
			return errors.New("what is passed over makes no sense")
		}
		decisions[d.name()] = append(decisions[d.name()], d)
	}
	h.decisions = decisions
	h.srv.MariaDB, h.srv.Caseless = s.MariaDB, s.Caseless
	h.at, h.read = s.At.position(), s.Read.position()
	h.known = true
	h.added = len(s.Versions) + len(s.Passed)
	for _, n := range stale { // I6: to be looked up again
		h.forget(n)
	}
	return nil
}

// rowEnd marks the end of a row's time in the definition of a table WITH SYSTEM VERSIONING, which was not saved once. It returns false
// where nobody can tell which column it is.
func rowEnd(t *ddl.Table) bool {
	if !t.Versioned || slices.ContainsFunc(t.Columns, func(c ddl.Column) bool { return c.RowEnd }) {
		return true
	}
	i := slices.IndexFunc(t.Columns, func(c ddl.Column) bool { return c.Name == "row_end" })
	if !t.RowTimes || i < 0 {
		return false
	}
	t.Columns[i].RowEnd = true
	return true
}

// Summary tells of a table, for people.
type Summary struct {
	Name     ddl.Name
	Versions int       // beside what information_schema showed
	State    ddl.State // of the newest
	Columns  int
	Passed   bool // rows are passed over, as nobody could read them
}

// Tables lists what is known, in the order of the names, and the place up to which statements have been looked at.
func (h *History) Tables() (list []Summary, at, read event.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[ddl.Name]*Summary{}
	for n, t := range h.base {
		all[n] = &Summary{Name: n, State: ddl.Known, Columns: len(t.Columns)}
	}
	for n, l := range h.lists {
		s := &Summary{Name: n, Versions: len(l), State: l[len(l)-1].State}
		if d := l[len(l)-1].Def; d != nil {
			s.Columns = len(d.Columns)
		}
		all[n] = s
	}
	for n, l := range h.decisions {
		if all[n] == nil {
			all[n] = &Summary{Name: n, State: ddl.Unknown}
		}
		all[n].Passed = slices.ContainsFunc(l, (*decision).open)
	}
	for _, n := range slices.SortedFunc(maps.Keys(all), compareNames) {
		if n.Table != "" {
			list = append(list, *all[n])
		}
	}
	return list, h.at, h.read
}
