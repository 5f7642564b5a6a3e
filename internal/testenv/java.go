package testenv

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The client libraries of the brokers' own projects, for [Java].
const (
	KafkaClients = "org.apache.kafka:kafka-clients:4.4.0"
	PulsarClient = "org.apache.pulsar:pulsar-client:4.0.8"
)

// Java prepares the run of a Java program from its source file, with libraries GROUP:ARTIFACT:VERSION from Maven. The
// caller starts it; ctx's end kills it.
func Java(t testing.TB, ctx context.Context, libraries []string, file string, args ...string) *exec.Cmd {
	t.Helper()
	return script(t, ctx, "java.sh", "classpath", libraries, file, args)
}

// script prepares the run of a program by one of the scripts for that, which has got the program's libraries then.
func script(t testing.TB, ctx context.Context, name, get string, libraries []string, file string, args []string) *exec.Cmd {
	t.Helper()
	list := strings.Join(libraries, ",")
	if _, err := run(nil, name, get, list); err != nil {
		t.Fatal(err)
	}
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, filepath.Join(dir, "testenv", name), append([]string{"run", list, file}, args...)...)
}
