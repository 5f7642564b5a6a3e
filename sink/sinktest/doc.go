// Package sinktest is the conformance suite of sinks: one set of tests that
// every implementation of sink.Sink must pass, run on the real system behind
// it. An implementation gives a Harness (how to open a sink, how to read back
// what is stored, how to disturb it) and calls Run.
//
// The suite starts no goroutine that outlives a test. It must never know a
// concrete sink.
package sinktest
