// Package metatest is the conformance suite of cursor stores: every
// implementation of meta.Store passes it, so that all keep the same promises.
//
// It starts no goroutine that outlives [Run].
package metatest
