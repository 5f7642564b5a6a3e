// Report reads the output of "go test -json" on standard input and prints what a person wants of it: a line a
// package, all that a failed or skipped test printed, and the counts. The end is a digest: of each failed test its own
// messages, and every data race, since a test's output holds the logs of servers too and may be cut by who shows it. It
// exits non-zero when a test failed or was skipped, or none ran: a test that needs something gets it or fails.
package main
