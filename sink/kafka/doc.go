// Package kafka is the sink that publishes to Apache Kafka.
//
// A Sink holds one session at a time. A session has a producer id of its own, one
// lane per topic partition in use, one manager goroutine (producer id, metadata,
// slow brokers) and, per leader broker, a sender and a reader goroutine around one
// connection. All of them end before Reset or Close returns. Messages wait in
// their lane as references; a sender turns them into record batches (format v2)
// straight inside the Produce request, one request per leader for all of its
// lanes, and the next request forms behind the one on its way: nothing waits for
// a timer. Retries resend the same bytes under the same sequence, so the broker
// stores each batch of a session once and in order.
//
// Requests other than Produce, and SASL mechanisms, are those of kafka-go. Its
// Transport, Writer and Reader are not used: they neither pipeline nor keep the
// order of requests, nor find a moved leader before the next timed refresh.
//
// The package must never reorder a lane, never report success before every
// in-sync replica has the message, and never change the bytes of a batch that
// may have been stored.
package kafka
