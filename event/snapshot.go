package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot tells of which snapshot rows are. It is immutable.
type Snapshot struct {
	ID      string   `json:"id"`                // names the snapshot in its destination
	Chunk   int64    `json:"chunk"`             // number of the chunk in its destination, from 1; given once
	Clients []string `json:"clients,omitempty"` // client ids of the subscriptions that get it; none: all
}

// For tells whether a subscription gets the rows. It may be called on nil, as for rows of the log, which are for all.
func (s *Snapshot) For(client string) bool {
	return s == nil || len(s.Clients) == 0 || slices.Contains(s.Clients, client)
}

// Append appends "ID/CHUNK", which names the chunk in its destination for good, as a GTID names a transaction: what it names never changes.
func (s *Snapshot) Append(dst []byte) []byte {
	return strconv.AppendInt(append(append(dst, s.ID...), '/'), s.Chunk, 10)
}

// String returns what Append appends.
func (s *Snapshot) String() string { return string(s.Append(nil)) }

// ParseSnapshot is the inverse of String; whose the rows are the text does not tell.
func ParseSnapshot(text string) (Snapshot, error) {
	i := strings.LastIndexByte(text, '/')
	if i > 0 {
		if n, err := strconv.ParseInt(text[i+1:], 10, 64); err == nil && n > 0 && text[i+1] != '+' && text[i+1] != '0' {
			return Snapshot{ID: text[:i], Chunk: n}, nil
		}
	}
	return Snapshot{}, fmt.Errorf("%q names no chunk of a snapshot: ID/NUMBER is wanted", text)
}

// Snapshot returns of which snapshot the event's rows are; nil: they are of the log.
func (e *Event) Snapshot() *Snapshot {
	if e.Txn == nil {
		return nil
	}
	return e.Txn.Snapshot
}
