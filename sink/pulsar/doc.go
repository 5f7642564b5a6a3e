// Package pulsar is the sink that publishes to Apache Pulsar, each message once:
// the broker's deduplication is fed with sequence ids that are a function of the
// row alone, so a replay after any restart is recognised message by message.
//
// How it is exact. One producer per topic partition (a lane), named
// deployment/destination/sink for ever, in access mode Exclusive, one message an
// entry, id = Sequence<<10 | SubIndex. Ids rise along a lane and the same row
// always has the same id, so what the broker calls a duplicate (a receipt
// without an entry, -1:-1) is a message that this name has stored before, or that
// is on its way from an older session of this name and cannot be overtaken; or
// one that was refused while later ones were on their way. So it counts as done
// when the end of the topic was read and holds it (look). That holds only under Exclusive (in other modes a woken
// process of the same name writes beside us) and only while the broker remembers
// the name, which it does until the name had no producer on the topic for
// brokerDeduplicationProducerInactivityTimeoutMinutes (6 hours unless changed), until the topic is deleted, or until
// deduplication is switched off.
//
// So the highest id that the broker has confirmed of each topic partition is kept with the cursor (book, [sink.Stateful]), with
// the time of the last receipt. It is a fact about the broker, wherever the cursor is: what is not above it is never sent again, and a
// broker that remembers less, asked at each opening of a lane and at each new link, has forgotten. Then the end of the topic is
// read for messages of our name while we hold it. Sending goes on behind the last of them; where even what was confirmed is
// missing the sink stops, unless nothing was on its way. After a pause that is longer than DeduplicationWindow topics of
// which nothing is known are looked at too.
//
// A refused id can never be sent again once a later one is stored: the broker
// would call it a duplicate and drop it. So everything that can be refused is
// checked before an id is used, and a message that is larger than all that
// its lane has had confirmed goes alone, because a size limit of the topic cannot be seen from
// here. The first error ends the session; Reset begins a new one.
//
// Two producers stand behind one seam (backend): the official client, and our own on the broker's protocol
// (package wire). They use the same names and ids, so one may follow the other. Ours asks the broker at each
// connection how far it has come and goes on from there, which makes entries of several messages exact too. The client hides
// that, so the other one asks in its place before it connects, and takes the topic over for it.
//
// Lanes that nothing is sent to are closed after IdleTimeout, sooner when there are more than MaxProducers, and opened again
// by their next message.
//
// Partitions. Messages carry the partition that the caller chose. A topic
// without partitions counts as one: partition 0 (or -1) is the topic itself. A
// partitioned topic's partition N is the topic NAME-partition-N, also when there
// is only one. The number of a topic is read once and pinned; partitions that
// are added later are not used before the process starts again.
//
// The sink owns a session, which owns its client, one goroutine for each
// lane that is being opened or held back, and one watchdog; Close waits for all
// of them. The package must never report success before the broker's
// receipt, never send through a second producer, and never log message content.
package pulsar
