package maxwell

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/binlogmq/binlogmq/event"
)

// namespace is the UUID of version 5 that RFC 9562 (section 5.5) gives to
// "https://github.com/binlogmq/binlogmq#row" in its URL namespace. It must not change: keys
// that were published depend on it.
var namespace = [16]byte{0xd9, 0x05, 0x9d, 0x5b, 0xaa, 0x4f, 0x51, 0x23, 0xad, 0xbf, 0xe2, 0x56, 0x91, 0x7b, 0x66, 0x32}

// appendUUID appends the identity of a row change without key as a UUID of
// version 5. Its name is "GTID#INDEX", or without GTIDs
// "SERVER-UUID/FILE:OFFSET#INDEX", where OFFSET is the transaction's start and INDEX
// the row change's number in it, from 0; "ID/CHUNK#INDEX" for a snapshot's row, which stands where a transaction ends and others may too.
func appendUUID(dst []byte, r *event.Row) []byte {
	at := len(dst)
	// The name is built behind dst and cut off again, which needs no buffer.
	dst = append(dst, namespace[:]...)
	e := r.Event
	switch {
	case e.Txn == nil:
		dst = append(append(append(dst, '/'), e.File...), ':')
		dst = strconv.AppendUint(dst, e.Start, 10)
	case e.Txn.Snapshot != nil:
		dst = e.Txn.Snapshot.Append(dst)
	case e.Txn.GTID.IsZero():
		dst = append(append(dst, e.Txn.ServerUUID...), '/')
		dst = append(append(dst, e.Txn.File...), ':')
		dst = strconv.AppendUint(dst, e.Txn.Start, 10)
	default:
		dst = e.Txn.GTID.Append(dst)
	}
	dst = append(dst, '#')
	dst = strconv.AppendInt(dst, r.Index, 10)
	return appendUUID5(dst[:at], sha1.Sum(dst[at:]))
}

func appendUUID5(dst []byte, sum [sha1.Size]byte) []byte {
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	for i, n := range [...]int{0, 4, 6, 8, 10} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, sum[n:[...]int{4, 6, 8, 10, 16}[i]])
	}
	return dst
}
