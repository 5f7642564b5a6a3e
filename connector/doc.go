// Package connector is the database side of a destination: it connects to
// MySQL or MariaDB as a replica would, reads the binlog and hands on events.
//
// Each [Connector.Read] has a dump connection and a state of its own; it runs in
// its caller's goroutine and owns one more, which asks the source for its position while
// Read runs. A lost link is mended inside. The package must never guess: what cannot be read, decoded or
// numbered ends Read with an error that says what, where and what to do.
package connector
