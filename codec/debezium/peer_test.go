package debezium

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

// TestAgainstDebezium compares with what Debezium 3.6.1 published for the same rows. Each difference is listed, and
// is one that docs/formats.md explains; anything else fails, and so does a difference that is listed but not there.
func TestAgainstDebezium(t *testing.T) {
	// What we write where Debezium writes something else, by row and column.
	values := map[string]string{
		// The shortest number that reads back to the same one; Java's has a digit more.
		"nums 5 f": `1e-45`, "nums 5 d": `5e-324`,
		// Debezium wraps BIGINT UNSIGNED above 2^63 also where no schema says int64.
		"nums 2 biu": `18446744073709551615`, "nums 3 biu": `9223372036854775808`,
		// Debezium takes year 0 for 1900, and dates of the first century for ones of this.
		"times 2 y": `0`, "times 4 dt6": `-62135596799999999`,
		// Debezium escapes commas in labels as in the list of them.
		"texts 3 e": `"b,c"`,
	}
	lines := codectest.PeerLines(t, "testdata/debezium.jsonl")
	c := newCodec(t, plainOptions)
	rows := codectest.PeerRows(t)
	if len(rows) != len(lines) {
		t.Fatalf("%d rows, messages of %d", len(rows), len(lines))
	}
	seen := map[string]bool{}
	for i, p := range rows {
		var peers []struct{ Key, Value json.RawMessage }
		if err := json.Unmarshal(lines[i], &peers); err != nil {
			t.Fatal(err)
		}
		r := codectest.Row(t, p.Table, p.Before, p.After)
		changes := []*event.Row{r}
		if len(peers) == 2 { // a change of the key
			changes = []*event.Row{
				{Event: r.Event, Table: r.Table, Op: event.Delete, Before: r.Before, Ordinal: r.Ordinal, Index: r.Index},
				{Event: r.Event, Table: r.Table, Op: event.Insert, After: r.After, Ordinal: r.Ordinal, Index: r.Index},
			}
		}
		for j, peer := range peers {
			out, err := c.AppendRow(nil, changes[j])
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			var got, want struct {
				Before, After map[string]json.RawMessage
				Source        json.RawMessage
				Op            string
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(peer.Value, &want); err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct{ g, w map[string]json.RawMessage }{{got.Before, want.Before}, {got.After, want.After}} {
				for name, v := range x.w {
					id := p.Name + " " + name
					ours, listed := values[id]
					switch {
					case listed && string(x.g[name]) == ours && !same(x.g[name], v):
						seen[id] = true
					case !same(x.g[name], v):
						t.Errorf("%s: %s, Debezium %s", id, x.g[name], v)
					}
				}
				if len(x.g) != len(x.w) {
					t.Errorf("%s: %d columns, Debezium %d", p.Name, len(x.g), len(x.w))
				}
			}
			for _, x := range [][2]json.RawMessage{{out, peer.Value}, {got.Source, want.Source}} {
				g, _ := codectest.Keys(x[0])
				w, _ := codectest.Keys(x[1])
				if got.Op != want.Op || !slices.Equal(g, w) {
					t.Errorf("%s: %s\nDebezium %s", p.Name, x[0], x[1])
				}
			}
			key, err := c.AppendKey(nil, changes[j], p.Table.Key)
			if err != nil {
				t.Fatal(err)
			}
			if len(key) == 0 {
				key = []byte("null")
			}
			if !bytes.Equal(key, peer.Key) {
				t.Errorf("%s: key %s, Debezium %s", p.Name, key, peer.Key)
			}
		}
	}
	for id := range values {
		if !seen[id] {
			t.Errorf("%s is listed as a difference, but is none", id)
		}
	}
}

// same compares two JSON values: numbers by what they are, texts by what they say, JSON within texts likewise.
func same(a, b json.RawMessage) bool {
	decode := func(raw []byte) any {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return nil
		}
		return v
	}
	return equal(decode(a), decode(b))
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		x, ok := new(big.Rat).SetString(a.String())
		n, isNumber := b.(json.Number)
		if !ok || !isNumber {
			return false
		}
		y, ok := new(big.Rat).SetString(n.String())
		return ok && x.Cmp(y) == 0
	case string:
		s, ok := b.(string)
		return ok && (a == s || strings.ContainsAny(a, "{[") && strings.ReplaceAll(a, " ", "") == s)
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(m) != len(a) {
			return false
		}
		for k, v := range a {
			if !equal(v, m[k]) {
				return false
			}
		}
		return true
	}
	return a == b
}
