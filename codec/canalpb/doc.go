// Package canalpb writes Canal's protobuf entries (EntryProtocol.proto): for Canal's clients, and as messages of
// the codec canal-protobuf, each of which is a MESSAGES packet (CanalProtocol.proto) with one entry of one row, as
// Canal's own serializer for message queues writes it.
//
// Values are the same text as in canal-json, read off the raw row with no step between.
// The package starts no goroutine. It must never let a clock or anything but the event
// decide what it writes (I5).
package canalpb
