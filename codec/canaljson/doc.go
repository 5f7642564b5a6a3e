// Package canaljson writes row changes and DDL in the shape of Canal's
// flatMessage JSON: one row change a message, every value a string, keys in
// alphabetical order. What it does otherwise than Canal is listed in
// docs/formats.md.
//
// A Codec starts no goroutine, reads no clock and is safe for concurrent use.
// It must never write what depends on anything but the row, its table, its
// event and the options (I5).
package canaljson
