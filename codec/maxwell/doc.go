// Package maxwell writes row changes and DDL in the shape of Maxwell's JSON,
// with the message keys that Maxwell gives to Kafka. What it does otherwise
// than Maxwell is listed in docs/formats.md.
//
// A Codec starts no goroutine, reads no clock and is safe for concurrent use.
// It must never write what depends on anything but the row, its table, its
// event and the options (I5): Maxwell's random _uuid is computed here, and its
// xid, which the log tells only at the end of a transaction, is replaced.
package maxwell
