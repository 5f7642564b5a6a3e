// Package event defines what flows through binlogmq: events, tables, row
// changes, values, positions and GTID sets.
//
// Rows stay raw: an [Event] of kind [Rows] carries the bytes of the row images
// as the server wrote them, next to a shared, immutable [Table]. A codec walks
// them with a [Scanner] and appends text from [Value]s; nothing is boxed into
// interfaces or maps on the way.
//
// The package starts no goroutine, reads no clock and does no I/O. It imports
// no other package of this module.
package event
