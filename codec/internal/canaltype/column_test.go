package canaltype

import (
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestSQLType holds SQLType to the declaration: one number a column, wide
// enough for all its values.
func TestSQLType(t *testing.T) {
	want := map[string]int{
		"ti": -6, "tiu": 5, "si": 5, "siu": 4, "mi": 4, "miu": 4, "i": 4, "iu": -5, "bi": -5, "biu": 3, "b1": -6,
		"f": 7, "d": 8, "dc": 3, "bit1": -7, "bit64": -7, "y": 12, "da": 91, "t6": 92, "dt3": 93, "ts": 93,
		"c": 1, "v": 12, "g": 12, "tt": 2005, "ml": 2005, "mj": 2005, "bn": 2004, "vb": 2004, "bl": 2004,
		"e": 4, "s": -7, "j": 12, "geo": 2004, "uu": 1, "i6": 1, "i4": 1,
	}
	for _, cs := range codectest.Cases() {
		tab := codectest.Table(t, cs)
		if w, ok := want[cs.Column.Name]; ok && SQLType(&tab.Columns[2], false) != w {
			t.Errorf("%s: sqlType %d, want %d", tab.Columns[2].SQLType, SQLType(&tab.Columns[2], false), w)
		}
	}
}
