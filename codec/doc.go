// Package codec turns row changes and DDL into message keys and values. Each
// format has its own package below it with golden files beside the code.
//
// Codecs are pure: no clock, no random, no I/O, no goroutine (I5). What a codec
// writes depends on the row, its table and the codec's options alone.
package codec
