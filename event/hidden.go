package event

import "slices"

// withoutHidden returns the table as all but the log see it; nil if no column is Hidden.
func (t *Table) withoutHidden() *Table {
	if !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Hidden }) {
		return nil
	}
	shown := &Table{Schema: t.Schema, Name: t.Name, Caseless: t.Caseless}
	at := make([]int, len(t.Columns)) // where columns stand now
	for i := range t.Columns {
		at[i] = -1
		if c := t.Columns[i]; !c.Hidden {
			at[i] = len(shown.Columns)
			shown.Columns = append(shown.Columns, c)
		}
	}
	for _, k := range t.Key {
		if at[k] >= 0 {
			shown.Key = append(shown.Key, at[k])
		}
	}
	if t.RowEnd > 0 {
		shown.RowEnd = at[t.RowEnd-1] + 1
	}
	return shown
}

// Shown returns the table without its Hidden columns, which is t itself where there are none. Events refer to this one.
func (t *Table) Shown() *Table {
	if t.shown != nil {
		return t.shown
	}
	return t
}

// Strip takes the Hidden columns out of the images of a rows event that is not partial, for the table t.Shown. What it returns is memory of its own.
func (t *Table) Strip(op Op, im Images, raw []byte) (Images, []byte, error) {
	var before, after imageScan
	if err := planImages(t, op, im, &before, &after); err != nil {
		return Images{}, nil, err
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		left := len(raw)
		for _, m := range []*imageScan{&before, &after} {
			if m.bitmap == nil {
				continue
			}
			var n int
			var err error
			if out, n, err = t.strip(out, m, raw); err != nil {
				return Images{}, nil, err
			}
			raw = raw[n:]
		}
		if len(raw) == left {
			return Images{}, nil, errShort // of images that hold nothing there is no end
		}
	}
	return Images{Before: t.stripBitmap(&before), After: t.stripBitmap(&after)}, out, nil
}

// stripBitmap returns the bitmap of the columns that are shown.
func (t *Table) stripBitmap(m *imageScan) []byte {
	if m.bitmap == nil {
		return nil
	}
	out := make([]byte, (len(t.shown.Columns)+7)/8)
	n := 0
	for i := range t.Columns {
		if t.Columns[i].Hidden {
			continue
		}
		if m.has(i) {
			out[n>>3] |= 1 << (n & 7)
		}
		n++
	}
	return out
}

// strip appends the image at the front of b without Hidden columns, and returns how long it was.
func (t *Table) strip(dst []byte, m *imageScan, b []byte) ([]byte, int, error) {
	n, err := imageLen(t, m, b)
	if err != nil {
		return dst, 0, err
	}
	kept := 0
	for i := range t.Columns {
		if m.has(i) && !t.Columns[i].Hidden {
			kept++
		}
	}
	nulls := len(dst)
	dst = append(dst, make([]byte, (kept+7)/8)...)
	pos, bit, to := m.nulls, 0, 0
	for i, w := range t.image.widths {
		if !m.has(i) {
			continue
		}
		null := b[bit>>3]>>(bit&7)&1 != 0
		bit++
		start := pos
		switch {
		case null:
		case w >= 0:
			pos += int(w)
		default:
			size, prefix := prefixed(b, pos, -int(w)) // in range, as imageLen has found
			pos += prefix + size
		}
		if t.Columns[i].Hidden {
			continue
		}
		if null {
			dst[nulls+to>>3] |= 1 << (to & 7)
		}
		to++
		dst = append(dst, b[start:pos]...)
	}
	return dst, n, nil
}
