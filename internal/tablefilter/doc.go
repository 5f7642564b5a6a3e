// Package tablefilter decides which tables a destination or a subscription
// captures, from an ordered list of patterns.
//
// It starts no goroutine and does no I/O.
package tablefilter
