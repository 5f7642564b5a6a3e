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
//	destinations/D/canal/C            what a Canal had left of client C when its nodes became ours (JSON, for people)
//	nodes/SESSION                     ephemeral: a process, its weight and the destinations that it would take (JSON)
//
// Names are escaped as meta.Escape does. The tree is our own. What Canal's clients look for (/otter/canal/...) is kept beside
// it as a view, by whoever has the lease; see internal/canalzk.
//
// # Sharing
//
// Each process reads what all would take and who owns what, and reckons with one function of that who should; leases decide where two
// have seen different things. An owner is asked to hand over by its lease; whoever holds it drains, saves and releases.
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
// A Store owns those of its client, two for each lease, which end with Release or Close, and one each for sharing and for Canal's nodes. Calls wait on the caller's
// goroutine; one that ctx cuts short leaves a goroutine that ends when ZooKeeper answers or is found
// to be away.
package zookeeper
