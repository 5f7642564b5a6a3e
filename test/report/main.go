package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
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

// said is a line that a test has written by itself: t.Log, t.Error and the like.
var said = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

// Bounds of the digest: characters of a line, lines of a test, lines of a data race.
const (
	digestLine  = 400
	digestLines = 12
	digestRace  = 60
)

// digest collects what the end of the report repeats.
type digest struct {
	races  map[string][]string // by package: lines of its data races
	inRace map[string]int      // by package: lines of the race that is being printed, 0 between races
	failed []string
}

// output takes a line that a package's test has printed, whichever test it is ascribed to.
func (d *digest) output(pkg, line string) {
	if strings.Contains(line, "WARNING: DATA RACE") {
		d.inRace[pkg] = 1
	}
	if n := d.inRace[pkg]; n > 0 {
		if n <= digestRace {
			d.races[pkg] = append(d.races[pkg], line)
		}
		d.inRace[pkg]++
		if strings.HasPrefix(line, "======") {
			d.inRace[pkg] = 0
		}
	}
}

// fail takes all that a failed test has printed.
func (d *digest) fail(pkg, test, text string) {
	d.failed = append(d.failed, fmt.Sprintf("failed: %s %s\n", pkg, test))
	n := 0
	for line := range strings.Lines(text) {
		if said.MatchString(line) {
			if n++; n > digestLines {
				break
			}
			if len(line) > digestLine {
				line = line[:digestLine] + "...\n"
			}
			d.failed = append(d.failed, line)
		}
	}
}

func (d *digest) print(out *bufio.Writer) {
	for _, line := range d.failed {
		out.WriteString(line)
	}
	for _, pkg := range slices.Sorted(maps.Keys(d.races)) {
		fmt.Fprintf(out, "data race in the tests of %s\n%s", pkg, strings.Join(d.races[pkg], ""))
	}
}

func report(in io.Reader, out *bufio.Writer) (bool, error) {
	var passed, failed, skipped, broken int
	d := digest{races: map[string][]string{}, inRace: map[string]int{}}
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
				d.output(e.Package, e.Output)
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
					d.fail(e.Package, e.Test, text.String())
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
	d.print(out)
	if skipped > 0 {
		fmt.Fprintln(out, "tests must not be skipped: what they need is to be had, or they fail")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return passed > 0 && failed == 0 && skipped == 0 && broken == 0, nil
}
