// Package meta says what a store of cursors is: what is saved of each
// subscription and which promises saving keeps. The stores themselves live in the
// packages below (file for one process); [Memory] keeps records for tests and
// for embedders that want no durability.
//
// The package starts no goroutine. A store must never return from Save before
// the record would survive a crash, must never show half a record, and must
// never let two processes write the same records.
package meta
