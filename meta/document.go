package meta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// SchemaHistory names the document that holds what is known of a destination's tables.
const SchemaHistory = "schema"

// Documents keeps what belongs to a destination as a whole, beside its cursors. Every Store that a program runs on is one. It is safe
// for concurrent use; saves of one document are made one at a time, and need the destination's [Lease].
type Documents interface {
	// LoadDocument returns the document, or ErrNotFound. One that cannot be read is an error that is ErrDamaged and says where it lies.
	LoadDocument(ctx context.Context, destination, name string) ([]byte, error)

	// SaveDocument replaces the document, which is JSON; nil deletes it. When it returns nil the document survives a crash of process
	// and machine; after an error the old one or the new one is there, whole (I7).
	SaveDocument(ctx context.Context, destination, name string, data []byte) error
}

// ErrTooLarge: a document is larger than the store takes; what was saved before is there still.
var ErrTooLarge = errors.New("too large")

// documentVersion is the number of the envelope's format.
const documentVersion = 1

type documentEnvelope struct {
	Version     int             `json:"binlogmq_document"`
	Destination string          `json:"destination"`
	Name        string          `json:"name"`
	Checksum    string          `json:"checksum"`
	Document    json.RawMessage `json:"document"`
}

// EncodeDocument writes a document as stores keep it, with a version and a checksum, at most MaxRecord bytes.
func EncodeDocument(destination, name string, data []byte) ([]byte, error) {
	if err := validDestination(destination); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, fmt.Errorf("document %s: %w", name, err)
	}
	out, err := json.Marshal(documentEnvelope{documentVersion, destination, name, checksum(compact.Bytes()), compact.Bytes()})
	if err == nil && len(out) >= MaxRecord {
		err = fmt.Errorf("document %s takes %d bytes, %d are allowed: %w", name, len(out), MaxRecord, ErrTooLarge)
	}
	return append(out, '\n'), err
}

// DecodeDocument reads what EncodeDocument wrote of that destination and name. Anything else is an error (I3).
func DecodeDocument(destination, name string, data []byte) ([]byte, error) {
	var env documentEnvelope
	if err := unmarshal(data, &env); err != nil {
		return nil, err
	}
	switch {
	case env.Version != documentVersion:
		return nil, fmt.Errorf("format version %d is not known, only %d", env.Version, documentVersion)
	case env.Destination != destination || env.Name != name:
		return nil, fmt.Errorf("it is %q of destination %q", env.Name, env.Destination)
	case env.Document == nil:
		return nil, errors.New("empty")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, env.Document); err != nil {
		return nil, err
	}
	if sum := checksum(compact.Bytes()); sum != env.Checksum {
		return nil, fmt.Errorf("checksum %.32q, computed %s", env.Checksum, sum)
	}
	return compact.Bytes(), nil
}
