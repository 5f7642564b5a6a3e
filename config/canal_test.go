package config

import (
	"slices"
	"testing"
)

func TestReplacedFilters(t *testing.T) {
	for _, c := range []struct {
		canal, tables, sinks string
		read, seen           []string
	}{
		{"", "[a.*]", "", []string{"a.*"}, nil},
		{"filter: narrow", "[a.*]", "", []string{"a.*"}, nil},
		{"filter: replace", "[a.*, '!a.b']", "", []string{"*.*", "a.*", "!a.b"}, []string{"a.*", "!a.b"}},
		{"filter: replace", "[]", "", nil, nil},
		{"filter: replace", "[a.*]", "sinks: [{name: s, topic: t, file: {path: x}}]", []string{"a.*"}, nil},
	} {
		in := "canal: {listen: 'h:1', " + c.canal + "}\ndestinations: [{name: d, source: {address: 'h:1', user: u}, tables: " + c.tables + ", " + c.sinks + "}]"
		cfg, err := Parse([]byte(in), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		d := &cfg.Destinations[0]
		if seen := cfg.ClientTables(d); !slices.Equal(d.Tables, c.read) || !slices.Equal(seen, c.seen) {
			t.Errorf("%s: reads %q, clients see %q", in, d.Tables, seen)
		}
	}
}
