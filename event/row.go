package event

// Row is one row change, as a [Scanner] shows it: valid until the Scanner's next call.
type Row struct {
	Event   *Event
	Table   *Table
	Op      Op
	Before  []Value // one a column; nil for an insert
	After   []Value // one a column; nil for a delete
	Ordinal int64   // number of the row change in the destination
	Index   int64   // index of the row change in its transaction, from 0
	Last    bool    // last row change of its transaction, nothing counted between it and the End
}

// Values returns the image that identifies the row now: After, or Before for a delete.
func (r *Row) Values() []Value {
	if r.Op == Delete {
		return r.Before
	}
	return r.After
}
