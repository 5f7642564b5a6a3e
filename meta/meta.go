package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/event"
)

// Identity names one subscription.
type Identity struct {
	Destination string
	Client      string // [A-Za-z0-9_.-]+; "1001" for Canal clients, "sink-<name>" for configured sinks
}

// String returns "destination/client".
func (id Identity) String() string { return id.Destination + "/" + id.Client }

// maxName bounds the names of destinations and clients, in bytes.
const maxName = 100

// Validate reports whether both names can be used: 1 to 100 bytes each, a
// client of the letters, digits and signs [A-Za-z0-9_.-], a destination of
// printable UTF-8.
func (id Identity) Validate() error {
	if err := validDestination(id.Destination); err != nil {
		return err
	}
	if id.Client == "" || len(id.Client) > maxName {
		return fmt.Errorf("destination %q: client name %.140q: must have 1 to %d characters", id.Destination, id.Client, maxName)
	}
	for i := range len(id.Client) {
		switch c := id.Client[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return fmt.Errorf("destination %q: client name %q: only letters, digits and _ . - are allowed", id.Destination, id.Client)
		}
	}
	return nil
}

func validDestination(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("destination name %.140q: must have 1 to %d bytes", name, maxName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("destination name %q: not UTF-8", name)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("destination name %q: control characters are not allowed", name)
		}
	}
	return nil
}

// Record is what is saved of one subscription, as a whole (I2).
type Record struct {
	Cursor     event.Cursor
	Filter     string    // the subscription's filter as its client gave it; "" = everything
	BatchFloor int64     // batch ids up to this one may have been handed out; later ones have not
	SavedAt    time.Time // when the record was written; for display only
	Skips      []Skip    // transactions that the destination passes over, by the operator's order
}

// Skip says that a transaction is not published: whatever it holds, it takes that many ordinals,
// so that every number behind it is the same in each replay (I5).
type Skip struct {
	GTID     string `json:"gtid"`
	Ordinals int64  `json:"ordinals"` // at least 1: the transaction's end
}

// Clone returns a copy that shares no memory with r.
func (r *Record) Clone() *Record {
	c := *r
	c.Cursor.Position.GTIDs = r.Cursor.Position.GTIDs.Clone()
	if r.Cursor.State != nil {
		c.Cursor.State = append([]byte{}, r.Cursor.State...)
	}
	c.Skips = slices.Clone(r.Skips)
	return &c
}

// Errors that stores return, possibly wrapped.
var (
	// ErrDamaged: what is saved of that subscription cannot be read.
	ErrDamaged = errors.New("damaged")
	// ErrNotFound: nothing is saved of that subscription.
	ErrNotFound = errors.New("no cursor is saved")

	// ErrFenced: another process owns the destination now; nothing was saved and
	// this process must stop the destination (I8).
	ErrFenced = errors.New("another process owns the destination")
)

// Store saves records. It is safe for concurrent use by one process; calls for one identity
// are made one at a time. Save and Delete need the destination's [Lease].
type Store interface {
	// Load returns the saved record, or ErrNotFound. A record that cannot be
	// read is an error that says where it lies and what to do, never ErrNotFound (I3).
	Load(ctx context.Context, id Identity) (*Record, error)

	// Save replaces the record. When it returns nil the record survives a crash
	// of process and machine; after an error the old record or the new one is there,
	// whole (I7). It does not keep r.
	Save(ctx context.Context, id Identity, r *Record) error

	// Delete forgets the record; deleting what is not there is no error.
	Delete(ctx context.Context, id Identity) error

	// List returns the saved subscriptions of one destination, or of all when
	// destination is empty, sorted by destination and client.
	List(ctx context.Context, destination string) ([]Identity, error)
}
