package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// I3: of a VIRTUAL column of MariaDB the log does not tell everything; a VECTOR looks like a VARBINARY.
func TestColumnsOfMariaDB(t *testing.T) {
	for _, c := range []struct {
		statement, version string
		named, mariaDB     bool
		want               event.Virtual
	}{
		{"create table t (v int as (1) virtual, s int as (1) stored, e vector(3))", "11.8.1-MariaDB", true, true, event.VirtualLogged},
		{"create table t (v int generated always as (1), s int as (1) persistent, e vector(3))", "10.5.0-MariaDB", false, true, event.VirtualLogged},
		{"create table t (v int as (1), s int as (1) persistent, e vector(3))", "10.2.11-MariaDB", false, true, event.VirtualNull},
		{"create table t (v int as (1) virtual, s int as (1) stored, e varbinary(12))", "9.7.4", true, false, event.VirtualNone},
	} {
		optional := []string{}
		if c.named {
			optional = []string{"\x02", "\x3f", "\x04", names("v", "s", "e")}
		}
		m := tableMap(t, "\x03\x03\x0f", "\x0c\x00", "\x07", optional...)
		view := knowing(&present{}, c.mariaDB, nil)
		b := New(Options{MariaDB: c.mariaDB, Version: c.version, Charsets: charsets, View: view})
		if err := b.Changed(said(200, c.statement)); err != nil {
			t.Fatal(err)
		}
		table, err := b.Table(m)
		if err != nil {
			t.Errorf("%s: %v", c.statement, err)
			continue
		}
		vector := event.LogicalNone
		if c.mariaDB {
			vector = event.LogicalVector
		}
		if v, s, e := &table.Columns[0], &table.Columns[1], &table.Columns[2]; v.Virtual != c.want || s.Virtual != event.VirtualNone || e.Logical != vector {
			t.Errorf("%s on %s: virtual %d and %d, %v", c.statement, c.version, v.Virtual, s.Virtual, e.Logical)
		}
	}
}

// I3, I5: a file that a server wrote before it was upgraded is read as that version wrote it.
func TestColumnsByWriter(t *testing.T) {
	b := New(Options{MariaDB: true, Version: "10.11.6-MariaDB", Charsets: charsets, View: knowing(&present{}, true, nil)})
	if err := b.Changed(said(200, "create table t (v int as (1) virtual)")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version int
		want    event.Virtual
	}{{100432, event.VirtualNull}, {101106, event.VirtualLogged}, {100432, event.VirtualNull}, {0, event.VirtualLogged}} {
		m := tableMap(t, "\x03", "", "\x01")
		m.Version = c.version
		if table, err := b.Table(m); err != nil || table.Columns[0].Virtual != c.want {
			t.Errorf("%d: %+v, %v", c.version, table, err)
		}
	}
}

// I5, I6: which rows of a table WITH SYSTEM VERSIONING show depends on what is known for sure.
func TestSystemVersioning(t *testing.T) {
	const own = "create table t (id int not null, row_start timestamp(6) not null, row_end timestamp(6) not null, primary key (id, row_end))"
	m := tableMap(t, "\x03\x11\x11", "\x06\x06", "\x00", "\x04", names("id", "row_start", "row_end"), "\x08", "\x00\x02")
	for _, c := range []struct {
		statement string
		end, key  int
	}{
		{"create table t (id int not null, primary key (id)) with system versioning", 3, 1},
		{own, 0, 2},
		{"create table t (id int not null, row_start timestamp(6) generated always as row start, row_end timestamp(6) generated always as row end, " +
			"period for system_time (row_start, row_end), primary key (id)) with system versioning", 3, 1},
	} {
		b := New(Options{MariaDB: true, Version: "11.8.1-MariaDB", Charsets: charsets, View: knowing(&present{err: ErrNoTable}, true, nil)})
		if err := b.Changed(said(200, c.statement)); err != nil {
			t.Fatal(err)
		}
		table, err := b.Table(m)
		if err != nil || table.RowEnd != c.end || len(table.Key) != c.key {
			t.Errorf("%s: %+v, %v", c.statement, table, err)
		}
	}
	b := New(Options{MariaDB: true, Version: "11.8.1-MariaDB", Charsets: charsets, View: knowing(&present{err: ErrNoTable}, true, nil)})
	raw := New(Options{MariaDB: true, Version: "11.8.1-MariaDB", Charsets: charsets, AllVersions: true, View: knowing(&present{err: ErrNoTable}, true, nil)})
	if table, err := raw.Table(m); err != nil || table.RowEnd != 0 || len(table.Key) != 2 {
		t.Errorf("all versions: %+v, %v", table, err)
	}
	// Without names in the log: every unique key of a table WITH SYSTEM VERSIONING has the row's end, which no statement says.
	nameless := tableMap(t, "\x03\x11\x11", "\x06\x06", "\x00")
	for _, c := range []struct {
		statement string
		all       bool // versions
		end, key  int
	}{
		{"create table t (id int not null, primary key (id)) with system versioning", false, 3, 1},
		{"create table t (id int not null, primary key (id)) with system versioning", true, 0, 2},
		{"create table t (id int not null) with system versioning", true, 0, 0},
		{own, true, 0, 2},
		{"create table t (id int primary key, a timestamp(6) generated always as row start, b timestamp(6) generated always as row end, " +
			"period for system_time (a, b)) with system versioning", false, 0, 2},
		{"create table t (id int not null, a timestamp(6) not null, b timestamp(6) not null, primary key (id))", false, 0, 1},
	} {
		b := New(Options{MariaDB: true, Version: "11.8.1-MariaDB", Charsets: charsets, AllVersions: c.all, View: knowing(&present{err: ErrNoTable}, true, nil)})
		if err := b.Changed(said(200, c.statement)); err != nil {
			t.Fatal(err)
		}
		table, err := b.Table(nameless)
		if err != nil || table.RowEnd != c.end || len(table.Key) != c.key || c.key == 2 && table.Key[1] != 2 {
			t.Errorf("%s: %+v, %v", c.statement, table, err)
		}
	}
	_, err := b.Table(m)
	var stop *binlog.StopError
	if !errors.As(err, &stop) || !strings.Contains(stop.Remedy, "cursor set") {
		t.Errorf("of a table that nobody knows: %v", err)
	}
	b = New(Options{MariaDB: true, Version: "11.8.1-MariaDB", Charsets: charsets, View: knowing(&present{err: errors.New("connection refused")}, true, nil)})
	if _, err = b.Table(m); err == nil || errors.As(err, &stop) {
		t.Errorf("without the server: %v", err)
	}
	b = New(Options{Version: "9.7.4", Charsets: charsets, View: knowing(&present{tables: map[ddl.Name]*ddl.Table{}, err: ErrNoTable}, false, nil)})
	if table, err := b.Table(m); err != nil || table.RowEnd != 0 {
		t.Errorf("on MySQL: %v, %v", table, err)
	}
}
