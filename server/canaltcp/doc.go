// Package canaltcp serves the embedded server to Canal's own clients, over Canal's TCP protocol
// (CanalProtocol.proto, version 1): framing, handshake, login, subscription, get, ack and rollback.
//
// It knows the embedded server by its subscribers' calls only, and has entries
// written by an [Encoder]. Each connection is served by two goroutines, which [Server.Serve] owns: one reads
// requests, the other carries them out in order. All of them have ended when Serve returns.
//
// It must never send a packet that no client asked for: clients would take it for the answer to
// their next request. A failed ack or rollback therefore closes the connection.
package canaltcp
