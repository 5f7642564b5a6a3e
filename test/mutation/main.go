package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeout bounds the tests of one mutant: one that hangs is found by that, too.
const timeout = "240s"

func main() {
	only := flag.String("run", "", "only mutants whose invariant or guard matches this regular expression")
	list := flag.Bool("list", false, "list the mutants and check that their guards are there")
	flag.Parse()
	if err := run(*only, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run(only string, list bool) error {
	which, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var todo []mutant
	var missing []error
	for _, m := range mutants {
		if !which.MatchString(m.invariant + " " + m.guard) {
			continue
		}
		todo = append(todo, m)
		text, err := os.ReadFile(m.file)
		if err == nil {
			if _, err = m.apply(text); err == nil {
				continue
			}
		}
		missing = append(missing, err)
	}
	if err := errors.Join(missing...); err != nil {
		return err
	}
	if list {
		for _, m := range todo {
			fmt.Printf("%s: %s (%s)\n", m.invariant, m.guard, m.file)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "binlogmq-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyTree(dir); err != nil {
		return err
	}
	survivors := 0
	green := map[string]bool{}
	fmt.Println("| invariant | guard taken out | tests that go red |\n|---|---|---|")
	for _, m := range todo {
		if !green[m.tests] {
			if out, ok := test(dir, m.tests); !ok {
				return fmt.Errorf("%s fails with every guard in place:\n%s", m.tests, last(out))
			}
			green[m.tests] = true
		}
		red, err := m.try(dir)
		if err != nil {
			return err
		}
		if red == "" {
			survivors++
			red = "**none: the mutant survives**"
		}
		fmt.Printf("| %s | %s | %s |\n", m.invariant, m.guard, red)
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants survive", survivors, len(todo))
	}
	return nil
}

// copyTree copies what git tracks, as it is in the working tree.
func copyTree(to string) error {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed and not committed
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if info, err := os.Stat(name); err == nil {
			mode = info.Mode()
		}
		if err := os.WriteFile(path, text, mode); err != nil {
			return err
		}
	}
	return nil
}

// apply returns the text with the guard taken out.
func (m *mutant) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s: the guard %q is there %d times, want 1:\n%s", m.file, m.guard, n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.text), 1), nil
}

// try runs the tests without the guard, and returns which went red.
func (m *mutant) try(dir string) (red string, err error) {
	path := filepath.Join(dir, m.file)
	before, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	after, err := m.apply(before)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, after, 0o644); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, before, 0o644)) }()
	out, ok := test(dir, m.tests)
	if ok {
		return "", nil
	}
	if bytes.Contains(out, []byte("[build failed]")) {
		return "", fmt.Errorf("%s without %q does not compile:\n%s", m.file, m.guard, last(out))
	}
	return failures(out), nil
}

// test runs packages' tests, "./server -run X ./bridge" being arguments of go test.
func test(dir, args string) (out []byte, ok bool) {
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-timeout", timeout}, strings.Fields(args)...)...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return out, err == nil
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// failures names the tests that failed, at most four, or how the run ended.
func failures(out []byte) string {
	var names []string
	for _, m := range failed.FindAllSubmatch(out, -1) {
		if name := string(m[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) > 4:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:4], ", "), len(names)-4)
	case len(names) > 0:
		return strings.Join(names, ", ")
	case bytes.Contains(out, []byte("test timed out")):
		return "they hang: " + running(out)
	case bytes.Contains(out, []byte("panic:")):
		return "panic in " + running(out)
	}
	return "they end: " + strings.TrimSpace(last(out))
}

var testFunc = regexp.MustCompile(`\.(Test\w+)\(`)

func running(out []byte) string {
	if m := testFunc.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "the package"
}

func last(out []byte) string {
	return string(out[max(0, len(out)-1500):])
}
