// Package snapshot reads what tables hold already, in chunks between two places of the stream, so that a destination can begin with
// tables that were filled before its log begins.
//
// # How chunks join the stream
//
// A chunk is a range of rows in the order of the table's key, read by one SELECT. While it is read the main reader notes which keys the
// stream touches; when the stream has come to where the log ended after the SELECT, the rows that were touched are dropped, as the stream has
// shown them newer, and the others stand in the stream at that place, as inserts of a transaction that no log has. Nothing is locked and nothing is
// written at the source.
//
// Before its rows are handed on a chunk is saved with the ordinal behind which it stands. So it is there again, with the same
// numbers, whenever the stream is read again from before it: rows of snapshots are as reproducible as those of the log (I5), until all cursors
// have passed them (I7).
package snapshot

import (
	"strings"
	"time"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/event"
)

// Request orders a snapshot.
type Request struct {
	ID      string            `json:"id"`                // names it in messages and in the log; unique in its destination
	Clients []string          `json:"clients,omitempty"` // client ids of the subscriptions that get it; none: all
	Tables  []string          `json:"tables,omitempty"`  // patterns as of a destination's tables, within those; none: all that are captured
	Where   map[string]string `json:"where,omitempty"`   // conditions in the source's SQL, by "schema.table"
	Reason  string            `json:"reason,omitempty"`  // ReasonStart, ReasonLost or ReasonOrdered
	At      time.Time         `json:"at"`                // when it was ordered
}

// Why a snapshot was ordered.
const (
	ReasonStart   = "start"            // start: snapshot
	ReasonLost    = "on_lost_position" // on_lost_position: snapshot
	ReasonOrdered = "ordered"          // by somebody
)

// Table names a table.
type Table struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Progress is how far a request is carried out.
type Progress struct {
	Step    int64    `json:"step"`              // rises with each saved progress of a destination; of two the higher one counts
	Request string   `json:"request,omitempty"` // id of the request that is being carried out; none: none
	Of      string   `json:"of,omitempty"`      // what is captured; where something else is it begins anew
	Done    int64    `json:"done,omitempty"`    // tables that were read to their end
	Upto    *Table   `json:"upto,omitempty"`    // tables are read in the order of their names: those up to this one are; none: none is
	Again   []Table  `json:"again,omitempty"`   // but these, see [Log.Again]
	Noted   int64    `json:"noted,omitempty"`   // how often Again was added to; set by the Log
	Table   *Table   `json:"table,omitempty"`   // the one that is being read
	Key     []string `json:"key,omitempty"`     // names of the columns of the key by which it is read
	Last    []string `json:"last,omitempty"`    // key of the last row that was read, as SQL literals; none: none was read
	Most    []string `json:"most,omitempty"`    // greatest key when the table was begun, as SQL literals: what is greater came through the stream
	Rows    int64    `json:"rows,omitempty"`    // rows handed on so far
}

// Before tells whether tables of that name are read before those of another one.
func (t Table) Before(o Table) bool {
	if c := strings.Compare(t.Schema, o.Schema); c != 0 {
		return c < 0
	}
	return t.Name < o.Name
}

// Begun tells whether something is carried out already.
func (p *Progress) Begun() bool { return p.Table != nil || p.Upto != nil || p.Rows > 0 }

// Chunk is a part of a snapshot with its place in the stream. It is immutable.
type Chunk struct {
	Ordinal  int64           `json:"ordinal"`  // number of the transaction end behind which it stands
	End      int64           `json:"end"`      // number of its own transaction end: Ordinal + rows + 1
	Counts   string          `json:"counts"`   // what is counted (tables, system_versioned): in another numbering it has no place
	Snapshot *event.Snapshot `json:"snapshot"` // as its Txn has it
	ServerID uint32          `json:"server_id"`
	Time     int64           `json:"time"` // when it was read, by the source's clock: microseconds since 1970 UTC
	Before   Progress        `json:"before"`
	After    Progress        `json:"after"`

	Table *event.Table `json:"-"` // compiled
	Parts []Part       `json:"-"`
}

// Part is a run of rows that becomes one event.
type Part = binlog.InsertionPart

// Rows returns the number of rows.
func (c *Chunk) Rows() int64 {
	n := int64(0)
	for i := range c.Parts {
		n += int64(c.Parts[i].Rows)
	}
	return n
}
