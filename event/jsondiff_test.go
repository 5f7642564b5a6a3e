package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// jsonObj is an object for jsonDoc: names, in the server's order, and values.
type jsonObj []any

func jsonTree(v any) *jsonNode {
	switch v := v.(type) {
	case nil:
		return &jsonNode{typ: jsonLiteral, scalar: []byte{0}}
	case int:
		return &jsonNode{typ: jsonInt16, scalar: []byte{byte(v), byte(v >> 8)}}
	case int32:
		return &jsonNode{typ: jsonInt32, scalar: []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}}
	case string:
		n := len(v)
		var length []byte
		for ; n >= 0x80; n >>= 7 {
			length = append(length, byte(n)|0x80)
		}
		return &jsonNode{typ: jsonString, scalar: append(append(length, byte(n)), v...)}
	case []any:
		n := &jsonNode{typ: jsonSmallArray}
		for _, x := range v {
			n.kids = append(n.kids, jsonTree(x))
		}
		return n
	case jsonObj:
		n := &jsonNode{typ: jsonSmallObject}
		for i := 0; i < len(v); i += 2 {
			n.keys = append(n.keys, []byte(v[i].(string)))
			n.kids = append(n.kids, jsonTree(v[i+1]))
		}
		return n
	}
	panic("no such value")
}

func jsonDoc(v any) []byte {
	n := jsonTree(v)
	n.measure()
	return n.append(nil)
}

func jsonDiff(op byte, path string, value ...any) []byte {
	b := append([]byte{op, byte(len(path))}, path...)
	for _, v := range value {
		doc := jsonDoc(v)
		b = append(append(b, 252, byte(len(doc)), byte(len(doc)>>8)), doc...)
	}
	return b
}

