// Package server is the embedded server: it reads each destination once, keeps
// what it read in a ring, and hands it to any number of subscriptions, each with a
// cursor and a filter of its own, in batches that are acknowledged or rolled
// back later.
//
// # Words
//
// A subscription that is connected is either on the main ring, which the
// destination's one reader fills, or, when it lags or comes late, on a ring of its own,
// which its catch-up reader fills until it meets the main ring at a transaction end.
//
// # Goroutines
//
// The server owns one goroutine per destination that runs Source.Read, one per
// active catch-up reader, and one that saves cursors. All end before Stop
// returns. Calls made by subscribers run on their own goroutines; a waiting get
// holds no lock.
//
// # Never
//
// The server never decodes a row, never changes an event that several
// subscriptions share, never frees an event that a connected subscription has not
// acknowledged, never moves a cursor backward (I2), and never saves a cursor ahead of
// what was acknowledged (I1).
package server
