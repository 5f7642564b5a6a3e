package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/canalzk"
	"github.com/binlogmq/binlogmq/meta"
)

// TestNumbersOfPlaces: what is taken over gets the numbers that the destination has there (I5), or none.
func TestNumbersOfPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		known   map[int]int64 // by index
		counted []int64
		want    []int64
		err     string
	}{
		"nothing is known":           {nil, []int64{0, 0, 17}, []int64{0, 0, 17}, ""},
		"a sink behind":              {map[int]int64{0: 100}, []int64{0, 5}, []int64{100, 105}, ""},
		"a sink further on":          {map[int]int64{2: 100}, []int64{0, 40, 90}, []int64{10, 50, 100}, ""},
		"two that agree":             {map[int]int64{0: 7, 2: 97}, []int64{0, 40, 90}, []int64{7, 47, 97}, ""},
		"two that do not":            {map[int]int64{0: 7, 2: 98}, []int64{0, 40, 90}, nil, "another number of changes"},
		"before the beginning":       {map[int]int64{1: 30}, []int64{0, 40}, nil, "cursor set --at f.000001:10"},
		"right at the beginning":     {map[int]int64{1: 40}, []int64{0, 40}, []int64{0, 40}, ""},
		"in the middle of two kinds": {map[int]int64{1: 3}, []int64{0, 2, 4}, []int64{1, 3, 5}, ""},
	} {
		var places []*place
		for i := range c.counted {
			n, known := c.known[i]
			places = append(places, &place{
				id: meta.Identity{Destination: "d", Client: string(rune('a' + i))}, at: event.Position{File: "f.000001", Offset: uint64(10 * (i + 1))}, known: known, ordinal: n,
			})
		}
		err := number(places, c.counted)
		var got []int64
		for _, p := range places {
			got = append(got, p.ordinal)
		}
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || !slices.Equal(got, c.want):
			t.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

// TestUnprovenCanalCursor: what does not say which event it means is not looked for.
func TestUnprovenCanalCursor(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]canalzk.CursorData{
		"no server":   {File: "f.000001", Offset: 4, Timestamp: at},
		"no time":     {File: "f.000001", Offset: 4, ServerID: 1, Timestamp: time.UnixMilli(0)},
		"no file":     {GTID: "x", ServerID: 1, Timestamp: at},
		"a large id":  {File: "f.000001", Offset: 4, ServerID: 1 << 32, Timestamp: at},
		"a time afar": {File: "f.000001", Offset: 4, ServerID: 1, Timestamp: time.Unix(1<<33, 0)},
	} {
		if _, err := locate(t.Context(), nil, &c); err == nil || !strings.Contains(err.Error(), "cursor set") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPickClients(t *testing.T) {
	all := []canalzk.ClientData{{ID: 1001}, {ID: 1002}, {ID: -3}}
	for only, want := range map[string][]int16{"": {1001, 1002, -3}, "1002": {1002}, "-3, 1001": {-3, 1001}} {
		got, err := pickClients(all, only, "x")
		var ids []int16
		for _, c := range got {
			ids = append(ids, c.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%q: %v (%v)", only, ids, err)
		}
	}
	for _, only := range []string{"1003", "x", "1001,", "70000"} {
		if got, err := pickClients(all, only, "x"); err == nil {
			t.Errorf("%q: %v", only, got)
		}
	}
	if _, err := pickClients(nil, "", "x"); err == nil {
		t.Error("no clients at all")
	}
}

// TestComparable: cursors that nobody moves any more keep none from being taken over; a sink's on another server does.
func TestComparable(t *testing.T) {
	d := &config.Destination{Name: "d", Sinks: []config.Sink{{Name: "out"}, {Name: "far"}}}
	at := func(id meta.Identity, server string, known bool) *place {
		return &place{id: id, at: event.Position{ServerUUID: server}, known: known}
	}
	client := func(name string) meta.Identity { return meta.Identity{Destination: "d", Client: name} }
	var told strings.Builder
	var got []string
	for _, p := range comparable(d, []*place{
		at(clientOf("d", "out"), "here", true), at(clientOf("d", "far"), "there", true), at(clientOf("d", "gone"), "here", true),
		at(client("1"), "here", true), at(client("2"), "there", true), at(client("3"), "here", false),
	}, "here", &told) {
		got = append(got, p.id.Client)
	}
	if want := []string{clientOf("d", "out").Client, clientOf("d", "far").Client, "1", "3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := strings.Count(told.String(), "left out of account"); n != 2 {
		t.Errorf("told: %s", told.String())
	}
}
