// Package bridge is the embedded server's internal subscriber: it pulls
// batches of events ahead of the broker, routes and encodes them, publishes the
// messages to a sink, and acknowledges the batches in order as the sink confirms.
//
// One [Bridge] is one subscription with one sink. The way up is a ledger of
// layers, each of which knows only the one below it:
//
//	message done -> slab done -> chunk done -> batch done -> contiguous prefix -> Ack
//
// Run owns all goroutines of a Bridge and waits for them: one that pulls, one
// that publishes, some that encode, one that acknowledges. They live as long as a
// session; a session ends with the first failure. Then the bridge resets
// the sink, waits for everything on its way, rolls the server back to the ack
// pointer, and sends again: same messages, same numbers.
//
// The bridge must never acknowledge a batch before the broker has confirmed
// every message of it and of all earlier ones (I1), never change the order of
// the messages of a lane (I4), never let a clock, a random number or the number of workers
// decide what a message is, where it goes or which number it bears (I5), and never give
// up silently (I3).
package bridge
