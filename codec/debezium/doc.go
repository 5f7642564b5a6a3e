// Package debezium writes row changes and DDL in the shape of the messages of Debezium's MySQL and MariaDB
// connectors, as Kafka Connect's JsonConverter puts them into JSON: keys and values, with their schemas or
// without. What it does otherwise than Debezium is listed in docs/formats.md.
//
// A Codec starts no goroutine, reads no clock and is safe for concurrent use. It must never write what depends
// on anything but the row, its table, its event and the options (I5): Debezium's time of processing is replaced by
// the time of the commit.
package debezium
