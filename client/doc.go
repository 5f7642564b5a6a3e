// Package client is a Go client with the contract of Canal's CanalConnector: connect, subscribe, get batches
// without acknowledging them, acknowledge or roll back later. One interface, [Connector], stands before an
// embedded server, a server over TCP, and several servers of which one owns the destination.
//
// The package starts no goroutine that outlives a call, but for the ZooKeeper session of a [Cluster]. It must never acknowledge what it was not
// told to.
package client
