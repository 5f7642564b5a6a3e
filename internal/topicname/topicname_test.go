package topicname

import (
	"reflect"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		template string
		fields   []string
		want     []Piece
		err      string
	}{
		{"", OfTable, nil, ""},
		{"rows", OfTable, []Piece{{Text: "rows"}}, ""},
		{"{schema}.{table}", OfTable, []Piece{{Field: "schema"}, {Text: "."}, {Field: "table"}}, ""},
		{"a-{destination}-z", OfNone, []Piece{{Text: "a-"}, {Field: "destination"}, {Text: "-z"}}, ""},
		{"{schema}{table}", OfTable, []Piece{{Field: "schema"}, {Field: "table"}}, ""},
		{"{tabel}", OfTable, nil, "unknown field {tabel}, known are {destination}, {schema}, {table}"},
		{"{table}", OfNone, nil, "unknown field {table}, known are {destination}"},
		{"{}", OfTable, nil, "unknown field {}"},
		{"x{schema", OfTable, nil, "unbalanced brace"},
		{"x}y{", OfTable, nil, "unbalanced brace"},
		{"{a{schema}}", OfTable, nil, "unknown field {a{schema}"},
	} {
		got, err := Parse(c.template, c.fields)
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, %v", c.template, got, err)
		}
	}
}
