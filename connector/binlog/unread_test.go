package binlog

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
)

// halfRead has no table of that name.
type halfRead struct {
	oneColumn
	name    string
	ofTable bool
}

func (u halfRead) Table(t *TableMap) (*event.Table, error) {
	if string(t.Table) == u.name {
		return nil, &StopError{What: "nobody knows its columns", Remedy: "look", OfTable: u.ofTable}
	}
	return u.oneColumn.Table(t)
}

// I3, I5: rows of a table that cannot be described take the numbers that they have where it can be, where that is chosen and kept; else they stop the stream.
func TestUnreadI5(t *testing.T) {
	insert := func(b *builder, id uint64, name string, n int) {
		b.add(TypeTableMap, 0, tableMapBody(id, "shop", name))
		b.add(TypeWriteRows, 0, rowsBody(TypeWriteRows, id, n))
	}
	run := func(tables Tables, unread *UnreadOptions) (numbers []int64, names []string, err error) {
		b := newBuilder()
		b.format("binlog.000001")
		b.add(TypeGTID, 0, gtidBody(event.GTID{SID: uuidA, Seq: 1}))
		b.add(TypeQuery, 0, queryBody("shop", "BEGIN"))
		insert(b, 1, "item", 2)
		insert(b, 2, "lost", 3)
		insert(b, 1, "item", 1)
		insert(b, 2, "lost", 1)
		b.add(TypeXID, 0, xidBody(9))
		m := NewMachine(Options{Tables: tables, Unread: unread, Match: func(string, string) bool { return true }, Emit: func(e *event.Event) error {
			numbers = append(numbers, e.Ordinal)
			if e.Kind == event.Rows && e.Table == nil {
				names = append(names, "-")
			} else if e.Kind == event.Rows {
				names = append(names, e.Table.Name)
			}
			return nil
		}})
		defer m.Close()
		s := NewStream(bytes.NewReader(b.out))
		for err == nil {
			var raw Raw
			if raw, err = s.Next(); err == nil {
				err = m.Feed(&raw)
			}
		}
		if err == io.EOF {
			err = nil
		}
		return numbers, names, err
	}
	want, _, err := run(oneColumn{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []Unread
	kept := true
	unread := &UnreadOptions{
		Decided: func(*TableMap) (*StopError, error) { return nil, nil },
		Decide:  func(*TableMap, *StopError) (bool, error) { return kept, nil },
		Tell:    func(u *Unread) { told = append(told, *u) },
	}
	got, names, err := run(halfRead{name: "lost", ofTable: true}, unread)
	if err != nil || !slices.Equal(got, want) || !slices.Equal(names, []string{"item", "-", "item", "-"}) {
		t.Errorf("%v: numbers %v of %v, want %v", err, got, names, want)
	}
	if len(told) != 2 || told[0].Rows != 3 || told[1].Rows != 1 || told[0].Table != "lost" || told[0].GTID.Seq != 1 || told[0].Start == 0 {
		t.Errorf("told %+v", told)
	}
	// What has been decided holds also where nothing more is to be passed over, and the table could be read.
	decided := &UnreadOptions{
		Decided: func(t *TableMap) (*StopError, error) {
			if string(t.Table) == "lost" {
				return &StopError{What: "decided"}, nil
			}
			return nil, nil
		},
		Tell: func(*Unread) {},
	}
	if got, names, err := run(oneColumn{}, decided); err != nil || !slices.Equal(got, want) || !slices.Equal(names, []string{"item", "-", "item", "-"}) {
		t.Errorf("decided: %v: numbers %v of %v, want %v", err, got, names, want)
	}
	for name, f := range map[string]func() error{
		"not chosen": func() error { _, _, err := run(halfRead{name: "lost", ofTable: true}, nil); return err },
		"only what is decided": func() error {
			_, _, err := run(halfRead{name: "lost", ofTable: true}, &UnreadOptions{Decided: unread.Decided, Tell: unread.Tell})
			return err
		},
		"not kept": func() error {
			kept = false
			_, _, err := run(halfRead{name: "lost", ofTable: true}, unread)
			return err
		},
		"not of table": func() error { kept = true; _, _, err := run(halfRead{name: "lost"}, unread); return err },
	} {
		err := f()
		if err == nil {
			t.Errorf("%s: it goes on", name)
		}
		if told := fmt.Sprint(err); strings.Contains(told, "does not help here") != (name == "not kept") {
			t.Errorf("%s: it says %s", name, told)
		}
	}
}
