// Package wire produces to Apache Pulsar on its binary protocol: CONNECT, LOOKUP, PARTITIONED_METADATA, PRODUCER, SEND and
// their answers (PulsarApi.proto; https://pulsar.apache.org/docs/developing-binary-protocol/). Beside that it reads a topic's
// end, to find out what is stored ([Client.Scan], [Client.Tail]).
// It exists for what the official client hides: the broker's
// last_sequence_id, the highest_sequence_id of a batch, takeover by
// ExclusiveWithFencing, and the codes of SEND_ERROR.
//
// How it is exact. The broker's deduplication judges an entry by its lowest id
// alone: above everything that this name has pushed it is stored, else it is
// dropped whole (receipt -1:-1), or of unknown fate (PersistenceError). So at each
// (re)connect a [Producer] asks for last_sequence_id and skips what is not above
// it; an entry never spans that border. last_sequence_id counts what was pushed,
// which may not be persisted yet. What was skipped is therefore confirmed only by
// the first receipt of the new session, for receipts come in the order of the
// ledger; when nothing is left to send, the last message skipped is sent once more,
// alone, and its being called a duplicate confirms the same. If the session dies
// first, the broker is asked again. With batches the first entry after the border is one
// message alone: as long as a straggler of an older connection is on its way into the
// ledger it cannot be stored with a position of its own.
//
// A [Client] owns its connections, one to each broker (and way to it), shared by
// all producers. A connection owns two goroutines: one reads; one lets the producers that
// have something to send write into one buffer, which goes out at once. So nothing waits for
// a timer while the connection is idle, and whatever gathers during a write goes out
// together. A Producer owns a goroutine only while it is being opened again, and a timer
// while the broker cannot say whether a skipped message is persisted. Close waits for all of them.
//
// Memory: a Client queues what it was given and nothing more; callers bound that. What comes from the
// broker is bounded by maxFrame and parsed without trust. The package must never panic on it,
// never log or name message content, and never report a message as stored before the broker has said so.
package wire
