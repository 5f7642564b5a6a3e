package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestGuardsAreThere: the text of every guard is in its file exactly once, and without it the file is another one.
func TestGuardsAreThere(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if after, err := m.apply(text); err != nil {
			t.Error(err)
		} else if string(after) == string(text) {
			t.Errorf("%s: %q: nothing is taken out", m.file, m.guard)
		}
	}
}
