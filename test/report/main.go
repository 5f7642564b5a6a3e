package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of go test -json; see "go doc test2json".
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	ok, err := report(os.Stdin, out)
	out.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func report(in io.Reader, out *bufio.Writer) (bool, error) {
	var passed, failed, skipped, broken int
	printed := map[string]*strings.Builder{} // by package and test: what it printed
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line)
				continue
			}
			id := e.Package + " " + e.Test
			switch e.Action {
			case "build-output":
				out.WriteString(e.Output)
			case "build-fail":
				broken++
			case "output":
				if printed[id] == nil {
					printed[id] = &strings.Builder{}
				}
				printed[id].WriteString(e.Output)
			case "pass", "fail", "skip":
				text := printed[id]
				delete(printed, id)
				if e.Test == "" {
					if e.Action == "fail" {
						broken++
						if text != nil { // a panic or time-out is told of here
							out.WriteString(text.String())
						}
					}
					if e.Action != "skip" {
						fmt.Fprintf(out, "%-4s  %-60s %7.1f s\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package, e.Elapsed)
					}
					out.Flush()
					continue
				}
				switch e.Action {
				case "pass":
					passed++
					continue
				case "fail":
					failed++
				case "skip":
					skipped++
				}
				if text != nil {
					out.WriteString(text.String())
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
	}
	if skipped > 0 {
		fmt.Fprintln(out, "tests must not be skipped: what they need is to be had, or they fail")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return passed > 0 && failed == 0 && skipped == 0 && broken == 0, nil
}
