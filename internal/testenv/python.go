package testenv

import (
	"context"
	"os/exec"
	"testing"
)

// Python prepares the run of a Python program from its file, with packages NAME==VERSION from PyPI. The caller starts it;
// ctx's end kills it.
func Python(t testing.TB, ctx context.Context, packages []string, file string, args ...string) *exec.Cmd {
	t.Helper()
	return script(t, ctx, "python.sh", "install", packages, file, args)
}
