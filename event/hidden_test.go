package event

import (
	"strings"
	"testing"
)

// TestStrip: the server's own columns are in nobody's images.
func TestStrip(t *testing.T) {
	text := Column{Name: "v", Type: TypeVarchar, Meta: 10, Charset: "latin1", Nullable: true}
	table := &Table{Schema: "shop", Name: "t", Key: []int{2, 0}, RowEnd: 4, Columns: []Column{
		{Name: "h0", Type: TypeTiny, Hidden: true}, text, {Name: "id", Type: TypeTiny}, {Name: "row_end", Type: TypeTimestamp2, Meta: 6}, {Name: "h1", Type: TypeVarchar, Meta: 10, Charset: "latin1", Hidden: true}}}
	table.Key[1] = 1
	if err := table.Compile(); err != nil {
		t.Fatal(err)
	}
	shown := table.Shown()
	if len(shown.Columns) != 3 || shown.RowEnd != 3 || len(shown.Key) != 2 || shown.Key[0] != 1 || shown.Key[1] != 0 || shown.Shown() != shown || shown.Memory() >= table.Memory() {
		t.Fatalf("%+v", shown)
	}
	const end = "\x7f\xff\xff\xff\x0f\x42\x3f"
	row := func(nulls byte, h0, v, id, h1 string) string { return string([]byte{nulls}) + h0 + v + id + end + h1 }
	one, two := row(0, "\x09", "\x01a", "\x01", "\x03xyz"), row(0b10010, "\x09", "", "\x02", "")
	for name, c := range map[string]struct {
		op   Op
		im   Images
		raw  string
		want string
	}{
		"insert":  {Insert, Images{After: []byte{31}}, one + two, "a|1 NULL|2"},
		"delete":  {Delete, Images{Before: []byte{31}}, two, "NULL|2"},
		"update":  {Update, Images{Before: []byte{31}, After: []byte{31}}, one + two, "a|1>NULL|2"},
		"minimal": {Update, Images{Before: []byte{0b01100}, After: []byte{0b10010}}, "\x00\x01" + end + "\x02\x00", "-|1>|-"},
		"hidden":  {Update, Images{Before: []byte{0b01100}, After: []byte{0b10000}}, "\x00\x01" + end + "\x00\x01h", "-|1>-|-"},
	} {
		im, raw, err := table.Strip(c.op, c.im, []byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n, err := CountRows(shown, c.op, im, raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		var s Scanner
		for s.Reset(&Event{Kind: Rows, Op: c.op, Table: shown, Images: im, Rows: uint32(n), Raw: raw}); s.Next(); {
			var images []string
			for _, values := range [][]Value{s.Row().Before, s.Row().After} {
				if values != nil {
					images = append(images, rowText(t, values[:2]))
				}
			}
			got = append(got, strings.Join(images, ">"))
		}
		if s.Err() != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, s.Err(), c.want)
		}
		if _, _, err := table.Strip(c.op, c.im, []byte(c.raw[:len(c.raw)-1])); err == nil {
			t.Errorf("%s: no error of a short image", name)
		}
	}
	if _, _, err := table.Strip(Insert, Images{Before: []byte{31}}, nil); err == nil {
		t.Error("no error of the wrong bitmaps")
	}
}
