// Package store is the ring that lies between a destination's reader and its
// subscriptions.
//
// A [Ring] is a state machine: it starts no goroutine, takes no lock, reads no clock and
// waits for nothing. Its owner, the server, serialises the calls and wakes whoever waits. It must never
// free an event that one of its readers has not acknowledged, and never hold
// more than its bounds but for the two cases that [New] and [Ring.Join] name (I9).
package store
