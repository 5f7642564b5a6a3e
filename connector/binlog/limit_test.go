package binlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// I9: an event that is small in the log and huge unpacked is refused before memory for it is taken.
func TestUnpackedSizeIsLimited(t *testing.T) {
	const size = 12 << 20
	told := 0
	limit := sizeLimit{max: 1 << 20, large: func(int) { told++ }, typ: TypeWriteRows}

	head := make([]byte, HeaderSize)
	head[4] = byte(TypeWriteRows)
	head[9], head[10], head[11], head[12] = size&0xff, size>>8&0xff, size>>16&0xff, size>>24
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	plain := append(head, make([]byte, size-HeaderSize)...)
	payload := Payload{Data: enc.EncodeAll(plain, nil)}

	var r payloadReader
	defer r.close()
	if err := r.reset(&payload); err != nil {
		t.Fatal(err)
	}
	var large *TooLargeError
	if _, err := r.next(limit); !errors.As(err, &large) || large.Size != size || large.Type != TypeWriteRows {
		t.Errorf("an event of a compressed transaction: %v", err)
	}
	packed := deflated(make([]byte, size))
	if _, err := inflateWithin(packed, limit); !errors.As(err, &large) || large.Size != size {
		t.Errorf("a compressed event: %v", err)
	}
	if told != 0 {
		t.Errorf("told %d times of what was refused", told)
	}

	limit.max = size
	if err := r.reset(&payload); err != nil {
		t.Fatal(err)
	}
	if e, err := r.next(limit); err != nil || !bytes.Equal(e.Data, plain) || !e.Owned {
		t.Errorf("an event of a compressed transaction within the limit: %v", err)
	}
	if b, err := inflateWithin(packed, limit); err != nil || len(b) != size {
		t.Errorf("a compressed event within the limit: %v", err)
	}
	if told != 2 {
		t.Errorf("told %d times of two large events", told)
	}
}
