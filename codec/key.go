package codec

import (
	"fmt"

	"github.com/binlogmq/binlogmq/event"
)

// KeyValue returns the value of column k that identifies the row: that of the
// after image, or for a delete of the before image. Where the after image lacks
// the column (binlog_row_image MINIMAL), it did not change, and the before image has
// it. It is an error when no image holds the column, or the table has none at k:
// without a complete key the row cannot be sent (I3, I4).
func KeyValue(r *event.Row, k int) (*event.Value, error) {
	if k < 0 || k >= len(r.Table.Columns) {
		return nil, fmt.Errorf("key names column %d of %d", k+1, len(r.Table.Columns))
	}
	if r.Op != event.Delete && k < len(r.After) && !r.After[k].IsAbsent() {
		return &r.After[k], nil
	}
	if k < len(r.Before) && !r.Before[k].IsAbsent() {
		return &r.Before[k], nil
	}
	return nil, fmt.Errorf("key column %q is in no image of the row: set binlog_row_image=FULL on the server, or choose a key that the row images hold",
		r.Table.Columns[k].Name)
}
