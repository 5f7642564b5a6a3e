// Package binlog reads the stream of a dump connection: it frames packets,
// verifies checksums, parses events and turns them into transactions.
//
// [Stream] frames, [Machine] is the state machine of transactions; the parsers
// between them may be used on their own. Formats are those of MySQL's
// libs/mysql/binlog/event and MariaDB's sql/log_event.h.
//
// The package starts no goroutine and reads no clock. It must never trust a
// byte: every length is checked before it is used, and a parser answers foreign bytes with an
// error, never with a panic or with memory in proportion to a number it read.
package binlog
