package testenv

import (
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