func TestJSONDiffs(t *testing.T) {
	doc := jsonDoc(jsonObj{"a", 1, "b", []any{1, 2, int32(3)}, "x y", jsonObj{"c", "d"}})
	for _, c := range []struct {
		diffs []byte
		want  string
	}{
		{nil, `{"a": 1, "b": [1, 2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonReplace, "$.a", "é"), `{"a": "é", "b": [1, 2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonReplace, "$.b[2]", nil), `{"a": 1, "b": [1, 2, null], "x y": {"c": "d"}}`},
		{jsonDiff(jsonReplace, "$.b[last]", nil), `{"a": 1, "b": [1, 2, null], "x y": {"c": "d"}}`},
		{jsonDiff(jsonReplace, "$.b[last-2]", nil), `{"a": 1, "b": [null, 2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonInsert, "$.b[1]", 9), `{"a": 1, "b": [1, 9, 2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonInsert, "$.b[99]", 9), `{"a": 1, "b": [1, 2, 3, 9], "x y": {"c": "d"}}`},
		{jsonDiff(jsonInsert, "$.aa", 9), `{"a": 1, "b": [1, 2, 3], "aa": 9, "x y": {"c": "d"}}`},
		{jsonDiff(jsonInsert, `$."x y".""`, 9), `{"a": 1, "b": [1, 2, 3], "x y": {"": 9, "c": "d"}}`},
		{jsonDiff(jsonInsert, `$."q\"\u00e9"`, 9), `{"a": 1, "b": [1, 2, 3], "x y": {"c": "d"}, "q\"é": 9}`},
		{jsonDiff(jsonRemove, "$.b[0]"), `{"a": 1, "b": [2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonRemove, "$.a"), `{"b": [1, 2, 3], "x y": {"c": "d"}}`},
		{jsonDiff(jsonReplace, "$", 7), `7`},
		// One after the other, not the first only.
		{append(append(jsonDiff(jsonReplace, "$.a", 5), jsonDiff(jsonRemove, "$.b")...), jsonDiff(jsonInsert, "$.b", "again")...), `{"a": 5, "b": "again", "x y": {"c": "d"}}`},
	} {
		got, err := applyJSONDiffs(doc, c.diffs)
		if err != nil {
			t.Errorf("%q: %v", c.diffs, err)
			continue
		}
		if text, err := appendJSON(nil, got); err != nil || string(text) != c.want {
			t.Errorf("%q: %s (%v), want %s", c.diffs, text, err, c.want)
		}
	}
	for _, diffs := range [][]byte{
		{3, 1, '$'}, {0}, {0, 1, '$'}, {0, 1, '$', 0}, {0, 255}, {0, 252, 1}, {0, 254, 255, 255, 255, 255, 255, 255, 255, 255},
		jsonDiff(jsonRemove, "$"), jsonDiff(jsonInsert, "$", 1), jsonDiff(jsonReplace, "$.zz", 1), jsonDiff(jsonInsert, "$.a", 1), jsonDiff(jsonRemove, "$.b[3]"),
		jsonDiff(jsonRemove, "$.b[last-3]"), jsonDiff(jsonReplace, "$.b.c", 1), jsonDiff(jsonReplace, "$.a[0]", 1), jsonDiff(jsonInsert, "$.a.b", 1), jsonDiff(jsonInsert, "$.a[0]", 1),
		jsonDiff(jsonRemove, "a"), jsonDiff(jsonRemove, "$."), jsonDiff(jsonRemove, "$.."), jsonDiff(jsonRemove, "$[x]"), jsonDiff(jsonRemove, "$[1"), jsonDiff(jsonRemove, `$."a`), jsonDiff(jsonRemove, `$."\x"`), jsonDiff(jsonRemove, "$a"),
	} {
		if got, err := applyJSONDiffs(doc, diffs); err == nil {
			text, _ := appendJSON(nil, got)
			t.Errorf("%q gives %s", diffs, text)
		}
	}
}

// TestJSONDiffGrowsLarge covers the change between the two sizes of offsets.
func TestJSONDiffGrowsLarge(t *testing.T) {
	big := strings.Repeat("x", 40000)
	doc := jsonDoc(jsonObj{"a", []any{int32(70000), big}, "b", 1})
	large, err := applyJSONDiffs(doc, jsonDiff(jsonReplace, "$.b", []any{big, int32(-1)}))
	if err != nil || large[0] != jsonLargeObject {
		t.Fatalf("%v", err)
	}
	text, err := appendJSON(nil, large)
	if want := fmt.Sprintf(`{"a": [70000, "%s"], "b": ["%s", -1]}`, big, big); err != nil || string(text) != want {
		t.Errorf("%.100s (%v)", text, err)
	}
	small, err := applyJSONDiffs(large, jsonDiff(jsonReplace, "$.b", 1))
	if err != nil || !bytes.Equal(small, doc) {
		t.Errorf("not back to the small document: %v", err)
	}
}

func partialEvent(t testing.TB) *Event {
	table := compiled(t, Column{Name: "id", Type: TypeTiny}, Column{Name: "j", Type: TypeJSON, Meta: 4}, Column{Name: "k", Type: TypeJSON, Meta: 4})
	e := &Event{Kind: Rows, Op: Update, Partial: true, Table: table, Images: Images{Before: []byte{7}, After: []byte{7}}}
	put := func(b ...byte) { e.Raw = append(append(e.Raw, byte(len(b)), 0, 0, 0), b...) }
	a, b := jsonDoc([]any{1, 2}), jsonDoc(jsonObj{"x", "y"})
	e.Raw = append(e.Raw, 0xf8, 1)
	put(a...)
	put(b...)
	e.Raw = append(e.Raw, 1, 0b10, 0xf8, 1) // options, k is partial, NULLs, id
	put(jsonDoc(3)...)
	put(jsonDiff(jsonReplace, "$.x", 9)...)
	e.Raw = append(e.Raw, 0xf8, 2)
	put(a...)
	put(b...)
	e.Raw = append(e.Raw, 1, 0b11, 0xfc, 2) // both are partial, k is NULL
	put()
	e.Raw = append(e.Raw, 0xf8, 3)
	put(a...)
	put(b...)
	e.Raw = append(e.Raw, 0, 0xf8, 3) // no options
	put(a...)
	put(b...)
	return e
}

func TestScannerAppliesPartialJSON(t *testing.T) {
	e := partialEvent(t)
	n, err := CountPartialRows(e.Table, e.Images, e.Raw)
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	e.Rows = uint32(n)
	want := []string{
		`1|[1, 2]|{"x": "y"} > 1|3|{"x": 9}`,
		`2|[1, 2]|{"x": "y"} > 2|[1, 2]|NULL`,
		`3|[1, 2]|{"x": "y"} > 3|[1, 2]|{"x": "y"}`,
	}
	for skip := range uint32(3) {
		e.Skip = skip
		var s Scanner
		s.Reset(e)
		var got []string
		for s.Next() {
			got = append(got, rowText(t, s.Row().Before)+" > "+rowText(t, s.Row().After))
		}
		if s.Err() != nil || fmt.Sprint(got) != fmt.Sprint(want[skip:]) {
			t.Errorf("skip %d: %q, %v", skip, got, s.Err())
		}
	}
}

// TestI3PartialJSONWithoutBefore proves that a difference without the document
// it changes is an error that names the remedy.
func TestI3PartialJSONWithoutBefore(t *testing.T) {
	e := partialEvent(t)
	e.Images.Before, e.Rows = []byte{1}, 1
	e.Raw = []byte{0xfe, 1, 1, 0b10, 0xf8, 1, 0, 0, 0, 0, 5, 0, 0, 0, jsonRemove, 3, '$', '.', 'x'}
	var s Scanner
	s.Reset(e)
	if s.Next() || s.Err() == nil || !strings.Contains(s.Err().Error(), "binlog_row_image=FULL") || !strings.Contains(s.Err().Error(), `"k"`) {
		t.Errorf("%v", s.Err())
	}
}

// FuzzJSONDiff proves that no differences panic, and that what they give can be shown.
func FuzzJSONDiff(f *testing.F) {
	f.Add(jsonDoc(jsonObj{"a", []any{1, "x"}}), append(jsonDiff(jsonReplace, "$.a[1]", 7), jsonDiff(jsonInsert, `$."b c"`, jsonObj{"k", nil})...))
	f.Add(jsonDoc([]any{1, 2}), jsonDiff(jsonRemove, "$[last-1]"))
	f.Fuzz(func(t *testing.T, doc, diffs []byte) {
		got, err := applyJSONDiffs(doc, diffs)
		if err != nil || len(diffs) == 0 {
			return
		}
		text, err := appendJSON(nil, got)
		if err != nil {
			return // a scalar that was malformed before
		}
		root, err := parseJSON(got)
		if err != nil {
			t.Fatal(err)
		}
		root.measure()
		again, err := appendJSON(nil, root.append(nil))
		if err != nil || !bytes.Equal(text, again) {
			t.Errorf("%s, written again %s (%v)", text, again, err)
		}
	})
}
