package binlog

import (
	"unsafe"

	"github.com/binlogmq/binlogmq/event"
)

// Events outlive the reader's buffer and may be kept for long, so their bytes
// are copied into memory that the garbage collector manages. To save allocations small ones
// share blocks; a block is small enough that a forgotten event pins little.
const (
	blockSize  = 64 << 10
	blockShare = 16 << 10 // larger pieces get memory of their own
	eventChunk = 32
)

const (
	sizeofEvent = int(unsafe.Sizeof(event.Event{}))
	sizeofTxn   = int(unsafe.Sizeof(event.Txn{}))
)

type alloc struct {
	block  []byte
	events []event.Event
	txns   []event.Txn
}

// copy returns a copy of b that nobody else writes.
func (a *alloc) copy(b []byte) []byte {
	n := len(b)
	if n > blockShare {
		return append(make([]byte, 0, n), b...)
	}
	if n > cap(a.block)-len(a.block) {
		a.block = make([]byte, 0, blockSize)
	}
	at := len(a.block)
	a.block = append(a.block, b...)
	return a.block[at : at+n : at+n]
}

// event returns a new event for raw bytes of that size. Events with large bytes
// stand alone, so that a small neighbour cannot pin their bytes.
func (a *alloc) event(size int) *event.Event {
	if size > blockShare {
		return new(event.Event)
	}
	if len(a.events) == 0 {
		a.events = make([]event.Event, eventChunk)
	}
	e := &a.events[0]
	a.events = a.events[1:]
	return e
}

func (a *alloc) txn() *event.Txn {
	if len(a.txns) == 0 {
		a.txns = make([]event.Txn, eventChunk)
	}
	t := &a.txns[0]
	a.txns = a.txns[1:]
	return t
}
