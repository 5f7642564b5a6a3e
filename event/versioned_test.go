package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestLive: the present rows of a table WITH SYSTEM VERSIONING.
func TestLive(t *testing.T) {
	table := &Table{Schema: "shop", Name: "v", RowEnd: 3, Key: []int{0}, Columns: []Column{
		{Name: "id", Type: TypeTiny}, {Name: "v", Type: TypeTiny, Nullable: true}, {Name: "row_end", Type: TypeTimestamp2, Meta: 6}}}
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	never, later, past := "\x7f\xff\xff\xff\x0f\x42\x3f", "\xff\xff\xff\xff\x0f\x42\x3f", "\x3b\x9a\xca\x01\x00\x00\x00"
	row := func(id, v byte, end string) string { return "\x00" + string([]byte{id, v}) + end }
	all := []byte{7}
	for name, c := range map[string]struct {
		op   Op
		im   Images
		raw  []string // one a row change
		want string
	}{
		"inserts":         {Insert, Images{After: all}, []string{row(1, 1, never), row(2, 2, later)}, "insert 1/1 2/2"},
		"history":         {Insert, Images{After: all}, []string{row(1, 1, past), row(2, 2, past)}, ""},
		"both":            {Insert, Images{After: all}, []string{row(1, 1, past), row(2, 2, never), row(3, 3, past)}, "insert 2/2"},
		"updates":         {Update, Images{Before: all, After: all}, []string{row(1, 1, never) + row(1, 9, never)}, "update 1/1>1/9"},
		"ends":            {Update, Images{Before: all, After: all}, []string{row(1, 1, never) + row(1, 1, past), row(2, 2, later) + row(2, 2, past)}, "delete 1/1 2/2"},
		"an end between":  {Update, Images{Before: all, After: all}, []string{row(1, 1, never) + row(1, 9, never), row(2, 2, never) + row(2, 2, past), row(3, 3, never) + row(3, 8, never)}, "update 1/1>1/9, delete 2/2, update 3/3>3/8"},
		"history changes": {Update, Images{Before: all, After: all}, []string{row(1, 1, past) + row(1, 9, past)}, ""},
		"taken back":      {Update, Images{Before: all, After: all}, []string{row(1, 1, past) + row(1, 9, never)}, "insert 1/9"},
		"minimal":         {Update, Images{Before: []byte{5}, After: []byte{2}}, []string{"\x00\x01" + never + "\x00\x09"}, "update 1/->-/9"},
		"minimal end":     {Update, Images{Before: []byte{5}, After: []byte{4}}, []string{"\x00\x01" + never + "\x00" + past}, "delete 1/-"},
		"deletes":         {Delete, Images{Before: all}, []string{row(1, 1, past), row(2, 2, never)}, "delete 2/2"},
	} {
		raw := []byte(strings.Join(c.raw, ""))
		runs, err := Live(table, c.op, c.im, len(c.raw), raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, r := range runs {
			var rows []string
			var s Scanner
			for s.Reset(&Event{Kind: Rows, Op: r.Op, Table: table, Images: r.Images, Rows: uint32(r.Rows), Raw: r.Raw}); s.Next(); {
				text := func(values []Value) string {
					return strings.Join(strings.Split(rowText(t, values), "|")[:2], "/")
				}
				line := ""
				if s.Row().Before != nil {
					line = text(s.Row().Before)
				}
				if r.Op == Update {
					line += ">"
				}
				if s.Row().After != nil {
					line += text(s.Row().After)
				}
				rows = append(rows, line)
			}
			if s.Err() != nil {
				t.Errorf("%s: %v", name, s.Err())
			}
			got = append(got, r.Op.String()+" "+strings.Join(rows, " "))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		// I3: nothing is taken from an image that ends early, or that does not say until when the row is valid.
		if _, err := Live(table, c.op, c.im, len(c.raw), raw[:len(raw)-1]); err == nil {
			t.Errorf("%s: no error of a short image", name)
		}
		if !bytes.Equal(raw, []byte(strings.Join(c.raw, ""))) {
			t.Errorf("%s: the event was written to", name)
		}
	}
	if _, err := Live(table, Update, Images{Before: []byte{1}, After: []byte{2}}, 1, []byte{0, 1, 0, 9}); err == nil || !strings.Contains(err.Error(), "binlog_row_image=FULL") {
		t.Errorf("without the column: %v", err)
	}
	for end, c := range map[int]Column{1: {Type: TypeTiny}, 2: {Type: TypeTimestamp2, Meta: 6}, -1: {Type: TypeTimestamp2, Meta: 6}} {
		if err := (&Table{RowEnd: end, Columns: []Column{c}}).Compile(); err == nil {
			t.Error(fmt.Sprint("compiled with the end in column ", end-1))
		}
	}
}
