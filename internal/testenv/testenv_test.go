package testenv

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestNameOfALongTestWithÜnusualCharacters(t *testing.T) {
	a, b := Name(t), Name(t)
	if a == b {
		t.Errorf("two calls gave the same name %q", a)
	}
	for _, name := range []string{a, b} {
		if len(name) > 40 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%q is not a plain name of at most 40 bytes", name)
		}
	}
}

func TestAddressesAreCutOut(t *testing.T) {
	if got := addrOf("root@tcp(127.0.0.1:3306)/"); got != "127.0.0.1:3306" {
		t.Errorf("addrOf: %q", got)
	}
	if account, addr, ok := cutLast("a:p@ss@host:1", "@"); account != "a:p@ss" || addr != "host:1" || !ok {
		t.Errorf("cutLast: %q %q %v", account, addr, ok)
	}
}

// An address is nobody else's until the test that has it is done, although nobody listens there.
func TestAddressesAreGivenOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	given := func() (n int) {
		files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "binlogmq-ports-*", "[0-9]*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			owner, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(strings.TrimSpace(string(owner))); err == nil {
				n++
			}
		}
		return n
	}
	t.Run("one", func(t *testing.T) {
		seen := map[string]bool{}
		for range 2 {
			for _, a := range FreeAddresses(t, 3) {
				l, err := net.Listen("tcp", a)
				if err != nil {
					t.Fatal(err)
				}
				_ = l.Close()
				_, port, _ := net.SplitHostPort(a)
				if n, _ := strconv.Atoi(port); n < 20000 || n >= 32768 {
					t.Errorf("port %s is one that the system gives out", port)
				}
				seen[a] = true
			}
		}
		if len(seen) != 6 || given() != 6 {
			t.Errorf("%d addresses, %d of them nobody else's", len(seen), given())
		}
	})
	if n := given(); n != 0 {
		t.Errorf("%d addresses are somebody's still", n)
	}
}
