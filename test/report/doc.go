// Report reads the output of "go test -json" on standard input and prints what a person wants of it: a line a
// package, all that a failed or skipped test printed, and the counts. It exits non-zero when a test failed or was
// skipped, or none ran: a test that needs something gets it or fails.
package main
