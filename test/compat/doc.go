// Package compat reads what the program publishes with clients and parsers that others wrote: the Java clients of
// Kafka and Pulsar, Flink's formats, Kafka Connect's converter with Debezium's transform, and Canal's own message class. docs/compatibility.md says what was
// found.
//
// The Java programs below java/ are run from source; they print JSON lines, which the tests
// hold against what Go clients read and against the source database. The package holds tests only and owns no
// goroutine.
package compat
