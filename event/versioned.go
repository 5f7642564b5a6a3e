package event

import (
	"encoding/binary"
	"errors"
)

// A Run is a number of row changes of one operation, as they stand in a rows event.
type Run struct {
	Op     Op
	Rows   int
	Images Images
	Raw    []byte // of its own, or the event's where nothing was taken out
}

var errRowEnd = errors.New("the image does not tell where the row's time ends: set binlog_row_image=FULL on the server")

// Live turns the row changes of a table WITH SYSTEM VERSIONING of MariaDB, whose column RowEnd-1 says until when a row is valid, into those
// that its present rows undergo: the end of a row's time is its deletion, and what happens to rows whose time has
// ended does not show. The runs keep the order; none means that nothing shows.
func Live(t *Table, op Op, im Images, rows int, raw []byte) ([]Run, error) {
	e := Event{Kind: Rows, Op: op, Table: t, Images: im, Rows: uint32(rows), Raw: raw}
	var s Scanner
	var out []Run
	at := t.RowEnd - 1
	for s.Reset(&e); ; {
		from := s.off
		if !s.Next() {
			break
		}
		r := s.Row()
		was, is, err := false, false, error(nil)
		if r.Before != nil {
			was, err = endless(&r.Before[at])
		}
		switch {
		case err != nil:
		case r.After == nil:
		case r.Before != nil && r.After[at].IsAbsent():
			is = was
		default:
			is, err = endless(&r.After[at])
		}
		if err != nil {
			return nil, (&Value{col: &t.Columns[at]}).wrap(err)
		}
		live, images, bytes := op, im, raw[from:s.off]
		switch {
		case was == is && !was, op == Delete && !was:
			continue
		case op == Update && was != is:
			n, err := imageLen(t, &s.before, bytes)
			if err != nil {
				return nil, err
			}
			if was {
				live, images, bytes = Delete, Images{Before: im.Before}, bytes[:n]
			} else {
				live, images, bytes = Insert, Images{After: im.After}, bytes[n:]
			}
		}
		if n := len(out); n > 0 && out[n-1].Op == live {
			out[n-1].Rows++
			out[n-1].Raw = append(out[n-1].Raw, bytes...)
			continue
		}
		out = append(out, Run{Op: live, Rows: 1, Images: images, Raw: append([]byte(nil), bytes...)})
	}
	if s.Err() != nil {
		return nil, s.Err()
	}
	if len(out) == 1 && out[0].Op == op && out[0].Rows == rows {
		out[0].Raw = raw
	}
	return out, nil
}

// endless reports whether a row's time has no end: the greatest TIMESTAMP(6), which is of the year 2038, from MariaDB 11.5 on of 2106.
func endless(v *Value) (bool, error) {
	if v.state != statePresent || len(v.raw) != 7 {
		return false, errRowEnd
	}
	sec := binary.BigEndian.Uint32(v.raw)
	return (sec == 1<<31-1 || sec == 1<<32-1) && bigEndian(v.raw[4:]) == 999999, nil
}
