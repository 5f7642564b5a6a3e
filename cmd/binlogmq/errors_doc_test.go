package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// stoppers are the functions whose first text argument says why a destination stops.
var stoppers = map[string]bool{"stop": true, "stopTable": true, "lost": true}

// packages hold the errors with which the program stops or which it shows as red health.
var packages = []string{"connector", "connector/binlog", "connector/schema", "bridge", "sink/kafka", "sink/pulsar", "sink/file", "meta", "meta/file"}

// TestEveryErrorIsDocumented holds the words of each reason to stop, and of each exported error, against the section
// "Errors" of docs/operations.md, so that an operator finds there what the program says.
func TestEveryErrorIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "\n## Errors\n")
	if !found {
		t.Fatal("docs/operations.md has no section Errors")
	}
	section = strings.Join(strings.Fields(section), " ")
	n := 0
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			check := func(at ast.Node, text string) {
				n++
				if words := longest(text); len(words) >= 8 && !strings.Contains(section, words) {
					t.Errorf("%s: docs/operations.md, Errors, lacks: %s", set.Position(at.Pos()), words)
				}
			}
			ast.Inspect(f, func(node ast.Node) bool {
				switch x := node.(type) {
				case *ast.CallExpr:
					if stoppers[called(x)] {
						for _, a := range x.Args {
							if text := texts(a); text != "" {
								check(a, text)
								break
							}
						}
					}
				case *ast.ValueSpec:
					for i, name := range x.Names {
						if ast.IsExported(name.Name) && strings.HasPrefix(name.Name, "Err") && i < len(x.Values) {
							check(x, texts(x.Values[i]))
						}
					}
				}
				return true
			})
		}
	}
	if n < 40 {
		t.Errorf("only %d errors are found: the test looks at the wrong places", n)
	}
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// texts returns the string literals of an expression, with a mark where something else stands between them.
func texts(e ast.Expr) string {
	var b strings.Builder
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				b.WriteString("%v" + s)
			}
		}
		return true
	})
	return b.String()
}

var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// longest returns the longest part of a format that is printed as it stands.
func longest(format string) (words string) {
	for _, part := range verb.Split(format, -1) {
		if part = strings.Trim(part, " :;(),.\""); len(part) > len(words) {
			words = part
		}
	}
	return words
}
