package connector

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

// counter counts bytes of one or more connections.
type counter struct{ n atomic.Int64 }

func (c *counter) add(n int) {
	if c != nil {
		c.n.Add(int64(n))
	}
}

// Status is a snapshot of what a Connector does.
type Status struct {
	Connected   bool          // the main reader has a stream
	Since       time.Time     // when Connected became what it is; zero before the first attempt to read
	Err         error         // why not, or why it stopped; nil when all is well
	Address     string        // of the source that is read
	Version     string        // of that server
	ServerUUID  string        // of that server
	Bytes       int64         // read from dump connections
	Events      int64         // handed on
	Rows        int64         // row changes handed on
	Skipped     int64         // transactions passed over, see Options.Skips; again after a reconnect in between
	Unread      int64         // row changes that the main reader passed over, see Options.PassTables; again after a reconnect in between
	PassedDML   int64         // statement-format DML passed over, see Options.PassDML; again after a reconnect in between
	Reconnects  int64         // links lost and mended
	File        string        // how far the main reader has read
	Offset      uint64        //
	SourceFile  string        // end of the source's binlog when last asked
	SourceAt    uint64        //
	Behind      bool          // there was more to read when last asked
	Lag         time.Duration // 0 unless Behind: age of the last transaction read
	LagBytes    uint64        // binlog between the two positions
	LastCommit  time.Time     // commit time of the last transaction read; zero before the first
	SourceAsked time.Time     // when the source was last asked for its position
	Snapshot    Snapshot      // what is read of tables
}

// Snapshot is what a Connector does about the snapshot that is ordered.
type Snapshot struct {
	State         SnapshotState
	Since         time.Time // when State became what it is; zero before the first snapshot
	Request       string    // id of the request that is carried out; "": none
	Reason        string    // why it was ordered
	Table         string    // the one that is being read, as schema.table; "" between tables
	Tables        int       // how many the request has, as far as is known; tables that appear meanwhile are added
	Done          int       // how many of them are read to their end
	Rows          int64     // rows of the request that were handed on
	PendingChunks int       // chunks that some cursor has not passed
	PendingBytes  int64     // of those, as they are kept
	Warning       string    // what the snapshot that was begun last leaves out, as the account may not read it, with the remedy; it stays until another one begins
	Err           error     // why the last attempt to go on failed; nil when all is well
}

// SnapshotState says how a snapshot gets on.
type SnapshotState uint8

// The states of a snapshot.
const (
	SnapshotNone    SnapshotState = iota // none is ordered
	SnapshotReading                      // tables are read
	SnapshotWaiting                      // nothing is read until subscriptions have acknowledged what was, see SnapshotOptions.MaxPending
	SnapshotFailing                      // what was tried last failed, as Snapshot.Err says, and is tried again
)

// String returns the state in lower case: "none", "reading", "waiting" or "failing".
func (s SnapshotState) String() string {
	return [...]string{"none", "reading", "waiting", "failing"}[s]
}

// status is what the main reader and its poller write.
type status struct {
	bytes  counter
	events atomic.Int64
	rows   atomic.Int64

	mu          sync.Mutex
	s           Status
	behindSince time.Time
	files       []logFile
}

// Status returns a snapshot. Lag and position are those of the main reader; counts are of all.
func (c *Connector) Status() Status {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	s := c.state.s
	s.Bytes, s.Events, s.Rows = c.state.bytes.n.Load(), c.state.events.Load(), c.state.rows.Load()
	s.LagBytes, s.Behind = c.state.distance()
	switch {
	case !s.Behind:
		c.state.behindSince = time.Time{}
	case !s.LastCommit.IsZero():
		s.Lag = max(0, time.Since(s.LastCommit))
	default:
		if c.state.behindSince.IsZero() {
			c.state.behindSince = time.Now()
		}
		s.Lag = time.Since(c.state.behindSince)
	}
	return s
}

// distance returns the bytes between the reader and the source's end.
func (st *status) distance() (uint64, bool) {
	s := &st.s
	if s.SourceFile == "" || s.File == "" {
		return 0, false
	}
	if s.File == s.SourceFile {
		if s.Offset >= s.SourceAt {
			return 0, false
		}
		return s.SourceAt - s.Offset, true
	}
	if event.FileNumber(s.File) > event.FileNumber(s.SourceFile) {
		return 0, false
	}
	var n uint64
	between := false
	for _, f := range st.files {
		switch {
		case f.name == s.File:
			between = true
			n += f.size - min(f.size, s.Offset)
		case f.name == s.SourceFile:
			return n + s.SourceAt, true
		case between:
			n += f.size
		}
	}
	return n + s.SourceAt, true
}

func (st *status) update(f func(*Status)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	was := st.s.Connected
	f(&st.s)
	if st.s.Connected != was || st.s.Since.IsZero() {
		st.s.Since = time.Now()
	}
}
