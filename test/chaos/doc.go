// Package chaos kills the program, its servers and its links at random and at
// chosen instants, and holds what independent consumers then find in the topics
// against what the writers know they have committed.
//
// A seed decides the schedule of faults, the database and what each writer does; how they
// interleave is up to the machine. BINLOGMQ_CHAOS_SEED repeats a run, see chaos_test.go.
// Its test needs the build tag integration; it builds the program with the tag chaos, which makes
// package killpoint work.
package chaos
