// Package oversize tests what becomes of rows that are larger than a topic takes: real rows of up to 20 MB, from MySQL to Kafka,
// Pulsar and a file, with the program killed in the middle of their parts, and brokers whose limits change.
//
// OVERSIZE_KILLS sets how many kills the long form makes.
package oversize
