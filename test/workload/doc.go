// Package workload writes random transactions into a database and checks what
// arrives downstream: every committed row change once, in order of its key, and
// the tables rebuilt from the messages equal to the source's.
//
// It is used by end-to-end and chaos tests. A seed reproduces what a writer
// does; how several writers interleave is up to the server.
package workload
