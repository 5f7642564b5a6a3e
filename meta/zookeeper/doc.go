// Package zookeeper saves cursors in ZooKeeper and shares destinations among
// processes: each is owned by one of them, by a lease.
//
// # Layout
//
// Below the root of the options:
//
//	destinations/D/owner              ephemeral: who owns the destination (JSON, for people)
//	destinations/D/epoch              how many owners there have been; set by each new one
//	destinations/D/subscriptions/C    the record of client C, as meta.EncodeRecord writes it, compressed when large
//
// Names are escaped as meta.Escape does. The tree is our own: what Canal's clients look for
// (/otter/canal/destinations/...) lies elsewhere and can be served beside it as a view.
//
// # Lease
//
// A process takes a destination by creating owner and raising epoch in one transaction, conditional on
// epoch's version (compare-and-set). Every save and deletion is a transaction that holds only if owner and epoch are
// still those of the lease (I8): what an owner of earlier days writes is refused by ZooKeeper, whatever it believes.
//
// An owner must stop before ZooKeeper can give its destination to another one. ZooKeeper expires a session
// no earlier than the session timeout S after the leader last heard of it. The lease is proven by such a transaction at
// intervals of S/6: when it succeeds, the leader and our server were in touch after it was sent, and the leader
// had heard of the session at most one exchange of pings before (half a tick, at most S/4, because a session lasts two ticks at least).
// So the lease holds until 2/3 S after the last successful proof was sent, by a clock that also counts suspended time; then it
// is lost for good and has to be taken anew, though the session may be alive. The rest of S is for stopping.
//
// # Goroutines
//
// A Store owns those of its client, and two for each lease, which end with Release or Close. Calls wait on the caller's
// goroutine; one that ctx cuts short leaves a goroutine that ends when ZooKeeper answers or is found
// to be away.
package zookeeper
