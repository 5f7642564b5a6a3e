package schema

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// box is a Keeper in memory.
type box struct {
	data    []byte
	cursors []event.Position
	saves   int
}

func (b *box) Load(context.Context) ([]byte, error) { return b.data, nil }

func (b *box) Save(_ context.Context, data []byte) error {
	b.data = data
	b.saves++
	return nil
}

func (b *box) Cursors(context.Context) ([]event.Position, error) { return b.cursors, nil }

var srv = ddl.Server{Version: 80036}

func integer(names ...string) *ddl.Table {
	t := &ddl.Table{Charset: "utf8mb4"}
	for _, n := range names {
		t.Columns = append(t.Columns, ddl.Column{Name: n, DataType: "int", SQLType: "int", Nullable: true})
	}
	return t
}

func columnsOf(v *View, table string) string {
	s, t := v.def(ddl.Name{Schema: "shop", Table: table})
	switch s {
	case ddl.Absent:
		return "gone"
	case ddl.Unknown:
		return "?"
	}
	var out []string
	for _, c := range t.Columns {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

// begun returns a history whose definitions were read at an offset, for a reader that stands at another.
func begun(k Keeper, pos, at uint64) *History {
	h := NewHistory(k)
	h.begin(srv, place(pos), place(at), map[ddl.Name]*ddl.Table{
		{Schema: "shop"}: {Charset: "utf8mb4"}, shopT: integer("a", "b"), {Schema: "shop", Table: "u"}: integer("x"),
	})
	return h
}

var story = []*binlog.Statement{
	said(200, "ALTER TABLE t ADD c INT"), said(300, "RENAME TABLE t TO w"), said(400, "CREATE TABLE t (z INT)"), said(500, "ALTER TABLE w FROBNICATE"), said(600, "DROP TABLE u"),
}

// I5, I6: at each place a reader sees what held there, whoever has read on meanwhile, and after everything was saved and loaded.
func TestHistoryAtEachPlace(t *testing.T) {
	k := &box{}
	h := begun(k, 100, 100)
	v := h.View(place(100), ViewOptions{Source: &present{at: place(100)}, Server: srv})
	want := []string{"a b,gone,x", "a b c,gone,x", "gone,a b c,x", "z,a b c,x", "z,?,x", "z,?,gone"}
	see := func(v *View) string { return columnsOf(v, "t") + "," + columnsOf(v, "w") + "," + columnsOf(v, "u") }
	if got := see(v); got != want[0] {
		t.Errorf("at the start: %s", got)
	}
	for i, st := range story {
		if err := v.Changed(st); err != nil {
			t.Fatal(err)
		}
		if got := see(v); got != want[i+1] {
			t.Errorf("after %s: %s, want %s", st.Text, got, want[i+1])
		}
	}
	if err := h.Save(t.Context(), place(700)); err != nil {
		t.Fatal(err)
	}
	again := NewHistory(k)
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.base, h.base) || !reflect.DeepEqual(again.lists, h.lists) || again.read.Offset != 700 || again.at.Offset != 100 {
		t.Error("what is loaded is not what was saved")
	}
	for _, h := range []*History{h, again} {
		before := len(h.places)
		for from := range want {
			v := h.View(place(uint64(from+1)*100), ViewOptions{Source: &present{}, Server: srv})
			for i := from; i <= len(story); i++ {
				if got := see(v); got != want[i] {
					t.Errorf("from %d, at %d: %s, want %s", from, i, got, want[i])
				}
				if i < len(story) {
					_ = v.Changed(story[i])
				}
			}
		}
		if len(h.places) != before {
			t.Error("reading again has added versions")
		}
	}
	saves := k.saves
	_ = h.Save(t.Context(), event.Position{})
	if k.saves != saves || h.Unsaved() {
		t.Error("nothing has changed, and it is saved")
	}
}

// Versions that no cursor needs are dropped; what each cursor sees stays.
func TestHistoryCompacts(t *testing.T) {
	k := &box{cursors: []event.Position{place(450), place(900)}}
	h := begun(k, 100, 100)
	v := h.View(place(100), ViewOptions{Source: &present{}, Server: srv})
	for _, st := range story {
		_ = v.Changed(st)
	}
	h.added = compactAfter
	if err := h.Save(t.Context(), place(900)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range h.lists {
		n += len(l)
	}
	if n != 2 || len(h.places) != 2 || h.at.Offset != 450 { // w is unknown, u is gone
		t.Errorf("%d versions are left of %d statements, definitions of %d", n, len(h.places), h.at.Offset)
	}
	for at, want := range map[uint64]string{450: "z,a b c,x", 500: "z,?,x", 900: "z,?,gone"} {
		v := h.View(place(at), ViewOptions{Source: &present{at: place(at)}, Server: srv})
		if got := columnsOf(v, "t") + "," + columnsOf(v, "w") + "," + columnsOf(v, "u"); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
	// A cursor that stands before what the definitions hold for keeps everything.
	h = begun(&box{cursors: []event.Position{place(50)}}, 50, 100)
	v = h.View(place(100), ViewOptions{Source: &present{}, Server: srv})
	for _, st := range story {
		_ = v.Changed(st)
	}
	h.added = compactAfter
	if err := h.Save(t.Context(), place(900)); err != nil || len(h.places) != len(story) {
		t.Errorf("%d versions left, %v", len(h.places), err)
	}
}

// I6: a reader that stands before the place where definitions were read takes those that no statement in between touches.
func TestHistoryBehind(t *testing.T) {
	intMap := tableMap(t, "\x03\x03", "", "\x03")
	for name, c := range map[string]struct {
		between []*binlog.Statement // what is logged between the reader at 100 and the definitions of 1000
		passed  int                 // of them, that the reader has come to
		want    string              // names, or words of the error
	}{
		"nothing":                  {nil, 0, "a b"},
		"others":                   {[]*binlog.Statement{said(200, "ALTER TABLE u ADD y INT"), said(300, "CREATE TABLE n (a INT)")}, 0, "a b"},
		"altered":                  {[]*binlog.Statement{said(200, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")}, 0, "altered again after these rows"},
		"altered, passed":          {[]*binlog.Statement{said(200, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")}, 1, "a b"},
		"altered twice, passed":    {[]*binlog.Statement{said(200, "ALTER TABLE t ENGINE=InnoDB"), said(300, "ALTER TABLE t ENGINE=InnoDB")}, 1, "altered again after these rows"},
		"created":                  {[]*binlog.Statement{said(200, "CREATE TABLE t (p INT, q INT)"), said(300, "ALTER TABLE t CHANGE p a INT, CHANGE q b INT")}, 1, "p q"},
		"swapped":                  {[]*binlog.Statement{said(200, "RENAME TABLE t TO old, new TO t")}, 1, "a b"},
		"dropped with its schema":  {[]*binlog.Statement{said(200, "DROP DATABASE shop"), said(300, "CREATE DATABASE shop")}, 0, "altered again after these rows"},
		"not understood":           {[]*binlog.Statement{said(200, "FROBNICATE t")}, 0, "altered again after these rows"},
		"not understood, of other": {[]*binlog.Statement{said(200, "FROBNICATE u")}, 0, "a b"},
	} {
		h := begun(nil, 100, 1000)
		src := &present{at: place(100), now: place(1000), tables: map[ddl.Name]*ddl.Table{shopT: integer("a", "b")}, log: c.between}
		b := New(Options{Charsets: charsets, View: h.View(place(100), ViewOptions{Source: src, Server: srv}), Version: "8.0.36"})
		for _, st := range c.between[:c.passed] {
			if err := b.Changed(st); err != nil {
				t.Fatal(err)
			}
			src.at = place(st.Next)
		}
		table, err := b.Table(intMap)
		got := ""
		if err != nil {
			got = err.Error()
			var stop *binlog.StopError
			if !errors.As(err, &stop) || stop.Remedy == "" {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			got = table.Columns[0].Name + " " + table.Columns[1].Name
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// I6: a reader of a log without names that stands before the place where definitions were read knows what its statements make of what nothing there has touched:
// the character set of a database, and tables. One whose log has names does not look ahead for that.
func TestHistoryAhead(t *testing.T) {
	log := []*binlog.Statement{
		said(200, "CREATE TABLE elsewhere.n (a INT)"), said(300, "CREATE TABLE n (a VARCHAR(3), b INT)"), said(400, "ALTER TABLE n ADD c INT FIRST"), said(500, "ALTER TABLE u ADD y INT"),
		said(600, "RENAME TABLE n TO t2"), said(700, "DROP TABLE t2"),
	}
	for nameless, want := range map[bool]string{
		true:  "?,?,?,0 ?,?,?,0 a b,?,a b,1 c a b,?,a b,1 c a b,x y,a b,1 gone,x y,a b,1 gone,x y,a b,1 ",
		false: "?,?,?,0 ?,?,?,0 ?,?,?,0 ?,?,?,0 ?,?,?,0 gone,?,?,0 gone,?,?,0 ",
	} {
		h := NewHistory(nil)
		base := map[ddl.Name]*ddl.Table{{Schema: "shop"}: {Charset: "utf8mb4"}, shopT: integer("a", "b"), {Schema: "shop", Table: "u"}: integer("x", "y")}
		h.begin(srv, place(100), place(900), base)
		src := &present{at: place(100), log: log}
		v := h.View(place(100), ViewOptions{Source: src, Server: srv, Nameless: nameless, Scope: func(s string) bool { return s == "shop" }})
		got := ""
		for i := range len(log) + 1 {
			got += columnsOf(v, "n") + "," + columnsOf(v, "u") + "," + columnsOf(v, "t") + fmt.Sprintf(",%d ", src.scans)
			if i == len(log) {
				break
			}
			if err := v.Changed(log[i]); err != nil {
				t.Fatal(err)
			}
			src.at = place(log[i].Next)
		}
		if got != want {
			t.Errorf("nameless %t\n got %s\nwant %s", nameless, got, want)
		}
	}
}

// I6: a history goes on where every statement since has been looked at, else it begins anew.
func TestHistoryOpens(t *testing.T) {
	var gap []*binlog.Statement
	var from event.Position
	anew := 0
	gone := false
	opening := Opening{
		Gap: func(at event.Position, tell func(*binlog.Statement) error) error {
			if from = at; gone {
				return ErrNoGap
			}
			for _, st := range gap {
				if err := tell(st); err != nil {
					return err
				}
			}
			return nil
		},
		Here: func() event.Position { return from },
		Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) {
			anew++
			return map[ddl.Name]*ddl.Table{shopT: integer(fmt.Sprint("c", anew))}, place(100), nil
		},
	}
	h := NewHistory(nil)
	open := func(start event.Position, srv ddl.Server) string {
		v, err := h.Open(start, ViewOptions{Source: &present{at: start}, Server: srv}, opening)
		if err != nil {
			t.Fatal(err)
		}
		return columnsOf(v, "t")
	}
	if got := open(place(100), srv); got != "c1" {
		t.Error(got)
	}
	if got := open(place(100), srv); got != "c1" || anew != 1 {
		t.Error(got)
	}
	gap = []*binlog.Statement{said(200, "ALTER TABLE t ADD d INT")}
	if got := open(place(300), srv); got != "c1 d" || from.Offset != 100 {
		t.Errorf("%s, looked from %d", got, from.Offset)
	}
	if got := open(place(100), srv); got != "c1" || h.read.Offset != 300 {
		t.Errorf("%s, read up to %d", got, h.read.Offset)
	}
	gone = true
	if got := open(place(400), srv); got != "c2" || anew != 2 {
		t.Errorf("after a gap: %s", got)
	}
	// A log that was begun anew has other statements at the same places.
	gone = false
	asked := 0
	opening.Holds = func(p event.Position) (bool, error) {
		asked++
		return p.Offset <= 100, nil
	}
	if got := open(place(100), srv); got != "c3" || anew != 3 || asked == 0 {
		t.Errorf("after the log was begun anew: %s", got)
	}
	if got := open(place(100), srv); got != "c3" || anew != 3 {
		t.Errorf("in the same log: %s", got)
	}
	elsewhere := place(100)
	elsewhere.ServerUUID = "another"
	if got := open(elsewhere, srv); got != "?" || anew != 4 { // which stands before what it has read, or beside it
		t.Errorf("on another server: %s", got)
	}
	if open(elsewhere, ddl.Server{MariaDB: true, Version: 101106}); anew != 5 {
		t.Error("the history of another kind of server goes on")
	}
}

// I6: a reader that captures less records what others need, and one that captures more takes nothing that nobody has followed.
func TestHistoryScopes(t *testing.T) {
	h := begun(nil, 100, 100)
	little := h.View(place(100), ViewOptions{Source: &present{}, Server: srv, Scope: func(s string) bool { return s == "small" }})
	_ = little.Changed(said(200, "ALTER TABLE t ADD c INT"))
	_ = little.Changed(said(300, "CREATE TABLE beyond.t (a INT)"))
	if len(h.places) != 1 {
		t.Errorf("%d statements are kept", len(h.places))
	}
	// What is looked up holds from where it was looked up, for names only if that was proven.
	m := tableMap(t, "\x03\x03", "", "\x03")
	named := tableMap(t, "\x03\x03", "", "\x03", "\x01", "\x00", "\x04", names("p", "q"))
	src := &present{at: place(400), now: place(400), tables: map[ddl.Name]*ddl.Table{shopT: integer("p", "q")}}
	h = NewHistory(nil)
	h.begin(srv, place(100), place(100), map[ddl.Name]*ddl.Table{})
	read := func(at uint64, m *binlog.TableMap) string {
		src.at = place(at)
		table, err := New(Options{Charsets: charsets, View: h.View(place(at), ViewOptions{Source: src, Server: srv})}).Table(m)
		if err != nil {
			return "stop"
		}
		return table.Columns[0].Name
	}
	if got := read(400, named); got != "p" || src.asked["t"] != 1 {
		t.Errorf("%s, asked %d times", got, src.asked["t"])
	}
	if got := read(400, named); got != "p" || src.asked["t"] != 1 {
		t.Errorf("again: %s, asked %d times", got, src.asked["t"])
	}
	src.now, src.log = place(500), []*binlog.Statement{said(500, "ALTER TABLE t CHANGE q p INT, CHANGE p q INT")}
	if got := read(400, m); got != "stop" {
		t.Errorf("what was not proven has named a column: %s", got)
	}
	if got := read(500, m); got != "p" {
		t.Error(got)
	}
	asked := src.asked["t"]
	src.tables = nil // dropped
	if got := read(500, m); got != "p" || src.asked["t"] != asked {
		t.Errorf("a replay asks again, %s", got)
	}
	if got := read(450, m); got != "stop" {
		t.Errorf("a definition holds before it was looked up: %s", got)
	}
}

// I6: nothing is taken for absent in a database that nobody has looked at, so that IF NOT EXISTS proves nothing there.
func TestHistoryWidened(t *testing.T) {
	for _, c := range []struct {
		say  []string
		want string // of other.u
	}{
		{[]string{"CREATE TABLE IF NOT EXISTS other.u (a INT, name INT)"}, "?"},
		{[]string{"CREATE DATABASE IF NOT EXISTS other CHARACTER SET latin1", "CREATE TABLE IF NOT EXISTS other.u (a INT)"}, "?"},
		{[]string{"CREATE DATABASE IF NOT EXISTS other CHARACTER SET latin1", "CREATE TABLE other.u (v VARCHAR(9))"}, "?"},
		{[]string{"ALTER DATABASE other CHARACTER SET latin1", "CREATE TABLE IF NOT EXISTS other.u (a INT)"}, "?"},
		{[]string{"CREATE TABLE other.u (a INT, name INT)"}, "a name"},
		{[]string{"CREATE DATABASE other CHARACTER SET latin1", "CREATE TABLE IF NOT EXISTS other.u (v VARCHAR(9))"}, "v"},
		{[]string{"DROP DATABASE other", "CREATE DATABASE IF NOT EXISTS other", "CREATE TABLE IF NOT EXISTS other.u (a INT)"}, "a"},
		{[]string{"DROP TABLE other.u", "CREATE TABLE IF NOT EXISTS other.u (a INT)"}, "a"},
		{[]string{"CREATE TABLE IF NOT EXISTS shop.n (a INT)", "CREATE TABLE other.u LIKE shop.n"}, "a"},
	} {
		v := begun(nil, 100, 100).View(place(100), ViewOptions{Source: &present{at: place(100), now: place(900)}, Server: srv})
		for i, text := range c.say {
			if err := v.Changed(said(uint64(200+100*i), text)); err != nil {
				t.Fatal(err)
			}
		}
		got := "?"
		switch s, d := v.def(ddl.Name{Schema: "other", Table: "u"}); s {
		case ddl.Absent:
			got = "gone"
		case ddl.Known:
			var names []string
			for _, x := range d.Columns {
				names = append(names, x.Name)
			}
			got = strings.Join(names, " ")
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.say, got, c.want)
		}
	}
}

// I9: a history of one reader, which is saved nowhere, keeps the newest version of each table.
func TestHistoryPassed(t *testing.T) {
	h := NewHistory(nil)
	v, err := h.Open(place(100), ViewOptions{Source: &present{}, Server: srv}, Opening{Begin: func() (map[ddl.Name]*ddl.Table, event.Position, error) { return nil, place(100), nil }})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range uint64(3000) {
		at := 200 + 20*i
		if err := v.Changed(said(at, fmt.Sprintf("CREATE OR REPLACE TABLE t%d (a INT, c%d INT)", i%3, i))); err != nil {
			t.Fatal(err)
		}
		h.Passed(place(at))
		n := 0
		for _, l := range h.lists {
			n += len(l)
		}
		most = max(most, n, len(h.places))
	}
	if most > compactAfter+3 {
		t.Errorf("%d versions are kept", most)
	}
	if got := columnsOf(v, "t2"); got != "a c2999" {
		t.Error(got)
	}
}

func TestHistoryForget(t *testing.T) {
	h := begun(nil, 100, 100)
	v := h.View(place(100), ViewOptions{Source: &present{}, Server: srv})
	_ = v.Changed(said(200, "ALTER TABLE t ADD c INT"))
	if h.Forget(ddl.Name{Schema: "shop", Table: "nope"}) || !h.Forget(shopT) {
		t.Error("forgotten is what was not there, or not what was")
	}
	if got := columnsOf(v, "t"); got != "?" {
		t.Error(got)
	}
	if list, _, _ := h.Tables(); len(list) != 2 || list[0].State != ddl.Unknown || list[1].Columns != 1 {
		t.Errorf("%+v", list)
	}
	h.Forget(ddl.Name{})
	if list, _, _ := h.Tables(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// I5: what has been decided to be passed over is so again in every replay, and not before nor behind the next statement about the table; forgotten, it is what
// comes behind what has been read that is read again.
func TestHistoryPassesOver(t *testing.T) {
	k := &box{}
	h := begun(k, 100, 100)
	src := &present{at: place(150)}
	v := h.View(place(100), ViewOptions{Source: src, Server: srv})
	if ok, err := v.passOver(shopT, []byte("map")); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := columnsOf(v, "t"); got != "a b" {
		t.Errorf("its other rows are read as %s", got)
	}
	_ = v.Changed(said(200, "ALTER TABLE t ADD c INT"))
	if err := h.Save(t.Context(), place(300)); err != nil {
		t.Fatal(err)
	}
	load := func() *History {
		h := NewHistory(k)
		if err := h.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	passed := func(h *History, at uint64, definition string) bool {
		src.at = place(at)
		ok, err := h.View(place(at), ViewOptions{Source: src, Server: srv}).passed(shopT, []byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for _, h := range []*History{h, load()} {
		if passed(h, 120, "map") || !passed(h, 150, "map") || !passed(h, 180, "map") || passed(h, 180, "other map") || passed(h, 200, "map") {
			t.Error("it is passed over elsewhere than where that was decided")
		}
	}
	src.at = place(280)
	if ok, _ := h.View(place(280), ViewOptions{Source: src, Server: srv}).passOver(shopT, []byte("map")); !ok || !passed(h, 290, "map") {
		t.Error("behind a statement it is not passed over")
	}
	h.Forget(shopT)
	if !passed(h, 180, "map") || !passed(h, 290, "map") || passed(h, 310, "map") {
		t.Error("forgetting changes what has been passed over, or does not end it")
	}
	for range maxPassed + 1 {
		src.at = place(400)
		v := h.View(place(400), ViewOptions{Source: src, Server: srv})
		if ok, _ := v.passOver(shopT, fmt.Append(nil, k.saves)); !ok {
			return
		}
		k.saves++
	}
	t.Error("there is no bound")
}

// I3: what cannot be read is no empty history.
func TestHistoryDamaged(t *testing.T) {
	k := &box{}
	h := begun(k, 100, 100)
	_ = h.View(place(100), ViewOptions{Source: &present{}, Server: srv}).Changed(story[0])
	if err := h.Save(t.Context(), event.Position{}); err != nil {
		t.Fatal(err)
	}
	good := string(k.data)
	for name, data := range map[string]string{
		"empty": "", "cut": good[:len(good)/2], "format": strings.Replace(good, `"format":1`, `"format":2`, 1), "state": strings.Replace(good, `"state":1`, `"state":7`, 1),
		"a definition of nothing": strings.Replace(good, `"state":1`, `"state":0`, 1), "no schema": strings.ReplaceAll(good, `"schema":"shop"`, `"schema":""`), "null": `{"format":1,"versions":[null]}`,
	} {
		h := NewHistory(&box{data: []byte(data)})
		var stop *binlog.StopError
		if err := h.Load(t.Context()); !errors.As(err, &stop) || !strings.Contains(stop.Remedy, "schema forget") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// I6: a definition that was saved without what its key depends on is completed, or looked up again.
func TestHistoryWithoutRowEnd(t *testing.T) {
	versioned := func(rowTimes bool, names ...string) *ddl.Table {
		t := integer(names...)
		t.Versioned, t.RowTimes = true, rowTimes
		return t
	}
	k := &box{}
	h := begun(k, 100, 100)
	h.base[ddl.Name{Schema: "shop", Table: "own"}] = versioned(false, "id", "s", "e")
	h.base[ddl.Name{Schema: "shop", Table: "times"}] = versioned(true, "id", "row_start", "row_end")
	h.changes++
	if err := h.Save(t.Context(), event.Position{}); err != nil {
		t.Fatal(err)
	}
	h = NewHistory(k)
	if err := h.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := h.View(place(100), ViewOptions{Source: &present{}, Server: srv})
	if state, _ := v.def(ddl.Name{Schema: "shop", Table: "own"}); state == ddl.Known {
		t.Error("a table with columns of its own is still known")
	}
	if state, d := v.def(ddl.Name{Schema: "shop", Table: "times"}); state != ddl.Known || !d.Columns[2].RowEnd {
		t.Errorf("%v %+v", state, d)
	}
}

func FuzzHistory(f *testing.F) {
	h := begun(nil, 100, 100)
	v := h.View(place(100), ViewOptions{Source: &present{}, Server: srv})
	for _, st := range story {
		_ = v.Changed(st)
	}
	good, _ := h.encode()
	f.Add(good, "ALTER TABLE t ADD x INT")
	f.Fuzz(func(t *testing.T, data []byte, sql string) {
		h := NewHistory(nil)
		if h.decode(data) != nil {
			return
		}
		v := h.View(place(100), ViewOptions{Source: &present{at: place(100)}, Server: srv})
		_ = v.Changed(said(700, sql))
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := NewHistory(nil).decode(again); err != nil {
			t.Fatalf("%v: %s", err, again)
		}
	})
}
