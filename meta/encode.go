package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"github.com/binlogmq/binlogmq/event"
)

const (
	// recordVersion is the number of the format; a change of the fields' meaning is a new version.
	recordVersion = 1

	// MaxRecord bounds an encoded record, in bytes. A record with the state of some
	// thousand partitions takes less than a hundredth of it.
	MaxRecord = 64 << 20
)

// envelope is a whole encoded record. Checksum is CRC-32C of Record without insignificant white space.
type envelope struct {
	Version  int             `json:"binlogmq_cursor"`
	Checksum string          `json:"checksum"`
	Record   json.RawMessage `json:"record"`
}

type savedRecord struct {
	Destination string      `json:"destination"`
	Client      string      `json:"client"`
	Filter      string      `json:"filter"`
	BatchFloor  int64       `json:"batch_floor"`
	SavedAt     time.Time   `json:"saved_at"`
	Cursor      savedCursor `json:"cursor"`
	Skips       []Skip      `json:"skips,omitempty"`
}

type savedCursor struct {
	File       string        `json:"file"`
	Offset     uint64        `json:"offset"`
	GTIDs      event.GTIDSet `json:"gtids"`
	ServerUUID string        `json:"server_uuid"`
	ByFile     bool          `json:"by_file,omitempty"`
	Ordinal    int64         `json:"ordinal"`
	Progress   int64         `json:"progress"`
	Open       event.GTID    `json:"open,omitzero"`
	Done       *event.Done   `json:"done,omitempty"`
	State      []byte        `json:"state,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(compact []byte) string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(compact, castagnoli))
}

// EncodeRecord writes a record as stores keep it: JSON for people to read, with a version and a
// checksum, at most MaxRecord bytes.
func EncodeRecord(id Identity, r *Record) ([]byte, error) {
	p := &r.Cursor.Position
	rec := savedRecord{
		Destination: id.Destination, Client: id.Client, Filter: r.Filter, BatchFloor: r.BatchFloor, SavedAt: r.SavedAt.UTC(),
		Cursor: savedCursor{
			File: p.File, Offset: p.Offset, GTIDs: p.GTIDs, ServerUUID: p.ServerUUID, ByFile: p.ByFile,
			Ordinal: r.Cursor.Ordinal, Progress: r.Cursor.Progress, Open: r.Cursor.Open, Done: r.Cursor.Done, State: r.Cursor.State,
		},
		Skips: r.Skips,
	}
	if err := rec.check(); err != nil {
		return nil, err
	}
	compact, err := json.Marshal(&rec)
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(envelope{recordVersion, checksum(compact), compact}, "", "  ")
	if err == nil && len(out) >= MaxRecord {
		err = fmt.Errorf("record of %d bytes, %d are allowed", len(out), MaxRecord)
	}
	return append(out, '\n'), err
}

// DecodeRecord reads what EncodeRecord wrote and says whose it is. Anything else is an error (I3).
func DecodeRecord(data []byte) (Identity, *Record, error) {
	fail := func(err error) (Identity, *Record, error) { return Identity{}, nil, err }
	var env envelope
	if err := unmarshal(data, &env); err != nil {
		return fail(err)
	}
	if env.Version != recordVersion {
		return fail(fmt.Errorf("format version %d is not known, only %d", env.Version, recordVersion))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, env.Record); err != nil {
		return fail(err)
	}
	if sum := checksum(compact.Bytes()); sum != env.Checksum {
		return fail(fmt.Errorf("checksum %.32q, computed %s", env.Checksum, sum))
	}
	var rec savedRecord
	if err := unmarshal(env.Record, &rec); err != nil {
		return fail(err)
	}
	if err := rec.check(); err != nil {
		return fail(err)
	}
	c := &rec.Cursor
	return Identity{Destination: rec.Destination, Client: rec.Client}, &Record{
		Cursor: event.Cursor{
			Position: event.Position{File: c.File, Offset: c.Offset, GTIDs: c.GTIDs, ServerUUID: c.ServerUUID, ByFile: c.ByFile},
			Ordinal:  c.Ordinal, Progress: c.Progress, Open: c.Open, Done: c.Done, State: c.State,
		},
		Filter: rec.Filter, BatchFloor: rec.BatchFloor, SavedAt: rec.SavedAt, Skips: rec.Skips,
	}, nil
}

func unmarshal(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("empty")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the record")
	}
	return nil
}

func (r *savedRecord) check() error {
	if err := (Identity{Destination: r.Destination, Client: r.Client}).Validate(); err != nil {
		return err
	}
	c := &r.Cursor
	if c.Ordinal < 0 || c.Progress < 0 || r.BatchFloor < 0 || c.Progress > math.MaxInt64-c.Ordinal {
		return fmt.Errorf("ordinal %d, progress %d or batch_floor %d is out of range", c.Ordinal, c.Progress, r.BatchFloor)
	}
	if c.Done != nil {
		for _, p := range c.Done.Parts {
			if p.GTID.IsZero() || p.Ordinals < 1 {
				return fmt.Errorf("%d ordinals of transaction %q cannot be done", p.Ordinals, p.GTID)
			}
		}
	}
	for _, s := range r.Skips {
		if _, err := event.ParseGTID(s.GTID); err != nil || s.Ordinals < 1 {
			return fmt.Errorf("skipped transaction %.100q of %d ordinals cannot be", s.GTID, s.Ordinals)
		}
	}
	return nil
}
