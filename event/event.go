package event

import "errors"

// Kind says which binlog-level step an [Event] is.
type Kind uint8

// The kinds of event, in the order in which a transaction shows them.
const (
	Begin Kind = iota + 1 // a transaction begins; takes no ordinal
	Rows                  // row changes of one table; one ordinal a row change
	DDL                   // a Query event that is not transaction control; one ordinal
	End                   // a transaction ends; one ordinal
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Begin:
		return "begin"
	case Rows:
		return "rows"
	case DDL:
		return "ddl"
	case End:
		return "end"
	}
	return "unknown"
}

// Op is what a row change does.
type Op uint8

// The operations on a row.
const (
	Insert Op = iota + 1
	Update
	Delete
)

// String returns "insert", "update" or "delete".
func (o Op) String() string {
	switch o {
	case Insert:
		return "insert"
	case Update:
		return "update"
	case Delete:
		return "delete"
	}
	return "unknown"
}

// Txn is what all events of one transaction share. It is immutable once its
// Begin event has been handed on.
type Txn struct {
	GTID       GTID   // zero when the server runs without GTIDs
	File       string // binlog file in which the transaction starts
	Start      uint64 // offset of its first event (GTID event or BEGIN) in File
	ServerUUID string // server that the stream is read from; on MariaDB its server id as text
	ServerID   uint32 // server that wrote the transaction first
	ThreadID   uint32 // session that wrote it; 0 when the log does not say
	Time       int64  // commit time in microseconds since 1970 UTC; whole seconds where the server logs no more
	ByFile     bool   // this stream is counted by file and offset, see Position.ByFile

	// Snapshot is not nil if the rows were read from a table, and not from the log: then they are inserts of rows as they were where the
	// transaction before ends, GTID is zero, and File and Start are where that one ends.
	Snapshot *Snapshot
}

// Event is one binlog-level step of a destination.
//
// An Event and what it points to are immutable after the connector has handed
// it on, and may be read from several goroutines. Raw is not pooled: it stays
// valid as long as the Event is referenced.
type Event struct {
	Kind     Kind
	Op       Op     // Rows
	Last     bool   // Rows: the transaction's next counted event is its End
	Partial  bool   // Rows: update images with partial JSON (MySQL event type 39)
	ServerID uint32 // server that wrote the event first
	Rows     uint32 // Rows: number of row changes in Raw
	Skip     uint32 // Rows: leading row changes of Raw that a subscriber has done already
	Ordinal  int64  // number of the first row change in Raw, of the DDL or of the End; 0 for Begin
	Index    int64  // Rows: index in the transaction (from 0) of the first row change in Raw; End: number of row changes in the transaction
	Time     int64  // event time in microseconds since 1970 UTC, of second resolution in most logs
	File     string // binlog file that holds the event
	Start    uint64 // offset of the event in File (of the enclosing payload event when compressed)
	Next     uint64 // offset behind it: where reading goes on after an End
	Txn      *Txn
	Table    *Table     // Rows
	Images   Images     // Rows: column bitmaps of Raw
	Raw      []byte     // Rows: row images; DDL: statement text as logged, secrets in it replaced; none when the text is withheld
	Schema   string     // DDL: default schema
	Stmt     *Statement // DDL: what the statement is about; nil when its text is withheld. Rows without Table: which one's they are; nil when nobody knows
	XID      uint64     // End: engine transaction number; 0 when the log does not say
	Size     int        // bytes that the event occupies in memory, for the ring's bound
}

// Images tells which columns the images of a rows event hold. Each bitmap has
// one bit a table column, least significant bit first; nil stands for an image
// that the event's operation does not have.
type Images struct {
	Before []byte // update and delete
	After  []byte // insert and update
}

// Position says where a transaction ends, and so where reading goes on.
type Position struct {
	File       string  // binlog file
	Offset     uint64  // offset behind the transaction's last event, counted by us: 64 bit
	GTIDs      GTIDSet // every transaction done up to here; empty when GTIDs are off
	ServerUUID string  // server on which File and Offset mean something
	ByFile     bool    // GTIDs were off where reading began: ordinals are counted by file and offset from there on, whatever is switched on later
}

// Cursor is what one subscription has acknowledged. It is saved as a whole.
type Cursor struct {
	Position Position // a transaction end
	Ordinal  int64    // number that this transaction end took; the next counted event takes Ordinal+1
	Progress int64    // ordinals of the following transaction that are acknowledged as well
	Open     GTID     // that transaction, if Progress is above 0 and it has a GTID
	Done     *Done    // what is acknowledged of later transactions; nil: nothing. Never changed, only replaced
	State    []byte   // opaque to everyone but the subscriber
}

// Done is what a subscription has acknowledged of transactions that lie behind its cursor's position. After a failover
// all cursors of a destination begin at one place of the new server's log, which holds later transactions in an order of its own.
type Done struct {
	GTIDs GTIDSet `json:"gtids"`           // whole transactions
	Parts []Part  `json:"parts,omitempty"` // transactions of which only the beginning is acknowledged
}

// Passed tells whether a cursor has passed all of d with transaction g, the last of those that it has done.
func (d *Done) Passed(g GTID, done GTIDSet) bool {
	in := d.GTIDs.Contains(g)
	for i := range d.Parts {
		in = in || d.Parts[i].GTID == g
	}
	if !in || !done.ContainsSet(d.GTIDs) {
		return false
	}
	for i := range d.Parts {
		if !done.Contains(d.Parts[i].GTID) {
			return false
		}
	}
	return true
}

// Part is the beginning of a transaction.
type Part struct {
	GTID     GTID  `json:"gtid"`
	Ordinals int64 `json:"ordinals"` // as Cursor.Progress counts them
}

// Errors that need more than reading on; they are in the chain of what a reader ends with.
var (
	// ErrAnotherServer: another server answers than the one that was read, at a place from which its log need not go on
	// as the other one's did.
	ErrAnotherServer = errors.New("another server answers")
	// ErrPurged: the source has purged what was to be read next.
	ErrPurged = errors.New("the position lies before the source's binlog")
	// ErrNoPosition: the source never had the position, or has lost it.
	ErrNoPosition = errors.New("the position is not in the source's binlog")
)

// Last returns the highest ordinal that the cursor has acknowledged.
func (c *Cursor) Last() int64 { return c.Ordinal + c.Progress }
